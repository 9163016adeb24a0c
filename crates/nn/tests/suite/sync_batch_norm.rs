//! Batch norm over the batches of several ranks, against one process that has them as one batch.

use std::time::Duration;

use remat_nn::distributed::{Communicator, FullySharded, SyncBatchNorm, synchronise_batch_norms, threads};
use remat_nn::{BatchNorm, BatchNorm1d, BatchNorm2d, BatchNormOptions, ConvNorm, InitCx, Layer, Module};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile, grad};
use remat_types::{DType, ErrorKind, HostTensor, Result};

use crate::support::wave;

const LIMIT: Duration = Duration::from_secs(120);
const CHANNELS: usize = 3;
const PLACES: usize = 4;
const STEPS: usize = 2;

/// Sums of some tens of numbers around 1 in f64.
const F64: f64 = 1e-12;

/// Sums of some tens of numbers around 1 in f32.
const F32: f64 = 5e-6;

/// Two last bits of f16: statistics are in f32.
const F16: f64 = 2e-3;

fn device(ranks: Option<&Communicator>, budget_bytes: Option<usize>) -> Result<Device> {
    Device::cpu(DeviceOptions { threads: 1, budget_bytes, ranks: ranks.cloned(), ..Default::default() })
}

/// Rows `from .. to` of a batch `[n, CHANNELS, PLACES]` around `centre`, and weights for a loss of theirs.
fn rows(d: &Device, dtype: DType, step: usize, from: usize, to: usize, centre: f64) -> Result<[Tensor; 2]> {
    let row = CHANNELS * PLACES;
    let of = |phase: f64, centre: f64| {
        let all: Vec<f64> = wave(to * row, phase + step as f64).into_iter().map(|v| v + centre).collect();
        let shape = [to - from, CHANNELS, PLACES];
        Tensor::from_host(d, &HostTensor::from_f64_slice(&all[from * row..], dtype, shape)?)
    };
    Ok([of(0.3, centre)?, of(1.9, 0.0)?])
}

/// The results of some steps: outputs and gradients of inputs, step by step; gradients of parameters; all state.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    y: Vec<Vec<f64>>,
    dx: Vec<Vec<f64>>,
    parameters: Vec<Vec<f64>>,
    state: Vec<Vec<f64>>,
}

fn steps(norm: &impl Layer, d: &Device, dtype: DType, rows_of: [usize; 2], centre: f64) -> Result<Seen> {
    let mut seen = Seen { y: vec![], dx: vec![], parameters: vec![], state: vec![] };
    for step in 0..STEPS {
        let [x, weight] = rows(d, dtype, step, rows_of[0], rows_of[1], centre)?;
        let x = x.requires_grad()?;
        let y = norm.forward(&x)?;
        y.mul(&weight)?.sum()?.backward()?;
        seen.y.push(y.to_host()?.to_f64_vec());
        seen.dx.push(x.grad().expect("used").to_host()?.to_f64_vec());
    }
    for p in norm.parameters() {
        seen.parameters.push(p.grad().expect("used").to_host()?.to_f64_vec());
    }
    for (_, p) in norm.named_buffers() {
        seen.state.push(p.to_host()?.to_f64_vec());
    }
    Ok(seen)
}

/// Parameters that are not 1 and 0.
fn prepared<const D: usize>(norm: BatchNorm<D>) -> Result<BatchNorm<D>> {
    for (p, phase) in [(&norm.weight, 0.7), (&norm.bias, 2.1)] {
        p.set_host(&HostTensor::from_f64_slice(&wave(CHANNELS, phase), p.dtype(), p.shape())?)?;
    }
    Ok(norm)
}

fn layer(d: &Device, dtype: DType, options: BatchNormOptions) -> Result<BatchNorm1d> {
    let mut cx = InitCx::new(d, 1);
    cx.dtype = dtype;
    prepared(BatchNorm::with(&mut cx, CHANNELS, options)?)
}

/// The ranks' parts put together as the whole batch has them.
fn together(parts: &[Seen]) -> Seen {
    let mut all = parts[0].clone();
    for part in &parts[1..] {
        for step in 0..STEPS {
            all.y[step].extend(&part.y[step]);
            all.dx[step].extend(&part.dx[step]);
        }
        for (sum, more) in all.parameters.iter_mut().zip(&part.parameters) {
            sum.iter_mut().zip(more).for_each(|(a, b)| *a += b);
        }
    }
    all
}

#[track_caller]
fn assert_near(got: &[Vec<f64>], want: &[Vec<f64>], tolerance: f64, what: &str) {
    assert_sums_near(got, want, 0.0, tolerance, what);
}

/// As [`assert_near`], of sums whose terms are as large as `term`.
#[track_caller]
fn assert_sums_near(got: &[Vec<f64>], want: &[Vec<f64>], term: f64, tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        // errors of a sum are relative to its terms, and so to the largest of the numbers
        let scale = want.iter().fold(term, |m, v| m.max(v.abs()));
        assert_eq!(got.len(), want.len(), "{what}");
        for (g, w) in got.iter().zip(want) {
            assert!((g - w).abs() <= tolerance * scale, "{what}: {g} against {w}\n{got:?}\n{want:?}");
        }
    }
}

fn compare(sizes: &[usize], dtype: DType, options: BatchNormOptions, centre: f64, tolerance: f64) {
    let all: usize = sizes.iter().sum();
    let d = device(None, None).expect("a device");
    let whole = layer(&d, dtype, options).and_then(|norm| steps(&norm, &d, dtype, [0, all], centre)).expect("runs");
    let parts = threads::run_within(sizes.len(), LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let norm = SyncBatchNorm::from_batch_norm(layer(&d, dtype, options)?, &ranks);
        let from = sizes[..ranks.rank()].iter().sum::<usize>();
        steps(&norm, &d, dtype, [from, from + sizes[ranks.rank()]], centre)
    });
    let parts = parts.unwrap_or_else(|e| panic!("{sizes:?}: {e}"));
    for (rank, part) in parts.iter().enumerate() {
        assert!(part.state == parts[0].state, "rank {rank} of {sizes:?} has other running statistics");
    }
    let got = together(&parts);
    let what = |part: &str| format!("{part} of {sizes:?} in {dtype} around {centre}, {options:?}");
    // the mean is known to some last bits of the centre; what is normalised is the distance from it, and its square is the variance's
    let of_mean = 8.0 * f64::from(f32::EPSILON) * centre;
    let (of_input, of_var) = (tolerance + of_mean, tolerance + of_mean * of_mean);
    assert_near(&got.y, &whole.y, of_input, &what("outputs"));
    assert_near(&got.dx, &whole.dx, of_input, &what("gradients of inputs"));
    let term = parts.iter().flat_map(|p| p.parameters.iter().flatten()).fold(0.0f64, |m, v| m.max(v.abs()));
    assert_sums_near(&got.parameters, &whole.parameters, term, of_input, &what("gradients of parameters"));
    assert_near(&got.state, &whole.state, of_var, &what("running statistics"));
}

/// The part of one of `ranks`, which may be processes, is that of one process with the whole batch.
pub(crate) fn check(ranks: &Communicator) -> Result<()> {
    const ROWS: usize = 3;
    let options = BatchNormOptions::default();
    let d = device(None, None)?;
    let whole = steps(&layer(&d, DType::F64, options)?, &d, DType::F64, [0, ROWS * ranks.size()], 0.0)?;
    let d = device(Some(ranks), None)?;
    let rows = [ROWS * ranks.rank(), ROWS * (ranks.rank() + 1)];
    let seen =
        steps(&SyncBatchNorm::from_batch_norm(layer(&d, DType::F64, options)?, ranks), &d, DType::F64, rows, 0.0)?;
    let own = |all: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let row = CHANNELS * PLACES;
        all.iter().map(|step| step[rows[0] * row..rows[1] * row].to_vec()).collect()
    };
    assert_near(&seen.y, &own(&whole.y), F64, "outputs");
    assert_near(&seen.dx, &own(&whole.dx), F64, "gradients of inputs");
    assert_near(&seen.state, &whole.state, F64, "running statistics");
    Ok(())
}

#[test]
fn ranks_give_what_one_process_gives_with_the_whole_batch() {
    let cumulative = BatchNormOptions { cumulative: true, momentum: 0.3, ..Default::default() };
    let untracked = BatchNormOptions { track_running_stats: false, eps: 0.1, ..Default::default() };
    for sizes in [&[4, 4][..], &[3, 3, 3], &[5, 2], &[1, 4, 2], &[6]] {
        for options in [BatchNormOptions::default(), cumulative, untracked] {
            compare(sizes, DType::F64, options, 0.0, F64);
            compare(sizes, DType::F32, options, 0.0, F32);
        }
        compare(sizes, DType::F16, BatchNormOptions::default(), 0.0, F16);
    }
}

#[test]
fn a_mean_far_from_0_costs_the_variance_no_digits() {
    // sums of squares around 1e8 would leave none of the variance's around 1
    for sizes in [&[4, 4][..], &[1, 4, 2]] {
        compare(sizes, DType::F32, BatchNormOptions::default(), 1e4, F32);
    }
    // and equal numbers, whose variance is 0, are not blown up by 1 / sqrt eps
    let seen = threads::run_within(3, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let norm = SyncBatchNorm::<1>::new(&mut InitCx::new(&d, 1), 1, &ranks)?;
        norm.forward(&Tensor::full(&d, [4 + ranks.rank(), 1], DType::F32, 12345.678)?)?.to_vec::<f32>()
    });
    assert!(seen.expect("runs").iter().flatten().all(|v| *v == 0.0));
}

#[test]
fn a_call_gathers_once_and_its_backward_pass_scatters_once() {
    threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let norm = SyncBatchNorm::from_batch_norm(layer(&d, DType::F32, Default::default())?, &ranks);
        let [x, weight] = rows(&d, DType::F32, 0, 0, 4, 0.0)?;
        let x = x.requires_grad()?;
        let calls = || -> Result<u64> {
            d.channel().sync()?;
            Ok(ranks.statistics().calls)
        };
        let before = calls()?;
        let y = norm.forward(&x)?;
        let forward = calls()?;
        y.mul(&weight)?.sum()?.backward()?;
        assert_eq!([forward - before, calls()? - forward], [1, 1]);
        norm.eval();
        let before = calls()?;
        norm.forward(&x)?;
        assert_eq!(calls()?, before, "an evaluation asks nobody");
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn evaluation_and_frozen_statistics_are_the_plain_layers() {
    threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let [x, _] = rows(&d, DType::F32, 0, 0, 3 + ranks.rank(), 0.5)?;
        for frozen in [false, true] {
            let options = BatchNormOptions { frozen, ..Default::default() };
            let plain = layer(&d, DType::F32, options)?;
            let sync = SyncBatchNorm::from_batch_norm(layer(&d, DType::F32, options)?, &ranks);
            // of equal names and shapes, so that a state dict fits either
            assert!(plain.state_dict()? == sync.state_dict()?);
            sync.forward(&x)?;
            plain.load_state_dict(&sync.state_dict()?, true)?;
            sync.eval();
            plain.eval();
            assert!(sync.forward(&x)?.to_host()? == plain.forward(&x)?.to_host()?);
        }
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn gradients_of_gradients_are_those_of_the_whole_batch() {
    // the gradient of the squares of the gradient of x
    let second = |norm: &dyn Layer, d: &Device, [from, to]: [usize; 2]| -> Result<Vec<f64>> {
        let [x, weight] = rows(d, DType::F64, 0, from, to, 0.0)?;
        let x = x.requires_grad()?;
        let y = norm.forward(&x)?.mul(&weight)?.square()?.sum()?;
        let dx = grad(&y, &[&x], true)?.swap_remove(0).expect("used");
        let twice = grad(&dx.square()?.sum()?, &[&x], false)?.swap_remove(0).expect("used");
        Ok(twice.to_host()?.to_f64_vec())
    };
    let d = device(None, None).expect("a device");
    let plain = layer(&d, DType::F64, Default::default()).expect("fits");
    let want = second(&plain, &d, [0, 5]).expect("runs");
    let parts = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let norm = SyncBatchNorm::from_batch_norm(layer(&d, DType::F64, Default::default())?, &ranks);
        second(&norm, &d, [[0, 2], [2, 5]][ranks.rank()])
    });
    assert_near(&[parts.expect("runs").concat()], &[want], 1e-10, "second gradients");
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Net {
    first: ConvNorm,
    blocks: Vec<ConvNorm>,
    last: BatchNorm2d,
}

impl Net {
    fn new(d: &Device) -> Result<Net> {
        let cx = &mut InitCx::new(d, 5);
        let blocks = (0..10).map(|_| ConvNorm::new(cx, 8, 8, 3, 1)).collect::<Result<_>>()?;
        Ok(Net { first: ConvNorm::new(cx, 3, 8, 3, 1)?, blocks, last: BatchNorm2d::new(cx, 8)? })
    }

    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = self.first.forward(x)?.tanh()?;
        for block in &self.blocks {
            h = block.forward(&h)?.tanh()?;
        }
        self.last.forward(&h)?.tanh()?.square()?.mean()
    }

    fn grads(&self) -> Result<Vec<HostTensor>> {
        self.parameters().iter().map(|p| p.take_grad().expect("used").to_host()).collect()
    }
}

fn picture(d: &Device, rank: usize) -> Result<Tensor> {
    let (n, values) = (2 + rank, wave((2 + rank) * 3 * 64, rank as f64));
    Tensor::from_host(d, &HostTensor::from_f64_slice(&values, DType::F32, [n, 3, 8, 8])?)
}

type Trained = (Vec<HostTensor>, Vec<HostTensor>);

/// Gradients and running statistics of one pass, and the peak and how many ops were made again.
fn eager(ranks: &Communicator, budget: Option<usize>) -> Result<(Trained, usize, u64)> {
    let d = device(Some(ranks), budget)?;
    let net = Net::new(&d)?;
    assert_eq!(synchronise_batch_norms(&net, Some(ranks)), 12);
    net.loss(&picture(&d, ranks.rank())?)?.backward()?;
    let buffers = net.named_buffers().iter().map(|(_, p)| p.to_host()).collect::<Result<_>>()?;
    let stats = d.channel().stats()?;
    Ok(((net.grads()?, buffers), stats.peak_bytes, stats.recomputed_ops))
}

#[test]
fn a_budget_and_a_graph_change_no_bits() {
    let free = threads::run_within(2, LIMIT, |ranks| eager(&ranks, None)).expect("runs");
    assert!(free[0].0.1 == free[1].0.1, "running statistics");
    let short = threads::run_within(2, LIMIT, |ranks| eager(&ranks, Some(free[ranks.rank()].1 * 7 / 10)));
    for (rank, (short, free)) in short.expect("fits").iter().zip(&free).enumerate() {
        assert!(short.0 == free.0, "rank {rank} within a budget");
        assert!(short.2 > 0, "rank {rank} had memory for everything");
    }
    let compiled = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = std::rc::Rc::new(Net::new(&d)?);
        synchronise_batch_norms(&*net, Some(&ranks));
        let own = net.clone();
        let mut f = compile(&d, move |x: &[Tensor]| {
            own.loss(&x[0])?.backward()?;
            own.parameters().iter().map(|p| Ok(p.take_grad().expect("used"))).collect()
        });
        let x = picture(&d, ranks.rank())?;
        let grads = f.call(&[&x])?.iter().map(Tensor::to_host).collect::<Result<Vec<_>>>()?;
        let buffers = net.named_buffers().iter().map(|(_, p)| p.to_host()).collect::<Result<Vec<_>>>()?;
        // a plain layer again is another function
        assert_eq!(synchronise_batch_norms(&*net, None), 12);
        d.channel().sync()?;
        let calls = ranks.statistics().calls;
        f.call(&[&x])?;
        d.channel().sync()?;
        assert_eq!((f.traces(), ranks.statistics().calls), (2, calls));
        Ok((grads, buffers))
    });
    for (rank, (compiled, free)) in compiled.unwrap_or_else(|e| panic!("{e}")).iter().zip(&free).enumerate() {
        assert!(*compiled == free.0, "rank {rank}, compiled");
    }
}

#[test]
fn ranks_that_differ_and_batches_of_nothing_are_errors() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let channels = 2 + ranks.rank();
        let norm = SyncBatchNorm::<1>::new(&mut InitCx::new(&d, 1), channels, &ranks)?;
        let none = norm.forward(&Tensor::zeros(&d, [0, channels], DType::F32)?).expect_err("no rows");
        assert!(none.kind() == ErrorKind::Shape && none.message().contains("[0, "), "{none}");
        let y = norm.forward(&Tensor::ones(&d, [2, channels], DType::F32)?)?;
        Ok(y.to_host().expect_err("other channels"))
    });
    for e in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert!(e.kind() == ErrorKind::Peer && e.to_string().contains("f32 [1, 5]"), "{e}");
        assert!(e.to_string().contains("f32 [1, 7]"), "{e}");
    }
}

#[test]
fn a_batch_norm_within_a_wrapper_is_synchronised_too() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let plain = layer(&d, DType::F64, BatchNormOptions::default())?;
        let wrapped = FullySharded::new(layer(&d, DType::F64, BatchNormOptions::default())?, &ranks)?;
        let both = SyncBatchNorm::from_batch_norm(plain, &ranks);
        synchronise_batch_norms(&wrapped, Some(&ranks));
        let x = wave(4 * CHANNELS, ranks.rank() as f64);
        let x = Tensor::from_host(&d, &HostTensor::from_f64_slice(&x, DType::F64, [4, CHANNELS])?)?;
        let (got, want) = (wrapped.forward(&x)?.to_host()?, both.forward(&x)?.to_host()?);
        let names: Vec<String> = wrapped.named_buffers().into_iter().map(|(name, _)| name).collect();
        Ok((got == want, names))
    });
    for (is_equal, names) in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert!(is_equal, "its statistics are those of its rank alone");
        assert_eq!(names, ["running_mean", "running_var"]);
    }
}

#[test]
fn each_rank_finds_its_own_part_right() {
    for size in [1, 2, 3] {
        threads::run_within(size, LIMIT, |ranks| check(&ranks)).unwrap_or_else(|e| panic!("{size} ranks: {e}"));
    }
}
