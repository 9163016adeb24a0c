//! Over axes.

use remat_types::Result;

use super::cast;
use crate::Apply;
use crate::reduce::{Reduce, ReduceFn};

/// The Euclidean norm over `axes`, in the dtype of `x`.
#[track_caller]
pub fn norm<A: Apply>(cx: &A, x: A::Value, axes: &[usize], keepdims: bool) -> Result<A::Value> {
    let dtype = cx.fact(&x).dtype;
    let y = cx.apply1(Reduce { f: ReduceFn::Norm, axes: axes.iter().copied().collect(), keepdims }, [x])?;
    cast(cx, y, dtype)
}
