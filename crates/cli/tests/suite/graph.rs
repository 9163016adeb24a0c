//! `remat graph`: figures, files, pictures, errors.

use crate::{BUDGET, OK, USAGE, assert_code, err, json, out, remat};

#[test]
fn figures_on_standard_output_come_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["graph", "model:mlp", "--json", "-"]);
    assert_code(&o, OK);
    let v: serde_json::Value = serde_json::from_str(&out(&o)).expect("JSON and nothing else");
    assert_eq!(v["graph"], "model:mlp");
    assert!(!dir.path().join("-").exists());
}

#[test]
fn a_model_has_its_published_figures() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["graph", "model:resnet18", "--json", "out.json"]);
    assert_code(&o, OK);
    let v = json(&dir.path().join("out.json"));
    assert_eq!(v["parameters"], 11_689_512);
    let conv = v["ops"].as_array().expect("ops").iter().find(|o| o["op"] == "conv2d").expect("convolutions");
    // 1.81 G multiply-adds; those of the last layer belong to no convolution
    assert!((3.62e9..3.64e9).contains(&conv["flops"].as_f64().expect("a number")), "{conv}");
    assert_eq!(v["states"], 2 * 31 + 2 * 20, "weights and running statistics");
    let text = out(&o);
    for part in ["parameters 11689512", "GFLOP", "lower bound", "conv2d", "in resnet.stem.conv"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_graph_comes_back_from_both_of_its_files() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let figures = |name: &str, more: &[&str]| {
        let o = remat(dir.path(), &[&["graph", name, "--json", "out.json"], more].concat());
        assert_code(&o, OK);
        let mut v = json(&dir.path().join("out.json"));
        v["graph"] = serde_json::Value::Null;
        v["parameters"] = serde_json::Value::Null;
        (v, out(&o))
    };
    let (traced, _) = figures("model:mlp", &["--batch", "3", "--out", "mlp.safetensors"]);
    let (read, text) = figures("mlp.safetensors", &["--text"]);
    assert_eq!(read, traced);
    assert!(text.starts_with("remat.graph 1\n") && text.contains(" in \"linear\""), "{text}");
    std::fs::write(dir.path().join("mlp.txt"), &text).expect("writable");
    assert_eq!(figures("mlp.txt", &[]).0, traced);
}

#[test]
fn blocks_are_frames_around_all_that_is_computed_in_them() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["graph", "model:resnet18", "--dot", "-"]);
    assert_code(&o, OK);
    let text = out(&o);
    assert_eq!(text.matches("subgraph").count(), 8, "{text}");
    let outside: Vec<&str> = text.split("subgraph").next().into_iter().flat_map(str::lines).collect();
    let relus = outside.iter().filter(|l| l.contains("relu")).count();
    assert_eq!(relus, 1, "that of the stem alone: {outside:#?}");
}

#[test]
fn pictures_show_nodes_and_the_largest_lifetimes() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let picture = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect("it was written");
    let pictures = ["--dot", "graph.dot", "--memory-timeline", "lifetimes.svg"];
    assert_code(&remat(dir.path(), &[&["graph", "train:digits", "--batch", "8"], &pictures[..]].concat()), OK);
    let (graph, lives) = (picture("graph.dot"), picture("lifetimes.svg"));
    assert!(graph.starts_with("digraph \"train:digits\" {") && graph.contains("\\nconv2d"), "{}", &graph[..1000]);
    for part in
        ["<svg", "</svg>", "states, inputs and constants", "train:digits: at most", "f32[8, 16, 14, 14] in net."]
    {
        assert!(lives.contains(part), "{part}");
    }
    assert!(!lives.contains("NaN"), "{lives}");
    let args = ["graph", "train:digits", "--batch", "8", "--memory-timeline", "lifetimes.json", "--json", "out.json"];
    assert_code(&remat(dir.path(), &args), OK);
    let (t, all) = (json(&dir.path().join("lifetimes.json")), json(&dir.path().join("out.json")));
    let (calls, lives) = (t["bytes_at_call"].as_array().expect("calls"), t["lives"].as_array().expect("lives"));
    let run = all["calls"].as_u64().expect("a number") as usize;
    assert!((run / 2..=run).contains(&calls.len()), "{} of {run}: copies are not in it", calls.len());
    assert_eq!(calls.iter().map(|b| b.as_u64()).max().flatten(), all["peak_bytes"].as_u64());
    let at_the_peak = |l: &&serde_json::Value| {
        (l["first_call"].as_u64()..=l["last_call"].as_u64()).contains(&all["peak_call"].as_u64())
    };
    let bytes: Option<u64> = lives.iter().filter(at_the_peak).map(|l| l["bytes"].as_u64()).sum();
    assert_eq!(bytes.zip(t["fixed_bytes"].as_u64()).map(|(a, b)| a + b), all["peak_bytes"].as_u64());
}

#[test]
fn under_a_budget_less_lives_and_calls_run_again() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let figures = |budget: &str| {
        let args = ["graph", "train:digits", "--batch", "8", "--json", "out.json", "--memory-budget", budget];
        assert_code(&remat(dir.path(), &args), OK);
        json(&dir.path().join("out.json"))
    };
    let (whole, half) = (figures("unlimited"), figures("70%"));
    assert_eq!(whole["memory"]["recomputed_calls"], 0);
    assert!(half["memory"]["recomputed_calls"].as_u64() > Some(0), "{half}");
    assert!(half["peak_bytes"].as_u64() < whole["peak_bytes"].as_u64(), "{half}");
    let o = remat(dir.path(), &["graph", "train:digits", "--memory-budget", "1MiB"]);
    assert_code(&o, BUDGET);
    assert!(err(&o).contains("the whole run fits from"), "{}", err(&o));
}

#[test]
fn wrong_sources_are_errors_that_say_what_there_is() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["graph", "model:vgg"]);
    assert_code(&o, USAGE);
    assert!(err(&o).contains("resnet18, resnet50, mobilenetv2"), "{}", err(&o));
    for (name, bytes) in
        [("missing", None), ("damaged", Some(&b"\x08\0\0\0\0\0\0\0{}"[..])), ("words", Some(b"remat.graph 9"))]
    {
        if let Some(bytes) = bytes {
            std::fs::write(dir.path().join(name), bytes).expect("writable");
        }
        let o = remat(dir.path(), &["graph", name]);
        assert_code(&o, 1);
        assert!(err(&o).starts_with("error: ") && err(&o).contains(name), "{}", err(&o));
    }
}
