//! Instants as the API writes them.

use jiff::Timestamp;
use serde_json::Value;

/// As most fields have it (`Time`): whole seconds.
pub fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// As leases and events have it (`MicroTime`): exactly six decimals.
pub fn microseconds(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// The instant in a field; `None` if it holds none.
pub fn parse(field: &Value) -> Option<Timestamp> {
    field.as_str()?.parse().ok()
}
