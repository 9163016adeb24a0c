//! L-BFGS: steps along a direction that differences of past gradients make of the present one.

mod search;

use std::collections::{BTreeMap, VecDeque};

use remat_tensor::{Tensor, no_grad};
use remat_types::{Error, ErrorKind, HostTensor, Result};
use serde::{Deserialize, Serialize};

use self::search::{Point, strong_wolfe};
use super::rule::{check_rate, want};
use crate::{Parameter, Role};

/// Options of [`Lbfgs`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LbfgsOptions {
    /// The length of a step, or the first trial of the line search. Default: 1.
    pub lr: f64,
    /// Iterations of a step. Default: 20.
    pub max_iter: usize,
    /// Evaluations of the loss in a step; `None` for a quarter more than iterations. Default: `None`.
    pub max_eval: Option<usize>,
    /// A gradient whose largest element is no more is done. Default: 1e-7.
    pub tolerance_grad: f64,
    /// A change of the loss or of the parameters that is no more is done. Default: 1e-9.
    pub tolerance_change: f64,
    /// Past gradients that count. Default: 100.
    pub history: usize,
    /// Searches along the line for the strong Wolfe conditions. Default: false.
    pub line_search: bool,
}

impl Default for LbfgsOptions {
    fn default() -> Self {
        LbfgsOptions {
            lr: 1.0,
            max_iter: 20,
            max_eval: None,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            history: 100,
            line_search: false,
        }
    }
}

/// A difference of gradients `y`, the step `s` that made it, and `1 / (y s)`.
#[derive(Clone)]
struct Pair {
    y: Parameter,
    s: Parameter,
    rho: f64,
}

/// The state from one step to the next.
#[derive(Clone)]
struct Memory {
    direction: Parameter,
    grad: Parameter,
    t: f64,
    scale: f64,
}

/// L-BFGS (Liu and Nocedal, Mathematical Programming, 1989), as `torch.optim.LBFGS`.
///
/// A step calls a function that computes the loss as often as it needs, and waits for it: it cannot be compiled. It takes the
/// memory of `2 history + 2` copies of the parameters.
///
/// ```
/// # use remat_nn::{InitCx, Layer, Lbfgs, LbfgsOptions, Linear, Module, Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let net = Linear::new(&mut InitCx::new(&device, 1), 1, 1)?;
/// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0], [3, 1])?;
/// let y = Tensor::new(&device, &[3.0f32, 5.0, 7.0], [3, 1])?;
/// let mut lbfgs = Lbfgs::new(net.parameters(), LbfgsOptions { line_search: true, ..LbfgsOptions::default() })?;
/// lbfgs.step(|| loss::mse(&net.forward(&x)?, &y, Reduction::Mean))?;
/// assert!((net.weight.to_host()?.item::<f32>()? - 2.0).abs() < 1e-3);
/// # Ok::<(), remat_types::Error>(())
/// ```
pub struct Lbfgs {
    options: LbfgsOptions,
    parameters: Vec<Parameter>,
    pairs: VecDeque<Pair>,
    memory: Option<Memory>,
    iterations: u64,
    evaluations: u64,
}

/// The least product of a step and the change of the gradient at which the pair is kept.
const LEAST_CURVATURE: f64 = 1e-10;

impl Lbfgs {
    /// Over `parameters`, as one vector. Errors: Value for options outside their domain, or no parameter; DType or Device for
    /// parameters of two.
    pub fn new(parameters: Vec<Parameter>, options: LbfgsOptions) -> Result<Self> {
        check_rate(options.lr).map_err(|e| e.with_op("lbfgs"))?;
        want(options.history > 0, "the history", 0.0, "at least 1").map_err(|e| e.with_op("lbfgs"))?;
        let Some(first) = parameters.first() else {
            return Err(Error::new(ErrorKind::Value, "there is no parameter").with_op("lbfgs"));
        };
        for p in &parameters {
            if p.dtype() != first.dtype() {
                let text = format!("parameters of {} and {}", first.dtype(), p.dtype());
                return Err(Error::new(ErrorKind::DType, text).with_op("lbfgs"));
            }
            if p.device() != first.device() {
                return Err(Error::new(ErrorKind::Device, "parameters of two devices").with_op("lbfgs"));
            }
            if p.division().is_some() {
                let text = "a parameter that is divided among ranks; it looks at whole ones";
                return Err(Error::new(ErrorKind::Value, text).with_op("lbfgs"));
            }
        }
        let pairs = VecDeque::new();
        Ok(Lbfgs { options, parameters, pairs, memory: None, iterations: 0, evaluations: 0 })
    }

    /// The options.
    pub fn options(&self) -> LbfgsOptions {
        self.options
    }

    /// Sets the length of steps. Errors: Value.
    pub fn set_lr(&mut self, lr: f64) -> Result<()> {
        check_rate(lr)?;
        self.options.lr = lr;
        Ok(())
    }

    /// How often the loss was computed.
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// Moves the parameters by up to `max_iter` iterations, and gives the loss of before. `loss` computes the loss, of rank 0;
    /// its gradient is taken here.
    ///
    /// Errors: those of `loss`, and of its gradient, after which parameters and history are as before the call.
    pub fn step(&mut self, loss: impl FnMut() -> Result<Tensor>) -> Result<f64> {
        let (values, pairs, memory) = (self.values()?, self.pairs.clone(), self.memory.clone());
        let (iterations, evaluations) = (self.iterations, self.evaluations);
        self.iterate(loss).inspect_err(|_| {
            // what could not be set is lost with its device
            self.parameters.iter().zip(&values).for_each(|(p, v)| drop(p.set(v)));
            (self.pairs, self.memory) = (pairs, memory);
            (self.iterations, self.evaluations) = (iterations, evaluations);
        })
    }

    fn iterate(&mut self, mut loss: impl FnMut() -> Result<Tensor>) -> Result<f64> {
        let o = self.options;
        let most = o.max_eval.unwrap_or(o.max_iter * 5 / 4);
        let (first, mut grad) = self.evaluate(&mut loss)?;
        let (mut now, mut used) = (first, 1);
        if largest(&grad)? <= o.tolerance_grad {
            return Ok(first);
        }
        for iteration in 1..=o.max_iter {
            self.iterations += 1;
            let (direction, scale) = self.direction(&grad)?;
            let t = match self.iterations {
                1 => (1.0 / number(&grad.abs()?.sum()?)?).min(1.0) * o.lr,
                _ => o.lr,
            };
            let slope = dot(&grad, &direction)?;
            let mut memory = Memory { direction: keep(&direction)?, grad: keep(&grad)?, t, scale };
            if slope > -o.tolerance_change {
                self.memory = Some(memory);
                break;
            }
            let before = now;
            let mut calls = 0;
            if o.line_search {
                let start = Point { t: 0.0, loss: now, grad: grad.clone(), slope };
                let (longest, left) = (largest(&direction)?, most.saturating_sub(used));
                let origin = self.values()?;
                let (point, evaluations) = strong_wolfe(&start, t, longest, o.tolerance_change, left, |t| {
                    self.move_to(&origin, &direction, t)?;
                    let (loss, grad) = self.evaluate(&mut loss)?;
                    self.move_to(&origin, &direction, 0.0)?;
                    let slope = dot(&grad, &direction)?;
                    Ok(Point { t, loss, grad, slope })
                })?;
                self.move_to(&origin, &direction, point.t)?;
                (now, grad, calls) = (point.loss, point.grad, evaluations);
                memory.t = point.t;
            } else {
                self.move_to(&self.values()?, &direction, t)?;
                if iteration != o.max_iter {
                    (now, grad) = self.evaluate(&mut loss)?;
                    calls = 1;
                }
            }
            let moved = memory.t * largest(&direction)?;
            self.memory = Some(memory);
            used += calls;
            let done = largest(&grad)? <= o.tolerance_grad
                || moved.abs() <= o.tolerance_change
                || (now - before).abs() < o.tolerance_change;
            if used >= most || done {
                break;
            }
        }
        self.parameters[0].device().channel().step_mark()?;
        Ok(first)
    }

    /// The loss and its gradient as one vector.
    fn evaluate(&mut self, loss: &mut impl FnMut() -> Result<Tensor>) -> Result<(f64, Tensor)> {
        self.parameters.iter().for_each(|p| drop(p.spend_grad()));
        let loss = loss()?;
        loss.backward()?;
        self.evaluations += 1;
        let value = number(&loss.detach())?;
        let _quiet = no_grad();
        let of = |p: &Parameter| match p.spend_grad() {
            Some(grad) => grad.reshape(&[-1]),
            None => Tensor::zeros(p.device(), [p.elems()], p.dtype()),
        };
        let parts: Vec<Tensor> = self.parameters.iter().map(of).collect::<Result<_>>()?;
        Ok((value, Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0)?))
    }

    fn values(&self) -> Result<Vec<Tensor>> {
        self.parameters.iter().map(|p| Ok(p.get()?.detach())).collect()
    }

    /// Sets the parameters to `origin + t direction`.
    fn move_to(&self, origin: &[Tensor], direction: &Tensor, t: f64) -> Result<()> {
        let _quiet = no_grad();
        let (mut at, mut new) = (0, Vec::with_capacity(origin.len()));
        for value in origin {
            let part = direction
                .narrow(0, at as isize, value.elems())?
                .reshape(&value.dims().iter().map(|d| *d as isize).collect::<Vec<_>>())?;
            at += value.elems();
            new.push(if t == 0.0 { value.clone() } else { value.add(part.mul(t)?)? });
        }
        self.parameters.iter().zip(&new).try_for_each(|(p, v)| p.set(v))
    }

    /// Takes the last step into the history, and gives the direction from here and the scale of the inverse Hessian.
    fn direction(&mut self, grad: &Tensor) -> Result<(Tensor, f64)> {
        let _quiet = no_grad();
        let Some(memory) = &self.memory else { return Ok((grad.neg()?, 1.0)) };
        let y = grad.sub(&memory.grad.get()?)?;
        let s = memory.direction.get()?.mul(memory.t)?;
        let (ys, mut scale) = (dot(&y, &s)?, memory.scale);
        if ys > LEAST_CURVATURE {
            if self.pairs.len() == self.options.history {
                self.pairs.pop_front();
            }
            scale = ys / dot(&y, &y)?;
            self.pairs.push_back(Pair { y: keep(&y)?, s: keep(&s)?, rho: 1.0 / ys });
        }
        // the two loops of the paper
        let mut q = grad.neg()?;
        let mut shares = Vec::with_capacity(self.pairs.len());
        for pair in self.pairs.iter().rev() {
            let share = dot(&pair.s.get()?, &q)? * pair.rho;
            q = q.sub(pair.y.get()?.mul(share)?)?;
            shares.push(share);
        }
        let mut r = q.mul(scale)?;
        for (pair, share) in self.pairs.iter().zip(shares.into_iter().rev()) {
            let back = dot(&pair.y.get()?, &r)? * pair.rho;
            r = r.add(pair.s.get()?.mul(share - back)?)?;
        }
        Ok((r, scale))
    }

    /// The remembered state, on the host. Errors: the failure of the computation of the state.
    pub fn state_dict(&self) -> Result<BTreeMap<String, HostTensor>> {
        let mut all = BTreeMap::new();
        let numbers = |v: &[f64]| HostTensor::from_slice(v, [v.len()]);
        let counts = [self.iterations as f64, self.evaluations as f64];
        all.insert("counts".to_owned(), numbers(&counts)?);
        if let Some(m) = &self.memory {
            all.insert("step".to_owned(), numbers(&[m.t, m.scale])?);
            all.insert("d".to_owned(), m.direction.to_host()?);
            all.insert("prev_flat_grad".to_owned(), m.grad.to_host()?);
        }
        for (i, pair) in self.pairs.iter().enumerate() {
            all.insert(format!("old_dirs.{i}"), pair.y.to_host()?);
            all.insert(format!("old_stps.{i}"), pair.s.to_host()?);
            all.insert(format!("ro.{i}"), numbers(&[pair.rho])?);
        }
        Ok(all)
    }

    /// Replaces the remembered state by one that [`Lbfgs::state_dict`] gave. Errors, after which nothing has changed: Value
    /// for a name that is missing or an entry that does not fit; Budget.
    pub fn load_state_dict(&mut self, state: &BTreeMap<String, HostTensor>) -> Result<()> {
        let first = &self.parameters[0];
        let (elems, dtype) = (self.parameters.iter().map(Parameter::elems).sum::<usize>(), first.dtype());
        let wrong = |name: &str| Error::new(ErrorKind::Value, format!("the state has no `{name}` that fits"));
        let numbers = |name: &str, n: usize| match state.get(name).map(HostTensor::to_f64_vec) {
            Some(v) if v.len() == n => Ok(v),
            _ => Err(wrong(name)),
        };
        let vector = |name: &str| match state.get(name) {
            Some(t) if t.dtype() == dtype && t.shape().dims() == [elems] => {
                Parameter::from_host(first.device(), t, Role::Optimizer)
            }
            _ => Err(wrong(name)),
        };
        let counts = numbers("counts", 2)?;
        let memory = match state.contains_key("step") {
            false => None,
            true => {
                let step = numbers("step", 2)?;
                let (direction, grad) = (vector("d")?, vector("prev_flat_grad")?);
                Some(Memory { direction, grad, t: step[0], scale: step[1] })
            }
        };
        let mut pairs = VecDeque::new();
        while state.contains_key(&format!("old_dirs.{}", pairs.len())) {
            let i = pairs.len();
            let rho = numbers(&format!("ro.{i}"), 1)?[0];
            pairs.push_back(Pair { y: vector(&format!("old_dirs.{i}"))?, s: vector(&format!("old_stps.{i}"))?, rho });
        }
        (self.iterations, self.evaluations) = (counts[0] as u64, counts[1] as u64);
        (self.memory, self.pairs) = (memory, pairs);
        Ok(())
    }
}

/// Kept as state: no recipe leads back over all steps.
fn keep(v: &Tensor) -> Result<Parameter> {
    Parameter::with_role(v.clone(), Role::Optimizer)
}

/// A number of rank 0, on the host.
fn number(x: &Tensor) -> Result<f64> {
    Ok(x.to_host()?.to_f64_vec().first().copied().unwrap_or(0.0))
}

fn dot(a: &Tensor, b: &Tensor) -> Result<f64> {
    let _quiet = no_grad();
    number(&a.mul(b)?.sum()?)
}

/// The largest element in size; 0 of none.
fn largest(x: &Tensor) -> Result<f64> {
    let _quiet = no_grad();
    if x.elems() == 0 { Ok(0.0) } else { number(&x.abs()?.max()?) }
}
