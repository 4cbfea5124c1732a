//! What the kubelet does with pods when the machine shuts down
//! (<https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/>).

use std::time::Duration;

use domain::time::spoken;
use jiff::SignedDuration;
use serde_json::Value;

use super::host::HostRoot;
use super::{Check, Topic};
use crate::cluster::Cluster;

/// Where kubelets have their configuration: kubeadm's place, and that of an AKS node with a configuration of its own.
const FILES: [&str; 2] = ["/var/lib/kubelet/config.yaml", "/etc/default/kubeletconfig.json"];

/// The kubelet's configuration, or why it is not known.
pub(super) enum KubeletConfiguration {
    /// It is this.
    Known {
        /// Where it was found.
        source: String,
        /// What it says.
        value: Value,
    },
    /// Nobody knows.
    Unknown(String),
}

/// How long the kubelet takes for pods when the machine shuts down; zero if it takes no notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShutdownSettings {
    /// For all pods.
    pub(super) total: Duration,
    /// Of that, for critical pods only.
    pub(super) critical: Duration,
}

impl KubeletConfiguration {
    /// From the kubelet itself, if the API server lets this caller see it; else from the host's files.
    pub(super) async fn find(cluster: Option<&Cluster>, node: &str, root: &HostRoot) -> Self {
        if let Some(cluster) = cluster
            && let Ok(value) = cluster.kubelet_configuration(node).await
        {
            return Self::Known { source: "configz".into(), value };
        }
        Self::in_files(root)
    }

    fn in_files(root: &HostRoot) -> Self {
        if cfg!(windows) {
            return Self::Unknown("the files of a Windows node are not looked at".into());
        }
        for path in FILES {
            let text = match root.read(path) {
                Ok(Some(text)) => text,
                Ok(None) => continue,
                Err(error) => return Self::Unknown(error.to_string()),
            };
            return match serde_saphyr::from_str(&text) {
                Ok(value) => Self::Known { source: path.into(), value },
                Err(_) => Self::Unknown(format!("{path} is no YAML")),
            };
        }
        let root = root.path().display();
        Self::Unknown(format!(
            "the kubelet's configuration is not below {root} (mount the host's root, name it with --host-root)"
        ))
    }

    /// What it says about shutdown, or why that is not known.
    pub(super) fn settings(&self) -> Result<ShutdownSettings, String> {
        match self {
            Self::Unknown(why) => Err(why.clone()),
            Self::Known { source, value } => settings(value).map_err(|wrong| format!("{source}: {wrong}")),
        }
    }
}

fn settings(value: &Value) -> Result<ShutdownSettings, String> {
    let by_priority = value["shutdownGracePeriodByPodPriority"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !by_priority.is_empty() {
        let seconds = by_priority.iter().filter_map(|group| group["shutdownGracePeriodSeconds"].as_u64());
        return Ok(ShutdownSettings { total: Duration::from_secs(seconds.sum()), critical: Duration::ZERO });
    }
    let duration = |field: &str| match &value[field] {
        Value::Null => Ok(Duration::ZERO),
        Value::String(text) => go_duration(text).ok_or_else(|| format!("{field} `{text}` is no duration")),
        other => Err(format!("{field} `{other}` is no duration")),
    };
    Ok(ShutdownSettings {
        total: duration("shutdownGracePeriod")?,
        critical: duration("shutdownGracePeriodCriticalPods")?,
    })
}

/// A duration as Go writes it: `1m30s`, `0s`, `0`.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    Duration::try_from(text.parse::<SignedDuration>().ok()?).ok()
}

/// Whether the kubelet shuts pods down in order; `is_aks` if that is known.
pub(super) fn kubelet(
    configuration: &KubeletConfiguration,
    settings: &Result<ShutdownSettings, String>,
    is_aks: Option<bool>,
) -> Check {
    const TOPIC: Topic = Topic::KubeletShutdown;
    let (KubeletConfiguration::Known { source, .. }, Ok(settings)) = (configuration, settings) else {
        return Check::skip(TOPIC, settings.as_ref().err().cloned().unwrap_or_default());
    };
    let ShutdownSettings { total, critical } = *settings;
    if total.is_zero() {
        let found = format!("off ({source}): pods that no drain has moved get no warning when the machine shuts down");
        return match is_aks {
            Some(true) => Check::ok(TOPIC, format!("{found}; AKS does not let it be switched on")),
            _ => {
                Check::warn(TOPIC, found, "set shutdownGracePeriod and shutdownGracePeriodCriticalPods for the kubelet")
            }
        };
    }
    if critical > total {
        let found = format!(
            "shutdownGracePeriodCriticalPods {} is more than shutdownGracePeriod {}",
            spoken(critical),
            spoken(total)
        );
        return Check::warn(TOPIC, format!("{found} ({source})"), "set shutdownGracePeriod to at least as much");
    }
    let of_them =
        if critical.is_zero() { String::new() } else { format!(", {} of them for critical ones", spoken(critical)) };
    Check::ok(TOPIC, format!("pods have {} when the machine shuts down{of_them} ({source})", spoken(total)))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::doctor::host::tests::host_with;

    fn judged(files: &[(&str, &str)], is_aks: Option<bool>) -> Check {
        let (_folder, root) = host_with(files);
        let configuration = KubeletConfiguration::in_files(&root);
        kubelet(&configuration, &configuration.settings(), is_aks)
    }

    #[test]
    fn the_kubelets_file_is_read_whatever_else_it_holds() {
        for (text, verdict, found) in [
            (
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {memory.available: 100Mi}\n\
                 shutdownGracePeriod: 1m30s\nshutdownGracePeriodCriticalPods: 30s\n",
                Verdict::Ok,
                "pods have 1m 30s when the machine shuts down, 30s of them for critical ones",
            ),
            (
                "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 20}, {priority: 100000, shutdownGracePeriodSeconds: 10}]",
                Verdict::Ok,
                "pods have 30s",
            ),
            ("shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s", Verdict::Warn, "20s is more than"),
            ("shutdownGracePeriod: 0s", Verdict::Warn, "off"),
            ("shutdownGracePeriod: \"0\"", Verdict::Warn, "off"),
            ("kind: KubeletConfiguration", Verdict::Warn, "off"),
            ("shutdownGracePeriod: soon", Verdict::Skip, "`soon` is no duration"),
            ("shutdownGracePeriod: [", Verdict::Skip, "is no YAML"),
        ] {
            let check = judged(&[(FILES[0], text)], None);
            assert_eq!(check.verdict, verdict, "{text}: {check:?}");
            assert!(check.found.contains(found), "{text}: {check:?}");
        }
    }

    #[test]
    fn the_file_of_an_aks_node_is_found_and_what_aks_forbids_is_not_asked_for() {
        let json = r#"{"kind": "KubeletConfiguration", "shutdownGracePeriod": "45s"}"#;
        assert_eq!(judged(&[(FILES[1], json)], Some(true)).verdict, Verdict::Ok);
        assert_eq!(judged(&[(FILES[1], "{}")], Some(true)).verdict, Verdict::Ok);
        assert_eq!(judged(&[(FILES[1], "{}")], Some(false)).verdict, Verdict::Warn);
        assert_eq!(judged(&[], Some(true)).verdict, Verdict::Skip);
    }
}
