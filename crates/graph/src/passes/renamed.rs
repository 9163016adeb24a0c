//! Passes under the names that they had before.

use remat_types::Result;

use super::PassCx;
use crate::ir::{Graph, Patch};

macro_rules! renamed {
    ($($old:ident => $new:ident;)*) => { $(
        #[deprecated(note = "renamed")]
        pub fn $old(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
            super::$new(g, cx)
        }
    )* };
}
renamed! {
    merge => cse;
    choose => fold_branches;
    cancel => cancel_layout;
    delay => sink_broadcasts;
    delay_sums => sink_broadcasts_in_sums;
    recast => rematerialise_casts;
    absorb => fold_batch_norm;
    block => pack_layouts;
    halve => half_storage;
}

#[deprecated(note = "renamed to `NumericEffect`")]
pub type Moves = super::NumericEffect;
