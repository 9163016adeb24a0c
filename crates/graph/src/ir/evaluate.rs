//! The graph on the host, one op after the other and every value kept: what all other ways to run it are judged by.

use remat_kernels::pool::Pool;
use remat_ops::eval_on_host;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result};

use super::{Graph, NodeId, Origin, ValueId};

/// The values of a run.
#[derive(Clone, Debug)]
pub struct Values(Vec<Option<HostTensor>>);

impl Values {
    /// A value of the graph that was run.
    pub fn get(&self, v: ValueId) -> Option<&HostTensor> {
        self.0.get(v.index())?.as_ref()
    }
}

impl Graph {
    /// Computes every value. `inputs` and `states` come in the graph's order.
    ///
    /// Errors: Arity or Shape for tensors that do not fit the graph; what an op finds, with its line.
    pub fn evaluate(&self, inputs: &[HostTensor], states: &[HostTensor], pool: &Pool) -> Result<Values> {
        let counts = (inputs.len(), states.len());
        if counts != (self.inputs().len(), self.states().len()) {
            let text = format!(
                "{} inputs and {} states for a graph that has {} and {}",
                counts.0,
                counts.1,
                self.inputs().len(),
                self.states().len()
            );
            return Err(Error::new(ErrorKind::Arity, text));
        }
        let mut values = Values(vec![None; self.values().len()]);
        for v in self.value_ids() {
            let given = match &self.value(v).origin {
                Origin::Input(i) => &inputs[*i],
                Origin::State(i) => &states[*i],
                Origin::Constant(data) => data,
                Origin::Node { .. } => continue,
            };
            if !self.fact(v).same_type(&Fact::of(given)) {
                let (own, label) = (self.fact(v), self.label(v));
                let text = format!("{label} is {}{}, not {}{}", own.dtype, own.shape, given.dtype(), given.shape());
                return Err(Error::new(ErrorKind::Shape, text));
            }
            values.0[v.index()] = Some(given.clone());
        }
        for n in self.node_ids() {
            let y = self.evaluate_node(n, &values, pool)?;
            for (v, y) in self.node(n).y.iter().zip(y) {
                values.0[v.index()] = Some(y);
            }
        }
        Ok(values)
    }

    fn evaluate_node(&self, id: NodeId, values: &Values, pool: &Pool) -> Result<Vec<HostTensor>> {
        let n = self.node(id);
        let x: Vec<HostTensor> = n.x.iter().filter_map(|v| values.get(*v).cloned()).collect();
        let y = eval_on_host(&*n.op, &x, pool).map_err(|e| e.with_op(n.op.label()));
        match n.site {
            Some(site) => y.map_err(|e| e.with_call_site(site)),
            None => y,
        }
    }
}
