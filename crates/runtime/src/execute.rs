//! The one door from the runtime to the kernels: slices are made from offsets here, and nowhere else.

use remat_kernels::pool::Pool;
use remat_ops::{EvalCx, In, Out};
use remat_types::{Error, ErrorKind, HostTensor, Result, SmallVec};

use crate::device::{Buffer, Launch, Region};

/// Runs a launch on host memory. Errors: the op's, or Internal if ranges overlap that must not.
pub(crate) fn run_op(region: &mut Region, pool: &Pool, l: &Launch) -> Result<()> {
    check_disjoint(l)?;
    let mut y: SmallVec<[Out<'_>; 2]> = SmallVec::new();
    for b in &l.y {
        // SAFETY: `region` is borrowed exclusively, and `check_disjoint` has shown that outputs overlap neither each
        // other, nor the workspace, nor any input but the one they took over, of which no slice is made below.
        let bytes = unsafe { region.bytes_mut(b.at, b.bytes)? };
        y.push(Out::new(b.dtype, &b.shape, bytes, b.holds));
    }
    let mut x: SmallVec<[In<'_>; 4]> = SmallVec::new();
    for (i, b) in l.x.iter().enumerate() {
        if l.y.iter().any(|y| y.holds == Some(i)) {
            x.push(In::donated(b.dtype, &b.layout));
        } else {
            // SAFETY: inputs are shared among themselves and disjoint from outputs and workspace, as above.
            x.push(In::new(b.dtype, &b.layout, unsafe { region.bytes(b.at, b.bytes)? }));
        }
    }
    // SAFETY: the workspace is disjoint from all inputs and outputs, as above.
    let workspace = unsafe { region.bytes_mut(l.workspace.0, l.workspace.1)? };
    l.op.eval(&mut EvalCx { x: &x, y: &mut y, workspace, pool }).map_err(|e| e.with_op(l.op.label()))
}

/// Errors (Internal) if an output or the workspace overlaps anything else of the launch, or a layout its storage.
fn check_disjoint(l: &Launch) -> Result<()> {
    let overlap = |a: (usize, usize), b: (usize, usize)| a.1 > 0 && b.1 > 0 && a.0 < b.0 + b.1 && b.0 < a.0 + a.1;
    let ws = l.workspace;
    let mut bad = None;
    for (j, y) in l.y.iter().enumerate() {
        let r = (y.at, y.bytes);
        if overlap(r, ws) || l.y[..j].iter().any(|o| overlap(r, (o.at, o.bytes))) {
            bad = Some(format!("output {j}"));
        }
        if let Some((i, _)) =
            l.x.iter().enumerate().find(|(i, x)| y.holds != Some(*i) && overlap(r, (x.at, x.bytes)))
        {
            bad = Some(format!("output {j} and input {i}"));
        }
    }
    for (i, x) in l.x.iter().enumerate() {
        if overlap((x.at, x.bytes), ws) || !x.layout.fits(x.bytes / x.dtype.size_bytes()) {
            bad = Some(format!("input {i}"));
        }
    }
    match bad {
        Some(what) => Err(Error::new(ErrorKind::Internal, format!("{what} overlaps or leaves its storage"))
            .with_op(l.op.label())),
        None => Ok(()),
    }
}

/// Copies host bytes to offset `at`.
pub(crate) fn upload(region: &mut Region, at: usize, data: &HostTensor) -> Result<()> {
    let bytes = data.bytes();
    // SAFETY: `region` is borrowed exclusively, so no other slice of it is alive.
    unsafe { region.bytes_mut(at, bytes.len())? }.copy_from_slice(bytes);
    Ok(())
}

/// Copies a tensor's elements out.
pub(crate) fn download(region: &Region, x: &Buffer) -> Result<HostTensor> {
    // SAFETY: the worker that owns the region runs nothing else meanwhile, so no mutable slice is alive.
    HostTensor::gather(x.dtype, &x.layout, unsafe { region.bytes(x.at, x.bytes)? })
}

/// Moves bytes; ranges may overlap.
pub(crate) fn shift(region: &mut Region, from: usize, to: usize, bytes: usize) -> Result<()> {
    let (lo, hi) = (from.min(to), from.max(to) + bytes);
    // SAFETY: `region` is borrowed exclusively, so no other slice of it is alive.
    let all = unsafe { region.bytes_mut(lo, hi - lo)? };
    all.copy_within(from - lo..from - lo + bytes, to - lo);
    Ok(())
}
