use remat_kernels::attention::{self as kernel, Gradients, backward, backward_workspace_bytes};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, for_float};

use super::Attention;
use super::attend::strided;
use crate::args::{not_taken, outputs, real_dtype, want_dtype, want_shape};
use crate::compose::attention_gradients;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, LayoutReq, Op};

/// The gradients of [`Attention`]: `(lse, dy)` and the inputs of that, to `(dq, dk, dv)` or, joined, to one.
///
/// With `p = exp(scale q k^T - lse)` and `ds = p (dy v^T - sum p dy v^T)`, 0 where a key is hidden: `dq = scale ds k`,
/// `dk = scale ds^T q`, `dv = p^T dy`. Errors: as there, and DType or Shape for an `lse` or a `dy` that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(lse: float, dy: float, x..: any), gradient(lse, dy, x))]
pub struct AttentionGrad {
    /// The forward op.
    pub of: Attention,
}

impl AttentionGrad {
    fn sizes(&self, x: &[&Fact]) -> Result<kernel::Attention> {
        let [lse, dy, x @ ..] = x else {
            return Err(Error::new(ErrorKind::Arity, "takes two inputs before those of the forward op"));
        };
        let a = self.of.sizes(x)?;
        want_dtype(lse, real_dtype(x[0].dtype), "lse")?;
        want_shape(lse, &[a.n, a.heads, a.tq], "lse")?;
        want_dtype(dy, x[0].dtype, "dy")?;
        want_shape(dy, &[a.n, a.tq, a.heads, a.dv], "dy")?;
        Ok(a)
    }
}

impl Op for AttentionGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.sizes(x)?;
        Ok(x[2..2 + self.of.tensors()].iter().map(|f| Fact::new(f.dtype, f.shape.clone())).collect())
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (lse, dy, x) = (&cx.x[0], &cx.x[1], &cx.x[2..]);
        let (a, dtype) = (self.of.sizes_of(x)?, dy.dtype());
        for_float!(dtype, T => {
            let inputs = self.of.inputs::<T>(x, &a)?;
            let (lse, dy) = (lse.slice()?, strided(dy.storage()?, dy.layout()));
            let gradients = if self.of.packed_qkv {
                let [all] = outputs(cx.y)?;
                Gradients::Joined(all.slice_mut()?)
            } else {
                let [dq, dk, dv] = outputs(cx.y)?;
                Gradients::Apart([dq.slice_mut()?, dk.slice_mut()?, dv.slice_mut()?])
            };
            backward(cx.pool, &a, &inputs, lse, &dy, gradients, cx.workspace);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        cx.grad_via_composite(|cx, x| attention_gradients(cx, &self.of, x))
    }

    fn layout(&self, input: usize) -> LayoutReq {
        if input == 0 { LayoutReq::Contiguous } else { LayoutReq::Strided }
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(a) = self.sizes(x) else { return 0 };
        for_float!(x[1].dtype, T => backward_workspace_bytes::<T>(&a, threads), else 0)
    }

    /// Products alone.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = self.sizes(x).map_or(0, |a| 2 * a.pairs() * (3 * a.d + 2 * a.dv));
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
