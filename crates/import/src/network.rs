//! A model with its constants on a device, and how it runs.

use std::sync::Arc;

use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Result};

use crate::graph::{Constant, Entry, Extent, Graph, Shared, ValueType};
use crate::literal::Literal;
use crate::value::Value;

/// A model with its constants on a device: a function of tensors.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) graph: Arc<Graph>,
    pub(crate) shared: Arc<Shared>,
}

impl Network {
    /// A main graph among `graphs`, all of whose nodes have rules.
    pub(crate) fn new(graph: Arc<Graph>, graphs: usize, device: &Device, folds_on: &Device) -> Result<Network> {
        let mut constants: Vec<Vec<Value>> = vec![Vec::new(); graphs];
        let put = |c: &Constant| match &c.value {
            Literal::Tensor(t) => Value::from_host(device, t),
            Literal::Text(t) => Ok(Value::Text(t.clone())),
        };
        for g in graph.all() {
            let all = g.constants.iter().map(put).collect::<Result<_>>()?;
            let of_graph =
                constants.get_mut(g.id).ok_or_else(|| Error::new(ErrorKind::Internal, "a graph too many"))?;
            *of_graph = all;
        }
        Ok(Network {
            graph,
            shared: Arc::new(Shared { device: device.clone(), folds_on: folds_on.clone(), constants }),
        })
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
        self.run_unnamed(inputs)?.into_iter().map(Value::named).collect()
    }

    /// [`Network::run`], with strings of lists as places.
    pub(crate) fn run_unnamed(&self, inputs: &[Value]) -> Result<Vec<Value>> {
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
    let same =
        extents.len() == t.rank() && extents.iter().zip(t.dims()).all(|(e, d)| e.fixed().is_none_or(|e| e == *d));
    if !same {
        let open: Vec<String> = extents.iter().map(Extent::to_string).collect();
        let text = format!("shape {} where the model declares [{}]", t.shape(), open.join(", "));
        return Err(Error::new(ErrorKind::Shape, text));
    }
    Ok(())
}
