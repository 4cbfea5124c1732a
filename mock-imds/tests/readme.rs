//! The documentation tells the truth: its `curl` calls are run, and answered exactly as it says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what cannot go on fails its test")]

use std::{net::SocketAddr, path::Path};

use jiff::Timestamp;
use mock_imds::{Clock, Mock, Scenario};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const README: &str = include_str!("../README.md");
const README_OF_THE_PROJECT: &str = include_str!("../../README.md");
const ADDRESS: &str = "http://127.0.0.1:8080";

/// A clock that shows the start once, and from then on two seconds after it.
struct TwoSecondsLater(std::sync::atomic::AtomicBool);

impl Clock for TwoSecondsLater {
    fn now(&self) -> Timestamp {
        let started = self.0.swap(true, std::sync::atomic::Ordering::Relaxed);
        if started { "2026-04-29T18:00:02Z" } else { "2026-04-29T18:00:00Z" }.parse().unwrap()
    }
}

#[tokio::test]
async fn the_console_examples_of_this_crate_are_answered_as_it_says() {
    assert_examples(README, 6).await;
}

#[tokio::test]
async fn the_console_examples_of_the_project_are_answered_as_it_says() {
    assert_examples(README_OF_THE_PROJECT, 3).await;
}

async fn assert_examples(documentation: &str, least: usize) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/redeploy.yaml");
    let mock = Mock::new(Scenario::from_file(&file).unwrap(), TwoSecondsLater(false.into()));
    let server = mock.serve_on_loopback().await.unwrap();
    let mut examples = 0;
    for example in documentation.split("```console\n$ curl ").skip(1) {
        let (example, _) = example.split_once("\n```").unwrap();
        let (arguments, expected) = example.split_once('\n').unwrap();
        let answer = curl(&format!("curl {arguments}"), server.address()).await;
        assert_eq!(answer.trim_end(), expected.trim_end(), "{arguments}");
        examples += 1;
    }
    assert!(examples >= least, "only {examples} examples found");
    server.stop().await;
}

/// Does what `curl -si` does with `-H`, `-d` and a URL.
async fn curl(command: &str, server: SocketAddr) -> String {
    let mut words = words(command).into_iter();
    assert_eq!((words.next().as_deref(), words.next().as_deref()), (Some("curl"), Some("-si")), "{command}");
    let (mut headers, mut data, mut target) = (Vec::new(), None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-H" => headers.extend(words.next()),
            "-d" => data = words.next(),
            url => target = url.strip_prefix(ADDRESS).map(str::to_owned),
        }
    }
    let method = if data.is_some() { "POST" } else { "GET" };
    let (data, target) = (data.unwrap_or_default(), target.unwrap());
    let headers: String = headers.into_iter().map(|header| header + "\r\n").collect();
    let length = data.len();
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: {server}\r\n{headers}Content-Length: {length}\r\n\r\n{data}");
    let mut stream = TcpStream::connect(server).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&answer).replace("\r\n", "\n");
        if let Some((head, body)) = text.split_once("\n\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return text;
            }
        }
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{text}");
    }
}

/// The words of a shell command that quotes with apostrophes only.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in command.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

#[test]
fn the_yaml_example_is_a_scenario() {
    let (_, yaml) = README.split_once("```yaml\n").unwrap();
    let (yaml, _) = yaml.split_once("```").unwrap();
    Scenario::from_yaml("README.md", yaml).unwrap();
}
