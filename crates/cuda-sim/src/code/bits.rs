//! Logic, shifts and fields of bits (PTX ISA 8.7, sections 9.7.1.12 to 9.7.1.21 and 9.7.8).

use super::compile::Compiler;
use super::control::Answer;
use super::op::Op;
use crate::lanes::lift3;
use crate::ptx::{Instruction, Operand, Refusal};

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["and" | "or" | "xor" | "not" | "cnot", _] => logic(c, i, words),
        ["shl" | "shr", _] | ["shf", ..] => shifts(c, i, words),
        ["bfe" | "bfi", _] => fields(c, i, words),
        ["popc", "b32"] => c.map1(i, u32::count_ones),
        ["popc", "b64"] => c.map1(i, u64::count_ones),
        ["clz", "b32"] => c.map1(i, u32::leading_zeros),
        ["clz", "b64"] => c.map1(i, u64::leading_zeros),
        ["brev", "b32"] => c.map1(i, u32::reverse_bits),
        ["brev", "b64"] => c.map1(i, u64::reverse_bits),
        ["bfind", ..] => bfind(c, i, words),
        ["prmt", "b32"] => c.map3(i, permute),
        ["prmt", "b32", mode] => match permute_mode(mode) {
            Some(selector) => c.map3(i, move |a, b, c: u32| permute(a, b, selector(c & 3))),
            None => Ok(None),
        },
        ["lop3", "b32"] => lop3(c, i),
        _ => Ok(None),
    }
}

fn logic<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["and", "pred"] => c.map2(i, |a: bool, b: bool| a & b),
        ["and", "b16"] => c.map2(i, |a: u16, b: u16| a & b),
        ["and", "b32"] => c.map2(i, |a: u32, b: u32| a & b),
        ["and", "b64"] => c.map2(i, |a: u64, b: u64| a & b),
        ["or", "pred"] => c.map2(i, |a: bool, b: bool| a | b),
        ["or", "b16"] => c.map2(i, |a: u16, b: u16| a | b),
        ["or", "b32"] => c.map2(i, |a: u32, b: u32| a | b),
        ["or", "b64"] => c.map2(i, |a: u64, b: u64| a | b),
        ["xor", "pred"] => c.map2(i, |a: bool, b: bool| a ^ b),
        ["xor", "b16"] => c.map2(i, |a: u16, b: u16| a ^ b),
        ["xor", "b32"] => c.map2(i, |a: u32, b: u32| a ^ b),
        ["xor", "b64"] => c.map2(i, |a: u64, b: u64| a ^ b),
        ["not", "pred"] => c.map1(i, |a: bool| !a),
        ["not", "b16"] => c.map1(i, |a: u16| !a),
        ["not", "b32"] => c.map1(i, |a: u32| !a),
        ["not", "b64"] => c.map1(i, |a: u64| !a),
        ["cnot", "b16"] => c.map1(i, |a: u16| u16::from(a == 0)),
        ["cnot", "b32"] => c.map1(i, |a: u32| u32::from(a == 0)),
        ["cnot", "b64"] => c.map1(i, |a: u64| u64::from(a == 0)),
        _ => Ok(None),
    }
}

/// Shifts clamp their amount to the width (PTX ISA 8.7, sections 9.7.8.7 and 9.7.8.8).
fn shifts<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["shl", "b16"] => c.map2(i, |a: u16, n: u32| a.checked_shl(n).unwrap_or(0)),
        ["shl", "b32"] => c.map2(i, |a: u32, n: u32| if n < 32 { a << (n & 31) } else { 0 }),
        ["shl", "b64"] => c.map2(i, |a: u64, n: u32| if n < 64 { a << (n & 63) } else { 0 }),
        ["shr", "b16" | "u16"] => c.map2(i, |a: u16, n: u32| a.checked_shr(n).unwrap_or(0)),
        ["shr", "b32" | "u32"] => c.map2(i, |a: u32, n: u32| if n < 32 { a >> (n & 31) } else { 0 }),
        ["shr", "b64" | "u64"] => c.map2(i, |a: u64, n: u32| if n < 64 { a >> (n & 63) } else { 0 }),
        ["shr", "s16"] => c.map2(i, |a: i16, n: u32| a >> n.min(15)),
        ["shr", "s32"] => c.map2(i, |a: i32, n: u32| a >> n.min(31)),
        ["shr", "s64"] => c.map2(i, |a: i64, n: u32| a >> n.min(63)),
        ["shf", "l", "wrap", "b32"] => c.map3(i, |a, b, n: u32| (joined(a, b) << (n & 31) >> 32) as u32),
        ["shf", "r", "wrap", "b32"] => c.map3(i, |a, b, n: u32| (joined(a, b) >> (n & 31)) as u32),
        ["shf", "l", "clamp", "b32"] => c.map3(i, |a, b, n: u32| (joined(a, b) << n.min(32) >> 32) as u32),
        ["shf", "r", "clamp", "b32"] => c.map3(i, |a, b, n: u32| (joined(a, b) >> n.min(32)) as u32),
        _ => Ok(None),
    }
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn fields<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["bfe", "u32"] => c.map3(i, |a: u32, p: u32, n: u32| extract(u64::from(a), p, n, 32, false) as u32),
        ["bfe", "s32"] => c.map3(i, |a: u32, p: u32, n: u32| extract(u64::from(a), p, n, 32, true) as u32),
        ["bfe", "u64"] => c.map3(i, |a: u64, p: u32, n: u32| extract(a, p, n, 64, false)),
        ["bfe", "s64"] => c.map3(i, |a: u64, p: u32, n: u32| extract(a, p, n, 64, true)),
        ["bfi", "b32"] => {
            c.map4(i, |a: u32, b: u32, p: u32, n: u32| insert(u64::from(a), u64::from(b), p, n, 32) as u32)
        }
        ["bfi", "b64"] => c.map4(i, |a: u64, b: u64, p: u32, n: u32| insert(a, b, p, n, 64)),
        _ => Ok(None),
    }
}

/// `bfe` (PTX ISA 8.7, section 9.7.1.20): position and length are the lowest eight bits of their operands. A signed field that
/// ends beyond the operand is filled with the operand's sign; a field of length 0 is 0.
fn extract(a: u64, position: u32, length: u32, width: u32, is_signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let last = (position + length).saturating_sub(1).min(width - 1);
    let is_filled = is_signed && length > 0 && a >> last & 1 == 1;
    let mut out = 0;
    for bit in 0..width {
        let is_set = if bit < length && position + bit < width { a >> (position + bit) & 1 == 1 } else { is_filled };
        out |= u64::from(is_set) << bit;
    }
    out
}

/// `bfi` (PTX ISA 8.7, section 9.7.1.21): bits beyond the operand are dropped.
fn insert(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if position >= width {
        return b;
    }
    let field = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    b & !(field << position) | (a & field) << position
}

fn bfind<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    let signed = |a: i64| if a < 0 { !a as u64 } else { a as u64 };
    let highest = |a: u64| if a == 0 { u32::MAX } else { 63 - a.leading_zeros() };
    let shift = move |a: u64, width: u32| if a == 0 { u32::MAX } else { width - 1 - highest(a) };
    match words {
        ["bfind", "u32"] => c.map1(i, move |a: u32| highest(u64::from(a))),
        ["bfind", "s32"] => c.map1(i, move |a: i32| highest(signed(i64::from(a)))),
        ["bfind", "u64"] => c.map1(i, highest),
        ["bfind", "s64"] => c.map1(i, move |a: i64| highest(signed(a))),
        ["bfind", "shiftamt", "u32"] => c.map1(i, move |a: u32| shift(u64::from(a), 32)),
        ["bfind", "shiftamt", "s32"] => c.map1(i, move |a: i32| shift(signed(i64::from(a)), 32)),
        ["bfind", "shiftamt", "u64"] => c.map1(i, move |a: u64| shift(a, 64)),
        ["bfind", "shiftamt", "s64"] => c.map1(i, move |a: i64| shift(signed(a), 64)),
        _ => Ok(None),
    }
}

/// `prmt` (PTX ISA 8.7, section 9.7.9.7): each four bits select a byte of b and a; the highest of them replicates its sign.
fn permute(a: u32, b: u32, selectors: u32) -> u32 {
    let bytes = joined(a, b);
    let mut out = 0;
    for k in 0..4 {
        let selector = selectors >> (4 * k);
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        out |= u32::from(byte) << (8 * k);
    }
    out
}

/// The selectors of a special mode for the lowest two bits of c.
fn permute_mode(mode: &str) -> Option<fn(u32) -> u32> {
    Some(match mode {
        "f4e" => |c| [0x3210, 0x4321, 0x5432, 0x6543][c as usize],
        "b4e" => |c| [0x5670, 0x6701, 0x7012, 0x0123][c as usize],
        "rc8" => |c| [0x0000, 0x1111, 0x2222, 0x3333][c as usize],
        "ecl" => |c| [0x3210, 0x3211, 0x3222, 0x3333][c as usize],
        "ecr" => |c| [0x0000, 0x1110, 0x2210, 0x3210][c as usize],
        "rc16" => |c| [0x1010, 0x3232, 0x1010, 0x3232][c as usize],
        _ => return None,
    })
}

/// `lop3` (PTX ISA 8.7, section 9.7.8.6): a table of eight results.
fn lop3<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>) -> Answer {
    let [d, x, y, z, Operand::Integer(table)] = &i.operands[..] else {
        return Err(Refusal::new(i.line, "lop3 takes a result, three registers and a number"));
    };
    let table = *table;
    let from = (c.from::<u32>(x, i.line)?, c.from::<u32>(y, i.line)?, c.from::<u32>(z, i.line)?);
    let f = move |x: u32, y: u32, z: u32| {
        let mut out = 0;
        for row in (0..8u32).filter(|row| table >> row & 1 == 1) {
            let side = |v: u32, bit: u32| if row >> bit & 1 == 1 { v } else { !v };
            out |= side(x, 2) & side(y, 1) & side(z, 0);
        }
        out
    };
    Ok(Some(Op::Alu(lift3(c.to::<u32>(d, i.line)?, from, f))))
}
