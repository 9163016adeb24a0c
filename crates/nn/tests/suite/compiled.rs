//! Compiled functions against the eager programs that they are.

use std::cell::RefCell;
use std::rc::Rc;

use remat_emulated::EmulatedOptions;
use remat_nn::*;
use remat_runtime::{AsyncLevel, Device, DeviceOptions, MemoryFigures, SpillRates, SpillTo};
use remat_tensor::{
    Collect, CompileOptions, Compiled, Dim, ScanOptions, Symbols, Tensor, compile, compile_with, grad, no_grad, scan,
};
use remat_types::{ErrorKind, HostTensor, Result, Scope};

use crate::support::{cpu, host, tensor, values, wave32};

/// Names and bytes of tensors.
pub(crate) type Bits = Vec<(String, Vec<u8>)>;

/// Convolution, batch norm, dropout, a skip connection, pooling, a linear layer.
pub(crate) struct Net {
    device: Device,
    pub(crate) layers: Sequential,
    head: Sequential,
}

impl Net {
    pub(crate) fn new(device: &Device) -> Net {
        let cx = &mut InitCx::new(device, 3);
        let mut rng = Rng::new(5);
        let layers = Sequential::new()
            .then(Conv2d::new(cx, 2, 4, 3).expect("valid"))
            .then(BatchNorm2d::new(cx, 4).expect("valid"))
            .then(Relu)
            .then(Dropout::new(0.2, &mut rng).expect("valid"));
        let head = Sequential::new().then(Flatten::default()).then(Linear::new(cx, 4 * 4 * 4, 3).expect("valid"));
        Net { device: device.clone(), layers, head }
    }

    pub(crate) fn parameters(&self) -> Vec<(String, Parameter)> {
        let mut all = self.layers.named_parameters();
        all.extend(self.head.named_parameters().into_iter().map(|(n, p)| (format!("head.{n}"), p)));
        all
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layers.forward(x)?;
        let z = (&y + &y.tanh()?)?;
        self.head.forward(&z)
    }

    pub(crate) fn batch(&self, n: usize, step: usize) -> (Tensor, Tensor) {
        let x = tensor(&self.device, &wave32(n * 2 * 36, step as f64), [n, 2, 6, 6]);
        let labels: Vec<i64> = (0..n).map(|i| ((i + step) % 3) as i64).collect();
        (x, Tensor::new(&self.device, &labels, [n]).expect("fits"))
    }

    pub(crate) fn bits(&self) -> Bits {
        let mut all = self.layers.state_dict().expect("values");
        all.extend(self.head.state_dict().expect("values").into_iter().map(|(n, t)| (format!("head.{n}"), t)));
        all.into_iter().map(|(n, t)| (n, t.bytes().to_vec())).collect()
    }
}

pub(crate) fn step(net: &Net, o: &mut dyn Optimizer, x: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let loss = net.forward(x)?.cross_entropy(labels)?;
    loss.backward()?;
    clip_grad_norm(&net.parameters().into_iter().map(|(_, p)| p).collect::<Vec<_>>(), 5.0)?;
    o.step()?;
    Ok(loss.detach())
}

/// Losses, final state bits and optimiser state bits of six steps whose batch sizes alternate and whose rate changes.
fn train(device: &Device, compiled: Option<CompileOptions>, adam: bool) -> (Vec<f32>, Bits, Vec<HostTensor>) {
    let net = Rc::new(Net::new(device));
    let optimizer: Box<dyn Optimizer> = if adam {
        Box::new(AdamW::new(net.parameters(), AdamWOptions { lr: 0.01, ..Default::default() }).expect("valid"))
    } else {
        let o = SgdOptions { lr: 0.1, momentum: 0.9, nesterov: true, ..Default::default() };
        Box::new(Sgd::new(net.parameters(), o).expect("valid"))
    };
    let optimizer = Rc::new(RefCell::new(optimizer));
    let rate = optimizer.borrow().learning_rate();
    let inner = (net.clone(), optimizer.clone());
    let is_compiled = compiled.is_some();
    let options = compiled.unwrap_or_default();
    let traces = match (is_compiled, &options.symbols) {
        (false, _) => 0,
        (true, None) => 2,    // one for each batch size
        (true, Some(_)) => 5, // two neighbouring sizes and three checks
    };
    let mut run = compile_with(device, options, move |x: &[Tensor]| {
        Ok(vec![step(&inner.0, &mut **inner.1.borrow_mut(), &x[0], &x[1])?])
    });
    let mut losses = Vec::new();
    for i in 0..6 {
        rate.set(0.1 / (1.0 + i as f64));
        let (x, labels) = net.batch(if i % 3 == 2 { 5 } else { 8 }, i);
        let loss = if is_compiled {
            run.call(&[&x, &labels]).expect("runs").swap_remove(0)
        } else {
            step(&net, &mut **optimizer.borrow_mut(), &x, &labels).expect("runs")
        };
        losses.push(loss.item::<f32>().expect("a number"));
    }
    assert_eq!((run.traces(), run.plans()), (traces, if is_compiled { 2 } else { 0 }));
    let state = optimizer.borrow().state_dict().expect("values").into_values().collect();
    (losses, net.bits(), state)
}

#[test]
fn compiled_training_is_eager_training_bit_for_bit() {
    let given = || Some(CompileOptions::default());
    for adam in [false, true] {
        let eager = train(&cpu(), None, adam);
        assert_eq!(eager, train(&cpu(), given(), adam), "adam: {adam}");
        for level in [0, 1] {
            let mut options = CompileOptions::default();
            options.passes.level = level;
            assert_eq!(eager, train(&cpu(), Some(options), adam), "adam: {adam}, level {level}");
        }
        let sync = DeviceOptions { threads: 1, async_level: AsyncLevel::Sync, ..DeviceOptions::default() };
        assert_eq!(eager, train(&Device::cpu(sync).expect("a CPU"), given(), adam), "waiting for every op");
        let emulated = EmulatedOptions::default()
            .open()
            .and_then(|b| Device::with_backend(b, DeviceOptions { threads: 1, ..Default::default() }));
        let emulated = emulated.expect("a device");
        let other = train(&emulated, None, adam);
        assert_eq!(other, train(&emulated, given(), adam), "an asynchronous device");
    }
}

#[test]
fn one_trace_over_symbols_trains_at_any_batch_size_bit_for_bit() {
    let symbols = Symbols::new(&[Dim::new("b", 1, 32)], &["b _ _ _", "b"]).expect("named");
    for adam in [false, true] {
        for level in [0, 2] {
            let mut options = CompileOptions { symbols: Some(symbols.clone()), ..Default::default() };
            options.passes.level = level;
            assert_eq!(train(&cpu(), Some(options), adam), train(&cpu(), None, adam), "adam: {adam}, level {level}");
        }
    }
}

#[test]
fn dropout_draws_a_new_mask_in_every_run() {
    let d = cpu();
    let drop = Dropout::new(0.5, &mut Rng::new(1)).expect("valid");
    let mut f = compile(&d, move |x: &[Tensor]| Ok(vec![drop.forward(&x[0])?]));
    let x = tensor(&d, &[1.0; 64], [64]);
    let mut one = || f.call(&[&x]).expect("runs")[0].to_vec::<f32>().expect("values");
    let (a, b) = (one(), one());
    assert_ne!(a, b);
    let eager = Dropout::new(0.5, &mut Rng::new(1)).expect("valid");
    assert_eq!(a, eager.forward(&x).expect("runs").to_vec::<f32>().expect("values"));
    assert_eq!(b, eager.forward(&x).expect("runs").to_vec::<f32>().expect("values"));
}

#[test]
fn dropout_within_a_loop_drops_anew_in_every_step() {
    let d = cpu();
    let run = |drop: &Dropout, x: &Tensor| -> Result<Vec<Tensor>> {
        let x = x.detach().requires_grad()?;
        let options = ScanOptions { trips: Some(3), ..Default::default() };
        let (end, all) = scan(&options, &[&x], &[], |_, c, _| {
            let y = drop.forward(&c[0])?;
            Ok((vec![y.clone()], vec![Collect::All(drop.forward(&y.ones_like()?)?)]))
        })?;
        let dx = grad(&end[0].sum()?, &[&x], false)?;
        Ok(end.into_iter().chain(all).chain(dx.into_iter().flatten()).collect())
    };
    let x = tensor(&d, &[1.0; 64], [64]);
    let (eager, inner) = (Dropout::new(0.25, &mut Rng::new(1)), Dropout::new(0.25, &mut Rng::new(1)));
    let (eager, inner) = (eager.expect("valid"), inner.expect("valid"));
    let mut f = compile(&d, |x: &[Tensor]| run(&inner, &x[0]));
    let values = |y: Vec<Tensor>| -> Vec<Vec<f32>> { y.iter().map(|t| t.to_vec().expect("values")).collect() };
    let mut masks: Vec<Vec<f32>> = Vec::new();
    for _ in 0..2 {
        let want = values(run(&eager, &x).expect("runs"));
        assert_eq!(values(f.call(&[&x]).expect("runs")), want);
        // the input is ones: the result is the product of the masks, and so is the gradient, which draws nothing itself
        assert_eq!(want[0], want[2]);
        assert!(want[0].iter().filter(|v| **v > 0.0).count() < 40, "about 27 of 64 are left after three steps");
        masks.extend(want[1].chunks(64).map(<[f32]>::to_vec));
    }
    assert!((0..6).all(|i| (0..i).all(|j| masks[i] != masks[j])), "no two steps of any run drop the same");
}

#[test]
fn evaluation_after_training_is_compiled_anew() {
    let d = cpu();
    let net = Rc::new(Net::new(&d));
    let inner = net.clone();
    let mut f = compile(&d, move |x: &[Tensor]| {
        let _quiet = no_grad();
        Ok(vec![inner.forward(&x[0])?])
    });
    let (x, _) = net.batch(4, 0);
    f.call(&[&x]).expect("runs");
    net.layers.eval();
    let want = {
        let _quiet = no_grad();
        net.forward(&x).expect("runs").to_vec::<f32>().expect("values")
    };
    assert_eq!(f.call(&[&x]).expect("runs")[0].to_vec::<f32>().expect("values"), want);
    assert_eq!(f.traces(), 2);
    net.layers.train();
    f.call(&[&x]).expect("runs");
    assert_eq!(f.traces(), 2, "the first form still stands");
}

#[test]
fn inference_takes_parameters_as_constants_until_they_are_set() {
    let d = cpu();
    let net = Rc::new(Net::new(&d));
    let (x, _) = net.batch(4, 0);
    net.forward(&x).expect("statistics move");
    net.layers.eval();
    let inner = net.clone();
    let mut f = compile_with(&d, CompileOptions::inference(), move |x: &[Tensor]| {
        let _quiet = no_grad();
        Ok(vec![inner.forward(&x[0])?])
    });
    let mut near = |why: &str, traces: usize| {
        let _quiet = no_grad();
        let got = f.call(&[&x]).expect("runs")[0].to_vec::<f32>().expect("values");
        let want = net.forward(&x).expect("runs").to_vec::<f32>().expect("values");
        let most = want.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-5 * most), "{why}: {got:?}, {want:?}");
        assert_eq!(f.traces(), traces, "{why}");
        f.graph(&[&x]).expect("compiled")
    };
    let g = near("first", 1);
    assert_eq!(g.states().len(), 0);
    assert!(g.nodes().iter().all(|n| n.op.name() != "batch_norm_infer"), "{:?}", g.nodes());
    near("again", 1);
    let (_, p) = net.parameters().into_iter().find(|(n, _)| n.ends_with("weight")).expect("a weight");
    let _quiet = no_grad();
    p.set(&p.get().expect("a value").mul(1.5).expect("fits")).expect("fits");
    near("after a change", 2);
}

#[test]
fn what_cannot_be_compiled_is_an_error_that_says_why() {
    let d = cpu();
    let x = tensor(&d, &[1.0, 2.0], [2]);
    let error = |f: &mut dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>| compile(&d, f).call(&[&x]).expect_err("refused");
    let e = error(&mut |x| {
        let v: f32 = x[0].sum()?.item()?;
        Ok(vec![Tensor::scalar(&x[0].device(), v)?])
    });
    assert_eq!(e.kind(), ErrorKind::NoValue);
    assert!(e.to_string().contains("compiled.rs"), "the line that read: {e}");
    let p = Parameter::new(x.clone()).expect("valid");
    let e = error(&mut |x| {
        p.get()?.mul(&x[0])?.sum()?.backward()?;
        Ok(vec![])
    });
    assert!(e.message().contains("gradient at the end"), "{e}");
    assert!(p.grad().is_none(), "nothing of the trace is left");
    let mut rng = Rng::new(1);
    let e = error(&mut |x| Ok(vec![Tensor::from_host(&x[0].device(), &rng.next_host_key()?)?]));
    assert!(e.message().contains("drawing a key"), "{e}");
    let o = SgdOptions { lr: 0.1, ..Default::default() };
    let mut sgd = Sgd::new(vec![("p".into(), p.clone())], o).expect("valid");
    let e = error(&mut |x| {
        sgd.set_lr(0.5);
        Ok(vec![x[0].clone()])
    });
    assert!(e.message().contains("learning rate"), "{e}");
    p.get().expect("a value").sum().expect("fits").backward().expect("tracked");
    let e = error(&mut |x| {
        p.get()?.mul(&x[0])?.sum()?.backward()?;
        Ok(vec![])
    });
    assert!(e.message().contains("gradient at the end"), "{e}");
    assert_eq!(values(&p.grad().expect("that of before")), [1.0, 1.0]);
    let other = cpu();
    let y = tensor(&other, &[1.0, 2.0], [2]);
    let e = error(&mut |x| Ok(vec![x[0].add(&y)?]));
    assert_eq!(e.kind(), ErrorKind::Device, "{e}");
}

#[test]
fn a_tensor_that_outlives_its_trace_is_an_error() {
    let d = cpu();
    let x = tensor(&d, &[1.0, 2.0], [2]);
    let mut kept = None;
    let line = line!() + 2;
    let mut f = compile(&d, |x: &[Tensor]| {
        kept = Some(x[0].relu()?);
        Ok(vec![x[0].clone()])
    });
    let e = f.call(&[&x]).expect_err("it would be stale from the second call on");
    assert_eq!(e.kind(), ErrorKind::Value, "{e}");
    assert_eq!(e.call_site().map(|s| s.line()), Some(line), "{e}");
    drop(f);
    let kept = kept.expect("set");
    assert_eq!(kept.exp().expect_err("no data").kind(), ErrorKind::Value);
    assert_eq!(kept.to_host().expect_err("no data").kind(), ErrorKind::NoValue);
    d.channel().sync().expect("the device lost nothing");
}

#[test]
fn a_failing_run_leaves_every_state_as_it_was() {
    for level in [AsyncLevel::Full, AsyncLevel::Sync] {
        let d = Device::cpu(DeviceOptions { threads: 1, async_level: level, ..Default::default() }).expect("a CPU");
        let net = Rc::new(Net::new(&d));
        let o = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
        let sgd = Rc::new(RefCell::new(Sgd::new(net.parameters(), o).expect("valid")));
        let inner = (net.clone(), sgd.clone());
        let mut f =
            compile(&d, move |x: &[Tensor]| Ok(vec![step(&inner.0, &mut *inner.1.borrow_mut(), &x[0], &x[1])?]));
        let (x, labels) = net.batch(4, 0);
        f.call(&[&x, &labels]).expect("runs")[0].item::<f32>().expect("a number");
        let before = net.bits();
        let wrong = Tensor::new(&d, &[0i64, 1, 7, 2], [4]).expect("fits");
        let e = f.call(&[&x, &wrong]).and_then(|y| y[0].item::<f32>()).expect_err("label 7 of 3");
        assert!(e.to_string().contains("7"), "{e}");
        assert_eq!(net.bits(), before, "{level:?}");
        let y = f.call(&[&x, &labels]).and_then(|y| y[0].item::<f32>());
        assert!(y.is_ok(), "training goes on, {level:?}: {y:?}");
        assert_ne!(net.bits(), before);
    }
}

#[test]
fn a_version_that_somebody_holds_stays() {
    let d = cpu();
    let p = Parameter::buffer(tensor(&d, &[1.0, 2.0], [2])).expect("valid");
    let own = p.clone();
    let mut f = compile(&d, move |x: &[Tensor]| {
        own.set(&own.get()?.add(&x[0])?)?;
        Ok(vec![own.get()?.mul(2.0)?])
    });
    let x = tensor(&d, &[1.0, 1.0], [2]);
    let held = p.get().expect("a value");
    let y = f.call(&[&x]).expect("runs");
    assert_eq!(held.to_vec::<f32>().expect("values"), [1.0, 2.0]);
    assert_eq!(p.to_host().expect("a value"), host(&[2.0, 3.0], [2]));
    assert_eq!(y[0].to_vec::<f32>().expect("values"), [4.0, 6.0]);
}

#[test]
fn states_that_swap_and_outputs_that_repeat_are_right() {
    let d = cpu();
    let a = Parameter::buffer(tensor(&d, &[1.0], [1])).expect("valid");
    let b = Parameter::buffer(tensor(&d, &[2.0], [1])).expect("valid");
    let (p, q) = (a.clone(), b.clone());
    let mut f = compile(&d, move |x: &[Tensor]| {
        let (old_a, old_b) = (p.get()?, q.get()?);
        p.set(&old_b)?;
        q.set(&old_a)?;
        Ok(vec![old_a.clone(), old_a, x[0].clone(), x[0].reshape(&[2])?])
    });
    let x = tensor(&d, &[5.0, 6.0], [1, 2]);
    for (wa, wb) in [(2.0, 1.0), (1.0, 2.0)] {
        let y = f.call(&[&x]).expect("runs");
        assert_eq!(a.to_host().expect("a value"), host(&[wa], [1]));
        assert_eq!(b.to_host().expect("a value"), host(&[wb], [1]));
        assert_eq!(y[0].to_vec::<f32>().expect("values"), [wb]);
        assert_eq!(y[1].to_vec::<f32>().expect("values"), [wb]);
        assert_eq!(y[3].to_vec::<f32>().expect("values"), [5.0, 6.0]);
    }
}

#[test]
fn compiled_and_eager_work_share_one_budget() {
    let run = |budget: Option<usize>| {
        let d = Device::cpu(DeviceOptions { budget_bytes: budget, threads: 1, ..Default::default() }).expect("a CPU");
        let x = tensor(&d, &wave32(64 * 64, 0.0), [64, 64]);
        let mut f = compile(&d, |x: &[Tensor]| {
            let y = x[0].matmul(&x[0])?.tanh()?;
            Ok(vec![y.matmul(&x[0])?.add(&y)?])
        });
        // Eager tensors that fill the memory and can be made again.
        let extra: Vec<Tensor> = (0..8).map(|i| x.add(i as f32).expect("fits")).collect();
        let y = f.call(&[&x]).expect("runs").swap_remove(0);
        let mut out = y.to_host().expect("a value").bytes().to_vec();
        for t in &extra {
            out.extend(t.to_host().expect("a value").bytes());
        }
        (out, d.channel().stats().expect("open").peak_bytes)
    };
    let (want, peak) = run(None);
    let budget = peak * 6 / 10;
    let (got, under) = run(Some(budget));
    assert_eq!(got, want);
    assert!(under <= budget && peak > budget, "{under} of {budget}, {peak} without");
}

#[test]
fn executables_of_one_graph_run_on_several_threads() {
    let d = cpu();
    let x = tensor(&d, &wave32(32 * 32, 0.3), [32, 32]);
    let make = || compile(&d, |x: &[Tensor]| Ok(vec![x[0].matmul(&x[0])?.tanh()?]));
    let want = make().call(&[&x]).expect("runs")[0].to_vec::<f32>().expect("values");
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let mut f = make();
                for _ in 0..20 {
                    assert_eq!(f.call(&[&x]).expect("runs")[0].to_vec::<f32>().expect("values"), want);
                }
            });
        }
    });
}

/// A training step of eight wide layers, compiled within a share of the memory that it takes without a budget: losses,
/// parameters, and figures at the first and the last run. Runs so often, or until the plan is the last one.
fn deep(share: Option<f64>, runs: Option<usize>) -> (Vec<f32>, Bits, MemoryFigures, MemoryFigures) {
    deep_on(&cpu(), share, runs)
}

fn deep_on(d: &Device, share: Option<f64>, runs: Option<usize>) -> (Vec<f32>, Bits, MemoryFigures, MemoryFigures) {
    let mut cx = InitCx::new(d, 3);
    let mut net = Sequential::new();
    for _ in 0..8 {
        net = net.then(Linear::new(&mut cx, 16, 16).expect("fits")).then(Tanh);
    }
    let net = Rc::new(net);
    let o = SgdOptions { lr: 0.05, momentum: 0.9, ..Default::default() };
    let sgd = Rc::new(RefCell::new(Sgd::new(net.named_parameters(), o).expect("valid")));
    let compile = |memory_budget: Option<usize>| {
        let (net, sgd) = (net.clone(), sgd.clone());
        compile_with(d, CompileOptions { memory_budget, ..Default::default() }, move |x: &[Tensor]| {
            let loss = net.forward(&x[0])?.square()?.mean()?;
            loss.backward()?;
            sgd.borrow_mut().step()?;
            Ok(vec![loss.detach()])
        })
    };
    let x = tensor(d, &wave32(256 * 16, 0.5), [256, 16]);
    let free = compile(None).executable(&[&x]).expect("compiles").figures();
    let all = free.arena_bytes + free.state_bytes + free.input_bytes + free.output_bytes;
    let mut f = compile(share.map(|s| (all as f64 * s) as usize));
    let first = f.executable(&[&x]).expect("compiles").figures();
    let estimated = f.plan_times();
    let mut losses = Vec::new();
    // So long that only a planner which never ends is caught, and not a busy machine.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(900);
    while runs.map_or(!f.is_settled(), |n| losses.len() < n) {
        assert!(std::time::Instant::now() < end, "no last plan within a quarter of an hour");
        losses.push(f.call(&[&x]).and_then(|y| y[0].item::<f32>()).expect("runs"));
    }
    if let (Some(e), Some(p), true) = (estimated, f.plan_times(), f.is_settled()) {
        // also where the first plan stays: the second gave its base and its bound
        assert_ne!(p.base_ns, e.base_ns, "{p:?} after {e:?}");
        assert!(p.planned_ns >= p.bound_ns && p.bound_ns >= p.base_ns, "{p:?}");
    }
    let bits = net.state_dict().expect("values").into_iter().map(|(n, t)| (n, t.bytes().to_vec())).collect();
    (losses, bits, first, f.figures()[0])
}

#[test]
fn a_budget_of_a_compiled_step_is_kept_and_changes_no_bit() {
    let (losses, bits, free, _) = deep(None, Some(5));
    assert_eq!(free.recomputed_calls, 0);
    for share in [0.75, 0.6] {
        let (l, b, f, _) = deep(Some(share), Some(5));
        assert_eq!((&l, &b), (&losses, &bits), "{share}");
        let total = |f: MemoryFigures| f.arena_bytes + f.state_bytes + f.input_bytes + f.output_bytes;
        assert!(total(f) as f64 <= total(free) as f64 * share, "{f:?} of {free:?}");
        assert!(f.recomputed_calls > 0, "{f:?}");
    }
}

#[test]
fn a_compiled_step_spills_where_its_device_may_and_changes_no_bit() {
    let (losses, bits, ..) = deep(None, Some(5));
    let folder = tempfile::tempdir().expect("a folder");
    let rates = SpillRates { write_bytes_per_s: 1 << 50, read_bytes_per_s: 1 << 50 };
    let spill = Some(SpillTo::with_rates(folder.path(), rates).expect("positive"));
    let d = Device::cpu(DeviceOptions { threads: 1, spill, ..Default::default() }).expect("the CPU opens");
    let (l, b, first, _) = deep_on(&d, Some(0.75), Some(5));
    assert!(first.spilled_bytes > 0 && first.recomputed_calls == 0, "copies cost nothing: {first:?}");
    assert!(l == losses && b == bits);
    // until the plan with measured rates, in which they do cost something
    let (l, b, ..) = deep_on(&d, Some(0.75), None);
    let (losses, bits, ..) = deep(None, Some(l.len()));
    assert!(l == losses && b == bits, "bits do not depend on the plan");
}

#[test]
fn a_plan_is_made_again_with_measured_times() {
    let (losses, bits, first, last) = deep(Some(0.75), None);
    assert!(first.recomputed_calls > 0 && losses.len() > 1, "{first:?}");
    assert!(last.recomputed_calls > 0, "{last:?}");
    let (l, b, ..) = deep(None, Some(losses.len()));
    assert_eq!((l, b), (losses, bits), "bits do not depend on the plan");
}

#[test]
fn a_trace_shows_the_calls_of_a_compiled_function_within_it() {
    let d = cpu();
    let mut f = compile(&d, |x: &[Tensor]| {
        let _scope = Scope::enter("layer");
        Ok(vec![x[0].exp()?.matmul(&x[0])?.sum()?])
    });
    let x = tensor(&d, &wave32(256, 0.5), [16, 16]);
    let run = |f: &mut Compiled<_>| f.call(&[&x]).and_then(|y| y[0].item::<f32>()).expect("runs");
    let value = run(&mut f);
    d.channel().start_trace().expect("open");
    assert_eq!(run(&mut f), value);
    let json = d.channel().stop_trace().expect("open").to_chrome_json();
    let spans = |json: &serde_json::Value| -> Vec<(String, f64, f64, String)> {
        let all = json["traceEvents"].as_array().expect("events");
        let ran = all.iter().filter(|e| e["ph"] == "X" && e["cat"] == "execution");
        let text = |v: &serde_json::Value| v.as_str().expect("text").to_owned();
        let time = |v: &serde_json::Value| v.as_f64().expect("a number");
        ran.map(|e| (text(&e["name"]), time(&e["ts"]), time(&e["dur"]), text(&e["args"]["scope"]))).collect()
    };
    let all = spans(&json);
    let at = all.iter().position(|s| s.0 == "compiled").expect("one command");
    let (calls, whole) = (&all[at + 1..at + 4], &all[at]);
    assert_eq!(calls.iter().map(|c| c.0.as_str()).collect::<Vec<_>>(), ["exp", "matmul", "sum"]);
    for c in calls {
        assert!(c.1 >= whole.1 && c.1 + c.2 <= whole.1 + whole.2 && c.2 > 0.0, "{c:?} in {whole:?}");
        assert_eq!(c.3, "layer");
    }
    let alone = f.executable(&[&x]).expect("compiles").trace().to_chrome_json();
    assert_eq!(spans(&alone).iter().map(|s| s.2).collect::<Vec<_>>(), calls.iter().map(|s| s.2).collect::<Vec<_>>());
}

#[test]
fn a_budget_that_cannot_be_met_is_refused_when_it_is_compiled() {
    let d = cpu();
    let options = CompileOptions { memory_budget: Some(1000), ..Default::default() };
    let mut f = compile_with(&d, options, |x: &[Tensor]| Ok(vec![x[0].exp()?.matmul(&x[0].sin()?)?.sum()?]));
    let x = tensor(&d, &wave32(256, 0.5), [16, 16]);
    let e = f.call(&[&x]).expect_err("1000 bytes");
    assert_eq!(e.kind(), ErrorKind::Budget);
    let s = e.shortfall().expect("figures");
    assert!(s.smallest_feasible_bytes >= 3 * 1024, "{s:?}");
}

#[test]
fn a_part_of_a_tensor_comes_in_as_what_it_is() {
    let d = cpu();
    let all = tensor(&d, &wave32(12, 0.3), [6, 2]);
    let mut parts: Vec<Tensor> = [0, 2, 4].map(|at| all.narrow(0, at, 2).expect("within")).into();
    parts.push(all.narrow(0, 1, 2).expect("within").t().expect("a matrix"));
    let held = all.narrow(0, 3, 2).expect("within");
    let f = |x: &[Tensor]| Ok(vec![(x[0].exp()? + &held)?]);
    let mut compiled = compile(&d, f);
    for x in &parts {
        let want = f(std::slice::from_ref(x)).expect("runs")[0].to_vec::<f32>().expect("values");
        assert_eq!(compiled.call(&[x]).expect("runs")[0].to_vec::<f32>().expect("values"), want);
    }
    assert_eq!(compiled.traces(), 1);
}
