//! Fourier transforms beside the sums that define them.

use num_complex::Complex;
use remat_linalg::fft::{Transform, workspace_bytes};

/// Four times the largest error seen, relative to the largest number.
const NEAR: f64 = 6e-15;

/// By the sum of the definition.
fn slow(x: &[f64], inverse: bool) -> Vec<f64> {
    let n = x.len() / 2;
    let sign = if inverse { 1.0 } else { -1.0 };
    let row = |k: usize| {
        let terms = (0..n).map(|j| {
            let at = sign * std::f64::consts::TAU * ((j * k) % n) as f64 / n as f64;
            Complex::new(x[2 * j], x[2 * j + 1]) * Complex::new(at.cos(), at.sin())
        });
        let y: Complex<f64> = terms.sum();
        [y.re, y.im]
    };
    (0..n).flat_map(row).collect()
}

fn wave(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i as f64 * 1.7).sin() + 0.3 * (i % 5) as f64).collect()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    let most = a.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    let worst = a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    a.len() == b.len() && worst <= NEAR * most
}

#[test]
fn transforms_are_the_sums_of_the_definition() {
    for n in [1, 2, 3, 4, 5, 7, 8, 12, 17, 64, 97, 100, 210, 256] {
        let mut work = vec![0u8; workspace_bytes::<f64>(n)];
        let x = wave(4 * n);
        for inverse in [false, true] {
            let mut y = x.clone();
            f64::fft(n, &mut y, inverse, &mut work);
            let (first, second) = x.split_at(2 * n);
            let want = [slow(first, inverse), slow(second, inverse)].concat();
            assert!(near(&y, &want), "{n} {inverse}");
        }
        let real = wave(n);
        let pairs: Vec<f64> = real.iter().flat_map(|v| [*v, 0.0]).collect();
        let mut half = vec![0.0; 2 * (n / 2 + 1)];
        f64::rfft(n, &real, &mut half, &mut work);
        assert!(near(&half, &slow(&pairs, false)[..half.len()]), "{n}");
        let mut back = vec![0.0; n];
        f64::irfft(n, &half, &mut back, &mut work);
        let want: Vec<f64> = real.iter().map(|v| v * n as f64).collect();
        assert!(near(&back, &want), "{n}");
    }
}

#[test]
fn the_workspace_suffices_for_every_length() {
    let some = (1..1500).chain([4093, 4096, 8191, 9973, 10_007, 16_384, 32_749, 65_537, 99_991]);
    for n in some {
        let mut work = vec![0u8; workspace_bytes::<f32>(n)];
        let mut x = vec![1.0f32; 2 * n];
        f32::fft(n, &mut x, false, &mut work);
        let (mut y, mut z) = (vec![0.0f32; 2 * (n / 2 + 1)], vec![0.0f32; n]);
        f32::rfft(n, &z, &mut y, &mut work);
        f32::irfft(n, &y, &mut z, &mut work);
        // four times the largest error seen, which is a rounding and a half
        assert!((x[0] - n as f32).abs() <= 8e-7 * n as f32);
    }
}
