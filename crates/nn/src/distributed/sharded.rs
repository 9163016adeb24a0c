use std::collections::BTreeMap;

use remat_ops::collective::GatherShards;
use remat_tensor::comm::Communicator;
use remat_tensor::{Tensor, no_grad};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::optim::{Grouped, LearningRate, Optimizer, Rule};
use crate::state::{self, LoadReport};
use crate::{Arg, Parameter, update};

/// An optimiser whose state is divided among ranks (ZeRO stage 1, Rajbhandari et al., SC 2020): each rank keeps the state of its part
/// of every parameter, moves that part, and gets the others' parts in place.
///
/// The gradients are those that a [`DataParallel`](super::DataParallel) has reduced, and the parameters' bits are those of the same
/// optimiser on every rank alone. A rank holds its part of the parameters twice: state of `s` times the parameters' bytes becomes
/// `(s + 1) / ranks` of them. A step is taken by all ranks or by none.
///
/// ```
/// # use remat_nn::distributed::{DataParallel, Sharded, threads};
/// # use remat_nn::{AdamW, AdamWOptions, InitCx, Layer, Linear, Module, Optimizer, Reduction, loss};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let net = Linear::new(&mut InitCx::new(&device, 1), 8, 8)?;
///     let parallel = DataParallel::new(&net, &ranks, Default::default())?;
///     let mut adam = Sharded::new(net.named_parameters(), &ranks, AdamWOptions::default())?;
///     let x = Tensor::ones(&device, [1, 8], remat_types::DType::F32)?;
///     parallel.backward(&loss::mse(&net.forward(&x)?, &x, Reduction::Mean)?)?;
///     adam.step()?;
///     assert!(adam.named_state().iter().all(|(_, state)| state.elems() <= 32));
///     Ok(())
/// })?;
/// # Ok::<(), remat_types::Error>(())
/// ```
pub struct Sharded<R> {
    inner: Grouped<R>,
    group: Communicator,
    parts: Vec<Part>,
}

/// A parameter, and the part of it that this rank moves: `[ceil(elements / ranks)]`, with zeros behind its end.
struct Part {
    name: String,
    parameter: Parameter,
    shard: Parameter,
}

/// This rank's elements of a tensor, with zeros behind its end.
fn part_of(x: &Tensor, group: &Communicator) -> Result<Tensor> {
    let range = GatherShards::range(x.elems(), group.rank(), group.size());
    let part = x.reshape(&[-1])?.narrow(0, range.start as isize, range.len())?;
    match x.elems().div_ceil(group.size()) - range.len() {
        0 => Ok(part),
        more => part.pad(&[(0, more)], 0.0),
    }
}

impl<R: Rule> Sharded<R> {
    /// Over parameters that all ranks have alike; all ranks call it.
    ///
    /// Errors: Value for options outside their domain, a name or parameter given twice, or a rule that looks at whole parameters
    /// (LAMB, Adafactor); Budget for parts and state that do not fit.
    pub fn new(parameters: Vec<(String, Parameter)>, group: &Communicator, options: R) -> Result<Self> {
        if !options.is_elementwise() {
            let text = format!("`{}` looks at whole parameters: its state cannot be divided", R::NAME);
            return Err(Error::new(ErrorKind::Value, text));
        }
        let _quiet = no_grad();
        let mut parts = Vec::new();
        for (name, parameter) in parameters {
            let shard = Parameter::new(part_of(&parameter.get()?.detach(), group)?.contiguous()?)?;
            parts.push(Part { name, parameter, shard });
        }
        let shards = parts.iter().map(|p| (p.name.clone(), p.shard.clone())).collect();
        Ok(Sharded { inner: Grouped::new(shards, options)?, group: group.clone(), parts })
    }

    /// Takes the parts anew from the parameters: after these were loaded.
    ///
    /// Errors: Budget.
    pub fn take_parameters(&self) -> Result<()> {
        let _quiet = no_grad();
        for part in &self.parts {
            part.shard.set(&part_of(&part.parameter.get()?.detach(), &self.group)?.contiguous()?)?;
        }
        Ok(())
    }

    /// The part that a state belongs to, by the state's name.
    fn part_with(&self, state: &str) -> Option<&Part> {
        self.parts.iter().find(|p| state.strip_prefix(&p.name).is_some_and(|rest| rest.starts_with('.')))
    }
}

impl<R: Rule> Optimizer for Sharded<R> {
    fn step(&mut self) -> Result<()> {
        let quiet = no_grad();
        let mut moved = Vec::new();
        for part in &self.parts {
            if let Some(g) = part.parameter.take_grad().filter(|_| !part.parameter.is_frozen()) {
                part.shard.set_grad(Some(part_of(&g, &self.group)?))?;
                moved.push(part);
            }
        }
        drop(quiet);
        let group = &self.group;
        self.inner.step_with(|| {
            moved.iter().try_for_each(|part| {
                let shard = part.shard.get()?.detach();
                let op = GatherShards { group: group.clone() };
                update(op, vec![Arg::State(&part.parameter), Arg::Value(shard)]).map_err(|e| e.context(&part.name))
            })
        })
    }

    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        self.parts.iter().map(|p| (p.name.clone(), p.parameter.clone())).collect()
    }

    /// This rank's part of the state, under names that say so: `fc.weight.exp_avg@1of2`.
    fn named_state(&self) -> Vec<(String, Parameter)> {
        let place = format!("@{}of{}", self.group.rank(), self.group.size());
        let named = |(name, p): (String, Parameter)| (if p.shape().rank() == 0 { name } else { name + &place }, p);
        self.inner.named_state().into_iter().map(named).collect()
    }

    fn lr(&self) -> f64 {
        self.inner.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        self.inner.set_lr(lr);
    }

    fn learning_rate(&self) -> LearningRate {
        self.inner.learning_rate()
    }

    fn options(&self) -> Result<serde_json::Value> {
        self.inner.options()
    }

    fn load_options(&mut self, options: &serde_json::Value) -> Result<()> {
        self.inner.load_options(options)
    }

    /// The whole state, as the same optimiser on one rank has it, gathered one tensor at a time. All ranks call it.
    fn state_dict(&self) -> Result<BTreeMap<String, HostTensor>> {
        let _quiet = no_grad();
        let mut all = BTreeMap::new();
        for (name, state) in self.inner.named_state() {
            let value = state.get()?.detach();
            let whole = match self.part_with(&name).filter(|_| state.shape().rank() == 1) {
                Some(part) => {
                    let dims: Vec<isize> = part.parameter.shape().iter().map(|d| *d as isize).collect();
                    value.all_gather(0, &self.group)?.narrow(0, 0, part.parameter.elems())?.reshape(&dims)?
                }
                None => value,
            };
            all.insert(name.clone(), whole.to_host().map_err(|e| e.context(&name))?);
        }
        Ok(all)
    }

    /// Takes its part of the whole state, of any number of ranks.
    fn load_state_dict(&mut self, all: &BTreeMap<String, HostTensor>, strict: bool) -> Result<LoadReport> {
        let own = self.inner.named_state();
        let mut mine = BTreeMap::new();
        for (name, whole) in all {
            let state = own.iter().find(|(n, _)| n == name).map(|(_, p)| p);
            let part = self.part_with(name).filter(|p| state.is_some_and(|s| s.shape() == p.shard.shape()));
            let value = match part.filter(|p| whole.shape() == p.parameter.shape()) {
                Some(part) => shard_of(whole, &self.group, part.shard.elems())?,
                None => whole.clone(),
            };
            mine.insert(name.clone(), value);
        }
        state::stage(&own, &mine, strict)?.apply()
    }
}

/// This rank's elements of a tensor, with zeros behind its end.
fn shard_of(whole: &HostTensor, group: &Communicator, k: usize) -> Result<HostTensor> {
    let size = whole.dtype().size_bytes();
    let range = GatherShards::range(whole.shape().elems(), group.rank(), group.size());
    let mut bytes = whole.bytes()[range.start * size..range.end * size].to_vec();
    bytes.resize(k * size, 0);
    HostTensor::from_bytes(whole.dtype(), [k], &bytes)
}
