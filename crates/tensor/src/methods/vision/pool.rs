//! Pooling over one, two and three axes: of windows that slide, and of adaptive ones; with the places of maxima, and back.

use remat_ops::pooling::{AvgPool2d, MaxPool2d, Windows};
use remat_ops::shape::Reshape;
use remat_ops::vision::{PoolIndices, Resample, ResampleRule};
use remat_types::{DType, Error, ErrorKind, Padding, Result, SmallVec};

use super::{product, rank_at_least, rank_is, wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// How the windows of a pool over `D` axes lie. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling<const D: usize> {
    /// Elements of a window along each axis.
    pub kernel: [usize; D],
    /// Places from one window to the next. [`Pooling::new`]: the kernel.
    pub stride: [usize; D],
    /// Places around the input, less than the window reaches over. Default: none.
    pub padding: Padding<D>,
    /// Places from one element of a window to the next. Default: 1.
    pub dilation: [usize; D],
    /// A window may begin within the input and end beyond its padding. Default: false.
    pub ceil_mode: bool,
}

/// The divisor of an average. The default is PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Divisor {
    /// The elements of the window within input and padding.
    #[default]
    WithPadding,
    /// Those within the input.
    WithoutPadding,
    /// This number.
    Of(usize),
}

impl<const D: usize> Pooling<D> {
    /// Windows side by side.
    pub fn new(kernel: [usize; D]) -> Pooling<D> {
        Pooling { kernel, stride: kernel, padding: Padding::NONE, dilation: [1; D], ceil_mode: false }
    }

    /// The number of windows along each axis of these extents. Errors: Value, Shape.
    fn windows(&self, size: &[usize]) -> Result<[usize; D]> {
        let mut out = [0; D];
        for a in 0..D {
            let (kernel, stride, dilation) = (self.kernel[a], self.stride[a], self.dilation[a]);
            if kernel == 0 || stride == 0 || dilation == 0 {
                let text = format!("a kernel of {kernel}, a stride of {stride}, a dilation of {dilation}: at least 1");
                return Err(wrong_value(text));
            }
            let [before, after] = self.padding.axis(a);
            let reach = (kernel - 1).saturating_mul(dilation).saturating_add(1);
            if before >= reach || after >= reach {
                let text = format!("padding {before} and {after} must be less than the {reach} places of a window");
                return Err(wrong_value(text));
            }
            let padded = product(&[size[a].saturating_add(before).saturating_add(after)])?;
            let Some(room) = padded.checked_sub(reach) else {
                let text = format!("a window of {reach} places does not fit {before} + {} + {after} elements", size[a]);
                return Err(wrong_shape(text));
            };
            out[a] = room / stride + 1;
            // a window of more begins within the input or the padding before it
            if self.ceil_mode && !room.is_multiple_of(stride) && out[a].saturating_mul(stride) < size[a] + before {
                out[a] += 1;
            }
        }
        Ok(out)
    }

    /// Places after the input that the last window needs.
    fn after(&self, a: usize, size: usize, out: usize) -> usize {
        let reach = (self.kernel[a] - 1) * self.dilation[a] + 1;
        ((out - 1) * self.stride[a] + reach).saturating_sub(size + self.padding.begin[a])
    }
}

impl Tensor {
    /// The largest element of each window of the last `D` axes, one to three: `[n, c, size..]` to `[n, c, out..]`, with `out
    /// = floor((size + padding - dilation (kernel - 1) - 1) / stride) + 1`, rounded up in ceil mode. Of any number dtype; NaN
    /// is the largest, and the first of equal ones gets the gradient.
    ///
    /// Errors: Axis unless of rank `D + 2`; DType for bools; Value for a kernel, stride or dilation of 0, or padding that is not
    /// less than what a window reaches over; Shape if no window fits.
    ///
    /// ```
    /// # use remat_tensor::{Pooling, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0, 5.0], [1, 1, 5])?;
    /// assert_eq!(x.max_pool(Pooling::new([2]))?.to_vec::<f32>()?, [2.0, 4.0]);
    /// let up = Pooling { ceil_mode: true, ..Pooling::new([2]) };
    /// assert_eq!(x.max_pool(up)?.to_vec::<f32>()?, [2.0, 4.0, 5.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool<const D: usize>(&self, pooling: Pooling<D>) -> Result<Tensor> {
        const NAME: &str = "max_pool";
        self.pooled_axes::<D>().in_op(NAME)?;
        let size = &self.dims()[2..];
        let out = pooling.windows(size).in_op(NAME)?;
        if D == 3 || pooling.dilation != [1; D] {
            return Ok(self.max_pool_with_indices(pooling).called(NAME)?.0);
        }
        // an image, or a line as one of a single row
        let (row, sides) = (D == 1, |a: usize| [pooling.padding.begin[a], pooling.after(a, size[a], out[a])]);
        let (down, across) = if row { ([1, 1], D - 1) } else { ([pooling.kernel[0], pooling.stride[0]], D - 1) };
        let [top, bottom] = if row { [0, 0] } else { sides(0) };
        let [left, right] = sides(across);
        let windows = Windows::Sliding {
            kernel: [down[0], pooling.kernel[across]],
            stride: [down[1], pooling.stride[across]],
            padding: [top, left, bottom, right],
        };
        if !row {
            return Tensor::apply1(MaxPool2d { windows }, &[self]).called(NAME);
        }
        let y = Tensor::apply_owned(MaxPool2d { windows }, [self.unsqueeze(2)?]).called(NAME)?;
        y.squeeze(&[2])
    }

    /// [`Tensor::max_pool`], and where each maximum lies in its plane of the input, in row-major order, as I64. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::{Pooling, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 4.0, 3.0], [1, 1, 4])?;
    /// let (y, places) = x.max_pool_with_indices(Pooling::new([2]))?;
    /// assert_eq!((y.to_vec::<f32>()?, places.to_vec::<i64>()?), (vec![2.0, 4.0], vec![1, 2]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool_with_indices<const D: usize>(&self, pooling: Pooling<D>) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "max_pool_with_indices";
        self.pooled_axes::<D>().in_op(NAME)?;
        let out = pooling.windows(&self.dims()[2..]).in_op(NAME)?;
        let op = PoolIndices {
            out: SmallVec::from_slice(&out),
            kernel: SmallVec::from_slice(&pooling.kernel),
            stride: SmallVec::from_slice(&pooling.stride),
            dilation: SmallVec::from_slice(&pooling.dilation),
            before: SmallVec::from_slice(&pooling.padding.begin),
        };
        self.peaks(op, NAME)
    }

    /// The largest element of each of `out` windows that cover each axis: `[n, c, size..]` to `[n, c, out..]`, and where it
    /// lies in its plane; window `o` is `floor(o size / out) .. ceil((o + 1) size / out)`. Errors: Axis, DType, Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 4.0, 3.0], [1, 1, 4])?;
    /// let (y, places) = x.adaptive_max_pool([3])?;
    /// assert_eq!((y.to_vec::<f32>()?, places.to_vec::<i64>()?), (vec![2.0, 4.0, 4.0], vec![1, 2, 2]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn adaptive_max_pool<const D: usize>(&self, out: [usize; D]) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "adaptive_max_pool";
        self.pooled_axes::<D>().in_op(NAME)?;
        let none = SmallVec::new;
        let out = SmallVec::from_slice(&out);
        self.peaks(PoolIndices { out, kernel: none(), stride: none(), dilation: none(), before: none() }, NAME)
    }

    /// The elements at the places that `op` finds, and those.
    #[track_caller]
    fn peaks(&self, op: PoolIndices, name: &str) -> Result<(Tensor, Tensor)> {
        let places = Tensor::apply1(op, &[&self.detach()]).called(name)?;
        let lead = &self.dims()[..2];
        let flat = |x: &Tensor| {
            let elems = product(&x.dims()[2..])?;
            Tensor::apply1(Reshape { shape: [lead[0], lead[1], elems].into() }, &[x])
        };
        let y = flat(self)?.gather(2, &flat(&places)?).called(name)?;
        Ok((Tensor::apply_owned(Reshape { shape: places.shape().clone() }, [y])?, places))
    }

    /// Zeros with the elements in the places that [`Tensor::max_pool_with_indices`] gave: `[n, c, out..]` to `[n, c,
    /// size..]`. The last one stays where several have one place. Errors: Axis, Shape, DType; at run time, Index for a place
    /// beyond `size`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[2.0, 4.0], [1, 1, 2])?;
    /// let places = Tensor::new(&device, &[1i64, 2], [1, 1, 2])?;
    /// assert_eq!(x.max_unpool(&places, [4])?.to_vec::<f32>()?, [0.0, 2.0, 4.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn max_unpool<const D: usize>(&self, indices: &Tensor, size: [usize; D]) -> Result<Tensor> {
        const NAME: &str = "max_unpool";
        self.pooled_axes::<D>().in_op(NAME)?;
        if indices.shape() != self.shape() {
            let text = format!("places of shape {} for elements of shape {}", indices.shape(), self.shape());
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let (n, c) = (self.dims()[0], self.dims()[1]);
        let places = product(&self.dims()[2..]).in_op(NAME)?;
        let flat = |x: &Tensor| Tensor::apply1(Reshape { shape: [n, c, places].into() }, &[x]);
        let pixels = product(&size).in_op(NAME)?;
        let zeros = Tensor::zeros(&self.device(), [n, c, pixels], self.dtype()).in_op(NAME)?;
        let y = zeros.scatter(2, &flat(indices)?, flat(self)?).called(NAME)?;
        let shape = [n, c].into_iter().chain(size).collect();
        Tensor::apply_owned(Reshape { shape }, [y])
    }

    /// The mean of each window of the last `D` axes, one to three, or its sum by [`Divisor::Of`] a number: `[n, c, size..]` to
    /// `[n, c, out..]`, whose extents are those of [`Tensor::max_pool`].
    ///
    /// Errors: as there, and DType for other than floats; Value for a divisor of 0.
    ///
    /// ```
    /// # use remat_tensor::{Divisor, Pooling, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0], [1, 1, 3])?;
    /// let padded = Pooling { padding: [1].into(), ..Pooling::new([2]) };
    /// assert_eq!(x.avg_pool(padded, Divisor::WithPadding)?.to_vec::<f32>()?, [0.5, 2.5]);
    /// assert_eq!(x.avg_pool(padded, Divisor::WithoutPadding)?.to_vec::<f32>()?, [1.0, 2.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool<const D: usize>(&self, pooling: Pooling<D>, divisor: Divisor) -> Result<Tensor> {
        const NAME: &str = "avg_pool";
        self.pooled_axes::<D>().in_op(NAME)?;
        let size = &self.dims()[2..];
        let out = pooling.windows(size).in_op(NAME)?;
        if divisor == Divisor::Of(0) {
            return Err(wrong_value("a divisor of 0".to_owned())).in_op(NAME);
        }
        let whole = (0..D).all(|a| pooling.after(a, size[a], out[a]) <= pooling.padding.end[a]);
        if D == 2 && pooling.dilation == [1; D] && whole && !matches!(divisor, Divisor::Of(_)) {
            let [top, bottom] = pooling.padding.axis(0);
            let [left, right] = pooling.padding.axis(1);
            let windows = Windows::Sliding {
                kernel: [pooling.kernel[0], pooling.kernel[1]],
                stride: [pooling.stride[0], pooling.stride[1]],
                padding: [top, left, bottom, right],
            };
            let count_include_pad = divisor == Divisor::WithPadding;
            return Tensor::apply1(AvgPool2d { windows, count_include_pad }, &[self]).called(NAME);
        }
        let sums = self.window_sums(pooling, out).called(NAME)?;
        let y = match divisor {
            Divisor::Of(n) => sums / n as f64,
            _ => {
                let mut counts: Option<Tensor> = None;
                for a in 0..D {
                    let count =
                        self.window_counts(&pooling, a, out[a], divisor == Divisor::WithPadding, sums.dtype())?;
                    let mut shape = vec![1isize; D];
                    shape[a] = -1;
                    let count = count.reshape(&shape)?;
                    counts = Some(counts.map_or(Ok(count.clone()), |all| all * count)?);
                }
                match counts {
                    Some(counts) => sums / counts,
                    None => Ok(sums),
                }
            }
        };
        y?.cast(self.dtype())
    }

    /// The sum of each window, in f32 or f64. Errors: DType.
    #[track_caller]
    fn window_sums<const D: usize>(&self, pooling: Pooling<D>, out: [usize; D]) -> Result<Tensor> {
        let wide = matches!(self.dtype(), DType::F16 | DType::BF16);
        let mut x = if wide { self.cast(DType::F32)? } else { self.clone() };
        for a in (0..D).rev() {
            let rule = ResampleRule::Sum {
                kernel: pooling.kernel[a],
                stride: pooling.stride[a],
                dilation: pooling.dilation[a],
                before: pooling.padding.begin[a],
            };
            let op = Resample { axis: a + 2, size: self.dims()[a + 2], out: out[a], rule, transposed: false };
            x = Tensor::apply_owned(op, [x])?;
        }
        Ok(x)
    }

    /// The elements of each window along axis `a` within the input, and within its padding if that counts: `[out]`.
    #[track_caller]
    fn window_counts<const D: usize>(
        &self,
        pooling: &Pooling<D>,
        a: usize,
        out: usize,
        with_padding: bool,
        dtype: DType,
    ) -> Result<Tensor> {
        let [before, after] = pooling.padding.axis(a);
        let extent = self.dims()[a + 2];
        let (size, before) = if with_padding { (extent + before + after, 0) } else { (extent, before) };
        let (kernel, stride, dilation) = (pooling.kernel[a], pooling.stride[a], pooling.dilation[a]);
        let rule = ResampleRule::Sum { kernel, stride, dilation, before };
        let op = Resample { axis: 0, size, out, rule, transposed: false };
        Tensor::apply_owned(op, [Tensor::ones(&self.device(), [size], dtype)?])
    }

    /// The mean of each of `out` windows that cover each axis: `[n, c, size..]` to `[n, c, out..]`; window `o` is
    /// `floor(o size / out) .. ceil((o + 1) size / out)`. Errors: Axis; DType for other than floats; Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 4.0, 3.0], [1, 1, 4])?;
    /// assert_eq!(x.adaptive_avg_pool([2])?.to_vec::<f32>()?, [1.5, 3.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn adaptive_avg_pool<const D: usize>(&self, out: [usize; D]) -> Result<Tensor> {
        const NAME: &str = "adaptive_avg_pool";
        self.pooled_axes::<D>().in_op(NAME)?;
        if D == 2 {
            let windows = Windows::Adaptive { size: [out[0], out[1]] };
            return Tensor::apply1(AvgPool2d { windows, count_include_pad: false }, &[self]).called(NAME);
        }
        let wide = matches!(self.dtype(), DType::F16 | DType::BF16);
        let mut x = if wide { self.cast(DType::F32)? } else { self.clone() };
        for a in (0..D).rev() {
            let (axis, size) = (a + 2, self.dims()[a + 2]);
            let op = Resample { axis, size, out: out[a], rule: ResampleRule::Mean, transposed: false };
            x = Tensor::apply_owned(op, [x]).called(NAME)?;
        }
        x.cast(self.dtype())
    }

    /// `(sum x^p)^(1 / p)` of each window, the `p`-norm of numbers that are not negative, as PyTorch's `lp_pool`; NaN for a sum
    /// below 0. Errors: as [`Tensor::avg_pool`], and Value for a `p` that is not above 0.
    ///
    /// ```
    /// # use remat_tensor::{Pooling, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 4.0, 0.0, 1.0], [1, 1, 4])?;
    /// assert_eq!(x.lp_pool(2.0, Pooling::new([2]))?.to_vec::<f32>()?, [5.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn lp_pool<const D: usize>(&self, p: f64, pooling: Pooling<D>) -> Result<Tensor> {
        const NAME: &str = "lp_pool";
        if !(p > 0.0 && p.is_finite()) {
            return Err(wrong_value(format!("p is {p}, must be above 0"))).in_op(NAME);
        }
        self.pooled_axes::<D>().in_op(NAME)?;
        let out = pooling.windows(&self.dims()[2..]).in_op(NAME)?;
        let wide = matches!(self.dtype(), DType::F16 | DType::BF16);
        let x = if wide { self.cast(DType::F32)? } else { self.clone() };
        let sums = x.pow(p)?.window_sums(pooling, out).called(NAME)?;
        sums.pow(1.0 / p)?.cast(self.dtype())
    }

    /// The mean over all spatial axes, which stay with extent 1. Errors: Axis below rank 3; Shape for images without pixels.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 6.0], [1, 1, 2, 2])?;
    /// assert_eq!(x.global_avg_pool()?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn global_avg_pool(&self) -> Result<Tensor> {
        rank_at_least(self, 3).in_op("global_avg_pool")?;
        self.mean_over(&(2..self.rank() as isize).collect::<Vec<_>>(), true).called("global_avg_pool")
    }

    /// The largest element over all spatial axes, which stay with extent 1; ties share the gradient. Errors: as
    /// [`Tensor::global_avg_pool`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 6.0], [1, 1, 2, 2])?;
    /// assert_eq!(x.global_max_pool()?.to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn global_max_pool(&self) -> Result<Tensor> {
        rank_at_least(self, 3).in_op("global_max_pool")?;
        self.max_over(&(2..self.rank() as isize).collect::<Vec<_>>(), true).called("global_max_pool")
    }

    /// Errors: Axis unless there are `D` spatial axes, one to three.
    fn pooled_axes<const D: usize>(&self) -> Result<()> {
        if !(1..=3).contains(&D) {
            return Err(Error::new(ErrorKind::Axis, format!("pools over {D} axes, not 1 to 3")));
        }
        rank_is(self, D + 2)
    }
}
