//! Optimiser steps that move each element of a parameter by itself.
//!
//! A rule is the numbers it has, what follows from these and the step in f64 as on the CPU, and the statements of an
//! element. One thread of a block takes the powers of the decays, which its grid of few blocks makes cheap.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::optim::{
    AdadeltaUpdate, AdagradUpdate, AdamWUpdate, AdamaxUpdate, LionUpdate, NAdamUpdate, RAdamUpdate, RmsPropUpdate,
    SgdUpdate,
};
use remat_types::{DType, Error, ErrorKind, Result, Scalar, SmallVec};

use super::plan::{Builder, Call, Failure, Operands, Plan, THREADS, Value, grid};
use crate::source::{c_type, cast};

/// The most blocks of a step: enough for the largest devices, and each begins with the powers.
pub(super) const MOST_BLOCKS: u64 = 2048;

/// How a parameter and its states move.
#[derive(Default)]
pub(super) struct Rule {
    /// The input that is the learning rate.
    pub(super) lr: usize,
    /// The input that is the number of the step, where a rule takes one.
    pub(super) step: Option<usize>,
    /// Name, input and output of each state.
    pub(super) states: Vec<(&'static str, usize, usize)>,
    /// Names and values of doubles.
    pub(super) numbers: Vec<(&'static str, f64)>,
    /// Names of numbers in the type that is computed in, and their values in f64.
    pub(super) reals: Vec<(&'static str, String)>,
    /// Statements in f64 that one thread runs before it takes `rates`.
    pub(super) setup: String,
    /// Such as `reals` that one thread finds for its block.
    pub(super) rates: Vec<(&'static str, String)>,
    /// Statements that change the parameter `p` and the states by the gradient `g`, all of them variables.
    pub(super) body: String,
}

/// The share of a gradient in its moments, as AdamW and its kin have it.
const MOMENTS: &str = "m = b1 * m + c1 * g;\nv = b2 * v + c2 * (g * g);\n";
/// The factor that makes a root of the second moment that of its mean.
const ROOT: &str = "1.0 / __dsqrt_rn(1.0 - whole_power(beta2, step))";

pub(super) fn numbers<const N: usize>(all: [(&'static str, Scalar); N]) -> Vec<(&'static str, f64)> {
    all.map(|(name, v)| (name, v.to_f64())).to_vec()
}

pub(super) fn named<const N: usize>(all: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
    all.map(|(name, text)| (name, text.to_owned())).to_vec()
}

/// The constants of two moments.
pub(super) fn of_moments() -> Vec<(&'static str, String)> {
    named([("b1", "beta1"), ("c1", "1.0 - beta1"), ("b2", "beta2"), ("c2", "1.0 - beta2"), ("e", "eps")])
}

/// Weight decay on the parameter if `decoupled`, else on the gradient.
fn decays(decoupled: bool) -> Vec<(&'static str, String)> {
    match decoupled {
        true => named([("shrink", "1.0 - lr * decay"), ("l2", "0.0")]),
        false => named([("shrink", "1.0"), ("l2", "decay")]),
    }
}

fn sgd(op: &SgdUpdate) -> Rule {
    let has_buffer = op.momentum.to_f64() != 0.0;
    let numbers = [
        ("momentum", op.momentum.to_f64()),
        ("dampening", op.dampening.to_f64()),
        ("decay", op.weight_decay.to_f64()),
        ("sense", if op.maximize { -1.0 } else { 1.0 }),
    ];
    let body = match (has_buffer, op.nesterov) {
        (false, _) => "p = p - rate * (sign * g + l2 * p);\n",
        (true, false) => "g = sign * g + l2 * p;\nb = mo * b + keep * g;\np = p - rate * b;\n",
        (true, true) => "g = sign * g + l2 * p;\nb = mo * b + keep * g;\np = p - rate * (g + mo * b);\n",
    };
    Rule {
        lr: if has_buffer { 3 } else { 2 },
        states: if has_buffer { vec![("b", 2, 1)] } else { Vec::new() },
        numbers: numbers.to_vec(),
        reals: named([
            ("rate", "lr"),
            ("mo", "momentum"),
            ("keep", "1.0 - dampening"),
            ("l2", "decay"),
            ("sign", "sense"),
        ]),
        body: body.to_owned(),
        ..Rule::default()
    }
}

fn adamw(op: &AdamWUpdate) -> Rule {
    let mut states = vec![("m", 2, 1), ("v", 3, 2)];
    let mut divisor = "v";
    let mut most = "";
    if op.amsgrad {
        states.push(("most", 6, 3));
        divisor = "most";
        most = "most = v > most ? v : most;\n";
    }
    Rule {
        lr: 4,
        step: Some(5),
        states,
        numbers: numbers([("beta1", op.beta1), ("beta2", op.beta2), ("eps", op.eps), ("decay", op.weight_decay)]),
        reals: [of_moments(), decays(op.decoupled)].concat(),
        rates: named([("rate", "lr / (1.0 - whole_power(beta1, step))"), ("scale", ROOT)]),
        body: format!("g = g + l2 * p;\n{MOMENTS}{most}p = p * shrink - rate * m / (root({divisor}) * scale + e);\n"),
        ..Rule::default()
    }
}

fn lion(op: &LionUpdate) -> Rule {
    Rule {
        lr: 2,
        states: vec![("m", 3, 1)],
        numbers: numbers([("beta1", op.beta1), ("beta2", op.beta2), ("decay", op.weight_decay)]),
        reals: named([
            ("b1", "beta1"),
            ("c1", "1.0 - beta1"),
            ("b2", "beta2"),
            ("c2", "1.0 - beta2"),
            ("rate", "lr"),
            ("shrink", "1.0 - lr * decay"),
        ]),
        body: "p = p * shrink - signed_by(rate, b1 * m + c1 * g);\nm = b2 * m + c2 * g;\n".to_owned(),
        ..Rule::default()
    }
}

fn adagrad(op: &AdagradUpdate) -> Rule {
    Rule {
        lr: 2,
        step: Some(3),
        states: vec![("s", 4, 1)],
        numbers: numbers([("lr_decay", op.lr_decay), ("decay", op.weight_decay), ("eps", op.eps)]),
        reals: named([("l2", "decay"), ("e", "eps")]),
        rates: named([("rate", "lr / (1.0 + (step - 1.0) * lr_decay)")]),
        body: "g = g + l2 * p;\ns = s + g * g;\np = p - rate * g / (root(s) + e);\n".to_owned(),
        ..Rule::default()
    }
}

fn rmsprop(op: &RmsPropUpdate) -> Rule {
    let has_buffer = op.momentum.to_f64() != 0.0;
    let mut states = vec![("s", 3, 1)];
    let mut body = "g = g + l2 * p;\ns = a * s + c * (g * g);\n".to_owned();
    let mut mean = "(real)0";
    if op.centered {
        states.push(("m", 4, 2));
        body += "m = a * m + c * g;\n";
        mean = "m";
    }
    body += &format!("const real share = g / (root(larger(s - {mean} * {mean}, (real)0)) + e);\n");
    body += match has_buffer {
        true => "b = mo * b + share;\np = p - rate * b;\n",
        false => "p = p - rate * share;\n",
    };
    if has_buffer {
        let j = states.len();
        states.push(("b", 3 + j, 1 + j));
    }
    Rule {
        lr: 2,
        states,
        numbers: numbers([("alpha", op.alpha), ("eps", op.eps), ("decay", op.weight_decay), ("momentum", op.momentum)]),
        reals: named([
            ("rate", "lr"),
            ("a", "alpha"),
            ("c", "1.0 - alpha"),
            ("e", "eps"),
            ("l2", "decay"),
            ("mo", "momentum"),
        ]),
        body,
        ..Rule::default()
    }
}

fn adadelta(op: &AdadeltaUpdate) -> Rule {
    let body = "g = g + l2 * p;\ns = keep * s + fresh * (g * g);\nconst real by = root(d + e) / root(s + e) * g;\n\
                p = p - rate * by;\nd = keep * d + fresh * (by * by);\n";
    Rule {
        lr: 2,
        states: vec![("s", 3, 1), ("d", 4, 2)],
        numbers: numbers([("rho", op.rho), ("eps", op.eps), ("decay", op.weight_decay)]),
        reals: named([("rate", "lr"), ("keep", "rho"), ("fresh", "1.0 - rho"), ("e", "eps"), ("l2", "decay")]),
        body: body.to_owned(),
        ..Rule::default()
    }
}

fn adamax(op: &AdamaxUpdate) -> Rule {
    let body =
        "g = g + l2 * p;\nm = b1 * m + c1 * g;\nu = larger(b2 * u, signed_by(g, g) + e);\np = p - rate * m / u;\n";
    Rule {
        lr: 2,
        step: Some(3),
        states: vec![("m", 4, 1), ("u", 5, 2)],
        numbers: numbers([("beta1", op.beta1), ("beta2", op.beta2), ("eps", op.eps), ("decay", op.weight_decay)]),
        reals: named([("b1", "beta1"), ("c1", "1.0 - beta1"), ("b2", "beta2"), ("l2", "decay"), ("e", "eps")]),
        rates: named([("rate", "lr / (1.0 - whole_power(beta1, step))")]),
        body: body.to_owned(),
        ..Rule::default()
    }
}

fn radam(op: &RAdamUpdate) -> Rule {
    // the length of the average now; its variance counts above 5
    let setup = "const double power = whole_power(beta2, step), most = 2.0 / (1.0 - beta2) - 1.0;\n\
                 const double now = most - 2.0 * step * power / (1.0 - power);\n\
                 const double variance = (now - 4.0) * (now - 2.0) * most / ((most - 4.0) * (most - 2.0) * now);\n\
                 const bool counts = now > 5.0;\n\
                 const double by = counts ? __dsqrt_rn(variance * (1.0 - power)) : 1.0;\n";
    Rule {
        lr: 2,
        step: Some(3),
        states: vec![("m", 4, 1), ("v", 5, 2)],
        numbers: numbers([("beta1", op.beta1), ("beta2", op.beta2), ("eps", op.eps), ("decay", op.weight_decay)]),
        reals: [of_moments(), decays(op.decoupled)].concat(),
        setup: setup.to_owned(),
        rates: named([("rate", "lr / (1.0 - whole_power(beta1, step)) * by"), ("is_rectified", "counts ? 1.0 : 0.0")]),
        body: format!(
            "g = g + l2 * p;\n\
             {MOMENTS}p = is_rectified != 0 ? p * shrink - rate * m / (root(v) + e) : p * shrink - rate * m;\n"
        ),
    }
}

/// The rest of a step, once its factors are known.
fn nadam(op: &NAdamUpdate) -> Rule {
    Rule {
        lr: 2,
        step: Some(3),
        states: vec![("m", 4, 1), ("v", 5, 2)],
        numbers: numbers([("beta1", op.beta1), ("beta2", op.beta2), ("eps", op.eps), ("decay", op.weight_decay)]),
        reals: [
            of_moments(),
            decays(op.decoupled),
            named([("of_g", "factors[0]"), ("of_m", "factors[1]"), ("scale", "factors[2]")]),
        ]
        .concat(),
        body: format!("g = g + l2 * p;\n{MOMENTS}p = p * shrink - (of_g * g + of_m * m) / (root(v) * scale + e);\n"),
        ..Rule::default()
    }
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    macro_rules! rule_of {
        ($($op:ty => $rule:expr),*) => {
            $( if let Some(op) = any.downcast_ref::<$op>() { return Ok(Some(plan_of(&$rule(op), o))); } )*
        };
    }
    rule_of!(
        SgdUpdate => sgd, AdamWUpdate => adamw, LionUpdate => lion, AdagradUpdate => adagrad, RmsPropUpdate => rmsprop,
        AdadeltaUpdate => adadelta, AdamaxUpdate => adamax, RAdamUpdate => radam
    );
    Ok(any.downcast_ref::<NAdamUpdate>().map(|op| nadam_plan(op, o)))
}

fn plan_of(rule: &Rule, o: &Operands<'_>) -> Plan {
    let failure = rule.step.and_then(|_| bad_step());
    Plan { calls: rule.call("optim", o, &[]).into_iter().collect(), failure, ..Plan::default() }
}

/// The error of a step that an optimiser refuses.
pub(super) fn bad_step() -> Option<Failure> {
    Some(Arc::new(|_, step| step_error(step)))
}

/// The error of a step below 1.
pub(super) fn step_error(step: i64) -> Error {
    Error::new(ErrorKind::Value, format!("the step is {step}; the first is 1"))
}

/// The factors of a step, and the product of momenta so far, which the output may share with its input. For an
/// invalid step there are none.
fn nadam_plan(op: &NAdamUpdate, o: &Operands<'_>) -> Plan {
    let mut b = Builder::new("nadam_rates");
    b.functions(include_str!("power.cuh"));
    b.x(2, o.x[2].dtype);
    b.x(3, DType::I64);
    b.x(6, DType::F64);
    b.y(3, DType::F64);
    b.parameter("double *factors", Value::Workspace(0));
    b.failure();
    for (name, v) in numbers([("beta1", op.beta1), ("beta2", op.beta2), ("warm", op.momentum_decay)]) {
        b.parameter(format!("double {name}"), Value::F64(v));
    }
    let body = "const i64 number = x3[0];\n\
        if (number < 1) {\nrefuse(failure, 0, number);\nreturn;\n}\n\
        const double lr = (double)x2[0], step = (double)number;\n\
        const double now = beta1 * (1.0 - 0.5 * general_power(0.96, step * warm));\n\
        const double next = beta1 * (1.0 - 0.5 * general_power(0.96, (step + 1.0) * warm));\n\
        const double product = x6[0] * now;\n\
        y3[0] = product;\n\
        factors[0] = lr * (1.0 - now) / (1.0 - product);\n\
        factors[1] = lr * next / (1.0 - product * next);\n";
    let body = format!("{body}factors[2] = {ROOT};\n");
    let first = b.build(grid(1, 1), &body);
    let moves = nadam(op).call("nadam", o, &[("const double *factors", Value::Workspace(0))]);
    Plan { calls: std::iter::once(first).chain(moves).collect(), workspace: 3 * size_of::<f64>(), failure: bad_step() }
}

/// The dtype in which a float is computed.
pub(super) fn real_of(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The types and functions that rules use.
pub(super) fn vocabulary(dtype: DType) -> String {
    let real = real_of(dtype);
    let (up, down) = (cast(dtype, real, "x"), cast(real, dtype, "x"));
    format!(
        "typedef {} element;\ntypedef {} real;\n\
         __device__ __forceinline__ real up(element x) {{ return {up}; }}\n\
         __device__ __forceinline__ element down(real x) {{ return {down}; }}\n\
         __device__ __forceinline__ real root(real x) {{ return {}(x); }}\n\
         __device__ __forceinline__ real larger(real a, real b) {{ return a > b ? a : b; }}\n\
         __device__ __forceinline__ real signed_by(real v, real x) {{\n\
         return x > 0 ? v : x < 0 ? -v : x * (real)0; }}\n",
        c_type(dtype),
        c_type(real),
        if real == DType::F64 { "__dsqrt_rn" } else { "__fsqrt_rn" },
    )
}

impl Rule {
    /// Declares the operands and numbers, and gives the statements that find all constants of the rule.
    pub(super) fn begin(&self, b: &mut Builder, o: &Operands<'_>) -> String {
        b.functions(&vocabulary(o.y[0].0));
        b.x(self.lr, o.x[self.lr].dtype);
        for (name, value) in &self.numbers {
            b.parameter(format!("double {name}"), Value::F64(*value));
        }
        let mut text = format!("const double lr = (double)x{}[0];\n", self.lr);
        if let Some(step) = self.step {
            b.x(step, DType::I64);
            b.failure();
            text += &format!(
                "const i64 number = x{step}[0];\n\
                 if (number < 1) {{\nif (blockIdx.x == 0 && threadIdx.x == 0) refuse(failure, 0, number);\nreturn;\n}}\n"
            );
        }
        for (name, value) in &self.reals {
            text += &format!("const real {name} = (real)({value});\n");
        }
        if self.rates.is_empty() {
            return text;
        }
        b.functions(include_str!("power.cuh"));
        text += &format!(
            "__shared__ real rates[{}];\nif (threadIdx.x == 0) {{\nconst double step = (double)number;\n{}",
            self.rates.len(),
            self.setup
        );
        for (k, (_, value)) in self.rates.iter().enumerate() {
            text += &format!("rates[{k}] = (real)({value});\n");
        }
        text += "}\n__syncthreads();\n";
        for (k, (name, _)) in self.rates.iter().enumerate() {
            text += &format!("const real {name} = rates[{k}];\n");
        }
        text
    }

    /// The kernel that moves each element. `None` for a parameter without elements.
    fn call(&self, name: &'static str, o: &Operands<'_>, others: &[(&str, Value)]) -> Option<Call> {
        let n = o.elems(0);
        let dtype = o.y[0].0;
        let mut b = Builder::new(name);
        if !others.is_empty() {
            // an earlier kernel made them, and refuses a step
            b.after_checks();
        }
        others.iter().for_each(|(declaration, value)| b.parameter(*declaration, *value));
        let mut text = self.begin(&mut b, o);
        let all: SmallVec<[(&str, usize, usize); 4]> =
            std::iter::once(("p", 0, 0)).chain(self.states.iter().copied()).collect();
        let (mut load, mut store) = ("real g = up(x1[i]);\n".to_owned(), String::new());
        b.x(1, dtype);
        for (name, x, y) in &all {
            b.x(*x, dtype);
            b.y(*y, dtype);
            load += &format!("real {name} = up(x{x}[i]);\n");
            store += &format!("y{y}[i] = down({name});\n");
        }
        b.u64("n", n);
        text += &format!(
            "const u64 stride = (u64)gridDim.x * blockDim.x;\n\
             for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {{\n{load}{}{store}}}\n",
            self.body
        );
        let blocks = n.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS);
        (blocks > 0).then(|| b.build(grid(blocks, THREADS), &text))
    }
}
