//! Floats of 16 bits, alone and in pairs (PTX ISA 8.7, section 9.7.4).

use super::compile::Compiler;
use super::control::Answer;
use crate::lanes::Reg;
use crate::number::{Bf16, F16, Half, add_to_odd};
use crate::ptx::Instruction;

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        [op, rest @ .., "f16"] => one::<F16>(c, i, op, rest),
        [op, rest @ .., "bf16"] => one::<Bf16>(c, i, op, rest),
        [op, rest @ .., "f16x2"] => two::<F16>(c, i, op, rest),
        [op, rest @ .., "bf16x2"] => two::<Bf16>(c, i, op, rest),
        _ => Ok(None),
    }
}

fn sum<H: Half>(a: H, b: H) -> H {
    H::nearest(a.value() + b.value())
}

fn difference<H: Half>(a: H, b: H) -> H {
    H::nearest(a.value() - b.value())
}

fn product<H: Half>(a: H, b: H) -> H {
    H::nearest(a.value() * b.value())
}

/// The product of two such numbers is exact in f64. The sum is rounded to odd, so that the next rounding is the only one.
fn fused<H: Half>(a: H, b: H, c: H) -> H {
    H::nearest(add_to_odd(a.value() * b.value(), c.value()))
}

fn relu<H: Half>(a: H) -> H {
    if a.value() < 0.0 { H::from_bits(0) } else { a }
}

fn negative<H: Half>(a: H) -> H {
    H::from_bits(a.bits() ^ 0x8000)
}

fn magnitude<H: Half>(a: H) -> H {
    H::from_bits(a.bits() & 0x7fff)
}

fn least<H: Half>(a: H, b: H) -> H {
    let (x, y) = (a.value(), b.value());
    chosen(a, b, x < y || x == y && x.is_sign_negative())
}

fn largest<H: Half>(a: H, b: H) -> H {
    let (x, y) = (a.value(), b.value());
    chosen(a, b, x > y || x == y && x.is_sign_positive())
}

/// A number wins over NaN.
fn chosen<H: Half>(a: H, b: H, is_first: bool) -> H {
    match (a.value().is_nan(), b.value().is_nan()) {
        (true, true) => H::nearest(f64::NAN),
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            if is_first {
                a
            } else {
                b
            }
        }
    }
}

fn or_nan<H: Half>(a: H, b: H, otherwise: H) -> H {
    if a.value().is_nan() || b.value().is_nan() { H::nearest(f64::NAN) } else { otherwise }
}

fn one<'a, H: Half + Reg>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, op: &str, rest: &[&'a str]) -> Answer {
    match (op, rest) {
        ("add", ["rn"]) => c.map2(i, sum::<H>),
        ("sub", ["rn"]) => c.map2(i, difference::<H>),
        ("mul", ["rn"]) => c.map2(i, product::<H>),
        ("fma", ["rn"]) => c.map3(i, fused::<H>),
        ("fma", ["rn", "relu"]) => c.map3(i, |a, b, c: H| relu(fused(a, b, c))),
        ("neg", []) => c.map1(i, negative::<H>),
        ("abs", []) => c.map1(i, magnitude::<H>),
        ("min", []) => c.map2(i, least::<H>),
        ("max", []) => c.map2(i, largest::<H>),
        ("min", ["NaN"]) => c.map2(i, |a: H, b: H| or_nan(a, b, least(a, b))),
        ("max", ["NaN"]) => c.map2(i, |a: H, b: H| or_nan(a, b, largest(a, b))),
        _ => Ok(None),
    }
}

fn two<'a, H: Half>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, op: &str, rest: &[&'a str]) -> Answer {
    match (op, rest) {
        ("add", ["rn"]) => c.map2(i, |a, b| both(a, b, sum::<H>)),
        ("sub", ["rn"]) => c.map2(i, |a, b| both(a, b, difference::<H>)),
        ("mul", ["rn"]) => c.map2(i, |a, b| both(a, b, product::<H>)),
        ("fma", ["rn"]) => c.map3(i, |a, b, c| three(a, b, c, fused::<H>)),
        ("fma", ["rn", "relu"]) => c.map3(i, |a, b, c| three(a, b, c, |a, b, c: H| relu(fused(a, b, c)))),
        ("neg", []) => c.map1(i, |a| both(a, 0, |a: H, _| negative(a))),
        ("abs", []) => c.map1(i, |a| both(a, 0, |a: H, _| magnitude(a))),
        ("min", []) => c.map2(i, |a, b| both(a, b, least::<H>)),
        ("max", []) => c.map2(i, |a, b| both(a, b, largest::<H>)),
        ("min", ["NaN"]) => c.map2(i, |a, b| both(a, b, |a: H, b| or_nan(a, b, least(a, b)))),
        ("max", ["NaN"]) => c.map2(i, |a, b| both(a, b, |a: H, b| or_nan(a, b, largest(a, b)))),
        _ => Ok(None),
    }
}

fn halves<H: Half>(a: u32) -> [H; 2] {
    [H::from_bits(a as u16), H::from_bits((a >> 16) as u16)]
}

fn both<H: Half>(a: u32, b: u32, f: impl Fn(H, H) -> H) -> u32 {
    let (a, b) = (halves::<H>(a), halves::<H>(b));
    u32::from(f(a[0], b[0]).bits()) | u32::from(f(a[1], b[1]).bits()) << 16
}

fn three<H: Half>(a: u32, b: u32, c: u32, f: impl Fn(H, H, H) -> H) -> u32 {
    let (a, b, c) = (halves::<H>(a), halves::<H>(b), halves::<H>(c));
    u32::from(f(a[0], b[0], c[0]).bits()) | u32::from(f(a[1], b[1], c[1]).bits()) << 16
}
