use remat_graph::plan::{arena::*, generate::generate, problem::Problem, remat::*, *};
use std::time::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    for name in &a[1..] {
        let p = Problem::new(generate(name).unwrap()).unwrap();
        let peak = peak_bytes(&p);
        let all: Vec<usize> = (0..p.ops().len()).collect();
        let mut line = format!("{name} ops {} ", p.ops().len());
        let mut seqs = vec![("base", all)];
        for (n, pol, f) in [("far.5", baseline::Policy::Farsighted, 0.5), ("dtr.8", baseline::Policy::DtrPaper, 0.8)] {
            if let Some(s) = pol.sequence(&p, (peak as f64 * f) as u64) {
                seqs.push((n, s));
            }
        }
        for (n, s) in seqs {
            let l = lifetime::lifetimes(&p, &s).unwrap();
            line += &format!("| {n} iv {} ", l.intervals.len());
            for placements in [10, 200, 1000] {
                let t = Instant::now();
                let r = assign(&l, Effort { enough_bytes: 0, placements });
                line +=
                    &format!("{:.4} [{:.3}s] ", r.arena_bytes as f64 / r.lower_bound as f64, t.elapsed().as_secs_f64());
            }
        }
        println!("{line}");
    }
}
