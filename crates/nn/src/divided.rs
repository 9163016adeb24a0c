use remat_tensor::comm::Communicator;
use remat_tensor::{Tensor, no_grad};
use remat_types::{Error, ErrorKind, HostTensor, Layout, Result, Shape, axis_of};

use crate::Parameter;

/// A parameter that the ranks of a group divide. One axis is cut into one equal part per rank, and this rank has its own part.
///
/// An axis that is several blocks one behind the other, as the rows of `q`, `k` and `v` in one weight, is divided block by block: a
/// rank has its part of each. A traversal meets the part under the whole's name, and
/// [`whole_state_dict`](crate::distributed::whole_state_dict) puts the parts together.
///
/// ```
/// # use remat_nn::Parameter;
/// # use remat_nn::distributed::{Divided, threads};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// let parts = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let whole = Parameter::new(Tensor::new(&device, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [8])?)?;
///     // two blocks of four: a rank has two of each
///     let divided = Divided::from_whole(&whole, 0, 2, &ranks)?;
///     assert!(divided.whole()?.to_host()? == whole.to_host()?);
///     divided.part().get()?.to_vec::<f32>()
/// })?;
/// assert_eq!(parts, [[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Divided {
    part: Parameter,
    place: Place,
    group: Communicator,
}

/// Which axis of a tensor is divided.
#[derive(Clone, Copy, Debug)]
struct Place {
    axis: usize,
    blocks: usize,
}

impl Divided {
    /// This rank's part of a parameter that all ranks have alike, with its role, frozen if it is frozen. `axis` is of `blocks` blocks.
    ///
    /// Errors: Axis; Value if blocks and ranks do not divide the axis; Budget if the part does not fit beside the whole.
    pub fn from_whole(whole: &Parameter, axis: isize, blocks: usize, group: &Communicator) -> Result<Self> {
        let place = Place { axis: axis_of(axis, whole.shape().rank())?, blocks };
        place.part_extent(whole.shape(), group)?;
        let _quiet = no_grad();
        let value = place.part_of(&whole.get()?.detach(), group)?.contiguous()?;
        let part = Parameter::with_role(value, whole.role())?;
        part.set_frozen(whole.is_frozen());
        Ok(Divided { part, place, group: group.clone() })
    }

    /// This rank's part.
    pub fn part(&self) -> &Parameter {
        &self.part
    }

    /// The ranks.
    pub fn group(&self) -> &Communicator {
        &self.group
    }

    /// The extents of the whole.
    pub fn whole_shape(&self) -> Shape {
        let mut shape = self.part.shape().clone();
        shape.dims_mut()[self.place.axis] *= self.group.size();
        shape
    }

    /// The present value of all parts together, on all ranks. All ranks call it. Errors: those of a collective.
    pub fn whole(&self) -> Result<Tensor> {
        let _quiet = no_grad();
        gather(&self.part.get()?.detach(), self.place.axis, self.place.blocks, &self.group)
    }

    /// This rank's part of a whole. Errors: Shape for another shape.
    pub(crate) fn part_of_host(&self, whole: &HostTensor) -> Result<HostTensor> {
        if *whole.shape() != self.whole_shape() {
            let text = format!("the whole has shape {}, not {}", whole.shape(), self.whole_shape());
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let parts = self.place.in_parts(whole.shape(), self.group.size());
        let layout = Layout::contiguous(parts).slice(self.place.axis + 1, self.group.rank(), 1, 1)?;
        HostTensor::gather(whole.dtype(), &layout, whole.bytes())?.reshape(self.part.shape().clone())
    }
}

impl Place {
    /// The extent of a rank's part of the divided axis of `whole`. Errors (Value) unless the axis consists of equal blocks, each
    /// with one equal part per rank.
    fn part_extent(self, whole: &Shape, group: &Communicator) -> Result<usize> {
        let (extent, parts) = (whole[self.axis], self.blocks.saturating_mul(group.size()));
        if parts > 0 && extent.is_multiple_of(parts) {
            return Ok(extent / group.size());
        }
        let of = if self.blocks == 1 { String::new() } else { format!(" in each of {} blocks", self.blocks) };
        let text = format!("{} ranks do not divide the {extent} of axis {} of {whole}{of}", group.size(), self.axis);
        Err(Error::new(ErrorKind::Value, text))
    }

    /// The shape of a whole with three axes for the divided one: blocks, ranks, and what a rank has of a block.
    fn in_parts(self, whole: &Shape, ranks: usize) -> Shape {
        let three = [self.blocks, ranks, whole[self.axis] / (self.blocks * ranks).max(1)];
        whole[..self.axis].iter().chain(&three).chain(&whole[self.axis + 1..]).copied().collect()
    }

    /// A rank's part of a whole.
    #[track_caller]
    fn part_of(self, whole: &Tensor, group: &Communicator) -> Result<Tensor> {
        let extent = self.part_extent(whole.shape(), group)?;
        if self.blocks == 1 {
            return whole.narrow(self.axis as isize, (group.rank() * extent) as isize, extent);
        }
        let mut shape = whole.shape().clone();
        shape.dims_mut()[self.axis] = extent;
        let parts = whole.reshape(&signed(&self.in_parts(whole.shape(), group.size())))?;
        parts.select(self.axis as isize + 1, group.rank() as isize)?.reshape(&signed(&shape))
    }
}

/// All ranks' parts along `axis` put together, block by block. Errors: those of a collective.
#[track_caller]
pub(crate) fn gather(part: &Tensor, axis: usize, blocks: usize, group: &Communicator) -> Result<Tensor> {
    let behind = part.all_gather(axis as isize, group)?;
    if blocks == 1 || group.size() == 1 {
        return Ok(behind);
    }
    let whole = behind.shape().clone();
    let mut by_rank = Place { axis, blocks }.in_parts(&whole, group.size());
    by_rank.dims_mut().swap(axis, axis + 1);
    behind.reshape(&signed(&by_rank))?.transpose(axis as isize, axis as isize + 1)?.reshape(&signed(&whole))
}

/// This rank's part of `whole` along `axis`. Errors: Value if blocks and ranks do not divide it.
#[track_caller]
pub(crate) fn part_of(whole: &Tensor, axis: usize, blocks: usize, group: &Communicator) -> Result<Tensor> {
    Place { axis, blocks }.part_of(whole, group)
}

fn signed(shape: &Shape) -> Vec<isize> {
    shape.iter().map(|e| *e as isize).collect()
}
