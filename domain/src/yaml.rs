//! Strict YAML files, in which every mistake is answered with its line, its column and what would be right.

use serde::de::DeserializeOwned;
use serde_saphyr::{Location, Spanned, UserMessageFormatter};

/// What is wrong with a file, and where. Written `FILE:LINE:COLUMN: what`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct FileError {
    /// The file, as the operator named it.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The column, from 1.
    pub column: u64,
    /// What is wrong and what would be right.
    pub message: String,
}

/// What is wrong, and where in the text.
#[derive(Debug)]
pub struct Mistake {
    location: Location,
    message: String,
}

impl Mistake {
    /// A mistake in this value.
    pub fn at<T>(value: &Spanned<T>, message: impl Into<String>) -> Self {
        Self { location: value.referenced, message: message.into() }
    }
}

/// Reads a file's text; `file` is its name, for the error. What the types cannot express, `check` does.
pub fn read<T: DeserializeOwned, R>(
    file: &str,
    text: &str,
    check: impl FnOnce(T) -> Result<R, Mistake>,
) -> Result<R, FileError> {
    let at = |location: Location, message: String| FileError {
        file: file.to_owned(),
        line: location.line().max(1),
        column: location.column().max(1),
        message,
    };
    let written: T = serde_saphyr::from_str(text).map_err(|error| {
        let location = error.location().unwrap_or(Location::UNKNOWN);
        at(location, message_without_place(&error))
    })?;
    check(written).map_err(|Mistake { location, message }| at(location, message))
}

/// The parser's message for users ends in the place, which stands at the front of ours.
fn message_without_place(error: &serde_saphyr::Error) -> String {
    let message = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message,
    }
}
