//! The convolutions of a network's compiled inference, one by one: `layers [resnet50|mobilenetv2 [BATCH [THREADS [ROUNDS]]]]`.
//!
//! Each layer reads what the one before wrote, as in the network, so its input is in the caches that it is in there; sums
//! with residuals, pooling and the classifier are left out. Rounds of the whole network and of multiply-adds from registers
//! take turns. A layer's figure is the time that a tenth of the rounds were below, for what else runs meanwhile only adds.

use remat_kernels::blocked::{Blocked, Start, lanes};
use remat_kernels::conv::Conv2d;
use remat_kernels::machine::multiply_adds;
use remat_kernels::pool::Pool;
use std::time::Instant;

/// Steps of a round of the peak loop: about 4 ms.
const PEAK_STEPS: usize = 1 << 20;
/// Of the rounds, one in so many is faster than the figure.
const ONE_IN: usize = 10;

/// Channels, side of the image, outputs, taps along a side, stride, groups.
type Layer = [usize; 6];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: usize| args.get(i).map_or(or, |a| a.parse().expect("a number"));
    let layers = match args.first().map_or("mobilenetv2", String::as_str) {
        "resnet50" => resnet50(),
        "mobilenetv2" => mobilenetv2(),
        name => panic!("no network is called {name}: there are resnet50 and mobilenetv2"),
    };
    let [batch, threads, rounds] = [number(1, 1), number(2, 1), number(3, 25)];
    let pool = Pool::new(threads);
    let mut runs: Vec<Run> = layers.iter().map(|layer| Run::new(*layer, batch, threads)).collect();
    let most = runs.iter().map(|r| r.blocked.x_len().max(r.blocked.y_len())).max().unwrap_or(0);
    let (mut x, mut y) = (vec![0.5; most], vec![0.5; most]);
    let (mut peaks, mut flops) = (Vec::new(), 0);
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        flops = multiply_adds(&pool, PEAK_STEPS);
        peaks.push(start.elapsed().as_secs_f64());
        for run in &mut runs {
            run.once(&pool, &x, &mut y);
            std::mem::swap(&mut x, &mut y);
        }
    }
    let peak = flops as f64 / least(&mut peaks);
    println!("{:>28} {:>6} {:>10} {:>9} {:>6} {:>7}", "layer", "times", "us each", "GFLOP/s", "share", "GB/s");
    let mut seen: Vec<Layer> = Vec::new();
    let mut total = 0.0;
    for layer in &layers {
        if seen.contains(layer) {
            continue;
        }
        seen.push(*layer);
        let mut same: Vec<&mut Run> = runs.iter_mut().filter(|r| r.layer == *layer).collect();
        let all: f64 = same.iter_mut().map(|r| least(&mut r.seconds)).sum();
        total += all;
        let (each, blocked) = (all / same.len() as f64, same[0].blocked);
        let (speed, bytes) = (blocked.flops() as f64 / each, 4 * (blocked.x_len() + blocked.y_len()));
        let [c, side, k, r, stride, groups] = layer;
        println!(
            "{:>28} {:>6} {:>10.1} {:>9.1} {:>6.3} {:>7.1}",
            format!("{c}x{side}x{side}-{k}k{r}s{stride}g{groups}"),
            same.len(),
            each * 1e6,
            speed / 1e9,
            speed / peak,
            bytes as f64 / each / 1e9
        );
    }
    println!("{:.0} us of batch {batch} on {threads} threads; multiply-adds {:.1} GFLOP/s", total * 1e6, peak / 1e9);
}

/// A layer with its operands, and its times.
struct Run {
    layer: Layer,
    blocked: Blocked,
    packed: Vec<f32>,
    bias: Vec<f32>,
    workspace: Vec<u8>,
    seconds: Vec<f64>,
}

impl Run {
    fn new(layer: Layer, batch: usize, threads: usize) -> Run {
        let [c, side, k, r, stride, groups] = layer;
        let (x, w) = ([batch, c, side, side], [k, c / groups, r, r]);
        let conv = Conv2d::new(x, w, [stride; 2], [r / 2; 2], [1; 2], groups).expect("a layer of a network");
        let plain = Blocked::new(conv, lanes(), c == 3).expect("channels suit the blocks");
        let blocked = if plain.winograd_pays() { plain.winograd().expect("3x3 taps") } else { plain };
        let mut packed = vec![0.0; blocked.packed_len()];
        blocked.pack(&vec![0.01; conv.weight_len()], &mut packed);
        let (bias, workspace) = (vec![0.1; blocked.bias_len()], vec![0; blocked.workspace_bytes(threads)]);
        Run { layer, blocked, packed, bias, workspace, seconds: Vec::new() }
    }

    fn once(&mut self, pool: &Pool, x: &[f32], y: &mut [f32]) {
        let (x, y) = (&x[..self.blocked.x_len()], &mut y[..self.blocked.y_len()]);
        let start = Instant::now();
        let clamp = Some([0.0, 6.0]);
        self.blocked.run(pool, x, &self.packed, &self.bias, &Start::Zero, clamp, y, &mut self.workspace);
        self.seconds.push(start.elapsed().as_secs_f64());
    }
}

/// The time that one in [`ONE_IN`] was below.
fn least(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / ONE_IN]
}

/// MobileNetV2 (Sandler et al. 2018, table 2) at 224x224.
fn mobilenetv2() -> Vec<Layer> {
    let mut layers = vec![[3, 224, 32, 3, 2, 1], [32, 112, 32, 3, 1, 32], [32, 112, 16, 1, 1, 1]];
    let (mut c, mut side) = (16, 112);
    for (k, repeat, stride) in [(24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)] {
        for i in 0..repeat {
            let stride = if i == 0 { stride } else { 1 };
            layers.push([c, side, 6 * c, 1, 1, 1]);
            layers.push([6 * c, side, 6 * c, 3, stride, 6 * c]);
            side /= stride;
            layers.push([6 * c, side, k, 1, 1, 1]);
            c = k;
        }
    }
    layers.push([320, side, 1280, 1, 1, 1]);
    layers
}

/// ResNet-50 (He et al. 2015, table 1) at 224x224, with the strides in the 3x3 convolutions.
fn resnet50() -> Vec<Layer> {
    let mut layers = vec![[3, 224, 64, 7, 2, 1]];
    let (mut c, mut side) = (64, 56);
    for (width, repeat, stride) in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)] {
        for i in 0..repeat {
            let stride = if i == 0 { stride } else { 1 };
            if i == 0 {
                layers.push([c, side, 4 * width, 1, stride, 1]);
            }
            layers.push([c, side, width, 1, 1, 1]);
            layers.push([width, side, width, 3, stride, 1]);
            side /= stride;
            layers.push([width, side, 4 * width, 1, 1, 1]);
            c = 4 * width;
        }
    }
    layers
}
