//! Normalisation of groups of channels, of single images and channels, and over any axes; statistics that can be merged.

use remat_ops::norm::{BatchNorm, LayerNorm};
use remat_ops::pooling::{AvgPool2d, Windows};
use remat_ops::shape::Reshape;
use remat_types::{DType, Error, ErrorKind, Result, Shape, axes_of};

use super::{product, rank_at_least, wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// The dtype in which statistics are kept: f64 of f64, else f32.
fn statistics_dtype(of: DType) -> DType {
    if of == DType::F64 { DType::F64 } else { DType::F32 }
}

impl Tensor {
    /// Normalised over each of `groups` groups of channels (axis 1) of each image: `(x - mean) / sqrt(var + eps) weight + bias`,
    /// with biased variance (Wu and He, ECCV 2018). `self: [n, c, ..]`, `weight, bias: [c]`, or none of them.
    ///
    /// Errors: Axis below rank 2; Value unless `groups` divides the channels, and for a negative `eps`; DType for an `x` that
    /// is no float; Shape for another weight or bias, or images without places.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 3.0, 10.0, 30.0], [1, 4])?;
    /// assert_eq!(x.group_norm(2, None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let rows = group_rows(self, groups).in_op("group_norm")?;
        let y = self.hat_of_rows(rows, eps).called("group_norm")?;
        y.of_channels(weight, bias).in_op("group_norm")
    }

    /// Normalised over each channel of each image: [`Tensor::group_norm`] with as many groups as channels (Ulyanov et al.,
    /// arXiv:1607.08022). Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 3.0, 10.0, 30.0], [1, 2, 2])?;
    /// assert_eq!(x.instance_norm(None, None, 0.0)?.to_vec::<f32>()?, [-1.0, 1.0, -1.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn instance_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        rank_at_least(self, 2).in_op("instance_norm")?;
        let rows = self.dims()[0].saturating_mul(self.dims()[1]);
        let y = self.hat_of_rows(rows, eps).called("instance_norm")?;
        y.of_channels(weight, bias).in_op("instance_norm")
    }

    /// `(x - mean) / sqrt(var + eps) weight + bias` with mean and biased variance over `axes`, which may be any; `weight` and
    /// `bias`, or none of them, have the extents of those axes, in ascending order. All axes if none is named. Errors: Axis;
    /// DType; Shape; Value for a negative `eps`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 10.0, 3.0, 30.0], [2, 2])?;
    /// assert_eq!(x.general_norm(&[0], None, None, 0.0)?.to_vec::<f32>()?, [-1.0, -1.0, 1.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn general_norm(
        &self,
        axes: &[isize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        const NAME: &str = "general_norm";
        rank_at_least(self, 1).in_op(NAME)?;
        let mut inner = axes_of(axes, self.rank()).in_op(NAME)?;
        if inner.is_empty() {
            inner = (0..self.rank()).collect();
        }
        inner.sort_unstable();
        let order: Vec<usize> = (0..self.rank()).filter(|a| !inner.contains(a)).chain(inner.iter().copied()).collect();
        let extents: Shape = inner.iter().map(|a| self.dims()[*a]).collect();
        let part = |t: Option<&Tensor>, value: i64| match t {
            Some(t) => Ok(t.clone()),
            None => Tensor::full(&self.device(), extents.clone(), self.dtype(), value),
        };
        let (weight, bias) = (part(weight, 1)?, part(bias, 0)?);
        let op = LayerNorm { axes: inner.len(), eps: eps.into() };
        if order.iter().copied().eq(0..self.rank()) {
            return Tensor::apply1(op, &[self, &weight, &bias]).called(NAME);
        }
        let mut back = vec![0isize; self.rank()];
        for (to, from) in order.iter().enumerate() {
            back[*from] = to as isize;
        }
        let order: Vec<isize> = order.into_iter().map(|a| a as isize).collect();
        Tensor::apply1(op, &[&self.permute(&order)?, &weight, &bias]).called(NAME)?.permute(&back)
    }

    /// Each element divided by `(k + alpha mean)^beta`, with the mean of the squares of `size` neighbouring channels (axis 1),
    /// zeros beyond the ends (Krizhevsky et al., NeurIPS 2012, whose alpha is that of the sum: `alpha / size`). PyTorch's `alpha`
    /// is 1e-4 by default, its `beta` 0.75, its `k` 1.
    ///
    /// Errors: Axis below rank 3; DType for an `x` that is no float; Value for a `size` of 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 1.0, 1.0], [1, 3, 1])?;
    /// assert_eq!(x.local_response_norm(1, 3.0, 0.5, 1.0)?.to_vec::<f32>()?, [0.5; 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn local_response_norm(&self, size: usize, alpha: f64, beta: f64, k: f64) -> Result<Tensor> {
        const NAME: &str = "local_response_norm";
        rank_at_least(self, 3).in_op(NAME)?;
        if size == 0 {
            return Err(wrong_value("a neighbourhood of 0 channels".to_owned())).in_op(NAME);
        }
        // squares of f16 overflow
        let wide = self.cast(statistics_dtype(self.dtype()))?;
        let dims = self.dims();
        let flat: Shape = [dims[0], 1, dims[1], product(&dims[2..]).in_op(NAME)?].into();
        let padding = [size / 2, 0, (size - 1) / 2, 0];
        let windows = Windows::Sliding { kernel: [size, 1], stride: [1, 1], padding };
        let squares = Tensor::apply1(Reshape { shape: flat }, &[&wide.square()?])?;
        let means = Tensor::apply1(AvgPool2d { windows, count_include_pad: true }, &[&squares]).called(NAME)?;
        let means = Tensor::apply_owned(Reshape { shape: self.shape().clone() }, [means])?;
        let divisor = ((means * alpha)? + k)?.pow(beta)?;
        (wide / divisor)?.cast(self.dtype())
    }

    /// `x` of `rows` equal runs of elements, each normalised by itself.
    #[track_caller]
    fn hat_of_rows(&self, rows: usize, eps: f64) -> Result<Tensor> {
        if self.elems() == 0 && rows == 0 {
            return Ok(self.clone());
        }
        // a batch of one image whose channels are the rows: its statistics need no weights of the rows' length
        let each = self.elems() / rows.max(1);
        let x = Tensor::apply1(Reshape { shape: [1, rows, each].into() }, &[self])?;
        let of = |value: i64| Tensor::full(&self.device(), [rows], self.dtype(), value);
        let y = Tensor::apply1(BatchNorm { eps: eps.into() }, &[&x, &of(1)?, &of(0)?])?;
        Tensor::apply_owned(Reshape { shape: self.shape().clone() }, [y])
    }

    /// `x weight + bias` with one of each for each channel (axis 1). Errors: Shape, DType.
    #[track_caller]
    fn of_channels(self, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
        let channels = self.dims()[1];
        let mut wide = Shape::from(vec![1; self.rank()]);
        wide.dims_mut()[1] = channels;
        let part = |t: &Tensor, name: &str| {
            if t.dims() != [channels] || t.dtype() != self.dtype() {
                let text = format!("the {name} is {} {}, not {} [{channels}]", t.dtype(), t.shape(), self.dtype());
                let kind = if t.dims() == [channels] { ErrorKind::DType } else { ErrorKind::Shape };
                return Err(Error::new(kind, text));
            }
            Tensor::apply1(Reshape { shape: wide.clone() }, &[t])
        };
        let (weight, bias) = (weight.map(|t| part(t, "weight")), bias.map(|t| part(t, "bias")));
        let y = match weight {
            Some(weight) => (&self * weight?)?,
            None => self,
        };
        match bias {
            Some(bias) => y + bias?,
            None => Ok(y),
        }
    }
}

/// How many rows `groups` groups of the channels of each image are. Errors: Axis, Value.
fn group_rows(x: &Tensor, groups: usize) -> Result<usize> {
    rank_at_least(x, 2)?;
    let channels = x.dims()[1];
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(wrong_value(format!("{groups} groups do not divide {channels} channels")));
    }
    Ok(x.dims()[0].saturating_mul(groups))
}

/// Sums over each channel (axis 1) of a batch, for a batch norm over several devices or pieces of a batch. Each part gives three
/// vectors. Add up each vector over the parts (an all-reduce). [`BatchStatistics::mean_and_var`] then gives the mean and
/// variance for [`Tensor::batch_norm_with`]. All steps are differentiable, so the gradient is that of the whole batch.
///
/// ```
/// # use remat_tensor::{BatchStatistics, Tensor};
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[1.0, 3.0, 5.0, 7.0], [4, 1])?;
/// let (a, b) = (BatchStatistics::from_batch(&x.slice(0, ..1)?)?, BatchStatistics::from_batch(&x.slice(0, 1..)?)?);
/// let (mean, var) = BatchStatistics::merge(&[a, b])?.mean_and_var()?;
/// assert_eq!((mean.item::<f32>()?, var.item::<f32>()?), (4.0, 5.0));
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchStatistics {
    /// Elements of a channel: `[]`, in the dtype of the sums.
    pub count: Tensor,
    /// The sum of each channel: `[c]`, in f32 (f64 of f64).
    pub sum: Tensor,
    /// The sum of squares of each channel, likewise.
    pub square_sum: Tensor,
}

impl BatchStatistics {
    /// Those of `x: [n, c, ..]`. Errors: Axis below rank 2; DType for an `x` that is no float.
    #[track_caller]
    pub fn from_batch(x: &Tensor) -> Result<BatchStatistics> {
        const NAME: &str = "batch_statistics";
        rank_at_least(x, 2).in_op(NAME)?;
        if !x.dtype().is_float() {
            return Err(Error::new(ErrorKind::DType, format!("is not defined for {}", x.dtype()))).in_op(NAME);
        }
        let wide = x.cast(statistics_dtype(x.dtype()))?;
        let axes: Vec<isize> = (0..x.rank() as isize).filter(|a| *a != 1).collect();
        let each = x.dims().iter().enumerate().filter(|(a, _)| *a != 1).fold(1usize, |n, (_, d)| n.saturating_mul(*d));
        let count = Tensor::full(&x.device(), [], wide.dtype(), each as f64)?;
        Ok(BatchStatistics { count, sum: wide.sum_over(&axes, false)?, square_sum: wide.sum_sqr_over(&axes, false)? })
    }

    /// Those of all parts together. Errors: Arity for none; Shape or DType for parts of other channels.
    #[track_caller]
    pub fn merge(parts: &[BatchStatistics]) -> Result<BatchStatistics> {
        let (first, rest) = parts
            .split_first()
            .ok_or_else(|| Error::new(ErrorKind::Arity, "takes the statistics of at least one part"))
            .in_op("batch_statistics")?;
        let mut all = first.clone();
        for part in rest {
            if part.sum.shape() != all.sum.shape() {
                let text = format!("parts with sums of shapes {} and {}", all.sum.shape(), part.sum.shape());
                return Err(wrong_shape(text)).in_op("batch_statistics");
            }
            all = BatchStatistics {
                count: (all.count + &part.count)?,
                sum: (all.sum + &part.sum)?,
                square_sum: (all.square_sum + &part.square_sum)?,
            };
        }
        Ok(all)
    }

    /// `mean = sum / count` and the biased variance `square_sum / count - mean^2`, at least 0: `[c]` each. The variance of
    /// numbers far from 0 loses digits that [`Tensor::batch_norm`], which sees all of them, keeps.
    #[track_caller]
    pub fn mean_and_var(&self) -> Result<(Tensor, Tensor)> {
        let mean = (&self.sum / &self.count)?;
        let var = ((&self.square_sum / &self.count)? - mean.square()?)?.relu()?;
        Ok((mean, var))
    }
}
