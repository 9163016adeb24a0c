use super::*;
use remat_types::f16;

/// The sum by the definition, in f64.
fn expected(shape: &[usize], axes: &[usize], x: &[f32]) -> Vec<f64> {
    let kept: Vec<usize> = (0..shape.len()).filter(|i| !axes.contains(i)).collect();
    let mut y = vec![0.0; kept.iter().map(|&i| shape[i]).product()];
    for (at, &v) in x.iter().enumerate() {
        let (mut rest, mut index) = (at, vec![0; shape.len()]);
        for i in (0..shape.len()).rev() {
            index[i] = rest % shape[i];
            rest /= shape[i];
        }
        let out = kept.iter().fold(0, |o, &i| o * shape[i] + index[i]);
        y[out] += f64::from(v);
    }
    y
}

fn noise(n: usize) -> Vec<f32> {
    let mut state = 12345u32;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.4
        })
        .collect()
}

#[test]
fn every_set_of_axes_sums_right_on_any_number_of_threads() {
    let shapes: [&[usize]; 6] = [&[3, 4, 5, 6], &[2, 1, 700], &[70_000], &[300, 400], &[40_000, 3], &[8, 33, 17, 19]];
    for shape in shapes {
        let x = noise(shape.iter().product());
        for mask in 0..1usize << shape.len() {
            let axes: Vec<usize> = (0..shape.len()).filter(|i| mask >> i & 1 == 1).collect();
            let want = expected(shape, &axes, &x);
            let plan = Plan::new(shape, &axes);
            let mut first: Option<Vec<f32>> = None;
            for threads in [1, 2, 3] {
                let mut y = vec![f32::NAN; want.len()];
                reduce(&Pool::new(threads), Sum, &x, &plan, &mut y);
                for (y, want) in y.iter().zip(&want) {
                    let close = (f64::from(*y) - want).abs() <= 3e-6 * want.abs().max(1.0);
                    assert!(close, "{shape:?} over {axes:?}: {y} for {want}");
                }
                assert_eq!(*first.get_or_insert_with(|| y.clone()), y, "{shape:?} over {axes:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn a_long_sum_of_small_numbers_does_not_stall() {
    let n = 1 << 25;
    let x = vec![1.0f32; n];
    let mut y = [0.0];
    reduce(&Pool::new(2), Sum, &x, &Plan::new(&[n], &[0]), &mut y);
    assert_eq!(y[0], n as f32);
    let half = vec![f16::from_f32(1.0); 5000];
    let mut y = [f16::ZERO; 1];
    reduce(&Pool::new(1), Sum, &half, &Plan::new(&[5000], &[0]), &mut y);
    assert_eq!(y[0].to_f32(), 5000.0);
}

#[test]
fn extremes_propagate_nan_from_every_position() {
    for at in 0..40 {
        let mut x = noise(40);
        x[at] = f32::NAN;
        let mut y = [0.0f32];
        reduce(&Pool::new(1), Max, &x, &Plan::new(&[40], &[0]), &mut y);
        assert!(y[0].is_nan());
        reduce(&Pool::new(1), Min, &x, &Plan::new(&[40], &[0]), &mut y);
        assert!(y[0].is_nan());
        let mut index = [0i64];
        arg_extreme(&Pool::new(1), Extreme::Max, &x, 40, 1, &mut index);
        assert_eq!(index[0], at as i64);
    }
}

/// The extreme of a run by a plain loop: the first of equal ones in the order in which lanes and blocks are joined, or the
/// last NaN.
fn plain_extreme(x: &[f32], first: f32, better: impl Fn(f32, f32) -> bool) -> f32 {
    let pick = |a: f32, b: f32| if b.is_nan() || better(b, a) { b } else { a };
    let mut total = first;
    for block in x.chunks(BLOCK) {
        let lanes = if block.len() < LANES { 1 } else { LANES };
        let mut all = vec![first; lanes];
        block.iter().enumerate().for_each(|(i, v)| all[i % lanes] = pick(all[i % lanes], *v));
        while all.len() > 1 {
            let upper = all.split_off(all.len() / 2);
            all.iter_mut().zip(upper).for_each(|(a, b)| *a = pick(*a, b));
        }
        total = pick(total, all[0]);
    }
    total
}

#[test]
fn extremes_have_the_bits_that_a_plain_loop_finds() {
    for n in [1usize, 15, 16, 17, 255, 256, 257, 511, 768, 1030] {
        for seed in 0..60u32 {
            // few values, so that zeros of both signs and several kinds of NaN meet
            let some = [0.0, -0.0, -1.5, f32::NEG_INFINITY, f32::from_bits(0x7fc0_0001), f32::from_bits(0xffc0_0002)];
            let kinds = [2, 2, 4, 6][seed as usize % 4];
            let mixed = |i: u32| ((i + seed * 7919).wrapping_mul(2_654_435_761) >> 13) as usize;
            let x: Vec<f32> = (0..n as u32).map(|i| some[mixed(i) % 89 % kinds]).collect();
            let (plan, mut y) = (Plan::new(&[n], &[0]), [0.0f32; 2]);
            reduce(&Pool::new(1), Max, &x, &plan, &mut y[..1]);
            reduce(&Pool::new(1), Min, &x, &plan, &mut y[1..]);
            let want =
                [plain_extreme(&x, f32::NEG_INFINITY, |a, b| a > b), plain_extreme(&x, f32::INFINITY, |a, b| a < b)];
            assert_eq!(y.map(f32::to_bits), want.map(f32::to_bits), "{n} elements, seed {seed}");
        }
    }
}

#[test]
fn variance_of_numbers_far_from_zero_keeps_its_digits() {
    let x: Vec<f32> = (0..1000).map(|i| 1e6 + (i % 2) as f32).collect();
    let plan = Plan::new(&[1000], &[0]);
    let mut y = [0.0f32];
    reduce(&Pool::new(1), Mean { n: 1000 }, &x, &plan, &mut y);
    reduce(&Pool::new(1), Deviation { n: 1000, divisor: 1000.0 }, &x, &plan, &mut y);
    assert_eq!(y[0], 0.25);
}

#[test]
fn the_first_of_equal_extremes_is_named_in_rows_and_columns() {
    let x = [1i32, 3, 3, 0, 2, 5, 5, 0];
    let mut y = [0i64; 2];
    arg_extreme(&Pool::new(1), Extreme::Max, &x, 4, 1, &mut y);
    assert_eq!(y, [1, 1]);
    let mut y = [0i64; 4];
    arg_extreme(&Pool::new(1), Extreme::Min, &x, 2, 4, &mut y);
    assert_eq!(y, [0, 0, 0, 0]);
}

#[test]
fn places_of_extremes_are_those_that_a_scalar_loop_finds() {
    for n in [1usize, 2, 63, 64, 65, 255, 256, 257, 511, 513, 768, 1000] {
        for seed in 0..40u32 {
            // few values, so that some are equal; zeros of both signs and infinities among them, and sometimes NaN
            let some = [0.0, -0.0, 1.5, -2.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 1e-3];
            let kinds = [1, 2, 4, 6, 6, 8][seed as usize % 6];
            let mixed = |i: u32| (i + seed * 7919).wrapping_mul(2_654_435_761) >> 13;
            let rare = |i: u32| if mixed(i) % 97 == 0 { mixed(i) as usize / 97 % kinds } else { kinds / 3 };
            let x: Vec<f32> = (0..3 * n as u32).map(|i| some[rare(i)]).collect();
            for (which, beats) in [(Extreme::Max, (|a, b| a > b) as fn(f32, f32) -> bool), (Extreme::Min, |a, b| a < b)]
            {
                let mut y = [9i64; 3];
                arg_extreme(&Pool::new(2), which, &x, n, 1, &mut y);
                for (x, y) in x.chunks_exact(n).zip(y) {
                    let better = |new: f32, old: f32| beats(new, old) || (new.is_nan() && !old.is_nan());
                    let want = (1..n).fold(0, |best, i| if better(x[i], x[best]) { i } else { best });
                    assert_eq!(y, want as i64, "{which:?} of {n} elements, seed {seed}");
                }
            }
        }
    }
}

#[test]
fn places_of_extremes_are_found_in_arrays_beyond_the_cache() {
    let n = 1000;
    let rows = 2 * crate::cache::l2_bytes() / size_of::<f32>() / n;
    let mut x = noise(rows * n);
    let want: Vec<i64> = (0..rows).map(|row| (row * 7919 % n) as i64).collect();
    x.chunks_exact_mut(n).zip(&want).for_each(|(x, &place)| x[place as usize] = 2.0);
    for threads in [1, 2] {
        let mut y = vec![-1; rows];
        arg_extreme(&Pool::new(threads), Extreme::Max, &x, n, 1, &mut y);
        assert_eq!(y, want);
    }
}
