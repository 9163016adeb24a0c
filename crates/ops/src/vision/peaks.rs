use remat_kernels::vision::{Peaks, WindowAxis, region_peaks, window_peaks};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Scalar, Shape, SmallVec, bf16, f16, smallvec};

use crate::args::{checked_fact, not_taken, number, want_dtype};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Where the largest element of each window lies in its plane, in row-major order, as I64: the first of equal ones; NaN is the
/// largest.
///
/// `x: [n, c, size..]` of one to three spatial axes, of any number dtype; `[n, c, out..]`. Window `o` has `kernel` elements
/// `dilation` apart from `o stride - before` on; only the elements within `x` count. Without kernels windows are adaptive,
/// `floor(o size / out) .. ceil((o + 1) size / out)`.
///
/// Errors: Axis; DType for bools; Value for a kernel, stride or dilation of 0, or padding that is not less than the reach of the
/// kernel; Shape for other numbers of parameters, windows beyond the input, or no elements at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: number))]
pub struct PoolIndices {
    /// Number of windows along each axis.
    pub out: SmallVec<[usize; 4]>,
    /// Elements of a window; none for adaptive ones.
    #[param(default = SmallVec::new())]
    pub kernel: SmallVec<[usize; 4]>,
    /// Places from one window to the next.
    #[param(default = SmallVec::new())]
    pub stride: SmallVec<[usize; 4]>,
    /// Places from one element to the next.
    #[param(default = SmallVec::new())]
    pub dilation: SmallVec<[usize; 4]>,
    /// Places before the input.
    #[param(default = SmallVec::new())]
    pub before: SmallVec<[usize; 4]>,
}

impl PoolIndices {
    /// Errors: Axis, Shape, Value.
    fn axes(&self, x: &Shape) -> Result<Peaks> {
        if !(3..=5).contains(&x.rank()) {
            return Err(Error::new(ErrorKind::Axis, format!("x has shape {x}: rank {}, not 3 to 5", x.rank())));
        }
        let (size, axes) = (&x[2..], x.rank() - 2);
        let lists = [&self.kernel, &self.stride, &self.dilation, &self.before];
        let adaptive = lists.iter().all(|l| l.is_empty());
        if self.out.len() != axes || !(adaptive || lists.iter().all(|l| l.len() == axes)) {
            let text = format!("parameters of {} and {} axes for {axes}", self.out.len(), self.kernel.len());
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let one = WindowAxis { size: 1, out: 1, sliding: Some([1, 1, 1, 0]) };
        let mut all = [one; 3];
        for a in 0..axes {
            let (size, out) = (size[a], self.out[a]);
            if size == 0 && out > 0 {
                return Err(Error::new(ErrorKind::Shape, format!("{out} windows of an axis without elements")));
            }
            let sliding = if adaptive { None } else { Some(lists.map(|l| l[a])) };
            if let Some(windows) = sliding {
                fits(size, out, windows)?;
            } else if out.checked_add(1).and_then(|o| o.checked_mul(size)).is_none() {
                return Err(Error::new(ErrorKind::Shape, "the extents cannot be addressed"));
            }
            all[3 - axes + a] = WindowAxis { size, out, sliding };
        }
        Ok(Peaks(all))
    }
}

/// Errors: Value, Shape.
fn fits(size: usize, out: usize, [kernel, stride, dilation, before]: [usize; 4]) -> Result<()> {
    if kernel == 0 || stride == 0 || dilation == 0 {
        let text = format!("a kernel of {kernel}, a stride of {stride}, a dilation of {dilation}: at least 1");
        return Err(Error::new(ErrorKind::Value, text));
    }
    let reach = (kernel - 1).checked_mul(dilation).and_then(|r| r.checked_add(1));
    let last = out.saturating_sub(1).checked_mul(stride);
    let (Some(reach), Some(last)) = (reach, last) else {
        return Err(Error::new(ErrorKind::Shape, "the windows reach further than can be addressed"));
    };
    if last.checked_add(reach).is_none() || size.checked_add(before).is_none() {
        return Err(Error::new(ErrorKind::Shape, "the windows reach further than can be addressed"));
    }
    if before >= reach {
        let text = format!("padding of {before} must be less than the {reach} places that a window reaches over");
        return Err(Error::new(ErrorKind::Value, text));
    }
    if last >= size + before {
        let text = format!("window {} begins beyond {size} elements after {before} of padding", out - 1);
        return Err(Error::new(ErrorKind::Shape, text));
    }
    Ok(())
}

/// Calls a kernel that takes numbers of any dtype.
macro_rules! for_number {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            DType::F16 => {
                type $t = f16;
                $body
            }
            DType::BF16 => {
                type $t = bf16;
                $body
            }
            DType::F32 => {
                type $t = f32;
                $body
            }
            DType::F64 => {
                type $t = f64;
                $body
            }
            DType::I8 => {
                type $t = i8;
                $body
            }
            DType::I16 => {
                type $t = i16;
                $body
            }
            DType::I32 => {
                type $t = i32;
                $body
            }
            DType::I64 => {
                type $t = i64;
                $body
            }
            DType::U8 => {
                type $t = u8;
                $body
            }
            DType::U16 => {
                type $t = u16;
                $body
            }
            DType::U32 => {
                type $t = u32;
                $body
            }
            DType::U64 => {
                type $t = u64;
                $body
            }
            DType::Bool => return Err(not_taken(DType::Bool)),
        }
    };
}

impl Op for PoolIndices {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        if x[0].dtype == DType::Bool {
            return Err(not_taken(DType::Bool));
        }
        self.axes(&x[0].shape)?;
        let shape: Shape = x[0].shape[..2].iter().chain(self.out.iter()).copied().collect();
        Ok(smallvec![checked_fact(DType::I64, shape)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let axes = self.axes(cx.x[0].shape())?;
        for_number!(cx.x[0].dtype(), T => window_peaks(cx.pool, axes, cx.x[0].slice::<T>()?, cx.y[0].slice_mut()?));
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

/// Where the largest element of each part of each region lies in `x`, as I64, or -1 for a part that is empty.
///
/// `x: [n, c, h, w]` of any number dtype, `rois: [k, 5]` of F64, the number of an image and the corners left, top, right, bottom,
/// which are multiplied by `scale` and rounded; `[k, c, size..]` (Girshick, ICCV 2015).
///
/// Errors: Axis; DType; Shape; Value for a scale that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: number, rois: float))]
pub struct RoiPoolIndices {
    /// Parts of a region: down, across.
    pub size: [usize; 2],
    /// Places of `x` for a unit of the corners.
    pub scale: Scalar,
}

impl Op for RoiPoolIndices {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        if x[0].dtype == DType::Bool {
            return Err(not_taken(DType::Bool));
        }
        number(self.scale, "scale", "finite", f64::is_finite)?;
        crate::args::want_rank(x[0], 4, "x")?;
        want_dtype(x[1], DType::F64, "rois")?;
        if x[1].rank() != 2 || x[1].shape[1] != 5 {
            return Err(Error::new(ErrorKind::Shape, format!("rois have shape {}, not [k, 5]", x[1].shape)));
        }
        let [oh, ow] = self.size;
        Ok(smallvec![checked_fact(DType::I64, [x[1].shape[0], x[0].shape[1], oh, ow])?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let s = cx.x[0].shape();
        let (shape, scale) = ([s[0], s[1], s[2], s[3]], self.scale.to_f64());
        let rois = cx.x[1].slice::<f64>()?;
        for_number!(cx.x[0].dtype(), T => {
            region_peaks(cx.pool, cx.x[0].slice::<T>()?, shape, rois, scale, self.size, cx.y[0].slice_mut()?)
        });
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None, None])
    }
}

impl OpDef for PoolIndices {
    const NAME: &'static str = "pool_indices";

    fn samples() -> Vec<Sample<Self>> {
        let op = |out: &[usize], windows: [&[usize]; 4]| {
            let [kernel, stride, dilation, before] = windows.map(SmallVec::from_slice);
            PoolIndices { out: out.into(), kernel, stride, dilation, before }
        };
        let adaptive = |out: &[usize]| op(out, [&[]; 4]);
        let row = || t(&[3.0f32, 1., 4., 1., 5.], [1, 1, 5]);
        let image = || t(&[7i32, 7, 1, 2, 9, 3, 9, 0, 5], [1, 1, 3, 3]);
        let samples = vec![
            Sample::new(op(&[2], [&[2], &[2], &[1], &[0]]), vec![row()]).gives(vec![t(&[0i64, 2], [1, 1, 2])]),
            Sample::new(op(&[3], [&[2], &[2], &[2], &[1]]), vec![row()]).gives(vec![t(&[1i64, 1, 3], [1, 1, 3])]),
            Sample::new(op(&[2, 2], [&[2, 2], &[1, 1], &[1, 1], &[0, 0]]), vec![image()])
                .gives(vec![t(&[4i64, 4, 4, 4], [1, 1, 2, 2])]),
            Sample::new(op(&[2, 2], [&[3, 3], &[2, 2], &[1, 1], &[2, 2]]), vec![image()])
                .gives(vec![t(&[0i64, 0, 6, 4], [1, 1, 2, 2])]),
            Sample::new(adaptive(&[1, 3]), vec![image()]).gives(vec![t(&[6i64, 4, 8], [1, 1, 1, 3])]),
            Sample::new(adaptive(&[2]), vec![t(&[1.0f32, f32::NAN, 2.0, f32::NEG_INFINITY], [1, 1, 4])])
                .gives(vec![t(&[1i64, 2], [1, 1, 2])]),
            Sample::new(
                op(&[1, 1, 1], [&[2, 1, 1], &[1, 1, 1], &[1, 1, 1], &[0, 0, 0]]),
                vec![t(&[1u8, 2], [1, 1, 2, 1, 1])],
            )
            .gives(vec![t(&[1i64], [1, 1, 1, 1, 1])]),
            Sample::new(adaptive(&[2]), vec![t::<f32>(&[], [0, 2, 4])]).gives(vec![t::<i64>(&[], [0, 2, 2])]),
            Sample::new(adaptive(&[2]), vec![t::<f32>(&[], [1, 2, 0])]).fails(ErrorKind::Shape),
            Sample::new(adaptive(&[2, 2]), vec![row()]).fails(ErrorKind::Shape),
            Sample::new(adaptive(&[2]), vec![t(&[1.0f32; 4], [2, 2])]).fails(ErrorKind::Axis),
            Sample::new(op(&[2], [&[2], &[0], &[1], &[0]]), vec![row()]).fails(ErrorKind::Value),
            Sample::new(op(&[2], [&[2], &[1], &[1], &[2]]), vec![row()]).fails(ErrorKind::Value),
            Sample::new(op(&[9], [&[2], &[2], &[1], &[0]]), vec![row()]).fails(ErrorKind::Shape),
            Sample::new(op(&[2], [&[2], &[usize::MAX], &[1], &[0]]), vec![row()]).fails(ErrorKind::Shape),
            Sample::new(adaptive(&[2]), vec![t(&[true; 4], [1, 1, 4])]).fails(ErrorKind::DType),
        ];
        samples.into_iter().map(|s| s.no_grad("a position")).collect()
    }
}

impl OpDef for RoiPoolIndices {
    const NAME: &'static str = "roi_pool_indices";

    fn samples() -> Vec<Sample<Self>> {
        let op = |size, scale: f64| RoiPoolIndices { size, scale: scale.into() };
        let image = || t(&[7.0f32, 7., 1., 2., 9., 3., 9., 0., 5.], [1, 1, 3, 3]);
        let rois = |v: &[f64]| t(v, [v.len() / 5, 5]);
        let samples = vec![
            Sample::new(op([1, 2], 1.0), vec![image(), rois(&[0., 0., 0., 2., 1., 0., 1., 1., 2., 2.])])
                .gives(vec![t(&[4i64, 4, 4, 8], [2, 1, 1, 2])]),
            Sample::new(op([1, 1], 0.5), vec![image(), rois(&[0., 4., 4., 4., 4., 1., 0., 0., 1., 1.])])
                .gives(vec![t(&[8i64, -1], [2, 1, 1, 1])]),
            Sample::new(op([1, 1], 1.0), vec![image(), rois(&[0., 7., 7., 9., 9., f64::NAN, 0., 0., 1., 1.])])
                .gives(vec![t(&[-1i64, -1], [2, 1, 1, 1])]),
            Sample::new(op([2, 2], 1.0), vec![t(&[1i32; 9], [1, 1, 3, 3]), rois(&[])])
                .gives(vec![t::<i64>(&[], [0, 1, 2, 2])]),
            Sample::new(op([2, 2], 1.0), vec![image(), t(&[0.0f64; 4], [1, 4])]).fails(ErrorKind::Shape),
            Sample::new(op([2, 2], 1.0), vec![image(), t(&[0.0f32; 5], [1, 5])]).fails(ErrorKind::DType),
            Sample::new(op([2, 2], f64::NAN), vec![image(), rois(&[0.; 5])]).fails(ErrorKind::Value),
            Sample::new(op([2, 2], 1.0), vec![t(&[1.0f32; 9], [1, 3, 3]), rois(&[0.; 5])]).fails(ErrorKind::Axis),
        ];
        samples.into_iter().map(|s| s.no_grad("a position")).collect()
    }
}
