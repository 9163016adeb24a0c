//! Padding with what lies inside.

use remat_types::{Error, ErrorKind, Result};

use super::wrong_value;
use crate::Tensor;
use crate::site::InOp;

/// The values beyond the ends of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PadMode {
    /// Zeros.
    #[default]
    Zeros,
    /// A value.
    Constant(f64),
    /// The elements from the end inwards, without the last one: `c b | a b c | b a`.
    Reflect,
    /// The last element: `a a | a b c | c c`.
    Replicate,
    /// The elements from the other end: `b c | a b c | a b`.
    Circular,
}

impl Tensor {
    /// With `(before, after)` elements around each axis, one pair an axis, of what `mode` says; names as in PyTorch. NumPy calls
    /// them constant, reflect, edge and wrap.
    ///
    /// Errors: Shape for another number of pairs, or a result too large to address; Value for more elements than `mode` has:
    /// for [`PadMode::Reflect`] less than the extent, for [`PadMode::Circular`] at most it, and some at all for
    /// [`PadMode::Replicate`].
    ///
    /// ```
    /// # use remat_tensor::{PadMode, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3], [3])?;
    /// assert_eq!(x.pad_with(&[(2, 1)], PadMode::Reflect)?.to_vec::<i32>()?, [3, 2, 1, 2, 3, 2]);
    /// assert_eq!(x.pad_with(&[(2, 1)], PadMode::Replicate)?.to_vec::<i32>()?, [1, 1, 1, 2, 3, 3]);
    /// assert_eq!(x.pad_with(&[(2, 1)], PadMode::Circular)?.to_vec::<i32>()?, [2, 3, 1, 2, 3, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn pad_with(&self, amounts: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
        match mode {
            PadMode::Zeros => return self.pad(amounts, 0),
            PadMode::Constant(value) => return self.pad(amounts, value),
            PadMode::Reflect | PadMode::Replicate | PadMode::Circular => {}
        }
        let mut shape = self.shape().clone();
        let places = |d: usize, (before, after): (usize, usize)| d.checked_add(before)?.checked_add(after);
        let fits = amounts.len() == self.rank()
            && shape.dims_mut().iter_mut().zip(amounts).all(|(d, a)| places(*d, *a).map(|all| *d = all).is_some());
        if !fits {
            let text = format!("shape {} with {} pairs of amounts: {amounts:?}", self.shape(), amounts.len());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("pad_with");
        }
        shape.checked_elems().in_op("pad_with")?;
        let mut y = self.clone();
        for (axis, amount) in amounts.iter().enumerate().filter(|(_, a)| **a != (0, 0)) {
            y = y.pad_axis(axis, *amount, mode).in_op("pad_with")?;
        }
        Ok(y)
    }

    #[track_caller]
    fn pad_axis(&self, axis: usize, (before, after): (usize, usize), mode: PadMode) -> Result<Tensor> {
        let extent = self.dims()[axis];
        let most = match mode {
            PadMode::Reflect => extent.saturating_sub(1),
            PadMode::Circular => extent,
            _ if extent == 0 => 0,
            _ => usize::MAX,
        };
        if before.max(after) > most {
            let text = format!("{before} and {after} elements around axis {axis} of extent {extent}; at most {most}");
            return Err(wrong_value(text));
        }
        let axis = axis as isize;
        let ends = |n: usize, at: usize| -> Result<Tensor> {
            let mut shape = self.shape().clone();
            shape.dims_mut()[axis as usize] = n;
            self.narrow(axis, at as isize, 1)?.broadcast_to(shape)
        };
        let (front, back) = match mode {
            PadMode::Reflect => (
                self.narrow(axis, 1.min(extent as isize), before)?.flip(&[axis])?,
                self.narrow(axis, (extent - (extent.min(1) + after)) as isize, after)?.flip(&[axis])?,
            ),
            PadMode::Circular => (self.narrow(axis, (extent - before) as isize, before)?, self.narrow(axis, 0, after)?),
            _ => (ends(before, 0)?, ends(after, extent - 1)?),
        };
        let parts: Vec<&Tensor> = [(before, &front), (extent, self), (after, &back)]
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|p| p.1)
            .collect();
        if parts.is_empty() { Ok(self.clone()) } else { Tensor::concat(&parts, axis) }
    }
}
