//! The pass of every rule that moves each element by itself.

use super::CHUNK;
use crate::float::{Disjoint, FloatElement};
use crate::pool::Pool;
use crate::simd::widest;

/// Elements of a gradient that are copied at once: to a place that is known to be apart from the others. Otherwise there
/// are too many arrays for the compiler to prove this by comparisons.
const BLOCK: usize = 256;

/// The states of a parameter: one to three slices as long as it.
pub trait ElementStates<T: FloatElement>: Sized {
    /// A number of each.
    type Numbers;

    /// [`each_element`].
    fn each(
        self,
        pool: &Pool,
        param: &mut [T],
        grad: &[T],
        f: impl Fn(T::Real, T::Real, Self::Numbers) -> (T::Real, Self::Numbers) + Sync,
    );
}

/// `(p, s) = f(p, g, s)` of each element of a parameter, its gradient and its states, in place. Mark `f` and what it calls
/// `#[inline(always)]`.
///
/// # Panics
/// If the slices differ in length.
pub fn each_element<T: FloatElement, S: ElementStates<T>>(
    pool: &Pool,
    param: &mut [T],
    grad: &[T],
    state: S,
    f: impl Fn(T::Real, T::Real, S::Numbers) -> (T::Real, S::Numbers) + Sync,
) {
    state.each(pool, param, grad, f);
}

macro_rules! states {
    ($($n:literal: $($s:ident $new:ident),+;)*) => { $(
        impl<T: FloatElement> ElementStates<T> for [&mut [T]; $n] {
            type Numbers = [T::Real; $n];

            fn each(
                self,
                pool: &Pool,
                param: &mut [T],
                grad: &[T],
                f: impl Fn(T::Real, T::Real, Self::Numbers) -> (T::Real, Self::Numbers) + Sync,
            ) {
                assert!(grad.len() == param.len() && self.iter().all(|s| s.len() == param.len()));
                let [$($s),+] = self.map(Disjoint::new);
                pool.chunks_mut(param, CHUNK, |chunk, param| {
                    let (at, n) = (chunk * CHUNK, param.len());
                    let grad = &grad[at..][..n];
                    // SAFETY: chunks of different number do not overlap.
                    $( let $s = unsafe { $s.part(at, n) }; )+
                    widest(
                        #[inline(always)]
                        || {
                            let mut g = [T::default(); BLOCK];
                            for from in (0..n).step_by(BLOCK) {
                                let m = BLOCK.min(n - from);
                                let g = &mut g[..m];
                                g.copy_from_slice(&grad[from..][..m]);
                                let param = &mut param[from..][..m];
                                $( let $s = &mut $s[from..][..m]; )+
                                for i in 0..m {
                                    let (p, [$($new),+]) = f(param[i].up(), g[i].up(), [$($s[i].up()),+]);
                                    param[i] = T::down(p);
                                    $( $s[i] = T::down($new); )+
                                }
                            }
                        },
                    );
                });
            }
        }
    )* };
}
states! {
    1: a new_a;
    2: a new_a, b new_b;
    3: a new_a, b new_b, c new_c;
}
