use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};

use crate::{Layer, Module};

/// Layers, one after the other; they are named by their index.
///
/// Errors: those of the layers, with the index of the one that failed.
#[derive(Default, Module)]
#[module(crate = crate)]
pub struct Sequential {
    #[module(flatten)]
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// No layers: `y = x`.
    pub fn new() -> Self {
        Sequential::default()
    }

    /// The same with `layer` behind.
    #[must_use]
    pub fn then(mut self, layer: impl Layer + 'static) -> Self {
        self.push(layer);
        self
    }

    /// Puts `layer` behind.
    pub fn push(&mut self, layer: impl Layer + 'static) {
        self.layers.push(Box::new(layer));
    }

    /// Number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// True without layers.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The layers.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Layer> {
        self.layers.iter().map(|l| &**l)
    }
}

impl Layer for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let mut y = x.clone();
        for (i, layer) in self.layers.iter().enumerate() {
            y = layer.forward(&y).map_err(|e| e.context(format_args!("layer {i}")))?;
        }
        Ok(y)
    }
}
