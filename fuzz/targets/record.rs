//! Whatever stands in the agent's annotation on a node: what is read is written and read again as the same, so that an
//! agent never forgets or makes up what it did.

#![no_main]
#![allow(clippy::expect_used, reason = "a panic is how a target reports what it found")]

use domain::record::{MOST_BYTES, Record, claims_of_other_role};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(record) = Record::from_annotation(text) else { return };
    assert_eq!(claims_of_other_role(Some(text)), Ok(record.claims.clone()), "the roles read each other");
    let written = record.to_annotation();
    let again = Record::from_annotation(&written).expect("what was written can be read");
    assert_eq!(again.to_annotation(), written);
    assert_eq!(without_what_is_cut(&again), without_what_is_cut(&record));
    let (named, left) = (pods_named(&record), pods_named(&again));
    assert!(named.starts_with(left), "other pods are named");
    assert!(named == left || written.len() <= MOST_BYTES || left.is_empty());
    for event in &record.events {
        assert!(record.event(&event.id).is_some_and(|found| found.id == event.id));
    }
});

fn pods_named(record: &Record) -> &[String] {
    record.drain.as_ref().map_or(&[], |drain| &drain.left)
}

/// Names of pods and what is untold are left out where the annotation would be too long.
fn without_what_is_cut(record: &Record) -> Record {
    let mut record = record.clone();
    record.untold.clear();
    if let Some(drain) = &mut record.drain {
        drain.left.clear();
    }
    record
}
