//! Collectives: each op is a call that all ranks of its group make, in the order of their programs.
//!
//! A collective runs exactly once. One rank alone cannot recompute its result, so the result is a leaf, and a graph keeps the
//! order of its collectives. Gradient rules differentiate the sum of all ranks' losses: the gradient of a collective is the
//! collective that moves cotangents back the way the values came.
//!
//! Inputs are contiguous and of equal dtype and shape on all ranks, unless an op says otherwise; ranks whose calls differ get an
//! error that names both. Messages between two ranks are ops like the others, but in no registry: a file holds only groups of one
//! rank, which has no partner. Where tensors are joined or cut, ranks are counted along axis 0.

mod all_gather;
mod all_reduce;
mod all_to_all;
mod axis;
mod broadcast;
mod gather;
mod gather_shards;
mod message;
mod reduce_scatter;
mod reduce_to;
mod scatter;

pub use all_gather::AllGather;
pub use all_reduce::AllReduce;
pub use all_to_all::AllToAll;
pub use axis::{all_gather, all_to_all, gather_to, reduce_scatter, scatter_from};
pub use broadcast::Broadcast;
pub use gather::GatherTo;
pub use gather_shards::GatherShards;
pub use message::{Receive, Send};
pub use reduce_scatter::ReduceScatter;
pub use reduce_to::ReduceTo;
pub use remat_comm::{Call, Communicator, Reduction};
pub use scatter::ScatterFrom;

use remat_types::{Error, ErrorKind, Fact, Result, Shape, SmallVec};

use crate::op::{Entry, entries};
use crate::schema::{ParamType, ParamValue, Variant};

/// The family's operators.
pub(crate) const OPS: &[Entry] =
    entries![AllGather, AllReduce, AllToAll, Broadcast, GatherShards, GatherTo, ReduceScatter, ReduceTo, ScatterFrom];

impl ParamValue for Communicator {
    fn param_type() -> ParamType {
        let text = "a group of one rank; a group of several is a value of its program, and is in no file";
        ParamType::OneOf(vec![Variant { name: "alone", text, holds: None }])
    }
}

impl ParamValue for Reduction {
    fn param_type() -> ParamType {
        let of = |name, text| Variant { name, text, holds: None };
        ParamType::OneOf(vec![
            of("sum", "the sum; integers wrap"),
            of("mean", "the sum, divided by the number of ranks"),
            of("max", "the greatest; NaN if one is"),
            of("min", "the least; NaN if one is"),
            of("product", "the product; integers wrap"),
        ])
    }
}

/// The call that all ranks must make alike.
fn call(name: &str, detail: impl std::fmt::Display, x: &Fact) -> Call {
    Call::new(name, detail, x.dtype, &x.shape)
}

/// Errors (Axis) unless `x` has an axis along which ranks are counted.
fn want_axis(x: &Fact) -> Result<()> {
    match x.rank() {
        0 => Err(Error::new(ErrorKind::Axis, "takes a tensor with an axis 0, along which ranks are counted")),
        _ => Ok(()),
    }
}

/// The shape with this extent of axis 0.
fn with_extent(x: &Fact, extent: usize) -> Result<Shape> {
    let shape: Shape = [extent].into_iter().chain(x.shape.iter().skip(1).copied()).collect();
    shape.checked_elems()?;
    Ok(shape)
}

/// The extent of axis 0 of one of as many equal blocks as there are ranks. Errors: Axis, Shape if it is not divisible.
fn block_of(x: &Fact, size: usize) -> Result<usize> {
    want_axis(x)?;
    match x.shape[0] % size {
        0 => Ok(x.shape[0] / size),
        _ => {
            let text = format!("axis 0 of {} is no multiple of the {size} ranks", x.shape);
            Err(Error::new(ErrorKind::Shape, text))
        }
    }
}

/// The shape with an axis of extent 1 in front.
fn in_front(x: &Fact) -> Shape {
    let dims: SmallVec<[usize; 4]> = [1].into_iter().chain(x.shape.iter().copied()).collect();
    Shape::from(&dims[..])
}
