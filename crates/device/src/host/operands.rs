//! The only module that makes slices of host memory for kernels.
//!
//! The caller of a kernel on the host names the operands by [`Range`]s. `execute.rs` makes them of a launch's offsets,
//! and `machine.rs` of the places of a program's step. Each has checked before that ranges are disjoint: for a launch
//! when it comes, for a step when its program is made.

use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_kernels::pool::Pool;
use remat_ops::{EvalCx, In, Op, Out};
use remat_types::{DType, Error, ErrorKind, Layout, Result, Shape, SmallVec};

use crate::arena::Alignment;
use crate::kernels::KernelSet;
use crate::program::Span;

/// Inputs of a call up to this number cost no allocation: the gradient of a loop has more than other ops.
const INLINE: usize = 16;

/// First byte and length of a range of host memory. Whoever makes one guarantees that the memory is alive, and used by
/// nobody else, as long as the range is read or written through.
#[derive(Clone, Copy, Debug)]
pub struct Range(*mut u8, usize);

// SAFETY: the pointer is only followed within the run that stored it; between runs it is a number.
unsafe impl Send for Range {}

impl Range {
    /// The range of `bytes` bytes from `first` on.
    pub fn new(first: *mut u8, bytes: usize) -> Range {
        Range(first, bytes)
    }

    /// A range that is written.
    pub fn exclusive(bytes: &mut [u8]) -> Range {
        Range(bytes.as_mut_ptr(), bytes.len())
    }

    /// A range that is only read.
    pub fn shared(bytes: &[u8]) -> Range {
        Range(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// The part from the first multiple of `bytes` on. Errors (Internal) if it has none.
    pub fn aligned(self, bytes: usize) -> Result<Range> {
        let skip = self.0.align_offset(bytes);
        self.part(skip.min(self.1), self.1.saturating_sub(skip))
    }

    /// Where it begins and ends.
    pub fn addresses(self) -> (usize, usize) {
        (self.0.addr(), self.0.addr() + self.1)
    }

    /// Its first byte.
    pub fn first(self) -> *mut u8 {
        self.0
    }

    /// Its bytes, to be read.
    ///
    /// # Safety
    /// The memory is alive for `'a`, and nobody writes it meanwhile.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: by the caller's promise; the range is a part of that memory.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }

    /// Its bytes, to be written.
    ///
    /// # Safety
    /// The memory is alive for `'a`, and nobody else reads or writes it meanwhile.
    pub unsafe fn bytes_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: as in `bytes`; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Span for Range {
    /// Even an empty slice of elements needs an aligned address.
    const EMPTY: Range = Range(std::ptr::without_provenance_mut(Alignment::HOST.bytes()), 0);

    fn size_bytes(self) -> usize {
        self.1
    }

    fn part(self, at: usize, bytes: usize) -> Result<Range> {
        if at.checked_add(bytes).is_none_or(|end| end > self.1) {
            let text = format!("bytes {at}..+{bytes} of a range of {}", self.1);
            return Err(Error::new(ErrorKind::Internal, text));
        }
        // SAFETY: `at` is at most the range's length.
        Ok(Range(unsafe { self.0.add(at) }, bytes))
    }
}

/// Type, layout and memory of an input; no memory if an output took its storage.
pub type Input<'o> = (DType, &'o Layout, Option<Range>);

/// Type, extents and memory of an output, and the input whose storage it took.
pub type Output<'o> = (DType, &'o Shape, Range, Option<usize>);

/// The operands of a kernel.
pub trait Operands<'o> {
    /// The numbers of inputs and outputs.
    fn counts(&self) -> (usize, usize);

    /// Input `i`. Errors (Internal): its range lies outside the memory that it belongs to.
    fn input(&self, i: usize) -> Result<Input<'o>>;

    /// Output `j`. Errors as for an input.
    fn output(&self, j: usize) -> Result<Output<'o>>;

    /// The scratch memory. Errors as for an input.
    fn workspace(&self) -> Result<Range>;
}

/// Runs the kernel of `op`. A panic in it is a bug, and becomes an error so that the device and everyone who waits for
/// it live on. Errors: the kernel's; Internal if it panicked.
pub fn contained<T>(op: &'static str, kernel: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = catch_unwind(AssertUnwindSafe(kernel)).unwrap_or_else(|payload| {
        // Dropping the payload of a panic may panic too.
        std::mem::forget(payload);
        Err(Error::new(ErrorKind::Internal, "the kernel panicked"))
    });
    result.map_err(|e| e.with_op(op))
}

/// Calls a kernel. Errors: the kernel's, and those of its operands.
///
/// # Safety
/// As [`with_operands`].
pub(super) unsafe fn call_kernel<'o>(
    kernels: &dyn KernelSet,
    op: &dyn Op,
    o: &impl Operands<'o>,
    pool: &Pool,
) -> Result<()> {
    // SAFETY: the same promise.
    unsafe { with_operands(o, pool, |cx| run_kernel(kernels, op, cx)) }
}

/// Computes an op on the host by the kernel that a program registered for it, else by the op's own. Errors: the
/// kernel's.
pub fn run_kernel(kernels: &dyn KernelSet, op: &dyn Op, cx: &mut EvalCx<'_>) -> Result<()> {
    match kernels.host_kernel(op) {
        Some(own) => own.run(op, cx),
        None => op.eval(cx),
    }
}

/// Calls `f` with operands. Errors: those of `f`, and of the operands.
///
/// # Safety
/// The memory of all operands is alive until this returns. Outputs and workspace overlap no other operand. Meanwhile
/// nobody else reads or writes outputs and workspace, or writes an input.
pub unsafe fn with_operands<'o>(
    o: &impl Operands<'o>,
    pool: &Pool,
    f: impl FnOnce(&mut EvalCx<'_>) -> Result<()>,
) -> Result<()> {
    let (inputs, outputs) = o.counts();
    let mut x: SmallVec<[In<'_>; INLINE]> = SmallVec::new();
    for i in 0..inputs {
        x.push(match o.input(i)? {
            (dtype, layout, None) => In::donated(dtype, layout),
            // SAFETY: alive and only read by the caller's promise.
            (dtype, layout, Some(range)) => In::new(dtype, layout, unsafe { range.bytes() }),
        });
    }
    // SAFETY: alive, and nobody else's by the caller's promise.
    let workspace = unsafe { o.workspace()?.bytes_mut() };
    match outputs {
        1 => f(&mut EvalCx { x: &x, y: &mut outs::<1>(o)?, workspace, pool }),
        2 => f(&mut EvalCx { x: &x, y: &mut outs::<2>(o)?, workspace, pool }),
        3 => f(&mut EvalCx { x: &x, y: &mut outs::<3>(o)?, workspace, pool }),
        4 => f(&mut EvalCx { x: &x, y: &mut outs::<4>(o)?, workspace, pool }),
        5 => f(&mut EvalCx { x: &x, y: &mut outs::<5>(o)?, workspace, pool }),
        6 => f(&mut EvalCx { x: &x, y: &mut outs::<6>(o)?, workspace, pool }),
        7 => f(&mut EvalCx { x: &x, y: &mut outs::<7>(o)?, workspace, pool }),
        8 => f(&mut EvalCx { x: &x, y: &mut outs::<8>(o)?, workspace, pool }),
        n => {
            let mut y = (0..n).map(|j| o.output(j).map(out)).collect::<Result<Vec<_>>>()?;
            f(&mut EvalCx { x: &x, y: &mut y, workspace, pool })
        }
    }
}

/// Called by [`with_operands`] alone, once for each output.
fn out<'o>((dtype, shape, range, holds): Output<'o>) -> Out<'o> {
    // SAFETY: alive and exclusive by the promise of the caller of `with_operands`. That function takes each output
    // once, and makes no slice of an input whose storage an output took.
    Out::new(dtype, shape, unsafe { range.bytes_mut() }, holds)
}

/// The outputs of a kernel that has `N` of them, without an allocation.
fn outs<'o, const N: usize>(o: &impl Operands<'o>) -> Result<[Out<'o>; N]> {
    let mut failed = None;
    let all: [Option<Output<'o>>; N] = std::array::from_fn(|j| o.output(j).map_err(|e| failed = Some(e)).ok());
    match failed {
        Some(e) => Err(e),
        None => Ok(all.map(|y| out(y.expect("none failed")))),
    }
}
