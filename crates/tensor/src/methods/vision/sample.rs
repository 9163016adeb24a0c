//! Images read at points: grids, warps, rotations. All make points, and one operator reads there.

use remat_ops::shape::Reshape;
use remat_ops::vision::{Between, Beyond, SamplePoints};
use remat_types::{DType, Error, ErrorKind, Result, Shape, SmallVec};

use super::{product, rank_is, wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// The dtype of points that lie on an image of a dtype: f64 of f64, else f32.
pub(super) fn point_dtype(of: DType) -> DType {
    if of == DType::F64 { DType::F64 } else { DType::F32 }
}

/// How a warp reads the image. The defaults are MegEngine's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warp {
    /// The value between pixels. Default: [`Between::Linear`].
    pub between: Between,
    /// The value beyond the image. Default: [`Beyond::Edge`], the last pixel.
    pub beyond: Beyond,
    /// The value beyond the image for [`Beyond::Zeros`]. Default: 0.
    pub fill: f64,
}

impl Default for Warp {
    fn default() -> Self {
        Warp { between: Between::Linear, beyond: Beyond::Edge, fill: 0.0 }
    }
}

impl Tensor {
    /// Image `batch[k]` of `self: [n, c, size..]` at `points: [k, p, axes]`, in pixels: `[k, c, p]`.
    #[track_caller]
    pub(super) fn at_points(&self, points: &Tensor, batch: &Tensor, warp: Warp) -> Result<Tensor> {
        let Warp { between, beyond, fill } = warp;
        let op = SamplePoints { between, beyond, orders: SmallVec::new() };
        if fill == 0.0 || beyond != Beyond::Zeros {
            return Tensor::apply1(op, &[self, points, batch]);
        }
        Tensor::apply1(op, &[&(self - fill)?, points, batch])? + fill
    }

    /// The numbers of the images of a batch.
    #[track_caller]
    pub(super) fn batch_numbers(&self, n: usize) -> Result<Tensor> {
        Tensor::arange(&self.device(), 0, i64::try_from(n).unwrap_or(i64::MAX), 1, DType::I64)
    }

    /// Each image at the points of its grid: `self: [n, c, size..]` with two or three spatial axes, `grid: [n, out.., axes]`,
    /// to `[n, c, out..]`. Coordinates stand last axis first (x, y, z) and run from -1 to 1 over the image: from edge to
    /// edge, or if `align_corners` from the middle of the first pixel to that of the last. [`Beyond::Reflect`] reflects where
    /// -1 and 1 are, as PyTorch's `reflection`.
    ///
    /// Errors: Axis; Shape for another batch or number of coordinates; DType for other than floats; Value for cubic of three
    /// axes.
    ///
    /// ```
    /// # use remat_tensor::{Between, Beyond, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let grid = Tensor::new(&device, &[0.0, 0.0, 1.0, -1.0], [1, 1, 2, 2])?;
    /// let y = x.grid_sample(&grid, Between::Linear, Beyond::Zeros, true)?;
    /// assert_eq!(y.to_vec::<f32>()?, [2.5, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn grid_sample(&self, grid: &Tensor, between: Between, beyond: Beyond, align_corners: bool) -> Result<Tensor> {
        const NAME: &str = "grid_sample";
        if !(4..=5).contains(&self.rank()) {
            let text = format!("x has shape {}: rank {}, not 4 or 5", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op(NAME);
        }
        let (axes, n) = (self.rank() - 2, self.dims()[0]);
        rank_is(grid, self.rank()).in_op(NAME)?;
        let (out, last) = (&grid.dims()[1..=axes], grid.dims()[axes + 1]);
        if grid.dims()[0] != n || last != axes {
            let text = format!("a grid of shape {} for images of shape {}", grid.shape(), self.shape());
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let real = point_dtype(self.dtype());
        let (scale, shift): (Vec<f64>, Vec<f64>) = self.dims()[2..]
            .iter()
            .map(|&size| {
                let half = size as f64 / 2.0;
                if align_corners { (half - 0.5, half - 0.5) } else { (half, half - 0.5) }
            })
            .unzip();
        let of = |v: Vec<f64>| Tensor::from_slice(&self.device(), &v, [axes])?.cast(real);
        let p = product(out).in_op(NAME)?;
        let flat = Tensor::apply1(Reshape { shape: [n, p, axes].into() }, &[grid])?.flip(&[2])?.cast(real)?;
        let points = ((flat * of(scale)?)? + of(shift)?)?;
        let beyond = match beyond {
            Beyond::Reflect if !align_corners => Beyond::ReflectEdge,
            beyond => beyond,
        };
        let warp = Warp { between, beyond, fill: 0.0 };
        let y = self.at_points(&points, &self.batch_numbers(n)?, warp).called(NAME)?;
        let shape: Shape = [n, self.dims()[1]].into_iter().chain(out.iter().copied()).collect();
        Tensor::apply_owned(Reshape { shape }, [y])
    }

    /// The grid for [`Tensor::grid_sample`] that an affine map makes: `self: [n, axes, axes + 1]` maps the coordinates of an
    /// output of extents `size`, one for each axis, to `[n, size.., axes]` (Jaderberg et al., NeurIPS 2015). Errors: Axis;
    /// Shape; DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let theta = Tensor::new(&device, &[1.0, 0.0, 0.5, 0.0, 1.0, 0.0], [1, 2, 3])?;
    /// let grid = theta.affine_grid(&[1, 2], true)?;
    /// assert_eq!((grid.dims(), grid.to_vec::<f32>()?), (&[1, 1, 2, 2][..], vec![-0.5, 0.0, 1.5, 0.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        const NAME: &str = "affine_grid";
        rank_is(self, 3).in_op(NAME)?;
        let axes = size.len();
        if self.dims()[1..] != [axes, axes + 1] || !(2..=3).contains(&axes) {
            let text = format!("maps of shape {} for an output of {axes} axes", self.shape());
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let along = |n: usize| -> Result<Tensor> {
            let i = Tensor::arange(&self.device(), 0, i64::try_from(n).unwrap_or(i64::MAX), 1, DType::I64)?;
            let i = i.cast(self.dtype())?;
            match (align_corners, n) {
                (true, 0 | 1) => i * 0.0,
                (true, n) => (i * (2.0 / (n - 1) as f64))? - 1.0,
                (false, n) => (((i * 2.0)? + 1.0)? / n.max(1) as f64)? - 1.0,
            }
        };
        let mut base = size.iter().map(|n| along(*n)).collect::<Result<Vec<_>>>()?;
        // the last axis stands first
        base.reverse();
        let n = self.dims()[0];
        let points = self.mapped(&base, size).called(NAME)?;
        let shape: Shape = [n].into_iter().chain(size.iter().copied()).chain([axes]).collect();
        Tensor::apply_owned(Reshape { shape }, [points])
    }

    /// The points of a grid of extents `size` under the maps `self: [n, rows, axes + 1]`: `[n, p, rows]`. `base` has the
    /// coordinates along each axis, the last axis first.
    #[track_caller]
    fn mapped(&self, base: &[Tensor], size: &[usize]) -> Result<Tensor> {
        let (axes, p) = (size.len(), product(size)?);
        let mut columns = Vec::with_capacity(axes + 1);
        for (k, line) in base.iter().enumerate() {
            let mut shape = vec![1isize; axes];
            shape[axes - 1 - k] = -1;
            let whole = line.reshape(&shape)?.broadcast_to(size)?;
            columns.push(Tensor::apply_owned(Reshape { shape: [p].into() }, [whole])?);
        }
        columns.push(Tensor::ones(&self.device(), [p], self.dtype())?);
        let grid = Tensor::stack(&columns.iter().collect::<Vec<_>>(), 0)?;
        self.matmul(&grid)?.transpose(1, 2)
    }

    /// The pixels `0 .. out` of two axes under `maps: [k, rows, 3]`, which take (x, y, 1): `[k, p, rows]`.
    #[track_caller]
    fn pixels_under(&self, maps: &Tensor, out: [usize; 2]) -> Result<Tensor> {
        let real = point_dtype(self.dtype());
        let line = |n: usize| {
            let end = i64::try_from(n).unwrap_or(i64::MAX);
            Tensor::arange(&self.device(), 0, end, 1, DType::I64)?.cast(real)
        };
        maps.cast(real)?.mapped(&[line(out[1])?, line(out[0])?], &out)
    }

    /// Each image under an affine map from pixels of the output to pixels of the image: output (x, y) reads `(m00 x + m01 y +
    /// m02, m10 x + m11 y + m12)`. `self: [n, c, h, w]`, `maps: [n, 2, 3]`, to `[n, c, out..]`. Errors: Axis, Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, Warp};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let shift = Tensor::new(&device, &[1.0, 0.0, 0.5, 0.0, 1.0, 0.0], [1, 2, 3])?;
    /// assert_eq!(x.warp_affine(&shift, [2, 2], Warp::default())?.to_vec::<f32>()?, [1.5, 2.0, 3.5, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn warp_affine(&self, maps: &Tensor, out: [usize; 2], warp: Warp) -> Result<Tensor> {
        const NAME: &str = "warp_affine";
        rank_is(self, 4).in_op(NAME)?;
        let n = self.dims()[0];
        if maps.dims() != [n, 2, 3] {
            return Err(wrong_shape(format!("maps of shape {}, not [{n}, 2, 3]", maps.shape()))).in_op(NAME);
        }
        let points = self.pixels_under(maps, out).called(NAME)?.flip(&[2])?;
        self.read_image(&points, None, out, warp).called(NAME)
    }

    /// Each image under a projective map from pixels of the output to pixels of the image: output (x, y) reads `(u / w, v /
    /// w)` with `(u, v, w) = m (x, y, 1)`. `self: [n, c, h, w]`, `maps: [k, 3, 3]`, to `[k, c, out..]`; map `k` is of image
    /// `mat_idx[k]`, of I64, or without that of image `k`. Errors: Axis, Shape, DType; at run time, Index for an image that
    /// is none.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, Warp};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let half = Tensor::new(&device, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0], [1, 3, 3])?;
    /// let y = x.warp_perspective(&half, None, [1, 2], Warp::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn warp_perspective(
        &self,
        maps: &Tensor,
        mat_idx: Option<&Tensor>,
        out: [usize; 2],
        warp: Warp,
    ) -> Result<Tensor> {
        const NAME: &str = "warp_perspective";
        rank_is(self, 4).in_op(NAME)?;
        rank_is(maps, 3).in_op(NAME)?;
        let k = maps.dims()[0];
        if maps.dims()[1..] != [3, 3] || (mat_idx.is_none() && k != self.dims()[0]) {
            let text = format!("maps of shape {} for images of shape {}", maps.shape(), self.shape());
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let points = self.pixels_under(maps, out).called(NAME)?;
        let (plane, depth) = (points.narrow(2, 0, 2)?.flip(&[2])?, points.narrow(2, 2, 1)?);
        self.read_image(&(plane / depth)?, mat_idx, out, warp).called(NAME)
    }

    /// Each image at the pixels that a map names: `self: [n, c, h, w]`, `map_xy: [n, oh, ow, 2]` of (x, y), to `[n, c, oh, ow]`.
    /// Errors: Axis, Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, Warp};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let map = Tensor::new(&device, &[0.5, 1.0], [1, 1, 1, 2])?;
    /// assert_eq!(x.remap(&map, Warp::default())?.to_vec::<f32>()?, [3.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn remap(&self, map_xy: &Tensor, warp: Warp) -> Result<Tensor> {
        const NAME: &str = "remap";
        rank_is(self, 4).in_op(NAME)?;
        rank_is(map_xy, 4).in_op(NAME)?;
        let [n, oh, ow, two] = map_xy.dims_n()?;
        if n != self.dims()[0] || two != 2 {
            let text = format!("a map of shape {} for images of shape {}", map_xy.shape(), self.shape());
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let flat = Tensor::apply1(Reshape { shape: [n, oh * ow, 2].into() }, &[map_xy])?;
        let points = flat.flip(&[2])?.cast(point_dtype(self.dtype()))?;
        self.read_image(&points, None, [oh, ow], warp).called(NAME)
    }

    /// Each image turned counterclockwise by `degrees` about its middle, in the frame of the old one: `[n, c, h, w]`. Errors:
    /// Axis; DType; Value for an angle that is not finite.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, Warp};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let y = x.rotate(90.0, Warp::default())?.to_vec::<f32>()?;
    /// assert!(y.iter().zip([2.0, 4.0, 1.0, 3.0]).all(|(a, b)| (a - b).abs() < 1e-5));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rotate(&self, degrees: f64, warp: Warp) -> Result<Tensor> {
        const NAME: &str = "rotate";
        rank_is(self, 4).in_op(NAME)?;
        if !degrees.is_finite() {
            return Err(wrong_value(format!("an angle of {degrees}"))).in_op(NAME);
        }
        let [n, _, h, w] = self.dims_n()?;
        let (sin, cos) = degrees.to_radians().sin_cos();
        let (x, y) = ((w as f64 - 1.0) / 2.0, (h as f64 - 1.0) / 2.0);
        // rows grow downwards: what turns the picture to the left reads to the right
        let map = [cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y];
        let real = point_dtype(self.dtype());
        let maps = Tensor::from_slice(&self.device(), &map, [1, 2, 3])?.cast(real)?.broadcast_to([n, 2, 3])?;
        let points = self.pixels_under(&maps, [h, w]).called(NAME)?.flip(&[2])?;
        self.read_image(&points, None, [h, w], warp).called(NAME)
    }

    #[track_caller]
    fn read_image(&self, points: &Tensor, batch: Option<&Tensor>, out: [usize; 2], warp: Warp) -> Result<Tensor> {
        let k = points.dims()[0];
        let batch = match batch {
            Some(batch) => batch.clone(),
            None => self.batch_numbers(k)?,
        };
        let y = self.at_points(points, &batch, warp)?;
        Tensor::apply_owned(Reshape { shape: [k, self.dims()[1], out[0], out[1]].into() }, [y])
    }
}
