//! Rearranging elements: views wherever strides allow.

use remat_ops::shape::{BroadcastTo, Contiguous, Permute, Reshape};
use remat_types::{Error, ErrorKind, Result, Shape, SmallVec, axes_of, axis_of};

use crate::Tensor;
use crate::site::At;

impl Tensor {
    /// The same elements under another shape; one extent may be -1 and is worked out. Errors: Shape.
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Result<Tensor> {
        let shape = self.extents(shape).at("reshape")?;
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// `shape` with the open extent worked out.
    fn extents(&self, shape: &[isize]) -> Result<Shape> {
        let bad = |why: &str| Error::new(ErrorKind::Shape, format!("shape {} to {shape:?}: {why}", self.shape()));
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
        if let Some(i) = open {
            let rest = Shape::from(&dims[..]).checked_elems()?;
            if rest == 0 || !self.elems().is_multiple_of(rest) {
                return Err(bad("the open extent does not come out"));
            }
            dims[i] = self.elems() / rest;
        }
        Ok(Shape::from(&dims[..]))
    }

    /// Merges the axes from `first` on. Errors: Axis.
    #[track_caller]
    pub fn flatten_from(&self, first: usize) -> Result<Tensor> {
        if first > self.rank() {
            let text = format!("axis {first} is out of range for rank {}", self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).at("flatten");
        }
        let mut shape: Shape = self.dims()[..first].into();
        shape.push(self.dims()[first..].iter().product());
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// Axis `k` of the result is axis `order[k]`. Errors: Axis if that is no permutation.
    #[track_caller]
    pub fn permute(&self, order: &[usize]) -> Result<Tensor> {
        Tensor::apply1(Permute { order: SmallVec::from_slice(order) }, &[self])
    }

    /// Two axes exchanged. Errors: Axis.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let mut order: SmallVec<[usize; 4]> = (0..self.rank()).collect();
        let (a, b) = (axis_of(a, self.rank()).at("transpose")?, axis_of(b, self.rank()).at("transpose")?);
        order.swap(a, b);
        Tensor::apply1(Permute { order }, &[self])
    }

    /// The last two axes exchanged. Errors: Axis below rank 2.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        self.transpose(-2, -1)
    }

    /// Repeated along axes of extent 1 and new leading axes. Errors: Shape.
    #[track_caller]
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::apply1(BroadcastTo { shape: shape.into() }, &[self])
    }

    /// Without the axes of extent 1 that are named. Errors: Axis; Shape if one of them has another extent.
    #[track_caller]
    pub fn squeeze(&self, axes: &[isize]) -> Result<Tensor> {
        let axes = axes_of(axes, self.rank()).at("squeeze")?;
        if let Some(a) = axes.iter().find(|a| self.dims()[**a] != 1) {
            let text = format!("axis {a} of shape {} has not extent 1", self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).at("squeeze");
        }
        let shape = self.dims().iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| *d).collect();
        Tensor::apply1(Reshape { shape }, &[self])
    }

    /// With a new axis of extent 1 at `axis` of the result. Errors: Axis.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        let at = axis_of(axis, self.rank() + 1).at("unsqueeze")?;
        let mut dims: Vec<usize> = self.dims().to_vec();
        dims.insert(at, 1);
        Tensor::apply1(Reshape { shape: dims.into() }, &[self])
    }

    /// In row-major order without gaps: a copy if it is a view.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        Tensor::apply1(Contiguous, &[self])
    }
}
