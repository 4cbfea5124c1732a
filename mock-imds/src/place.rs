//! Where in a scenario file a value stands, and how to say what is wrong there.

use serde_saphyr::{Location, Spanned};

/// A value that no file says.
pub(crate) fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(value, Location::UNKNOWN, Location::UNKNOWN)
}

/// What is wrong, at the place of the value that it is about.
pub(crate) fn wrong<T>(place: &Spanned<T>, message: String) -> Spanned<String> {
    Spanned::new(message, place.referenced, place.defined)
}

/// The first names of many, for a message.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.collect();
    if names.len() > 8 {
        names.truncate(8);
        names.push("...");
    }
    names.join(", ")
}
