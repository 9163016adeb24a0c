//! Memory of constants: one mapping with huge pages instead of one heap block for each constant.
//!
//! A run reads every weight once. With pages of 4 KiB the processor would walk the page table for every 4 KiB of
//! weights. That takes a fifth of the time of a network at batch 1.

use std::sync::Arc;

use remat_graph::ir::Graph;
use remat_types::{HostTensor, Result, SharedBytes};

use remat_device::Alignment;
use remat_device::host::{HUGE_PAGE_BYTES, HUGE_PAGE_MIN_BYTES, Region};

/// A part of the mapping that is no longer written.
struct Part {
    region: Arc<Region>,
    at: usize,
    bytes: usize,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a part is made after its range was written, and ranges of parts do not overlap.
        unsafe { self.region.bytes(self.at, self.bytes) }.unwrap_or(&[])
    }
}

/// Bytes of freed blocks after which the heap is trimmed.
const TRIM_BYTES: usize = 16 << 20;

/// Gives the pages of freed heap blocks back. The heap keeps pages below a block in use. While constants move, those
/// pages would amount to a second copy of everything that moved before.
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function has no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Moves the constants that only this graph holds into one mapping, and frees each heap block as soon as it is copied.
/// Constants stay where they are if they are too small for huge pages, or if others hold the graph: a second copy would
/// cost memory. Errors: Io without memory.
pub(super) fn settled(graph: Arc<Graph>) -> Result<Arc<Graph>> {
    let mut graph = match Arc::try_unwrap(graph) {
        Ok(graph) => graph,
        Err(shared) => return Ok(shared),
    };
    let mut bytes = 0;
    graph.move_constants(|c| {
        bytes += if c.owns_bytes() { Alignment::HOST.pad(c.bytes().len()) } else { 0 };
        Ok(None)
    })?;
    if bytes >= HUGE_PAGE_MIN_BYTES {
        move_all(&mut graph, bytes)?;
    }
    Ok(Arc::new(graph))
}

fn move_all(graph: &mut Graph, bytes: usize) -> Result<()> {
    let region = Arc::new(Region::new(bytes + HUGE_PAGE_BYTES)?);
    region.reserve(bytes + HUGE_PAGE_BYTES)?;
    // SAFETY: an empty slice overlaps nothing.
    let start = unsafe { region.bytes(0, 0) }?.as_ptr();
    // the bytes before the first huge page are never touched: they take addresses and no memory
    let mut next = start.align_offset(HUGE_PAGE_BYTES);
    let mut trimmed = next;
    graph.move_constants(|c: &mut HostTensor| {
        if !c.owns_bytes() {
            return Ok(None);
        }
        if next - trimmed >= TRIM_BYTES {
            trim();
            trimmed = next;
        }
        let (at, bytes) = (next, c.bytes().len());
        // SAFETY: `next` only grows, so no earlier part overlaps this range.
        unsafe { region.bytes_mut(at, bytes) }?.copy_from_slice(c.bytes());
        next += Alignment::HOST.pad(bytes);
        let part: SharedBytes = Arc::new(Part { region: region.clone(), at, bytes });
        c.moved(part).map(Some)
    })
}

#[cfg(test)]
mod tests {
    use remat_graph::ir::{Builder, Origin};
    use remat_ops::pointwise::{Binary, BinaryFn};
    use remat_types::{DType, Fact};

    use super::*;
    use crate::Session;
    use crate::executable::Executable;

    const ELEMS: usize = HUGE_PAGE_MIN_BYTES / 4 / 2 + 5;

    fn ramp(from: usize) -> HostTensor {
        let all: Vec<f32> = (from..from + ELEMS).map(|i| (i % 1009) as f32).collect();
        HostTensor::from_slice(&all, [ELEMS]).expect("fits")
    }

    /// `x + a + b + c`.
    fn sum(constants: &[HostTensor; 3]) -> Arc<Graph> {
        let b = Builder::new();
        let mut y = b.input(Fact::new(DType::F32, [ELEMS]), None);
        for c in constants {
            y = b.node(Binary { f: BinaryFn::Add }.into(), &[y, b.constant(c)], None).expect("fits")[0];
        }
        b.output(y, "y");
        Arc::new(b.finish().expect("valid"))
    }

    fn addresses(exe: &Executable) -> Vec<usize> {
        let of = |v| match &exe.graph().value(v).origin {
            Origin::Constant(c) => Some(c.bytes().as_ptr().addr()),
            _ => None,
        };
        exe.graph().value_ids().filter_map(of).collect()
    }

    fn result(exe: &Arc<Executable>) -> Vec<f32> {
        let mut s = Session::new(exe.clone()).expect("memory");
        s.run().expect("runs");
        bytemuck::cast_slice(s.output(0).expect("there").bytes).to_vec()
    }

    #[test]
    fn large_constants_that_only_the_graph_holds_lie_in_one_mapping() {
        let kept = ramp(400);
        let graph = sum(&[ramp(1), ramp(8), kept.clone()]);
        let exe = Arc::new(Executable::new(graph, 1).expect("builds"));
        let at = addresses(&exe);
        assert_eq!(
            (at[0] % HUGE_PAGE_BYTES, at[1] - at[0]),
            (0, Alignment::HOST.pad(ELEMS * 4)),
            "one after the other: {at:x?}"
        );
        assert_eq!(at[2], kept.bytes().as_ptr().addr(), "what others hold is not copied");
        let want: Vec<f32> = (0..ELEMS).map(|i| [1, 8, 400].map(|k| ((i + k) % 1009) as f32).iter().sum()).collect();
        assert_eq!(result(&exe), want);
        let again = Executable::new(exe.graph().clone(), 1).expect("builds");
        assert_eq!(addresses(&again), at, "a second plan reads the same memory");
        drop(exe);
        assert_eq!(result(&Arc::new(again)), want);
    }

    #[test]
    fn constants_of_a_graph_that_others_hold_stay() {
        let graph = sum(&[ramp(1), ramp(8), ramp(400)]);
        let exe = Executable::new(graph.clone(), 1).expect("builds");
        assert!(Arc::ptr_eq(&graph, exe.graph()));
    }
}
