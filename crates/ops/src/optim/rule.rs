//! Shared parts of the rules that update each element of a parameter by itself.
//!
//! Such an op is a struct of numbers, an [`ElementRule`] and its samples; [`element_op`] makes the rest.

use remat_kernels::float::FloatElement;
use remat_kernels::pool::Pool;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Scalar, SmallVec, for_float};

use super::{rate, want_rate};
use crate::args::{not_taken, number, want_dtype, want_float, want_like, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::{EvalCx, In};

/// A rule `(param, grad, lr, step?, state..) -> (param, state..)` whose states are like the parameter.
pub(super) trait ElementRule {
    /// Whether it takes the number of the step.
    const TAKES_STEP: bool;

    /// Number of states.
    fn states(&self) -> usize;

    /// Errors: Value for a number outside its domain.
    fn check(&self) -> Result<()>;

    /// Moves the parameter and its states.
    fn run<T: FloatElement>(&self, pool: &Pool, at: At, param: &mut [T], grad: &[T], state: States<'_, T>);
}

/// Where in a run a step is.
#[derive(Clone, Copy)]
pub(super) struct At {
    /// The learning rate.
    pub(super) lr: f64,
    /// Number of the step, from 1; 1 for a rule that takes none.
    pub(super) step: f64,
}

/// The states of a parameter, in order.
pub(super) struct States<'a, T>(SmallVec<[&'a mut [T]; 4]>);

impl<'a, T> States<'a, T> {
    /// The states of a rule that has `K`.
    pub(super) fn all<const K: usize>(self) -> [&'a mut [T]; K] {
        let mut all = self.0.into_iter();
        std::array::from_fn(|_| all.next().unwrap_or_default())
    }
}

/// The input that is the first state.
fn first_state<R: ElementRule>() -> usize {
    if R::TAKES_STEP { 4 } else { 3 }
}

pub(super) fn infer<R: ElementRule>(rule: &R, x: &[&Fact]) -> Result<Facts> {
    arity(x, first_state::<R>() + rule.states())?;
    rule.check()?;
    want_float(x[0], "the parameter")?;
    want_like(x[1], x[0], "the gradient")?;
    want_rate(x[2], x[0])?;
    if R::TAKES_STEP {
        want_step(x[3])?;
    }
    for state in &x[first_state::<R>()..] {
        want_like(state, x[0], "a state")?;
    }
    let y = Fact::new(x[0].dtype, x[0].shape.clone());
    Ok(std::iter::repeat_n(y, 1 + rule.states()).collect())
}

pub(super) fn eval<R: ElementRule>(rule: &R, cx: &mut EvalCx<'_>) -> Result<()> {
    let (dtype, x, pool) = (cx.x[0].dtype(), cx.x, cx.pool);
    let step = if R::TAKES_STEP { step(&x[3])? } else { 1.0 };
    let at = At { lr: rate(&x[2])?, step };
    for_float!(dtype, T => {
        for &(i, j) in overwrite(rule) {
            cx.output_from::<T>(i, j)?;
        }
        let mut all: SmallVec<[&mut [T]; 4]> = SmallVec::new();
        for y in cx.y.iter_mut() {
            all.push(y.slice_mut::<T>()?);
        }
        let param = all.remove(0);
        rule.run(pool, at, param, x[1].slice()?, States(all));
        Ok(())
    }, else Err(not_taken(dtype)))
}

pub(super) fn overwrite<R: ElementRule>(rule: &R) -> &'static [(usize, usize)] {
    let all: &[(usize, usize)] =
        if R::TAKES_STEP { &[(0, 0), (4, 1), (5, 2), (6, 3)] } else { &[(0, 0), (3, 1), (4, 2), (5, 3)] };
    &all[..1 + rule.states()]
}

/// Errors (DType, Shape) unless `f` is a rank-0 i64.
pub(super) fn want_step(f: &Fact) -> Result<()> {
    want_dtype(f, DType::I64, "the step")?;
    want_shape(f, &[], "the step")
}

/// The number of the step. Errors: Value for one below 1.
pub(super) fn step(x: &In<'_>) -> Result<f64> {
    let step = x.slice::<i64>()?[0];
    if step < 1 {
        return Err(Error::new(ErrorKind::Value, format!("the step is {step}; the first is 1")));
    }
    Ok(step as f64)
}

/// A decay: at least 0 and below 1. Errors: Value.
pub(super) fn decay(v: Scalar, name: &str) -> Result<f64> {
    number(v, name, "at least 0 and below 1", |v| (0.0..1.0).contains(&v))
}

/// A number that is finite and not negative. Errors: Value.
pub(super) fn not_negative(v: Scalar, name: &str) -> Result<f64> {
    number(v, name, "finite and not negative", |v| v >= 0.0 && v.is_finite())
}

/// `v` where `x` is above 0, `-v` where it is below; 0 for 0, and NaN stays.
#[inline(always)]
pub(super) fn signed<R: remat_kernels::float::Real>(v: R, x: R) -> R {
    if x > R::ZERO {
        v
    } else if x < R::ZERO {
        -v
    } else {
        x * R::ZERO
    }
}

/// The larger; `b` if `a` is NaN.
#[inline(always)]
pub(super) fn larger<R: remat_kernels::float::Real>(a: R, b: R) -> R {
    if a > b { a } else { b }
}

/// Writes the `Op` of rules: what all of them do alike.
macro_rules! element_op {
    ($op:ty, $flops:literal) => {
        impl crate::Op for $op {
            fn infer(&self, x: &[&remat_types::Fact]) -> remat_types::Result<remat_types::Facts> {
                super::rule::infer(self, x)
            }

            fn eval(&self, cx: &mut crate::EvalCx<'_>) -> remat_types::Result<()> {
                super::rule::eval(self, cx)
            }

            fn grad(&self, _cx: &mut crate::GradCx<'_>) -> remat_types::Result<crate::Grads> {
                Err(crate::args::not_differentiable("an optimiser step"))
            }

            fn overwrite(&self) -> &'static [(usize, usize)] {
                super::rule::overwrite(self)
            }

            fn cost(&self, x: &[&remat_types::Fact], y: &[remat_types::Fact]) -> crate::Cost {
                crate::Cost::bytes(x, y).with_flops($flops * x[0].elems() as u64)
            }
        }
    };
}
pub(super) use element_op;

/// Why no sample of a rule has its gradient checked.
pub(super) const NO_GRADIENT: &str = "an optimiser step is not differentiable";

/// Inputs of a rule for samples.
pub(super) fn inputs(
    param: &[f32],
    grad: &[f32],
    lr: f32,
    step: Option<i64>,
    states: &[&[f32]],
) -> Vec<remat_types::HostTensor> {
    let v = |v: &[f32]| t(v, [v.len()]);
    let mut x = vec![v(param), v(grad), t(&[lr], [])];
    x.extend(step.map(|s| t(&[s], [])));
    x.extend(states.iter().map(|s| v(s)));
    x
}

/// Numbers of both signs, more than one part of a run; and their squares.
pub(super) fn many(pace: f32) -> Vec<f32> {
    (0..40_003).map(|i| (i as f32 * pace).sin()).collect()
}

/// The squares of [`many`].
pub(super) fn many_squares(pace: f32) -> Vec<f32> {
    many(pace).iter().map(|v| v * v).collect()
}
