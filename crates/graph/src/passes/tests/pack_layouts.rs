//! The pass `pack_layouts`: the ops that it joins, those that it leaves alone, and equal results.

use super::*;
use remat_ops::conv::{Conv2d, ConvParams};
use remat_ops::cpu::ConvBlocked;
use remat_ops::pointwise::Clamp;
use remat_ops::pooling::{AvgPool2d, MaxPool2d, Windows};
use remat_ops::reduce::{Reduce, ReduceFn};
use remat_ops::shape::Concat;
use remat_types::Scalar;

impl Make {
    /// A constant of both signs.
    fn weight(&self, dims: &[usize]) -> ValueId {
        let n: usize = dims.iter().product();
        let v: Vec<f32> = (0..n).map(|i| (i as f32 * 1.7 + dims.len() as f32).sin() * 0.5 + 0.02).collect();
        self.0.constant(&HostTensor::from_slice(&v, dims).expect("fits"))
    }

    /// From `c` to `k` channels, with a bias.
    fn conv(&self, x: ValueId, [c, k]: [usize; 2], kernel: usize, stride: usize, groups: usize) -> ValueId {
        let taps = ConvParams { stride: [stride; 2], padding: [kernel / 2; 2].into(), dilation: [1, 1], groups };
        let y = self.op(Conv2d { taps }, &[x, self.weight(&[k, c / groups, kernel, kernel])]);
        self.bin(BinaryFn::Add, y, self.weight(&[k, 1, 1]))
    }

    fn relu6(&self, x: ValueId) -> ValueId {
        self.op(Clamp { lo: Scalar::Int(0), hi: Scalar::Int(6) }, &[x])
    }
}

/// Labels after level 3, where every pass computes what the graph before it does.
#[track_caller]
fn labels(g: &Graph) -> Vec<&'static str> {
    let options = PassOptions { level: 3, ..Default::default() };
    for threads in [1, 2] {
        let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(threads) };
        let wave = |v: &ValueId| {
            let f = g.fact(*v);
            let v: Vec<f64> = (0..f.elems()).map(|i| (i as f64 * 0.9).cos()).collect();
            HostTensor::from_f64_slice(&v, f.dtype, f.shape.clone()).expect("fits")
        };
        let x: Vec<HostTensor> = g.inputs().iter().map(wave).collect();
        assert_eq!(verify(g, &x, &[], &cx).expect("computes"), None);
    }
    let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) };
    let exact =
        optimize(g.clone(), &PassCx { options: &PassOptions::default(), target: &cpu::Cpu, pool: &Pool::new(1) })
            .expect("patches fit")
            .0;
    let is_packed = |label: &str| label.ends_with("_packed") || label.ends_with("_blocked");
    assert!(!exact.nodes().iter().any(|n| is_packed(n.op.label())), "level 2 keeps every bit");
    optimize(g.clone(), &cx).expect("patches fit").0.nodes().iter().map(|n| n.op.label()).collect()
}

#[test]
fn a_network_of_images_stays_in_blocks() {
    let m = Make::new();
    let x = m.input(DType::F32, &[2, 3, 13, 14]);
    let y = m.un(UnaryFn::Relu, m.conv(x, [3, 20], 7, 2, 1));
    let y = m.op(MaxPool2d { windows: Windows::sliding([3, 3], [2, 2], [1, 1]) }, &[y]);
    let wide = m.relu6(m.conv(y, [20, 40], 1, 1, 1));
    let deep = m.relu6(m.conv(wide, [40, 40], 3, 1, 40));
    let y = m.bin(BinaryFn::Add, y, m.conv(deep, [40, 20], 1, 1, 1));
    let mean = m.op(AvgPool2d { windows: Windows::Adaptive { size: [1, 1] }, count_include_pad: false }, &[y]);
    let found = labels(&m.graph(&[mean]));
    let conv = "conv_blocked";
    assert_eq!(found, [conv, "max_pool_blocked", conv, conv, conv, "mean", "from_blocked"]);
}

#[test]
fn what_is_computed_element_by_element_stays_in_blocks() {
    let m = Make::new();
    let one = |v: f32| m.0.constant(&HostTensor::from_slice(&[v], [1]).expect("fits"));
    // twenty channels leave blocks of eight and of sixteen unfilled; at 0 the hard sigmoid is a half, and the quotient no number
    let hswish = |x: ValueId| {
        let gate = m.relu6(m.bin(BinaryFn::Add, x, one(3.0)));
        m.bin(BinaryFn::Div, m.bin(BinaryFn::Mul, x, gate), one(6.0))
    };
    let mean = |x| m.op(Reduce { f: ReduceFn::Mean, axes: SmallVec::from_slice(&[2, 3]), keepdims: true }, &[x]);
    let x = m.conv(m.input(DType::F32, &[2, 3, 9, 8]), [3, 20], 3, 1, 1);
    let x = hswish(m.conv(hswish(x), [20, 20], 3, 1, 20));
    let gate = m.un(UnaryFn::Sigmoid, m.conv(hswish(m.conv(mean(x), [20, 24], 1, 1, 1)), [24, 20], 1, 1, 1));
    let x = m.bin(BinaryFn::Mul, gate, x);
    let scaled = m.bin(
        BinaryFn::Add,
        m.bin(BinaryFn::Mul, m.un(UnaryFn::Tanh, x), m.weight(&[20, 1, 1])),
        m.weight(&[1, 20, 1, 1]),
    );
    let y = m.conv(scaled, [20, 32], 3, 1, 1);
    let rows = m.0.constant(&HostTensor::from_slice(&[0i64, 0, 3, 3, 8], [5]).expect("fits"));
    let y = m.op(Take { axis: 2 }, &[y, rows]);
    let z = m.op(Concat { axis: 1 }, &[y, m.un(UnaryFn::Sin, y)]);
    let z = m.conv(z, [64, 16], 1, 1, 1);
    let found = labels(&m.graph(&[z]));
    let conversions = found.iter().filter(|l| l.ends_with("to_blocked") || l.ends_with("from_blocked"));
    assert_eq!(conversions.count(), 1, "{found:?}");
    assert_eq!(found.iter().filter(|l| **l == "conv_blocked").count(), 6, "{found:?}");
    // what a quotient makes of the channels that fill a block up would spread; the others are far from a division by zero
    let m = Make::new();
    let x = m.conv(m.input(DType::F32, &[1, 3, 9, 8]), [3, 20], 3, 1, 1);
    let taps = ConvParams { padding: [1; 2].into(), ..ConvParams::PLAIN };
    let b = m.op(Conv2d { taps }, &[x, m.weight(&[20, 20, 3, 3])]);
    let far = m.0.constant(&HostTensor::from_slice(&[40f32; 20], [20, 1, 1]).expect("fits"));
    let (a, b) = (m.conv(x, [20, 20], 1, 1, 1), m.bin(BinaryFn::Add, b, far));
    let y = m.conv(m.bin(BinaryFn::Div, a, b), [20, 20], 1, 1, 1);
    let found = labels(&m.graph(&[y]));
    assert_eq!(found.iter().filter(|l| **l == "to_blocked").count(), 1, "{found:?}");
}

#[test]
fn padding_of_each_side_is_packed_along() {
    let m = Make::new();
    // below and to the left, where the image ends in the middle of a stride, too
    let conv = |x: ValueId, [k, c, kernel]: [usize; 3], stride: usize, groups: usize| {
        let padding = [[0, kernel / 2 + 1], [kernel / 2 + 2, 0]].into();
        let taps = ConvParams { stride: [stride; 2], padding, dilation: [1, 1], groups };
        m.op(Conv2d { taps }, &[x, m.weight(&[k, c / groups, kernel, kernel])])
    };
    let planar = conv(m.input(DType::F32, &[2, 3, 13, 14]), [20, 3, 7], 2, 1);
    let single = conv(m.un(UnaryFn::Relu, planar), [40, 20, 1], 1, 1);
    let deep = conv(m.un(UnaryFn::Relu, single), [40, 40, 3], 2, 40);
    let winograd = conv(m.input(DType::F32, &[1, 32, 28, 25]), [40, 32, 3], 1, 1);
    let winograd = conv(m.un(UnaryFn::Relu, winograd), [40, 40, 3], 1, 1);
    let found = labels(&m.graph(&[deep, winograd]));
    assert_eq!(found.iter().filter(|l| **l == "conv_blocked").count(), 5, "{found:?}");
}

#[test]
fn a_normalised_image_that_two_layers_read_is_computed_once() {
    let m = Make::new();
    let norm = |x: ValueId| {
        let k = [32];
        let variance = m.0.constant(&HostTensor::from_slice(&[0.7f32; 32], k).expect("fits"));
        let eps = 0.1.into();
        m.op(remat_ops::norm::BatchNormInfer { eps }, &[x, m.weight(&k), m.weight(&k), m.weight(&k), variance])
    };
    let layer = |x: ValueId| {
        let taps = ConvParams { stride: [1; 2], padding: [0; 2].into(), dilation: [1; 2], groups: 1 };
        norm(m.op(Conv2d { taps }, &[x, m.weight(&[32, 32, 1, 1])]))
    };
    let y = layer(m.input(DType::F32, &[1, 32, 9, 8]));
    let y = m.bin(BinaryFn::Add, y, layer(m.relu6(layer(y))));
    let found = labels(&m.graph(&[y]));
    assert_eq!(found, ["to_blocked", "conv_blocked", "conv_blocked", "conv_blocked", "from_blocked"]);
}

#[test]
fn wide_convolutions_of_three_by_three_taps_go_by_winograd() {
    let m = Make::new();
    let x = m.input(DType::F32, &[1, 32, 28, 25]);
    let y = m.un(UnaryFn::Relu, m.conv(x, [32, 40], 3, 1, 1));
    let y = m.un(UnaryFn::Relu, m.bin(BinaryFn::Add, m.conv(y, [40, 40], 3, 1, 1), y));
    // another stride, another kernel and a planar image do not
    let (strided, wide) = (m.conv(y, [40, 32], 3, 2, 1), m.conv(y, [40, 32], 5, 1, 1));
    let planar = m.conv(m.input(DType::F32, &[1, 3, 28, 25]), [3, 32], 3, 1, 1);
    let g = m.graph(&[strided, wide, planar]);
    assert_eq!(labels(&g).iter().filter(|l| **l == "conv_blocked").count(), 5);
    let options = PassOptions { level: 3, ..Default::default() };
    let g = optimize(g.clone(), &PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) })
        .expect("patches fit")
        .0;
    let convs = g.nodes().iter().filter_map(|n| n.op.downcast::<ConvBlocked>());
    let found: Vec<bool> = convs.map(|c| c.winograd).collect();
    assert_eq!(found.iter().filter(|w| **w).count(), 2, "{found:?}");
}

#[test]
fn the_later_of_two_convolutions_takes_their_sum() {
    let m = Make::new();
    let x = m.input(DType::F32, &[1, 9, 5, 6]);
    let (a, b) = (m.conv(x, [9, 16], 3, 2, 1), m.conv(x, [9, 16], 1, 2, 1));
    let y = m.un(UnaryFn::Relu, m.bin(BinaryFn::Add, a, b));
    // nine channels are more than a block of eight, and fewer than one of sixteen
    let found = labels(&m.graph(&[y]));
    let found: Vec<&str> = found.into_iter().filter(|l| *l != "to_blocked").collect();
    assert_eq!(found, ["conv_blocked", "conv_blocked", "from_blocked"]);
}

#[test]
fn what_others_read_comes_back_from_blocks() {
    let m = Make::new();
    let x = m.input(DType::F32, &[1, 16, 4, 4]);
    let a = m.conv(x, [16, 16], 3, 1, 1);
    let (b, c) = (m.un(UnaryFn::Relu, a), m.un(UnaryFn::Tanh, a));
    let sum = m.bin(BinaryFn::Add, m.un(UnaryFn::Exp, b), c);
    let found = labels(&m.graph(&[sum, a]));
    assert_eq!(found.iter().filter(|l| **l == "conv_blocked").count(), 1, "{found:?}");
    assert_eq!(found.iter().filter(|l| **l == "from_blocked").count(), 2, "{found:?}");
}

#[test]
fn what_blocks_do_not_suit_stays() {
    let m = Make::new();
    let x = m.input(DType::F32, &[1, 6, 4, 4]);
    let few = m.conv(x, [6, 4], 3, 1, 1);
    let groups = m.conv(x, [6, 24], 3, 1, 2);
    let wide = m.input(DType::F64, &[1, 16, 4, 4]);
    let weight = m.op(Cast { dtype: DType::F64 }, &[m.weight(&[16, 16, 1, 1])]);
    let wide = m.op(Conv2d { taps: ConvParams::PLAIN }, &[wide, weight]);
    let free = m.op(Conv2d { taps: ConvParams::PLAIN }, &[x, m.input(DType::F32, &[16, 6, 1, 1])]);
    let g = m.graph(&[few, groups, wide, free]);
    let options = PassOptions { level: 3, ..Default::default() };
    let g = optimize(g.clone(), &PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) })
        .expect("patches fit")
        .0;
    assert_eq!(g.nodes().iter().filter(|n| n.op.label() == "conv2d").count(), 4);
}

#[test]
fn linear_layers_take_what_follows_them() {
    let m = Make::new();
    let x = m.input(DType::F32, &[2, 5, 30]);
    let transposed = m.op(Permute { order: SmallVec::from_slice(&[1, 0]) }, &[m.weight(&[48, 30])]);
    let up = m.un(UnaryFn::Gelu, m.bin(BinaryFn::Add, m.op(MatMul {}, &[x, transposed]), m.weight(&[48])));
    let down = m.bin(BinaryFn::Add, m.weight(&[1, 1, 48]), m.op(MatMul {}, &[up, m.weight(&[48, 48])]));
    let y = m.un(UnaryFn::Relu, m.bin(BinaryFn::Add, up, down));
    let one = m.input(DType::F32, &[1, 300]);
    let row = m.op(MatMul {}, &[one, m.weight(&[300, 48])]);
    let options = PassOptions { level: 3, fold_bytes: 0, weight_bytes: 0, ..Default::default() };
    let g = m.graph(&[y, row]);
    let g = optimize(g.clone(), &PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) })
        .expect("patches fit")
        .0;
    let found: Vec<&str> = g.nodes().iter().map(|n| n.op.label()).collect();
    assert_eq!(found, ["linear_packed", "gelu", "linear_packed", "matmul"], "one row reads its weight as it lies");
    let m = Make::new();
    let many = m.op(MatMul {}, &[m.input(DType::F32, &[3, 11, 30]), m.weight(&[30, 47])]);
    assert_eq!(labels(&m.graph(&[many])), ["linear_packed"], "columns beside whole vectors");
    let m = Make::new();
    let x = m.input(DType::F32, &[9, 30]);
    let y = m.bin(BinaryFn::Add, m.op(MatMul {}, &[x, m.weight(&[30, 48])]), m.weight(&[48]));
    let y = m.bin(BinaryFn::Add, y, m.input(DType::F32, &[9, 48]));
    assert_eq!(labels(&m.graph(&[y])), ["linear_packed"]);
    let m = Make::new();
    let x = m.input(DType::F32, &[9, 30]);
    let y = m.bin(BinaryFn::Add, m.op(MatMul {}, &[x, m.weight(&[30, 48])]), m.weight(&[48]));
    let y = m.bin(BinaryFn::Add, y, m.weight(&[1, 48]));
    let g = m.graph(&[y]);
    assert_eq!(labels(&g), ["linear_packed"], "two biases are one before");
    let alone = g.patched(
        &super::pack_layouts(&g, &PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) })
            .expect("a patch"),
    );
    let found: Vec<&str> = alone.expect("fits").nodes().iter().map(|n| n.op.label()).collect();
    assert_eq!(found, ["linear_packed", "add"], "one bias and no second");
}

#[test]
fn a_sum_of_a_layer_and_what_another_gives_computes_neither_twice() {
    let m = Make::new();
    let x = m.input(DType::F32, &[8, 32]);
    let a = m.bin(BinaryFn::Add, x, m.op(MatMul {}, &[x, m.weight(&[32, 32])]));
    let b = m.bin(BinaryFn::Add, a, m.op(MatMul {}, &[m.un(UnaryFn::Tanh, a), m.weight(&[32, 32])]));
    assert_eq!(labels(&m.graph(&[b])), ["linear_packed", "tanh", "linear_packed"]);
    let m = Make::new();
    let image = m.conv(m.input(DType::F32, &[1, 32, 8, 8]), [32, 32], 3, 1, 1);
    let c = m.bin(BinaryFn::Add, image, m.op(MatMul {}, &[m.un(UnaryFn::Tanh, image), m.weight(&[8, 8])]));
    let found = labels(&m.graph(&[c]));
    assert_eq!(found.iter().filter(|l| **l == "conv_blocked").count(), 1, "{found:?}");
    assert!(!found.contains(&"conv2d"), "{found:?}");
}

#[test]
fn a_sum_that_comes_later_is_not_taken_by_what_it_waits_for() {
    let m = Make::new();
    let x = m.input(DType::F32, &[8, 32]);
    let a = m.op(MatMul {}, &[x, m.weight(&[32, 32])]);
    let b = m.op(MatMul {}, &[m.un(UnaryFn::Tanh, x), m.weight(&[32, 32])]);
    // one product read twice is no sum of two
    let twice = m.op(MatMul {}, &[x, m.weight(&[32, 16])]);
    let twice = m.bin(BinaryFn::Add, twice, twice);
    let sum = m.bin(BinaryFn::Add, a, b);
    let found = labels(&m.graph(&[sum, twice]));
    assert_eq!(found.iter().filter(|l| **l == "linear_packed").count(), 3, "{found:?}");
    assert_eq!(found.iter().filter(|l| **l == "add").count(), 1, "{found:?}");
}
