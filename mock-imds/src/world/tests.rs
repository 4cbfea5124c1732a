//! The world as time passes: histories, incarnations, delivery, limits.

use super::*;
use crate::seed::Generator;

fn at(second: u64) -> Timestamp {
    later(Timestamp::from_second(1_800_000_000).unwrap(), Duration::from_secs(second))
}

fn two_vms() -> Scenario {
    Scenario::new(["a", "b"].map(|name| Vm::new(name).in_group("group")))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn phases(world: &World) -> Vec<(&'static str, u64)> {
    let origin = at(0);
    world.changes.iter().map(|change| (change.what, remaining(origin, change.time).as_secs())).collect()
}

#[test]
fn an_event_that_nobody_looked_at_has_the_same_history() {
    let scenario = || {
        let spec = EventSpec::redeploy("a").notice(seconds(600)).started_for(seconds(60));
        let mut scenario = two_vms();
        scenario.steps = vec![
            (seconds(5), Action::Publish(spec.clone().name("first"))),
            (seconds(100), Action::Publish(spec.name("second"))),
            (seconds(200), Action::Approve("second".to_owned())),
            (seconds(300), Action::Cancel("first".to_owned())),
            (seconds(400), Action::Cancel("first".to_owned())),
        ];
        scenario
    };
    let mut polled = World::new(scenario(), at(0));
    for second in 0..1000 {
        polled.advance(at(second));
    }
    let mut unpolled = World::new(scenario(), at(0));
    unpolled.advance(at(999));
    assert_eq!(polled.changes, unpolled.changes);
    assert_eq!(polled.incarnations(), unpolled.incarnations());
    assert_eq!(
        phases(&unpolled),
        [
            ("Scheduled", 5),
            ("Scheduled", 100),
            ("Approved", 200),
            ("Started", 200),
            ("Finished", 260),
            ("Cancelled", 300),
            ("Skipped", 400)
        ]
    );
    assert_eq!(unpolled.incarnations()["group"], 6);
}

#[test]
fn a_released_deletion_starts_when_it_is_released_and_not_before() {
    let mut world = World::new(two_vms(), at(0));
    for (vm, name) in [("a", "mine"), ("b", "other")] {
        let spec = EventSpec::terminate(vm).name(name).notice(seconds(900)).deletion("scale-in").until_finished();
        world.act(|world| world.publish(&spec)).unwrap();
    }
    world.advance(at(10));
    world.act(|world| world.approve("mine")).unwrap();
    world.advance(at(50));
    assert_eq!(world.events[0].phase, Phase::Scheduled);
    world.act(|world| world.cancel("other")).unwrap();
    assert_eq!(world.events[0].phase, Phase::Started);
    assert_eq!(world.events[0].phase_since, at(50));
}

#[test]
fn only_what_a_document_shows_makes_a_new_incarnation() {
    let mut world = World::new(two_vms(), at(0));
    let spec = EventSpec::reboot("a").other_tenants(seconds(60));
    let id = world.act(|world| world.publish(&spec)).unwrap();
    assert_eq!(world.incarnations()["group"], 2);
    world.act(|world| world.approve(id.as_str())).unwrap();
    assert_eq!(world.incarnations()["group"], 2);
    let later = EventChange { notice: Some(Period(seconds(901))), ..EventChange::default() };
    world.act(|world| world.change(id.as_str(), &later)).unwrap();
    assert_eq!(world.incarnations()["group"], 3);
    world.act(|world| world.change(id.as_str(), &later)).unwrap();
    assert_eq!(world.incarnations()["group"], 3);
    world.advance(at(60));
    assert_eq!(world.incarnations()["group"], 4);
}

#[test]
fn the_first_request_wakes_a_group_and_a_day_of_silence_puts_it_to_sleep() {
    let settings =
        Settings { first_call_delay: Period(seconds(110)), events_after: Period(seconds(300)), ..Settings::default() };
    let mut world = World::new(two_vms().settings(settings), at(0));
    let vm = world.vms[0].clone();
    world.publish(&EventSpec::redeploy("a").notice(seconds(86_400)).until_started()).unwrap();
    assert_eq!(world.act(|world| world.wake(&vm)), seconds(110));
    world.advance(at(10));
    assert_eq!(world.act(|world| world.wake(&vm)), seconds(100), "whoever comes second waits for the rest");
    world.advance(at(110));
    assert_eq!(world.act(|world| world.wake(&vm)), Duration::ZERO);
    assert_eq!((world.document(&vm).0, world.document(&vm).1.len()), (1, 0));
    world.advance(at(410));
    assert_eq!((world.document(&vm).0, world.document(&vm).1.len()), (2, 1));
    world.advance(at(110 + 86_399));
    assert_eq!(world.act(|world| world.wake(&vm)), Duration::ZERO);
    world.advance(at(110 + 86_399 + 86_400));
    assert_eq!(world.act(|world| world.wake(&vm)), seconds(110));
}

#[test]
fn five_requests_a_second_are_answered_and_the_sixth_is_not() {
    let mut world = World::new(two_vms(), at(0));
    let mut ask = |second, vm| {
        world.advance(at(second));
        world.is_over_limit(vm, false)
    };
    assert_eq!([0; 6].map(|second| ask(second, "a")), [false, false, false, false, false, true]);
    assert!(!ask(0, "b"));
    assert!(!ask(1, "a"));
}

/// Whatever is done in whatever order: an event moves forward only, never starts unasked before its time, and its
/// document changes if and only if the incarnation does.
#[test]
fn no_order_of_operations_breaks_the_rules_of_an_event() {
    for seed in 0..300 {
        let mut random = Generator::new(seed);
        let mut world = World::new(two_vms(), at(0));
        let vm = world.vms[0].clone();
        let mut second = 0;
        let mut seen: BTreeMap<String, (Phase, Timestamp)> = BTreeMap::new();
        let mut shown = (1, Vec::new());
        for _ in 0..60 {
            second += random.next() % 120;
            world.advance(at(second));
            let keys: Vec<String> = world.events().map(|event| event.id.0.clone()).collect();
            let key = keys.get(usize::try_from(random.next()).unwrap() % keys.len().max(1)).cloned();
            let key = key.unwrap_or_default();
            let _ = world.act(|world| match random.next() % 6 {
                0 | 1 => {
                    let name = ["a", "b"][usize::try_from(random.next() % 2).unwrap()];
                    let spec = EventSpec::terminate(name).notice(seconds(random.next() % 600));
                    world.publish(&if random.next().is_multiple_of(2) { spec.deletion("d") } else { spec })
                }
                2 => world.cancel(&key),
                3 => world.start(&key),
                4 => world.finish(&key),
                _ => world.approve(&key),
            });
            for event in world.events() {
                let before = seen.insert(event.id.0.clone(), (event.phase, event.phase_since));
                let order = |phase| {
                    [Phase::Scheduled, Phase::Started, Phase::Finished, Phase::Cancelled]
                        .iter()
                        .position(|known| *known == phase)
                };
                if let Some((phase, since)) = before {
                    assert!(order(phase) <= order(event.phase) && since <= event.phase_since, "seed {seed}");
                    assert!(
                        (phase, event.phase) != (Phase::Started, Phase::Cancelled),
                        "seed {seed}: cancelled after its start"
                    );
                }
                if event.phase == Phase::Scheduled {
                    assert!(event.not_before > world.now(), "seed {seed}: scheduled past its time");
                }
            }
            let (incarnation, entries) = world.document(&vm);
            assert_eq!(incarnation == shown.0, entries == shown.1, "seed {seed}");
            shown = (incarnation, entries.to_vec());
        }
    }
}
