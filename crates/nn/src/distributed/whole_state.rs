//! Checkpoints of modules with divided parameters that any number of ranks can read, one included.

use std::collections::BTreeMap;

use remat_types::{HostTensor, Result};

use crate::divided::Divided;
use crate::module::walk;
use crate::state::LoadReport;
use crate::{Module, Visitor};

/// The state of the module as one process has it: that of [`Module::state_dict`], with the parts of [`Divided`] parameters put
/// together, on every rank. All ranks call it. ([`Module::state_dict`] itself, and a [`Checkpoint`](crate::Checkpoint), have this rank's
/// parts.)
///
/// Errors: those of [`Module::state_dict`], and of a collective.
///
/// ```
/// # use remat_nn::distributed::{ColumnParallelLinear, load_whole_state_dict, threads, whole_state_dict};
/// # use remat_nn::{InitCx, Linear, Module};
/// # use remat_runtime::{Device, DeviceOptions};
/// let whole = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     whole_state_dict(&ColumnParallelLinear::new(&mut InitCx::new(&device, 1), 4, 8, &ranks)?)
/// })?;
/// // one process goes on, or four ranks
/// let device = Device::cpu(Default::default())?;
/// Linear::new(&mut InitCx::new(&device, 2), 4, 8)?.load_state_dict(&whole[0], true)?;
/// threads::run(4, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let layer = ColumnParallelLinear::new(&mut InitCx::new(&device, 2), 4, 8, &ranks)?;
///     load_whole_state_dict(&layer, &whole[0], true)?;
///     assert!(whole_state_dict(&layer)? == whole[0]);
///     Ok(())
/// })?;
/// # Ok::<(), remat_types::Error>(())
/// ```
pub fn whole_state_dict<M: Module + ?Sized>(module: &M) -> Result<BTreeMap<String, HostTensor>> {
    let mut all = module.state_dict()?;
    for (name, divided) in divided(module) {
        // a parameter that is reached twice has its first name only
        if let Some(value) = all.get_mut(&name) {
            *value = divided.whole().and_then(|w| w.to_host()).map_err(|e| e.context(&name))?;
        }
    }
    Ok(all)
}

/// Takes this rank's parts of a state that one process or any number of ranks have saved; as [`Module::load_state_dict`] otherwise.
///
/// Errors: those of [`Module::load_state_dict`]; Shape for a whole of another shape.
pub fn load_whole_state_dict<M: Module + ?Sized>(
    module: &M,
    state: &BTreeMap<String, HostTensor>,
    strict: bool,
) -> Result<LoadReport> {
    let mut own = state.clone();
    for (name, divided) in divided(module) {
        if let Some(value) = own.get_mut(&name) {
            *value = divided.part_of_host(value).map_err(|e| e.context(&name))?;
        }
    }
    module.load_state_dict(&own, strict)
}

fn divided<M: Module + ?Sized>(module: &M) -> BTreeMap<String, Divided> {
    let mut all = Collect(BTreeMap::new());
    walk(module, "", &mut all);
    all.0
}

struct Collect(BTreeMap<String, Divided>);

impl Visitor for Collect {
    fn divided(&mut self, name: &str, d: &Divided) {
        self.0.insert(name.to_owned(), d.clone());
    }
}
