use remat_kernels::float::FloatElement;
use remat_kernels::vision::{Resampling, Rule, Table, resample, resample_transposed};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};
use serde::{Deserialize, Serialize};

use crate::args::{checked_fact, items_of, not_taken, number, real_dtype, want_float};
use crate::host::arity;
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// How places of the output lie on those of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResampleRule {
    /// Between the two neighbours of `c = o scale + shift`, which is not below 0.
    Linear {
        /// Input places from one output to the next.
        scale: Scalar,
        /// Where the first output lies.
        shift: Scalar,
    },
    /// By the four neighbours of `o scale + shift` and Keys' kernel with a = -0.75; the last place stands for those beyond it.
    Cubic {
        /// Input places from one output to the next.
        scale: Scalar,
        /// Where the first output lies.
        shift: Scalar,
    },
    /// A triangle around `(o + 1/2) scale`, at least as wide as an output: linear without aliases.
    SmoothLinear {
        /// Input places from one output to the next.
        scale: Scalar,
    },
    /// As `smooth_linear` with Keys' kernel, a = -0.5.
    SmoothCubic {
        /// Input places from one output to the next.
        scale: Scalar,
    },
    /// The mean of `floor(o size / out) .. ceil((o + 1) size / out)`: adaptive pooling.
    Mean,
    /// The sum of `kernel` places `dilation` apart from `o stride - before` on, zeros beyond the ends.
    Sum {
        /// Places that are added up.
        kernel: usize,
        /// Places from one output to the next.
        stride: usize,
        /// Places from one to the next.
        dilation: usize,
        /// Zeros before the first place.
        before: usize,
    },
}

/// Each place along `axis` as a weighted sum of a run of places: resizing, and sums of windows.
///
/// `x: [.., size, ..]` to `y: [.., out, ..]`, or the transpose of that, `x: [.., out, ..]` to `y: [.., size, ..]`, which is the
/// gradient. Of 16-bit floats sums are taken in f32.
///
/// Errors: DType for other than floats; Axis; Shape for another extent of the axis, or outputs of nothing; Value for numbers that
/// are not finite, a scale that is not above 0, or a kernel, stride or dilation of 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct Resample {
    /// The axis.
    pub axis: usize,
    /// Its extent in the resampled tensor.
    pub size: usize,
    /// Its extent afterwards.
    pub out: usize,
    /// How places lie.
    pub rule: ResampleRule,
    /// Whether this is the transpose.
    #[param(default = false)]
    pub transposed: bool,
}

impl Resample {
    /// The plan of the kernel. Errors: Value, Shape.
    fn plan(&self) -> Result<Resampling> {
        let finite = |v: Scalar, name: &str| number(v, name, "finite", f64::is_finite);
        let scale = |v: Scalar| number(v, "scale", "finite and above 0", |x| x > 0.0 && x.is_finite());
        let rule = match self.rule {
            ResampleRule::Linear { scale: s, shift } => {
                Rule::Linear { scale: scale(s)?, shift: finite(shift, "shift")? }
            }
            ResampleRule::Cubic { scale: s, shift } => Rule::Cubic { scale: scale(s)?, shift: finite(shift, "shift")? },
            ResampleRule::SmoothLinear { scale: s } => Rule::SmoothLinear { scale: scale(s)? },
            ResampleRule::SmoothCubic { scale: s } => Rule::SmoothCubic { scale: scale(s)? },
            ResampleRule::Mean => Rule::Mean,
            ResampleRule::Sum { kernel, stride, dilation, before } => {
                if kernel == 0 || stride == 0 || dilation == 0 {
                    let text =
                        format!("a kernel of {kernel}, a stride of {stride}, a dilation of {dilation}: at least 1");
                    return Err(Error::new(ErrorKind::Value, text));
                }
                let last = self.out.saturating_sub(1).checked_mul(stride);
                let reach = (kernel - 1).checked_mul(dilation).and_then(|r| r.checked_add(last?)?.checked_add(1));
                if reach.and_then(|r| r.checked_add(before)).is_none() {
                    return Err(Error::new(ErrorKind::Shape, "the windows reach further than can be addressed"));
                }
                Rule::Sum { kernel, stride, dilation, before }
            }
        };
        if self.size == 0 && self.out > 0 {
            return Err(Error::new(ErrorKind::Shape, format!("{} places of an axis of none", self.out)));
        }
        if matches!(rule, Rule::Mean) && self.out.checked_add(1).and_then(|o| o.checked_mul(self.size)).is_none() {
            return Err(Error::new(ErrorKind::Shape, "the extents cannot be addressed"));
        }
        Ok(Resampling { size: self.size, out: self.out, rule })
    }

    /// Extents of the axis before and after.
    fn ends(&self) -> [usize; 2] {
        if self.transposed { [self.out, self.size] } else { [self.size, self.out] }
    }

    /// Bytes of runs, readers and scratch, which are words of 8.
    fn words_bytes(&self, plan: &Resampling) -> usize {
        let words = self.out.saturating_add(self.size).saturating_mul(2).saturating_add(plan.most());
        words.saturating_mul(8)
    }
}

impl Op for Resample {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_float(x[0], "x")?;
        if self.axis >= x[0].rank() {
            let text = format!("axis {} is out of range for rank {}", self.axis, x[0].rank());
            return Err(Error::new(ErrorKind::Axis, text));
        }
        self.plan()?;
        let [from, to] = self.ends();
        if x[0].shape[self.axis] != from {
            let text = format!("x has shape {}: axis {} must be of extent {from}", x[0].shape, self.axis);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let mut shape = x[0].shape.clone();
        shape.dims_mut()[self.axis] = to;
        Ok(smallvec![checked_fact(x[0].dtype, shape)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (plan, dtype) = (self.plan()?, cx.x[0].dtype());
        let inner = cx.x[0].shape()[self.axis + 1..].iter().product();
        if cx.y[0].shape().elems() == 0 {
            return Ok(());
        }
        if cx.x[0].shape().elems() == 0 {
            // the gradient of what has no elements
            cx.y[0].bytes_mut().fill(0);
            return Ok(());
        }
        let (words, rest) = cx.workspace.split_at_mut(self.words_bytes(&plan));
        let words = items_of::<usize>(words, (self.out + self.size) * 2 + plan.most())?;
        let (runs, words) = words.split_at_mut(self.out * 2);
        let (readers, scratch) = words.split_at_mut(self.size * 2);
        let (runs, readers) = (runs.as_chunks_mut().0, readers.as_chunks_mut().0);
        let scratch = bytemuck::cast_slice_mut(scratch);
        for_float!(dtype, T => {
            let weights = items_of::<<T as FloatElement>::Real>(rest, self.out * plan.most())?;
            let table = Table::build(&plan, runs, weights, readers, scratch);
            let (x, y) = (cx.x[0].slice::<T>()?, cx.y[0].slice_mut::<T>()?);
            if self.transposed {
                resample_transposed(cx.pool, &table, inner, x, y);
            } else {
                resample(cx.pool, &table, inner, x, y);
            }
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let back = Resample { transposed: !self.transposed, ..self.clone() };
        Ok(smallvec![Some(cx.apply(back, &[dy])?)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok(plan) = self.plan() else { return 0 };
        if x[0].shape.contains(&0) {
            return 0;
        }
        let weights = self.out.saturating_mul(plan.most()).saturating_mul(real_dtype(x[0].dtype).size_bytes());
        self.words_bytes(&plan).saturating_add(weights)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let most = self.plan().map_or(1, |p| p.most()) as u64;
        let taken = x[0].elems().max(y[0].elems()) as u64;
        Cost::bytes(x, y).with_flops(taken.saturating_mul(2).saturating_mul(most))
    }
}

impl OpDef for Resample {
    const NAME: &'static str = "resample";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, size, out, rule| Resample { axis, size, out, rule, transposed: false };
        let half = |scale: f64| ResampleRule::Linear { scale: scale.into(), shift: (0.5 * scale - 0.5).into() };
        let cubic = |scale: f64| ResampleRule::Cubic { scale: scale.into(), shift: (0.5 * scale - 0.5).into() };
        let smooth = |scale: f64| ResampleRule::SmoothLinear { scale: scale.into() };
        let sum = |kernel, stride, dilation, before| ResampleRule::Sum { kernel, stride, dilation, before };
        let wave: Vec<f32> = (0..30).map(|i| (i as f32 * 1.3).sin()).collect();
        let line = || t(&[1.0f32, 2., 4., 8.], [1, 4]);
        let cube = || t(&wave, [2, 5, 3]);
        let back = |o: Resample| Resample { transposed: true, ..o };
        vec![
            Sample::new(op(1, 4, 2, half(2.0)), vec![line()]).gives(vec![t(&[1.5f32, 6.], [1, 2])]),
            Sample::new(op(1, 2, 4, half(0.5)), vec![t(&[0.0f32, 4.], [1, 2])])
                .gives(vec![t(&[0.0f32, 1., 3., 4.], [1, 4])]),
            Sample::new(back(op(1, 4, 2, half(2.0))), vec![t(&[2.0f32, 6.], [1, 2])])
                .gives(vec![t(&[1.0f32, 1., 3., 3.], [1, 4])]),
            Sample::new(op(1, 4, 3, ResampleRule::Mean), vec![line()]).gives(vec![t(&[1.5f32, 3., 6.], [1, 3])]),
            Sample::new(op(1, 4, 2, sum(2, 2, 2, 1)), vec![line()]).gives(vec![t(&[2.0f32, 10.], [1, 2])]),
            Sample::new(op(1, 4, 2, smooth(2.0)), vec![line()]).gives(vec![t(
                &[1.0f32 * 3. / 7. + 2. * 3. / 7. + 4. / 7., 2. / 7. + 4. * 3. / 7. + 8. * 3. / 7.],
                [1, 2],
            )]),
            Sample::new(op(1, 5, 8, half(5.0 / 8.0)), vec![cube()]),
            Sample::new(op(1, 5, 3, cubic(5.0 / 3.0)), vec![cube()]),
            Sample::new(op(2, 3, 7, cubic(3.0 / 7.0)), vec![cube()]),
            Sample::new(op(1, 5, 2, ResampleRule::SmoothCubic { scale: 2.5.into() }), vec![cube()]),
            Sample::new(op(1, 5, 2, smooth(2.5)), vec![cube()]),
            Sample::new(op(0, 2, 3, ResampleRule::Mean), vec![cube()]),
            Sample::new(op(1, 5, 3, sum(3, 2, 1, 1)), vec![cube()]),
            Sample::new(back(op(1, 5, 3, sum(3, 2, 1, 1))), vec![t(&wave[..18], [2, 3, 3])]),
            Sample::new(op(1, 4, 2, half(2.0)), vec![t::<f64>(&[], [0, 4])]).gives(vec![t::<f64>(&[], [0, 2])]),
            Sample::new(op(1, 0, 2, half(2.0)), vec![t::<f32>(&[], [3, 0])]).fails(ErrorKind::Shape),
            Sample::new(op(1, 3, 2, half(2.0)), vec![line()]).fails(ErrorKind::Shape),
            Sample::new(op(2, 4, 2, half(2.0)), vec![line()]).fails(ErrorKind::Axis),
            Sample::new(op(1, 4, 2, half(f64::NAN)), vec![line()]).fails(ErrorKind::Value),
            Sample::new(op(1, 4, 2, half(-1.0)), vec![line()]).fails(ErrorKind::Value),
            Sample::new(op(1, 4, 2, sum(2, 0, 1, 0)), vec![line()]).fails(ErrorKind::Value),
            Sample::new(op(1, 4, usize::MAX / 4, sum(2, 8, 1, 0)), vec![line()]).fails(ErrorKind::Shape),
            Sample::new(op(1, 4, 2, half(2.0)), vec![t(&[1i32; 4], [1, 4])]).fails(ErrorKind::DType),
        ]
    }
}
