use remat_graph::plan::{generate::generate, problem::Problem, remat::*, schedule::Plan, *};
use std::time::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let secs: f64 = a[2].parse().unwrap();
    for name in &a[3..] {
        let p = Problem::new(generate(name).unwrap()).unwrap();
        let peak = peak_bytes(&p);
        println!("{name} ops {} peak {}", p.ops().len(), peak);
        for share in a[1].split(",").map(|s| s.parse::<f64>().unwrap()) {
            let t = Instant::now();
            match plan(
                &p,
                (peak as f64 * share) as u64,
                Effort { time_limit: Duration::from_secs_f64(secs), ..Effort::default() },
            ) {
                Plan::Feasible(s) => {
                    check::check(&p, &s).unwrap();
                    println!(
                        "{share:.1} {:.4} gap {:.4} arena {:.4} [{:.2}s]",
                        1.0 + s.overhead(),
                        s.gap(),
                        s.arena_bytes as f64 / s.budget_bytes as f64,
                        t.elapsed().as_secs_f64()
                    );
                }
                Plan::Infeasible(s) => println!(
                    "{share:.1} infeasible {:.3} .. {:.3} [{:.2}s]",
                    s.least_bytes as f64 / peak as f64,
                    s.smallest_feasible_bytes as f64 / peak as f64,
                    t.elapsed().as_secs_f64()
                ),
            }
        }
    }
}
