//! Whatever is written into a scenario file: a mistake is answered with its place, and a scenario that is read speaks only
//! of machines that it has, in the order of time.

#![no_main]
#![allow(clippy::panic, reason = "a panic is how a target reports what it found")]

mod place;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use mock_imds::{Clock, Mock, MockError, Vm};

use world::chance;
use world::scenario::{Act, Pool, Scenario};
use world::verdict::Verdict;

fuzz_target!(|text: &str| {
    let scenario = match Scenario::parse("scenario.yaml", text) {
        Ok(scenario) => scenario,
        Err(error) => return place::assert_place(text, &error),
    };
    let nodes: BTreeSet<String> = scenario.nodes().map(|(pool, number)| pool.node(number)).collect();
    let vms: BTreeSet<String> = scenario.nodes().map(|(pool, number)| pool.vm(number)).collect();
    let count = scenario.nodes().count();
    assert!((1..=5000).contains(&count) && nodes.len() == count && vms.len() == count, "{count} nodes");
    assert!(!scenario.lasts.is_zero());
    happens_in_order(&scenario, &scenario.steps, &nodes, &vms);
    assert!(scenario.steps.iter().all(|(at, _)| *at < scenario.lasts), "a step after the end");
    azure_can_carry_it_out(&scenario);
    for expected in &scenario.expected {
        assert!(Verdict::names().contains(&expected.what.as_str()), "{expected:?}");
        assert!(expected.at_least <= expected.at_most, "{expected:?}");
    }
    // Chance is drawn in proportion to these; a large scenario shows nothing more.
    if scenario.chance.most_often() <= 50 && count <= 20 && scenario.lasts <= Duration::from_hours(1) {
        happens_in_order(&scenario, &chance::draw(&scenario, 7), &nodes, &vms);
    }
});

fn happens_in_order(scenario: &Scenario, acts: &[(Duration, Act)], nodes: &BTreeSet<String>, vms: &BTreeSet<String>) {
    assert!(acts.is_sorted_by_key(|(at, _)| *at));
    for (_, act) in acts {
        match act {
            Act::Publish(event) => {
                assert!(!event.vms().is_empty() && event.vms().iter().all(|vm| vms.contains(&vm.value)), "{act:?}");
            }
            Act::Spoil(fault) => assert!(fault.vms().iter().all(|vm| vms.contains(&vm.value)), "{act:?}"),
            Act::Cordon(node)
            | Act::Uncordon(node)
            | Act::Hold(node)
            | Act::LiftHold(node)
            | Act::KillAgent(node)
            | Act::PowerOff(node)
            | Act::PowerOn(node)
            | Act::SetMark(node, _)
            | Act::TakeMark(node, _)
            | Act::NamePolicy(node, _)
            | Act::UnnamePolicy(node)
            | Act::ScaleDown(node)
            | Act::GiveUpScaleDown(node)
            | Act::EndScaleDown(node)
            | Act::Repair(node)
            | Act::EndRepair(node)
            | Act::Partition(node, ..)
            | Act::StepClock(node, ..)
            | Act::SetClockRight(node) => assert!(nodes.contains(node), "{act:?} in {scenario:?}"),
            Act::Cancel(_)
            | Act::Start(_)
            | Act::Finish(_)
            | Act::Change(..)
            | Act::ApiServerAway(_)
            | Act::RefuseTaint
            | Act::LetTaintPass => {}
        }
    }
}

/// A clock that stands still, so that what was published stays.
struct Stopped;

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }
}

fn azure_can_carry_it_out(scenario: &Scenario) {
    let machine = |(pool, number): (&Pool, u32)| Vm::new(pool.vm(number)).in_group(pool.name.value.as_str());
    let azure = Mock::new(mock_imds::Scenario::new(scenario.nodes().map(machine)), Stopped);
    for (_, act) in &scenario.steps {
        let refused = match act {
            Act::Publish(event) => azure.inject(event).err(),
            Act::Spoil(fault) => azure.fault(fault.clone()).err(),
            Act::Change(_, to) => to.contradiction().map(|wrong| MockError::Invalid(wrong.to_owned())),
            _ => None,
        };
        assert_eq!(refused, None, "{act:?}");
    }
}
