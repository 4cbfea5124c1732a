//! What was measured, beside what was aimed at.

use std::fs;

use serde_json::{Value, json};

/// What numbers are of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Given in seconds.
    Milliseconds,
    Seconds,
    Mebibytes,
    PercentOfACore,
    Times,
    Count,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Mebibytes => "MiB",
            Self::PercentOfACore => "% of a core",
            Self::Times => "x",
            Self::Count => "",
        }
    }

    fn format(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{:.1}", value * 1000.0),
            Self::Mebibytes => format!("{value:.1}"),
            Self::PercentOfACore => format!("{value:.3}"),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Seconds | Self::Times | Self::Count => format!("{value:.2}"),
        }
    }

    fn written(self, values: &[f64]) -> String {
        let numbers: Vec<String> = values.iter().map(|&value| self.format(value)).collect();
        format!("{} {}", numbers.join(" / "), self.name()).trim_end().to_owned()
    }
}

struct Row {
    what: String,
    measured: Vec<f64>,
    unit: Unit,
    target: Option<Target>,
}

/// At most so much, for one of the measured numbers.
struct Target {
    number: usize,
    at_most: f64,
}

impl Row {
    fn is_met(&self) -> Option<bool> {
        let Target { number, at_most } = self.target.as_ref()?;
        Some(self.measured.get(*number).is_some_and(|measured| measured <= at_most))
    }

    fn cells(&self) -> [String; 4] {
        let target = self.target.as_ref().map(|target| format!("<= {}", self.unit.written(&[target.at_most])));
        let verdict = self.is_met().map(|met| if met { "ok" } else { "MISSED" });
        let measured = self.unit.written(&self.measured);
        [self.what.clone(), measured, target.unwrap_or_default(), verdict.unwrap_or_default().to_owned()]
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what,
            "measured": self.measured,
            "unit": if matches!(self.unit, Unit::Milliseconds) { "s" } else { self.unit.name() },
            "atMost": self.target.as_ref().map(|target| target.at_most),
            "met": self.is_met(),
        })
    }
}

/// A table of measurements with the conditions under which they were made.
pub(crate) struct Report {
    title: String,
    load_at_start: String,
    conditions: Vec<String>,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), load_at_start: load(), conditions: Vec::new(), rows: Vec::new() }
    }

    /// Something to know of the measurements.
    pub(crate) fn condition(&mut self, text: impl Into<String>) {
        self.conditions.push(text.into());
    }

    /// Something measured, without a target.
    pub(crate) fn row(&mut self, what: impl Into<String>, measured: impl Into<Vec<f64>>, unit: Unit) {
        self.rows.push(Row { what: what.into(), measured: measured.into(), unit, target: None });
    }

    /// Something measured, of which the number with this index is to be at most so much, if anything.
    pub(crate) fn aim(
        &mut self,
        what: impl Into<String>,
        measured: impl Into<Vec<f64>>,
        unit: Unit,
        target: impl Into<Option<(usize, f64)>>,
    ) {
        let target = target.into().map(|(number, at_most)| Target { number, at_most });
        self.rows.push(Row { what: what.into(), measured: measured.into(), unit, target });
    }

    fn conditions(&self) -> Vec<String> {
        let mut conditions = vec![
            format!("machine: {}", machine()),
            format!("program: remediator {}, release build as the image is built", env!("CARGO_PKG_VERSION")),
            format!("load average of one minute, before and after: {} and {}", self.load_at_start, load()),
        ];
        conditions.extend(self.conditions.iter().cloned());
        conditions
    }

    pub(crate) fn print(&self, as_json: bool) {
        if as_json {
            let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
            println!("{:#}", json!({"title": self.title, "conditions": self.conditions(), "rows": rows}));
            return;
        }
        let mut lines = vec![[self.title.clone(), "measured".into(), "target".into(), String::new()]];
        lines.extend(self.rows.iter().map(Row::cells));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
        let [what, measured, target] = [0, 1, 2].map(width);
        println!();
        for line in &lines {
            let text = format!("{:<what$}  {:>measured$}  {:>target$}  {}", line[0], line[1], line[2], line[3]);
            println!("{}", text.trim_end());
        }
        println!();
        for condition in self.conditions() {
            println!("{condition}");
        }
    }
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").to_owned()
}

fn machine() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores of {}, Linux {}", model.unwrap_or("an unknown model"), kernel.trim())
}
