use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};

use crate::{Layer, Module};

/// Merges the axes from `first` on: `[n, c, h, w]` to `[n, c h w]` for `first = 1`. Errors: Axis.
#[derive(Clone, Copy, Debug, Module)]
#[module(crate = crate)]
pub struct Flatten {
    /// The first axis that is merged.
    pub first: usize,
}

impl Default for Flatten {
    /// From axis 1, which keeps the batch.
    fn default() -> Self {
        Flatten { first: 1 }
    }
}

impl Layer for Flatten {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("flatten", CallSite::here());
        x.flatten_from(self.first)
    }
}

/// One axis as several: `[n, c h w]` to `[n, c, h, w]`. One of the extents may be -1: the remaining extent. Errors: Axis, Shape.
#[derive(Clone, Debug, Module)]
#[module(crate = crate)]
pub struct Unflatten {
    /// The axis; counts from the end if negative.
    pub axis: isize,
    /// The new extents.
    pub extents: Vec<isize>,
}

impl Layer for Unflatten {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("unflatten", CallSite::here());
        x.unflatten(self.axis, &self.extents)
    }
}
