//! `remat run`, `inspect` and `bench` on models in files.

use std::path::{Path, PathBuf};

use remat::graph::ir::Builder;
use remat::ops::linalg::MatMul;
use remat::ops::pointwise::{Unary, UnaryFn};
use remat::types::{DType, Fact, HostTensor};
use serde_json::Value;

use crate::{BUDGET, OK, USAGE, assert_code, err, json, out, remat};

const ERROR: i32 = 1;
const UNSUPPORTED: i32 = 3;

/// The models of the crate that loads them.
fn model(name: &str) -> String {
    folder(name).join("model.onnx").display().to_string()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lite/tests/models").join(name)
}

fn data(name: &str) -> String {
    folder(name).join("test_data_set_0").display().to_string()
}

fn run(args: &[&str]) -> std::process::Output {
    let dir = tempfile::tempdir().expect("a temporary folder");
    remat(dir.path(), args)
}

#[test]
fn recorded_outputs_are_met_within_a_tolerance_and_told_where_not() {
    for name in ["cnn", "encoder", "positive", "external", "skip"] {
        let o = run(&["run", &model(name), "--check", &data(name)]);
        assert_code(&o, OK);
        assert!(err(&o).contains("1 of 1 outputs are within"), "{}", err(&o));
    }
    let o = run(&["run", &model("cnn"), "--check", &data("cnn"), "--rtol", "0", "--atol", "0", "--level", "0"]);
    // other sums than those of another runtime, and no difference without a place
    if o.status.code() != Some(OK) {
        assert_code(&o, ERROR);
        assert!(err(&o).contains("probabilities f32[2, 5]: DIFFERENT; largest difference"), "{}", err(&o));
    }
    let o = run(&["run", &model("encoder"), "--check", &data("cnn")]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("tokens"), "{}", err(&o));
    let o = run(&["run", &model("cnn"), "--check", "nowhere"]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("input_0.pb"), "{}", err(&o));
}

#[test]
fn sequences_and_strings_are_compared_part_by_part() {
    let o = run(&["run", &model("sequence"), "--check", &data("sequence")]);
    assert_code(&o, OK);
    for part in
        ["all[0] f32[2, 3]: equal", "all[2] f32[4, 3]: equal", "rows f32[7, 3]: equal", "words[1] string[1]: equal"]
    {
        assert!(err(&o).contains(part), "{part}: {}", err(&o));
    }
    // a number, a string and a length that are others
    let dir = tempfile::tempdir().expect("a temporary folder");
    let wrong = |file: &str, from: &[u8], to: &[u8]| {
        for name in ["input_0.pb", "input_1.pb", "output_0.pb", "output_1.pb", "output_2.pb"] {
            let mut bytes = std::fs::read(folder("sequence").join("test_data_set_0").join(name)).expect("readable");
            if name == file {
                let at = bytes.windows(from.len()).rposition(|w| w == from).expect("it is there");
                bytes.splice(at..at + from.len(), to.iter().copied());
            }
            std::fs::write(dir.path().join(name), bytes).expect("writable");
        }
        let o = remat(dir.path(), &["run", &model("sequence"), "--check", "."]);
        assert_code(&o, ERROR);
        err(&o)
    };
    let text = wrong("output_2.pb", b"two", b"too");
    assert!(text.contains("words[1] string[1]: DIFFERENT; \"two\" at 0, expected \"too\""), "{text}");
    // the last float of the last part
    let bytes = std::fs::read(folder("sequence").join("test_data_set_0/output_0.pb")).expect("readable");
    let last = bytes[bytes.len() - 4..].to_vec();
    let text = wrong("output_0.pb", &last, &1e6f32.to_le_bytes());
    assert!(text.contains("all[2] f32[4, 3]: DIFFERENT"), "{text}");
    assert!(text.contains("5 of 6 outputs are within"), "{text}");
}

/// A picture of one colour as a file in `dir`.
fn picture(dir: &Path, colour: [u8; 3]) -> String {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 320, 240);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&colour.repeat(320 * 240)).expect("all points");
    writer.finish().expect("the end");
    let path = dir.join("plain.png");
    std::fs::write(&path, bytes).expect("writable");
    path.display().to_string()
}

#[test]
fn pictures_are_prepared_by_the_figures_of_the_model() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = picture(dir.path(), [255, 51, 0]);
    let means = |args: &[&str]| {
        let o = remat(dir.path(), &[&["run", &model("colours"), "--json", "-"], args].concat());
        assert_code(&o, OK);
        let report: Value = serde_json::from_str(&out(&o)).expect("it is JSON");
        let first: Vec<f64> =
            report["outputs"][0]["first"].as_array().expect("numbers").iter().filter_map(Value::as_f64).collect();
        (first, err(&o))
    };
    // three roundings of f32 on the way from a colour to its mean, over a deviation of 0.25
    let near = |got: &[f64], want: [f64; 3]| got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6);
    // the metadata's: mean 0.5 0.25 0.5, deviation 0.5 0.5 0.25
    let (got, text) = means(&["--input", &path, "--preprocess", "imagenet"]);
    assert!(near(&got, [1.0, -0.1, -2.0]), "{got:?}");
    assert!(text.contains("shorter side to 256, the middle 224x224, mean 0.5 0.25 0.5"), "{text}");
    let o = remat(dir.path(), &["run", &model("colours"), "--input", &path]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("--preprocess imagenet") && err(&o).contains("where the model takes"), "{}", err(&o));
}

#[test]
fn inputs_come_in_every_form_and_outputs_go_to_files() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let args =
        ["run", &model("encoder"), "--input", "tokens=[1, 2, 3; 4, 5, 6]", "--output", "results", "--json", "a.json"];
    assert_code(&remat(dir.path(), &args), OK);
    let written = std::fs::read(dir.path().join("results/encoded.npy")).expect("written");
    let t = remat::types::read_npy(&written).expect("an array");
    assert_eq!(t.shape().dims(), [2, 3, 16]);
    let report = json(&dir.path().join("a.json"));
    assert_eq!(report["outputs"][0]["shape"], serde_json::json!([2, 3, 16]));
    // what was written is read again, and gives the same
    let tokens = remat::types::HostTensor::from_slice(&[1i64, 2, 3, 4, 5, 6], [2, 3]).expect("fits");
    let mut bytes = Vec::new();
    remat::types::write_npy(&tokens, &mut bytes).expect("in memory");
    std::fs::write(dir.path().join("tokens.npy"), bytes).expect("writable");
    assert_code(&remat(dir.path(), &["run", &model("encoder"), "--input", "tokens.npy", "--output", "again"]), OK);
    assert_eq!(std::fs::read(dir.path().join("again/encoded.npy")).expect("written"), written);
    let o = run(&["run", &model("cnn"), "--input", "2x3x16x16", "--top", "2"]);
    assert_code(&o, OK);
    assert!(out(&o).contains("row 1") && out(&o).contains("probabilities: f32[2, 5]"), "{}", out(&o));
    let o = run(&["run", &model("cnn")]);
    assert_code(&o, OK);
    assert!(err(&o).contains("open extents are taken as 1") && err(&o).contains("random numbers"), "{}", err(&o));
}

#[test]
fn wrong_inputs_say_what_there_is() {
    for (args, word) in [
        (&["--input", "x=1x3"][..], "no input `x`; it has image"),
        (&["--input", "image=1x3x8x8"], "where the model takes"),
        (&["--input", "image=missing.npy"], "missing.npy"),
        (&["--shape", "image=1x4x16x16"], "where the model takes"),
        (&["--extent", "rows=2"], "no extent `rows`; it has `batch`"),
        (&["--only", "logits"], "no output `logits`"),
        (&["--input", "1x3x16x16", "--input", "1x3x16x16"], "given twice"),
        (&["--input", "1x3x16x16", "--top", "1", "--labels", "missing.txt"], "missing.txt"),
    ] {
        let o = run(&[&["run", &model("cnn")], args].concat());
        assert_code(&o, ERROR);
        assert!(err(&o).contains(word), "{args:?}: {}", err(&o));
    }
    assert_code(&run(&["run", &model("cnn"), "--input", "lots"]), USAGE);
    assert_code(&run(&["run", &model("cnn"), "--extent", "batch"]), USAGE);
    assert_code(&run(&["run", "missing.onnx"]), ERROR);
}

#[test]
fn what_cannot_run_is_listed_with_a_code_of_its_own() {
    for command in ["run", "inspect"] {
        let o = run(&[command, &model("foreign")]);
        assert_code(&o, UNSUPPORTED);
        assert!(err(&o).contains("node `second`: com.example.Flashier of version 1"), "{}", err(&o));
    }
    let o = run(&["inspect", &model("foreign"), "--json", "-"]);
    let report: Value = serde_json::from_str(&out(&o)).expect("it is JSON");
    assert_eq!(report["unsupported"][0]["node"], "second");
}

#[test]
fn two_models_are_compared_layer_by_layer() {
    let o = run(&["compare", &model("cnn"), &model("cnn"), "--shape", "image=2x3x16x16"]);
    assert_code(&o, OK);
    assert!(out(&o).contains("no layer differs") && out(&o).contains("probabilities f32[2, 5]: equal"), "{}", out(&o));
    // the classifier's bias is wrong in B
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut bytes = std::fs::read(folder("cnn").join("model.onnx")).expect("readable");
    let name = b"classify.bias";
    // the first time a node reads it; the last time its raw data follows: a tag, the length of five floats, and those
    let at = bytes.windows(name.len()).rposition(|w| w == name).expect("it is there") + name.len();
    assert_eq!(bytes[at..at + 2], [0x4a, 20]);
    bytes[at + 2..at + 6].copy_from_slice(&100f32.to_le_bytes());
    std::fs::write(dir.path().join("b.onnx"), bytes).expect("writable");
    let args = ["compare", &model("cnn"), "b.onnx", "--shape", "image=2x3x16x16", "--json", "a.json"];
    let o = remat(dir.path(), &args);
    assert_code(&o, ERROR);
    assert!(out(&o).contains("the first that differs: /classify/Gemm f32[2, 5]"), "{}", out(&o));
    assert_eq!(json(&dir.path().join("a.json"))["first"], "/classify/Gemm");
    let o = run(&["compare", &model("cnn"), &model("encoder")]);
    assert_code(&o, ERROR);
    assert_code(&run(&["compare", &model("foreign"), &model("cnn")]), UNSUPPORTED);
}

/// A file of a graph whose weights are nearly all that a run of it takes.
fn weighty() -> Vec<u8> {
    let (layers, side) = (8, 192);
    let b = Builder::new();
    let mut y = b.input(Fact::new(DType::F32, [2, side]), Some("x"));
    for k in 0..layers {
        let w: Vec<f32> = (0..side * side).map(|i| ((i * (k + 3)) % 29) as f32 * 0.004 - 0.05).collect();
        let w = b.constant(&HostTensor::from_slice(&w, [side, side]).expect("fits"));
        let product = b.node(MatMul {}.into(), &[y, w], None).expect("fits")[0];
        y = b.node(Unary { f: UnaryFn::Tanh }.into(), &[product], None).expect("fits")[0];
    }
    b.output(y, "y");
    b.finish().and_then(|g| g.to_bytes()).expect("a file")
}

#[test]
fn weights_that_a_budget_cannot_hold_are_read_from_a_temporary_file_with_the_same_outputs() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join("weighty.remat"), weighty()).expect("written");
    let of = |more: &[&str]| {
        let args = ["run", "weighty.remat", "--threads", "1", "--output", "y", "--json", "-"];
        let o = remat(dir.path(), &[&args[..], more].concat());
        let y = std::fs::read(dir.path().join("y/y.npy")).unwrap_or_default();
        (o.status.code(), serde_json::from_str::<Value>(&out(&o)).ok(), y, err(&o))
    };
    let (code, free, want, text) = of(&[]);
    assert_eq!(code, Some(OK), "{text}");
    assert_eq!(free.expect("figures")["stored_bytes"], 0);
    let mut stored = 0;
    for percent in ["90%", "80%", "70%", "60%"] {
        let (refused, ..) = of(&["--memory-budget", percent, "--no-spill"]);
        let (code, tight, y, text) = of(&["--memory-budget", percent]);
        if code == Some(BUDGET) {
            continue;
        }
        assert_eq!(code, Some(OK), "{percent}: {text}");
        let tight = tight.expect("figures");
        assert!(tight["peak_bytes"].as_u64() <= tight["budget_bytes"].as_u64(), "{tight}");
        assert!(y == want, "{percent}: the outputs, to the bit");
        let is_stored = tight["stored_bytes"].as_u64().is_some_and(|n| n > 0);
        assert_eq!(is_stored, refused == Some(BUDGET), "{percent}: {text}");
        assert_eq!(is_stored, text.contains("of weights do not fit the budget"), "{text}");
        stored += usize::from(is_stored);
    }
    assert!(stored > 0, "no budget was too little for the weights");
}

#[test]
fn a_budget_is_met_with_the_same_outputs_or_refused() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let of = |budget: &str| {
        let mut args = vec!["run", "--threads", "1", "--memory-budget", budget, "--output", "y", "--json", "-"];
        let model = model("skip");
        args.extend([&*model, "--extent", "batch=16"]);
        let o = remat(dir.path(), &args);
        let y = std::fs::read(dir.path().join("y/y.npy")).unwrap_or_default();
        (o.status.code(), serde_json::from_str::<Value>(&out(&o)).ok(), y, err(&o))
    };
    let (code, _, want, text) = of("unlimited");
    assert_eq!(code, Some(OK), "{text}");
    let mut recomputed = 0;
    // kernels of other processors have other workspaces, so that the least budget is another
    for percent in ["100%", "95%", "90%", "85%", "80%", "75%"] {
        let (code, tight, y, text) = of(percent);
        if percent != "100%" && code == Some(BUDGET) {
            continue;
        }
        assert_eq!(code, Some(OK), "{text}");
        let tight = tight.expect("figures");
        assert!(tight["peak_bytes"].as_u64() <= tight["budget_bytes"].as_u64(), "{tight}");
        assert!(y == want, "{percent}: the outputs, to the bit");
        recomputed += tight["recomputed_calls"].as_u64().expect("a number");
    }
    assert!(recomputed > 0, "something had to be computed again");
    let (code, _, _, text) = of("5%");
    assert!(code == Some(BUDGET) && text.contains("no budget can do with less"), "{text}");
}

#[test]
fn a_model_is_told_by_layer_in_text_json_and_pictures() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let o = remat(dir.path(), &["inspect", &model("cnn"), "--html", "a.html", "--svg", "a.svg", "--json", "a.json"]);
    assert_code(&o, OK);
    let text = out(&o);
    assert!(text.contains("image: f32[batch, 3, 16, 16]") && text.contains("operators Conv 2"), "{text}");
    let report = json(&dir.path().join("a.json"));
    // two convolutions with their biases, a classifier with its bias; batch norms are in the convolutions
    let parameters = 8 * 27 + 8 + 8 * 72 + 8 + 8 * 5 + 5;
    assert_eq!(report["parameters"], parameters);
    let flops: u64 = report["layers"].as_array().expect("layers").iter().filter_map(|l| l["flops"].as_u64()).sum();
    assert_eq!(report["flops"], flops);
    let layers = report["layers"].as_array().expect("layers");
    let conv = layers.iter().find(|l| l["name"] == "/block/Conv").expect("it keeps its name");
    // two for each of 72 products at each of 8 x 8 places of 8 channels, whatever the kernel makes of it, and a bias
    assert_eq!(conv["flops"], 2 * 72 * 64 * 8 + 64 * 8, "{conv}");
    let page = std::fs::read_to_string(dir.path().join("a.html")).expect("written");
    assert!(page.contains("<h2>Layers</h2>") && page.matches("<svg").count() == 2, "both pictures");
    assert!(!page.contains("src=") && !page.contains("href="), "nothing is loaded");
    assert!(std::fs::read_to_string(dir.path().join("a.svg")).expect("written").contains("/block/Conv"));
}

#[test]
fn a_model_is_timed_by_operator_and_under_a_budget() {
    let of = |more: &[&str]| {
        let args =
            ["bench", &model("cnn"), "--seconds", "0.01", "--threads", "1", "--extent", "batch=64", "--json", "-"];
        let o = run(&[&args, more].concat());
        assert_code(&o, OK);
        serde_json::from_str::<Value>(&out(&o)).expect("it is JSON")
    };
    let whole = of(&["--operators"]);
    // in blocks of channels where its 8 outputs fill the lanes: with AVX2, not with AVX-512
    let is_conv = |o: &Value| matches!(o["name"].as_str(), Some("conv2d" | "conv_blocked"));
    assert!(whole["operators"].as_array().is_some_and(|all| all.iter().any(is_conv)), "{whole}");
    let tight = of(&["--memory-budget", "100%"]);
    assert!(tight["peak_bytes"].as_u64() <= tight["budget_bytes"].as_u64(), "{tight}");
    let o = run(&["bench", &model("cnn"), "--batch", "2"]);
    assert!(o.status.code() == Some(ERROR) && err(&o).contains("--extent"), "{}", err(&o));
    let o = run(&["bench", "matmul:8x8x8", "--shape", "1x2"]);
    assert!(o.status.code() == Some(ERROR) && err(&o).contains("models in files"), "{}", err(&o));
}

#[test]
fn an_input_becomes_a_constant_everywhere() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rate = model("rate");
    let of = |args: &[&str], fix: &str| remat(dir.path(), &[args, &["--shape", "x=2x9", "--fix", fix]].concat());
    // 16000 has differences of neighbours, any other number those of every second element
    for (fix, width) in [("rate=[16000]", 8), ("rate=[8000]", 4)] {
        assert_code(&of(&["run", &rate, "--json", "a.json"], fix), OK);
        let report = json(&dir.path().join("a.json"));
        assert_eq!(report["outputs"][0]["shape"], serde_json::json!([2, width]), "{fix}");
    }
    for args in [
        &["bench", &rate, "--seconds", "0.01"][..],
        &["profile", &rate, "--seconds", "0.01"],
        &["inspect", &rate],
        &["graph", &rate],
        &["plan", &rate, "--budget", "unlimited"],
        &["compare", &rate, &rate],
        &["fit", &rate, "--threads", "1", "--seconds", "0.01"],
        &["convert", &rate, "rate.remat"],
    ] {
        let o = of(args, "rate=[16000]");
        assert_code(&o, OK);
        assert!(!err(&o).contains("`rate`"), "{args:?}: {}", err(&o));
    }
    let o = run(&["run", &dir.path().join("rate.remat").display().to_string(), "--shape", "2x9"]);
    assert_code(&o, OK);
    assert!(out(&o).contains("y: f32[2, 8]"), "{}", out(&o));
    for (fix, word) in [("speed=[1]", "no input `speed`"), ("rate=[1.5]", "does not have"), ("rate=a.npy", "a.npy")] {
        let o = of(&["run", &rate], fix);
        assert_code(&o, ERROR);
        assert!(err(&o).contains(word), "{fix}: {}", err(&o));
    }
    assert_code(&of(&["bench", "machine"], "rate=[1]"), ERROR);
}

#[test]
fn outputs_of_strings_and_sequences_are_shown_and_written() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for name in ["voted", "mapped"] {
        let packed = format!("../lite/tests/data/real/sklearn-{name}.onnx.gz");
        let mut bytes = Vec::new();
        let file = std::fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(packed)).expect("in the repository");
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).expect("compressed");
        std::fs::write(dir.path().join(format!("{name}.onnx")), bytes).expect("writable");
    }
    let o = remat(dir.path(), &["run", "voted.onnx", "--output", "results", "--json", "a.json"]);
    assert_code(&o, OK);
    let report = json(&dir.path().join("a.json"));
    let outputs = report["outputs"].as_array().expect("a list");
    let of = |dtype: &str| outputs.iter().find(|x| x["dtype"] == dtype).expect("an output");
    let label = of("string");
    assert!(label["first"][0].as_str().is_some_and(|s| !s.is_empty()), "{label}");
    let name = label["name"].as_str().expect("a name");
    assert!(out(&o).contains(&format!("{name}: string[1]")), "{}", out(&o));
    let written = json(&dir.path().join("results").join(format!("{name}.json")));
    assert_eq!(written["data"], label["first"]);
    assert_eq!(of("f32")["shape"][0], 1, "{report}");
    // declared as a sequence of maps, which a plan turns into a tensor
    let o = remat(dir.path(), &["run", "mapped.onnx", "--json", "a.json"]);
    assert_code(&o, OK);
    let report = json(&dir.path().join("a.json"));
    let outputs = report["outputs"].as_array().expect("a list");
    let probability = outputs.iter().find(|x| x["name"] == "output_probability").expect("an output");
    assert_eq!((&probability["dtype"], &probability["shape"][0]), (&"f32".into(), &1.into()), "{report}");
}

#[test]
fn a_model_in_a_file_is_planned_and_written_as_a_graph() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let plan = ["plan", &model("cnn"), "--shape", "8x3x16x16", "--threads", "1", "--time-limit", "0.2"];
    let o = remat(dir.path(), &[&plan[..], &["--budget", "100%", "--out", "s.json", "--dag-out", "dag.json"]].concat());
    assert_code(&o, OK);
    assert!(err(&o).contains("measured"), "{}", err(&o));
    assert_code(&remat(dir.path(), &["plan", "--check", "s.json", "--dag", "dag.json"]), OK);
    let o = remat(dir.path(), &[&plan[..], &["--estimated", "--curve", "--percents", "100,90"]].concat());
    assert_code(&o, OK);
    assert!(out(&o).contains("100"), "{}", out(&o));
    for wrong in [&["--eager"][..], &["--batch", "2", "--budget", "50%"], &[]] {
        assert_code(&remat(dir.path(), &[&plan[..], wrong].concat()), USAGE);
    }
    assert_code(&run(&["plan", "dag.json", "--budget", "50%"]), USAGE);
    assert_code(&run(&["plan", "train:mlp", "--shape", "1x2", "--budget", "50%"]), USAGE);
    let o = run(&["plan", &model("positive"), "--shape", "9", "--budget", "50%"]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("no single graph"), "{}", err(&o));
}

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let o = run(&["completions", shell]);
        assert_code(&o, OK);
        for word in ["check-budget", "memory-budget", "inspect", "completions"] {
            assert!(out(&o).contains(word), "{shell} has no {word}");
        }
    }
    assert_code(&run(&["completions", "tcsh"]), USAGE);
}

#[test]
fn a_model_is_converted_encrypted_optimised_and_written_back() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(dir.path().join("key"), [9; 32]).expect("writable");
    let done = |args: &[&str]| {
        let o = remat(dir.path(), args);
        assert_code(&o, OK);
        out(&o)
    };
    let said = done(&["convert", &model("cnn"), "cnn.remat"]);
    assert!(said.contains("batch 1 to 4096"), "{said}");
    let recorded = data("cnn");
    done(&["run", "cnn.remat", "--check", &recorded]);
    // back, with the extent open still
    done(&["convert", "cnn.remat", "again.onnx", "--opset", "21"]);
    done(&["run", "again.onnx", "--check", &recorded]);
    done(&["run", "again.onnx", "--extent", "batch=3"]);
    let layers = done(&["compare", "again.onnx", "cnn.remat", "--shape", "image=2x3x16x16"]);
    assert!(layers.contains("output probabilities") && layers.contains("equal"), "{layers}");
    done(&["optimize", "cnn.remat", "fast.remat"]);
    done(&["run", "fast.remat", "--check", &recorded, "--level", "0"]);
    done(&["inspect", "fast.remat", "--extent", "batch=2"]);
    done(&["convert", "cnn.remat", "sealed.remat", "--encrypt", "key", "--symbol", "batch=1..8"]);
    done(&["run", "sealed.remat", "--check", &recorded, "--key-file", "key"]);
    let refused = |args: &[&str], word: &str| {
        let o = remat(dir.path(), args);
        assert_code(&o, ERROR);
        assert!(err(&o).contains(word), "{}", err(&o));
    };
    refused(&["run", "sealed.remat", "--check", &recorded], "give the key");
    refused(&["run", "sealed.remat", "--extent", "batch=9", "--key-file", "key"], "`batch` is 9");
    refused(&["run", "sealed.remat", "--key-file", "cnn.remat"], "cnn.remat");
    refused(&["convert", "cnn.remat", "cnn.txt"], ".onnx or .remat");
    refused(&["convert", "cnn.remat", "x.onnx", "--encrypt", "key"], "no encrypted weights");
    refused(&["convert", "cnn.remat", "./cnn.remat"], "is the model itself");
    refused(&["convert", "nothing.onnx", "x.remat"], "nothing.onnx");
    assert!(!dir.path().join("x.onnx").exists() && !dir.path().join("x.remat").exists());
}

#[test]
fn a_model_is_profiled_by_operator_by_layer_and_as_a_trace() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let args = ["profile", &model("cnn"), "--extent", "batch=4", "--seconds", "0.05", "--threads", "1"];
    let o = remat(dir.path(), &[&args[..], &["--trace", "t.json", "--json", "p.json"]].concat());
    assert_code(&o, OK);
    assert!(out(&o).contains("layer") && out(&o).contains("/classify/Gemm"), "{}", out(&o));
    let report = json(&dir.path().join("p.json"));
    let layers = report["layers"].as_array().expect("a list");
    let share: f64 = layers.iter().map(|l| l["share"].as_f64().expect("a number")).sum();
    assert!((share - 1.0).abs() < 1e-9, "{share}");
    let calls: u64 = layers.iter().map(|l| l["calls"].as_u64().expect("a number")).sum();
    let events = json(&dir.path().join("t.json"))["traceEvents"].as_array().expect("a list").len() as u64;
    assert!(calls > 3 && events >= calls && events == report["calls"].as_u64().expect("a number"), "{calls}, {events}");
    let o = run(&["profile", &model("positive"), "--shape", "4"]);
    assert_code(&o, ERROR);
    assert!(err(&o).contains("run one by one"), "{}", err(&o));
}

#[test]
fn the_fastest_options_are_found_within_a_tolerance_and_a_budget() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let args = ["fit", &model("cnn"), "--extent", "batch=2", "--seconds", "0.02", "--threads", "2"];
    let o = remat(dir.path(), &[&args[..], &["--json", "f.json"]].concat());
    assert_code(&o, OK);
    let report = json(&dir.path().join("f.json"));
    let choices = report["choices"].as_array().expect("a list");
    // one and two threads, each with two levels and two kinds of 16 bits
    assert_eq!(choices.len(), 8);
    let command = report["command"].as_str().expect("one is found");
    assert!(out(&o).contains(command), "{}", out(&o));
    // a bf16 has 8 bits: what it stores is off by up to 1/512 of itself, twice the share of the standard's runner, 1e-3
    let half = choices.iter().filter(|c| c["options"].as_str().is_some_and(|o| o.contains("bf16")));
    assert!(half.clone().count() == 2 && half.into_iter().all(|c| c["is_within"] == false), "{choices:?}");
    let chosen = choices.iter().find(|c| command.ends_with(c["options"].as_str().expect("text"))).expect("in the list");
    let p50 = |c: &Value| c["latency_ms"]["p50"].as_f64().expect("a number");
    assert!(choices.iter().filter(|c| c["is_within"] == true).all(|c| p50(c) >= p50(chosen)));
    let o = run(&["fit", &model("cnn"), "--extent", "batch=2", "--memory-budget", "1000B"]);
    assert_code(&o, BUDGET);
    assert!(err(&o).contains("nothing keeps to the budget"), "{}", err(&o));
}
