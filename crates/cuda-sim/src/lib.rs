//! A CUDA device in software, for tests where there is no GPU: the reader of PTX.
#![forbid(unsafe_code)]

pub mod ptx;
