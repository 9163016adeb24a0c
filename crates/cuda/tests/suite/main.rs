//! The driver on the software device, and kernels as sources: `REMAT_NVRTC=<folder of its library> cargo test -p remat-cuda`.
//! Without the variable those that need the compiler say so and pass.

mod elementwise;
mod expressions;
mod rig;
mod rows;
mod software;
mod sources;
