//! Remat's CPU kernels: plain functions on slices and sizes.
//!
//! This crate knows no operator, no tensor and no allocator. A kernel gets slices, strides and a workspace, and it
//! never allocates on the heap: the memory budget of a device is a contract, so the bytes a kernel needs are told
//! beforehand by a pure function of the sizes (`*_workspace_bytes`). Results do not depend on the number of threads:
//! a reduction is split by sizes only, never by who computes it or when.
//!
//! `unsafe` is allowed here; each block says which facts make it sound.
pub mod attention;
pub mod blocked;
mod cache;
pub mod conv;
pub mod copy;
pub mod ctc;
pub mod cumulate;
pub mod float;
pub mod gemm;
mod geometry;
#[cfg(all(test, unix))]
mod guarded;
pub mod index;
pub mod machine;
pub mod maths;
pub mod norm;
pub mod optim;
pub mod order;
pub mod philox;
pub mod pointwise;
pub mod pool;
mod prefetch;
pub mod recurrent;
pub mod reduce;
pub mod scalar;
mod simd;
pub mod softmax;
mod transpose;
pub mod vision;
pub mod window;
