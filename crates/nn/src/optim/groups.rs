//! Parameters in groups, with the state that an optimiser keeps of each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_runtime::{Device, Handle, Kind, tracing};
use remat_tensor::{RowGrad, Tensor};
use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape, SmallVec, smallvec};

use super::rule::{Rule, Slot, check_rate};
use super::{LearningRate, Optimizer};
use crate::{Parameter, Role, statistics};

struct Group<R> {
    /// Shared with compiled functions, which read the learning rate before every run.
    rule: Arc<Mutex<R>>,
    slots: Vec<Slot>,
}

/// The learning rates that the groups were given, which [`Optimizer::set_lr`] scales together.
struct Rates {
    /// Of each group.
    own: Vec<f64>,
    /// The present common factor of the rates.
    scale: f64,
}

impl Rates {
    /// The group whose rate becomes the one that is set: the first with a rate other than 0.
    fn leading(&self) -> Option<usize> {
        self.own.iter().position(|r| *r != 0.0)
    }

    /// Scales all rates so that the leading one is `lr`, and gives them. If none leads, all are `lr`.
    fn set(&mut self, lr: f64) -> Vec<f64> {
        let leading = self.leading().map(|i| self.own[i]);
        self.scale = leading.map_or(1.0, |first| lr / first);
        // the quotient of equal rates is exactly 1
        self.own.iter().map(|own| leading.map_or(lr, |first| lr * (own / first))).collect()
    }

    /// The rate of its own with which a group has `lr` now.
    fn unscaled(&self, lr: f64) -> f64 {
        if self.scale > 0.0 && self.scale.is_finite() { lr / self.scale } else { lr }
    }
}

/// A gradient as an optimiser takes it.
enum Gradient {
    Whole(Tensor),
    Rows(Vec<RowGrad>),
}

impl Gradient {
    /// Takes it out of the parameter for good; as rows, if it is that and the rule takes them.
    fn spend(p: &Parameter, takes_rows: bool) -> Option<Gradient> {
        let rows = if takes_rows { p.spend_grad_rows() } else { None };
        rows.map(Gradient::Rows).or_else(|| p.spend_grad().map(Gradient::Whole))
    }

    fn handles(&self) -> SmallVec<[&Handle; 2]> {
        match self {
            Gradient::Whole(g) => smallvec![g.handle()],
            Gradient::Rows(rows) => rows.iter().flat_map(|r| [r.index.handle(), r.rows.handle()]).collect(),
        }
    }
}

fn lock<R>(rule: &Mutex<R>) -> MutexGuard<'_, R> {
    rule.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An optimiser over parameters in groups; all live on one device, each in one group.
pub struct Grouped<R> {
    groups: Vec<Group<R>>,
    /// Shared with handles on the learning rate; locked before a rule is.
    rates: Arc<Mutex<Rates>>,
}

impl<R: Rule> Grouped<R> {
    /// Over `parameters`, whose state is made here. Errors: Value for options outside their domain, a name or parameter
    /// given twice; Device for parameters of two devices; Budget for state that does not fit.
    pub fn new(parameters: Vec<(String, Parameter)>, options: R) -> Result<Self> {
        let mut s = Grouped { groups: Vec::new(), rates: Arc::new(Mutex::new(Rates { own: Vec::new(), scale: 1.0 })) };
        s.add_group(parameters, options)?;
        Ok(s)
    }

    /// Adds parameters with options of their own, whose learning rate counts as of now. Errors: as [`Grouped::new`], also for a parameter that is not trained.
    pub fn add_group(&mut self, parameters: Vec<(String, Parameter)>, options: R) -> Result<()> {
        options.check()?;
        let mut slots: Vec<Slot> = Vec::new();
        for (name, parameter) in parameters {
            let wrong = |why: &str| Err(Error::new(ErrorKind::Value, format!("parameter `{name}` {why}")));
            if parameter.role() != Role::Trained {
                return wrong("is no trained parameter");
            }
            if parameter.division().is_some() && !options.is_elementwise() {
                return wrong(&format!("is divided among ranks, and `{}` looks at whole parameters", R::NAME));
            }
            if self.slots().chain(&slots).any(|s| s.parameter.is_same(&parameter) || s.name == name) {
                return wrong("is there already");
            }
            if self.device().or(slots.first().map(|s| s.parameter.device())).is_some_and(|d| d != parameter.device()) {
                return Err(Error::new(ErrorKind::Device, format!("parameter `{name}` is on another device")));
            }
            slots.push(Slot { name, parameter, state: Vec::new() });
        }
        for s in &mut slots {
            s.state = missing(&options, s)?;
        }
        let mut rates = lock(&self.rates);
        let own = rates.unscaled(options.lr());
        rates.own.push(own);
        drop(rates);
        self.groups.push(Group { rule: Arc::new(Mutex::new(options)), slots });
        Ok(())
    }

    /// The options of each group.
    pub fn group_options(&self) -> Vec<R> {
        self.groups.iter().map(|g| *lock(&g.rule)).collect()
    }

    /// Changes the options of the group with this index; groups count in the order in which they were added. The learning
    /// rate counts as of now: what [`Optimizer::set_lr`] sets later scales it.
    ///
    /// Errors: Value for a group that is not there, or options outside their domain; Budget for state that they call
    /// for. Nothing has changed then.
    pub fn set_group_options(&mut self, group: usize, options: R) -> Result<()> {
        tracing::refuse("changing an optimiser's options");
        options.check()?;
        let groups = self.groups.len();
        let none = || Error::new(ErrorKind::Value, format!("group {group} of {groups}"));
        let g = self.groups.get_mut(group).ok_or_else(none)?;
        let more: Vec<_> = g.slots.iter().map(|s| missing(&options, s)).collect::<Result<_>>()?;
        g.slots.iter_mut().zip(more).for_each(|(s, more)| s.state.extend(more));
        let mut rates = lock(&self.rates);
        rates.own[group] = rates.unscaled(options.lr());
        *lock(&g.rule) = options;
        Ok(())
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.groups.iter().flat_map(|g| &g.slots)
    }

    fn device(&self) -> Option<&Device> {
        self.slots().next().map(|s| s.parameter.device())
    }

    /// Moves every parameter of a group that has a gradient.
    fn move_group(g: &Group<R>, grads: &mut impl Iterator<Item = Option<Gradient>>) -> Result<()> {
        let rule = *lock(&g.rule);
        rule.check()?;
        let shared = g.rule.clone();
        tracing::guard(move || {
            let now = *lock(&shared);
            now == rule.with_lr(now.lr())
        });
        for (slot, grad) in g.slots.iter().zip(grads) {
            let Some(grad) = grad else { continue };
            let shared = g.rule.clone();
            // an f32 would round the steps of f64
            let is_wide = slot.parameter.fact().dtype == DType::F64;
            let rate = Arc::new(move |to: &mut [u8]| {
                let lr = lock(&shared).lr();
                if is_wide {
                    to.copy_from_slice(&lr.to_ne_bytes());
                } else {
                    to.copy_from_slice(&(lr as f32).to_ne_bytes());
                }
                Ok(())
            });
            let channel = slot.parameter.device().channel();
            let dtype = if is_wide { DType::F64 } else { DType::F32 };
            let lr = tracing::host_input(&channel, Fact::new(dtype, Shape::scalar()), rate)?;
            let lr = Tensor::from_handle(lr);
            let moved = match grad {
                Gradient::Whole(grad) => rule.step(slot, grad, lr),
                Gradient::Rows(rows) => rule.step_rows(slot, rows, lr),
            };
            moved.map_err(|e| e.context(&slot.name))?;
        }
        Ok(())
    }

    /// The groups' own learning rates as `options` wrote them; files of before have none. Errors: Format, Value.
    fn parse_rates(&self, json: &serde_json::Value) -> Result<Option<Vec<f64>>> {
        let own = &json["own_lr"];
        if own.is_null() {
            return Ok(None);
        }
        let own: Vec<f64> = serde_json::from_value(own.clone())
            .map_err(|e| Error::new(ErrorKind::Format, format!("learning rates in `own_lr`: {e}")))?;
        if own.len() != self.groups.len() {
            let text = format!("learning rates of {} groups for {}", own.len(), self.groups.len());
            return Err(Error::new(ErrorKind::Value, text));
        }
        own.iter().try_for_each(|lr| check_rate(*lr))?;
        Ok(Some(own))
    }

    /// Options of every group as `options` wrote them. Errors: Format, Value.
    fn parse_options(&self, json: &serde_json::Value) -> Result<Vec<R>> {
        let bad = |text: String| Error::new(ErrorKind::Format, text);
        if json["optimizer"] != R::NAME {
            return Err(bad(format!("options of {}, not of {}", json["optimizer"], R::NAME)));
        }
        let options: Vec<R> = serde_json::from_value(json["groups"].clone())
            .map_err(|e| bad(format!("options of {} in `groups`: {e}", R::NAME)))?;
        if options.len() != self.groups.len() {
            let text = format!("options of {} groups for {}", options.len(), self.groups.len());
            return Err(Error::new(ErrorKind::Value, text));
        }
        options.iter().try_for_each(R::check)?;
        Ok(options)
    }
}

impl<R: Rule> Grouped<R> {
    /// As [`Optimizer::step`], with more updates that are part of it.
    pub(crate) fn step_with(&mut self, more: impl FnOnce() -> Result<()>) -> Result<()> {
        self.groups.iter().try_for_each(|g| lock(&g.rule).check())?;
        let Some(channel) = self.device().map(Device::channel) else { return Ok(()) };
        // A failure in the step before, or in this one until now.
        if let Err(e) = channel.check_step() {
            // the caller gives it up with the other ranks
            self.zero_grad();
            channel.give_up_step()?;
            return Err(e);
        }
        // of what was frozen since its gradient came, that goes unused
        let used = |p: &Parameter, takes_rows| Gradient::spend(p, takes_rows).filter(|_| !p.is_frozen());
        let mut grads: Vec<Option<Gradient>> = Vec::new();
        for g in &self.groups {
            let takes_rows = lock(&g.rule).takes_rows();
            grads.extend(g.slots.iter().map(|s| used(&s.parameter, takes_rows)));
        }
        let needs: Vec<_> =
            grads.iter().flatten().flat_map(|g| g.handles()).map(|h| (h.id(), Kind::Gradient)).collect();
        let mut grads = grads.into_iter();
        let moved = channel.group(&needs, || {
            self.groups.iter().try_for_each(|g| Self::move_group(g, &mut grads))?;
            statistics::end_step(&channel)?;
            more()
        });
        match moved {
            Ok(()) => channel.step_mark(),
            Err(e) => {
                channel.give_up_step()?;
                Err(e)
            }
        }
    }
}

impl<R: Rule> Optimizer for Grouped<R> {
    fn step(&mut self) -> Result<()> {
        self.step_with(|| Ok(()))
    }

    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        self.slots().map(|s| (s.name.clone(), s.parameter.clone())).collect()
    }

    fn named_state(&self) -> Vec<(String, Parameter)> {
        let of = |s: &Slot| -> Vec<(String, Parameter)> {
            s.state.iter().map(|(n, p)| (format!("{}.{n}", s.name), p.clone())).collect()
        };
        self.slots().flat_map(of).collect()
    }

    fn lr(&self) -> f64 {
        let leading = lock(&self.rates).leading().unwrap_or(0);
        self.groups.get(leading).map_or(0.0, |g| lock(&g.rule).lr())
    }

    fn set_lr(&mut self, lr: f64) {
        self.learning_rate().set(lr);
    }

    fn learning_rate(&self) -> LearningRate {
        let rules: Vec<Arc<Mutex<R>>> = self.groups.iter().map(|g| g.rule.clone()).collect();
        let rates = self.rates.clone();
        LearningRate::new(move |lr| {
            let mut rates = lock(&rates);
            for (rule, lr) in rules.iter().zip(rates.set(lr)) {
                let mut rule = lock(rule);
                *rule = rule.with_lr(lr);
            }
        })
    }

    fn options(&self) -> Result<serde_json::Value> {
        let groups = serde_json::to_value(self.group_options())
            .map_err(|e| Error::new(ErrorKind::Format, format!("options do not serialise: {e}")))?;
        Ok(serde_json::json!({ "optimizer": R::NAME, "groups": groups, "own_lr": lock(&self.rates).own }))
    }

    fn load_options(&mut self, options: &serde_json::Value) -> Result<()> {
        let own = self.parse_rates(options)?;
        let options = self.parse_options(options)?;
        let now: Vec<f64> = options.iter().map(R::lr).collect();
        options.into_iter().enumerate().try_for_each(|(i, o)| self.set_group_options(i, o))?;
        let mut rates = lock(&self.rates);
        rates.own = own.unwrap_or_else(|| now.clone());
        rates.scale = rates.leading().map_or(1.0, |i| now[i] / rates.own[i]);
        Ok(())
    }
}

/// The states that these options call for and a slot has not yet. Errors: Budget.
fn missing<R: Rule>(options: &R, slot: &Slot) -> Result<Vec<(&'static str, Parameter)>> {
    let specs = options.state(slot.parameter.fact());
    let new = specs.iter().filter(|spec| slot.state(spec.name).is_none());
    new.map(|spec| Ok((spec.name, spec.make(&slot.parameter)?))).collect()
}
