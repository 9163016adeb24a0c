use remat_kernels::float::{FloatElement, Real};
use remat_kernels::softmax::{AxisDims, cross_entropy, cross_entropy_grad};
use remat_types::{
    DType, Element, Error, ErrorKind, Fact, Facts, Result, Scalar, Shape, Storage, for_dtype, for_float, smallvec,
};
use serde::{Deserialize, Serialize};

use crate::activation::{Softmax, SoftmaxGrad};
use crate::args::{items_of, not_taken, probability, real_dtype, want_dtype, want_float, want_int, want_shape};
use crate::host::arity;
use crate::reduce::{Reduce, ReduceFn};
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::{Cost, EvalCx, GradCx, Grads, In, Op, OpDef, Sample, Var};

/// How the losses of the examples are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// They are not.
    None,
    /// Their sum.
    Sum,
    /// Their sum over the number of examples that are not ignored; NaN if there are none.
    Mean,
}

/// Cross-entropy of softmax with class labels: `(logits, labels) -> loss`.
///
/// With `p = softmax(logits)` along axis 1 and smoothing `e`:
/// `loss = -(1 - e) ln p[label] - e / c sum_k ln p[k]`. `logits: [n, c, ..]` of a float dtype, `labels: [n, ..]` of any
/// integer dtype; the loss has the logits' dtype and shape `[n, ..]`, or `[]` with a reduction. An example whose label is
/// `ignore_index` counts nowhere. Sums run in f64 in the order of the examples.
///
/// Errors: DType for other dtypes, Axis for logits without an axis 1, Shape for labels that do not fit, Value for a
/// smoothing outside 0 ..= 1, Index for a label that is no class (names its position and value).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(logits: float, labels: int), gradient(logits))]
pub struct CrossEntropy {
    /// How the losses are put together.
    #[param(default = Reduction::Mean)]
    pub reduction: Reduction,
    /// The label smoothing `e`.
    #[param(default = 0.0.into())]
    pub smoothing: Scalar,
    /// The label of examples that do not count.
    pub ignore_index: Option<i64>,
}

/// Checks of logits and labels; gives the shape of the labels. Errors as [`CrossEntropy`].
fn check(logits: &Fact, labels: &Fact, smoothing: Scalar) -> Result<Shape> {
    want_float(logits, "logits")?;
    want_int(labels, "labels")?;
    probability(smoothing, "label smoothing")?;
    if logits.rank() < 2 {
        return Err(Error::new(ErrorKind::Axis, format!("logits have shape {}: no axis of classes", logits.shape)));
    }
    let mut want = Shape::from([logits.shape[0]]);
    logits.shape[2..].iter().for_each(|&d| want.push(d));
    want_shape(labels, &want, "labels")?;
    Ok(want)
}

fn loss_shape(reduction: Reduction, labels: Shape) -> Shape {
    if reduction == Reduction::None { labels } else { Shape::scalar() }
}

/// Reads labels of any integer dtype.
#[derive(Clone, Copy)]
struct Labels<'a> {
    bytes: LabelSlice<'a>,
    ignore: Option<i64>,
}

#[derive(Clone, Copy)]
enum LabelSlice<'a> {
    I64(&'a [i64]),
    I32(&'a [i32]),
    Other(DType, &'a [u8]),
}

impl<'a> Labels<'a> {
    fn of(x: &In<'a>, ignore: Option<i64>) -> Result<Self> {
        fn bytes<'a, T: Storage>(x: &In<'a>) -> Result<&'a [u8]> {
            Ok(bytemuck::cast_slice(x.slice::<T>()?))
        }
        let bytes = match x.dtype() {
            DType::I64 => LabelSlice::I64(x.slice()?),
            DType::I32 => LabelSlice::I32(x.slice()?),
            dtype => LabelSlice::Other(dtype, remat_types::for_storage!(dtype, T => bytes::<T>(x))?),
        };
        Ok(Labels { bytes, ignore })
    }

    fn get(&self, i: usize) -> i64 {
        match self.bytes {
            LabelSlice::I64(s) => s[i],
            LabelSlice::I32(s) => i64::from(s[i]),
            LabelSlice::Other(dtype, s) => {
                let size = dtype.size_bytes();
                let at = &s[i * size..(i + 1) * size];
                for_dtype!(dtype, T => bytemuck::checked::try_pod_read_unaligned::<T>(at).map_or(-1, |v| v.to_i64()))
            }
        }
    }

    /// The class of example `i`, or nothing if it is ignored. Labels were checked.
    fn class(&self, i: usize) -> Option<usize> {
        let l = self.get(i);
        if self.ignore == Some(l) { None } else { Some(l as usize) }
    }

    /// The number of examples that count. Errors: Index for a label that is no class.
    fn counted(&self, n: usize, classes: Option<usize>) -> Result<usize> {
        let mut count = 0;
        for i in 0..n {
            let l = self.get(i);
            if self.ignore == Some(l) {
                continue;
            }
            if let Some(c) = classes.filter(|&c| l < 0 || l as u64 >= c as u64) {
                let text = format!("label {l} at position {i} is not one of {c} classes");
                return Err(Error::new(ErrorKind::Index, text));
            }
            count += 1;
        }
        Ok(count)
    }
}

impl Op for CrossEntropy {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let labels = check(x[0], x[1], self.smoothing)?;
        Ok(smallvec![Fact::new(x[0].dtype, loss_shape(self.reduction, labels))])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (d, dtype, n) = (AxisDims::new(cx.x[0].shape(), 1), cx.x[0].dtype(), cx.x[1].shape().elems());
        let labels = Labels::of(&cx.x[1], self.ignore_index)?;
        let counted = labels.counted(n, Some(d.c))?;
        let smoothing = probability(self.smoothing, "label smoothing")?;
        for_float!(dtype, T => {
            let each = items_of::<<T as FloatElement>::Real>(cx.workspace, n)?;
            if counted > 0 {
                cross_entropy(cx.pool, d, smoothing, cx.x[0].slice::<T>()?, |i| labels.class(i), each);
            } else {
                each.fill(Real::ZERO);
            }
            let y = cx.y[0].slice_mut::<T>()?;
            if self.reduction == Reduction::None {
                y.iter_mut().zip(each.iter()).for_each(|(y, e)| *y = T::down(*e));
                return Ok(());
            }
            let sum: f64 = each.iter().map(|v| v.to_f64()).sum();
            let over = if self.reduction == Reduction::Mean { counted as f64 } else { 1.0 };
            y[0] = T::from_f64(sum / over);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let op =
            CrossEntropyGrad { reduction: self.reduction, smoothing: self.smoothing, ignore_index: self.ignore_index };
        Ok(smallvec![Some(cx.apply(op, &[cx.x(0), cx.x(1), dy])?), None])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        x[1].elems() * real_dtype(x[0].dtype).size_bytes()
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(16 * x[0].elems() as u64)
    }
}

/// The gradient of [`CrossEntropy`], fused: `(logits, labels, dy) -> dlogits`.
///
/// `dlogits[i, k] = w_i dy_i (softmax(logits)[i, k] - (1 - e) [k = label_i] - e / c)`, with `w_i = 0` for ignored
/// examples, else 1, over the number of counted examples for the mean. Errors: as there, and for a `dy` that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(logits: float, labels: int, dy: float), gradient(logits, dy))]
pub struct CrossEntropyGrad {
    /// As in the forward op.
    #[param(default = Reduction::Mean)]
    pub reduction: Reduction,
    /// As in the forward op.
    #[param(default = 0.0.into())]
    pub smoothing: Scalar,
    /// As in the forward op.
    pub ignore_index: Option<i64>,
}

impl Op for CrossEntropyGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        let labels = check(x[0], x[1], self.smoothing)?;
        want_dtype(x[2], x[0].dtype, "dy")?;
        want_shape(x[2], &loss_shape(self.reduction, labels), "dy")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (d, dtype, n) = (AxisDims::new(cx.x[0].shape(), 1), cx.x[0].dtype(), cx.x[1].shape().elems());
        let labels = Labels::of(&cx.x[1], self.ignore_index)?;
        let counted = labels.counted(n, Some(d.c))?;
        let smoothing = probability(self.smoothing, "label smoothing")?;
        let over = if self.reduction == Reduction::Mean { counted as f64 } else { 1.0 };
        let each = self.reduction == Reduction::None;
        for_float!(dtype, T => {
            type R = <T as FloatElement>::Real;
            let (logits, dy) = (cx.x[0].slice::<T>()?, cx.x[2].slice::<T>()?);
            let inverse = R::from_f64(1.0 / over);
            let weight = |i: usize| dy[if each { i } else { 0 }].up() * inverse;
            cross_entropy_grad(cx.pool, d, smoothing, logits, |i| labels.class(i), weight, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(u) = cx.dy(0) else { return Ok(smallvec![None; 3]) };
        let c = cx.build();
        let (logits, labels, dy) = (cx.x(0), cx.x(1), cx.x(2));
        let shape = cx.fact(logits).shape;
        let mut column = shape.clone();
        column.dims_mut()[1] = 1;
        let sum_classes = |v| cx.apply(Reduce { f: ReduceFn::Sum, axes: smallvec![1], keepdims: true }, &[v]);
        let mut grads: Grads = smallvec![None; 3];
        if cx.needs(0) {
            // only the softmax depends on the logits: its transposed Jacobian on u w dy
            let weight = TargetWeight {
                dtype: cx.fact(logits).dtype,
                mean: self.reduction == Reduction::Mean,
                ignore_index: self.ignore_index,
            };
            let w = c.mul(cx.apply(weight, &[labels])?, dy)?;
            let p = cx.apply(Softmax { axis: 1, log: false }, &[logits])?;
            let up = c.mul(u, c.reshape(w, &column)?)?;
            grads[0] = Some(cx.apply(SoftmaxGrad { axis: 1, log: false }, &[p, up])?);
        }
        if cx.needs(2) {
            // linear in dy: the same op at dy = 1
            let one = self.unit_gradient(cx, logits, labels, dy)?;
            let product = c.mul(u, one)?;
            let shape = cx.fact(dy).shape;
            grads[2] = Some(match self.reduction {
                Reduction::None => c.reshape(sum_classes(product)?, &shape)?,
                _ => c.sum_to(product, &shape)?,
            });
        }
        Ok(grads)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(16 * x[0].elems() as u64)
    }
}

impl CrossEntropyGrad {
    fn unit_gradient(&self, cx: &GradCx<'_>, logits: Var, labels: Var, dy: Var) -> Result<Var> {
        let f = cx.fact(dy);
        let ones =
            cx.apply(crate::pointwise::Fill { dtype: f.dtype, shape: f.shape, value: Scalar::Float(1.0) }, &[])?;
        cx.apply(self.clone(), &[logits, labels, ones])
    }
}

/// The weight of each example in a loss: `labels -> w` with `w_i = 0` where the label is `ignore_index`, else 1, or one
/// over the number of such examples. For second derivatives of [`CrossEntropy`].
///
/// `labels: [n, ..]` of any integer dtype, `w` of the same shape. Errors: DType for other labels or a `dtype` that is no
/// float.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(labels: int))]
pub struct TargetWeight {
    /// The dtype of the weights.
    pub dtype: DType,
    /// Divide by the number of counted examples.
    pub mean: bool,
    /// The label of examples that do not count.
    pub ignore_index: Option<i64>,
}

impl Op for TargetWeight {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_int(x[0], "labels")?;
        let y = Fact::new(self.dtype, x[0].shape.clone());
        want_float(&y, "the weight")?;
        Ok(smallvec![y])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let labels = Labels::of(&cx.x[0], self.ignore_index)?;
        let counted = labels.counted(cx.x[0].shape().elems(), None)?;
        let weight = if self.mean { 1.0 / counted as f64 } else { 1.0 };
        for_float!(self.dtype, T => {
            for (i, y) in cx.y[0].slice_mut::<T>()?.iter_mut().enumerate() {
                *y = T::from_f64(if labels.class(i).is_some() { weight } else { 0.0 });
            }
            Ok(())
        }, else Err(not_taken(self.dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 1.1).sin() * 1.5).collect()
}

impl OpDef for CrossEntropy {
    const NAME: &'static str = "cross_entropy";

    fn samples() -> Vec<Sample<Self>> {
        let op = |reduction, smoothing: f64, ignore_index| CrossEntropy {
            reduction,
            smoothing: smoothing.into(),
            ignore_index,
        };
        use Reduction::*;
        let ln = f64::ln;
        // probabilities of eighths, and of quarters and a half
        let logits = t(&[0.0f64, ln(2.0), ln(5.0), ln(2.0), 0.0, 0.0], [2, 3]);
        let labels = t(&[2i64, 1], [2]);
        let (a, b) = (-ln(0.625), -ln(0.25));
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let none = op(None, 0.0, Option::None);
        vec![
            Sample::new(none.clone(), vec![logits.clone(), labels.clone()]).gives(vec![t(&[a, b], [2])]),
            Sample::new(op(Sum, 0.0, Option::None), vec![logits.clone(), labels.clone()]).gives(vec![t(&[a + b], [])]),
            Sample::new(op(Mean, 0.0, Option::None), vec![logits.clone(), labels.clone()])
                .gives(vec![t(&[(a + b) / 2.0], [])]),
            Sample::new(op(Mean, 0.0, Some(1)), vec![logits.clone(), labels.clone()]).gives(vec![t(&[a], [])]),
            // smoothing by 0.3: a tenth of every class
            Sample::new(op(None, 0.3, Some(1)), vec![logits.clone(), labels.clone()])
                .gives(vec![t(&[0.7 * a - 0.1 * (ln(0.125) + ln(0.25) + ln(0.625)), 0.0], [2])]),
            Sample::new(op(Mean, 0.1, Some(-100)), vec![w(&[2, 3, 2]), t(&[0i32, -100, 2, 1], [2, 2])]),
            Sample::new(op(None, 0.0, Option::None), vec![w(&[3, 4]), t(&[3u8, 0, 1], [3])]),
            Sample::new(op(Sum, 0.2, Option::None), vec![w(&[40, 10]), t(&[7i64; 40], [40])])
                .no_grad("the smaller ones check it"),
            // nothing counted: 0/0, as in PyTorch
            Sample::new(op(Mean, 0.0, Some(5)), vec![logits.clone(), t(&[5i64, 5], [2])])
                .gives(vec![t(&[f64::NAN], [])])
                .no_grad("NaN"),
            Sample::new(op(Sum, 0.0, Option::None), vec![t::<f32>(&[], [0, 3]), t::<i64>(&[], [0])])
                .gives(vec![t(&[0.0f32], [])]),
            Sample::new(none.clone(), vec![logits.clone(), t(&[2i64, 3], [2])]).fails(ErrorKind::Index),
            Sample::new(none.clone(), vec![logits.clone(), t(&[-1i64, 0], [2])]).fails(ErrorKind::Index),
            Sample::new(none.clone(), vec![logits.clone(), t(&[0i64; 3], [3])]).fails(ErrorKind::Shape),
            Sample::new(none.clone(), vec![logits.clone(), t(&[0.0f32; 2], [2])]).fails(ErrorKind::DType),
            Sample::new(none.clone(), vec![t(&[1i32; 6], [2, 3]), labels.clone()]).fails(ErrorKind::DType),
            Sample::new(none, vec![t(&[1.0f32; 2], [2]), labels.clone()]).fails(ErrorKind::Axis),
            Sample::new(op(None, 1.5, Option::None), vec![logits, labels]).fails(ErrorKind::Value),
        ]
    }
}

impl OpDef for CrossEntropyGrad {
    const NAME: &'static str = "cross_entropy_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |reduction, smoothing: f64, ignore_index| CrossEntropyGrad {
            reduction,
            smoothing: smoothing.into(),
            ignore_index,
        };
        use Reduction::*;
        let ln = f64::ln;
        let logits = t(&[0.0f64, ln(2.0), ln(5.0), ln(2.0), 0.0, 0.0], [2, 3]);
        let labels = t(&[2i64, 1], [2]);
        let each = t(&[8.0f64, 4.0], [2]);
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        vec![
            Sample::new(op(None, 0.0, Option::None), vec![logits.clone(), labels.clone(), each.clone()])
                .gives(vec![t(&[1.0f64, 2., -3., 2., -3., 1.], [2, 3])]),
            Sample::new(op(Mean, 0.0, Some(1)), vec![logits.clone(), labels.clone(), t(&[8.0f64], [])])
                .gives(vec![t(&[1.0f64, 2., -3., 0., 0., 0.], [2, 3])]),
            Sample::new(op(Sum, 0.3, Option::None), vec![w(&[2, 3]), labels.clone(), t(&[1.5f32], [])]),
            Sample::new(op(Mean, 0.1, Some(0)), vec![w(&[2, 3, 2]), t(&[0i32, 1, 2, 1], [2, 2]), t(&[1.5f32], [])]),
            Sample::new(op(None, 0.1, Some(0)), vec![w(&[2, 3, 2]), t(&[0u16, 1, 2, 1], [2, 2]), w(&[2, 2])]),
            Sample::new(op(None, 0.0, Option::None), vec![logits.clone(), t(&[9i64, 1], [2]), each.clone()])
                .fails(ErrorKind::Index),
            Sample::new(op(Sum, 0.0, Option::None), vec![logits, labels, each]).fails(ErrorKind::Shape),
        ]
    }
}

impl OpDef for TargetWeight {
    const NAME: &'static str = "label_weight";

    fn samples() -> Vec<Sample<Self>> {
        let op = |dtype, mean, ignore_index| TargetWeight { dtype, mean, ignore_index };
        let labels = t(&[3i64, 1, 3, 0, 2], [5]);
        let why = "a function of integers";
        vec![
            Sample::new(op(DType::F32, false, Some(3)), vec![labels.clone()])
                .gives(vec![t(&[0.0f32, 1., 0., 1., 1.], [5])])
                .no_grad(why),
            Sample::new(op(DType::F64, true, Some(2)), vec![labels.clone()])
                .gives(vec![t(&[0.25f64, 0.25, 0.25, 0.25, 0.0], [5])])
                .no_grad(why),
            Sample::new(op(DType::F32, true, None), vec![t(&[7u8, 9], [1, 2])])
                .gives(vec![t(&[0.5f32, 0.5], [1, 2])])
                .no_grad(why),
            Sample::new(op(DType::I32, true, None), vec![labels]).fails(ErrorKind::DType),
            Sample::new(op(DType::F32, true, None), vec![t(&[1.0f32], [1])]).fails(ErrorKind::DType),
        ]
    }
}
