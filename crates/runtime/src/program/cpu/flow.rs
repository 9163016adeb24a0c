//! The CPU's way to run programs within programs: in the workspace of the step that runs them, so no byte is taken.

use remat_ops::{EvalCx, In, Out};
use remat_types::{DType, Error, ErrorKind, Fact, Layout, Result, Shape, SmallVec};

use crate::arena::padded;
use crate::program::Program;
use crate::program::flow::{FLAGS_BYTES, Flow, LoopProgram};

/// Operands of a step up to this number cost no allocation.
const INLINE: usize = 16;

impl Flow {
    /// Runs it on the operands of its step. Errors: those of the programs; Index for a branch that is not there.
    pub(crate) fn run(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        match self {
            Flow::Call(body) => body.run(cx),
            Flow::Switch(branches) => run_branch(&branches[chosen(cx, branches.len())?], cx),
            Flow::Loop(body) => body.run(cx),
        }
    }
}

/// The branch that the first operand counts. Errors (Index): there is none.
pub(crate) fn chosen(cx: &EvalCx<'_>, branches: usize) -> Result<usize> {
    let chosen = match cx.x[0].dtype() {
        DType::Bool => i64::from(cx.x[0].slice::<u8>()?[0]),
        _ => cx.x[0].slice::<i64>()?[0],
    };
    let found = usize::try_from(chosen).ok().filter(|i| *i < branches);
    found.ok_or_else(|| Error::new(ErrorKind::Index, format!("branch {chosen} of {branches}")))
}

/// Runs a branch on all operands but the first, which chose it.
pub(crate) fn run_branch(branch: &Program, cx: &mut EvalCx<'_>) -> Result<()> {
    let all = cx.x;
    cx.x = &all[1..];
    let done = branch.run(cx);
    cx.x = all;
    done
}

fn short() -> Error {
    Error::new(ErrorKind::Internal, "an operand of a loop is smaller than its fact says")
}

/// Row `k` of rows of `size` bytes.
fn row(all: &[u8], k: usize, size: usize) -> Result<&[u8]> {
    all.get(k * size..(k + 1) * size).ok_or_else(short)
}

impl LoopProgram {
    /// Runs all steps that are to be made.
    pub(crate) fn run(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let steps = match cx.x.last().filter(|_| self.counted) {
            Some(count) => {
                let n = i64::from_ne_bytes(count.element_bytes()?.try_into().map_err(|_| short())?);
                usize::try_from(n).unwrap_or(0).min(self.trips)
            }
            None => self.trips,
        };
        let made = Run::new(self, cx).run(self, cx, steps)?;
        if self.conditional {
            let last = cx.y.last_mut().ok_or_else(short)?;
            last.slice_mut::<i64>()?[0] = made as i64;
        }
        Ok(())
    }
}

/// What the steps of a run share.
struct Run<'a> {
    x: &'a [In<'a>],
    own: SmallVec<[Layout; INLINE]>,
    /// Offset and bytes of each carried value within a set.
    at: SmallVec<[(usize, usize); INLINE]>,
    set_bytes: usize,
    no_shape: Shape,
}

impl<'a> Run<'a> {
    fn new(op: &LoopProgram, cx: &EvalCx<'a>) -> Run<'a> {
        let mut at = SmallVec::new();
        let mut end = 0;
        for f in op.body.y.iter().take(op.carried) {
            at.push((end, f.bytes()));
            end += padded(f.bytes());
        }
        let own = op.body.x.iter().map(Fact::layout).collect();
        Run { x: cx.x, own, at, set_bytes: end, no_shape: Shape::scalar() }
    }

    /// All steps; carried values go to and fro between two sets. The number of steps made.
    fn run(&self, op: &LoopProgram, cx: &mut EvalCx<'a>, steps: usize) -> Result<usize> {
        let inner_bytes = op.body.workspace_bytes;
        let (inner, rest) = cx.workspace.split_at_mut_checked(padded(inner_bytes)).ok_or_else(short)?;
        let inner = &mut inner[..inner_bytes];
        let (flags, rest) = rest.split_at_mut_checked(FLAGS_BYTES).ok_or_else(short)?;
        let (mut from, rest) = rest.split_at_mut_checked(self.set_bytes).ok_or_else(short)?;
        let mut to = rest.get_mut(..self.set_bytes).ok_or_else(short)?;
        for (x, (at, bytes)) in self.x.iter().zip(&self.at) {
            from[*at..at + bytes].copy_from_slice(x.element_bytes()?.get(..*bytes).ok_or_else(short)?);
        }
        let (number, flag) = flags.split_at_mut(FLAGS_BYTES / 2);
        let (mut made, stacked) = (0, op.stacked());
        while made < steps {
            let k = if op.reverse { steps - 1 - made } else { made };
            number[..8].copy_from_slice(&(k as i64).to_ne_bytes());
            {
                let x = self.inputs(op, k, &number[..8], from)?;
                let rows = &mut cx.y[op.carried..op.carried + stacked];
                let n = op.body.y.len();
                let mut own: [Out<'_>; INLINE] =
                    std::array::from_fn(|_| Out::new(DType::U8, &self.no_shape, &mut [], None));
                let mut more: Vec<Out<'_>> = Vec::new();
                let y = match own.get_mut(..n) {
                    Some(y) => y,
                    None => {
                        more.extend((0..n).map(|_| Out::new(DType::U8, &self.no_shape, &mut [], None)));
                        &mut more[..]
                    }
                };
                self.outputs(op, k, (to, rows, &mut flag[..1]), y)?;
                op.body.run(&mut EvalCx { x: &x, y, workspace: inner, pool: cx.pool })?;
            }
            std::mem::swap(&mut from, &mut to);
            made += 1;
            if op.conditional && flag[0] == 0 {
                break;
            }
        }
        for (y, (at, bytes)) in cx.y.iter_mut().zip(&self.at) {
            y.bytes_mut().copy_from_slice(&from[*at..at + bytes]);
        }
        for (y, f) in cx.y[op.carried..].iter_mut().zip(op.body.y.iter().skip(op.carried)).take(stacked) {
            y.bytes_mut().get_mut(made * f.bytes()..).ok_or_else(short)?.fill(0);
        }
        Ok(made)
    }

    fn inputs<'s>(
        &'s self,
        op: &LoopProgram,
        k: usize,
        number: &'s [u8],
        from: &'s [u8],
    ) -> Result<SmallVec<[In<'s>; INLINE]>> {
        let mut x: SmallVec<[In<'s>; INLINE]> = SmallVec::new();
        for (i, (f, layout)) in op.body.x.iter().zip(&self.own).enumerate() {
            let bytes = match i.checked_sub(1) {
                None => number,
                Some(i) if i < op.carried => {
                    let (at, bytes) = self.at[i];
                    &from[at..at + bytes]
                }
                Some(i) if i < op.carried + op.sliced => row(self.x[i].element_bytes()?, k, f.bytes())?,
                Some(i) => self.x[i].element_bytes()?,
            };
            x.push(In::new(f.dtype, layout, bytes));
        }
        Ok(x)
    }

    /// The outputs of step `k`: the next carried values, rows, the condition.
    fn outputs<'s>(
        &self,
        op: &'s LoopProgram,
        k: usize,
        (to, rows, flag): (&'s mut [u8], &'s mut [Out<'_>], &'s mut [u8]),
        y: &mut [Out<'s>],
    ) -> Result<()> {
        let mut y = y.iter_mut();
        let mut give = |out: Out<'s>| y.next().map(|y| *y = out).ok_or_else(short);
        let mut facts = op.body.y.iter();
        let mut left = to;
        for (f, (_, bytes)) in facts.by_ref().take(op.carried).zip(&self.at) {
            let (own, rest) = left.split_at_mut_checked(padded(*bytes)).ok_or_else(short)?;
            give(Out::new(f.dtype, &f.shape, &mut own[..*bytes], None))?;
            left = rest;
        }
        for (r, f) in rows.iter_mut().zip(facts.by_ref()) {
            let own = r.bytes_mut().get_mut(k * f.bytes()..(k + 1) * f.bytes()).ok_or_else(short)?;
            give(Out::new(f.dtype, &f.shape, own, None))?;
        }
        if let Some(f) = facts.next() {
            give(Out::new(f.dtype, &f.shape, flag, None))?;
        }
        Ok(())
    }
}
