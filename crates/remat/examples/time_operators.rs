//! Times operators as `scripts/bench_operators.py` asks for: it runs this program and PyTorch in turns.
//!
//! A line of the input is JSON: `op` and `args` as in the fixtures, `x` with `dtype`, `shape` and what the elements are
//! (`normal`, `uniform` from `low` to `high`, `ints` from `low` to `high - 1`), `grad` for the gradients of all floating inputs,
//! `ms` to measure for. The answer is a line with nanoseconds a call: the median over some rounds. Calls of a round are queued
//! one after the other, as a program's are, and the round waits for them.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use remat::prelude::*;
use serde_json::Value;

#[path = "../tests/fixtures/case.rs"]
#[allow(dead_code, reason = "cases are the test's")]
mod case;
#[path = "../tests/fixtures/rows/mod.rs"]
mod rows;

fn number(v: &Value, name: &str) -> f64 {
    v[name].as_f64().unwrap_or_default()
}

/// Numbers from 0 to 1, the same in each run (Marsaglia, 2003, xorshift).
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn input(device: &Device, rng: &mut Uniform, v: &Value) -> Result<Tensor> {
    let dtype: DType = serde_json::from_value(v["dtype"].clone()).map_err(|e| wrong(&e.to_string()))?;
    let shape: Shape = v["shape"].as_array().into_iter().flatten().filter_map(|d| Some(d.as_u64()? as usize)).collect();
    let (low, high) = (number(v, "low"), number(v, "high"));
    let mut draw = || match v["kind"].as_str() {
        Some("ints") => (low + (high - low) * rng.next()).floor(),
        Some("uniform") => low + (high - low) * rng.next(),
        _ => (0..12).map(|_| rng.next()).sum::<f64>() - 6.0,
    };
    let values: Vec<f64> = (0..shape.elems()).map(|_| draw()).collect();
    Tensor::from_host(device, &HostTensor::from_f64_slice(&values, dtype, shape)?)
}

fn wrong(text: &str) -> Error {
    Error::new(ErrorKind::Value, text)
}

fn time(device: &Device, order: &Value) -> Result<f64> {
    let name = order["op"].as_str().ok_or_else(|| wrong("no operator is named"))?;
    let row = rows::FAMILIES.iter().flat_map(|f| f.1).flat_map(|r| r.iter()).find(|r| r.name == name);
    let row = row.ok_or_else(|| wrong(&format!("no row is called {name}")))?;
    let args = case::Args::new(order["args"].as_object().cloned().unwrap_or_default());
    let mut rng = Uniform(0x9e37_79b9_7f4a_7c15);
    let x = order["x"].as_array().into_iter().flatten().map(|v| input(device, &mut rng, v));
    let mut x: Vec<Tensor> = x.collect::<Result<_>>()?;
    let with_grad = order["grad"] == Value::Bool(true);
    if with_grad {
        x = x
            .into_iter()
            .map(|t| if t.dtype().is_float() { t.requires_grad() } else { Ok(t) })
            .collect::<Result<_>>()?;
    }
    let wanted: Vec<&Tensor> = x.iter().filter(|t| t.is_leaf()).collect();
    let mut once = || -> Result<Vec<Tensor>> {
        let y = (row.run)(&args, &x)?;
        if !with_grad {
            return Ok(y);
        }
        let first = y.iter().find(|t| t.is_tracked()).ok_or_else(|| wrong("no output has a gradient"))?;
        let seed = first.detach();
        Ok(remat::grad_with(first, Some(&seed), &wanted, false)?.into_iter().flatten().collect())
    };
    let mut round = |calls: usize| -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..calls {
            drop(once()?);
        }
        device.channel().sync()?;
        Ok(start.elapsed())
    };
    round(2)?;
    let budget = Duration::from_secs_f64(number(order, "ms") / 1e3);
    let single = round(1)?.max(Duration::from_nanos(200));
    let calls = (Duration::from_millis(2).as_nanos() / single.as_nanos()).clamp(1, 1000) as usize;
    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.len() < 3 || begin.elapsed() < budget {
        times.push(round(calls)?.as_nanos() as f64 / calls as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() })?;
    for line in std::io::stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line?).map_err(|e| wrong(&e.to_string()))?;
        let mut out = std::io::stdout().lock();
        match time(&device, &order) {
            Ok(ns) => writeln!(out, "{ns}")?,
            Err(e) => writeln!(out, "error: {e}")?,
        }
        out.flush()?;
    }
    Ok(())
}
