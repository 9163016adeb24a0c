//! The behaviour of each policy with a program under each budget.
//!
//! `cargo run --release --example simulate -- recording.json` replays a recording that
//! `remat plan WORK --eager --out FILE` wrote. With percentages (`75,50`) behind it, it prints each step, online and
//! with plans. Without an argument it records the training step of a small residual network on a dry device, and
//! replays that.

use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::{OpRef, shape::Permute};
use remat_runtime::{
    Channel, CommandStream, Device, DeviceOptions, Handle, Kind, PolicyKind, Simulation, simulate, simulate_planned,
};
use remat_types::{DType, HostTensor, Result, SmallVec, smallvec};

const POLICIES: [PolicyKind; 3] = [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream];

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let streams = match std::env::args().nth(1) {
        Some(path) => vec![(path.clone(), CommandStream::from_json(&std::fs::read_to_string(path)?)?)],
        None => vec![
            ("plain, 48 layers".to_owned(), training_step(48, false)?),
            ("residual, 48 layers".to_owned(), training_step(48, true)?),
        ],
    };
    for (name, stream) in streams {
        table(&name, &stream)?;
    }
    Ok(())
}

/// Prints time over that without a budget, evictions and moved bytes, policy by budget.
fn table(name: &str, stream: &CommandStream) -> Result<()> {
    let free = simulate(stream, PolicyKind::Window, None)?;
    println!(
        "{name}: {} commands, {:.2} ms, peak {} KiB, least {} KiB",
        stream.commands.len(),
        ms(free.time_ns),
        free.peak_bytes >> 10,
        free.least_budget_bytes >> 10
    );
    println!("{:>8} {:>10}  {}", "percent", "KiB", POLICIES.map(|p| format!("{:>34}", format!("{p:?}"))).join("  "));
    if let Some(percents) = std::env::args().nth(2) {
        return steps(stream, &free, &percents);
    }
    for percent in [100, 80, 60, 50, 40, 30, 20, 15, 10] {
        let budget = free.peak_bytes * percent / 100;
        let cells = POLICIES.map(|p| match simulate(stream, p, Some(budget)) {
            Ok(s) => format!(
                "{:>5.2}x {:>6} again {:>5.1} MiB moved",
                s.time_ns as f64 / free.time_ns as f64,
                s.recomputed_ops,
                s.compacted_bytes as f64 / (1 << 20) as f64
            ),
            Err(_) => format!("{:>34}", "infeasible"),
        });
        println!("{percent:>8} {:>10}  {}", budget >> 10, cells.join("  "));
    }
    Ok(())
}

/// Prints the time of each step, in thousandths of a step without a budget, online and with plans.
fn steps(stream: &CommandStream, free: &Simulation, percents: &str) -> Result<()> {
    let thousandths = |s: &Simulation| -> Vec<u64> {
        s.step_ns.iter().zip(&free.step_ns).map(|(ns, free)| ns * 1000 / free.max(&1)).collect()
    };
    for percent in percents.split(',').filter_map(|p| p.parse::<usize>().ok()) {
        let budget = Some(free.peak_bytes * percent / 100);
        for (name, run) in [("online", simulate as fn(_, _, _) -> _), ("planned", simulate_planned)] {
            match run(stream, PolicyKind::Window, budget) {
                Ok(s) => {
                    let counts =
                        (s.recomputed_ops, s.evictions, s.compacted_bytes >> 20, s.steps_followed, s.steps_abandoned);
                    println!(
                        "{percent} {name}: {:?} (again, evictions, MiB moved, followed, abandoned) {counts:?}",
                        thousandths(&s)
                    );
                    if let Some(p) = s.plan {
                        println!(
                            "  planned {:.3}, bound {:.3}",
                            p.planned_ns as f64 / p.base_ns as f64,
                            p.bound_ns as f64 / p.base_ns as f64
                        );
                    }
                }
                Err(e) => println!("{percent} {name}: {e}"),
            }
        }
    }
    Ok(())
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// One training step of `x = tanh(x w) (+ x)`, layer by layer, written out by hand.
fn training_step(layers: usize, residual: bool) -> Result<CommandStream> {
    const WIDTH: usize = 128;
    const BATCH: usize = 256;
    let options = DeviceOptions { always_record: true, threads: 1, ..DeviceOptions::default() };
    let c = Device::dry(options)?.channel();
    let zeros = |rows: usize| HostTensor::zeros(DType::F32, [rows, WIDTH]);
    let mut weights: Vec<Handle> =
        (0..layers).map(|_| c.put_as(&zeros(WIDTH)?, Kind::Parameter)).collect::<Result<_>>()?;
    c.start_recording()?;
    let mut x = c.put(&zeros(BATCH)?)?;
    let mut saved = Vec::new();
    for w in &weights {
        let y = one(&c, Unary { f: UnaryFn::Tanh }, [one(&c, MatMul {}, [x.clone(), w.clone()])?])?;
        let next = if residual { one(&c, Binary { f: BinaryFn::Add }, [y.clone(), x.clone()])? } else { y.clone() };
        saved.push((x, y));
        x = next;
    }
    let mut dy = one(&c, Unary { f: UnaryFn::Neg }, [x])?;
    for w in weights.iter_mut().rev() {
        let Some((x, y)) = saved.pop() else { break };
        let d = one(&c, Binary { f: BinaryFn::Mul }, [dy.clone(), y])?;
        let transposed = |h: &Handle| one(&c, Permute { order: smallvec![1, 0] }, [h.clone()]);
        let dw = one(&c, MatMul {}, [transposed(&x)?, d.clone()])?;
        let dx = one(&c, MatMul {}, [d, transposed(w)?])?;
        dy = if residual { one(&c, Binary { f: BinaryFn::Add }, [dx, dy])? } else { dx };
        let new = c.update(Binary { f: BinaryFn::Sub }, smallvec![w.clone(), dw], &[Some(0)])?;
        *w = new[0].clone();
    }
    drop(dy);
    c.step_mark()?;
    c.stop_recording()
}

fn one(c: &Channel, op: impl Into<OpRef>, x: impl IntoIterator<Item = Handle>) -> Result<Handle> {
    Ok(c.apply(op, SmallVec::from_iter(x))?.remove(0))
}
