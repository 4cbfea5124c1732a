//! Holds an API server to what the real one answers: each script of requests is run against both at the same time, and
//! every answer has to be the same.
//!
//! A script is an async function of a [`side::Side`]. What it asks through [`side::Side::ask`] is recorded; what it only
//! prepares or waits for is not. Answers are compared after names, UIDs, versions and times have become placeholders,
//! and the code of each, and the bodies of those that a client has to understand, are also compared with what the real
//! server is known to say: a script in which both servers refuse everything proves nothing.

mod custom_resources;
mod discovery;
#[path = "../e2e/embedded.rs"]
mod embedded;
mod events;
mod eviction;
mod kubectl;
mod leases;
mod lists_and_watches;
mod namespaces;
mod nodes;
mod pods;
mod side;
mod transcript;
mod workloads;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use control_plane::harness::{self, Context, Test, TestResult};
use control_plane::{Namespace, Options};

use crate::side::{Outcome, Side};

/// How many answers were compared, by topic.
static COMPARED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

fn main() -> ExitCode {
    let all = [
        // These first, because they take longest, the namespaces when others end beside them.
        nodes::slow_scripts(),
        namespaces::scripts(),
        eviction::scripts(),
        pods::scripts(),
        nodes::scripts(),
        leases::scripts(),
        lists_and_watches::scripts(),
        events::scripts(),
        workloads::scripts(),
        discovery::scripts(),
        custom_resources::scripts(),
        kubectl::scripts(),
    ];
    let code = harness::run(Options::default(), all.into_iter().flatten().collect());
    let compared = COMPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if !compared.is_empty() {
        let topics: Vec<String> = compared.iter().map(|(topic, count)| format!("{topic} {count}")).collect();
        let sum: usize = compared.values().sum();
        println!("conformance: {sum} answers compared ({})", topics.join(", "));
    }
    code
}

/// The two servers of a comparison: the one that is right by definition, and the one that has to be like it.
async fn sides(context: &Context, topic: &str) -> Outcome<[Side; 2]> {
    let prefix = topic.replace('_', "-");
    let expected = Side::new(context.api_server(), context.namespace(&prefix).await?)?;
    let embedded = embedded::api_server().await?;
    let namespace = Namespace::create(&embedded.client()?, &prefix).await?;
    let found = Side::new(&embedded, namespace)?;
    Ok([expected, found])
}

/// A test that runs a script on both sides and compares what they said. Usually made by `scripts!`.
fn script<F, R>(name: &str, script: F) -> Test
where
    F: Fn(Side) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send + 'static,
{
    let topic = name.split("::").next().unwrap_or(name).to_owned();
    Test::new(name, move |context: Context| compared(context, topic.clone(), script))
}

async fn compared<F, R>(context: Context, topic: String, script: F) -> TestResult
where
    F: Fn(Side) -> R,
    R: Future<Output = Outcome>,
{
    let [expected, found] = sides(&context, &topic).await?;
    let ends = futures::join!(script(expected.clone()), script(found.clone()));
    let mut problems = Vec::new();
    for (side, end) in [("expected", ends.0), ("found", ends.1)] {
        problems.extend(end.err().map(|error| format!("the side of the {side} answers cannot go on: {error}")));
    }
    match transcript::compare(expected.take_transcript(), found.take_transcript()) {
        Ok(count) => {
            *COMPARED.lock().unwrap_or_else(PoisonError::into_inner).entry(topic).or_default() += count;
        }
        Err(differences) => problems.push(differences),
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n\n").into()) }
}

/// Makes a list of tests from scripts, named as these are, with their module.
macro_rules! scripts {
    ($($function:path),* $(,)?) => {
        vec![$($crate::script(&control_plane::harness::test_name(module_path!(), stringify!($function)), $function)),*]
    };
}
use scripts;
