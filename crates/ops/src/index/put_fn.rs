//! Functions that combine an element with the one put there, and their gradients.

use remat_kernels::index::Put;
use remat_types::{DType, Error, ErrorKind, Fact, Result, Scalar, Shape, SmallVec};
use serde::{Deserialize, Serialize};

use crate::args::real_dtype;
use crate::pointwise::{Arange, BinaryFn, Cast, Compare, CompareFn, Fill, UnaryFn, Where};
use crate::schema::Choice;
use crate::shape::BroadcastTo;
use crate::{GradCx, OpRef, Var};

/// A function of an element and the element put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PutFn {
    /// The element put there; the last one if there are several.
    Set,
    /// The sum, of numbers.
    Add,
    /// The product, of numbers.
    Mul,
    /// The larger; NaN if either is. The gradient is shared equally among equal ones, or among all NaN.
    Max,
    /// The smaller; as `Max`.
    Min,
}

impl PutFn {
    pub(super) fn kernel(self) -> Put {
        match self {
            PutFn::Set => Put::Set,
            PutFn::Add => Put::Add,
            PutFn::Mul => Put::Mul,
            PutFn::Max => Put::Max,
            PutFn::Min => Put::Min,
        }
    }

    /// Errors (DType) where `x` and `src` are of two dtypes, or of bools and the function is of numbers.
    pub(super) fn takes(self, x: &Fact, src: &Fact) -> Result<()> {
        if x.dtype != src.dtype {
            let text = format!("the source is {}, the tensor {}", src.dtype, x.dtype);
            return Err(Error::new(ErrorKind::DType, text));
        }
        if x.dtype == DType::Bool && matches!(self, PutFn::Add | PutFn::Mul) {
            return Err(Error::new(ErrorKind::DType, "is not defined for bool"));
        }
        Ok(())
    }
}

/// Zeros of a dtype and shape plus what `op` adds to them of `dy`; 16-bit floats are added up in f32 and rounded once.
pub(crate) fn added_to_zeros(
    cx: &GradCx<'_>,
    op: impl Into<OpRef>,
    fact: &Fact,
    dy: Var,
    index: &[Var],
) -> Result<Var> {
    let dtype = real_dtype(fact.dtype);
    let zeros = cx.apply(Fill { dtype, shape: fact.shape.clone(), value: Scalar::Int(0) }, &[])?;
    let wide = cast(cx, dy, dtype)?;
    let x: SmallVec<[Var; 6]> = [zeros, wide].into_iter().chain(index.iter().copied()).collect();
    cast(cx, cx.apply(op, &x)?, fact.dtype)
}

fn cast(cx: &GradCx<'_>, v: Var, dtype: DType) -> Result<Var> {
    if cx.fact(v).dtype == dtype { Ok(v) } else { cx.apply(Cast { dtype }, &[v]) }
}

/// The number, as often as `shape` says; no memory.
fn constant(cx: &GradCx<'_>, dtype: DType, shape: &Shape, value: f64) -> Result<Var> {
    let one = cx.apply(Fill { dtype, shape: Shape::scalar(), value: value.into() }, &[])?;
    cx.apply(BroadcastTo { shape: shape.clone() }, &[one])
}

/// An op that puts input 1 into input 0, seen from its gradient rule.
pub(super) struct PutGrad<'a, 'b> {
    pub(super) cx: &'a GradCx<'b>,
    pub(super) f: PutFn,
    /// Applies the op with another function, to other values of the same shapes.
    pub(super) put: &'a dyn Fn(PutFn, Var, Var) -> Result<Var>,
    /// Reads a value at the place where each element of the source goes; 0 if it goes nowhere.
    pub(super) get: &'a dyn Fn(Var) -> Result<Var>,
    /// True if no place can be named twice.
    pub(super) is_apart: bool,
}

impl PutGrad<'_, '_> {
    /// The gradients of tensor and source, of those that are needed.
    pub(super) fn gradients(&self, dy: Var) -> Result<[Option<Var>; 2]> {
        match self.f {
            PutFn::Set => {
                let (c, of) = (self.cx.build(), self.cx.fact(self.cx.x(1)));
                let zeros = || constant(self.cx, of.dtype, &of.shape, 0.0);
                let dsrc =
                    || if self.is_apart { (self.get)(dy) } else { c.keep_where(self.stays(&of)?, (self.get)(dy)?) };
                self.needed(|| (self.put)(PutFn::Set, dy, zeros()?), dsrc)
            }
            PutFn::Add => self.needed(|| Ok(dy), || (self.get)(dy)),
            PutFn::Mul => self.of_product(dy),
            PutFn::Max | PutFn::Min => self.of_extreme(dy),
        }
    }

    fn needed(&self, dx: impl FnOnce() -> Result<Var>, dsrc: impl FnOnce() -> Result<Var>) -> Result<[Option<Var>; 2]> {
        let dx = if self.cx.needs(0) { Some(dx()?) } else { None };
        let dsrc = if self.cx.needs(1) { Some(dsrc()?) } else { None };
        Ok([dx, dsrc])
    }

    /// Where an element of the source is the last that was set at its place: what puts their numbers there tells.
    fn stays(&self, src: &Fact) -> Result<Var> {
        let (cx, len) = (self.cx, src.elems());
        let dtype = if i32::try_from(len).is_ok() { DType::I32 } else { DType::I64 };
        let numbers = cx.apply(Arange { dtype, start: 0.into(), step: 1.into(), len }, &[])?;
        let numbers = cx.build().reshape(numbers, &src.shape)?;
        let shape = cx.fact(cx.x(0)).shape;
        let nothing = cx.apply(Fill { dtype, shape, value: Scalar::Int(0) }, &[])?;
        let last = (self.get)((self.put)(PutFn::Set, nothing, numbers)?)?;
        cx.apply(Compare { f: CompareFn::Eq }, &[last, numbers])
    }

    fn is(&self, v: Var, number: f64) -> Result<Var> {
        let number = self.cx.build().constant(number, &v)?;
        self.cx.apply(Compare { f: CompareFn::Eq }, &[v, number])
    }

    /// Each factor's gradient is the product of the others, which division gives only where no factor is 0.
    fn of_product(&self, dy: Var) -> Result<[Option<Var>; 2]> {
        let (cx, c) = (self.cx, self.cx.build());
        let (x, src, dtype) = (cx.x(0), cx.x(1), cx.fact(cx.x(0)).dtype);
        let (x_is_0, src_is_0) = (self.is(x, 0.0)?, self.is(src, 0.0)?);
        let one = c.constant(1.0, &x)?;
        let (x_or_1, src_or_1) = (cx.apply(Where, &[x_is_0, one, x])?, cx.apply(Where, &[src_is_0, one, src])?);
        let zeros = (self.put)(PutFn::Add, cast(cx, x_is_0, dtype)?, cast(cx, src_is_0, dtype)?)?;
        let others = c.mul(dy, (self.put)(PutFn::Mul, x_or_1, src_or_1)?)?;
        let none = c.keep_where(self.is(zeros, 0.0)?, others)?;
        let single = c.keep_where(self.is(zeros, 1.0)?, others)?;
        self.needed(
            || cx.apply(Where, &[x_is_0, single, c.div(none, x_or_1)?]),
            || cx.apply(Where, &[src_is_0, (self.get)(single)?, c.div((self.get)(none)?, src_or_1)?]),
        )
    }

    /// Where `v` is the extreme: a NaN is one, and equals nothing.
    fn chosen(&self, v: Var, extreme: Var) -> Result<Var> {
        let c = self.cx.build();
        let equal = self.cx.apply(Compare { f: CompareFn::Eq }, &[v, extreme])?;
        c.bin(BinaryFn::LogicalOr, equal, c.un(UnaryFn::IsNan, v)?)
    }

    /// Those that are the extreme share the gradient.
    fn of_extreme(&self, dy: Var) -> Result<[Option<Var>; 2]> {
        let (cx, c) = (self.cx, self.cx.build());
        let (x, src, y) = (cx.x(0), cx.x(1), cx.y(0));
        let (x_is, src_is) = (self.chosen(x, y)?, self.chosen(src, (self.get)(y)?)?);
        let dtype = real_dtype(cx.fact(x).dtype);
        let ties = (self.put)(PutFn::Add, cast(cx, x_is, dtype)?, cast(cx, src_is, dtype)?)?;
        let share = c.mul(dy, c.un(UnaryFn::Recip, ties)?)?;
        self.needed(|| c.keep_where(x_is, share), || c.keep_where(src_is, (self.get)(share)?))
    }
}
