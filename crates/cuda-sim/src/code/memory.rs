//! Loads, stores, atomics and asynchronous copies (PTX ISA 8.7, sections 9.7.9.8 to 9.7.9.25 and 9.7.13.6).

use super::compile::Compiler;
use super::control::Answer;
use super::moves::address_slot;
use super::names::{Location, Meaning, bits_of_class, class_of_type};
use super::op::{Access, Address, Atomic, CopyAsync, Op, Order, Part};
use crate::lanes::{Class, Slot};
use crate::number::{Bf16, F16, Half, canonical};
use crate::ptx::{Instruction, Operand, Parsed, Refusal, Space, Ty};

/// New value from the old one and two operands.
pub(crate) type AtomicFn = fn(u64, u64, u64) -> u64;

pub(super) fn family<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    match words {
        ["ld" | "ldu" | "st", ..] => transfer(c, i, words),
        ["atom" | "red", ..] => atomic(c, i, words),
        ["cp", "async", "commit_group"] if i.operands.is_empty() => Ok(Some(Op::CommitCopies)),
        ["cp", "async", "wait_all"] if i.operands.is_empty() => Ok(Some(Op::WaitCopies(None))),
        ["cp", "async", "wait_group"] => match i.operands[..] {
            [Operand::Integer(n)] => Ok(Some(Op::WaitCopies(Some(n.min(u64::from(u32::MAX)) as u32)))),
            _ => Ok(None),
        },
        ["cp", "async", kind @ ("ca" | "cg"), "shared" | "shared::cta", "global", rest @ ..] => {
            let is_hint = |w: &&str| matches!(*w, "L2::64B" | "L2::128B" | "L2::256B");
            if rest.iter().all(is_hint) { copy_async(c, i, kind) } else { Ok(None) }
        }
        _ => Ok(None),
    }
}

/// The modifiers that loads, stores and atomics share.
struct Modifiers {
    space: Space,
    order: Order,
}

fn space(word: &str) -> Option<Space> {
    Some(match word {
        "global" => Space::Global,
        "shared" | "shared::cta" => Space::Shared,
        "local" => Space::Local,
        "const" => Space::Const,
        "param" | "param::entry" | "param::func" => Space::Param,
        _ => return None,
    })
}

fn transfer<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    let [name, middle @ .., ty] = words else { return Ok(None) };
    let Some(ty) = Ty::named(ty).filter(|ty| *ty != Ty::Pred) else { return Ok(None) };
    let is_load = *name != "st";
    let mut m = Modifiers { space: Space::Generic, order: Order::Plain };
    let mut elements = 1;
    for word in middle {
        match *word {
            "weak" => {}
            "volatile" | "relaxed" | "acquire" | "release" => m.order = Order::Strong,
            "cta" | "cluster" | "gpu" | "sys" if m.order == Order::Strong => {}
            "nc" if is_load && m.space == Space::Global => m.order = Order::ReadOnly,
            "ca" | "cg" | "cs" | "lu" | "cv" if is_load => {}
            "wb" | "cg" | "cs" | "wt" if !is_load => {}
            "L1::evict_normal" | "L1::evict_unchanged" | "L1::evict_first" | "L1::evict_last" | "L1::no_allocate" => {}
            "L2::64B" | "L2::128B" | "L2::256B" if is_load => {}
            "v2" if elements == 1 => elements = 2,
            "v4" if elements == 1 => elements = 4,
            other => match space(other) {
                Some(space) if m.space == Space::Generic => m.space = space,
                _ => return Ok(None),
            },
        }
    }
    let (registers, at) = match (&i.operands[..], is_load) {
        ([registers, at], true) | ([at, registers], false) => (registers, at),
        _ => return Err(Refusal::new(i.line, "the access takes a register and an address")),
    };
    if ty.bytes() * elements > 16 {
        return Err(Refusal::new(i.line, "an access has at most 16 bytes"));
    }
    let parts = parts(c, registers, ty, elements as usize, is_load, i.line)?;
    let (space, address) = address(c, at, m.space, i.line)?;
    if !is_load && matches!(space, Space::Param | Space::Const) {
        return Err(Refusal::new(i.line, "the space is only read"));
    }
    let is_words = ty.bytes() == 4 && parts.iter().all(|part| matches!(part, Some((Class::Word, _))));
    let (bytes, is_signed) = (ty.bytes(), ty.is_signed());
    let access = Access { space, order: m.order, address, bytes, is_signed, parts, is_words };
    Ok(Some(if is_load { Op::Load(access) } else { Op::Store(access) }))
}

fn parts<'a>(
    c: &mut Compiler<'_, 'a>,
    operand: &Operand<'a>,
    ty: Ty,
    count: usize,
    is_load: bool,
    line: u32,
) -> Parsed<Vec<Part>> {
    let single = std::slice::from_ref(operand);
    let list: &[Operand<'a>] = match operand {
        Operand::Vector(list) if count > 1 => list,
        _ => single,
    };
    if list.len() != count {
        return Err(Refusal::new(line, format!("the access takes {count} registers")));
    }
    list.iter()
        .map(|operand| {
            if is_load && *operand == Operand::Name("_") {
                return Ok(None);
            }
            if is_load && !matches!(operand, Operand::Name(_)) {
                return Err(Refusal::new(line, "the result is not a register"));
            }
            let (class, slot) = c.any_from(operand, ty, line)?;
            if class == Class::Predicate || bits_of_class(class) < 8 * ty.bytes() {
                return Err(Refusal::new(line, "a register is too narrow for its type"));
            }
            Ok(Some((class, slot)))
        })
        .collect()
}

/// The space in which an access takes place, and its address. Parameters of functions lie in local memory.
fn address<'a>(c: &mut Compiler<'_, 'a>, operand: &Operand<'a>, space: Space, line: u32) -> Parsed<(Space, Address)> {
    let Operand::Address(base, offset) = operand else {
        return Err(Refusal::new(line, "the address is not in brackets"));
    };
    let offset = *offset;
    let is_inlined = c.is_inlined();
    let plain = if space == Space::Param && is_inlined { Space::Local } else { space };
    let Some(name) = base else { return Ok((plain, Address { base: None, offset })) };
    match c.meaning(name) {
        Some(Meaning::Register(class @ (Class::Word | Class::Double), slot)) => {
            if class == Class::Word && matches!(space, Space::Global | Space::Const | Space::Generic) {
                return Err(Refusal::new(line, format!("`{name}` is too narrow for an address of 64 bits")));
            }
            Ok((plain, Address { base: Some((class, slot)), offset }))
        }
        Some(Meaning::Place(place)) => {
            let is_there = place.space == space || space == Space::Param && place.space == Space::Local;
            if !is_there {
                return Err(Refusal::new(line, format!("`{name}` is in another space")));
            }
            let (base, start) = match place.at {
                Location::Offset(at) => (None, at as i64),
                _ => (Some((Class::Double, address_slot(c, name, Class::Double, line)?)), 0),
            };
            if matches!(place.space, Space::Param | Space::Local) && !(0..place.bytes as i64).contains(&offset) {
                return Err(Refusal::new(
                    line,
                    format!("the offset is not within the {} bytes of `{name}`", place.bytes),
                ));
            }
            Ok((place.space, Address { base, offset: start.wrapping_add(offset) }))
        }
        _ => Err(Refusal::new(line, format!("`{name}` is not an address"))),
    }
}

fn atomic<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, words: &[&'a str]) -> Answer {
    let [name, middle @ .., op, ty] = words else { return Ok(None) };
    let Some(ty) = Ty::named(ty) else { return Ok(None) };
    let (middle, op) = match (middle, *op) {
        ([middle @ .., op], "noftz") if ty.bytes() <= 4 && ty.is_float() && ty != Ty::F32 => (middle, *op),
        (_, "noftz") => return Ok(None),
        (middle, op) => (middle, op),
    };
    let mut at_space = Space::Generic;
    for word in middle {
        match *word {
            "relaxed" | "acquire" | "release" | "acq_rel" | "cta" | "cluster" | "gpu" | "sys" => {}
            other => match space(other) {
                Some(s @ (Space::Global | Space::Shared)) if at_space == Space::Generic => at_space = s,
                _ => return Ok(None),
            },
        }
    }
    let Some(apply) = function(op, ty, at_space) else { return Ok(None) };
    let (to, rest) = match (*name, &i.operands[..]) {
        ("atom", [to, rest @ ..]) => (parts(c, to, ty, 1, true, i.line)?[0], rest),
        ("red", rest) => (None, rest),
        _ => return Ok(None),
    };
    let (at, b, third) = match (rest, op) {
        ([at, b, third], "cas") => (at, b, third),
        ([at, b], op) if op != "cas" => (at, b, b),
        _ => return Err(Refusal::new(i.line, "the operation has another number of operands")),
    };
    let (b, third) = (value(c, b, ty, i.line)?, value(c, third, ty, i.line)?);
    let (space, address) = address(c, at, at_space, i.line)?;
    let class = class_of_type(ty).unwrap_or(Class::Word);
    Ok(Some(Op::Atomic(Atomic { space, address, bytes: ty.bytes(), to, class, b, c: third, apply })))
}

fn value<'a>(c: &mut Compiler<'_, 'a>, operand: &Operand<'a>, ty: Ty, line: u32) -> Parsed<Slot> {
    let (class, slot) = c.any_from(operand, ty, line)?;
    if Some(class) != class_of_type(ty) {
        return Err(Refusal::new(line, "the operand has another size than its type"));
    }
    Ok(slot)
}

/// The operation of an atomic (PTX ISA 8.7, sections 9.7.13.15 and 9.7.13.16).
fn function(op: &str, ty: Ty, space: Space) -> Option<AtomicFn> {
    Some(match (op, ty) {
        ("add", Ty::U32 | Ty::S32) => |old, b, _| u64::from((old as u32).wrapping_add(b as u32)),
        ("add", Ty::U64) => |old, b, _| old.wrapping_add(b),
        // on memory of the device it flushes subnormal operands and results to zero
        ("add", Ty::F32) if space == Space::Global => |old, b, _| add_f32(flush(old), flush(b), flush),
        ("add", Ty::F32) if space == Space::Shared => |old, b, _| add_f32(old, b, |bits| bits),
        ("add", Ty::F64) => |old, b, _| (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        ("add", Ty::F16) => |old, b, _| u64::from(add_half::<F16>(old, b)),
        ("add", Ty::Bf16) => |old, b, _| u64::from(add_half::<Bf16>(old, b)),
        ("add", Ty::F16x2) => |old, b, _| add_two::<F16>(old, b),
        ("add", Ty::Bf16x2) => |old, b, _| add_two::<Bf16>(old, b),
        ("min", Ty::U32) => |old, b, _| u64::from((old as u32).min(b as u32)),
        ("max", Ty::U32) => |old, b, _| u64::from((old as u32).max(b as u32)),
        ("min", Ty::S32) => |old, b, _| u64::from((old as i32).min(b as i32) as u32),
        ("max", Ty::S32) => |old, b, _| u64::from((old as i32).max(b as i32) as u32),
        ("min", Ty::U64) => |old, b, _| old.min(b),
        ("max", Ty::U64) => |old, b, _| old.max(b),
        ("min", Ty::S64) => |old, b, _| (old as i64).min(b as i64) as u64,
        ("max", Ty::S64) => |old, b, _| (old as i64).max(b as i64) as u64,
        ("and", Ty::B32 | Ty::B64) => |old, b, _| old & b,
        ("or", Ty::B32 | Ty::B64) => |old, b, _| old | b,
        ("xor", Ty::B32 | Ty::B64) => |old, b, _| old ^ b,
        ("exch", Ty::B32 | Ty::B64) => |_, b, _| b,
        ("cas", Ty::B16 | Ty::B32 | Ty::B64) => |old, b, c| if old == b { c } else { old },
        ("inc", Ty::U32) => |old, b, _| if old >= b { 0 } else { old + 1 },
        ("dec", Ty::U32) => |old, b, _| if old == 0 || old > b { b } else { old - 1 },
        _ => return None,
    })
}

fn flush(bits: u64) -> u64 {
    if f32::from_bits(bits as u32).is_subnormal() { bits & 0x8000_0000 } else { bits }
}

fn add_f32(a: u64, b: u64, then: fn(u64) -> u64) -> u64 {
    then(u64::from(canonical(f32::from_bits(a as u32) + f32::from_bits(b as u32)).to_bits()))
}

fn add_half<H: Half>(a: u64, b: u64) -> u16 {
    H::nearest(H::from_bits(a as u16).value() + H::from_bits(b as u16).value()).bits()
}

fn add_two<H: Half>(a: u64, b: u64) -> u64 {
    u64::from(add_half::<H>(a, b)) | u64::from(add_half::<H>(a >> 16, b >> 16)) << 16
}

fn copy_async<'a>(c: &mut Compiler<'_, 'a>, i: &Instruction<'a>, kind: &str) -> Answer {
    let (to, from, bytes, from_bytes) = match &i.operands[..] {
        [to, from, Operand::Integer(bytes)] => (to, from, *bytes, None),
        [to, from, Operand::Integer(bytes), from_bytes] => (to, from, *bytes, Some(from_bytes)),
        _ => return Err(Refusal::new(i.line, "the copy takes two addresses and a size")),
    };
    if !matches!((kind, bytes), ("cg", 16) | ("ca", 4 | 8 | 16)) {
        return Err(Refusal::new(i.line, "the copy has a size that is not known"));
    }
    let from_bytes = from_bytes.map(|operand| c.from::<u32>(operand, i.line)).transpose()?;
    let (_, to) = address(c, to, Space::Shared, i.line)?;
    let (_, from) = address(c, from, Space::Global, i.line)?;
    Ok(Some(Op::CopyAsync(CopyAsync { to, from, bytes: bytes as u32, from_bytes })))
}

/// The address of a matrix in shared memory.
pub(super) fn shared_address<'a>(c: &mut Compiler<'_, 'a>, operand: &Operand<'a>, line: u32) -> Parsed<Address> {
    address(c, operand, Space::Shared, line).map(|(_, address)| address)
}
