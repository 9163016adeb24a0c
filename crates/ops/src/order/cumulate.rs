use remat_kernels::cumulate;
use remat_kernels::reduce::Num;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, for_float, for_storage, smallvec};
use serde::{Deserialize, Serialize};

use super::{Recurrence, along, axis_in, neighbour};
use crate::args::{not_taken, outputs, want_float};
use crate::host::arity;
use crate::index::{PutFn, Scatter, added_to_zeros};
use crate::pointwise::{Compare, CompareFn, UnaryFn};
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample, Var, compose};

/// A function of an element and those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CumulateFn {
    /// The sum. Integers wrap; bools give the count of true as I64.
    Sum,
    /// The product, of numbers. Integers wrap.
    Prod,
    /// The largest, and where it is: the last of equal ones, or the last NaN.
    Max,
    /// The smallest, as `Max`.
    Min,
    /// `ln sum exp`, of floats; -inf of nothing.
    LogSumExp,
}

/// `y[i] = f { x[j] : all j up to i }` along `axis`.
///
/// If `exclusive`, of all `j` before `i`: 0, 1 or -inf of nothing. If `reverse`, the axis is walked from its end. `Max` and `Min`
/// have a second output, the places along the axis as I64. Floats are added up in f64 and rounded for each element. Every
/// gradient, of all orders, is right where elements are zero.
///
/// Errors: Axis if out of range; DType outside the domain of `f`; Value for an exclusive extreme.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Cumulate {
    /// The function.
    pub f: CumulateFn,
    /// The axis.
    pub axis: usize,
    /// Whether an element itself does not count.
    #[param(default = false)]
    pub exclusive: bool,
    /// Whether the axis is walked from its end.
    #[param(default = false)]
    pub reverse: bool,
}

impl Cumulate {
    /// `dx[j] = (product of x before j) (sum of dy[i] (product of x between j and i) : all i from j on)`: no division, so zeros
    /// are factors like others.
    fn grad_prod(&self, cx: &GradCx<'_>, dy: Var) -> Result<Var> {
        let (x, axis, of_end) = (cx.x(0), self.axis, !self.reverse);
        let next = neighbour(cx, x, axis, of_end, 0.0)?;
        let (before, dy) = if self.exclusive {
            (cx.y(0), neighbour(cx, dy, axis, of_end, 0.0)?)
        } else {
            (cx.apply(Cumulate { exclusive: true, ..self.clone() }, &[x])?, dy)
        };
        let behind = cx.apply(Recurrence { axis, reverse: of_end }, &[next, dy])?;
        cx.build().mul(before, behind)
    }

    /// `dx[j] = sum of dy[i] exp(x[j] - y[i]) : all i from j on`, as a recurrence over factors that are at most 1.
    fn grad_log_sum_exp(&self, cx: &GradCx<'_>, dy: Var) -> Result<Var> {
        let (c, axis, of_end) = (cx.build(), self.axis, !self.reverse);
        let x = compose::widened(cx, cx.x(0))?;
        let wide = compose::widened(cx, dy)?;
        let (y, dy) = if self.exclusive {
            let y = cx.apply(Cumulate { exclusive: false, ..self.clone() }, &[x])?;
            (y, neighbour(cx, wide, axis, of_end, 0.0)?)
        } else {
            (compose::widened(cx, cx.y(0))?, wide)
        };
        // where all are -inf any finite number does, so that no share is exp(-inf + inf)
        let nothing = cx.apply(Compare { f: CompareFn::Eq }, &[y, c.constant(f64::NEG_INFINITY, &y)?])?;
        let finite = c.drop_where(nothing, y)?;
        let next = neighbour(cx, finite, axis, of_end, f64::INFINITY)?;
        let factor = c.un(UnaryFn::Exp, c.sub(y, next)?)?;
        let behind = cx.apply(Recurrence { axis, reverse: of_end }, &[factor, dy])?;
        let dx = c.mul(c.un(UnaryFn::Exp, c.sub(x, finite)?)?, behind)?;
        compose::narrowed(cx, dx, &cx.x(0))
    }
}

impl Op for Cumulate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        axis_in(self.axis, &x[0].shape)?;
        let (dtype, shape) = (x[0].dtype, &x[0].shape);
        match self.f {
            CumulateFn::LogSumExp => want_float(x[0], "x")?,
            CumulateFn::Prod if dtype == DType::Bool => return Err(not_taken(dtype)),
            CumulateFn::Max | CumulateFn::Min if self.exclusive => {
                return Err(Error::new(ErrorKind::Value, "nothing has no extreme: exclusive is for sums and products"));
            }
            CumulateFn::Max | CumulateFn::Min => {
                return Ok(smallvec![Fact::new(dtype, shape.clone()), Fact::new(DType::I64, shape.clone())]);
            }
            _ => {}
        }
        let counts = self.f == CumulateFn::Sum && dtype == DType::Bool;
        Ok(smallvec![Fact::new(if counts { DType::I64 } else { dtype }, shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num>(op: &Cumulate, cx: &mut EvalCx<'_>) -> Result<()> {
            let (pool, x) = (cx.pool, cx.x[0].slice::<T>()?);
            let along = along(cx.x[0].shape(), op.axis, op.reverse, op.exclusive);
            match op.f {
                CumulateFn::Sum => cumulate::sum(pool, along, x, cx.y[0].slice_mut()?),
                CumulateFn::Prod => cumulate::product(pool, along, x, cx.y[0].slice_mut()?),
                f => {
                    let [y, at] = outputs::<2>(cx.y)?;
                    let largest = f == CumulateFn::Max;
                    cumulate::extreme(pool, largest, along, x, y.slice_mut()?, at.slice_mut()?);
                }
            }
            Ok(())
        }
        let dtype = cx.x[0].dtype();
        if self.f == CumulateFn::LogSumExp {
            let along = along(cx.x[0].shape(), self.axis, self.reverse, self.exclusive);
            return for_float!(dtype, T => {
                cumulate::log_sum_exp::<T>(cx.pool, along, cx.x[0].slice()?, cx.y[0].slice_mut()?);
                Ok(())
            }, else Err(not_taken(dtype)));
        }
        if self.f == CumulateFn::Sum && dtype == DType::Bool {
            let along = along(cx.x[0].shape(), self.axis, self.reverse, self.exclusive);
            cumulate::count(cx.pool, along, cx.x[0].slice()?, cx.y[0].slice_mut()?);
            return Ok(());
        }
        for_storage!(dtype, T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let fact = cx.fact(cx.x(0));
        let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(match self.f {
            CumulateFn::Sum => cx.apply(Cumulate { reverse: !self.reverse, ..self.clone() }, &[dy])?,
            CumulateFn::Prod => self.grad_prod(cx, dy)?,
            CumulateFn::LogSumExp => self.grad_log_sum_exp(cx, dy)?,
            CumulateFn::Max | CumulateFn::Min => {
                added_to_zeros(cx, Scatter { f: PutFn::Add, axis: self.axis }, &fact, dy, &[cx.y(1)])?
            }
        })])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let each = if self.f == CumulateFn::LogSumExp { 40 } else { 4 };
        Cost::bytes(x, y).with_flops(each * x.iter().map(|f| f.elems() as u64).sum::<u64>())
    }
}

impl OpDef for Cumulate {
    const NAME: &'static str = "cumulate";

    fn label(&self) -> &'static str {
        match self.f {
            CumulateFn::Sum => "cumsum",
            CumulateFn::Prod => "cumprod",
            CumulateFn::Max => "cummax",
            CumulateFn::Min => "cummin",
            CumulateFn::LogSumExp => "logcumsumexp",
        }
    }

    fn samples() -> Vec<Sample<Self>> {
        use CumulateFn::*;
        let op = |f, axis, exclusive, reverse| Cumulate { f, axis, exclusive, reverse };
        let x = || t(&[1.0f32, 2., 3., 4., -5., 6.5], [2, 3]);
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let cube = || t(&(0..24).map(|i| f64::from(i * i % 17) * 0.25 - 1.6).collect::<Vec<_>>(), [2, 3, 4]);
        let logs = |v: [f64; 3]| t(&v.map(f64::ln), [3]);
        vec![
            Sample::new(op(Sum, 1, false, false), vec![x()]).gives(vec![t(&[1.0f32, 3., 6., 4., -1., 5.5], [2, 3])]),
            Sample::new(op(Sum, 1, true, false), vec![x()]).gives(vec![t(&[0.0f32, 1., 3., 0., 4., -1.], [2, 3])]),
            Sample::new(op(Sum, 1, false, true), vec![x()]).gives(vec![t(&[6.0f32, 5., 3., 5.5, 1.5, 6.5], [2, 3])]),
            Sample::new(op(Sum, 0, true, true), vec![x()]).gives(vec![t(&[4.0f32, -5., 6.5, 0., 0., 0.], [2, 3])]),
            Sample::new(op(Sum, 1, false, false), vec![cube()]),
            Sample::new(op(Sum, 0, false, false), vec![t(&[200u8, 100], [2])]).gives(vec![t(&[200u8, 44], [2])]),
            Sample::new(op(Sum, 0, true, false), vec![t(&[true, false, true], [3])]).gives(vec![t(&[0i64, 1, 1], [3])]),
            Sample::new(op(Prod, 1, false, false), vec![x()])
                .gives(vec![t(&[1.0f32, 2., 6., 4., -20., -130.], [2, 3])]),
            Sample::new(op(Prod, 1, true, true), vec![x()]).gives(vec![t(&[6.0f32, 3., 1., -32.5, 6.5, 1.], [2, 3])]),
            // zeros are factors like others, to all orders
            Sample::new(op(Prod, 0, false, false), vec![t(&[2.0f32, 0., 3., 0., 5.], [5])])
                .gives(vec![t(&[2.0f32, 0., 0., 0., 0.], [5])]),
            Sample::new(op(Prod, 0, true, false), vec![t(&[2.0f32, 0., 3., 4., 5.], [5])])
                .gives(vec![t(&[1.0f32, 2., 0., 0., 0.], [5])]),
            Sample::new(op(Prod, 2, false, true), vec![cube()]),
            Sample::new(op(Prod, 0, false, false), vec![t(&[16i8, 16], [2])]).gives(vec![t(&[16i8, 0], [2])]),
            Sample::new(op(Max, 1, false, false), vec![x()])
                .gives(vec![t(&[1.0f32, 2., 3., 4., 4., 6.5], [2, 3]), t(&[0i64, 1, 2, 0, 0, 2], [2, 3])]),
            Sample::new(op(Min, 0, false, true), vec![x()])
                .gives(vec![t(&[1.0f32, -5., 3., 4., -5., 6.5], [2, 3]), t(&[0i64, 1, 0, 1, 1, 1], [2, 3])]),
            Sample::new(op(Max, 0, false, false), vec![t(&[1.0f32, 1., nan, 2., nan], [5])])
                .gives(vec![t(&[1.0f32, 1., nan, nan, nan], [5]), t(&[0i64, 1, 2, 2, 4], [5])])
                .no_grad("NaN"),
            Sample::new(op(Min, 0, false, false), vec![t(&[true, false], [2])])
                .gives(vec![t(&[true, false], [2]), t(&[0i64, 1], [2])]),
            Sample::new(op(LogSumExp, 0, false, false), vec![logs([1., 2., 5.])]).gives(vec![logs([1., 3., 8.])]),
            Sample::new(op(LogSumExp, 0, false, true), vec![logs([1., 2., 5.])]).gives(vec![logs([8., 7., 5.])]),
            Sample::new(op(LogSumExp, 1, false, false), vec![cube()]),
            Sample::new(op(LogSumExp, 0, true, false), vec![logs([1., 2., 5.])])
                .gives(vec![t(&[f64::NEG_INFINITY, 0., 3f64.ln()], [3])])
                .no_grad("the first is -inf"),
            Sample::new(op(LogSumExp, 0, false, false), vec![t(&[-inf, -inf, 800., 800., inf, 0.], [6])])
                .gives(vec![t(&[-inf, -inf, 800., 800.693_1, inf, inf], [6])])
                .no_grad("infinite"),
            Sample::new(op(Sum, 1, false, false), vec![t::<f32>(&[], [2, 0])]).gives(vec![t::<f32>(&[], [2, 0])]),
            Sample::new(op(Sum, 2, false, false), vec![x()]).fails(ErrorKind::Axis),
            Sample::new(op(Max, 1, true, false), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(Prod, 0, false, false), vec![t(&[true], [1])]).fails(ErrorKind::DType),
            Sample::new(op(LogSumExp, 0, false, false), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
        ]
    }
}
