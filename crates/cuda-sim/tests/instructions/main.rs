//! Each class of instructions at the values where they differ: ends of ranges, zeros, infinities, NaN, subnormal numbers.

#[path = "../common/mod.rs"]
mod common;
mod convert;
mod float;
mod half;
mod integer;
mod memory;
mod warp;
