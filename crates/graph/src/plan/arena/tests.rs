use proptest::prelude::*;

use super::*;

fn lifetimes(intervals: Vec<Interval>) -> Lifetimes {
    let steps = intervals.iter().map(|i| i.end + 1).max().unwrap_or(1);
    let live = |t: usize| intervals.iter().filter(move |i| i.start <= t && t <= i.end).map(|i| i.bytes).sum();
    Lifetimes { load: (0..steps).map(live).collect(), intervals, taken: Vec::new() }
}

fn interval(start: usize, length: usize, bytes: u64) -> Interval {
    Interval { storage: None, start, end: start + length, bytes }
}

fn verify(l: &Lifetimes, layout: &Layout) {
    let end = |i: usize| layout.offsets[i] + l.intervals[i].bytes;
    for (i, a) in l.intervals.iter().enumerate() {
        assert!(end(i) <= layout.arena_bytes);
        for (j, b) in l.intervals.iter().enumerate().skip(i + 1) {
            let meet = a.start <= b.end && b.start <= a.end && a.bytes > 0 && b.bytes > 0;
            assert!(!meet || end(i) <= layout.offsets[j] || end(j) <= layout.offsets[i], "{a:?} and {b:?} overlap");
        }
    }
    assert!(layout.arena_bytes >= layout.lower_bound);
}

#[test]
fn nothing_needs_no_arena() {
    assert_eq!(assign(&lifetimes(vec![]), Effort::default()).arena_bytes, 0);
    assert_eq!(assign(&lifetimes(vec![interval(0, 3, 0)]), Effort::default()).arena_bytes, 0);
}

#[test]
fn improvement_lowers_what_the_first_orders_leave() {
    let mut seed = 7u64;
    let mut next = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let (mut first, mut improved, mut bound) = (0, 0, 0);
    for _ in 0..30 {
        let l = lifetimes((0..60).map(|_| interval(next(40) as usize, next(12) as usize, 1 + next(90))).collect());
        let quick = assign(&l, Effort { placements: 10, ..Effort::default() });
        first += quick.arena_bytes;
        let height = (quick.lower_bound + quick.arena_bytes) / 2;
        if let Some(found) = skyline::search(&l, height, 10_000, &mut 0) {
            verify(&l, &found);
            assert!(found.arena_bytes <= height);
        }
        let layout = assign(&l, Effort { placements: 400, ..Effort::default() });
        verify(&l, &layout);
        improved += layout.arena_bytes;
        bound += layout.lower_bound;
    }
    assert!(improved < first && (improved - bound) * 2 < first - bound, "{bound} {improved} {first}");
}

/// The smallest arena of all orders of placing each interval at the lowest gap: one of them makes any compact layout.
fn smallest_arena(l: &Lifetimes) -> u64 {
    fn walk(l: &Lifetimes, order: &mut Vec<usize>, best: &mut u64) {
        if order.len() == l.intervals.len() {
            *best = (*best).min(Placer::new(l).place(order, Fit::Lowest, 0).arena_bytes);
        }
        for i in (0..l.intervals.len()).filter(|i| !order.contains(i)).collect::<Vec<_>>() {
            order.push(i);
            walk(l, order, best);
            order.pop();
        }
    }
    let mut best = u64::MAX;
    walk(l, &mut Vec::new(), &mut best);
    best
}

#[test]
fn nested_lifetimes_reach_the_lower_bound() {
    let l = lifetimes((0..500).map(|i| interval(i, 2 * (500 - i), 1 + (i as u64 * 37) % 101)).collect());
    let layout = assign(&l, Effort::default());
    verify(&l, &layout);
    assert_eq!(layout.arena_bytes, layout.lower_bound);
}

proptest! {
    #[test]
    fn the_skyline_search_is_complete(
        rows in prop::collection::vec((0usize..6, 0usize..4, 1u64..6), 1..7),
    ) {
        let l = lifetimes(rows.into_iter().map(|(s, n, b)| interval(s, n, b)).collect());
        let best = smallest_arena(&l);
        let search = |height| skyline::search(&l, height, 1_000_000, &mut 0);
        let layout = search(best);
        prop_assert!(layout.as_ref().is_some_and(|x| x.arena_bytes <= best), "{} is reached", best);
        verify(&l, &layout.expect("just seen"));
        prop_assert!(search(best - 1).is_none());
    }

    #[test]
    fn no_two_intervals_overlap(
        rows in prop::collection::vec((0usize..60, 0usize..30, 0u64..20), 0..80), placements in 1usize..60,
    ) {
        let l = lifetimes(rows.into_iter().map(|(s, n, b)| interval(s, n, b * 8)).collect());
        let layout = assign(&l, Effort { placements, ..Effort::default() });
        verify(&l, &layout);
        prop_assert!(layout.offsets.iter().all(|o| o % 8 == 0));
    }
}
