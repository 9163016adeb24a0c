//! Along an axis in order: quantiles, membership, histograms, and draws by weights.

use remat_types::{DType, Error, ErrorKind, Fact, Result, Scalar, Shape, SmallVec};

use super::{Arith, cast, shaped, stack};
use crate::Apply;
use crate::index::{PutFn, Scatter, Take};
use crate::order::{Cumulate, CumulateFn, SearchSorted, Sort, TopK};
use crate::pointwise::{Arange, BinaryFn, Compare, CompareFn, Fill, UnaryFn, Where};
use crate::random::{RandomPermutation, Uniform, Weights};
use crate::reduce::{Reduce, ReduceFn};
use crate::shape::{BroadcastTo, Slice};

/// The value of a quantile that falls between two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// As far between them as the quantile lies.
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// Their mean.
    Midpoint,
    /// The nearer one; the even one of two that are as near.
    Nearest,
}

/// For each of `q` the element below which that share of `axis` lies: `[q.., x.shape]`, with extent 1 along `axis`. NaN of lanes
/// that have one. Errors: DType for other dtypes than floats; Value for a `q` outside 0 ..= 1; Shape for no elements.
#[track_caller]
pub fn quantile<A: Apply>(
    cx: &A,
    x: A::Value,
    q: &[f64],
    axis: usize,
    between: Interpolation,
) -> Result<Vec<A::Value>> {
    let of = cx.fact(&x);
    let n = of.shape[axis];
    if !of.dtype.is_float() {
        return Err(Error::new(ErrorKind::DType, format!("is not defined for {}", of.dtype)));
    }
    if n == 0 {
        return Err(Error::new(ErrorKind::Shape, format!("axis {axis} of {} has no elements", of.shape)));
    }
    let c = Arith(cx);
    let sorted = cx.apply1(Sort { axis, descending: false }, [x])?;
    let at = |k: usize| cx.apply1(Slice { axis, start: k, len: 1, step: 1 }, [sorted.clone()]);
    let last = at(n - 1)?;
    let nan = c.un(UnaryFn::IsNan, last.clone())?;
    let mut y = Vec::with_capacity(q.len());
    for &q in q {
        if !(0.0..=1.0).contains(&q) {
            return Err(Error::new(ErrorKind::Value, format!("the quantile {q} is not within 0 ..= 1")));
        }
        let rank = q * (n - 1) as f64;
        let (low, high) = (rank.floor() as usize, rank.ceil() as usize);
        let one = match between {
            Interpolation::Lower => at(low)?,
            Interpolation::Higher => at(high)?,
            Interpolation::Nearest => at(rank.round_ties_even() as usize)?,
            _ if low == high => at(low)?,
            Interpolation::Linear => mixed(c, at(low)?, at(high)?, rank - rank.floor())?,
            Interpolation::Midpoint => mixed(c, at(low)?, at(high)?, 0.5)?,
        };
        y.push(cx.apply1(Where, [nan.clone(), last.clone(), one])?);
    }
    Ok(y)
}

/// `a + (b - a) share`, from the nearer end.
#[track_caller]
fn mixed<A: Apply>(c: Arith<'_, A>, a: A::Value, b: A::Value, share: f64) -> Result<A::Value> {
    let d = c.sub(b.clone(), a.clone())?;
    if share < 0.5 { c.add(a, c.scale(d, share)?) } else { c.add(b, c.scale(d, share - 1.0)?) }
}

/// Whether each element of `x` is among those of `test`, of one dtype. NaN is not. Errors: DType.
#[track_caller]
pub fn isin<A: Apply>(cx: &A, x: A::Value, test: A::Value, invert: bool) -> Result<A::Value> {
    let (of_x, of_test) = (cx.fact(&x), cx.fact(&test));
    let n = of_test.shape.elems();
    if n == 0 {
        return cx.apply1(Fill { dtype: DType::Bool, shape: of_x.shape, value: Scalar::Bool(invert) }, []);
    }
    let sorted = cx.apply1(Sort { axis: 0, descending: false }, [shaped(cx, test, [n])?])?;
    let at = cx.apply1(SearchSorted { right: false }, [sorted.clone(), x.clone()])?;
    let last = cx.scalar(DType::I64, Scalar::Int(n as i64 - 1))?;
    let at = Arith(cx).bin(BinaryFn::Min, at, last)?;
    let found = cx.apply1(Take { axis: 0 }, [sorted, at])?;
    cx.apply1(Compare { f: if invert { CompareFn::Ne } else { CompareFn::Eq } }, [found, x])
}

/// `bins` equal intervals: their ends, `[bins + 1]`, from `range`, or from the least and the largest element, which are moved
/// apart by `apart` on both sides if they are equal. Errors: DType for other dtypes than floats; Value for an invalid `range`,
/// and no bins; Shape for the range of no elements.
#[track_caller]
pub fn bin_edges<A: Apply>(
    cx: &A,
    x: &A::Value,
    bins: usize,
    range: Option<(f64, f64)>,
    apart: f64,
) -> Result<A::Value> {
    let of = cx.fact(x);
    let dtype = of.dtype;
    if !dtype.is_float() {
        return Err(Error::new(ErrorKind::DType, format!("is not defined for {dtype}")));
    }
    if bins == 0 || bins == usize::MAX {
        return Err(Error::new(ErrorKind::Value, format!("{bins} bins")));
    }
    let c = Arith(cx);
    let [low, high] = match range {
        Some((low, high)) => {
            if !(low.is_finite() && high.is_finite() && low <= high) {
                return Err(Error::new(ErrorKind::Value, format!("a range from {low} to {high}")));
            }
            [low, high].map(|v| cx.scalar(dtype, Scalar::Float(v)))
        }
        None => [ReduceFn::Min, ReduceFn::Max].map(|f| {
            let axes: SmallVec<[usize; 4]> = (0..of.shape.rank()).collect();
            cx.apply1(Reduce { f, axes, keepdims: false }, [x.clone()])
        }),
    };
    let (low, high) = (low?, high?);
    let same = cx.apply1(Compare { f: CompareFn::Eq }, [low.clone(), high.clone()])?;
    let apart = c.keep_where(same, c.constant(apart, &low)?)?;
    let (low, high) = (c.sub(low, apart.clone())?, c.add(high, apart)?);
    let steps = cx.apply1(Arange { dtype: DType::F64, start: 0.into(), step: 1.into(), len: bins + 1 }, [])?;
    // weighted from both ends, so that both are met exactly
    let share = c.div(steps.clone(), cx.scalar(DType::F64, Scalar::Float(bins as f64))?)?;
    let rest = c.offset(c.neg(share.clone())?, 1.0)?;
    let [low, high] = [low, high].map(|v| cast(cx, v, DType::F64));
    let edges = c.add(c.mul(low?, rest)?, c.mul(high?, share)?)?;
    cast(cx, edges, dtype)
}

/// The sum of the weights of the elements of `x` within each bin between ascending `edges: [bins + 1]`, or their number in the
/// dtype of `x`. A bin has its lower end, the last one its upper end too. Errors: Shape or DType for other weights.
#[track_caller]
pub fn histogram<A: Apply>(cx: &A, x: A::Value, edges: A::Value, weight: Option<A::Value>) -> Result<A::Value> {
    let (of, of_edges) = (cx.fact(&x), cx.fact(&edges));
    let (n, slots) = (of.shape.elems(), of_edges.shape.elems() + 1);
    let weight = match weight {
        Some(weight) if cx.fact(&weight).shape == of.shape => weight,
        Some(weight) => {
            let text = format!("weights of shape {} for {}", cx.fact(&weight).shape, of.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        None => {
            let one = cx.scalar(of.dtype, Scalar::Int(1))?;
            cx.apply1(BroadcastTo { shape: of.shape.clone() }, [one])?
        }
    };
    let (x, weight) = (shaped(cx, x, [n])?, shaped(cx, weight, [n])?);
    // slot 0 is below all bins, the last one above
    let slot = cx.apply1(SearchSorted { right: true }, [edges.clone(), x.clone()])?;
    let end = cx.apply1(Slice { axis: 0, start: slots - 2, len: 1, step: 1 }, [edges])?;
    let at_end = cx.apply1(Compare { f: CompareFn::Eq }, [x, end])?;
    let slot = Arith(cx).sub(slot, cast(cx, at_end, DType::I64)?)?;
    let zeros = Fill { dtype: cx.fact(&weight).dtype, shape: Shape::from([slots]), value: Scalar::Int(0) };
    let sums = cx.apply1(Scatter { f: PutFn::Add, axis: 0 }, [cx.apply1(zeros, [])?, weight, slot])?;
    cx.apply1(Slice { axis: 0, start: 1, len: slots - 2, step: 1 }, [sums])
}

/// `n` draws by the weights of the last axis of `p`, which need not add up to 1: `[.., n]` of I64. With replacement by the inverse
/// of the distribution, without by the largest of weights over exponential numbers (Efraimidis and Spirakis, 2006).
///
/// Errors: DType for other dtypes than floats, Axis for rank 0, Value for more draws than weights without replacement; when it runs,
/// those of [`Weights`]: what has no weight is never drawn.
#[track_caller]
pub fn multinomial<A: Apply>(cx: &A, p: A::Value, key: A::Value, n: usize, replacement: bool) -> Result<A::Value> {
    let Fact { dtype, shape, .. } = cx.fact(&p);
    let Some(axis) = shape.rank().checked_sub(1) else {
        return Err(Error::new(ErrorKind::Axis, "the weights have rank 0, and no last axis"));
    };
    if !dtype.is_float() {
        return Err(Error::new(ErrorKind::DType, format!("is not defined for {dtype}")));
    }
    let (c, dtype, k) = (Arith(cx), DType::F64, shape[axis]);
    if k == 0 || (!replacement && n > k) {
        return Err(Error::new(ErrorKind::Value, format!("{n} draws from {k} weights")));
    }
    let least = if replacement { usize::from(n > 0) } else { n };
    let p = cx.apply1(Weights { least }, [cast(cx, p, dtype)?])?;
    let unit = |shape| Uniform { dtype, shape, lo: 0.0.into(), hi: 1.0.into() };
    if !replacement {
        let u = cx.apply1(unit(shape), [key])?;
        // the least number keeps 0 / 0 away
        let exponential = c.offset(c.neg(c.un(UnaryFn::Log1p, c.neg(u)?)?)?, f64::MIN_POSITIVE)?;
        let best = TopK { k: n, axis, largest: true, sorted: true };
        let y = cx.apply(best.into(), [c.div(p, exponential)?].into_iter().collect())?;
        return y.into_iter().nth(1).ok_or_else(|| Error::new(ErrorKind::Internal, "no places"));
    }
    let sums = Cumulate { f: CumulateFn::Sum, axis, exclusive: false, reverse: false };
    let sums = cx.apply1(sums, [p])?;
    let total = cx.apply1(Slice { axis, start: k - 1, len: 1, step: 1 }, [sums.clone()])?;
    let mut drawn = shape;
    drawn.dims_mut()[axis] = n;
    let u = c.mul(cx.apply1(unit(drawn), [key])?, total.clone())?;
    let y = cx.apply1(SearchSorted { right: true }, [sums.clone(), u])?;
    // a product that is rounded up to the total belongs to the last that has a weight
    let last = cx.apply1(SearchSorted { right: false }, [sums, total])?;
    c.bin(BinaryFn::Min, y, last)
}

/// The elements of `axis` in a random order.
#[track_caller]
pub fn shuffle<A: Apply>(cx: &A, x: A::Value, key: A::Value, axis: usize) -> Result<A::Value> {
    let n = cx.fact(&x).shape[axis];
    let order = cx.apply1(RandomPermutation { n }, [key])?;
    cx.apply1(Take { axis }, [x, order])
}

/// Several quantiles along a new first axis.
#[track_caller]
pub fn quantiles<A: Apply>(cx: &A, x: A::Value, q: &[f64], axis: usize, between: Interpolation) -> Result<A::Value> {
    let parts = quantile(cx, x, q, axis, between)?;
    stack(cx, parts, 0)
}
