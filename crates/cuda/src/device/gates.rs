//! The kernels that decide on the device whether later work is made.

use crate::driver::Grid;
use crate::kernels::plan::{Builder, Call, Value};

/// Roots that a kernel looks at. Gates that have more are made of several.
pub(super) const MOST_ROOTS: usize = 48;

/// Threads of the one block: those of a warp, which need no shared memory to agree.
const THREADS: u32 = 32;

fn roots(b: &mut Builder, addresses: &[u64]) -> String {
    let mut text = String::new();
    for k in 0..MOST_ROOTS {
        b.parameter(format!("const u64 *r{k}"), Value::U64(addresses.get(k).copied().unwrap_or(0)));
        text += &format!("failed |= r{k} != 0 && *r{k} != ~0ull;\n");
    }
    text
}

/// Writes the words of a gate, at `own`. It is closed if one of the roots failed, or one of `count` tickets of a ring from `first`
/// on. A number of a ticket is taken modulo `slots`.
pub(super) fn decide(own: u64, addresses: &[u64], ring: u64, slots: u64, first: u64, count: u64) -> Call {
    let mut b = Builder::new("gate");
    let looks = roots(&mut b, addresses);
    b.parameter("u64 *own", Value::U64(own));
    b.parameter("const u64 *ring", Value::U64(ring));
    b.u64("slots", slots);
    b.u64("first", first);
    b.u64("count", count);
    let body = format!(
        "bool failed = false;\n{looks}\
         for (u64 t = threadIdx.x; t < count; t += {THREADS}) failed |= ring[(first + t) % slots * 4] != ~0ull;\n\
         failed = __any_sync(~0u, failed);\n\
         if (threadIdx.x == 0) {{\nown[0] = failed ? 0ull : ~0ull;\nown[3] = failed ? 1ull : 0ull;\n}}\n"
    );
    b.build(Grid { blocks: [1, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &body)
}

/// Copies bytes if one of the roots failed.
pub(super) fn restore(addresses: &[u64], from: u64, to: u64, bytes: usize) -> Option<Call> {
    let mut b = Builder::new("restore");
    let looks = roots(&mut b, addresses);
    b.parameter("const u8 *from", Value::U64(from));
    b.parameter("u8 *to", Value::U64(to));
    b.each(bytes as u64, &format!("bool failed = false;\n{looks}if (failed) to[i] = from[i];\n"))
}
