use remat_graph::plan::{arena::*, lifetime::*};
fn main() {
    let k: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    for line in std::fs::read_to_string("/tmp/iv.txt").unwrap().lines() {
        let mut it = line.splitn(4, ' ');
        it.next();
        let budget: u64 = it.next().unwrap().parse().unwrap();
        it.next();
        let nums: Vec<u64> = it
            .next()
            .unwrap()
            .split(|c: char| !c.is_ascii_digit())
            .filter(|s| !s.is_empty())
            .map(|s| s.parse().unwrap())
            .collect();
        let intervals: Vec<Interval> = nums
            .chunks(3)
            .map(|c| Interval { storage: None, start: c[0] as usize, end: c[1] as usize, bytes: c[2] })
            .collect();
        let n = intervals.iter().map(|i| i.end + 1).max().unwrap();
        let load: Vec<u64> =
            (0..n).map(|t| intervals.iter().filter(|i| i.start <= t && t <= i.end).map(|i| i.bytes).sum()).collect();
        let l = Lifetimes { intervals, load };
        let t = std::time::Instant::now();
        let r = assign(&l, Effort { enough_bytes: budget, placements: k });
        println!(
            "{} load {:.4} arena {:.4} {} {:.3}s",
            l.intervals.len(),
            l.peak() as f64 / budget as f64,
            r.arena_bytes as f64 / budget as f64,
            r.arena_bytes <= budget,
            t.elapsed().as_secs_f64()
        );
    }
}
