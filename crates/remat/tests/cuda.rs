//! Programs of tensors on the software device, beside the CPU: what has a kernel runs there, the rest on the host.
//!
//! `REMAT_CUDA_LIBRARIES=<folder of its library> cargo test -p remat --test cuda`

use std::rc::Rc;

use remat::nn::{self, Layer, Module};
use remat::tensor::compile;
use remat::{DType, Device, DeviceOptions, Result, Tensor};
use remat_cuda::device::Cuda;
use remat_cuda::driver::{Compiler, Search, SoftwareOptions, software};

/// The compiler, where `REMAT_CUDA_LIBRARIES` names the folder of its library.
fn compiler() -> Option<Compiler> {
    let Some(folder) = std::env::var_os("REMAT_CUDA_LIBRARIES") else {
        println!("REMAT_CUDA_LIBRARIES names no folder: no source is compiled");
        return None;
    };
    Some(Compiler::open(&Search::default().first(folder)).expect("the folder has the compiler"))
}

fn cuda(seed: u64, budget_bytes: Option<usize>) -> Option<Device> {
    let compiler = compiler()?;
    let driver = software(SoftwareOptions { seed, ..SoftwareOptions::default() }).expect("a driver");
    let backend = Cuda::open(&driver, compiler, 0).expect("opens");
    let options = DeviceOptions { budget_bytes, host_fallback: true, threads: 1, ..DeviceOptions::default() };
    Some(Device::with_backend(Box::new(backend), options).expect("opens"))
}

fn cpu() -> Device {
    Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("opens")
}

/// A chain of layers and its gradients, with views, broadcasts and a dtype of 16 bits between.
fn program(device: &Device) -> Result<Vec<Vec<f32>>> {
    let x = Tensor::arange(device, 0, 24 * 16, 1, DType::F32)?.mul(0.01)?.sin()?.reshape(&[24, 16])?;
    let weights: Vec<Tensor> = (0..6)
        .map(|k| {
            let w = Tensor::arange(device, k, 256 + k, 1, DType::F32)?;
            w.mul(0.1)?.cos()?.mul(0.2)?.reshape(&[16, 16])?.requires_grad()
        })
        .collect::<Result<_>>()?;
    let mut h = x;
    for w in &weights {
        h = (h.matmul(w)? + &w.t()?.mean_over(&[0], true)?)?.tanh()?;
        h = h.cast(DType::BF16)?.cast(DType::F32)?;
    }
    let loss = h.square()?.sum()?;
    loss.backward()?;
    let mut all = vec![h.to_vec::<f32>()?, vec![loss.item::<f32>()?]];
    for w in &weights {
        all.push(w.grad().expect("it has one").to_vec::<f32>()?);
    }
    Ok(all)
}

#[test]
fn a_program_has_the_bits_of_the_cpu_under_every_budget_and_seed() {
    let want = program(&cpu()).expect("runs");
    let Some(free) = cuda(0, None) else { return };
    assert!(program(&free).expect("runs") == want);
    let stats = free.channel().stats().expect("open");
    assert!(stats.executed_ops > 2 * stats.host_fallback_ops, "{stats:?}");
    let always = cuda(0, Some(1 << 20)).expect("as above");
    assert!(program(&always).expect("runs") == want);
    let peak = always.channel().stats().expect("open").peak_bytes;
    for (seed, percent) in [(0, 100), (1, 75), (2, 60), (3, 50)] {
        let budget = peak * percent / 100;
        let device = cuda(seed, Some(budget)).expect("as above");
        let got = program(&device).unwrap_or_else(|e| panic!("{percent} %: {e}"));
        assert!(got == want, "{percent} %");
        let stats = device.channel().stats().expect("open");
        assert!(stats.peak_bytes <= budget, "{stats:?}");
        assert!(percent > 60 || stats.recomputed_ops > 0, "{percent} %: {stats:?}");
    }
}

/// A network with what a small model has: convolution, batch norm, a pool, an embedding, dropout, a product.
struct Net {
    device: Device,
    images: nn::Sequential,
    words: nn::Embedding,
    head: nn::Sequential,
}

const WORDS: usize = 10;
const BATCH: usize = 48;

impl Net {
    fn new(device: &Device) -> Result<Net> {
        let cx = &mut nn::InitCx::new(device, 3);
        let mut rng = nn::Rng::new(5);
        let images = nn::Sequential::new()
            .then(nn::Conv2d::new(cx, 2, 4, 3)?)
            .then(nn::BatchNorm2d::new(cx, 4)?)
            .then(nn::Relu)
            .then(nn::Dropout::new(0.2, &mut rng)?)
            .then(nn::Flatten::default());
        let head =
            nn::Sequential::new().then(nn::Linear::new(cx, 64, 16)?).then(nn::Gelu).then(nn::Linear::new(cx, 16, 3)?);
        Ok(Net { device: device.clone(), images, words: nn::Embedding::new(cx, WORDS, 64)?, head })
    }

    fn parameters(&self) -> Vec<(String, nn::Parameter)> {
        let of = |part: &str, layer: &dyn nn::Layer| {
            layer.named_parameters().into_iter().map(|(n, p)| (format!("{part}.{n}"), p)).collect::<Vec<_>>()
        };
        [of("images", &self.images), of("words", &self.words), of("head", &self.head)].concat()
    }

    /// Images, a word for each, labels.
    fn batch(&self, step: usize, word: i64) -> Result<[Tensor; 3]> {
        let v: Vec<f32> = (0..BATCH * 2 * 36).map(|i| ((i * 37 + step * 11) as f32 * 0.61).sin()).collect();
        let words: Vec<i64> = (0..BATCH).map(|i| if i == 0 { word } else { ((i * 7 + step) % WORDS) as i64 }).collect();
        let labels: Vec<i64> = (0..BATCH).map(|i| ((i + step) % 3) as i64).collect();
        Ok([
            Tensor::new(&self.device, &v, [BATCH, 2, 6, 6])?,
            Tensor::new(&self.device, &words, [BATCH])?,
            Tensor::new(&self.device, &labels, [BATCH])?,
        ])
    }

    fn step(&self, optimizer: &mut dyn nn::Optimizer, x: &[Tensor]) -> Result<Tensor> {
        let mut features = (self.images.forward(&x[0])? + &self.words.forward(&x[1])?)?;
        for _ in 0..6 {
            features = (features.tanh()? + &features.mul(0.5)?)?;
        }
        let loss = self.head.forward(&features)?.cross_entropy(&x[2])?;
        loss.backward()?;
        optimizer.step()?;
        Ok(loss.detach())
    }

    /// The state but for running statistics, which a forward pass changes before it is known to fail.
    fn bits(&self) -> Result<Vec<u8>> {
        let all = [self.images.state_dict()?, self.words.state_dict()?, self.head.state_dict()?];
        let kept = all.into_iter().flatten().filter(|(name, _)| !name.contains("running"));
        Ok(kept.flat_map(|(_, t)| t.bytes().to_vec()).collect())
    }
}

/// The state after steps with these first words, and the errors that the steps gave.
fn train(device: &Device, is_compiled: bool, words: &[i64]) -> Result<(Vec<u8>, Vec<String>)> {
    let net = Rc::new(Net::new(device)?);
    let options = nn::AdamWOptions { lr: 0.01, ..Default::default() };
    let mut adam = nn::AdamW::new(net.parameters(), options)?;
    let own = net.clone();
    let mut compiled = compile(device, move |x: &[Tensor]| Ok(vec![own.step(&mut adam, x)?]));
    let options = nn::AdamWOptions { lr: 0.01, ..Default::default() };
    let mut adam = nn::AdamW::new(net.parameters(), options)?;
    let mut errors = Vec::new();
    for (step, word) in words.iter().enumerate() {
        let x = net.batch(step, *word)?;
        let done = match is_compiled {
            true => compiled.call(&x.each_ref()).map(|_| ()),
            false => net.step(&mut adam, &x).map(|_| ()),
        };
        errors.extend(done.err().map(|e| e.to_string()));
        errors.extend(device.channel().sync().err().map(|e| e.to_string()));
    }
    Ok((net.bits()?, errors))
}

#[test]
fn training_has_the_same_bits_eager_compiled_and_under_budgets() {
    let words = [3, 7, 0, 9];
    let Some(free) = cuda(0, None) else { return };
    let (want, errors) = train(&free, false, &words).expect("runs");
    assert!(errors.is_empty(), "{errors:?}");
    let stats = free.channel().stats().expect("open");
    assert_eq!((stats.host_fallback_ops, stats.host_waits), (0, Some(0)), "{stats:?}");
    let peak = stats.peak_bytes;
    let percent = |p: usize| Some(peak * p / 100);
    let runs = [(true, 1, None), (true, 2, percent(80)), (false, 2, percent(100)), (false, 3, percent(75))];
    for (is_compiled, seed, budget) in runs {
        let device = cuda(seed, budget).expect("as above");
        let (got, errors) = train(&device, is_compiled, &words).unwrap_or_else(|e| panic!("{budget:?}: {e}"));
        assert!(errors.is_empty() && got == want, "compiled {is_compiled}, budget {budget:?} of {peak}: {errors:?}");
        let stats = device.channel().stats().expect("open");
        assert!(budget.is_none_or(|b| stats.peak_bytes <= b), "{stats:?}");
        assert!(is_compiled || budget.is_none_or(|b| b >= peak || stats.recomputed_ops > 0), "{stats:?}");
    }
}

#[test]
fn a_step_with_a_wrong_index_changes_nothing_and_the_next_one_goes_on() {
    if compiler().is_none() {
        return;
    }
    for is_compiled in [false, true] {
        let device = || cuda(u64::from(is_compiled), None).expect("as above");
        let (want, _) = train(&device(), is_compiled, &[3, 7]).expect("runs");
        let (got, errors) = train(&device(), is_compiled, &[3, 7, 10]).expect("runs");
        assert!(got == want, "compiled {is_compiled}: the step changed something");
        let first = errors.first().unwrap_or_else(|| panic!("compiled {is_compiled}: nothing was told"));
        assert!(first.contains("index 10 at position 0 is not in 0..10"), "{first}");
        let (got, errors) = train(&device(), is_compiled, &[3, 10, 10, 7]).expect("runs");
        assert!(!errors.is_empty());
        // steps 0 and 3 were taken
        let (want, _) = train(&device(), is_compiled, &[3]).expect("runs");
        assert!(got != want, "compiled {is_compiled}: no step was taken after the failed ones");
    }
}
