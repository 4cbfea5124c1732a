//! How `simulate` and `demo` print a story.

use std::io::IsTerminal;

use crate::world::scenario::Scenario;
use crate::world::timeline::Style;
use crate::world::verdict::Verdict;

/// How lines are printed on this standard output.
pub(super) fn style(scenario: &Scenario) -> Style {
    let on_terminal = std::io::stdout().is_terminal();
    let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    Style {
        begins: scenario.begins,
        node_width: scenario.nodes().map(|(pool, number)| pool.node(number).len()).max().unwrap_or_default().max(4),
        width: width.filter(|_| on_terminal),
        colours: on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// The numbers, and whether all is as it must be.
pub(super) fn summary(verdict: &Verdict, style: &Style) -> String {
    let mut lines = vec![style.paint("Verdict", "1")];
    lines.extend(verdict.lines().into_iter().map(|(number, meaning)| format!("{number:>7}  {meaning}")));
    for what in &verdict.violations {
        lines.push(style.paint(&format!("must not be: {what}"), "1;31"));
    }
    for what in &verdict.disappointments {
        lines.push(style.paint(&format!("not as expected: {what}"), "1;31"));
    }
    if verdict.is_good() {
        lines.push(style.paint("Everything that must hold did hold.", "32"));
    }
    lines.join("\n")
}
