//! Runs programs within programs. They use the workspace of the step that runs them, so they allocate nothing.

use remat_types::{Error, ErrorKind, Fact, Result, SmallVec};

use super::{Given, INLINE, Machine, Span};
use crate::program::flow::{FLAGS_BYTES, Flow, LoopProgram, branch};

impl Flow {
    /// Runs it on the operands of its step. Errors: those of the programs; Index for a branch that is not there.
    pub fn run<M: Machine>(&self, m: &mut M, given: &Given<'_, M::Span>) -> Result<()> {
        match self {
            Flow::Call(body) => body.run_within(m, given),
            Flow::Switch(branches) => {
                let (choice, x) = given.x.split_first().ok_or_else(short)?;
                let chosen = branch(m.read_number(*choice)?, branches.len())?;
                let at = branches[..chosen].iter().map(|b| b.constant_bytes()).sum();
                let constants = given.constants.map(|c| part(c, at, branches[chosen].constant_bytes())).transpose()?;
                branches[chosen].run_within(m, &Given { x, constants, ..*given })
            }
            Flow::Loop(body) => body.run(m, given),
        }
    }
}

fn short() -> Error {
    Error::new(ErrorKind::Internal, "an operand of a loop is smaller than its fact says")
}

/// A part of an operand of a loop.
fn part<S: Span>(whole: S, at: usize, bytes: usize) -> Result<S> {
    whole.part(at, bytes).map_err(|_| short())
}

impl LoopProgram {
    /// Runs all steps of the loop.
    fn run<M: Machine>(&self, m: &mut M, given: &Given<'_, M::Span>) -> Result<()> {
        let steps = match given.x.last().filter(|_| self.counted) {
            Some(count) => usize::try_from(m.read_number(*count)?).unwrap_or(0).min(self.trips),
            None => self.trips,
        };
        let made = Run::new(self, given)?.run(m, steps)?;
        match given.y.last().filter(|_| self.conditional) {
            Some(y) => m.write_number(*y, made as i64),
            None => Ok(()),
        }
    }
}

/// State that the steps of a loop share.
struct Run<'a, S> {
    program: &'a LoopProgram,
    given: &'a Given<'a, S>,
    /// Offset and bytes of each carried value within a set.
    at: SmallVec<[(usize, usize); INLINE]>,
    inner: S,
    /// The step's number, and the body's condition.
    number: S,
    flag: S,
    sets: [S; 2],
}

impl<'a, S: Span> Run<'a, S> {
    fn new(program: &'a LoopProgram, given: &'a Given<'a, S>) -> Result<Run<'a, S>> {
        let mut at = SmallVec::new();
        let (mut set_bytes, unit) = (0, program.body.alignment);
        for f in program.body.y.iter().take(program.carried) {
            at.push((set_bytes, f.bytes()));
            set_bytes += unit.pad(f.bytes());
        }
        let inner_bytes = program.body.workspace_bytes;
        let flags_at = unit.pad(inner_bytes);
        let sets_at = flags_at + unit.pad(FLAGS_BYTES);
        let own = |at: usize, bytes: usize| part(given.arena, at, bytes);
        Ok(Run {
            program,
            given,
            at,
            inner: own(0, inner_bytes)?,
            number: own(flags_at, 8)?,
            flag: own(flags_at + FLAGS_BYTES / 2, 1)?,
            sets: [own(sets_at, set_bytes)?, own(sets_at + set_bytes, set_bytes)?],
        })
    }

    /// Runs all steps; returns their number. Carried values alternate between two sets.
    fn run<M: Machine<Span = S>>(&self, m: &mut M, steps: usize) -> Result<usize> {
        let (p, given) = (self.program, self.given);
        let [mut from, mut to] = self.sets;
        for (x, (at, bytes)) in given.x.iter().zip(&self.at) {
            m.copy(part(*x, 0, *bytes)?, part(from, *at, *bytes)?)?;
        }
        let mut made = 0;
        while made < steps {
            let k = if p.reverse { steps - 1 - made } else { made };
            m.write_number(self.number, k as i64)?;
            let (x, y) = (self.inputs(k, from)?, self.outputs(k, to)?);
            p.body.run_within(m, &Given { x: &x, y: &y, arena: self.inner, constants: given.constants })?;
            std::mem::swap(&mut from, &mut to);
            made += 1;
            if p.conditional && m.read_number(self.flag)? == 0 {
                break;
            }
        }
        for (y, (at, bytes)) in given.y.iter().zip(&self.at) {
            m.copy(part(from, *at, *bytes)?, part(*y, 0, *bytes)?)?;
        }
        let stacked = given.y.iter().zip(&p.body.y).skip(p.carried).take(p.stacked());
        for (y, f) in stacked {
            let at = made * f.bytes();
            m.fill_zero(part(*y, at, y.size_bytes().saturating_sub(at))?)?;
        }
        Ok(made)
    }

    /// The inputs of step `k`: its number, carried values, rows, constants.
    fn inputs(&self, k: usize, from: S) -> Result<SmallVec<[S; INLINE]>> {
        let p = self.program;
        let mut x: SmallVec<[S; INLINE]> = SmallVec::new();
        for (i, f) in p.body.x.iter().enumerate() {
            x.push(match i.checked_sub(1) {
                None => self.number,
                Some(i) if i < p.carried => part(from, self.at[i].0, self.at[i].1)?,
                Some(i) if i < p.carried + p.sliced => self.row(self.given.x.get(i), k, f)?,
                Some(i) => *self.given.x.get(i).ok_or_else(short)?,
            });
        }
        Ok(x)
    }

    /// The outputs of step `k`: the next carried values, rows, the condition.
    fn outputs(&self, k: usize, to: S) -> Result<SmallVec<[S; INLINE]>> {
        let p = self.program;
        let rows = p.carried + p.stacked();
        let mut y: SmallVec<[S; INLINE]> = SmallVec::new();
        for (j, f) in p.body.y.iter().enumerate() {
            y.push(match j {
                _ if j < p.carried => part(to, self.at[j].0, self.at[j].1)?,
                _ if j < rows => self.row(self.given.y.get(j), k, f)?,
                _ => self.flag,
            });
        }
        Ok(y)
    }

    fn row(&self, of: Option<&S>, k: usize, f: &Fact) -> Result<S> {
        part(*of.ok_or_else(short)?, k * f.bytes(), f.bytes())
    }
}
