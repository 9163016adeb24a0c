//! Values out of nothing, and triangles of matrices.

use remat_types::{DType, Error, ErrorKind, Result, Scalar};

use super::{Arith, cast, shaped};
use crate::Apply;
use crate::pointwise::{Arange, BinaryFn, Compare, CompareFn, UnaryFn, Where};

#[track_caller]
fn arange<A: Apply>(cx: &A, dtype: DType, len: usize) -> Result<A::Value> {
    cx.apply1(Arange { dtype, start: 0.into(), step: 1.into(), len }, [])
}

/// `[n, n]` with ones on the diagonal.
#[track_caller]
pub fn eye<A: Apply>(cx: &A, n: usize, dtype: DType) -> Result<A::Value> {
    let columns = arange(cx, DType::I64, n)?;
    let rows = shaped(cx, columns.clone(), [n, 1])?;
    let y = cx.apply1(Compare { f: CompareFn::Eq }, [rows, columns])?;
    cast(cx, y, dtype)
}

/// `n` numbers from `start` to `end`, equally far apart, both met exactly. Errors: Value for ends that are not finite, DType
/// for bool.
#[track_caller]
pub fn linspace<A: Apply>(cx: &A, start: f64, end: f64, n: usize, dtype: DType) -> Result<A::Value> {
    if !(start.is_finite() && end.is_finite()) {
        return Err(Error::new(ErrorKind::Value, format!("from {start} to {end}")).with_op("linspace"));
    }
    if dtype == DType::Bool {
        return Err(Error::new(ErrorKind::DType, "is not defined for bool").with_op("linspace"));
    }
    let c = Arith(cx);
    let by = |f: BinaryFn, v: A::Value, number: f64| {
        let number = c.number(number, &v)?;
        c.bin(f, v, number)
    };
    let share = by(BinaryFn::Div, arange(cx, DType::F64, n)?, (n.max(2) - 1) as f64)?;
    // weighted from both ends, so that both are met exactly
    let rest = by(BinaryFn::Add, c.un(UnaryFn::Neg, share.clone())?, 1.0)?;
    let (from_start, from_end) = (by(BinaryFn::Mul, rest, start)?, by(BinaryFn::Mul, share, end)?);
    let y = c.add(from_start, from_end)?;
    cast(cx, y, dtype)
}

/// Of the matrices in the last two axes, what lies on and below a diagonal; 0 elsewhere. Errors: Axis.
#[track_caller]
pub fn tril<A: Apply>(cx: &A, x: A::Value, diagonal: i64) -> Result<A::Value> {
    triangle(cx, x, diagonal, CompareFn::Le).map_err(|e| e.with_op("tril"))
}

/// Of the matrices in the last two axes, what lies on and above a diagonal; 0 elsewhere. Errors: Axis.
#[track_caller]
pub fn triu<A: Apply>(cx: &A, x: A::Value, diagonal: i64) -> Result<A::Value> {
    triangle(cx, x, diagonal, CompareFn::Ge).map_err(|e| e.with_op("triu"))
}

/// `x` where `f(column, row + diagonal)`.
#[track_caller]
fn triangle<A: Apply>(cx: &A, x: A::Value, diagonal: i64, f: CompareFn) -> Result<A::Value> {
    let of_x = cx.fact(&x);
    let [.., m, n] = *of_x.shape.dims() else {
        let text = format!("shape {} has rank {}; it must be 2 or more", of_x.shape, of_x.rank());
        return Err(Error::new(ErrorKind::Axis, text));
    };
    let rows = arange(cx, DType::I64, m)?;
    let (rows, columns) = (shaped(cx, rows, [m, 1])?, arange(cx, DType::I64, n)?);
    let diagonal = cx.scalar(DType::I64, Scalar::Int(diagonal))?;
    let rows = Arith(cx).add(rows, diagonal)?;
    let seen = cx.apply1(Compare { f }, [columns, rows])?;
    let zero = cx.scalar(of_x.dtype, Scalar::Int(0))?;
    cx.apply1(Where, [seen, x, zero])
}
