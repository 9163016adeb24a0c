//! Tables of rows.

use remat::Result;
use remat::nn::{self, BagMode, EmbeddingBagOptions, EmbeddingOptions, InitCx};
use remat::ops::schema::Params;

use super::arguments::{Named, Places};
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;

#[derive(Params)]
#[op(crate = remat::ops)]
struct Embedding {
    #[param(rename = "count")]
    num_embeddings: usize,
    #[param(rename = "size")]
    embedding_dim: usize,
    #[param(default = EmbeddingOptions::default().padding_idx)]
    padding_idx: Option<isize>,
    #[param(flatten)]
    places: Places,
    #[param(default = EmbeddingOptions::default().sparse)]
    sparse: bool,
}

impl LayerOptions for Embedding {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let (padding_idx, sparse) = (self.padding_idx, self.sparse);
        let options = EmbeddingOptions { padding_idx, sparse, ..EmbeddingOptions::default() };
        nn::Embedding::with_options(cx, self.num_embeddings, self.embedding_dim, options).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct EmbeddingBag {
    #[param(rename = "count")]
    num_embeddings: usize,
    #[param(rename = "size")]
    embedding_dim: usize,
    #[param(default = Named(EmbeddingBagOptions::default().mode))]
    mode: Named<BagMode>,
    #[param(default = EmbeddingBagOptions::default().padding_idx)]
    padding_idx: Option<isize>,
    #[param(default = EmbeddingBagOptions::default().include_last_offset)]
    include_last_offset: bool,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for EmbeddingBag {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let options = EmbeddingBagOptions {
            mode: self.mode.0,
            padding_idx: self.padding_idx,
            include_last_offset: self.include_last_offset,
            ..EmbeddingBagOptions::default()
        };
        nn::EmbeddingBag::new(cx, self.num_embeddings, self.embedding_dim, options).map(Built::multi_input)
    }
}

classes! {
    /// Rows of a table: indices of any shape to `[.., embedding_dim]`; the row `padding_idx` gets no gradient.
    ///
    /// With `sparse` a backward pass keeps the gradient of the rows that were looked up, not one as large as the table; `SGD` without
    /// momentum and weight decay and `SparseAdam` take it so. Where it is read (`weight.grad`, clipping), or the weight has hooks, it is a
    /// tensor.
    ///
    /// >>> import remat
    /// >>> remat.nn.Embedding(10, 4)(remat.tensor([[1, 2, 3]])).shape
    /// (1, 3, 4)
    Embedding: OneInput = Embedding;

    /// Sums, means or largest (`mode`) of bags of rows of a table: `index: [bags, n]` to `[bags, embedding_dim]`, or `index: [n]` with
    /// `offsets`, where bags begin. The row `padding_idx` does not count.
    ///
    /// >>> import remat
    /// >>> bag = remat.nn.EmbeddingBag(10, 3, mode="sum")
    /// >>> bag(remat.tensor([1, 2, 4, 5]), remat.tensor([0, 3])).shape
    /// (2, 3)
    EmbeddingBag: BagCall = EmbeddingBag;
}
