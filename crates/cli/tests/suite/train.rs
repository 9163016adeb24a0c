//! `remat train digits`: results, errors, exit codes, checkpoints.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::{BUDGET, INTERRUPTED, OK, USAGE, assert_code, err, json, out, remat};

const SHORT: [&str; 5] = ["train", "digits", "--batch-size", "64", "--steps"];

fn short<'a>(steps: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], &[steps], more].concat()
}

#[test]
fn the_json_holds_what_programs_read() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &short("3", &["--memory-budget", "50%", "--json", "-"]));
    assert_code(&o, OK);
    let report = out(&o);
    let last = report.lines().next_back().expect("a report");
    let v: serde_json::Value = serde_json::from_str(last).expect("the last line is JSON");
    assert_eq!(v["losses"].as_array().map(Vec::len), Some(3));
    assert_eq!(v["weights_sha256"].as_str().map(str::len), Some(64));
    assert!(v["peak_bytes"].as_u64() <= v["budget_bytes"].as_u64(), "{v}");
    assert!(v["budget_bytes"].as_u64() < v["unbudgeted_peak_bytes"].as_u64(), "{v}");
    assert!(v["recomputed_ops"].as_u64() > Some(0), "{v}");
    for number in ["test_accuracy", "step_ms_median"] {
        assert!(v[number].is_f64(), "{number} in {v}");
    }
    for part in ["by kind", "by op", "activations", "parameters", "recomputed", "smallest feasible budget"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn a_device_that_goes_on_by_itself_trains_to_the_same_weights_and_the_host_waits_for_what_it_reads() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let run = |device: &str, budget: &str| {
        let o = remat(dir.path(), &short("12", &["--device", device, "--memory-budget", budget, "--json", "-"]));
        assert_code(&o, OK);
        let last = out(&o).lines().next_back().expect("a report").to_owned();
        serde_json::from_str::<serde_json::Value>(&last).expect("JSON")
    };
    let cpu = run("cpu", "unlimited");
    assert_eq!(cpu["memory"]["stats"]["host_waits"], serde_json::Value::Null);
    let free = run("emulated", "unlimited");
    assert_eq!(free["weights_sha256"], cpu["weights_sha256"]);
    assert_eq!(free["memory"]["stats"]["host_waits"], 0, "{free}");
    let tight = run("emulated", "50%");
    assert_eq!(tight["weights_sha256"], cpu["weights_sha256"]);
    assert!(tight["recomputed_ops"].as_u64() > Some(0), "{tight}");
    assert_eq!(tight["memory"]["stats"]["host_waits"], 0, "{tight}");
}

#[test]
fn a_gpu_is_named_by_its_number_and_planned_for_where_there_is_none() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let wrong = remat(dir.path(), &short("1", &["--device", "cuda:x"]));
    assert_code(&wrong, USAGE);
    assert!(err(&wrong).contains("`x` is no number of a device"), "{}", err(&wrong));
    let o = remat(dir.path(), &short("1", &["--device", "cuda:0"]));
    // on a machine with a GPU it trains
    assert!(o.status.success() || err(&o).contains("CUDA"), "{}", err(&o));
    let find = |device: &str| {
        let o = remat(dir.path(), &short("1", &["--device", device, "--find-budget", "--json", "found.json"]));
        assert_code(&o, OK);
        json(&dir.path().join("found.json"))["unbudgeted_peak_bytes"].as_u64().expect("a number")
    };
    // the kernels of each have scratch memory of their own, and a GPU's storages lie farther apart
    assert_ne!(find("cuda:0"), find("cpu"));
}

#[test]
fn the_smallest_budget_is_found_without_training_and_suffices() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["train", "digits", "--batch-size", "64", "--find-budget", "--json", "found.json"]);
    assert_code(&o, OK);
    assert!(out(&o).contains("smallest budget"), "{}", out(&o));
    let found = json(&dir.path().join("found.json"));
    let bytes = |name: &str| found[name].as_u64().unwrap_or_else(|| panic!("{name} in {found}"));
    assert!(bytes("refused_bytes") < bytes("smallest_budget_bytes"), "{found}");
    assert!(bytes("smallest_budget_bytes") < bytes("unbudgeted_peak_bytes") / 2, "{found}");
    let train = |name: &str| remat(dir.path(), &short("2", &["--memory-budget", &format!("{}B", bytes(name))]));
    assert_code(&train("smallest_budget_bytes"), OK);
    assert_code(&train("refused_bytes"), BUDGET);
    // A budget under which steps take not much longer: fewer operators run again.
    let again = |name: &str| {
        let budget = format!("{}B", bytes(name));
        let run = remat(dir.path(), &short("2", &["--no-foresight", "--memory-budget", &budget, "--json", "-"]));
        assert_code(&run, OK);
        let results = out(&run).lines().next_back().map(serde_json::from_str::<serde_json::Value>);
        results.expect("a line").expect("JSON")["recomputed_ops"].as_u64().expect("a number")
    };
    assert!(bytes("smallest_budget_bytes") < bytes("smallest_budget_within_times_bytes"), "{found}");
    let (near, far) = (again("smallest_budget_bytes"), again("smallest_budget_within_times_bytes"));
    assert!(far > 0 && near >= 2 * far, "{near} and {far} operators ran again");
    let limited = ["--recompute-limit", "1", "--memory-budget", &format!("{}B", bytes("refused_bytes"))];
    assert_code(&remat(dir.path(), &short("2", &limited)), BUDGET);
    let both = ["--find-budget", "--memory-budget", "50%"];
    assert_code(&remat(dir.path(), &[&["train", "digits"][..], &both].concat()), USAGE);
}

#[test]
fn a_budget_too_small_is_the_contracts_error() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["train", "digits", "--memory-budget", "1MiB"]);
    assert_code(&o, BUDGET);
    let e = err(&o);
    for part in ["error:", "bytes", "pinned", "smallest feasible budget"] {
        assert!(e.contains(part), "{part}: {e}");
    }
}

#[test]
fn what_was_saved_goes_on_under_a_larger_budget_after_one_too_small() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| json(&dir.path().join(name));
    assert_code(&remat(dir.path(), &short("6", &["--json", "whole.json"])), OK);
    assert_code(&remat(dir.path(), &short("3", &["--memory-budget", "50%", "--save", "kept"])), OK);
    let resume = ["train", "digits", "--resume", "kept", "--steps", "6", "--json", "rest.json", "--memory-budget"];
    assert_code(&remat(dir.path(), &[&resume[..], &["1MiB"]].concat()), BUDGET);
    assert_code(&remat(dir.path(), &[&resume[..], &["75%"]].concat()), OK);
    let (whole, rest) = (file("whole.json"), file("rest.json"));
    assert_eq!(rest["first_step"], 3);
    assert_eq!(whole["losses"].as_array().expect("losses")[3..], rest["losses"].as_array().expect("losses")[..]);
    assert_eq!(whole["weights_sha256"], rest["weights_sha256"]);
}

#[test]
fn the_profile_is_a_trace() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &short("2", &["--memory-budget", "50%", "--profile", "trace.json"]));
    assert_code(&o, OK);
    let v = json(&dir.path().join("trace.json"));
    let events = v["traceEvents"].as_array().expect("a Chrome trace");
    let has = |f: &dyn Fn(&serde_json::Value) -> bool| events.iter().any(f);
    assert!(has(&|e| e["name"] == "conv2d" && e["ph"] == "X"), "executions");
    assert!(has(&|e| e["ph"] == "C"), "the memory in use, as a counter");
    assert!(has(&|e| e["cat"] == "recomputation"), "recomputations");
}

#[test]
fn wrong_values_show_the_right_ones() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let table = [
        ("--memory-budget", "lots", "50%"),
        ("--memory-budget", "50", "`50MiB`"),
        ("--memory-budget", "1e300%", "no share"),
        ("--memory-budget", "1e-30%", "no share"),
        ("--threads", "0", "1..=1024"),
        ("--epochs", "none", "invalid digit"),
        ("--batch-size", "1", "2..=9000"),
        ("--learning-rate", "-1", "above 0"),
    ];
    for (option, value, shown) in table {
        let o = remat(dir.path(), &["train", "digits", &format!("{option}={value}")]);
        assert_code(&o, USAGE);
        assert!(err(&o).contains(shown), "{option}: {}", err(&o));
    }
    let o = remat(dir.path(), &short("1", &["--resume", "nowhere"]));
    assert_code(&o, 1);
    assert!(err(&o).contains("nowhere"), "{}", err(&o));
    let o = remat(dir.path(), &short("1", &["--json", "no/such/folder/out.json"]));
    assert_code(&o, 1);
    assert!(err(&o).contains("folder that exists"), "{}", err(&o));
    for budget in ["unlimited", "50%"] {
        let o = remat(dir.path(), &short("1", &["--spill-to", "nowhere", "--memory-budget", budget]));
        assert_code(&o, 1);
        assert!(err(&o).contains("spill file in `nowhere`"), "{budget}: {}", err(&o));
    }
}

#[test]
fn json_is_written_as_the_run_goes_and_the_losses_are_drawn() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let more = ["--batch-size", "2000", "--epochs", "2", "--json", "run.json", "--plot", "loss.svg"];
    assert_code(&remat(dir.path(), &[&["train", "digits"][..], &more].concat()), OK);
    let text = std::fs::read_to_string(dir.path().join("run.json")).expect("written");
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let (results, lines) = lines.split_last().expect("lines");
    let steps: Vec<_> = lines.iter().filter(|l| l["loss"].is_f64()).collect();
    let epochs: Vec<_> = lines.iter().filter(|l| l["mean_loss"].is_f64()).collect();
    assert_eq!((steps.len(), epochs.len()), (8, 2), "{text}");
    assert_eq!((steps[4]["step"].as_u64(), steps[4]["epoch"].as_u64()), (Some(5), Some(1)), "{text}");
    for (i, s) in steps.iter().enumerate() {
        assert_eq!(s["loss"], results["losses"][i]);
    }
    assert_eq!(epochs[1]["test_accuracy"], results["test_accuracy"]);
    let svg = std::fs::read_to_string(dir.path().join("loss.svg")).expect("drawn");
    assert!(svg.contains("digits, seed 1") && svg.contains("<polyline"), "{svg}");
}

#[test]
fn a_damaged_checkpoint_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    assert_code(&remat(dir.path(), &short("1", &["--save", "kept"])), OK);
    let files: Vec<_> = std::fs::read_dir(dir.path().join("kept")).expect("a folder").flatten().collect();
    assert!(!files.is_empty());
    for f in files.iter().filter(|f| f.path().is_file()) {
        let whole = std::fs::read(f.path()).expect("readable");
        std::fs::write(f.path(), &whole[..whole.len() / 2]).expect("writable");
        let o = remat(dir.path(), &short("2", &["--resume", "kept"]));
        assert_code(&o, 1);
        assert!(err(&o).starts_with("error:"), "{}", err(&o));
        std::fs::write(f.path(), &whole).expect("writable");
        let mut flipped = whole.clone();
        let last = flipped.len() - 1;
        flipped[last] ^= 1;
        std::fs::write(f.path(), flipped).expect("writable");
        let o = remat(dir.path(), &short("2", &["--resume", "kept"]));
        assert_code(&o, 1);
        assert!(err(&o).contains("is damaged") && err(&o).contains("checkpoint.safetensors"), "{}", err(&o));
        std::fs::write(f.path(), whole).expect("writable");
    }
}

#[test]
fn a_compiled_step_gives_the_bits_of_the_interpreter_within_the_same_budget() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let run = |name: &str, more: &[&str]| {
        let o = remat(dir.path(), &short("3", &[&["--json", name], more].concat()));
        assert_code(&o, OK);
        json(&dir.path().join(name))
    };
    let eager = run("eager.json", &[]);
    assert!(eager["compiled"].is_null(), "{eager}");
    for budget in ["unlimited", "60%"] {
        let v = run("compiled.json", &["--compiled", "--memory-budget", budget]);
        for same in ["losses", "weights_sha256", "test_accuracy"] {
            assert_eq!(v[same], eager[same], "{same} at {budget}");
        }
        let again = v["compiled"]["recomputed_calls"].as_u64().expect("a number");
        assert_eq!(again > 0, budget == "60%", "{v}");
        if budget == "60%" {
            assert!(v["peak_bytes"].as_u64() <= v["budget_bytes"].as_u64(), "{v}");
        }
    }
}

#[cfg(unix)]
#[test]
fn after_a_signal_the_checkpoint_goes_on_bit_for_bit() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let args = ["train", "digits", "--batch-size", "64", "--save", "kept", "--json", "first.json"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_remat"))
            .args(args)
            .current_dir(dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|l| l.expect("text").starts_with("epoch 1/")), "it trains");
        // a terminal that closes, or who stops a service, sends more than one: that is no second request
        for _ in 0..2 {
            let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill is there");
            assert!(sent.success());
        }
        lines.for_each(drop);
        assert_eq!(child.wait().expect("it ends").code(), Some(INTERRUPTED), "{signal}");
        let file = |name: &str| json(&dir.path().join(name));
        let first = file("first.json");
        assert_eq!(first["interrupted"], true);
        let done = first["losses"].as_array().expect("losses").len();
        if signal != "-INT" {
            let o = remat(dir.path(), &["train", "digits", "--resume", "kept", "--steps", "1", "--json", "rest.json"]);
            assert_code(&o, OK);
            assert_eq!(file("rest.json")["first_step"], done, "{signal}");
            assert_eq!(file("rest.json")["weights_sha256"], first["weights_sha256"], "{signal}");
            continue;
        }
        let until = (done + 2).to_string();
        assert_code(&remat(dir.path(), &short(&until, &["--json", "whole.json"])), OK);
        let resume = ["train", "digits", "--resume", "kept", "--steps", &until, "--json", "rest.json"];
        assert_code(&remat(dir.path(), &resume), OK);
        assert_eq!(file("rest.json")["first_step"], done);
        assert_eq!(file("rest.json")["weights_sha256"], file("whole.json")["weights_sha256"]);
    }
}
