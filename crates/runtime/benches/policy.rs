//! Time of one choice of each policy among given costs, by the number of candidates. `decision.rs` measures the whole
//! decision.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use remat_runtime::{Candidate, PolicyKind, ScoredSegment, Segment, UnscannedBytes, choose};

const COUNTS: [usize; 2] = [1_000, 10_000];
const POLICIES: [PolicyKind; 3] = [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream];

/// Blocks of one to eight units, every ninth pinned and every eleventh free.
fn ranges(count: usize) -> (Vec<ScoredSegment>, usize) {
    let mut at = 0;
    let ranges = (0..count)
        .map(|i| {
            let bytes = (1 + i * 7 % 8) * 4096;
            let owner = (i % 11 != 0).then_some(i as u32);
            let candidate = (owner.is_some() && i % 9 != 0).then(|| Candidate {
                own_ns: 1e4 + (i * 31 % 97) as f64 * 1e3,
                ancestors_ns: (i % 5) as f64 * 2e4,
                descendants_ns: (i % 3) as f64 * 1e4,
                idle_ns: 1e6 + (count - i) as f64 * 1e3,
            });
            at += bytes;
            ScoredSegment { segment: Segment { start: at - bytes, bytes, owner }, candidate }
        })
        .collect();
    (ranges, 24 * 4096)
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision");
    for count in COUNTS {
        let (ranges, need) = ranges(count);
        for policy in POLICIES {
            group.bench_with_input(BenchmarkId::new(format!("{policy:?}"), count), &ranges, |b, ranges| {
                b.iter(|| choose(policy, ranges, UnscannedBytes::default(), need));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
