//! The commands of a device: kernel calls with their operands, copies to a file, and events that order streams.

use remat_ops::OpRef;
use remat_types::{CallSite, DType, Layout, Shape};

/// An ordered queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct StreamId(pub u16);

/// A point in a stream's order. It is reached when all work queued before it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The stream it was recorded on.
    pub stream: StreamId,
    /// Its position there, from 1; 0 is an event that is always reached.
    pub seq: u64,
}

impl Event {
    /// An event that is reached already.
    pub const REACHED: Event = Event { stream: StreamId(0), seq: 0 };
}

/// How far an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Some work queued before it has not run yet.
    Pending,
    /// It is reached, and its work succeeded.
    Reached,
    /// It is reached, and its work failed.
    Failed,
}

/// A tensor's bytes on the device.
#[derive(Clone, Debug)]
pub struct Buffer<'a> {
    /// Element type.
    pub dtype: DType,
    /// Layout of the elements within the storage.
    pub layout: &'a Layout,
    /// Offset of the storage in the arena. An input whose storage an output took lies where that output does.
    pub at: usize,
    /// Bytes of the storage.
    pub bytes: usize,
}

/// An output's bytes on the device; contiguous.
#[derive(Clone, Debug)]
pub struct OutBuffer<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: &'a Shape,
    /// Offset of the storage in the arena.
    pub at: usize,
    /// Bytes of the storage.
    pub bytes: usize,
    /// The input whose storage this output took.
    pub donated_from: Option<usize>,
}

/// One kernel call. It borrows from the caller, so a device that queues it makes a copy. Outputs and workspace overlap
/// no other operand, except for the input of `donated_from`.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The op that the kernel computes.
    pub op: &'a OpRef,
    /// The stream on which it is queued.
    pub stream: StreamId,
    /// Inputs, in order.
    pub x: remat_types::SmallVec<[Buffer<'a>; 4]>,
    /// Outputs, in order.
    pub y: remat_types::SmallVec<[OutBuffer<'a>; 2]>,
    /// Offset and bytes of the workspace.
    pub workspace: (usize, usize),
    /// Events of the writes that made the inputs; if one of them failed, so does this launch.
    pub after: remat_types::SmallVec<[Event; 4]>,
    /// The place in the user's program that asked for it; errors show it.
    pub site: CallSite,
}

/// The measured time of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchTime {
    /// It has not run yet.
    Pending,
    /// The device does not measure, or the launch failed.
    Unknown,
    /// Nanoseconds of the kernel alone, without its waits.
    Measured(u64),
}

/// A copy between the arena and the spill file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCopy {
    /// The number by which a caller waits for the copy. A number is used again only after that wait.
    pub number: usize,
    /// Offset in the arena.
    pub at: usize,
    /// Its length.
    pub bytes: usize,
    /// Offset in the file.
    pub file_at: u64,
}
