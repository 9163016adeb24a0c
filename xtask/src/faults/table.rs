//! The outcome of each fault, as a table.

use std::fmt;
use std::time::Duration;

use crate::faults::spec::Fault;

/// The outcome of one fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A test reported failure.
    Caught,
    /// All tests passed.
    Survived,
    /// `find` no longer fits the code.
    Stale(String),
    /// The test command proves nothing even without the fault.
    BadTest(String),
    /// The compiler refused the fault, so no test saw it. Has the path of the log.
    DoesNotCompile(String),
    /// The test process died without reporting. Has the path of the log.
    Crashed(String),
    /// The test took too long.
    TimedOut,
}

/// One fault with its outcome.
pub(crate) struct Row {
    pub(crate) fault: Fault,
    pub(crate) verdict: Verdict,
    pub(crate) took: Duration,
}

impl Verdict {
    pub(crate) fn is_caught(&self) -> bool {
        *self == Self::Caught
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught => write!(f, "yes"),
            Self::Survived => write!(f, "NO: every test passed; add one that notices"),
            Self::Stale(why) => write!(f, "NO: {why}; bring the fault up to date"),
            Self::BadTest(why) => write!(f, "NO: the test is no proof: {why}"),
            Self::DoesNotCompile(log) => write!(f, "NO: it does not compile, so no test was asked; see {log}"),
            Self::Crashed(log) => write!(f, "NO: the test process died without a report; see {log}"),
            Self::TimedOut => write!(f, "NO: it hangs or needs a larger --timeout"),
        }
    }
}

/// The list of the faults, without running them.
pub(crate) fn listing(faults: &[Fault]) -> String {
    let rows = faults.iter().map(|f| [f.name.clone(), f.kind.clone(), f.file.display().to_string(), f.test.join(" ")]);
    align(["name", "kind", "file", "test"], rows.collect())
}

/// The results, and the number of caught faults.
pub(crate) fn results(rows: &[Row]) -> String {
    let caught = rows.iter().filter(|r| r.verdict.is_caught()).count();
    let cells = rows.iter().map(|r| {
        let took = format!("{:.1} s", r.took.as_secs_f64());
        [r.fault.name.clone(), r.fault.kind.clone(), took, r.verdict.to_string()]
    });
    let table = align(["name", "kind", "time", "caught"], cells.collect());
    let missed: String =
        rows.iter().filter(|r| !r.verdict.is_caught()).map(|r| format!("\n  {}", r.fault.place)).collect();
    let tail = if missed.is_empty() { String::new() } else { format!("; not caught:{missed}") };
    format!("{table}{caught} of {} faults caught{tail}\n", rows.len())
}

fn align(head: [&str; 4], rows: Vec<[String; 4]>) -> String {
    let head = head.map(str::to_string);
    let width = |column: usize| rows.iter().chain([&head]).map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |row: &[String; 4]| {
        let [a, b, c] = widths;
        format!("{:a$}  {:b$}  {:c$}  {}\n", row[0], row[1], row[2], row[3])
    };
    std::iter::once(&head).chain(&rows).map(line).collect()
}
