//! How much memory loading a large model takes, in processes of their own, as the system tells it.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use remat_graph::ir::{Builder, Graph, GraphFile, GraphForm};
use remat_lite::{Network, Options, Shapes};
use remat_onnx::export::{DataPlace, ExportOptions, export};
use remat_ops::linalg::MatMul;
use remat_types::{DType, Fact, HostTensor};

/// Products one after the other, and the extent of their weights: 4 MiB each, 96 MiB together.
const LAYERS: usize = 24;
const EXTENT: usize = 1024;
const WEIGHT_BYTES: usize = LAYERS * EXTENT * EXTENT * 4;

/// The most that a process may take, relative to its weights. While weights move to one mapping with huge pages, their blocks of
/// the heap are freed 16 MiB at a time, and a page of the mapping is 2 MiB. This takes a fifth of the weights. The rest belongs
/// to the file's graph and the session. With the file beside the weights the share would be more than 2.
const MOST: f64 = 1.45;

fn large() -> Graph {
    let b = Builder::new();
    let mut y = b.input(Fact::new(DType::F32, [1, EXTENT]), Some("x"));
    for layer in 0..LAYERS {
        let weights: Vec<f32> = (0..EXTENT * EXTENT).map(|i| ((i * 7 + layer) % 61) as f32 * 1e-3 - 0.03).collect();
        let weights = b.constant(&HostTensor::from_slice(&weights, [EXTENT, EXTENT]).expect("fits"));
        y = b.node(MatMul {}.into(), &[y, weights], None).expect("fits")[0];
    }
    b.output(y, "y");
    b.finish().expect("valid")
}

/// The most memory that this process had, in bytes.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("every kernel tells it");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") * 1024
}

/// Set in a process that loads a model: its path.
const CHILD: &str = "REMAT_TEST_LOADS";

#[test]
fn a_process_that_loads_and_runs() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let before = peak_bytes();
    let network = Network::open(path, Options { threads: 1, ..Options::default() }).expect("a model");
    let read = peak_bytes();
    let mut s = network.session(&Shapes::new()).expect("nothing is open");
    let made = peak_bytes();
    s.run().expect("it runs");
    let of = |bytes: usize| (bytes - before) as f64 / WEIGHT_BYTES as f64;
    println!("took {:.3} {:.3} {:.3}", of(read), of(made), of(peak_bytes()));
}

fn took(path: &Path) -> String {
    let mut child = Command::new(std::env::current_exe().expect("a test"));
    child.args(["--exact", "peak::a_process_that_loads_and_runs", "--nocapture"]).env(CHILD, path);
    let child = child.output().expect("it starts");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let line = text.lines().find_map(|l| Some(l.split_once("took ")?.1.to_owned()));
    line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&child.stderr)))
}

#[test]
fn a_file_is_not_held_beside_its_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let model =
        export(&large(), &ExportOptions { inputs: vec!["x".into()], ..Default::default() }).expect("it has a form");
    model.save(at("inside.onnx"), DataPlace::Inside).expect("written");
    model.save(at("beside.onnx"), DataPlace::Beside).expect("written");
    drop(model);
    let file = GraphFile { form: GraphForm::Fixed(large()), metadata: Default::default() };
    std::fs::write(at("model.remat"), file.to_bytes(None).expect("it is written")).expect("written");
    drop(file);
    for name in ["inside.onnx", "beside.onnx", "model.remat"] {
        let took = took(&at(name));
        let most = took.split(' ').map(|n| n.parse::<f64>().expect("a number")).fold(0.0, f64::max);
        assert!(most > 0.9 && most <= MOST, "{name} took {took} of its weights: read, made ready, run");
    }
}
