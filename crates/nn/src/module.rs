//! Methods that every network has, whatever its fields.

use std::collections::{BTreeMap, BTreeSet};

use remat_tensor::Tensor;
use remat_types::{HostTensor, Result};

use crate::state::{self, LoadReport};
use crate::{Label, Mode, Parameter, Rng, RngCell, Role, Visit, Visitor, Walk};

/// A network or a part of one. Implemented by `#[derive(Module)]`; every method is provided.
///
/// Names are dotted paths of fields, `block.0.weight`, as in PyTorch. A parameter that is reached twice is listed once,
/// under the first name.
///
/// ```compile_fail
/// # use remat_nn as nn;
/// #[derive(nn::Module)]
/// #[module(crate = remat_nn)]
/// struct Net {
///     layer: nn::Linear,
///     file: std::fs::File, // cannot be visited for parameters: mark it `#[module(skip)]`
/// }
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` is no module", note = "derive it: `#[derive(Module)]`")]
pub trait Module: Visit + Send + Sync {
    /// Trained parameters with their names, in the order of traversal.
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        entries(self).into_iter().filter(|(_, p)| p.role() == Role::Trained).collect()
    }

    /// Trained parameters, in the order of traversal.
    fn parameters(&self) -> Vec<Parameter> {
        self.named_parameters().into_iter().map(|(_, p)| p).collect()
    }

    /// State without a gradient with its names, in the order of traversal.
    fn named_buffers(&self) -> Vec<(String, Parameter)> {
        entries(self).into_iter().filter(|(_, p)| p.role() != Role::Trained).collect()
    }

    /// Parameters and buffers with their names, in the order of traversal.
    fn named_state(&self) -> Vec<(String, Parameter)> {
        entries(self)
    }

    /// Number of trained numbers of the whole network; this rank may have a part of them.
    fn parameter_count(&self) -> usize {
        self.parameters().iter().map(|p| p.whole_shape().elems()).sum()
    }

    /// Parameters and buffers on the host; waits for them. Divided parameters are put together, for which all ranks must call
    /// this. Errors: the failure of one of them; Value if two have one name.
    fn state_dict(&self) -> Result<BTreeMap<String, HostTensor>> {
        state::read(&entries(self))
    }

    /// Replaces parameters and buffers by those of `state`. If `strict`, the names must be the same on both sides;
    /// else an entry that only one side has is left alone, and reported. Gradients stay.
    ///
    /// Errors, after which nothing has changed: Value, naming every missing, unexpected and mis-shaped entry, and, strict or
    /// not, for a state that has no name of this module's at all; Budget if old and new state do not fit together.
    fn load_state_dict(&self, state: &BTreeMap<String, HostTensor>, strict: bool) -> Result<LoadReport> {
        let staged = state::stage(&entries(self), state, strict)?;
        staged.apply()
    }

    /// Lets every part train: dropout drops, normalisation uses the batch's statistics.
    fn train(&self) {
        self.set_training(true);
    }

    /// Lets every part evaluate.
    fn eval(&self) {
        self.set_training(false);
    }

    /// [`Module::train`] or [`Module::eval`].
    fn set_training(&self, training: bool) {
        walk(self, "", &mut SetMode(training));
    }

    /// Freezes (or thaws) every parameter; see [`Parameter::set_frozen`].
    fn set_frozen(&self, frozen: bool) {
        self.parameters().iter().for_each(|p| p.set_frozen(frozen));
    }

    /// Drops every accumulated gradient.
    fn zero_grad(&self) {
        self.parameters().iter().for_each(Parameter::drop_grad);
    }

    /// The sources of random keys within, by name.
    fn rng_states(&self) -> BTreeMap<String, Rng> {
        let mut all = RngStates(BTreeMap::new());
        walk(self, "", &mut all);
        all.0
    }

    /// Lets the sources of random keys go on from `states`; ones that are not named there stay.
    fn load_rng_states(&self, states: &BTreeMap<String, Rng>) {
        walk(self, "", &mut SetRngs(states));
    }

    /// Names each part's scope by its path below `root`, for reports and traces: `net.block.0`. Without this call a
    /// part's scope has the name of its kind: `linear`.
    fn name_scopes(&self, root: &str) {
        walk(self, root, &mut NameScopes);
    }
}

/// A module that makes one tensor of another.
pub trait Layer: Module {
    /// The output for `x`. Errors: those of the ops; see each layer for shapes.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

impl<T: Module + ?Sized> Module for Box<T> {}
impl<T: Layer + ?Sized> Layer for Box<T> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).forward(x)
    }
}

/// Walks `module`, whose place is called `name`.
pub(crate) fn walk<M: Visit + ?Sized>(module: &M, name: &str, visitor: &mut dyn Visitor) {
    module.visit(&mut Walk::new(visitor, name));
}

fn entries<M: Visit + ?Sized>(module: &M) -> Vec<(String, Parameter)> {
    let mut all = Entries::default();
    walk(module, "", &mut all);
    all.list
}

#[derive(Default)]
struct Entries {
    list: Vec<(String, Parameter)>,
    seen: BTreeSet<usize>,
}

impl Visitor for Entries {
    fn parameter(&mut self, name: &str, p: &Parameter) {
        if self.seen.insert(p.address()) {
            self.list.push((name.to_owned(), p.clone()));
        }
    }
}

struct SetMode(bool);

impl Visitor for SetMode {
    fn mode(&mut self, _name: &str, m: &Mode) {
        m.set_training(self.0);
    }
}

struct RngStates(BTreeMap<String, Rng>);

impl Visitor for RngStates {
    fn rng(&mut self, name: &str, r: &RngCell) {
        self.0.insert(name.to_owned(), r.get());
    }
}

struct SetRngs<'s>(&'s BTreeMap<String, Rng>);

impl Visitor for SetRngs<'_> {
    fn rng(&mut self, name: &str, r: &RngCell) {
        if let Some(rng) = self.0.get(name) {
            r.set(rng.clone());
        }
    }
}

struct NameScopes;

impl Visitor for NameScopes {
    fn label(&mut self, name: &str, l: &Label) {
        if !name.is_empty() {
            l.set(name);
        }
    }
}
