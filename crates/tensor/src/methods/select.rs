//! Parts whose number follows from values. Each reads a count, so an eager program waits here, and a compiled function is
//! cut in two: see [`Tensor::as_size`].

use remat_ops::index::{NonZero, Take};
use remat_ops::shape::Reshape;
use remat_runtime::tracing;
use remat_types::{CallSite, DType, Error, ErrorKind, Result};

use crate::Tensor;
use crate::site::InOp;

impl Tensor {
    /// The number that an integer of one element is, to decide shapes by. Waits for it.
    ///
    /// Within a compiled function there is no number yet: the function is compiled up to here, that piece is run, and the
    /// function is traced again with the number that came. A trace ends here with an error, which has to be passed on (`?`);
    /// so what stands before runs several times while a function is compiled. For each number that comes the rest is
    /// compiled once; see [`CompileOptions::forms`](crate::CompileOptions::forms) and
    /// [`Symbols::and_sizes`](crate::Symbols::and_sizes).
    ///
    /// Errors: DType, Shape; Value for a negative number, and within the body of a loop, a branch or a call; as
    /// [`Tensor::to_host`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 2, 5], [4])?;
    /// let n = x.slice(0, 2..3)?.as_size()?;
    /// assert_eq!(x.narrow(0, 0, n)?.to_vec::<i32>()?, [3, 1]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn as_size(&self) -> Result<usize> {
        let site = CallSite::here();
        if !self.dtype().is_int() {
            let text = format!("a size is an integer, not {}", self.dtype());
            return Err(Error::new(ErrorKind::DType, text)).in_op_at("as_size", site);
        }
        if self.elems() != 1 {
            let text = format!("a size is one element, and shape {} has {}", self.shape(), self.elems());
            return Err(Error::new(ErrorKind::Shape, text)).in_op_at("as_size", site);
        }
        tracing::size(&self.handle, site).in_op_at("as_size", site)
    }

    /// The indices of the elements that are not 0, one row of I64 for each, in row-major order: `[count, rank]`. NaN is not
    /// 0. Reads the count: see [`Tensor::as_size`].
    ///
    /// Errors: those of [`Tensor::as_size`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 2.0, -1.0, 0.0], [2, 2])?;
    /// let places = x.nonzero()?;
    /// assert_eq!((places.dims(), places.to_vec::<i64>()?), (&[2, 2][..], vec![0, 1, 1, 0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "argwhere")]
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let site = CallSite::here();
        let x = self.detach();
        let is = if self.dtype() == DType::Bool { x.clone() } else { x.ne(0)? };
        let size = is.sum()?.as_size().in_op_at("nonzero", site)?;
        Tensor::apply1(NonZero { size }, &[&x])
    }

    /// The elements where `mask` is true, in row-major order, as a vector; both broadcast. Reads the count: see
    /// [`Tensor::as_size`]. The gradient goes to the chosen elements.
    ///
    /// Errors: DType for a mask that is not of bools; Shape; those of [`Tensor::as_size`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, -2.0, 3.0, -4.0], [2, 2])?;
    /// assert_eq!(x.masked_select(&x.lt(0.0)?)?.to_vec::<f32>()?, [-2.0, -4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        Ok(self.chosen(mask, "masked_select")?.0)
    }

    /// [`Tensor::masked_select`] with the indices of the chosen elements in the flat tensor, of I64. Errors: as there; both
    /// have one shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, -2.0, 3.0, -4.0], [2, 2])?;
    /// let (values, places) = x.cond_take(&x.lt(0.0)?)?;
    /// assert_eq!((values.to_vec::<f32>()?, places.to_vec::<i64>()?), (vec![-2.0, -4.0], vec![1, 3]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cond_take(&self, mask: &Tensor) -> Result<(Tensor, Tensor)> {
        if mask.shape() != self.shape() {
            let text = format!("a mask of shape {} for a tensor of shape {}", mask.shape(), self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("cond_take");
        }
        self.chosen(mask, "cond_take")
    }

    #[track_caller]
    fn chosen(&self, mask: &Tensor, op: &str) -> Result<(Tensor, Tensor)> {
        let site = CallSite::here();
        if mask.dtype() != DType::Bool {
            let text = format!("the mask is {}, not bool", mask.dtype());
            return Err(Error::new(ErrorKind::DType, text)).in_op_at(op, site);
        }
        let shape = self.shape().broadcast(mask.shape()).in_op_at(op, site)?;
        // a mask that is as it is has one sum, however often it is asked for
        let whole = |t: &Tensor| if *t.shape() == shape { Ok(t.clone()) } else { t.broadcast_to(&shape) };
        let flat = |t: &Tensor| Tensor::apply_owned(Reshape { shape: [shape.elems()].into() }, [whole(t)?]);
        let size = whole(mask)?.sum()?.as_size().in_op_at(op, site)?;
        let places = Tensor::apply1(NonZero { size }, &[&flat(mask)?])?;
        let places = Tensor::apply_owned(Reshape { shape: [size].into() }, [places])?;
        Ok((Tensor::apply1(Take { axis: 0 }, &[&flat(self)?, &places])?, places))
    }
}
