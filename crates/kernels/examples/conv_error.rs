//! The error of 3x3 convolutions in f32: plain sums and Winograd's algorithm against sums in f64.
//!
//! `cargo run --release -p remat-kernels --example conv_error -- [--write FILE]` prints a table, and puts it between the
//! markers of FILE. Images are uniform in 0..1 and weights in -1..1, as behind a ReLU; errors are relative to the root of
//! the mean square of the outputs. Its exit status is 1 if Winograd's algorithm errs more than half as much again as plain sums.

use std::process::ExitCode;

use remat_kernels::blocked::{Blocked, Start, from_blocked, lanes, to_blocked};
use remat_kernels::conv::{self, Conv2d};
use remat_kernels::pool::Pool;

#[path = "support/table.rs"]
mod table;

const MARKS: [&str; 2] = ["<!-- conv-error-table -->", "<!-- /conv-error-table -->"];
/// Channels in and out, and places of a side.
const SHAPES: [[usize; 3]; 5] = [[16, 16, 56], [64, 64, 56], [128, 128, 28], [256, 256, 14], [512, 512, 7]];
const MOST: f64 = 1.5;

/// Uniform numbers in `low..1`.
fn numbers(len: usize, low: f64, mut state: u64) -> Vec<f32> {
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..len).map(|_| (low + (1.0 - low) * next()) as f32).collect()
}

/// Root of the mean square, and the largest.
fn size(v: impl Iterator<Item = f64>) -> [f64; 2] {
    let (mut squares, mut largest, mut count) = (0.0, 0.0f64, 0.0);
    for x in v {
        (squares, largest, count) = (squares + x * x, largest.max(x.abs()), count + 1.0);
    }
    [(squares / count).sqrt(), largest]
}

/// Errors of a kernel, relative to the size of the outputs `want`.
fn errors(b: &Blocked, g: &Conv2d, x: &[f32], weight: &[f32], want: &[f64]) -> [f64; 2] {
    let (pool, mut packed, mut blocked) = (Pool::new(1), vec![0.0; b.packed_len()], vec![0.0; b.x_len()]);
    b.pack(weight, &mut packed);
    to_blocked(&pool, [g.n, g.c, g.h * g.w], lanes(), x, &mut blocked);
    let (mut y, mut ws) = (vec![0.0; b.y_len()], vec![0; b.workspace_bytes(1)]);
    b.run(&pool, &blocked, &packed, &vec![0.0; b.bias_len()], &Start::Zero, None, &mut y, &mut ws);
    let mut plain = vec![0.0; g.y_len()];
    from_blocked(&pool, [g.n, g.k, g.oh * g.ow], lanes(), &y, &mut plain);
    let scale = size(want.iter().copied())[0];
    size(plain.iter().zip(want).map(|(y, w)| (f64::from(*y) - w) / scale))
}

fn main() -> ExitCode {
    let mut table =
        "| channels | image | plain sums: rms | largest | Winograd: rms | largest |\n|--:|--:|--:|--:|--:|--:|\n"
            .to_owned();
    let mut good = true;
    for [c, k, side] in SHAPES {
        let g = Conv2d::new([1, c, side, side], [k, c, 3, 3], [1; 2], [1; 2], [1; 2], 1).expect("the sizes fit");
        let (x, weight) = (numbers(g.x_len(), 0.0, 1), numbers(g.weight_len(), -1.0, 2));
        let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let (mut want, mut ws) = (vec![0.0; g.y_len()], vec![0; conv::forward_workspace_bytes::<f64>(&g, 1)]);
        conv::forward(&Pool::new(1), &g, &wide(&x), &wide(&weight), &mut want, &mut ws);
        let sums = Blocked::new(g, lanes(), false).expect("blocks of the machine's lanes");
        let [a, b] = [sums, sums.winograd().expect("3x3 taps")].map(|b| errors(&b, &g, &x, &weight, &want));
        good &= b[0] < MOST * a[0];
        table += &format!("| {c} | {side}x{side} | {:.1e} | {:.1e} | {:.1e} | {:.1e} |\n", a[0], a[1], b[0], b[1]);
    }
    println!("{table}");
    table::write(MARKS, &table);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
