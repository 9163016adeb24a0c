//! The rule of one kind of optimiser: the update of a parameter, and the state that it keeps.
//!
//! A rule is a struct of options and an op `(param, grad, lr, step?, state..) -> (param, state..)`; [`rule`] writes what all of
//! them have in common.

use remat_ops::pointwise::{Binary, BinaryFn};
use remat_ops::{Op, OpRef};
use remat_tensor::{RowGrad, Tensor};
use remat_types::{DType, Error, ErrorKind, Fact, Result, Scalar, Shape};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Arg, Parameter, Role, update};

/// How one kind of optimiser moves a parameter; the type holds its options.
pub trait Rule: Copy + PartialEq + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// The name in checkpoints.
    const NAME: &'static str;

    /// The learning rate.
    fn lr(&self) -> f64;

    /// These options with another learning rate.
    #[must_use]
    fn with_lr(self, lr: f64) -> Self;

    /// Errors: Value for an option outside its domain.
    fn check(&self) -> Result<()>;

    /// True if each element moves by its own gradient and state alone, so that parts of a parameter can be moved apart. Default: true.
    fn is_elementwise(&self) -> bool {
        true
    }

    /// The states for a parameter of this dtype and shape; empty if these options need none.
    fn state(&self, parameter: &Fact) -> Vec<StateSpec>;

    /// Moves the parameter of a slot. `lr` is the learning rate, of rank 0: f64 for a parameter of f64, else f32.
    fn step(&self, slot: &Slot, grad: Tensor, lr: Tensor) -> Result<()>;

    /// True if [`Rule::step_rows`] moves a table by a gradient that is rows; else that becomes a tensor. Default: false.
    fn takes_rows(&self) -> bool {
        false
    }

    /// As [`Rule::step`], by a gradient that is rows. Called where [`Rule::takes_rows`] says so.
    fn step_rows(&self, _slot: &Slot, _rows: Vec<RowGrad>, _lr: Tensor) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, format!("`{}` takes no rows", Self::NAME)))
    }
}

/// The inputs of an op that are a gradient of rows.
pub(super) fn row_args<'p>(rows: Vec<RowGrad>) -> impl Iterator<Item = Arg<'p>> {
    rows.into_iter().flat_map(|r| [Arg::Value(r.index), Arg::Value(r.rows)])
}

/// A tensor that an optimiser keeps of a parameter, and how it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSpec {
    /// Its name beside the parameter's, in checkpoints.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
    /// The initial value of all its elements.
    pub value: f64,
}

/// The name of the count of steps in which a parameter had a gradient.
const STEP: &str = "step";

impl StateSpec {
    /// Zeros like the parameter.
    pub fn zeros(name: &'static str, parameter: &Fact) -> Self {
        StateSpec { name, dtype: parameter.dtype, shape: parameter.shape.clone(), value: 0.0 }
    }

    /// The count of steps: an i64 of rank 0, called `step`.
    pub fn step() -> Self {
        StateSpec { name: STEP, dtype: DType::I64, shape: Shape::scalar(), value: 0.0 }
    }

    /// The state on the device of `parameter`. Errors: Budget if it does not fit.
    pub(super) fn make(&self, parameter: &Parameter) -> Result<Parameter> {
        let value = Scalar::Float(self.value);
        let value = Tensor::full(parameter.device(), self.shape.clone(), self.dtype, value)?;
        // state with an entry for each element of a part is a part itself
        match parameter.division().filter(|_| self.shape == *parameter.shape()) {
            Some(d) => Parameter::divided(value, Role::Optimizer, d.clone()),
            None => Parameter::with_role(value, Role::Optimizer),
        }
    }
}

/// A parameter and what the optimiser remembers of it.
pub struct Slot {
    pub(super) name: String,
    /// The parameter.
    pub parameter: Parameter,
    pub(super) state: Vec<(&'static str, Parameter)>,
}

impl Slot {
    /// The state of this name, if there is one.
    pub fn state(&self, name: &str) -> Option<&Parameter> {
        self.state.iter().find(|(n, _)| *n == name).map(|(_, p)| p)
    }

    /// The states that a rule keeps, but for the count of steps. Errors (Internal) if one is not there, which options that
    /// were set without [`super::Grouped`] would do.
    fn states(&self, specs: &[StateSpec]) -> Result<Vec<&Parameter>> {
        let lost = |name| Error::new(ErrorKind::Internal, format!("`{}` has no state `{name}`", self.name));
        let others = specs.iter().filter(|s| s.name != STEP);
        others.map(|s| self.state(s.name).ok_or_else(|| lost(s.name))).collect()
    }

    /// One more step. Gives the count, if the optimiser has one.
    pub fn count_step(&self) -> Result<Option<Tensor>> {
        let Some(step) = self.state(STEP) else { return Ok(None) };
        let one = Tensor::scalar(self.parameter.device(), 1i64)?;
        update(Binary { f: BinaryFn::Add }, vec![Arg::State(step), Arg::Value(one)])?;
        step.get().map(Some)
    }
}

/// Applies an op `(param, grad, lr, step?, state..) -> (param, state..)`.
pub(super) fn apply(op: impl Into<OpRef>, slot: &Slot, specs: &[StateSpec], grad: Tensor, lr: Tensor) -> Result<()> {
    let mut x = vec![Arg::State(&slot.parameter), Arg::Value(grad), Arg::Value(lr)];
    x.extend(slot.count_step()?.map(Arg::Value));
    x.extend(slot.states(specs)?.into_iter().map(Arg::State));
    update(op, x)
}

/// Checks the options of `R` by the inference of its op. Errors: Value.
pub(super) fn check<R: Rule>(rule: &R, op: &impl Op) -> Result<()> {
    check_rate(rule.lr())?;
    let (param, lr) = (Fact::new(DType::F32, [1]), Fact::new(DType::F32, Shape::scalar()));
    let specs = rule.state(&param);
    let states: Vec<Fact> =
        specs.iter().filter(|s| s.name != STEP).map(|s| Fact::new(s.dtype, s.shape.clone())).collect();
    let step = Fact::new(DType::I64, Shape::scalar());
    let mut x = vec![&param, &param, &lr];
    x.extend(specs.iter().any(|s| s.name == STEP).then_some(&step));
    x.extend(&states);
    op.infer(&x).map_err(|e| e.with_op(R::NAME)).map(drop)
}

/// Errors (Value) unless `ok`.
pub(super) fn want(ok: bool, what: &str, v: f64, must: &str) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::new(ErrorKind::Value, format!("{what} is {v}, must be {must}"))) }
}

/// Errors (Value) for a learning rate that is negative or not finite.
pub(super) fn check_rate(lr: f64) -> Result<()> {
    if lr >= 0.0 && (lr as f32).is_finite() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Value, format!("the learning rate is {lr}, must be finite and not negative")))
}

/// An optimiser as data: its name, the struct of its options with their defaults, its op, whose parameters are the options
/// without the learning rate, its name in checkpoints, and the states it keeps.
macro_rules! rule {
    (
        $(#[$doc:meta])* $optimizer:ident, $options:ident => $op:ident, $name:literal;
        $( elementwise = $elementwise:literal; )?
        $(#[$lr_doc:meta])* lr = $lr:expr;
        $( $(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr; )*
        |$o:ident, $p:ident| $states:expr
    ) => {
        #[doc = concat!("Options of [`", stringify!($optimizer), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $options {
            $(#[$lr_doc])*
            pub lr: f64,
            $( $(#[$field_doc])* pub $field: $ty, )*
        }

        impl Default for $options {
            fn default() -> Self {
                $options { lr: $lr, $( $field: $default, )* }
            }
        }

        impl $options {
            fn op(&self) -> $op {
                $op { $( $field: self.$field.into(), )* }
            }
        }

        $(#[$doc])*
        pub type $optimizer = $crate::optim::Grouped<$options>;

        impl $crate::optim::Rule for $options {
            const NAME: &'static str = $name;

            fn lr(&self) -> f64 {
                self.lr
            }

            fn with_lr(self, lr: f64) -> Self {
                $options { lr, ..self }
            }

            fn check(&self) -> remat_types::Result<()> {
                $crate::optim::rule::check(self, &self.op())
            }

            $(
                fn is_elementwise(&self) -> bool {
                    $elementwise
                }
            )?

            fn state(&self, $p: &remat_types::Fact) -> Vec<$crate::optim::StateSpec> {
                let $o = self;
                $states
            }

            fn step(
                &self,
                slot: &$crate::optim::Slot,
                grad: remat_tensor::Tensor,
                lr: remat_tensor::Tensor,
            ) -> remat_types::Result<()> {
                let specs = self.state(slot.parameter.fact());
                $crate::optim::rule::apply(self.op(), slot, &specs, grad, lr)
            }
        }
    };
}
pub(super) use rule;
