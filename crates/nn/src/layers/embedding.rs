use remat_tensor::Tensor;
use remat_types::Result;

use crate::{Init, InitCx, Label, Layer, Module, Parameter};

/// Rows of a table: `index: [..]` of any integer dtype, `y: [.., size]`, `weight: [count, size]`, begun as standard normal.
///
/// The gradient of a row is the sum over all places that named it. Errors: DType for an index that is no integer; at run
/// time, Index for one that is no row.
#[derive(Module)]
#[module(crate = crate)]
pub struct Embedding {
    #[module(flatten)]
    label: Label,
    /// `[count, size]`.
    pub weight: Parameter,
}

impl Embedding {
    /// A table of `count` rows of `size` numbers. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, count: usize, size: usize) -> Result<Self> {
        Embedding::with(cx, count, size, Init::Normal { mean: 0.0, std: 1.0 })
    }

    /// As [`Embedding::new`], begun by another rule. Errors: also those of the rule.
    pub fn with(cx: &mut InitCx, count: usize, size: usize, init: Init) -> Result<Self> {
        let weight = cx.parameter([count, size], init)?;
        Ok(Embedding { label: Label::new("embedding"), weight })
    }
}

impl Layer for Embedding {
    #[track_caller]
    fn forward(&self, index: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.weight.get()?.take(0, index)
    }
}
