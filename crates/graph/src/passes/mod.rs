//! Passes: what a graph may become without anybody noticing. Each gives a [`Patch`], so it is data that can be looked at,
//! applied and checked.
//!
//! | level | passes | what may change |
//! |---|---|---|
//! | 0 | none | nothing |
//! | 1 | [`cse`], [`fold_branches`], [`cancel_layout`], [`simplify`], [`sink_broadcasts`] | nothing but time: every value keeps its bits, NaN's payload excepted |
//! | 2 | those, [`reorder`], [`take_early`], [`fold`], [`rematerialise_casts`], [`fuse`], [`fuse_reduce`] and [`fuse_matmul`] | as level 1 |
//! | 3 | those, [`sink_broadcasts_in_sums`], [`reorder_floats`] and [`fold_batch_norm`], and for the CPU [`pack_layouts`] | the last digits |
//!
//! [`half_storage`] runs from level 1 on if [`PassOptions::half`] asks for it, and rounds every value to fewer digits.
//!
//! All passes of a phase run in turns until none finds anything; then the next phase begins. What is fused is not looked
//! into again, so fusing comes last; before it, [`pack_layouts`] packs weights that nothing changes any more; what [`rematerialise_casts`] makes
//! twice, [`cse`] would make one again.

mod cancel_layout;
pub mod cpu;
mod cse;
mod fold;
mod fold_batch_norm;
mod fold_branches;
mod fuse;
mod fuse_matmul;
mod fuse_reduce;
mod half_storage;
mod rematerialise_casts;
#[allow(missing_docs, reason = "each names the pass that it is now")]
mod reorder;
mod simplify;
mod sink_broadcasts;
mod take_early;
mod verify;

#[cfg(test)]
mod tests;

use remat_kernels::pool::Pool;
use remat_ops::Op;
use remat_types::{DType, Fact, Result, SmallVec};

pub use cancel_layout::cancel_layout;
pub use cpu::pack_layouts;
pub use cse::cse;
pub use fold::fold;
pub use fold_batch_norm::fold_batch_norm;
pub use fold_branches::fold_branches;
pub use fuse::fuse;
pub use fuse_matmul::fuse_matmul;
pub use fuse_reduce::fuse_reduce;
pub use half_storage::half_storage;
pub use rematerialise_casts::rematerialise_casts;
pub use reorder::{reorder, reorder_floats};
pub use simplify::simplify;
pub use sink_broadcasts::{sink_broadcasts, sink_broadcasts_in_sums};
pub use take_early::take_early;
pub use verify::{CLOSE, Difference, HALF_ROUNDINGS, verify};

use crate::ir::{Graph, Patch, ValueId};

/// The options of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassOptions {
    /// 0 to 3; see the module's table. 2 unless set.
    pub level: u8,
    /// The largest constant in bytes that folding may make; 1 MiB unless set.
    pub fold_bytes: usize,
    /// The largest constant in bytes that folding may make of constants which take a quarter as many or more, and which nothing else
    /// reads: a weight kept in 8 bits becomes f32 once, not in every run. 16 MiB unless set; 0 for none beyond `fold_bytes`.
    pub weight_bytes: usize,
    /// Allows what changes the sign of zeros: `x + 0` becomes `x`. Off unless set.
    pub fast_math: bool,
    /// F16 or BF16 to store values of f32 as: see [`half_storage`] for what that rounds. Unset, every value keeps its dtype.
    pub half: Option<DType>,
}

impl Default for PassOptions {
    fn default() -> Self {
        PassOptions { level: 2, fold_bytes: 1 << 20, weight_bytes: 16 << 20, fast_math: false, half: None }
    }
}

/// The device on which a graph will run, as passes see it.
pub trait Target: Sync {
    /// True if there is a kernel for an op that a pass would put in the place of several others, on inputs of these facts.
    fn supports(&self, op: &dyn Op, x: &[&Fact]) -> bool;

    /// Passes for this device alone. They run with [`PASSES`], after those of the same phase.
    fn passes(&self) -> &'static [Pass];
}

/// The context of a pass, beside the graph.
pub struct PassCx<'a> {
    /// The options of the pass.
    pub options: &'a PassOptions,
    /// The device that the graph is for.
    pub target: &'a dyn Target,
    /// The threads for constants that passes compute. There are as many as the graph will run with, since some bits may depend on
    /// their number.
    pub pool: &'a Pool,
}

impl PassCx<'_> {
    /// True if the device has a kernel for `op` on these values.
    fn supports<'v>(&self, g: &Graph, op: &dyn Op, x: impl IntoIterator<Item = &'v ValueId>) -> bool {
        let facts: SmallVec<[&Fact; 8]> = x.into_iter().map(|v| g.fact(*v)).collect();
        self.target.supports(op, &facts)
    }
}

/// The effect of a pass on the results of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumericEffect {
    /// Not a bit changes; NaN's payload excepted.
    None,
    /// The last digits of sums and products do, within [`CLOSE`].
    LastDigits,
    /// Values are rounded as storing them in [`PassOptions::half`] does.
    HalfStorage,
}

/// A pass.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Its name in reports.
    pub name: &'static str,
    /// The first level at which it runs.
    pub level: u8,
    /// The phase in which it runs, from 0.
    pub phase: u8,
    /// The effect on numbers.
    pub effect: NumericEffect,
    /// The change that it would make.
    pub run: fn(&Graph, &PassCx<'_>) -> Result<Patch>,
}

/// Every pass that is for all devices, in the order in which they run.
#[rustfmt::skip]
pub const PASSES: &[Pass] = &[
    Pass { name: "cse", level: 1, phase: 0, effect: NumericEffect::None, run: cse },
    Pass { name: "fold_branches", level: 1, phase: 0, effect: NumericEffect::None, run: fold_branches },
    Pass { name: "cancel_layout", level: 1, phase: 0, effect: NumericEffect::None, run: cancel_layout },
    Pass { name: "simplify", level: 1, phase: 0, effect: NumericEffect::None, run: simplify },
    Pass { name: "sink_broadcasts", level: 1, phase: 0, effect: NumericEffect::None, run: sink_broadcasts },
    Pass { name: "sink_broadcasts_in_sums", level: 3, phase: 0, effect: NumericEffect::LastDigits, run: sink_broadcasts_in_sums },
    Pass { name: "reorder", level: 2, phase: 0, effect: NumericEffect::None, run: reorder },
    Pass { name: "reorder_floats", level: 3, phase: 0, effect: NumericEffect::LastDigits, run: reorder_floats },
    Pass { name: "take_early", level: 2, phase: 0, effect: NumericEffect::None, run: take_early },
    Pass { name: "fold", level: 2, phase: 0, effect: NumericEffect::None, run: fold },
    Pass { name: "fold_batch_norm", level: 3, phase: 0, effect: NumericEffect::LastDigits, run: fold_batch_norm },
    Pass { name: "half_storage", level: 1, phase: 1, effect: NumericEffect::HalfStorage, run: half_storage },
    Pass { name: "rematerialise_casts", level: 2, phase: 3, effect: NumericEffect::None, run: rematerialise_casts },
    Pass { name: "fuse", level: 2, phase: 4, effect: NumericEffect::None, run: fuse },
    Pass { name: "fuse_reduce", level: 2, phase: 5, effect: NumericEffect::None, run: fuse_reduce },
    Pass { name: "fuse_matmul", level: 2, phase: 6, effect: NumericEffect::None, run: fuse_matmul },
];

/// Phases of [`PASSES`], and of those of a [`Target`]; those have phase 2 for themselves.
const PHASES: u8 = 7;

/// A change that a pass made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Applied {
    /// The pass.
    pub pass: &'static str,
    /// Nodes before it.
    pub before: usize,
    /// Nodes after it.
    pub after: usize,
}

/// More rounds than any chain of rewrites needs; a pass that undoes another would go on for ever.
const MAX_ROUNDS: usize = 64;

/// The graph after all passes of the options' level, and a report of each pass.
///
/// Errors: those of a patch that does not fit, which is a fault of a pass.
pub fn optimize(g: Graph, cx: &PassCx<'_>) -> Result<(Graph, Vec<Applied>)> {
    let mut log = Vec::new();
    let g = optimize_with(g, cx, |pass, before, after| {
        log.push(Applied { pass: pass.name, before: before.nodes().len(), after: after.nodes().len() });
        Ok(())
    })?;
    Ok((g, log))
}

/// [`optimize`], with a look at every change: the pass, the graph before and after.
fn optimize_with(
    mut g: Graph,
    cx: &PassCx<'_>,
    mut see: impl FnMut(&Pass, &Graph, &Graph) -> Result<()>,
) -> Result<Graph> {
    for phase in 0..PHASES {
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            let passes = PASSES.iter().chain(cx.target.passes());
            for pass in passes.filter(|p| p.phase == phase && p.level <= cx.options.level) {
                let patch = (pass.run)(&g, cx)?;
                if patch.is_empty() {
                    continue;
                }
                let next = g.patched(&patch)?;
                see(pass, &g, &next)?;
                (g, changed) = (next, true);
            }
            if !changed {
                break;
            }
        }
    }
    Ok(g)
}
