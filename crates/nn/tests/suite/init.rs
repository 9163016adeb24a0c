//! Initialisers: their distributions, their determinism, PyTorch's defaults.

use remat_nn::{Conv2d, Conv2dOptions, Conv3d, ConvTranspose2d, Fan, Gain, Init, InitCx, Linear, Rng};
use remat_types::{DType, ErrorKind, Shape};

use crate::support::{FLOATS, cpu, state};

fn draw(init: Init, shape: impl Into<Shape>, dtype: DType, seed: u64) -> Vec<f64> {
    let t = init.tensor(&cpu(), shape, dtype, &mut Rng::new(seed)).expect("valid");
    t.to_host().expect("value").to_f64_vec()
}

fn moments(v: &[f64]) -> (f64, f64) {
    let mean = v.iter().sum::<f64>() / v.len() as f64;
    (mean, (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / v.len() as f64).sqrt())
}

/// Asserts mean 0 and deviation `std` within five standard errors of 20000 draws.
#[track_caller]
fn assert_spread(v: &[f64], std: f64) {
    let (mean, got) = moments(v);
    assert!(mean.abs() < 0.036 * std && (got / std - 1.0).abs() < 0.03, "mean {mean}, std {got}, wanted {std}");
}

#[test]
fn spreads_are_those_of_the_formulas() {
    let w = [100, 8, 5, 5]; // fan_in 200, fan_out 2500
    let of = |i| draw(i, w, DType::F32, 3);
    assert_spread(&of(Init::XavierUniform(Gain::Tanh)), 5.0 / 3.0 * (2.0f64 / 2700.0).sqrt());
    assert_spread(&of(Init::XavierNormal(Gain::Linear)), (2.0f64 / 2700.0).sqrt());
    assert_spread(&of(Init::KaimingUniform(Gain::Relu, Fan::In)), (2.0f64 / 200.0).sqrt());
    assert_spread(&of(Init::KaimingNormal(Gain::Relu, Fan::Out)), (2.0f64 / 2500.0).sqrt());
    assert_spread(&of(Init::Normal { mean: 0.0, std: 2.0 }), 2.0);
    let b = Gain::Relu.value() * (3.0f64 / 200.0).sqrt();
    let v = of(Init::KaimingUniform(Gain::Relu, Fan::In));
    assert!(v.iter().all(|x| x.abs() <= b * (1.0 + 1e-6)) && v.iter().any(|x| *x > 0.99 * b));
}

#[test]
fn a_truncated_normal_stays_within_its_bounds_and_has_its_moments() {
    // of the standard normal cut to -1 ..= 2: mean 0.22964, std 0.72093 (from the formulas with phi and Phi)
    let v = draw(Init::TruncatedNormal { mean: 0.0, std: 1.0, lo: -1.0, hi: 2.0 }, [20_000], DType::F64, 5);
    assert!(v.iter().all(|x| (-1.0..=2.0).contains(x)));
    let phi = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    // Phi(2) - Phi(-1)
    let z = 0.977_249_868_051_820_8 - 0.158_655_253_931_457_05;
    let mean = (phi(-1.0) - phi(2.0)) / z;
    let var = 1.0 + (-phi(-1.0) - 2.0 * phi(2.0)) / z - mean * mean;
    let (m, s) = moments(&v);
    assert!((m - mean).abs() < 0.025 && (s / var.sqrt() - 1.0).abs() < 0.03, "{m} {s} against {mean} {}", var.sqrt());
}

#[test]
fn every_float_dtype_can_be_drawn_and_constants_of_any() {
    for d in FLOATS {
        assert!(draw(Init::DEFAULT_WEIGHT, [4, 4], d, 1).iter().all(|v| v.abs() <= 0.5), "{d}");
        assert_eq!(draw(Init::Constant(1.5), [2], d, 1), [1.5, 1.5]);
    }
    assert_eq!(draw(Init::Ones, [2], DType::I64, 1), [1.0, 1.0]);
}

#[test]
fn a_seed_is_a_network() {
    let weights = |seed: u64| {
        let cx = &mut InitCx::new(&cpu(), seed);
        (0..2).map(|_| state(&Linear::new(cx, 3, 2).expect("fits").weight)).collect::<Vec<_>>()
    };
    assert_eq!(weights(1), weights(1));
    assert_ne!(weights(1), weights(2));
    assert_ne!(weights(1)[0], weights(1)[1]);
}

#[test]
fn defaults_are_pytorchs() {
    let cx = &mut InitCx::new(&cpu(), 1);
    let bound =
        |v: Vec<f64>, b: f64| v.iter().all(|x| x.abs() <= b * (1.0 + 1e-6)) && v.iter().any(|x| x.abs() > 0.8 * b);
    let l = Linear::new(cx, 64, 50).expect("fits");
    assert!(bound(state(&l.weight), 0.125) && bound(state(l.bias.as_ref().expect("bias")), 0.125));
    let o = Conv2dOptions { groups: 2, ..Conv2dOptions::default() };
    let c = Conv2d::with(cx, 8, 32, [2, 4], o).expect("fits");
    assert_eq!(c.weight.shape().dims(), [32, 4, 2, 4]);
    let b = 1.0 / 32f64.sqrt();
    assert!(bound(state(&c.weight), b) && bound(state(c.bias.as_ref().expect("bias")), b));
    let c = Conv3d::new(cx, 4, 32, 2).expect("fits");
    assert!(bound(state(&c.weight), b) && bound(state(c.bias.as_ref().expect("bias")), b));
    // the fan of a transposed weight is that of its second axis, the outputs
    let o = Conv2dOptions { groups: 8, ..Conv2dOptions::default() };
    let c = ConvTranspose2d::with(cx, 16, 64, 2, o).expect("fits");
    assert_eq!(c.weight.shape().dims(), [16, 8, 2, 2]);
    assert!(bound(state(&c.weight), b) && bound(state(c.bias.as_ref().expect("bias")), b));
}

#[test]
fn impossible_rules_are_errors() {
    let kind = |i: Init, shape: &[usize]| {
        i.tensor(&cpu(), shape, DType::F32, &mut Rng::new(1)).expect_err("impossible").kind()
    };
    assert_eq!(kind(Init::XavierNormal(Gain::Linear), &[3]), ErrorKind::Axis);
    assert_eq!(kind(Init::Uniform { lo: 1.0, hi: 0.0 }, &[3]), ErrorKind::Value);
    assert_eq!(kind(Init::TruncatedNormal { mean: 0.0, std: 1.0, lo: 2.0, hi: -2.0 }, &[3]), ErrorKind::Value);
}
