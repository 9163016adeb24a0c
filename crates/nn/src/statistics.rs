//! Running statistics as a part of steps.
//!
//! A forward pass moves them long before its step is taken. While the step lasts, the version with which it began is kept beside
//! the present one. The optimiser's updates, which happen as a whole or not at all, decide between the two. If the thread learns
//! that the step failed, the next access to the statistics restores the first version.

use std::cell::RefCell;

use remat_ops::pointwise::{Binary, BinaryFn, Where};
use remat_runtime::{Channel, tracing};
use remat_tensor::Tensor;
use remat_types::{DType, Result};

use crate::earlier::Earlier;
use crate::parameter::WeakParameter;
use crate::{Arg, Parameter, update};

thread_local! {
    /// Statistics that forward passes of this thread changed since an optimiser last ended a step.
    static CHANGED: RefCell<Vec<WeakParameter>> = const { RefCell::new(Vec::new()) };
}

/// `running += change`; if it `is_of_step`, then as a part of the step that this thread is in. Errors: as of an update.
pub(crate) fn add(running: &Parameter, change: Tensor, is_of_step: bool) -> Result<()> {
    let move_by = |change| update(Binary { f: BinaryFn::Add }, vec![Arg::State(running), Arg::Value(change)]);
    if !is_of_step || tracing::is_tracing() {
        return move_by(change);
    }
    let version = running.get()?;
    let moment = change.channel().moment();
    let mut earlier = running.earlier();
    let is_kept =
        earlier.as_ref().is_some_and(|e| e.moment.is_in_step_of(&moment) && e.newest == version.handle().id());
    if !is_kept {
        *earlier = Some(Earlier { newest: version.handle().id(), version, moment });
    }
    drop(earlier);
    move_by(change)?;
    let newest = running.present().as_ref().map(|t| t.handle().id());
    if let (Some(earlier), Some(newest)) = (running.earlier().as_mut(), newest) {
        earlier.newest = newest;
    }
    CHANGED.with_borrow_mut(|all| {
        if !is_kept && !all.iter().any(|p| p.is(running)) {
            all.push(running.downgrade());
        }
    });
    Ok(())
}

/// Within an optimiser's updates on a device: the statistics that the step changed move with them, or stay. Errors: as of an update.
pub(crate) fn end_step(channel: &Channel) -> Result<()> {
    if tracing::is_tracing() {
        return Ok(());
    }
    let now = channel.moment();
    let changed = CHANGED.take();
    let mut truth = None;
    for weak in changed {
        let Some(p) = weak.upgrade() else { continue };
        let mut earlier = p.earlier();
        if earlier.as_ref().is_some_and(|e| !e.moment.is_of_same_steps(&now)) {
            CHANGED.with_borrow_mut(|all| all.push(weak));
            continue;
        }
        let Some(e) = earlier.take() else { continue };
        if !e.moment.is_in_step_of(&now) {
            // a step that ended otherwise: nothing is left to decide, unless it failed
            if e.is_of_failed_step() {
                e.restore(&mut p.present());
            }
            continue;
        }
        let own = e.restore(&mut p.present());
        drop(earlier);
        if let Some(own) = own {
            let truth = match &truth {
                Some(t) => t,
                None => truth.insert(Tensor::ones(p.device(), [], DType::Bool)?),
            };
            update(Where, vec![Arg::Value(truth.clone()), Arg::Value(own), Arg::State(&p)])?;
        }
    }
    Ok(())
}
