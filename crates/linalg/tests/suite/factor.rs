//! Factors multiply to what was factored.

use remat_linalg::{Factor, Failure, Triangle};

/// Four times the largest error seen, relative to the largest number: products of up to 65 numbers of badly scaled factors.
const NEAR: f64 = 1.2e-12;

fn wave(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i as f64 * 1.7).sin() + 0.1 * (i % 3) as f64).collect()
}

/// `a: m x k` times `b: k x n`.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
    (0..m * n).map(|ij| at(ij / n, ij % n)).collect()
}

fn transposed(a: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|ij| a[(ij % m) * n + ij / m]).collect()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    let most = a.iter().fold(1.0f64, |m, v| m.max(v.abs()));
    let worst = a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    a.len() == b.len() && worst <= NEAR * most
}

fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|ij| f64::from(u8::from(ij / n == ij % n))).collect()
}

#[test]
fn factors_multiply_to_the_matrix() {
    for n in [1, 2, 3, 7, 20, 65] {
        let a = wave(n * n);
        let mut spd = product(&a, &transposed(&a, n, n), [n, n, n]);
        (0..n).for_each(|i| spd[i * n + i] += 1.0);
        let mut l = vec![9.0; n * n];
        f64::cholesky(n, &spd, &mut l, &mut vec![0; f64::cholesky_bytes(n)]).expect("positive definite");
        assert!(near(&product(&l, &transposed(&l, n, n), [n, n, n]), &spd));
        assert!((0..n * n).all(|ij| ij / n >= ij % n || l[ij] == 0.0));

        let (mut w, mut v) = (vec![0.0; n], vec![0.0; n * n]);
        f64::eigh(n, &spd, &mut w, Some(&mut v), &mut vec![0; f64::eigh_bytes(n, true)]).expect("finite");
        assert!(w.is_sorted());
        let scaled: Vec<f64> = (0..n * n).map(|ij| v[ij] * w[ij % n]).collect();
        assert!(near(&product(&scaled, &transposed(&v, n, n), [n, n, n]), &spd));
        let mut alone = vec![0.0; n];
        f64::eigh(n, &spd, &mut alone, None, &mut vec![0; f64::eigh_bytes(n, false)]).expect("finite");
        assert!(near(&alone, &w));
    }
    for (m, n) in [(1, 1), (3, 2), (2, 3), (40, 17), (17, 40), (5, 1), (1, 5)] {
        let (a, k) = (wave(m * n), m.min(n));
        for wide in [k, m] {
            let (mut q, mut r) = (vec![9.0; m * wide], vec![9.0; wide * n]);
            f64::qr([m, n, wide], &a, &mut q, &mut r, &mut vec![0; f64::qr_bytes(m, n, wide)]);
            assert!(near(&product(&q, &r, [m, wide, n]), &a), "{m} {n} {wide}");
            assert!(near(&product(&transposed(&q, m, wide), &q, [wide, m, wide]), &identity(wide)));
            assert!((0..wide * n).all(|ij| ij / n <= ij % n || r[ij] == 0.0));
        }
        let (mut u, mut s, mut vt) = (vec![0.0; m * k], vec![0.0; k], vec![0.0; k * n]);
        let mut work = vec![0; f64::svd_bytes(m, n, true)];
        f64::svd(m, n, &a, &mut s, Some([&mut u, &mut vt]), &mut work).expect("finite");
        assert!(s.windows(2).all(|s| s[0] >= s[1]) && s[k - 1] >= 0.0);
        let scaled: Vec<f64> = (0..m * k).map(|ij| u[ij] * s[ij % k]).collect();
        assert!(near(&product(&scaled, &vt, [m, k, n]), &a), "{m} {n}");
        let mut p = vec![0.0; n * m];
        f64::pinv(m, n, &a, 1e-12, &mut p, &mut vec![0; f64::pinv_bytes(m, n)]).expect("finite");
        let (ap, pa) = (product(&a, &p, [m, n, m]), product(&p, &a, [n, m, n]));
        assert!(near(&product(&ap, &a, [m, m, n]), &a) && near(&product(&pa, &p, [n, n, m]), &p));
        assert!(near(&transposed(&ap, m, m), &ap) && near(&transposed(&pa, n, n), &pa));
        let mut alone = vec![0.0; k];
        f64::svd(m, n, &a, &mut alone, None, &mut vec![0; f64::svd_bytes(m, n, false)]).expect("finite");
        assert!(near(&alone, &s));
    }
}

#[test]
fn solutions_solve() {
    for n in [1, 2, 5, 33] {
        for k in [1, 3, 16] {
            let mut a = wave(n * n);
            (0..n).for_each(|i| a[i * n + i] += 3.0);
            let b = wave(n * k);
            for transpose in [false, true] {
                let mut x = b.clone();
                f64::solve(n, k, &a, &mut x, transpose, &mut vec![0; f64::solve_bytes(n, k)]).expect("regular");
                let a = if transpose { transposed(&a, n, n) } else { a.clone() };
                assert!(near(&product(&a, &x, [n, n, k]), &b));
            }
            for upper in [false, true] {
                for unit in [false, true] {
                    for transpose in [false, true] {
                        let mut x = b.clone();
                        f64::triangular(n, k, &a, &mut x, Triangle { upper, unit, transpose });
                        let mut t = a.clone();
                        for (ij, t) in t.iter_mut().enumerate() {
                            let (i, j) = (ij / n, ij % n);
                            if i == j && unit {
                                *t = 1.0;
                            } else if i != j && (i < j) != upper {
                                *t = 0.0;
                            }
                        }
                        let t = if transpose { transposed(&t, n, n) } else { t };
                        // each residual within n roundings of the terms that it is a sum of (Higham, 2002, theorem 8.5)
                        let sizes = |v: &[f64]| v.iter().map(|v| v.abs()).collect::<Vec<f64>>();
                        let (back, terms) = (product(&t, &x, [n, n, k]), product(&sizes(&t), &sizes(&x), [n, n, k]));
                        let bound = |terms: &f64| 2.0 * n as f64 * f64::EPSILON * terms;
                        assert!(
                            back.iter().zip(&b).zip(&terms).all(|((a, b), t)| (a - b).abs() <= bound(t)),
                            "{n} {k} {upper} {unit} {transpose}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn what_has_no_result_says_why() {
    let mut work = vec![0; 1 << 16];
    let mut l = [0.0; 4];
    assert_eq!(f64::cholesky(2, &[1.0, 2.0, 2.0, 1.0], &mut l, &mut work), Err(Failure::NotPositiveDefinite { at: 1 }));
    assert_eq!(f64::cholesky(2, &[f64::NAN; 4], &mut l, &mut work), Err(Failure::NotPositiveDefinite { at: 0 }));
    assert_eq!(
        f64::solve(2, 1, &[1.0, 2.0, 2.0, 4.0], &mut [1.0, 1.0], false, &mut work),
        Err(Failure::Singular { at: 1 })
    );
    assert_eq!(f64::slogdet(2, &[1.0, 2.0, 2.0, 4.0], &mut work), (0.0, f64::NEG_INFINITY));
    assert_eq!(f64::slogdet(2, &[0.0, 1.0, 1.0, 0.0], &mut work), (-1.0, 0.0));
    let mut s = [0.0; 2];
    for bad in [f64::NAN, f64::INFINITY] {
        assert_eq!(f64::svd(2, 2, &[1.0, bad, 0.0, 1.0], &mut s, None, &mut work), Err(Failure::NotFinite));
        assert_eq!(f64::pinv(2, 2, &[1.0, bad, 0.0, 1.0], 1e-15, &mut l, &mut work), Err(Failure::NotFinite));
        assert_eq!(f64::eigh(2, &[1.0, 0.0, bad, 1.0], &mut s, None, &mut work), Err(Failure::NotFinite));
    }
}

/// Singular values, eigenvalues and inverses of matrices whose squares are beyond the numbers are those of the matrix by the scale.
macro_rules! any_scale {
    ($name:ident, $t:ty, $scales:expr, $precision:expr) => {
        #[test]
        fn $name() {
            let (m, n) = (6, 4);
            let a: Vec<f64> = (0..m * n).map(|i| ((i * i * 7 + 3 * i) % 11) as f64 - 4.3).collect();
            let square: Vec<f64> = (0..n * n).map(|i| a[i / n * n + i % n] + a[i % n * n + i / n]).collect();
            let mut workspace =
                vec![0u8; <$t>::svd_bytes(m, n, true) + <$t>::pinv_bytes(m, n) + <$t>::eigh_bytes(n, true)];
            let mut run = |scale: f64| {
                let of = |x: &[f64]| x.iter().map(|v| (v * scale) as $t).collect::<Vec<$t>>();
                let (x, symmetric) = (of(&a), of(&square));
                let (mut s, mut alone) = (vec![0.0; n], vec![0.0; n]);
                let (mut u, mut vt) = (vec![0.0; m * n], vec![0.0; n * n]);
                <$t>::svd(m, n, &x, &mut s, Some([&mut u, &mut vt]), &mut workspace).expect("finite");
                <$t>::svd(m, n, &x, &mut alone, None, &mut workspace).expect("finite");
                let mut p = vec![0.0; n * m];
                <$t>::pinv(m, n, &x, 1e-5, &mut p, &mut workspace).expect("finite");
                let (mut w, mut v) = (vec![0.0; n], vec![0.0; n * n]);
                <$t>::eigh(n, &symmetric, &mut w, Some(&mut v), &mut workspace).expect("finite");
                let back = |x: Vec<$t>, by: f64| x.into_iter().map(|v| f64::from(v) * by).collect::<Vec<f64>>();
                [back(s, 1.0 / scale), back(alone, 1.0 / scale), back(w, 1.0 / scale), back(p, scale), back(u, 1.0)]
            };
            let want = run(1.0);
            for scale in $scales {
                for (what, (got, want)) in run(scale).iter().zip(&want).enumerate() {
                    let far = got.iter().zip(want).find(|(g, w)| (**g - **w).abs() > $precision * (1.0 + w.abs()));
                    assert!(far.is_none(), "result {what} at {scale:e}: {far:?}");
                }
            }
        }
    };
}
any_scale!(matrices_of_f32_have_values_at_any_scale, f32, [1e-36f64, 1e-25, 1e-21, 1e22, 1e30, 1e35], 2e-4);
any_scale!(matrices_of_f64_have_values_at_any_scale, f64, [1e-300f64, 1e-200, 1e-160, 1e170, 1e250, 1e300], 1e-11);
