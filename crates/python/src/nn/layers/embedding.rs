//! Tables of rows.

use remat::nn::{self, BagMode, EmbeddingBagOptions, EmbeddingOptions};

use super::arguments::{Named, Places};
use super::{classes, options};

options! {
    Embedding {
        num_embeddings as "count": usize, embedding_dim as "size": usize, padding_idx: Option<isize> = None, [flatten] places: Places,
        sparse: bool = false
    } => one |o, cx| {
        let options = EmbeddingOptions { padding_idx: o.padding_idx, sparse: o.sparse, ..EmbeddingOptions::default() };
        nn::Embedding::with_options(cx, o.num_embeddings, o.embedding_dim, options)
    };

    EmbeddingBag {
        num_embeddings as "count": usize, embedding_dim as "size": usize,
        mode: Named<BagMode> = Named(EmbeddingBagOptions::default().mode), padding_idx: Option<isize> = None,
        include_last_offset: bool = false, [flatten] places: Places
    } => multi_input |o, cx| {
        let EmbeddingBag { mode: Named(mode), padding_idx, include_last_offset, .. } = o;
        let options = EmbeddingBagOptions { mode, padding_idx, include_last_offset, ..EmbeddingBagOptions::default() };
        nn::EmbeddingBag::new(cx, o.num_embeddings, o.embedding_dim, options)
    };
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
