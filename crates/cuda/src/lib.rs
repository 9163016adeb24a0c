//! CUDA devices for Remat.
//!
//! Nothing of CUDA is needed to build this crate. The driver and the compiler are libraries that are opened at run time, and a
//! machine without them gives an error that says where they were looked for.
#![deny(unsafe_code)]

pub mod device;
pub mod driver;
pub mod kernels;
pub mod source;
