//! `remat plan`: schedules that check, errors that name the place, curves.

use std::path::Path;

use serde_json::Value;

use crate::{BUDGET, OK, USAGE, assert_code, err, json, out, remat};

const ERROR: i32 = 1;

/// A small chain with a view and an update, whose peak is 168 bytes.
const DAG: &str = r#"{ "version": 1, "align": 8,
  "values": [ { "name": "x", "bytes": 8 }, { "name": "w", "bytes": 16 } ],
  "ops": [
    { "name": "f", "time_ns": 30, "inputs": ["x", "w"], "outputs": [ { "name": "a", "bytes": 64 } ] },
    { "name": "view", "time_ns": 0, "inputs": ["a"], "outputs": [ { "name": "av", "alias_of": "a" } ] },
    { "name": "g", "time_ns": 40, "inputs": ["av"], "outputs": [ { "name": "b", "bytes": 64 } ], "workspace": 16 },
    { "name": "h", "time_ns": 40, "inputs": ["b"], "outputs": [ { "name": "c", "bytes": 16 } ] },
    { "name": "k", "time_ns": 20, "inputs": ["c", "av"], "outputs": [ { "name": "dw", "bytes": 16 } ] },
    { "name": "update", "time_ns": 5, "inputs": ["w", "dw"], "outputs": [ { "name": "w2", "writes": "w" } ],
      "repeatable": false } ],
  "outputs": ["w2"] }"#;

fn folder_with(name: &str, text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join(name), text).expect("the file is written");
    dir
}

fn text(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).expect("the file was written")
}

#[test]
fn a_training_step_is_planned_and_written_as_a_graph() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let step = ["plan", "train:mlp", "--batch", "512", "--threads", "1", "--time-limit", "0.5"];
    let o = remat(dir.path(), &[&step[..], &["--budget", "100%", "--out", "s.json", "--dag-out", "dag.json"]].concat());
    assert_code(&o, OK);
    assert!(err(&o).contains("measured"), "{}", err(&o));
    assert_code(&remat(dir.path(), &["plan", "--check", "s.json", "--dag", "dag.json"]), OK);
    let ops = |name: &str| json(&dir.path().join(name))["ops"].as_array().expect("a list").clone();
    let gpt = ["plan", "train:gpt", "--batch", "1", "--threads", "1", "--estimated", "--dag-out", "gpt.json"];
    assert_code(&remat(dir.path(), &gpt), OK);
    assert!(ops("gpt.json").iter().any(|o| o["outputs"][0]["may_take"].is_array()), "a sum can work in place");
    let o = remat(dir.path(), &[&step[..], &["--estimated", "--dag-out", "estimated.json"]].concat());
    assert_code(&o, OK);
    assert!(err(&o).contains("estimated") && out(&o).is_empty(), "{}", err(&o));
    assert_eq!(ops("estimated.json").len(), ops("dag.json").len());
    assert_code(&remat(dir.path(), &["plan", "train:imagenet", "--budget", "50%"]), USAGE);
    assert_code(&remat(dir.path(), &["plan", "--dag", "dag.json", "--estimated", "--budget", "50%"]), USAGE);
}

#[test]
fn a_plan_keeps_to_its_budget_and_passes_the_check() {
    let dir = folder_with("dag.json", DAG);
    let plan = ["plan", "--dag", "dag.json", "--time-limit", "0.2", "--out", "s.json", "--budget"];
    let o = remat(dir.path(), &[&plan[..], &["unlimited"]].concat());
    assert_code(&o, OK);
    let s = json(&dir.path().join("s.json"));
    assert_eq!((s["arena_bytes"].as_u64(), s["time_ns"].as_u64()), (Some(168), Some(135)), "{s}");
    let o = remat(dir.path(), &[&plan[..], &["95%"]].concat());
    assert_code(&o, BUDGET);
    assert!(err(&o).contains("168 bytes") && err(&o).contains("`g`"), "{}", err(&o));
    let o = remat(dir.path(), &[&plan[..], &["168B"]].concat());
    assert_code(&o, OK);
    for check in [&["plan", "--check", "s.json"][..], &["plan", "--check", "s.json", "--dag", "dag.json"]] {
        let o = remat(dir.path(), check);
        assert_code(&o, OK);
        assert!(out(&o).starts_with("valid:"), "{}", out(&o));
    }
}

#[test]
fn a_benchmark_graph_is_written_planned_and_checked() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    assert_code(&remat(dir.path(), &["plan", "--generate", "chain-20", "--out", "chain.json"]), OK);
    let o = remat(dir.path(), &["plan", "--dag", "chain.json", "--budget", "60%", "--time-limit", "0.3", "--json"]);
    assert_code(&o, OK);
    let s: Value = serde_json::from_str(&out(&o)).expect("the schedule is on standard output");
    assert!(
        s["arena_bytes"].as_u64() <= s["budget_bytes"].as_u64() && s["time_ns"].as_u64() > s["base_time_ns"].as_u64()
    );
    assert!(s["lower_bound_ns"].as_u64() <= s["time_ns"].as_u64());
    std::fs::write(dir.path().join("s.json"), out(&o)).expect("written");
    assert_code(&remat(dir.path(), &["plan", "--check", "s.json"]), OK);
    let steps = s["steps"].as_array().expect("steps");
    let free = steps.iter().position(|s| s.get("free").is_some()).expect("something is freed");
    let name = steps[free]["free"].as_str().expect("a name");
    let twice = out(&o).replacen(
        &format!("{{\"free\":\"{name}\"}}"),
        &format!("{{\"free\":\"{name}\"}},{{\"free\":\"{name}\"}}"),
        1,
    );
    std::fs::write(dir.path().join("twice.json"), twice).expect("written");
    let o = remat(dir.path(), &["plan", "--check", "twice.json", "--dag", "chain.json"]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains(&format!("steps[{}]: free: `{name}` is not resident", free + 1)), "{}", err(&o));
}

#[test]
fn a_plan_is_told_in_a_few_lines_unless_the_schedule_is_asked_for() {
    let dir = folder_with("dag.json", DAG);
    let plan = ["plan", "--generate", "chain-20", "--budget", "60%", "--time-limit", "0.3"];
    let o = remat(dir.path(), &plan);
    assert_code(&o, OK);
    assert!(out(&o).starts_with("chain-20: 41 operators") && out(&o).lines().count() < 15, "{}", out(&o));
    for part in ["budget", "(60.0 %)", "proven bound", "executions more"] {
        assert!(out(&o).contains(part), "{part}: {}", out(&o));
    }
    let o = remat(dir.path(), &["plan", "--generate", "chain-20", "--budget", "1%"]);
    assert_code(&o, BUDGET);
    assert!(out(&o).is_empty(), "{}", out(&o));
    let timeless = DAG.lines().map(|l| match l.find("\"time_ns\": ") {
        Some(at) => format!("{}\"time_ns\": 0{}", &l[..at], &l[at + l[at..].find(',').expect("more fields")..]),
        None => l.to_owned(),
    });
    std::fs::write(dir.path().join("timeless.json"), timeless.collect::<Vec<_>>().join("\n")).expect("written");
    let o = remat(dir.path(), &["plan", "--dag", "timeless.json", "--budget", "100%"]);
    assert_code(&o, OK);
    assert!(out(&o).contains("(+0.00 %)"), "{}", out(&o));
}

#[test]
fn every_command_takes_the_same_names() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["graph", "train:mlp", "--batch", "4"]);
    assert_code(&o, OK);
    assert!(out(&o).starts_with("train:mlp:"), "{}", out(&o));
    let o = remat(dir.path(), &["graph", "model:gpt", "--dot", "-"]);
    assert_code(&o, OK);
    let dot = out(&o);
    assert!(dot.starts_with("digraph \"model:gpt\" {") && dot.ends_with("}\n"), "{dot}");
    assert!(dot.contains("label=\"gpt.body.blocks.0\"") && dot.contains("attention.qkv"), "blocks and layers by name");
    assert!(!dot.contains("\"s4"), "a weight is a figure of its layer, not a box");
    for command in [&["plan", "train:vgg", "--budget", "50%"][..], &["graph", "train:vgg"]] {
        let o = remat(dir.path(), command);
        assert_code(&o, USAGE);
        assert!(err(&o).contains("digits, chars, mlp, resnet18, resnet50, gpt"), "{}", err(&o));
    }
    for command in [&["plan", "model:vgg", "--budget", "50%"][..], &["graph", "model:vgg"], &["bench", "model:vgg"]] {
        let o = remat(dir.path(), command);
        assert_code(&o, USAGE);
        assert!(err(&o).contains("mobilenetv2, gpt, bert (or bert6)"), "{}", err(&o));
    }
}

#[test]
fn hostile_files_are_errors_that_name_the_place() {
    let table = [
        (DAG.replace("\"time_ns\": 40,", ""), "dag.json: ops[2] `g`: field `time_ns` is missing"),
        (DAG.replace("\"bytes\": 16 } ],\n", "\"bytes\": -16 } ],\n"), "values[1] `w`: `bytes` must be a whole number"),
        (DAG.replace("\"inputs\": [\"b\"]", "\"inputs\": [\"q\"]"), "ops[3] `h`: input: `q` is not known"),
        (DAG.replace("\"inputs\": [\"av\"]", "\"inputs\": [\"c\"]"), "or there is a cycle"),
        (DAG.replace("\"version\": 1", "\"version\": 7"), "`version` 7 is not known"),
        (DAG[..DAG.len() - 2].to_owned(), "not valid JSON"),
        ("[".repeat(100_000), "not valid JSON"),
        (String::new(), "not valid JSON"),
    ];
    for (dag, says) in table {
        let dir = folder_with("dag.json", &dag);
        let o = remat(dir.path(), &["plan", "--dag", "dag.json", "--budget", "50%"]);
        assert_code(&o, ERROR);
        assert!(err(&o).contains(says), "{says}: {}", err(&o));
    }
    let dir = folder_with("binary.json", "");
    std::fs::write(dir.path().join("binary.json"), [0xff, 0xfe, 0]).expect("written");
    assert_code(&remat(dir.path(), &["plan", "--check", "binary.json"]), ERROR);
    assert_code(&remat(dir.path(), &["plan", "--dag", "none.json", "--budget", "1B"]), ERROR);
    let o = remat(dir.path(), &["plan", "--generate", "vgg", "--budget", "50%"]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("known: chain-N"), "{}", err(&o));
}

#[test]
fn wrong_command_lines_are_told_apart_from_budgets() {
    let dir = folder_with("dag.json", DAG);
    for args in [
        &["plan", "--dag", "dag.json", "--budget", "much"][..],
        &["plan", "--dag", "dag.json", "--budget", "50%", "--time-limit", "0"],
        &["plan", "--dag", "dag.json", "--budget", "50%", "--time-limit", "nan"],
        &["plan", "--dag", "dag.json", "--svg", "c.svg"],
        &["plan", "--check", "s.json", "--budget", "50%"],
        &["plan"],
        &["plan", "--dag", "dag.json"],
    ] {
        let o = remat(dir.path(), args);
        assert_code(&o, USAGE);
        assert!(!err(&o).is_empty());
    }
    let o = remat(dir.path(), &["plan", "--help"]);
    assert_code(&o, OK);
    for part in ["Examples:", "--dag resnet50.json --budget 70%", "alias_of", "Exit codes"] {
        assert!(out(&o).contains(part), "{part}");
    }
}

#[test]
fn a_curve_is_a_table_a_picture_and_a_page() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let files = ["--svg", "c.svg", "--html", "c.html", "--out", "s.json", "--budget", "70%"];
    let args = ["plan", "--generate", "chain-12", "--curve", "--percents", "100,70,50,2,1", "--time-limit", "0.2"];
    let o = remat(dir.path(), &[&args[..], &files].concat());
    assert_code(&o, OK);
    let table = out(&o);
    let rows: Vec<&str> = table.lines().skip(2).collect();
    assert!(rows[0].starts_with("| 100.0 % |") && rows[0].contains("| 0.00 % |"), "{table}");
    assert!(rows[rows.len() - 2..].iter().all(|row| row.contains("infeasible")), "{table}");
    assert!(rows.len() >= 5, "{table}");
    assert!(text(dir.path(), "c.svg").contains(">chain-12: 25 operators"), "the picture has a title");
    assert!(text(dir.path(), "c.svg").starts_with("<svg"));
    let page = text(dir.path(), "c.html");
    assert!(page.contains("<canvas") && page.contains("\"blocks\":[[") && !page.contains("{{"));
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("@import"), "it needs nothing else");
    assert_code(&remat(dir.path(), &["plan", "--check", "s.json"]), OK);
}
