//! A launch: its checks, its registers, and its blocks on threads.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::block::Block;
use super::cells::by_block;
use super::fault::{Fault, FaultKind};
use super::global::{Common, Global, LOCKS};
use super::memory::Memory;
use super::shared::Shared;
use crate::code::{Constant, Kernel, Special};
use crate::lanes::{Class, LANES, Regs};

/// The most shared memory that a block may have on sm_90, the part that a kernel has to ask for included.
pub const MAX_SHARED_BYTES: u32 = 227 << 10;
/// The extents of grids end here (CUDA C++ guide, table of compute capabilities).
const MAX_BLOCKS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// Extents of blocks end here (same table).
const MAX_EXTENTS: [u32; 3] = [1024, 1024, 64];

/// The extents of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads of a block on each axis.
    pub block: [u32; 3],
    /// Shared memory of a block, in addition to the kernel's own.
    pub dynamic_shared_bytes: u32,
}

/// Which checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// All.
    All,
    /// Bounds, alignment, barriers and the limit. Neither races nor reads of bytes that nobody wrote are found.
    Bounds,
}

/// How kernels are executed.
#[derive(Clone, Copy, Debug)]
pub struct ExecOptions {
    /// The seed of the order of blocks.
    pub seed: u64,
    /// Threads of the host on which blocks run. With one, atomics on floats are the same in each run.
    pub threads: usize,
    /// Which checks run.
    pub checks: Checks,
    /// The most instructions of a launch. One counts once for all lanes of a block that execute it together.
    pub instruction_limit: u64,
}

impl Default for ExecOptions {
    fn default() -> Self {
        ExecOptions { seed: 0, threads: 1, checks: Checks::All, instruction_limit: 1 << 32 }
    }
}

/// The work that a launch was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions, each counted once for all lanes of a block that execute it together.
    pub instructions: u64,
}

/// Counts instructions, and takes them from the launch's limit in portions.
pub(super) struct Limit<'a> {
    left: &'a AtomicU64,
    portion: u64,
}

/// Instructions that a block takes from the limit at once.
const PORTION: u64 = 4096;

impl<'a> Limit<'a> {
    fn new(left: &'a AtomicU64) -> Self {
        Limit { left, portion: 0 }
    }

    #[inline(always)]
    pub(super) fn step(&mut self) -> bool {
        if self.portion > 0 {
            self.portion -= 1;
            return true;
        }
        let take = |left: u64| Some(left.saturating_sub(PORTION));
        let before = self.left.fetch_update(Relaxed, Relaxed, take).unwrap_or(0);
        self.portion = before.min(PORTION);
        match self.portion {
            0 => false,
            _ => {
                self.portion -= 1;
                true
            }
        }
    }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        self.left.fetch_add(self.portion, Relaxed);
    }
}

/// Runs a kernel over memory. `variables` has the addresses of the program's variables, and `params` the bytes of all
/// parameters. Errors: the first fault in the order of blocks; memory keeps what was written until then.
pub fn launch(
    memory: &mut Memory,
    kernel: &Kernel,
    variables: &[u64],
    shape: LaunchShape,
    params: &[u8],
    options: &ExecOptions,
) -> Result<Stats, Box<Fault>> {
    check_shape(kernel, shape, params).map_err(|message| refused(kernel, message))?;
    let (launch, epoch) = memory.begin_launch();
    let blocks: u64 = shape.grid.iter().map(|&n| u64::from(n)).product();
    let threads = options.threads.clamp(1, blocks as usize);
    let common = Common {
        memory,
        launch,
        epoch,
        is_checked: options.checks == Checks::All && !memory.is_unchecked(),
        is_alone: threads == 1,
        locks: [const { Mutex::new(()) }; LOCKS],
    };
    let run = Run {
        kernel,
        params,
        shape,
        variables,
        common: &common,
        order: Order::new(blocks, options.seed),
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        fault: Mutex::new(None),
        left: AtomicU64::new(options.instruction_limit),
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| {
            scope.spawn(|| run.work());
        });
        run.work();
    });
    let left = run.left.load(Relaxed);
    match run.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, fault)) => Err(fault),
        None => Ok(Stats { instructions: options.instruction_limit - left }),
    }
}

fn refused(kernel: &Kernel, message: String) -> Box<Fault> {
    Box::new(Fault {
        kind: FaultKind::Launch,
        kernel: kernel.name.clone(),
        block: [0; 3],
        thread: [0; 3],
        line: 0,
        text: String::new(),
        address: None,
        message,
    })
}

/// The reason for which a kernel does not take a shape or these parameters.
pub(crate) fn check_shape(kernel: &Kernel, shape: LaunchShape, params: &[u8]) -> Result<(), String> {
    let LaunchShape { grid, block, dynamic_shared_bytes } = shape;
    if (0..3).any(|axis| grid[axis] == 0 || grid[axis] > MAX_BLOCKS[axis]) {
        return Err(format!("a grid of {grid:?} blocks is outside of 1 to {MAX_BLOCKS:?}"));
    }
    let blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
    if blocks > by_block::MAX_BLOCKS {
        return Err(format!("a grid of {blocks} blocks: the checks know {}", by_block::MAX_BLOCKS));
    }
    if (0..3).any(|axis| block[axis] == 0 || block[axis] > MAX_EXTENTS[axis]) {
        return Err(format!("a block of {block:?} threads is outside of 1 to {MAX_EXTENTS:?}"));
    }
    let threads: u32 = block.iter().product();
    if threads > kernel.most_threads() {
        return Err(format!("a block of {threads} threads: the kernel takes {}", kernel.most_threads()));
    }
    if let Some(required) = kernel.required_threads
        && required != block
    {
        return Err(format!("a block of {block:?} threads: the kernel requires {required:?}"));
    }
    let shared = u64::from(kernel.dynamic_shared()) + u64::from(dynamic_shared_bytes);
    if shared > u64::from(MAX_SHARED_BYTES) {
        return Err(format!("{shared} bytes of shared memory: a block has {MAX_SHARED_BYTES}"));
    }
    if params.len() != kernel.param_bytes as usize {
        return Err(format!("{} bytes of parameters: the kernel takes {}", params.len(), kernel.param_bytes));
    }
    Ok(())
}

/// A permutation of the blocks: steps of a size without a common divisor with their number.
struct Order {
    blocks: u64,
    first: u64,
    step: u64,
}

impl Order {
    fn new(blocks: u64, seed: u64) -> Self {
        if seed == 0 {
            return Order { blocks, first: 0, step: 1 };
        }
        let drawn = mix(seed);
        let mut step = drawn % blocks;
        while gcd(step, blocks) != 1 {
            step = (step + 1) % blocks.max(2);
        }
        Order { blocks, first: mix(drawn) % blocks, step }
    }

    fn block(&self, k: u64) -> u64 {
        ((u128::from(self.first) + u128::from(k) * u128::from(self.step)) % u128::from(self.blocks)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A pseudo-random number from another (the finaliser of SplitMix64).
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

struct Run<'a> {
    kernel: &'a Kernel,
    params: &'a [u8],
    shape: LaunchShape,
    variables: &'a [u64],
    common: &'a Common<'a>,
    order: Order,
    /// How many blocks have begun.
    next: AtomicUsize,
    failed: AtomicBool,
    /// The fault that is earliest in the order, with its place there.
    fault: Mutex<Option<(usize, Box<Fault>)>>,
    left: AtomicU64,
}

impl Run<'_> {
    /// Runs blocks until none is left or one failed.
    fn work(&self) {
        let shared_bytes = self.kernel.dynamic_shared() + self.shape.dynamic_shared_bytes;
        let shared_bytes = if self.shape.dynamic_shared_bytes == 0 { self.kernel.shared_bytes } else { shared_bytes };
        let shared = Shared::new(shared_bytes, self.common.is_checked);
        let limit = Limit::new(&self.left);
        let (extents, global) = (self.shape.block, Global::new(self.common));
        let mut block = Block::new(self.kernel, self.params, extents, shared, global, self.registers(), limit);
        while !self.failed.load(Relaxed) {
            let k = self.next.fetch_add(1, Relaxed);
            if k as u64 >= self.order.blocks {
                return;
            }
            let number = self.order.block(k as u64);
            self.place(&mut block, number);
            if let Err(fault) = block.run() {
                self.failed.store(true, Relaxed);
                let mut earliest = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
                if earliest.as_ref().is_none_or(|(place, _)| k < *place) {
                    *earliest = Some((k, fault));
                }
            }
        }
    }

    /// Registers with the constants and the special registers that are the same in all blocks.
    fn registers(&self) -> Regs {
        let kernel = self.kernel;
        let threads = self.shape.block.iter().product::<u32>() as usize;
        let warps = threads.div_ceil(LANES);
        let mut regs = Regs {
            warps,
            words: vec![[0; LANES]; kernel.words as usize * warps],
            doubles: vec![[0; LANES]; kernel.doubles as usize * warps],
            predicates: vec![0; kernel.predicates as usize * warps],
        };
        for &(class, slot, constant) in &kernel.constants {
            let value = match constant {
                Constant::Bits(bits) => bits,
                Constant::Variable(number) => self.variables.get(number).copied().unwrap_or(0),
                Constant::DynamicShared => u64::from(kernel.dynamic_shared()),
            };
            for warp in 0..warps {
                let row = regs.row(slot, warp);
                match class {
                    Class::Predicate => regs.predicates[row] = if value != 0 { u32::MAX } else { 0 },
                    Class::Half | Class::Word => regs.words[row] = [value as u32; LANES],
                    Class::Double => regs.doubles[row] = [value; LANES],
                }
            }
        }
        for &(slot, special) in &kernel.specials {
            for warp in 0..warps {
                let row = regs.row(slot, warp);
                regs.words[row] = std::array::from_fn(|lane| self.special(special, warp, lane, [0; 3]));
            }
        }
        regs
    }

    fn special(&self, special: Special, warp: usize, lane: usize, block: [u32; 3]) -> u32 {
        let LaunchShape { grid, block: extents, dynamic_shared_bytes } = self.shape;
        let thread = (warp * LANES + lane) as u32;
        match special {
            Special::Thread(0) => thread % extents[0],
            Special::Thread(1) => thread / extents[0] % extents[1],
            Special::Thread(_) => thread / (extents[0] * extents[1]),
            Special::Threads(axis) => extents[axis],
            Special::Block(axis) => block[axis],
            Special::Blocks(axis) => grid[axis],
            Special::Lane => lane as u32,
            Special::Warp => warp as u32,
            Special::Warps => extents.iter().product::<u32>().div_ceil(LANES as u32),
            Special::LaneMask(side, has_own) => {
                let own = 1u32 << lane;
                let side = match side {
                    Ordering::Less => own - 1,
                    Ordering::Equal => own,
                    Ordering::Greater => !(own | (own - 1)),
                };
                if has_own { side | own } else { side }
            }
            Special::DynamicShared => dynamic_shared_bytes,
            Special::TotalShared => self.kernel.dynamic_shared() + dynamic_shared_bytes,
        }
    }

    /// Moves a block to its coordinates.
    fn place(&self, block: &mut Block<'_>, number: u64) {
        let [x, y, _] = self.shape.grid.map(u64::from);
        let coordinates = [(number % x) as u32, (number / x % y) as u32, (number / (x * y)) as u32];
        block.coordinates = coordinates;
        block.global.block = number as u32;
        for &(slot, special) in &self.kernel.specials {
            if let Special::Block(axis) = special {
                for warp in 0..block.warps {
                    let row = block.regs.row(slot, warp);
                    block.regs.words[row] = [coordinates[axis]; LANES];
                }
            }
        }
    }
}
