//! `remat compare`: two models layer by layer, to the first value that differs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use remat::graph::ir::{Graph, ValueId};
use remat::runtime::DeviceOptions;
use remat::types::{Error, ErrorKind, HostTensor, Result};
use remat_kernels::pool::Pool;
use remat_lite::{Network, Options};
use serde_json::{Value as Json, json};

use super::difference::{Difference, Tolerance};
use super::inputs::{InputOptions, made_up};
use super::{KeyOption, open_with, refuse_unsupported};
use crate::output::{self, say};

const EXAMPLES: &str = "\
Examples:
  remat compare model.onnx simplified.onnx
  remat compare f32.onnx f16.onnx --input x=sample.npy --rtol 1e-2 --rows 0

Both models run as they are written, on the same inputs. Layers are matched by the names of nodes, outputs by place.
Exit codes: 0 all outputs are within the tolerance; 1 one is not, or an error; 3 nodes that cannot run.";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Compare {
    /// The model that is taken to be right
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The model to compare with it
    #[arg(value_name = "B")]
    b: PathBuf,
    #[command(flatten)]
    given: InputOptions,
    #[command(flatten)]
    tolerance: Tolerance,
    #[command(flatten)]
    key: KeyOption,
    /// Layers that are listed, those with the largest differences
    #[arg(long, value_name = "N", default_value = "10")]
    rows: u16,
    /// Write all layers as JSON; `-` is standard output, which then has nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A model that was run with every value kept: values by the node that made them, and the outputs.
struct Values {
    layers: Vec<(String, HostTensor)>,
    outputs: Vec<(String, HostTensor)>,
}

/// Runs the command; the exit code.
pub(crate) fn run(o: &Compare) -> Result<u8> {
    let key = o.key.key()?;
    let options = Options { level: 0, key, ..Options::default() };
    let open = |path: &Path| open_with(path, options.clone(), o.given.shapes());
    let (a, b) = (open(&o.a)?, open(&o.b)?);
    if let Some(code) = refuse_unsupported(&a).or_else(|| refuse_unsupported(&b)) {
        return Ok(code);
    }
    let inputs = o.given.tensors(&a)?;
    let (a, inputs) = values(o, &a, inputs).map_err(|e| e.context(o.a.display()))?;
    let (b, _) = values(o, &b, inputs.into_iter().map(Some).collect()).map_err(|e| e.context(o.b.display()))?;
    let in_b: HashMap<&str, &HostTensor> = b.layers.iter().map(|(name, t)| (&**name, t)).collect();
    let both = a.layers.iter().filter_map(|(name, t)| Some((name, t, *in_b.get(&**name)?)));
    let layers: Vec<Difference> = both.map(|(name, a, b)| o.tolerance.compare(name, b, a, false)).collect();
    if a.outputs.len() != b.outputs.len() {
        let text = format!("{} outputs in A, {} in B", a.outputs.len(), b.outputs.len());
        return Err(Error::new(ErrorKind::Value, text));
    }
    let outputs = a.outputs.iter().zip(&b.outputs);
    let outputs: Vec<Difference> = outputs.map(|((name, a), (_, b))| o.tolerance.compare(name, b, a, false)).collect();
    let of_a = a.layers.len();
    if let Some(path) = &o.json {
        let all = |rows: &[Difference]| rows.iter().map(Difference::json).collect::<Vec<Json>>();
        let first = layers.iter().find(|r| !r.is_within).map(|r| &r.name);
        let report = json!({ "first": first, "layers": all(&layers), "layers_of_a": of_a, "outputs": all(&outputs) });
        output::write(path, format!("{report}\n"))?;
    }
    if !o.json.as_deref().is_some_and(output::is_standard) {
        tell(o, &layers, &outputs, of_a);
    }
    Ok(u8::from(outputs.iter().any(|r| !r.is_within)))
}

fn tell(o: &Compare, layers: &[Difference], outputs: &[Difference], of_a: usize) {
    say!(
        "{} of {of_a} layers of A are in B, {} of them differ by more than the tolerance",
        layers.len(),
        layers.iter().filter(|r| !r.is_within).count()
    );
    match layers.iter().find(|r| !r.is_within) {
        Some(first) => say!("the first that differs: {}", first.text()),
        None => say!("no layer differs"),
    }
    let mut order: Vec<&Difference> = layers.iter().collect();
    order.sort_by(|a, b| b.largest.total_cmp(&a.largest));
    for r in order.iter().take(o.rows.into()) {
        say!("  {}", r.text());
    }
    for r in outputs {
        say!("output {}", r.text());
    }
}

/// Runs a model as it is written, every value kept; with the inputs that it ran on.
fn values(o: &Compare, network: &Network, inputs: Vec<Option<HostTensor>>) -> Result<(Values, Vec<HostTensor>)> {
    if network.inputs().len() != inputs.len() {
        let text = format!("{} inputs, and A has {}", network.inputs().len(), inputs.len());
        return Err(Error::new(ErrorKind::Value, text));
    }
    let mut session = network.session(&o.given.shapes_for(network.inputs(), &inputs)?)?;
    let inputs = made_up(&session, inputs)?;
    let Some(run) = session.runtime() else {
        let text = "sizes follow from values, so that there is no graph to walk; `remat run --check` compares outputs";
        return Err(Error::new(ErrorKind::Value, text));
    };
    let graph = run.executable()?.graph().clone();
    let computed = graph.evaluate(&inputs, &[], &Pool::new(DeviceOptions::default().threads))?;
    let value = |v: ValueId| {
        let missing = || Error::new(ErrorKind::Internal, "a value that was not computed");
        computed.get(v).cloned().ok_or_else(missing)
    };
    let layers = last_of_each(&graph).into_iter().map(|(name, v)| Ok((name, value(v)?))).collect::<Result<_>>()?;
    let outputs = graph.outputs().iter().map(|y| Ok((y.name.to_string(), value(y.value)?))).collect::<Result<_>>()?;
    Ok((Values { layers, outputs }, inputs))
}

/// The last result of each node of the model, in the order in which they run.
fn last_of_each(g: &Graph) -> Vec<(String, ValueId)> {
    let (mut all, mut at): (Vec<(String, ValueId)>, HashMap<&str, usize>) = (Vec::new(), HashMap::new());
    for n in g.nodes() {
        let (Some(name), Some(y)) = (n.scope.as_deref(), n.y.first()) else { continue };
        match at.get(name) {
            Some(i) => all[*i].1 = *y,
            None => {
                at.insert(name, all.len());
                all.push((name.to_owned(), *y));
            }
        }
    }
    all
}
