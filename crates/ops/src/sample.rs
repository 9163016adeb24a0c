//! Examples of an op, from which the harness derives all its checks.

use remat_types::{Element, ErrorKind, HostTensor};

/// How far a computed value may be from the expected one. Compare values, never rounded strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Bit for bit (a NaN equals a NaN).
    Exact,
    /// Within so many units in the last place of the result's dtype.
    Ulp(u32),
    /// Relative to magnitude (at least 1): 1e-12 in f64, 1e-5 in f32, 1e-2 in f16 and bf16; integers exactly.
    Float,
    /// As `Float` with this relative bound, for the reason given.
    Loose(f64, &'static str),
}

/// The expected outcome of an op on a sample's inputs.
#[derive(Clone, Debug)]
pub enum Expect {
    /// These outputs.
    Values(Vec<HostTensor>),
    /// An error of this kind, from inference or evaluation.
    Error(ErrorKind),
    /// Whatever it computes; the sample is there for the other checks (gradient, strides, budgets).
    Anything,
}

/// Whether the harness compares the sample's gradient with central differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GradCheck {
    /// With respect to every float input, at the sample's values converted to f64.
    All,
    /// With respect to these inputs only.
    Inputs(Vec<usize>),
    /// Not at all, for the reason given: a kink, an integer function.
    Skip(&'static str),
}

/// One example.
#[derive(Clone, Debug)]
pub struct Sample<O> {
    /// The op.
    pub op: O,
    /// Its inputs.
    pub x: Vec<HostTensor>,
    /// Its outputs.
    pub expect: Expect,
    /// How exactly `expect` must be met.
    pub tolerance: Tolerance,
    /// The gradient check.
    pub grad: GradCheck,
}

impl<O> Sample<O> {
    /// An example without an expected value; gradient checked for all float inputs.
    pub fn new(op: O, x: Vec<HostTensor>) -> Self {
        Sample { op, x, expect: Expect::Anything, tolerance: Tolerance::Float, grad: GradCheck::All }
    }

    /// The outputs must be these.
    #[must_use]
    pub fn gives(mut self, y: Vec<HostTensor>) -> Self {
        self.expect = Expect::Values(y);
        self
    }

    /// It must fail with this kind.
    #[must_use]
    pub fn fails(mut self, kind: ErrorKind) -> Self {
        self.expect = Expect::Error(kind);
        self.grad = GradCheck::Skip("fails");
        self
    }

    /// Sets the tolerance of the expected values.
    #[must_use]
    pub fn within(mut self, t: Tolerance) -> Self {
        self.tolerance = t;
        self
    }

    /// No gradient check, and why.
    #[must_use]
    pub fn no_grad(mut self, why: &'static str) -> Self {
        self.grad = GradCheck::Skip(why);
        self
    }

    /// Gradient check for these inputs only.
    #[must_use]
    pub fn grad_of(mut self, inputs: &[usize]) -> Self {
        self.grad = GradCheck::Inputs(inputs.to_vec());
        self
    }

    /// The same sample of another form of the op.
    pub fn map<P>(self, f: impl FnOnce(O) -> P) -> Sample<P> {
        Sample { op: f(self.op), x: self.x, expect: self.expect, tolerance: self.tolerance, grad: self.grad }
    }
}

/// A tensor literal for samples: `t(&[1.0f32, 2.0], [2])`. Panics if sizes differ, which only a wrong sample does.
pub(crate) fn t<T: Element>(data: &[T], shape: impl Into<remat_types::Shape>) -> HostTensor {
    HostTensor::from_slice(data, shape).expect("a sample's data fills its shape")
}
