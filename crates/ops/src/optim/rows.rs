use remat_kernels::float::FloatElement;
use remat_kernels::optim::{RowTerms, Sgd, SparseAdam, rows_workspace_items, sgd_rows, sparse_adam};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, Scalar, for_float, smallvec};

use super::rule::{NO_GRADIENT, decay, step, want_step};
use super::{rate, want_rate};
use crate::args::{epsilon, items_of, not_differentiable, not_taken, outputs, want_dtype, want_float, want_like};
use crate::host::arity;
use crate::index::{bad_index, indices, is_index};
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, In, Op, OpDef, Sample, Tolerance};

/// Errors (Shape, DType, Arity) unless `terms` are pairs of indices and as many rows of the table `param`, one pair at least.
fn want_terms(terms: &[&Fact], param: &Fact) -> Result<()> {
    let Some((_, row)) = param.shape.split_first() else {
        return Err(Error::new(ErrorKind::Shape, "a scalar has no rows"));
    };
    if terms.is_empty() || !terms.len().is_multiple_of(2) {
        let text = format!("{} inputs for the gradient, which is pairs of indices and rows", terms.len());
        return Err(Error::new(ErrorKind::Arity, text));
    }
    for pair in terms.chunks_exact(2) {
        let (index, rows) = (pair[0], pair[1]);
        is_index(index)?;
        want_dtype(rows, param.dtype, "a row of the gradient")?;
        if rows.shape.strip_prefix(index.shape.dims()) != Some(row) {
            let text = format!("rows {} for indices {} and a table {}", rows.shape, index.shape, param.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
    }
    Ok(())
}

/// The pairs of indices and rows. Errors: Index for one that is no row of `count`.
fn terms<'a, T: FloatElement>(x: &'a [In<'a>], count: usize) -> Result<Vec<RowTerms<'a, T>>> {
    let one = |pair: &'a [In<'a>]| {
        let index = indices(&pair[0])?;
        // before the table is handed over
        index.check(count).map_err(|e| bad_index(e, count))?;
        Ok(RowTerms { index, rows: pair[1].slice()? })
    };
    x.chunks_exact(2).map(one).collect()
}

/// Items of the workspace of an update by these pairs.
fn workspace_items<'a>(indices: impl Iterator<Item = &'a Fact>) -> usize {
    rows_workspace_items(indices.step_by(2).map(Fact::elems).fold(0, usize::saturating_add))
}

fn cost(terms: &[&Fact], flops: u64, states: usize) -> Cost {
    let elems: usize = terms.iter().skip(1).step_by(2).map(|rows| rows.elems()).sum();
    let bytes: usize = terms.iter().map(|f| f.bytes()).sum();
    let row = terms.get(1).map_or(0, |rows| rows.dtype.size_bytes());
    Cost { bytes: (bytes + 2 * states * elems * row) as u64, ..Cost::default() }.with_flops(flops * elems as u64)
}

/// [`SgdUpdate`](super::SgdUpdate) without momentum by a gradient that has few rows: `param[r] -= lr grad[r]` for the rows `r` that it names.
///
/// `(param, lr, (index, rows)..) -> param`: `index` of any integer dtype and shape `[n..]`, `rows: [n.., param.shape[1..]]` of the parameter's float
/// dtype, which add up in the order of the indices where several have one row, and then in that of the pairs. Bits are those of
/// `sgd_update` with the sum of [`TakeGrad`](crate::index::TakeGrad) of each pair. `lr` is as there.
///
/// Errors: DType, Shape or Arity for tensors that do not fit, Index for one not in `0..param.shape[0]`. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, lr: float, terms..: any))]
pub struct SgdRowsUpdate {
    /// Goes up the gradient.
    pub maximize: bool,
}

impl Op for SgdRowsUpdate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let [param, lr, terms @ ..] = x else { return arity(x, 4).map(|()| Facts::new()) };
        want_float(param, "the parameter")?;
        want_rate(lr, param)?;
        want_terms(terms, param)?;
        Ok(smallvec![Fact::new(param.dtype, param.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, pool, x) = (cx.x[0].dtype(), cx.pool, cx.x);
        let (lr, maximize) = (rate(&x[1])?, self.maximize);
        let s = Sgd { lr, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0, maximize };
        let count = x[0].shape()[0];
        for_float!(dtype, T => {
            let terms = terms::<T>(&x[2..], count)?;
            let items = rows_workspace_items(terms.iter().map(|t| t.index.len()).sum());
            cx.output_from::<T>(0, 0)?;
            let workspace = items_of::<u64>(cx.workspace, items)?;
            sgd_rows(pool, s, cx.y[0].slice_mut::<T>()?, count, &terms, workspace).map_err(|e| bad_index(e, count))
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        workspace_items(x[2..].iter().copied()).saturating_mul(size_of::<u64>())
    }

    fn cost(&self, x: &[&Fact], _y: &[Fact]) -> Cost {
        cost(&x[2..], 4, 1)
    }
}

/// Inputs of a sample: indices and rows after the given inputs.
fn with_terms(
    mut x: Vec<remat_types::HostTensor>,
    terms: &[(&[i64], &[f32])],
    inner: usize,
) -> Vec<remat_types::HostTensor> {
    for (index, rows) in terms {
        x.extend([t(index, [index.len()]), t(rows, [index.len(), inner])]);
    }
    x
}

impl OpDef for SgdRowsUpdate {
    const NAME: &'static str = "sgd_rows_update";

    fn samples() -> Vec<Sample<Self>> {
        let down = SgdRowsUpdate { maximize: false };
        let table = || t(&[1.0f32, 2., 3., 4., 5., 6.], [3, 2]);
        let x = |terms: &[(&[i64], &[f32])]| with_terms(vec![table(), t(&[0.5f32], [])], terms, 2);
        let (n, inner) = (300usize, 200usize);
        let index: Vec<i64> = (0..n).map(|i| (i * i % 250) as i64).collect();
        let rows: Vec<f32> = (0..n * inner).map(|i| (i as f32 * 0.3).sin()).collect();
        let big = t(&(0..250 * inner).map(|i| (i as f32 * 0.1).sin()).collect::<Vec<f32>>(), [250, inner]);
        vec![
            Sample::new(down.clone(), x(&[(&[2, 0, 2], &[1., 2., 3., 4., 5., 6.])]))
                .gives(vec![t(&[-0.5f32, 0., 3., 4., 2., 2.], [3, 2])])
                .within(Tolerance::Exact)
                .no_grad(NO_GRADIENT),
            Sample::new(
                SgdRowsUpdate { maximize: true },
                x(&[(&[1], &[2., 4.]), (&[], &[]), (&[1, 2], &[2., 2., 2., 2.])]),
            )
            .gives(vec![t(&[1.0f32, 2., 5., 7., 6., 7.], [3, 2])])
            .no_grad(NO_GRADIENT),
            Sample::new(down.clone(), with_terms(vec![big, t(&[0.1f32], [])], &[(&index, &rows)], inner))
                .no_grad(NO_GRADIENT),
            Sample::new(down.clone(), x(&[(&[0, 3], &[1., 2., 3., 4.])])).fails(ErrorKind::Index),
            Sample::new(down.clone(), x(&[(&[0, -1], &[1., 2., 3., 4.])])).fails(ErrorKind::Index),
            Sample::new(down.clone(), x(&[])).fails(ErrorKind::Arity),
            Sample::new(down.clone(), with_terms(vec![table(), t(&[0.5f32], [])], &[(&[0], &[1.0])], 1))
                .fails(ErrorKind::Shape),
            Sample::new(down.clone(), vec![table(), t(&[0.5f32], []), t(&[0.0f32], [1]), t(&[1.0f32, 2.], [1, 2])])
                .fails(ErrorKind::DType),
            Sample::new(down, vec![t(&[1.0f32], []), t(&[0.5f32], []), t(&[0i64], [1]), t(&[1.0f32], [1])])
                .fails(ErrorKind::Shape),
        ]
    }
}

/// One step of Adam of the rows that the gradient names, as `torch.optim.SparseAdam` computes it.
///
/// `(param, lr, step, m, v, (index, rows)..) -> (param, m, v)`: of those rows, `g` being the sum of their terms, `m += (1 - beta1) (g - m)`;
/// `v += (1 - beta2) (g^2 - v)`; `param -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)`. The other rows and their moments stay.
/// The pairs are as of [`SgdRowsUpdate`]; `m` and `v` are like the parameter, `step` is a rank-0 i64, `t >= 1`.
///
/// Errors: as there; Value for a beta outside `0 .. 1`, a negative or non-finite `eps`, or a step below 1. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, lr: float, step: i64, m: float, v: float, terms..: any))]
pub struct SparseAdamUpdate {
    /// Decay of the first moment.
    pub beta1: Scalar,
    /// Decay of the second moment.
    pub beta2: Scalar,
    /// Added to the root of the second moment.
    pub eps: Scalar,
    /// Goes up the gradient.
    pub maximize: bool,
}

impl SparseAdamUpdate {
    fn numbers(&self) -> Result<SparseAdam> {
        Ok(SparseAdam {
            lr: 0.0,
            beta1: decay(self.beta1, "beta1")?,
            beta2: decay(self.beta2, "beta2")?,
            eps: epsilon(self.eps)?,
            maximize: self.maximize,
            step: 1.0,
        })
    }
}

impl Op for SparseAdamUpdate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let [param, lr, step, m, v, terms @ ..] = x else { return arity(x, 7).map(|()| Facts::new()) };
        self.numbers()?;
        want_float(param, "the parameter")?;
        want_rate(lr, param)?;
        want_step(step)?;
        want_like(m, param, "the first moment")?;
        want_like(v, param, "the second moment")?;
        want_terms(terms, param)?;
        let y = Fact::new(param.dtype, param.shape.clone());
        Ok(smallvec![y.clone(), y.clone(), y])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, pool, x) = (cx.x[0].dtype(), cx.pool, cx.x);
        let a = SparseAdam { lr: rate(&x[1])?, step: step(&x[2])?, ..self.numbers()? };
        let count = x[0].shape()[0];
        for_float!(dtype, T => {
            let terms = terms::<T>(&x[5..], count)?;
            let items = rows_workspace_items(terms.iter().map(|t| t.index.len()).sum());
            cx.output_from::<T>(0, 0)?;
            cx.output_from::<T>(3, 1)?;
            cx.output_from::<T>(4, 2)?;
            let workspace = items_of::<u64>(cx.workspace, items)?;
            let [param, m, v] = outputs(cx.y)?;
            let state = [param.slice_mut::<T>()?, m.slice_mut()?, v.slice_mut()?];
            sparse_adam(pool, a, state, count, &terms, workspace).map_err(|e| bad_index(e, count))
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (3, 1), (4, 2)]
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        workspace_items(x[5..].iter().copied()).saturating_mul(size_of::<u64>())
    }

    fn cost(&self, x: &[&Fact], _y: &[Fact]) -> Cost {
        cost(&x[5..], 16, 3)
    }
}

impl OpDef for SparseAdamUpdate {
    const NAME: &'static str = "sparse_adam_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |beta1: f64, maximize| SparseAdamUpdate {
            beta1: beta1.into(),
            beta2: 0.75.into(),
            eps: 0.0.into(),
            maximize,
        };
        let v = |v: &[f32]| t(v, [v.len(), 1]);
        let x = |step: i64, terms: &[(&[i64], &[f32])]| {
            let (table, m, of) = (v(&[1., 2., 3.]), v(&[4., 0., 4.]), v(&[9., 0., 9.]));
            with_terms(vec![table, t(&[0.5f32], []), t(&[step], []), m, of], terms, 1)
        };
        let moved = |p: f32, m: f32| vec![v(&[1., p, 3.]), v(&[4., m, 4.]), v(&[9., 4., 9.])];
        vec![
            Sample::new(op(0.5, false), x(1, &[(&[1, 1], &[1., 3.])])).gives(moved(1.5, 2.)).no_grad(NO_GRADIENT),
            Sample::new(op(0.5, true), x(1, &[(&[1], &[1.]), (&[1], &[3.])]))
                .gives(moved(2.5, -2.))
                .no_grad(NO_GRADIENT),
            Sample::new(op(1.0, false), x(1, &[(&[1], &[1.])])).fails(ErrorKind::Value),
            Sample::new(op(0.5, false), x(0, &[(&[1], &[1.])])).fails(ErrorKind::Value),
            Sample::new(op(0.5, false), x(1, &[(&[3], &[1.])])).fails(ErrorKind::Index),
            Sample::new(op(0.5, false), x(1, &[])).fails(ErrorKind::Arity),
        ]
    }
}
