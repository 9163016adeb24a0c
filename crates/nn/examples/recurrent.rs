//! Times of recurrent layers, for `scripts/bench_recurrent.py`: takes lines `CELL STEPS BATCH INPUTS HIDDEN PASS THREADS` and
//! answers each with seconds, the least of some runs. PASS is `forward` or `both`.

use std::io::{BufRead, Write};
use std::time::Instant;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, no_grad};
use remat_types::{DType, Error, ErrorKind, Result};

/// Seconds that the runs of one answer take together.
const SECONDS: f64 = 0.4;
/// Fewest runs.
const RUNS: usize = 5;

fn layer(cx: &mut InitCx, cell: &str, inputs: usize, hidden: usize) -> Result<Box<dyn Layer>> {
    Ok(match cell {
        "lstm" => Box::new(Lstm::new(cx, inputs, hidden)?),
        "gru" => Box::new(Gru::new(cx, inputs, hidden)?),
        _ => Box::new(Rnn::new(cx, inputs, hidden)?),
    })
}

fn time(cell: &str, [steps, batch, inputs, hidden, threads]: [usize; 5], is_forward: bool) -> Result<f64> {
    let device = Device::cpu(DeviceOptions { threads, ..DeviceOptions::default() })?;
    let cx = &mut InitCx::new(&device, 1);
    let net = layer(cx, cell, inputs, hidden)?;
    let value = |shape: [usize; 3], cx: &mut InitCx| -> Result<Tensor> {
        let key = cx.rng.next_key(&device)?;
        Tensor::normal(&key, shape, DType::F32, 0.0, 1.0)
    };
    let (x, dy) = (value([steps, batch, inputs], cx)?, value([steps, batch, hidden], cx)?);
    let run = || -> Result<()> {
        if is_forward {
            let _quiet = no_grad();
            net.forward(&x)?;
        } else {
            net.zero_grad();
            let x = x.detach().requires_grad()?;
            let y = net.forward(&x)?;
            y.backward_with(Some(&dy), false)?;
        }
        device.channel().sync()
    };
    run()?;
    let (mut best, begin) = (f64::INFINITY, Instant::now());
    let mut runs = 0;
    while runs < RUNS || begin.elapsed().as_secs_f64() < SECONDS {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(best)
}

fn main() -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::new(ErrorKind::Value, e.to_string()))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [cell, steps, batch, inputs, hidden, pass, threads] = words[..] else { break };
        let sizes = [steps, batch, inputs, hidden, threads].map(|w| w.parse().unwrap_or(1));
        println!("{}", time(cell, sizes, pass == "forward")?);
        std::io::stdout().flush().ok();
    }
    Ok(())
}
