//! Whether systemd-logind lets the kubelet delay a shutdown for as long as it wants to.
//!
//! The kubelet holds an inhibitor lock. If logind's longest delay is too short for it, it writes a drop-in of its own, and if
//! another that comes after it says less, graceful shutdown stays off
//! (<https://github.com/kubernetes/kubernetes/issues/102818>).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use domain::time::spoken;
use jiff::SignedDuration;

use super::host::{HostError, HostRoot};
use super::shutdown::ShutdownSettings;
use super::{Check, Topic};

/// Where logind's files are, those that count most first
/// (<https://www.freedesktop.org/software/systemd/man/latest/logind.conf.html>).
const FOLDERS: [&str; 4] = ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"];

/// The drop-in that the kubelet writes.
const KUBELETS: &str = "99-kubelet.conf";

/// What logind takes if no file says anything.
const DEFAULT: Duration = Duration::from_secs(5);

/// A setting of `InhibitDelayMaxSec`, and the file with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    path: String,
    /// Whether the file is read after the kubelet's.
    after_kubelets: bool,
    delay: Duration,
}

/// Whether the kubelet is given its time; `settings` if it is known how long that is.
pub(super) fn gives_time(root: &HostRoot, settings: Option<&ShutdownSettings>) -> Check {
    const TOPIC: Topic = Topic::Logind;
    if cfg!(windows) {
        return Check::skip(TOPIC, "a Windows node has no logind");
    }
    match read(root) {
        Ok(Some(found)) => judge(&found, settings),
        Ok(None) => Check::skip(TOPIC, format!("no systemd below {}", root.path().display())),
        Err(error) => Check::skip(TOPIC, error.to_string()),
    }
}

fn judge(found: &[Setting], settings: Option<&ShutdownSettings>) -> Check {
    const TOPIC: Topic = Topic::Logind;
    let (delay, source) = found.last().map_or((DEFAULT, "its default"), |one| (one.delay, one.path.as_str()));
    let now = format!("a shutdown may be delayed by {} ({source})", told(delay));
    let Some(needed) = settings.map(|settings| settings.total) else {
        return Check::skip(TOPIC, format!("{now}; how long the kubelet needs is not known"));
    };
    if needed.is_zero() {
        return Check::ok(TOPIC, format!("{now}; the kubelet asks for none"));
    }
    if delay >= needed {
        return Check::ok(TOPIC, format!("{now}, of which the kubelet needs {}", spoken(needed)));
    }
    match found.iter().rev().find(|one| one.after_kubelets) {
        None => Check::ok(TOPIC, format!("{now}, which the kubelet raises to {} when it starts", spoken(needed))),
        Some(Setting { path, delay, .. }) => {
            let found = format!(
                "{path} sets InhibitDelayMaxSec to {} and is read after the kubelet's {KUBELETS}: the kubelet needs {} and \
                 does without graceful shutdown",
                told(*delay),
                spoken(needed)
            );
            let name = path.rsplit('/').next().unwrap_or_default();
            let advice = format!(
                "hide it (ln -sf /dev/null /etc/systemd/logind.conf.d/{name}; systemctl restart systemd-logind kubelet), or \
                 lower the kubelet's shutdownGracePeriod"
            );
            Check::warn(TOPIC, found, advice)
        }
    }
}

/// The settings in the order in which logind reads them, so that the last one counts; `None` if the host has no systemd.
fn read(root: &HostRoot) -> Result<Option<Vec<Setting>>, HostError> {
    let mut has_systemd = false;
    let mut settings = Vec::new();
    for folder in FOLDERS {
        has_systemd |= !root.list(folder)?.is_empty();
    }
    if !has_systemd {
        return Ok(None);
    }
    // Of the main file only the first is read.
    for folder in FOLDERS {
        let path = format!("{folder}/logind.conf");
        if let Some(text) = root.read(&path)? {
            settings.extend(inhibit_delay(&text).map(|delay| Setting { path, after_kubelets: false, delay }));
            break;
        }
    }
    // The drop-ins of all folders together are read in the order of their names, each name from the folder that counts most.
    let mut drop_ins = BTreeMap::new();
    for folder in FOLDERS {
        let folder = format!("{folder}/logind.conf.d");
        for name in
            root.list(&folder)?.into_iter().filter(|name| Path::new(name).extension().is_some_and(|end| end == "conf"))
        {
            drop_ins.entry(name).or_insert_with(|| folder.clone());
        }
    }
    for (name, folder) in drop_ins {
        let path = format!("{folder}/{name}");
        let text = root.read(&path)?.unwrap_or_default();
        let after_kubelets = name.as_str() > KUBELETS;
        settings.extend(inhibit_delay(&text).map(|delay| Setting { path, after_kubelets, delay }));
    }
    Ok(Some(settings))
}

/// `InhibitDelayMaxSec` of a file; what logind could not read either is passed over
/// (<https://www.freedesktop.org/software/systemd/man/latest/systemd.syntax.html>).
fn inhibit_delay(text: &str) -> Option<Duration> {
    let mut in_section = false;
    let mut delay = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            in_section = section.trim_end_matches(']') == "Login";
        } else if in_section
            && let Some(("InhibitDelayMaxSec", value)) = line.split_once('=').map(|(k, v)| (k.trim_end(), v))
        {
            delay = time_span(value.trim()).or(delay);
        }
    }
    delay
}

/// A time span as systemd writes it: `30`, `30s`, `1min 30s`, `infinity`
/// (<https://www.freedesktop.org/software/systemd/man/latest/systemd.time.html>).
fn time_span(text: &str) -> Option<Duration> {
    if text == "infinity" {
        return Some(Duration::MAX);
    }
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Duration::try_from(text.parse::<SignedDuration>().ok()?).ok()
}

fn told(delay: Duration) -> String {
    if delay == Duration::MAX { "any time".into() } else { spoken(delay) }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::doctor::host::tests::host_with;

    const UNATTENDED: &str = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";

    fn judged(files: &[(&str, &str)], needed: u64) -> Check {
        let (_folder, root) = host_with(files);
        let settings = ShutdownSettings { total: Duration::from_secs(needed), ..ShutdownSettings::default() };
        gives_time(&root, Some(&settings))
    }

    fn delay(files: &[(&str, &str)]) -> String {
        let (_folder, root) = host_with(files);
        read(&root)
            .unwrap()
            .unwrap()
            .last()
            .map(|one| format!("{} {}", one.delay.as_secs(), one.path))
            .unwrap_or_default()
    }

    #[test]
    fn a_drop_in_that_comes_after_the_kubelets_takes_its_time_away() {
        let unattended = (UNATTENDED, "[Login]\n# Allow time\nInhibitDelayMaxSec=30\n");
        let kubelets = ("/etc/systemd/logind.conf.d/99-kubelet.conf", "[Login]\nInhibitDelayMaxSec=60\n");
        let masked = ("/etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf", "->/dev/null");
        let none = ("/etc/systemd/logind.conf", "[Login]\n#InhibitDelayMaxSec=5\n");
        for (files, needed, verdict, found) in [
            (&[none][..], 60, Verdict::Ok, "5s (its default), which the kubelet raises to 1m"),
            (&[none], 5, Verdict::Ok, "of which the kubelet needs 5s"),
            (&[none, unattended], 30, Verdict::Ok, "of which the kubelet needs 30s"),
            (&[none, unattended, kubelets], 60, Verdict::Warn, "read after the kubelet's 99-kubelet.conf"),
            (
                &[none, unattended, kubelets, masked],
                60,
                Verdict::Ok,
                "delayed by 1m (/etc/systemd/logind.conf.d/99-kubelet.conf)",
            ),
            (&[none, unattended], 0, Verdict::Ok, "the kubelet asks for none"),
            (&[("/var/lib/x", "")], 60, Verdict::Skip, "no systemd below"),
        ] {
            let check = judged(files, needed);
            assert_eq!(check.verdict, verdict, "{files:?} {needed}: {check:?}");
            assert!(check.found.contains(found), "{files:?} {needed}: {check:?}");
        }
        let advice = judged(&[none, unattended], 60).advice.unwrap();
        assert!(advice.contains("/etc/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf"), "{advice}");
    }

    #[test]
    fn files_are_read_in_the_order_that_systemd_reads_them() {
        let set = |seconds: u32| format!("[Login]\nInhibitDelayMaxSec={seconds}\n");
        let (one, two, three) = (set(1), set(2), set(3));
        for (files, expected) in [
            (vec![("/etc/systemd/logind.conf", "[Login]"), ("/usr/lib/systemd/logind.conf", one.as_str())], ""),
            (
                vec![("/etc/systemd/logind.conf", one.as_str()), ("/usr/lib/systemd/logind.conf.d/a.conf", &two)],
                "2 /usr/lib/systemd/logind.conf.d/a.conf",
            ),
            (
                vec![
                    ("/etc/systemd/logind.conf.d/a.conf", one.as_str()),
                    ("/run/systemd/logind.conf.d/b.conf", &two),
                    ("/usr/lib/systemd/logind.conf.d/b.conf", &three),
                ],
                "2 /run/systemd/logind.conf.d/b.conf",
            ),
            (
                vec![("/run/systemd/logind.conf.d/b.conf", one.as_str()), ("/etc/systemd/logind.conf.d/b.txt", &two)],
                "1 /run/systemd/logind.conf.d/b.conf",
            ),
        ] {
            assert_eq!(delay(&files), expected, "{files:?}");
        }
    }

    #[test]
    fn settings_are_read_as_systemd_reads_them() {
        for (text, seconds) in [
            ("[Login]\nInhibitDelayMaxSec=30", Some(30)),
            ("[Login]\n InhibitDelayMaxSec = 1min 30s ", Some(90)),
            ("[Login]\nInhibitDelayMaxSec=5m", Some(300)),
            ("[Login]\nInhibitDelayMaxSec=30\nInhibitDelayMaxSec=60", Some(60)),
            ("[Login]\nInhibitDelayMaxSec=30\nInhibitDelayMaxSec=soon", Some(30)),
            ("[Login]\nInhibitDelayMaxSec=infinity", Some(u64::MAX)),
            ("[Login]\n#InhibitDelayMaxSec=30\n;InhibitDelayMaxSec=30", None),
            ("[Other]\nInhibitDelayMaxSec=30", None),
            ("InhibitDelayMaxSec=30", None),
        ] {
            assert_eq!(inhibit_delay(text).map(|delay| delay.as_secs()), seconds, "{text}");
        }
    }
}
