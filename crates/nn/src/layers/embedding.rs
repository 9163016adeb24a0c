use remat_tensor::{BagMode, Bags, Tensor};
use remat_types::{DType, Error, ErrorKind, Result};

use crate::{Init, InitCx, Label, Layer, Module, Parameter};

/// The rule of a table unless another is given.
const NORMAL: Init = Init::Normal { mean: 0.0, std: 1.0 };

/// Which [`Embedding`]. The default begins as standard normal, without a row for padding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingOptions {
    /// How the table begins.
    pub init: Init,
    /// A row that begins as 0 and gets no gradient; it may count from the end.
    pub padding_idx: Option<isize>,
    /// A backward pass leaves the gradient as rows ([`Tensor::embedding_rows`]), which [`Sgd`](crate::Sgd) without momentum and weight decay and
    /// [`SparseAdam`](crate::SparseAdam) take as they are.
    pub sparse: bool,
}

impl Default for EmbeddingOptions {
    fn default() -> Self {
        EmbeddingOptions { init: NORMAL, padding_idx: None, sparse: false }
    }
}

/// A table whose row `padding_idx`, if any, is 0. Errors: Index for one that is no row.
fn table(
    cx: &mut InitCx,
    [count, size]: [usize; 2],
    init: Init,
    padding_idx: Option<isize>,
    op: &str,
) -> Result<Parameter> {
    let Some(p) = padding_idx else { return cx.parameter([count, size], init) };
    let at = if p < 0 { p.saturating_add_unsigned(count) } else { p };
    let Some(row) = usize::try_from(at).ok().filter(|row| *row < count) else {
        let text = format!("padding_idx {p} is no row of {count}");
        return Err(Error::new(ErrorKind::Index, text).with_op(op));
    };
    let weight = init.tensor(&cx.device, [count, size], cx.dtype, &mut cx.rng)?;
    let rows = Tensor::arange(&cx.device, 0, count as i64, 1, DType::I64)?;
    Parameter::new(weight.masked_fill(&rows.eq(row as i64)?.unsqueeze(1)?, 0.0)?)
}

/// Rows of a table: `index: [..]` of any integer dtype, `y: [.., size]`, `weight: [count, size]`, begun as standard normal.
///
/// The gradient of a row is the sum over all places that named it; that of the row for padding is 0. Errors: DType for an
/// index that is no integer; at run time, Index for one that is no row.
#[derive(Module)]
#[module(crate = crate)]
pub struct Embedding {
    #[module(flatten)]
    label: Label,
    /// `[count, size]`.
    pub weight: Parameter,
    #[module(skip)]
    padding_idx: Option<isize>,
    #[module(skip)]
    sparse: bool,
}

impl Embedding {
    /// A table of `count` rows of `size` numbers. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, count: usize, size: usize) -> Result<Self> {
        Embedding::with_options(cx, count, size, EmbeddingOptions::default())
    }

    /// As [`Embedding::new`], begun by another rule. Errors: also those of the rule.
    pub fn with(cx: &mut InitCx, count: usize, size: usize, init: Init) -> Result<Self> {
        Embedding::with_options(cx, count, size, EmbeddingOptions { init, ..EmbeddingOptions::default() })
    }

    /// As [`Embedding::new`], with options. Errors: also those of the rule; Index for a `padding_idx` that is no row.
    ///
    /// ```
    /// use remat_nn::{Embedding, EmbeddingOptions, InitCx, Layer};
    /// # use remat_runtime::{Device, DeviceOptions};
    /// # use remat_tensor::Tensor;
    /// # fn main() -> remat_types::Result<()> {
    /// # let device = Device::cpu(DeviceOptions::default())?;
    /// let options = EmbeddingOptions { padding_idx: Some(0), ..EmbeddingOptions::default() };
    /// let table = Embedding::with_options(&mut InitCx::new(&device, 1), 10, 2, options)?;
    /// let padding = Tensor::new(&device, &[0], [1])?;
    /// assert_eq!(table.forward(&padding)?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_options(cx: &mut InitCx, count: usize, size: usize, options: EmbeddingOptions) -> Result<Self> {
        let EmbeddingOptions { init, padding_idx, sparse } = options;
        let weight = table(cx, [count, size], init, padding_idx, "embedding")?;
        Ok(Embedding { label: Label::of_layer("embedding"), weight, padding_idx, sparse })
    }
}

impl Layer for Embedding {
    #[track_caller]
    fn forward(&self, index: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(index, |index| {
            let table = self.weight.get()?;
            match self.sparse {
                true => table.embedding_rows(index, self.padding_idx),
                false => table.embedding(index, self.padding_idx),
            }
        })
    }
}

/// Which [`EmbeddingBag`]. The default: means, begun as standard normal, without a row for padding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingBagOptions {
    /// The function of a bag's rows.
    pub mode: BagMode,
    /// How the table begins.
    pub init: Init,
    /// A row that begins as 0, gets no gradient, and does not count in a bag; it may count from the end.
    pub padding_idx: Option<isize>,
    /// The last offset is where the last bag ends, and begins none.
    pub include_last_offset: bool,
}

impl Default for EmbeddingBagOptions {
    fn default() -> Self {
        EmbeddingBagOptions { mode: BagMode::Mean, init: NORMAL, padding_idx: None, include_last_offset: false }
    }
}

/// Sums, means or largest of bags of rows: `index: [bags, n]` of any integer dtype, `y: [bags, size]`,
/// `weight: [count, size]`. Errors: those of [`Tensor::embedding_bag`].
#[derive(Module)]
#[module(crate = crate)]
pub struct EmbeddingBag {
    #[module(flatten)]
    label: Label,
    /// `[count, size]`.
    pub weight: Parameter,
    #[module(skip)]
    options: EmbeddingBagOptions,
}

impl EmbeddingBag {
    /// A table of `count` rows of `size` numbers. Errors: those of the rule for its first value; Index for a `padding_idx`
    /// that is no row; Budget if it does not fit.
    ///
    /// ```
    /// use remat_nn::{EmbeddingBag, EmbeddingBagOptions, InitCx};
    /// # use remat_runtime::{Device, DeviceOptions};
    /// # use remat_tensor::Tensor;
    /// # fn main() -> remat_types::Result<()> {
    /// # let device = Device::cpu(DeviceOptions::default())?;
    /// let bag = EmbeddingBag::new(&mut InitCx::new(&device, 1), 10, 3, EmbeddingBagOptions::default())?;
    /// let (words, begins) = (Tensor::new(&device, &[1, 2, 4, 5], [4])?, Tensor::new(&device, &[0, 3], [2])?);
    /// assert_eq!(bag.forward_with(&words, Some(&begins), None)?.dims(), [2, 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(cx: &mut InitCx, count: usize, size: usize, options: EmbeddingBagOptions) -> Result<Self> {
        let weight = table(cx, [count, size], options.init, options.padding_idx, "embedding_bag")?;
        Ok(EmbeddingBag { label: Label::new("embedding_bag"), weight, options })
    }

    /// With offsets, where bags of `index: [n]` begin, and factors of the rows, as [`Bags`] has them. Errors: as of the layer.
    #[track_caller]
    pub fn forward_with(&self, index: &Tensor, offsets: Option<&Tensor>, weights: Option<&Tensor>) -> Result<Tensor> {
        let _scope = self.label.enter();
        let EmbeddingBagOptions { mode, padding_idx, include_last_offset, .. } = self.options;
        self.weight.get()?.embedding_bag(index, Bags { mode, offsets, include_last_offset, weights, padding_idx })
    }
}

impl Layer for EmbeddingBag {
    #[track_caller]
    fn forward(&self, index: &Tensor) -> Result<Tensor> {
        self.forward_with(index, None, None)
    }
}
