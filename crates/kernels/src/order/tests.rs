use super::*;

/// Of a lane of `n`: values with many ties, infinities, zeros of both signs and NaN.
fn lane(n: usize, seed: usize) -> Vec<f32> {
    let special = [f32::NAN, f32::INFINITY, -0.0, 0.0, f32::NEG_INFINITY, -f32::NAN];
    let one = |i: usize| match (i * 7919 + seed * 31) % 97 {
        s @ 0..6 => special[s],
        s => (s as f32 - 40.0) * 0.5,
    };
    (0..n).map(one).collect()
}

/// The places in stable order, by the standard library.
fn order(x: &[f32], descending: bool) -> Vec<usize> {
    let mut at: Vec<usize> = (0..x.len()).collect();
    let cmp = |a: f32, b: f32| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
    at.sort_by(|&a, &b| if descending { cmp(x[b], x[a]) } else { cmp(x[a], x[b]) });
    at
}

#[test]
fn digits_and_comparisons_give_the_stable_order() {
    for n in [1, 2, 50, 1023, 1024, 5000] {
        let x = lane(n, 1);
        for descending in [false, true] {
            let want: Vec<i64> = order(&x, descending).into_iter().map(|i| i as i64).collect();
            for threads in [1, 2] {
                let (mut y, mut at) = (vec![0.0; n], vec![0; n]);
                let mut words = vec![0u128; sort_workspace::<f32>(n, threads).div_ceil(16)];
                let pool = Pool::new(threads);
                let workspace = bytemuck::cast_slice_mut(&mut words);
                sort(&pool, Lanes { n, inner: 1 }, descending, &x, &mut y, &mut at, workspace);
                assert_eq!(at, want, "{n} {descending}");
                assert!(y.iter().zip(&at).all(|(y, at)| y.to_bits() == x[*at as usize].to_bits()));
            }
        }
        // keys of 64 bits with mostly equal digits
        let wide: Vec<i64> = x.iter().map(|v| *v as i64).collect();
        let (mut y, mut at) = (vec![0; n], vec![0; n]);
        let mut words = vec![0u128; sort_workspace::<i64>(n, 1).div_ceil(16)];
        let workspace = bytemuck::cast_slice_mut(&mut words);
        sort(&Pool::new(1), Lanes { n, inner: 1 }, false, &wide, &mut y, &mut at, workspace);
        assert!(y.is_sorted() && (1..n).all(|i| y[i - 1] < y[i] || at[i - 1] < at[i]), "{n}");
    }
}

#[test]
fn lanes_may_lie_across() {
    let (outer, n, inner) = (3, 40, 5);
    let x = lane(outer * n * inner, 3);
    let (mut y, mut at) = (vec![0.0; x.len()], vec![0; x.len()]);
    let mut words = vec![0u128; sort_workspace::<f32>(n, 2).div_ceil(16)];
    sort(&Pool::new(2), Lanes { n, inner }, false, &x, &mut y, &mut at, bytemuck::cast_slice_mut(&mut words));
    for o in 0..outer {
        for i in 0..inner {
            let place = |k: usize| (o * n + k) * inner + i;
            let want = order(&(0..n).map(|k| x[place(k)]).collect::<Vec<_>>(), false);
            assert!((0..n).all(|k| at[place(k)] == want[k] as i64), "{o} {i}");
        }
    }
}

#[test]
fn the_best_are_the_first_of_the_order() {
    for (n, k) in [(1, 1), (7, 7), (200, 3), (5000, 100), (5000, 2500), (300, 300)] {
        for (seed, largest) in [(1, true), (2, false), (3, true)] {
            let mut x = lane(n, seed);
            if seed == 3 {
                // each is better than all before
                x = (0..n).map(|i| i as f32).collect();
            }
            let want = order(&x, largest);
            let (mut y, mut at) = (vec![0.0; k], vec![0; k]);
            let mut words = vec![0u128; top_k_workspace::<f32>(n, k, 1).div_ceil(16)];
            let workspace: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
            let lanes = Lanes { n, inner: 1 };
            top_k(&Pool::new(1), lanes, k, (largest, true), &x, &mut y, &mut at, workspace);
            assert!((0..k).all(|i| at[i] == want[i] as i64), "{n} {k} {largest}");
            let mut places = want[..k].to_vec();
            places.sort_unstable();
            top_k(&Pool::new(1), lanes, k, (largest, false), &x, &mut y, &mut at, workspace);
            assert!((0..k).all(|i| at[i] == places[i] as i64), "{n} {k} {largest} unsorted");
        }
    }
}

#[test]
fn a_statistic_is_what_the_order_has_there() {
    let run = |x: &[f32], f| {
        let (mut y, mut at) = ([0.0], [0]);
        let mut words = vec![0u128; statistic_workspace::<f32>(x.len(), 1).div_ceil(16)];
        let workspace = bytemuck::cast_slice_mut(&mut words);
        order_statistic(&Pool::new(1), Lanes { n: x.len(), inner: 1 }, f, x, &mut y, &mut at, workspace);
        (y[0].to_bits(), at[0] as usize)
    };
    let x = lane(501, 4);
    let at = order(&x, false);
    assert_eq!(run(&x, Statistic::Kth(77)).1, at[77]);
    let first_nan = x.iter().position(|v| v.is_nan()).expect("there are some");
    assert_eq!(run(&x, Statistic::Median).1, first_nan);
    let numbers = x.iter().filter(|v| !v.is_nan()).count();
    assert_eq!(run(&x, Statistic::NanMedian).1, at[(numbers - 1) / 2]);
    assert_eq!(run(&[f32::NAN; 3], Statistic::NanMedian).1, 0);
    assert_eq!(run(&[4.0, 1.0, 3.0, 2.0], Statistic::Median), (2.0f32.to_bits(), 3));
    assert_eq!(run(&[3.0, 1.0, 3.0, 1.0, 2.0], Statistic::Mode), (1.0f32.to_bits(), 3));
}

#[test]
fn a_search_counts_what_is_before() {
    let sorted = [-1.0f32, 0.0, 0.0, 2.0, f32::NAN];
    let values = [f32::NEG_INFINITY, -1.0, -0.0, 1.0, 2.0, 3.0, f32::NAN];
    let mut y = [0; 7];
    search_sorted(&Pool::new(1), false, &sorted, 5, &values, 7, &mut y);
    assert_eq!(y, [0, 0, 1, 3, 3, 4, 4]);
    search_sorted(&Pool::new(1), true, &sorted, 5, &values, 7, &mut y);
    assert_eq!(y, [0, 1, 3, 3, 4, 4, 5]);
    search_sorted(&Pool::new(1), true, &sorted[..0], 0, &values, 7, &mut y);
    assert_eq!(y, [0; 7]);
}
