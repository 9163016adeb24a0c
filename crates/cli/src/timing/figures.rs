//! Times and speeds, and the machine's own limits that they are read against.

use std::time::Instant;

use remat::types::Result;
use remat_kernels::machine;
use remat_kernels::pool::Pool;
use serde::Serialize;

/// Milliseconds of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
}

/// Runs without a record before the first that counts.
const WARM_UPS: usize = 2;
/// Fewest runs that count, however long one takes.
const MIN_RUNS: usize = 5;
/// Most runs that count: beyond that a percentile does not move.
const MAX_RUNS: usize = 20_000;

/// Repeats `run` for about `seconds` and returns its latency and the number of runs.
pub(crate) fn repeat(seconds: f64, mut run: impl FnMut() -> Result<()>) -> Result<(Latency, usize)> {
    for _ in 0..WARM_UPS {
        run()?;
    }
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < MIN_RUNS || (times.len() < MAX_RUNS && start.elapsed().as_secs_f64() < seconds) {
        let begin = Instant::now();
        run()?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    Ok((quantiles(&mut times), times.len()))
}

/// Nearest ranks of a list that is not empty.
fn quantiles(times: &mut [f64]) -> Latency {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((share * times.len() as f64).ceil() as usize).clamp(1, times.len()) - 1];
    Latency { min: at(0.0), p50: at(0.5), p90: at(0.9) }
}

/// Steps of one sample of multiply-adds: about 2 ms.
const PEAK_STEPS: usize = 1 << 20;
/// Samples of the peak. The best counts, since a sample that other programs disturb is not the machine's limit.
const PEAK_SAMPLES: usize = 15;
const STREAM_SAMPLES: usize = 7;
/// Least time of one sample of a stream, so that a small one is not a measurement of the clock.
const STREAM_SECONDS: f64 = 2e-3;
/// Smallest array of a stream: below it, the start of the threads would be measured.
const STREAM_MIN_ELEMS: usize = 1 << 15;

/// Multiply-adds from registers, in GFLOP/s.
pub(crate) fn fma_gflops(pool: &Pool) -> f64 {
    let rate = |_| {
        let start = Instant::now();
        let flops = machine::multiply_adds(pool, PEAK_STEPS);
        flops as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    (0..PEAK_SAMPLES).map(rate).fold(0.0, f64::max)
}

/// Round trips of a sample.
const TRIPS: usize = 1 << 12;
const TRIP_SAMPLES: usize = 3;

/// The time of a word to another core and back, in nanoseconds.
pub(crate) fn round_trip_ns() -> f64 {
    // the first ones wait for the thread to start
    let one = |_| (machine::round_trips(TRIPS).as_nanos() as f64) / TRIPS as f64;
    (0..TRIP_SAMPLES).map(one).fold(f64::INFINITY, f64::min)
}

/// Values of an array of streams that is larger than most last-level caches.
pub(crate) const STREAM_ELEMS: usize = 32 << 20;

/// GB/s of the triad and of reading, over arrays of `elems` values.
pub(crate) fn streams(pool: &Pool, elems: usize) -> [f64; 2] {
    let elems = elems.max(STREAM_MIN_ELEMS);
    let (a, b) = (vec![1.0f32; elems], vec![2.0f32; elems]);
    let mut y = vec![0.0f32; elems];
    let triad = rate(12 * elems, || machine::triad(pool, &mut y, &a, 0.5, &b));
    let read = rate(4 * elems, || machine::read(pool, &a));
    [triad, read]
}

fn rate(bytes: usize, mut run: impl FnMut()) -> f64 {
    let mut best = 0.0f64;
    run();
    for _ in 0..STREAM_SAMPLES {
        let (start, mut runs) = (Instant::now(), 0);
        while runs == 0 || start.elapsed().as_secs_f64() < STREAM_SECONDS {
            run();
            runs += 1;
        }
        best = best.max((bytes * runs) as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let mut times: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let l = quantiles(&mut times);
        assert_eq!([l.min, l.p50, l.p90], [1.0, 5.0, 9.0]);
        let l = quantiles(&mut [3.0]);
        assert_eq!([l.min, l.p50, l.p90], [3.0, 3.0, 3.0]);
    }

    #[test]
    fn a_run_that_fails_ends_the_measurement() {
        use remat::types::{Error, ErrorKind};
        let mut runs = 0;
        let result = repeat(1.0, || {
            runs += 1;
            if runs == 4 { Err(Error::new(ErrorKind::Value, "no more")) } else { Ok(()) }
        });
        assert!(result.is_err() && runs == 4);
    }
}
