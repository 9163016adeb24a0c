//! Constants of compiled programs on a device whose kernels do not read the host's memory: one tensor for each
//! executable in use there.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use remat_types::Result;

use super::channel::Channel;
use super::handle::{Handle, WeakHandle};
use crate::executable::Executable;

/// The resident constants. The references are weak, since the device must not keep itself open. The users of an
/// executable keep its constants.
#[derive(Default)]
pub(super) struct Residents(Mutex<Vec<(Weak<Executable>, WeakHandle)>>);

impl Channel {
    /// The constants of an executable on this device. They are put there if they are missing. Runs take them as one
    /// more input, after the states. `None` if there are none, or if the kernels read the host's memory. Errors: those
    /// of [`Channel::put`].
    pub(crate) fn resident_constants(&self, exe: &Arc<Executable>) -> Result<Option<Handle>> {
        if !self.shared.kernels.holds_constants() {
            return Ok(None);
        }
        let mut all = self.shared.residents.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, there)| there.upgrade().is_some());
        let is_of = |of: &Weak<Executable>| of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, exe));
        if let Some(there) = all.iter().filter(|(of, _)| is_of(of)).find_map(|(_, there)| there.upgrade()) {
            return Ok(Some(there));
        }
        let Some(block) = exe.constant_block()? else { return Ok(None) };
        let there = self.put(&block)?;
        all.push((Arc::downgrade(exe), there.downgrade()));
        Ok(Some(there))
    }
}
