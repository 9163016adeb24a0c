//! Rematerialisation.

mod bound;
mod emit;
mod flow;
pub(crate) mod model;
pub(crate) mod repair;
pub(crate) mod search;
pub(crate) mod state;

use std::time::{Duration, Instant};
use super::problem::Problem;
use model::Model;
use state::*;


/// dev
pub fn experiment(p: &Problem, share: f64, secs: f64) {
    let m = Model::new(p);
    let base = State::new(&m, (0..m.units.len() as u32).collect());
    let (_, peak) = base.peak();
    let budget = (peak as f64 * share) as u64;
    let mut rng = Rng(1);
    let t = Instant::now();
    let mut best: Option<State> = None;
    let mut line = format!("{share:.2} units {} given {:.2} ", m.units.len(), m.given_bytes as f64 / peak as f64);
    for reach in [0.0, 0.5, 1.0] {
        let mut s = base.clone();
        let r = repair::repair(&m, &mut s, budget, repair::Style { reach, noise: 0.0 }, u64::MAX, &mut rng);
        let before = s.time_ns;
        if r.is_ok() { repair::relax(&m, &mut s, budget); 
        if best.as_ref().is_none_or(|b| b.time_ns > s.time_ns) { best = Some(s.clone()); } }
        line += &format!("| {reach} {:?} {:.4}->{:.4} ", r.err(), before as f64 / base.time_ns as f64, s.time_ns as f64 / base.time_ns as f64);
    }
    line += &format!(" [{:.3}s] ", t.elapsed().as_secs_f64());
    if let Some(b) = best {
        let mut c = search::Climb::new(&m, budget, b, 1);
        let n = c.run(search::Limit { until: Instant::now() + Duration::from_secs_f64(secs), rounds: usize::MAX }, base.time_ns);
        line += &format!("| LNS {:.4} rounds {n}", c.best.time_ns as f64 / base.time_ns as f64);
    }
    let t = Instant::now();
    let (at, _) = base.peak();
    let ops: Vec<usize> = m.units[base.sequence[at] as usize].parts.clone();
    let lb = bound::time_bound(p, budget, &ops[..1], Instant::now() + Duration::from_secs(5));
    line += &format!("| LB {:.4} [{:.3}s]", lb as f64 / base.time_ns as f64, t.elapsed().as_secs_f64());
    println!("{line}");
}
