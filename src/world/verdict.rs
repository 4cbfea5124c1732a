//! What came of a run, in numbers.

use serde::Serialize;

/// What has to come of a scenario: a number of its verdict, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Which number of the verdict.
    pub what: String,
    /// At least so many.
    pub at_least: u64,
    /// At most so many.
    pub at_most: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Scheduled events that Azure published.
    pub events: u64,
    /// Drains that began.
    pub drains_begun: u64,
    /// Drains that left nothing behind.
    pub drained: u64,
    /// Drains that ended with pods left.
    pub drains_cut_short: u64,
    /// Nodes that were given back.
    pub given_back: u64,
    /// Events that Azure started early because an agent told it that they may.
    pub approvals: u64,
    /// Evictions that the API server accepted.
    pub evicted: u64,
    /// Evictions that it refused, budgets mostly.
    pub evictions_refused: u64,
    /// Pods deleted without asking their budget.
    pub deleted: u64,
    /// Pods that ran until their grace was over.
    pub killed_at_the_end_of_grace: u64,
    /// Pods whose machine went away before anybody had asked them to stop.
    pub lost_without_notice: u64,
    /// How often a budget had fewer healthy pods than it wants.
    pub budgets_broken: u64,
    /// For how long, over all budgets.
    pub seconds_below_budget: u64,
    /// Lives of agents, the first included.
    pub agent_lives: u64,
    /// Requests to the API server, of all agents.
    pub api_requests: u64,
    /// Requests to the metadata service, of all agents.
    pub imds_requests: u64,
    /// What must never be and was, each with the time and the node.
    pub violations: Vec<String>,
    /// What the scenario expects and was not so.
    pub disappointments: Vec<String>,
}

impl Verdict {
    /// Whether all is as it must be.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.disappointments.is_empty()
    }

    /// The numbers that a scenario may expect something of, by the names that they have there.
    fn numbers(&self) -> [(&'static str, u64); 14] {
        [
            ("agentLives", self.agent_lives),
            ("approvals", self.approvals),
            ("budgetsBroken", self.budgets_broken),
            ("deleted", self.deleted),
            ("drained", self.drained),
            ("drainsCutShort", self.drains_cut_short),
            ("events", self.events),
            ("evicted", self.evicted),
            ("evictionsRefused", self.evictions_refused),
            ("givenBack", self.given_back),
            ("killedAtTheEndOfGrace", self.killed_at_the_end_of_grace),
            ("lostWithoutNotice", self.lost_without_notice),
            ("drainsBegun", self.drains_begun),
            ("secondsBelowBudget", self.seconds_below_budget),
        ]
    }

    /// The names of the numbers that a scenario may expect something of.
    pub fn names() -> Vec<&'static str> {
        Self::default().numbers().map(|(name, _)| name).to_vec()
    }

    /// Holds the numbers against what the scenario expects.
    pub fn judge(&mut self, expected: &[Expectation]) {
        for Expectation { what, at_least, at_most } in expected {
            let found = self.numbers().into_iter().find(|(name, _)| name == what);
            let Some((_, found)) = found else { continue };
            if found < *at_least || found > *at_most {
                let wanted = match (*at_least, *at_most) {
                    (low, high) if low == high => format!("{low}"),
                    (low, u64::MAX) => format!("at least {low}"),
                    (0, high) => format!("at most {high}"),
                    (low, high) => format!("{low} to {high}"),
                };
                self.disappointments.push(format!("{what} is {found}, expected {wanted}"));
            }
        }
    }

    /// The numbers for people, each with what it means.
    pub fn lines(&self) -> Vec<(String, &'static str)> {
        let rows = [
            (self.events, "scheduled events"),
            (self.drains_begun, "drains begun"),
            (self.drained, "drains that left nothing behind"),
            (self.drains_cut_short, "drains that ended with pods left"),
            (self.given_back, "nodes given back"),
            (self.approvals, "events started early"),
            (self.evicted, "pods evicted"),
            (self.evictions_refused, "evictions refused and asked for again"),
            (self.deleted, "pods deleted without asking their budget"),
            (self.killed_at_the_end_of_grace, "pods killed at the end of their grace"),
            (self.lost_without_notice, "pods lost without notice"),
            (self.budgets_broken, "times a budget had too few pods"),
            (self.seconds_below_budget, "seconds below a budget"),
            (self.agent_lives, "lives of agents"),
            (self.api_requests, "requests to the API server"),
            (self.imds_requests, "requests to the metadata service"),
        ];
        rows.into_iter().map(|(number, meaning)| (number.to_string(), meaning)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_its_bounds_is_told() {
        let expect = |what: &str, at_least, at_most| Expectation { what: what.into(), at_least, at_most };
        let mut verdict = Verdict { evicted: 3, ..Verdict::default() };
        verdict.judge(&[expect("evicted", 3, 3), expect("drained", 1, u64::MAX), expect("evicted", 0, 2)]);
        assert_eq!(verdict.disappointments, ["drained is 0, expected at least 1", "evicted is 3, expected at most 2"]);
    }
}
