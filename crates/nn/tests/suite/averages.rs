//! Averages of weights, statistics that fit them, clipping by other norms, and parametrised weights.

use remat_nn::*;
use remat_runtime::Device;
use remat_tensor::{Tensor, gradcheck};
use remat_types::{DType, ErrorKind, HostTensor};

use crate::support::{F32, assert_close, cpu, set, state, tensor, values, wave};

fn linear(d: &Device) -> Linear {
    let l = Linear::new(&mut InitCx::new(d, 1), 2, 1).expect("fits");
    set(&l.weight, &[1.0, 2.0]);
    set(l.bias.as_ref().expect("bias"), &[4.0]);
    l
}

#[test]
fn an_exponential_average_follows_and_a_mean_counts_all_the_same() {
    let d = cpu();
    let l = linear(&d);
    let mut ema = Average::new(&l, AverageOptions::ema(0.75)).expect("fits");
    let mut mean = Average::new(&l, AverageOptions::swa()).expect("fits");
    for w in [[8.0, 0.0], [0.0, 8.0], [4.0, 4.0]] {
        set(&l.weight, &w);
        ema.update().expect("fits");
        mean.update().expect("fits");
    }
    // the first is taken as it is: 8, 6, 5.5
    let of = |a: &Average, n: &str| a.state_dict().expect("values")[n].to_f64_vec();
    assert_eq!(of(&ema, "weight"), [5.5, 2.5]);
    assert_close(&of(&mean, "weight"), &[4.0, 4.0], 1e-6);
    assert_eq!((of(&ema, "n_averaged"), of(&ema, "bias")), (vec![3.0], vec![4.0]));
    ema.swap().expect("fits");
    assert_eq!(state(&l.weight), [5.5, 2.5]);
    assert_eq!(of(&ema, "weight"), [4.0, 4.0]);
    ema.swap().expect("fits");
    assert_eq!(state(&l.weight), [4.0, 4.0]);
    let mut again = Average::new(&l, AverageOptions::ema(0.75)).expect("fits");
    again.load_state_dict(&ema.state_dict().expect("values"), true).expect("fits");
    again.copy_to_module().expect("fits");
    assert_eq!(state(&l.weight), [5.5, 2.5]);
    let bad = Average::new(&l, AverageOptions::ema(1.5)).err().expect("no share");
    assert_eq!(bad.kind(), ErrorKind::Value);
}

#[test]
fn statistics_of_batches_are_their_means() {
    let d = cpu();
    let bn = BatchNorm1d::new(&mut InitCx::new(&d, 1), 1).expect("fits");
    bn.eval();
    let batches = [[0.0f32, 2.0], [4.0, 8.0], [1.0, 1.0]];
    let seen = update_batch_norm(&bn, batches.iter().map(|b| Tensor::new(&d, b, [2, 1])), |x| bn.forward(&x).map(drop));
    assert_eq!(seen.expect("batches"), 3);
    assert_close(&state(&bn.running_mean), &[8.0 / 3.0], F32);
    // unbiased: 2, 8 and 0
    assert_close(&state(&bn.running_var), &[10.0 / 3.0], F32);
    // modes and momenta are as before
    bn.forward(&tensor(&d, &[100.0, 200.0], [2, 1])).expect("fits");
    assert_close(&state(&bn.running_mean), &[8.0 / 3.0], F32);
    bn.train();
    bn.forward(&tensor(&d, &[8.0 / 3.0 + 10.0; 2], [2, 1])).expect("fits");
    assert_close(&state(&bn.running_mean), &[8.0 / 3.0 + 1.0], F32);
}

#[test]
fn gradients_are_clipped_by_any_norm() {
    let d = cpu();
    let of = |v: &[f64]| {
        let p = Parameter::from_host(&d, &HostTensor::zeros(DType::F64, [v.len()]).expect("small"), Role::Trained);
        let p = p.expect("fits");
        p.set_grad(Some(Tensor::from_slice(&d, v, [v.len()]).expect("fits"))).expect("same shape");
        p
    };
    let grads = |p: &[Parameter]| p.iter().flat_map(|p| values(&p.grad().expect("kept"))).collect::<Vec<_>>();
    for (p, norm) in [(1.0, 7.0), (2.0, 5.0), (3.0, 91f64.cbrt()), (f64::INFINITY, 4.0)] {
        let both = [of(&[3.0, 0.0]), of(&[-4.0])];
        let found = clip_grad_norm_with(&both, 1.0, p).expect("two gradients");
        assert_close(&values(&found), &[norm], 1e-14);
        assert_close(&grads(&both), &[3.0 / norm, 0.0, -4.0 / norm], 1e-6);
    }
    assert_eq!(clip_grad_norm_with(&[of(&[1.0])], 1.0, 0.0).expect_err("no norm").kind(), ErrorKind::Value);
}

#[test]
fn batches_are_accumulated_as_one() {
    let d = cpu();
    let l = linear(&d);
    let x = [tensor(&d, &[1.0, 2.0, 3.0, -1.0], [2, 2]), tensor(&d, &[0.5, 1.0, -2.0, 1.0], [2, 2])];
    let of = |x: &Tensor| loss::mse(&l.forward(x)?, &Tensor::zeros(&d, [x.dims()[0], 1], DType::F32)?, Reduction::Mean);
    let mut both = Accumulate::new(2).expect("two");
    assert!(!both.backward(&of(&x[0]).expect("a loss")).expect("a gradient"));
    assert!(both.backward(&of(&x[1]).expect("a loss")).expect("a gradient"));
    let apart = values(&l.weight.take_grad().expect("a gradient"));
    of(&Tensor::concat(&[&x[0], &x[1]], 0).expect("fits")).expect("a loss").backward().expect("a gradient");
    assert_close(&apart, &values(&l.weight.take_grad().expect("a gradient")), F32);
    assert_eq!(Accumulate::new(0).expect_err("none").kind(), ErrorKind::Value);
}

#[test]
fn a_weight_of_length_and_direction_is_the_weight() {
    let d = cpu();
    let l = linear(&d);
    let x = tensor(&d, &[1.0, -1.0], [1, 2]);
    let plain = values(&l.forward(&x).expect("fits"));
    let n = WeightNorm::new(l, "weight").expect("a matrix");
    let names: Vec<String> = n.named_parameters().into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]);
    assert_close(&values(&n.forward(&x).expect("fits")), &plain, F32);
    // longer by a factor of 2
    set(&n.g, &[2.0 * 5f64.sqrt()]);
    assert_close(&values(&n.forward(&x).expect("fits")), &[2.0 * (1.0 - 2.0) + 4.0], F32);
    n.forward(&x).expect("fits").sum().expect("a number").backward().expect("a gradient");
    // along the direction: x v / |v|; across it, the rest
    assert_close(&values(&n.g.grad().expect("a gradient")), &[-1.0 / 5f64.sqrt()], F32);
    let dv = values(&n.v.grad().expect("a gradient"));
    assert_close(&[dv[0] + 2.0 * dv[1]], &[0.0], 1e-5);
    let l = n.into_inner().expect("fits");
    assert_close(&state(&l.weight), &[2.0, 4.0], F32);
    assert_eq!(WeightNorm::new(l, "bias").err().expect("a vector").kind(), ErrorKind::Value);
}

#[test]
fn a_spectral_norm_divides_by_the_largest_singular_value() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    let l = Linear::new(cx, 2, 2).expect("fits");
    // singular values of 5 and 2
    set(&l.weight, &[0.0, 5.0, 2.0, 0.0]);
    set(l.bias.as_ref().expect("bias"), &[0.0, 0.0]);
    let n = SpectralNorm::new(l, "weight", &mut Rng::new(3)).expect("a matrix");
    let x = tensor(&d, &[1.0, 1.0], [1, 2]);
    assert_close(&values(&n.forward(&x).expect("fits")), &[1.0, 0.4], 1e-4);
    n.eval();
    assert_close(&values(&n.forward(&x).expect("fits")), &[1.0, 0.4], 1e-4);
    let names: Vec<String> = n.named_state().into_iter().map(|(n, _)| n).collect();
    let of = |n: &str| format!("parametrizations.weight.{n}");
    assert_eq!(names, ["bias".to_owned(), of("original"), of("0._u"), of("0._v")]);
    n.forward(&x).expect("fits").sum().expect("a number").backward().expect("a gradient");
    assert!(n.named_parameters()[1].1.grad().is_some());
}

#[test]
fn layers_of_two_inputs_are_their_formulas() {
    let d = cpu();
    let b = Bilinear::new(&mut InitCx::new(&d, 1), [2, 3], 2).expect("fits");
    let (x, y) = (tensor(&d, &[1.0, 2.0, -1.0, 0.5], [2, 2]), tensor(&d, &[1.0, 0.0, 2.0, -1.0, 1.0, 3.0], [2, 3]));
    let (w, bias) = (state(&b.weight), state(b.bias.as_ref().expect("bias")));
    let (xs, ys) = (values(&x), values(&y));
    let mut want = Vec::new();
    for n in 0..2 {
        for o in 0..2 {
            let sum: f64 = (0..6).map(|k| xs[2 * n + k / 3] * w[6 * o + k] * ys[3 * n + k % 3]).sum();
            want.push(sum + bias[o]);
        }
    }
    assert_close(&values(&b.forward(&x, &y).expect("fits")), &want, F32);
    assert_eq!(b.forward(&y, &x).expect_err("swapped").kind(), ErrorKind::Shape);
    let cos = CosineSimilarity::default().forward(&x, &x).expect("fits");
    assert_close(&values(&cos), &[1.0, 1.0], F32);
    let apart = PairwiseDistance { p: 1.0, eps: 0.0, keepdims: true }.forward(&x, &x.neg().expect("float"));
    assert_close(&values(&apart.expect("fits")), &[6.0, 3.0], F32);
}

#[test]
fn dropping_of_parts_keeps_or_drops_the_whole() {
    let d = cpu();
    let x = Tensor::ones(&d, [8, 6, 5], DType::F32).expect("fits");
    let mut rng = Rng::new(4);
    let wholes = |y: &[f64], n: usize| y.chunks(n).all(|c| c.iter().all(|v| *v == c[0]));
    let (c, p) = (Dropout1d::new(0.5, &mut rng).expect("valid"), DropPath::new(0.5, &mut rng).expect("valid"));
    let (y, z) = (values(&c.forward(&x).expect("fits")), values(&p.forward(&x).expect("fits")));
    assert!(wholes(&y, 5) && !wholes(&y, 30) && wholes(&z, 30) && !wholes(&z, 240));
    assert_eq!(Dropout2d::new(0.5, &mut rng).expect("valid").forward(&x).expect_err("a line").kind(), ErrorKind::Axis);
    c.eval();
    assert_eq!(values(&c.forward(&x).expect("fits")), values(&x));
    let noise = Tensor::normal(&rng.next_key(&d).expect("open"), [20_000], DType::F64, 0.0, 1.0).expect("fits");
    let a = AlphaDropout::new(0.2, &mut rng).expect("valid");
    let y = a.forward(&noise).expect("fits");
    assert!(values(&y.mean().expect("float"))[0].abs() < 0.03);
    assert!((values(&y.var(0).expect("float"))[0] - 1.0).abs() < 0.05);
    let none = AlphaDropout::new(1.0, &mut rng).expect("valid").forward(&x).expect("fits");
    assert!(values(&none).iter().all(|v| *v == 0.0));
}

#[test]
fn slopes_that_are_trained_or_drawn() {
    let d = cpu();
    let x = tensor(&d, &[-1.0, 2.0, -3.0, -4.0], [1, 2, 2]);
    let p = Prelu::new(&mut InitCx::new(&d, 1), 2).expect("fits");
    set(&p.weight, &[0.5, 0.25]);
    assert_eq!(values(&p.forward(&x).expect("fits")), [-0.5, 2.0, -0.75, -1.0]);
    assert_eq!(p.forward(&tensor(&d, &[1.0; 3], [1, 3])).expect_err("3").kind(), ErrorKind::Shape);
    let one = Prelu::new(&mut InitCx::new(&d, 1), 1).expect("fits");
    assert_eq!(values(&one.forward(&x).expect("fits")), [-0.25, 2.0, -0.75, -1.0]);
    let r = RRelu::with(0.25, 0.5, &mut Rng::new(1)).expect("ascend");
    let y = values(&r.forward(&x).expect("fits"));
    assert!(y[1] == 2.0 && (-0.5..=-0.25).contains(&y[0]) && (-2.0..=-1.0).contains(&y[3]));
    r.eval();
    assert_eq!(values(&r.forward(&x).expect("fits")), [-0.375, 2.0, -1.125, -1.5]);
    assert_eq!(RRelu::with(0.5, 0.25, &mut Rng::new(1)).err().expect("descend").kind(), ErrorKind::Value);
}

#[test]
fn groups_are_made_by_names() {
    let d = cpu();
    let l = linear(&d);
    let groups = group_by_name(l.named_parameters(), &["w*", "*"]);
    assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0]);
    let (decay, none) = split_decay(l.named_parameters());
    assert_eq!((decay[0].0.as_str(), none[0].0.as_str()), ("weight", "bias"));
}

#[test]
fn hard_samples_have_the_gradients_of_soft_ones() {
    let d = cpu();
    let key = Tensor::new(&d, &[7u64, 1], [2]).expect("fits");
    let x = Tensor::from_slice(&d, &wave(12, 0.5), [3, 4]).expect("fits").requires_grad().expect("float");
    let (soft, hard) =
        (|x: &Tensor| x.gumbel_softmax(0.7, false, 1, &key), |x: &Tensor| x.gumbel_softmax(0.7, true, 1, &key));
    let weight = Tensor::from_slice(&d, &wave(12, 2.0), [3, 4]).expect("fits");
    let grad = |f: &dyn Fn(&Tensor) -> remat_types::Result<Tensor>| {
        f(&x).expect("fits").mul(&weight).expect("fits").sum().expect("fits").backward().expect("a gradient");
        values(&x.take_grad().expect("a gradient"))
    };
    assert_eq!(grad(&hard), grad(&soft));
    let y = values(&hard(&x).expect("fits"));
    assert!(y.chunks(4).all(|row| row.iter().sum::<f64>() == 1.0 && row.iter().all(|v| *v == 0.0 || *v == 1.0)));
    gradcheck(&d, &[x.detach().to_host().expect("values")], |x| soft(&x[0])).expect("differences agree");
}
