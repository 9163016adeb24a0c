//! The only module where a launch's offsets become ranges of host memory.

use remat_kernels::pool::Pool;
use remat_ops::EvalCx;
use remat_types::{Error, ErrorKind, HostTensor, Result};

use super::{Input, Operands, Output, Range, Region, contained, run_kernel, with_operands};
use crate::kernels::KernelSet;
use crate::launch::{Buffer, Launch};

/// Runs a launch on host memory by `f`, which calls the op's kernel or computes the same. Errors: those of `f`;
/// Internal if ranges overlap that must be disjoint.
///
/// # Safety
/// Until this returns nobody else writes the launch's inputs, or reads or writes its outputs and workspace.
pub unsafe fn run_launch(
    region: &Region,
    pool: &Pool,
    l: &Launch<'_>,
    f: impl FnOnce(&mut EvalCx<'_>) -> Result<()>,
) -> Result<()> {
    let operands = LaunchOperands::new(region, l)?;
    contained(l.op.label(), || {
        // SAFETY: the region is alive. Nobody else uses the operands, by the caller's promise. `check_disjoint` has
        // seen that outputs and workspace overlap no other operand.
        unsafe { with_operands(&operands, pool, f) }
    })
}

/// Runs the kernel that `kernels` has on the host for a launch. Errors: as [`run_launch`].
///
/// # Safety
/// As [`run_launch`].
pub unsafe fn run_op(region: &Region, pool: &Pool, kernels: &dyn KernelSet, l: &Launch<'_>) -> Result<()> {
    // SAFETY: the same promise.
    unsafe { run_launch(region, pool, l, |cx| run_kernel(kernels, &**l.op, cx)) }
}

/// The operands of a launch's kernel. Outputs and workspace overlap nothing else.
pub struct LaunchOperands<'r, 'l> {
    region: &'r Region,
    launch: &'r Launch<'l>,
}

impl<'r, 'l> LaunchOperands<'r, 'l> {
    /// Errors (Internal): ranges overlap that must be disjoint.
    pub fn new(region: &'r Region, launch: &'r Launch<'l>) -> Result<Self> {
        check_disjoint(launch)?;
        Ok(LaunchOperands { region, launch })
    }

    fn range(&self, at: usize, bytes: usize) -> Result<Range> {
        Ok(Range::new(self.region.first(at, bytes)?, bytes))
    }
}

impl<'r> Operands<'r> for LaunchOperands<'r, '_> {
    fn counts(&self) -> (usize, usize) {
        (self.launch.x.len(), self.launch.y.len())
    }

    fn input(&self, i: usize) -> Result<Input<'r>> {
        let b = &self.launch.x[i];
        let is_donated = self.launch.y.iter().any(|y| y.donated_from == Some(i));
        let range = if is_donated { None } else { Some(self.range(b.at, b.bytes)?) };
        Ok((b.dtype, b.layout, range))
    }

    fn output(&self, j: usize) -> Result<Output<'r>> {
        let b = &self.launch.y[j];
        Ok((b.dtype, b.shape, self.range(b.at, b.bytes)?, b.donated_from))
    }

    fn workspace(&self) -> Result<Range> {
        self.range(self.launch.workspace.0, self.launch.workspace.1)
    }
}

/// Errors (Internal) if an output or the workspace overlaps another operand, or a layout leaves its storage.
fn check_disjoint(l: &Launch<'_>) -> Result<()> {
    let overlap = |a: (usize, usize), b: (usize, usize)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1 && a.1 > 0 && b.1 > 0;
    let bad = |what: &str, at: usize| {
        let text = format!("{what} {at} overlaps or leaves its storage");
        Err(Error::new(ErrorKind::Internal, text).with_op(l.op.label()))
    };
    for (i, x) in l.x.iter().enumerate() {
        // The kernel gets no slice of an input whose storage an output took.
        let donated = || l.y.iter().any(|y| y.donated_from == Some(i));
        if !x.layout.fits(x.bytes / x.dtype.size_bytes()) || overlap((x.at, x.bytes), l.workspace) && !donated() {
            return bad("input", i);
        }
    }
    for (j, y) in l.y.iter().enumerate() {
        let r = (y.at, y.bytes);
        let meets_input =
            |(i, x): (usize, &Buffer<'_>)| overlap(r, (x.at, x.bytes)) && l.y.iter().all(|y| y.donated_from != Some(i));
        if overlap(r, l.workspace)
            || l.y[..j].iter().any(|o| overlap(r, (o.at, o.bytes)))
            || l.x.iter().enumerate().any(meets_input)
        {
            return bad("output", j);
        }
    }
    Ok(())
}

/// Copies host bytes to offset `at`.
///
/// # Safety
/// Until this returns nobody else reads or writes the range.
pub unsafe fn upload(region: &Region, at: usize, data: &HostTensor) -> Result<()> {
    let bytes = data.bytes();
    // SAFETY: exclusive by the caller's promise.
    unsafe { region.bytes_mut(at, bytes.len())? }.copy_from_slice(bytes);
    Ok(())
}

/// Copies a tensor's elements out.
///
/// # Safety
/// Until this returns nobody writes the tensor's storage.
pub unsafe fn download(region: &Region, x: &Buffer<'_>) -> Result<HostTensor> {
    // SAFETY: nobody writes the range by the caller's promise.
    HostTensor::gather(x.dtype, x.layout, unsafe { region.bytes(x.at, x.bytes)? })
}

/// Copies bytes to a range that does not overlap theirs. Errors (Internal) if it does.
///
/// # Safety
/// Until this returns nobody else writes the first range, or reads or writes the second.
pub unsafe fn copy(region: &Region, from: usize, to: usize, bytes: usize) -> Result<()> {
    if from < to + bytes && to < from + bytes {
        return Err(Error::new(
            ErrorKind::Internal,
            format!("a copy of {bytes} bytes from {from} to {to} overlaps itself"),
        ));
    }
    // SAFETY: only read by the caller's promise.
    let from = unsafe { region.bytes(from, bytes)? };
    // SAFETY: exclusive by the caller's promise, and disjoint from the bytes read by the check above.
    unsafe { region.bytes_mut(to, bytes)? }.copy_from_slice(from);
    Ok(())
}

/// Makes bytes zero.
///
/// # Safety
/// Until this returns nobody else reads or writes the range.
pub unsafe fn fill_zero(region: &Region, at: usize, bytes: usize) -> Result<()> {
    // SAFETY: exclusive by the caller's promise.
    unsafe { region.bytes_mut(at, bytes)? }.fill(0);
    Ok(())
}

/// Moves bytes; ranges may overlap.
///
/// # Safety
/// Until this returns nobody else reads or writes anything from the lower to the upper range's end.
pub unsafe fn shift(region: &Region, from: usize, to: usize, bytes: usize) -> Result<()> {
    let (lo, hi) = (from.min(to), from.max(to) + bytes);
    // SAFETY: exclusive by the caller's promise.
    let all = unsafe { region.bytes_mut(lo, hi - lo)? };
    all.copy_within(from - lo..from - lo + bytes, to - lo);
    Ok(())
}
