//! The serial forms of all samples are those that were recorded: files that hold them must stay readable.

use std::collections::BTreeSet;
use std::fmt::Write;

use remat_ops::{Entry, Registry};

/// Every distinct serial form of the registry's samples, one a line, in the order of their text.
fn forms() -> String {
    let registry = Registry::builtin();
    let samples = registry.entries().iter().flat_map(Entry::samples);
    let lines: BTreeSet<String> =
        samples.map(|s| s.op.to_json().expect("an op has a serial form").to_string()).collect();
    lines.iter().fold(String::new(), |mut all, line| {
        writeln!(all, "{line}").expect("a string takes any text");
        all
    })
}

/// With `REMAT_RECORD` set, records what is new. A line that goes away breaks files that were written, so no record forgets it.
#[test]
fn serial_forms_are_those_that_were_recorded() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples/serial_forms.txt");
    let now = forms();
    let mut recorded = std::fs::read_to_string(path).expect("the record is there");
    if std::env::var_os("REMAT_RECORD").is_some() {
        let all: BTreeSet<&str> = recorded.lines().chain(now.lines()).collect();
        let all: String = all.iter().flat_map(|line| [line, "\n"]).collect();
        if all != recorded {
            std::fs::write(path, &all).expect("the record can be written");
            recorded = all;
        }
    }
    let changed: Vec<&str> = recorded.lines().filter(|line| !now.lines().any(|n| n == *line)).collect();
    let new: Vec<&str> = now.lines().filter(|line| !recorded.lines().any(|r| r == *line)).collect();
    assert!(changed.is_empty() && new.is_empty(), "no longer written: {changed:#?}\nnot recorded: {new:#?}");
}
