//! Reductions over all ranks, in pieces that a bounded workspace holds.

use std::ops::Range;
use std::time::Duration;

use remat_types::{DType, Result};

use super::{Call, Communicator, blocks};
use crate::reduce::{accumulate, finish};
use crate::{Reduction, Transport};

/// The bytes that a reduction moves at a time: its workspace stays small, and its parts in the cache.
pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// Up to so many bytes of all ranks a reduction gathers all values at once, in one exchange instead of two.
pub(crate) const GATHERED_BYTES: usize = 32 << 10;

impl Communicator {
    /// Bytes that [`Communicator::all_reduce`] and [`Communicator::reduce`] need beside tensors of so many bytes.
    pub fn reduce_workspace(&self, dtype: DType, bytes: usize) -> usize {
        let (size, elem) = (self.size(), dtype.size_bytes());
        match size {
            1 => 0,
            _ if bytes.saturating_mul(size) <= GATHERED_BYTES => bytes * size,
            _ => (bytes.min(CHUNK_BYTES) / elem).div_ceil(size) * elem * size,
        }
    }

    /// `y` becomes the reduction of all ranks' `x`, on all ranks; without an `x`, of what `y` holds. `work` has
    /// [`Communicator::reduce_workspace`] bytes.
    ///
    /// Errors: DType if there is no such reduction, Peer.
    pub fn all_reduce(
        &self,
        call: &Call,
        reduction: Reduction,
        dtype: DType,
        x: Option<&[u8]>,
        y: &mut [u8],
        work: &mut [u8],
    ) -> Result<()> {
        reduction.check(dtype)?;
        self.enter(call, y.len())?;
        let size = self.size();
        if size == 1 {
            x.into_iter().for_each(|x| y.copy_from_slice(x));
            return Ok(());
        }
        self.move_bytes(|t, limit| {
            if y.len() * size <= GATHERED_BYTES {
                let all = &mut work[..size * y.len()];
                t.all_gather(x.unwrap_or(y), all, &blocks(y.len(), size), limit)?;
                let sum = reduce_blocks(reduction, dtype, all, y.len(), size);
                y.copy_from_slice(sum);
                return Ok(());
            }
            for chunk in chunks(y.len(), dtype) {
                let parts = shares(chunk.len(), dtype, size);
                // a chunk of `y` is written when all that it held has left
                let from = &x.unwrap_or(y)[chunk.clone()];
                let sum = exchange(t, reduction, dtype, from, &parts, work, limit)?;
                t.all_gather(sum, &mut y[chunk], &parts, limit)?;
            }
            Ok(())
        })
    }

    /// `y` becomes the reduction of all ranks' `x` on rank `root`; on others it is not written, and may be empty. `work` has
    /// [`Communicator::reduce_workspace`] bytes.
    ///
    /// Errors: DType if there is no such reduction, Value for a root that does not exist, Peer.
    pub fn reduce(
        &self,
        call: &Call,
        (reduction, dtype): (Reduction, DType),
        root: usize,
        x: &[u8],
        y: &mut [u8],
        work: &mut [u8],
    ) -> Result<()> {
        reduction.check(dtype)?;
        self.check_rank(root, "root")?;
        self.enter(call, x.len())?;
        if self.size() == 1 {
            y.copy_from_slice(x);
            return Ok(());
        }
        let (is_root, size) = (self.rank() == root, self.size());
        self.move_bytes(|t, limit| {
            // every rank reduces its share, as for all, and the shares meet at the root
            for chunk in chunks(x.len(), dtype) {
                let parts = shares(chunk.len(), dtype, size);
                let sum = exchange(t, reduction, dtype, &x[chunk.clone()], &parts, work, limit)?;
                let none = vec![0..0; size];
                let mut to = none.clone();
                to[root] = 0..sum.len();
                match is_root {
                    true => t.all_to_all(sum, &to, &mut y[chunk], &parts, limit)?,
                    false => t.all_to_all(sum, &to, &mut [], &none, limit)?,
                }
            }
            Ok(())
        })
    }

    /// Bytes that [`Communicator::reduce_scatter`] needs beside its tensors, for a result of so many bytes.
    pub fn reduce_scatter_workspace(&self, dtype: DType, bytes: usize) -> usize {
        match self.size() {
            1 => 0,
            size => (bytes.min(CHUNK_BYTES / size.max(1)).max(dtype.size_bytes().min(bytes))) * size,
        }
    }

    /// Of as many equal blocks of `x` as there are ranks, `y` becomes the reduction of this rank's block over all ranks. `work` has
    /// [`Communicator::reduce_scatter_workspace`] bytes.
    ///
    /// Errors: DType if there is no such reduction, Peer.
    pub fn reduce_scatter(
        &self,
        call: &Call,
        reduction: Reduction,
        dtype: DType,
        x: &[u8],
        y: &mut [u8],
        work: &mut [u8],
    ) -> Result<()> {
        reduction.check(dtype)?;
        self.enter(call, x.len())?;
        let size = self.size();
        if size == 1 {
            y.copy_from_slice(x);
            return Ok(());
        }
        let block = y.len();
        let step = self.reduce_scatter_workspace(dtype, block) / size / dtype.size_bytes() * dtype.size_bytes();
        self.move_bytes(|t, limit| {
            for start in (0..block).step_by(step.max(1)) {
                let len = step.min(block - start);
                let to: Vec<Range<usize>> = (0..size).map(|r| r * block + start..r * block + start + len).collect();
                let all = &mut work[..size * len];
                t.all_to_all(x, &to, all, &blocks(len, size), limit)?;
                y[start..start + len].copy_from_slice(reduce_blocks(reduction, dtype, all, len, size));
            }
            Ok(())
        })
    }
}

/// Sends each rank its share of a chunk, and reduces the parts that arrive for this one, in the order of ranks.
fn exchange<'w>(
    t: &dyn Transport,
    reduction: Reduction,
    dtype: DType,
    x: &[u8],
    parts: &[Range<usize>],
    work: &'w mut [u8],
    limit: Duration,
) -> Result<&'w [u8]> {
    let mine = parts[t.rank()].len();
    let all = &mut work[..parts.len() * mine];
    t.all_to_all(x, parts, all, &blocks(mine, parts.len()), limit)?;
    Ok(reduce_blocks(reduction, dtype, all, mine, parts.len()))
}

/// Reduces `size` blocks of equal length into the first.
fn reduce_blocks(reduction: Reduction, dtype: DType, all: &mut [u8], len: usize, size: usize) -> &[u8] {
    let (first, rest) = all.split_at_mut(len);
    if len > 0 {
        rest.chunks_exact(len).for_each(|x| accumulate(reduction, dtype, first, x));
    }
    finish(reduction, dtype, first, size);
    first
}

/// Ranges of bytes that a reduction takes one after the other.
fn chunks(bytes: usize, dtype: DType) -> impl Iterator<Item = Range<usize>> {
    let step = CHUNK_BYTES / dtype.size_bytes() * dtype.size_bytes();
    (0..bytes).step_by(step).map(move |start| start..(start + step).min(bytes))
}

/// The range of each rank in so many bytes, which differ by one element at most.
fn shares(bytes: usize, dtype: DType, size: usize) -> Vec<Range<usize>> {
    let (elem, elems) = (dtype.size_bytes(), bytes / dtype.size_bytes());
    let start = |r: usize| (elems / size * r + r.min(elems % size)) * elem;
    (0..size).map(|r| start(r)..start(r + 1)).collect()
}
