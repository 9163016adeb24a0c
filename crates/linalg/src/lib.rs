//! Matrix factorisations and Fourier transforms: kept libraries behind a door of slices and a workspace.
//!
//! A crate of its own, because the libraries take long to compile and nothing of them changes when an operator does. All
//! matrices are contiguous and row-major, one a call. What a call needs beside them is counted beforehand
//! (`*_bytes`) and handed in, so that a caller with a memory budget knows of it. Everything runs on the calling thread: the
//! bits do not depend on how many threads there are.

mod factor;
pub mod fft;
mod work;

pub use factor::{Factor, Failure, Triangle};
pub use fft::Transform;
