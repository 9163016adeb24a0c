use remat_kernels::conv::{input_grad, input_grad_workspace_bytes};
use remat_types::{ErrorKind, Fact, Facts, Result, for_float, smallvec};

use super::{Conv2d, Conv2dWeightGrad, ConvParams, two_extents, wave};
use crate::args::{not_taken, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The gradient of [`Conv2d`] with respect to its input: `(dy, weight) -> dx`. Also the transposed convolution.
///
/// `dx[n, c, ih, iw] = sum over k, r, s of dy[n, k, oh, ow] weight[k, c, r, s]` where tap `(r, s)` of output `(oh, ow)`
/// reads `(ih, iw)`. `dy: [n, k, oh, ow]`, `weight: [k, c / groups, r, s]`, `dx: [n, c, size[0], size[1]]`.
///
/// Errors: as there, and Shape if `dy` is not the output of an input of that size.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(dy: float, weight: float), gradient(dy, weight))]
pub struct Conv2dInputGrad {
    /// How the taps lie.
    #[param(flatten)]
    pub taps: ConvParams,
    /// Height and width of the input.
    pub size: [usize; 2],
}

impl Conv2dInputGrad {
    fn geometry(&self, x: &[&Fact]) -> Result<remat_kernels::conv::Conv2d> {
        let [dy, weight] = two_extents(x, ["dy", "the weight"])?;
        let c = weight[1].saturating_mul(self.taps.groups);
        let g = self.taps.geometry([dy[0], c, self.size[0], self.size[1]], weight)?;
        want_shape(x[0], &[g.n, g.k, g.oh, g.ow], "dy")?;
        Ok(g)
    }
}

impl Op for Conv2dInputGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let g = self.geometry(x)?;
        Ok(smallvec![Fact::new(x[0].dtype, [g.n, g.c, g.h, g.w])])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let facts = [0, 1].map(|i| Fact::new(cx.x[i].dtype(), cx.x[i].shape()));
        let g = self.geometry(&[&facts[0], &facts[1]])?;
        for_float!(facts[0].dtype, T => {
            let (dy, weight) = (cx.x[0].slice::<T>()?, cx.x[1].slice()?);
            input_grad(cx.pool, &g, dy, weight, cx.y[0].slice_mut()?, cx.workspace);
            Ok(())
        }, else Err(not_taken(facts[0].dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(u) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let mut grads: Grads = smallvec![None, None];
        let (dy, weight) = (cx.x(0), cx.x(1));
        if cx.needs(0) {
            grads[0] = Some(cx.apply(Conv2d { taps: self.taps }, &[u, weight])?);
        }
        if cx.needs(1) {
            let s = cx.fact(weight).shape;
            let op = Conv2dWeightGrad { taps: self.taps, kernel: [s[2], s[3]] };
            grads[1] = Some(cx.apply(op, &[u, dy])?);
        }
        Ok(grads)
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(g) = self.geometry(x) else { return 0 };
        for_float!(x[0].dtype, T => input_grad_workspace_bytes::<T>(&g, threads), else 0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(self.geometry(x).map_or(0, |g| g.flops()))
    }
}

impl OpDef for Conv2dInputGrad {
    const NAME: &'static str = "conv2d_input_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |stride, padding: [usize; 2], dilation, groups, size| Conv2dInputGrad {
            taps: ConvParams { stride, padding: padding.into(), dilation, groups },
            size,
        };
        let uneven = |op: Conv2dInputGrad, padding: [[usize; 2]; 2]| Conv2dInputGrad {
            taps: ConvParams { padding: padding.into(), ..op.taps },
            ..op
        };
        let w = |shape: &[usize]| wave(shape, 0.0);
        let v = |shape: &[usize]| wave(shape, 0.5);
        let (dy, k) = (t(&[1.0f32, 10.], [1, 1, 1, 2]), t(&[1.0f32, 2.], [1, 1, 1, 2]));
        let plain = |size| op([1, 1], [0, 0], [1, 1], 1, size);
        vec![
            Sample::new(plain([1, 3]), vec![dy.clone(), k.clone()]).gives(vec![t(&[1.0f32, 12., 20.], [1, 1, 1, 3])]),
            Sample::new(op([1, 2], [0, 0], [1, 1], 1, [1, 5]), vec![dy.clone(), k.clone()])
                .gives(vec![t(&[1.0f32, 2., 10., 20., 0.], [1, 1, 1, 5])]),
            Sample::new(op([1, 1], [0, 0], [1, 2], 1, [1, 4]), vec![dy.clone(), k.clone()])
                .gives(vec![t(&[1.0f32, 10., 2., 20.], [1, 1, 1, 4])]),
            // what lies in the padding is left out
            Sample::new(uneven(plain([1, 1]), [[0, 0], [0, 2]]), vec![dy.clone(), k.clone()])
                .gives(vec![t(&[1.0f32], [1, 1, 1, 1])]),
            Sample::new(
                uneven(op([2, 1], [0, 0], [1, 2], 1, [5, 4]), [[0, 2], [2, 1]]),
                vec![w(&[1, 2, 3, 5]), v(&[2, 2, 3, 2])],
            ),
            Sample::new(op([1, 1], [1, 1], [1, 1], 1, [4, 3]), vec![w(&[2, 3, 4, 3]), v(&[3, 2, 3, 3])]),
            Sample::new(op([2, 1], [1, 2], [1, 2], 1, [5, 4]), vec![w(&[1, 2, 3, 6]), v(&[2, 2, 3, 2])]),
            Sample::new(op([3, 2], [0, 1], [2, 1], 2, [6, 5]), vec![w(&[2, 2, 2, 3]), v(&[2, 2, 2, 3])]),
            Sample::new(op([2, 2], [1, 1], [1, 1], 1, [17, 19]), vec![w(&[3, 18, 9, 10]), v(&[18, 5, 3, 3])])
                .no_grad("the smaller ones check it"),
            Sample::new(plain([1, 9]), vec![dy.clone(), k.clone()]).fails(ErrorKind::Shape),
            Sample::new(plain([1, 3]), vec![dy.clone(), v(&[2, 1, 1, 2])]).fails(ErrorKind::Shape),
            Sample::new(op([1, 1], [0, 0], [0, 1], 1, [1, 3]), vec![dy.clone(), k.clone()]).fails(ErrorKind::Value),
            Sample::new(plain([1, 3]), vec![dy, v(&[2])]).fails(ErrorKind::Axis),
        ]
    }
}
