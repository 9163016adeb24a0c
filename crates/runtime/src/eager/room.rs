//! Compiled graphs in the room that a budget leaves them.
//!
//! A compiled graph is planned when it is compiled, for the bytes that are on the device then. The program may hold
//! more by the time of a run. A run that would be refused then follows a plan for the room that there is.

use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::Result;

use super::command::Apply;
use super::handle::TensorId;
use super::memory::table::Input;
use super::worker::Worker;
use crate::executable::Executable;

/// True for a compiled graph.
pub(super) fn is_compiled(op: &OpRef) -> bool {
    op.as_any().is::<Executable>()
}

impl Worker {
    /// Before a run of a compiled graph: replaces its op by one whose workspace fits beside everything else, if there
    /// is one and that of the op does not. True if the op was replaced.
    pub(super) fn plan_for_room(&self, a: &mut Apply) -> bool {
        // a group was found to fit in the way in which it runs
        if self.running.is_in_group {
            return false;
        }
        let Some(Ok(Some(smaller))) = self.smaller(a) else { return false };
        a.workspace_bytes = smaller.figures().arena_bytes;
        a.op = OpRef::from_shared(smaller);
        true
    }

    /// `None` if the op is no compiled graph, or if an input failed.
    fn smaller(&self, a: &Apply) -> Option<Result<Option<Arc<Executable>>>> {
        let compiled = a.op.as_any().downcast_ref::<Executable>()?;
        let room = if self.budget.is_some() { self.workspace_room(a)? } else { usize::MAX };
        Some(compiled.within(room, self.options.spill.as_ref()))
    }

    /// Bytes that the workspace of a command may take beside leaves, its inputs and its outputs.
    fn workspace_room(&self, a: &Apply) -> Option<usize> {
        let needs = self.needs_of_command(a)?;
        let beside = needs.beside - self.alignment().pad(a.workspace_bytes);
        let fixed = self.table.fixed_bytes().saturating_sub(self.staging_bytes());
        Some(self.memory.arena().capacity().saturating_sub(fixed + self.evictable_bytes(&needs.x) + beside))
    }

    /// The bytes of these tensors, and of all that cannot be recomputed.
    pub(super) fn held_bytes(&self, ids: &[TensorId]) -> usize {
        let x: Vec<Input> = ids.iter().filter_map(|id| self.table.kept(id).cloned()).collect();
        self.table.fixed_bytes() + self.evictable_bytes(&x)
    }

    /// The least workspace with which a refused command could run, as far as it is known.
    pub(super) fn least_workspace(&self, a: &Apply) -> usize {
        match self.smaller(a) {
            Some(Err(e)) => e.shortfall().map_or(a.workspace_bytes, |s| s.smallest_feasible_bytes),
            _ => a.workspace_bytes,
        }
    }
}
