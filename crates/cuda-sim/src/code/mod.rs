//! Kernels in the form that is executed.
//!
//! A [`Program`] is a loaded module. Loading decides everything that does not depend on a launch: registers have slots, labels
//! are indices, calls are inlined, constants are registers that are filled before the first block, and instructions that work
//! lane by lane are closures. An instruction that no family knows is refused. So is one whose bits PTX leaves open: `.approx`,
//! `.ftz`, and sums and products without a rounding mode, which the compiler behind PTX may fuse.

use std::sync::Arc;

use crate::lanes::{Class, Slot};
use crate::ptx::{self, LoadError, Space};

mod arithmetic;
mod bits;
mod compare;
mod compile;
mod control;
mod convert;
mod float;
mod half;
mod memory;
mod moves;
mod names;
mod op;
mod warp;

pub(crate) use op::{
    Access, Address, Atomic, Barrier, BarrierResult, CopyAsync, Inst, Matrix, Op, Order, Shuffle, WarpOp,
};

/// A module that was loaded.
#[derive(Debug)]
pub struct Program {
    pub(crate) kernels: Vec<Arc<Kernel>>,
    /// Variables in `.global` and `.const`, for which the loader gives memory.
    pub(crate) variables: Vec<GlobalVariable>,
}

/// A variable in memory of the device.
#[derive(Clone, Debug)]
pub struct GlobalVariable {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its alignment.
    pub align: u32,
    /// The first bytes of its contents at load. The others are zeros.
    pub initial: Vec<u8>,
}

/// A kernel that was loaded.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) param_bytes: u32,
    pub(crate) most_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
    /// Bytes of shared memory that the kernel declares.
    pub(crate) shared_bytes: u32,
    pub(crate) local_bytes: u32,
    pub(crate) code: Vec<Inst>,
    pub(crate) words: u32,
    pub(crate) doubles: u32,
    pub(crate) predicates: u32,
    pub(crate) constants: Vec<(Class, Slot, Constant)>,
    pub(crate) specials: Vec<(Slot, Special)>,
    /// The lines of the module, for messages.
    pub(crate) lines: Arc<Vec<String>>,
}

/// A parameter of a kernel: its place among the bytes of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Where it begins.
    pub offset: u32,
    /// Its size.
    pub bytes: u32,
}

/// The value of a register that no instruction writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    /// The address of a variable of the program.
    Variable(usize),
    /// The first byte of dynamic shared memory.
    DynamicShared,
}

/// A special register (PTX ISA 8.7, section 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    Warp,
    Warps,
    /// `%lanemask_*`: the lanes whose number compares so with this lane's.
    LaneMask(std::cmp::Ordering, bool),
    DynamicShared,
    TotalShared,
}

impl Program {
    /// Loads PTX. Errors: the first line that is not understood, or whose result PTX does not fix.
    pub fn load(text: &str) -> Result<Program, LoadError> {
        let module = ptx::parse(text)?;
        compile::program(&module, text).map_err(|refusal| refusal.in_text(text))
    }

    /// The names of the kernels in order.
    pub fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|k| k.name.as_str())
    }

    /// The kernel with a name.
    pub fn kernel(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// The variables in memory of the device, in order.
    pub fn variables(&self) -> &[GlobalVariable] {
        &self.variables
    }
}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The bytes that all parameters take together.
    pub fn param_bytes(&self) -> u32 {
        self.param_bytes
    }

    /// Shared memory that the kernel declares, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Local memory of a thread, in bytes.
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// Words of the registers that instructions use, of a thread.
    pub fn registers(&self) -> u32 {
        self.words + 2 * self.doubles
    }

    /// The most threads that a block may have.
    pub fn most_threads(&self) -> u32 {
        let product = |e: [u32; 3]| e.iter().fold(1u32, |a, &b| a.saturating_mul(b));
        self.most_threads.or(self.required_threads).map_or(MAX_THREADS, product).min(MAX_THREADS)
    }

    /// The text of a line of the module.
    pub(crate) fn line(&self, line: u32) -> &str {
        self.lines.get((line as usize).wrapping_sub(1)).map_or("", |l| l.as_str())
    }

    /// Where dynamic shared memory begins: behind the declared variables, at a multiple that any type may have.
    pub(crate) fn dynamic_shared(&self) -> u32 {
        self.shared_bytes.next_multiple_of(DYNAMIC_SHARED_ALIGN)
    }
}

/// The most threads of a block on any architecture.
pub(crate) const MAX_THREADS: u32 = 1024;
/// The largest alignment that a declaration of dynamic shared memory may ask for.
pub(crate) const DYNAMIC_SHARED_ALIGN: u32 = 128;

/// Where a space begins among generic addresses. Memory of the device lies below.
pub(crate) fn window(space: Space) -> u64 {
    match space {
        Space::Shared => 0x00ff_0000_0000_0000,
        Space::Local => 0x00fe_0000_0000_0000,
        _ => 0,
    }
}

/// Bytes that the window of a space spans.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;
