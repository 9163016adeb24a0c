//! Rearranging elements: views wherever strides allow.

use remat_ops::shape::{BroadcastTo, Contiguous, Permute, Reshape};
use remat_types::{Error, ErrorKind, Result, Shape, SmallVec, axes_of, axis_of};

use crate::Tensor;
use crate::site::InOp;

impl Tensor {
    /// The same elements under another shape; one extent may be -1 and is worked out. Errors: Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.reshape(&[3, -1])?.dims(), [3, 2]);
    /// assert_eq!(x.reshape(&[-1])?.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "view")]
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Result<Tensor> {
        let shape = resolve(self.shape(), shape).in_op("reshape")?;
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// Merges the axes from `first` on. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0; 24], [2, 3, 4])?;
    /// assert_eq!(x.flatten_from(1)?.dims(), [2, 12]);
    /// assert_eq!(x.flatten_from(0)?.dims(), [24]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn flatten_from(&self, first: usize) -> Result<Tensor> {
        if first > self.rank() {
            let text = format!("axis {first} is out of range for rank {}", self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("flatten");
        }
        let mut shape: Shape = self.dims()[..first].into();
        shape.push(self.dims()[first..].iter().product());
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// Merges the axes from `start` to `end`, both included, as torch's `flatten`; of rank 0 it makes a vector. Errors:
    /// Axis if they are out of range, or `end` comes before `start`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0; 24], [2, 3, 4])?;
    /// assert_eq!(x.flatten(0, -1)?.dims(), [24]);
    /// assert_eq!(x.flatten(0, 1)?.dims(), [6, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.flatten_from(0);
        }
        let range = axis_of(start, self.rank()).and_then(|a| Ok((a, axis_of(end, self.rank())?)));
        let (start, end) = range.in_op("flatten")?;
        if end < start {
            return Err(Error::new(ErrorKind::Axis, format!("axis {end} comes before axis {start}"))).in_op("flatten");
        }
        let merged = self.dims()[start..=end].iter().product();
        let shape = self.dims()[..start].iter().chain([&merged]).chain(&self.dims()[end + 1..]).copied().collect();
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// Axis `axis` as several; one extent may be -1 and is worked out. Errors: Axis; Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0; 24], [2, 12])?;
    /// assert_eq!(x.unflatten(1, &[3, -1])?.dims(), [2, 3, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn unflatten(&self, axis: isize, extents: &[isize]) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("unflatten")?;
        let parts = resolve(&[self.dims()[axis]].into(), extents).in_op("unflatten")?;
        let (before, after) = (&self.dims()[..axis], &self.dims()[axis + 1..]);
        let shape = before.iter().chain(parts.iter()).chain(after).copied().collect();
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// Axis `from` moved to place `to`, the others in their order. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0; 24], [2, 3, 4])?;
    /// assert_eq!(x.movedim(-1, 0)?.dims(), [4, 2, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "moveaxis")]
    #[track_caller]
    pub fn movedim(&self, from: isize, to: isize) -> Result<Tensor> {
        let (from, to) = (axis_of(from, self.rank()).in_op("movedim")?, axis_of(to, self.rank()).in_op("movedim")?);
        let mut order: SmallVec<[usize; 4]> = (0..self.rank()).filter(|a| *a != from).collect();
        order.insert(to, from);
        Tensor::apply1(Permute { order }, &[self])
    }

    /// Axis `k` of the result is axis `order[k]`, which may count from the end. Errors: Axis if that is no permutation.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0; 24], [2, 3, 4])?;
    /// assert_eq!(x.permute(&[2, 0, 1])?.dims(), [4, 2, 3]);
    /// assert_eq!(x.permute(&[-1, 0, 1])?.dims(), [4, 2, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn permute(&self, order: &[isize]) -> Result<Tensor> {
        let order = order.iter().map(|&a| axis_of(a, self.rank()));
        let order = order.collect::<Result<_>>().in_op("permute")?;
        Tensor::apply1(Permute { order }, &[self])
    }

    /// Two axes exchanged. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.transpose(0, 1)?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "swapaxes")]
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let mut order: SmallVec<[usize; 4]> = (0..self.rank()).collect();
        let (a, b) = (axis_of(a, self.rank()).in_op("transpose")?, axis_of(b, self.rank()).in_op("transpose")?);
        order.swap(a, b);
        Tensor::apply1(Permute { order }, &[self])
    }

    /// The last two axes exchanged. Errors: Axis below rank 2.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0; 24], [2, 3, 4])?;
    /// assert_eq!(x.t()?.dims(), [2, 4, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "mT")]
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        self.transpose(-2, -1)
    }

    /// Repeated along axes of extent 1 and new leading axes. Errors: Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [2, 1])?;
    /// assert_eq!(x.broadcast_to([2, 3])?.to_vec::<i32>()?, [1, 1, 1, 2, 2, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "expand")]
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::apply1(BroadcastTo { shape: shape.into() }, &[self])
    }

    /// Without the axes that are named, which have extent 1; without all such axes if none is named. Errors: Axis; Shape
    /// if one of them has another extent.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [1, 2, 1])?;
    /// assert_eq!(x.squeeze(&[])?.dims(), [2]);
    /// assert_eq!(x.squeeze(&[-1])?.dims(), [1, 2]);
    /// assert!(x.squeeze(&[1]).is_err());
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn squeeze(&self, axes: &[isize]) -> Result<Tensor> {
        let mut axes = axes_of(axes, self.rank()).in_op("squeeze")?;
        if axes.is_empty() {
            axes = (0..self.rank()).filter(|a| self.dims()[*a] == 1).collect();
        }
        if let Some(a) = axes.iter().find(|a| self.dims()[**a] != 1) {
            let text = format!("axis {a} of shape {} has not extent 1", self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("squeeze");
        }
        let shape = self.dims().iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| *d).collect();
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// With a new axis of extent 1 at `axis` of the result. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2], [2])?;
    /// assert_eq!(x.unsqueeze(0)?.dims(), [1, 2]);
    /// assert_eq!(x.unsqueeze(-1)?.dims(), [2, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "expand_dims")]
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        let at = axis_of(axis, self.rank() + 1).in_op("unsqueeze")?;
        let mut dims: Vec<usize> = self.dims().to_vec();
        dims.insert(at, 1);
        Tensor::apply1(Reshape { shape: dims.into() }, &[self])
    }

    /// In row-major order without gaps: a copy if it is a view.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5, 6], [2, 3])?;
    /// assert_eq!(x.t()?.contiguous()?.to_vec::<i32>()?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        Tensor::apply1(Contiguous, &[self])
    }
}

/// `shape`, with the open extent worked out, for the elements of `from`. Errors: Shape.
fn resolve(from: &Shape, shape: &[isize]) -> Result<Shape> {
    let bad = |why: &str| Error::new(ErrorKind::Shape, format!("shape {from} to {shape:?}: {why}"));
    let mut dims: SmallVec<[usize; 4]> = SmallVec::new();
    let mut open = None;
    for (i, &d) in shape.iter().enumerate() {
        match usize::try_from(d) {
            Ok(d) => dims.push(d),
            Err(_) if d == -1 && open.is_none() => {
                open = Some(i);
                dims.push(1);
            }
            Err(_) => return Err(bad("extents are non-negative, but for one -1")),
        }
    }
    let rest = Shape::from(&dims[..]).checked_elems()?;
    if let Some(i) = open {
        if rest == 0 || !from.elems().is_multiple_of(rest) {
            return Err(bad("the open extent does not come out"));
        }
        dims[i] = from.elems() / rest;
    } else if rest != from.elems() {
        return Err(bad("the numbers of elements differ"));
    }
    Ok(Shape::from(&dims[..]))
}
