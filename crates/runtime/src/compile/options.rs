use remat_graph::passes::PassOptions;

use super::Symbols;

/// How a function or a graph is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// What passes may do to the graph.
    pub passes: PassOptions,
    /// Most bytes of a run: states, inputs, outputs and everything between them. What does not fit is computed again,
    /// in an order that the planner chooses when the function is compiled. Unless set, a device with a budget gives what
    /// it leaves beside all else that is on it then; another device gives no limit.
    pub memory_budget: Option<usize>,
    /// Takes parameters and buffers that the function only reads as constants, so that passes can compute with them: for
    /// inference. Their bytes count against the budget once more. When one of them is set, the function is compiled anew.
    pub freeze: bool,
    /// What a new shape costs. Unless set, a trace of the function at that shape. With symbols the function is traced at a
    /// few sizes when it is first called, and never for a size after that: the graph of a new size is filled in, inferred,
    /// put through the passes and planned. A function whose graph does not follow from the sizes, and a size out of
    /// bounds, are errors: nothing is traced in silence. Sizes that only a run knows have symbols of their own, or a trace
    /// each: see [`Symbols::and_sizes`].
    pub symbols: Option<Symbols>,
    /// Compiled forms that are kept, at least 1; the one used longest ago goes first. A function whose shapes follow from
    /// values ([`tracing::size`](crate::tracing::size)) takes one for each segment, and one for each size that comes.
    pub forms: usize,
    /// Traces the function twice whenever it is compiled, and refuses one whose traces differ: it reads something that changes
    /// from call to call (a clock, numbers drawn on the host, an iterator, state that it writes), of which every run would have
    /// what the first call had.
    pub check_trace: bool,
}

impl Default for CompileOptions {
    fn default() -> Self {
        let passes = PassOptions::default();
        CompileOptions { passes, memory_budget: None, freeze: false, symbols: None, forms: 16, check_trace: false }
    }
}

impl CompileOptions {
    /// For inference: parameters are constants, and passes may change the last digits of results (level 3).
    pub fn inference() -> Self {
        CompileOptions { passes: PassOptions { level: 3, ..Default::default() }, freeze: true, ..Default::default() }
    }
}
