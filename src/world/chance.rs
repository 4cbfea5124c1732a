//! What chance adds to a scenario: a schedule drawn from a seed before anything happens.

use std::time::Duration;

use mock_imds::{EventSpec, EventType, FaultKind, FaultSpec};

use super::scenario::{Act, Chance, Scenario};

/// How often the metadata service of a machine may begin to misbehave.
const FAULTS_EVERY: Duration = Duration::from_secs(10);

/// Draws the acts of chance, in the order of time.
pub fn draw(scenario: &Scenario, seed: u64) -> Vec<(Duration, Act)> {
    let mut draw = Draw { scenario, dice: fastrand::Rng::with_seed(seed), acts: Vec::new() };
    let Chance { events, agent_deaths, imds_faults, people, .. } = scenario.chance;
    for number in 0..events {
        draw.event(number);
    }
    for _ in 0..agent_deaths {
        let (at, (node, _)) = (draw.time(1.0), draw.machine());
        draw.acts.push((at, Act::KillAgent(node)));
    }
    for _ in 0..people {
        draw.person();
    }
    if imds_faults > 0 {
        draw.faults(imds_faults);
    }
    let mut acts = draw.acts;
    acts.sort_by_key(|(at, _)| *at);
    acts
}

struct Draw<'a> {
    scenario: &'a Scenario,
    dice: fastrand::Rng,
    acts: Vec<(Duration, Act)>,
}

impl Draw<'_> {
    /// A time in the first part of the scenario.
    fn time(&mut self, part: f64) -> Duration {
        let millis = u64::try_from(self.scenario.lasts.mul_f64(part).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.dice.u64(..millis.max(1)))
    }

    fn seconds(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_secs(self.dice.u64(range))
    }

    /// A node and its machine.
    fn machine(&mut self) -> (String, String) {
        let count = self.scenario.nodes().count();
        let chosen = self.scenario.nodes().nth(self.dice.usize(..count.max(1)));
        chosen.map(|(pool, number)| (pool.node(number), pool.vm(number))).unwrap_or_default()
    }

    fn event(&mut self, number: u32) {
        let (at, (_, vm)) = (self.time(0.8), self.machine());
        let (kind, notices) = match self.dice.u8(..10) {
            0 | 1 => (EventType::Freeze, 0..900),
            2 | 3 => (EventType::Reboot, 0..900),
            4..=6 => (EventType::Redeploy, 0..600),
            7 | 8 => (EventType::Preempt, 0..31),
            _ => (EventType::Terminate, 20..400),
        };
        let name = format!("chance-{number}");
        let (notice, started_for) = (self.seconds(notices), self.seconds(5..240));
        let mut spec = EventSpec::new(kind, vm).name(&name).notice(notice).started_for(started_for);
        if self.dice.u8(..8) == 0 {
            spec = spec.started();
        }
        self.acts.push((at, Act::Publish(spec)));
        let then = at + notice.mul_f64(self.dice.f64());
        match self.dice.u8(..6) {
            0 => self.acts.push((then, Act::Cancel(name))),
            1 => self.acts.push((then, Act::Start(name))),
            _ => {}
        }
    }

    /// A person cordons or holds a node, and changes their mind some time later.
    fn person(&mut self) {
        let (at, (node, _)) = (self.time(0.7), self.machine());
        let until = at + self.seconds(5..600);
        let (first, second) = match self.dice.u8(..3) {
            0 => (Act::Cordon(node.clone()), Act::Uncordon(node)),
            1 => (Act::Hold(node.clone()), Act::LiftHold(node)),
            _ => (Act::Uncordon(node.clone()), Act::Uncordon(node)),
        };
        self.acts.push((at, first));
        self.acts.push((until, second));
    }

    fn faults(&mut self, share: u8) {
        let mut at = Duration::ZERO;
        while at < self.scenario.lasts {
            at += FAULTS_EVERY;
            for (pool, number) in self.scenario.nodes() {
                if self.dice.u8(..100) >= share {
                    continue;
                }
                // None that invents events: what Azure lists is the truth that agents are held to.
                let kind = match self.dice.u8(..9) {
                    0 => FaultKind::EmptyBody,
                    1 => FaultKind::TruncatedBody,
                    2 => FaultKind::Hang,
                    3 => FaultKind::Cut,
                    4 => FaultKind::HtmlBody,
                    5 => FaultKind::EventsNull,
                    6 => FaultKind::OtherIdCase,

                    _ => {
                        let code = [404, 410, 429, 500, 503][self.dice.usize(..5)];
                        let spec = FaultSpec::status(code).vm(pool.vm(number)).lasting(self.seconds_short());
                        self.acts.push((at, Act::Spoil(spec)));
                        continue;
                    }
                };
                let spec = FaultSpec::new(kind).vm(pool.vm(number)).lasting(self.seconds_short());
                self.acts.push((at, Act::Spoil(spec)));
            }
        }
    }

    fn seconds_short(&mut self) -> Duration {
        self.seconds(1..20)
    }
}
