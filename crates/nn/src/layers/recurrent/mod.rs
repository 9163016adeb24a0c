//! Recurrent layers and cells, with PyTorch's names and shapes of weights: a state dict of PyTorch's loads by name.
//!
//! A layer's whole sequence in one direction is one operator. This module puts these operators in order.

mod cell;
mod layer;
mod stack;

pub use cell::{CellWeights, GruCell, LstmCell, RnnCell, RnnCellOptions};
pub use layer::{Gru, GruOptions, Lstm, LstmOptions, Rnn, RnnOptions};
pub use stack::{RecurrentDirection, RecurrentStack};
