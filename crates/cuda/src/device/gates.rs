//! The kernels that decide on the device whether later work is made, and those that move bytes behind them.

use crate::driver::Grid;
use crate::kernels::plan::{Builder, Call, Value};

/// Roots that a kernel looks at. Gates that have more are made of several.
pub(super) const MOST_ROOTS: usize = 48;

/// Threads of the one block: those of a warp, which need no shared memory to agree.
const THREADS: u32 = 32;
/// Threads of a block that moves bytes, and the most blocks.
const MOVERS: u32 = 256;
const MOST_BLOCKS: u64 = 1 << 12;

fn roots(b: &mut Builder, addresses: &[u64]) -> String {
    let mut text = "bool failed = false;\n".to_owned();
    for k in 0..MOST_ROOTS {
        b.parameter(format!("const u64 *r{k}"), Value::U64(addresses.get(k).copied().unwrap_or(0)));
        text += &format!("failed |= r{k} != 0 && *r{k} != ~0ull;\n");
    }
    text
}

/// Writes the words of a gate, at `own`. It is closed if one of the roots failed, or one of `count` tickets of a ring from `first`
/// on. A number of a ticket is taken modulo `slots`, a power of two.
pub(super) fn decide(own: u64, addresses: &[u64], ring: u64, slots: u64, first: u64, count: u64) -> Call {
    let mut b = Builder::new("gate");
    let looks = roots(&mut b, addresses);
    b.parameter("u64 *own", Value::U64(own));
    b.parameter("const u64 *ring", Value::U64(ring));
    b.u64("mask", slots - 1);
    b.u64("first", first);
    b.u64("count", count);
    let body = format!(
        "{looks}\
         for (u64 t = threadIdx.x; t < count; t += {THREADS}) failed |= ring[((first + t) & mask) * 4] != ~0ull;\n\
         failed = __any_sync(~0u, failed);\n\
         if (threadIdx.x == 0) {{\nown[0] = failed ? 0ull : ~0ull;\nown[3] = failed ? 1ull : 0ull;\n}}\n"
    );
    b.build(Grid { blocks: [1, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &body)
}

/// Copies bytes if one of the roots failed. `None` for none.
pub(super) fn restore(addresses: &[u64], from: u64, to: u64, bytes: usize) -> Option<Call> {
    let mut b = Builder::new("restore");
    let looks = roots(&mut b, addresses);
    moved(b, &format!("{looks}if (!failed) return;\n"), from, to, bytes)
}

/// Copies bytes unless a gate is closed. `None` for none.
pub(super) fn copy(from: u64, to: u64, bytes: usize) -> Option<Call> {
    moved(Builder::new("copy"), "", from, to, bytes)
}

/// A kernel that copies bytes, most of them by eight where both places allow it.
fn moved(mut b: Builder, before: &str, from: u64, to: u64, bytes: usize) -> Option<Call> {
    let blocks = (bytes as u64).div_ceil(8 * u64::from(MOVERS)).min(MOST_BLOCKS) as u32;
    if blocks == 0 {
        return None;
    }
    b.parameter("const u8 *from", Value::U64(from));
    b.parameter("u8 *to", Value::U64(to));
    b.u64("bytes", bytes as u64);
    let body = format!(
        "{before}\
         const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;\n\
         const u64 words = (((u64)from | (u64)to) & 7) == 0 ? bytes / 8 : 0;\n\
         for (u64 i = first; i < words; i += step) ((u64 *)to)[i] = ((const u64 *)from)[i];\n\
         for (u64 i = words * 8 + first; i < bytes; i += step) to[i] = from[i];\n"
    );
    Some(b.build(Grid { blocks: [blocks, 1, 1], threads: [MOVERS, 1, 1], shared_bytes: 0 }, &body))
}

/// Makes bytes zero unless a gate is closed. `None` for none.
pub(super) fn zero(to: u64, bytes: usize) -> Option<Call> {
    let mut b = Builder::new("zero");
    b.parameter("u8 *to", Value::U64(to));
    b.each(bytes as u64, "to[i] = 0;\n")
}

/// Writes a number unless a gate is closed.
pub(super) fn number(to: u64, number: i64) -> Call {
    let mut b = Builder::new("number");
    b.parameter("i64 *to", Value::U64(to));
    b.i64("number", number);
    b.build(Grid { blocks: [1, 1, 1], threads: [1, 1, 1], shared_bytes: 0 }, "*to = number;\n")
}
