//! Collectives. Every rank of a group calls the same methods in the same order; see the notes of
//! [`remat_ops::collective`].

use remat_ops::collective::{self, AllReduce, Broadcast, Communicator, Receive, ReduceTo, Reduction, Send};
use remat_runtime::Device;
use remat_types::{DType, Result, Shape, axis_of};

use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// The reduction of all ranks' tensors, element by element in the order of ranks, on all ranks.
    ///
    /// Errors: DType if there is no such reduction. On the device (Peer): a rank failed, does not come, or calls something else.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, comm::{Reduction, threads}};
    /// let seen = threads::run(3, |ranks| {
    ///     let device = remat_runtime::Device::cpu(Default::default())?;
    ///     let x = Tensor::new(&device, &[ranks.rank() as f32, 1.0], [2])?;
    ///     x.all_reduce(Reduction::Sum, &ranks)?.to_vec::<f32>()
    /// })?;
    /// assert_eq!(seen, vec![[3.0, 3.0]; 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn all_reduce(&self, reduction: Reduction, group: &Communicator) -> Result<Tensor> {
        Tensor::apply1(AllReduce { reduction, group: group.clone() }, &[self])
    }

    /// All ranks' tensors, one behind the other along `axis`, on all ranks. Errors: Axis. On the device: as
    /// [`Tensor::all_reduce`].
    #[track_caller]
    pub fn all_gather(&self, axis: isize, group: &Communicator) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("all_gather")?;
        collective::all_gather(&TapeCx::of(self), self.clone(), axis, group).in_op("all_gather")
    }

    /// Of as many equal parts along `axis` as there are ranks, this rank's, reduced over all ranks. Errors: DType if there is no such
    /// reduction, Axis, Shape if the axis is not divisible. On the device: as [`Tensor::all_reduce`].
    #[track_caller]
    pub fn reduce_scatter(&self, reduction: Reduction, axis: isize, group: &Communicator) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("reduce_scatter")?;
        collective::reduce_scatter(&TapeCx::of(self), self.clone(), axis, reduction, group).in_op("reduce_scatter")
    }

    /// Rank `root`'s tensor, on all ranks; those of the others only say dtype and shape. Errors: Value for a root that does not exist.
    /// On the device: as [`Tensor::all_reduce`].
    #[track_caller]
    pub fn broadcast_from(&self, root: usize, group: &Communicator) -> Result<Tensor> {
        Tensor::apply1(Broadcast { root, group: group.clone() }, &[self])
    }

    /// The reduction of all ranks' tensors on rank `root`, and zeros on the others. Errors: DType if there is no such reduction, Value
    /// for a root that does not exist. On the device: as [`Tensor::all_reduce`].
    #[track_caller]
    pub fn reduce_to(&self, root: usize, reduction: Reduction, group: &Communicator) -> Result<Tensor> {
        Tensor::apply1(ReduceTo { reduction, root, group: group.clone() }, &[self])
    }

    /// All ranks' tensors, one behind the other along `axis`, on rank `root`; on the others that axis is empty. Errors: Axis, Value for
    /// a root that does not exist. On the device: as [`Tensor::all_reduce`].
    #[track_caller]
    pub fn gather_to(&self, root: usize, axis: isize, group: &Communicator) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("gather_to")?;
        collective::gather_to(&TapeCx::of(self), self.clone(), axis, root, group).in_op("gather_to")
    }

    /// This rank's part, of extent `extent`, of rank `root`'s tensor along `axis`, which has that extent for each rank there. On the
    /// others the tensor only says dtype and the other axes: this axis is empty.
    ///
    /// Errors: Axis, Shape for other extents, Value for a root that does not exist. On the device: as [`Tensor::all_reduce`].
    #[track_caller]
    pub fn scatter_from(&self, root: usize, extent: usize, axis: isize, group: &Communicator) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("scatter_from")?;
        collective::scatter_from(&TapeCx::of(self), self.clone(), axis, extent, root, group).in_op("scatter_from")
    }

    /// Cuts axis `split` into one equal part per rank; part `r` goes to rank `r`. The received parts are joined along axis
    /// `concat` in the order of ranks. Errors: Axis, Shape if `split` is not divisible. On the device: as [`Tensor::all_reduce`].
    #[track_caller]
    pub fn all_to_all(&self, split: isize, concat: isize, group: &Communicator) -> Result<Tensor> {
        let split = axis_of(split, self.rank()).in_op("all_to_all")?;
        let concat = axis_of(concat, self.rank()).in_op("all_to_all")?;
        collective::all_to_all(&TapeCx::of(self), self.clone(), split, concat, group).in_op("all_to_all")
    }

    /// Sends the tensor to rank `to`, which [receives](Tensor::receive_from) it. The result has no elements: what must happen afterwards
    /// takes it, and gradients come back through it from the other rank.
    ///
    /// The device goes on when the other rank has it: two ranks that both send first get an error (Peer).
    ///
    /// Errors: Value for this rank, or one that does not exist. On the device: as [`Tensor::all_reduce`].
    #[track_caller]
    pub fn send_to(&self, to: usize, group: &Communicator) -> Result<Tensor> {
        Tensor::apply1(Send { to, group: group.clone() }, &[self])
    }

    /// The tensor of this dtype and shape that rank `from` sends. `self` has no elements, `[0]`: it orders the call after a
    /// message that was [sent](Tensor::send_to). Without such a message call [`Tensor::receive`].
    ///
    /// Errors: DType and Shape for another tensor, Value for this rank, or one that does not exist. On the device: as
    /// [`Tensor::all_reduce`].
    #[track_caller]
    pub fn receive_from(&self, from: usize, shape: impl Into<Shape>, group: &Communicator) -> Result<Tensor> {
        let (dtype, shape) = (self.dtype(), shape.into());
        Tensor::apply1(Receive { from, dtype, shape, group: group.clone() }, &[self])
    }

    /// The tensor of this dtype and shape that rank `from` sends, after earlier calls of this program. Errors: as
    /// [`Tensor::receive_from`].
    #[track_caller]
    pub fn receive(
        device: &Device,
        from: usize,
        dtype: DType,
        shape: impl Into<Shape>,
        group: &Communicator,
    ) -> Result<Tensor> {
        Tensor::zeros(device, [0], dtype)?.receive_from(from, shape, group)
    }
}
