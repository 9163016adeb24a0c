use remat_graph::passes::PassOptions;

use super::Symbols;

/// How a function or a graph is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// The changes that passes may make to the graph.
    pub passes: PassOptions,
    /// The most bytes of a run: states, inputs, outputs and all values between them. Values that do not fit are
    /// recomputed, in an order that the planner chooses when the function is compiled. Unless this is set, a device
    /// with a budget leaves the bytes that nothing else on it takes at that time. A device without one sets no limit.
    pub memory_budget: Option<usize>,
    /// Makes constants of the parameters and buffers that the function only reads, so that passes can compute with
    /// them: for inference. Their bytes count against the budget a second time. When one of them is set, the function
    /// is compiled anew.
    pub freeze: bool,
    /// Compiles one graph for many shapes. Unless this is set, each new shape costs a trace of the function. With
    /// symbols the first call traces the function at a few sizes, and no later size traces it again. The graph of a new
    /// size is filled in, inferred, optimized by the passes and planned. A function whose graph does not follow from
    /// the sizes is an error, and so is a size out of bounds: nothing is traced in silence. Sizes that only a run knows
    /// have symbols of their own, or a trace each: see [`Symbols::and_sizes`].
    pub symbols: Option<Symbols>,
    /// The number of compiled forms that are kept, at least 1. The form used longest ago goes first. A function whose
    /// shapes follow from values ([`tracing::size`](crate::tracing::size)) takes one form for each segment and for each
    /// new size.
    pub forms: usize,
    /// Traces the function twice whenever it is compiled, and refuses a function whose traces differ. Such a function
    /// reads something that changes from call to call: a clock, numbers drawn on the host, an iterator, or state that
    /// it writes. Every later run would repeat the first call's value.
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
