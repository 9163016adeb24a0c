//! Instructions of whole warps (PTX ISA 8.7, sections 9.7.9.6, 9.7.13 and 9.7.14).

use super::compile::Compiler;
use super::control::Answer;
use super::memory::shared_address;
use super::op::{Matrix, Op, Shuffle, WarpOp};
use crate::lanes::{Class, Slot};
use crate::ptx::{Instruction, Operand, Parsed, Refusal};

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    let line = i.line;
    Ok(match (words, &i.operands[..]) {
        (["shfl", "sync", mode, "b32"], [to, from, lane, clamp, members]) => {
            let mode = match *mode {
                "up" => Shuffle::Up,
                "down" => Shuffle::Down,
                "bfly" => Shuffle::Xor,
                "idx" => Shuffle::Index,
                _ => return Ok(None),
            };
            let (to, is_valid) = result_and_predicate(c, to, line)?;
            let (from, lane) = (c.from::<u32>(from, line)?, c.from::<u32>(lane, line)?);
            let (clamp, members) = (c.from::<u32>(clamp, line)?, c.from::<u32>(members, line)?);
            Some(Op::Warp(WarpOp::Shuffle { mode, to, is_valid, from, lane, clamp, members }))
        }
        (["vote", "sync", "ballot", "b32"], [to, from, members]) => {
            let ((from, is_negated), members) = (c.condition(from, line)?, c.from::<u32>(members, line)?);
            Some(Op::Warp(WarpOp::Ballot { to: c.to::<u32>(to, line)?, from, is_negated, members }))
        }
        (["vote", "sync", mode, "pred"], [to, from, members]) => {
            let holds: fn(u32, u32) -> bool = match *mode {
                "all" => |yes, members| yes == members,
                "any" => |yes, _| yes != 0,
                "uni" => |yes, members| yes == 0 || yes == members,
                _ => return Ok(None),
            };
            let ((from, is_negated), members) = (c.condition(from, line)?, c.from::<u32>(members, line)?);
            Some(Op::Warp(WarpOp::Vote { to: c.to::<bool>(to, line)?, from, is_negated, members, holds }))
        }
        (["activemask", "b32"], [to]) => Some(Op::Warp(WarpOp::ActiveMask { to: c.to::<u32>(to, line)? })),
        (["match", mode, "sync", ty], [to, from, members]) => matches(c, (mode, ty), to, from, members, line)?,
        (["redux", "sync", op, ty], [to, from, members]) => {
            let Some(combine) = reduction(op, ty) else { return Ok(None) };
            let (from, members) = (c.from::<u32>(from, line)?, c.from::<u32>(members, line)?);
            Some(Op::Warp(WarpOp::Reduce { to: c.to::<u32>(to, line)?, from, members, combine }))
        }
        (["bar", "warp", "sync"], [members]) => Some(Op::Warp(WarpOp::Sync { members: c.from::<u32>(members, line)? })),
        (["ldmatrix", "sync", "aligned", "m8n8", rest @ ..], [to, at]) => load_matrix(c, rest, to, at, line)?,
        (["mma", "sync", "aligned", shape, "row", "col", "f32", a, b, "f32"], [_, _, _, _]) => {
            let (kind, k) = match (*shape, *a, *b) {
                ("m16n8k8", "f16", "f16") => (Matrix::F16, 8),
                ("m16n8k16", "f16", "f16") => (Matrix::F16, 16),
                ("m16n8k8", "bf16", "bf16") => (Matrix::Bf16, 8),
                ("m16n8k16", "bf16", "bf16") => (Matrix::Bf16, 16),
                ("m16n8k4", "tf32", "tf32") => (Matrix::Tf32, 4),
                ("m16n8k8", "tf32", "tf32") => (Matrix::Tf32, 8),
                _ => return Ok(None),
            };
            multiply(c, i, kind, k)?
        }
        _ => None,
    })
}

fn result_and_predicate<'a>(
    c: &mut Compiler<'_, 'a>,
    operand: &Operand<'a>,
    line: u32,
) -> Parsed<(Slot, Option<Slot>)> {
    match operand {
        Operand::Pair(to, p) => {
            let p = c.to::<bool>(&Operand::Name(p), line)?;
            Ok((c.to::<u32>(&Operand::Name(to), line)?, Some(p)))
        }
        other => Ok((c.to::<u32>(other, line)?, None)),
    }
}

fn matches<'a>(
    c: &mut Compiler<'_, 'a>,
    (mode, ty): (&str, &str),
    to: &Operand<'a>,
    from: &Operand<'a>,
    members: &Operand<'a>,
    line: u32,
) -> Answer {
    let (to, all) = result_and_predicate(c, to, line)?;
    let from = match ty {
        "b32" => (Class::Word, c.from::<u32>(from, line)?),
        "b64" => (Class::Double, c.from::<u64>(from, line)?),
        _ => return Ok(None),
    };
    let all = match (mode, all) {
        ("any", None) => None,
        ("all", Some(p)) => Some(p),
        ("all", None) => Some(c.slots.fresh(Class::Predicate)),
        _ => return Ok(None),
    };
    Ok(Some(Op::Warp(WarpOp::Match { to, all, from, members: c.from::<u32>(members, line)? })))
}

fn reduction(op: &str, ty: &str) -> Option<fn(u32, u32) -> u32> {
    Some(match (op, ty) {
        ("add", "u32" | "s32") => u32::wrapping_add,
        ("min", "u32") => <u32 as Ord>::min,
        ("max", "u32") => <u32 as Ord>::max,
        ("min", "s32") => |a, b| (a as i32).min(b as i32) as u32,
        ("max", "s32") => |a, b| (a as i32).max(b as i32) as u32,
        ("and", "b32") => |a, b| a & b,
        ("or", "b32") => |a, b| a | b,
        ("xor", "b32") => |a, b| a ^ b,
        _ => return None,
    })
}

fn load_matrix<'a>(
    c: &mut Compiler<'_, 'a>,
    words: &[&'a str],
    to: &Operand<'a>,
    at: &Operand<'a>,
    line: u32,
) -> Answer {
    let (count, words) = match words {
        ["x1", rest @ ..] => (1, rest),
        ["x2", rest @ ..] => (2, rest),
        ["x4", rest @ ..] => (4, rest),
        _ => return Ok(None),
    };
    let is_transposed = match words {
        ["trans", "shared" | "shared::cta", "b16"] => true,
        ["shared" | "shared::cta", "b16"] => false,
        _ => return Ok(None),
    };
    let to = registers(c, to, count, line)?;
    let address = shared_address(c, at, line)?;
    Ok(Some(Op::Warp(WarpOp::LoadMatrix { to, address, is_transposed })))
}

fn registers<'a>(c: &mut Compiler<'_, 'a>, operand: &Operand<'a>, count: usize, line: u32) -> Parsed<Vec<Slot>> {
    let list = match operand {
        Operand::Vector(list) => &list[..],
        single => std::slice::from_ref(single),
    };
    if list.len() != count {
        return Err(Refusal::new(line, format!("a fragment of {count} registers is expected")));
    }
    list.iter().map(|operand| c.to::<u32>(operand, line)).collect()
}

fn multiply<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, kind: Matrix, k: usize) -> Answer {
    let words_of_a = if kind == Matrix::Tf32 { k / 2 } else { k / 4 };
    let [d, a, b, c_operand] = &i.operands[..] else { return Ok(None) };
    let four = |c: &mut Compiler<'_, 'a>, operand: &Operand<'a>| -> Parsed<[Slot; 4]> {
        let slots = registers(c, operand, 4, i.line)?;
        <[Slot; 4]>::try_from(slots).map_err(|_| Refusal::new(i.line, "a fragment of 4 registers is expected"))
    };
    let (d, c_slots) = (four(c, d)?, four(c, c_operand)?);
    let a = registers(c, a, words_of_a, i.line)?;
    let b = registers(c, b, words_of_a / 2, i.line)?;
    Ok(Some(Op::Warp(WarpOp::Multiply { kind, k, d, a, b, c: c_slots })))
}
