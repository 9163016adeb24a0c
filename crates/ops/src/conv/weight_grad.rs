use remat_kernels::conv::{weight_grad, weight_grad_workspace_bytes};
use remat_types::{ErrorKind, Fact, Facts, Result, for_float, smallvec};

use super::{Conv2d, Conv2dInputGrad, ConvParams, two_extents, wave};
use crate::args::{not_taken, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The gradient of [`Conv2d`] with respect to its weight: `(x, dy) -> dw`.
///
/// `dw[k, c, r, s] = sum over n, oh, ow of dy[n, k, oh, ow] x[n, c, oh stride + r dilation - padding, ..]`.
/// `x: [n, c, h, w]`, `dy: [n, k, oh, ow]`, `dw: [k, c / groups, kernel[0], kernel[1]]`; the sum over images is cut by
/// sizes only.
///
/// Errors: as there, and Shape if `dy` is not the output of a kernel of that size.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, dy: float), gradient(x, dy))]
pub struct Conv2dWeightGrad {
    /// How the taps lie.
    #[param(flatten)]
    pub taps: ConvParams,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
}

impl Conv2dWeightGrad {
    fn geometry(&self, x: &[&Fact]) -> Result<remat_kernels::conv::Conv2d> {
        let [x_shape, dy] = two_extents(x, ["x", "dy"])?;
        let group_c = x_shape[1] / self.taps.groups.max(1);
        let g = self.taps.geometry(x_shape, [dy[1], group_c, self.kernel[0], self.kernel[1]])?;
        want_shape(x[1], &[g.n, g.k, g.oh, g.ow], "dy")?;
        Ok(g)
    }
}

impl Op for Conv2dWeightGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let g = self.geometry(x)?;
        Ok(smallvec![Fact::new(x[0].dtype, [g.k, g.c / g.groups, g.r, g.s])])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let facts = [0, 1].map(|i| Fact::new(cx.x[i].dtype(), cx.x[i].shape()));
        let g = self.geometry(&[&facts[0], &facts[1]])?;
        for_float!(facts[0].dtype, T => {
            let (x, dy) = (cx.x[0].slice::<T>()?, cx.x[1].slice()?);
            weight_grad(cx.pool, &g, x, dy, cx.y[0].slice_mut()?, cx.workspace);
            Ok(())
        }, else Err(not_taken(facts[0].dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(u) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let mut grads: Grads = smallvec![None, None];
        let (x, dy) = (cx.x(0), cx.x(1));
        if cx.needs(0) {
            let s = cx.fact(x).shape;
            let op = Conv2dInputGrad { taps: self.taps, size: [s[2], s[3]] };
            grads[0] = Some(cx.apply(op, &[dy, u])?);
        }
        if cx.needs(1) {
            grads[1] = Some(cx.apply(Conv2d { taps: self.taps }, &[x, u])?);
        }
        Ok(grads)
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(g) = self.geometry(x) else { return 0 };
        for_float!(x[0].dtype, T => weight_grad_workspace_bytes::<T>(&g, threads), else 0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(self.geometry(x).map_or(0, |g| g.flops()))
    }
}

impl OpDef for Conv2dWeightGrad {
    const NAME: &'static str = "conv2d_weight_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |stride, padding: [usize; 2], dilation, groups, kernel| Conv2dWeightGrad {
            taps: ConvParams { stride, padding: padding.into(), dilation, groups },
            kernel,
        };
        let uneven = |op: Conv2dWeightGrad, padding: [[usize; 2]; 2]| Conv2dWeightGrad {
            taps: ConvParams { padding: padding.into(), ..op.taps },
            ..op
        };
        let w = |shape: &[usize]| wave(shape, 0.0);
        let v = |shape: &[usize]| wave(shape, 0.5);
        let (x, dy) = (t(&[1.0f32, 2., 3., 4., 5.], [1, 1, 1, 5]), t(&[1.0f32, 10.], [1, 1, 1, 2]));
        vec![
            Sample::new(op([1, 1], [0, 0], [1, 1], 1, [1, 4]), vec![x.clone(), dy.clone()])
                .gives(vec![t(&[21.0f32, 32., 43., 54.], [1, 1, 1, 4])]),
            Sample::new(op([1, 2], [0, 1], [1, 2], 1, [1, 3]), vec![x.clone(), dy.clone()])
                .gives(vec![t(&[20.0f32, 42., 4.], [1, 1, 1, 3])]),
            Sample::new(uneven(op([1, 1], [0, 0], [1, 1], 1, [1, 6]), [[0, 0], [0, 2]]), vec![x.clone(), dy.clone()])
                .gives(vec![t(&[21.0f32, 32., 43., 54., 5., 0.], [1, 1, 1, 6])]),
            Sample::new(
                uneven(op([2, 1], [0, 0], [1, 2], 1, [3, 2]), [[0, 2], [2, 1]]),
                vec![w(&[1, 2, 5, 4]), v(&[1, 2, 3, 5])],
            ),
            Sample::new(op([1, 1], [1, 1], [1, 1], 1, [3, 3]), vec![w(&[2, 2, 4, 3]), v(&[2, 3, 4, 3])]),
            Sample::new(op([2, 1], [1, 2], [1, 2], 1, [3, 2]), vec![w(&[1, 2, 5, 4]), v(&[1, 2, 3, 6])]),
            Sample::new(op([3, 2], [0, 1], [2, 1], 2, [2, 3]), vec![w(&[2, 4, 6, 5]), v(&[2, 2, 2, 3])]),
            Sample::new(op([1, 1], [1, 1], [1, 1], 1, [3, 3]), vec![w(&[5, 4, 17, 19]), v(&[5, 18, 17, 19])])
                .no_grad("the smaller ones check it"),
            Sample::new(op([1, 1], [0, 0], [1, 1], 1, [1, 3]), vec![x.clone(), dy.clone()]).fails(ErrorKind::Shape),
            Sample::new(op([1, 1], [0, 0], [1, 1], 2, [1, 4]), vec![x.clone(), dy.clone()]).fails(ErrorKind::Shape),
            Sample::new(op([1, 0], [0, 0], [1, 1], 1, [1, 4]), vec![x.clone(), dy]).fails(ErrorKind::Value),
            Sample::new(op([1, 1], [0, 0], [1, 1], 1, [1, 4]), vec![x, t(&[1.0f64; 2], [1, 1, 1, 2])])
                .fails(ErrorKind::DType),
        ]
    }
}
