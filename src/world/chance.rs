//! What chance adds to a scenario: a schedule drawn from a seed before anything happens.

use std::time::Duration;

use mock_imds::{EventSource, EventSpec, EventType, FaultKind, FaultSpec};

use super::scenario::{Act, Chance, Mark, Partition, Scenario};

/// How often the metadata service of a machine may begin to misbehave.
const FAULTS_EVERY: Duration = Duration::from_secs(10);

/// Draws the acts of chance, in the order of time.
pub fn draw(scenario: &Scenario, seed: u64) -> Vec<(Duration, Act)> {
    let mut draw = Draw { scenario, dice: fastrand::Rng::with_seed(seed), acts: Vec::new() };
    let Chance { events, agent_deaths, imds_faults, people, .. } = scenario.chance;
    let Chance { clock_steps, partitions, scale_downs, repairs, refusals, .. } = scenario.chance;
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
    for _ in 0..clock_steps {
        draw.clock_step();
    }
    for _ in 0..partitions {
        draw.partition();
    }
    for _ in 0..scale_downs {
        draw.scale_down();
    }
    for number in 0..repairs {
        draw.repair(number);
    }
    for _ in 0..refusals {
        draw.refusal();
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
        let ends = matches!(kind, EventType::Preempt | EventType::Terminate);
        let mut spec = EventSpec::new(kind, &vm).name(&name).notice(notice).started_for(started_for);
        if self.dice.u8(..6) == 0 {
            spec = spec.started();
        }
        if self.dice.bool() {
            spec = spec.other_tenants(self.seconds(1..120));
        }
        // Of several machines that end at once, too few would be left for the rest of the story.
        if !ends {
            for other in self.more_of_the_pool(&vm) {
                spec = spec.also(other);
            }
        }
        if self.dice.u8(..3) == 0 {
            spec = spec.source(EventSource::User);
        }
        self.acts.push((at, Act::Publish(spec)));
        let then = at + notice.mul_f64(self.dice.f64());
        match self.dice.u8(..6) {
            0 => self.acts.push((then, Act::Cancel(name))),
            1 => self.acts.push((then, Act::Start(name))),
            _ => {}
        }
    }

    /// Now and then an event is about several machines of a pool.
    fn more_of_the_pool(&mut self, vm: &str) -> Vec<String> {
        if self.dice.u8(..4) > 0 {
            return Vec::new();
        }
        let pool = vm.rsplit_once('_').map_or(vm, |(pool, _)| pool);
        let of_pool = self.scenario.nodes().filter(|(of, _)| of.name.value == pool);
        let others: Vec<String> = of_pool.map(|(pool, number)| pool.vm(number)).filter(|other| other != vm).collect();
        others.into_iter().filter(|_| self.dice.bool()).collect()
    }

    /// A person does something to a node, and changes their mind some time later.
    fn person(&mut self) {
        let (at, (node, _)) = (self.time(0.7), self.machine());
        let until = at + self.seconds(5..600);
        let mark = [Mark::Taint, Mark::ExcludeFromLoadBalancers, Mark::ScaleDownDisabled][self.dice.usize(..3)];
        let (first, second) = match self.dice.u8(..8) {
            0 => (Act::Cordon(node.clone()), Act::Uncordon(node)),
            1 | 2 => (Act::Hold(node.clone()), Act::LiftHold(node)),
            3 => (Act::Uncordon(node.clone()), Act::Uncordon(node)),
            4 => (Act::SetMark(node.clone(), mark), Act::TakeMark(node, mark)),
            5 => (Act::TakeMark(node.clone(), mark), Act::SetMark(node, mark)),
            6 => (Act::SetMark(node.clone(), mark), Act::SetMark(node, mark)),
            _ => (Act::NamePolicy(node.clone(), self.dice.usize(..4)), Act::UnnamePolicy(node)),
        };
        self.acts.push((at, first));
        self.acts.push((until, second));
    }

    /// The clock of a machine is wrong for a while, by a second or by an hour, where that matters: about an event.
    fn clock_step(&mut self) {
        let of_event = |(at, act): &(Duration, Act)| match act {
            Act::Publish(spec) => Some((*at, spec.vms().first()?.value.clone())),
            _ => None,
        };
        let events: Vec<(Duration, String)> = self.acts.iter().filter_map(of_event).collect();
        if events.is_empty() {
            return;
        }
        let (at, vm) = events[self.dice.usize(..events.len())].clone();
        let nodes = self.scenario.nodes();
        let Some(node) =
            nodes.filter(|(pool, number)| pool.vm(*number) == vm).map(|(pool, number)| pool.node(number)).next()
        else {
            return;
        };
        let at = (at + self.seconds(0..240)).saturating_sub(Duration::from_secs(60));
        let wrong_by = i64::try_from(2_u64.pow(self.dice.u32(..12)) * self.dice.u64(1..=17) / 10).unwrap_or_default();
        let wrong_by = if self.dice.bool() { -wrong_by } else { wrong_by };
        let (pause, right_again) = (self.seconds(1..12), at + self.seconds(15..400));
        self.acts.push((at, Act::StepClock(node.clone(), pause, wrong_by)));
        self.acts.push((right_again, Act::SetClockRight(node)));
    }

    fn partition(&mut self) {
        let (at, (node, _)) = (self.time(0.9), self.machine());
        let partition = [Partition::Azure, Partition::ApiServer, Partition::Both][self.dice.usize(..3)];
        let time = self.seconds(5..180);
        self.acts.push((at, Act::Partition(node, partition, time)));
    }

    fn scale_down(&mut self) {
        let (at, (node, _)) = (self.time(0.8), self.machine());
        let until = at + self.seconds(5..500);
        self.acts.push((at, Act::ScaleDown(node.clone())));
        let end = if self.dice.u8(..4) == 0 { Act::EndScaleDown(node) } else { Act::GiveUpScaleDown(node) };
        self.acts.push((until, end));
    }

    /// A node is repaired: its machine may be dead, and somebody has asked Azure for a restart.
    fn repair(&mut self, number: u32) {
        let (at, (node, vm)) = (self.time(0.7), self.machine());
        if self.dice.bool() {
            self.acts.push((at, Act::PowerOff(node.clone())));
        }
        let asked_at = at + self.seconds(5..90);
        let restart = if self.dice.bool() { EventSpec::reboot(vm) } else { EventSpec::redeploy(vm) };
        let (notice, started_for) = (self.seconds(600..900), self.seconds(5..120));
        let restart = restart.name(format!("repair-{number}")).source(EventSource::User);
        self.acts.push((at, Act::Repair(node.clone())));
        self.acts.push((asked_at, Act::Publish(restart.notice(notice).started_for(started_for))));
        self.acts.push((asked_at + notice + started_for, Act::EndRepair(node)));
    }

    fn refusal(&mut self) {
        let at = self.time(0.7);
        let until = at + self.seconds(60..900);
        self.acts.push((at, Act::RefuseTaint));
        self.acts.push((until, Act::LetTaintPass));
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
