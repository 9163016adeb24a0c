use remat_kernels::reduce::{Deviation, Mean, Num};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, SmallVec, for_float, smallvec};
use serde::{Deserialize, Serialize};

use super::{Reduce, ReduceFn, reduce_op::run, reduced_elems, reduced_shape, with_ones};
use crate::host::arity;
use crate::pointwise::Chain;
use crate::sample::t;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The variance over `axes`: `y = sum (x - mean x)^2 / (n - correction)`, of floats.
///
/// `correction` is 0 for the population's variance, 1 for the sample's (Bessel). Two passes with the correction of Chan,
/// Golub and LeVeque, in f64. NaN of nothing, and where `n <= correction` (the gradient too). Shapes and Axis errors as in
/// [`Reduce`](crate::reduce::Reduce); DType for other dtypes than floats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Var {
    /// The reduced axes.
    pub axes: SmallVec<[usize; 4]>,
    /// Whether they stay with extent 1.
    pub keepdims: bool,
    /// What is taken from the count.
    pub correction: usize,
}

impl Var {
    /// `n - correction`, or NaN where that is not positive.
    fn divisor(&self, n: usize) -> f64 {
        if n > self.correction { (n - self.correction) as f64 } else { f64::NAN }
    }
}

impl Op for Var {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        if !x[0].dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, format!("is not defined for {}", x[0].dtype)));
        }
        Ok(smallvec![Fact::new(x[0].dtype, reduced_shape(&x[0].shape, &self.axes, self.keepdims)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num<Wide = f64>>(op: &Var, cx: &mut EvalCx<'_>) -> Result<()> {
            let n = reduced_elems(cx.x[0].shape(), &op.axes);
            run::<T, T>(cx, &op.axes, Mean { n })?;
            run::<T, T>(cx, &op.axes, Deviation { n, divisor: op.divisor(n) })
        }
        let dtype = cx.x[0].dtype();
        for_float!(dtype, T => go::<T>(self, cx), else Err(Error::new(ErrorKind::DType, format!("not for {dtype}"))))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let (c, x) = (Chain(cx), cx.x(0));
        let shape = cx.fact(x).shape;
        let mean = cx.apply(Reduce { f: ReduceFn::Mean, axes: self.axes.clone(), keepdims: true }, &[x])?;
        let dy = c.reshape(dy, &with_ones(&shape, &self.axes))?;
        let slope = c.scale(dy, 2.0 / self.divisor(reduced_elems(&shape, &self.axes)))?;
        Ok(smallvec![Some(c.mul(c.sub(x, mean)?, slope)?)])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let once = Cost::bytes(x, y);
        Cost { flops: 4 * x.iter().map(|f| f.elems() as u64).sum::<u64>(), bytes: 2 * once.bytes }
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
