//! Remat's computing graph, and the planner of its memory: what to compute, recompute and free when, and at which
//! offset every storage lies.
#![forbid(unsafe_code)]

pub mod ir;
pub mod passes;
#[allow(dead_code, reason = "the planner that uses these parts is not merged yet")]
pub mod plan;
