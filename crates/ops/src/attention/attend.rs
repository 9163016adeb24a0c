use remat_kernels::attention::{self as kernel, Inputs, Strided, forward, forward_workspace_bytes};
use remat_types::{
    DType, Error, ErrorKind, Fact, Facts, Layout, Result, Scalar, Shape, SmallVec, Storage, for_float, smallvec,
};

use super::AttentionGrad;
use crate::args::{
    checked_fact, not_taken, number, outputs, real_dtype, want_dtype, want_float, want_rank, want_shape,
};
use crate::compose;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, In, LayoutReq, Op, Var};

/// `y = softmax(scale q k^T) v` for each image and head (Vaswani et al., 2017): `(q, k, v) -> (y, lse)` or
/// `(q, k, v, mask) -> (y, lse)`, with `lse = ln sum exp(scale q k^T)` in the dtype that sums have.
///
/// `q: [n, tq, heads, d]`, `k: [n, tk, heads, d]`, `v: [n, tk, heads, dv]`, `y: [n, tq, heads, dv]`,
/// `lse: [n, heads, tq]`, of any strides. `mask`, of bools, broadcasts to `[n, heads, tq, tk]`: query `i` sees key `j`
/// where it is true. A query that sees nothing gives 0, with an `lse` of minus infinity, and moves nothing. The scores exist
/// in tiles only; those that `causal` hides from all queries of a tile are not computed, so a NaN in what they would have read
/// goes nowhere.
///
/// Errors: DType for what is no float or differs, or a mask that is not of bools; Axis for other ranks; Shape for
/// extents that do not fit, and a mask that does not broadcast; Value for a scale that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(q_or_qkv: float, rest..: any), gradient(q_or_qkv, rest))]
pub struct Attention {
    /// Factor of the scores; `1 / sqrt(d)` in the paper.
    pub scale: Scalar,
    /// Query `i` sees keys `j <= i` only, mask or not.
    #[param(default = false)]
    pub causal: bool,
    /// `q, k, v` are `[.., 0, .., ..]` to `[.., 2, .., ..]` of one input `[n, t, 3, heads, d]`, and so are their gradients.
    #[param(rename = "joined", default = false)]
    pub packed_qkv: bool,
}

impl Attention {
    /// Number of inputs before the mask.
    pub(crate) fn tensors(&self) -> usize {
        if self.packed_qkv { 1 } else { 3 }
    }

    /// Extents of `q, k, v`. Errors as [`Attention`].
    fn extents(&self, x: &[&Fact]) -> Result<[[usize; 4]; 3]> {
        let of = |f: &Fact, name: &str| {
            want_dtype(f, x[0].dtype, name)?;
            want_rank(f, 4, name)?;
            Ok::<_, Error>([f.shape[0], f.shape[1], f.shape[2], f.shape[3]])
        };
        if !self.packed_qkv {
            want_float(x[0], "q")?;
            return Ok([of(x[0], "q")?, of(x[1], "k")?, of(x[2], "v")?]);
        }
        want_float(x[0], "qkv")?;
        want_rank(x[0], 5, "qkv")?;
        let s = &x[0].shape;
        want_shape(x[0], &[s[0], s[1], 3, s[3], s[4]], "qkv")?;
        Ok([[s[0], s[1], s[3], s[4]]; 3])
    }

    /// The sizes. Errors as [`Attention`].
    pub(super) fn sizes(&self, x: &[&Fact]) -> Result<kernel::Attention> {
        let tensors = self.tensors();
        if x.len() != tensors && x.len() != tensors + 1 {
            let text = format!("attends to {tensors} inputs and perhaps a mask, not to {}", x.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        let [[n, tq, heads, d], [nk, tk, heads_k, dk], [nv, tv, heads_v, dv]] = self.extents(x)?;
        if (nk, heads_k, dk) != (n, heads, d) || (nv, tv, heads_v) != (n, tk, heads) {
            let text = format!("q, k and v have shapes {}, {} and {}", x[0].shape, x[1].shape, x[2].shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        // its operations can be counted, and so can all bytes of a workspace
        let pair_elems = d.saturating_add(dv).saturating_mul(64);
        Shape::from([n, heads, tq, tk, pair_elems]).checked_elems()?;
        if let Some(mask) = x.get(tensors) {
            want_dtype(mask, DType::Bool, "the mask")?;
            let scores = Shape::from([n, heads, tq, tk]);
            if mask.shape.broadcast(&scores).ok().as_ref() != Some(&scores) {
                let text = format!("a mask of shape {} does not broadcast to {scores}", mask.shape);
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
        let scale = number(self.scale, "scale", "finite", f64::is_finite)?;
        Ok(kernel::Attention { n, heads, tq, tk, d, dv, causal: self.causal, scale })
    }

    /// [`Attention::sizes`] of inputs.
    pub(super) fn sizes_of(&self, x: &[In<'_>]) -> Result<kernel::Attention> {
        let facts: SmallVec<[Fact; 4]> = x.iter().map(|x| Fact::new(x.dtype(), x.shape().clone())).collect();
        self.sizes(&facts.iter().collect::<SmallVec<[&Fact; 4]>>())
    }

    /// The inputs as the kernel takes them.
    pub(super) fn inputs<'a, T: Storage>(&self, x: &[In<'a>], a: &kernel::Attention) -> Result<Inputs<'a, T>> {
        let mask = match x.get(self.tensors()) {
            Some(x) => {
                let all = x.layout().broadcast_to(&Shape::from([a.n, a.heads, a.tq, a.tk]))?;
                Some(strided(x.storage()?, &all))
            }
            None => None,
        };
        let of = |i: usize| {
            if !self.packed_qkv {
                return Ok::<_, Error>(strided(x[i].storage()?, x[i].layout()));
            }
            Ok(strided(x[0].storage()?, &x[0].layout().slice(2, i, 1, 1)?.permute(&[2, 0, 1, 3, 4])?))
        };
        Ok(Inputs { q: of(0)?, k: of(1)?, v: of(2)?, mask })
    }
}

/// The last four axes of a layout.
pub(super) fn strided<'a, T>(data: &'a [T], layout: &Layout) -> Strided<'a, T> {
    let mut strides = [0; 4];
    strides.iter_mut().rev().zip(layout.strides().iter().rev()).for_each(|(to, from)| *to = *from);
    Strided { data, offset: layout.offset(), strides }
}

impl Op for Attention {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let a = self.sizes(x)?;
        let dtype = x[0].dtype;
        let lse = checked_fact(real_dtype(dtype), [a.n, a.heads, a.tq])?;
        Ok(smallvec![checked_fact(dtype, [a.n, a.tq, a.heads, a.dv])?, lse])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (x, a, dtype) = (cx.x, self.sizes_of(cx.x)?, cx.x[0].dtype());
        let [y, lse] = outputs(cx.y)?;
        for_float!(dtype, T => {
            let inputs = self.inputs::<T>(x, &a)?;
            forward(cx.pool, &a, &inputs, y.slice_mut()?, lse.slice_mut()?, cx.workspace);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        if cx.dy(1).is_some() {
            return cx.grad_via_composite(|cx, x| compose::attention(cx, self, x));
        }
        let mut grads: Grads = SmallVec::from_elem(None, cx.x_count());
        let Some(dy) = cx.dy(0) else { return Ok(grads) };
        let x: SmallVec<[Var; 8]> = [cx.y(1), dy].into_iter().chain((0..cx.x_count()).map(|i| cx.x(i))).collect();
        let found = cx.apply_all(AttentionGrad { of: self.clone() }, &x)?;
        grads.iter_mut().zip(found).for_each(|(to, g)| *to = Some(g));
        Ok(grads)
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(a) = self.sizes(x) else { return 0 };
        for_float!(x[0].dtype, T => forward_workspace_bytes::<T>(&a, threads), else 0)
    }

    /// Products alone, as published figures have them.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = self.sizes(x).map_or(0, |a| 2 * a.pairs() * (a.d + a.dv));
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
