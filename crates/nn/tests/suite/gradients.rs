//! Gradients of layers and losses, towards input and parameters, against central differences in f64.

use remat_nn::Reduction;
use remat_nn::*;
use remat_ops::testing::ALIVE;
use remat_runtime::Device;
use remat_tensor::{Tensor, gradcheck};
use remat_types::{DType, HostTensor, Result};

use crate::support::{cpu, set, state, values, wave};

/// Central differences with a step of 6e-6 are good to some 1e-10 of values near 1.
const BOUND: f64 = 1e-8;

fn cx(d: &Device) -> InitCx {
    InitCx::new(d, 11).with_dtype(DType::F64)
}

fn input(shape: &[usize]) -> HostTensor {
    HostTensor::from_slice(&wave(shape.iter().product(), 0.3), shape).expect("fits")
}

/// Checks the gradients towards `x` and every parameter of `layer`.
fn check(d: &Device, layer: &dyn Layer, x: &[usize]) {
    let x = input(x);
    let r = gradcheck(d, std::slice::from_ref(&x), |x| layer.forward(&x[0])).expect("differentiable");
    assert!(r.max_error < BOUND && r.max_gradient > ALIVE, "towards x: {r:?}");
    let x = Tensor::from_host(d, &x).expect("fits");
    let project = || -> Result<Tensor> {
        let y = layer.forward(&x)?;
        let w = Tensor::from_slice(d, &wave(y.elems(), 2.1), y.shape())?;
        y.mul(w)?.sum()
    };
    for (name, p) in layer.named_parameters() {
        layer.zero_grad();
        project().expect("fits").backward().expect("tracked");
        let got = values(&p.grad().expect("a gradient"));
        let at = state(&p);
        let mut alive = false;
        for i in 0..at.len() {
            let h = 6e-6 * at[i].abs().max(1.0);
            let loss = |v: f64| {
                let mut moved = at.clone();
                moved[i] = v;
                set(&p, &moved);
                values(&project().expect("fits"))[0]
            };
            let numeric = (loss(at[i] + h) - loss(at[i] - h)) / (2.0 * h);
            let error = (got[i] - numeric).abs() / got[i].abs().max(numeric.abs()).max(1.0);
            assert!(error < BOUND, "{name}[{i}]: {} against {numeric}", got[i]);
            alive |= got[i].abs() > ALIVE;
        }
        assert!(alive, "{name}: the gradient is zero");
        set(&p, &at);
    }
}

#[test]
fn linear() {
    let d = cpu();
    check(&d, &Linear::new(&mut cx(&d), 3, 2).expect("fits"), &[4, 3]);
    check(&d, &Linear::new(&mut cx(&d), 3, 2).expect("fits"), &[2, 2, 3]);
}

#[test]
fn conv2d() {
    let d = cpu();
    check(&d, &Conv2d::new(&mut cx(&d), 2, 3, [2, 3]).expect("fits"), &[2, 2, 4, 4]);
    let o = Conv2dOptions {
        stride: Extents([2, 1]),
        padding: [1, 2].into(),
        dilation: Extents([1, 2]),
        groups: 2,
        ..Conv2dOptions::default()
    };
    check(&d, &Conv2d::with(&mut cx(&d), 4, 2, 2, o).expect("fits"), &[1, 4, 4, 3]);
}

#[test]
fn convolutions_of_lines_and_volumes() {
    let d = cpu();
    let o = Conv1dOptions { stride: 2.into(), padding: 1.into(), groups: 2, ..Conv1dOptions::default() };
    check(&d, &Conv1d::with(&mut cx(&d), 2, 4, 3, o).expect("fits"), &[2, 2, 5]);
    let o = Conv1dOptions { stride: 2.into(), padding: [[0, 2]].into(), ..Conv1dOptions::default() };
    check(&d, &Conv1d::with(&mut cx(&d), 2, 4, 3, o).expect("fits"), &[2, 2, 5]);
    let o = Conv3dOptions { padding: [1, 0, 1].into(), dilation: [2, 1, 1].into(), ..Conv3dOptions::default() };
    check(&d, &Conv3d::with(&mut cx(&d), 2, 2, [2, 1, 2], o).expect("fits"), &[1, 2, 3, 2, 2]);
}

#[test]
fn transposed_convolutions() {
    let d = cpu();
    let o = Conv1dOptions { stride: 2.into(), groups: 2, ..Conv1dOptions::default() };
    let layer = ConvTranspose1d::with(&mut cx(&d), 2, 4, 3, o).expect("fits").with_output_padding(1);
    check(&d, &layer, &[2, 2, 3]);
    let o = Conv2dOptions { stride: [2, 1].into(), padding: 1.into(), ..Conv2dOptions::default() };
    let layer = ConvTranspose2d::with(&mut cx(&d), 2, 3, [3, 2], o).expect("fits").with_output_padding([1, 0]);
    check(&d, &layer, &[2, 2, 3, 3]);
    check(&d, &ConvTranspose3d::new(&mut cx(&d), 2, 1, [2, 1, 2]).expect("fits"), &[1, 2, 2, 2, 2]);
}

#[test]
fn norms() {
    let d = cpu();
    // eps away from 0 keeps the differences well-conditioned
    let o = BatchNormOptions { eps: 0.1, ..BatchNormOptions::default() };
    let bn = BatchNorm2d::with(&mut cx(&d), 2, o).expect("fits");
    set(&bn.weight, &[1.5, -0.5]);
    check(&d, &bn, &[3, 2, 2, 2]);
    bn.eval();
    check(&d, &bn, &[3, 2, 2, 2]);
    check(&d, &BatchNorm1d::with(&mut cx(&d), 3, o).expect("fits"), &[4, 3]);
    check(&d, &LayerNorm::with(&mut cx(&d), [2, 3], 0.1).expect("fits"), &[3, 2, 3]);
}

#[test]
fn pools_and_activations() {
    let d = cpu();
    let layers: [&dyn Layer; 12] = [
        &MaxPool2d::with(2, 1, 1),
        &AvgPool2d::with(3, 2, 1, true),
        &AvgPool2d::with(3, 2, 1, false),
        &AdaptiveAvgPool2d::new([3, 2]),
        &Flatten::default(),
        &Relu,
        &Gelu,
        &Silu,
        &Tanh,
        &Sigmoid,
        &LeakyRelu::default(),
        &Softmax { axis: 1 },
    ];
    for l in layers {
        check(&d, l, &[2, 3, 4, 4]);
    }
}

#[test]
fn dropout_with_a_key() {
    let d = cpu();
    let layer = Dropout::new(0.4, &mut Rng::new(1)).expect("a probability");
    let key = Rng::new(5).next_key(&d).expect("open");
    let r = gradcheck(&d, &[input(&[4, 5])], |x| layer.forward_with(&x[0], &key)).expect("differentiable");
    assert!(r.max_error < BOUND && r.max_gradient > ALIVE, "{r:?}");
}

#[test]
fn a_whole_network() {
    let d = cpu();
    let c = &mut cx(&d);
    let net = Sequential::new()
        .then(Conv2d::new(c, 1, 2, 2).expect("fits"))
        .then(BatchNorm2d::with(c, 2, BatchNormOptions { eps: 0.1, ..BatchNormOptions::default() }).expect("fits"))
        .then(Silu)
        .then(AvgPool2d::new(2))
        .then(Flatten::default())
        .then(Linear::new(c, 2, 2).expect("fits"));
    // a convolution's bias has no effect before a normalisation: its gradient is zero by design
    for (name, p) in net.named_parameters() {
        p.set_frozen(name == "0.bias");
    }
    let r = gradcheck(&d, &[input(&[3, 1, 3, 3])], |x| net.forward(&x[0])).expect("differentiable");
    assert!(r.max_error < BOUND && r.max_gradient > ALIVE, "{r:?}");
}

#[test]
fn losses() {
    let d = cpu();
    let labels = Tensor::new(&d, &[2i64, 0, 1], [3]).expect("fits");
    let target = Tensor::from_slice(&d, &wave(12, 4.0), [3, 4]).expect("fits");
    type Loss<'l> = Box<dyn Fn(&[Tensor]) -> Result<Tensor> + 'l>;
    let all: [Loss<'_>; 6] = [
        Box::new(|x| loss::cross_entropy(&x[0], &labels)),
        Box::new(|x| loss::cross_entropy_with(&x[0], &labels, Reduction::None, 0.2, Some(1))),
        Box::new(|x| loss::nll(&x[0].log_softmax(1)?, &labels, Reduction::Mean)),
        Box::new(|x| loss::mse(&x[0], &target, Reduction::Mean)),
        Box::new(|x| loss::l1(&x[0], &target, Reduction::Sum)),
        Box::new(|x| loss::bce_with_logits(&x[0], &target, Reduction::None)),
    ];
    for (i, f) in all.iter().enumerate() {
        let r = gradcheck(&d, &[input(&[3, 4])], f).expect("differentiable");
        assert!(r.max_error < BOUND && r.max_gradient > ALIVE, "loss {i}: {r:?}");
    }
}
