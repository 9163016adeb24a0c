//! `remat scaling`: from a measured step to a table, a picture and figures, and what is refused.

use std::path::Path;

use serde_json::Value;

use crate::{OK, USAGE, assert_code, err, json, out, remat};

/// Measures the smallest step once, and keeps its profile.
fn profile(dir: &Path) -> Value {
    let measure = ["scaling", "train:mlp", "--batch", "8", "--threads", "1", "--seconds", "0.05"];
    let o = remat(dir, &[&measure[..], &["--save-profile", "p.json", "--json", "first.json"]].concat());
    assert_code(&o, OK);
    json(&dir.join("p.json"))
}

fn number(v: &Value, name: &str) -> f64 {
    v[name].as_f64().unwrap_or_else(|| panic!("`{name}` in {v}"))
}

#[test]
fn a_step_is_measured_once_and_predicted_from_its_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let p = profile(dir.path());
    // three layers with a bias each, of 669,706 numbers
    let gradients = p["gradients"].as_array().expect("a list");
    assert_eq!(gradients.iter().map(|g| number(g, "bytes")).sum::<f64>(), 4.0 * 669_706.0);
    let batches = p["at"].as_array().expect("a list");
    assert_eq!(batches.iter().map(|b| number(b, "batch")).collect::<Vec<_>>(), [8.0, 2.0]);
    for at in batches {
        let ready = at["ready_ms"].as_array().expect("a list");
        let ready: Vec<f64> = ready.iter().map(|v| v.as_f64().expect("a number")).collect();
        assert!(ready.iter().all(|v| *v > 0.0 && *v <= number(at, "backward_ms")), "{at}");
        // the pass goes from the last layer to the first
        assert!(ready[4] < ready[2] && ready[2] < ready[0], "{at}");
    }

    let again = ["scaling", "--profile", "p.json", "--json", "second.json", "--svg", "e.svg"];
    assert_code(&remat(dir.path(), &again), OK);
    let (first, second) = (json(&dir.path().join("first.json")), json(&dir.path().join("second.json")));
    assert_eq!(first, second, "the prediction needs no other run");
    let steps = second["steps"].as_array().expect("a list");
    assert_eq!(steps.len(), 2 * 12, "twelve numbers of ranks, not overlapped and overlapped");
    assert!(
        steps.iter().all(|s| number(s, "step_ms") > number(&second, "one_rank_ms") && number(s, "efficiency") < 1.0)
    );
    let svg = std::fs::read_to_string(dir.path().join("e.svg")).expect("a picture");
    assert!(svg.matches("<polyline").count() == 2 && svg.contains(">4096<") && !svg.contains("NaN"), "{svg}");
}

#[test]
fn options_change_what_they_say() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    profile(dir.path());
    let of = |more: &[&str]| -> Vec<Value> {
        let given = ["scaling", "--profile", "p.json", "--json", "-", "--overlap", "off"];
        let o = remat(dir.path(), &[&given[..], more].concat());
        assert_code(&o, OK);
        let v: Value = serde_json::from_str(&out(&o)).expect("it is JSON");
        v["steps"].as_array().expect("a list").clone()
    };
    let ms = |more: &[&str]| number(&of(more)[0], "communication_ms");
    let base = ms(&["--ranks", "64"]);
    assert!(ms(&["--ranks", "64", "--network", "10gbe"]) > 2.0 * base);
    assert!(ms(&["--ranks", "64", "--latency-us", "100"]) > 2.0 * base);
    assert!(ms(&["--ranks", "64", "--bandwidth", "1"]) > 2.0 * base);
    assert!(ms(&["--ranks", "64", "--reduction", "0.1"]) > 2.0 * base);
    assert!(ms(&["--ranks", "64", "--all-reduce", "cheapest"]) < base);
    assert!(
        number(&of(&["--ranks", "8", "--faster", "10"])[0], "compute_ms")
            < 0.2 * number(&of(&["--ranks", "8"])[0], "compute_ms")
    );
    assert!(number(&of(&["--ranks", "8", "--jitter", "10"])[0], "late_ms") > 0.0);
    assert_eq!(number(&of(&["--ranks", "8"])[0], "late_ms"), 0.0);
    let shared = of(&["--global-batch", "32", "--ranks", "4,32,64"]);
    assert_eq!(shared.iter().map(|s| number(s, "batch")).collect::<Vec<_>>(), [8.0, 1.0], "64 ranks are left out");
    let eight = of(&["--ranks", "16", "--ranks-per-machine", "8", "--all-reduce", "ring,hierarchical"]);
    assert!(eight.len() == 2 && eight.iter().all(|s| number(s, "machines") == 2.0));

    let table =
        remat(dir.path(), &["scaling", "--profile", "p.json", "--all-reduce", "ring,remat", "--ranks", "1,2,4096"]);
    assert_code(&table, OK);
    let text = out(&table);
    assert!(text.contains("train:mlp") && text.contains("efficiency") && text.contains("latency"), "{text}");
    assert_eq!(text.lines().filter(|l| l.contains(" ring ")).count(), 3 * 2, "{text}");
}

#[test]
fn what_means_nothing_is_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    profile(dir.path());
    let wrong: [&[&str]; 9] = [
        &[],
        &["--profile", "p.json", "--ranks", "0"],
        &["--profile", "p.json", "--ranks", "99999999999"],
        &["--profile", "p.json", "--overlap", "maybe"],
        &["--profile", "p.json", "--all-reduce", "nccl"],
        &["train:mlp", "--profile", "p.json"],
        &["train:vgg"],
        &["train:mlp", "--seconds", "nan"],
        &["train:mlp", "--save-network", "n.json"],
    ];
    for args in wrong {
        let o = remat(dir.path(), &[&["scaling"], args].concat());
        assert_code(&o, USAGE);
        assert!(err(&o).contains("error: "), "{}", err(&o));
    }
    let of_profile: [(&[&str], &str); 10] = [
        (&["--network", "nowhere"], "10gbe"),
        (&["--bandwidth", "0"], "bandwidth between machines"),
        (&["--bandwidth", "nan"], "bandwidth between machines"),
        (&["--latency-us=-1"], "latency between machines"),
        (&["--reduction", "inf"], "reduces"),
        (&["--ranks-per-machine", "0"], "a machine has 0 ranks"),
        (&["--cards", "0"], "network cards"),
        (&["--jitter", "nan"], "jitter"),
        (&["--faster", "0"], "times as fast"),
        (&["--bucket-bytes", "0"], "bucket"),
    ];
    for (args, text) in of_profile {
        let o = remat(dir.path(), &[&["scaling", "--profile", "p.json"], args].concat());
        assert_code(&o, 1);
        assert!(err(&o).contains(text), "{args:?}: {}", err(&o));
    }
    let o = remat(dir.path(), &["scaling", "model:mlp"]);
    assert_code(&o, 1);
    assert!(err(&o).contains("does not train"), "{}", err(&o));
    let o = remat(dir.path(), &["scaling", "--profile", "p.json", "--global-batch", "1", "--ranks", "2"]);
    assert_code(&o, 1);
    assert!(err(&o).contains("examples each"), "{}", err(&o));
    for (text, what) in [("{}", "missing field"), ("{\"work\": ", "EOF"), ("", "EOF")] {
        std::fs::write(dir.path().join("bad.json"), text).expect("a file");
        let o = remat(dir.path(), &["scaling", "--profile", "bad.json"]);
        assert_code(&o, 1);
        assert!(err(&o).contains("bad.json") && err(&o).contains(what), "{}", err(&o));
    }
}

#[test]
fn a_check_needs_ranks() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["scaling", "train:mlp", "--check"]);
    assert_code(&o, 1);
    assert!(err(&o).contains("MPI") || err(&o).contains("mpirun"), "{}", err(&o));
}
