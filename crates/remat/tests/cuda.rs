//! Programs of tensors on the software device, beside the CPU: what has a kernel runs there, the rest on the host.
//!
//! `REMAT_CUDA_LIBRARIES=<folder of its library> cargo test -p remat --test cuda`

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
