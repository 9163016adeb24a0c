//! Functions of two values.

use std::f64::consts::{FRAC_PI_2, LN_2, PI};

use remat_ops::pointwise::BinaryFn;
use remat_types::{DType, Result};

use super::unary::{NO_FUNCTION, expm1, log1p};
use super::wide;
use crate::export::attribute as attr;
use crate::export::emit::{Emit, Name};
use crate::export::lower::left_out;
use crate::export::rules::GRADIENT;

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
pub(in crate::export::rules) fn binary(
    e: &mut Emit,
    f: BinaryFn,
    a: &Name,
    b: &Name,
    dtype: DType,
    over: bool,
) -> Result<Name> {
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
        _ => return Err(left_out(GRADIENT)),
    })
}

/// The remainder with the sign of `b`.
pub(in crate::export::rules) fn rem(e: &mut Emit, a: &Name, b: &Name, dtype: DType) -> Name {
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

/// True for numbers below zero, and for minus zero.
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
