use remat_kernels::conv::{forward, forward_workspace_bytes};
use remat_types::{ErrorKind, Fact, Facts, Result, for_float, smallvec};

use super::{Conv2dInputGrad, Conv2dWeightGrad, ConvParams, two_extents, wave};
use crate::args::not_taken;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample, WeightChannels};

/// `y[n, k, i, j] = sum over c, r, s of x[n, c, i stride + r dilation - padding, ..] weight[k, c, r, s]`.
///
/// `(x, weight) -> y`; `x: [n, c, h, w]`, `weight: [k, c / groups, r, s]`, `y: [n, k, oh, ow]` of one float dtype; f16 and
/// bf16 sum in f32. A cross-correlation, as neural networks mean it.
///
/// Errors: DType for other dtypes, Axis for another rank, Value for a stride, dilation or group count of 0, Shape where
/// sizes do not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, weight: float), gradient(x, weight))]
pub struct Conv2d {
    /// How the taps lie.
    #[param(flatten)]
    pub taps: ConvParams,
}

impl Conv2d {
    fn geometry(&self, x: &[&Fact]) -> Result<remat_kernels::conv::Conv2d> {
        let [x, weight] = two_extents(x, ["x", "the weight"])?;
        self.taps.geometry(x, weight)
    }
}

impl Op for Conv2d {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let g = self.geometry(x)?;
        Ok(smallvec![Fact::new(x[0].dtype, [g.n, g.k, g.oh, g.ow])])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let facts = [0, 1].map(|i| Fact::new(cx.x[i].dtype(), cx.x[i].shape()));
        let g = self.geometry(&[&facts[0], &facts[1]])?;
        for_float!(facts[0].dtype, T => {
            let (x, weight) = (cx.x[0].slice::<T>()?, cx.x[1].slice()?);
            forward(cx.pool, &g, x, weight, cx.y[0].slice_mut()?, cx.workspace);
            Ok(())
        }, else Err(not_taken(facts[0].dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let mut grads: Grads = smallvec![None, None];
        let (x, weight) = (cx.x(0), cx.x(1));
        if cx.needs(0) {
            let s = cx.fact(x).shape;
            let op = Conv2dInputGrad { taps: self.taps, size: [s[2], s[3]] };
            grads[0] = Some(cx.apply(op, &[dy, weight])?);
        }
        if cx.needs(1) {
            let s = cx.fact(weight).shape;
            let op = Conv2dWeightGrad { taps: self.taps, kernel: [s[2], s[3]] };
            grads[1] = Some(cx.apply(op, &[x, dy])?);
        }
        Ok(grads)
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(g) = self.geometry(x) else { return 0 };
        for_float!(x[0].dtype, T => forward_workspace_bytes::<T>(&g, threads), else 0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(self.geometry(x).map_or(0, |g| g.flops()))
    }

    fn weight_channels(&self, _x: &[&Fact]) -> Option<WeightChannels> {
        Some(WeightChannels { input: 1, weight_axis: 0, output_axis: 1 })
    }
}

impl OpDef for Conv2d {
    const NAME: &'static str = "conv2d";

    fn samples() -> Vec<Sample<Self>> {
        let op = |stride, padding: [usize; 2], dilation, groups| Conv2d {
            taps: ConvParams { stride, padding: padding.into(), dilation, groups },
        };
        let uneven =
            |op: Conv2d, padding: [[usize; 2]; 2]| Conv2d { taps: ConvParams { padding: padding.into(), ..op.taps } };
        let plain = || Conv2d { taps: ConvParams::PLAIN };
        let w = |shape: &[usize]| wave(shape, 0.0);
        let v = |shape: &[usize]| wave(shape, 0.5);
        let x = t(&[1.0f32, 2., 3., 4., 5., 6., 7., 8., 9.], [1, 1, 3, 3]);
        let k = t(&[1.0f32, 0., 2., -1.], [1, 1, 2, 2]);
        let half = |v: &[f32]| v.iter().map(|&v| remat_types::f16::from_f32(v)).collect::<Vec<_>>();
        vec![
            Sample::new(plain(), vec![x.clone(), k.clone()]).gives(vec![t(&[4.0f32, 6., 10., 12.], [1, 1, 2, 2])]),
            Sample::new(op([2, 2], [1, 1], [1, 1], 1), vec![x.clone(), k.clone()])
                .gives(vec![t(&[-1.0f32, 1., -7., 12.], [1, 1, 2, 2])]),
            Sample::new(op([1, 1], [0, 0], [2, 2], 1), vec![x.clone(), k.clone()])
                .gives(vec![t(&[6.0f32], [1, 1, 1, 1])]),
            Sample::new(uneven(plain(), [[0, 1], [1, 0]]), vec![x.clone(), k.clone()])
                .gives(vec![t(&[-4.0f32, 4., 6., -7., 10., 12., 0., 7., 8.], [1, 1, 3, 3])]),
            // two groups: each channel by its own tap
            Sample::new(
                op([1, 1], [0, 0], [1, 1], 2),
                vec![t(&[1.0f64, 2., 3., 4.], [1, 2, 1, 2]), t(&[10.0f64, -1.], [2, 1, 1, 1])],
            )
            .gives(vec![t(&[10.0f64, 20., -3., -4.], [1, 2, 1, 2])]),
            Sample::new(
                plain(),
                vec![t(&half(&[1., 2., 3., 4.]), [1, 1, 2, 2]), t(&half(&[0.5, 1., 1., 2.]), [1, 1, 2, 2])],
            )
            .gives(vec![t(&half(&[13.5]), [1, 1, 1, 1])]),
            Sample::new(op([1, 1], [1, 1], [1, 1], 1), vec![w(&[2, 2, 4, 3]), v(&[3, 2, 3, 3])]),
            Sample::new(op([2, 1], [1, 2], [1, 2], 1), vec![w(&[1, 2, 5, 4]), v(&[2, 2, 3, 2])]),
            Sample::new(
                uneven(op([2, 1], [0, 0], [1, 2], 1), [[0, 2], [2, 1]]),
                vec![w(&[1, 2, 5, 4]), v(&[2, 2, 3, 2])],
            ),
            Sample::new(op([3, 2], [0, 1], [2, 1], 2), vec![w(&[2, 4, 6, 5]), v(&[2, 2, 2, 3])]),
            Sample::new(op([2, 2], [0, 0], [1, 1], 1), vec![w(&[1, 3, 4, 4]), v(&[2, 3, 1, 1])]),
            Sample::new(op([1, 1], [1, 1], [1, 1], 1), vec![w(&[3, 5, 17, 19]), v(&[18, 5, 3, 3])])
                .no_grad("the smaller ones check it"),
            Sample::new(uneven(plain(), [[2, 1], [0, 1]]), vec![w(&[3, 5, 17, 19]), v(&[18, 5, 3, 3])])
                .no_grad("the smaller ones check it"),
            Sample::new(plain(), vec![t::<f32>(&[], [0, 1, 3, 3]), k.clone()]).gives(vec![t::<f32>(&[], [0, 1, 2, 2])]),
            Sample::new(plain(), vec![x.clone(), v(&[1, 1, 4, 1])]).fails(ErrorKind::Shape),
            Sample::new(plain(), vec![x.clone(), v(&[1, 2, 1, 1])]).fails(ErrorKind::Shape),
            Sample::new(op([1, 1], [0, 0], [1, 1], 2), vec![x.clone(), k.clone()]).fails(ErrorKind::Shape),
            Sample::new(op([0, 1], [0, 0], [1, 1], 1), vec![x.clone(), k.clone()]).fails(ErrorKind::Value),
            Sample::new(op([1, 1], [0, 0], [1, 1], 0), vec![x.clone(), k.clone()]).fails(ErrorKind::Value),
            Sample::new(plain(), vec![x.clone(), v(&[2, 2])]).fails(ErrorKind::Axis),
            Sample::new(plain(), vec![x.clone(), t(&[1.0f64], [1, 1, 1, 1])]).fails(ErrorKind::DType),
            Sample::new(plain(), vec![t(&[1i32], [1, 1, 1, 1]), t(&[1i32], [1, 1, 1, 1])]).fails(ErrorKind::DType),
            Sample::new(plain(), vec![x]).fails(ErrorKind::Arity),
        ]
    }
}
