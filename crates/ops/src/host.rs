//! Ops evaluated on host tensors: constant folding, and the reference against which every other path is tested.

use remat_kernels::pool::Pool;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Layout, Result, Shape, SmallVec};

use crate::{EvalCx, In, LayoutReq, Op, Out};

/// Alignment of a workspace, in bytes: one cache line.
const WORKSPACE_ALIGN: usize = 64;

/// Evaluates `op` on contiguous host tensors with `pool`. Errors: those of `infer` and `eval`.
pub fn eval_on_host(op: &dyn Op, x: &[HostTensor], pool: &Pool) -> Result<Vec<HostTensor>> {
    let views: Vec<(Layout, &HostTensor)> = x.iter().map(|t| (Layout::contiguous(t.shape().clone()), t)).collect();
    eval_views(op, &views, pool, &HostRun::default())
}

/// How [`eval_views`] prepares memory; the harness varies it, results must not depend on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostRun<'a> {
    /// The byte that fills outputs and workspace beforehand.
    pub(crate) fill: u8,
    /// Pairs (input, output) that share storage: the input is donated. Its layout is contiguous and whole.
    pub(crate) donate: &'a [(usize, usize)],
}

/// As [`eval_on_host`], on views of host tensors: layout `i` selects elements of tensor `i`.
pub(crate) fn eval_views(
    op: &dyn Op,
    x: &[(Layout, &HostTensor)],
    pool: &Pool,
    run: &HostRun<'_>,
) -> Result<Vec<HostTensor>> {
    let facts: SmallVec<[Fact; 4]> = x.iter().map(|(l, t)| fact_of_view(l, t)).collect::<Result<_>>()?;
    let refs: SmallVec<[&Fact; 4]> = facts.iter().collect();
    let label = op.label();
    let y_facts = op.infer(&refs).map_err(|e| e.with_op(label))?;
    let mut copies: Vec<Option<HostTensor>> = Vec::with_capacity(x.len());
    for (i, (l, t)) in x.iter().enumerate() {
        let copy = op.layout(i) == LayoutReq::Contiguous && !l.is_contiguous();
        copies.push(if copy { Some(HostTensor::gather(t.dtype(), l, t.bytes())?) } else { None });
    }
    let plain: Vec<Layout> = x.iter().map(|(l, _)| Layout::contiguous(l.shape().clone())).collect();
    let is_donated = |i: usize| run.donate.iter().any(|d| d.0 == i);
    let ins: Vec<In<'_>> = (x.iter().zip(&copies).zip(&plain).enumerate())
        .map(|(i, (((l, t), copy), plain))| match copy {
            _ if is_donated(i) => In::donated(t.dtype(), plain),
            Some(c) => In::new(t.dtype(), plain, c.bytes()),
            None => In::new(t.dtype(), l, t.bytes()),
        })
        .collect();
    let mut y: Vec<HostTensor> = Vec::with_capacity(y_facts.len());
    for (j, f) in y_facts.iter().enumerate() {
        y.push(match run.donate.iter().find(|d| d.1 == j) {
            Some(&(i, _)) => x[i].1.clone(),
            None => filled(f, run.fill)?,
        });
    }
    let shapes: Vec<Shape> = y_facts.iter().map(|f| f.shape.clone()).collect();
    let bytes = op.workspace(&refs, pool.threads());
    let mut words = vec![u64::from_ne_bytes([run.fill; 8]); (bytes + WORKSPACE_ALIGN).div_ceil(8)];
    let workspace: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    let at = (WORKSPACE_ALIGN - workspace.as_ptr() as usize % WORKSPACE_ALIGN) % WORKSPACE_ALIGN;
    {
        let mut outs: Vec<Out<'_>> = (y.iter_mut().zip(&shapes).enumerate())
            .map(|(j, (t, s))| {
                let holds = run.donate.iter().find(|d| d.1 == j).map(|d| d.0);
                Out::new(t.dtype(), s, t.bytes_mut(), holds)
            })
            .collect();
        let mut cx = EvalCx { x: &ins, y: &mut outs, workspace: &mut workspace[at..at + bytes], pool };
        op.eval(&mut cx).map_err(|e| e.with_op(label))?;
    }
    Ok(y)
}

/// The fact of the elements that `l` selects of `t`, with their value where facts carry one.
fn fact_of_view(l: &Layout, t: &HostTensor) -> Result<Fact> {
    if Fact::carries_value(t.dtype(), l.elems()) {
        return Ok(Fact::of(&HostTensor::gather(t.dtype(), l, t.bytes())?));
    }
    Ok(Fact::new(t.dtype(), l.shape().clone()))
}

fn filled(f: &Fact, fill: u8) -> Result<HostTensor> {
    let mut t = HostTensor::zeros(f.dtype, f.shape.clone())?;
    if fill != 0 {
        t.bytes_mut().fill(fill);
    }
    Ok(t)
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
