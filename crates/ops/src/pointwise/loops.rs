//! The forms of one pointwise function: its loops, one per type it computes in, and itself as an expression of any of these
//! types. The types it has are the function's domain.

use bytemuck::{cast_slice, cast_slice_mut};
use remat_kernels::pointwise::{Half, Map1, Map2, half_test, half1, half2, narrowed, widened};
use remat_kernels::scalar::AnyExpr;
use remat_types::{DType, Storage, bf16, f16};

/// A function as an expression of the given ones, in the type that these have together; none outside its domain.
pub(crate) type Written = for<'b> fn(DType, &[AnyExpr<'b>]) -> Option<AnyExpr<'b>>;

/// The value of a function on floats of `dtype`, rounded to it once, or a Bool.
pub(crate) fn rounded(y: AnyExpr<'_>, dtype: DType) -> AnyExpr<'_> {
    if y.dtype() == DType::Bool { y } else { y.convert(dtype) }
}

/// Loops per computing type. F16 and BF16 compute in f32 and round once.
macro_rules! loops_struct {
    ($($(#[$doc:meta])* $name:ident, $map:ident, $out:tt;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            pub(crate) f32: Option<$map<f32, out!($out f32)>>,
            pub(crate) f64: Option<$map<f64, out!($out f64)>>,
            pub(crate) i8: Option<$map<i8, out!($out i8)>>,
            pub(crate) i16: Option<$map<i16, out!($out i16)>>,
            pub(crate) i32: Option<$map<i32, out!($out i32)>>,
            pub(crate) i64: Option<$map<i64, out!($out i64)>>,
            pub(crate) u8: Option<$map<u8, out!($out u8)>>,
            pub(crate) u16: Option<$map<u16, out!($out u16)>>,
            pub(crate) u32: Option<$map<u32, out!($out u32)>>,
            pub(crate) u64: Option<$map<u64, out!($out u64)>>,
            pub(crate) bool: Option<$map<u8, u8>>,
            pub(crate) written: Written,
        }

        impl $name {
            pub(crate) const NONE: Self = $name {
                f32: None, f64: None, i8: None, i16: None, i32: None, i64: None, u8: None, u16: None, u32: None,
                u64: None, bool: None, written: |_, _| None,
            };

            /// True if the function is defined on `dtype`.
            pub(crate) fn has(&self, dtype: DType) -> bool {
                match dtype {
                    DType::F16 | DType::BF16 | DType::F32 => self.f32.is_some(),
                    DType::F64 => self.f64.is_some(),
                    DType::I8 => self.i8.is_some(),
                    DType::I16 => self.i16.is_some(),
                    DType::I32 => self.i32.is_some(),
                    DType::I64 => self.i64.is_some(),
                    DType::U8 => self.u8.is_some(),
                    DType::U16 => self.u16.is_some(),
                    DType::U32 => self.u32.is_some(),
                    DType::U64 => self.u64.is_some(),
                    DType::Bool => self.bool.is_some(),
                }
            }
        }
    )* };
}
macro_rules! out {
    (same $t:ty) => {
        $t
    };
    (test $t:ty) => {
        u8
    };
}
loops_struct! {
    /// `T -> T`.
    Loops1, Map1, same;
    /// `T -> bool`.
    Tests1, Map1, test;
    /// `(T, T) -> T`.
    Loops2, Map2, same;
}

/// Forms of one scalar function for each named class of types: `float` (f32, f64), `signed`, `unsigned`, `int` (both),
/// `bool`; `costly` is `float` for functions whose vector code takes as long as the memory. The function is generic, over
/// `F`, `I` and `B`, and is named as its class.
macro_rules! loops {
    ($kind:ident, $each:ident; $($class:ident |$($x:ident),+| $e:expr),+ $(,)?) => {{
        $( loops!(@fn $kind $class ($($x),+) $e); )+
        let mut l = $crate::pointwise::loops::$kind::NONE;
        $( loops!(@$class l, $kind $each $class, ($($x),+)); )+
        l.written = |dtype, given| {
            $( loops!(@written $class dtype, given, ($($x),+)); )+
            None
        };
        l
    }};

    (@fn Tests1 float $x:tt $e:expr) => { loops!(@generic float F: $crate::pointwise::math::Real, F::Mask, $x $e); };
    (@fn $kind:ident float $x:tt $e:expr) => { loops!(@generic float F: $crate::pointwise::math::Real, F, $x $e); };
    (@fn $kind:ident costly $x:tt $e:expr) => { loops!(@generic costly F: $crate::pointwise::math::Real, F, $x $e); };
    (@fn $kind:ident bool $x:tt $e:expr) => { loops!(@generic bool B: remat_kernels::scalar::Flag, B, $x $e); };
    (@fn $kind:ident $ints:ident $x:tt $e:expr) => { loops!(@generic $ints I: remat_kernels::scalar::Int, I, $x $e); };
    (@generic $f:ident $g:ident: $bound:path, $y:ty, ($($x:ident),+) $e:expr) => {
        // a function that is large would else be compiled by itself, without the vectors of the loop
        #[inline(always)]
        fn $f<$g: $bound>($($x: $g),+) -> $y { $e }
    };

    (@float $l:ident, $($how:tt)*) => { loops!(@set $l, f32 f64, $($how)*); };
    (@costly $l:ident, $kind:ident each1 $($how:tt)*) => { loops!(@set $l, f32 f64, $kind each1_ahead $($how)*); };
    (@costly $l:ident, $kind:ident each2 $($how:tt)*) => { loops!(@set $l, f32 f64, $kind each2_ahead $($how)*); };
    (@signed $l:ident, $($how:tt)*) => { loops!(@set $l, i8 i16 i32 i64, $($how)*); };
    (@unsigned $l:ident, $($how:tt)*) => { loops!(@set $l, u8 u16 u32 u64, $($how)*); };
    (@int $l:ident, $($how:tt)*) => { loops!(@set $l, i8 i16 i32 i64 u8 u16 u32 u64, $($how)*); };
    (@bool $l:ident, $kind:ident $each:ident $f:ident, $x:tt) => { loops!(@loop $l.bool, u8, $kind $each $f, $x); };
    (@set $l:ident, $($t:ident)+, $kind:ident $each:ident $f:ident, $x:tt) => {
        $( loops!(@loop $l.$t, $t, $kind $each $f, $x); )+
    };
    (@loop $l:ident.$at:ident, $t:ident, $kind:ident $each:ident $f:ident, ($($x:ident),+)) => {
        $l.$at = Some(|$($x,)+ y| {
            remat_kernels::pointwise::$each(
                $($x,)+
                y,
                #[inline(always)]
                |$($x: $t),+| loops!(@stored $kind $f($($x),+)),
            )
        });
    };
    (@stored Tests1 $value:expr) => { u8::from($value) };
    (@stored $kind:ident $value:expr) => { $value };

    (@written float $($rest:tt)*) => { loops!(@floats float $($rest)*); };
    (@written costly $($rest:tt)*) => { loops!(@floats costly $($rest)*); };
    (@written signed $($rest:tt)*) => { loops!(@types signed I8 i8 I16 i16 I32 i32 I64 i64, $($rest)*); };
    (@written unsigned $($rest:tt)*) => { loops!(@types unsigned U8 u8 U16 u16 U32 u32 U64 u64, $($rest)*); };
    (@written int $($rest:tt)*) => {
        loops!(@types int I8 i8 I16 i16 I32 i32 I64 i64 U8 u8 U16 u16 U32 u32 U64 u64, $($rest)*);
    };
    (@written bool $($rest:tt)*) => { loops!(@types bool Bool bool, $($rest)*); };
    (@floats $f:ident $dtype:ident, $given:ident, $x:tt) => {
        match $dtype {
            remat_types::DType::F64 => loops!(@apply $f f64, $dtype, $given, $x),
            dtype if dtype.is_float() => loops!(@apply $f f32, $dtype, $given, $x),
            _ => {}
        }
    };
    (@types $f:ident $($d:ident $t:ident)+, $dtype:ident, $given:ident, $x:tt) => {
        match $dtype {
            $( remat_types::DType::$d => loops!(@apply $f $t, $dtype, $given, $x), )+
            _ => {}
        }
    };
    (@apply $f:ident $t:ident, $dtype:ident, $given:ident, ($($x:ident),+)) => {{
        let mut given = $given.iter();
        $( let $x = given.next()?.to::<$t>(); )+
        return Some($crate::pointwise::loops::rounded($f($($x),+).any(), $dtype));
    }};
}
pub(crate) use loops;

/// A storage type, as the element of pointwise loops. The functions work on slices of at most a block of equal length
/// and answer false if the loops have none for this type; `dtype` tells Bool from U8.
pub(crate) trait Lane: Storage {
    /// `y = f(x)`.
    fn block1(l: &Loops1, dtype: DType, x: &[Self], y: &mut [Self]) -> bool;
    /// As `block1`, for a predicate.
    fn block_test(l: &Tests1, dtype: DType, x: &[Self], y: &mut [u8]) -> bool;
    /// `y = f(a, b)`.
    fn block2(l: &Loops2, dtype: DType, a: &[Self], b: &[Self], y: &mut [Self]) -> bool;
}

macro_rules! lane {
    ($($t:ident, |$l:ident, $d:ident| $pick:expr;)*) => { $(
        impl Lane for $t {
            fn block1($l: &Loops1, $d: DType, x: &[Self], y: &mut [Self]) -> bool {
                $pick.map(|f| f(x, y)).is_some()
            }
            fn block_test($l: &Tests1, $d: DType, x: &[Self], y: &mut [u8]) -> bool {
                $pick.map(|f| f(x, y)).is_some()
            }
            fn block2($l: &Loops2, $d: DType, a: &[Self], b: &[Self], y: &mut [Self]) -> bool {
                $pick.map(|f| f(a, b, y)).is_some()
            }
        }
    )* };
}
lane! {
    f32, |l, _d| l.f32;
    f64, |l, _d| l.f64;
    i8, |l, _d| l.i8;
    i16, |l, _d| l.i16;
    i32, |l, _d| l.i32;
    i64, |l, _d| l.i64;
    u8, |l, d| if d == DType::Bool { l.bool } else { l.u8 };
    u16, |l, _d| l.u16;
    u32, |l, _d| l.u32;
    u64, |l, _d| l.u64;
}

macro_rules! half_lane {
    ($($t:ident)*) => { $(
        impl Lane for $t {
            fn block1(l: &Loops1, _: DType, x: &[Self], y: &mut [Self]) -> bool {
                l.f32.map(|f| half1(x, y, f)).is_some()
            }
            fn block_test(l: &Tests1, _: DType, x: &[Self], y: &mut [u8]) -> bool {
                l.f32.map(|f| half_test(x, y, f)).is_some()
            }
            fn block2(l: &Loops2, _: DType, a: &[Self], b: &[Self], y: &mut [Self]) -> bool {
                l.f32.map(|f| half2(a, b, y, f)).is_some()
            }
        }
    )* };
}
half_lane! { f16 bf16 }

/// `$body` with `$a` and `$b` the types of two dtypes, a 16-bit float and f32 in either order, as inference lets them pass.
macro_rules! for_mixed {
    ($dtypes:expr, $a:ident, $b:ident => $body:expr) => {
        match $dtypes {
            [remat_types::DType::F16, _] => {
                type $a = remat_types::f16;
                type $b = f32;
                $body
            }
            [remat_types::DType::BF16, _] => {
                type $a = remat_types::bf16;
                type $b = f32;
                $body
            }
            [_, remat_types::DType::F16] => {
                type $a = f32;
                type $b = remat_types::f16;
                $body
            }
            _ => {
                type $a = f32;
                type $b = remat_types::bf16;
                $body
            }
        }
    };
}
pub(super) use for_mixed;

/// The 16-bit float among two dtypes; if they differ, the other one is f32.
fn half_of(dtypes: [DType; 2]) -> DType {
    if dtypes[0] == DType::F32 { dtypes[1] } else { dtypes[0] }
}

/// `y = f(a, b)` of a block of 16-bit floats and one of f32, given as bytes; `y` is of 16-bit floats.
pub(super) fn block_mixed(f: Map2<f32, f32>, dtypes: [DType; 2], a: &[u8], b: &[u8], y: &mut [u8]) {
    fn go<T: Half>(f: Map2<f32, f32>, dtypes: [DType; 2], a: &[u8], b: &[u8], y: &mut [u8]) {
        narrowed::<T>(cast_slice_mut(y), |y| with_both_wide::<T>(dtypes, a, b, |a, b| f(a, b, y)));
    }
    match half_of(dtypes) {
        DType::F16 => go::<f16>(f, dtypes, a, b, y),
        _ => go::<bf16>(f, dtypes, a, b, y),
    }
}

/// As [`block_mixed`], for a predicate.
pub(super) fn test_mixed(f: Map2<f32, u8>, dtypes: [DType; 2], a: &[u8], b: &[u8], y: &mut [u8]) {
    match half_of(dtypes) {
        DType::F16 => with_both_wide::<f16>(dtypes, a, b, |a, b| f(a, b, y)),
        _ => with_both_wide::<bf16>(dtypes, a, b, |a, b| f(a, b, y)),
    }
}

/// Calls `f` with both blocks in f32.
fn with_both_wide<T: Half>(dtypes: [DType; 2], a: &[u8], b: &[u8], f: impl FnOnce(&[f32], &[f32])) {
    if dtypes[0] == DType::F32 {
        widened::<T>(cast_slice(b), |b| f(cast_slice(a), b));
    } else {
        widened::<T>(cast_slice(a), |a| f(a, cast_slice(b)));
    }
}
