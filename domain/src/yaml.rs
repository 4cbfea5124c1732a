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

    fn in_file(self, file: &str) -> FileError {
        let Self { location, message } = self;
        let (line, column) = (location.line().max(1), location.column().max(1));
        FileError { file: file.to_owned(), line, column, message: on_one_line(&message) }
    }
}

/// The mistakes of one file, so that an operator hears of all of them at once.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// Takes the mistake, or gives the value.
    pub fn take<T>(&mut self, result: Result<T, Mistake>) -> Option<T> {
        result.map_err(|mistake| self.0.push(mistake)).ok()
    }
}

/// Reads a file's text; `file` is its name, for the error. What the types cannot express, `check` does.
pub fn read<T: DeserializeOwned, R>(
    file: &str,
    text: &str,
    check: impl FnOnce(T) -> Result<R, Mistake>,
) -> Result<R, FileError> {
    let written: T = serde_saphyr::from_str(text).map_err(|error| syntax_error(file, &error))?;
    check(written).map_err(|mistake| mistake.in_file(file))
}

/// The same for a `check` that goes on after a mistake: the error are all of them, in the order of the file and never
/// none. `check` may answer `None` only if there are mistakes. A text that the types cannot take has one.
pub fn read_all<T: DeserializeOwned, R>(
    file: &str,
    text: &str,
    check: impl FnOnce(T, &mut Mistakes) -> Option<R>,
) -> Result<R, Vec<FileError>> {
    let written: T = serde_saphyr::from_str(text).map_err(|error| vec![syntax_error(file, &error)])?;
    let mut mistakes = Mistakes::default();
    match check(written, &mut mistakes) {
        Some(read) if mistakes.0.is_empty() => Ok(read),
        _ => {
            let mut errors: Vec<FileError> = mistakes.0.into_iter().map(|mistake| mistake.in_file(file)).collect();
            errors.sort_by_key(|error| (error.line, error.column));
            Err(errors)
        }
    }
}

fn syntax_error(file: &str, error: &serde_saphyr::Error) -> FileError {
    let location = error.location().unwrap_or(Location::UNKNOWN);
    Mistake { location, message: message_without_place(error) }.in_file(file)
}

/// The message with control characters written out: what it cites from the file must neither break its line nor steer the
/// operator's terminal.
fn on_one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for character in message.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// The parser's message for users ends in the place, which stands at the front of ours.
fn message_without_place(error: &serde_saphyr::Error) -> String {
    let message = error.without_snippet().render_with_formatter(&UserMessageFormatter);
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_owned(),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct File {
        name: Spanned<String>,
    }

    #[test]
    fn control_characters_that_a_message_cites_are_written_out() {
        let refuse = |file: File| Err::<(), _>(Mistake::at(&file.name, format!("no name: `{}`", file.name.value)));
        let error = read("f.yaml", r#"name: "a\nb\e[31mé""#, refuse).unwrap_err();
        assert_eq!(error.to_string(), r"f.yaml:1:7: no name: `a\nb\u{1b}[31mé`");
    }
}
