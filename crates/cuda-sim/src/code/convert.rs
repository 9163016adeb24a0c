//! `cvt` among integers and floats (PTX ISA 8.7, section 9.7.9.21).
//!
//! Registers may be wider than the types: a source is cut, and a result is extended by its sign. Frequent conversions have
//! loops of their own; the others go through a function on 64 bits.

use super::compile::Compiler;
use super::control::Answer;
use super::names::{bits_of_class, class_of_type};
use super::op::Op;
use crate::lanes::{Class, Slot, lift1, lift2};
use crate::number::{Bf16, Exact, F16, Format, Half, Rounding, canonical};
use crate::ptx::{Instruction, Operand, Parsed, Refusal, Ty};

/// The modifiers of a conversion.
#[derive(Clone, Copy, Default)]
struct Modifiers {
    rounding: Option<Rounding>,
    /// Rounding to an integral value: `.rni` and the like.
    integral: Option<Rounding>,
    is_saturated: bool,
}

type Function = Box<dyn Fn(u64) -> u64 + Send + Sync>;

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    let ["cvt", modifiers @ .., to, from] = words else { return Ok(None) };
    if *to == "tf32" {
        return tf32(c, i, modifiers, from);
    }
    let (Some(to), Some(from)) = (Ty::named(to), Ty::named(from)) else { return Ok(None) };
    if matches!(to, Ty::F16x2 | Ty::Bf16x2) {
        return pair(c, i, modifiers, to, from);
    }
    let Some(m) = parse_modifiers(modifiers) else { return Ok(None) };
    let [d, a] = &i.operands[..] else { return Err(Refusal::new(i.line, "cvt takes two operands")) };
    let classes = (register_class(c, d, to, i.line)?, register_class(c, a, from, i.line)?);
    if let Some(answer) = frequent(c, i, (to, from), m, classes)? {
        return Ok(Some(answer));
    }
    let Some(f) = function(to, from, m) else { return Ok(None) };
    let (_, a) = c.any_from(a, from, i.line)?;
    let (_, d) = c.any_from(d, to, i.line)?;
    Ok(Some(Op::Alu(lift_raw(d, a, classes, f))))
}

/// The class of an operand's register, which must be at least as wide as the type.
fn register_class<'a>(c: &mut Compiler<'_, 'a>, operand: &Operand<'a>, ty: Ty, line: u32) -> Parsed<Class> {
    let (class, _) = c.any_from(operand, ty, line)?;
    if class == Class::Predicate || ty == Ty::Pred || bits_of_class(class) < 8 * ty.bytes() {
        return Err(Refusal::new(line, "a register is too narrow for its type"));
    }
    Ok(class)
}

fn parse_modifiers(words: &[&str]) -> Option<Modifiers> {
    let mut m = Modifiers::default();
    for word in words {
        match *word {
            "rn" if m.rounding.is_none() => m.rounding = Some(Rounding::NearestEven),
            "rz" if m.rounding.is_none() => m.rounding = Some(Rounding::Zero),
            "rm" if m.rounding.is_none() => m.rounding = Some(Rounding::Down),
            "rp" if m.rounding.is_none() => m.rounding = Some(Rounding::Up),
            "rni" if m.integral.is_none() => m.integral = Some(Rounding::NearestEven),
            "rzi" if m.integral.is_none() => m.integral = Some(Rounding::Zero),
            "rmi" if m.integral.is_none() => m.integral = Some(Rounding::Down),
            "rpi" if m.integral.is_none() => m.integral = Some(Rounding::Up),
            "sat" if !m.is_saturated => m.is_saturated = true,
            _ => return None,
        }
    }
    (m.rounding.is_none() || m.integral.is_none()).then_some(m)
}

fn frequent<'a>(
    c: &mut Compiler<'_, 'a>,
    i: &Instruction<'a>,
    (to, from): (Ty, Ty),
    m: Modifiers,
    classes: (Class, Class),
) -> Answer {
    use Rounding::{NearestEven, Zero};
    if (Some(classes.0), Some(classes.1)) != (class_of_type(to), class_of_type(from)) || m.is_saturated {
        return Ok(None);
    }
    match (to, from, m.rounding, m.integral) {
        (Ty::U64 | Ty::S64, Ty::U32, None, None) => c.map1(i, |a: u32| u64::from(a)),
        (Ty::U64 | Ty::S64, Ty::S32, None, None) => c.map1(i, |a: i32| i64::from(a)),
        (Ty::U32 | Ty::S32, Ty::U64 | Ty::S64, None, None) => c.map1(i, |a: u64| a as u32),
        (Ty::F32, Ty::U32, Some(NearestEven), None) => c.map1(i, |a: u32| a as f32),
        (Ty::F32, Ty::S32, Some(NearestEven), None) => c.map1(i, |a: i32| a as f32),
        (Ty::U32, Ty::F32, None, Some(Zero)) => c.map1(i, |a: f32| a as u32),
        (Ty::S32, Ty::F32, None, Some(Zero)) => c.map1(i, |a: f32| a as i32),
        (Ty::S32, Ty::F32, None, Some(NearestEven)) => c.map1(i, |a: f32| a.round_ties_even() as i32),
        (Ty::F32, Ty::F32, None, Some(NearestEven)) => c.map1(i, |a: f32| canonical(a.round_ties_even())),
        (Ty::F32, Ty::F64, Some(NearestEven), None) => c.map1(i, |a: f64| canonical(a as f32)),
        (Ty::F64, Ty::F32, None, None) => c.map1(i, |a: f32| f64::from(a)),
        (Ty::F32, Ty::F16, None, None) => c.map1(i, |a: F16| canonical(a.value() as f32)),
        (Ty::F32, Ty::Bf16, None, None) => c.map1(i, |a: Bf16| canonical(a.value() as f32)),
        _ => Ok(None),
    }
}

/// A conversion on raw bits: those of the source in the lowest places, and the result extended to 64 bits.
fn function(to: Ty, from: Ty, m: Modifiers) -> Option<Function> {
    match (to.is_float(), from.is_float()) {
        (false, false) => integer_to_integer(to, from, m),
        (true, false) => integer_to_float(to, from, m),
        (false, true) => float_to_integer(to, from, m),
        (true, true) => float_to_float(to, from, m),
    }
}

fn is_bits(ty: Ty) -> bool {
    matches!(ty, Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64 | Ty::Pred)
}

/// The lowest bits as a value of the type, extended to 64 bits.
pub(super) fn extend(raw: u64, bytes: u32, is_signed: bool) -> u64 {
    let unused = 64 - 8 * bytes;
    if is_signed { ((raw << unused) as i64 >> unused) as u64 } else { raw << unused >> unused }
}

fn range(ty: Ty) -> (i128, i128) {
    let bits = 8 * ty.bytes();
    if ty.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

fn integer_to_integer(to: Ty, from: Ty, m: Modifiers) -> Option<Function> {
    if is_bits(to) || is_bits(from) || m.rounding.is_some() || m.integral.is_some() {
        return None;
    }
    let (low, high) = range(to);
    Some(Box::new(move |raw| {
        let value = extend(raw, from.bytes(), from.is_signed());
        if m.is_saturated {
            let value = if from.is_signed() { i128::from(value as i64) } else { i128::from(value) };
            return value.clamp(low, high) as u64;
        }
        extend(value, to.bytes(), to.is_signed())
    }))
}

fn format(ty: Ty) -> Option<Format> {
    Some(match ty {
        Ty::F16 => Format::F16,
        Ty::Bf16 => Format::BF16,
        Ty::F32 => Format::F32,
        Ty::F64 => Format::F64,
        _ => return None,
    })
}

fn integer_to_float(to: Ty, from: Ty, m: Modifiers) -> Option<Function> {
    let (format, rounding) = (format(to)?, m.rounding?);
    if is_bits(from) || m.is_saturated {
        return None;
    }
    Some(Box::new(move |raw| {
        let value = extend(raw, from.bytes(), from.is_signed());
        format.round(Exact::integer(value, from.is_signed()), rounding)
    }))
}

fn decode(raw: u64, ty: Ty) -> f64 {
    match ty {
        Ty::F16 => F16(raw as u16).value(),
        Ty::Bf16 => Bf16(raw as u16).value(),
        Ty::F32 => f64::from(f32::from_bits(raw as u32)),
        _ => f64::from_bits(raw),
    }
}

fn integral(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::NearestEven | Rounding::NearestAway => x.round_ties_even(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
    }
}

/// Values beyond the range give its ends. NaN gives 0, or the highest bit alone if one side has 64 bits.
fn float_to_integer(to: Ty, from: Ty, m: Modifiers) -> Option<Function> {
    let (rounding, (low, high)) = (m.integral?, range(to));
    if is_bits(to) || format(from).is_none() {
        return None;
    }
    let of_nan = if from == Ty::F64 || to.bytes() == 8 { 1u64 << (8 * to.bytes() - 1) } else { 0 };
    let of_nan = extend(of_nan, to.bytes(), to.is_signed());
    Some(Box::new(move |raw| {
        let x = decode(raw, from);
        if x.is_nan() { of_nan } else { (integral(x, rounding) as i128).clamp(low, high) as u64 }
    }))
}

fn float_to_float(to: Ty, from: Ty, m: Modifiers) -> Option<Function> {
    let (target, source) = (format(to)?, format(from)?);
    let needs_rounding = to.bytes() < from.bytes();
    let is_known = (to == from || to.bytes() != from.bytes())
        && needs_rounding == m.rounding.is_some()
        && (m.integral.is_none() || to == from);
    if !is_known || m.is_saturated && matches!(to, Ty::F16 | Ty::Bf16) {
        return None;
    }
    let rounding = m.rounding.unwrap_or(Rounding::NearestEven);
    Some(Box::new(move |raw| {
        let mut x = decode(raw, from);
        if let Some(mode) = m.integral {
            x = integral(x, mode);
        }
        if m.is_saturated {
            // NaN and -0 become +0
            x = if x > 0.0 { x.min(1.0) } else { 0.0 };
        }
        if target == Format::F64 && (x.is_nan() || source == Format::F64) {
            return x.to_bits();
        }
        target.encode(x, rounding)
    }))
}

fn lift_raw(d: Slot, a: Slot, classes: (Class, Class), f: Function) -> crate::lanes::Alu {
    match classes {
        (Class::Half, Class::Half) => lift1(d, a, move |a: u16| f(u64::from(a)) as u16),
        (Class::Half, Class::Word) => lift1(d, a, move |a: u32| f(u64::from(a)) as u16),
        (Class::Half, _) => lift1(d, a, move |a: u64| f(a) as u16),
        (Class::Word, Class::Half) => lift1(d, a, move |a: u16| f(u64::from(a)) as u32),
        (Class::Word, Class::Word) => lift1(d, a, move |a: u32| f(u64::from(a)) as u32),
        (Class::Word, _) => lift1(d, a, move |a: u64| f(a) as u32),
        (_, Class::Half) => lift1(d, a, move |a: u16| f(u64::from(a))),
        (_, Class::Word) => lift1(d, a, move |a: u32| f(u64::from(a))),
        (_, _) => lift1(d, a, move |a: u64| f(a)),
    }
}

/// `cvt.rn.f16x2.f32 d, a, b`: a becomes the upper half.
fn pair<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str], to: Ty, from: Ty) -> Answer {
    let (Some(m), Ty::F32, [d, a, b]) = (parse_modifiers(words), from, &i.operands[..]) else { return Ok(None) };
    let (Some(mode @ (Rounding::NearestEven | Rounding::Zero)), false) = (m.rounding, m.is_saturated) else {
        return Ok(None);
    };
    let format = if to == Ty::F16x2 { Format::F16 } else { Format::BF16 };
    let from = (c.from::<f32>(a, i.line)?, c.from::<f32>(b, i.line)?);
    let half = move |x: f32| format.encode(f64::from(x), mode) as u32;
    Ok(Some(Op::Alu(lift2(c.to::<u32>(d, i.line)?, from, move |a: f32, b: f32| half(a) << 16 | half(b)))))
}

/// A tf32 number lies in the upper 19 bits of a register of 32.
fn tf32<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str], from: &str) -> Answer {
    let mode = match words {
        ["rna"] => Rounding::NearestAway,
        ["rn"] => Rounding::NearestEven,
        ["rz"] => Rounding::Zero,
        _ => return Ok(None),
    };
    if from != "f32" {
        return Ok(None);
    }
    c.map1(i, move |a: f32| (Format::TF32.encode(f64::from(a), mode) as u32) << 13)
}
