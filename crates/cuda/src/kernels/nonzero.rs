//! The places of elements that are not 0: those of a tile are counted, tiles are summed, and each writes behind those
//! before it.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::index::NonZero;
use remat_types::{DType, Error, ErrorKind, Result};

use super::movement::bits_type;
use super::plan::{Builder, Call, Failure, Operands, Plan, THREADS, Value, grid};

/// Elements of a tile: a thread has eight in a row.
const TILE: u64 = 8 * THREADS as u64;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let Some(op) = op.as_any().downcast_ref::<NonZero>() else { return Ok(None) };
    let n = o.shape(0).elems() as u64;
    let tiles = n.div_ceil(TILE);
    let mut plan = Plan { workspace: 8 * tiles as usize, failure: another_number(op.size), ..Plan::default() };
    if n > 0 {
        plan.calls.push(counts(o, n, tiles));
    }
    plan.calls.push(sums(op, tiles));
    if n > 0 && o.elems(0) > 0 {
        plan.calls.push(places(op, o, n, tiles));
    }
    Ok(Some(plan))
}

fn another_number(size: usize) -> Option<Failure> {
    let text = move |found| format!("{found} elements are not 0, and the size is {size}");
    Some(Arc::new(move |_, found| Error::new(ErrorKind::Value, text(found))))
}

/// A kernel with `is_some(i)`, `block_scan` and the tiles' counts.
fn builder(name: &'static str, dtype: DType) -> Builder {
    let bits = bits_type(dtype);
    // the sign of a 0 does not count
    let all =
        if dtype.is_float() { format!("({bits})(({bits})~({bits})0 >> 1)") } else { format!("({bits})~({bits})0") };
    let mut b = Builder::new(name);
    b.functions(&format!(
        "__device__ __forceinline__ bool is_some({bits} x) {{ return (x & {all}) != 0; }}\n\
         // the sum of what the threads before this one of a block have, and that of all\n\
         __device__ __forceinline__ u64 block_scan(u64 x, u64 &sum) {{\n__shared__ u64 sums[{THREADS}];\n\
         sums[threadIdx.x] = x;\nfor (int distance = 1; distance < {THREADS}; distance *= 2) {{\n__syncthreads();\n\
         const u64 before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;\n__syncthreads();\n\
         sums[threadIdx.x] += before;\n}}\n__syncthreads();\nsum = sums[{THREADS} - 1];\n\
         const u64 before = sums[threadIdx.x] - x;\n__syncthreads();\nreturn before;\n}}\n"
    ));
    b.parameter("u64 *counts", Value::Workspace(0));
    b
}

/// Statements that count a thread's elements, from `first` to `end`.
const COUNT: &str = "const u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;\n\
    const u64 end = first + 8 < n ? first + 8 : n;\nu64 count = 0, sum;\n\
    for (u64 i = first; i < end; ++i) count += is_some(x0[i]);\nu64 at = block_scan(count, sum);\n";

fn counts(o: &Operands<'_>, n: u64, tiles: u64) -> Call {
    let dtype = o.x[0].dtype;
    let mut b = builder("nonzero_counts", dtype);
    b.parameter(format!("const {} *x0", bits_type(dtype)), Value::X(0));
    b.u64("n", n);
    b.build(grid(tiles, THREADS), &format!("{COUNT}if (threadIdx.x == 0) counts[blockIdx.x] = sum;\n"))
}

/// The counts become those of all tiles before.
fn sums(op: &NonZero, tiles: u64) -> Call {
    let mut b = builder("nonzero_sums", DType::U8);
    b.u64("tiles", tiles);
    b.u64("size", op.size as u64);
    b.failure();
    let body = "u64 carry = 0;\nfor (u64 from = 0; from < tiles; from += blockDim.x) {\n\
                const u64 tile = from + threadIdx.x;\nu64 sum;\n\
                const u64 before = block_scan(tile < tiles ? counts[tile] : 0, sum);\n\
                if (tile < tiles) counts[tile] = carry + before;\ncarry += sum;\n}\n\
                if (threadIdx.x == 0 && carry != size) refuse(failure, 0, (i64)carry);\n";
    b.build(grid(1, THREADS), body)
}

fn places(op: &NonZero, o: &Operands<'_>, n: u64, tiles: u64) -> Call {
    let (dtype, shape) = (o.x[0].dtype, o.shape(0));
    let mut b = builder("nonzero", dtype);
    b.parameter(format!("const {} *x0", bits_type(dtype)), Value::X(0));
    b.y(0, DType::I64);
    b.u64("n", n);
    b.u64("size", op.size as u64);
    let mut body = format!(
        "{COUNT}at += counts[blockIdx.x];\nfor (u64 i = first; i < end && at < size; ++i) {{\n\
         if (!is_some(x0[i])) continue;\nu64 rest = i;\n"
    );
    for axis in (0..shape.rank()).rev() {
        b.u64(format!("e{axis}"), shape[axis] as u64);
        body += &format!("y0[at * {} + {axis}] = (i64)(rest % e{axis});\nrest /= e{axis};\n", shape.rank());
    }
    b.build(grid(tiles, THREADS), &(body + "++at;\n}\n"))
}
