//! Divided gradients: each rank keeps its part.
//!
//! A bucket is laid out by ranks: first rank 0's parts of all its gradients, then rank 1's, each with zeros behind its end. So what a
//! reduction scatters to a rank is, one behind the other, the very parts that it moves, and no rank ever has the sum of another's.

use remat_runtime::Kind;
use remat_tensor::comm::{Communicator, Reduction};
use remat_tensor::{Tensor, no_grad};
use remat_types::{Error, ErrorKind, Result};

use crate::Parameter;

/// The part that a rank keeps of the gradients that [`DataParallel`](super::DataParallel) has reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gradients {
    /// All of them.
    #[default]
    Whole,
    /// Its part of each (ZeRO stage 2, Rajbhandari et al., SC 2020), for the part of the parameter that it moves: a
    /// [`Sharded`](super::Sharded) over the parameters must be there before the first backward pass. [`Parameter::grad`] gives none then.
    /// The bits of the parameters stay those of whole gradients.
    Divided,
}

/// Errors (Value), naming the shape: a parameter that is trained has no part that could take its gradient.
pub(super) fn check_parts(parameters: &[Parameter]) -> Result<()> {
    match parameters.iter().find(|p| !p.is_frozen() && p.part().is_none()) {
        None => Ok(()),
        Some(p) => {
            let text = format!(
                "gradients are divided, and no optimiser has a part of a parameter of shape {}: make a `Sharded` over all that is \
                 trained before the backward pass, and keep it",
                p.shape()
            );
            Err(Error::new(ErrorKind::Value, text))
        }
    }
}

/// This rank's part of the sum of each of these gradients, `[ceil(elements / ranks)]`.
pub(super) fn reduce_parts(flat: Vec<Tensor>, group: &Communicator) -> Result<Vec<Tensor>> {
    let ranks = group.size();
    let mut extents = Vec::new();
    let mut rows = Vec::new();
    for g in flat {
        let k = g.elems().div_ceil(ranks);
        let g = match k * ranks - g.elems() {
            0 => g,
            more => g.pad(&[(0, more)], 0.0)?,
        };
        rows.push(g.reshape(&[ranks as isize, k as isize])?);
        extents.push(k);
    }
    let whole = match &rows[..] {
        [one] => one.clone(),
        all => Tensor::concat(&all.iter().collect::<Vec<_>>(), 1)?,
    };
    drop(rows);
    whole.reduce_scatter(Reduction::Sum, 0, group)?.reshape(&[-1])?.split(&extents, 0)
}

/// Adds a part of a gradient to what the parameter's part has.
pub(super) fn give_part(parameter: &Parameter, g: Option<Tensor>) -> Result<()> {
    // what the pass itself accumulated is this rank's alone
    drop(parameter.take_grad());
    let (Some(part), Some(g)) = (parameter.part().filter(|_| !parameter.is_frozen()), g) else { return Ok(()) };
    let _quiet = no_grad();
    let sum = match part.take_grad() {
        Some(before) => before.add(&g)?,
        None => g,
    };
    sum.tag(Kind::Gradient)?;
    part.set_grad(Some(sum))
}
