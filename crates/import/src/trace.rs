//! A model as a graph.

use std::sync::Arc;

use remat_graph::ir::{Graph, Origin, Patch};
use remat_runtime::compile::freeze;
use remat_runtime::tracing::{self, TraceResults, Traced};
use remat_runtime::{Handle, TensorId};
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::literal::Literal;
use crate::network::Network;
use crate::value::Value;

/// A model as one graph.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The graph.
    pub graph: Graph,
    /// For each output of strings: the list in which the output gives places. [`Labels::at`](crate::Labels::at) reads them.
    pub labels: Vec<Option<Arc<Vec<String>>>>,
}

impl Network {
    /// See [`Model::trace`](crate::Model::trace).
    pub(crate) fn trace(&self, inputs: &[Fact]) -> Result<Option<Trace>> {
        let (mut is_tensors, mut labels) = (true, Vec::new());
        let mut outputs = |x: &[Handle]| -> Result<Vec<Handle>> {
            let x: Vec<Value> = x.iter().map(|h| Value::Tensor(Tensor::from_handle(h.clone()))).collect();
            let y = self.run_unnamed(&x)?;
            is_tensors = y.iter().all(|v| matches!(v, Value::Tensor(_) | Value::Constant(..) | Value::Labels(_)));
            if !is_tensors {
                return Ok(Vec::new());
            }
            let handle = |v: &Value| match v {
                Value::Labels(l) => {
                    labels.push(Some(l.names.clone()));
                    Ok(l.places.handle().clone())
                }
                other => {
                    labels.push(None);
                    Ok(other.tensor()?.handle().clone())
                }
            };
            y.iter().map(handle).collect()
        };
        let traced = tracing::trace(self.device(), inputs, &[], |x| {
            Ok(TraceResults { outputs: outputs(x)?, updates: Vec::new() })
        });
        let traced = match traced {
            // a rule that reads a value, as those of strings do
            Err(e) if e.kind() == ErrorKind::NoValue => return Ok(None),
            other => other?,
        };
        let Traced { graph, captured, host_inputs, cuts, .. } = traced;
        if !is_tensors || !cuts.is_empty() || !host_inputs.is_empty() {
            return Ok(None);
        }
        let weights = self.weights();
        let (graph, left) = freeze(&graph, |i| {
            let handle = captured.get(i).ok_or_else(|| Error::new(ErrorKind::Internal, "a state of no tensor"))?;
            let weight = weights.get(&handle.id()).map(|(_, w)| (*w).clone());
            Ok(weight.or_else(|| handle.fact().value.as_deref().cloned()))
        })?;
        if !left.is_empty() {
            return Err(Error::new(ErrorKind::Internal, format!("{} constants of unknown value", left.len())));
        }
        let graph = self.named(&graph, weights.into_values())?;
        Ok(Some(Trace { graph, labels }))
    }

    /// The tensors that the model's constants are on the device.
    fn weights(&self) -> FxHashMap<TensorId, (&str, &HostTensor)> {
        let mut all = FxHashMap::default();
        for g in self.graph.all() {
            let values = self.shared.constants.get(g.id).map_or(&[][..], |v| v);
            for (constant, value) in g.constants.iter().zip(values) {
                if let (Literal::Tensor(host), Ok(t)) = (&constant.value, value.tensor()) {
                    all.insert(t.handle().id(), (&*constant.name, host));
                }
            }
        }
        all
    }

    /// With the model's names of inputs, outputs and weights.
    fn named<'w>(&self, graph: &Graph, weights: impl Iterator<Item = (&'w str, &'w HostTensor)>) -> Result<Graph> {
        let mut patch = Patch::new();
        // clones share their bytes
        let by_address: FxHashMap<usize, &str> =
            weights.filter(|(_, w)| w.elems() > 0).map(|(name, w)| (w.bytes().as_ptr().addr(), name)).collect();
        let given = self.graph.inputs.len() == graph.inputs().len();
        let entries = self.graph.inputs.iter().filter(|e| given || e.default.is_none());
        for (v, e) in graph.inputs().iter().zip(entries) {
            patch.rename(*v, Some(&e.name));
        }
        for o in graph.outputs() {
            patch.remove_output(&o.name);
        }
        for (o, (name, ..)) in graph.outputs().iter().zip(&self.graph.outputs) {
            patch.add_output(name, o.value);
            if !matches!(graph.value(o.value).origin, Origin::Input(_)) {
                patch.rename(o.value, Some(name));
            }
        }
        // graphs beside each other may have weights of one name
        let ends = self.graph.inputs.iter().map(|e| &*e.name).chain(self.graph.outputs.iter().map(|o| &*o.0));
        let mut taken: FxHashSet<&str> = ends.collect();
        for v in graph.value_ids() {
            if let Origin::Constant(host) = &graph.value(v).origin
                && let Some(name) = by_address.get(&host.bytes().as_ptr().addr())
                && taken.insert(name)
            {
                patch.rename(v, Some(name));
            }
        }
        graph.patched(&patch)
    }
}
