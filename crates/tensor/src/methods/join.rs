//! Putting tensors together, and taking them apart.

use remat_ops::compose;
use remat_ops::shape::{Concat, Pad};
use remat_types::{Error, ErrorKind, Result, Scalar, axis_of};

use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

/// The rank of the joined tensors. Errors: Arity without tensors.
fn rank_of(x: &[&Tensor]) -> Result<usize> {
    let first = x.first().ok_or_else(|| Error::new(ErrorKind::Arity, "takes at least one tensor"))?;
    Ok(first.rank())
}

impl Tensor {
    /// The tensors one after the other along `axis`; of one dtype, and of equal extents on other axes (torch's `cat`).
    /// Errors: Arity for none; Axis; Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1, 2], [2, 1])?;
    /// let b = Tensor::new(&device, &[3, 4, 5, 6], [2, 2])?;
    /// assert_eq!(Tensor::concat(&[&a, &b], 1)?.to_vec::<i32>()?, [1, 3, 4, 2, 5, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "cat")]
    #[track_caller]
    pub fn concat(x: &[&Tensor], axis: isize) -> Result<Tensor> {
        let axis = rank_of(x).and_then(|rank| axis_of(axis, rank)).in_op("concat")?;
        Tensor::apply1(Concat { axis }, x)
    }

    /// Tensors of one dtype and shape along a new axis at `axis` of the result. Errors: Arity for none; Axis; Shape,
    /// DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1, 2], [2])?;
    /// let b = Tensor::new(&device, &[3, 4], [2])?;
    /// assert_eq!(Tensor::stack(&[&a, &b], 0)?.to_vec::<i32>()?, [1, 2, 3, 4]);
    /// assert_eq!(Tensor::stack(&[&a, &b], -1)?.to_vec::<i32>()?, [1, 3, 2, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn stack(x: &[&Tensor], axis: isize) -> Result<Tensor> {
        let axis = rank_of(x).and_then(|rank| axis_of(axis, rank + 1)).in_op("stack")?;
        compose::stack(&TapeCx::of(x[0]), x.iter().map(|t| (*t).clone()), axis).in_op("stack")
    }

    /// Parts of these extents, one after the other along `axis`. Views. Errors: Axis; Shape unless the extents add up to
    /// that of the axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// let parts = x.split(&[1, 2], 1)?;
    /// assert_eq!(parts[0].to_vec::<i32>()?, [1, 4]);
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3, 5, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, extents: &[usize], axis: isize) -> Result<Vec<Tensor>> {
        let axis = axis_of(axis, self.rank()).in_op("split")?;
        compose::split(&TapeCx::of(self), self, axis, extents).in_op("split")
    }

    /// At most `n` parts of equal extent along `axis`, as torch's `chunk`. The last part may be smaller. The parts
    /// are views. Errors: Axis; Value for 0 parts.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5], [5])?;
    /// let parts = x.chunk(3, 0)?;
    /// assert_eq!(parts.iter().map(|p| p.elems()).collect::<Vec<_>>(), [2, 2, 1]);
    /// assert_eq!(parts[2].to_vec::<i32>()?, [5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn chunk(&self, n: usize, axis: isize) -> Result<Vec<Tensor>> {
        let at = axis_of(axis, self.rank()).in_op("chunk")?;
        if n == 0 {
            return Err(Error::new(ErrorKind::Value, "0 parts")).in_op("chunk");
        }
        let extent = self.dims()[at];
        let each = extent.div_ceil(n).max(1);
        let mut extents: Vec<usize> = vec![each; extent / each];
        if !extent.is_multiple_of(each) || extent == 0 {
            extents.push(extent % each);
        }
        self.split(&extents, axis)
    }

    /// With `(before, after)` elements of `value` around each axis, one pair an axis, as NumPy's `pad`. Errors: Shape
    /// for another number of pairs.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [1, 2])?;
    /// let y = x.pad(&[(0, 1), (2, 0)], 9)?;
    /// assert_eq!(y.dims(), [2, 4]);
    /// assert_eq!(y.to_vec::<i32>()?, [9, 9, 1, 2, 9, 9, 9, 9]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn pad(&self, amounts: &[(usize, usize)], value: impl Into<Scalar>) -> Result<Tensor> {
        let (before, after) = amounts.iter().copied().unzip();
        Tensor::apply1(Pad { before, after, value: value.into() }, &[self])
    }

    /// The whole tensor so many times along each axis; new axes may lead, as in torch's `repeat` and NumPy's `tile`.
    /// Errors: Shape for fewer numbers than axes, or a result too large to address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [2])?;
    /// assert_eq!(x.repeat(&[3])?.to_vec::<i32>()?, [1, 2, 1, 2, 1, 2]);
    /// assert_eq!(x.repeat(&[2, 1])?.dims(), [2, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "tile")]
    #[track_caller]
    pub fn repeat(&self, counts: &[usize]) -> Result<Tensor> {
        compose::repeat(&TapeCx::of(self), self.clone(), counts).in_op("repeat")
    }

    /// Each element `n` times in a row along `axis`, as NumPy's `repeat`. Errors: Axis; Shape for a result too large to
    /// address.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [2])?;
    /// assert_eq!(x.repeat_interleave(3, 0)?.to_vec::<i32>()?, [1, 1, 1, 2, 2, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn repeat_interleave(&self, n: usize, axis: isize) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("repeat_interleave")?;
        compose::repeat_interleave(&TapeCx::of(self), self.clone(), n, axis).in_op("repeat_interleave")
    }

    /// The elements of `axis` moved by `shift` places. Elements that leave at one end enter at the other. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [4])?;
    /// assert_eq!(x.roll(1, 0)?.to_vec::<i32>()?, [4, 1, 2, 3]);
    /// assert_eq!(x.roll(-1, 0)?.to_vec::<i32>()?, [2, 3, 4, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn roll(&self, shift: isize, axis: isize) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("roll")?;
        compose::roll(&TapeCx::of(self), self.clone(), shift, axis)
    }
}
