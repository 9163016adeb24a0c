//! Networks, by their papers.

use super::tape::{Tape, Tensor};
use crate::plan::problem::Spec;

const IMAGE: u64 = 224;
const CLASSES: u64 = 1000;

fn conv_bn_relu(t: &mut Tape, x: &Tensor, c: u64, k: u64, stride: u64, groups: u64) -> Tensor {
    let y = t.conv(x, c, k, stride, groups);
    let y = t.norm("bn", &y);
    t.relu(&y)
}

fn head(mut t: Tape, x: &Tensor) -> Spec {
    let pooled = t.resize("avgpool", x, 1, 1);
    let flat = t.view(&pooled, (pooled.c, 1, 1));
    let logits = t.linear(&flat, CLASSES);
    t.finish(&logits)
}

/// He et al. 2015, table 1.
pub(super) fn resnet50() -> Spec {
    let mut t = Tape::new(32);
    let x = t.data(3, IMAGE, IMAGE);
    let x = conv_bn_relu(&mut t, &x, 64, 7, 2, 1);
    let mut x = t.resize("maxpool", &x, 56, 56);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            let y = conv_bn_relu(&mut t, &x, width, 1, 1, 1);
            let y = conv_bn_relu(&mut t, &y, width, 3, stride, 1);
            let y = t.conv(&y, 4 * width, 1, 1, 1);
            let y = t.norm("bn", &y);
            let short = if block == 0 {
                let s = t.conv(&x, 4 * width, 1, stride, 1);
                t.norm("bn", &s)
            } else {
                x
            };
            let sum = t.add(&y, &short);
            x = t.relu(&sum);
        }
    }
    head(t, &x)
}

/// Sandler et al. 2018, table 2.
pub(super) fn mobilenetv2() -> Spec {
    const BLOCKS: [(u64, u64, usize, u64); 7] =
        [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];
    let mut t = Tape::new(32);
    let x = t.data(3, IMAGE, IMAGE);
    let mut x = conv_bn_relu(&mut t, &x, 32, 3, 2, 1);
    for (expand, c, repeat, first_stride) in BLOCKS {
        for i in 0..repeat {
            let stride = if i == 0 { first_stride } else { 1 };
            let wide = expand * x.c;
            let y = if expand > 1 { conv_bn_relu(&mut t, &x, wide, 1, 1, 1) } else { x.clone() };
            let y = conv_bn_relu(&mut t, &y, wide, 3, stride, wide);
            let y = t.conv(&y, c, 1, 1, 1);
            let y = t.norm("bn", &y);
            x = if stride == 1 && x.c == c { t.add(&y, &x) } else { y };
        }
    }
    let x = conv_bn_relu(&mut t, &x, 1280, 1, 1, 1);
    head(t, &x)
}

/// Huang et al. 2016, table 1: growth 32, every layer reads all before it in its block.
pub(super) fn densenet121() -> Spec {
    const GROWTH: u64 = 32;
    let mut t = Tape::new(32);
    let x = t.data(3, IMAGE, IMAGE);
    let x = conv_bn_relu(&mut t, &x, 2 * GROWTH, 7, 2, 1);
    let mut x = t.resize("maxpool", &x, 56, 56);
    for (stage, layers) in [6, 12, 24, 16].into_iter().enumerate() {
        for _ in 0..layers {
            let y = t.norm("bn", &x);
            let y = t.relu(&y);
            let y = conv_bn_relu(&mut t, &y, 4 * GROWTH, 1, 1, 1);
            let y = t.conv(&y, GROWTH, 3, 1, 1);
            x = t.concat(&[&x, &y]);
        }
        let y = t.norm("bn", &x);
        x = t.relu(&y);
        if stage < 3 {
            let y = t.conv(&x, x.c / 2, 1, 1, 1);
            let (h, w) = (y.h / 2, y.w / 2);
            x = t.resize("avgpool", &y, h, w);
        }
    }
    head(t, &x)
}

/// Ronneberger et al. 2015, padded convolutions, with normalisation.
pub(super) fn unet() -> Spec {
    let mut t = Tape::new(4);
    let mut x = t.data(3, 384, 384);
    let mut skips = Vec::new();
    for level in 0..5 {
        let c = 64 << level;
        x = conv_bn_relu(&mut t, &x, c, 3, 1, 1);
        x = conv_bn_relu(&mut t, &x, c, 3, 1, 1);
        if level < 4 {
            skips.push(x.clone());
            let (h, w) = (x.h / 2, x.w / 2);
            x = t.resize("maxpool", &x, h, w);
        }
    }
    while let Some(skip) = skips.pop() {
        let up = t.resize("upsample", &x, skip.h, skip.w);
        let up = t.conv(&up, skip.c, 3, 1, 1);
        x = t.concat(&[&skip, &up]);
        x = conv_bn_relu(&mut t, &x, skip.c, 3, 1, 1);
        x = conv_bn_relu(&mut t, &x, skip.c, 3, 1, 1);
    }
    let logits = t.conv(&x, 2, 1, 1, 1);
    t.finish(&logits)
}

/// A recurrent network (Hochreiter and Schmidhuber, 1997): one cell, so many steps, each step's output to the loss.
pub(super) fn lstm(steps: usize) -> Spec {
    const WIDTH: u64 = 128;
    let mut t = Tape::new(1024);
    let data = t.data(WIDTH, 1, 1);
    let (mut h, mut c) = (t.slice(&data, WIDTH), t.slice(&data, WIDTH));
    let mut outputs = Vec::new();
    for _ in 0..steps {
        let x = t.slice(&data, WIDTH);
        let (of_x, of_h) = (t.linear_by("cell.wx", &x, 4 * WIDTH), t.linear_by("cell.wh", &h, 4 * WIDTH));
        let gates = t.add(&of_x, &of_h);
        let [i, f, o] = ["i", "f", "o"].map(|_| {
            let part = t.slice(&gates, WIDTH);
            t.squash("sigmoid", &part)
        });
        let part = t.slice(&gates, WIDTH);
        let g = t.squash("tanh", &part);
        let (kept, new) = (t.mul(&f, &c), t.mul(&i, &g));
        c = t.add(&kept, &new);
        let seen = t.squash("tanh", &c);
        h = t.mul(&o, &seen);
        outputs.push(h.clone());
    }
    outputs.push(c);
    let all: Vec<&Tensor> = outputs.iter().collect();
    let y = t.concat(&all);
    let y = t.linear(&y, WIDTH);
    t.finish(&y)
}

/// Layers with a gate between a layer's result and its input (Srivastava et al., 2015).
pub(super) fn highway(layers: usize) -> Spec {
    const WIDTH: u64 = 128;
    let mut t = Tape::new(1024);
    let data = t.data(WIDTH, 1, 1);
    let mut x = t.linear(&data, WIDTH);
    for _ in 0..layers {
        let gate = t.linear(&x, WIDTH);
        let gate = t.squash("sigmoid", &gate);
        let y = t.linear(&x, WIDTH);
        let y = t.squash("tanh", &y);
        let less = t.pointwise("one_minus", &gate);
        let (new, old) = (t.mul(&gate, &y), t.mul(&less, &x));
        x = t.add(&new, &old);
    }
    t.finish(&x)
}

/// One layer, so many times, each time beside its input.
pub(super) fn shared(times: usize) -> Spec {
    const WIDTH: u64 = 128;
    let mut t = Tape::new(1024);
    let data = t.data(WIDTH, 1, 1);
    let mut x = t.linear(&data, WIDTH);
    for _ in 0..times {
        let y = t.linear_by("shared.w", &x, WIDTH);
        let y = t.squash("tanh", &y);
        x = t.add(&x, &y);
    }
    t.finish(&x)
}

/// Radford et al. 2019, the small model's width, `layers` blocks, attention with its scores in memory; the
/// product with the vocabulary is left out, as its logits would be most of the memory.
pub(super) fn gpt(layers: usize) -> Spec {
    const WIDTH: u64 = 768;
    const HEADS: u64 = 12;
    const VOCABULARY: u64 = 50_257;
    const LENGTH: u64 = 512;
    let mut t = Tape::new(4);
    let tokens = t.data(1, LENGTH, 1);
    let mut x = t.lookup(&tokens, WIDTH, VOCABULARY + 1024);
    let attention_flops = 2.0 * (LENGTH * LENGTH * WIDTH) as f64;
    for _ in 0..layers {
        let y = t.norm("ln", &x);
        let (q, k, v) = (t.linear(&y, WIDTH), t.linear(&y, WIDTH), t.linear(&y, WIDTH));
        let scores = t.product(&q, &k, (HEADS, LENGTH, LENGTH), attention_flops);
        let weights = t.softmax(&scores);
        let y = t.product(&weights, &v, (WIDTH, LENGTH, 1), attention_flops);
        let y = t.linear(&y, WIDTH);
        x = t.add(&x, &y);
        let y = t.norm("ln", &x);
        let y = t.linear(&y, 4 * WIDTH);
        let y = t.pointwise("gelu", &y);
        let y = t.linear(&y, WIDTH);
        x = t.add(&x, &y);
    }
    let x = t.norm("ln", &x);
    t.finish(&x)
}
