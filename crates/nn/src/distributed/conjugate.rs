//! How tensors enter and leave the part of a network that several ranks compute together, so that one loss counts once.
//!
//! The gradient of a collective is that of the sum of all ranks' losses. Behind layers that are divided, every rank computes the same
//! loss from the same values; that sum would be `size` times the loss, and the gradient of a parameter that all ranks
//! have alike would lie in parts on all of them. So divided layers use no bare collective but the conjugate operators of Shoeybi et al.
//! (2019, section 3: `f` and `g`), by which **each rank's backward pass of its own loss gives what one process gets**: of a divided
//! parameter its part of the gradient, and of one that all ranks have alike the whole gradient, with the same bits on each of them.

use remat_tensor::comm::{Communicator, Reduction};
use remat_tensor::{Tensor, custom};
use remat_types::{Error, ErrorKind, Result, axis_of};

use crate::divided::{gather, part_of};

/// `y` of one input and output, whose gradient `back` makes of that of `y`.
#[track_caller]
fn conjugate(
    name: &'static str,
    x: &Tensor,
    y: Tensor,
    back: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let all = custom(name, &[x], vec![y], move |dy| dy.iter().map(|dy| dy.as_ref().map(&back).transpose()).collect())?;
    all.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, "a custom function has outputs"))
}

/// `x`, which is equal on all ranks. Each rank then computes its own part from it. The gradient is the sum of all ranks'
/// gradients (the `f` of Shoeybi et al., 2019). All ranks call it.
///
/// Errors: on the device (Peer), in the backward pass: a rank failed, does not come, or calls something else.
///
/// ```
/// # use remat_nn::distributed::{enter_parallel, leave_parallel, threads};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// // y = a x + b x: rank 0 has a = 2 and rank 1 has b = 3
/// let seen = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let x = Tensor::new(&device, &[4.0], [1])?.requires_grad()?;
///     let part = enter_parallel(&x, &ranks)?.mul(2.0 + ranks.rank() as f64)?;
///     let y = leave_parallel(&part, &ranks)?;
///     y.backward()?;
///     Ok([y.item::<f32>()?, x.grad().expect("used").item::<f32>()?])
/// })?;
/// assert_eq!(seen, [[20.0, 5.0]; 2]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn enter_parallel(x: &Tensor, group: &Communicator) -> Result<Tensor> {
    if group.size() == 1 {
        return Ok(x.clone());
    }
    let group = group.clone();
    conjugate("enter_parallel", x, x.detach(), move |dy| leave_parallel(dy, &group))
}

/// The sum of all ranks' `x`, with which all go on alike; the gradient is that of the sum (the `g` of Shoeybi et al., 2019). All ranks
/// call it. Errors: DType for what has no sum. On the device: those of a collective.
#[track_caller]
pub fn leave_parallel(x: &Tensor, group: &Communicator) -> Result<Tensor> {
    if group.size() == 1 {
        return Ok(x.clone());
    }
    let (y, group) = (x.detach().all_reduce(Reduction::Sum, group)?, group.clone());
    conjugate("leave_parallel", x, y, move |dy| enter_parallel(dy, &group))
}

/// Of `x`, which all ranks have alike, this rank's part of `axis`; the gradient is all ranks' gradients, one behind the other. All ranks
/// call it. Errors: Axis; Value if the ranks do not divide the axis. On the device, in the backward pass: those of a collective.
#[track_caller]
pub fn take_part(x: &Tensor, axis: isize, group: &Communicator) -> Result<Tensor> {
    take_blocks(x, axis, 1, group)
}

/// All ranks' `x` one behind the other along `axis`, with which all go on alike; the gradient is this rank's part of it. All ranks call
/// it. Errors: Axis. On the device: those of a collective.
#[track_caller]
pub fn gather_parts(x: &Tensor, axis: isize, group: &Communicator) -> Result<Tensor> {
    gather_blocks(x, axis, 1, group)
}

/// [`take_part`] of each of several blocks of the axis.
#[track_caller]
fn take_blocks(x: &Tensor, axis: isize, blocks: usize, group: &Communicator) -> Result<Tensor> {
    let at = axis_of(axis, x.rank()).map_err(|e| e.with_op("take_part"))?;
    if group.size() == 1 {
        return Ok(x.clone());
    }
    let y = part_of(&x.detach(), at, blocks, group).map_err(|e| e.with_op("take_part"))?;
    let group = group.clone();
    conjugate("take_part", x, y, move |dy| gather_blocks(dy, axis, blocks, &group))
}

/// [`gather_parts`] of parts that are of several blocks each: block by block.
#[track_caller]
pub(super) fn gather_blocks(x: &Tensor, axis: isize, blocks: usize, group: &Communicator) -> Result<Tensor> {
    let at = axis_of(axis, x.rank()).map_err(|e| e.with_op("gather_parts"))?;
    if group.size() == 1 {
        return Ok(x.clone());
    }
    let y = gather(&x.detach(), at, blocks, group)?;
    let group = group.clone();
    conjugate("gather_parts", x, y, move |dy| take_blocks(dy, axis, blocks, &group))
}
