//! Operators that go along the rows of one axis: softmax, cross-entropy, and the normalisations of rows.

use remat_ops::pointwise::UnaryFn;
use remat_types::{DType, Result};

use super::functions::unary;
use super::plan::{Builder, Call, THREADS};
use crate::driver::Grid;
use crate::source::{c_type, cast};

/// Threads that take a short row, and elements of what is one.
const SMALL_TEAM: u64 = 16;
const SHORT: u64 = 256;
/// Elements of a block of the sums of a row.
const SPAN: u64 = 1024;
/// Terms of sums that lie in shared memory at once, in bytes of numbers.
const ROOM_BYTES: u64 = 32 * 1024;
/// The most blocks of a launch; their threads go on to further rows.
const MOST_BLOCKS: u64 = 1 << 16;

/// The dtype that kernels compute in.
pub(super) fn real(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The types and functions that `teams.cuh` uses, and that file.
pub(super) fn vocabulary(dtype: DType) -> String {
    let real = real(dtype);
    let (element, c) = (c_type(dtype), c_type(real));
    let (up, down, down64) = (cast(dtype, real, "x"), cast(real, dtype, "x"), cast(DType::F64, dtype, "x"));
    format!(
        "typedef {element} element;\ntypedef {c} real;\n\
         __device__ __forceinline__ real up(element x) {{ return {up}; }}\n\
         __device__ __forceinline__ element down(real x) {{ return {down}; }}\n\
         __device__ __forceinline__ element down64(double x) {{ return {down64}; }}\n"
    ) + include_str!("teams.cuh")
}

/// The functions of numbers that losses use. Errors: those of [`unary`].
pub(super) fn functions(dtype: DType) -> Result<String> {
    let doubles = include_str!("doubles.cuh");
    if dtype == DType::F64 {
        let name = |short: &str, long: &str| {
            format!("__device__ __forceinline__ double {short}(double x) {{ return {long}(x); }}\n")
        };
        return Ok(doubles.to_owned()
            + &name("exponential", "exp_f64")
            + &name("exp_m1", "exp_m1_f64")
            + &name("ln", "ln_f64")
            + &name("ln_1p", "ln_1p_f64"));
    }
    let exponentials = unary("exponential", UnaryFn::Exp)? + &unary("exp_m1", UnaryFn::Expm1)?;
    // the CPU's library rounds the logarithm of a float nearly always as its digits beyond say
    let ln = "__device__ __forceinline__ float ln(float x) { return (float)ln_f64((double)x); }\n";
    Ok(format!("{doubles}{exponentials}{ln}") + &unary("ln_1p", UnaryFn::Log1p)?)
}

/// The team that takes a row, and its shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Team {
    threads: u64,
    sums: u64,
    chunks: u64,
}

impl Team {
    /// For rows of `n` elements and at most so many sums at once.
    pub(super) fn new(dtype: DType, n: u64, sums: u64) -> Team {
        if n <= SHORT {
            return Team { threads: SMALL_TEAM, sums, chunks: 1 };
        }
        let most = (ROOM_BYTES / (SPAN * sums * real(dtype).size_bytes() as u64)).max(1);
        Team { threads: THREADS.into(), sums, chunks: n.div_ceil(SPAN).next_power_of_two().min(most) }
    }

    /// A block, with room for two sums.
    pub(super) fn block() -> Team {
        Team { threads: THREADS.into(), sums: 2, chunks: 1 }
    }

    /// A kernel that runs `body` for each `row` below `rows`, with `room`, by a team; the template arguments of
    /// functions are those of their operands.
    pub(super) fn each(self, mut b: Builder, rows: u64, body: &str) -> Call {
        let Team { threads, sums, chunks } = self;
        b.u64("rows", rows);
        let text = format!(
            "typedef Room<{threads}, {sums}, {chunks}> Own;\n\
             each_row<{threads}, {sums}, {chunks}>(rows, [&](u64 row, Own &room) {{\n{body}}});\n"
        );
        let blocks = (rows * threads).div_ceil(THREADS.into()).clamp(1, MOST_BLOCKS) as u32;
        b.build(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &text)
    }

    /// The first template arguments of a function of a team.
    pub(super) fn threads(self) -> u64 {
        self.threads
    }
}
