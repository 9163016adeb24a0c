//! Ops evaluated on host tensors: constant folding, and the reference against which every other path is tested.

use remat_kernels::pool::Pool;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Layout, Result, Shape, SmallVec};

use crate::{EvalCx, In, LayoutReq, Op, Out};

/// Evaluates `op` on contiguous host tensors with `pool`. Errors: those of `infer` and `eval`.
pub fn eval_on_host(op: &dyn Op, x: &[HostTensor], pool: &Pool) -> Result<Vec<HostTensor>> {
    let views: Vec<(Layout, &HostTensor)> = x.iter().map(|t| (Layout::contiguous(t.shape().clone()), t)).collect();
    eval_views(op, &views, pool)
}

/// As [`eval_on_host`], on views of host tensors: layout `i` selects elements of tensor `i`.
pub(crate) fn eval_views(op: &dyn Op, x: &[(Layout, &HostTensor)], pool: &Pool) -> Result<Vec<HostTensor>> {
    let facts: SmallVec<[Fact; 4]> = x
        .iter()
        .map(|(l, t)| {
            let whole = l.is_contiguous() && l.elems() == t.elems();
            if whole {
                Fact { shape: l.shape().clone(), ..Fact::of(t) }
            } else {
                Fact::new(t.dtype(), l.shape().clone())
            }
        })
        .collect();
    let refs: SmallVec<[&Fact; 4]> = facts.iter().collect();
    let label = op.label();
    let y_facts = op.infer(&refs).map_err(|e| e.with_op(label))?;
    let mut copies: Vec<Option<HostTensor>> = Vec::with_capacity(x.len());
    for (i, (l, t)) in x.iter().enumerate() {
        let copy = op.layout(i) == LayoutReq::Contiguous && !l.is_contiguous();
        copies.push(if copy { Some(HostTensor::gather(t.dtype(), l, t.bytes())?) } else { None });
    }
    let plain: Vec<Layout> = x.iter().map(|(l, _)| Layout::contiguous(l.shape().clone())).collect();
    let ins: Vec<In<'_>> = x
        .iter()
        .zip(&copies)
        .zip(&plain)
        .map(|(((l, t), copy), plain)| match copy {
            Some(c) => In::new(t.dtype(), plain, c.bytes()),
            None => In::new(t.dtype(), l, t.bytes()),
        })
        .collect();
    let mut y: Vec<HostTensor> =
        y_facts.iter().map(|f| HostTensor::zeros(f.dtype, f.shape.clone())).collect::<Result<_>>()?;
    let shapes: Vec<Shape> = y_facts.iter().map(|f| f.shape.clone()).collect();
    let mut workspace = vec![0u64; op.workspace(&refs, pool.threads()).div_ceil(8)];
    {
        let mut outs: Vec<Out<'_>> =
            y.iter_mut().zip(&shapes).map(|(t, s)| Out::new(t.dtype(), s, t.bytes_mut(), None)).collect();
        let mut cx = EvalCx { x: &ins, y: &mut outs, workspace: bytemuck::cast_slice_mut(&mut workspace), pool };
        op.eval(&mut cx).map_err(|e| e.with_op(label))?;
    }
    Ok(y)
}

/// The outputs of `op` as facts with values, if every input's value is known and every output is one that facts
/// carry; otherwise `None`. `y` are the inferred facts.
pub fn fold(op: &dyn Op, x: &[&Fact], y: &[Fact]) -> Option<Result<Vec<HostTensor>>> {
    let foldable = !x.is_empty()
        && op.repeatable()
        && x.iter().all(|f| f.value.is_some())
        && y.iter().all(|f| Fact::carries_value(f.dtype, f.elems()));
    if !foldable {
        return None;
    }
    let values: Option<Vec<HostTensor>> = x.iter().map(|f| f.value.as_deref().cloned()).collect();
    let values = values?;
    Some(eval_inline(op, &values))
}

/// As [`eval_on_host`] on the caller's thread alone.
pub fn eval_inline(op: &dyn Op, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
    INLINE.with(|pool| eval_on_host(op, x, pool))
}

thread_local! {
    /// A pool without workers: folding happens on the caller's thread.
    static INLINE: Pool = Pool::new(1);
}

/// Errors (Arity) unless there are `want` inputs.
pub(crate) fn arity(x: &[&Fact], want: usize) -> Result<()> {
    if x.len() != want {
        return Err(Error::new(ErrorKind::Arity, format!("takes {want} inputs, got {}", x.len())));
    }
    Ok(())
}
