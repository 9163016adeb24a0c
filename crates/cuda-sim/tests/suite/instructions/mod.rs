//! Each class of instructions at the values where they differ: ends of ranges, zeros, infinities, NaN, subnormal numbers.

mod convert;
mod float;
mod half;
mod integer;
mod memory;
mod warp;
