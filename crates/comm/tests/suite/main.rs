//! Ranks as threads of this process.

mod collectives;
mod failures;
mod groups;
