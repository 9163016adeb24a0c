//! The reducers: sum, product, extremes, logic, and the second passes of variance and log-sum-exp.

use remat_types::{Element, Storage, bf16, f16};

use super::Reducer;

/// Arithmetic of an accumulator; integers wrap.
pub trait Arith: Copy + Send + Sync + 'static {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// `self + b`.
    fn plus(self, b: Self) -> Self;
    /// `self * b`.
    fn times(self, b: Self) -> Self;
}

/// An element with its accumulators: f32 within blocks and f64 across them for floats up to f32, the type itself for
/// the others.
pub trait Num: Storage + Element {
    /// Within a block.
    type Lane: Arith;
    /// Across blocks.
    type Wide: Arith;
    /// To the block's accumulator.
    fn lane(self) -> Self::Lane;
    /// From the block's accumulator.
    fn widen(v: Self::Lane) -> Self::Wide;
    /// To the element, rounded once.
    fn narrow(v: Self::Wide) -> Self;
}

macro_rules! arith_float {
    ($($t:ident)*) => { $(
        impl Arith for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn plus(self, b: Self) -> Self { self + b }
            #[inline(always)]
            fn times(self, b: Self) -> Self { self * b }
        }
    )* };
}
arith_float! { f32 f64 }

macro_rules! num_int {
    ($($t:ident)*) => { $(
        impl Arith for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn plus(self, b: Self) -> Self { self.wrapping_add(b) }
            #[inline(always)]
            fn times(self, b: Self) -> Self { self.wrapping_mul(b) }
        }
        impl Num for $t {
            type Lane = $t;
            type Wide = $t;
            #[inline(always)]
            fn lane(self) -> $t { self }
            #[inline(always)]
            fn widen(v: $t) -> $t { v }
            #[inline(always)]
            fn narrow(v: $t) -> $t { v }
        }
    )* };
}
num_int! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! num_float {
    ($($t:ident, $lane:ident, |$x:ident| $to:expr, |$w:ident| $from:expr;)*) => { $(
        impl Num for $t {
            type Lane = $lane;
            type Wide = f64;
            #[inline(always)]
            fn lane(self) -> $lane { let $x = self; $to }
            #[inline(always)]
            fn widen(v: $lane) -> f64 { f64::from(v) }
            #[inline(always)]
            fn narrow($w: f64) -> Self { $from }
        }
    )* };
}
num_float! {
    f16, f32, |x| x.to_f32(), |w| Element::from_f64(w);
    bf16, f32, |x| x.to_f32(), |w| Element::from_f64(w);
    f32, f32, |x| x, |w| w as f32;
    f64, f64, |x| x, |w| w;
}

/// The members that reducers without a parameter share: accumulators are added up.
macro_rules! added {
    ($t:ty, $lane:ty, $wide:ty) => {
        type Lane = $lane;
        type Total = $wide;
        #[inline(always)]
        fn lane(&self) -> $lane {
            <$lane>::ZERO
        }
        #[inline(always)]
        fn join(&self, a: $lane, b: $lane) -> $lane {
            a.plus(b)
        }
        #[inline(always)]
        fn total(&self) -> $wide {
            <$wide>::ZERO
        }
        #[inline(always)]
        fn add(&self, total: $wide, lane: $lane) -> $wide {
            total.plus(<$t as Num>::widen(lane))
        }
        #[inline(always)]
        fn merge(&self, a: $wide, b: $wide) -> $wide {
            a.plus(b)
        }
    };
}
macro_rules! no_param {
    ($u:ty) => {
        type Param = ();
        fn param(&self, _y: $u) {}
    };
}

/// `sum x`; 0 of nothing.
#[derive(Clone, Copy, Debug)]
pub struct Sum;
impl<T: Num> Reducer<T, T> for Sum {
    added!(T, T::Lane, T::Wide);
    no_param!(T);
    #[inline(always)]
    fn step(&self, lane: T::Lane, x: T, (): ()) -> T::Lane {
        lane.plus(x.lane())
    }
    fn finish(&self, total: T::Wide, (): ()) -> T {
        T::narrow(total)
    }
}

/// The number of elements that are not 0, of bools.
#[derive(Clone, Copy, Debug)]
pub struct Count;
impl Reducer<u8, i64> for Count {
    added!(i64, i64, i64);
    no_param!(i64);
    #[inline(always)]
    fn step(&self, lane: i64, x: u8, (): ()) -> i64 {
        lane + i64::from(x)
    }
    fn finish(&self, total: i64, (): ()) -> i64 {
        total
    }
}

/// `sum x` of integers that are widened before they are added up; 0 of nothing.
#[derive(Clone, Copy, Debug)]
pub struct SumWide;

/// `prod x` of integers that are widened before they are multiplied; 1 of nothing.
#[derive(Clone, Copy, Debug)]
pub struct ProdWide;

macro_rules! widened {
    ($($wide:ident: $($t:ident)*;)*) => { $($(
        impl Reducer<$t, $wide> for SumWide {
            added!($wide, $wide, $wide);
            no_param!($wide);
            #[inline(always)]
            fn step(&self, lane: $wide, x: $t, (): ()) -> $wide {
                lane.plus($wide::from(x))
            }
            fn finish(&self, total: $wide, (): ()) -> $wide {
                total
            }
        }

        impl Reducer<$t, $wide> for ProdWide {
            type Lane = $wide;
            type Total = $wide;
            no_param!($wide);
            #[inline(always)]
            fn lane(&self) -> $wide {
                $wide::ONE
            }
            #[inline(always)]
            fn step(&self, lane: $wide, x: $t, (): ()) -> $wide {
                lane.times($wide::from(x))
            }
            #[inline(always)]
            fn join(&self, a: $wide, b: $wide) -> $wide {
                a.times(b)
            }
            #[inline(always)]
            fn total(&self) -> $wide {
                $wide::ONE
            }
            #[inline(always)]
            fn add(&self, total: $wide, lane: $wide) -> $wide {
                total.times(lane)
            }
            #[inline(always)]
            fn merge(&self, a: $wide, b: $wide) -> $wide {
                a.times(b)
            }
            fn finish(&self, total: $wide, (): ()) -> $wide {
                total
            }
        }
    )*)* };
}
widened! { i64: i8 i16 i32; u64: u8 u16 u32; }

/// `sum x / n`; NaN of nothing.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    /// Elements per output.
    pub n: usize,
}
impl<T: Num<Wide = f64>> Reducer<T, T> for Mean {
    added!(T, T::Lane, f64);
    no_param!(T);
    #[inline(always)]
    fn step(&self, lane: T::Lane, x: T, (): ()) -> T::Lane {
        lane.plus(x.lane())
    }
    fn finish(&self, total: f64, (): ()) -> T {
        T::narrow(total / self.n as f64)
    }
}

/// `sum x^2`; 0 of nothing.
#[derive(Clone, Copy, Debug)]
pub struct SumSqr;
impl<T: Num> Reducer<T, T> for SumSqr {
    added!(T, T::Lane, T::Wide);
    no_param!(T);
    #[inline(always)]
    fn step(&self, lane: T::Lane, x: T, (): ()) -> T::Lane {
        lane.plus(x.lane().times(x.lane()))
    }
    fn finish(&self, total: T::Wide, (): ()) -> T {
        T::narrow(total)
    }
}

/// `prod x`; 1 of nothing. Multiplied in the wide type throughout, whose range a block's product does not leave early.
#[derive(Clone, Copy, Debug)]
pub struct Prod;
impl<T: Num> Reducer<T, T> for Prod {
    type Lane = T::Wide;
    type Total = T::Wide;
    no_param!(T);
    #[inline(always)]
    fn lane(&self) -> T::Wide {
        T::Wide::ONE
    }
    #[inline(always)]
    fn step(&self, lane: T::Wide, x: T, (): ()) -> T::Wide {
        lane.times(T::widen(x.lane()))
    }
    #[inline(always)]
    fn join(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.times(b)
    }
    #[inline(always)]
    fn total(&self) -> T::Wide {
        T::Wide::ONE
    }
    #[inline(always)]
    fn add(&self, total: T::Wide, lane: T::Wide) -> T::Wide {
        total.times(lane)
    }
    #[inline(always)]
    fn merge(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.times(b)
    }
    fn finish(&self, total: T::Wide, (): ()) -> T {
        T::narrow(total)
    }
}

/// A reducer whose accumulator is the element and whose steps are all one function.
macro_rules! pick {
    ($(#[$doc:meta])* $name:ident<$t:ident: $bound:path> for $elem:ty, $first:expr, |$a:ident, $b:ident| $pick:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl<$t: $bound> Reducer<$elem, $elem> for $name {
            type Lane = $elem;
            type Total = $elem;
            const ASSOCIATIVE: bool = true;
            no_param!($elem);
            #[inline(always)]
            fn lane(&self) -> $elem { $first }
            #[inline(always)]
            fn step(&self, $a: $elem, $b: $elem, (): ()) -> $elem { $pick }
            #[inline(always)]
            fn join(&self, $a: $elem, $b: $elem) -> $elem { $pick }
            #[inline(always)]
            fn total(&self) -> $elem { $first }
            #[inline(always)]
            fn add(&self, $a: $elem, $b: $elem) -> $elem { $pick }
            #[inline(always)]
            fn merge(&self, $a: $elem, $b: $elem) -> $elem { $pick }
            fn finish(&self, total: $elem, (): ()) -> $elem { total }
        }
    };
}
// two choices without a branch each: one that is compiled to the processor's maximum, one for NaN
pick! {
    /// The largest; NaN if there is one; the least value of the type of nothing.
    Max<T: Num> for T, T::from_f64(f64::NEG_INFINITY), |a, b| propagate(b, if b > a { b } else { a })
}
pick! {
    /// The smallest; NaN if there is one; the greatest value of the type of nothing.
    Min<T: Num> for T, T::from_f64(f64::INFINITY), |a, b| propagate(b, if b < a { b } else { a })
}

/// `b` if it is a NaN, the one value that differs from itself; else `picked`.
#[inline(always)]
#[allow(clippy::eq_op, reason = "the test for NaN of any type")]
fn propagate<T: PartialEq>(b: T, picked: T) -> T {
    if b == b { picked } else { b }
}

macro_rules! logic {
    ($(#[$doc:meta])* $name:ident, $first:literal, $op:tt) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl Reducer<u8, u8> for $name {
            type Lane = u8;
            type Total = u8;
            const ASSOCIATIVE: bool = true;
            no_param!(u8);
            #[inline(always)]
            fn lane(&self) -> u8 { $first }
            #[inline(always)]
            fn step(&self, a: u8, b: u8, (): ()) -> u8 { a $op b }
            #[inline(always)]
            fn join(&self, a: u8, b: u8) -> u8 { a $op b }
            #[inline(always)]
            fn total(&self) -> u8 { $first }
            #[inline(always)]
            fn add(&self, a: u8, b: u8) -> u8 { a $op b }
            #[inline(always)]
            fn merge(&self, a: u8, b: u8) -> u8 { a $op b }
            fn finish(&self, total: u8, (): ()) -> u8 { total }
        }
    };
}
logic! {
    /// Whether any bool is true; false of nothing.
    Any, 0, |
}
logic! {
    /// Whether all bools are true; true of nothing.
    All, 1, &
}

/// Second pass of the variance, over an output that holds the rounded mean `m`: with `d = x - m`,
/// `(sum d^2 - (sum d)^2 / n) / divisor`, the corrected two-pass algorithm (Chan, Golub and LeVeque, 1983, eq. 1.7),
/// which undoes the rounding of `m`.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// Elements per output.
    pub n: usize,
    /// The divisor of the sum of squares.
    pub divisor: f64,
}
impl<T: Num<Wide = f64>> Reducer<T, T> for Deviation {
    type Lane = (f64, f64);
    type Total = (f64, f64);
    type Param = f64;
    fn param(&self, y: T) -> f64 {
        y.to_f64()
    }
    #[inline(always)]
    fn lane(&self) -> (f64, f64) {
        (0.0, 0.0)
    }
    #[inline(always)]
    fn step(&self, lane: (f64, f64), x: T, m: f64) -> (f64, f64) {
        let d = T::widen(x.lane()) - m;
        (lane.0 + d, lane.1 + d * d)
    }
    #[inline(always)]
    fn join(&self, a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
        (a.0 + b.0, a.1 + b.1)
    }
    #[inline(always)]
    fn total(&self) -> (f64, f64) {
        (0.0, 0.0)
    }
    #[inline(always)]
    fn add(&self, a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
        (a.0 + b.0, a.1 + b.1)
    }
    #[inline(always)]
    fn merge(&self, a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
        (a.0 + b.0, a.1 + b.1)
    }
    fn finish(&self, (sum, squares): (f64, f64), _m: f64) -> T {
        let left = squares - sum * sum / self.n as f64;
        // rounding alone takes more than there is
        T::narrow(if left < 0.0 { 0.0 } else { left } / self.divisor)
    }
}

/// Second pass of log-sum-exp, over an output that holds the maximum `m`: `m + ln(sum exp(x - m))`. Where `m` is
/// infinite nothing is subtracted, so that no `inf - inf` arises.
#[derive(Clone, Copy, Debug)]
pub struct ShiftedExp;
macro_rules! shifted_exp {
    ($($t:ident, $lane:ident;)*) => { $(
        impl Reducer<$t, $t> for ShiftedExp {
            added!($t, $lane, f64);
            type Param = $lane;
            fn param(&self, y: $t) -> $lane {
                let m = y.lane();
                if m.is_infinite() { 0.0 } else { m }
            }
            #[inline(always)]
            fn step(&self, lane: $lane, x: $t, m: $lane) -> $lane {
                lane + crate::float::Real::exp(x.lane() - m)
            }
            fn finish(&self, total: f64, m: $lane) -> $t {
                $t::narrow(f64::from(m) + total.ln())
            }
        }
    )* };
}
shifted_exp! { f16, f32; bf16, f32; f32, f32; }

/// Of f64 what is 1, the largest themselves, is counted apart: beside it the others would lose their digits, which the logarithm of
/// a sum near 1 is made of.
impl Reducer<f64, f64> for ShiftedExp {
    /// The sum of what is below the largest, and how often that is there.
    type Lane = [f64; 2];
    type Total = [f64; 2];
    type Param = f64;

    fn param(&self, m: f64) -> f64 {
        if m.is_infinite() { 0.0 } else { m }
    }
    fn lane(&self) -> [f64; 2] {
        [0.0; 2]
    }
    #[inline(always)]
    fn step(&self, [rest, count]: [f64; 2], x: f64, m: f64) -> [f64; 2] {
        if x == m { [rest, count + 1.0] } else { [rest + crate::float::Real::exp(x - m), count] }
    }
    #[inline(always)]
    fn join(&self, a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [a[0] + b[0], a[1] + b[1]]
    }
    fn total(&self) -> [f64; 2] {
        [0.0; 2]
    }
    fn add(&self, total: [f64; 2], lane: [f64; 2]) -> [f64; 2] {
        <Self as Reducer<f64, f64>>::join(self, total, lane)
    }
    fn merge(&self, a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        <Self as Reducer<f64, f64>>::join(self, a, b)
    }
    fn finish(&self, [rest, count]: [f64; 2], m: f64) -> f64 {
        m + if count == 1.0 { rest.ln_1p() } else { (count + rest).ln() }
    }
}
