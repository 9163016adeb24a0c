use remat_kernels::ctc::{Batch, Example, FORWARD_ROWS, backward_rows, ctc, ctc_grad, workspace_items};
use remat_kernels::float::FloatElement;
use remat_kernels::pool::Pool;
use remat_types::{Element, Error, ErrorKind, Fact, Facts, HostTensor, Result, for_float, for_storage, smallvec};

use crate::args::{
    items_of, not_differentiable, not_taken, real_dtype, want_dtype, want_float, want_int, want_rank, want_shape,
};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, In, Op, OpDef, Sample};

/// Connectionist temporal classification (Graves et al., ICML 2006): `(log_probs, targets, steps, lengths) -> loss`.
///
/// `loss[i]` is minus the logarithm of the probability that sequence `i` says its target: the sum over all ways to repeat
/// labels and to put blanks between them. `log_probs: [t, n, c]` are logarithms of probabilities, of a float dtype;
/// `targets` are labels of any integer dtype, `[n, s]` with the targets in the first places of the rows, or `[s]` with all
/// targets behind each other; `steps: [n]` and `lengths: [n]` say how many steps of the sequences and labels of the targets
/// count. A target that no way of so few steps says has an infinite loss. `loss: [n]` has the dtype of `log_probs`.
///
/// The gradient is that of this function of `log_probs`; after a log-softmax it is PyTorch's. Errors: DType, Axis, Shape;
/// Value for a blank that is no class, a length beyond its extent, or targets `[s]` of another total length; Index for a
/// label that is no class. A second derivative is not defined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(log_probs: float, targets: int, steps: int, lengths: int), gradient(log_probs))]
pub struct CtcLoss {
    /// The class that stands for no label.
    #[param(default = 0)]
    pub blank: usize,
    /// Losses that are infinite are 0, and so are their gradients.
    #[param(default = false)]
    pub zero_infinity: bool,
}

/// The gradient of [`CtcLoss`]: `(log_probs, targets, steps, lengths, dy) -> dlog_probs`. Errors: as there, and DType or
/// Shape for a `dy` that is not like the loss.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(log_probs: float, targets: int, steps: int, lengths: int, dy: float))]
pub struct CtcLossGrad {
    /// As in the forward op.
    #[param(default = 0)]
    pub blank: usize,
    /// As in the forward op.
    #[param(default = false)]
    pub zero_infinity: bool,
}

/// Errors: as [`CtcLoss`], as far as facts tell.
fn check(x: &[&Fact], blank: usize) -> Result<()> {
    want_float(x[0], "log_probs")?;
    want_rank(x[0], 3, "log_probs")?;
    let (n, c) = (x[0].shape[1], x[0].shape[2]);
    want_int(x[1], "targets")?;
    match x[1].rank() {
        1 => {}
        _ => {
            want_rank(x[1], 2, "targets")?;
            want_shape(x[1], &[n, x[1].shape[1]], "targets")?;
        }
    }
    for (f, name) in [(x[2], "steps"), (x[3], "lengths")] {
        want_int(f, name)?;
        want_shape(f, &[n], name)?;
    }
    if blank >= c {
        return Err(Error::new(ErrorKind::Value, format!("the blank is class {blank} of {c}")));
    }
    Ok(())
}

/// Bytes for the labels and examples, and for `rows` rows of states.
fn workspace(x: &[&Fact], rows: usize) -> usize {
    let (n, labels) = (x[2].elems(), x[1].elems());
    let numbers = labels.saturating_mul(size_of::<i64>()).saturating_add(n.saturating_mul(size_of::<Example>()));
    let states = workspace_items(rows, labels, n).saturating_mul(real_dtype(x[0].dtype).size_bytes());
    numbers.saturating_add(states)
}

/// Element `i` of a tensor of integers; one of U64 beyond I64 is negative.
fn integers(x: &In<'_>, mut each: impl FnMut(usize, i64) -> Result<()>) -> Result<()> {
    for_storage!(x.dtype(), T => x.slice::<T>()?.iter().enumerate().try_for_each(|(i, v)| each(i, v.to_i64())))
}

/// Errors: Value for a number outside `0 ..= most`.
fn within(v: i64, most: usize, what: &str, i: usize) -> Result<u64> {
    match u64::try_from(v) {
        Ok(v) if v <= most as u64 => Ok(v),
        _ => Err(Error::new(ErrorKind::Value, format!("{what} of sequence {i} is {v}, must be 0 to {most}"))),
    }
}

/// Reads targets and lengths into `labels` and `examples`. Errors: Value, Index.
fn read(x: &[In<'_>], labels: &mut [i64], examples: &mut [Example]) -> Result<()> {
    let (steps, classes, targets) = (x[0].shape()[0], x[0].shape()[2], x[1].shape());
    let row = (targets.rank() == 2).then(|| targets[1]);
    integers(&x[2], |i, v| within(v, steps, "the number of steps", i).map(|steps| examples[i].steps = steps))?;
    let most = row.unwrap_or(labels.len());
    integers(&x[3], |i, v| within(v, most, "the target's length", i).map(|v| examples[i].labels = v))?;
    let mut start = 0u64;
    for (i, e) in examples.iter_mut().enumerate() {
        e.start = row.map_or(start, |row| (i * row) as u64);
        start = start.saturating_add(e.labels);
    }
    if row.is_none() && start != labels.len() as u64 {
        let text = format!("{} labels for targets of {start} labels together", labels.len());
        return Err(Error::new(ErrorKind::Value, text));
    }
    integers(&x[1], |i, v| {
        labels[i] = v;
        Ok(())
    })?;
    for e in examples.iter() {
        let own = e.start as usize..(e.start + e.labels) as usize;
        for at in own {
            if u64::try_from(labels[at]).map_or(true, |l| l >= classes as u64) {
                let text = format!("label {} at position {at} of the targets is none of {classes} classes", labels[at]);
                return Err(Error::new(ErrorKind::Index, text));
            }
        }
    }
    Ok(())
}

/// Calls `run` with the batch and the workspace of states.
fn with_batch<T: FloatElement>(
    x: &[In<'_>],
    workspace: &mut [u8],
    (blank, zero_infinity): (usize, bool),
    rows: usize,
    run: impl FnOnce(Batch<'_, T>, &mut [T::Real]) -> Result<()>,
) -> Result<()> {
    let (n, elems) = (x[2].shape().elems(), x[1].shape().elems());
    let at_labels = elems * size_of::<i64>();
    let (bytes, rest) = workspace.split_at_mut(at_labels.min(workspace.len()));
    let labels = items_of::<i64>(bytes, elems)?;
    let (bytes, states) = rest.split_at_mut((n * size_of::<Example>()).min(rest.len()));
    let examples = items_of::<Example>(bytes, n)?;
    read(x, labels, examples)?;
    let states = items_of::<T::Real>(states, workspace_items(rows, elems, n))?;
    let log_probs = x[0].slice::<T>()?;
    run(Batch { log_probs, classes: x[0].shape()[2], labels, examples, blank, zero_infinity }, states)
}

impl Op for CtcLoss {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 4)?;
        check(x, self.blank)?;
        Ok(smallvec![Fact::new(x[0].dtype, [x[0].shape[1]])])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (x, pool, dtype): (_, &Pool, _) = (cx.x, cx.pool, cx.x[0].dtype());
        let y = &mut cx.y[0];
        for_float!(dtype, T => {
            let loss = y.slice_mut::<T>()?;
            with_batch::<T>(x, cx.workspace, (self.blank, self.zero_infinity), FORWARD_ROWS, |batch, states| {
                ctc(pool, batch, states, loss);
                Ok(())
            })
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None; 4]) };
        let op = CtcLossGrad { blank: self.blank, zero_infinity: self.zero_infinity };
        let dx = cx.apply(op, &[cx.x(0), cx.x(1), cx.x(2), cx.x(3), dy])?;
        Ok(smallvec![Some(dx), None, None, None])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        workspace(x, FORWARD_ROWS)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(states_flops(x))
    }
}

/// Some sixty operations a state and step.
fn states_flops(x: &[&Fact]) -> u64 {
    let steps = x[0].shape.first().copied().unwrap_or(0);
    (60 * workspace_items(steps, x[1].elems(), x[2].elems()) as u128).min(u64::MAX.into()) as u64
}

impl Op for CtcLossGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 5)?;
        check(x, self.blank)?;
        want_dtype(x[4], x[0].dtype, "dy")?;
        want_shape(x[4], &[x[0].shape[1]], "dy")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (x, pool, dtype): (_, &Pool, _) = (cx.x, cx.pool, cx.x[0].dtype());
        let (y, steps) = (&mut cx.y[0], x[0].shape()[0]);
        let rows = backward_rows(steps);
        for_float!(dtype, T => {
            let (dy, dx) = (x[4].slice::<T>()?, y.slice_mut::<T>()?);
            with_batch::<T>(x, cx.workspace, (self.blank, self.zero_infinity), rows, |batch, states| {
                ctc_grad(pool, batch, steps, dy, states, dx);
                Ok(())
            })
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("the gradient of a CTC loss"))
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        workspace(x, backward_rows(x[0].shape[0]))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(states_flops(x).saturating_mul(2))
    }
}

/// Logarithms of three classes over so many steps and sequences, without a pattern.
fn logs(steps: usize, n: usize) -> HostTensor {
    let v: Vec<f32> = (0..steps * n * 3).map(|i| -1.1 - 0.5 * (i as f32 * 1.3).sin()).collect();
    t(&v, [steps, n, 3])
}

/// Two steps of two classes with probabilities of a quarter and three, then a half each, where class 0 is blank.
fn two_steps() -> HostTensor {
    t(&[0.25f64.ln(), 0.75f64.ln(), 0.5f64.ln(), 0.5f64.ln()], [2, 1, 2])
}

fn ints(v: &[i64]) -> HostTensor {
    t(v, [v.len()])
}

impl OpDef for CtcLoss {
    const NAME: &'static str = "ctc_loss";

    fn samples() -> Vec<Sample<Self>> {
        let op = |blank, zero_infinity| CtcLoss { blank, zero_infinity };
        let base = || op(0, false);
        let rows = t(&[1i64, 2, 1, 2, 2, 0], [2, 3]);
        let one = |target: &[i64], steps: i64, length: i64| {
            vec![two_steps(), t(target, [1, target.len()]), ints(&[steps]), ints(&[length])]
        };
        let fails = |x, kind| Sample::new(base(), x).fails(kind);
        vec![
            // the label in both steps, or in either with a blank: 3/8 + 3/8 + 1/8
            Sample::new(base(), one(&[1], 2, 1)).gives(vec![t(&[-0.875f64.ln()], [1])]),
            // the label twice has to have a blank between
            Sample::new(base(), one(&[1, 1], 2, 2)).gives(vec![t(&[f64::INFINITY], [1])]).no_grad("infinite"),
            Sample::new(op(0, true), one(&[1, 1], 2, 2)).gives(vec![t(&[0.0f64], [1])]).no_grad("no gradient flows"),
            // no label: both steps are blank; one step
            Sample::new(base(), one(&[1], 2, 0)).gives(vec![t(&[-0.125f64.ln()], [1])]),
            Sample::new(base(), one(&[1], 1, 1)).gives(vec![t(&[-0.75f64.ln()], [1])]),
            Sample::new(base(), one(&[1], 0, 0)).gives(vec![t(&[0.0f64], [1])]).no_grad("of no step"),
            Sample::new(base(), one(&[1], 0, 1)).gives(vec![t(&[f64::INFINITY], [1])]).no_grad("infinite"),
            // the blank is the other class
            Sample::new(op(1, false), one(&[0], 2, 1)).gives(vec![t(&[-(0.125f64 + 0.375 + 0.125).ln()], [1])]),
            Sample::new(base(), vec![logs(5, 2), rows.clone(), ints(&[5, 4]), ints(&[3, 2])]),
            Sample::new(op(2, false), vec![logs(6, 2), ints(&[1, 0, 1, 1]), ints(&[6, 5]), ints(&[3, 1])]),
            Sample::new(base(), vec![logs(4, 1), t(&[1u8, 2], [1, 2]), t(&[4i32], [1]), t(&[2u16], [1])]),
            fails(vec![logs(5, 2), rows.clone(), ints(&[5, 6]), ints(&[3, 2])], ErrorKind::Value),
            fails(vec![logs(5, 2), rows.clone(), ints(&[5, 4]), ints(&[4, 2])], ErrorKind::Value),
            fails(vec![logs(5, 2), rows.clone(), ints(&[-1, 4]), ints(&[3, 2])], ErrorKind::Value),
            fails(vec![logs(5, 2), ints(&[1, 2, 1]), ints(&[5, 4]), ints(&[1, 1])], ErrorKind::Value),
            fails(one(&[2], 2, 1), ErrorKind::Index),
            fails(one(&[-1], 2, 1), ErrorKind::Index),
            fails(vec![logs(5, 2), rows.clone(), ints(&[5]), ints(&[3, 2])], ErrorKind::Shape),
            fails(vec![logs(5, 3), rows.clone(), ints(&[5; 3]), ints(&[3, 2, 2])], ErrorKind::Shape),
            fails(vec![t(&[1.0f32; 6], [2, 3]), rows.clone(), ints(&[5; 3]), ints(&[3; 3])], ErrorKind::Axis),
            fails(vec![logs(5, 2), t(&[1.0f32; 6], [2, 3]), ints(&[5, 4]), ints(&[3, 2])], ErrorKind::DType),
            Sample::new(op(3, false), vec![logs(5, 2), rows, ints(&[5, 4]), ints(&[3, 2])]).fails(ErrorKind::Value),
        ]
    }
}

impl OpDef for CtcLossGrad {
    const NAME: &'static str = "ctc_loss_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |zero_infinity| CtcLossGrad { blank: 0, zero_infinity };
        let one = |target: &[i64], steps: i64, length: i64| {
            let dy = t(&[7.0f64], [1]);
            vec![two_steps(), t(target, [1, target.len()]), ints(&[steps]), ints(&[length]), dy]
        };
        let of = |zero_infinity, x| Sample::new(op(zero_infinity), x).no_grad("a second derivative is not defined");
        vec![
            // of 7/8: a quarter of the first step is blank and the second then not; half the second, and both
            of(false, one(&[1], 2, 1)).gives(vec![t(&[-1.0f64, -6.0, -3.0, -4.0], [2, 1, 2])]),
            of(false, one(&[1], 1, 1)).gives(vec![t(&[0.0f64, -7.0, 0.0, 0.0], [2, 1, 2])]),
            of(true, one(&[1, 1], 2, 2)).gives(vec![t(&[0.0f64; 4], [2, 1, 2])]),
            of(false, vec![logs(5, 2), ints(&[1, 2, 2]), ints(&[5, 4]), ints(&[1, 2]), t(&[1.5f32, -0.5], [2])]),
            of(false, vec![logs(5, 2), ints(&[1, 2, 2]), ints(&[5, 4]), ints(&[1, 2]), t(&[1.5f64, -0.5], [2])])
                .fails(ErrorKind::DType),
            of(false, vec![logs(5, 2), ints(&[1, 2, 2]), ints(&[5, 4]), ints(&[1, 2]), t(&[1.5f32], [1])])
                .fails(ErrorKind::Shape),
            of(false, vec![logs(5, 2), ints(&[1, 2, 3]), ints(&[5, 4]), ints(&[1, 2]), t(&[1.5f32, -0.5], [2])])
                .fails(ErrorKind::Index),
        ]
    }
}
