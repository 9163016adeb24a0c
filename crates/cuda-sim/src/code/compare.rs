//! `setp` and `set` (PTX ISA 8.7, sections 9.7.6.1 and 9.7.6.2).

use super::compile::Compiler;
use super::control::Answer;
use super::op::Op;
use crate::lanes::{Alu, Class, Reg, Slot, lift1, lift2};
use crate::number::{Bf16, F16, Half};
use crate::ptx::{Instruction, Operand, Parsed, Refusal, Ty};

impl PartialEq for F16 {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl PartialEq for Bf16 {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl PartialOrd for F16 {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.value().partial_cmp(&other.value())
    }
}

impl PartialOrd for Bf16 {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.value().partial_cmp(&other.value())
    }
}

/// How a third predicate takes part.
#[derive(Clone, Copy)]
enum Combine {
    And,
    Or,
    Xor,
}

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    let words = match words {
        ["setp", rest @ ..] => rest,
        ["set", rest @ .., result @ ("u32" | "s32" | "f32"), from] => {
            let result = if *result == "f32" { Ty::F32 } else { Ty::U32 };
            return set(c, i, result, rest, from);
        }
        _ => return Ok(None),
    };
    let (cmp, combine, ty) = match words {
        [cmp, ty] => (cmp, None, ty),
        [cmp, "and", ty] => (cmp, Some(Combine::And), ty),
        [cmp, "or", ty] => (cmp, Some(Combine::Or), ty),
        [cmp, "xor", ty] => (cmp, Some(Combine::Xor), ty),
        _ => return Ok(None),
    };
    let (to, rest) = match (&i.operands[..], combine) {
        ([to, a, b], None) => (to, (a, b, None)),
        ([to, a, b, third], Some(combine)) => (to, (a, b, Some((combine, third)))),
        _ => return Err(Refusal::new(i.line, "the comparison has another number of operands")),
    };
    let (p, q) = match to {
        Operand::Pair(p, q) => (Operand::Name(p), Some(Operand::Name(q))),
        other => (other.clone(), None),
    };
    let (p, q) = (c.to::<bool>(&p, i.line)?, q.map(|q| c.to::<bool>(&q, i.line)).transpose()?);
    let (a, b, third) = rest;
    let holds = c.slots.fresh(Class::Predicate);
    let to = if q.is_none() && third.is_none() { p } else { holds };
    let Some(compare) = comparison(c, to, (a, b), cmp, ty, i.line)? else { return Ok(None) };
    if to == p {
        return Ok(Some(Op::Alu(compare)));
    }
    let third = match third {
        Some((combine, operand)) => Some((combine, c.condition(operand, i.line)?)),
        None => None,
    };
    let mut parts = vec![compare, combined(p, holds, false, third)];
    parts.extend(q.map(|q| combined(q, holds, true, third)));
    // the first result may be the register of the third predicate: it is read for both before it is written
    if let (Some((_, (slot, _))), true) = (third, parts.len() == 3)
        && slot == p
    {
        parts.swap(1, 2);
    }
    Ok(Some(Op::Alu(sequence(parts))))
}

fn sequence(parts: Vec<Alu>) -> Alu {
    Box::new(move |regs, masks| parts.iter().for_each(|part| part(regs, masks)))
}

fn combined(to: Slot, holds: Slot, is_negated: bool, third: Option<(Combine, (Slot, bool))>) -> Alu {
    let Some((combine, (slot, not_third))) = third else {
        return lift1(to, holds, move |a: bool| a ^ is_negated);
    };
    match combine {
        Combine::And => lift2(to, (holds, slot), move |a: bool, b: bool| (a ^ is_negated) & (b ^ not_third)),
        Combine::Or => lift2(to, (holds, slot), move |a: bool, b: bool| (a ^ is_negated) | (b ^ not_third)),
        Combine::Xor => lift2(to, (holds, slot), move |a: bool, b: bool| a ^ is_negated ^ b ^ not_third),
    }
}

fn set<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, result: Ty, words: &[&'a str], ty: &'a str) -> Answer {
    let ([cmp], [to, a, b]) = (words, &i.operands[..]) else { return Ok(None) };
    let holds = c.slots.fresh(Class::Predicate);
    let Some(compare) = comparison(c, holds, (a, b), cmp, ty, i.line)? else { return Ok(None) };
    let to = c.to::<u32>(to, i.line)?;
    let truth = if result == Ty::F32 { 1f32.to_bits() } else { u32::MAX };
    let select = lift1(to, holds, move |p: bool| if p { truth } else { 0 });
    Ok(Some(Op::Alu(sequence(vec![compare, select]))))
}

fn comparison<'a>(
    c: &mut Compiler<'_, 'a>,
    to: Slot,
    from: (&Operand<'a>, &Operand<'a>),
    cmp: &str,
    ty: &str,
    line: u32,
) -> Parsed<Option<Alu>> {
    match Ty::named(ty) {
        Some(Ty::U16) => integers::<u16>(c, to, from, cmp, line),
        Some(Ty::U32) => integers::<u32>(c, to, from, cmp, line),
        Some(Ty::U64) => integers::<u64>(c, to, from, cmp, line),
        Some(Ty::S16) => integers::<i16>(c, to, from, cmp, line),
        Some(Ty::S32) => integers::<i32>(c, to, from, cmp, line),
        Some(Ty::S64) => integers::<i64>(c, to, from, cmp, line),
        Some(Ty::B16) if matches!(cmp, "eq" | "ne") => integers::<u16>(c, to, from, cmp, line),
        Some(Ty::B32) if matches!(cmp, "eq" | "ne") => integers::<u32>(c, to, from, cmp, line),
        Some(Ty::B64) if matches!(cmp, "eq" | "ne") => integers::<u64>(c, to, from, cmp, line),
        Some(Ty::F16) => floats::<F16>(c, to, from, cmp, line),
        Some(Ty::Bf16) => floats::<Bf16>(c, to, from, cmp, line),
        Some(Ty::F32) => floats::<f32>(c, to, from, cmp, line),
        Some(Ty::F64) => floats::<f64>(c, to, from, cmp, line),
        _ => Ok(None),
    }
}

fn integers<'a, T: Reg + PartialOrd>(
    c: &mut Compiler<'_, 'a>,
    to: Slot,
    (a, b): (&Operand<'a>, &Operand<'a>),
    cmp: &str,
    line: u32,
) -> Parsed<Option<Alu>> {
    let from = (c.from::<T>(a, line)?, c.from::<T>(b, line)?);
    Ok(Some(match cmp {
        "eq" => lift2(to, from, |a: T, b: T| a == b),
        "ne" => lift2(to, from, |a: T, b: T| a != b),
        "lt" | "lo" => lift2(to, from, |a: T, b: T| a < b),
        "le" | "ls" => lift2(to, from, |a: T, b: T| a <= b),
        "gt" | "hi" => lift2(to, from, |a: T, b: T| a > b),
        "ge" | "hs" => lift2(to, from, |a: T, b: T| a >= b),
        _ => return Ok(None),
    }))
}

/// Comparisons of floats (PTX ISA 8.7, section 9.3.1.2): those with `u` hold if an operand is NaN, the others do not.
#[allow(clippy::neg_cmp_op_on_partial_ord, clippy::eq_op)]
fn floats<'a, T: Reg + PartialOrd>(
    c: &mut Compiler<'_, 'a>,
    to: Slot,
    (a, b): (&Operand<'a>, &Operand<'a>),
    cmp: &str,
    line: u32,
) -> Parsed<Option<Alu>> {
    let from = (c.from::<T>(a, line)?, c.from::<T>(b, line)?);
    let is_nan = |a: T| a != a;
    Ok(Some(match cmp {
        "eq" => lift2(to, from, |a: T, b: T| a == b),
        "ne" => lift2(to, from, |a: T, b: T| a.partial_cmp(&b).is_some_and(|o| o.is_ne())),
        "lt" => lift2(to, from, |a: T, b: T| a < b),
        "le" => lift2(to, from, |a: T, b: T| a <= b),
        "gt" => lift2(to, from, |a: T, b: T| a > b),
        "ge" => lift2(to, from, |a: T, b: T| a >= b),
        "equ" => lift2(to, from, |a: T, b: T| a.partial_cmp(&b).is_none_or(|o| o.is_eq())),
        "neu" => lift2(to, from, |a: T, b: T| a != b),
        "ltu" => lift2(to, from, |a: T, b: T| !(a >= b)),
        "leu" => lift2(to, from, |a: T, b: T| !(a > b)),
        "gtu" => lift2(to, from, |a: T, b: T| !(a <= b)),
        "geu" => lift2(to, from, |a: T, b: T| !(a < b)),
        "num" => lift2(to, from, move |a: T, b: T| !is_nan(a) && !is_nan(b)),
        "nan" => lift2(to, from, move |a: T, b: T| is_nan(a) || is_nan(b)),
        _ => return Ok(None),
    }))
}
