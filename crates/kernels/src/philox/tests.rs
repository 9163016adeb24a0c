use super::*;

/// Known answers of Random123 (`kat_vectors`, philox4x32-10).
#[test]
fn known_answers_of_random123() {
    assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let ones = u32::MAX;
    assert_eq!(philox4x32([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    assert_eq!(
        philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

/// The result of [`normal`] in f32, word by word, by the standard library.
fn plain_normal(w: [u32; 2], mean: f64, std: f64) -> [f32; 2] {
    let [u, v] = w.map(|w| (f64::from(w) + 1.0) / 4_294_967_296.0);
    let (sin, cos) = (std::f64::consts::TAU * v).sin_cos();
    [cos, sin].map(|part| (mean + std * (-2.0 * u.ln()).sqrt() * part) as f32)
}

#[test]
fn groups_have_the_words_of_their_blocks() {
    let high = u64::MAX << 33;
    for (s, b) in [
        (Stream { key: 0, stream: 0 }, 0),
        (Stream { key: u64::MAX, stream: u64::MAX }, u64::MAX - 3),
        (Stream { key: 0xa409_3822_299f_31d0, stream: 5 + high }, u64::from(u32::MAX) - 7),
    ] {
        let blocks = (0..GROUP as u64).flat_map(|i| s.block(b.wrapping_add(i)));
        assert!(s.group(&s.keys(), b).into_iter().eq(blocks.clone()), "{s:?} from {b}");
        let wide = widest(
            #[inline(always)]
            || s.group(&s.keys(), b),
        );
        assert!(wide.into_iter().eq(blocks), "{s:?} from {b}, in wide vectors");
    }
}

#[test]
fn elements_are_functions_of_their_words_at_any_length() {
    let s = Stream { key: 11, stream: 1 << 40 };
    for n in [1, 2, 5, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 9001] {
        let words: Vec<u32> = (0..n as u64 * 2).map(|i| s.word(i)).collect();
        let pool = Pool::new(2);
        let (mut y, mut z, mut ones) = (vec![0.0f32; n], vec![0.0f64; n], vec![7i32; n]);
        uniform(&pool, s, -1.0, 2.5, &mut y);
        uniform(&pool, s, -1.0, 2.5, &mut z);
        bernoulli(&pool, s, 0.3, &mut ones);
        for i in 0..n {
            let u = f64::from(words[i] >> 8) / 16_777_216.0;
            assert_eq!(y[i], (u * 3.5 - 1.0) as f32, "{i} of {n}");
            let u = (u64::from(words[2 * i]) << 32 | u64::from(words[2 * i + 1])) >> 11;
            assert_eq!(z[i], u as f64 / 9_007_199_254_740_992.0 * 3.5 - 1.0, "{i} of {n}");
            assert_eq!(ones[i], i32::from(f64::from(words[i]) < 0.3 * 4_294_967_296.0), "{i} of {n}");
        }
        uniform(&pool, s, 0.0, 1.0, &mut y);
        for (i, y) in y.iter().enumerate() {
            assert_eq!(*y, (f64::from(words[i] >> 8) / 16_777_216.0) as f32, "{i} of {n}, without a range");
        }
        let mut kept: Vec<f32> = (1..=n).map(|i| i as f32).collect();
        dropout(&pool, s, 0.3, &mut kept);
        let factor = (1.0 / 0.7) as f32;
        let want = (1..=n).map(|i| if ones[i - 1] == 1 { 0.0 } else { i as f32 * factor });
        assert!(kept.into_iter().eq(want), "{n}");
        normal(&pool, s, 0.0, 2.0, &mut y);
        for (i, y) in y.into_iter().enumerate() {
            let want = plain_normal([words[i / 2 * 2], words[i / 2 * 2 + 1]], 0.0, 2.0)[i % 2];
            assert!((y - want).abs() <= want.abs() * f32::EPSILON, "{i} of {n}: {y}, not {want}");
        }
    }
}

#[test]
fn angles_of_whole_quarters_and_the_least_logarithm_are_exact() {
    for (turns, want) in [(0u32, (0.0, 1.0)), (1 << 30, (1.0, 0.0)), (1 << 31, (0.0, -1.0)), (3 << 30, (-1.0, 0.0))] {
        let (sin, cos) = sin_cos_turns(turns);
        assert!((sin - want.0).abs() < 1e-12 && (cos - want.1).abs() < 1e-12, "{turns}: {sin} {cos}");
    }
    assert_eq!(ln64(1.0), 0.0);
    for turns in (0..u32::MAX - 65_537).step_by(65_537) {
        let angle = f64::from(turns) * (std::f64::consts::TAU / 4_294_967_296.0);
        let (sin, cos) = sin_cos_turns(turns);
        assert!((sin - angle.sin()).abs() < 1e-11 && (cos - angle.cos()).abs() < 1e-11, "{turns}");
    }
}

#[test]
fn moments_are_those_of_the_distributions() {
    let pool = Pool::new(2);
    let s = Stream { key: 7, stream: 1 };
    let mut y = vec![0.0f32; 1 << 18];
    let moments = |y: &[f32]| {
        let n = y.len() as f64;
        let mean = y.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        (mean, y.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n)
    };
    // five standard errors each
    normal(&pool, s, 1.0, 2.0, &mut y);
    let (m, v) = moments(&y);
    assert!((m - 1.0).abs() < 0.02 && (v - 4.0).abs() < 0.06, "{m} {v}");
    uniform(&pool, s, -1.0, 1.0, &mut y);
    let (m, v) = moments(&y);
    assert!(m.abs() < 0.006 && (v - 1.0 / 3.0).abs() < 0.003, "{m} {v}");
    y.fill(1.0);
    dropout(&pool, s, 0.25, &mut y);
    let zeros = y.iter().filter(|v| **v == 0.0).count() as f64 / y.len() as f64;
    assert!((zeros - 0.25).abs() < 0.005, "{zeros}");
}

#[test]
fn an_element_depends_on_key_and_position_only() {
    let s = Stream { key: 3, stream: 9 };
    let (mut long, mut short) = (vec![0.0f64; 10_001], vec![0.0f64; 5003]);
    normal(&Pool::new(3), s, 0.0, 1.0, &mut long);
    normal(&Pool::new(1), s, 0.0, 1.0, &mut short);
    assert_eq!(long[..5003], short[..]);
    let mut order = vec![0i64; 100];
    permutation(s, &mut order);
    assert_ne!(order[..4], [0, 1, 2, 3]);
    order.sort_unstable();
    assert!(order.iter().enumerate().all(|(i, &v)| i as i64 == v));
}

#[test]
fn no_uniform_number_of_any_dtype_is_the_upper_end() {
    fn go<T: FloatElement>(lo: f64, hi: f64) {
        let (pool, mut y) = (Pool::new(2), vec![T::default(); 1 << 17]);
        for key in 0..4 {
            uniform(&pool, Stream { key, stream: 0 }, lo, hi, &mut y);
            let out = y.iter().map(|v| v.to_f64()).find(|v| !(lo <= *v && *v < hi));
            assert!(out.is_none(), "{:?} in {lo} .. {hi} as {}", out, T::DTYPE);
        }
    }
    use remat_types::{bf16, f16};
    for (lo, hi) in [(0.0, 1.0), (-1.0, 1.0), (-2.0, 0.0), (3.0, 4.0), (-0.125, 0.5)] {
        go::<f16>(lo, hi);
        go::<bf16>(lo, hi);
        go::<f32>(lo, hi);
        go::<f64>(lo, hi);
    }
    // so near that a third of the draws would be rounded to the end
    go::<f32>(16_777_214.0, 16_777_216.0);
    go::<f32>(0.0, f64::from(f32::MIN_POSITIVE));
    assert_eq!(last_below::<f32>(1.0, 1.0), 1.0, "an empty range is its number");
    assert_eq!(last_below::<f16>(0.0, 1.0), 1.0 - 2f64.powi(-11));
    assert_eq!(last_below::<bf16>(0.0, 1.0), 1.0 - 2f64.powi(-8));
    assert_eq!(last_below::<f32>(0.0, 0.1), f64::from(0.1f32.next_down()));
}

#[test]
fn logarithms_of_gamma_numbers_are_those_of_the_numbers_and_have_none_that_is_too_small() {
    let (pool, s) = (Pool::new(2), Stream { key: 5, stream: 2 });
    let alpha: Vec<f64> = (0..3000).map(|i| 0.2 + i as f64 * 0.01).collect();
    let (mut y, mut logs) = (vec![0.0; alpha.len()], vec![0.0; alpha.len()]);
    gamma(&pool, s, false, &alpha, &mut y);
    gamma(&pool, s, true, &alpha, &mut logs);
    for (y, log) in y.iter().zip(&logs) {
        assert!((y.ln() - log).abs() < 1e-12 * log.abs().max(1.0), "{y} {log}");
    }
    // the mean of the logarithm is digamma, of small shapes nearly -1 / alpha
    let mut logs = vec![0.0f32; 20_000];
    gamma(&pool, s, true, &vec![1e-4f32; logs.len()], &mut logs);
    let mean = logs.iter().map(|v| f64::from(*v)).sum::<f64>() / logs.len() as f64;
    assert!((mean / -1e4 - 1.0).abs() < 0.04, "{mean}");
}
