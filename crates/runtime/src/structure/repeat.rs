use std::sync::Arc;

use remat_ops::schema::Params;
use remat_ops::{Cost, EvalCx, GradCx, Grads, In, Op, OpDef, OpRef, Out, Sample};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Layout, Result, Shape, SmallVec};

use super::body::{Body, plain};
use crate::{Executable, padded};

/// A graph that runs again and again on what it gave before.
///
/// ```text
/// inputs   carried values . one slice a step . constants . (count)
/// outputs  carried values . one slice a step . (steps made)
/// body     (step: i64[], carried.., slices.., constants..) -> (carried.., slices.., (go on: bool[]))
/// ```
///
/// Each step reads row `step` of the sliced inputs (`[trips, ..]`) and writes that row of the sliced outputs
/// (`[trips, ..]`); rows of steps that are not made are 0. Carried values keep their types.
///
/// Errors: Value for parameters that contradict each other; Arity, DType and Shape for a body or inputs that do not fit;
/// those of the body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x..: any), gradient(x))]
pub struct Loop {
    /// What runs in each step.
    pub body: Body,
    /// The number of steps, or the most.
    pub trips: usize,
    /// The number of carried values.
    pub carried: usize,
    /// The number of inputs that are read row by row.
    pub sliced: usize,
    /// Steps go from the last to the first.
    #[param(default = false)]
    pub reverse: bool,
    /// The last input, an I64 of rank 0, says how many steps are made: at least none, at most `trips`.
    #[param(default = false)]
    pub counted: bool,
    /// The last output of the body, a Bool of rank 0, says whether another step follows; the op gives the number of steps.
    #[param(default = false)]
    pub conditional: bool,
}

/// Operands of a step up to this number cost no allocation.
const INLINE: usize = 16;

/// Bytes of workspace for the step's number and the body's condition.
const FLAGS_BYTES: usize = 64;

impl Loop {
    /// The number of the body's outputs that are stacked.
    pub(super) fn stacked(&self) -> usize {
        self.body.y().len().saturating_sub(self.carried + usize::from(self.conditional))
    }

    /// The number of the body's constants.
    pub(super) fn constants(&self) -> usize {
        self.body.x().len().saturating_sub(1 + self.carried + self.sliced)
    }

    fn check(&self) -> Result<()> {
        let wrong = |kind, text: String| Err(Error::new(kind, text));
        if self.reverse && self.conditional {
            return wrong(ErrorKind::Value, "a loop with a condition runs forward".into());
        }
        let (x, y): (Vec<&Fact>, Vec<&Fact>) = (self.body.x().collect(), self.body.y().collect());
        let least = self.carried.saturating_add(usize::from(self.conditional));
        let given = self.carried.saturating_add(self.sliced).saturating_add(1);
        if x.len() < given || y.len() < least {
            let text = format!("the body takes {} values and gives {}", x.len(), y.len());
            return wrong(ErrorKind::Arity, text);
        }
        if !x[0].same_type(&Fact::new(DType::I64, Shape::scalar())) {
            return wrong(ErrorKind::Shape, "the body's first input is the step: i64[]".into());
        }
        for (i, (a, b)) in x[1..=self.carried].iter().zip(&y).enumerate() {
            if !a.same_type(b) {
                let text = format!(
                    "carried value {i} is {}{} and becomes {}{} in a step; a loop has one place for all of its steps",
                    a.dtype, a.shape, b.dtype, b.shape
                );
                return wrong(ErrorKind::Shape, text);
            }
        }
        let go_on = self.conditional.then(|| y.last()).flatten();
        if go_on.is_some_and(|f| !f.same_type(&Fact::new(DType::Bool, Shape::scalar()))) {
            return wrong(ErrorKind::DType, "the body's last output is the condition: bool[]".into());
        }
        Ok(())
    }

    /// The fact of a row for each step.
    fn rows(&self, row: &Fact) -> Result<Fact> {
        let mut shape: Shape = [self.trips].into();
        row.shape.iter().for_each(|d| shape.push(*d));
        shape.checked_elems()?;
        Ok(Fact::new(row.dtype, shape))
    }

    /// Bytes of one set of carried values.
    fn carried_bytes(&self) -> usize {
        self.body.y().take(self.carried).map(|f| padded(f.bytes())).sum()
    }
}

impl Op for Loop {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.check()?;
        let own: Vec<&Fact> = self.body.x().collect();
        let count = Fact::new(DType::I64, Shape::scalar());
        let mut wanted = Vec::with_capacity(x.len());
        for (i, f) in own[1..].iter().enumerate() {
            let sliced = (self.carried..self.carried + self.sliced).contains(&i);
            wanted.push(if sliced { self.rows(f)? } else { (*f).clone() });
        }
        if self.counted {
            wanted.push(count.clone());
        }
        if wanted.len() != x.len() {
            return Err(Error::new(ErrorKind::Arity, format!("takes {} inputs, got {}", wanted.len(), x.len())));
        }
        for (i, (a, b)) in wanted.iter().zip(x).enumerate() {
            if !a.same_type(b) {
                let text = format!("input {i} is {}{}, not {}{}", b.dtype, b.shape, a.dtype, a.shape);
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
        let mut y = Facts::new();
        for (j, f) in self.body.y().take(self.carried + self.stacked()).enumerate() {
            y.push(if j < self.carried { Fact::new(f.dtype, f.shape.clone()) } else { self.rows(f)? });
        }
        if self.conditional {
            y.push(count);
        }
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let steps = match cx.x.last().filter(|_| self.counted) {
            Some(count) => {
                let n = i64::from_ne_bytes(count.element_bytes()?.try_into().map_err(|_| short())?);
                usize::try_from(n).unwrap_or(0).min(self.trips)
            }
            None => self.trips,
        };
        let made = Run::new(self, cx)?.run(self, cx, steps)?;
        if self.conditional {
            let last = cx.y.last_mut().ok_or_else(short)?;
            last.slice_mut::<i64>()?[0] = made as i64;
        }
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        super::reverse::grad(self, cx)
    }

    fn workspace(&self, _x: &[&Fact], threads: usize) -> usize {
        padded(self.body.workspace(threads)) + FLAGS_BYTES + 2 * self.carried_bytes()
    }

    /// That of all steps, and of the copies from the inputs and to the outputs.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let (once, n) = (self.body.cost(), self.trips as u64);
        let copies = Cost::bytes(x, y).bytes;
        Cost { flops: once.flops.saturating_mul(n), bytes: once.bytes.saturating_mul(n).saturating_add(copies) }
    }

    /// The number of steps follows what is read row by row; without that it stays.
    fn with_input_shapes(&self, x: &[&Fact]) -> Result<Option<OpRef>> {
        let rows = self.carried..self.carried + self.sliced;
        let given = x.len().checked_sub(usize::from(self.counted)).ok_or_else(short)?;
        let mut own: Vec<Fact> = self.body.x().take(1).map(plain).collect();
        let mut trips = self.trips;
        for (i, f) in x[..given].iter().enumerate() {
            if !rows.contains(&i) {
                own.push(plain(f));
                continue;
            }
            let (first, rest) = f.shape.split_first().ok_or_else(|| {
                Error::new(ErrorKind::Shape, format!("input {i} of a loop is read row by row and has rank 0"))
            })?;
            trips = *first;
            own.push(Fact::new(f.dtype, rest));
        }
        let body = self.body.with_input_shapes(&own)?;
        if body.is_none() && trips == self.trips {
            return Ok(None);
        }
        Ok(Some(Loop { body: body.unwrap_or_else(|| self.body.clone()), trips, ..self.clone() }.into()))
    }

    fn repeatable(&self) -> bool {
        self.body.repeatable()
    }

    fn may_fail(&self) -> bool {
        self.body.may_fail()
    }
}

fn short() -> Error {
    Error::new(ErrorKind::Internal, "an operand of a loop is smaller than its fact says")
}

/// Row `k` of rows of `size` bytes.
fn row(all: &[u8], k: usize, size: usize) -> Result<&[u8]> {
    all.get(k * size..(k + 1) * size).ok_or_else(short)
}

/// What the steps of a run share.
struct Run<'a> {
    x: &'a [In<'a>],
    body: Arc<Executable>,
    own: SmallVec<[Layout; INLINE]>,
    /// Offset and bytes of each carried value within a set.
    at: SmallVec<[(usize, usize); INLINE]>,
    set_bytes: usize,
    no_shape: Shape,
}

impl<'a> Run<'a> {
    fn new(op: &Loop, cx: &EvalCx<'a>) -> Result<Run<'a>> {
        let mut at = SmallVec::new();
        let mut end = 0;
        for f in op.body.y().take(op.carried) {
            at.push((end, f.bytes()));
            end += padded(f.bytes());
        }
        let body = op.body.ready(cx.pool.threads())?;
        Ok(Run {
            x: cx.x,
            body,
            own: op.body.x().map(Fact::layout).collect(),
            at,
            set_bytes: end,
            no_shape: Shape::scalar(),
        })
    }

    /// All steps; carried values go to and fro between two sets. The number of steps made.
    fn run(&self, op: &Loop, cx: &mut EvalCx<'a>, steps: usize) -> Result<usize> {
        let inner_bytes = self.body.figures().arena_bytes;
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
                let n = op.body.y().len();
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
                self.body.eval(&mut EvalCx { x: &x, y, workspace: inner, pool: cx.pool })?;
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
        for (y, f) in cx.y[op.carried..].iter_mut().zip(op.body.y().skip(op.carried)).take(stacked) {
            y.bytes_mut().get_mut(made * f.bytes()..).ok_or_else(short)?.fill(0);
        }
        Ok(made)
    }

    fn inputs<'s>(
        &'s self,
        op: &Loop,
        k: usize,
        number: &'s [u8],
        from: &'s [u8],
    ) -> Result<SmallVec<[In<'s>; INLINE]>> {
        let mut x: SmallVec<[In<'s>; INLINE]> = SmallVec::new();
        for (i, (f, layout)) in op.body.x().zip(&self.own).enumerate() {
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
        op: &'s Loop,
        k: usize,
        (to, rows, flag): (&'s mut [u8], &'s mut [Out<'_>], &'s mut [u8]),
        y: &mut [Out<'s>],
    ) -> Result<()> {
        let mut y = y.iter_mut();
        let mut give = |out: Out<'s>| y.next().map(|y| *y = out).ok_or_else(short);
        let mut facts = op.body.y();
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

impl OpDef for Loop {
    const NAME: &'static str = "loop";

    fn samples() -> Vec<Sample<Self>> {
        super::samples::loops()
    }
}
