//! Losses that tell pairs from other pairs of a batch.

use remat_types::{DType, Error, ErrorKind, Result, Scalar};

use super::{at_least_number, demand, reduced, same};
use crate::Apply;
use crate::compose::{Arith, cast, eye, norm, permuted};
use crate::linalg::MatMul;
use crate::loss::{CrossEntropy, Reduction};
use crate::pointwise::{Arange, Where};
use crate::shape::Concat;

/// The lower bound of a norm that divides.
const NORM_LEAST: f64 = 1e-12;

/// The rows of `x: [n, d]` with a norm of 1.
#[track_caller]
fn unit_rows<A: Apply>(cx: &A, x: A::Value) -> Result<A::Value> {
    let length = at_least_number(cx, norm(cx, x.clone(), &[1], true)?, NORM_LEAST)?;
    Arith(cx).div(x, length)
}

/// Errors (Axis, Shape, DType, Value) unless these are batches of vectors that pair, and a temperature.
fn pairs<A: Apply>(cx: &A, x: &A::Value, y: &A::Value, temperature: f64) -> Result<usize> {
    same(cx, x, y)?;
    demand(temperature > 0.0 && temperature.is_finite(), "the temperature", temperature, "finite and above 0")?;
    let shape = cx.fact(x).shape;
    if shape.rank() != 2 {
        return Err(Error::new(ErrorKind::Axis, format!("x has shape {shape}: its rank must be 2")));
    }
    Ok(shape[0])
}

#[track_caller]
fn cosines<A: Apply>(cx: &A, x: A::Value, y: A::Value, temperature: f64) -> Result<A::Value> {
    let y = permuted(cx, y, &[1, 0])?;
    Arith(cx).scale(cx.apply1(MatMul {}, [x, y])?, 1.0 / temperature)
}

/// InfoNCE (van den Oord et al., 2018, arXiv:1807.03748, equation 4) of queries `x` and keys `y: [n, d]`: cross-entropy of
/// all cosines of a query over the temperature, where its own key is the one of its row. Errors: Axis, Shape, DType, Value.
#[track_caller]
pub fn info_nce<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    temperature: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    let n = pairs(cx, &x, &y, temperature)?;
    let logits = cosines(cx, unit_rows(cx, x)?, unit_rows(cx, y)?, temperature)?;
    let labels = cx.apply1(Arange { dtype: DType::I64, start: 0.into(), step: 1.into(), len: n }, [])?;
    let op = CrossEntropy { reduction: Reduction::None, smoothing: 0.0.into(), ignore_index: None };
    reduced(cx, cx.apply1(op, [logits, labels])?, reduction)
}

/// NT-Xent (Chen et al., ICML 2020, equation 1) of two views `x` and `y: [n, d]` of the same examples: of all `2 n`, the
/// cross-entropy of its cosines with all others over the temperature, where the other view is the one. Errors: Axis, Shape,
/// DType, Value.
#[track_caller]
pub fn nt_xent<A: Apply>(cx: &A, x: A::Value, y: A::Value, temperature: f64, reduction: Reduction) -> Result<A::Value> {
    let n = pairs(cx, &x, &y, temperature)?;
    let (x, y) = (unit_rows(cx, x)?, unit_rows(cx, y)?);
    let all = cx.apply1(Concat { axis: 0 }, [x, y])?;
    let logits = cosines(cx, all.clone(), all, temperature)?;
    let own = eye(cx, 2 * n, DType::Bool)?;
    let never = cx.scalar(cx.fact(&logits).dtype, Scalar::Float(f64::NEG_INFINITY))?;
    let logits = cx.apply1(Where, [own, never, logits])?;
    let count = |start: usize| {
        cx.apply1(Arange { dtype: DType::I64, start: (start as i64).into(), step: 1.into(), len: n }, [])
    };
    let labels = cast(cx, cx.apply1(Concat { axis: 0 }, [count(n)?, count(0)?])?, DType::I64)?;
    let op = CrossEntropy { reduction: Reduction::None, smoothing: 0.0.into(), ignore_index: None };
    reduced(cx, cx.apply1(op, [logits, labels])?, reduction)
}
