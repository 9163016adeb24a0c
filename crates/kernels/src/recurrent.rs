//! Recurrent layers: one layer's whole sequence in one direction, forward and backward.
//!
//! What does not depend on the step before is a product over many steps: that of the inputs with `w_ih` here, those that give
//! the gradients of weights and inputs with the caller, from the gradient of the gates that [`backward`] writes. What is left
//! is, per step, one product of the state with the recurrent weights and one pass over the gates.
//!
//! * The recurrent weights are packed once for all steps, into the panels that the register tiles of `gemm` read.
//! * Rows of a batch do not see each other: each thread takes some rows through all steps, without a barrier. A row's bits
//!   depend neither on the other rows nor on how many there are.
//! * The products of the inputs go in blocks of steps, so that a pass without a gradient has a buffer for a block only.
//! * A row whose length is below the number of steps is left alone from there on: its outputs are 0, its state stays. Going
//!   backwards, it begins with its initial state at its own last step.
//!
//! In rows of gates stand, in units of `hidden` columns: the sum alone (tanh, ReLU); `i, f, g, o` (LSTM, as PyTorch orders
//! them); `n, r, z` and what the state adds to `n` before `r` scales it (GRU). In this order the part of a GRU that meets the
//! state, and the part that meets the input, each are neighbours.

use crate::float::Disjoint;
use crate::gemm::{MatRef, aligned, check_bounds, gemm, gemm_workspace_bytes};
use crate::pool::Pool;

mod backward;
mod forward;
mod packed;
mod unit;

#[cfg(test)]
mod tests;

pub use backward::{Backward, backward, backward_workspace_bytes};
pub use forward::{Forward, forward, forward_workspace_bytes};
pub use unit::Unit;

/// Rows of the products of the inputs: enough that packing the weights for each block costs 2 % of it at most.
const BLOCK_ROWS: usize = 1024;

/// Fewest rows that a thread takes: fewer make small tiles, and each thread reads all weights at every step.
const MIN_ROWS: usize = 4;

/// Alignment of what lies in the workspace.
const ALIGN_BYTES: usize = 64;

/// The function of one step of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// `h = tanh(a)`.
    Tanh,
    /// `h = max(a, 0)`.
    Relu,
    /// Long short-term memory (Hochreiter and Schmidhuber, 1997; with the forget gate of Gers et al., 2000).
    Lstm,
    /// Gated recurrent unit (Cho et al., 2014), with the reset gate after the product.
    Gru,
}

impl Cell {
    /// Gates of the weights, each of `hidden` rows.
    #[must_use]
    pub fn gates(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Lstm => 4,
            Cell::Gru => 3,
        }
    }

    /// Columns of a row of gates, in units of `hidden`.
    #[must_use]
    pub fn columns(self) -> usize {
        if self == Cell::Gru { 4 } else { self.gates() }
    }

    /// True if the backward pass reads the gates of the forward pass, and not only its outputs.
    #[must_use]
    pub fn keeps_gates(self) -> bool {
        matches!(self, Cell::Lstm | Cell::Gru)
    }

    /// The first of them that meets the state.
    fn first_of_state(self) -> usize {
        usize::from(self == Cell::Gru)
    }
}

/// Sizes of a layer and its direction. `width` is that of the outputs: `hidden`, or less with a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The function of a step.
    pub cell: Cell,
    /// Steps of the longest row.
    pub steps: usize,
    /// Rows.
    pub batch: usize,
    /// Numbers of an input.
    pub inputs: usize,
    /// Numbers of the cell's state.
    pub hidden: usize,
    /// Numbers of an output.
    pub width: usize,
    /// From the last step to the first.
    pub reverse: bool,
}

impl Sequence {
    /// Elements of a row of gates.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.cell.columns() * self.hidden
    }

    /// Rows of the weights.
    fn gate_rows(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// The first column of a row of gates that meets the state.
    fn first_of_state(&self) -> usize {
        self.cell.first_of_state() * self.hidden
    }

    /// The `i`-th step in the order of time.
    fn step(&self, i: usize) -> usize {
        if self.reverse { self.steps - 1 - i } else { i }
    }

    /// Parts that the rows are cut into.
    fn parts(&self, threads: usize) -> usize {
        (self.batch / MIN_ROWS).clamp(1, threads.max(1))
    }

    /// Rows of the largest part.
    fn part_rows(&self, threads: usize) -> usize {
        self.batch.div_ceil(self.parts(threads))
    }

    /// Steps of a block.
    fn block_steps(&self) -> usize {
        BLOCK_ROWS.div_ceil(self.batch.max(1)).min(self.steps).max(1)
    }

    /// Whether there is nothing to compute.
    fn is_empty(&self) -> bool {
        self.steps == 0 || self.batch == 0
    }
}

/// Lengths of rows: the number of steps where none are given.
#[derive(Clone, Copy, Debug)]
pub struct Lengths<'a>(pub Option<&'a [i64]>);

impl Lengths<'_> {
    /// True if row `b` has step `t`.
    #[inline(always)]
    fn has(self, b: usize, t: usize) -> bool {
        self.0.is_none_or(|all| (t as i64) < all[b])
    }

    /// From the first to the last row of these that has step `t`.
    fn rows(self, rows: std::ops::Range<usize>, t: usize) -> std::ops::Range<usize> {
        if self.0.is_none() {
            return rows;
        }
        let first = rows.clone().find(|b| self.has(*b, t));
        let last = rows.rev().find(|b| self.has(*b, t));
        first.zip(last).map_or(0..0, |(first, last)| first..last + 1)
    }
}

/// `len` items, rounded up to whole cache lines.
fn line<R>(len: usize) -> usize {
    len.next_multiple_of(ALIGN_BYTES / size_of::<R>())
}

/// Cuts pieces of these lengths off the front of `workspace`.
fn cut<'a, R, const N: usize>(workspace: &mut &'a mut [R], lens: [usize; N]) -> [&'a mut [R]; N] {
    lens.map(|len| {
        let (piece, rest) = std::mem::take(workspace).split_at_mut(len);
        *workspace = rest;
        piece
    })
}
