//! Works that take turns in one process, so that what else runs meanwhile slows all of them.

use std::time::Instant;

/// Rounds at least, however long they take.
const FEWEST_ROUNDS: usize = 3;

/// Runs `works` one after the other, over and over for about `seconds`: the seconds of each, round by round. The first
/// time, which warms up, does not count.
pub(crate) fn turns<const N: usize>(seconds: f64, mut works: [&mut dyn FnMut(); N]) -> Vec<[f64; N]> {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    works.iter_mut().for_each(|work| work());
    let (start, mut rounds) = (Instant::now(), Vec::new());
    while rounds.len() < FEWEST_ROUNDS || start.elapsed().as_secs_f64() < seconds {
        rounds.push(works.each_mut().map(|work| time(*work)));
    }
    rounds
}

/// The median; the lower of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) / 2]
}
