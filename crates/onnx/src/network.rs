//! A model with its constants on a device, and how it runs.

use std::sync::Arc;

use remat_runtime::{Device, tracing};
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::graph::{Entry, Graph, Kind, Node, Ref, ValueType};
use crate::model::{Model, each_graph};
use crate::node::Cx;
use crate::tensor::Literal;
use crate::value::{KNOWN_MAX_ELEMS, Value};

/// A model with its constants on a device: a function of tensors.
#[derive(Clone, Debug)]
pub struct Network {
    graph: Arc<Graph>,
    shared: Arc<Shared>,
}

/// What all graphs of a network use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Device,
    /// Of each graph, by its number.
    constants: Vec<Vec<Value>>,
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

impl Network {
    pub(crate) fn new(model: &Model, device: &Device) -> Result<Network> {
        let missing = model.unsupported();
        if !missing.is_empty() {
            let shown: Vec<String> = missing.iter().take(5).map(ToString::to_string).collect();
            let more = if missing.len() > 5 { format!(", and {} more", missing.len() - 5) } else { String::new() };
            return Err(Error::new(ErrorKind::Value, format!("{}{more}", shown.join("; "))));
        }
        let mut constants: Vec<Vec<Value>> = vec![Vec::new(); model.graphs];
        each_graph(&model.graph, &mut |g| {
            let put = |(_, literal): &(usize, Literal)| match literal {
                Literal::Tensor(t) => Value::from_host(device, t),
                Literal::Text(t) => Ok(Value::Text(t.clone())),
            };
            let all = g.constants.iter().map(put).collect::<Result<_>>()?;
            let room = constants.get_mut(g.id).ok_or_else(|| Error::new(ErrorKind::Internal, "a graph too many"))?;
            *room = all;
            Ok(())
        })?;
        Ok(Network { graph: model.graph.clone(), shared: Arc::new(Shared { device: device.clone(), constants }) })
    }

    /// The device that the constants are on.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Runs the model: `inputs` are all of its inputs in order, or all that have no default. Gives the outputs in order.
    ///
    /// Errors: Arity, DType, Shape for other inputs than the file declares; Value for what a rule has not; those of the methods of
    /// [`Tensor`], with the node's name, operator and version in front of the message.
    pub fn run(&self, inputs: &[Value]) -> Result<Vec<Value>> {
        let entries = &self.graph.inputs;
        let needed = entries.iter().filter(|e| e.default.is_none()).count();
        let all = inputs.len() == entries.len();
        if !all && inputs.len() != needed {
            let text = format!("{} inputs, must be {needed}", inputs.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        let mut given = inputs.iter();
        let next = |e: &Entry| if all || e.default.is_none() { given.next().cloned() } else { None };
        let values: Vec<Option<Value>> = entries.iter().map(next).collect();
        for (e, v) in entries.iter().zip(&values) {
            if let Some(v) = v {
                check(e, v).map_err(|x| x.context(format!("input `{}`", e.name)))?;
            }
        }
        self.shared.run(&self.graph, values, None)
    }

    /// [`Network::run`] of tensors: what [`compile`](remat_tensor::compile) takes. Errors: as there, and Value for an output that is
    /// no tensor.
    pub fn call(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inputs: Vec<Value> = inputs.iter().cloned().map(Value::Tensor).collect();
        self.run(&inputs)?.iter().map(|v| v.tensor().cloned()).collect()
    }
}

/// Errors: DType, Shape if a value is not what the file declares.
fn check(entry: &Entry, value: &Value) -> Result<()> {
    let (ValueType::Tensor(dtype, extents), Value::Tensor(t) | Value::Constant(t, _)) = (&entry.ty, value) else {
        return Ok(());
    };
    if let Some(d) = dtype.filter(|d| *d != t.dtype()) {
        return Err(Error::new(ErrorKind::DType, format!("{} where the model declares {d}", t.dtype())));
    }
    let Some(extents) = extents else { return Ok(()) };
    let same = extents.len() == t.rank() && extents.iter().zip(t.dims()).all(|(e, d)| e.is_none_or(|e| e == *d));
    if !same {
        let open: Vec<String> = extents.iter().map(|e| e.map_or("?".into(), |e| e.to_string())).collect();
        let text = format!("shape {} where the model declares [{}]", t.shape(), open.join(", "));
        return Err(Error::new(ErrorKind::Shape, text));
    }
    Ok(())
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
        for ((slot, _), value) in graph.constants.iter().zip(constants) {
            frame.values[*slot] = Some(value.clone());
        }
        for (e, v) in graph.inputs.iter().zip(inputs) {
            if v.is_some() {
                frame.values[e.slot] = v;
            }
        }
        for node in &graph.nodes {
            let context = |e: Error| {
                let dot = if node.domain.is_empty() { "" } else { "." };
                e.context(format!("node `{}` ({}{dot}{} of version {})", node.name, node.domain, node.op, node.opset))
            };
            let y = self.node(node, &frame).map_err(context)?;
            for (i, slot) in node.outputs.iter().enumerate() {
                let Some(slot) = slot else { continue };
                match y.get(i) {
                    Some(v) => frame.values[*slot] = Some(v.clone()),
                    None => return Err(context(Error::new(ErrorKind::Arity, format!("there is no output {i}")))),
                }
            }
            drop(y);
            node.frees.iter().for_each(|slot| frame.values[*slot] = None);
        }
        graph.outputs.iter().map(|(_, at, _)| frame.get(*at)).collect()
    }

    fn node(&self, node: &Node, frame: &Frame<'_>) -> Result<Vec<Value>> {
        let fetch = |r: &Option<Ref>| r.map(|r| frame.get(r)).transpose();
        let inputs = node.inputs.iter().map(fetch).collect::<Result<Vec<Option<Value>>>>()?;
        let row = match &node.kind {
            Kind::Rule(row) => row,
            Kind::Function(graph) => return self.function(graph, inputs),
            Kind::Unknown(_) => return Err(Error::new(ErrorKind::Value, "there is no rule for it")),
        };
        let cx = Cx { node, inputs, shared: self, frame: Some(frame) };
        if tracing::is_tracing()
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

    /// What a rule gives for inputs that are all known, while a function is traced: computed beside the trace, by a thread that does
    /// not trace, so that sizes which follow from shapes by way of floats or of long vectors stay numbers, and leave no nodes.
    /// `None` if an input is not known, or an output is too large to be.
    fn fold(&self, rule: crate::rules::Rule, cx: &Cx<'_>) -> Result<Option<Vec<Value>>> {
        let known = |v: &Option<Value>| match v {
            None => Some(None),
            Some(v) => v.known().filter(|h| h.elems() <= KNOWN_MAX_ELEMS).map(Some),
        };
        let Some(hosts) = cx.inputs.iter().map(known).collect::<Option<Vec<Option<HostTensor>>>>() else {
            return Ok(None);
        };
        let beside = || -> Result<Option<Vec<HostTensor>>> {
            let put = |h: &Option<HostTensor>| h.as_ref().map(|h| Value::from_host(&self.device, h)).transpose();
            let inputs = hosts.iter().map(put).collect::<Result<_>>()?;
            let y = rule(&Cx { node: cx.node, inputs, shared: self, frame: None })?;
            let small = |v: &Value| v.tensor().is_ok_and(|t| t.elems() <= KNOWN_MAX_ELEMS);
            if !y.iter().all(small) {
                return Ok(None);
            }
            y.iter().map(|v| v.tensor()?.to_host()).collect::<Result<_>>().map(Some)
        };
        let values = std::thread::scope(|s| s.spawn(beside).join());
        let values = values.map_err(|_| Error::new(ErrorKind::Internal, "a rule panicked"))??;
        values.map(|all| all.iter().map(|h| Value::from_host(&self.device, h)).collect()).transpose()
    }
}
