//! `remat train chars`: that it learns, and that a budget or compiling changes no bit of it.

use std::path::Path;

use serde_json::Value;

use crate::{BUDGET, OK, assert_code, err, json, out, remat};

/// A network of a few thousand numbers, so that a step takes little time in a test.
const TINY: [&str; 10] = ["--batch-size", "8", "--context", "32", "--layers", "2", "--width", "16", "--heads", "2"];

fn run(dir: &Path, steps: &str, more: &[&str]) -> (Value, String) {
    let o = remat(dir, &[&["train", "chars", "--steps", steps, "--json", "out.json"], &TINY[..], more].concat());
    assert_code(&o, OK);
    (json(&dir.join("out.json")), out(&o))
}

#[test]
fn a_budget_and_compiling_change_no_bit() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let more = ["--dropout", "0.1"];
    let (whole, _) = run(dir.path(), "4", &more);
    assert_eq!(whole["losses"].as_array().map(Vec::len), Some(4), "{whole}");
    assert!(whole["compiled"].is_null(), "{whole}");
    for how in [&["--memory-budget", "60%"][..], &["--compiled"], &["--compiled", "--memory-budget", "70%"]] {
        let (v, report) = run(dir.path(), "4", &[&more[..], how].concat());
        for same in ["losses", "weights_sha256", "validation_loss"] {
            assert_eq!(v[same], whole[same], "{same} with {how:?}");
        }
        if v["budget_bytes"].is_u64() {
            assert!(v["peak_bytes"].as_u64() <= v["budget_bytes"].as_u64(), "{v}");
            assert!(v["recomputed_ops"].as_u64() > Some(0), "{v}");
            assert!(report.contains("smallest feasible budget"), "{report}");
        }
    }
}

#[test]
fn it_learns_and_shows_what_it_would_write() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    // one epoch, so that warming up does not take longer than the test
    let more = ["--epochs", "1", "--learning-rate", "0.1", "--sample-every", "20"];
    let (v, report) = run(dir.path(), "40", &more);
    let losses: Vec<f64> = v["losses"].as_array().expect("losses").iter().filter_map(Value::as_f64).collect();
    // 75 characters alike cost ln 75
    assert!((losses[0] - 75f64.ln()).abs() < 0.05, "{losses:?}");
    let result = v["validation_loss"].as_f64().expect("a number");
    assert!(result < 3.6, "{result}");
    assert!(
        report.contains("after 20 steps it writes:\n") && report.contains("after 40 steps it writes:\n"),
        "{report}"
    );
    assert!(report.contains(&format!("validation loss {result:.4} after 40 steps")), "{report}");
    assert_eq!(v["settings"]["model"]["context"], 32, "{v}");
}

#[test]
fn what_was_saved_goes_on_bit_for_bit_and_not_as_another_recipe() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (whole, _) = run(dir.path(), "5", &["--dropout", "0.1"]);
    run(dir.path(), "2", &["--dropout", "0.1", "--save", "kept"]);
    // options of the run come from the checkpoint
    let resume = ["train", "chars", "--resume", "kept", "--steps", "5", "--json", "rest.json"];
    assert_code(&remat(dir.path(), &resume), OK);
    let rest = json(&dir.path().join("rest.json"));
    assert_eq!(rest["first_step"], 2);
    assert_eq!(rest["weights_sha256"], whole["weights_sha256"]);
    let o = remat(dir.path(), &["train", "digits", "--resume", "kept"]);
    assert_code(&o, 1);
    assert!(err(&o).contains("`chars`, not of `digits`"), "{}", err(&o));
}

#[test]
fn impossible_options_are_errors_with_figures() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let of = |more: &[&str]| remat(dir.path(), &[&["train", "chars"][..], more].concat());
    let o = of(&["--memory-budget", "1MiB"]);
    assert_code(&o, BUDGET);
    assert!(err(&o).contains("smallest feasible budget") && err(&o).contains("pinned"), "{}", err(&o));
    let o = of(&["--width", "10", "--heads", "4"]);
    assert_code(&o, 1);
    assert!(err(&o).contains("4 heads do not divide a width of 10"), "{}", err(&o));
}

#[test]
fn a_kept_network_continues_a_text_with_and_without_a_cache() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    run(dir.path(), "30", &["--learning-rate", "0.05", "--save", "kept"]);
    let write = |more: &[&str]| {
        let given = ["generate", "kept", "--prompt", "It is a", "--tokens", "70", "--json", "text.json"];
        assert_code(&remat(dir.path(), &[&given[..], more].concat()), OK);
        json(&dir.path().join("text.json"))
    };
    // longer than the context of 32, so that the window moves
    let cached = write(&[]);
    assert_eq!((cached["tokens"].as_u64(), cached["cached"].as_bool()), (Some(70), Some(true)), "{cached}");
    assert_eq!(cached["text"].as_str().map(|t| t.chars().count()), Some(70), "{cached}");
    assert_eq!(write(&[])["text"], cached["text"], "the same seed");
    assert_ne!(write(&["--seed", "2"])["text"], cached["text"], "another seed");
    assert_eq!(write(&["--no-cache"])["text"], cached["text"], "the cache changes nothing");
    let peak = cached["peak_bytes"].as_u64().expect("a number");
    let budget = format!("{}B", peak);
    let within = write(&["--memory-budget", &budget]);
    assert_eq!(within["text"], cached["text"]);
    assert!(within["peak_bytes"].as_u64() <= Some(peak), "{within}");
    let o = remat(dir.path(), &["generate", "kept", "--prompt", "It is a", "--tokens", "5"]);
    assert_code(&o, OK);
    assert!(out(&o).starts_with("It is a") && out(&o).len() == 7 + 5 + 1, "{}", out(&o));
    for (wrong, code, what) in [
        (&["generate", "nowhere"][..], 1, "nowhere"),
        (&["generate", "kept", "--prompt", "\u{e9}"], 1, "does not know"),
        (&["generate", "kept", "--top-p", "0"], 1, "top_p"),
        (&["generate", "kept", "--memory-budget", "1000B"], BUDGET, "budget"),
        (&["generate", "kept", "--memory-budget", "50%"], 1, "8MiB"),
        (&["generate", "kept", "--tokens", "0"], 64, "--tokens"),
    ] {
        let o = remat(dir.path(), wrong);
        assert_code(&o, code);
        assert!(err(&o).contains(what), "{wrong:?}: {}", err(&o));
    }
}
