use std::time::Instant;

use bytemuck::{cast_slice, cast_slice_mut};
use remat::nn::distributed::{Call, Communicator, Reduction, mpi};
use remat::types::{DType, Error, ErrorKind, Result};
use serde::Serialize;

use super::{in_turns, json, median};
use crate::sizes::show;

#[derive(Serialize)]
pub(super) struct Report {
    ranks: usize,
    bytes: usize,
    runs: usize,
    /// Medians.
    ours_ms: f64,
    mpi_ms: f64,
    /// Bytes of a tensor over the time.
    ours_gb_s: f64,
    mpi_gb_s: f64,
    /// Ours over MPI's.
    bandwidth_ratio: f64,
}

impl Report {
    /// For people, and as JSON.
    pub(super) fn told(&self) -> Result<(String, String)> {
        let text = format!(
            "{} on {} ranks: {:.3} ms, {:.2} GB/s; MPI_Allreduce {:.3} ms, {:.2} GB/s; ratio {:.2} over {} turns\n",
            show(self.bytes),
            self.ranks,
            self.ours_ms,
            self.ours_gb_s,
            self.mpi_ms,
            self.mpi_gb_s,
            self.bandwidth_ratio,
            self.runs,
        );
        Ok((text, json(self)?))
    }
}

/// The sum of so many bytes. Errors: Peer; Internal if it is not MPI's.
pub(super) fn measure(ranks: &Communicator, bytes: usize, seconds: f64) -> Result<Report> {
    let elems = bytes / size_of::<f32>();
    let bytes = elems * size_of::<f32>();
    let call = Call::new("allreduce", "sum", DType::F32, &[elems].into());
    // small whole numbers: every order of additions gives the same
    let x: Vec<f32> = (0..elems).map(|i| ((i * 7 + ranks.rank()) % 32) as f32).collect();
    let (mut ours, mut theirs) = (vec![0f32; elems], vec![0f32; elems]);
    let mut work = vec![0f32; ranks.reduce_workspace(DType::F32, bytes).div_ceil(size_of::<f32>())];
    let times = in_turns(ranks, seconds, || {
        ranks.barrier()?;
        let start = Instant::now();
        let (y, work) = (cast_slice_mut(&mut ours), cast_slice_mut(&mut work));
        ranks.all_reduce(&call, Reduction::Sum, DType::F32, Some(cast_slice(&x)), y, work)?;
        let own = start.elapsed().as_secs_f64();
        ranks.barrier()?;
        let start = Instant::now();
        mpi::sum_of_mpi(&x, &mut theirs);
        Ok([own, start.elapsed().as_secs_f64()])
    })?;
    if ours != theirs {
        return Err(Error::new(ErrorKind::Internal, "the sum over ranks is not that of MPI"));
    }
    let (own, mpi) = (median(&times, 0), median(&times, 1));
    let gb_s = |seconds: f64| bytes as f64 / seconds / 1e9;
    Ok(Report {
        ranks: ranks.size(),
        bytes,
        runs: times.len(),
        ours_ms: own * 1e3,
        mpi_ms: mpi * 1e3,
        ours_gb_s: gb_s(own),
        mpi_gb_s: gb_s(mpi),
        bandwidth_ratio: mpi / own,
    })
}
