//! The table of docs/src/planning.md: the planner and every published heuristic on the benchmark set.
use remat_graph::plan::{
    baseline::Policy, check::check, generate::generate, problem::Problem, remat::*, schedule::Plan,
};
use std::time::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let secs: f64 = a[2].parse().unwrap();
    for name in &a[3..] {
        let p = Problem::new(generate(name).unwrap()).unwrap();
        let peak = peak_bytes(&p);
        println!("{name} ops {} peak {}", p.ops().len(), peak);
        for share in a[1].split(",").map(|s| s.parse::<f64>().unwrap()) {
            let budget = (peak as f64 * share) as u64;
            let base: Vec<String> = Policy::ALL
                .iter()
                .map(|pol| {
                    pol.sequence(&p, budget).map_or("-".into(), |s| {
                        let t: u64 = s.iter().map(|&o| p.ops()[o].time_ns).sum();
                        format!("{:.4}", t as f64 / p.base_time_ns() as f64)
                    })
                })
                .collect();
            let t = Instant::now();
            match plan(
                &p,
                budget,
                Effort { time_limit: Duration::from_secs_f64(secs), ..Effort::for_ops(p.ops().len()) },
            ) {
                Plan::Feasible(s) => {
                    check(&p, &s).unwrap();
                    println!(
                        "{share:.1} {:.4} gap {:.4} arena {:.4} [{:.2}s] {}",
                        1.0 + s.overhead(),
                        s.gap(),
                        s.arena_bytes as f64 / s.budget_bytes as f64,
                        t.elapsed().as_secs_f64(),
                        base.join(" ")
                    );
                }
                Plan::Infeasible(s) => println!(
                    "{share:.1} infeasible {:.3} .. {:.3} [{:.2}s] {}",
                    s.least_bytes as f64 / peak as f64,
                    s.smallest_feasible_bytes as f64 / peak as f64,
                    t.elapsed().as_secs_f64(),
                    base.join(" ")
                ),
            }
        }
    }
}
