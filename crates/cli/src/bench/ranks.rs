//! `mpirun -n N remat bench allreduce:BYTES`: the sum over ranks, beside MPI's own, in turns.

use std::path::Path;

use remat::types::{Error, ErrorKind, Result};

/// As the module says. Errors: Value without a launcher, or of a command that was built without MPI; Peer.
#[cfg(not(feature = "mpi"))]
pub(super) fn run(_bytes: usize, _seconds: f64, _json: Option<&Path>) -> Result<()> {
    let text = "allreduce is of ranks, and this command was built without MPI; build it with `cargo build --release -p \
                remat-cli --features mpi`";
    Err(Error::new(ErrorKind::Value, text))
}

#[cfg(feature = "mpi")]
pub(super) use measured::run;

#[cfg(feature = "mpi")]
mod measured {
    use std::time::Instant;

    use bytemuck::{cast_slice, cast_slice_mut};
    use remat::nn::distributed::{Call, Communicator, DEFAULT_LIMIT, Reduction, launched, mpi};
    use remat::types::DType;
    use serde::Serialize;

    use super::{Error, ErrorKind, Path, Result};
    use crate::output::{self, say};
    use crate::process::exit_code;
    use crate::sizes::show;

    const WARM_UPS: usize = 3;
    const MIN_RUNS: usize = 5;
    const MAX_RUNS: usize = 10_000;

    #[derive(Serialize)]
    struct Report {
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

    pub(in crate::bench) fn run(bytes: usize, seconds: f64, json: Option<&Path>) -> Result<()> {
        let Some((rank, _)) = launched() else {
            let text = "allreduce is of ranks: start it with `mpirun -n 2 remat bench allreduce:16MiB`";
            return Err(Error::new(ErrorKind::Value, text));
        };
        if rank > 0 {
            output::silence();
        }
        mpi::run(
            DEFAULT_LIMIT,
            |e| i32::from(exit_code(e)),
            |ranks| {
                let report = measure(&ranks, bytes / size_of::<f32>(), seconds)?;
                say!(
                    "{} on {} ranks: {:.3} ms, {:.2} GB/s; MPI_Allreduce {:.3} ms, {:.2} GB/s; ratio {:.2} over {} turns",
                    show(report.bytes),
                    report.ranks,
                    report.ours_ms,
                    report.ours_gb_s,
                    report.mpi_ms,
                    report.mpi_gb_s,
                    report.bandwidth_ratio,
                    report.runs,
                );
                match json.filter(|_| ranks.rank() == 0) {
                    Some(path) => {
                        let text = serde_json::to_string(&report);
                        let text = text.map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))?;
                        output::write(path, format!("{text}\n"))
                    }
                    None => Ok(()),
                }
            },
        )
    }

    fn measure(ranks: &Communicator, elems: usize, seconds: f64) -> Result<Report> {
        let bytes = elems * size_of::<f32>();
        let call = Call::new("allreduce", "sum", DType::F32, &[elems].into());
        // small whole numbers: every order of additions gives the same
        let x: Vec<f32> = (0..elems).map(|i| ((i * 7 + ranks.rank()) % 32) as f32).collect();
        let (mut ours, mut theirs) = (vec![0f32; elems], vec![0f32; elems]);
        let mut work = vec![0f32; ranks.reduce_workspace(DType::F32, bytes).div_ceil(size_of::<f32>())];
        let mut turn = || -> Result<[f64; 2]> {
            ranks.barrier()?;
            let start = Instant::now();
            let (y, work) = (cast_slice_mut(&mut ours), cast_slice_mut(&mut work));
            ranks.all_reduce(&call, Reduction::Sum, DType::F32, cast_slice(&x), y, work)?;
            let own = start.elapsed().as_secs_f64();
            ranks.barrier()?;
            let start = Instant::now();
            mpi::sum_of_mpi(&x, &mut theirs);
            Ok([own, start.elapsed().as_secs_f64()])
        };
        let mut one = 0.0f64;
        for _ in 0..WARM_UPS {
            one = turn()?.iter().sum();
        }
        // all ranks make as many turns as the first says
        let mut runs = ((seconds / one.max(1e-9)) as u64).clamp(MIN_RUNS as u64, MAX_RUNS as u64).to_le_bytes();
        ranks.broadcast(&Call::named("turns"), 0, &mut runs)?;
        let runs = u64::from_le_bytes(runs) as usize;
        let times: Vec<[f64; 2]> = (0..runs).map(|_| turn()).collect::<Result<_>>()?;
        if ours != theirs {
            return Err(Error::new(ErrorKind::Internal, "the sum over ranks is not that of MPI"));
        }
        let median = |side: usize| {
            let mut all: Vec<f64> = times.iter().map(|t| t[side]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (own, mpi) = (median(0), median(1));
        let gb_s = |seconds: f64| bytes as f64 / seconds / 1e9;
        Ok(Report {
            ranks: ranks.size(),
            bytes,
            runs,
            ours_ms: own * 1e3,
            mpi_ms: mpi * 1e3,
            ours_gb_s: gb_s(own),
            mpi_gb_s: gb_s(mpi),
            bandwidth_ratio: mpi / own,
        })
    }
}
