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
