//! Graphs as ONNX models.
//!
//! [`export`] writes any graph of an inference: what [`Compiled::graph`](remat_tensor::Compiled::graph) gives of a function
//! that was compiled with [`freeze`](remat_tensor::CompileOptions::freeze), so that parameters are constants. An op is a row of
//! a table, its rule writes one or several nodes of the standard's own operators, fused ops those of their steps. What cannot
//! be written is an error with all ops that are in the way, which [`unsupported`] lists; nothing is written in part.
//!
//! ```
//! use remat_onnx::{Model, export};
//! use remat_runtime::{Device, DeviceOptions};
//! use remat_tensor::{CompileOptions, Tensor, compile_with};
//! # fn main() -> remat_types::Result<()> {
//! let device = Device::cpu(DeviceOptions::default())?;
//! let w = Tensor::new(&device, &[1f32, -1.0, 2.0, 0.5], [2, 2])?;
//! let options = CompileOptions { freeze: true, ..Default::default() };
//! let mut f = compile_with(&device, options, |x: &[Tensor]| Ok(vec![x[0].matmul(&w)?.relu()?]));
//! let x = Tensor::new(&device, &[1f32, 2.0], [1, 2])?;
//! let graph = f.graph(&[&x])?;
//! let bytes = export::export(&graph, &export::ExportOptions::default())?.to_bytes()?;
//! let network = Model::from_bytes(bytes)?.on(&device)?;
//! assert_eq!(network.call(&[x])?[0].to_vec::<f32>()?, [5.0, 0.0]);
//! # Ok(())
//! # }
//! ```
//!
//! An exported model means what the graph means: numbers in the same order, 16-bit floats rounded once an op. The standard
//! knows f32 attributes only, so an epsilon of f64 is rounded. Where it leaves open what happens (an index out of range, a
//! float that no integer is near to), it is open in the file.

mod attribute;
mod emit;
mod file;
mod lower;
mod rules;
mod symbols;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use remat_graph::ir::{Graph, ValueId};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::model::NEWEST_IR;
pub use crate::model::NEWEST_OPSET;
use crate::proto::{GraphProto, ModelProto, OperatorSetIdProto, ValueInfoProto};
use emit::{Emit, Name, declared};
pub use file::DataPlace;
pub use symbols::export_symbolic;

/// The oldest version of the standard's operators that is written: reductions have had their axes as inputs since.
pub const OLDEST_OPSET: i64 = 18;

/// The version of the standard's operators that is written unless another one is asked for. Runtimes know a version a year and more
/// after it came out, and kernels of an operator that changed even later: this is one that ONNX Runtime has run since release 1.18.
pub const DEFAULT_OPSET: i64 = 21;

/// Why ops of this name are never written; `None` for those that have a rule, and for what is no name of an op.
pub fn why_left_out(op: &str) -> Option<&'static str> {
    rules::reason(op)
}

/// How a graph is written.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The version of the standard's operators, from [`OLDEST_OPSET`] to the newest; [`DEFAULT_OPSET`] unless set. Operators that came
    /// later than this one are written as others.
    pub opset: i64,
    /// The name of the graph.
    pub name: String,
    /// Names of the inputs, in order; those that are left out keep the graph's own.
    pub inputs: Vec<String>,
    /// Names of the outputs, as those of the inputs.
    pub outputs: Vec<String>,
    /// Names of parameters: a constant of the graph with these elements gets this name. Of several with the same elements it is
    /// one that no constant has yet.
    pub parameters: Vec<(String, HostTensor)>,
    /// Names of extents, for each input in order one for each axis that has any: what a reader of the file may then vary. The
    /// graph must not depend on them; [`export_symbolic`] is for those that do.
    pub extents: Vec<Vec<Option<String>>>,
    /// Text about the model: pairs of a key and a value.
    pub metadata: Vec<(String, String)>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        ExportOptions {
            opset: DEFAULT_OPSET,
            name: "remat".into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            parameters: Vec::new(),
            extents: Vec::new(),
            metadata: Vec::new(),
        }
    }
}

/// A node of a graph that cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexported {
    /// The op, by its label.
    pub op: String,
    /// Where it is: the part of the program or the line that applied it.
    pub place: String,
    /// Why.
    pub reason: String,
}

impl std::fmt::Display for Unexported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = if self.place.is_empty() { "" } else { " of " };
        write!(f, "`{}`{at}{}: {}", self.op, self.place, self.reason)
    }
}

/// A model that can be written to a file.
#[derive(Clone, Debug)]
pub struct Exported {
    graph: GraphProto,
    constants: Vec<(Name, Arc<HostTensor>)>,
    opset: i64,
    metadata: Vec<(String, String)>,
}

/// A graph as a model of the standard's operators.
///
/// Errors: Value for an op that cannot be written, with the first few of [`unsupported`], for states, which have to be
/// [frozen](remat_runtime::compile::freeze), and for an unknown version; Format for a name that is there twice.
pub fn export(graph: &Graph, options: &ExportOptions) -> Result<Exported> {
    let (model, failures) = written(graph, options, false)?;
    failed(&failures)?;
    Ok(model)
}

fn failed(failures: &[Unexported]) -> Result<()> {
    if failures.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = failures.iter().take(5).map(ToString::to_string).collect();
    let more = if failures.len() > 5 { format!("; and {} more", failures.len() - 5) } else { String::new() };
    Err(Error::new(ErrorKind::Value, format!("ONNX has no form for {}{more}", shown.join("; "))))
}

/// All nodes of a graph that [`export`] could not write, those of inner graphs too. Errors: those of it for other reasons.
pub fn unsupported(graph: &Graph, options: &ExportOptions) -> Result<Vec<Unexported>> {
    Ok(written(graph, options, false)?.1)
}

fn written(graph: &Graph, options: &ExportOptions, compared: bool) -> Result<(Exported, Vec<Unexported>)> {
    if !(OLDEST_OPSET..=NEWEST_OPSET).contains(&options.opset) {
        let text = format!("operator set {}: from {OLDEST_OPSET} to {NEWEST_OPSET} can be written", options.opset);
        return Err(Error::new(ErrorKind::Value, text));
    }
    if let Some(s) = graph.states().first() {
        let text = format!(
            "`{}` is a state: a model has constants, so the function is compiled with `freeze`, and updates nothing",
            graph.label(s.value)
        );
        return Err(Error::new(ErrorKind::Value, text));
    }
    let mut e = Emit::new(options.opset);
    e.compared = compared;
    for (name, data) in options.parameters.iter().rev() {
        e.parameters.entry(data.clone()).or_default().push(name.clone());
    }
    let inputs = inputs(&mut e, graph, options)?;
    let names: Vec<Name> = inputs.iter().map(|i| i.name().into()).collect();
    let outputs = outputs(&mut e, graph, options, &names)?;
    let model = Exported {
        graph: e.end(&options.name, inputs, outputs),
        constants: std::mem::take(&mut e.constants),
        opset: options.opset,
        metadata: options.metadata.clone(),
    };
    Ok((model, e.failures))
}

fn taken(e: &mut Emit, name: &str) -> Result<Name> {
    let own = e.unique(name);
    if *own == *name { Ok(own) } else { Err(Error::new(ErrorKind::Format, format!("two values are called `{name}`"))) }
}

fn inputs(e: &mut Emit, graph: &Graph, options: &ExportOptions) -> Result<Vec<ValueInfoProto>> {
    let one = |(i, v): (usize, &ValueId)| {
        let own = graph.label(*v);
        let name = taken(e, options.inputs.get(i).unwrap_or(&own))?;
        let f = graph.fact(*v);
        Ok(declared(&name, f.dtype, &f.shape, options.extents.get(i).map_or(&[], Vec::as_slice)))
    };
    graph.inputs().iter().enumerate().map(one).collect()
}

fn outputs(e: &mut Emit, graph: &Graph, options: &ExportOptions, x: &[Name]) -> Result<Vec<ValueInfoProto>> {
    let wanted: Vec<ValueId> = graph.outputs().iter().map(|o| o.value).collect();
    let wished = |(j, own): (usize, &str)| options.outputs.get(j).cloned().unwrap_or_else(|| own.to_owned());
    let wishes: Vec<String> = graph.outputs().iter().map(|o| &*o.name).enumerate().map(wished).collect();
    let mut first = HashMap::new();
    for (v, wish) in wanted.iter().zip(&wishes) {
        first.entry(*v).or_insert_with(|| wish.clone());
    }
    let y = lower::lower(e, graph, x, &wanted, &first)?;
    let mut all = Vec::with_capacity(y.len());
    for ((name, wish), v) in y.iter().zip(&wishes).zip(&wanted) {
        // an input, a constant, or a value that is given back twice
        if **name != **wish {
            let mark = e.mark();
            let copy = e.op("Identity", &[name]);
            if *e.rename(mark, &copy, wish) != **wish {
                return Err(Error::new(ErrorKind::Format, format!("two values are called `{wish}`")));
            }
        }
        let f = graph.fact(*v);
        let (rank, dtype) = (f.rank(), f.dtype);
        let open = options.extents.iter().flatten().any(Option::is_some);
        // with open inputs the extents of outputs follow
        let shape = if open { (0..rank).map(|_| 0).collect() } else { f.shape.clone() };
        let free: Vec<Option<String>> =
            if open { (0..rank).map(|a| Some(format!("{wish}_{a}"))).collect() } else { Vec::new() };
        all.push(declared(wish, dtype, &shape, &free));
    }
    Ok(all)
}

impl Exported {
    /// How often each operator is there, those of inner graphs too.
    pub fn operators(&self) -> Vec<(String, usize)> {
        let mut all = std::collections::BTreeMap::new();
        count(&self.graph, &mut all);
        all.into_iter().collect()
    }

    /// Bytes of the constants.
    pub fn constant_bytes(&self) -> usize {
        self.constants.iter().map(|(_, data)| data.bytes().len()).sum()
    }

    fn model(&self, graph: GraphProto) -> ModelProto {
        let pair = |(key, value): &(String, String)| crate::proto::StringStringEntryProto {
            key: Some(key.clone()),
            value: Some(value.clone()),
        };
        ModelProto {
            ir_version: Some(ir_version(self.opset)),
            opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(self.opset) }],
            producer_name: Some("remat".into()),
            producer_version: Some(env!("CARGO_PKG_VERSION").into()),
            graph: Some(graph),
            metadata_props: self.metadata.iter().map(pair).collect(),
            ..Default::default()
        }
    }
}

/// The version of the file format that came with an operator set.
fn ir_version(opset: i64) -> i64 {
    match opset {
        ..19 => 8,
        19..21 => 9,
        21..23 => 10,
        23 => 11,
        24 => 12,
        25..28 => 13,
        _ => NEWEST_IR,
    }
}

fn count(g: &GraphProto, all: &mut std::collections::BTreeMap<String, usize>) {
    for n in &g.node {
        *all.entry(n.op_type().to_owned()).or_default() += 1;
        n.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|g| count(g, all));
    }
}
