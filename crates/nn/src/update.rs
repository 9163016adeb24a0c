//! In-place updates of parameters: the one door through which optimisers and running statistics write.

use std::sync::MutexGuard;

use remat_ops::OpRef;
use remat_runtime::{Handle, NotUpdated};
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Fact, Result, SmallVec};

use crate::Parameter;
use crate::parameter::lost;

/// An input of an [`update`].
pub enum Arg<'p> {
    /// A parameter; the op's next output is its new version.
    State(&'p Parameter),
    /// A tensor; handed over, so that its storage is free again after the op.
    Value(Tensor),
}

/// Applies `op` to `x` and makes its outputs the new versions of the parameters among `x`, in their order.
///
/// Where a parameter is the last owner of its tensor, the op writes in place. If the op fails on the device, or anything
/// failed since the last step mark, every parameter keeps its old version: nothing is lost. Nothing is recorded for
/// gradients, though a trained parameter's accumulated gradient and hooks stay.
///
/// Errors: what inference finds; Value if outputs and parameters differ in number, or a parameter other than the first is
/// trained; Shape if an output's dtype or shape is not its parameter's; Device for tensors of two devices; Closed. After
/// any of these but Closed the parameters are as before.
#[track_caller]
pub fn update(op: impl Into<OpRef>, x: Vec<Arg<'_>>) -> Result<()> {
    let op = op.into();
    check(&op, &x).map_err(|e| e.with_op(op.label()))?;
    let parameters: SmallVec<[&Parameter; 4]> =
        x.iter().filter_map(|a| if let Arg::State(p) = a { Some(*p) } else { None }).collect();
    let channel = parameters[0].device().channel();
    let mut slots: SmallVec<[MutexGuard<'_, Option<Tensor>>; 4]> = parameters.iter().map(|p| p.lock()).collect();
    if slots.iter().any(|s| s.is_none()) {
        return Err(lost());
    }
    let old: SmallVec<[Tensor; 4]> = slots.iter_mut().filter_map(|s| s.take()).collect();
    let mut old = old.into_iter();
    let first = old.next().ok_or_else(lost)?;
    let mut replaces: SmallVec<[Option<u16>; 4]> = SmallVec::new();
    let mut rest: SmallVec<[Handle; 4]> = SmallVec::new();
    let mut failed = None;
    let run = |first: Handle| -> Result<Handle> {
        let mut state = std::iter::once(first).chain(old.by_ref().map(Tensor::into_handle));
        let mut handles: SmallVec<[Handle; 4]> = SmallVec::new();
        for (i, a) in x.into_iter().enumerate() {
            handles.push(match a {
                Arg::State(_) => {
                    replaces.push(u16::try_from(i).ok());
                    state.next().ok_or_else(lost)?
                }
                Arg::Value(t) => t.into_handle(),
            });
        }
        let y = channel.update(op, handles, &replaces).unwrap_or_else(|NotUpdated { error, old }| {
            failed = Some(error);
            old.into_iter().flatten().collect()
        });
        let mut y = y.into_iter();
        let first = y.next().ok_or_else(lost)?;
        rest.extend(y);
        Ok(first)
    };
    let new = match first.is_leaf() {
        true => first.update_leaf(run),
        false => run(first.into_handle()).map(Tensor::from_handle),
    };
    let all = std::iter::once(new?).chain(rest.into_iter().map(Tensor::from_handle));
    for ((slot, p), t) in slots.iter_mut().zip(&parameters).zip(all) {
        channel.commit(t.handle(), p.role().kind())?;
        **slot = Some(t);
    }
    failed.map_or(Ok(()), Err)
}

/// Everything that the channel could refuse, found before a tensor leaves its slot.
fn check(op: &OpRef, x: &[Arg<'_>]) -> Result<()> {
    let wrong = |text: String| Err(Error::new(ErrorKind::Value, text));
    let facts: SmallVec<[Fact; 8]> = x.iter().map(|a| a.fact()).collect();
    let refs: SmallVec<[&Fact; 8]> = facts.iter().collect();
    let y = op.infer(&refs)?;
    let mut state: SmallVec<[&Parameter; 4]> = SmallVec::new();
    for a in x {
        if let Arg::State(p) = a {
            if state.iter().any(|q| q.is_same(p)) {
                return wrong("a parameter is updated twice at once".to_owned());
            }
            state.push(p);
        }
    }
    if y.len() != state.len() || state.is_empty() {
        return wrong(format!("{} outputs for {} parameters", y.len(), state.len()));
    }
    if state.iter().skip(1).any(|p| p.role() == crate::Role::Trained) {
        return wrong("only the first parameter of an update may be a trained one".to_owned());
    }
    for (p, f) in state.iter().zip(&y) {
        if !f.same_type(p.fact()) {
            let own = p.fact();
            let text = format!("a version of {} {} cannot be {} {}", own.dtype, own.shape, f.dtype, f.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
    }
    let device = state[0].device();
    let same = x.iter().all(|a| match a {
        Arg::State(p) => p.device() == device,
        Arg::Value(t) => t.device() == *device,
    });
    if !same {
        return Err(Error::new(ErrorKind::Device, "an update takes tensors of one device"));
    }
    Ok(())
}

impl Arg<'_> {
    fn fact(&self) -> Fact {
        match self {
            Arg::State(p) => p.fact().clone(),
            Arg::Value(t) => t.handle().fact().clone(),
        }
    }
}
