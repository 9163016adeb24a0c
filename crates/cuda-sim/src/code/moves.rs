//! `mov`, `cvta`, `selp` and others that move bits (PTX ISA 8.7, sections 9.7.9.1 to 9.7.9.20).

use super::compile::Compiler;
use super::control::Answer;
use super::names::{Location, Meaning, class_of_type};
use super::op::Op;
use super::{Constant, WINDOW_BYTES, window};
use crate::lanes::{Alu, Class, Reg, Slot, lift1, lift2, lift4};
use crate::ptx::{Instruction, Name, Operand, Parsed, Refusal, Space, Ty};

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["mov", ty] => match Ty::named(ty) {
            Some(ty) => mov(c, i, ty),
            None => Ok(None),
        },
        ["cvta", space, "u64"] => match address_window(space) {
            Some(base) => c.map1(i, move |a: u64| a.wrapping_add(base)),
            None => Ok(None),
        },
        ["cvta", "to", space, "u64"] => match address_window(space) {
            Some(base) => c.map1(i, move |a: u64| a.wrapping_sub(base)),
            None => Ok(None),
        },
        ["isspacep", space] => {
            let is_in = |base: u64| move |a: u64| (base..base + WINDOW_BYTES).contains(&a);
            match *space {
                "shared" | "shared::cta" => c.map1(i, is_in(window(Space::Shared))),
                "local" => c.map1(i, is_in(window(Space::Local))),
                "global" => c.map1(i, |a: u64| a < window(Space::Local)),
                _ => Ok(None),
            }
        }
        ["selp", "b16" | "u16" | "s16"] => c.map3(i, |a: u16, b: u16, p: bool| if p { a } else { b }),
        ["selp", "b32" | "u32" | "s32"] => c.map3(i, |a: u32, b: u32, p: bool| if p { a } else { b }),
        ["selp", "f32"] => c.map3(i, |a: f32, b: f32, p: bool| if p { a } else { b }),
        ["selp", "b64" | "u64" | "s64"] => c.map3(i, |a: u64, b: u64, p: bool| if p { a } else { b }),
        ["selp", "f64"] => c.map3(i, |a: f64, b: f64, p: bool| if p { a } else { b }),
        ["slct", "b32" | "u32" | "s32", "s32"] => c.map3(i, |a: u32, b: u32, c: i32| if c >= 0 { a } else { b }),
        ["slct", "f32", "s32"] => c.map3(i, |a: f32, b: f32, c: i32| if c >= 0 { a } else { b }),
        ["slct", "b64" | "u64" | "s64", "s32"] => c.map3(i, |a: u64, b: u64, c: i32| if c >= 0 { a } else { b }),
        ["slct", "f64", "s32"] => c.map3(i, |a: f64, b: f64, c: i32| if c >= 0 { a } else { b }),
        ["slct", "b32" | "u32" | "s32", "f32"] => c.map3(i, |a: u32, b: u32, c: f32| if c >= 0.0 { a } else { b }),
        ["slct", "f32", "f32"] => c.map3(i, |a: f32, b: f32, c: f32| if c >= 0.0 { a } else { b }),
        _ => Ok(None),
    }
}

fn address_window(space: &str) -> Option<u64> {
    match space {
        "global" | "const" => Some(0),
        "shared" | "shared::cta" => Some(window(Space::Shared)),
        "local" => Some(window(Space::Local)),
        _ => None,
    }
}

fn mov<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, ty: Ty) -> Answer {
    match &i.operands[..] {
        [Operand::Vector(to), from] => unpack(c, to, from, ty, i.line),
        [to, Operand::Vector(from)] => pack(c, to, from, ty, i.line),
        [to, Operand::Name(name)] if matches!(c.meaning(name), Some(Meaning::Place(_))) => {
            address(c, to, name, ty, i.line)
        }
        _ => match (ty, class_of_type(ty)) {
            (Ty::F32, _) => c.map1(i, |a: f32| a),
            (Ty::F64, _) => c.map1(i, |a: f64| a),
            (_, Some(Class::Predicate)) => c.map1(i, |a: bool| a),
            (_, Some(Class::Half)) => c.map1(i, |a: u16| a),
            (_, Some(Class::Word)) => c.map1(i, |a: u32| a),
            (_, Some(Class::Double)) => c.map1(i, |a: u64| a),
            (_, None) => Ok(None),
        },
    }
}

/// The address of a variable within its space.
fn address<'a>(c: &mut Compiler<'_, 'a>, to: &Operand<'a>, name: Name<'a>, ty: Ty, line: u32) -> Answer {
    let from = address_slot(c, name, class_of_type(ty).unwrap_or(Class::Half), line)?;
    Ok(match class_of_type(ty) {
        Some(Class::Word) => Some(Op::Alu(lift1(c.to::<u32>(to, line)?, from, |a: u32| a))),
        Some(Class::Double) => Some(Op::Alu(lift1(c.to::<u64>(to, line)?, from, |a: u64| a))),
        _ => None,
    })
}

/// A register that holds the address of a variable within its space.
pub(super) fn address_slot<'a>(c: &mut Compiler<'_, 'a>, name: Name<'a>, class: Class, line: u32) -> Parsed<Slot> {
    let Some(Meaning::Place(place)) = c.meaning(name) else {
        return Err(Refusal::new(line, format!("`{name}` is not a variable")));
    };
    let fits =
        class == Class::Double || class == Class::Word && place.space != Space::Global && place.space != Space::Const;
    if !fits {
        return Err(Refusal::new(line, format!("the address of `{name}` does not fit the type")));
    }
    let constant = match place.at {
        Location::Offset(offset) => Constant::Bits(offset),
        Location::Variable(number) => Constant::Variable(number),
        Location::DynamicShared => Constant::DynamicShared,
    };
    Ok(c.slots.constant(class, constant))
}

fn pack<'a>(c: &mut Compiler<'_, 'a>, to: &Operand<'a>, from: &[Operand<'a>], ty: Ty, line: u32) -> Answer {
    Ok(Some(Op::Alu(match (ty, from) {
        (Ty::B32 | Ty::U32 | Ty::S32, [low, high]) => {
            let from = (c.from::<u16>(low, line)?, c.from::<u16>(high, line)?);
            lift2(c.to::<u32>(to, line)?, from, |low: u16, high: u16| u32::from(low) | u32::from(high) << 16)
        }
        (Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64, [low, high]) => {
            let from = (c.from::<u32>(low, line)?, c.from::<u32>(high, line)?);
            lift2(c.to::<u64>(to, line)?, from, |low: u32, high: u32| u64::from(low) | u64::from(high) << 32)
        }
        (Ty::B64 | Ty::U64 | Ty::S64, [p, q, r, s]) => {
            let (p, q) = (c.from::<u16>(p, line)?, c.from::<u16>(q, line)?);
            let (r, s) = (c.from::<u16>(r, line)?, c.from::<u16>(s, line)?);
            lift4(c.to::<u64>(to, line)?, (p, q, r, s), |p: u16, q: u16, r: u16, s: u16| {
                u64::from(p) | u64::from(q) << 16 | u64::from(r) << 32 | u64::from(s) << 48
            })
        }
        _ => return Ok(None),
    })))
}

/// Splits a register. The parts are written together, after the source was read: one of them may be the source's own register
/// only if the sizes are equal, which they are not.
fn unpack<'a>(c: &mut Compiler<'_, 'a>, to: &[Operand<'a>], from: &Operand<'a>, ty: Ty, line: u32) -> Answer {
    let mut parts: Vec<Alu> = Vec::new();
    match (ty, to.len()) {
        (Ty::B32 | Ty::U32 | Ty::S32, 2) => {
            let from = c.from::<u32>(from, line)?;
            for (k, to) in to.iter().enumerate() {
                parts.push(part::<u32, u16>(c, to, from, line, move |a| (a >> (16 * k)) as u16)?);
            }
        }
        (Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64, 2) => {
            let from = c.from::<u64>(from, line)?;
            for (k, to) in to.iter().enumerate() {
                parts.push(part::<u64, u32>(c, to, from, line, move |a| (a >> (32 * k)) as u32)?);
            }
        }
        (Ty::B64 | Ty::U64 | Ty::S64, 4) => {
            let from = c.from::<u64>(from, line)?;
            for (k, to) in to.iter().enumerate() {
                parts.push(part::<u64, u16>(c, to, from, line, move |a| (a >> (16 * k)) as u16)?);
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(Op::Alu(Box::new(move |regs, masks| parts.iter().for_each(|part| part(regs, masks))))))
}

fn part<'a, A: Reg, O: Reg>(
    c: &mut Compiler<'_, 'a>,
    to: &Operand<'a>,
    from: Slot,
    line: u32,
    f: impl Fn(A) -> O + Send + Sync + 'static,
) -> Parsed<Alu> {
    Ok(lift1(c.to::<O>(to, line)?, from, f))
}
