//! Times a model: `time MODEL.onnx [RUNS] [THREADS]`, with zeros as inputs of the declared shapes, and 1 for extents that are not fixed.

use std::time::Instant;

use remat_onnx::{Model, ValueType};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{CompileOptions, Tensor, compile_with};
use remat_types::{DType, Result};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_default();
    let mut number = |default: usize| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (runs, threads) = (number(10), number(1));
    let begin = Instant::now();
    let model = Model::open(&path)?;
    let device = Device::cpu(DeviceOptions { threads, ..Default::default() })?;
    let network = model.on(&device)?;
    println!("load         {:8.2} ms", begin.elapsed().as_secs_f64() * 1e3);
    let mut x = Vec::new();
    for p in model.inputs().iter().filter(|p| !p.has_default) {
        let (dtype, extents) = match &p.ty {
            ValueType::Tensor(dtype, extents) => (dtype.unwrap_or(DType::F32), extents.clone().unwrap_or_default()),
            _ => (DType::F32, Vec::new()),
        };
        let shape: Vec<usize> = extents.iter().map(|e| e.fixed().unwrap_or(1)).collect();
        x.push(Tensor::zeros(&device, shape, dtype)?);
    }
    let refs: Vec<&Tensor> = x.iter().collect();
    let time = |name: &str, f: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        let first = Instant::now();
        f()?;
        println!("{name} first {:8.2} ms", first.elapsed().as_secs_f64() * 1e3);
        let mut all = Vec::new();
        for _ in 0..runs {
            let begin = Instant::now();
            f()?;
            all.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        all.sort_by(f64::total_cmp);
        println!("{name} p50   {:8.2} ms, min {:.2} ms", all[all.len() / 2], all[0]);
        Ok(())
    };
    time("eager   ", &mut || network.call(&x)?.iter().try_for_each(|t| t.to_host().map(drop)))?;
    let mut f = compile_with(&device, CompileOptions::inference(), |x: &[Tensor]| network.call(x));
    time("compiled", &mut || f.call(&refs)?.iter().try_for_each(|t| t.to_host().map(drop)))?;
    let mut session = f.session(&refs)?;
    time("session ", &mut || session.run())
}
