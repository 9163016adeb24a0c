//! A named piece of a model's state.
//!
//! A [`Parameter`] owns the current version of a tensor. Tensors are values: an update makes a new version. The parameter
//! takes its tensor out of the slot for the update, so it is the last owner and the kernel writes in place. If the
//! program still holds the old version, that version stays, and the update is a copy. Names are not stored here: they are
//! the path on which a traversal ([`Visit`](crate::Visit)) reaches the parameter, so one parameter may be shared by two
//! modules.
//!
//! Every version is committed: it counts as state in memory reports, and is kept, never recomputed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use remat_runtime::{Device, Kind, tracing};
use remat_tensor::{GradHook, RowGrad, StateCell, Tensor, capture_state, captured_version};
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result, Shape};

use crate::division::Division;
use crate::earlier::Earlier;

/// The purpose of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Trained by gradients.
    Trained,
    /// State of a module without a gradient: running statistics.
    Buffer,
    /// State of an optimiser.
    Optimizer,
}

impl Role {
    /// How its bytes count in memory reports.
    pub fn kind(self) -> Kind {
        match self {
            Role::Trained | Role::Buffer => Kind::Parameter,
            Role::Optimizer => Kind::OptimizerState,
        }
    }
}

struct Inner {
    role: Role,
    fact: Fact,
    device: Device,
    frozen: AtomicBool,
    /// Empty only within an update, under the lock, and after a device was closed in the middle of one.
    slot: Mutex<Option<Tensor>>,
    /// The value that a reader gets instead, while a parametrisation computes with it.
    stand_in: Mutex<Option<Tensor>>,
    /// The division, if this is a rank's part of a whole.
    division: Option<Division>,
    /// The part of this one that an optimiser moves, while that lives; it has the gradient where gradients are divided.
    part: Mutex<Weak<Inner>>,
    /// Of running statistics within a step.
    earlier: Mutex<Option<Earlier>>,
}

impl StateCell for Inner {
    fn slot(&self) -> &Mutex<Option<Tensor>> {
        &self.slot
    }

    fn kind(&self) -> Kind {
        self.role.kind()
    }
}

/// A handle on a piece of state; clones refer to the same one. Dtype, shape and device never change.
#[derive(Clone)]
pub struct Parameter(Arc<Inner>);

impl Parameter {
    /// A trained parameter that begins as `value`, whose history is dropped. Waits until the value exists.
    ///
    /// Errors: DType for a dtype that is no float; what made `value` fail; Budget if it does not fit.
    pub fn new(value: Tensor) -> Result<Parameter> {
        Parameter::with_role(value, Role::Trained)
    }

    /// A buffer that begins as `value`. Errors as [`Parameter::new`], for any dtype.
    pub fn buffer(value: Tensor) -> Result<Parameter> {
        Parameter::with_role(value, Role::Buffer)
    }

    /// A parameter of any role. Errors as [`Parameter::new`].
    pub fn with_role(value: Tensor, role: Role) -> Result<Parameter> {
        Parameter::make(value, role, None)
    }

    /// A parameter of any role whose value is this rank's part of a whole. Errors as [`Parameter::new`].
    pub(crate) fn divided(part: Tensor, role: Role, division: Division) -> Result<Parameter> {
        Parameter::make(part, role, Some(division))
    }

    fn make(value: Tensor, role: Role, division: Option<Division>) -> Result<Parameter> {
        let (device, fact) = (value.device(), Fact::new(value.dtype(), value.shape()));
        let channel = value.channel();
        let value = match role {
            Role::Trained => value.requires_grad()?,
            Role::Buffer | Role::Optimizer => value.detach(),
        };
        channel.commit(value.handle(), role.kind())?;
        channel.wait(value.handle())?;
        let (frozen, slot) = (AtomicBool::new(false), Mutex::new(Some(value)));
        let stand_in = Mutex::new(None);
        let (part, earlier) = (Mutex::default(), Mutex::default());
        Ok(Parameter(Arc::new(Inner { role, fact, device, frozen, slot, stand_in, division, part, earlier })))
    }

    /// A parameter with the value of a host tensor. Errors as [`Parameter::new`].
    pub fn from_host(device: &Device, value: &HostTensor, role: Role) -> Result<Parameter> {
        Parameter::with_role(Tensor::from_handle(device.channel().put_as(value, role.kind())?), role)
    }

    /// The present value: a leaf if this is a trained parameter that is not frozen.
    ///
    /// Errors: Closed if the device was closed in the middle of an update.
    pub fn get(&self) -> Result<Tensor> {
        if let Some(value) = self.0.stand_in.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(value);
        }
        self.take_back();
        let slot = self.present();
        let mut value = slot.as_ref().ok_or_else(|| self.absent())?.clone();
        drop(slot);
        if tracing::is_tracing() {
            let cell: Arc<dyn StateCell> = self.0.clone();
            value = captured_version(&cell, &value);
        }
        Ok(if self.is_frozen() { value.detach() } else { value })
    }

    /// While what this returns lives, [`Parameter::get`] gives `value`, with its history, for the parameter's own: for
    /// parametrisations. Errors: Shape for another dtype or shape, Device for a tensor of another device.
    pub(crate) fn stand_in(&self, value: Tensor) -> Result<StandIn<'_>> {
        self.check(&value)?;
        let before = self.0.stand_in.lock().unwrap_or_else(PoisonError::into_inner).replace(value);
        Ok(StandIn { of: self, before })
    }

    /// Replaces the value; the accumulated gradient and its hooks stay. A value that fails on the device does not: the first read
    /// after it tells the failure, and then the old value is there.
    ///
    /// Errors: Shape for another dtype or shape, Device for a tensor of another device, Closed.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        self.check(value)?;
        let mut slot = self.lock();
        let old = slot.take().ok_or_else(lost)?;
        if let Err(e) = value.channel().commit_in_place_of(value.handle(), old.handle(), self.0.role.kind()) {
            *slot = Some(old);
            return Err(e);
        }
        let new = value.handle().clone();
        // what `update_leaf` could refuse was checked above
        *slot = Some(if old.is_leaf() { old.update_leaf(|_| Ok(new))? } else { Tensor::from_handle(new) });
        Ok(())
    }

    /// Replaces the value by that of a host tensor. Errors as [`Parameter::set`].
    pub fn set_host(&self, value: &HostTensor) -> Result<()> {
        self.set(&Tensor::from_handle(self.0.device.channel().put_as(value, self.0.role.kind())?))
    }

    /// The value on the host; waits for it. Errors as [`Tensor::to_host`] and [`Parameter::get`].
    pub fn to_host(&self) -> Result<HostTensor> {
        self.get()?.to_host()
    }

    /// The gradient accumulated so far.
    pub fn grad(&self) -> Option<Tensor> {
        self.present().as_ref()?.grad()
    }

    /// Takes the accumulated gradient out.
    pub fn take_grad(&self) -> Option<Tensor> {
        self.present().as_ref()?.take_grad()
    }

    /// Replaces the accumulated gradient. Errors: Value if this is no trained parameter; Shape for a gradient of
    /// another dtype or shape; Closed.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(g) = &grad {
            self.check(g)?;
        }
        self.present().as_ref().ok_or_else(lost)?.set_grad(grad)
    }

    /// Takes the accumulated gradient out for good, as an optimiser's step does: the next gradient starts anew.
    pub(crate) fn spend_grad(&self) -> Option<Tensor> {
        let slot = self.present();
        let value = slot.as_ref()?;
        let g = value.take_grad();
        // never fails on a leaf, and other tensors have no gradient
        let _ = value.set_grad(None);
        g
    }

    /// As [`Parameter::spend_grad`], of a gradient that is rows; nothing of another.
    pub(crate) fn spend_grad_rows(&self) -> Option<Vec<RowGrad>> {
        self.present().as_ref()?.take_grad_rows()
    }

    /// Drops the accumulated gradient, and that of this rank's part.
    pub(crate) fn drop_grad(&self) {
        // rows need not become a tensor for this
        drop(self.spend_grad_rows());
        drop(self.spend_grad());
        drop(self.part().and_then(|part| part.spend_grad()));
    }

    /// See [`Tensor::has_reduced_grad`].
    pub(crate) fn has_reduced_grad(&self) -> bool {
        self.present().as_ref().is_some_and(Tensor::has_reduced_grad)
    }

    /// See [`Tensor::mark_grad_reduced`].
    pub(crate) fn mark_grad_reduced(&self) {
        self.present().iter().for_each(Tensor::mark_grad_reduced);
    }

    /// Bytes of the gradient accumulated so far. This rank may keep only a part of it.
    pub fn grad_bytes(&self) -> usize {
        let bytes = |p: &Parameter| p.present().as_ref().map_or(0, Tensor::grad_bytes);
        bytes(self) + self.part().as_ref().map_or(0, bytes)
    }

    /// Calls `hook` with the gradient whenever a backward pass has completed it; see [`Tensor::on_grad`].
    pub fn on_grad(&self, hook: impl Fn(&Tensor) -> Result<()> + Send + Sync + 'static) -> Result<GradHook> {
        self.present().as_ref().ok_or_else(lost)?.on_grad(hook)
    }

    /// Calls `hook` with the gradient whenever a backward pass has completed it, and accumulates the result of the hook; see
    /// [`Tensor::map_grad`].
    pub fn map_grad(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<GradHook> {
        self.present().as_ref().ok_or_else(lost)?.map_grad(hook)
    }

    /// As [`Parameter::map_grad`], of backward passes alone; see [`Tensor::map_accumulated_grad`].
    pub fn map_accumulated_grad(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<GradHook> {
        self.present().as_ref().ok_or_else(lost)?.map_accumulated_grad(hook)
    }

    /// Stops (or resumes) training: a frozen parameter's value requires no gradient.
    #[track_caller]
    pub fn set_frozen(&self, frozen: bool) {
        tracing::refuse("freezing a parameter");
        self.0.frozen.store(frozen, Ordering::Relaxed);
    }

    /// True if [`Parameter::set_frozen`] stopped its training.
    pub fn is_frozen(&self) -> bool {
        let frozen = self.0.frozen.load(Ordering::Relaxed);
        if tracing::is_tracing() {
            let own = self.0.clone();
            tracing::guard(move || own.frozen.load(Ordering::Relaxed) == frozen);
        }
        frozen
    }

    /// The purpose of the parameter.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Extents.
    pub fn shape(&self) -> &Shape {
        &self.0.fact.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.fact.dtype
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.0.fact.elems()
    }

    /// Extents of the whole parameter, if this rank has a part of it; else the parameter's own extents.
    pub fn whole_shape(&self) -> &Shape {
        self.division().map_or(self.shape(), |d| &d.whole)
    }

    /// This rank's part of it, if it is divided.
    pub(crate) fn part(&self) -> Option<Parameter> {
        self.0.part.lock().unwrap_or_else(PoisonError::into_inner).upgrade().map(Parameter)
    }

    /// Sets this rank's part of the parameter.
    pub(crate) fn set_part(&self, part: &Parameter) {
        *self.0.part.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&part.0);
    }

    /// Releases the value. The ranks keep its parts, this one `part`. From now on the value exists only while it has a stand-in.
    pub(crate) fn give_up_value(&self, part: &Parameter) {
        self.set_part(part);
        drop(self.lock().take());
    }

    /// Why there is no value.
    fn absent(&self) -> Error {
        match self.part() {
            None => lost(),
            Some(_) => {
                let text = format!(
                    "a parameter of shape {} is divided among ranks: it has a value within the passes of its `FullySharded` alone",
                    self.shape()
                );
                Error::new(ErrorKind::NoValue, text)
            }
        }
    }

    /// The division to which the value belongs, if it is a part.
    pub(crate) fn division(&self) -> Option<&Division> {
        self.0.division.as_ref()
    }

    /// The device it lives on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// True if both are handles on the same piece of state.
    pub fn is_same(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Equal for handles on the same piece of state, and for no others that are alive.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    pub(crate) fn fact(&self) -> &Fact {
        &self.0.fact
    }

    /// Goes back to what a step that failed began with.
    fn take_back(&self) {
        if self.0.role == Role::Buffer && !tracing::is_tracing() {
            let mut earlier = self.earlier();
            if earlier.as_ref().is_some_and(Earlier::is_of_failed_step) {
                earlier.take().and_then(|e| e.restore(&mut self.present()));
            }
        }
    }

    /// The running statistics as they were at the beginning of the step. A caller that locks the slot, too, locks this first.
    pub(crate) fn earlier(&self) -> MutexGuard<'_, Option<Earlier>> {
        self.0.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn downgrade(&self) -> WeakParameter {
        WeakParameter(Arc::downgrade(&self.0))
    }

    /// The slot, to read it.
    pub(crate) fn present(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.0.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot, to replace its content.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.take_back();
        let mut slot = self.present();
        if tracing::is_tracing() {
            let cell: Arc<dyn StateCell> = self.0.clone();
            capture_state(&cell, &mut slot);
        }
        slot
    }

    /// Errors (Shape, Device) unless `value` could be a version of this.
    pub(crate) fn check(&self, value: &Tensor) -> Result<()> {
        let own = &self.0.fact;
        if value.dtype() != own.dtype || *value.shape() != own.shape {
            let text =
                format!("the parameter is {} {}, the tensor {} {}", own.dtype, own.shape, value.dtype(), value.shape());
            return Err(Error::new(ErrorKind::Shape, text));
        }
        if value.device() != self.0.device {
            return Err(Error::new(ErrorKind::Device, "the tensor is on another device than the parameter"));
        }
        Ok(())
    }
}

/// A parameter that may be gone.
pub(crate) struct WeakParameter(Weak<Inner>);

impl WeakParameter {
    pub(crate) fn upgrade(&self) -> Option<Parameter> {
        self.0.upgrade().map(Parameter)
    }

    pub(crate) fn is(&self, p: &Parameter) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&p.0))
    }
}

/// Lets a parameter have another value for those who read it; see [`Parameter::stand_in`].
pub(crate) struct StandIn<'p> {
    of: &'p Parameter,
    before: Option<Tensor>,
}

impl Drop for StandIn<'_> {
    fn drop(&mut self) {
        *self.of.0.stand_in.lock().unwrap_or_else(PoisonError::into_inner) = self.before.take();
    }
}

/// The state was with a device when that closed.
pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::Closed, "the device was closed while the parameter was being updated")
}

impl fmt::Debug for Parameter {
    /// Role, dtype and shape; never waits for a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameter({:?}, {}{})", self.0.role, self.0.fact.dtype, self.0.fact.shape)
    }
}
