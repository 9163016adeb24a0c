use remat_kernels::reduce::{Max, Num, Reducer, ShiftedExp};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, SmallVec, for_float, smallvec};

use super::{reduce_op::run, reduced_shape, with_ones};
use crate::host::arity;
use crate::pointwise::{Compare, CompareFn, UnaryFn};
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample, Tolerance};

/// `y = ln sum exp(x)` over `axes`, of floats: the maximum is taken out first, so nothing overflows.
///
/// Nothing to add and all `-inf` give `-inf`; `dx = dy exp(x - y)`, and 0 there. Shapes and Axis errors as in
/// [`Reduce`](crate::reduce::Reduce); DType for other dtypes than floats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct LogSumExp {
    /// The reduced axes.
    pub axes: SmallVec<[usize; 4]>,
    /// Whether they stay with extent 1.
    #[param(default = false)]
    pub keepdims: bool,
}

impl Op for LogSumExp {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        if !x[0].dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, format!("is not defined for {}", x[0].dtype)));
        }
        let y = reduced_shape(&x[0].shape, &self.axes, self.keepdims)?;
        Ok(smallvec![Fact::new(x[0].dtype, y)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num>(op: &LogSumExp, cx: &mut EvalCx<'_>) -> Result<()>
        where
            ShiftedExp: Reducer<T, T>,
        {
            run::<T, T>(cx, &op.axes, Max)?;
            run::<T, T>(cx, &op.axes, ShiftedExp)
        }
        let dtype = cx.x[0].dtype();
        for_float!(dtype, T => go::<T>(self, cx), else Err(Error::new(ErrorKind::DType, format!("not for {dtype}"))))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let (c, x) = (cx.build(), cx.x(0));
        let ones = with_ones(&cx.fact(x).shape, &self.axes);
        let y = c.reshape(cx.y(0), &ones)?;
        // where all are -inf any finite number does, so that no share is exp(-inf + inf)
        let nothing = cx.apply(Compare { f: CompareFn::Eq }, &[y, c.constant(f64::NEG_INFINITY, &y)?])?;
        let share = c.un(UnaryFn::Exp, c.sub(x, c.drop_where(nothing, y)?)?)?;
        Ok(smallvec![Some(c.mul(share, c.reshape(dy, &ones)?)?)])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let once = Cost::bytes(x, y);
        Cost { flops: 20 * x.iter().map(|f| f.elems() as u64).sum::<u64>(), bytes: 2 * once.bytes }
    }
}

impl OpDef for LogSumExp {
    const NAME: &'static str = "log_sum_exp";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes: &[usize], keepdims| LogSumExp { axes: axes.into(), keepdims };
        let inf = f32::INFINITY;
        vec![
            Sample::new(op(&[1], false), vec![t(&[1.0f64, 2., 3., 0., 0., 0.], [2, 3])])
                .gives(vec![t(&[3.407_605_964_444_38f64, 1.098_612_288_668_11], [2])]),
            // beside a largest of 0 the others are all of the result
            Sample::new(op(&[1], false), vec![t(&[0.0f64, -40., -1., 0., -700., 0.], [2, 3])])
                .gives(vec![t(&[0.313_261_687_518_222_8_f64, std::f64::consts::LN_2], [2])]),
            Sample::new(op(&[1], false), vec![t(&[0.0f64, -40., -40., 0.], [2, 2])])
                .gives(vec![t(&[4.248_354_255_291_589e-18f64; 2], [2])])
                .within(Tolerance::Ulp(4))
                .no_grad("the one above checks it"),
            Sample::new(op(&[0], true), vec![t(&[1000.0f32, 5.0, 1000.0, -5.0], [2, 2])])
                .gives(vec![t(&[1_000.693_1f32, 5.000_045_3], [1, 2])])
                .no_grad("the digits of 1000 leave too few for differences"),
            Sample::new(op(&[0], false), vec![t(&[-inf, -inf, -inf, inf, -inf, 2.0], [2, 3])])
                .gives(vec![t(&[inf, -inf, 2.0], [3])])
                .no_grad("infinite"),
            Sample::new(op(&[0], false), vec![t(&[f32::NAN, 1.0], [2])]).gives(vec![t(&[f32::NAN], [])]).no_grad("NaN"),
            Sample::new(op(&[1], false), vec![t::<f32>(&[], [0, 2])]).gives(vec![t::<f32>(&[], [0])]),
            Sample::new(op(&[0], false), vec![t::<f32>(&[], [0, 2])]).gives(vec![t(&[-inf; 2], [2])]),
            Sample::new(op(&[0, 1], true), vec![t::<f64>(&[], [3, 0])]).gives(vec![t(&[f64::NEG_INFINITY], [1, 1])]),
            Sample::new(op(&[0], false), vec![t(&[1u8], [1])]).fails(ErrorKind::DType),
            Sample::new(op(&[1], false), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Axis),
        ]
    }
}
