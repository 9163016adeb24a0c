//! Floats of 32 and 64 bits (PTX ISA 8.7, section 9.7.3).
//!
//! Single-precision results that are NaN are `0x7fffffff`. Double-precision ones keep a payload as processors do. Subnormal
//! numbers are numbers: `.ftz` is refused.

use super::compile::Compiler;
use super::control::Answer;
use super::op::Op;
use crate::lanes::lift_fused;
use crate::number::{Format, Rounding, add_directed, add_to_odd, canonical};
use crate::ptx::{Instruction, Refusal};

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["add" | "sub" | "mul", "f32" | "f64" | "f16" | "f16x2" | "bf16" | "bf16x2"] => Err(Refusal::new(
            i.line,
            "without `.rn` the compiler behind PTX may fuse it into `fma`: compile with --fmad=false",
        )),
        ["add", "rn", "f32"] => c.map2(i, |a: f32, b: f32| canonical(a + b)),
        ["sub", "rn", "f32"] => c.map2(i, |a: f32, b: f32| canonical(a - b)),
        ["mul", "rn", "f32"] => c.map2(i, |a: f32, b: f32| canonical(a * b)),
        ["div", "rn", "f32"] => c.map2(i, |a: f32, b: f32| canonical(a / b)),
        ["fma" | "mad", "rn", "f32"] => {
            let [d, x, y, z] = &i.operands[..] else { return Err(Refusal::new(i.line, "fma takes four operands")) };
            let from = (c.from::<f32>(x, i.line)?, c.from::<f32>(y, i.line)?, c.from::<f32>(z, i.line)?);
            Ok(Some(Op::Alu(lift_fused(c.to::<f32>(d, i.line)?, from))))
        }
        ["sqrt", "rn", "f32"] => c.map1(i, |a: f32| canonical(a.sqrt())),
        ["rcp", "rn", "f32"] => c.map1(i, |a: f32| canonical(1.0 / a)),
        ["add", "rn", "f64"] => c.map2(i, |a: f64, b: f64| a + b),
        ["sub", "rn", "f64"] => c.map2(i, |a: f64, b: f64| a - b),
        ["mul", "rn", "f64"] => c.map2(i, |a: f64, b: f64| a * b),
        ["div", "rn", "f64"] => c.map2(i, |a: f64, b: f64| a / b),
        ["fma" | "mad", "rn", "f64"] => c.map3(i, |a: f64, b: f64, c: f64| a.mul_add(b, c)),
        ["sqrt", "rn", "f64"] => c.map1(i, |a: f64| a.sqrt()),
        ["rcp", "rn", "f64"] => c.map1(i, |a: f64| 1.0 / a),
        [op @ ("add" | "sub" | "mul" | "fma" | "mad"), mode @ ("rz" | "rm" | "rp"), "f32"] => directed(c, i, op, mode),
        [op @ ("add" | "sub"), mode @ ("rz" | "rm" | "rp"), "f64"] => {
            let (mode, is_sum) = (rounding(mode), *op == "add");
            c.map2(i, move |a: f64, b: f64| add_directed(a, if is_sum { b } else { -b }, mode))
        }
        ["neg" | "abs" | "copysign" | "testp", ..] => signs(c, i, words),
        ["min" | "max", ..] => extremes(c, i, words),
        _ => Ok(None),
    }
}

fn rounding(mode: &str) -> Rounding {
    match mode {
        "rz" => Rounding::Zero,
        "rm" => Rounding::Down,
        _ => Rounding::Up,
    }
}

/// The other rounding modes of f32: the product of two such numbers is exact in f64, and the sum is rounded to odd before
/// the one rounding that counts.
fn directed<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, op: &str, mode: &str) -> Answer {
    let mode = rounding(mode);
    let total = move |p: f64, c: f64| {
        // a sum of opposites is -0 if it is rounded down
        let is_opposite = p == -c && (p != 0.0 || p.is_sign_negative() != c.is_sign_negative());
        let sum = if is_opposite && mode == Rounding::Down { -0.0 } else { add_to_odd(p, c) };
        f32::from_bits(Format::F32.encode(sum, mode) as u32)
    };
    match op {
        "add" => c.map2(i, move |a: f32, b: f32| total(f64::from(a), f64::from(b))),
        "sub" => c.map2(i, move |a: f32, b: f32| total(f64::from(a), -f64::from(b))),
        "mul" => {
            c.map2(
                i,
                move |a: f32, b: f32| f32::from_bits(Format::F32.encode(f64::from(a) * f64::from(b), mode) as u32),
            )
        }
        _ => c.map3(i, move |a: f32, b: f32, c: f32| total(f64::from(a) * f64::from(b), f64::from(c))),
    }
}

fn signs<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["neg", "f32"] => c.map1(i, |a: f32| -a),
        ["neg", "f64"] => c.map1(i, |a: f64| -a),
        ["abs", "f32"] => c.map1(i, |a: f32| a.abs()),
        ["abs", "f64"] => c.map1(i, |a: f64| a.abs()),
        // the sign of the first operand on the second (PTX ISA 8.7, section 9.7.3.2)
        ["copysign", "f32"] => c.map2(i, |a: f32, b: f32| b.copysign(a)),
        ["copysign", "f64"] => c.map2(i, |a: f64, b: f64| b.copysign(a)),
        ["testp", "finite", "f32"] => c.map1(i, f32::is_finite),
        ["testp", "infinite", "f32"] => c.map1(i, f32::is_infinite),
        ["testp", "number", "f32"] => c.map1(i, |a: f32| !a.is_nan()),
        ["testp", "notanumber", "f32"] => c.map1(i, f32::is_nan),
        ["testp", "normal", "f32"] => c.map1(i, f32::is_normal),
        ["testp", "subnormal", "f32"] => c.map1(i, f32::is_subnormal),
        ["testp", "finite", "f64"] => c.map1(i, f64::is_finite),
        ["testp", "infinite", "f64"] => c.map1(i, f64::is_infinite),
        ["testp", "number", "f64"] => c.map1(i, |a: f64| !a.is_nan()),
        ["testp", "notanumber", "f64"] => c.map1(i, f64::is_nan),
        ["testp", "normal", "f64"] => c.map1(i, f64::is_normal),
        ["testp", "subnormal", "f64"] => c.map1(i, f64::is_subnormal),
        _ => Ok(None),
    }
}

/// `min` and `max` (PTX ISA 8.7, sections 9.7.3.11 and 9.7.3.12): a number wins over NaN unless `.NaN` is given, and +0 is
/// above -0.
fn extremes<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["min", "f32"] => {
            c.map2(i, |a: f32, b: f32| canonical(pick(a, b, a < b || a == b && a.is_sign_negative(), b.is_nan())))
        }
        ["max", "f32"] => {
            c.map2(i, |a: f32, b: f32| canonical(pick(a, b, a > b || a == b && a.is_sign_positive(), b.is_nan())))
        }
        ["min", "NaN", "f32"] => {
            c.map2(i, |a: f32, b: f32| canonical(pick(a, b, a < b || a == b && a.is_sign_negative(), a.is_nan())))
        }
        ["max", "NaN", "f32"] => {
            c.map2(i, |a: f32, b: f32| canonical(pick(a, b, a > b || a == b && a.is_sign_positive(), a.is_nan())))
        }
        ["min", "f64"] => c.map2(i, |a: f64, b: f64| pick(a, b, a < b || a == b && a.is_sign_negative(), b.is_nan())),
        ["max", "f64"] => c.map2(i, |a: f64, b: f64| pick(a, b, a > b || a == b && a.is_sign_positive(), b.is_nan())),
        _ => Ok(None),
    }
}

fn pick<T>(a: T, b: T, is_first: bool, or_first: bool) -> T {
    if is_first || or_first { a } else { b }
}
