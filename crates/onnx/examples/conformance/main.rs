//! Runs the backend test data of the ONNX standard, and writes what passes.
//!
//! `scripts/onnx_conformance.py` fetches the data and runs this. Each case is a folder with a model, inputs and the outputs that are
//! expected of them, at the standard's tolerances: a relative 1e-3 and an absolute 1e-7 unless the case says otherwise.

mod compare;
mod left_out;
mod report;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use remat_onnx::{Model, Port, Value, read_value};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile};
use remat_types::{DType, ErrorKind, HostTensor, Result};

/// The outcome of a case.
pub(crate) enum Outcome {
    Passed,
    /// Passed eagerly; compiled it needs values that a trace has not, such as scales that are inputs of the model.
    Eager(String),
    /// Why it is not run.
    LeftOut(&'static str),
    Failed(String),
}

/// A case: its kind, name, the operator that it is about, and what became of it.
pub(crate) struct Case {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) op: String,
    pub(crate) outcome: Outcome,
}

struct Options {
    data: PathBuf,
    only: Option<String>,
    compiled: bool,
    write: Option<PathBuf>,
    all: bool,
}

const USAGE: &str = "conformance DATA [--only TEXT] [--compiled] [--verbose] [--write FILE]";

fn options() -> std::result::Result<Options, String> {
    let mut args = std::env::args().skip(1);
    let mut o = Options { data: PathBuf::new(), only: None, compiled: false, write: None, all: false };
    while let Some(a) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{a} takes a value\n{USAGE}"));
        match a.as_str() {
            "--only" => o.only = Some(value()?),
            "--compiled" => o.compiled = true,
            "--verbose" => o.all = true,
            "--write" => o.write = Some(value()?.into()),
            _ if a.starts_with("--") => return Err(format!("{a}\n{USAGE}")),
            _ => o.data = a.into(),
        }
    }
    if o.data.as_os_str().is_empty() { Err(USAGE.to_owned()) } else { Ok(o) }
}

fn main() {
    let o = match options() {
        Ok(o) => o,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(2);
        }
    };
    // what fails is told by the report
    std::panic::set_hook(Box::new(|_| {}));
    let begin = Instant::now();
    let mut cases = Vec::new();
    for kind in ["node", "simple", "pytorch-operator", "pytorch-converted"] {
        for folder in folders(&o.data.join(kind)) {
            cases.extend(run_folder(&o, kind, &folder));
        }
    }
    cases.extend(light(&o));
    if cases.is_empty() {
        eprintln!("{}: no case of that name, or none at all", o.data.display());
        std::process::exit(2);
    }
    report::print(&cases, o.all);
    println!("{:.1} s", begin.elapsed().as_secs_f64());
    if let Some(path) = &o.write
        && let Err(e) = std::fs::write(path, report::page(&cases))
    {
        eprintln!("{}: {e}", path.display());
        std::process::exit(1);
    }
    let failed = cases.iter().any(|c| matches!(c.outcome, Outcome::Failed(_)));
    std::process::exit(i32::from(failed));
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(of).into_iter().flatten().flatten().map(|e| e.path()).collect();
    all.retain(|p| p.join("model.onnx").is_file());
    all.sort();
    all
}

fn name_of(path: &Path) -> String {
    let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.strip_prefix("test_").map(str::to_owned).unwrap_or(name)
}

fn run_folder(o: &Options, kind: &'static str, folder: &Path) -> Option<Case> {
    let name = name_of(folder);
    if o.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
        return None;
    }
    let path = folder.join("model.onnx");
    let op = report::operator(&path);
    let done = |outcome| Some(Case { kind, name: name.clone(), op: op.clone(), outcome });
    if let Some(why) = left_out::reason(&name, &path) {
        return done(Outcome::LeftOut(why));
    }
    let result = caught(|| {
        let (model, device) = (Model::open(&path)?, Device::cpu(DeviceOptions::default())?);
        let network = model.on(&device)?;
        let sets = sets(folder);
        if sets.is_empty() {
            return Ok(Err("no test data".to_owned()));
        }
        for set in sets {
            let inputs = values(&device, &model.inputs(), &set, "input")?;
            let wanted = values(&device, &model.outputs(), &set, "output")?;
            let got = network.run(&inputs)?;
            if let Err(e) = compare::tolerance(folder).and_then(|t| compare::all(&got, &wanted, t)) {
                return Ok(Err(e));
            }
            if o.compiled {
                match compiled(&device, &network, &inputs, &got)? {
                    Ok(Outcome::Passed) => {}
                    other => return Ok(other),
                }
            }
        }
        Ok(Ok(Outcome::Passed))
    });
    done(result.unwrap_or_else(Outcome::Failed))
}

/// The outcome of a case, or the reason of its failure.
type Done = std::result::Result<Outcome, String>;

/// The result of a case; a panic is a failure.
fn caught(f: impl FnOnce() -> Result<Done>) -> Done {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(result)) => result,
        Ok(Err(e)) => Err(e.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// The same bits from the compiled function. Cases whose values are not all tensors are run eagerly alone.
fn compiled(device: &Device, network: &remat_onnx::Network, inputs: &[Value], eager: &[Value]) -> Result<Done> {
    let tensors = |all: &[Value]| all.iter().map(|v| v.tensor().cloned()).collect::<Result<Vec<Tensor>>>();
    let (Ok(x), Ok(y)) = (tensors(inputs), tensors(eager)) else { return Ok(Ok(Outcome::Passed)) };
    if x.is_empty() {
        return Ok(Ok(Outcome::Passed));
    }
    let mut f = compile(device, |x: &[Tensor]| network.call(x));
    let refs: Vec<&Tensor> = x.iter().collect();
    let got = match f.call(&refs) {
        Ok(got) => got,
        Err(e) if e.kind() == ErrorKind::NoValue => return Ok(Ok(Outcome::Eager(e.to_string()))),
        Err(e) => return Ok(Err(format!("compiled: {e}"))),
    };
    for (i, (a, b)) in got.iter().zip(&y).enumerate() {
        let (a, b) = (a.to_host()?, b.to_host()?);
        if a.dtype() != b.dtype() || a.shape() != b.shape() || a.bytes() != b.bytes() {
            return Ok(Err(format!("compiled: output {i} has other bits than the eager one")));
        }
    }
    Ok(Ok(Outcome::Passed))
}

fn sets(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    all.retain(|p| p.is_dir());
    all.sort();
    all
}

/// `input_0.pb` and so on, as far as there are any: for the ports without a default if there are as many of those.
fn values(device: &Device, ports: &[Port], set: &Path, what: &str) -> Result<Vec<Value>> {
    let files: Vec<PathBuf> = (0..).map(|i| set.join(format!("{what}_{i}.pb"))).take_while(|p| p.is_file()).collect();
    let needed: Vec<&Port> = ports.iter().filter(|p| !p.has_default).collect();
    let ports: Vec<&Port> = if files.len() == ports.len() { ports.iter().collect() } else { needed };
    files.iter().zip(ports).map(|(path, port)| read_value(port, device, std::fs::read(path)?)).collect()
}

/// The classic networks, whose weights are constants: fed with `0, 1 .. n - 1` over `n`.
fn light(o: &Options) -> Vec<Case> {
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    for e in std::fs::read_dir(o.data.join("light")).into_iter().flatten().flatten() {
        if e.path().extension().is_some_and(|x| x == "onnx") {
            files.insert(name_of(&e.path()), e.path());
        }
    }
    files.retain(|name, _| o.only.as_ref().is_none_or(|only| name.contains(only.as_str())));
    files.into_iter().map(|(name, path)| light_case(o, name, &path)).collect()
}

fn light_case(o: &Options, name: String, path: &Path) -> Case {
    let result = caught(|| {
        let (model, device) = (Model::open(path)?, Device::cpu(DeviceOptions::default())?);
        let network = model.on(&device)?;
        let mut inputs = Vec::new();
        for p in model.inputs().iter().filter(|p| !p.has_default) {
            let remat_onnx::ValueType::Tensor(Some(DType::F32), Some(extents)) = &p.ty else {
                return Ok(Err(format!("input `{}` is no f32 tensor", p.name)));
            };
            let shape: Vec<usize> = extents.iter().map(|e| e.fixed().unwrap_or(1)).collect();
            let n: usize = shape.iter().product();
            let data: Vec<f32> = (0..n).map(|i| (i as f64 / n as f64) as f32).collect();
            inputs.push(Value::Tensor(Tensor::from_host(&device, &HostTensor::from_slice(&data, shape)?)?));
        }
        let got = network.run(&inputs)?;
        let mut wanted = Vec::new();
        for (i, p) in model.outputs().iter().enumerate() {
            let file = path
                .with_file_name(format!("{}_output_{i}.pb", path.file_stem().unwrap_or_default().to_string_lossy()));
            wanted.push(read_value(p, &device, std::fs::read(file)?)?);
        }
        // the standard keeps their tolerances beside the links to the whole networks
        let folder = o.data.join("real").join(name.replacen("light_", "test_", 1));
        if let Err(e) = compare::tolerance(&folder).and_then(|t| compare::all(&got, &wanted, t)) {
            return Ok(Err(e));
        }
        if o.compiled { compiled(&device, &network, &inputs, &got) } else { Ok(Ok(Outcome::Passed)) }
    });
    let outcome = result.unwrap_or_else(Outcome::Failed);
    Case { kind: "light", op: "-".into(), name, outcome }
}
