//! `remat profile`: where the milliseconds of a model go, by operator, by layer, and as a trace.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use remat::runtime::Executable;
use remat::types::{Error, ErrorKind, Result};
use remat_kernels::pool::Pool;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::inputs::{InputOptions, made_up};
use super::{RunOptions, load, open, refuse_unsupported};
use crate::output::{self, say};
use crate::timing::{figures, operators};

const EXAMPLES: &str = "\
Examples:
  remat profile resnet18.onnx --threads 1
  remat profile bert.remat --shape tokens=1x128 --rows 30
  remat profile model.onnx --trace trace.json            one run for ui.perfetto.dev or chrome://tracing
  remat profile model.onnx --memory-budget 60% --json -  what is computed again is called more than once

Exit codes: 0 done, 1 an error, 2 the budget cannot be met, 3 nodes that cannot run.";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A model, ONNX or .remat
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    given: InputOptions,
    #[command(flatten)]
    run: RunOptions,
    /// Time to repeat the runs: each call counts with its fastest
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::timing::seconds)]
    seconds: f64,
    /// Operators and layers that are listed, those that take longest
    #[arg(long, value_name = "N", default_value = "12")]
    rows: u16,
    /// Write the calls of the last run as a trace for Chrome or Perfetto
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write all figures as JSON; here and above `-` is standard output, which then has nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The times of the calls of a node of the model.
#[derive(Clone, Debug, Default, Serialize)]
struct Layer {
    name: String,
    operators: Vec<&'static str>,
    calls: usize,
    ms: f64,
    share: f64,
}

/// Runs the command; the exit code.
pub(crate) fn run(o: &Options) -> Result<u8> {
    let network = open(&o.model, &o.run, o.given.shapes(), None)?;
    if let Some(code) = refuse_unsupported(&network) {
        return Ok(code);
    }
    let ports = network.inputs().to_vec();
    let inputs = o.given.tensors(&network)?;
    let shapes = o.given.shapes_for(&ports, &inputs)?;
    let mut session = load(&o.model, network, &o.run, &shapes)?.session;
    for (port, x) in ports.iter().zip(made_up(&session, inputs)?) {
        session.set_input(&port.name, &x)?;
    }
    let pool = Pool::new(o.run.threads());
    let peak_gflops = figures::fma_gflops(&pool);
    session.run()?;
    while !session.is_settled() {
        session.run()?;
    }
    let (latency, runs) = figures::repeat(o.seconds, || session.run())?;
    let run = session.runtime().ok_or_else(|| {
        let text = "sizes of the model follow from values: its operators run one by one, and no plan has their times";
        Error::new(ErrorKind::Value, text)
    })?;
    let executable = run.executable()?.clone();
    let moved_bytes = executable.graph().cost().bytes;
    let [peak_gb_s, _] = figures::streams(&pool, (moved_bytes / 12).min(figures::STREAM_ELEMS as u64) as usize);
    let mut by_operator = operators::of(&executable);
    operators::settle(&mut by_operator, peak_gflops, peak_gb_s);
    let by_layer = layers(&executable);
    if let Some(path) = &o.trace {
        output::write(path, format!("{}\n", trace(&executable)))?;
    }
    if let Some(path) = &o.json {
        let report = json!({
            "model": o.model.display().to_string(), "threads": o.run.threads(), "runs": runs, "latency_ms": latency,
            "calls": executable.calls(), "operators": by_operator, "layers": by_layer,
        });
        output::write(path, format!("{report}\n"))?;
    }
    if ![&o.trace, &o.json].into_iter().flatten().any(|path| output::is_standard(path)) {
        let calls = executable.calls();
        say!("{}: {:.4} ms median of {runs} runs of {calls} calls", o.model.display(), latency.p50);
        output::print(&operators::table(&by_operator, o.rows.into()));
        output::print(&table(&by_layer, o.rows.into()));
    }
    Ok(0)
}

fn scope(name: Option<&str>) -> &str {
    name.unwrap_or("(no name)")
}

/// The nodes of the model, the one that takes longest first: each call with its fastest run, as often as a run makes it.
fn layers(e: &Executable) -> Vec<Layer> {
    let (graph, fastest) = (e.graph(), e.fastest_times());
    let (mut all, mut at): (Vec<Layer>, HashMap<&str, usize>) = (Vec::new(), HashMap::new());
    for node in e.node_times().iter().filter_map(|(node, _)| *node) {
        let n = graph.node(node);
        let name = scope(n.scope.as_deref());
        let i = *at.entry(name).or_insert_with(|| {
            all.push(Layer { name: name.to_owned(), ..Layer::default() });
            all.len() - 1
        });
        let layer = &mut all[i];
        layer.calls += 1;
        layer.ms += fastest[node.index()].unwrap_or(0) as f64 * 1e-6;
        if !layer.operators.contains(&n.op.label()) {
            layer.operators.push(n.op.label());
        }
    }
    let sum: f64 = all.iter().map(|l| l.ms).sum();
    all.iter_mut().for_each(|l| l.share = if sum > 0.0 { l.ms / sum } else { 0.0 });
    all.sort_by(|a, b| b.ms.total_cmp(&a.ms).then_with(|| a.name.cmp(&b.name)));
    all
}

fn table(all: &[Layer], rows: usize) -> String {
    let mut text = format!("\n{:>9} {:>6} {:>5}  layer\n", "ms", "%", "calls");
    for l in all.iter().take(rows) {
        let what = l.operators.join(" ");
        text += &format!("{:>9.3} {:>6.1} {:>5}  {} ({what})\n", l.ms, 100.0 * l.share, l.calls, l.name);
    }
    let others = all.get(rows..).unwrap_or_default();
    if !others.is_empty() {
        let (ms, share) = others.iter().fold((0.0, 0.0), |(ms, share), l| (ms + l.ms, share + l.share));
        text += &format!("{ms:>9.3} {:>6.1} {:>5}  {} more\n", 100.0 * share, "", others.len());
    }
    text
}

/// The calls of the last run, one behind the other (the Trace Event Format, complete events, times in microseconds).
fn trace(e: &Executable) -> Json {
    let graph = e.graph();
    let (mut ns, mut seen) = (0u64, vec![false; graph.nodes().len()]);
    let mut events = Vec::new();
    for (node, took) in e.node_times() {
        let (name, layer, again) = match node {
            Some(id) => {
                let n = graph.node(id);
                let again = std::mem::replace(&mut seen[id.index()], true);
                (n.op.label(), scope(n.scope.as_deref()), again)
            }
            None => ("copy", "", false),
        };
        events.push(json!({
            "name": name, "cat": if again { "recomputed" } else { "call" }, "ph": "X", "pid": 1, "tid": 1,
            "ts": ns as f64 * 1e-3, "dur": took as f64 * 1e-3, "args": { "layer": layer },
        }));
        ns += took;
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}
