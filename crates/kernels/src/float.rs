//! Float elements and the type that kernels compute in: f32 for f16, bf16 and f32, f64 for f64.
//!
//! Loops are written over arrays of [`LANES`] accumulators, so that the order of additions is fixed in the source and
//! the bits are the same for every vector width; `simd::widest` lets the compiler use what the processor has.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use remat_types::{DType, Element, Storage, bf16, f16};

pub use crate::maths::Real;
use crate::prefetch::{prefetch_row_beyond, prefetch_run};

/// Accumulators of a reduction along a row: two vectors of eight, enough to hide the latency of an addition.
pub const LANES: usize = 16;

/// Elements that lanes of f32 add up before the sum moves to f64: bounds the rounding error of long rows.
const BLOCK_ELEMS: usize = 1024;

/// A float element and its compute type.
pub trait FloatElement: Storage + Element {
    /// The type in which kernels compute.
    type Real: Real;
    /// The dtype of [`FloatElement::Real`].
    const REAL: DType;
    /// Widens.
    fn up(self) -> Self::Real;
    /// Rounds to nearest even.
    fn down(v: Self::Real) -> Self;
}

macro_rules! float_element {
    ($($t:ty, $real:ty, $dtype:ident, |$x:ident| $up:expr, |$v:ident| $down:expr;)*) => { $(
        impl FloatElement for $t {
            type Real = $real;
            const REAL: DType = DType::$dtype;
            #[inline(always)]
            fn up(self) -> $real { let $x = self; $up }
            #[inline(always)]
            fn down($v: $real) -> Self { $down }
        }
    )* };
}
float_element! {
    f32, f32, F32, |x| x, |v| v;
    f64, f64, F64, |x| x, |v| v;
    f16, f32, F32, |x| x.to_f32(), |v| f16::from_f32(v);
    bf16, f32, F32, |x| x.to_f32(), |v| bf16::from_f32(v);
}

/// The sum of `f(x[i], y[i])`: lanes of `R` within a block, f64 across blocks. `prefetch` is called with the places of each
/// [`LANES`] elements, and may prefetch what is needed next.
#[inline(always)]
pub(crate) fn sum2<T: FloatElement>(
    x: &[T],
    y: &[T],
    prefetch: impl Fn(*const T, *const T),
    f: impl Fn(T, T) -> T::Real,
) -> f64 {
    let mut total = 0.0;
    for (x, y) in x.chunks(BLOCK_ELEMS).zip(y.chunks(BLOCK_ELEMS)) {
        let mut lanes = [T::Real::ZERO; LANES];
        let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
        for (x, y) in x.iter().zip(y) {
            prefetch(x.as_ptr(), y.as_ptr());
            let mut v = [T::Real::ZERO; LANES];
            for lane in 0..LANES {
                v[lane] = f(x[lane], y[lane]);
            }
            for lane in 0..LANES {
                lanes[lane] += v[lane];
            }
        }
        let mut lanes = stored(lanes);
        for (lane, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
            lanes[lane] += f(*x, *y);
        }
        total += fold(&lanes);
    }
    total
}

/// The sum of `f(x[i])`. Writes each term to `y[i]`, and prefetches ahead in both.
#[inline(always)]
pub(crate) fn sum_into<T: FloatElement>(x: &[T], y: &mut [T], f: impl Fn(T) -> T::Real) -> f64 {
    let mut total = 0.0;
    for (x, y) in x.chunks(BLOCK_ELEMS).zip(y.chunks_mut(BLOCK_ELEMS)) {
        let mut lanes = [T::Real::ZERO; LANES];
        let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks_mut::<LANES>());
        for (x, y) in x.iter().zip(y) {
            prefetch_row_beyond(x.as_ptr());
            prefetch_row_beyond(y.as_ptr());
            let mut v = [T::Real::ZERO; LANES];
            for lane in 0..LANES {
                v[lane] = f(x[lane]);
            }
            for lane in 0..LANES {
                lanes[lane] += v[lane];
            }
            for lane in 0..LANES {
                y[lane] = T::down(v[lane]);
            }
        }
        let mut lanes = stored(lanes);
        for (lane, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
            let v = f(*x);
            lanes[lane] += v;
            *y = T::down(v);
        }
        total += fold(&lanes);
    }
    total
}

/// `z[i] = f(x[i], y[i])`. `prefetch` as for [`sum2`].
#[inline(always)]
pub(crate) fn map2<T: FloatElement>(
    x: &[T],
    y: &[T],
    z: &mut [T],
    prefetch: impl Fn(*const T, *const T),
    f: impl Fn(T, T) -> T,
) {
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let (z, z_rest) = z.as_chunks_mut::<LANES>();
    for ((x, y), z) in x.iter().zip(y).zip(z) {
        prefetch(x.as_ptr(), y.as_ptr());
        // whole before it is stored, or the compiler takes the lanes one after the other
        let mut v = [T::default(); LANES];
        for lane in 0..LANES {
            v[lane] = f(x[lane], y[lane]);
        }
        *z = v;
    }
    for ((x, y), z) in x_rest.iter().zip(y_rest).zip(z_rest) {
        *z = f(*x, *y);
    }
}

/// The sum of `f(x[i])`.
#[inline(always)]
pub(crate) fn sum<T: FloatElement>(x: &[T], f: impl Fn(T) -> T::Real) -> f64 {
    sum2(x, x, |_, _| {}, |x, _| f(x))
}

/// The sums of `a` and of `a b`, with `a` and `b` functions of `(x[i], y[i], z[i])`; `prefetch(x, y)` as for [`sum2`].
///
/// Each loop below does one thing to all lanes, which is what compiles to vector code in every profile.
#[inline(always)]
pub(crate) fn moments3<T: FloatElement>(
    x: &[T],
    y: &[T],
    z: &[T],
    prefetch: impl Fn(*const T, *const T),
    a: impl Fn(T, T, T) -> T::Real,
    b: impl Fn(T, T, T) -> T::Real,
) -> [f64; 2] {
    let mut total = [0.0f64; 2];
    for ((x, y), z) in x.chunks(BLOCK_ELEMS).zip(y.chunks(BLOCK_ELEMS)).zip(z.chunks(BLOCK_ELEMS)) {
        let (mut first, mut second) = ([T::Real::ZERO; LANES], [T::Real::ZERO; LANES]);
        let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
        let (z, z_rest) = z.as_chunks::<LANES>();
        for ((x, y), z) in x.iter().zip(y).zip(z) {
            prefetch(x.as_ptr(), y.as_ptr());
            let (mut u, mut v) = ([T::Real::ZERO; LANES], [T::Real::ZERO; LANES]);
            for lane in 0..LANES {
                u[lane] = a(x[lane], y[lane], z[lane]);
            }
            for lane in 0..LANES {
                v[lane] = b(x[lane], y[lane], z[lane]);
            }
            for lane in 0..LANES {
                first[lane] += u[lane];
            }
            for lane in 0..LANES {
                second[lane] += u[lane] * v[lane];
            }
        }
        let (mut first, mut second) = (stored(first), stored(second));
        for (lane, ((x, y), z)) in x_rest.iter().zip(y_rest).zip(z_rest).enumerate() {
            let u = a(*x, *y, *z);
            first[lane] += u;
            second[lane] += u * b(*x, *y, *z);
        }
        total[0] += fold(&first);
        total[1] += fold(&second);
    }
    total
}

/// With `v = x[i] - about` and `u = y[i] z[i]` the sums of `v`, `v^2`, `u` and `u v`. See [`moments3`].
#[inline(always)]
pub(crate) fn moments4<T: FloatElement>(
    x: &[T],
    y: &[T],
    z: &[T],
    about: T::Real,
    prefetch: impl Fn(*const T, *const T),
) -> [f64; 4] {
    let mut total = [0.0f64; 4];
    for ((x, y), z) in x.chunks(BLOCK_ELEMS).zip(y.chunks(BLOCK_ELEMS)).zip(z.chunks(BLOCK_ELEMS)) {
        let [mut a, mut b, mut c, mut d] = [[T::Real::ZERO; LANES]; 4];
        let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
        let (z, z_rest) = z.as_chunks::<LANES>();
        for ((x, y), z) in x.iter().zip(y).zip(z) {
            prefetch(x.as_ptr(), y.as_ptr());
            let (mut u, mut v) = ([T::Real::ZERO; LANES], [T::Real::ZERO; LANES]);
            for lane in 0..LANES {
                v[lane] = x[lane].up() - about;
            }
            for lane in 0..LANES {
                u[lane] = y[lane].up() * z[lane].up();
            }
            for lane in 0..LANES {
                a[lane] += v[lane];
            }
            for lane in 0..LANES {
                b[lane] += v[lane] * v[lane];
            }
            for lane in 0..LANES {
                c[lane] += u[lane];
            }
            for lane in 0..LANES {
                d[lane] += u[lane] * v[lane];
            }
        }
        let [mut a, mut b, mut c, mut d] = [a, b, c, d].map(stored);
        for (lane, ((x, y), z)) in x_rest.iter().zip(y_rest).zip(z_rest).enumerate() {
            let (v, u) = (x.up() - about, y.up() * z.up());
            a[lane] += v;
            b[lane] += v * v;
            c[lane] += u;
            d[lane] += u * v;
        }
        for (total, lanes) in total.iter_mut().zip([a, b, c, d]) {
            *total += fold(&lanes);
        }
    }
    total
}

/// The largest element; NaN is passed over, and nothing gives minus infinity.
#[inline(always)]
pub(crate) fn largest<T: FloatElement>(x: &[T]) -> T::Real {
    let larger = |a: T::Real, b: T::Real| if a > b { a } else { b };
    // four chains: a maximum takes as long as four vectors are loaded
    let [mut lanes, mut b, mut c, mut d] = [[T::Real::NEG_INFINITY; LANES]; 4];
    let (rows, rest) = x.as_chunks::<LANES>();
    let (whole, rows) = rows.as_chunks::<4>();
    for x in whole {
        for lane in 0..LANES {
            lanes[lane] = larger(x[0][lane].up(), lanes[lane]);
        }
        for lane in 0..LANES {
            b[lane] = larger(x[1][lane].up(), b[lane]);
        }
        for lane in 0..LANES {
            c[lane] = larger(x[2][lane].up(), c[lane]);
        }
        for lane in 0..LANES {
            d[lane] = larger(x[3][lane].up(), d[lane]);
        }
    }
    for x in rows.iter().map(|x| x.map(T::up)).chain([b, c, d]) {
        for lane in 0..LANES {
            lanes[lane] = larger(x[lane], lanes[lane]);
        }
    }
    let most = lanes.into_iter().fold(T::Real::NEG_INFINITY, |m, v| larger(v, m));
    rest.iter().fold(most, |m, v| larger(v.up(), m))
}

/// The lanes after a loop that adds to them, in memory. The rest of a row is added to lanes by number, for which they must lie
/// in memory; were these the lanes of the loop, the compiler would keep each of them in a register of its own there, in place of
/// whole vectors.
#[inline(always)]
fn stored<R>(lanes: [R; LANES]) -> [R; LANES] {
    std::hint::black_box(lanes)
}

/// The sum of the lanes, pairwise, in f64.
///
/// A call of its own: seen together with the loop that adds to the lanes, the compiler makes pairs of them, as they are
/// summed here, in place of whole vectors.
#[inline(never)]
fn fold<R: Real>(lanes: &[R; LANES]) -> f64 {
    let mut wide = [0.0f64; LANES];
    for (w, l) in wide.iter_mut().zip(lanes) {
        *w = l.to_f64();
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            wide[i] += wide[i + width];
        }
        width /= 2;
    }
    wide[0]
}

/// A mutable slice from which threads take parts that do not overlap.
pub(crate) struct Disjoint<'a, T> {
    data: *mut T,
    len: usize,
    life: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: sharing it lets other threads take `&mut` to disjoint parts (the contract of `part`), which `T: Send` allows.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Disjoint { data: data.as_mut_ptr(), len: data.len(), life: std::marker::PhantomData }
    }

    /// Where element `index` lies; it may be any index.
    pub(crate) fn place(&self, index: usize) -> *const T {
        self.data.wrapping_add(index)
    }

    /// Prefetches the cache lines of these elements.
    #[inline(always)]
    pub(crate) fn prefetch(&self, range: std::ops::Range<usize>) {
        prefetch_run(self.data.wrapping_add(range.start), range.len());
    }

    /// Elements `start .. start + len`. Panics if they leave the slice.
    ///
    /// # Safety
    /// No two parts that live at the same time overlap.
    #[allow(clippy::mut_from_ref, reason = "the slice is borrowed mutably by `self`; parts do not overlap")]
    pub(crate) unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part {start}+{len} of {}", self.len);
        // SAFETY: within the slice by the assert, and not aliased as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maths;
    use crate::simd::{wide, widest};

    #[test]
    fn the_polynomial_exponential_is_within_two_ulp() {
        let mut worst = 0i64;
        for i in 0..200_000 {
            let x = -87.0 + i as f32 * (175.0 / 200_000.0);
            let want = f64::from(x).exp() as f32;
            worst = worst.max((i64::from(maths::exp(x).to_bits()) - i64::from(want.to_bits())).abs());
        }
        assert!(worst <= 2, "{worst} ulp");
        assert_eq!(maths::exp(0.0), 1.0);
        assert_eq!(maths::exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(maths::exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(maths::exp(-200.0), 0.0);
        assert!(maths::exp(f32::NAN).is_nan());
    }

    #[test]
    fn the_exponential_of_what_is_not_above_zero_has_the_bits_of_any() {
        for i in 0..200_000 {
            let x = i as f32 * -5.3e-4;
            assert_eq!(maths::exp_below(x).to_bits(), maths::exp(x).to_bits(), "{x}");
        }
        for x in [-0.0, f32::NEG_INFINITY, -1e30, -f32::MIN_POSITIVE, -103.97, -103.98] {
            assert_eq!(maths::exp_below(x).to_bits(), maths::exp(x).to_bits(), "{x}");
        }
        assert!(maths::exp_below(f32::NAN).is_nan());
    }

    #[test]
    fn the_largest_is_found_in_each_place_of_any_length() {
        for n in [1usize, 15, 16, 17, 63, 64, 65, 127, 144, 200] {
            for at in 0..n {
                let mut x = vec![-7.0f32; n];
                x[(at + 1) % n] = f32::NAN;
                x[at] = -3.0;
                assert_eq!(largest(&x), -3.0, "{at} of {n}");
            }
        }
    }

    #[test]
    fn sums_cover_each_element_once() {
        for n in [0usize, 1, 15, 16, 17, 1023, 1024, 1025, 3000] {
            let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let want = (n * n.saturating_sub(1) / 2) as f64;
            assert_eq!(sum(&x, |v| v), want);
            let mut y = vec![0.0; n];
            assert_eq!(sum_into(&x, &mut y, |v| 2.0 * v), 2.0 * want);
            assert!(x.iter().zip(&y).all(|(x, y)| 2.0 * x == *y));
            assert_eq!(sum2(&x, &x, |_, _| {}, |v, w| v + w), 2.0 * want);
            assert_eq!(moments3(&x, &x, &x, |_, _| {}, |u, v, w| u + v + w, |_, _, _| 2.0), [3.0 * want, 6.0 * want]);
            let squares: f64 = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
            let moments = moments4(&x, &vec![2.0; n], &vec![3.0; n], 0.0, |_, _| {});
            for (got, want) in moments.into_iter().zip([want, squares, 6.0 * n as f64, 6.0 * want]) {
                assert!((got - want).abs() <= 1e-5 * want, "{got} for {want} of {n}");
            }
            assert_eq!(largest(&x), if n == 0 { f32::NEG_INFINITY } else { (n - 1) as f32 });
        }
    }

    #[test]
    fn the_width_of_vectors_changes_no_bit() {
        let x: Vec<f32> = (0..5003i32).map(|i| (i * 37 % 1009 - 500) as f32 * 1.7e-2).collect();
        let work = || {
            let mut y = x.clone();
            for (i, v) in y.iter_mut().enumerate() {
                *v = maths::exp(*v * 0.3) / (1.0 + x[i] * x[i]).sqrt() - x[i] * 0.7 + 0.1;
            }
            let sums = [sum(&y, |v| v * v), sum2(&x, &y, |_, _| {}, |v, w| v * w), f64::from(largest(&y))];
            let moments = moments3(&x, &y, &y, |_, _| {}, |u, v, _| u - v, |_, _, w| w * 1.3);
            (y.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), sums.map(f64::to_bits), moments.map(f64::to_bits))
        };
        let plain = work();
        assert!(widest(work) == plain, "AVX-512, where there is one");
        assert!(wide(work) == plain, "AVX2, where there is one");
    }
}
