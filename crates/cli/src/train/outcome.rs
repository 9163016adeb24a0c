//! The end of a run, and its results.

use std::path::Path;

use remat::runtime::MemoryFigures;

/// The conditions under which a run ends, and the files that it leaves.
pub(super) struct End<'a> {
    /// The folder of its checkpoints.
    pub(super) save: Option<&'a Path>,
    /// The picture of its losses.
    pub(super) plot: Option<&'a Path>,
    /// Steps, counted from the first of a run that is resumed.
    pub(super) steps: Option<u64>,
}

/// The results of a run.
pub(super) struct Outcome {
    /// The result of the last test.
    pub(super) result: f64,
    pub(super) first_step: u64,
    pub(super) losses: Vec<f32>,
    pub(super) step_ms: Vec<f64>,
    pub(super) weights_sha256: String,
    pub(super) seconds: f64,
    /// The memory of the compiled step; `None` if steps ran op by op.
    pub(super) compiled: Option<MemoryFigures>,
    /// Calls within compiled steps that ran again.
    pub(super) recomputed_calls: u64,
    pub(super) kept: Kept,
}

/// Bytes that this rank keeps.
#[derive(Clone, Copy, Default)]
pub(super) struct Kept {
    pub(super) parameters: usize,
    /// Before the optimiser's step.
    pub(super) gradients: usize,
    pub(super) optimizer_state: usize,
}

impl Outcome {
    /// The median time of a step; the first step makes its caches and does not count.
    pub(super) fn step_ms_median(&self) -> Option<f64> {
        let mut all = self.step_ms.get(1..).filter(|s| !s.is_empty()).unwrap_or(&self.step_ms).to_vec();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }
}
