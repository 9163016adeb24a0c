use remat_kernels::reduce::{Deviation, Mean, Num, RootDeviation, Rooted, WideMean};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, SmallVec, f16, for_float, smallvec};

use super::{Reduce, ReduceFn, reduce_op::run, reduced_elems, reduced_shape, with_ones};
use crate::compose::widened;
use crate::host::arity;
use crate::pointwise::BinaryFn;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample, Tolerance, Var as Value};

/// The variance over `axes`: `y = sum (x - mean x)^2 / (n - correction)`, of floats.
///
/// `correction` is 0 for the population's variance, 1 for the sample's (Bessel). Two passes with the correction of Chan,
/// Golub and LeVeque, in f64. NaN of nothing, and where `n <= correction` (the gradient too). Shapes and Axis errors as in
/// [`Reduce`](crate::reduce::Reduce); DType for other dtypes than floats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct Var {
    /// The reduced axes.
    pub axes: SmallVec<[usize; 4]>,
    /// Whether they stay with extent 1.
    #[param(default = false)]
    pub keepdims: bool,
    /// The number subtracted from the count.
    pub correction: usize,
}

/// The standard deviation over `axes`: the root of [`Var`], of squares that are never rounded to the dtype of `x`.
///
/// Equal elements deviate by exactly 0. `dx = dy (x - mean x) / ((n - correction) y)`, and 0 where `y` is 0, where no
/// direction is steeper than its opposite. NaN of nothing and where `n <= correction`; errors as there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct Std {
    /// The reduced axes.
    pub axes: SmallVec<[usize; 4]>,
    /// Whether they stay with extent 1.
    #[param(default = false)]
    pub keepdims: bool,
    /// The number subtracted from the count.
    pub correction: usize,
}

/// `n - correction`, or NaN where that is not positive.
fn divisor(n: usize, correction: usize) -> f64 {
    if n > correction { (n - correction) as f64 } else { f64::NAN }
}

/// The fact of either op. Errors: DType for other than floats, Axis.
fn spread_fact(x: &[&Fact], axes: &[usize], keepdims: bool) -> Result<Facts> {
    arity(x, 1)?;
    if !x[0].dtype.is_float() {
        return Err(not_float(x[0].dtype));
    }
    Ok(smallvec![Fact::new(x[0].dtype, reduced_shape(&x[0].shape, axes, keepdims)?)])
}

fn not_float(dtype: DType) -> Error {
    Error::new(ErrorKind::DType, format!("is not defined for {dtype}"))
}

/// `x - mean x` over `axes`. The mean is not rounded to 16 bits: it may differ from all elements by less than their digits.
fn centred(cx: &GradCx<'_>, x: Value, axes: &SmallVec<[usize; 4]>) -> Result<Value> {
    let mean = Reduce { f: ReduceFn::Mean, axes: axes.clone(), keepdims: true };
    cx.build().sub(x, cx.apply(mean, &[widened(cx, x)?])?)
}

/// Two passes over `x`.
fn spread_cost(x: &[&Fact], y: &[Fact]) -> Cost {
    let once = Cost::bytes(x, y);
    Cost { flops: 4 * x.iter().map(|f| f.elems() as u64).sum::<u64>(), bytes: 2 * once.bytes }
}

impl Op for Var {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        spread_fact(x, &self.axes, self.keepdims)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num<Wide = f64>>(op: &Var, cx: &mut EvalCx<'_>) -> Result<()> {
            let n = reduced_elems(cx.x[0].shape(), &op.axes);
            run::<T, T>(cx, &op.axes, Mean { n })?;
            run::<T, T>(cx, &op.axes, Deviation { n, divisor: divisor(n, op.correction) })
        }
        let dtype = cx.x[0].dtype();
        for_float!(dtype, T => go::<T>(self, cx), else Err(not_float(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let (c, x) = (cx.build(), cx.x(0));
        let shape = cx.fact(x).shape;
        let dy = c.reshape(dy, &with_ones(&shape, &self.axes))?;
        let slope = c.scale(dy, 2.0 / divisor(reduced_elems(&shape, &self.axes), self.correction))?;
        Ok(smallvec![Some(c.mul(centred(cx, x, &self.axes)?, slope)?)])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        spread_cost(x, y)
    }
}

impl Op for Std {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        spread_fact(x, &self.axes, self.keepdims)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Rooted>(op: &Std, cx: &mut EvalCx<'_>) -> Result<()> {
            let n = reduced_elems(cx.x[0].shape(), &op.axes);
            run::<T, T>(cx, &op.axes, WideMean { n })?;
            run::<T, T>(cx, &op.axes, RootDeviation { n, divisor: divisor(n, op.correction) })
        }
        let dtype = cx.x[0].dtype();
        for_float!(dtype, T => go::<T>(self, cx), else Err(not_float(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let (c, x) = (cx.build(), cx.x(0));
        let shape = cx.fact(x).shape;
        let ones = with_ones(&shape, &self.axes);
        let unit = c.bin(BinaryFn::DivOrZero, centred(cx, x, &self.axes)?, c.reshape(cx.y(0), &ones)?)?;
        let n = reduced_elems(&shape, &self.axes);
        let slope = c.scale(c.reshape(dy, &ones)?, 1.0 / divisor(n, self.correction))?;
        Ok(smallvec![Some(c.mul(unit, slope)?)])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        spread_cost(x, y)
    }
}

impl OpDef for Var {
    const NAME: &'static str = "var";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes: &[usize], keepdims, correction| Var { axes: axes.into(), keepdims, correction };
        let x = || t(&[1.0f32, 2., 4., 4., -5., 6.5], [2, 3]);
        vec![
            Sample::new(op(&[1], false, 0), vec![x()]).gives(vec![t(&[14.0f32 / 9.0, 24.388_89], [2])]),
            Sample::new(op(&[0], true, 1), vec![x()]).gives(vec![t(&[4.5f32, 24.5, 3.125], [1, 3])]),
            Sample::new(op(&[0, 1], false, 1), vec![x()]),
            Sample::new(op(&[0], false, 0), vec![t(&[3e8f64, 3e8 + 1.0, 3e8 + 2.0, 3e8 + 3.0], [4])])
                .gives(vec![t(&[1.25f64], [])])
                .no_grad("differences lose their digits this far from zero"),
            Sample::new(op(&[0], false, 1), vec![t(&[1.0f32], [1])])
                .gives(vec![t(&[f32::NAN], [])])
                .no_grad("n = correction"),
            Sample::new(op(&[1], false, 0), vec![t::<f32>(&[], [1, 0])]).gives(vec![t(&[f32::NAN], [1])]),
            Sample::new(op(&[0], false, 0), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(&[1], false, 0), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Axis),
        ]
    }
}

impl OpDef for Std {
    const NAME: &'static str = "std";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes: &[usize], keepdims, correction| Std { axes: axes.into(), keepdims, correction };
        let x = || t(&[1.0f32, 2., 4., 4., -5., 6.5], [2, 3]);
        let half = |v: &[f32]| t(&v.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>(), [v.len()]);
        vec![
            Sample::new(op(&[1], false, 0), vec![x()]).gives(vec![t(&[14.0f32.sqrt() / 3.0, 4.938_511_6], [2])]),
            Sample::new(op(&[0], true, 1), vec![x()])
                .gives(vec![t(&[4.5f32.sqrt(), 24.5f32.sqrt(), 3.125f32.sqrt()], [1, 3])]),
            Sample::new(op(&[0, 1], false, 1), vec![x()]),
            Sample::new(op(&[0], false, 0), vec![half(&[-500.0, 500.0])])
                .gives(vec![half(&[500.0]).reshape([]).expect("one element")])
                .within(Tolerance::Exact),
            Sample::new(op(&[0], false, 1), vec![t(&[1e30f32, 3e30, 1e-30, 3e-30], [2, 2])])
                .gives(vec![t(&[0.5f32.sqrt() * 1e30, 0.5f32.sqrt() * 3e30], [2])])
                .no_grad("far from 1"),
            Sample::new(op(&[0], false, 0), vec![t(&[0.1f32; 7], [7])])
                .gives(vec![t(&[0.0f32], [])])
                .within(Tolerance::Exact)
                .no_grad("equal elements: a kink, where the gradient is 0"),
            Sample::new(op(&[0], false, 1), vec![t(&[1.0f32], [1])])
                .gives(vec![t(&[f32::NAN], [])])
                .no_grad("n = correction"),
            Sample::new(op(&[1], false, 0), vec![t::<f32>(&[], [1, 0])]).gives(vec![t(&[f32::NAN], [1])]),
            Sample::new(op(&[0], false, 0), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(&[1], false, 0), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Axis),
        ]
    }
}
