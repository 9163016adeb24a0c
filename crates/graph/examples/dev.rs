use remat_graph::plan::{generate::generate, problem::Problem, remat::experiment};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let secs: f64 = a[1].parse().unwrap();
    for name in &a[2..] {
        let p = Problem::new(generate(name).unwrap()).unwrap();
        println!("{name}");
        for share in [0.9, 0.8, 0.7, 0.6, 0.5, 0.4] { experiment(&p, share, secs); }
    }
}
