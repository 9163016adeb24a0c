//! Discrete Fourier transforms, by `rustfft` and `realfft`. No transform is normalised.
//!
//! Complex numbers are pairs of real and imaginary part. A plan holds tables of about as many numbers as it transforms; those
//! of short lengths are kept, at most 16 of them.

use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::{Pod, cast_slice, cast_slice_mut, pod_align_to_mut};
use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};

/// How many plans of a kind are kept.
const KEPT: usize = 16;
/// The greatest length whose plan is kept.
const LONGEST_KEPT: usize = 1 << 14;

/// The greatest length whose scratch is at most twice as long, whatever its factors.
const SHORT: usize = 64;

/// The numbers that transforms take: f32 and f64.
pub trait Transform: FftNum + Pod {
    /// `y_k = sum x_j e^(-2 pi i j k / n)`, or with `+`, in place of the `2 n` numbers of each row of `x`.
    fn fft(n: usize, x: &mut [Self], inverse: bool, workspace: &mut [u8]);
    /// The first `n / 2 + 1` numbers of the transform of each row of `n` real numbers, as pairs.
    fn rfft(n: usize, x: &[Self], y: &mut [Self], workspace: &mut [u8]);
    /// Rows of `n` real numbers out of the first `n / 2 + 1` of their transforms, times `n`. The imaginary part of the first, and
    /// of the last if `n` is even, is not read.
    fn irfft(n: usize, x: &[Self], y: &mut [Self], workspace: &mut [u8]);
}

/// A bound of the workspace of all transforms of `n` numbers: for scratch, a copy of a row and, where the plan is not kept, its
/// tables.
pub fn workspace_bytes<T>(n: usize) -> usize {
    // the transform of an awkward length goes by way of one of a power of two of at least twice its length
    let padded = n.saturating_mul(2).checked_next_power_of_two().unwrap_or(usize::MAX);
    let scratch = if n <= SHORT { 2 * n } else { padded.saturating_mul(5) / 2 };
    let tables = if n > LONGEST_KEPT { padded.saturating_mul(2) } else { 0 };
    scratch.saturating_add(tables).saturating_add(n + 1).saturating_mul(2 * size_of::<T>())
}

/// The plans of one kind that were used last, the last one at the end.
struct Plans<P: ?Sized>(Mutex<Vec<(usize, Arc<P>)>>);

impl<P: ?Sized> Plans<P> {
    const fn new() -> Self {
        Plans(Mutex::new(Vec::new()))
    }

    /// The plan for `n` numbers.
    fn get(&self, n: usize, make: impl FnOnce() -> Arc<P>) -> Arc<P> {
        if n > LONGEST_KEPT {
            return make();
        }
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = {
            let mut plans = lock();
            let at = plans.iter().position(|p| p.0 == n);
            at.map(|at| {
                let plan = plans.remove(at);
                plans.push(plan.clone());
                plan.1
            })
        };
        found.unwrap_or_else(|| {
            // outside of the lock: others need not wait for a plan to be made
            let plan = make();
            let mut plans = lock();
            if plans.len() == KEPT {
                plans.remove(0);
            }
            plans.push((n, plan.clone()));
            plan
        })
    }
}

/// The first `n` numbers in `workspace`, and what is left of it.
fn take<T: Pod>(workspace: &mut [u8], n: usize) -> (&mut [T], &mut [u8]) {
    let (_, numbers, _) = pod_align_to_mut::<u8, T>(workspace);
    let (taken, rest) = numbers.split_at_mut(n);
    (taken, cast_slice_mut(rest))
}

macro_rules! transform {
    ($($t:ident)*) => { $(
        impl Transform for $t {
            fn fft(n: usize, x: &mut [$t], inverse: bool, workspace: &mut [u8]) {
                static PLANS: [Plans<dyn Fft<$t>>; 2] = [const { Plans::new() }; 2];
                if n == 0 || x.is_empty() {
                    return;
                }
                let way = if inverse { FftDirection::Inverse } else { FftDirection::Forward };
                let plan = PLANS[usize::from(inverse)].get(n, || FftPlanner::new().plan_fft(n, way));
                let (scratch, _) = take(workspace, plan.get_inplace_scratch_len());
                let x: &mut [Complex<$t>] = cast_slice_mut(x);
                x.chunks_exact_mut(n).for_each(|row| plan.process_with_scratch(row, scratch));
            }

            fn rfft(n: usize, x: &[$t], y: &mut [$t], workspace: &mut [u8]) {
                static PLANS: Plans<dyn RealToComplex<$t>> = Plans::new();
                if n == 0 || x.is_empty() {
                    return;
                }
                let plan = PLANS.get(n, || RealFftPlanner::new().plan_fft_forward(n));
                let (row, rest) = take::<$t>(workspace, n);
                let (scratch, _) = take(rest, plan.get_scratch_len());
                let y: &mut [Complex<$t>] = cast_slice_mut(y);
                for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n / 2 + 1)) {
                    row.copy_from_slice(x);
                    plan.process_with_scratch(row, y, scratch).expect("slices of the plan's lengths");
                }
            }

            fn irfft(n: usize, x: &[$t], y: &mut [$t], workspace: &mut [u8]) {
                static PLANS: Plans<dyn ComplexToReal<$t>> = Plans::new();
                if n == 0 || x.is_empty() {
                    return;
                }
                let plan = PLANS.get(n, || RealFftPlanner::new().plan_fft_inverse(n));
                let (row, rest) = take::<Complex<$t>>(workspace, n / 2 + 1);
                let (scratch, _) = take(rest, plan.get_scratch_len());
                let x: &[Complex<$t>] = cast_slice(x);
                for (x, y) in x.chunks_exact(n / 2 + 1).zip(y.chunks_exact_mut(n)) {
                    row.copy_from_slice(x);
                    row[0].im = 0.0;
                    if n % 2 == 0 {
                        row[n / 2].im = 0.0;
                    }
                    plan.process_with_scratch(row, y, scratch).expect("slices of the plan's lengths, real ends");
                }
            }
        }
    )* };
}
transform!(f32 f64);

#[cfg(test)]
mod tests {
    use super::*;

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
}
