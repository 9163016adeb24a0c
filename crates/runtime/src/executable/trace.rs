//! The times of a run's calls, for traces: one span for each call.

use super::Executable;
use crate::profile::{Lane, Span, Trace};

impl Executable {
    /// The calls of the last run in the form of a device's traces, with the first at 0. This is for sessions: the trace
    /// of a channel already has its calls, within the span of the compiled function.
    pub fn trace(&self) -> Trace {
        let mut trace = Trace::default();
        self.spans(&mut trace, 0, u64::MAX);
        trace
    }

    /// Adds the calls of the last run, which began at `start_ns` and took `most_ns` at most. A call of a node that ran
    /// before in the same run is a recomputation.
    pub(crate) fn spans(&self, trace: &mut Trace, start_ns: u64, most_ns: u64) {
        let mut made = vec![false; self.graph.nodes().len()];
        let mut at = 0u64;
        for (step, ns) in self.program.steps.iter().zip(self.times.last()) {
            // the time between calls belongs to no call: waits for copies, and observers
            let duration_ns = ns.min(most_ns - at);
            let again = step.node.is_some_and(|n| std::mem::replace(&mut made[n.index()], true));
            trace.span(Span {
                lane: if again { Lane::Recomputation } else { Lane::Execution },
                name: step.op.label(),
                scope: step.node.and_then(|n| self.graph.node(n).scope.clone()),
                start_ns: start_ns.saturating_add(at),
                duration_ns,
                bytes: step.y.iter().map(|y| y.bytes).sum(),
            });
            at += duration_ns;
        }
    }
}
