//! Passes for the CPU: what they make is for its kernels alone.

mod pack_layouts;

pub use pack_layouts::pack_layouts;

use remat_ops::Op;
use remat_types::Fact;

use super::{NumericEffect, Pass, Target};

/// The CPU, which has a kernel for every op.
#[derive(Clone, Copy, Debug)]
pub struct Cpu;

impl Target for Cpu {
    fn supports(&self, _op: &dyn Op, _x: &[&Fact]) -> bool {
        true
    }

    fn passes(&self) -> &'static [Pass] {
        PASSES
    }
}

/// The passes for the CPU, in the order in which they run.
pub const PASSES: &[Pass] =
    &[Pass { name: "pack_layouts", level: 3, phase: 2, effect: NumericEffect::LastDigits, run: pack_layouts }];
