use remat_kernels::pointwise::BLOCK;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Scalar, SmallVec, f16};
use serde::{Deserialize, Serialize};

use super::binary_table::{Reject, row};
use super::{Binary, BinaryFn, Cast, Clamp, Compare, CompareFn, Unary, UnaryFn, Where, tile};
use crate::host::arity;
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::{Class, Cost, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, OpRef, Sample, Var};

/// A pointwise op that a [`Fused`] may contain.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each variant is the op of that name")]
pub enum Pointwise {
    Unary(Unary),
    Binary(Binary),
    Compare(Compare),
    Where(Where),
    Cast(Cast),
    Clamp(Clamp),
}

impl Pointwise {
    /// The op, if it is one that can be fused for inputs of this dtype. Integer functions that may find a value for
    /// which they are not defined are not: their error names an element of an input of their own.
    pub fn fusible(op: &OpRef, dtype: DType) -> Option<Pointwise> {
        match op.class() {
            Class::Pointwise(found) => Some(found).filter(|found| found.is_total(dtype)),
            _ => None,
        }
    }

    /// The range into which it moves its elements, if that is all it does.
    pub(crate) fn clamp_range(&self) -> Option<[Scalar; 2]> {
        match self {
            Pointwise::Clamp(clamp) => Some([clamp.lo, clamp.hi]),
            Pointwise::Unary(Unary { f: UnaryFn::Relu }) => Some([Scalar::Float(0.0), Scalar::Float(f64::INFINITY)]),
            Pointwise::Unary(Unary { f: UnaryFn::Relu6 }) => Some([Scalar::Float(0.0), Scalar::Float(6.0)]),
            _ => None,
        }
    }

    fn is_total(&self, dtype: DType) -> bool {
        !matches!(self, Pointwise::Binary(b) if dtype.is_int() && row(b.f).reject != Reject::Nothing)
    }

    pub(super) fn op(&self) -> &dyn Op {
        match self {
            Pointwise::Unary(op) => op,
            Pointwise::Binary(op) => op,
            Pointwise::Compare(op) => op,
            Pointwise::Where(op) => op,
            Pointwise::Cast(op) => op,
            Pointwise::Clamp(op) => op,
        }
    }

    fn shared(&self) -> OpRef {
        match self {
            Pointwise::Unary(op) => op.clone().into(),
            Pointwise::Binary(op) => op.clone().into(),
            Pointwise::Compare(op) => op.clone().into(),
            Pointwise::Where(op) => op.clone().into(),
            Pointwise::Cast(op) => op.clone().into(),
            Pointwise::Clamp(op) => op.clone().into(),
        }
    }
}

/// One op within a [`Fused`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
pub struct FusedStep {
    /// The function to apply.
    pub op: Pointwise,
    /// To what: below the number of inputs it is an input, from there on the value of an earlier step.
    pub x: SmallVec<[u16; 3]>,
}

/// Several pointwise ops as one. The output is cut into tiles that stay in cache, and each tile goes through all steps:
/// what lies between two steps is never written to memory. Every step gives the output's shape; inputs broadcast to it.
///
/// Results are bit for bit those of the steps run one after the other. Errors: Value for an invalid list of steps (see
/// [`FusedStep`]), one that has more than 32 steps or 16 inputs, or a step that is not defined on every integer; those
/// of the steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x..: any), gradient(x))]
pub struct Fused {
    /// Number of inputs.
    pub inputs: u16,
    /// The steps of the computation, in order.
    pub steps: Vec<FusedStep>,
    /// The steps whose values are outputs.
    pub outputs: SmallVec<[u16; 2]>,
}

impl Fused {
    /// Most inputs of one op.
    pub const MAX_INPUTS: usize = 16;
    /// Most steps of one op.
    pub const MAX_STEPS: usize = 32;
    /// Most outputs of one op.
    pub const MAX_OUTPUTS: usize = 4;

    /// Errors (Value) unless every index is in range.
    fn check(&self) -> Result<()> {
        let (inputs, steps, outputs) = (usize::from(self.inputs), self.steps.len(), self.outputs.len());
        let within = |n: usize, most: usize| (1..=most).contains(&n);
        if inputs > Self::MAX_INPUTS || !within(steps, Self::MAX_STEPS) || !within(outputs, Self::MAX_OUTPUTS) {
            return Err(wrong(format!("{inputs} inputs, {steps} steps and {outputs} outputs are too few or too many")));
        }
        for (k, s) in self.steps.iter().enumerate() {
            if let Some(x) = s.x.iter().find(|x| usize::from(**x) >= inputs + k) {
                return Err(wrong(format!("step {k} reads value {x}, which is not there yet")));
            }
        }
        for (j, k) in self.outputs.iter().enumerate() {
            if usize::from(*k) >= steps || self.outputs[..j].contains(k) {
                return Err(wrong(format!("output {j} is step {k}, which is not there or is an output already")));
            }
        }
        Ok(())
    }

    /// The facts of all inputs and steps.
    pub(super) fn facts(&self, x: &[&Fact]) -> Result<SmallVec<[Fact; 8]>> {
        self.check()?;
        arity(x, usize::from(self.inputs))?;
        let mut facts: SmallVec<[Fact; 8]> = x.iter().map(|f| Fact::new(f.dtype, f.shape.clone())).collect();
        for (k, s) in self.steps.iter().enumerate() {
            let given: SmallVec<[&Fact; 3]> = s.x.iter().map(|i| &facts[usize::from(*i)]).collect();
            if given.first().is_some_and(|f| !s.op.is_total(f.dtype)) {
                return Err(wrong(format!("step {k} is not defined on every integer")));
            }
            let y = s.op.op().infer(&given).map_err(|e| e.context(format!("step {k}")))?;
            drop(given);
            if k > 0 && y[0].shape != facts[x.len()].shape {
                let text = format!("step {k} gives {}, the first step {}", y[0].shape, facts[x.len()].shape);
                return Err(Error::new(ErrorKind::Shape, text));
            }
            facts.push(y[0].clone());
        }
        Ok(facts)
    }
}

/// For each number of inputs, the pairs (input, output): all of the first output, then of the second, and so on.
static PAIRS: [[(usize, usize); Fused::MAX_INPUTS * Fused::MAX_OUTPUTS]; Fused::MAX_INPUTS + 1] = {
    let mut all = [[(0, 0); Fused::MAX_INPUTS * Fused::MAX_OUTPUTS]; Fused::MAX_INPUTS + 1];
    let mut inputs = 1;
    while inputs <= Fused::MAX_INPUTS {
        let mut at = 0;
        while at < inputs * Fused::MAX_OUTPUTS {
            all[inputs][at] = (at % inputs, at / inputs);
            at += 1;
        }
        inputs += 1;
    }
    all
};

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Value, text)
}

impl Op for Fused {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let facts = self.facts(x)?;
        Ok(self.outputs.iter().map(|k| facts[x.len() + usize::from(*k)].clone()).collect())
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        tile::run(self, cx)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        cx.grad_via_composite(|cx, x| {
            let mut values: SmallVec<[Var; 8]> = SmallVec::from_slice(x);
            for s in &self.steps {
                let given: SmallVec<[Var; 3]> = s.x.iter().map(|i| values[usize::from(*i)]).collect();
                values.push(cx.apply(s.op.shared(), &given)?);
            }
            Ok(self.outputs.iter().map(|k| values[x.len() + usize::from(*k)]).collect())
        })
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    /// Every pair: an input whose elements lie in an output is read, tile by tile, before that output is written.
    fn overwrite(&self) -> &[(usize, usize)] {
        let inputs = usize::from(self.inputs).min(Fused::MAX_INPUTS);
        let outputs = self.outputs.len().min(Fused::MAX_OUTPUTS);
        &PAIRS[inputs][..inputs * outputs]
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        self.facts(x).map_or(0, |facts| tile::workspace(self, &facts, threads))
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let Ok(facts) = self.facts(x) else { return Cost::default() };
        let flops = self.steps.iter().enumerate().map(|(k, s)| {
            let given: SmallVec<[&Fact; 3]> = s.x.iter().map(|i| &facts[usize::from(*i)]).collect();
            s.op.op().cost(&given, std::slice::from_ref(&facts[x.len() + k])).flops
        });
        Cost::bytes(x, y).with_flops(flops.fold(0, u64::saturating_add))
    }
}

impl OpDef for Fused {
    const NAME: &'static str = "fused";

    fn samples() -> Vec<Sample<Self>> {
        let step = |op: Pointwise, x: &[u16]| FusedStep { op, x: SmallVec::from_slice(x) };
        let un = |f: UnaryFn| Pointwise::Unary(Unary { f });
        let bin = |f: BinaryFn| Pointwise::Binary(Binary { f });
        let fused = |inputs: u16, steps: Vec<FusedStep>, outputs: &[u16]| Fused {
            inputs,
            steps,
            outputs: SmallVec::from_slice(outputs),
        };
        // tanh(x + b), and the sum itself
        let biased =
            |outputs: &[u16]| fused(2, vec![step(bin(BinaryFn::Add), &[0, 1]), step(un(UnaryFn::Tanh), &[2])], outputs);
        let (x, b) = (t(&[0.5f64, -1.0, 0.25, 2.0, -0.5, 1.0], [2, 3]), t(&[1.0f64, 0.5, -0.25], [3]));
        let sums = [1.5f64, -0.5, 0.0, 3.0, 0.0, 0.75];
        let tanhs = sums.map(f64::tanh);
        // where(a > b, a, b) as bool, cast and clamped
        let choice = fused(
            2,
            vec![
                step(Pointwise::Compare(Compare { f: CompareFn::Gt }), &[0, 1]),
                step(Pointwise::Where(Where), &[2, 0, 1]),
                step(Pointwise::Clamp(Clamp { lo: 0.0.into(), hi: 2.0.into() }), &[3]),
                step(Pointwise::Cast(Cast { dtype: DType::I32 }), &[4]),
            ],
            &[0, 2, 3],
        );
        let long = BLOCK * 2 + 7;
        let ramp: Vec<f32> = (0..long).map(|i| (i % 13) as f32 * 0.25 - 1.5).collect();
        let silu = fused(1, vec![step(un(UnaryFn::Sigmoid), &[0]), step(bin(BinaryFn::Mul), &[0, 1])], &[1]);
        // (1 - sigmoid(-x)) x: values that live side by side, each in a register
        let swish = fused(
            1,
            vec![
                step(un(UnaryFn::Neg), &[0]),
                step(un(UnaryFn::Sigmoid), &[1]),
                step(bin(BinaryFn::Mul), &[2, 0]),
                step(bin(BinaryFn::Sub), &[0, 3]),
            ],
            &[3],
        );
        let swished = [0.5f64, -1.0, 0.25, 2.0, -0.5, 1.0].map(|x| x / (1.0 + (-x).exp()));
        // (0.5 - x) b > 1e-8 in f16, of numbers that f16 cannot hold
        let mixed = fused(
            3,
            vec![
                step(bin(BinaryFn::Sub), &[1, 0]),
                step(bin(BinaryFn::Mul), &[3, 2]),
                step(Pointwise::Compare(Compare { f: CompareFn::Gt }), &[4, 1]),
            ],
            &[1, 2],
        );
        let half = |v: [f32; 2]| t(&v.map(f16::from_f32), [2]);
        let numbers = [t(&[1e-8f32], []), t(&[1e-3f32, 1e-9], [2])];
        let last = silu.steps[1].clone();
        let divide = fused(2, vec![step(bin(BinaryFn::Div), &[0, 1])], &[0]);
        let sample = |op: &Fused, x: Vec<remat_types::HostTensor>| Sample::new(op.clone(), x);
        vec![
            sample(&biased(&[1]), vec![x.clone(), b.clone()]).gives(vec![t(&tanhs, [2, 3])]),
            sample(&biased(&[0, 1]), vec![x.clone(), b.clone()]).gives(vec![t(&sums, [2, 3]), t(&tanhs, [2, 3])]),
            sample(&biased(&[1, 0]), vec![b.clone(), x.clone()]).gives(vec![t(&tanhs, [2, 3]), t(&sums, [2, 3])]),
            sample(&choice, vec![t(&[3.0f32, -1.0, 1.5], [3]), t(&[1.0f32, -2.0, 1.75], [3])])
                .gives(vec![t(&[true, true, false], [3]), t(&[2.0f32, 0.0, 1.75], [3]), t(&[2i32, 0, 1], [3])])
                .no_grad("piecewise, and not differentiable along its first and last output"),
            sample(&swish, vec![x.clone()]).gives(vec![t(&swished, [2, 3])]),
            sample(&silu, vec![t(&ramp, [long])]).no_grad("long"),
            sample(&silu, vec![t::<f32>(&[], [0, 4])]).gives(vec![t::<f32>(&[], [0, 4])]).no_grad("empty"),
            sample(&mixed, vec![half([-0.5, -2.0]), numbers[0].clone(), numbers[1].clone()])
                .gives(vec![half([5e-4, 0.0]), t(&[true, false], [2])])
                .no_grad("f16"),
            sample(&divide, vec![t(&[1.0f32, 3.0], [2]), t(&[2.0f32], [])]).gives(vec![t(&[0.5f32, 1.5], [2])]),
            sample(&divide, vec![t(&[1i32], [1]), t(&[0i32], [1])]).fails(ErrorKind::Value),
            sample(&biased(&[1]), vec![x.clone()]).fails(ErrorKind::Arity),
            sample(&biased(&[2]), vec![x.clone(), b.clone()]).fails(ErrorKind::Value),
            sample(&fused(1, vec![last, step(un(UnaryFn::Relu), &[0])], &[1]), vec![x.clone()]).fails(ErrorKind::Value),
            sample(&fused(2, vec![step(un(UnaryFn::Relu), &[1]), step(bin(BinaryFn::Add), &[0, 2])], &[1]), vec![x, b])
                .fails(ErrorKind::Shape),
        ]
    }
}
