//! The one door from the runtime to the kernels: slices are made from offsets here, and nowhere else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_kernels::pool::Pool;
use remat_ops::{EvalCx, In, Out};
use remat_types::{Error, ErrorKind, HostTensor, Result, SmallVec};

use crate::device::{Buffer, Launch, Region};

/// Runs a launch on host memory. Errors: the op's, or Internal if ranges overlap that must not.
///
/// # Safety
/// Until this returns nobody else writes the launch's inputs, or reads or writes its outputs and workspace.
pub(crate) unsafe fn run_op(region: &Region, pool: &Pool, l: &Launch<'_>) -> Result<()> {
    check_disjoint(l)?;
    // SAFETY: nobody else uses the workspace by the caller's promise, and it is disjoint from all inputs and outputs by
    // `check_disjoint`.
    let workspace = unsafe { region.bytes_mut(l.workspace.0, l.workspace.1)? };
    let mut x: SmallVec<[In<'_>; 4]> = SmallVec::new();
    for i in 0..l.x.len() {
        x.push(input(region, l, i)?);
    }
    contained(l.op.label(), || {
        if l.y.len() == 1 {
            l.op.eval(&mut EvalCx { x: &x, y: &mut [output(region, l, 0)?], workspace, pool })
        } else {
            let mut y = (0..l.y.len()).map(|j| output(region, l, j)).collect::<Result<Vec<_>>>()?;
            l.op.eval(&mut EvalCx { x: &x, y: &mut y, workspace, pool })
        }
    })
}

/// Runs the kernel of `op`. One that panics is a bug, but it must not take the device and every waiter with it. Errors: the
/// kernel's; Internal if it panicked.
pub(crate) fn contained<T>(op: &'static str, kernel: impl FnOnce() -> Result<T>) -> Result<T> {
    let result = catch_unwind(AssertUnwindSafe(kernel)).unwrap_or_else(|payload| {
        // What it panicked with may panic when it is dropped.
        std::mem::forget(payload);
        Err(Error::new(ErrorKind::Internal, "the kernel panicked"))
    });
    result.map_err(|e| e.with_op(op))
}

fn input<'a>(region: &'a Region, l: &'a Launch<'_>, i: usize) -> Result<In<'a>> {
    let b = &l.x[i];
    if l.y.iter().any(|y| y.donated_from == Some(i)) {
        return Ok(In::donated(b.dtype, b.layout));
    }
    // SAFETY: called by `run_op` alone, whose caller promises that nobody writes inputs, and which has checked that they
    // are disjoint from outputs and workspace; among themselves they are only read.
    Ok(In::new(b.dtype, b.layout, unsafe { region.bytes(b.at, b.bytes)? }))
}

fn output<'a>(region: &'a Region, l: &'a Launch<'_>, j: usize) -> Result<Out<'a>> {
    let b = &l.y[j];
    // SAFETY: called once per output by `run_op` alone, which has checked that outputs overlap neither each other nor
    // the workspace nor any input but the one this output took over, of which `input` makes no slice.
    Ok(Out::new(b.dtype, b.shape, unsafe { region.bytes_mut(b.at, b.bytes)? }, b.donated_from))
}

/// Errors (Internal) if an output or the workspace overlaps anything else of the launch, or a layout its storage.
fn check_disjoint(l: &Launch<'_>) -> Result<()> {
    let overlap = |a: (usize, usize), b: (usize, usize)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1 && a.1 > 0 && b.1 > 0;
    let bad = |what: &str, at: usize| {
        let text = format!("{what} {at} overlaps or leaves its storage");
        Err(Error::new(ErrorKind::Internal, text).with_op(l.op.label()))
    };
    for (i, x) in l.x.iter().enumerate() {
        // No slice is made of an input whose storage an output took.
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
pub(crate) unsafe fn upload(region: &Region, at: usize, data: &HostTensor) -> Result<()> {
    let bytes = data.bytes();
    // SAFETY: exclusive by the caller's promise.
    unsafe { region.bytes_mut(at, bytes.len())? }.copy_from_slice(bytes);
    Ok(())
}

/// Copies a tensor's elements out.
///
/// # Safety
/// Until this returns nobody writes the tensor's storage.
pub(crate) unsafe fn download(region: &Region, x: &Buffer<'_>) -> Result<HostTensor> {
    // SAFETY: nobody writes the range by the caller's promise.
    HostTensor::gather(x.dtype, x.layout, unsafe { region.bytes(x.at, x.bytes)? })
}

/// Moves bytes; ranges may overlap.
///
/// # Safety
/// Until this returns nobody else reads or writes anything from the lower to the upper range's end.
pub(crate) unsafe fn shift(region: &Region, from: usize, to: usize, bytes: usize) -> Result<()> {
    let (lo, hi) = (from.min(to), from.max(to) + bytes);
    // SAFETY: exclusive by the caller's promise.
    let all = unsafe { region.bytes_mut(lo, hi - lo)? };
    all.copy_within(from - lo..from - lo + bytes, to - lo);
    Ok(())
}
