//! Integer arithmetic (PTX ISA 8.7, section 9.7.1).

use super::compile::Compiler;
use super::control::Answer;
use crate::ptx::Instruction;

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["add" | "sub" | "mul" | "mad", ..] => sums(c, i, words),
        ["mul24" | "mad24", ..] => products_24(c, i, words),
        ["div" | "rem", _] => quotients(c, i, words),
        ["min" | "max" | "abs" | "neg" | "sad", ..] => others(c, i, words),
        ["dp4a", a @ ("u32" | "s32"), b @ ("u32" | "s32")] => {
            let (a, b) = (*a == "s32", *b == "s32");
            c.map3(i, move |x: u32, y: u32, z: u32| {
                let byte = |v: u32, k: u32, is_signed: bool| {
                    let byte = (v >> (8 * k)) as u8;
                    if is_signed { i32::from(byte as i8) } else { i32::from(byte) }
                };
                (0..4).fold(z, |sum, k| sum.wrapping_add((byte(x, k, a) * byte(y, k, b)) as u32))
            })
        }
        _ => Ok(None),
    }
}

fn sums<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["add", "u16" | "s16"] => c.map2(i, u16::wrapping_add),
        ["add", "u32" | "s32"] => c.map2(i, u32::wrapping_add),
        ["add", "u64" | "s64"] => c.map2(i, u64::wrapping_add),
        ["add", "sat", "s32"] => c.map2(i, i32::saturating_add),
        ["sub", "u16" | "s16"] => c.map2(i, u16::wrapping_sub),
        ["sub", "u32" | "s32"] => c.map2(i, u32::wrapping_sub),
        ["sub", "u64" | "s64"] => c.map2(i, u64::wrapping_sub),
        ["sub", "sat", "s32"] => c.map2(i, i32::saturating_sub),
        ["mul", "lo", "u16" | "s16"] => c.map2(i, u16::wrapping_mul),
        ["mul", "lo", "u32" | "s32"] => c.map2(i, u32::wrapping_mul),
        ["mul", "lo", "u64" | "s64"] => c.map2(i, u64::wrapping_mul),
        ["mul", "hi", "u16"] => c.map2(i, |a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16),
        ["mul", "hi", "s16"] => c.map2(i, |a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16),
        ["mul", "hi", "u32"] => c.map2(i, high_u32),
        ["mul", "hi", "s32"] => c.map2(i, high_s32),
        ["mul", "hi", "u64"] => c.map2(i, high_u64),
        ["mul", "hi", "s64"] => c.map2(i, high_s64),
        ["mul", "wide", "u16"] => c.map2(i, |a: u16, b: u16| u32::from(a) * u32::from(b)),
        ["mul", "wide", "s16"] => c.map2(i, |a: i16, b: i16| i32::from(a) * i32::from(b)),
        ["mul", "wide", "u32"] => c.map2(i, |a: u32, b: u32| u64::from(a) * u64::from(b)),
        ["mul", "wide", "s32"] => c.map2(i, |a: i32, b: i32| i64::from(a) * i64::from(b)),
        ["mad", "lo", "u16" | "s16"] => c.map3(i, |a: u16, b: u16, c: u16| a.wrapping_mul(b).wrapping_add(c)),
        ["mad", "lo", "u32" | "s32"] => c.map3(i, |a: u32, b: u32, c: u32| a.wrapping_mul(b).wrapping_add(c)),
        ["mad", "lo", "u64" | "s64"] => c.map3(i, |a: u64, b: u64, c: u64| a.wrapping_mul(b).wrapping_add(c)),
        ["mad", "hi", "u32"] => c.map3(i, |a, b, c: u32| high_u32(a, b).wrapping_add(c)),
        ["mad", "hi", "s32"] => c.map3(i, |a, b, c: i32| high_s32(a, b).wrapping_add(c)),
        ["mad", "hi", "u64"] => c.map3(i, |a, b, c: u64| high_u64(a, b).wrapping_add(c)),
        ["mad", "hi", "s64"] => c.map3(i, |a, b, c: i64| high_s64(a, b).wrapping_add(c)),
        ["mad", "wide", "u16"] => c.map3(i, |a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)),
        ["mad", "wide", "s16"] => c.map3(i, |a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)),
        ["mad", "wide", "u32"] => c.map3(i, |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)),
        ["mad", "wide", "s32"] => c.map3(i, |a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)),
        _ => Ok(None),
    }
}

fn high_u32(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

fn high_s32(a: i32, b: i32) -> i32 {
    ((i64::from(a) * i64::from(b)) >> 32) as i32
}

fn high_u64(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

fn high_s64(a: i64, b: i64) -> i64 {
    ((i128::from(a) * i128::from(b)) >> 64) as i64
}

/// Products of the lower 24 bits: `.lo` gives bits 0 to 31 of the 48, `.hi` bits 16 to 47.
fn products_24<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    let unsigned = |a: u32, b: u32| u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff);
    let signed = |a: u32, b: u32| i64::from((a << 8) as i32 >> 8) * i64::from((b << 8) as i32 >> 8);
    match words {
        ["mul24", "lo", "u32"] => c.map2(i, move |a, b| unsigned(a, b) as u32),
        ["mul24", "lo", "s32"] => c.map2(i, move |a, b| signed(a, b) as u32),
        ["mul24", "hi", "u32"] => c.map2(i, move |a, b| (unsigned(a, b) >> 16) as u32),
        ["mul24", "hi", "s32"] => c.map2(i, move |a, b| (signed(a, b) >> 16) as u32),
        ["mad24", "lo", "u32"] => c.map3(i, move |a, b, c: u32| (unsigned(a, b) as u32).wrapping_add(c)),
        ["mad24", "lo", "s32"] => c.map3(i, move |a, b, c: u32| (signed(a, b) as u32).wrapping_add(c)),
        _ => Ok(None),
    }
}

/// PTX leaves the quotient by zero open. Hardware is known to give all ones, and the dividend as the remainder.
fn quotients<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["div", "u16"] => c.map2(i, |a: u16, b: u16| a.checked_div(b).unwrap_or(u16::MAX)),
        ["div", "u32"] => c.map2(i, |a: u32, b: u32| a.checked_div(b).unwrap_or(u32::MAX)),
        ["div", "u64"] => c.map2(i, |a: u64, b: u64| a.checked_div(b).unwrap_or(u64::MAX)),
        ["div", "s16"] => c.map2(i, |a: i16, b: i16| if b == 0 { -1 } else { a.wrapping_div(b) }),
        ["div", "s32"] => c.map2(i, |a: i32, b: i32| if b == 0 { -1 } else { a.wrapping_div(b) }),
        ["div", "s64"] => c.map2(i, |a: i64, b: i64| if b == 0 { -1 } else { a.wrapping_div(b) }),
        ["rem", "u16"] => c.map2(i, |a: u16, b: u16| a.checked_rem(b).unwrap_or(a)),
        ["rem", "u32"] => c.map2(i, |a: u32, b: u32| a.checked_rem(b).unwrap_or(a)),
        ["rem", "u64"] => c.map2(i, |a: u64, b: u64| a.checked_rem(b).unwrap_or(a)),
        ["rem", "s16"] => c.map2(i, |a: i16, b: i16| if b == 0 { a } else { a.wrapping_rem(b) }),
        ["rem", "s32"] => c.map2(i, |a: i32, b: i32| if b == 0 { a } else { a.wrapping_rem(b) }),
        ["rem", "s64"] => c.map2(i, |a: i64, b: i64| if b == 0 { a } else { a.wrapping_rem(b) }),
        _ => Ok(None),
    }
}

fn others<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["min", "u16"] => c.map2(i, <u16 as Ord>::min),
        ["min", "u32"] => c.map2(i, <u32 as Ord>::min),
        ["min", "u64"] => c.map2(i, <u64 as Ord>::min),
        ["min", "s16"] => c.map2(i, <i16 as Ord>::min),
        ["min", "s32"] => c.map2(i, <i32 as Ord>::min),
        ["min", "s64"] => c.map2(i, <i64 as Ord>::min),
        ["max", "u16"] => c.map2(i, <u16 as Ord>::max),
        ["max", "u32"] => c.map2(i, <u32 as Ord>::max),
        ["max", "u64"] => c.map2(i, <u64 as Ord>::max),
        ["max", "s16"] => c.map2(i, <i16 as Ord>::max),
        ["max", "s32"] => c.map2(i, <i32 as Ord>::max),
        ["max", "s64"] => c.map2(i, <i64 as Ord>::max),
        ["abs", "s16"] => c.map1(i, i16::wrapping_abs),
        ["abs", "s32"] => c.map1(i, i32::wrapping_abs),
        ["abs", "s64"] => c.map1(i, i64::wrapping_abs),
        ["neg", "s16"] => c.map1(i, i16::wrapping_neg),
        ["neg", "s32"] => c.map1(i, i32::wrapping_neg),
        ["neg", "s64"] => c.map1(i, i64::wrapping_neg),
        ["sad", "u32"] => c.map3(i, |a: u32, b: u32, c: u32| c.wrapping_add(a.abs_diff(b))),
        ["sad", "s32"] => c.map3(i, |a: i32, b: i32, c: u32| c.wrapping_add(a.abs_diff(b))),
        _ => Ok(None),
    }
}
