//! What to evict: pure functions of the address order and of costs, tested without memory or threads.

mod policy;

pub use policy::{Candidate, Choice, Range, choose};
