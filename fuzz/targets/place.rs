//! What holds of every answer to a mistake in a YAML file.

use domain::yaml::FileError;

/// The answer is one line and points into the text, or just behind it.
pub(crate) fn assert_place(text: &str, error: &FileError) {
    let text = text.replace("\r\n", "\n");
    let lines: Vec<&str> = text.split(['\n', '\r']).collect();
    let line = usize::try_from(error.line).ok().and_then(|line| lines.get(line.checked_sub(1)?));
    let width = line.unwrap_or_else(|| panic!("not a line of the file: {error}")).chars().count() as u64;
    assert!((1..=width + 1).contains(&error.column), "not a column of the line, which has {width}: {error}");
    assert!(!error.message.is_empty() && !error.message.contains(char::is_control), "not one line: {error:?}");
}
