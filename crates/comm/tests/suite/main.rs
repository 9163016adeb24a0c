//! Ranks as threads of this process.

#[path = "../shared/collectives.rs"]
mod collectives;
mod failures;
mod groups;
