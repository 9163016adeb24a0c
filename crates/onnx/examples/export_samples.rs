//! Writes every sample of every op that has a form in ONNX as a model, with its inputs and results: `scripts/check_export.py
//! --samples` has the standard's checker look at them and ONNX Runtime run them.
//!
//! `cargo run -p remat-onnx --example export_samples -- FOLDER [OPSET]`

use std::error::Error;
use std::fs::File;
use std::path::Path;

use remat_graph::ir::Builder;
use remat_kernels::pool::Pool;
use remat_onnx::export::{DataPlace, ExportOptions, export};
use remat_ops::testing::each_sample;
use remat_ops::{OpRef, Sample, eval_on_host};
use remat_runtime::control_flow::registry;
use remat_types::{DType, Fact, HostTensor, Result, write_npz};

/// NumPy has no such floats.
fn is_known(t: &HostTensor) -> bool {
    t.dtype() != DType::BF16
}

/// Writes a sample, if it computes something and can be written.
fn write(s: &Sample<OpRef>, name: &str, folder: &Path, options: &ExportOptions) -> Result<bool> {
    let Ok(y) = eval_on_host(&*s.op, &s.x, &Pool::new(1)) else { return Ok(false) };
    if !s.x.iter().chain(&y).all(is_known) {
        return Ok(false);
    }
    let b = Builder::raw();
    let x: Vec<_> = s.x.iter().map(|t| b.input(Fact::new(t.dtype(), t.shape().clone()), None)).collect();
    b.node(s.op.clone(), &x, None)?.iter().enumerate().for_each(|(j, v)| b.output(*v, &format!("y{j}")));
    let names = (0..s.x.len()).map(|k| format!("x{k}")).collect();
    let Ok(model) = export(&b.finish()?, &ExportOptions { inputs: names, ..options.clone() }) else { return Ok(false) };
    model.save(folder.join(format!("{name}.onnx")), DataPlace::Inside)?;
    let named = |kind: &'static str| move |(k, t)| (format!("{kind}{k}"), t);
    let x = s.x.iter().enumerate().map(named("x"));
    let all: Vec<(String, &HostTensor)> = x.chain(y.iter().enumerate().map(named("y"))).collect();
    write_npz(
        all.iter().map(|(name, t)| (name.as_str(), *t)),
        false,
        File::create(folder.join(format!("{name}.npz")))?,
    )?;
    Ok(true)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: export_samples FOLDER [OPSET]")?;
    std::fs::create_dir_all(&folder)?;
    let mut options = ExportOptions::default();
    if let Some(opset) = arguments.next() {
        options.opset = opset.parse()?;
    }
    let (mut written, mut failure) = (0, None);
    each_sample(&registry(), |entry, i, s| {
        match write(s, &format!("{}.{i}.{}", entry.name, s.op.label()), Path::new(&folder), &options) {
            Ok(done) => written += usize::from(done),
            Err(e) => drop(failure.get_or_insert(e)),
        }
    });
    println!("{written} samples");
    failure.map_or(Ok(()), |e| Err(e.into()))
}
