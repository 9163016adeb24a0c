//! Names in a body: sections, registers, variables, and the slots that they have.

use std::collections::HashMap;

use super::{Constant, Special};
use crate::lanes::{Class, Slot};
use crate::ptx::{Name, Space, Ty};

/// A variable or a parameter: its space and its offset there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) space: Space,
    pub(super) at: Location,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    Offset(u64),
    /// A variable of the program, by number.
    Variable(usize),
    DynamicShared,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    Register(Class, Slot),
    Place(Place),
}

/// The names of a section.
#[derive(Debug, Default)]
pub(super) struct Section<'a> {
    pub(super) meanings: HashMap<Name<'a>, Meaning>,
    /// `name<count>`, whose registers get slots when they are used.
    pub(super) ranges: HashMap<Name<'a>, (Class, u32)>,
}

/// Slots that are in use, and what fills them.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) words: u32,
    pub(super) doubles: u32,
    pub(super) predicates: u32,
    constants: HashMap<(Class, Constant), Slot>,
    specials: HashMap<Special, Slot>,
}

impl Slots {
    pub(super) fn fresh(&mut self, class: Class) -> Slot {
        let next = match class {
            Class::Predicate => &mut self.predicates,
            Class::Half | Class::Word => &mut self.words,
            Class::Double => &mut self.doubles,
        };
        *next += 1;
        *next - 1
    }

    pub(super) fn constant(&mut self, class: Class, value: Constant) -> Slot {
        if let Some(&slot) = self.constants.get(&(class, value)) {
            return slot;
        }
        let slot = self.fresh(class);
        self.constants.insert((class, value), slot);
        slot
    }

    pub(super) fn special(&mut self, special: Special) -> Slot {
        if let Some(&slot) = self.specials.get(&special) {
            return slot;
        }
        let slot = self.fresh(Class::Word);
        self.specials.insert(special, slot);
        slot
    }

    /// Constants and special registers in the order of their slots.
    #[allow(clippy::type_complexity)]
    pub(super) fn filled(&self) -> (Vec<(Class, Slot, Constant)>, Vec<(Slot, Special)>) {
        let mut constants: Vec<_> =
            self.constants.iter().map(|(&(class, value), &slot)| (class, slot, value)).collect();
        constants.sort_unstable_by_key(|c| (c.0 as u8, c.1));
        let mut specials: Vec<_> = self.specials.iter().map(|(&special, &slot)| (slot, special)).collect();
        specials.sort_unstable_by_key(|s| s.0);
        (constants, specials)
    }
}

pub(super) fn class_of_type(ty: Ty) -> Option<Class> {
    Some(match ty {
        Ty::Pred => Class::Predicate,
        Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 => Class::Half,
        Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 => Class::Word,
        Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => Class::Double,
        Ty::B8 | Ty::U8 | Ty::S8 => return None,
    })
}

pub(super) fn bits_of_class(class: Class) -> u32 {
    match class {
        Class::Predicate => 1,
        Class::Half => 16,
        Class::Word => 32,
        Class::Double => 64,
    }
}

/// The special register with a name. Clocks and numbers of processors are not among them: they differ from run to run.
pub(super) fn special_named(name: &str) -> Option<Special> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let axis = |axis: &str| ["x", "y", "z"].iter().position(|a| *a == axis);
    if let Some((register, of)) = name.strip_prefix('%').and_then(|n| n.split_once('.')) {
        let axis = axis(of)?;
        return Some(match register {
            "tid" => Special::Thread(axis),
            "ntid" => Special::Threads(axis),
            "ctaid" => Special::Block(axis),
            "nctaid" => Special::Blocks(axis),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LaneMask(Equal, false),
        "%lanemask_lt" => Special::LaneMask(Less, false),
        "%lanemask_le" => Special::LaneMask(Less, true),
        "%lanemask_gt" => Special::LaneMask(Greater, false),
        "%lanemask_ge" => Special::LaneMask(Greater, true),
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        _ => return None,
    })
}

/// Splits `%r12` into `%r` and 12. Numbers with leading zeros are no registers of a range. A range whose own name ends in
/// a digit is not found in this way; no compiler declares one.
pub(super) fn split_number(name: &str) -> Option<(&str, u32)> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (prefix, number) = name.split_at(name.len() - digits);
    (!number.is_empty() && (number == "0" || !number.starts_with('0')))
        .then(|| number.parse().ok().map(|n| (prefix, n)))?
}
