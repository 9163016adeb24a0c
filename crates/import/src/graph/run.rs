//! A graph that runs: node by node, with the values of the graphs around it in reach.

use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_runtime::Device;
use remat_types::{Error, ErrorKind, HostTensor, Result, Scope, context};

use super::{Cx, Graph, Kind, Node, Ref, Rule, ValueType};
use crate::value::{KNOWN_MAX_ELEMS, Value};

/// The data that all graphs of a network use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Device,
    /// Where a trace computes what is known: the same device, unless that computes nothing.
    pub(crate) folds_on: Device,
    /// Of each graph, by its number.
    pub(crate) constants: Vec<Vec<Value>>,
}

/// Values of a graph that runs, and those of the graph around it.
pub(crate) struct Frame<'f> {
    values: Vec<Option<Value>>,
    outer: Option<&'f Frame<'f>>,
}

impl Frame<'_> {
    fn get(&self, r: Ref) -> Result<Value> {
        let mut frame = self;
        for _ in 0..r.out {
            frame = frame.outer.ok_or_else(|| Error::new(ErrorKind::Internal, "a graph without the one around it"))?;
        }
        let value = frame.values.get(r.slot).and_then(|v| v.clone());
        value.ok_or_else(|| Error::new(ErrorKind::Internal, "a value that is gone"))
    }
}

/// Errors (DType): a tensor of another element type than the graph declares.
fn check_declared(ty: &ValueType, value: &Value) -> Result<()> {
    let wrong = |got: &dyn std::fmt::Display, declared: &dyn std::fmt::Display| {
        Err(Error::new(ErrorKind::DType, format!("{got} where the model declares {declared}")))
    };
    match (ty, value) {
        (ValueType::Tensor(Some(declared), _), Value::Tensor(t) | Value::Constant(t, _)) if t.dtype() != *declared => {
            wrong(&t.dtype(), declared)
        }
        (ValueType::Tensor(Some(declared), _), Value::Text(_) | Value::Labels(_)) => wrong(&"strings", declared),
        (ValueType::Text, Value::Tensor(t) | Value::Constant(t, _)) => wrong(&t.dtype(), &"strings"),
        _ => Ok(()),
    }
}

impl Shared {
    /// Runs a graph with these inputs; those that are `None` are their defaults.
    pub(crate) fn run(
        &self,
        graph: &Graph,
        inputs: Vec<Option<Value>>,
        outer: Option<&Frame<'_>>,
    ) -> Result<Vec<Value>> {
        let mut frame = Frame { values: vec![None; graph.slots], outer };
        let constants = self.constants.get(graph.id).map_or(&[][..], |c| c);
        for (constant, value) in graph.constants.iter().zip(constants) {
            frame.values[constant.slot] = Some(value.clone());
        }
        for (e, v) in graph.inputs.iter().zip(inputs) {
            if v.is_some() {
                frame.values[e.slot] = v;
            }
        }
        for node in &graph.nodes {
            let y = self.node(node, &frame).map_err(|e| node.context(e))?;
            for (i, slot) in node.outputs.iter().enumerate() {
                let Some(slot) = slot else { continue };
                match y.get(i) {
                    Some(v) => frame.values[*slot] = Some(v.clone()),
                    None => return Err(node.context(Error::new(ErrorKind::Arity, format!("there is no output {i}")))),
                }
            }
            drop(y);
            node.frees.iter().for_each(|slot| frame.values[*slot] = None);
        }
        let output = |(name, at, ty): &(String, Ref, ValueType)| {
            let value = frame.get(*at)?;
            check_declared(ty, &value).map_err(|e| e.context(format!("output `{name}`")))?;
            Ok(value)
        };
        graph.outputs.iter().map(output).collect()
    }

    fn node(&self, node: &Node, frame: &Frame<'_>) -> Result<Vec<Value>> {
        let fetch = |r: &Option<Ref>| r.map(|r| frame.get(r).and_then(Value::named)).transpose();
        let inputs = node.inputs.iter().map(fetch).collect::<Result<Vec<Option<Value>>>>()?;
        let row = match &node.kind {
            Kind::Rule(row) => row,
            Kind::Function(graph) => return self.function(graph, inputs),
            Kind::Unknown(_) => return Err(Error::new(ErrorKind::Value, "there is no rule for it")),
        };
        if let Some(schema) = node.schema {
            schema.check_types(&inputs)?;
        }
        let cx = Cx { node, inputs, shared: self, device: &self.device, frame: Some(frame) };
        // an eager run tells of nodes in errors alone
        let _scope = cx.is_tracing().then(|| Scope::enter(&node.name));
        if cx.is_tracing()
            && row.folds
            && !cx.inputs.is_empty()
            && let Some(y) = self.fold(row.rule, &cx)?
        {
            return Ok(y);
        }
        (row.rule)(&cx)
    }

    /// A function with fewer inputs than it declares gets none for the others.
    fn function(&self, graph: &Graph, mut inputs: Vec<Option<Value>>) -> Result<Vec<Value>> {
        if inputs.len() > graph.inputs.len() {
            let text = format!("{} inputs of a function of {}", inputs.len(), graph.inputs.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        inputs.resize(graph.inputs.len(), None);
        self.run(graph, inputs, None)
    }

    /// The results of a rule whose inputs are all known while a function is traced. They are computed outside of the trace, so that sizes
    /// which follow from shapes by way of floats or of long vectors stay numbers and leave no nodes.
    /// `None` if an input is not known, or an output is too large to be.
    fn fold(&self, rule: Rule, cx: &Cx<'_>) -> Result<Option<Vec<Value>>> {
        let known = |v: &Option<Value>| match v {
            None => Some(None),
            Some(v) => v.known().filter(|h| h.elems() <= KNOWN_MAX_ELEMS).map(Some),
        };
        let Some(hosts) = cx.inputs.iter().map(known).collect::<Option<Vec<Option<HostTensor>>>>() else {
            return Ok(None);
        };
        let beside = || -> Result<Option<Vec<HostTensor>>> {
            let put = |h: &Option<HostTensor>| h.as_ref().map(|h| Value::from_host(&self.folds_on, h)).transpose();
            let inputs = hosts.iter().map(put).collect::<Result<_>>()?;
            let y = rule(&Cx { node: cx.node, inputs, shared: self, device: &self.folds_on, frame: None })?;
            let small = |v: &Value| v.tensor().is_ok_and(|t| t.elems() <= KNOWN_MAX_ELEMS);
            if !y.iter().all(small) {
                return Ok(None);
            }
            y.iter().map(|v| v.tensor()?.to_host()).collect::<Result<_>>().map(Some)
        };
        let values = context::outside(|| catch_unwind(AssertUnwindSafe(beside)));
        let values = match values.map_err(|_| Error::new(ErrorKind::Internal, "a rule panicked"))? {
            // too large to be computed here
            Err(e) if e.kind() == ErrorKind::Budget => return Ok(None),
            values => values?,
        };
        values.map(|all| all.iter().map(|h| Value::from_host(&self.device, h)).collect()).transpose()
    }
}
