//! Constants that do not fit a budget beside the rest. A node reads such a constant from a file. It then takes memory
//! from its first use to its last, and the planner may evict it and read it again like any other result.

use std::any::Any;
use std::hash::Hasher;
use std::sync::Arc;

use remat_graph::ir::{Graph, Origin, Patch, ValueId};
use remat_ops::{Cost, DynIdentity, EvalCx, GradCx, Grads, Op, OpRef};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, smallvec};

use remat_device::Alignment;
use remat_device::spill::{ConstantFile, SpillTo};

/// Smaller constants stay in memory: reading one costs a seek, and together they take few bytes.
pub(super) const LEAST_BYTES: usize = 64 << 10;

/// The memory bandwidth that [`Cost::prior_ns`] assumes, in bytes per second.
const PRIOR_BYTES_PER_S: u64 = 8_000_000_000;

/// A constant in a file.
#[derive(Debug)]
struct ReadConstant {
    file: Arc<ConstantFile>,
    at: u64,
    fact: Fact,
    read_bytes_per_s: u64,
}

/// Moves constants of `bytes` bytes in total to a file, or all that can go if they are fewer. The largest go first:
/// then the fewest calls wait for the disk. `None` if no constant can go. Errors: Io.
pub(super) fn with_stored_constants(graph: &Graph, to: &SpillTo, bytes: usize) -> Result<Option<Graph>> {
    let mut large: Vec<(usize, ValueId)> = graph
        .value_ids()
        .filter(|v| matches!(graph.value(*v).origin, Origin::Constant(_)) && !graph.is_result(*v))
        .map(|v| (Alignment::HOST.pad(graph.fact(v).bytes()), v))
        .filter(|(bytes, _)| *bytes >= LEAST_BYTES)
        .collect();
    large.sort_by_key(|(bytes, v)| (std::cmp::Reverse(*bytes), v.index()));
    let (mut count, mut total) = (0, 0usize);
    while let Some((size, _)) = large.get(count).filter(|_| total < bytes) {
        (count, total) = (count + 1, total.saturating_add(*size));
    }
    if count == 0 {
        return Ok(None);
    }
    let mut file = ConstantFile::create(to)?;
    let mut places = Vec::with_capacity(count);
    for (_, v) in &large[..count] {
        let Origin::Constant(data) = &graph.value(*v).origin else { continue };
        places.push((*v, file.append(data.bytes())?, Fact::new(data.dtype(), data.shape().clone())));
    }
    file.flush()?;
    let (file, mut patch) = (Arc::new(file), Patch::new());
    for (v, at, fact) in places {
        let op = ReadConstant { file: file.clone(), at, fact, read_bytes_per_s: to.rates().read_bytes_per_s };
        let y = patch.node(OpRef::from_shared(Arc::new(op)), &[], None);
        patch.replace(v, y);
    }
    graph.patched(&patch).map(Some)
}

/// Bytes of the constants that runs of this graph read from a file.
pub fn stored_constant_bytes(graph: &Graph) -> usize {
    let ops = graph.nodes().iter().filter_map(|n| n.op.as_any().downcast_ref::<ReadConstant>());
    ops.map(|o| o.fact.bytes()).sum()
}

impl Op for ReadConstant {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        match x.len() {
            0 => Ok(smallvec![self.fact.clone()]),
            n => Err(Error::new(ErrorKind::Arity, format!("{n} inputs for a constant"))),
        }
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.file.read(self.at, cx.y[0].bytes_mut())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![])
    }

    fn cost(&self, _x: &[&Fact], y: &[Fact]) -> Cost {
        let bytes: usize = y.iter().map(Fact::bytes).sum();
        let slower = u128::from(PRIOR_BYTES_PER_S) * bytes as u128 / u128::from(self.read_bytes_per_s.max(1));
        Cost { flops: 0, bytes: u64::try_from(slower).unwrap_or(u64::MAX) }
    }

    fn may_fail(&self) -> bool {
        true
    }
}

impl DynIdentity for ReadConstant {
    fn name(&self) -> &'static str {
        "read_constant"
    }

    fn label(&self) -> &'static str {
        "read_constant"
    }

    fn dyn_eq(&self, other: &dyn Op) -> bool {
        let other = other.as_any().downcast_ref::<ReadConstant>();
        other.is_some_and(|o| Arc::ptr_eq(&self.file, &o.file) && self.at == o.at)
    }

    fn dyn_hash(&self, state: &mut dyn Hasher) {
        state.write_usize(Arc::as_ptr(&self.file) as usize);
        state.write_u64(self.at);
    }

    fn to_json(&self) -> Result<serde_json::Value> {
        Err(Error::new(ErrorKind::Format, "save the graph as it was before its constants went to a file"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
