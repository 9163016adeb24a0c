//! Optimisers against loops over f64 on the host, and clipping.

use remat_nn::{
    AdamW, AdamWOptions, Optimizer, Parameter, Role, Schedule, Sgd, SgdOptions, clip_grad_norm, clip_grad_value,
};
use remat_runtime::{AsyncLevel, Device, DeviceOptions};
use remat_tensor::Tensor;
use remat_types::{DType, ErrorKind, HostTensor, f16};

use crate::support::{assert_close, cpu, host, state, values, wave};

const N: usize = 7;
/// Steps; enough for momentum and bias correction to show.
const STEPS: usize = 12;
/// Accuracy of f64 arithmetic over that many steps.
const F64: f64 = 1e-13;

fn start() -> Vec<f64> {
    wave(N, 0.0)
}

fn gradient(step: usize) -> Vec<f64> {
    wave(N, step as f64 + 1.0)
}

fn parameter(d: &Device, name: &str) -> (String, Parameter) {
    let v = HostTensor::from_slice(&start(), [N]).expect("fits");
    (name.to_owned(), Parameter::from_host(d, &v, Role::Trained).expect("fits"))
}

/// Lets `o` take [`STEPS`] steps with given gradients, and gives where that leads.
fn run(d: &Device, p: &Parameter, o: &mut dyn Optimizer) -> Vec<f64> {
    for i in 0..STEPS {
        p.set_grad(Some(Tensor::from_slice(d, &gradient(i), [N]).expect("fits"))).expect("same shape");
        o.step().expect("valid");
        assert!(p.grad().is_none(), "a step consumes the gradient");
    }
    state(p)
}

fn sgd_on_host(o: SgdOptions) -> Vec<f64> {
    let (mut p, mut b) = (start(), vec![0.0; N]);
    let lr = o.lr;
    for i in 0..STEPS {
        for (k, g) in gradient(i).into_iter().enumerate() {
            let g = g + o.weight_decay * p[k];
            // the first step takes the whole gradient
            b[k] = if i == 0 { g } else { o.momentum * b[k] + (1.0 - o.dampening) * g };
            let by = match (o.momentum == 0.0, o.nesterov) {
                (true, _) => g,
                (_, true) => g + o.momentum * b[k],
                _ => b[k],
            };
            p[k] -= lr * by;
        }
    }
    p
}

#[test]
fn sgd_is_its_formula() {
    let plain = SgdOptions { lr: 0.1, ..SgdOptions::default() };
    let momentum = SgdOptions { momentum: 0.9, ..plain };
    let all = [
        plain,
        SgdOptions { weight_decay: 0.2, ..plain },
        momentum,
        SgdOptions { weight_decay: 5e-4, ..momentum },
        SgdOptions { nesterov: true, ..momentum },
        SgdOptions { nesterov: true, weight_decay: 0.1, ..momentum },
        SgdOptions { dampening: 0.4, ..momentum },
    ];
    for o in all {
        let d = cpu();
        let p = parameter(&d, "p");
        let mut sgd = Sgd::new(vec![p.clone()], o).expect("valid");
        assert_close(&run(&d, &p.1, &mut sgd), &sgd_on_host(o), F64);
    }
}

fn adam_on_host(o: AdamWOptions) -> Vec<f64> {
    let (mut p, mut m, mut v) = (start(), vec![0.0; N], vec![0.0; N]);
    let lr = o.lr;
    for i in 0..STEPS {
        let t = i as i32 + 1;
        for (k, g) in gradient(i).into_iter().enumerate() {
            let g = if o.decoupled { g } else { g + o.weight_decay * p[k] };
            if o.decoupled {
                p[k] *= 1.0 - lr * o.weight_decay;
            }
            m[k] = o.beta1 * m[k] + (1.0 - o.beta1) * g;
            v[k] = o.beta2 * v[k] + (1.0 - o.beta2) * g * g;
            let (mh, vh) = (m[k] / (1.0 - o.beta1.powi(t)), v[k] / (1.0 - o.beta2.powi(t)));
            p[k] -= lr * mh / (vh.sqrt() + o.eps);
        }
    }
    p
}

#[test]
fn adam_and_adamw_are_their_formulas() {
    let w = AdamWOptions { lr: 0.05, ..AdamWOptions::default() };
    let all = [
        w,
        AdamWOptions { beta1: 0.5, beta2: 0.9, eps: 1e-3, weight_decay: 0.3, ..w },
        AdamWOptions { lr: 0.05, ..AdamWOptions::adam() },
        AdamWOptions { lr: 0.05, weight_decay: 0.3, ..AdamWOptions::adam() },
    ];
    for o in all {
        let d = cpu();
        let p = parameter(&d, "p");
        let mut adam = AdamW::new(vec![p.clone()], o).expect("valid");
        assert_close(&run(&d, &p.1, &mut adam), &adam_on_host(o), F64);
    }
}

#[test]
fn a_parameter_without_a_gradient_stays_and_does_not_count_the_step() {
    let d = cpu();
    let (a, b) = (parameter(&d, "a"), parameter(&d, "b"));
    let mut adam = AdamW::new(vec![a.clone(), b.clone()], AdamWOptions::default()).expect("valid");
    run(&d, &a.1, &mut adam);
    assert_eq!(state(&b.1), start());
    let s = adam.state_dict().expect("values");
    let step = |n: &str| s[n].item::<i64>().expect("one");
    assert_eq!((step("a.step"), step("b.step")), (STEPS as i64, 0));
    assert_eq!(s.len(), 6);
}

#[test]
fn groups_have_options_of_their_own() {
    let d = cpu();
    let (a, b) = (parameter(&d, "a"), parameter(&d, "b"));
    let (slow, fast) = (
        SgdOptions { lr: 0.01, ..SgdOptions::default() },
        SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() },
    );
    let mut sgd = Sgd::new(vec![a.clone()], slow).expect("valid");
    sgd.add_group(vec![b.clone()], fast).expect("valid");
    for i in 0..STEPS {
        for p in [&a.1, &b.1] {
            p.set_grad(Some(Tensor::from_slice(&d, &gradient(i), [N]).expect("fits"))).expect("same shape");
        }
        sgd.step().expect("valid");
    }
    assert_close(&state(&a.1), &sgd_on_host(slow), F64);
    assert_close(&state(&b.1), &sgd_on_host(fast), F64);
    assert_eq!(sgd.state_dict().expect("values").keys().collect::<Vec<_>>(), ["b.momentum_buffer"]);
    sgd.set_lr(0.5);
    assert_eq!(sgd.group_options().iter().map(|o| o.lr).collect::<Vec<_>>(), [0.5, 5.0]);
    assert_eq!(sgd.lr(), 0.5);
}

#[test]
fn a_rate_that_is_set_keeps_the_proportions_of_groups() {
    let with = |lr| SgdOptions { lr, ..SgdOptions::default() };
    let rates = |sgd: &Sgd| sgd.group_options().iter().map(|o| o.lr).collect::<Vec<_>>();
    let make = |all: &[f64]| {
        let mut sgd = Sgd::new(vec![], with(all[0])).expect("valid");
        all[1..].iter().for_each(|lr| sgd.add_group(vec![], with(*lr)).expect("valid"));
        sgd
    };
    let mut sgd = make(&[0.3, 0.3, 0.0, 0.15]);
    // equal ones stay equal to the last bit, and a rate of 0 on the way loses nothing
    for lr in [0.1, 0.7, 0.0, 0.2] {
        sgd.set_lr(lr);
        assert_eq!(rates(&sgd), [lr, lr, 0.0, lr * 0.5]);
    }
    // a group's options count as of now
    let other = SgdOptions { weight_decay: 0.1, ..sgd.group_options()[3] };
    sgd.set_group_options(3, other).expect("valid");
    sgd.set_lr(0.4);
    assert_eq!(rates(&sgd), [0.4, 0.4, 0.0, 0.2]);
    // the proportions come back with the options, also of a moment when all rates were 0
    sgd.set_lr(0.0);
    let mut again = make(&[1.0; 4]);
    again.load_options(&sgd.options().expect("json")).expect("fits");
    assert_eq!(rates(&again), [0.0; 4]);
    again.learning_rate().set(0.4);
    assert_eq!(rates(&again), [0.4, 0.4, 0.0, 0.2]);
    // where the first is not trained, the next one leads; where none is, all are the same
    let mut sgd = make(&[0.0, 0.5, 1.0]);
    sgd.set_lr(0.25);
    assert_eq!((rates(&sgd), sgd.lr()), (vec![0.0, 0.25, 0.5], 0.25));
    let mut sgd = make(&[0.0, 0.0]);
    sgd.set_lr(0.25);
    assert_eq!(rates(&sgd), [0.25; 2]);
}

#[test]
fn a_parameter_that_was_frozen_after_its_gradient_stays() {
    let d = cpu();
    let (a, b) = (parameter(&d, "a"), parameter(&d, "b"));
    let o = SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() };
    let mut sgd = Sgd::new(vec![a.clone(), b.clone()], o).expect("valid");
    for p in [&a.1, &b.1] {
        p.set_grad(Some(Tensor::from_slice(&d, &gradient(0), [N]).expect("fits"))).expect("same shape");
    }
    a.1.set_frozen(true);
    sgd.step().expect("valid");
    assert_eq!(state(&a.1), start());
    assert_ne!(state(&b.1), start());
    let momentum = sgd.state_dict().expect("values");
    assert!(momentum["a.momentum_buffer"].to_f64_vec().iter().all(|m| *m == 0.0));
    // the gradient does not wait for it
    a.1.set_frozen(false);
    sgd.step().expect("valid");
    assert_eq!(state(&a.1), start());
}

#[test]
fn gradients_are_clipped_once_and_unrounded() {
    let d = cpu();
    let of = |v: &[f32], dtype| {
        let p = Parameter::new(Tensor::zeros(&d, [v.len()], dtype).expect("fits")).expect("fits");
        let g = Tensor::new(&d, v, [v.len()]).expect("fits").cast(dtype).expect("a cast");
        p.set_grad(Some(g)).expect("same shape");
        p
    };
    let grad =
        |p: &Parameter| p.grad().expect("there").cast(DType::F64).expect("a cast").to_vec::<f64>().expect("values");
    // a factor of 1.7e-8, and a norm of 60000 or beyond f16
    for (n, want) in [(4usize, 5e-4), (400, 5e-5)] {
        let p = of(&vec![30000.0; n], DType::F16);
        let norm = clip_grad_norm(std::slice::from_ref(&p), 1e-3).expect("clips").item::<f32>().expect("one");
        assert_eq!(norm, 30000.0 * (n as f32).sqrt());
        // One rounding to f16, of a product whose own error is far from where the rounding turns.
        assert!(grad(&p).iter().all(|g| *g == f16::from_f64(want).to_f64()), "{:?}", grad(&p)[0]);
    }
    // squares that leave f32
    let p = of(&[3e30, 4e30], DType::F32);
    assert_eq!(clip_grad_norm(std::slice::from_ref(&p), 10.0).expect("clips").item::<f32>().expect("one"), 5e30);
    assert!(grad(&p).iter().zip([6.0, 8.0]).all(|(g, w)| (g / w - 1.0).abs() < 1e-6));
    // a parameter that is named twice
    let p = of(&[3.0, 4.0], DType::F64);
    let twice = [p.clone(), p.clone()];
    assert_eq!(clip_grad_norm(&twice, 1.0).expect("clips").item::<f64>().expect("one"), 5.0);
    assert!(grad(&p).iter().zip([0.6, 0.8]).all(|(g, w)| (g - w).abs() < 1e-6));
    clip_grad_value(&twice, 0.7).expect("clips");
    assert!(grad(&p)[1] == 0.7 && (grad(&p)[0] - 0.6).abs() < 1e-6);
}

#[test]
fn a_schedule_drives_the_rate() {
    let d = cpu();
    let p = parameter(&d, "p");
    let mut sgd = Sgd::new(vec![p.clone()], SgdOptions::default()).expect("valid");
    let schedule = Schedule::Cosine { lr: 0.5, min: 0.0, steps: 10 }.after_warmup(3);
    let mut want = start();
    for i in 0..STEPS {
        sgd.set_lr(schedule.at(i as u64));
        p.1.set_grad(Some(Tensor::from_slice(&d, &gradient(i), [N]).expect("fits"))).expect("same shape");
        sgd.step().expect("valid");
        want.iter_mut().zip(gradient(i)).for_each(|(w, g)| *w -= schedule.at(i as u64) * g);
    }
    assert_close(&state(&p.1), &want, F64);
}

#[test]
fn state_and_options_survive_a_round_trip() {
    let d = cpu();
    let p = parameter(&d, "p");
    let o = AdamWOptions { lr: 0.05, ..AdamWOptions::default() };
    let mut a = AdamW::new(vec![p.clone()], o).expect("valid");
    run(&d, &p.1, &mut a);
    let mut b = AdamW::new(vec![p], AdamWOptions::default()).expect("valid");
    b.load_state_dict(&a.state_dict().expect("values"), true).expect("fits");
    b.load_options(&a.options().expect("json")).expect("fits");
    assert_eq!(b.state_dict().expect("values"), a.state_dict().expect("values"));
    assert_eq!(b.lr(), 0.05);
    let sgd = Sgd::new(vec![], SgdOptions::default()).expect("valid");
    assert_eq!(b.load_options(&sgd.options().expect("json")).expect_err("sgd's").kind(), ErrorKind::Format);
}

#[test]
fn options_outside_their_domain_are_refused() {
    let d = cpu();
    let kind = |o: SgdOptions| Sgd::new(vec![parameter(&d, "p")], o).err().expect("refused").kind();
    let base = SgdOptions::default();
    assert_eq!(kind(SgdOptions { lr: -1.0, ..base }), ErrorKind::Value);
    assert_eq!(kind(SgdOptions { lr: f64::NAN, ..base }), ErrorKind::Value);
    assert_eq!(kind(SgdOptions { momentum: -0.1, ..base }), ErrorKind::Value);
    assert_eq!(kind(SgdOptions { nesterov: true, ..base }), ErrorKind::Value);
    let bad = AdamWOptions { beta1: 1.0, ..AdamWOptions::default() };
    assert_eq!(AdamW::new(vec![], bad).err().expect("refused").kind(), ErrorKind::Value);
    let p = parameter(&d, "p");
    let twice = vec![p.clone(), ("q".to_owned(), p.1)];
    assert_eq!(Sgd::new(twice, base).err().expect("refused").kind(), ErrorKind::Value);
    let two = vec![parameter(&d, "p"), parameter(&d, "p")];
    assert_eq!(Sgd::new(two, base).err().expect("refused").kind(), ErrorKind::Value);
    let apart = vec![parameter(&d, "p"), parameter(&cpu(), "q")];
    assert_eq!(Sgd::new(apart, base).err().expect("refused").kind(), ErrorKind::Device);
}

#[test]
fn state_that_does_not_fit_is_the_constructors_error() {
    let d = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(100 << 10) }).expect("a CPU");
    let big = HostTensor::zeros(DType::F32, [16 << 10]).expect("small");
    let p = ("p".to_owned(), Parameter::from_host(&d, &big, Role::Trained).expect("64 of 100 KiB"));
    let e = AdamW::new(vec![p.clone()], AdamWOptions::default()).err().expect("three times 64 KiB");
    assert_eq!(e.kind(), ErrorKind::Budget);
    d.channel().set_budget(Some(300 << 10)).expect("grows");
    AdamW::new(vec![p], AdamWOptions::default()).expect("fits now");
}

/// A gradient of 4 numbers that was made from 1 MiB, which a budget set later does not hold again; and what is made of the same
/// constant and takes more bytes, for else the gradient would be kept in its place.
fn out_of_reach(d: &Device) -> [Tensor; 2] {
    let wide = Tensor::full(d, [256 << 10], DType::F32, 0.5).expect("fits");
    let sum = wide.exp().expect("float").sum().expect("float");
    let made = [4, 64].map(|n| sum.broadcast_to([n]).expect("fits").tanh().expect("float"));
    made.iter().for_each(|t| d.channel().wait(t.handle()).expect("computed"));
    drop((wide, sum));
    d.channel().evict_all().expect("open");
    made
}

#[test]
fn a_gradient_that_cannot_be_brought_back_moves_no_parameter() {
    for async_level in [AsyncLevel::Full, AsyncLevel::Sync] {
        let o = DeviceOptions { threads: 1, async_level, ..DeviceOptions::with_budget(8 << 20) };
        let d = Device::cpu(o).expect("a CPU");
        let p: Vec<(String, Parameter)> = ["a", "b"]
            .map(|n| (n.to_owned(), Parameter::from_host(&d, &host(&[1.0; 4], [4]), Role::Trained).expect("fits")))
            .into();
        let o = SgdOptions { lr: 1.0, momentum: 0.5, ..SgdOptions::default() };
        let mut sgd = Sgd::new(p.clone(), o).expect("valid");
        let good = || Some(Tensor::new(&d, &[1.0f32, 2.0, 3.0, 4.0], [4]).expect("fits"));
        p[0].1.set_grad(good()).expect("same shape");
        let [bad, _beside] = out_of_reach(&d);
        p[1].1.set_grad(Some(bad)).expect("same shape");
        d.channel().set_budget(Some(100 << 10)).expect("holds the state");
        assert_eq!(sgd.step().is_ok(), async_level == AsyncLevel::Full);
        let _ = d.channel().sync();
        assert_eq!(state(&p[0].1), [1.0; 4], "{async_level:?}: half a step was taken");
        assert_eq!(state(&p[1].1), [1.0; 4], "{async_level:?}");
        assert!(sgd.state_dict().expect("intact").values().all(|b| b.to_f64_vec() == [0.0; 4]));
        p.iter().for_each(|(_, p)| p.set_grad(good()).expect("same shape"));
        sgd.step().expect("the failed step has ended");
        assert_eq!(state(&p[1].1), [0.0, -1.0, -2.0, -3.0], "{async_level:?}");
    }
}

#[test]
fn clipping_by_norm_scales_all_gradients_alike() {
    let d = cpu();
    let p: Vec<Parameter> =
        (0..2).map(|_| Parameter::from_host(&d, &host(&[0.0, 0.0], [2]), Role::Trained).expect("fits")).collect();
    let grads = || {
        for (p, g) in p.iter().zip([[3.0f32, 0.0], [0.0, 4.0]]) {
            p.set_grad(Some(Tensor::new(&d, &g, [2]).expect("fits"))).expect("same shape");
        }
    };
    let all = || p.iter().flat_map(|p| values(&p.grad().expect("kept"))).collect::<Vec<f64>>();
    grads();
    assert_eq!(values(&clip_grad_norm(&p, 1.0).expect("two gradients")), [5.0]);
    assert_close(&all(), &[0.6, 0.0, 0.0, 0.8], 1e-6);
    grads();
    clip_grad_norm(&p, 100.0).expect("two gradients");
    assert_eq!(all(), [3.0, 0.0, 0.0, 4.0], "short enough already");
    clip_grad_value(&p, 3.5).expect("a limit");
    assert_eq!(all(), [3.0, 0.0, 0.0, 3.5]);
    assert_eq!(clip_grad_norm(&p, -1.0).expect_err("negative").kind(), ErrorKind::Value);
    assert_eq!(clip_grad_norm(&[], 1.0).expect_err("none").kind(), ErrorKind::Value);
}

#[test]
fn half_precision_norms_do_not_overflow() {
    let d = cpu();
    let p = Parameter::new(Tensor::zeros(&d, [1000], DType::F16).expect("fits")).expect("fits");
    p.set_grad(Some(Tensor::full(&d, [1000], DType::F16, 1000.0).expect("fits"))).expect("same shape");
    // the squares' sum is 1e9, beyond f16's 65504
    let norm = clip_grad_norm(std::slice::from_ref(&p), 1.0).expect("a gradient");
    assert_close(&values(&norm), &[1e9f64.sqrt()], 1e-6);
    // f16 keeps eleven bits
    assert_close(&values(&p.grad().expect("kept"))[..1], &[1e-3f64.sqrt()], 5e-4);
}
