use remat_kernels::reduce::{self, Num, Plan, Reducer};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, SmallVec, Storage, bf16, f16, for_storage, smallvec};
use serde::{Deserialize, Serialize};

use super::prod_grad::grad_prod;
use super::{not_empty, reduced_elems, reduced_shape, with_ones};
use crate::args::real_dtype;
use crate::host::arity;
use crate::pointwise::{BinaryFn, Cast, Compare, CompareFn, UnaryFn};
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::shape::BroadcastTo;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample, Tolerance, Var};

/// A function of the elements that fall on one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceFn {
    /// The sum; 0 of nothing. Integers wrap; bools give the count of true as I64.
    Sum,
    /// The mean, of floats; NaN of nothing.
    Mean,
    /// The product; 1 of nothing. Integers wrap.
    Prod,
    /// The largest; NaN if there is one. The gradient is shared equally among equal ones, or among all NaN.
    Max,
    /// The smallest; as `Max`.
    Min,
    /// Whether any is true, of bools; false of nothing.
    Any,
    /// Whether all are true, of bools; true of nothing.
    All,
    /// The sum of squares; 0 of nothing. Integers wrap.
    SumSqr,
    /// The Euclidean norm, of floats: the root of the sum of squares, which is never rounded to their dtype between the two;
    /// 0 of nothing. f16 and bf16 give f32: the norm of many is beyond them. The gradient where it is 0 is 0.
    Norm,
    /// The sum of integers as I64, of unsigned ones as U64, as in NumPy: those wrap, narrower ones cannot. 0 of nothing.
    SumWide,
    /// The product of integers in the dtypes of `SumWide`; 1 of nothing.
    ProdWide,
}

/// `y[k] = f { x[k, r] : all r }` over the elements `r` of `axes`.
///
/// `y` has the axes of `x` without `axes`, or with extent 1 there if `keepdims`. f16, bf16 and f32 are added up in f32
/// within blocks and in f64 across them, rounded once; the order depends on sizes only. No axes: `f` of single elements.
///
/// Errors: Axis for one out of range or named twice; DType outside the domain of `f`; Shape for the max or min of
/// nothing. The gradients of a product, of all orders, are right where elements are zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Reduce {
    /// The function.
    pub f: ReduceFn,
    /// The reduced axes.
    pub axes: SmallVec<[usize; 4]>,
    /// Whether they stay with extent 1.
    #[param(default = false)]
    pub keepdims: bool,
}

impl ReduceFn {
    /// The dtype of the output. Errors: DType outside the domain.
    fn dtype(self, x: DType) -> Result<DType> {
        let defined = match self {
            ReduceFn::Sum | ReduceFn::Max | ReduceFn::Min => true,
            ReduceFn::Mean | ReduceFn::Norm => x.is_float(),
            ReduceFn::Prod | ReduceFn::SumSqr => x != DType::Bool,
            ReduceFn::Any | ReduceFn::All => x == DType::Bool,
            ReduceFn::SumWide | ReduceFn::ProdWide => x.is_int(),
        };
        if !defined {
            return Err(Error::new(ErrorKind::DType, format!("is not defined for {x}")));
        }
        Ok(match self {
            ReduceFn::Sum if x == DType::Bool => DType::I64,
            ReduceFn::Norm => real_dtype(x),
            ReduceFn::SumWide | ReduceFn::ProdWide if x.is_signed_int() => DType::I64,
            ReduceFn::SumWide | ReduceFn::ProdWide => DType::U64,
            _ => x,
        })
    }
}

/// Runs a reducer from input 0 to output 0.
pub(super) fn run<T: Storage, U: Storage>(cx: &mut EvalCx<'_>, axes: &[usize], r: impl Reducer<T, U>) -> Result<()> {
    let plan = Plan::new(cx.x[0].shape(), axes);
    reduce::reduce(cx.pool, r, cx.x[0].slice()?, &plan, cx.y[0].slice_mut()?);
    Ok(())
}

/// A caller of the reducer for a function and an element type.
pub(crate) trait WithReducer: Sized {
    /// From elements `T` to `U`.
    fn with<T: Storage, U: Storage>(self, r: impl Reducer<T, U>) -> Result<()>;
}

/// All of input 0, at once.
struct Whole<'c, 'd> {
    cx: &'c mut EvalCx<'d>,
    axes: &'c [usize],
}

impl WithReducer for Whole<'_, '_> {
    fn with<T: Storage, U: Storage>(self, r: impl Reducer<T, U>) -> Result<()> {
        run(self.cx, self.axes, r)
    }
}

impl ReduceFn {
    /// Hands the reducer to `to`. Its elements are of dtype `x`, and `n` of them fall on one output.
    pub(crate) fn reducer(self, x: DType, n: usize, to: impl WithReducer) -> Result<()> {
        fn go<T: Num>(f: ReduceFn, to: impl WithReducer) -> Result<()> {
            match f {
                ReduceFn::Prod => to.with::<T, T>(reduce::Prod),
                ReduceFn::SumSqr => to.with::<T, T>(reduce::SumSqr),
                ReduceFn::Max => to.with::<T, T>(reduce::Max),
                ReduceFn::Min => to.with::<T, T>(reduce::Min),
                _ => to.with::<T, T>(reduce::Sum),
            }
        }
        /// `$f` of an integer that is narrower than its result; of a wide one it is the plain function.
        macro_rules! widened {
            ($reducer:expr, $plain:expr) => {
                match x {
                    DType::I8 => to.with::<i8, i64>($reducer),
                    DType::I16 => to.with::<i16, i64>($reducer),
                    DType::I32 => to.with::<i32, i64>($reducer),
                    DType::U8 => to.with::<u8, u64>($reducer),
                    DType::U16 => to.with::<u16, u64>($reducer),
                    DType::U32 => to.with::<u32, u64>($reducer),
                    DType::U64 => to.with::<u64, u64>($plain),
                    _ => to.with::<i64, i64>($plain),
                }
            };
        }
        match (self, x) {
            (ReduceFn::SumWide, _) => widened!(reduce::SumWide, reduce::Sum),
            (ReduceFn::ProdWide, _) => widened!(reduce::ProdWide, reduce::Prod),
            (ReduceFn::Sum, DType::Bool) => to.with::<u8, i64>(reduce::Count),
            (ReduceFn::Any | ReduceFn::Max, DType::Bool) => to.with::<u8, u8>(reduce::Any),
            (_, DType::Bool) => to.with::<u8, u8>(reduce::All),
            (ReduceFn::Mean, DType::F16) => to.with::<f16, f16>(reduce::Mean { n }),
            (ReduceFn::Mean, DType::BF16) => to.with::<bf16, bf16>(reduce::Mean { n }),
            (ReduceFn::Mean, DType::F32) => to.with::<f32, f32>(reduce::Mean { n }),
            (ReduceFn::Mean, _) => to.with::<f64, f64>(reduce::Mean { n }),
            (ReduceFn::Norm, DType::F16) => to.with::<f16, f32>(reduce::Norm),
            (ReduceFn::Norm, DType::BF16) => to.with::<bf16, f32>(reduce::Norm),
            (ReduceFn::Norm, DType::F32) => to.with::<f32, f32>(reduce::Norm),
            (ReduceFn::Norm, _) => to.with::<f64, f64>(reduce::Norm),
            _ => for_storage!(x, T => go::<T>(self, to)),
        }
    }
}

impl Reduce {
    /// Where `x` is the extreme `y`. A NaN among the elements is the extreme, and equals nothing.
    fn chosen(cx: &GradCx<'_>, x: Var, y: Var) -> Result<Var> {
        let equal = cx.apply(Compare { f: CompareFn::Eq }, &[x, y])?;
        cx.build().bin(BinaryFn::LogicalOr, equal, cx.build().un(UnaryFn::IsNan, x)?)
    }
}

impl Op for Reduce {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let dtype = self.f.dtype(x[0].dtype)?;
        let y = reduced_shape(&x[0].shape, &self.axes, self.keepdims)?;
        if matches!(self.f, ReduceFn::Max | ReduceFn::Min) {
            not_empty(&x[0].shape, &self.axes, &y, "extreme")?;
        }
        Ok(smallvec![Fact::new(dtype, y)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, n) = (cx.x[0].dtype(), reduced_elems(cx.x[0].shape(), &self.axes));
        self.f.reducer(dtype, n, Whole { cx, axes: &self.axes })
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let fact = cx.fact(cx.x(0));
        let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) else { return Ok(smallvec![None]) };
        let (c, x, ones) = (cx.build(), cx.x(0), with_ones(&fact.shape, &self.axes));
        let dy = c.reshape(dy, &ones)?;
        let spread = |v: Var| cx.apply(BroadcastTo { shape: fact.shape.clone() }, &[v]);
        let y = || c.reshape(cx.y(0), &ones);
        let n = reduced_elems(&fact.shape, &self.axes);
        Ok(smallvec![Some(match self.f {
            ReduceFn::Sum => spread(dy)?,
            ReduceFn::Mean => spread(c.scale(dy, 1.0 / n as f64)?)?,
            ReduceFn::SumSqr => c.bin(BinaryFn::SquareGrad, dy, x)?,
            ReduceFn::Prod => grad_prod(cx, x, dy, &self.axes)?,
            ReduceFn::Norm => c.mul(c.bin(BinaryFn::DivOrZero, x, y()?)?, dy)?,
            ReduceFn::Max | ReduceFn::Min => {
                let chosen = Self::chosen(cx, x, y()?)?;
                let ties = Reduce { f: ReduceFn::Sum, axes: self.axes.clone(), keepdims: true };
                let ties = cx.apply(ties, &[chosen])?;
                let share = c.un(UnaryFn::Recip, cx.apply(Cast { dtype: real_dtype(fact.dtype) }, &[ties])?)?;
                c.keep_where(chosen, spread(c.mul(dy, share)?)?)?
            }
            ReduceFn::Any | ReduceFn::All | ReduceFn::SumWide | ReduceFn::ProdWide => return Ok(smallvec![None]),
        })])
    }
}

impl OpDef for Reduce {
    const NAME: &'static str = "reduce";

    fn label(&self) -> &'static str {
        match self.f {
            ReduceFn::Sum | ReduceFn::SumWide => "sum",
            ReduceFn::Mean => "mean",
            ReduceFn::Prod | ReduceFn::ProdWide => "prod",
            ReduceFn::Max => "max",
            ReduceFn::Min => "min",
            ReduceFn::Any => "any",
            ReduceFn::All => "all",
            ReduceFn::SumSqr => "sum_sqr",
            ReduceFn::Norm => "norm",
        }
    }

    fn samples() -> Vec<Sample<Self>> {
        use ReduceFn::*;
        let op = |f, axes: &[usize], keepdims| Reduce { f, axes: axes.into(), keepdims };
        let x = || t(&[1.0f32, 2., 3., 4., -5., 6.5], [2, 3]);
        let cube = || {
            let v: Vec<f64> = (0..24).map(|i| f64::from(i * i % 17) * 0.25 - 1.5).collect();
            t(&v, [2, 3, 2, 2])
        };
        let inf = f32::INFINITY;
        let mut out = vec![
            Sample::new(op(Sum, &[1], false), vec![x()]).gives(vec![t(&[6.0f32, 5.5], [2])]),
            Sample::new(op(Sum, &[0], true), vec![x()]).gives(vec![t(&[5.0f32, -3., 9.5], [1, 3])]),
            Sample::new(op(Sum, &[], false), vec![x()]).gives(vec![x()]),
            Sample::new(op(Sum, &[0, 1], false), vec![x()]).gives(vec![t(&[11.5f32], [])]),
            Sample::new(op(Sum, &[3, 0, 2], false), vec![cube()]),
            Sample::new(op(Sum, &[0, 2], true), vec![cube()]),
            Sample::new(op(Sum, &[0], false), vec![t(&[200u8, 100], [2])]).gives(vec![t(&[44u8], [])]),
            Sample::new(op(Sum, &[0], false), vec![t(&[true, true, false], [3])]).gives(vec![t(&[2i64], [])]),
            Sample::new(op(Sum, &[0], false), vec![t::<f32>(&[], [0, 2])]).gives(vec![t(&[0.0f32, 0.0], [2])]),
            Sample::new(op(Mean, &[1], false), vec![x()]).gives(vec![t(&[2.0f32, 5.5 / 3.0], [2])]),
            Sample::new(op(Mean, &[0], false), vec![t::<f32>(&[], [0])]).gives(vec![t(&[f32::NAN], [])]),
            Sample::new(op(Prod, &[1], false), vec![x()]).gives(vec![t(&[6.0f32, -130.0], [2])]),
            // zeros are factors like others, to all orders
            Sample::new(op(Prod, &[1], false), vec![t(&[2.0f32, 0., 3., 0., 0., 1.5, -2., 0.5, 0., 3.], [2, 5])])
                .gives(vec![t(&[0.0f32, 0.], [2])]),
            Sample::new(
                op(Prod, &[2, 0], true),
                vec![t(&[2.0f32, 0., 3., 0., -1., 1.5, 0., 0.5, 0., 3., 4., 2.], [2, 2, 3])],
            )
            .gives(vec![t(&[0.0f32, 0.], [1, 2, 1])]),
            Sample::new(op(Prod, &[0], false), vec![t(&[300.0f32, 300., 0.001].map(f16::from_f32), [3])])
                .gives(vec![t(&[90.0f32].map(f16::from_f32), [])]),
            Sample::new(op(Prod, &[0], false), vec![t::<f32>(&[], [0, 2])])
                .gives(vec![t(&[1.0f32, 1.], [2])])
                .no_grad("empty"),
            Sample::new(op(Prod, &[0], false), vec![t::<i32>(&[], [0])]).gives(vec![t(&[1i32], [])]),
            Sample::new(op(Prod, &[1], true), vec![t(&[16i8, 16, 2, -3], [2, 2])]).gives(vec![t(&[0i8, -6], [2, 1])]),
            Sample::new(op(Max, &[1], false), vec![x()]).gives(vec![t(&[3.0f32, 6.5], [2])]),
            Sample::new(op(Min, &[0], true), vec![x()]).gives(vec![t(&[1.0f32, -5., 3.], [1, 3])]),
            Sample::new(op(Max, &[0], false), vec![t(&[f32::NAN, inf, -inf], [3])])
                .gives(vec![t(&[f32::NAN], [])])
                .no_grad("NaN"),
            Sample::new(op(Max, &[1], false), vec![t(&[1i64, i64::MAX, i64::MIN, -7], [2, 2])])
                .gives(vec![t(&[i64::MAX, -7], [2])]),
            Sample::new(op(Min, &[0], false), vec![t(&[true, false], [2])]).gives(vec![t(&[false], [])]),
            Sample::new(op(Max, &[0], false), vec![t::<f32>(&[], [2, 0])]).gives(vec![t::<f32>(&[], [0])]),
            Sample::new(op(Any, &[1], false), vec![t(&[true, false, false, false], [2, 2])])
                .gives(vec![t(&[true, false], [2])]),
            Sample::new(op(All, &[1], true), vec![t(&[true, true, false, true], [2, 2])])
                .gives(vec![t(&[true, false], [2, 1])]),
            Sample::new(op(All, &[0], false), vec![t::<bool>(&[], [0])]).gives(vec![t(&[true], [])]),
            Sample::new(op(SumSqr, &[1], false), vec![x()]).gives(vec![t(&[14.0f32, 83.25], [2])]),
            Sample::new(op(SumSqr, &[0, 2, 3], false), vec![cube()]),
            Sample::new(op(Norm, &[1], false), vec![t(&[3.0f32, 4.0, 0.0, -5.0, 12.0, 0.0], [2, 3])])
                .gives(vec![t(&[5.0f32, 13.0], [2])]),
            Sample::new(op(Norm, &[0, 3], true), vec![cube()]),
            Sample::new(op(Norm, &[0], false), vec![t(&[f16::from_f32(300.0), f16::from_f32(400.0)], [2])])
                .gives(vec![t(&[500.0f32], [])])
                .within(Tolerance::Exact),
            Sample::new(op(Norm, &[0], false), vec![t(&[bf16::MAX; 4], [4])])
                .gives(vec![t(&[inf], [])])
                .no_grad("infinite"),
            Sample::new(op(Norm, &[0], false), vec![t(&[3e30f32, 4e30, 3e-30, 4e-30], [2, 2])])
                .gives(vec![t(&[3e30f32, 4e30], [2])])
                .no_grad("far from 1"),
            Sample::new(op(Norm, &[0, 1], false), vec![t::<f64>(&[], [2, 0])]).gives(vec![t(&[0.0f64], [])]),
        ];
        out.extend([
            Sample::new(op(SumWide, &[0], false), vec![t(&[200u8, 100], [2])]).gives(vec![t(&[300u64], [])]),
            Sample::new(op(SumWide, &[1], true), vec![t(&[i32::MAX, 1, -1, -5], [2, 2])])
                .gives(vec![t(&[1i64 << 31, -6], [2, 1])]),
            Sample::new(op(SumWide, &[0], false), vec![t(&[i64::MAX, 1], [2])]).gives(vec![t(&[i64::MIN], [])]),
            Sample::new(op(SumWide, &[0], false), vec![t::<i8>(&[], [0])]).gives(vec![t(&[0i64], [])]),
            Sample::new(op(ProdWide, &[0], false), vec![t(&[100i8, -100, 7], [3])]).gives(vec![t(&[-70_000i64], [])]),
            Sample::new(op(ProdWide, &[0], false), vec![t(&[u32::MAX, 2], [2])])
                .gives(vec![t(&[u64::from(u32::MAX) * 2], [])]),
            Sample::new(op(ProdWide, &[0], false), vec![t::<u16>(&[], [0])]).gives(vec![t(&[1u64], [])]),
            Sample::new(op(SumWide, &[0], false), vec![t(&[1.0f32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Sum, &[2], false), vec![x()]).fails(ErrorKind::Axis),
            Sample::new(op(Sum, &[1, 1], false), vec![x()]).fails(ErrorKind::Axis),
            Sample::new(op(Max, &[1], false), vec![t::<f32>(&[], [2, 0])]).fails(ErrorKind::Shape),
            Sample::new(op(Mean, &[0], false), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Norm, &[0], false), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Any, &[0], false), vec![t(&[1u8], [1])]).fails(ErrorKind::DType),
        ]);
        out
    }
}
