//! What commands print.

use std::io::Write;

/// Prints a line to the standard output. Whoever reads it may have gone, as `| head` does; that is no failure of ours.
pub(super) fn say(text: &str) {
    drop(writeln!(std::io::stdout(), "{text}"));
}
