//! The least program that runs a graph: it reads the text of one made of few kinds of operators, and names no others, so it
//! links no others. Its size beside that of the same with `Registry::builtin()` is what a thin registry saves.
//!
//! `cargo run --release -p remat-graph --example few_families -- GRAPH`, for a graph whose inputs are floats; it gives them
//! ones and prints the sum of each output.

use std::process::ExitCode;

use remat_graph::ir::Graph;
use remat_kernels::pool::Pool;
use remat_ops::{Registry, families};
use remat_types::{Error, ErrorKind, HostTensor, Result};

fn run(path: &str) -> Result<()> {
    let registry = Registry::of(&[&families::LINALG, &families::POINTWISE, &families::ACTIVATION, &families::SHAPE]);
    let g = Graph::parse(&std::fs::read_to_string(path)?, &registry)?;
    let ones = |v| {
        let f = g.fact(v);
        HostTensor::from_f64_slice(&vec![1.0; f.elems()], f.dtype, f.shape.clone())
    };
    let x = g.inputs().iter().map(|v| ones(*v)).collect::<Result<Vec<_>>>()?;
    let states = g.states().iter().map(|s| ones(s.value)).collect::<Result<Vec<_>>>()?;
    let values = g.evaluate(&x, &states, &Pool::new(1))?;
    for output in g.outputs() {
        let y = values.get(output.value).ok_or_else(|| Error::new(ErrorKind::Internal, "an output has a value"))?;
        println!("{}: {}", output.name, y.to_f64_vec().iter().sum::<f64>());
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("give the path of a graph");
        return ExitCode::FAILURE;
    };
    match run(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
