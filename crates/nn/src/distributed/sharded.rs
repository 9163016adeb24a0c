use remat_ops::collective::GatherShards;
use remat_tensor::comm::Communicator;
use remat_tensor::{Tensor, no_grad};
use remat_types::{Error, ErrorKind, Result};

use super::alike::Alike;
use crate::division::Division;
use crate::optim::{Grouped, LearningRate, Optimizer, Rule};
use crate::{Arg, Parameter, Role, update};

/// An optimiser whose state is divided among ranks (ZeRO stage 1, Rajbhandari et al., SC 2020): each rank keeps the state of its part
/// of every parameter, moves that part, and gets the others' parts in place.
///
/// The gradients are those that a [`DataParallel`](super::DataParallel) has reduced, each whole or, with
/// [`Gradients::Divided`](super::Gradients::Divided), this rank's part (ZeRO stage 2), and the parameters' bits are those of the same
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

/// A parameter, and the part of it that this rank moves.
struct Part {
    name: String,
    parameter: Parameter,
    shard: Parameter,
    division: Division,
}

impl Part {
    fn new(name: String, parameter: Parameter, group: &Communicator) -> Result<Part> {
        let division = Division { group: group.clone(), whole: parameter.shape().clone() };
        let value = division.part_of(&parameter.get()?.detach())?.contiguous()?;
        let shard = Parameter::divided(value, Role::Trained, division.clone())?;
        parameter.set_part(&shard);
        Ok(Part { name, parameter, shard, division })
    }

    fn add_grad(&self, g: Tensor) -> Result<()> {
        let sum = match self.shard.take_grad() {
            Some(before) => before.add(&g)?,
            None => g,
        };
        self.shard.set_grad(Some(sum))
    }
}

impl<R: Rule> Sharded<R> {
    /// Over parameters that all ranks have alike; all ranks call it.
    ///
    /// Errors: Value for options outside their domain, a name or parameter given twice, or a rule that looks at whole parameters
    /// (LAMB, Adafactor); Peer if ranks differ in options or parameters, naming what differs; Budget for parts and state that do not fit.
    pub fn new(parameters: Vec<(String, Parameter)>, group: &Communicator, options: R) -> Result<Self> {
        if !options.is_elementwise() {
            let text = format!("`{}` looks at whole parameters: its state cannot be divided", R::NAME);
            return Err(Error::new(ErrorKind::Value, text));
        }
        let _quiet = no_grad();
        Alike::default()
            .option(R::NAME, serde_json::to_string(&options).map_err(|e| Error::new(ErrorKind::Format, e.to_string()))?)
            .parameters(parameters.iter().map(|(name, p)| (name, p)))
            .check("sharded", group, parameters.iter().map(|(_, p)| p.device()), Ok(()))?;
        let parts = parameters.into_iter().map(|(name, p)| Part::new(name, p, group));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let shards = parts.iter().map(|p| (p.name.clone(), p.shard.clone())).collect();
        Ok(Sharded { inner: Grouped::new(shards, options)?, group: group.clone(), parts })
    }
}

impl<R: Rule> Optimizer for Sharded<R> {
    fn step(&mut self) -> Result<()> {
        let quiet = no_grad();
        let mut moved = Vec::new();
        for part in &self.parts {
            if part.parameter.is_frozen() {
                part.parameter.drop_grad();
            }
            // where gradients are divided, the part has its own already
            if let Some(g) = part.parameter.spend_grad() {
                part.add_grad(part.division.part_of(&g)?)?;
            }
            if part.shard.grad().is_some() {
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

    fn named_state(&self) -> Vec<(String, Parameter)> {
        self.inner.named_state()
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

    fn take_parameters(&self) -> Result<()> {
        let _quiet = no_grad();
        for part in &self.parts {
            let value = part.division.part_of(&part.parameter.get()?.detach())?.contiguous()?;
            // one after the other, so that memory for the largest is enough
            value.channel().wait(value.handle()).map_err(|e| e.context(&part.name))?;
            part.shard.set(&value)?;
        }
        Ok(())
    }
}
