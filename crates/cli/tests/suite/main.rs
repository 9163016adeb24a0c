//! The `remat` command as a person or a script runs it; one binary, so that it links once.

mod bench;
mod chars;
mod check_budget;
mod graph;
mod model;
mod output;
mod plan;
mod saving;
mod scaling;
mod soak;
mod train;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const OK: i32 = 0;
const BUDGET: i32 = 2;
const USAGE: i32 = 64;
const INTERRUPTED: i32 = 130;

/// Runs `remat` with these arguments in `dir`.
fn remat(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_remat")).args(args).current_dir(dir).output().expect("the program starts")
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

#[track_caller]
fn assert_code(o: &Output, code: i32) {
    assert_eq!(o.status.code(), Some(code), "{}\n{}", out(o), err(o));
}

/// A file of JSON, or the last of its lines.
fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the file was written");
    let last = || serde_json::from_str(text.lines().next_back().expect("a line"));
    serde_json::from_str(&text).or_else(|_| last()).expect("it is JSON")
}
