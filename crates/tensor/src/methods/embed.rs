//! Rows of tables by index: embeddings, and bags of them.
//!
//! Compositions: the rows of a bag are a tensor before they become one row.

use remat_ops::compose::ScatterReduce;
use remat_types::{DType, Error, ErrorKind, Result};

use crate::Tensor;
use crate::site::InOp;
use crate::tape::mark_lookup;

/// How [`Tensor::embedding_bag`] makes one row of those of a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BagMode {
    /// The sum.
    Sum,
    /// The mean.
    #[default]
    Mean,
    /// The largest of each column. Its gradient is shared equally among equal ones.
    Max,
}

/// Which rows are in which bag, and how they count. The default: those of a row of the index, and their mean.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bags<'a> {
    /// The function of a bag's rows.
    pub mode: BagMode,
    /// For an index of rank 1, where each bag begins: integers `[bags]` that ascend, the first of them 0.
    pub offsets: Option<&'a Tensor>,
    /// The last offset is where the last bag ends, and begins none.
    pub include_last_offset: bool,
    /// Factors of the rows, of the shape of the index; for sums.
    pub weights: Option<&'a Tensor>,
    /// A row that does not count where the index names it, neither in a mean; it may count from the end.
    pub padding_idx: Option<isize>,
}

impl Bags<'_> {
    /// Bags of a mode, each a row of the index.
    pub fn with_mode(mode: BagMode) -> Self {
        Bags { mode, ..Bags::default() }
    }

    fn check(&self, table: &Tensor, index: &Tensor) -> Result<()> {
        let no = |kind, text: String| Err(Error::new(kind, text));
        if !table.dtype().is_float() {
            return no(ErrorKind::DType, format!("a table of {}: its rows are added up as floats", table.dtype()));
        }
        if let Some(w) = self.weights {
            if self.mode != BagMode::Sum {
                return no(ErrorKind::Value, format!("weights are for sums, not for {:?}", self.mode));
            }
            if w.shape() != index.shape() {
                return no(
                    ErrorKind::Shape,
                    format!("weights of shape {} for an index of {}", w.shape(), index.shape()),
                );
            }
        }
        let rank = if self.offsets.is_some() { 1 } else { 2 };
        if index.rank() != rank {
            let with = if rank == 1 { "with" } else { "without" };
            return no(
                ErrorKind::Axis,
                format!("an index of shape {} {with} offsets: its rank must be {rank}", index.shape()),
            );
        }
        if let Some(o) = self.offsets.filter(|o| o.dtype().is_float() || o.dtype() == DType::Bool) {
            return no(ErrorKind::DType, format!("offsets of {}: they must be integers", o.dtype()));
        }
        match self.offsets {
            Some(o) if o.rank() != 1 => {
                no(ErrorKind::Axis, format!("offsets of shape {}: their rank must be 1", o.shape()))
            }
            Some(o) if self.include_last_offset && o.elems() == 0 => {
                no(ErrorKind::Shape, "no offset, where the last one is the end".to_owned())
            }
            _ => Ok(()),
        }
    }
}

impl Tensor {
    /// The rows of the table `self: [count, size]` that `index: [..]` names: `[.., size]`. As [`Tensor::take`] of axis 0,
    /// but the row `padding_idx`, which may count from the end, gets no gradient.
    ///
    /// Errors: Axis for a table of another rank; Index for a `padding_idx` that is no row; DType for indices that are no
    /// integers; at run time, Index for one that is no row.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let table = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?.requires_grad()?;
    /// let index = Tensor::new(&device, &[1, 0, 1], [3])?;
    /// let y = table.embedding(&index, Some(0))?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    /// y.sum()?.backward()?;
    /// assert_eq!(table.grad().expect("it was asked for").to_vec::<f32>()?, [0.0, 0.0, 2.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn embedding(&self, index: &Tensor, padding_idx: Option<isize>) -> Result<Tensor> {
        self.look_up(index, padding_idx, "embedding").map(|(_, y)| y)
    }

    /// As [`Tensor::embedding`], but that a backward pass leaves the gradient as rows if this is a leaf without hooks: it takes the memory of the
    /// rows that were looked up, not of the table. Where it is read it becomes a tensor; optimisers that move rows alone take it as it
    /// is ([`Tensor::take_grad_rows`]).
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let table = Tensor::zeros(&device, [1000, 2], remat_types::DType::F32)?.requires_grad()?;
    /// let index = Tensor::new(&device, &[7i64, 0, 7], [3])?;
    /// table.embedding_rows(&index, None)?.sum()?.backward()?;
    /// assert_eq!(table.grad_bytes(), 3 * 8 + 6 * 4);
    /// let rows = table.take_grad_rows().expect("not a tensor yet");
    /// assert_eq!(rows[0].rows.dims(), [3, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn embedding_rows(&self, index: &Tensor, padding_idx: Option<isize>) -> Result<Tensor> {
        let (rows, y) = self.look_up(index, padding_idx, "embedding_rows")?;
        mark_lookup(&rows);
        Ok(y)
    }

    /// The rows as they were looked up, and as they are given: no gradient goes to the row for padding.
    #[track_caller]
    fn look_up(&self, index: &Tensor, padding_idx: Option<isize>, op: &str) -> Result<(Tensor, Tensor)> {
        let padding = self.padding_row(padding_idx, op)?;
        let rows = self.take(0, index).in_op(op)?;
        let y = match padding {
            Some(p) if rows.dtype().is_float() => index.is_row(p, false)?.where_cond(&rows.detach(), &rows)?,
            _ => rows.clone(),
        };
        Ok((rows, y))
    }

    /// One row for each bag of rows of the table `self: [count, size]`: sum, mean or largest of the rows that an index
    /// names. `index: [bags, n]` gives `[bags, size]`; with offsets, `index: [n]` holds the bags one behind the other. A bag
    /// without rows gives 0.
    ///
    /// Errors: Axis for other ranks; DType for a table that is not of floats, or index or offsets that are not of integers; Index for
    /// a `padding_idx` that is no row; Shape or Value for weights that do not fit; at run time, Index for an index that is no
    /// row, or a first offset above 0.
    ///
    /// ```
    /// # use remat_tensor::{BagMode, Bags, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let table = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2])?;
    /// let index = Tensor::new(&device, &[0, 2, 1, 1], [2, 2])?;
    /// assert_eq!(table.embedding_bag(&index, Bags::default())?.to_vec::<f32>()?, [3.0, 4.0, 3.0, 4.0]);
    /// let index = Tensor::new(&device, &[0, 1, 2], [3])?;
    /// let offsets = Tensor::new(&device, &[0, 1, 1], [3])?;
    /// let bags = Bags { offsets: Some(&offsets), ..Bags::with_mode(BagMode::Sum) };
    /// assert_eq!(table.embedding_bag(&index, bags)?.to_vec::<f32>()?, [1.0, 2.0, 0.0, 0.0, 8.0, 10.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn embedding_bag(&self, index: &Tensor, bags: Bags<'_>) -> Result<Tensor> {
        const OP: &str = "embedding_bag";
        let padding = self.padding_row(bags.padding_idx, OP)?;
        bags.check(self, index).in_op(OP)?;
        let mut rows = self.take(0, index).in_op(OP)?;
        if let Some(w) = bags.weights {
            rows = rows.mul(w.unsqueeze(-1)?).in_op(OP)?;
        }
        let counted = padding.map(|p| index.is_row(p, true)).transpose()?;
        if let Some(counted) = &counted {
            let other = if bags.mode == BagMode::Max { f64::NEG_INFINITY } else { 0.0 };
            rows = counted.where_cond(&rows, other)?;
        }
        match bags.offsets {
            None => rows.bag_rows(bags.mode, counted.as_ref()),
            Some(offsets) => {
                let places = Tensor::arange(&index.device(), 0, index.elems() as i64, 1, DType::I64)?;
                let bag = offsets.cast(DType::I64)?.searchsorted(&places, true).in_op(OP)?.sub(1)?;
                let segments = offsets.elems();
                let y = rows.segment_rows(bags.mode, counted.as_ref(), &bag, segments).in_op(OP)?;
                if bags.include_last_offset { y.narrow(0, 0, segments.saturating_sub(1)) } else { Ok(y) }
            }
        }
    }

    /// The row that `padding_idx` names, counted from the start. Errors: Axis, Index.
    fn padding_row(&self, padding_idx: Option<isize>, op: &str) -> Result<Option<i64>> {
        let [count, _] = self.dims() else {
            let text = format!("a table of shape {}: its rank must be 2", self.shape());
            return Err(Error::new(ErrorKind::Axis, text)).in_op(op);
        };
        let Some(p) = padding_idx else { return Ok(None) };
        let at = if p < 0 { p.saturating_add_unsigned(*count) } else { p };
        match usize::try_from(at) {
            Ok(row) if row < *count => Ok(Some(row as i64)),
            _ => Err(Error::new(ErrorKind::Index, format!("padding_idx {p} is no row of {count}"))).in_op(op),
        }
    }

    /// Where an index names a row (does not, if `other`), with an axis of 1 behind.
    #[track_caller]
    fn is_row(&self, row: i64, other: bool) -> Result<Tensor> {
        let index = self.cast(DType::I64)?;
        if other { index.ne(row) } else { index.eq(row) }?.unsqueeze(-1)
    }

    /// Bags of `self: [bags, n, size]`; with `counted: [bags, n, 1]` only true rows have their value.
    #[track_caller]
    fn bag_rows(&self, mode: BagMode, counted: Option<&Tensor>) -> Result<Tensor> {
        let n = self.dims().get(1).copied().unwrap_or_default();
        let count = || counted.map(|c| c.cast(DType::I64)?.sum_over(&[1], false)).transpose();
        match mode {
            // the sum of nothing
            BagMode::Sum => self.sum_over(&[1], false),
            _ if n == 0 => self.sum_over(&[1], false),
            BagMode::Mean => match count()? {
                Some(count) => self.sum_over(&[1], false)?.div(count.maximum(1)?.cast(self.dtype())?),
                None => self.mean_over(&[1], false),
            },
            BagMode::Max => {
                let y = self.max_over(&[1], false)?;
                match count()? {
                    Some(count) => count.gt(0)?.where_cond(&y, 0.0),
                    None => Ok(y),
                }
            }
        }
    }

    /// Bags of the rows of `self: [n, size]`; `bag: [n]` names the bag of each row.
    #[track_caller]
    fn segment_rows(&self, mode: BagMode, counted: Option<&Tensor>, bag: &Tensor, bags: usize) -> Result<Tensor> {
        let (device, n, size) = (self.device(), self.dims()[0], self.dims()[1]);
        let zeros = Tensor::zeros(&device, [bags, size], self.dtype())?;
        let count = || {
            let ones = match counted {
                Some(c) => c.cast(DType::I64)?,
                None => Tensor::ones(&device, [n, 1], DType::I64)?,
            };
            Tensor::zeros(&device, [bags, 1], DType::I64)?.index_add(0, bag, &ones)
        };
        match mode {
            BagMode::Sum => zeros.index_add(0, bag, self),
            BagMode::Mean => zeros.index_add(0, bag, self)?.div(count()?.maximum(1)?.cast(self.dtype())?),
            BagMode::Max => {
                let index = bag.unsqueeze(1)?.broadcast_to([n, size])?;
                let y = zeros.scatter_reduce(0, &index, self, ScatterReduce::Amax, false)?;
                if counted.is_some() { count()?.gt(0)?.where_cond(&y, 0.0) } else { Ok(y) }
            }
        }
    }
}
