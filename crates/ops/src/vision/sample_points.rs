use remat_kernels::float::FloatElement;
use remat_kernels::vision::{self, MAX_AXES, Points};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, SmallVec, for_float, smallvec};
use serde::{Deserialize, Serialize};

use crate::args::{checked_fact, not_taken, real_dtype, want_dtype, want_float, want_shape};
use crate::compose::{Arith, cast, permuted, shaped};
use crate::host::arity;
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::shape::Concat;
use crate::{Apply, Cost, EvalCx, GradCx, Grads, In, Op, OpDef, Sample, Var};

/// The value between pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Between {
    /// The nearest pixel; of two the even one.
    Nearest,
    /// The neighbours along each axis, weighted by nearness.
    Linear,
    /// Four neighbours along each axis and Keys' kernel with a = -0.75; of at most two axes.
    Cubic,
}

/// The value beyond the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beyond {
    /// Zeros.
    Zeros,
    /// The last pixel.
    Edge,
    /// The image reflected at the middle of its last pixel.
    Reflect,
    /// The image reflected at the outer edge of its last pixel.
    ReflectEdge,
    /// The image again.
    Wrap,
}

/// How often the value is differentiated along each axis; none is as good as zeros.
type Orders = SmallVec<[usize; 4]>;

/// `(x, points, batch) -> y`: each image read at points between its pixels.
///
/// `x: [n, c, size..]` with one to three spatial axes, `points: [k, p, axes]` in pixels, in the order of the axes, 0 for the
/// middle of the first one, of f32 (f64 of f64), `batch: [k]`, of I64, says which image group `k` reads; `y: [k, c, p]`. A
/// point that is not finite reads 0.
///
/// Errors: Axis; DType; Shape; Value for `Cubic` of three axes, or orders of other axes; Index, at run time, for an image that is
/// none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, points: float, batch: int), gradient(x, points))]
pub struct SamplePoints {
    /// The value between pixels.
    pub between: Between,
    /// The value beyond the image.
    pub beyond: Beyond,
    /// How often the value is differentiated along each axis; none is as good as zeros.
    #[param(default = SmallVec::new())]
    pub orders: SmallVec<[usize; 4]>,
}

/// The parameters that all three ops have.
#[derive(Clone, Copy)]
struct Way<'o> {
    between: Between,
    beyond: Beyond,
    orders: &'o [usize],
}

impl Way<'_> {
    /// Errors: Axis, DType, Shape, Value.
    fn check(&self, size: &[usize], dtype: DType, points: &Fact, batch: &Fact) -> Result<()> {
        let axes = size.len();
        if !(1..=MAX_AXES).contains(&axes) {
            return Err(Error::new(ErrorKind::Axis, format!("{axes} spatial axes, not 1 to {MAX_AXES}")));
        }
        if self.between == Between::Cubic && axes == MAX_AXES {
            return Err(Error::new(ErrorKind::Value, "cubic between pixels of three axes"));
        }
        if !self.orders.is_empty() && self.orders.len() != axes {
            return Err(Error::new(ErrorKind::Value, format!("{} orders for {axes} axes", self.orders.len())));
        }
        want_dtype(points, real_dtype(dtype), "points")?;
        if points.rank() != 3 || points.shape[2] != axes {
            let text = format!("points have shape {}, not [k, p, {axes}]", points.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        want_dtype(batch, DType::I64, "batch")?;
        want_shape(batch, &points.shape[..1], "batch")?;
        if size.contains(&0) && points.elems() > 0 {
            return Err(Error::new(ErrorKind::Shape, format!("an image of {size:?} has no pixels to read")));
        }
        Ok(())
    }

    fn points<'a>(&self, channels: usize, size: &'a [usize], batch: &'a [i64], points: usize) -> Points<'a> {
        let mut orders = [0; MAX_AXES];
        orders.iter_mut().zip(self.orders).for_each(|(to, from)| *to = *from);
        let between = match self.between {
            Between::Nearest => vision::Between::Nearest,
            Between::Linear => vision::Between::Linear,
            Between::Cubic => vision::Between::Cubic,
        };
        let beyond = match self.beyond {
            Beyond::Zeros => vision::Beyond::Zeros,
            Beyond::Edge => vision::Beyond::Edge,
            Beyond::Reflect => vision::Beyond::Reflect,
            Beyond::ReflectEdge => vision::Beyond::ReflectEdge,
            Beyond::Wrap => vision::Beyond::Wrap,
        };
        Points { channels, size, batch, points, between, beyond, orders }
    }

    /// Once more along `axis`.
    fn steeper(&self, axis: usize, axes: usize) -> Orders {
        let mut orders: Orders = if self.orders.is_empty() { smallvec![0; axes] } else { self.orders.into() };
        orders[axis] += 1;
        orders
    }

    fn is_plain(&self) -> bool {
        self.orders.iter().all(|o| *o == 0)
    }

    /// The gradient of the points: for each axis the sum over channels of `dy` times the slope of `x`.
    fn slope(&self, cx: &GradCx<'_>, x: Var, points: Var, batch: Var, dy: Var) -> Result<Var> {
        let real = real_dtype(cx.fact(x).dtype);
        let (x, dy) = (cast(cx, x, real)?, cast(cx, dy, real)?);
        if self.is_plain() {
            let op = SamplePointsSlope { between: self.between, beyond: self.beyond };
            return cx.apply(op, &[x, points, batch, dy]);
        }
        slopes(cx, *self, x, points, batch, dy)
    }

    /// The gradient of the images, in the dtype of sums.
    fn images(&self, cx: &GradCx<'_>, x: &Fact, points: Var, batch: Var, dy: Var) -> Result<Var> {
        let (between, beyond, orders) = (self.between, self.beyond, self.orders.into());
        let op = SamplePointsGrad { between, beyond, orders, images: x.shape[0], size: x.shape[2..].into() };
        cx.apply(op, &[points, batch, dy])
    }
}

/// [`Way::slope`] by samples of higher order.
fn slopes<A: Apply>(
    cx: &A,
    way: Way<'_>,
    x: A::Value,
    points: A::Value,
    batch: A::Value,
    dy: A::Value,
) -> Result<A::Value> {
    let [k, p, axes] = [0, 1, 2].map(|a| cx.fact(&points).shape[a]);
    let c = Arith(cx);
    let each = (0..axes).map(|a| {
        let op = SamplePoints { between: way.between, beyond: way.beyond, orders: way.steeper(a, axes) };
        let slope = cx.apply1(op, [x.clone(), points.clone(), batch.clone()])?;
        c.sum_over(c.mul(slope, dy.clone())?, &[1])
    });
    let each = each.collect::<Result<SmallVec<[A::Value; 4]>>>()?;
    let all = cx.apply1(Concat { axis: 1 }, each)?;
    permuted(cx, shaped(cx, all, [k, axes, p])?, &[0, 2, 1])
}

/// The images that groups read. All indices are checked before anything is computed. Errors: Index.
fn images_of<'a>(batch: &In<'a>, images: usize) -> Result<&'a [i64]> {
    let all = batch.slice::<i64>()?;
    match all.iter().find(|i| **i < 0 || **i as usize >= images) {
        Some(i) => Err(Error::new(ErrorKind::Index, format!("batch names image {i} of {images}"))),
        None => Ok(all),
    }
}

impl SamplePoints {
    fn way(&self) -> Way<'_> {
        Way { between: self.between, beyond: self.beyond, orders: &self.orders }
    }
}

/// Errors: Axis below rank 3.
fn spatial(x: &Fact) -> Result<&[usize]> {
    want_float(x, "x")?;
    x.shape
        .get(2..)
        .filter(|s| !s.is_empty())
        .ok_or_else(|| Error::new(ErrorKind::Axis, format!("x has shape {}: rank {}, below 3", x.shape, x.rank())))
}

impl Op for SamplePoints {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        self.way().check(spatial(x[0])?, x[0].dtype, x[1], x[2])?;
        Ok(smallvec![checked_fact(x[0].dtype, [x[1].shape[0], x[0].shape[1], x[1].shape[1]])?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (shape, dtype) = (cx.x[0].shape(), cx.x[0].dtype());
        let batch = images_of(&cx.x[2], shape[0])?;
        let of = self.way().points(shape[1], &shape[2..], batch, cx.x[1].shape()[1]);
        for_float!(dtype, T => {
            vision::sample(cx.pool, &of, cx.x[0].slice::<T>()?, cx.x[1].slice()?, cx.y[0].slice_mut::<T>()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; 3];
        let Some(dy) = cx.dy(0) else { return Ok(grads) };
        let (points, batch, fact) = (cx.x(1), cx.x(2), cx.fact(cx.x(0)));
        if cx.needs(0) {
            let dx = self.way().images(cx, &fact, points, batch, dy)?;
            grads[0] = Some(cast(&*cx, dx, fact.dtype)?);
        }
        if cx.needs(1) {
            grads[1] = Some(self.way().slope(cx, cx.x(0), points, batch, dy)?);
        }
        Ok(grads)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(16 * y[0].elems() as u64)
    }
}

/// `(points, batch, dy) -> dx`: the transpose of [`SamplePoints`] with respect to the images.
///
/// `dx: [images, c, size..]`, of f32 (f64 for f64): the caller rounds the sums once. Errors: as there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(points: float, batch: int, dy: float), gradient(points, dy))]
pub struct SamplePointsGrad {
    /// The value between pixels.
    pub between: Between,
    /// The value beyond the image.
    pub beyond: Beyond,
    /// How often the value is differentiated along each axis; none is as good as zeros.
    #[param(default = SmallVec::new())]
    pub orders: SmallVec<[usize; 4]>,
    /// Number of images.
    pub images: usize,
    /// Extents of an image.
    pub size: SmallVec<[usize; 4]>,
}

impl SamplePointsGrad {
    fn way(&self) -> Way<'_> {
        Way { between: self.between, beyond: self.beyond, orders: &self.orders }
    }
}

/// Errors (Shape, DType) unless `dy: [k, c, p]` is a cotangent of points `[k, p, axes]`.
fn want_cotangent(dy: &Fact, points: &Fact) -> Result<()> {
    want_float(dy, "dy")?;
    if dy.rank() != 3 || points.rank() != 3 || dy.shape[0] != points.shape[0] || dy.shape[2] != points.shape[1] {
        let text = format!("dy has shape {} for points of shape {}", dy.shape, points.shape);
        return Err(Error::new(ErrorKind::Shape, text));
    }
    Ok(())
}

impl Op for SamplePointsGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        want_cotangent(x[2], x[0])?;
        self.way().check(&self.size, x[2].dtype, x[0], x[1])?;
        let shape: Shape = [self.images, x[2].shape[1]].into_iter().chain(self.size.iter().copied()).collect();
        Ok(smallvec![checked_fact(real_dtype(x[2].dtype), shape)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (shape, dtype) = (cx.x[2].shape(), cx.x[2].dtype());
        let of = self.way().points(shape[1], &self.size, images_of(&cx.x[1], self.images)?, shape[2]);
        for_float!(dtype, T => {
            type R = <T as FloatElement>::Real;
            let dx = cx.y[0].slice_mut::<R>()?;
            vision::sample_gradient::<T>(cx.pool, &of, cx.x[0].slice()?, cx.x[2].slice()?, dx);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; 3];
        let Some(u) = cx.dy(0) else { return Ok(grads) };
        let (points, batch, dtype) = (cx.x(0), cx.x(1), cx.fact(cx.x(2)).dtype);
        if cx.needs(0) {
            grads[0] = Some(self.way().slope(cx, u, points, batch, cx.x(2))?);
        }
        if cx.needs(2) {
            let op = SamplePoints { between: self.between, beyond: self.beyond, orders: self.orders.clone() };
            let y = cx.apply(op, &[u, points, batch])?;
            grads[2] = Some(cast(&*cx, y, dtype)?);
        }
        Ok(grads)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(16 * x[2].elems() as u64)
    }
}

/// `(x, points, batch, dy) -> d`: the gradient of [`SamplePoints`] with respect to the points, the sum over channels of `dy`
/// times the slope of the image along each axis.
///
/// `x` and `dy` of the dtype of the points, as `d: [k, p, axes]`. Errors: as there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, points: float, batch: int, dy: float), gradient(x, points, dy))]
pub struct SamplePointsSlope {
    /// The value between pixels.
    pub between: Between,
    /// The value beyond the image.
    pub beyond: Beyond,
}

impl SamplePointsSlope {
    fn way(&self) -> Way<'static> {
        Way { between: self.between, beyond: self.beyond, orders: &[] }
    }
}

impl Op for SamplePointsSlope {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 4)?;
        self.way().check(spatial(x[0])?, x[0].dtype, x[1], x[2])?;
        want_dtype(x[0], x[1].dtype, "x")?;
        want_dtype(x[3], x[1].dtype, "dy")?;
        want_cotangent(x[3], x[1])?;
        want_shape(x[3], &[x[1].shape[0], x[0].shape[1], x[1].shape[1]], "dy")?;
        Ok(smallvec![Fact::new(x[1].dtype, x[1].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (shape, dtype) = (cx.x[0].shape(), cx.x[0].dtype());
        let batch = images_of(&cx.x[2], shape[0])?;
        let of = self.way().points(shape[1], &shape[2..], batch, cx.x[1].shape()[1]);
        for_float!(dtype, T => {
            type R = <T as FloatElement>::Real;
            let d = cx.y[0].slice_mut::<R>()?;
            vision::sample_slope::<T>(cx.pool, &of, cx.x[0].slice()?, cx.x[1].slice()?, cx.x[3].slice()?, d);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let way = self.way();
        cx.grad_via_composite(|cx, x| Ok(smallvec![slopes(cx, way, x[0], x[1], x[2], x[3])?]))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(48 * x[3].elems() as u64)
    }
}

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 1.7).sin() * 2.0).collect()
}

/// Points that are neither on pixels nor on edges; some lie beyond the image.
fn scattered(n: usize, spread: f32) -> Vec<f32> {
    (0..n).map(|i| ((i as f32 * 2.3 + 0.7).sin() * 0.5 + 0.5) * spread - 0.813).collect()
}

impl OpDef for SamplePoints {
    const NAME: &'static str = "sample_points";

    fn samples() -> Vec<Sample<Self>> {
        use Between::*;
        let op = |between, beyond| SamplePoints { between, beyond, orders: SmallVec::new() };
        let row = || t(&[1.0f32, 2., 4.], [1, 1, 3]);
        let at = |p: &[f32]| t(p, [1, p.len(), 1]);
        let first = || t(&[0i64], [1]);
        let line = |p: &[f32]| vec![row(), at(p), first()];
        let image = || vec![t(&wave(24), [2, 3, 2, 2]), t(&scattered(12, 2.6), [2, 3, 2]), t(&[1i64, 0], [2])];
        let volume = || vec![t(&wave(24), [1, 2, 3, 2, 2]), t(&scattered(6, 2.2), [1, 2, 3]), first()];
        let mut samples = vec![
            Sample::new(op(Linear, Beyond::Zeros), line(&[0.25, 1.5, -0.5, 2.75, f32::NAN, 9.0]))
                .gives(vec![t(&[1.25f32, 3., 0.5, 1., 0., 0.], [1, 1, 6])])
                .no_grad("a point that is none"),
            Sample::new(op(Linear, Beyond::Edge), line(&[-3.0, 7.0]))
                .gives(vec![t(&[1.0f32, 4.], [1, 1, 2])])
                .grad_of(&[0]),
            Sample::new(op(Linear, Beyond::Reflect), line(&[-0.5, 2.25, 4.75]))
                .gives(vec![t(&[1.5f32, 3.5, 1.75], [1, 1, 3])]),
            Sample::new(op(Linear, Beyond::ReflectEdge), line(&[-1.25, 3.25]))
                .gives(vec![t(&[1.25f32, 3.5], [1, 1, 2])]),
            Sample::new(op(Linear, Beyond::Wrap), line(&[2.5, -0.5])).gives(vec![t(&[2.5f32, 2.5], [1, 1, 2])]),
            Sample::new(op(Nearest, Beyond::Edge), line(&[0.25, 0.75, 5.0]))
                .gives(vec![t(&[1.0f32, 2., 4.], [1, 1, 3])])
                .grad_of(&[0]),
            Sample::new(op(Cubic, Beyond::Edge), line(&[1.0, 2.0]))
                .gives(vec![t(&[2.0f32, 4.], [1, 1, 2])])
                .grad_of(&[0]),
            Sample::new(
                SamplePoints { between: Linear, beyond: Beyond::Zeros, orders: smallvec![1] },
                line(&[0.25, 1.5]),
            )
            .gives(vec![t(&[1.0f32, 2.], [1, 1, 2])])
            .grad_of(&[0]),
            Sample::new(op(Linear, Beyond::Zeros), volume()),
            Sample::new(op(Linear, Beyond::Zeros), vec![row(), t::<f32>(&[], [1, 0, 1]), first()])
                .gives(vec![t::<f32>(&[], [1, 1, 0])]),
            Sample::new(op(Linear, Beyond::Zeros), vec![row(), at(&[0.5]), t(&[1i64], [1])]).fails(ErrorKind::Index),
            Sample::new(op(Linear, Beyond::Zeros), vec![row(), at(&[0.5]), t(&[-1i64], [1])]).fails(ErrorKind::Index),
            Sample::new(op(Linear, Beyond::Zeros), vec![row(), at(&[0.5]), t(&[0.0f32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Linear, Beyond::Zeros), vec![row(), t(&[0.5f64], [1, 1, 1]), first()])
                .fails(ErrorKind::DType),
            Sample::new(op(Linear, Beyond::Zeros), vec![row(), t(&[0.5f32; 2], [1, 1, 2]), first()])
                .fails(ErrorKind::Shape),
            Sample::new(op(Linear, Beyond::Zeros), vec![t(&[1.0f32; 2], [1, 2]), at(&[0.5]), first()])
                .fails(ErrorKind::Axis),
            Sample::new(op(Cubic, Beyond::Zeros), volume()).fails(ErrorKind::Value),
            Sample::new(op(Linear, Beyond::Zeros), vec![t::<f32>(&[], [1, 1, 0]), at(&[0.5]), first()])
                .fails(ErrorKind::Shape),
        ];
        for beyond in [Beyond::Zeros, Beyond::Edge, Beyond::Reflect, Beyond::ReflectEdge, Beyond::Wrap] {
            samples.push(Sample::new(op(Linear, beyond), image()));
            samples.push(Sample::new(op(Cubic, beyond), image()));
        }
        samples
    }
}

impl OpDef for SamplePointsGrad {
    const NAME: &'static str = "sample_points_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |between, images, size: &[usize]| SamplePointsGrad {
            between,
            beyond: Beyond::Zeros,
            orders: SmallVec::new(),
            images,
            size: size.into(),
        };
        let line = || vec![t(&[0.25f32, 1.5], [1, 2, 1]), t(&[0i64], [1]), t(&[4.0f32, 2.], [1, 1, 2])];
        let image = || vec![t(&scattered(12, 2.6), [2, 3, 2]), t(&[1i64, 0], [2]), t(&wave(18), [2, 3, 3])];
        vec![
            Sample::new(op(Between::Linear, 1, &[3]), line()).gives(vec![t(&[3.0f32, 2., 1.], [1, 1, 3])]),
            Sample::new(
                SamplePointsGrad { beyond: Beyond::Edge, orders: smallvec![1], ..op(Between::Linear, 2, &[3]) },
                line(),
            )
            .gives(vec![t(&[-4.0f32, 2., 2., 0., 0., 0.], [2, 1, 3])])
            .grad_of(&[2]),
            Sample::new(op(Between::Linear, 2, &[2, 2]), image()),
            Sample::new(op(Between::Cubic, 2, &[2, 3]), image()),
            Sample::new(op(Between::Nearest, 2, &[2, 2]), image()).grad_of(&[2]),
            Sample::new(op(Between::Linear, 1, &[2, 2]), image()).fails(ErrorKind::Index),
            Sample::new(op(Between::Linear, 2, &[2]), image()).fails(ErrorKind::Shape),
            Sample::new(op(Between::Linear, 2, &[]), image()).fails(ErrorKind::Axis),
            Sample::new(op(Between::Linear, 2, &[usize::MAX / 4, 8]), image()).fails(ErrorKind::Shape),
        ]
    }
}

impl OpDef for SamplePointsSlope {
    const NAME: &'static str = "sample_points_slope";

    fn samples() -> Vec<Sample<Self>> {
        let op = |between| SamplePointsSlope { between, beyond: Beyond::Zeros };
        let line = || {
            vec![
                t(&[1.0f32, 2., 4.], [1, 1, 3]),
                t(&[0.25f32, 1.5], [1, 2, 1]),
                t(&[0i64], [1]),
                t(&[3.0f32, 5.], [1, 1, 2]),
            ]
        };
        let image = || {
            let (x, points) = (t(&wave(24), [2, 3, 2, 2]), t(&scattered(12, 2.6), [2, 3, 2]));
            vec![x, points, t(&[1i64, 0], [2]), t(&wave(18), [2, 3, 3])]
        };
        let with = |i: usize, x| {
            let mut all = line();
            all[i] = x;
            all
        };
        vec![
            Sample::new(op(Between::Linear), line()).gives(vec![t(&[3.0f32, 10.], [1, 2, 1])]).grad_of(&[0, 3]),
            Sample::new(op(Between::Linear), image()),
            Sample::new(op(Between::Cubic), image()),
            Sample::new(SamplePointsSlope { between: Between::Linear, beyond: Beyond::Edge }, image()).grad_of(&[0, 3]),
            Sample::new(op(Between::Linear), with(3, t(&[3.0f32; 3], [1, 1, 3]))).fails(ErrorKind::Shape),
            Sample::new(op(Between::Linear), with(3, t(&[3.0f64, 5.], [1, 1, 2]))).fails(ErrorKind::DType),
            Sample::new(op(Between::Linear), with(2, t(&[1i64], [1]))).fails(ErrorKind::Index),
        ]
    }
}
