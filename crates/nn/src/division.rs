//! Tensors that are divided among ranks: each rank has a part of the elements.
//!
//! The elements of the whole lie in row-major order, `k = ceil(elements / ranks)` to each rank, with zeros behind the end of the last
//! ones: parts have one shape on all ranks, `[k]`, and a collective moves them as they are. Values become whole again on the host, by
//! calls of the program's thread while the device's queue is empty, so that no device needs memory for it.

use remat_ops::collective::GatherShards;
use remat_tensor::Tensor;
use remat_tensor::comm::{Call, Communicator};
use remat_types::{HostTensor, Result, Shape};

/// On which ranks a value becomes whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    Every,
    First,
}

impl Taker {
    /// Whether this rank of a group is one.
    pub(crate) fn is_rank_of(self, group: &Communicator) -> bool {
        self == Taker::Every || group.rank() == 0
    }
}

/// The whole to which a part belongs, and the ranks that divide it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    pub(crate) group: Communicator,
    pub(crate) whole: Shape,
}

impl Division {
    /// Elements of each part.
    pub(crate) fn part_elems(&self) -> usize {
        self.whole.elems().div_ceil(self.group.size())
    }

    /// This rank's part of a tensor of the whole's shape.
    pub(crate) fn part_of(&self, x: &Tensor) -> Result<Tensor> {
        let range = GatherShards::range(x.elems(), self.group.rank(), self.group.size());
        let part = x.reshape(&[-1])?.narrow(0, range.start as isize, range.len())?;
        match self.part_elems() - range.len() {
            0 => Ok(part),
            more => part.pad(&[(0, more)], 0.0),
        }
    }

    /// This rank's part of a tensor of the whole's shape.
    pub(crate) fn part_of_host(&self, whole: &HostTensor) -> Result<HostTensor> {
        let size = whole.dtype().size_bytes();
        let range = GatherShards::range(whole.shape().elems(), self.group.rank(), self.group.size());
        let mut bytes = whole.bytes()[range.start * size..range.end * size].to_vec();
        bytes.resize(self.part_elems() * size, 0);
        HostTensor::from_bytes(whole.dtype(), [self.part_elems()], &bytes)
    }

    /// The whole of all ranks' parts, on the ranks that take it. All ranks call it, while no collective waits on their devices.
    ///
    /// Errors: that of `part`, and Peer on the other ranks; Peer.
    pub(crate) fn gather(&self, name: &str, part: Result<HostTensor>, taker: Taker) -> Result<Option<HostTensor>> {
        let group = &self.group;
        let (failed, part) = match part {
            Ok(part) => (Ok(()), Some(part)),
            Err(e) => (Err(e), None),
        };
        group.agree(&Call::named(format!("the parts of `{name}`")), failed)?;
        let Some(part) = part else { return Ok(None) };
        let call = Call::new(name, "parts", part.dtype(), part.shape());
        let takes = taker.is_rank_of(group);
        let mut all = vec![0; if takes { part.bytes().len() * group.size() } else { 0 }];
        match taker {
            Taker::Every => group.all_gather(&call, part.bytes(), &mut all)?,
            Taker::First => group.gather(&call, 0, part.bytes(), &mut all)?,
        }
        if !takes {
            return Ok(None);
        }
        all.truncate(self.whole.elems() * part.dtype().size_bytes());
        HostTensor::from_bytes(part.dtype(), self.whole.clone(), &all).map(Some)
    }
}
