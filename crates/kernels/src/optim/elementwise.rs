//! The pass of every rule that moves each element by itself.

use super::CHUNK;
use crate::float::{Disjoint, FloatElement};
use crate::pool::Pool;
use crate::simd::widest;

/// Elements that are computed together, in registers: so that no two slices have to be known as apart.
const LANES: usize = 16;

/// `(p, s) = f(p, g, s)` of each element of a parameter, its gradient and `K` states, in place. Mark `f` and what it calls
/// `#[inline(always)]`.
///
/// # Panics
/// If the slices differ in length.
pub fn each_element<T: FloatElement, const K: usize>(
    pool: &Pool,
    param: &mut [T],
    grad: &[T],
    state: [&mut [T]; K],
    f: impl Fn(T::Real, T::Real, [T::Real; K]) -> (T::Real, [T::Real; K]) + Sync,
) {
    assert!(grad.len() == param.len() && state.iter().all(|s| s.len() == param.len()));
    let state = state.map(Disjoint::new);
    pool.chunks_mut(param, CHUNK, |chunk, param| {
        let (at, n) = (chunk * CHUNK, param.len());
        let grad = &grad[at..][..n];
        // SAFETY: chunks of different number do not overlap.
        let mut state: [&mut [T]; K] = std::array::from_fn(|k| unsafe { state[k].part(at, n) });
        widest(
            #[inline(always)]
            || {
                let whole = n - n % LANES;
                for from in (0..whole).step_by(LANES) {
                    let range = from..from + LANES;
                    let (p, g) = (&mut param[range.clone()], &grad[range.clone()]);
                    let old: [[T; LANES]; K] = std::array::from_fn(|k| lanes(&state[k][range.clone()]));
                    let (old_p, old_g) = (lanes(p), lanes(g));
                    let mut new = [[old_p[0]; LANES]; K];
                    for (l, p) in p.iter_mut().enumerate() {
                        let s = std::array::from_fn(|k| old[k][l].up());
                        let (moved, s) = f(old_p[l].up(), old_g[l].up(), s);
                        *p = T::down(moved);
                        (0..K).for_each(|k| new[k][l] = T::down(s[k]));
                    }
                    (0..K).for_each(|k| state[k][range.clone()].copy_from_slice(&new[k]));
                }
                for i in whole..n {
                    let (moved, s) = f(param[i].up(), grad[i].up(), std::array::from_fn(|k| state[k][i].up()));
                    param[i] = T::down(moved);
                    (0..K).for_each(|k| state[k][i] = T::down(s[k]));
                }
            },
        );
    });
}

#[inline(always)]
fn lanes<T: Copy>(x: &[T]) -> [T; LANES] {
    std::array::from_fn(|l| x[l])
}
