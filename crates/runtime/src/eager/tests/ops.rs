//! Ops that only tests need.

use std::sync::atomic::{AtomicBool, Ordering};

use remat_ops::schema::Params;
use remat_ops::{EvalCx, GradCx, Grads, Op, OpDef, Sample};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, smallvec};
use serde::{Deserialize, Serialize};

/// How a [`Probe`] behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Mode {
    /// Has no outputs.
    Nothing,
    /// Fails when it runs.
    Fail,
    /// Panics when it runs.
    Panic,
    /// `y = x + 1`, in place where it may.
    Increment,
    /// `(x + 1, x + 2)`.
    Two,
    /// `y = x + 1` with a workspace as large as `x`, which it fills with garbage.
    Workspace,
    /// `y = x + 1`, and must not run twice.
    Once,
    /// In place where it may; fails when it runs, before it writes.
    FailInPlace,
    /// In place where it may; writes and then panics.
    TearInPlace,
    /// `y = x + 1` until [`fail_from_now_on`] is called with this number.
    Until(u8),
}

/// The numbers of [`Mode::Until`] that fail.
static FAILING: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];

/// Makes every [`Mode::Until`] of this number fail; each test has its own.
pub(super) fn fail_from_now_on(number: u8) {
    FAILING[usize::from(number)].store(true, Ordering::Relaxed);
}

/// An f32 op with one input (and, for `FailInPlace`, any number of others).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Probe(pub(super) Mode);

/// A panic whose payload panics once more when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("planted panic of a panic");
    }
}

impl Op for Probe {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let y = Fact::new(x[0].dtype, x[0].shape.clone());
        Ok(match self.0 {
            Mode::Nothing => smallvec![],
            Mode::Two => smallvec![y.clone(), y],
            _ => smallvec![y],
        })
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        match self.0 {
            Mode::Fail | Mode::FailInPlace => return Err(Error::new(ErrorKind::Index, "planted failure")),
            Mode::Panic => std::panic::panic_any(Bomb),
            Mode::Nothing => return Ok(()),
            Mode::Two => {
                cx.output_from::<f32>(0, 1)?.iter_mut().for_each(|v| *v += 2.0);
            }
            Mode::Workspace => cx.workspace.fill(0xAA),
            Mode::TearInPlace => {
                cx.output_from::<f32>(0, 0)?[0] = f32::NAN;
                panic!("planted panic, half-way");
            }
            Mode::Until(n) if FAILING[usize::from(n)].load(Ordering::Relaxed) => {
                return Err(Error::new(ErrorKind::Index, "planted failure"));
            }
            Mode::Increment | Mode::Once | Mode::Until(_) => {}
        }
        cx.output_from::<f32>(0, 0)?.iter_mut().for_each(|v| *v += 1.0);
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        if matches!(self.0, Mode::Increment | Mode::FailInPlace | Mode::TearInPlace) { &[(0, 0)] } else { &[] }
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        if self.0 == Mode::Workspace { x[0].bytes() } else { 0 }
    }

    fn repeatable(&self) -> bool {
        self.0 != Mode::Once
    }
}

impl Params for Probe {}

impl OpDef for Probe {
    const NAME: &'static str = "probe";

    fn samples() -> Vec<Sample<Self>> {
        Vec::new()
    }
}
