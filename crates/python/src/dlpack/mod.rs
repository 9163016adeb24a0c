//! DLPack (<https://dmlc.github.io/dlpack/latest/>): arrays of other libraries in, tensors out, within one process.
//!
//! A tensor's bytes lie in the arena of its device, which moves and evicts them: nothing points into it from outside. So what
//! comes in is copied to the arena once, straight from where it lies, and what goes out is a copy on the host that belongs to
//! the consumer, marked as such.

mod abi;
#[allow(unsafe_code, reason = "the exchange is by pointers; `abi` says what a capsule holds")]
mod exchange;

pub(crate) use exchange::from_dlpack;
