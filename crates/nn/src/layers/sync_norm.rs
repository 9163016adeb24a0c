//! Batch norm over the batches of several ranks.
//!
//! Each rank takes mean and variance of its own batch in two passes; those of all ranks are gathered and merged by the pairwise
//! formula of Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample variances", 1979),
//! with all parts at once: sums of squares, as [`BatchStatistics`](remat_tensor::BatchStatistics) has them, would lose the digits of a
//! variance beside a large mean. Every rank merges the same numbers in the same order, so the statistics have the same bits
//! everywhere. All of it is differentiable: the gradient of the gathering sums up what all ranks' outputs say of each rank's
//! statistics.

use remat_tensor::Tensor;
use remat_tensor::comm::Communicator;
use remat_types::{DType, Error, ErrorKind, Result};

/// A batch that its own statistics have normalised.
pub(super) struct Normalised {
    pub(super) y: Tensor,
    /// `[c]`.
    pub(super) mean: Tensor,
    /// Biased: `[c]`.
    var: Tensor,
    count: Count,
}

/// Elements of a channel.
enum Count {
    /// Of a batch of this rank alone.
    Own(usize),
    /// Of all ranks' batches: `[1]`.
    All(Tensor),
}

impl Normalised {
    /// By the statistics of this batch alone. Errors: those of [`Tensor::batch_norm`].
    #[track_caller]
    pub(super) fn alone(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64) -> Result<Self> {
        let (y, mean, var) = x.batch_norm(weight, bias, eps)?;
        Ok(Normalised { y, mean, var, count: Count::Own(elems_of_channel(x)) })
    }

    /// By the statistics of all ranks' batches. Errors: those of [`Tensor::batch_norm`]. On the device: those of a collective.
    #[track_caller]
    pub(super) fn together(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f64, group: &Communicator) -> Result<Self> {
        if !x.dtype().is_float() {
            return Err(Error::new(ErrorKind::DType, format!("is not defined for {}", x.dtype())).with_op("batch_norm"));
        }
        if elems_of_channel(x) == 0 {
            let text = format!("x has shape {}: a channel without elements", x.shape());
            return Err(Error::new(ErrorKind::Shape, text).with_op("batch_norm"));
        }
        let own = own_statistics(x)?;
        let all = own.unsqueeze(0)?.all_gather(0, group)?;
        let (mean, var, count) = merged(&all, x.dims()[1])?;
        let y = x.batch_norm_with(weight, bias, &mean, &var, eps)?;
        Ok(Normalised { y, mean, var, count: Count::All(count) })
    }

    /// The unbiased variance, without history; none of one element a channel.
    #[track_caller]
    pub(super) fn unbiased(&self) -> Result<Option<Tensor>> {
        let var = self.var.detach();
        match &self.count {
            Count::Own(0 | 1) => Ok(None),
            // two numbers that each follow from the batch, for graphs over symbols
            Count::Own(count) => var.mul(*count as f64)?.div((count - 1) as f64).map(Some),
            // several ranks have several elements
            Count::All(count) => var.mul(count)?.div(count.sub(1.0)?).map(Some),
        }
    }
}

/// Places that each channel of `x: [n, c, ..]` has in the batch.
fn elems_of_channel(x: &Tensor) -> usize {
    x.elems() / x.dims()[1].max(1)
}

/// Mean and biased variance of each channel, and their number of elements: `[2 c + 1]`, in f32 (f64 for f64).
#[track_caller]
fn own_statistics(x: &Tensor) -> Result<Tensor> {
    let wide = x.cast(if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 })?;
    let axes: Vec<isize> = (0..x.rank() as isize).filter(|a| *a != 1).collect();
    let count = Tensor::full(&x.device(), [1], wide.dtype(), elems_of_channel(x) as f64)?;
    Tensor::concat(&[&wide.mean_over(&axes, false)?, &wide.var_over(&axes, false, 0)?, &count], 0)
}

/// Mean, biased variance and number of elements of all parts together, of their rows of `[2 c + 1]`: `[c]`, `[c]`, `[1]`.
#[track_caller]
fn merged(all: &Tensor, channels: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let mut columns = all.split(&[channels, channels, 1], 1)?.into_iter();
    let (Some(means), Some(vars), Some(counts)) = (columns.next(), columns.next(), columns.next()) else {
        return Err(Error::new(ErrorKind::Internal, "a split into three has three parts"));
    };
    let count = counts.sum_over(&[0], false)?;
    let share = counts.div(&count)?;
    // deviations from one of the means, and not the means themselves, so that shares that do not add up to 1 to the last bit
    // move nothing where all means are equal
    let first = means.narrow(0, 0, 1)?;
    let mean = first.squeeze(&[0])?.add(means.sub(&first)?.mul(&share)?.sum_over(&[0], false)?)?;
    let var = vars.add(means.sub(&mean)?.square()?)?.mul(&share)?.sum_over(&[0], false)?;
    Ok((mean, var, count))
}
