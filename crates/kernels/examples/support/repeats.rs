//! How often a short work has to run to be timed.

use std::time::Instant;

/// Tries of each number of repeats. The fastest counts, since a try may wait for other programs.
const TRIES: usize = 3;

/// Times to run `work` so that they take `seconds` or a bit more: a power of two.
pub(crate) fn repeats(seconds: f64, mut work: impl FnMut()) -> usize {
    let mut time = |times| {
        let start = Instant::now();
        (0..times).for_each(|_| work());
        start.elapsed().as_secs_f64()
    };
    let mut times = 1;
    while (0..TRIES).map(|_| time(times)).fold(f64::INFINITY, f64::min) < seconds {
        times *= 2;
    }
    times
}
