//! Parameters in groups, with the state that an optimiser keeps of each.

use remat_runtime::{Channel, Device, Kind};
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Result};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Parameter, Role};

/// A parameter and what the optimiser remembers of it.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) parameter: Parameter,
    /// In the order of the optimiser's own list of names; made before the first step.
    pub(super) state: Vec<Parameter>,
}

/// Parameters with options in common.
pub(super) struct Group<O> {
    pub(super) options: O,
    pub(super) slots: Vec<Slot>,
}

/// All groups; their parameters live on one device, each in one group.
pub(super) struct Groups<O> {
    pub(super) all: Vec<Group<O>>,
}

impl<O: Serialize + DeserializeOwned> Groups<O> {
    pub(super) fn new() -> Self {
        Groups { all: Vec::new() }
    }

    /// Adds a group. Errors: Value for a parameter that is there already, a name given twice, or one that is not
    /// trained; Device for a parameter of another device.
    pub(super) fn add(&mut self, parameters: Vec<(String, Parameter)>, options: O) -> Result<()> {
        let mut slots: Vec<Slot> = Vec::new();
        for (name, parameter) in parameters {
            let wrong = |why: &str| Err(Error::new(ErrorKind::Value, format!("parameter `{name}` {why}")));
            if parameter.role() != Role::Trained {
                return wrong("is no trained parameter");
            }
            if self.slots().chain(&slots).any(|s| s.parameter.is_same(&parameter) || s.name == name) {
                return wrong("is there already");
            }
            if self.device().or(slots.first().map(|s| s.parameter.device())).is_some_and(|d| d != parameter.device()) {
                return Err(Error::new(ErrorKind::Device, format!("parameter `{name}` is on another device")));
            }
            slots.push(Slot { name, parameter, state: Vec::new() });
        }
        self.all.push(Group { options, slots });
        Ok(())
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.all.iter().flat_map(|g| &g.slots)
    }

    fn device(&self) -> Option<&Device> {
        self.slots().next().map(|s| s.parameter.device())
    }

    pub(super) fn named_parameters(&self) -> Vec<(String, Parameter)> {
        self.slots().map(|s| (s.name.clone(), s.parameter.clone())).collect()
    }

    /// State with its names; `names` are the optimiser's, in the order of [`Slot::state`].
    pub(super) fn named_state(&self, names: &[&str]) -> Vec<(String, Parameter)> {
        let of = |s: &Slot| -> Vec<(String, Parameter)> {
            s.state.iter().zip(names).map(|(p, n)| (format!("{}.{n}", s.name), p.clone())).collect()
        };
        self.slots().flat_map(of).collect()
    }

    pub(super) fn options_json(&self, optimizer: &str) -> Result<serde_json::Value> {
        let groups: Vec<&O> = self.all.iter().map(|g| &g.options).collect();
        let groups = serde_json::to_value(groups)
            .map_err(|e| Error::new(ErrorKind::Format, format!("options do not serialise: {e}")))?;
        Ok(serde_json::json!({ "optimizer": optimizer, "groups": groups }))
    }

    /// Options of every group as `options_json` wrote them. Errors: Format, Value.
    pub(super) fn parse_options(&self, optimizer: &str, json: &serde_json::Value) -> Result<Vec<O>> {
        let bad = |text: String| Error::new(ErrorKind::Format, text);
        if json["optimizer"] != optimizer {
            return Err(bad(format!("options of {}, not of {optimizer}", json["optimizer"])));
        }
        let options: Vec<O> = serde_json::from_value(json["groups"].clone())
            .map_err(|e| bad(format!("options of {optimizer} in `groups`: {e}")))?;
        if options.len() != self.all.len() {
            let text = format!("options of {} groups for {}", options.len(), self.all.len());
            return Err(Error::new(ErrorKind::Value, text));
        }
        Ok(options)
    }

    /// Takes every gradient and makes it resident, then calls `move_one` for each; ends the step in any case.
    pub(super) fn step(&mut self, mut move_one: impl FnMut(&O, &Slot, Tensor, &Channel) -> Result<()>) -> Result<()> {
        let Some(channel) = self.device().map(Device::channel) else { return Ok(()) };
        let grads: Vec<Option<Tensor>> = self.slots().map(|s| s.parameter.take_grad()).collect();
        let moved = (|| {
            for g in grads.iter().flatten() {
                channel.commit(g.handle(), Kind::Gradient)?;
            }
            let slots = self.all.iter().flat_map(|g| g.slots.iter().map(move |s| (&g.options, s)));
            for ((options, slot), grad) in slots.zip(grads) {
                if let Some(grad) = grad {
                    move_one(options, slot, grad, &channel).map_err(|e| e.context(&slot.name))?;
                }
            }
            Ok(())
        })();
        channel.step_mark()?;
        moved
    }
}

/// A state tensor of zeros like `p`.
pub(super) fn zeros_like(p: &Parameter) -> Result<Parameter> {
    Parameter::with_role(Tensor::zeros(p.device(), p.shape(), p.dtype())?, Role::Optimizer)
}

/// Errors (Value) for a learning rate that is negative or not finite.
pub(super) fn check_rate(lr: f64) -> Result<()> {
    if lr >= 0.0 && (lr as f32).is_finite() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Value, format!("the learning rate is {lr}, must be finite and not negative")))
}
