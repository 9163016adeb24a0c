//! With the feature `mpi` and no MPI library: says what to install, before the build of the bindings fails without saying it.

use std::process::Command;

/// Where an MPI library tells of itself: its compiler, or its package's file.
fn has_mpi() -> bool {
    let compiler = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    let runs =
        |program: &str, argument: &str| Command::new(program).arg(argument).output().is_ok_and(|o| o.status.success());
    runs(&compiler, "--version")
        || ["ompi", "mpich", "mpi"].iter().any(|p| runs("pkg-config", &format!("--exists={p}")))
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=MPICC");
    if std::env::var_os("CARGO_FEATURE_MPI").is_some() && !has_mpi() {
        println!(
            "cargo::error=the feature `mpi` needs an MPI library and libclang; on Debian and Ubuntu: \
             apt-get install libopenmpi-dev openmpi-bin libclang-dev"
        );
    }
}
