//! Layers whose parameters are divided.
//!
//! A collective is no op that a budget may run again: one rank alone would wait for the others for ever. So the parameters that a
//! backward pass needs are gathered a second time by the program, at the same place on every rank: the layer is one function on the
//! tape, whose backward function gathers, makes the layer's forward pass again with a tape of its own, and passes through that. What
//! comes out of the layer, forward and backward, is kept and never made again, for that would need the parameters that were let go.
//!
//! The second forward pass is as the first: it has the same random keys, and the earlier buffers. Its changes of buffers are
//! undone.

use std::sync::Arc;

use remat_runtime::Kind;
use remat_tensor::comm::{Communicator, Reduction};
use remat_tensor::{Tensor, custom, is_recording, no_grad, recording};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::alike::Alike;
use crate::division::Division;
use crate::keys::{self, Key};
use crate::parameter::StandIn;
use crate::visit::visit_instead;
use crate::{Layer, Mode, Module, Parameter, Role, Visit, Visitor, Walk};

const NAME: &str = "fully_sharded";

/// A layer with divided parameters: each rank keeps its part of every parameter (ZeRO stage 3, Rajbhandari et al., SC 2020,
/// section 5.3; Zhao et al., VLDB 2023): The layer gathers whole parameters before its forward pass and releases them after it.
/// It gathers them again for the backward pass, and reduces the gradients to the ranks that keep the parts.
///
/// An optimiser over [`Module::named_parameters`] has the state of the parts, and moves them. The loss goes backward with
/// [`DataParallel`](super::DataParallel), made of the whole network after its layers were wrapped: it makes gradients those of the mean
/// of all ranks' losses, and reduces those of parameters that are not divided. Parameters have the bits that `DataParallel` alone gives
/// them, unless two layers share them.
///
/// What is kept between the passes is the layer's input and output, which no budget evicts; the backward pass makes the layer's forward
/// pass again. All ranks run the same layers in the same order, with gradients or without. A layer has as much memory as it has whole
/// parameters and gradients while it runs, so a network is wrapped block by block.
///
/// ```
/// # use remat_nn::distributed::{DataParallel, FullySharded, threads};
/// # use remat_nn::{AdamW, InitCx, Layer, Linear, Module, Optimizer, Reduction, loss};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let net = FullySharded::new(Linear::new(&mut InitCx::new(&device, 1), 8, 8)?, &ranks)?;
///     let parallel = DataParallel::new(&net, &ranks, Default::default())?;
///     let mut adam = AdamW::new(net.named_parameters(), Default::default())?;
///     let x = Tensor::ones(&device, [1, 8], remat_types::DType::F32)?;
///     parallel.backward(&loss::mse(&net.forward(&x)?, &x, Reduction::Mean)?)?;
///     adam.step()?;
///     assert_eq!(net.named_parameters()[0].1.elems(), 32); // of 64
///     assert_eq!(net.state_dict()?["weight"].shape().elems(), 64);
///     Ok(())
/// })?;
/// # Ok::<(), remat_types::Error>(())
/// ```
pub struct FullySharded<L>(Arc<Inner<L>>);

struct Inner<L> {
    layer: L,
    parts: Vec<Part>,
}

/// A parameter of the layer, which has no value of its own, and this rank's part of it.
struct Part {
    whole: Parameter,
    part: Parameter,
    division: Division,
}

impl Part {
    /// Rank 0's value, divided. Errors: Value for a parameter that is already divided; Budget; Peer.
    fn new(name: &str, whole: Parameter, group: &Communicator) -> Result<Part> {
        if whole.division().or(whole.part().as_ref().and_then(Parameter::division)).is_some() {
            return Err(Error::new(ErrorKind::Value, format!("parameter `{name}` is divided already")).with_op(NAME));
        }
        let division = Division { group: group.clone(), whole: whole.shape().clone() };
        let value = whole.get()?.detach().broadcast_from(0, group)?;
        let part = Parameter::divided(division.part_of(&value)?.contiguous()?, Role::Trained, division.clone())?;
        part.set_frozen(whole.is_frozen());
        whole.give_up_value(&part);
        Ok(Part { whole, part, division })
    }

    /// All ranks' parts together.
    fn gather(&self) -> Result<Tensor> {
        let shape = &self.division.whole;
        let all = self.part.get()?.detach().all_gather(0, &self.division.group)?;
        let all = if all.elems() == shape.elems() { all } else { all.narrow(0, 0, shape.elems())? };
        all.reshape(&shape.iter().map(|d| *d as isize).collect::<Vec<_>>())
    }

    /// This rank's part of the sum of all ranks' gradients.
    fn reduce(&self, g: Option<Tensor>) -> Result<Tensor> {
        let g = match g {
            Some(g) => g,
            None => Tensor::zeros(self.part.device(), self.division.whole.clone(), self.part.dtype())?,
        };
        let all = self.division.part_elems() * self.division.group.size();
        let flat = g.reshape(&[-1])?;
        let flat = if all == flat.elems() { flat } else { flat.pad(&[(0, all - flat.elems())], 0.0)? };
        flat.reduce_scatter(Reduction::Sum, 0, &self.division.group)
    }
}

impl<L: Layer> FullySharded<L> {
    /// The layer with rank 0's parameters, divided. All ranks call it, with layers of the same structure.
    ///
    /// Errors: Value if a parameter is divided already; Budget as a copy of the largest parameter; Peer if ranks differ.
    pub fn new(layer: L, group: &Communicator) -> Result<Self> {
        let _quiet = no_grad();
        let named = layer.named_parameters();
        Alike::default().parameters(named.iter().map(|(name, p)| (name, p))).check(
            "fully_sharded",
            group,
            named.iter().map(|(_, p)| p.device()),
            Ok(()),
        )?;
        let parts = named.into_iter().map(|(name, whole)| Part::new(&name, whole, group));
        let parts = parts.collect::<Result<_>>()?;
        Ok(FullySharded(Arc::new(Inner { layer, parts })))
    }

    /// The layer, whose parameters have values within its passes alone.
    pub fn layer(&self) -> &L {
        &self.0.layer
    }
}

impl<L: Layer> Inner<L> {
    fn gather(&self) -> Result<Vec<Tensor>> {
        self.parts.iter().map(Part::gather).collect()
    }

    /// The layer's output with these parameters.
    fn forward(&self, whole: Vec<Tensor>, x: &Tensor) -> Result<Tensor> {
        let _whole: Vec<StandIn<'_>> =
            self.parts.iter().zip(whole).map(|(p, value)| p.whole.stand_in(value)).collect::<Result<_>>()?;
        self.layer.forward(x)
    }
}

impl<L: Layer + 'static> FullySharded<L> {
    fn pass(&self, x: &Tensor) -> Result<Tensor> {
        let inner = &self.0;
        let parts = inner.parts.iter().map(|p| p.part.get()).collect::<Result<Vec<_>>>()?;
        let before = Before::of(&inner.layer)?;
        let quiet = no_grad();
        let (y, keys) = keys::noted(|| inner.forward(inner.gather()?, &x.detach()))?;
        drop(quiet);
        // so that nothing needs the whole parameters any more
        y.channel().commit(y.handle(), Kind::Activation)?;
        let again = Again { inner: inner.clone(), x: x.detach(), is_tracked: x.is_tracked(), keys, before };
        let inputs: Vec<&Tensor> = std::iter::once(x).chain(&parts).collect();
        let mut y = custom(NAME, &inputs, vec![y], move |dy| again.backward(dy))?;
        Ok(y.swap_remove(0))
    }
}

/// The earlier values of the state on which a layer's pass depends, beside its input and parameters.
struct Before {
    buffers: Vec<(Parameter, Tensor)>,
    modes: Vec<bool>,
}

impl Before {
    fn of(layer: &impl Module) -> Result<Before> {
        let buffers = layer.named_buffers().into_iter().map(|(_, p)| Ok((p.clone(), p.get()?.detach())));
        Ok(Before { buffers: buffers.collect::<Result<_>>()?, modes: modes(layer) })
    }

    /// Runs `f` as it was then; what there is now stays. Errors: Value if the layer trained then and is evaluated now, or the other way.
    fn again<T>(&self, layer: &impl Module, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if modes(layer) != self.modes {
            let text = "the layer was set to training or evaluation between its forward and its backward pass";
            return Err(Error::new(ErrorKind::Value, text));
        }
        let now: Vec<Tensor> = self.buffers.iter().map(|(p, _)| Ok(p.get()?.detach())).collect::<Result<_>>()?;
        self.buffers.iter().try_for_each(|(p, before)| p.set(before))?;
        let y = f();
        self.buffers.iter().zip(&now).try_for_each(|((p, _), now)| p.set(now))?;
        y
    }
}

fn modes(layer: &impl Module) -> Vec<bool> {
    let mut all = Modes(Vec::new());
    layer.visit(&mut Walk::new(&mut all, ""));
    all.0
}

struct Modes(Vec<bool>);

impl Visitor for Modes {
    fn mode(&mut self, _name: &str, m: &Mode) {
        self.0.push(m.is_training());
    }
}

/// A pass that is made again, and backward.
struct Again<L> {
    inner: Arc<Inner<L>>,
    x: Tensor,
    is_tracked: bool,
    keys: Vec<Key>,
    before: Before,
}

impl<L: Layer> Again<L> {
    fn backward(&self, dy: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        if is_recording() {
            let text = "gradients of gradients do not pass a layer whose parameters are divided";
            return Err(Error::new(ErrorKind::NotDifferentiable, text));
        }
        let Some(dy) = dy.first().and_then(Option::as_ref) else { return Ok(vec![None; 1 + self.inner.parts.len()]) };
        let whole = self.inner.gather()?;
        let again = recording();
        let x = if self.is_tracked { self.x.requires_grad()? } else { self.x.clone() };
        let leaf = |(p, value): (&Part, Tensor)| if p.part.is_frozen() { Ok(value) } else { value.requires_grad() };
        let whole: Vec<Tensor> = self.inner.parts.iter().zip(whole).map(leaf).collect::<Result<_>>()?;
        let y = self
            .before
            .again(&self.inner.layer, || keys::again(&self.keys, || self.inner.forward(whole.clone(), &x)))?;
        drop(again);
        if y.is_tracked() {
            y.backward_with(Some(dy), false)?;
        }
        drop(y);
        let dx = x.take_grad();
        if let Some(dx) = &dx {
            dx.channel().commit(dx.handle(), Kind::Activation)?;
        }
        let mut all = vec![dx];
        for (p, value) in self.inner.parts.iter().zip(whole) {
            // a parameter that this rank does not use has zeros from it: others may
            all.push(if p.part.is_frozen() { None } else { Some(p.reduce(value.take_grad())?) });
        }
        Ok(all)
    }
}

impl<L: Layer> Visit for FullySharded<L> {
    fn visit(&self, at: &mut Walk<'_>) {
        // parts in the place of parameters
        visit_instead(at, &self.0.layer, |at, name, p| {
            let part = self.0.parts.iter().find(|part| part.whole.is_same(p));
            at.field(name, part.map_or(p, |part| &part.part));
        });
    }
}

impl<L: Layer> Module for FullySharded<L> {}

impl<L: Layer + 'static> Layer for FullySharded<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.pass(x)
    }
}
