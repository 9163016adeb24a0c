//! Files that say what is not so: an error, and no more memory than the file pays for.
//!
//! The files beside this one are those that ever failed, as the fuzz targets made them (`fuzz/fuzz_targets`) or by hand:
//!
//! * `read-*` is refused by whoever reads it;
//! * `session-*` is read, and no session can be made of it;
//! * `run-*` is read and may run; the run may fail.

use std::alloc::System;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remat_lite::{ErrorKind, HostTensor, Network, Options, Result, Shapes};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Heap bytes that reading takes for each byte of a file, and for any file; summed over all that is taken, freed or not.
const READ: (usize, usize) = (1024, 32 << 20);

/// Of all sessions.
const BUDGET_BYTES: usize = 8 << 20;

/// Of a session, beside what reading takes.
const SESSION_BYTES: usize = 256 << 20;

/// Far above what the slowest takes, with a machine that does other things.
const TIME_MAX: Duration = Duration::from_secs(20);

fn files() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let entries = fs::read_dir(folder).expect("the folder of this file");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "onnx" || e == "remat"));
    paths.sort();
    paths.into_iter().map(|p| (p.clone(), fs::read(p).expect("readable"))).collect()
}

/// The result of `f`, within the time and so many bytes.
fn within<T>(what: &str, most: usize, f: impl FnOnce() -> T) -> T {
    let (region, start) = (Region::new(HEAP), Instant::now());
    let y = f();
    let (time, change) = (start.elapsed(), region.change());
    let bytes = change.bytes_allocated + change.bytes_reallocated.max(0) as usize;
    println!("{what}: {bytes} bytes of at most {most}, {time:?}");
    assert!(bytes <= most, "{what}: {bytes} bytes, of at most {most}");
    assert!(time < TIME_MAX, "{what}: {time:?}");
    y
}

fn read(name: &str, bytes: &[u8], level: u8) -> Result<Network> {
    let options = Options { threads: 1, memory_budget: Some(BUDGET_BYTES), level, ..Options::default() };
    within(name, bytes.len() * READ.0 + READ.1, || Network::from_bytes(bytes, options))
}

/// Makes a session, and says how it runs if it can.
fn session(network: &Network) -> Result<Result<()>> {
    let shapes = Shapes::new().or_extents(network.inputs(), 2).0;
    let mut session = network.session(&shapes)?;
    for (i, port) in network.inputs().iter().enumerate() {
        if let Some(fact) = session.fact(i) {
            session.set_input(&port.name, &HostTensor::zeros(fact.dtype, fact.shape)?)?;
        }
    }
    Ok(session.run())
}

/// One test, since the counts are the process's.
#[test]
fn hostile_files_are_errors_and_take_little() {
    for (path, bytes) in files() {
        let name = path.file_name().and_then(|n| n.to_str()).expect("UTF-8");
        for level in 0..4 {
            let network = read(name, &bytes, level);
            if name.starts_with("read-") {
                let e = network.expect_err(name);
                assert_ne!(e.kind(), ErrorKind::Internal, "{name}: {e}");
                continue;
            }
            let network = network.expect(name);
            let most = bytes.len() * READ.0 + SESSION_BYTES;
            match within(name, most, || session(&network)) {
                Err(e) => assert_ne!(e.kind(), ErrorKind::Internal, "{name}: {e}"),
                Ok(_) if name.starts_with("session-") => panic!("{name}: a session"),
                Ok(Err(e)) => assert_ne!(e.kind(), ErrorKind::Internal, "{name}: {e}"),
                Ok(Ok(())) => {}
            }
        }
    }
    made::all();
}

/// Files that are large or follow a rule, so that they are made here.
mod made {
    use super::*;

    /// A number as protobuf has it.
    fn number(mut n: usize, to: &mut Vec<u8>) {
        while n >= 0x80 {
            to.push(n as u8 | 0x80);
            n >>= 7;
        }
        to.push(n as u8);
    }

    /// A field that is text or a message.
    fn part(key: usize, bytes: &[u8]) -> Vec<u8> {
        let mut to = Vec::new();
        number(key << 3 | 2, &mut to);
        number(bytes.len(), &mut to);
        [&to, bytes].concat()
    }

    /// A field that is a number.
    fn int(key: usize, n: usize) -> Vec<u8> {
        let mut to = Vec::new();
        number(key << 3, &mut to);
        number(n, &mut to);
        to
    }

    fn opset(domain: &str) -> Vec<u8> {
        [part(1, domain.as_bytes()), int(2, 1)].concat()
    }

    /// A node: inputs, outputs, operator, its domain, attributes.
    fn node(inputs: &[&str], outputs: &[&str], op: &str, domain: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
        let all = |key, names: &[&str]| names.iter().flat_map(|n| part(key, n.as_bytes())).collect::<Vec<u8>>();
        let attributes: Vec<u8> = attributes.iter().flat_map(|a| part(5, a)).collect();
        [all(1, inputs), all(2, outputs), part(4, op.as_bytes()), part(7, domain.as_bytes()), attributes].concat()
    }

    /// A model of a graph and functions of the domain `own`.
    fn model(graph: &[u8], functions: &[Vec<u8>]) -> Vec<u8> {
        let functions: Vec<u8> = functions.iter().flat_map(|f| part(25, f)).collect();
        [int(1, 8), part(8, &opset("own")), part(8, &[part(1, b""), int(2, 15)].concat()), part(7, graph), functions]
            .concat()
    }

    fn function(name: &str, nodes: &[Vec<u8>], attributes: &[&str]) -> Vec<u8> {
        let nodes: Vec<u8> = nodes.iter().flat_map(|n| part(7, n)).collect();
        let attributes: Vec<u8> = attributes.iter().flat_map(|a| part(6, a.as_bytes())).collect();
        let sets = [part(9, &opset("own")), part(9, &[part(1, b""), int(2, 15)].concat())].concat();
        [part(1, name.as_bytes()), part(10, b"own"), part(4, b"a"), nodes, attributes, sets].concat()
    }

    /// Floats, as the file has them: an attribute's field 7.
    fn floats(name: &str, n: usize) -> Vec<u8> {
        [part(1, name.as_bytes()), int(20, 6), part(7, &vec![0; 4 * n])].concat()
    }

    fn doubled_functions() -> Vec<u8> {
        let calls = |i: usize| {
            let op = format!("f{}", i + 1);
            (0..8).map(|k| node(&["a"], &[&format!("b{k}")], &op, "own", &[])).collect::<Vec<_>>()
        };
        let mut functions: Vec<Vec<u8>> = (0..5).map(|i| function(&format!("f{i}"), &calls(i), &[])).collect();
        functions.push(function("f5", &[node(&["a"], &["b0"], "Neg", "", &[])], &[]));
        let graph = [part(1, &node(&["x"], &["y"], "f0", "own", &[])), part(11, &part(1, b"x"))].concat();
        model(&graph, &functions)
    }

    /// A function with a large constant, called often.
    fn called_constants() -> Vec<u8> {
        let body = node(&[], &["b"], "Constant", "", &[floats("value_floats", 20_000)]);
        let calls = (0..5000).flat_map(|i| part(1, &node(&[], &[&format!("y{i}")], "f", "own", &[])));
        model(&calls.collect::<Vec<u8>>(), &[function("f", &[body], &[])])
    }

    /// A call with a large attribute that every node of the function's body takes.
    fn referred_attributes() -> Vec<u8> {
        let refers = [part(1, b"value_floats"), int(20, 6), part(21, b"all")].concat();
        let body: Vec<Vec<u8>> =
            (0..5000).map(|i| node(&[], &[&format!("b{i}")], "Constant", "", std::slice::from_ref(&refers))).collect();
        let call = node(&[], &["y"], "f", "own", &[floats("all", 50_000)]);
        model(&part(1, &call), &[function("f", &body, &["all"])])
    }

    /// Sparse tensors of nothing that are large once they are dense.
    fn sparse_tensors() -> Vec<u8> {
        let one = |i: usize| {
            let values = [int(1, 1), int(2, 1), part(8, format!("w{i}").as_bytes()), part(9, &[0; 4])].concat();
            let indices = [int(1, 1), int(2, 7), part(9, &[0; 8])].concat();
            part(15, &[part(1, &values), part(2, &indices), int(3, 50 << 20)].concat())
        };
        model(&(0..8).flat_map(one).collect::<Vec<u8>>(), &[])
    }

    /// Messages of two bytes, which become structs.
    fn empty_messages(key: usize) -> Vec<u8> {
        model(&[key as u8 * 8 + 2, 0].repeat(100_000), &[])
    }

    fn empty_attributes() -> Vec<u8> {
        let node = [part(4, b"Neg"), [5 * 8 + 2, 0].repeat(100_000)].concat();
        model(&part(1, &node), &[])
    }

    /// Operators that nobody has, each of another name.
    fn unknown_operators() -> Vec<u8> {
        let nodes = (0..20_000).flat_map(|i| part(1, &node(&[], &[], &format!("ConvolutionTransposed{i}"), "", &[])));
        model(&nodes.collect::<Vec<u8>>(), &[])
    }

    /// As many inputs as constants.
    fn inputs_and_constants() -> Vec<u8> {
        let input = |i: usize| part(11, &part(1, format!("x{i}").as_bytes()));
        let constant = |i: usize| part(5, &[int(1, 0), int(2, 1), part(8, format!("x{i}").as_bytes())].concat());
        let n = 40_000;
        model(&(0..n).flat_map(input).chain((0..n).flat_map(constant)).collect::<Vec<u8>>(), &[])
    }

    pub(super) fn all() {
        let refused = [
            ("functions in functions", doubled_functions()),
            ("a function's constant", called_constants()),
            ("sparse tensors", sparse_tensors()),
        ];
        for (name, bytes) in refused {
            let e = read(name, &bytes, 3).expect_err(name);
            assert_eq!(e.kind(), ErrorKind::Format, "{name}: {e}");
        }
        let others = [
            ("attributes of a call", referred_attributes()),
            ("empty nodes", empty_messages(1)),
            ("empty tensors", empty_messages(5)),
            ("empty inputs", empty_messages(11)),
            ("empty attributes", empty_attributes()),
            ("operators that nobody has", unknown_operators()),
            ("inputs and constants", inputs_and_constants()),
        ];
        for (name, bytes) in others {
            let _ = read(name, &bytes, 3);
        }
    }
}
