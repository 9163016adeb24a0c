use remat_types::{Error, ErrorKind, HostTensor, Result, Shape};

/// Examples that can be had by index.
pub trait Dataset: Send + Sync + 'static {
    /// Number of examples.
    fn len(&self) -> usize;

    /// The examples at `indices`, each below [`Dataset::len`], put together: one tensor for each part of an example, with
    /// the batch as its first axis. Called from several threads at once; equal indices give equal batches.
    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>>;

    /// True without examples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Examples in memory: rows of tensors with one first extent.
#[derive(Clone, Debug)]
pub struct TensorDataset {
    parts: Vec<HostTensor>,
    len: usize,
}

impl TensorDataset {
    /// Example `i` is row `i` of every part. Errors: Arity without parts, Shape for a part of rank 0 or first extents
    /// that differ.
    pub fn new(parts: Vec<HostTensor>) -> Result<Self> {
        let first = parts.first().ok_or_else(|| Error::new(ErrorKind::Arity, "a dataset has at least one part"))?;
        let len = first.shape().first().copied();
        let fits = |t: &HostTensor| len.is_some() && t.shape().first().copied() == len;
        match parts.iter().position(|t| !fits(t)) {
            None => Ok(TensorDataset { len: len.unwrap_or(0), parts }),
            Some(i) => {
                let text =
                    format!("part {i} has shape {}, part 0 {}: first axes differ", parts[i].shape(), first.shape());
                Err(Error::new(ErrorKind::Shape, text))
            }
        }
    }
}

impl Dataset for TensorDataset {
    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>> {
        if let Some(i) = indices.iter().find(|&&i| i >= self.len) {
            return Err(Error::new(ErrorKind::Index, format!("example {i} of a dataset of {}", self.len)));
        }
        self.parts.iter().map(|t| rows(t, indices)).collect()
    }
}

/// The rows of `t` at `indices`, each within it.
fn rows(t: &HostTensor, indices: &[usize]) -> Result<HostTensor> {
    let mut shape = Shape::from([indices.len()]);
    t.shape()[1..].iter().for_each(|&d| shape.push(d));
    let mut out = HostTensor::zeros(t.dtype(), shape)?;
    let row = t.bytes().len().checked_div(t.shape()[0]).unwrap_or(0);
    if row > 0 {
        for (to, &i) in out.bytes_mut().chunks_exact_mut(row).zip(indices) {
            to.copy_from_slice(&t.bytes()[i * row..(i + 1) * row]);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_rows_of_every_part() {
        let x = HostTensor::from_slice(&[1i32, 2, 3, 4, 5, 6], [3, 2]).expect("fits");
        let y = HostTensor::from_slice(&[10u8, 20, 30], [3]).expect("fits");
        let d = TensorDataset::new(vec![x, y]).expect("one length");
        let b = d.batch(&[2, 0, 2]).expect("in range");
        assert_eq!(b[0].to_vec::<i32>().expect("i32"), [5, 6, 1, 2, 5, 6]);
        assert_eq!(b[1].to_vec::<u8>().expect("u8"), [30, 10, 30]);
        assert_eq!(d.batch(&[3]).expect_err("past the end").kind(), ErrorKind::Index);
    }

    #[test]
    fn parts_of_other_lengths_are_refused() {
        let t = |n: usize| HostTensor::zeros(remat_types::DType::F32, [n]).expect("small");
        assert_eq!(TensorDataset::new(vec![t(2), t(3)]).expect_err("2 and 3").kind(), ErrorKind::Shape);
        assert_eq!(TensorDataset::new(vec![HostTensor::scalar(1u8)]).expect_err("rank 0").kind(), ErrorKind::Shape);
        assert_eq!(TensorDataset::new(vec![]).expect_err("nothing").kind(), ErrorKind::Arity);
    }
}
