//! Instructions as they are executed.

use std::fmt;

use super::memory::AtomicFn;
use crate::lanes::{Alu, Class, Slot};
use crate::ptx::Space;

/// An instruction.
pub(crate) struct Inst {
    pub(crate) op: Op,
    /// The predicate by which it is guarded, and whether that is negated.
    pub(crate) guard: Option<(Slot, bool)>,
    pub(crate) line: u32,
}

impl fmt::Debug for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction of line {}", self.line)
    }
}

pub(crate) enum Op {
    /// Works lane by lane on registers.
    Alu(Alu),
    /// Goes to the instruction with this index.
    Branch(usize),
    Exit,
    Trap,
    /// Orders memory, which already is in order here.
    Fence,
    Barrier(Barrier),
    Load(Access),
    Store(Access),
    Atomic(Atomic),
    CopyAsync(CopyAsync),
    CommitCopies,
    /// Waits until at most that many groups of copies are under way; `None` for all copies, in groups or not.
    WaitCopies(Option<u32>),
    Warp(WarpOp),
}

/// How an access is ordered with those of other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Plain,
    /// Volatile, relaxed and stronger: other threads may use the same bytes in the same way.
    Strong,
    /// `ld.global.nc`: nothing may write these bytes while the kernel runs.
    ReadOnly,
}

/// An address as instructions give it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// The register, if there is one.
    pub(crate) base: Option<(Class, Slot)>,
    pub(crate) offset: i64,
}

/// A register of a transfer; `None` for `_`.
pub(crate) type Part = Option<(Class, Slot)>;

/// A load or a store.
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) order: Order,
    pub(crate) address: Address,
    /// Bytes of an element.
    pub(crate) bytes: u32,
    pub(crate) is_signed: bool,
    pub(crate) parts: Vec<Part>,
    /// All parts are registers of 32 bits that take their bytes unchanged.
    pub(crate) is_words: bool,
}

/// A read-modify-write.
pub(crate) struct Atomic {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) bytes: u32,
    /// The register of the old value.
    pub(crate) to: Part,
    pub(crate) class: Class,
    pub(crate) b: Slot,
    pub(crate) c: Slot,
    pub(crate) apply: AtomicFn,
}

/// A barrier of the block.
pub(crate) struct Barrier {
    /// Number of the barrier.
    pub(crate) id: Slot,
    /// The number of threads that it names.
    pub(crate) threads: Option<Slot>,
    pub(crate) result: Option<BarrierResult>,
}

/// `barrier.red`: a value over all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BarrierResult {
    Count { to: Slot, from: Slot, is_negated: bool },
    All { to: Slot, from: Slot, is_negated: bool },
    Any { to: Slot, from: Slot, is_negated: bool },
}

/// `cp.async`: a copy from memory of the device to shared memory.
pub(crate) struct CopyAsync {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) bytes: u32,
    /// The bytes that are read; the rest are zeros.
    pub(crate) from_bytes: Option<Slot>,
}

/// `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Xor,
    Index,
}

/// The format of the factors of `mma.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matrix {
    F16,
    Bf16,
    Tf32,
}

/// An instruction of a whole warp.
pub(crate) enum WarpOp {
    Shuffle {
        mode: Shuffle,
        to: Slot,
        is_valid: Option<Slot>,
        from: Slot,
        lane: Slot,
        clamp: Slot,
        members: Slot,
    },
    Ballot {
        to: Slot,
        from: Slot,
        is_negated: bool,
        members: Slot,
    },
    /// `vote`: `true` for lanes that agree with these conditions on (some, every) lane.
    Vote {
        to: Slot,
        from: Slot,
        is_negated: bool,
        members: Slot,
        holds: fn(u32, u32) -> bool,
    },
    ActiveMask {
        to: Slot,
    },
    /// `match.any`, or `match.all` with its predicate.
    Match {
        to: Slot,
        all: Option<Slot>,
        from: (Class, Slot),
        members: Slot,
    },
    Reduce {
        to: Slot,
        from: Slot,
        members: Slot,
        combine: fn(u32, u32) -> u32,
    },
    Sync {
        members: Slot,
    },
    LoadMatrix {
        to: Vec<Slot>,
        address: Address,
        is_transposed: bool,
    },
    Multiply {
        kind: Matrix,
        k: usize,
        d: [Slot; 4],
        a: Vec<Slot>,
        b: Vec<Slot>,
        c: [Slot; 4],
    },
}
