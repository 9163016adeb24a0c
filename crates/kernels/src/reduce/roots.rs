//! Reducers whose result is a root of a sum of squares: the norm, and the second pass of the standard deviation.
//!
//! The squares never leave the accumulators, so no size of the elements makes them overflow or vanish between two
//! operators. What is narrower than f64 is squared in f64, where every square fits. In f64 a square may not fit: large and
//! small numbers are squared under a scale of their own (Blue, 1978, ACM TOMS 4(1)), in the same one pass.

use remat_types::{Storage, bf16, f16};

use super::{Num, Reducer};

/// A sum of squares.
pub trait Squares: Copy + Send + Sync + 'static {
    /// Of nothing.
    const ZERO: Self;
    /// With `d^2` more.
    fn with(self, d: f64) -> Self;
    /// Two sums as one.
    fn plus(self, b: Self) -> Self;
    /// `(s, u)` with a sum of `s / u^2`, where `u` is a power of two and `s` a number that f64 holds.
    fn scaled(self) -> (f64, f64);
}

impl Squares for f64 {
    const ZERO: f64 = 0.0;
    #[inline(always)]
    fn with(self, d: f64) -> f64 {
        self + d * d
    }
    #[inline(always)]
    fn plus(self, b: f64) -> f64 {
        self + b
    }
    fn scaled(self) -> (f64, f64) {
        (self, 1.0)
    }
}

/// Squares of f64: each among those of its size.
#[derive(Clone, Copy, Debug)]
pub struct BySize {
    small: f64,
    middle: f64,
    large: f64,
}

/// `2^e`.
const fn power(e: i64) -> f64 {
    f64::from_bits(((1023 + e) as u64) << 52)
}

impl BySize {
    /// From here on the sum of as many squares as there are addresses could leave f64.
    const LARGE: f64 = power(470);
    /// Below this a square has fewer digits than a number.
    const SMALL: f64 = power(-470);
    /// The factor of large numbers.
    const DOWN: f64 = power(-540);
    /// The factor of small numbers.
    const UP: f64 = power(540);
}

impl Squares for BySize {
    const ZERO: Self = BySize { small: 0.0, middle: 0.0, large: 0.0 };
    #[inline(always)]
    fn with(self, d: f64) -> Self {
        let size = d.abs();
        let (is_large, is_small) = (size > Self::LARGE, size < Self::SMALL);
        let (up, down) = (d * Self::UP, d * Self::DOWN);
        BySize {
            small: self.small + if is_small { up * up } else { 0.0 },
            middle: self.middle + if is_small || is_large { 0.0 } else { d * d },
            large: self.large + if is_large { down * down } else { 0.0 },
        }
    }
    #[inline(always)]
    fn plus(self, b: Self) -> Self {
        BySize { small: self.small + b.small, middle: self.middle + b.middle, large: self.large + b.large }
    }
    fn scaled(self) -> (f64, f64) {
        if self.large != 0.0 {
            return (self.large + self.middle * Self::DOWN * Self::DOWN, Self::DOWN);
        }
        if self.middle == 0.0 {
            return (self.small, Self::UP);
        }
        (self.middle + self.small * Self::DOWN * Self::DOWN, 1.0)
    }
}

/// A float of whose squares a root is taken.
pub trait Rooted: Num<Wide = f64> {
    /// The type in which its squares are added up.
    type Sum: Squares;
    /// The type of a norm: f32 for what is narrower, whose range the norm of many elements leaves.
    type Norm: Storage;
    /// The norm, rounded once.
    fn norm(v: f64) -> Self::Norm;
}

macro_rules! rooted {
    ($($t:ident, $sum:ident, $norm:ident;)*) => { $(
        impl Rooted for $t {
            type Sum = $sum;
            type Norm = $norm;
            fn norm(v: f64) -> $norm { v as $norm }
        }
    )* };
}
rooted! { f16, f64, f32; bf16, f64, f32; f32, f64, f32; f64, BySize, f64; }

/// `sqrt(sum x^2)`; 0 of nothing.
#[derive(Clone, Copy, Debug)]
pub struct Norm;
impl<T: Rooted> Reducer<T, T::Norm> for Norm {
    type Lane = T::Sum;
    type Total = T::Sum;
    type Param = ();
    fn param(&self, _y: T::Norm) {}
    #[inline(always)]
    fn lane(&self) -> T::Sum {
        T::Sum::ZERO
    }
    #[inline(always)]
    fn step(&self, lane: T::Sum, x: T, (): ()) -> T::Sum {
        lane.with(T::widen(x.lane()))
    }
    #[inline(always)]
    fn join(&self, a: T::Sum, b: T::Sum) -> T::Sum {
        a.plus(b)
    }
    #[inline(always)]
    fn total(&self) -> T::Sum {
        T::Sum::ZERO
    }
    #[inline(always)]
    fn add(&self, total: T::Sum, lane: T::Sum) -> T::Sum {
        total.plus(lane)
    }
    #[inline(always)]
    fn merge(&self, a: T::Sum, b: T::Sum) -> T::Sum {
        a.plus(b)
    }
    fn finish(&self, total: T::Sum, (): ()) -> T::Norm {
        let (squares, unit) = total.scaled();
        T::norm(squares.sqrt() / unit)
    }
}

/// `sum x / n` added up in f64 throughout, so that the mean of equal f32s is exact; NaN of nothing.
#[derive(Clone, Copy, Debug)]
pub struct WideMean {
    /// Elements per output.
    pub n: usize,
}
impl<T: Num<Wide = f64>> Reducer<T, T> for WideMean {
    type Lane = f64;
    type Total = f64;
    type Param = ();
    fn param(&self, _y: T) {}
    #[inline(always)]
    fn lane(&self) -> f64 {
        0.0
    }
    #[inline(always)]
    fn step(&self, lane: f64, x: T, (): ()) -> f64 {
        lane + T::widen(x.lane())
    }
    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        a + b
    }
    #[inline(always)]
    fn total(&self) -> f64 {
        0.0
    }
    #[inline(always)]
    fn add(&self, total: f64, lane: f64) -> f64 {
        total + lane
    }
    #[inline(always)]
    fn merge(&self, a: f64, b: f64) -> f64 {
        a + b
    }
    fn finish(&self, total: f64, (): ()) -> T {
        T::narrow(total / self.n as f64)
    }
}

/// Second pass of the standard deviation, over an output that holds the rounded mean: the root of what
/// [`Deviation`](super::Deviation) gives. What is within the rounding of the squares is 0, so equal elements deviate by
/// nothing even where their mean is not one of them.
#[derive(Clone, Copy, Debug)]
pub struct RootDeviation {
    /// Elements per output.
    pub n: usize,
    /// The divisor of the sum of squares.
    pub divisor: f64,
}
impl<T: Rooted> Reducer<T, T> for RootDeviation {
    type Lane = (f64, T::Sum);
    type Total = (f64, T::Sum);
    type Param = f64;
    fn param(&self, y: T) -> f64 {
        T::widen(y.lane())
    }
    #[inline(always)]
    fn lane(&self) -> (f64, T::Sum) {
        (0.0, T::Sum::ZERO)
    }
    #[inline(always)]
    fn step(&self, lane: (f64, T::Sum), x: T, m: f64) -> (f64, T::Sum) {
        let d = T::widen(x.lane()) - m;
        (lane.0 + d, lane.1.with(d))
    }
    #[inline(always)]
    fn join(&self, a: (f64, T::Sum), b: (f64, T::Sum)) -> (f64, T::Sum) {
        (a.0 + b.0, a.1.plus(b.1))
    }
    #[inline(always)]
    fn total(&self) -> (f64, T::Sum) {
        (0.0, T::Sum::ZERO)
    }
    #[inline(always)]
    fn add(&self, a: (f64, T::Sum), b: (f64, T::Sum)) -> (f64, T::Sum) {
        (a.0 + b.0, a.1.plus(b.1))
    }
    #[inline(always)]
    fn merge(&self, a: (f64, T::Sum), b: (f64, T::Sum)) -> (f64, T::Sum) {
        (a.0 + b.0, a.1.plus(b.1))
    }
    fn finish(&self, (sum, squares): (f64, T::Sum), _m: f64) -> T {
        let (n, (squares, unit)) = (self.n as f64, squares.scaled());
        let sum = sum * unit;
        let left = squares - sum * sum / n;
        let left = if left <= n * f64::EPSILON * squares { 0.0 } else { left };
        T::narrow((left / self.divisor).sqrt() / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use crate::reduce::{Plan, reduce};

    fn norm_of(x: &[f64]) -> f64 {
        let mut y = [0.0];
        reduce(&Pool::new(1), Norm, x, &Plan::new(&[x.len()], &[0]), &mut y);
        y[0]
    }

    fn deviation_of(x: &[f64]) -> f64 {
        let (plan, n) = (Plan::new(&[x.len()], &[0]), x.len());
        let mut y = [0.0];
        reduce(&Pool::new(1), WideMean { n }, x, &plan, &mut y);
        reduce(&Pool::new(1), RootDeviation { n, divisor: n as f64 }, x, &plan, &mut y);
        y[0]
    }

    #[test]
    fn a_norm_of_f64_has_its_digits_at_every_size() {
        for e in [-1070, -600, -520, -471, -470, -469, -300, 0, 300, 469, 470, 471, 520, 600, 1020] {
            let unit = 2f64.powi(e / 2) * 2f64.powi(e - e / 2);
            assert_eq!(norm_of(&[3.0 * unit, -4.0 * unit]), 5.0 * unit, "times 2^{e}");
        }
        // either side of a boundary counts
        let x = [BySize::SMALL * 0.75, BySize::SMALL, BySize::LARGE, BySize::LARGE * 4.0];
        assert_eq!(norm_of(&x[..2]), BySize::SMALL * 1.25);
        assert_eq!(norm_of(&x[2..]), BySize::LARGE * 17f64.sqrt());
        assert_eq!(norm_of(&[f64::INFINITY, 1.0]), f64::INFINITY);
        assert!(norm_of(&[f64::INFINITY, f64::NAN]).is_nan() && norm_of(&[1e-300, f64::NAN]).is_nan());
        assert_eq!(norm_of(&[]), 0.0);
    }

    #[test]
    fn equal_elements_deviate_by_nothing_and_others_at_every_size() {
        for x in [0.1, 1.0 / 3.0, -1e-300, 1e300, 12345.678] {
            for n in [1, 2, 3, 7, 100, 1000] {
                assert_eq!(deviation_of(&vec![x; n]), 0.0, "{n} times {x}");
            }
        }
        for scale in [1e-300, 1e-160, 1.0, 1e160, 1e300] {
            let d = deviation_of(&[1.0, 3.0, 1.0, 3.0].map(|x| x * scale));
            assert!((d / scale - 1.0).abs() < 1e-14, "{d} of {scale}");
        }
    }
}
