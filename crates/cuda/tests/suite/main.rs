//! The driver on the software device, and kernels as sources: `REMAT_CUDA_LIBRARIES=<folder of its library> cargo test -p remat-cuda`.
//! Without the variable those that need the compiler say so and pass.

mod cases;
mod doubles;
mod elementwise;
mod expressions;
mod gates;
mod long;
mod reductions;
mod replay;
mod rig;
mod rows;
mod runs;
mod samples;
mod sizes;
mod software;
mod sources;
mod stories;
mod tall;
