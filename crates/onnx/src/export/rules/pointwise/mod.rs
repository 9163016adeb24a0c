//! Ops on single elements, and ops without inputs.
//!
//! A function that the standard has no operator for is a composition. Of 16-bit floats it is computed in f32 and rounded once,
//! as the op does.

mod binary;
mod unary;

use remat_kernels::pool::Pool;
use remat_ops::pointwise::{
    Arange, Binary, Cast, Clamp, Compare, CompareFn, Fill, Fused, FusedMatMul, FusedReduce, Pointwise, Unary, Where,
};
use remat_ops::{Op, OpDef, OpRef, eval_on_host};
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result, Scalar, for_dtype};

use super::{Row, Rule, linalg, row};
use crate::export::attribute as attr;
use crate::export::emit::{Emit, Name};
use crate::export::file;
use crate::export::lower::Cx;
pub(super) use binary::{binary, rem};
pub(super) use unary::unary;

pub(super) const ROWS: &[Row] = &[
    row::<Unary>(),
    row::<Binary>(),
    row::<Compare>(),
    row::<Where>(),
    row::<Cast>(),
    row::<Clamp>(),
    row::<Fill>(),
    row::<Arange>(),
    row::<Fused>(),
    row::<FusedMatMul>(),
    row::<FusedReduce>(),
];

/// Tensors made of nothing that are constants of the model rather than nodes.
const MOST_CONSTANT_ELEMS: usize = 4096;

impl Rule for Unary {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, dtype) = (c.x(0)?, c.dtype(0)?);
        Ok(vec![unary(c, self.f, &x, dtype)?])
    }
}

impl Rule for Binary {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, of) = (c.all(), c.x.clone());
        Ok(vec![step(c, &Pointwise::Binary(self.clone()), &x, &of)?])
    }
}

impl Rule for Compare {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, of) = (c.all(), c.x.clone());
        Ok(vec![step(c, &Pointwise::Compare(self.clone()), &x, &of)?])
    }
}

impl Rule for Where {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.all();
        Ok(vec![c.op("Where", &x.iter().collect::<Vec<_>>())])
    }
}

impl Rule for Cast {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, from) = (c.x(0)?, c.dtype(0)?);
        Ok(vec![cast(c, &x, from, self.dtype)])
    }
}

impl Rule for Clamp {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, dtype) = (c.x(0)?, c.dtype(0)?);
        Ok(vec![clamp(c, self, &x, dtype)])
    }
}

impl Rule for Fill {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        if !c.compared && self.shape.elems() <= 16 {
            return made(c, self);
        }
        let value = self.value;
        let one = for_dtype!(self.dtype, T => HostTensor::from_slice(&[value.cast::<T>()], [1]))?;
        let shape = c.sizes(self.shape.dims())?;
        Ok(vec![c.with("ConstantOfShape", &[&shape], vec![attr::tensor("value", file::literal(one))])])
    }
}

impl Rule for Arange {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        if !c.compared && self.len <= MOST_CONSTANT_ELEMS {
            return made(c, self);
        }
        let (first, end, one) = (c.int(0), c.int(self.len as i64), c.int(1));
        let places = c.op("Range", &[&first, &end, &one]);
        let wide = if self.dtype.is_float() { DType::F64 } else { DType::I64 };
        let places = c.cast_from(&places, DType::I64, wide);
        let (step, start) = (c.number(wide, self.step), c.number(wide, self.start));
        let y = c.op("Mul", &[&places, &step]);
        let y = c.op("Add", &[&y, &start]);
        Ok(vec![c.cast_from(&y, wide, self.dtype)])
    }
}

/// The value of an op without inputs as a constant.
fn made(c: &mut Cx<'_>, op: &dyn Op) -> Result<Vec<Name>> {
    let y = eval_on_host(op, &[], &Pool::new(1))?;
    Ok(y.into_iter().map(|t| c.tensor(t)).collect())
}

impl Rule for Fused {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, facts) = (c.all(), c.x.clone());
        Ok(steps(c, self, x, facts)?.0)
    }
}

impl Rule for FusedMatMul {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (names, facts) = (c.all(), c.x.clone());
        let product = OpRef::new(remat_ops::linalg::MatMul {});
        let y = product.infer(&facts[..2].iter().collect::<Vec<_>>())?;
        let made = linalg::product(c, &names[..2], &facts[..2])?;
        let x = std::iter::once(made).chain(names[2..].iter().cloned()).collect();
        let of = y.into_iter().take(1).chain(facts[2..].iter().cloned()).collect();
        Ok(steps(c, &self.steps, x, of)?.0)
    }
}

impl Rule for FusedReduce {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, facts) = (c.all(), c.x.clone());
        let (names, of) = steps(c, &self.steps, x, facts)?;
        let y = c.y.clone();
        self.reduce.emit(&mut c.of(names, of, y))
    }
}

/// The steps of a fused op, one after the other: names and facts of its outputs.
fn steps(e: &mut Emit, f: &Fused, mut names: Vec<Name>, mut facts: Vec<Fact>) -> Result<(Vec<Name>, Vec<Fact>)> {
    let inputs = names.len();
    let bad = || Error::new(ErrorKind::Internal, "a step reads what is not there");
    for s in &f.steps {
        let at = |i: &u16| names.get(usize::from(*i)).cloned().zip(facts.get(usize::from(*i)).cloned()).ok_or_else(bad);
        let (x, of): (Vec<Name>, Vec<Fact>) = s.x.iter().map(at).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let refs: Vec<&Fact> = of.iter().collect();
        let y = match &s.op {
            Pointwise::Unary(op) => op.infer(&refs),
            Pointwise::Binary(op) => op.infer(&refs),
            Pointwise::Compare(op) => op.infer(&refs),
            Pointwise::Where(op) => op.infer(&refs),
            Pointwise::Cast(op) => op.infer(&refs),
            Pointwise::Clamp(op) => op.infer(&refs),
        }?;
        names.push(step(e, &s.op, &x, &of)?);
        facts.extend(y.into_iter().take(1));
    }
    let out = |j: &u16| names.get(inputs + usize::from(*j)).cloned().zip(facts.get(inputs + usize::from(*j)).cloned());
    Ok(f.outputs.iter().map(|j| out(j).ok_or_else(bad)).collect::<Result<Vec<_>>>()?.into_iter().unzip())
}

/// One op on inputs of these facts. Errors say which of the functions cannot be written.
fn step(e: &mut Emit, op: &Pointwise, x: &[Name], of: &[Fact]) -> Result<Name> {
    let label = match op {
        Pointwise::Unary(op) => OpDef::label(op),
        Pointwise::Binary(op) => OpDef::label(op),
        _ => return any_step(e, op, x, of),
    };
    any_step(e, op, x, of).map_err(|error| error.with_op(label))
}

fn any_step(e: &mut Emit, op: &Pointwise, x: &[Name], of: &[Fact]) -> Result<Name> {
    let absent = || Error::new(ErrorKind::Arity, "a pointwise op lacks an input");
    let at = |i: usize| x.get(i).zip(of.get(i)).ok_or_else(absent);
    let (a, fa) = at(0)?;
    match op {
        Pointwise::Unary(op) => unary(e, op.f, a, fa.dtype),
        Pointwise::Cast(op) => Ok(cast(e, a, fa.dtype, op.dtype)),
        Pointwise::Clamp(op) => Ok(clamp(e, op, a, fa.dtype)),
        Pointwise::Where(_) => Ok(e.op("Where", &[a, at(1)?.0, at(2)?.0])),
        Pointwise::Binary(op) => {
            let (b, fb) = at(1)?;
            // an f32 beside a 16-bit float enters as it is
            let (own, wide) = mixed(fa.dtype, fb.dtype);
            let (a, b) = (e.cast_from(a, fa.dtype, wide), e.cast_from(b, fb.dtype, wide));
            // a slope is repeated, never what it is a slope of
            let over = fa.shape.broadcast(&fb.shape).is_ok_and(|y| y == fa.shape);
            let y = binary(e, op.f, &a, &b, wide, over)?;
            Ok(e.cast_from(&y, wide, own))
        }
        Pointwise::Compare(op) => {
            let (b, fb) = at(1)?;
            let (_, wide) = mixed(fa.dtype, fb.dtype);
            let (a, b) = (e.cast_from(a, fa.dtype, wide), e.cast_from(b, fb.dtype, wide));
            Ok(compare(e, op.f, &a, &b, wide))
        }
    }
}

/// The dtype of the result of two, and the one it is computed in.
fn mixed(a: DType, b: DType) -> (DType, DType) {
    match a == b {
        true => (a, a),
        false => (if a == DType::F32 { b } else { a }, DType::F32),
    }
}

fn compare(e: &mut Emit, f: CompareFn, a: &Name, b: &Name, dtype: DType) -> Name {
    // false is below true
    let ordered = dtype != DType::Bool || matches!(f, CompareFn::Eq | CompareFn::Ne);
    let to = if ordered { dtype } else { DType::U8 };
    let (a, b) = (e.cast_from(a, dtype, to), e.cast_from(b, dtype, to));
    let op = match f {
        CompareFn::Eq | CompareFn::Ne => "Equal",
        CompareFn::Lt => "Less",
        CompareFn::Le => "LessOrEqual",
        CompareFn::Gt => "Greater",
        CompareFn::Ge => "GreaterOrEqual",
    };
    let y = e.op(op, &[&a, &b]);
    if f == CompareFn::Ne { e.op("Not", &[&y]) } else { y }
}

/// A float beyond a small integer saturates, which the standard leaves open: it is moved into the range first.
pub(super) fn cast(e: &mut Emit, x: &Name, from: DType, to: DType) -> Name {
    if from == to {
        return e.op("Identity", &[x]);
    }
    if !(from.is_float() && to.is_int() && to.size_bytes() <= 2) {
        return e.cast(x, to);
    }
    let wide = if from == DType::F64 { from } else { DType::F32 };
    let x = e.cast_from(x, from, wide);
    let bits = 8 * to.size_bytes() as u32;
    let (lo, hi) = match to.is_signed_int() {
        true => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
        false => (0, (1i64 << bits) - 1),
    };
    let (lo, hi) = (e.number(wide, lo), e.number(wide, hi));
    let x = e.op("Clip", &[&x, &lo, &hi]);
    e.cast(&x, to)
}

fn clamp(e: &mut Emit, op: &Clamp, x: &Name, dtype: DType) -> Name {
    let bound = |e: &mut Emit, v: Scalar| match dtype.is_int() && !matches!(v, Scalar::Float(_)) {
        // a bound beyond the range does not bind, rather than wrap
        true => e.number(dtype, within(v, dtype)),
        false => e.number(dtype, v),
    };
    let (lo, hi) = (bound(e, op.lo), bound(e, op.hi));
    e.op("Clip", &[x, &lo, &hi])
}

/// A number moved into the range of an integer dtype.
fn within(v: Scalar, dtype: DType) -> Scalar {
    let bits = 8 * dtype.size_bytes() as u32;
    let (least, most) = match dtype.is_signed_int() {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    };
    let n = match v {
        Scalar::Int(v) => i128::from(v),
        Scalar::Uint(v) => i128::from(v),
        other => return other,
    };
    let n = n.clamp(least, most);
    i64::try_from(n).map_or_else(|_| Scalar::Uint(n as u64), Scalar::Int)
}

/// Computes a composition: 16-bit floats in f32, rounded once.
fn wide<const N: usize>(
    e: &mut Emit,
    x: [&Name; N],
    dtype: DType,
    f: impl FnOnce(&mut Emit, [&Name; N], DType) -> Result<Name>,
) -> Result<Name> {
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return f(e, x, dtype);
    }
    let x = x.map(|x| e.cast(x, DType::F32));
    let y = f(e, std::array::from_fn(|i| &x[i]), DType::F32)?;
    Ok(e.cast(&y, dtype))
}
