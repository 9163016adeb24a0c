//! The gradient of a product, by products alone.
//!
//! The product of all elements but one is not that of all divided by it where there are zeros, nor do cases for one zero and for two
//! have the gradients of gradients. A tree of products of halves has: it is made of products, so its gradients of all orders are
//! right, and it takes a number of operations that grows with the logarithm of the extents.

use remat_types::{DType, Result, SmallVec};

use crate::args::real_dtype;
use crate::pointwise::Cast;
use crate::shape::{BroadcastTo, Concat, Slice};
use crate::{GradCx, Var};

/// One level of the tree: the halves that were multiplied, and whether an element was left over, which the next level has last.
struct Level {
    axis: usize,
    halves: [Var; 2],
    is_odd: bool,
}

/// `dy` times the product of the other elements of `x` over `axes`, where `dy` has extent 1. 16-bit floats are multiplied in f32.
pub(super) fn grad_prod(cx: &GradCx<'_>, x: Var, dy: Var, axes: &SmallVec<[usize; 4]>) -> Result<Var> {
    let (c, fact) = (cx.build(), cx.fact(x));
    if fact.elems() == 0 {
        return cx.apply(BroadcastTo { shape: fact.shape }, &[dy]);
    }
    let wide = real_dtype(fact.dtype);
    let cast = |v: Var, dtype: DType| if cx.fact(v).dtype == dtype { Ok(v) } else { cx.apply(Cast { dtype }, &[v]) };
    let part = |v: Var, axis, start, len| cx.apply(Slice { axis, start, len, step: 1 }, &[v]);
    let mut levels: Vec<Level> = Vec::new();
    let mut product = cast(x, wide)?;
    for &axis in axes {
        loop {
            let extent = cx.fact(product).shape[axis];
            let (half, is_odd) = (extent / 2, extent % 2 == 1);
            if half == 0 {
                break;
            }
            let halves = [part(product, axis, 0, half)?, part(product, axis, half, half)?];
            let both = c.mul(halves[0], halves[1])?;
            product =
                if is_odd { cx.apply(Concat { axis }, &[both, part(product, axis, 2 * half, 1)?])? } else { both };
            levels.push(Level { axis, halves, is_odd });
        }
    }
    let mut d = cast(dy, wide)?;
    for Level { axis, halves: [left, right], is_odd } in levels.into_iter().rev() {
        let half = cx.fact(left).shape[axis];
        let of_both = if is_odd { part(d, axis, 0, half)? } else { d };
        let mut parts: SmallVec<[Var; 4]> = SmallVec::from_iter([c.mul(of_both, right)?, c.mul(of_both, left)?]);
        if is_odd {
            parts.push(part(d, axis, half, 1)?);
        }
        d = cx.apply(Concat { axis }, &parts)?;
    }
    cast(d, fact.dtype)
}
