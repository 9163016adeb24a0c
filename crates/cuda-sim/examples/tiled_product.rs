//! Speed of the software device: a product of matrices in tiles of 32 x 32, with all checks and with those of bounds alone.
//!
//! `cargo run --release -p remat-cuda-sim --example tiled_product [SIZE [THREADS]]`

use std::time::Instant;

use remat_cuda_sim::{Checks, ExecOptions, LaunchShape, Memory, Program, launch};

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<usize>().expect("a size or a number of threads"));
    let (size, threads) = (args.next().unwrap_or(256), args.next().unwrap_or(2));
    let program = Program::load(include_str!("../fixtures/matmul.ptx")).expect("the fixture loads");
    let kernel = program.kernel("matmul_32").expect("the fixture has this kernel");
    let mut memory = Memory::new();
    let bytes = (4 * size * size) as u64;
    let [a, b, c] = [0; 3].map(|_| memory.allocate(bytes));
    let values = |seed: usize| (0..size * size).flat_map(move |i| (((i * seed) % 17) as f32 - 8.0).to_le_bytes());
    memory.write(a, &values(7).collect::<Vec<u8>>()).expect("allocated");
    memory.write(b, &values(5).collect::<Vec<u8>>()).expect("allocated");
    let n = size as u32;
    let mut params: Vec<u8> = [a, b, c].iter().flat_map(|p| p.to_le_bytes()).collect();
    params.extend([n, n, n].iter().flat_map(|p| p.to_le_bytes()));
    let tiles = n.div_ceil(32);
    let shape = LaunchShape { grid: [tiles, tiles, 1], block: [64, 1, 1], dynamic_shared_bytes: 0 };
    for checks in [Checks::All, Checks::Bounds] {
        let options = ExecOptions { threads, checks, ..ExecOptions::default() };
        let begin = Instant::now();
        let stats = launch(&mut memory, kernel, &[], shape, &params, &options).expect("the kernel is right");
        let seconds = begin.elapsed().as_secs_f64();
        let flops = 2.0 * (size as f64).powi(3) / seconds / 1e9;
        println!("{checks:?}: {flops:.3} GFLOP/s on {threads} threads, {} instructions", stats.instructions);
    }
}
