//! Ranks as processes that an MPI launcher started: `mpirun -n 4 program`.
//!
//! All of it is behind the feature `mpi`, which takes an MPI library of the system. A crate of its own, because operators depend on
//! `remat-comm`: as a feature of that crate MPI had everything built once more, and the static library of `remat-lite` wanted it from
//! programs in C that have no ranks.

#[cfg(feature = "mpi")]
mod processes;

#[cfg(feature = "mpi")]
pub use processes::{end, run, sum_of_mpi};
