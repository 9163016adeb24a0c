//! Model parallel layers over MPI: this program starts itself under `mpirun`. The suite has them on threads, with all cases.
#![allow(dead_code, unused_imports, reason = "the suite's tests use the rest")]

use std::process::Command;
use std::time::Duration;

use remat_nn::distributed::{launched, mpi};

#[path = "suite/pipeline.rs"]
mod pipeline;
#[path = "suite/support.rs"]
mod support;
#[path = "suite/sync_batch_norm.rs"]
mod sync_batch_norm;
#[path = "suite/tensor_parallel.rs"]
mod tensor_parallel;

fn main() {
    if launched().expect("a known launcher").is_some() {
        let done = mpi::run(
            Duration::from_secs(120),
            |_| 1,
            |ranks| {
                sync_batch_norm::check(&ranks)?;
                tensor_parallel::check(&ranks)?;
                pipeline::check(&ranks)
            },
        );
        return done.expect("failures end all ranks");
    }
    let program = std::env::current_exe().expect("this program has a path");
    for n in [1, 2, 4] {
        let mut command = Command::new("mpirun");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", &n.to_string()]).arg(&program);
        let output = command.output().expect("mpirun is part of the MPI library");
        assert!(output.status.success(), "{n} ranks: {output:?}");
        println!("{n} ranks: ok");
    }
}
