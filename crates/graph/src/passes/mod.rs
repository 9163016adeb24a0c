//! Passes: what a graph may become without anybody noticing. Each gives a [`Patch`], so it is data that can be looked at,
//! applied and checked.
//!
//! | level | passes | what may change |
//! |---|---|---|
//! | 0 | none | nothing |
//! | 1 | [`merge`], [`choose`], [`cancel`], [`simplify`], [`delay`] | nothing but time: every value keeps its bits, NaN's payload excepted |
//! | 2 | those, [`reorder`], [`fold`], [`recast`], [`fuse`], [`fuse_reduce`] and [`fuse_matmul`] | as level 1 |
//! | 3 | those, [`delay_sums`], [`reorder_floats`], [`absorb`] and [`block`] | the last digits |
//!
//! [`halve`] runs from level 1 on if [`PassOptions::half`] asks for it, and rounds every value to fewer digits.
//!
//! All passes of a phase run in turns until none finds anything; then the next phase begins. What is fused is not looked
//! into again, so fusing comes last; before it, [`block`] packs weights that nothing changes any more; what [`recast`] makes
//! twice, [`merge`] would make one again.

mod absorb;
mod block;
mod cancel;
mod choose;
mod delay;
mod fold;
mod fuse;
mod fuse_matmul;
mod fuse_reduce;
mod halve;
mod merge;
mod recast;
mod reorder;
mod simplify;
mod verify;

#[cfg(test)]
mod tests;

use remat_kernels::pool::Pool;
use remat_types::{DType, Result};

pub use absorb::absorb;
pub use block::block;
pub use cancel::cancel;
pub use choose::choose;
pub use delay::{delay, delay_sums};
pub use fold::fold;
pub use fuse::fuse;
pub use fuse_matmul::fuse_matmul;
pub use fuse_reduce::fuse_reduce;
pub use halve::halve;
pub use merge::merge;
pub use recast::recast;
pub use reorder::{reorder, reorder_floats};
pub use simplify::simplify;
pub use verify::{CLOSE, Difference, HALF_ROUNDINGS, verify};

use crate::ir::{Graph, Patch};

/// What passes may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassOptions {
    /// 0 to 3; see the module's table. 2 unless set.
    pub level: u8,
    /// The largest constant in bytes that folding may make; 1 MiB unless set.
    pub fold_bytes: usize,
    /// Allows what changes the sign of zeros: `x + 0` becomes `x`. Off unless set.
    pub fast_math: bool,
    /// F16 or BF16 to store values of f32 as: see [`halve`] for what that rounds. Unset, every value keeps its dtype.
    pub half: Option<DType>,
}

impl Default for PassOptions {
    fn default() -> Self {
        PassOptions { level: 2, fold_bytes: 1 << 20, fast_math: false, half: None }
    }
}

/// What a pass looks at beside the graph.
pub struct PassCx<'a> {
    /// What it may do.
    pub options: &'a PassOptions,
    /// The threads for what is computed beforehand: as many as the graph will run with, for bits depend on their number.
    pub pool: &'a Pool,
}

/// How far a pass may move values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// Not a bit; NaN's payload excepted.
    Nothing,
    /// Last digits of sums and products, within [`CLOSE`].
    LastDigits,
    /// As far as storing them in [`PassOptions::half`] does.
    Halves,
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
    /// What becomes of values.
    pub moves: Moves,
    /// The change that it would make.
    pub run: fn(&Graph, &PassCx<'_>) -> Result<Patch>,
}

/// Every pass, in the order in which they run.
#[rustfmt::skip]
pub const PASSES: &[Pass] = &[
    Pass { name: "merge", level: 1, phase: 0, moves: Moves::Nothing, run: merge },
    Pass { name: "choose", level: 1, phase: 0, moves: Moves::Nothing, run: choose },
    Pass { name: "cancel", level: 1, phase: 0, moves: Moves::Nothing, run: cancel },
    Pass { name: "simplify", level: 1, phase: 0, moves: Moves::Nothing, run: simplify },
    Pass { name: "delay", level: 1, phase: 0, moves: Moves::Nothing, run: delay },
    Pass { name: "delay_sums", level: 3, phase: 0, moves: Moves::LastDigits, run: delay_sums },
    Pass { name: "reorder", level: 2, phase: 0, moves: Moves::Nothing, run: reorder },
    Pass { name: "reorder_floats", level: 3, phase: 0, moves: Moves::LastDigits, run: reorder_floats },
    Pass { name: "fold", level: 2, phase: 0, moves: Moves::Nothing, run: fold },
    Pass { name: "absorb", level: 3, phase: 0, moves: Moves::LastDigits, run: absorb },
    Pass { name: "halve", level: 1, phase: 1, moves: Moves::Halves, run: halve },
    Pass { name: "block", level: 3, phase: 2, moves: Moves::LastDigits, run: block },
    Pass { name: "recast", level: 2, phase: 3, moves: Moves::Nothing, run: recast },
    Pass { name: "fuse", level: 2, phase: 4, moves: Moves::Nothing, run: fuse },
    Pass { name: "fuse_reduce", level: 2, phase: 5, moves: Moves::Nothing, run: fuse_reduce },
    Pass { name: "fuse_matmul", level: 2, phase: 6, moves: Moves::Nothing, run: fuse_matmul },
];

/// Phases of [`PASSES`].
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

/// The graph after all passes of the options' level, and what they did.
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
            for pass in PASSES.iter().filter(|p| p.phase == phase && p.level <= cx.options.level) {
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
