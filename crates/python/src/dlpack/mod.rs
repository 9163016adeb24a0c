//! DLPack (<https://dmlc.github.io/dlpack/latest/>): arrays of other libraries in, tensors out, within one process.
//!
//! A tensor's bytes lie in the arena of its device, which moves and evicts them, so nothing outside may point into the
//! arena. Data that come in are copied to the arena once, directly from where they lie. Data that go out are a copy on
//! the host, which belongs to the consumer and is marked as a copy.

mod abi;
#[allow(unsafe_code, reason = "the exchange is by pointers; `abi` says what a capsule holds")]
mod exchange;

pub(crate) use exchange::from_dlpack;
