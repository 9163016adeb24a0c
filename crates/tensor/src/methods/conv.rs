//! Convolution over one, two and three axes. One operator serves them all: a line is an image of one row, and the taps
//! along a volume's depth are channels of its frames.

use remat_ops::Op;
use remat_ops::conv::{Conv2d, Taps};
use remat_ops::shape::{Reshape, Slice};
use remat_types::{Error, ErrorKind, Fact, Result, Shape};

use crate::Tensor;
use crate::site::InOp;

/// The extents of a tensor of rank `N`. Errors: Axis.
pub(super) fn extents<const N: usize>(t: &Tensor, name: &str) -> Result<[usize; N]> {
    t.dims()
        .try_into()
        .map_err(|_| Error::new(ErrorKind::Axis, format!("{name} has shape {}: rank {}, not {N}", t.shape(), t.rank())))
}

/// What `op` makes of two tensors seen as images of these extents; nothing is computed. Errors: those of its inference.
pub(super) fn image_of(op: &impl Op, x: (&Tensor, [usize; 4]), weight: (&Tensor, [usize; 4])) -> Result<[usize; 4]> {
    let [x, weight] = [x, weight].map(|(t, dims)| Fact::new(t.dtype(), dims));
    let y = op.infer(&[&x, &weight])?;
    Ok([0, 1, 2, 3].map(|a| y[0].shape[a]))
}

/// The extents of a convolution of volumes. Errors: Axis, Shape, DType, Value.
fn volume_of(x: &Tensor, weight: &Tensor, taps: Taps<3>) -> Result<[usize; 5]> {
    let [n, c, d, h, w] = extents(x, "x")?;
    let [k, group_c, t, r, s] = extents(weight, "the weight")?;
    let down = Conv2d { taps: taps.down() };
    let [_, _, od, _] = image_of(&down, (x, [n, c, d, 1]), (weight, [k, group_c, t, 1]))?;
    // extents that saturate are refused as too large
    let frames = [n.saturating_mul(od), c.saturating_mul(t), h, w];
    let kernel = [k, group_c.saturating_mul(t), r, s];
    let [_, _, oh, ow] = image_of(&Conv2d { taps: taps.plane() }, (x, frames), (weight, kernel))?;
    Ok([n, k, od, oh, ow])
}

impl Tensor {
    /// Cross-correlation over one axis: `self: [n, c, l]`, `weight: [k, c / groups, s]`, to `[n, k, ol]`; see [`Conv2d`].
    /// Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Taps;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 4])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0], [1, 1, 2])?;
    /// assert_eq!(x.conv1d(&weight, Taps::PLAIN)?.to_vec::<f64>()?, [21.0, 32.0, 43.0]);
    /// let taps = Taps { stride: [2], padding: [1], ..Taps::PLAIN };
    /// assert_eq!(x.conv1d(&weight, taps)?.to_vec::<f64>()?, [10.0, 32.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, taps: Taps<1>) -> Result<Tensor> {
        let [n, c, l] = extents(self, "x").in_op("conv1d")?;
        let [k, group_c, s] = extents(weight, "the weight").in_op("conv1d")?;
        let (op, x, w) = (Conv2d { taps: taps.across() }, [n, c, 1, l], [k, group_c, 1, s]);
        let [_, _, _, ol] = image_of(&op, (self, x), (weight, w)).in_op("conv1d")?;
        Tensor::apply_owned(op, [self.shaped(x)?, weight.shaped(w)?])?.shaped([n, k, ol])
    }

    /// Cross-correlation: `self: [n, c, h, w]`, `weight: [k, c / groups, r, s]`, to `[n, k, oh, ow]`; see [`Conv2d`]. Errors:
    /// Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Taps;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0], [1, 1, 1, 2])?;
    /// assert_eq!(x.conv2d(&weight, Taps::PLAIN)?.to_vec::<f64>()?, [21.0, 43.0]);
    /// let taps = Taps { padding: [0, 1], ..Taps::PLAIN };
    /// assert_eq!(x.conv2d(&weight, taps)?.to_vec::<f64>()?, [10.0, 21.0, 2.0, 30.0, 43.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, taps: Taps) -> Result<Tensor> {
        Tensor::apply1(Conv2d { taps }, &[self, weight])
    }

    /// Cross-correlation over three axes: `self: [n, c, d, h, w]`, `weight: [k, c / groups, t, r, s]`, to
    /// `[n, k, od, oh, ow]`; depth, height, width, see [`Conv2d`]. Errors: Axis, Shape, DType, Value.
    ///
    /// The `t` input frames of an output frame are gathered as its channels, and one convolution of images follows. The
    /// gathered copy has about `t / stride` times the bytes of the input, as much again while it is made, and is kept for
    /// the weight's gradient; under a budget it is dropped and made again like any value. Kernels of `[t, 1, 1]` that leave
    /// height and width as they are gather nothing.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Taps;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1, 1, 3, 1, 2])?;
    /// let weight = Tensor::new(&device, &[1.0, 10.0, 100.0, 1000.0], [1, 1, 2, 1, 2])?;
    /// let y = x.conv3d(&weight, Taps::PLAIN)?;
    /// assert_eq!((y.dims(), y.to_vec::<f64>()?), (&[1, 1, 2, 1, 1][..], vec![4321.0, 6543.0]));
    /// let taps = Taps { stride: [2, 1, 1], padding: [1, 0, 0], ..Taps::PLAIN };
    /// assert_eq!(x.conv3d(&weight, taps)?.to_vec::<f64>()?, [2100.0, 6543.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn conv3d(&self, weight: &Tensor, taps: Taps<3>) -> Result<Tensor> {
        let [n, k, od, oh, ow] = volume_of(self, weight, taps).in_op("conv3d")?;
        let ([_, c, d, h, w], [_, group_c, t, r, s]) = (extents(self, "x")?, extents(weight, "the weight")?);
        let (down, plane) = (Conv2d { taps: taps.down() }, Conv2d { taps: taps.plane() });
        if ([r, s], plane.taps.stride, plane.taps.padding) == ([1, 1], [1, 1], [0, 0]) {
            // frames as rows; one may be too long for an axis of the operator
            let (x, w) = ([n, c, d, h * w], [k, group_c, t, 1]);
            if image_of(&down, (self, x), (weight, w)).is_ok() {
                return Tensor::apply_owned(down, [self.shaped(x)?, weight.shaped(w)?])?.shaped([n, k, od, oh, ow]);
            }
        }
        let x = self.frames_of_outputs(down.taps, t, od)?.shaped([n * od, c * t, h, w])?;
        let y = Tensor::apply_owned(plane, [x, weight.shaped([k, group_c * t, r, s])?])?;
        y.shaped([n, od, k, oh, ow])?.permute(&[0, 2, 1, 3, 4])
    }

    /// Of `[n, c, d, h, w]`, the `t` frames that each of `od` output frames reads: `[n, od, c, t, h, w]`, so that the
    /// channels of a group stay together and the weight is only reshaped.
    #[track_caller]
    fn frames_of_outputs(&self, down: Taps, t: usize, od: usize) -> Result<Tensor> {
        let ([stride, _], [padding, _], [dilation, _]) = (down.stride, down.padding, down.dilation);
        let x = match padding {
            0 => self.clone(),
            p => self.pad(&[(0, 0), (0, 0), (p, p), (0, 0), (0, 0)], 0)?,
        };
        let frames = |start, len, step: usize| {
            let step = isize::try_from(step).map_err(|_| Error::new(ErrorKind::Shape, "the stride is too large"))?;
            Tensor::apply1(Slice { axis: 2, start, len, step }, &[&x])
        };
        if t == 1 || (stride, dilation) == (t, 1) {
            // no frame is read twice: a view
            let [n, c, _, h, w] = extents(&x, "x")?;
            let side_by_side = frames(0, od * t, if t == 1 { stride } else { 1 })?;
            return side_by_side.shaped([n, c, od, t, h, w])?.permute(&[0, 2, 1, 3, 4, 5]);
        }
        let taps = (0..t).map(|i| frames(i * dilation, od, stride)?.permute(&[0, 2, 1, 3, 4]));
        let taps = taps.collect::<Result<Vec<_>>>()?;
        Tensor::stack(&taps.iter().collect::<Vec<_>>(), 3)
    }

    /// The same elements under another shape.
    #[track_caller]
    pub(super) fn shaped(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::apply1(Reshape { shape: shape.into() }, &[self])
    }
}
