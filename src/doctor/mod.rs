//! Looks at a node as the agent will find it, and says what is missing.
//!
//! [`examine`] gathers and judges one thing after another. What is gathered is judged by pure functions: one file a group of
//! [`Check`]s.

mod aks;
mod api_server;
mod clock_skew;
mod host;
mod logind;
mod metadata;
mod network;
mod node;
mod shutdown;

use std::fmt;
use std::path::PathBuf;

use domain::policy::PolicySet;
use serde::Serialize;

use crate::azure::imds::Imds;
use crate::clock::Clock;
use crate::cluster::{Cluster, ClusterError};
use host::HostRoot;
use shutdown::KubeletConfiguration;

/// What came of a check, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All is well.
    Ok,
    /// It could not be told.
    Skip,
    /// The agent works, but not as well as it might, or someone should know this.
    Warn,
    /// The agent cannot do its job.
    Fail,
}

impl Verdict {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// What is looked at. The names are for people and programs, and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// The metadata service answers, soon, and names this machine.
    MetadataService,
    /// How much of the machine's allowance of requests others take.
    RequestLimit,
    /// The API server answers.
    ApiServer,
    /// The Node exists and is Ready.
    Node,
    /// The Node is this machine.
    Machine,
    /// What the agent and people have noted on the Node can be read.
    Record,
    /// A policy is about this Node.
    Policy,
    /// The API server grants what the agent needs.
    Rights,
    /// The machine's clock is right.
    Clock,
    /// The process shares the network of its host.
    HostNetwork,
    /// AKS drains by itself.
    AksAutoDrain,
    /// AKS's node problem detector watches events as well.
    ProblemDetector,
    /// No other agent for the same events runs beside.
    TerminationHandler,
    /// What the kubelet does when the machine shuts down.
    KubeletShutdown,
    /// Whether systemd-logind gives the kubelet the time for it.
    Logind,
    /// Scheduled events are on for this machine.
    ScheduledEvents,
}

impl Topic {
    /// All of them, in the order in which they are looked at.
    pub const ALL: [Self; 16] = [
        Self::MetadataService,
        Self::RequestLimit,
        Self::ApiServer,
        Self::Node,
        Self::Machine,
        Self::Record,
        Self::Policy,
        Self::Rights,
        Self::Clock,
        Self::HostNetwork,
        Self::AksAutoDrain,
        Self::ProblemDetector,
        Self::TerminationHandler,
        Self::KubeletShutdown,
        Self::Logind,
        Self::ScheduledEvents,
    ];

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MetadataService => "metadata-service",
            Self::RequestLimit => "request-limit",
            Self::ApiServer => "api-server",
            Self::Node => "node",
            Self::Machine => "machine",
            Self::Record => "record",
            Self::Policy => "policy",
            Self::Rights => "rights",
            Self::Clock => "clock",
            Self::HostNetwork => "host-network",
            Self::AksAutoDrain => "aks-auto-drain",
            Self::ProblemDetector => "problem-detector",
            Self::TerminationHandler => "termination-handler",
            Self::KubeletShutdown => "kubelet-shutdown",
            Self::Logind => "logind",
            Self::ScheduledEvents => "scheduled-events",
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.as_str())
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    #[serde(rename = "name")]
    pub topic: Topic,
    /// What came of it.
    pub verdict: Verdict,
    /// What was found, or why it could not be told.
    pub found: String,
    /// What to do; never absent from a warning or a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    fn ok(topic: Topic, found: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    fn skip(topic: Topic, why: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Skip, found: why.into(), advice: None }
    }

    fn warn(topic: Topic, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Warn, found: found.into(), advice: Some(advice.into()) }
    }

    fn fail(topic: Topic, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { topic, verdict: Verdict::Fail, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order of [`Topic::ALL`].
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether the agent cannot do its job.
    pub fn has_failed(&self) -> bool {
        self.checks.iter().any(|check| check.verdict == Verdict::Fail)
    }
}

/// What is told while it is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// A check is done.
    Found(&'a Check),
    /// The next one takes long, and why.
    Waiting(&'a str),
}

/// What is examined.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The name of the Node.
    pub node: String,
    /// The policies that the agent will have.
    pub policies: PolicySet,
    /// The namespace of the agents.
    pub namespace: String,
    /// Where the root of the host's file system is.
    pub host_root: PathBuf,
    /// The environment variables with proxies that are set.
    pub proxies: Vec<String>,
}

/// Whom to ask.
pub struct Connections {
    /// The metadata service.
    pub imds: Imds,
    /// The API server, or why there is none.
    pub cluster: Result<Cluster, ClusterError>,
}

/// Looks at everything. It writes nothing anywhere; asking for scheduled events switches them on for the machine, as the
/// agent would.
pub async fn examine(
    subject: &Subject,
    connections: &Connections,
    clock: Clock,
    mut tell: impl FnMut(News<'_>),
) -> Report {
    let Subject { node: name, policies, namespace, host_root, proxies } = subject;
    let Connections { imds, cluster } = connections;
    let mut report = Report::default();
    let mut found = |check: Check, tell: &mut dyn FnMut(News<'_>)| {
        tell(News::Found(&check));
        report.checks.push(check);
    };

    let introduction = metadata::introduce(imds, clock).await;
    found(metadata::service(&introduction, imds.address(), proxies), &mut tell);
    found(metadata::request_limit(&introduction), &mut tell);

    let server = api_server::ask(cluster.as_ref(), clock).await;
    found(api_server::answers(&server), &mut tell);
    let cluster = cluster.as_ref().ok().filter(|_| server.is_ok());

    let details = match cluster {
        Some(cluster) => Some(cluster.node_details(name).await),
        None => None,
    };
    found(node::exists(name, details.as_ref()), &mut tell);
    let details = details.and_then(Result::ok);
    let (details, instance) = (details.as_ref(), introduction.instance());
    found(node::is_this_machine(details, instance), &mut tell);
    found(node::record(name, details, instance), &mut tell);
    found(node::policy(policies, details), &mut tell);
    found(api_server::rights(cluster, policies, namespace).await, &mut tell);
    let readings = [server.ok().and_then(|server| server.reading), introduction.reading];
    found(clock_skew::clock(readings.iter().flatten()), &mut tell);
    found(network::is_shared(details, network::is_own, instance.is_some()), &mut tell);

    found(aks::auto_drain(details), &mut tell);
    found(aks::problem_detector(details), &mut tell);
    let daemon_sets = match cluster {
        Some(cluster) => Some(cluster.daemon_sets().await),
        None => None,
    };
    found(aks::termination_handler(daemon_sets), &mut tell);

    let root = HostRoot::at(host_root.clone());
    let configuration = KubeletConfiguration::find(cluster, name, &root).await;
    let settings = configuration.settings();
    found(shutdown::kubelet(&configuration, &settings, aks::is_aks(details)), &mut tell);
    found(logind::gives_time(&root, settings.as_ref().ok()), &mut tell);

    let listing = match instance {
        Some(_) => Some(metadata::list_events(imds, clock, |text| tell(News::Waiting(text))).await),
        None => None,
    };
    let traits = details.map(|details| details.node.view.traits());
    let judge = |event: &_| traits.map(|traits| policies.judge(traits, event, clock.now()));
    found(metadata::scheduled_events(listing, instance, judge, clock.now()), &mut tell);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_for_people_and_for_programs() {
        for topic in Topic::ALL {
            assert_eq!(serde_json::to_value(topic).unwrap(), topic.as_str());
        }
    }

    #[test]
    fn only_a_failure_fails_the_report() {
        let check = |verdict| Check { verdict, ..Check::ok(Topic::Node, "") };
        let harmless = [Verdict::Ok, Verdict::Skip, Verdict::Warn].map(check).to_vec();
        assert!(!Report { checks: harmless.clone() }.has_failed());
        assert!(Report { checks: [harmless, vec![check(Verdict::Fail)]].concat() }.has_failed());
    }
}
