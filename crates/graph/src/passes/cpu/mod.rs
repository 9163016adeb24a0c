//! Passes for the CPU: what they make is for its kernels alone.

mod pack_layouts;

pub use pack_layouts::pack_layouts;
