//! Less of a model: inputs that are constants, and the outputs that are wanted.

use std::sync::Arc;

use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::graph::{Constant, Extent, ValueType};
use crate::literal::Literal;
use crate::model::Model;
use crate::uses::{find_last_uses, reads};

impl Model {
    /// The model with this constant as the default of an input, so that a network need not be given it: what follows from it is
    /// computed beforehand, and branches that it decides are not there any more.
    ///
    /// Errors: Value if there is no such input, or none that is a tensor; DType, Shape for another type than the file declares.
    pub fn with_input(mut self, name: &str, value: &HostTensor) -> Result<Model> {
        let graph = Arc::make_mut(&mut self.graph);
        let found = graph.inputs.iter_mut().find(|e| e.name == name);
        let entry = found.ok_or_else(|| Error::new(ErrorKind::Value, format!("the model has no input `{name}`")))?;
        let wrong = |kind, text: String| Err(Error::new(kind, format!("input `{name}`: {text}")));
        match &entry.ty {
            ValueType::Tensor(Some(dtype), _) if *dtype != value.dtype() => {
                return wrong(ErrorKind::DType, format!("{} where the model declares {dtype}", value.dtype()));
            }
            ValueType::Tensor(_, Some(extents)) if !fits(extents, value) => {
                return wrong(
                    ErrorKind::Shape,
                    format!("shape {} where the model declares {}", value.shape(), entry.ty),
                );
            }
            ValueType::Tensor(..) | ValueType::Unknown => {}
            other => return wrong(ErrorKind::Value, format!("a tensor where the model declares {other}")),
        }
        let constant = Constant { name: name.to_owned(), slot: entry.slot, value: Literal::Tensor(value.clone()) };
        match entry.default {
            Some(i) => graph.constants[i] = constant,
            None => {
                entry.default = Some(graph.constants.len());
                graph.constants.push(constant);
            }
        }
        Ok(self)
    }

    /// The model with these outputs alone, in this order, without the nodes that only others need. Errors (Value): none of that name.
    pub fn with_outputs(mut self, names: &[&str]) -> Result<Model> {
        let graph = Arc::make_mut(&mut self.graph);
        let find = |name: &&str| {
            let found = graph.outputs.iter().find(|o| o.0 == *name).cloned();
            found.ok_or_else(|| Error::new(ErrorKind::Value, format!("the model has no output `{name}`")))
        };
        graph.outputs = names.iter().map(find).collect::<Result<_>>()?;
        let mut needed = vec![false; graph.slots];
        graph.outputs.iter().filter(|o| o.1.out == 0).for_each(|o| needed[o.1.slot] = true);
        let mut kept = Vec::new();
        for node in std::mem::take(&mut graph.nodes).into_iter().rev() {
            if node.outputs.iter().flatten().any(|slot| needed[*slot]) {
                let mut read = Vec::new();
                reads(&node, 0, &mut read);
                read.into_iter().for_each(|slot| needed[slot] = true);
                kept.push(node);
            }
        }
        kept.reverse();
        graph.nodes = kept;
        find_last_uses(graph);
        Ok(self)
    }
}

fn fits(extents: &[Extent], value: &HostTensor) -> bool {
    let dims = value.shape().dims();
    extents.len() == dims.len() && extents.iter().zip(dims).all(|(e, d)| e.fixed().is_none_or(|e| e == *d))
}
