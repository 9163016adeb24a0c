//! A launch that waits for its turn, with copies of what it borrowed.

use remat_device::{Buffer, Event, Launch, OutBuffer, StreamId};
use remat_ops::OpRef;
use remat_types::{CallSite, DType, Layout, Shape};

/// See the module's note.
pub(super) struct Queued {
    op: OpRef,
    stream: StreamId,
    /// dtype, layout, offset, bytes
    x: Vec<(DType, Layout, usize, usize)>,
    /// dtype, shape, offset, bytes, the input whose storage it took
    y: Vec<(DType, Shape, usize, usize, Option<usize>)>,
    workspace: (usize, usize),
    after: Vec<Event>,
    site: CallSite,
}

impl Queued {
    pub(super) fn of(l: &Launch<'_>) -> Self {
        Queued {
            op: l.op.clone(),
            stream: l.stream,
            x: l.x.iter().map(|b| (b.dtype, b.layout.clone(), b.at, b.bytes)).collect(),
            y: l.y.iter().map(|b| (b.dtype, b.shape.clone(), b.at, b.bytes, b.donated_from)).collect(),
            workspace: l.workspace,
            after: l.after.to_vec(),
            site: l.site,
        }
    }

    pub(super) fn launch(&self) -> Launch<'_> {
        let x =
            self.x.iter().map(|(dtype, layout, at, bytes)| Buffer { dtype: *dtype, layout, at: *at, bytes: *bytes });
        let y = self.y.iter().map(|&(dtype, ref shape, at, bytes, donated_from)| OutBuffer {
            dtype,
            shape,
            at,
            bytes,
            donated_from,
        });
        Launch {
            op: &self.op,
            stream: self.stream,
            x: x.collect(),
            y: y.collect(),
            workspace: self.workspace,
            after: self.after.iter().copied().collect(),
            site: self.site,
        }
    }
}
