//! The known facts of a problem's memory, as data. The planner finds them (`remat/floor.rs`), and the problem keeps them.

/// The arenas that a walk over sequences found.
#[derive(Clone, Debug)]
pub(crate) struct Floor {
    /// In the order of the walk.
    pub(super) rungs: Vec<Rung>,
    /// The smallest arena of a rung.
    pub(super) smallest_bytes: u64,
    /// The operator that runs at the highest load of that rung.
    pub(super) busiest: Option<usize>,
}

/// One sequence on the way of the walk.
#[derive(Clone, Debug)]
pub(super) struct Rung {
    pub(super) sequence: Vec<u32>,
    /// The most bytes that live at once.
    pub(super) peak: u64,
    /// The bytes of its arena, where it was needed.
    pub(super) arena: Option<u64>,
}
