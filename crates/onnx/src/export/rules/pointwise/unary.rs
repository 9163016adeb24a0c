//! Functions of one value.

use std::f64::consts::{LN_2, LOG10_E, PI};

use remat_ops::pointwise::UnaryFn;
use remat_types::{DType, Result};

use super::wide;
use crate::export::attribute as attr;
use crate::export::emit::{Emit, Name};
use crate::export::lower::left_out;

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
pub(in crate::export::rules) fn unary(e: &mut Emit, f: UnaryFn, x: &Name, dtype: DType) -> Result<Name> {
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
pub(super) const NO_FUNCTION: &str = "the standard has no such function, and none that it is composed of";

/// `(e^x + 1) tanh(x / 2)`: accurate near 0, and -1 at minus infinity.
pub(super) fn expm1(e: &mut Emit, x: &Name, dtype: DType) -> Name {
    let (half, one) = (e.number(dtype, 0.5), e.number(dtype, 1.0));
    let exp = e.op("Exp", &[x]);
    let sum = e.op("Add", &[&exp, &one]);
    let u = e.op("Mul", &[x, &half]);
    let t = e.op("Tanh", &[&u]);
    e.op("Mul", &[&sum, &t])
}

/// `2 artanh(x / (x + 2))` near 0, `ln(1 + x)` elsewhere.
pub(super) fn log1p(e: &mut Emit, x: &Name, dtype: DType) -> Name {
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
