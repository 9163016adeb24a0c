//! Models from files as works, and beside another runtime.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use remat::ops::Cost;
use remat::types::{Error, ErrorKind, Fact, HostTensor, Result};
use remat_lite::{Memory, Session};
use serde::Serialize;
use serde_json::json;

use super::cases::{Case, Metrics};
use crate::model::inputs::tensor_fact;
use crate::model::{Loaded, RunOptions, ShapeOptions, load, open, value};
use crate::timing::figures::{self, Latency};
use crate::timing::operators::{self, Operator};

/// Another runtime for the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Peer {
    Onnxruntime,
}

struct Timed {
    session: Session,
    budget_bytes: Option<usize>,
    cost: Cost,
    memory: Memory,
}

/// A model ready to be timed, before its first run.
struct Ready {
    session: Session,
    budget_bytes: Option<usize>,
    /// Of the model as it is written.
    cost: Cost,
    /// The inputs that are constants.
    fixed: Vec<(String, HostTensor)>,
}

/// A session with random inputs. Errors: those of loading it.
fn session(path: &Path, run: &RunOptions, shapes: &ShapeOptions) -> Result<Ready> {
    let network = open(path, run, shapes, None)?;
    let fixed = network.options().fixed.clone();
    let shapes = shapes.or_ones(network.inputs())?;
    let cost = network.graph(&shapes)?.map_or_else(Cost::default, |g| g.cost());
    let Loaded { mut session, budget_bytes } = load(path, network, run, &shapes)?;
    for (fact, name) in facts(&session)? {
        session.set_input(&name, &value::random(&fact)?)?;
    }
    Ok(Ready { session, budget_bytes, cost, fixed })
}

/// Types and names of the inputs. Errors (Value): one that is no tensor.
fn facts(session: &Session) -> Result<Vec<(Fact, String)>> {
    let all = session.inputs().iter().enumerate();
    all.map(|(i, port)| Ok((tensor_fact(session, i)?, port.name.clone()))).collect()
}

/// The model, ready to run. Errors: those of loading it; Budget.
pub(super) fn model(path: &Path, run: &RunOptions, shapes: &ShapeOptions) -> Result<Box<dyn Case>> {
    let Ready { mut session, budget_bytes, cost, .. } = session(path, run, shapes)?;
    session.run()?;
    while !session.is_settled() {
        session.run()?;
    }
    let memory = session.memory()?;
    Ok(Box::new(Timed { session, budget_bytes, cost, memory }))
}

impl Case for Timed {
    fn run(&mut self) -> Result<()> {
        self.session.run()
    }
    fn metrics(&self) -> Metrics {
        Metrics { budget_bytes: self.budget_bytes, plan: self.session.plan_times(), ..Metrics::default() }
    }
    fn operators(&mut self) -> Result<Vec<Operator>> {
        match self.session.runtime() {
            Some(run) => Ok(operators::of(run.executable()?)),
            None => Ok(Vec::new()),
        }
    }
    fn flops(&self) -> u64 {
        self.cost.flops
    }
    fn moved_bytes(&self) -> u64 {
        self.cost.bytes
    }
    fn peak_bytes(&self) -> usize {
        self.memory.total_bytes()
    }
    fn workspace_bytes(&self) -> usize {
        self.memory.workspace_bytes
    }
}

/// The two runtimes in turns.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Versus {
    peer: String,
    /// The least median of all turns of each.
    ours_ms: f64,
    peer_ms: f64,
    ratio: f64,
}

impl Versus {
    pub(super) fn text(&self) -> String {
        let Versus { peer, ours_ms, peer_ms, ratio } = self;
        format!("beside     {peer}: {ours_ms:.4} ms here, {peer_ms:.4} ms there, {ratio:.3} of its time\n")
    }
}

/// Turns of each.
const TURNS: usize = 4;

/// Run by the peer's interpreter: the model's path, threads, seconds and inputs come as JSON.
const SCRIPT: &str = "\
import json, sys, time
import numpy as np, onnxruntime as ort
a = json.load(sys.stdin)
o = ort.SessionOptions()
o.intra_op_num_threads = a['threads']
o.inter_op_num_threads = 1
s = ort.InferenceSession(a['model'], o, providers=['CPUExecutionProvider'])
kinds = {'f32': 'f4', 'f64': 'f8', 'f16': 'f2', 'bool': '?', **{p + str(8 * n): p + str(n) for p in 'iu' for n in (1, 2, 4, 8)}}
r = np.random.default_rng(1)
x = {}
for name, kind, shape in a['inputs']:
    v = r.random(shape) if kind[0] == 'f' else r.integers(0, 2, shape)
    x[name] = v.astype(kinds[kind])
for name, kind, shape, v in a['fixed']:
    x[name] = np.array(v).reshape(shape).astype(kinds[kind])
for _ in range(2):
    s.run(None, x)
times, start = [], time.perf_counter()
while len(times) < 5 or time.perf_counter() - start < a['seconds']:
    t = time.perf_counter()
    s.run(None, x)
    times.append((time.perf_counter() - t) * 1e3)
print(json.dumps({'version': ort.__version__, 'p50': sorted(times)[len(times) // 2]}))
";

/// The program that runs Python.
const PYTHON: &str = "python3";

/// Times both runtimes in turns. Errors: Io, Format with what the peer said, where it is not installed or cannot run the model.
pub(super) fn versus(path: &Path, run: &RunOptions, shapes: &ShapeOptions, seconds: f64) -> Result<Versus> {
    let Ready { session: mut ours, fixed, .. } = session(path, run, shapes)?;
    let inputs: Vec<_> =
        facts(&ours)?.into_iter().map(|(f, name)| json!([name, f.dtype.to_string(), f.shape.dims()])).collect();
    let asked = json!({
        "model": path, "threads": run.threads(), "seconds": seconds / TURNS as f64, "inputs": inputs,
        "fixed": fixed.iter().map(|(name, t)| json!([name, t.dtype().to_string(), t.shape().dims(), t.to_f64_vec()])).collect::<Vec<_>>(),
    });
    let (mut ours_ms, mut peer_ms, mut peer) = (f64::INFINITY, f64::INFINITY, String::new());
    for _ in 0..TURNS {
        let (Latency { p50, .. }, _) = figures::repeat(seconds / TURNS as f64, || ours.run())?;
        ours_ms = ours_ms.min(p50);
        let said = peer_turn(&asked.to_string())?;
        peer_ms = peer_ms.min(said["p50"].as_f64().unwrap_or(f64::INFINITY));
        peer = format!("ONNX Runtime {}", said["version"].as_str().unwrap_or(""));
    }
    Ok(Versus { peer, ours_ms, peer_ms, ratio: ours_ms / peer_ms })
}

fn peer_turn(asked: &str) -> Result<serde_json::Value> {
    let missing = |e: std::io::Error| Error::from(e).context(format!("{PYTHON}, which --vs needs"));
    let mut child = Command::new(PYTHON)
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    if let Some(mut to) = child.stdin.take() {
        use std::io::Write;
        to.write_all(asked.as_bytes())?;
    }
    let said = child.wait_with_output()?;
    if !said.status.success() {
        let text = String::from_utf8_lossy(&said.stderr);
        let last = text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        let text = format!("ONNX Runtime did not run the model: {last} (`pip install onnxruntime` installs it)");
        return Err(Error::new(ErrorKind::Value, text));
    }
    serde_json::from_slice(&said.stdout).map_err(|e| Error::new(ErrorKind::Format, format!("what the peer said: {e}")))
}
