//! Element by element, and what is made of nothing.
//!
//! A function that the standard has no operator for is a composition. Of 16-bit floats it is computed in f32 and rounded once, as the
//! op does.

use std::f64::consts::{FRAC_PI_2, LN_2, LOG10_E, PI};

use remat_kernels::pool::Pool;
use remat_ops::pointwise::{
    Arange, Binary, BinaryFn, Cast, Clamp, Compare, CompareFn, Fill, Fused, FusedMatMul, FusedReduce, Pointwise, Unary,
    UnaryFn, Where,
};
use remat_ops::{Op, OpDef, OpRef, eval_on_host};
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result, Scalar, for_dtype};

use super::{Rule, linalg};
use crate::export::attribute as attr;
use crate::export::emit::{Emit, Name};
use crate::export::file;
use crate::export::lower::{Cx, left_out};

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

/// The operator of the standard that is this function, for floats.
fn named(f: UnaryFn) -> Option<&'static str> {
    Some(match f {
        UnaryFn::Relu => "Relu",
        UnaryFn::Abs => "Abs",
        UnaryFn::Neg => "Neg",
        UnaryFn::Exp => "Exp",
        UnaryFn::Log => "Log",
        UnaryFn::Sqrt => "Sqrt",
        UnaryFn::Recip => "Reciprocal",
        UnaryFn::Sin => "Sin",
        UnaryFn::Cos => "Cos",
        UnaryFn::Tan => "Tan",
        UnaryFn::Asin => "Asin",
        UnaryFn::Acos => "Acos",
        UnaryFn::Atan => "Atan",
        UnaryFn::Sinh => "Sinh",
        UnaryFn::Cosh => "Cosh",
        UnaryFn::Tanh => "Tanh",
        UnaryFn::Asinh => "Asinh",
        UnaryFn::Acosh => "Acosh",
        UnaryFn::Atanh => "Atanh",
        UnaryFn::Sigmoid => "Sigmoid",
        UnaryFn::Softplus => "Softplus",
        UnaryFn::Erf => "Erf",
        UnaryFn::Floor => "Floor",
        UnaryFn::Ceil => "Ceil",
        UnaryFn::RoundEven => "Round",
        UnaryFn::Sign => "Sign",
        UnaryFn::Hswish => "HardSwish",
        UnaryFn::Mish => "Mish",
        UnaryFn::Softsign => "Softsign",
        UnaryFn::IsNan => "IsNaN",
        UnaryFn::IsInf => "IsInf",
        UnaryFn::LogicalNot => "Not",
        UnaryFn::BitNot => "BitwiseNot",
        _ => return None,
    })
}

/// A function of one value.
pub(super) fn unary(e: &mut Emit, f: UnaryFn, x: &Name, dtype: DType) -> Result<Name> {
    let int = dtype.is_int();
    match f {
        // integers are whole already
        UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Round | UnaryFn::RoundEven | UnaryFn::Trunc if int => {
            return Ok(e.op("Identity", &[x]));
        }
        // these operators take numbers with a sign only
        UnaryFn::Neg if int && !dtype.is_signed_int() => {
            let zero = e.number(dtype, 0);
            return Ok(e.op("Sub", &[&zero, x]));
        }
        UnaryFn::Relu if int && !dtype.is_signed_int() => return Ok(e.op("Identity", &[x])),
        UnaryFn::Square => return Ok(e.op("Mul", &[x, x])),
        UnaryFn::Gelu if e.has(20) => return Ok(e.op("Gelu", &[x])),
        UnaryFn::GeluTanh if e.has(20) => {
            return Ok(e.with("Gelu", &[x], vec![attr::text("approximate", "tanh")]));
        }
        UnaryFn::Silu if e.has(24) => return Ok(e.op("Swish", &[x])),
        UnaryFn::IsFinite => {
            let (nan, infinite) = (e.op("IsNaN", &[x]), e.op("IsInf", &[x]));
            let either = e.op("Or", &[&nan, &infinite]);
            return Ok(e.op("Not", &[&either]));
        }
        _ => {}
    }
    match named(f) {
        Some(op) => Ok(e.op(op, &[x])),
        None => wide(e, [x], dtype, |e, [x], dtype| composed(e, f, x, dtype)),
    }
}

/// A function of one float that is several operators.
fn composed(e: &mut Emit, f: UnaryFn, x: &Name, dtype: DType) -> Result<Name> {
    let scaled = |e: &mut Emit, x: &Name, by: f64| {
        let by = e.number(dtype, by);
        e.op("Mul", &[x, &by])
    };
    Ok(match f {
        UnaryFn::Expm1 => expm1(e, x, dtype),
        UnaryFn::Log1p => log1p(e, x, dtype),
        UnaryFn::Log2 => {
            let (y, base) = (e.op("Log", &[x]), e.number(dtype, LN_2));
            e.op("Div", &[&y, &base])
        }
        UnaryFn::Log10 => {
            let y = e.op("Log", &[x]);
            scaled(e, &y, LOG10_E)
        }
        UnaryFn::Exp2 => {
            let two = e.number(dtype, 2.0);
            e.op("Pow", &[&two, x])
        }
        UnaryFn::Rsqrt => {
            let root = e.op("Sqrt", &[x]);
            e.op("Reciprocal", &[&root])
        }
        UnaryFn::Logsigmoid => {
            let minus = e.op("Neg", &[x]);
            let y = e.op("Softplus", &[&minus]);
            e.op("Neg", &[&y])
        }
        UnaryFn::Silu => {
            let s = e.op("Sigmoid", &[x]);
            e.op("Mul", &[x, &s])
        }
        UnaryFn::Gelu => {
            let u = scaled(e, x, std::f64::consts::FRAC_1_SQRT_2);
            let (erf, one) = (e.op("Erf", &[&u]), e.number(dtype, 1.0));
            let bell = e.op("Add", &[&erf, &one]);
            let half = scaled(e, x, 0.5);
            e.op("Mul", &[&half, &bell])
        }
        UnaryFn::GeluTanh => {
            let square = e.op("Mul", &[x, x]);
            let cube = e.op("Mul", &[&square, x]);
            let cube = scaled(e, &cube, 0.044715);
            let inner = e.op("Add", &[x, &cube]);
            let u = scaled(e, &inner, (2.0 / PI).sqrt());
            let (t, one) = (e.op("Tanh", &[&u]), e.number(dtype, 1.0));
            let bell = e.op("Add", &[&t, &one]);
            let half = scaled(e, x, 0.5);
            e.op("Mul", &[&half, &bell])
        }
        UnaryFn::Erfc => {
            let (one, erf) = (e.number(dtype, 1.0), e.op("Erf", &[x]));
            e.op("Sub", &[&one, &erf])
        }
        UnaryFn::Trunc => {
            let (size, sign) = (e.op("Abs", &[x]), e.op("Sign", &[x]));
            let whole = e.op("Floor", &[&size]);
            e.op("Mul", &[&whole, &sign])
        }
        UnaryFn::Round => round(e, x, dtype),
        UnaryFn::ZeroTest => {
            let zero = e.number(dtype, 0.0);
            let y = e.op("Equal", &[x, &zero]);
            e.cast(&y, dtype)
        }
        UnaryFn::Relu6 => {
            let (lo, hi) = (e.number(dtype, 0.0), e.number(dtype, 6.0));
            e.op("Clip", &[x, &lo, &hi])
        }
        UnaryFn::Hsigmoid => {
            let (three, lo, hi) = (e.number(dtype, 3.0), e.number(dtype, 0.0), e.number(dtype, 6.0));
            let y = e.op("Add", &[x, &three]);
            let y = e.op("Clip", &[&y, &lo, &hi]);
            e.op("Div", &[&y, &hi])
        }
        _ => return Err(left_out(NO_FUNCTION)),
    })
}

/// Why the special functions are not written.
pub(in crate::export) const NO_FUNCTION: &str = "the standard has no such function, and none that it is composed of";

/// `(e^x + 1) tanh(x / 2)`: accurate near 0, and -1 at minus infinity.
fn expm1(e: &mut Emit, x: &Name, dtype: DType) -> Name {
    let (half, one) = (e.number(dtype, 0.5), e.number(dtype, 1.0));
    let exp = e.op("Exp", &[x]);
    let sum = e.op("Add", &[&exp, &one]);
    let u = e.op("Mul", &[x, &half]);
    let t = e.op("Tanh", &[&u]);
    e.op("Mul", &[&sum, &t])
}

/// `2 artanh(x / (x + 2))` near 0, `ln(1 + x)` elsewhere.
fn log1p(e: &mut Emit, x: &Name, dtype: DType) -> Name {
    let (half, one, two) = (e.number(dtype, 0.5), e.number(dtype, 1.0), e.number(dtype, 2.0));
    let below = e.op("Add", &[x, &two]);
    let u = e.op("Div", &[x, &below]);
    let near = e.op("Atanh", &[&u]);
    let near = e.op("Mul", &[&near, &two]);
    let sum = e.op("Add", &[x, &one]);
    let far = e.op("Log", &[&sum]);
    let size = e.op("Abs", &[x]);
    let is_near = e.op("Less", &[&size, &half]);
    e.op("Where", &[&is_near, &near, &far])
}

/// Halves away from zero: the standard's go to the even one.
fn round(e: &mut Emit, x: &Name, dtype: DType) -> Name {
    let (half, one) = (e.number(dtype, 0.5), e.number(dtype, 1.0));
    let (size, sign) = (e.op("Abs", &[x]), e.op("Sign", &[x]));
    let whole = e.op("Floor", &[&size]);
    let rest = e.op("Sub", &[&size, &whole]);
    let up = e.op("GreaterOrEqual", &[&rest, &half]);
    let next = e.op("Add", &[&whole, &one]);
    let y = e.op("Where", &[&up, &next, &whole]);
    e.op("Mul", &[&y, &sign])
}

/// The operator of the standard that is this function.
fn named2(f: BinaryFn) -> Option<&'static str> {
    Some(match f {
        BinaryFn::Add => "Add",
        BinaryFn::Sub => "Sub",
        BinaryFn::Mul => "Mul",
        BinaryFn::Div => "Div",
        BinaryFn::Pow => "Pow",
        BinaryFn::Max => "Max",
        BinaryFn::Min => "Min",
        BinaryFn::BitAnd => "BitwiseAnd",
        BinaryFn::BitOr => "BitwiseOr",
        BinaryFn::BitXor => "BitwiseXor",
        BinaryFn::LogicalAnd => "And",
        BinaryFn::LogicalOr => "Or",
        BinaryFn::LogicalXor => "Xor",
        _ => return None,
    })
}

/// A function of two values of one dtype; `over` if the second is repeated to the first's shape.
pub(super) fn binary(e: &mut Emit, f: BinaryFn, a: &Name, b: &Name, dtype: DType, over: bool) -> Result<Name> {
    match f {
        BinaryFn::Max if dtype == DType::Bool => return Ok(e.op("Or", &[a, b])),
        BinaryFn::Min if dtype == DType::Bool => return Ok(e.op("And", &[a, b])),
        BinaryFn::Prelu if over => return Ok(e.op("PRelu", &[a, b])),
        BinaryFn::Fmod => return Ok(e.with("Mod", &[a, b], vec![attr::flag("fmod", true)])),
        BinaryFn::Rem if dtype.is_int() => return Ok(e.op("Mod", &[a, b])),
        BinaryFn::FloorDiv if dtype.is_int() => return Ok(floor_div(e, a, b, dtype)),
        BinaryFn::Shl | BinaryFn::Shr => return Ok(shift(e, f, a, b, dtype)),
        _ => {}
    }
    match named2(f) {
        Some(op) => Ok(e.op(op, &[a, b])),
        None => wide(e, [a, b], dtype, |e, [a, b], dtype| composed2(e, f, a, b, dtype)),
    }
}

/// The quotient towards zero, less one where that is above the exact one.
fn floor_div(e: &mut Emit, a: &Name, b: &Name, dtype: DType) -> Name {
    let q = e.op("Div", &[a, b]);
    if !dtype.is_signed_int() {
        return q;
    }
    let (rest, zero) = (e.op("Mod", &[a, b]), e.number(dtype, 0));
    let (even, below, above) = (e.op("Equal", &[&rest, &zero]), e.op("Less", &[a, &zero]), e.op("Less", &[b, &zero]));
    let (odd, differ) = (e.op("Not", &[&even]), e.op("Xor", &[&below, &above]));
    let less = e.op("And", &[&odd, &differ]);
    let less = e.cast(&less, dtype);
    e.op("Sub", &[&q, &less])
}

/// The standard shifts numbers without a sign, and says nothing of shifts by the width and more.
fn shift(e: &mut Emit, f: BinaryFn, a: &Name, b: &Name, dtype: DType) -> Name {
    let plain = match dtype {
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        DType::I64 => DType::U64,
        other => other,
    };
    let left = f == BinaryFn::Shl;
    let direction = attr::text("direction", if left { "LEFT" } else { "RIGHT" });
    let bits = e.number(dtype, 8 * dtype.size_bytes() as i64 - 1);
    let fits = e.op("LessOrEqual", &[b, &bits]);
    let by = e.op("Min", &[b, &bits]);
    let by = e.cast_from(&by, dtype, plain);
    // a negative number goes to the right as the complement of its complement
    let zero = e.number(dtype, 0);
    let below = if dtype.is_signed_int() && !left { Some(e.op("Less", &[a, &zero])) } else { None };
    let from = match &below {
        Some(below) => {
            let turned = e.op("BitwiseNot", &[a]);
            e.op("Where", &[below, &turned, a])
        }
        None => a.clone(),
    };
    let from = e.cast_from(&from, dtype, plain);
    let y = e.with("BitShift", &[&from, &by], vec![direction]);
    let y = e.cast_from(&y, plain, dtype);
    let y = e.op("Where", &[&fits, &y, &zero]);
    match &below {
        Some(below) => {
            let turned = e.op("BitwiseNot", &[&y]);
            e.op("Where", &[below, &turned, &y])
        }
        None => y,
    }
}

/// A function of two floats that is several operators.
fn composed2(e: &mut Emit, f: BinaryFn, a: &Name, b: &Name, dtype: DType) -> Result<Name> {
    let zero = e.number(dtype, 0.0);
    Ok(match f {
        BinaryFn::Rem => rem(e, a, b, dtype),
        BinaryFn::FloorDiv => floor_quotient(e, a, b, dtype),
        BinaryFn::Atan2 => atan2(e, a, b, dtype),
        BinaryFn::LogAddExp => {
            let (most, less) = (e.op("Max", &[a, b]), e.op("Sub", &[a, b]));
            let size = e.op("Abs", &[&less]);
            let minus = e.op("Neg", &[&size]);
            let more = e.op("Softplus", &[&minus]);
            // equal infinities have no difference
            let (equal, two) = (e.op("Equal", &[a, b]), e.number(dtype, LN_2));
            let more = e.op("Where", &[&equal, &two, &more]);
            e.op("Add", &[&most, &more])
        }
        BinaryFn::Hypot => hypot(e, a, b, dtype),
        BinaryFn::Copysign => {
            let size = e.op("Abs", &[a]);
            let minus = e.op("Neg", &[&size]);
            let negative = has_sign(e, b, dtype);
            e.op("Where", &[&negative, &minus, &size])
        }
        BinaryFn::DivOrZero => {
            let (none, q) = (e.op("Equal", &[b, &zero]), e.op("Div", &[a, b]));
            e.op("Where", &[&none, &zero, &q])
        }
        BinaryFn::BceWithLogits => {
            // |a| times what the target is off by
            let (one, above) = (e.number(dtype, 1.0), e.op("Greater", &[a, &zero]));
            let rest = e.op("Sub", &[&one, b]);
            let off = e.op("Where", &[&above, &rest, b]);
            let size = e.op("Abs", &[a]);
            let wrong = e.op("Mul", &[&size, &off]);
            let certain = e.op("Equal", &[&off, &zero]);
            let wrong = e.op("Where", &[&certain, &zero, &wrong]);
            let minus = e.op("Neg", &[&size]);
            let more = e.op("Softplus", &[&minus]);
            e.op("Add", &[&wrong, &more])
        }
        BinaryFn::Bce => {
            let (one, least) = (e.number(dtype, 1.0), e.number(dtype, -100.0));
            let (yes, minus) = (e.op("Log", &[a]), e.op("Neg", &[a]));
            let no = log1p(e, &minus, dtype);
            let (yes, no) = (e.op("Max", &[&yes, &least]), e.op("Max", &[&no, &least]));
            let rest = e.op("Sub", &[b, &one]);
            let (yes, no) = (e.op("Mul", &[b, &yes]), e.op("Mul", &[&rest, &no]));
            e.op("Sub", &[&no, &yes])
        }
        BinaryFn::Huber => {
            let half = e.number(dtype, 0.5);
            let size = e.op("Abs", &[a]);
            let inner = e.op("Mul", &[&half, a]);
            let inner = e.op("Mul", &[&inner, a]);
            let less = e.op("Mul", &[&half, b]);
            let outer = e.op("Sub", &[&size, &less]);
            let outer = e.op("Mul", &[b, &outer]);
            let near = e.op("LessOrEqual", &[&size, b]);
            e.op("Where", &[&near, &inner, &outer])
        }
        BinaryFn::Elu => {
            let above = e.op("Greater", &[a, &zero]);
            let y = expm1(e, a, dtype);
            let y = e.op("Mul", &[b, &y]);
            e.op("Where", &[&above, a, &y])
        }
        BinaryFn::Prelu => {
            let (above, y) = (e.op("Greater", &[a, &zero]), e.op("Mul", &[a, b]));
            e.op("Where", &[&above, a, &y])
        }
        BinaryFn::Zeta | BinaryFn::GammaInc | BinaryFn::GammaIncc => return Err(left_out(NO_FUNCTION)),
        _ => return Err(left_out(super::GRADIENT)),
    })
}

/// The remainder with the sign of `b`.
fn rem(e: &mut Emit, a: &Name, b: &Name, dtype: DType) -> Name {
    let (r, zero) = (e.with("Mod", &[a, b], vec![attr::flag("fmod", true)]), e.number(dtype, 0.0));
    let (even, below, above) = (e.op("Equal", &[&r, &zero]), e.op("Less", &[&r, &zero]), e.op("Less", &[b, &zero]));
    let (odd, differ) = (e.op("Not", &[&even]), e.op("Xor", &[&below, &above]));
    let moves = e.op("And", &[&odd, &differ]);
    let moved = e.op("Add", &[&r, b]);
    e.op("Where", &[&moves, &moved, &r])
}

/// The largest whole number that is not above the exact quotient.
fn floor_quotient(e: &mut Emit, a: &Name, b: &Name, dtype: DType) -> Name {
    let zero = e.number(dtype, 0.0);
    let rest = rem(e, a, b, dtype);
    let whole = e.op("Sub", &[a, &rest]);
    let y = e.op("Div", &[&whole, b]);
    let y = e.op("Round", &[&y]);
    let q = e.op("Div", &[a, b]);
    // a zero has the sign of the quotient
    let (none, signed) = (e.op("Equal", &[&y, &zero]), e.op("Mul", &[&zero, &q]));
    let y = e.op("Where", &[&none, &signed, &y]);
    let (minus, infinite, endless) = (e.number(dtype, -1.0), e.op("IsInf", &[b]), e.op("IsInf", &[a]));
    // nothing is left over of a number divided by zero
    let (nan, bounded, below) = (e.op("IsNaN", &[&y]), e.op("Not", &[&endless]), e.op("Floor", &[&q]));
    let open = e.op("And", &[&nan, &bounded]);
    let y = e.op("Where", &[&open, &below, &y]);
    // a number is less than nothing of an infinity of the other sign
    let (left, right) = (e.op("Less", &[a, &zero]), e.op("Less", &[b, &zero]));
    let (differ, equal) = (e.op("Xor", &[&left, &right]), e.op("Equal", &[a, &zero]));
    let either = e.op("Or", &[&endless, &equal]);
    let some = e.op("Not", &[&either]);
    let differ = e.op("And", &[&differ, &some]);
    let less = e.op("And", &[&differ, &infinite]);
    e.op("Where", &[&less, &minus, &y])
}

/// True for what is below zero, and for minus zero.
fn has_sign(e: &mut Emit, x: &Name, dtype: DType) -> Name {
    let zero = e.number(dtype, 0.0);
    let (below, none) = (e.op("Less", &[x, &zero]), e.op("Equal", &[x, &zero]));
    let turned = e.op("Reciprocal", &[x]);
    let sign = e.op("Less", &[&turned, &zero]);
    let minus_zero = e.op("And", &[&none, &sign]);
    e.op("Or", &[&below, &minus_zero])
}

/// By the half plane in which the point lies.
fn atan2(e: &mut Emit, y: &Name, x: &Name, dtype: DType) -> Name {
    let (zero, quarter, half) = (e.number(dtype, 0.0), e.number(dtype, FRAC_PI_2), e.number(dtype, PI));
    let (down, left) = (has_sign(e, y, dtype), has_sign(e, x, dtype));
    let signed = |e: &mut Emit, v: &Name| {
        let minus = e.op("Neg", &[v]);
        e.op("Where", &[&down, &minus, v])
    };
    let (quarter, half) = (signed(e, &quarter), signed(e, &half));
    let ratio = e.op("Div", &[y, x]);
    // two zeros and two infinities are as 0 and as 1
    let (y_none, x_none) = (e.op("Equal", &[y, &zero]), e.op("Equal", &[x, &zero]));
    let none = e.op("And", &[&y_none, &x_none]);
    let ratio = e.op("Where", &[&none, y, &ratio]);
    let (y_far, x_far) = (e.op("IsInf", &[y]), e.op("IsInf", &[x]));
    let far = e.op("And", &[&y_far, &x_far]);
    let (ys, xs) = (e.op("Sign", &[y]), e.op("Sign", &[x]));
    let signs = e.op("Mul", &[&ys, &xs]);
    let ratio = e.op("Where", &[&far, &signs, &ratio]);
    let right = e.op("Atan", &[&ratio]);
    // of two zeros on the left the ratio is to be without a sign of its own
    let zeroed = e.op("Where", &[&none, &zero, &right]);
    let turned = e.op("Add", &[&zeroed, &half]);
    let whole = e.op("Where", &[&left, &turned, &right]);
    let y_some = e.op("Not", &[&y_none]);
    let upright = e.op("And", &[&x_none, &y_some]);
    e.op("Where", &[&upright, &quarter, &whole])
}

/// The larger times the root of one and the square of the ratio: without overflow.
fn hypot(e: &mut Emit, a: &Name, b: &Name, dtype: DType) -> Name {
    let (zero, one) = (e.number(dtype, 0.0), e.number(dtype, 1.0));
    let (a, b) = (e.op("Abs", &[a]), e.op("Abs", &[b]));
    let (most, least) = (e.op("Max", &[&a, &b]), e.op("Min", &[&a, &b]));
    let ratio = e.op("Div", &[&least, &most]);
    let (none, infinite) = (e.op("Equal", &[&most, &zero]), e.op("IsInf", &[&most]));
    let flat = e.op("Or", &[&none, &infinite]);
    let ratio = e.op("Where", &[&flat, &zero, &ratio]);
    let square = e.op("Mul", &[&ratio, &ratio]);
    let sum = e.op("Add", &[&square, &one]);
    let root = e.op("Sqrt", &[&sum]);
    let y = e.op("Mul", &[&most, &root]);
    // an infinity is as far whatever the other is
    let (left, right) = (e.op("IsInf", &[&a]), e.op("IsInf", &[&b]));
    let (far, endless) = (e.op("Or", &[&left, &right]), e.number(dtype, f64::INFINITY));
    e.op("Where", &[&far, &endless, &y])
}
