//! Segment checkpointing: what a block does not hand on is made again, once, from what other blocks keep.

use crate::plan::remat::model::Model;
use crate::plan::remat::state::State;

/// Blocks of equal operator counts up to the step of the highest load; behind it nothing is dropped.
pub(super) fn sqrt_n(m: &Model) -> Vec<u32> {
    let n = m.base;
    let forward = State::new(m, (0..n as u32).collect()).peak().0 + 1;
    let length = ((forward as f64).sqrt().ceil() as usize).max(1);
    let block_of: Vec<usize> = (0..n).map(|u| if u < forward { u / length } else { n }).collect();
    with_blocks(m, &block_of, n)
}

/// Thresholds tried, each a factor below the one before.
const THRESHOLDS: usize = 64;
const THRESHOLD_STEP: f64 = 0.9;

/// The fastest of MegEngine's threshold plans that fits.
pub(super) fn sublinear(m: &Model, budget: u64) -> Option<Vec<u32>> {
    let mut threshold = m.storages.iter().map(|s| s.bytes).sum::<u64>() as f64 / 2.0;
    let mut best: Option<(u64, Vec<u32>)> = None;
    for _ in 0..THRESHOLDS {
        let sequence = with_blocks(m, &blocks_of(m, threshold as u64), usize::MAX);
        let state = State::new(m, sequence);
        if state.peak().1 <= budget && best.as_ref().is_none_or(|b| state.time_ns < b.0) {
            best = Some((state.time_ns, state.sequence));
        }
        threshold *= THRESHOLD_STEP;
    }
    best.map(|b| b.1)
}

/// Closes a block when its outputs that are read behind it reach the threshold.
fn blocks_of(m: &Model, threshold: u64) -> Vec<usize> {
    let (mut block, mut bytes, mut of) = (0, 0, Vec::with_capacity(m.base));
    for (u, unit) in m.units[..m.base].iter().enumerate() {
        of.push(block);
        let alive = |s: &&u32| m.storages[**s as usize].readers.iter().any(|&r| r as usize > u + 1);
        bytes += unit.outputs.iter().filter(alive).map(|&s| m.storages[s as usize].bytes).sum::<u64>();
        if bytes >= threshold {
            (block, bytes) = (block + 1, 0);
        }
    }
    of
}

/// The sequence in which a storage that is read outside its block is dropped at the block's end, unless the block's last
/// unit made it, and made again before its first reader behind the next block's start. Blocks from `kept` on keep all.
fn with_blocks(m: &Model, block_of: &[usize], kept: usize) -> Vec<u32> {
    let mut is_again = vec![false; m.base];
    let mut sequence = Vec::with_capacity(2 * m.base);
    for (u, unit) in m.units[..m.base].iter().enumerate() {
        let mut todo: Vec<u32> = Vec::new();
        for &s in &unit.inputs {
            let producer = m.storages[s as usize].producer;
            let is_far = block_of[producer as usize] + 1 < block_of[u];
            if is_far && is_dropped(m, block_of, kept, producer, u as u32) {
                todo.push(producer);
            }
        }
        let mut again = Vec::new();
        while let Some(q) = todo.pop() {
            if std::mem::replace(&mut is_again[q as usize], true) {
                continue;
            }
            again.push(q);
            for &s in &m.units[q as usize].inputs {
                let producer = m.storages[s as usize].producer;
                let is_inside = block_of[producer as usize] == block_of[q as usize];
                if is_inside && is_dropped(m, block_of, kept, producer, u as u32) {
                    todo.push(producer);
                }
            }
        }
        again.sort_unstable();
        sequence.extend(again);
        sequence.push(u as u32);
    }
    sequence
}

fn is_dropped(m: &Model, block_of: &[usize], kept: usize, unit: u32, reader: u32) -> bool {
    let u = unit as usize;
    let is_last = block_of.get(u + 1).is_none_or(|&next| next != block_of[u]);
    let is_open = m.units[u].is_repeatable && m.units[u].deadlines.iter().all(|&w| reader <= w);
    block_of[u] < kept && !is_last && is_open
}
