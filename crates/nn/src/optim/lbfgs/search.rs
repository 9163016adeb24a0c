//! A line search for the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5 and 3.6).

use remat_tensor::Tensor;
use remat_types::Result;

/// How much of the decrease that the slope foretells is enough (the book's `c1`).
const ENOUGH_DECREASE: f64 = 1e-4;
/// How much of the slope may be left (the book's `c2`).
const SLOPE_LEFT: f64 = 0.9;
/// The share of an interval that a trial keeps away from its ends.
const AWAY_FROM_ENDS: f64 = 0.1;

/// The function along a line, at one point.
#[derive(Clone)]
pub(super) struct Point {
    /// How far along.
    pub(super) t: f64,
    pub(super) loss: f64,
    pub(super) grad: Tensor,
    /// The derivative along the line.
    pub(super) slope: f64,
}

/// The minimum between two points of the cubic that has their values and slopes (the book's equation 3.59), or of the
/// middle if it has none.
fn cubic_minimum(a: &Point, b: &Point, bounds: Option<(f64, f64)>) -> f64 {
    let (lo, hi) = bounds.unwrap_or(if a.t <= b.t { (a.t, b.t) } else { (b.t, a.t) });
    let d1 = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.t - b.t);
    let square = d1 * d1 - a.slope * b.slope;
    // a NaN has no root either
    if square.is_nan() || square < 0.0 {
        return (lo + hi) / 2.0;
    }
    let d2 = square.sqrt();
    let at = match a.t <= b.t {
        true => b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2)),
        false => a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2.0 * d2)),
    };
    at.max(lo).min(hi)
}

/// Finds a step from `start`, whose `t` is 0, with `first` as the first trial. Gives the point it leads to and how often
/// `evaluate` was called. `longest` is the largest element of the direction, and a bracket whose ends differ by less than
/// `tolerance` is done.
pub(super) fn strong_wolfe(
    start: &Point,
    first: f64,
    longest: f64,
    tolerance: f64,
    most_evaluations: usize,
    mut evaluate: impl FnMut(f64) -> Result<Point>,
) -> Result<(Point, usize)> {
    let enough = |p: &Point| p.loss <= start.loss + ENOUGH_DECREASE * p.t * start.slope;
    let flat = |p: &Point| p.slope.abs() <= -SLOPE_LEFT * start.slope;
    let mut now = evaluate(first)?;
    let (mut evaluations, mut rounds) = (1, 0);
    let mut last = start.clone();
    // until a minimum is between two points
    let mut bracket = loop {
        if rounds >= most_evaluations {
            break [start.clone(), now.clone()];
        }
        let too_far = !enough(&now) || (rounds > 1 && now.loss >= last.loss);
        if !too_far && flat(&now) {
            return Ok((now, evaluations));
        }
        if too_far || now.slope >= 0.0 {
            break [last.clone(), now.clone()];
        }
        let bounds = (now.t + 0.01 * (now.t - last.t), now.t * 10.0);
        let next = cubic_minimum(&last, &now, Some(bounds));
        last = now;
        now = evaluate(next)?;
        evaluations += 1;
        rounds += 1;
    };
    let lower = |b: &[Point; 2]| if b[0].loss <= b[1].loss { 0 } else { 1 };
    let mut low = lower(&bracket);
    let mut stuck = false;
    while rounds < most_evaluations && (bracket[1].t - bracket[0].t).abs() * longest >= tolerance {
        let mut t = cubic_minimum(&bracket[0], &bracket[1], None);
        let (lo, hi) = (bracket[0].t.min(bracket[1].t), bracket[0].t.max(bracket[1].t));
        let margin = AWAY_FROM_ENDS * (hi - lo);
        let near_end = (hi - t).min(t - lo) < margin;
        if near_end && (stuck || t >= hi || t <= lo) {
            t = if (t - hi).abs() < (t - lo).abs() { hi - margin } else { lo + margin };
            stuck = false;
        } else {
            stuck = near_end;
        }
        let new = evaluate(t)?;
        evaluations += 1;
        rounds += 1;
        let high = 1 - low;
        if !enough(&new) || new.loss >= bracket[low].loss {
            bracket[high] = new;
            low = lower(&bracket);
            continue;
        }
        if flat(&new) {
            return Ok((new, evaluations));
        }
        if new.slope * (bracket[high].t - bracket[low].t) >= 0.0 {
            bracket[high] = bracket[low].clone();
        }
        bracket[low] = new;
    }
    Ok((bracket[low].clone(), evaluations))
}
