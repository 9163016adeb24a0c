//! Remat's planner: what to compute, recompute and free when, and at which offset every storage lies.
#![forbid(unsafe_code)]

pub mod plan;
