//! The software device: its instructions, its checks, the driver's side, and kernels that NVRTC made.

mod checks;
mod common;
mod device;
mod fixtures;
mod instructions;
mod mapping;
mod nvrtc;
mod refusals;
