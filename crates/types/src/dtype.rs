//! Element types and their Rust counterparts.

use std::fmt;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary16.
    F16,
    /// The upper half of an IEEE 754 binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// One byte that is 0 or 1.
    Bool,
}

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 13] = [
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// Size of one element in bytes.
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// True for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// True for the eight integer types; bool is not one of them.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool)
    }

    /// True for i8, i16, i32 and i64.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// The lower-case name: `f32`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is the element of a tensor. The set is closed by [`DType`].
pub trait Element:
    NoUninit + CheckedBitPattern + Copy + PartialEq + PartialOrd + fmt::Debug + Default + Send + Sync + 'static
{
    /// The dtype this type stores.
    const DTYPE: DType;
    /// The value as f64; u64 and i64 beyond 2^53 round.
    fn to_f64(self) -> f64;
    /// The element nearest to `v`: floats round to nearest even, integers truncate and saturate, bool is `v != 0`.
    fn from_f64(v: f64) -> Self;
    /// The value as i64: floats truncate and saturate (NaN is 0), u64 above `i64::MAX` wraps.
    fn to_i64(self) -> i64;
    /// The element from an i64: integers wrap, floats round, bool is `v != 0`.
    fn from_i64(v: i64) -> Self;
}

macro_rules! element {
    ($($t:ty, $d:ident;)*) => { $(
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            fn to_f64(self) -> f64 { self as f64 }
            fn from_f64(v: f64) -> Self { v as $t }
            fn to_i64(self) -> i64 { self as i64 }
            fn from_i64(v: i64) -> Self { v as $t }
        }
    )* };
}
element! { f32, F32; f64, F64; i8, I8; i16, I16; i32, I32; i64, I64; u8, U8; u16, U16; u32, U32; u64, U64; }

/// `v` rounded to odd: a value that f32 does not have becomes the one of its two neighbours whose last bit is set, so that
/// rounding it again, to a type with at least two bits less, gives what rounding `v` once gives (S. Boldo, G. Melquiond,
/// Emulation of FMA and correctly rounded sums, IEEE Transactions on Computers 57, 2008, section 3). The conversions from f64
/// of the crate `half` drop 32 bits before they round.
fn to_odd_f32(v: f64) -> f32 {
    let nearest = v as f32;
    let back = f64::from(nearest);
    if back == v || v.is_nan() {
        return nearest;
    }
    let towards_zero = nearest.to_bits() - u32::from(back.abs() > v.abs());
    f32::from_bits(towards_zero | 1)
}

/// `v` rounded to odd, as [`to_odd_f32`] does it.
fn to_odd_f64(v: i64) -> f64 {
    let magnitude = v.unsigned_abs();
    if magnitude >> 53 == 0 {
        return v as f64;
    }
    let last = 1 << 11;
    let odd = magnitude & !(last - 1) | if magnitude.is_multiple_of(last) { 0 } else { last };
    if v < 0 { -(odd as f64) } else { odd as f64 }
}

macro_rules! element_half {
    ($($t:ty, $d:ident;)*) => { $(
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            fn to_f64(self) -> f64 { <$t>::to_f32(self).into() }
            fn from_f64(v: f64) -> Self { <$t>::from_f32(to_odd_f32(v)) }
            fn to_i64(self) -> i64 { <$t>::to_f32(self) as i64 }
            fn from_i64(v: i64) -> Self { Element::from_f64(to_odd_f64(v)) }
        }
    )* };
}
element_half! { f16, F16; bf16, BF16; }

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }
    fn from_f64(v: f64) -> Self {
        v != 0.0
    }
    fn to_i64(self) -> i64 {
        i64::from(self)
    }
    fn from_i64(v: i64) -> Self {
        v != 0
    }
}

/// The four floating-point element types.
pub trait Float: Element {}
impl Float for f16 {}
impl Float for bf16 {}
impl Float for f32 {}
impl Float for f64 {}

/// Evaluates `$body` with the type `$T` bound to the Rust type of `$dtype`.
#[macro_export]
macro_rules! for_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F16 => {
                type $T = $crate::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = $crate::bf16;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::I8 => {
                type $T = i8;
                $body
            }
            $crate::DType::I16 => {
                type $T = i16;
                $body
            }
            $crate::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::DType::U8 => {
                type $T = u8;
                $body
            }
            $crate::DType::U16 => {
                type $T = u16;
                $body
            }
            $crate::DType::U32 => {
                type $T = u32;
                $body
            }
            $crate::DType::U64 => {
                type $T = u64;
                $body
            }
            $crate::DType::Bool => {
                type $T = bool;
                $body
            }
        }
    };
}

/// As [`for_dtype!`], with `$T` the type that stores the elements: a bool is stored as a `u8` that is 0 or 1.
#[macro_export]
macro_rules! for_storage {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F16 => {
                type $T = $crate::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = $crate::bf16;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::I8 => {
                type $T = i8;
                $body
            }
            $crate::DType::I16 => {
                type $T = i16;
                $body
            }
            $crate::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::DType::U8 => {
                type $T = u8;
                $body
            }
            $crate::DType::U16 => {
                type $T = u16;
                $body
            }
            $crate::DType::U32 => {
                type $T = u32;
                $body
            }
            $crate::DType::U64 => {
                type $T = u64;
                $body
            }
            $crate::DType::Bool => {
                type $T = u8;
                $body
            }
        }
    };
}

/// As [`for_dtype!`] for the float dtypes; any other dtype evaluates `$other`.
#[macro_export]
macro_rules! for_float {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        match $dtype {
            $crate::DType::F16 => {
                type $T = $crate::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = $crate::bf16;
                $body
            }
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            _ => $other,
        }
    };
}

/// A plain-data type in which elements are stored: each [`Element`] but bool, which is stored as `u8`.
pub trait Storage: bytemuck::Pod + PartialEq + PartialOrd + fmt::Debug + Default + Send + Sync + 'static {
    /// True if elements of `dtype` are stored as this type.
    fn stores(dtype: DType) -> bool;
}
macro_rules! storage {
    ($($t:ty: $($d:ident)|+;)*) => { $(
        impl Storage for $t {
            fn stores(dtype: DType) -> bool { matches!(dtype, $(DType::$d)|+) }
        }
    )* };
}
storage! { f16: F16; bf16: BF16; f32: F32; f64: F64; i8: I8; i16: I16; i32: I32; i64: I64;
u8: U8 | Bool; u16: U16; u32: U32; u64: U64; }

/// One number of any dtype, kept exactly; equality and hashing are by bits, so that NaN equals itself in caches.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scalar {
    /// A floating-point number. In serial forms NaN and the infinities are text, which JSON has no numbers for.
    Float(#[serde(with = "any_float")] f64),
    /// A signed integer, or an unsigned one up to `i64::MAX`.
    Int(i64),
    /// An unsigned integer above `i64::MAX`.
    Uint(u64),
    /// A truth value.
    Bool(bool),
}

/// Serial form of any f64: a number, or its name where it is not finite.
mod any_float {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(f64),
        Name(String),
    }

    pub(super) fn serialize<S: Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
        if v.is_finite() { s.serialize_f64(*v) } else { s.collect_str(v) }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        match Form::deserialize(d)? {
            Form::Number(v) => Ok(v),
            Form::Name(name) => match name.as_str() {
                "NaN" => Ok(f64::NAN),
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(D::Error::custom(format!("`{name}` is no number"))),
            },
        }
    }
}

impl Scalar {
    /// True unless the dtype is of integers and this number, without its fraction, is none of them: a cast would give another number.
    pub fn fits(self, dtype: DType) -> bool {
        if !dtype.is_int() {
            return true;
        }
        let bits = 8 * dtype.size_bytes() as u32;
        let (low, high) = if dtype.is_signed_int() {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        };
        match self {
            // a cast of a number far outside gives the ends of i128, which are outside too
            Scalar::Float(v) => !v.is_nan() && (low..=high).contains(&(v as i128)),
            Scalar::Int(v) => (low..=high).contains(&i128::from(v)),
            Scalar::Uint(v) => (low..=high).contains(&i128::from(v)),
            Scalar::Bool(_) => true,
        }
    }

    /// The value as f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) => v as f64,
            Scalar::Uint(v) => v as f64,
            Scalar::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// The element of type `T` nearest to this number, with [`Element`]'s conversion rules.
    pub fn cast<T: Element>(self) -> T {
        match self {
            Scalar::Float(v) => T::from_f64(v),
            Scalar::Int(v) => T::from_i64(v),
            Scalar::Uint(v) if T::DTYPE.is_float() => T::from_f64(v as f64),
            Scalar::Uint(v) => T::from_i64(v as i64),
            Scalar::Bool(v) => T::from_i64(i64::from(v)),
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            (Scalar::Uint(a), Scalar::Uint(b)) => a == b,
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            _ => false,
        }
    }
}
impl Eq for Scalar {}
impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Scalar::Float(v) => v.to_bits().hash(state),
            Scalar::Int(v) => v.hash(state),
            Scalar::Uint(v) => v.hash(state),
            Scalar::Bool(v) => v.hash(state),
        }
    }
}

impl From<f64> for Scalar {
    fn from(v: f64) -> Self {
        Scalar::Float(v)
    }
}
impl From<f32> for Scalar {
    fn from(v: f32) -> Self {
        Scalar::Float(f64::from(v))
    }
}
impl From<i32> for Scalar {
    fn from(v: i32) -> Self {
        Scalar::Int(i64::from(v))
    }
}
impl From<i64> for Scalar {
    fn from(v: i64) -> Self {
        Scalar::Int(v)
    }
}
impl From<u64> for Scalar {
    fn from(v: u64) -> Self {
        i64::try_from(v).map_or(Scalar::Uint(v), Scalar::Int)
    }
}
impl From<bool> for Scalar {
    fn from(v: bool) -> Self {
        Scalar::Bool(v)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_the_rust_types() {
        assert_eq!(DType::F16.size_bytes(), size_of::<f16>());
        assert_eq!(DType::BF16.size_bytes(), size_of::<bf16>());
        assert_eq!(DType::F64.size_bytes(), size_of::<f64>());
        assert_eq!(DType::U16.size_bytes(), size_of::<u16>());
        assert_eq!(DType::Bool.size_bytes(), size_of::<bool>());
    }

    #[test]
    fn integers_from_floats_truncate_and_saturate() {
        assert_eq!(i8::from_f64(-3.9), -3);
        assert_eq!(u8::from_f64(300.0), 255);
        assert_eq!(i32::from_f64(f64::NAN), 0);
        assert_eq!(u8::from_i64(257), 1);
    }

    /// Between each two neighbours of 16 bits: what lies in the middle goes to the even one, and its neighbours among f64
    /// to the nearest.
    fn rounds_once<T: Float>(infinity: u16, of_bits: fn(u16) -> T, to_bits: fn(T) -> u16) {
        for below in 0..infinity {
            // beyond the largest, the tie is where the next number would have the middle
            let [low, high] = [below, below + 1].map(|b| of_bits(b).to_f64());
            let step = if high.is_finite() { high - low } else { low - of_bits(below - 1).to_f64() };
            let middle = low + step / 2.0;
            for (v, want) in [(middle.next_down(), below), (middle, below + below % 2), (middle.next_up(), below + 1)] {
                assert_eq!(to_bits(T::from_f64(v)), want, "{v:e}");
                assert_eq!(to_bits(T::from_f64(-v)), want | 0x8000, "-{v:e}");
            }
        }
    }

    #[test]
    fn halves_round_once() {
        rounds_once::<f16>(0x7c00, f16::from_bits, f16::to_bits);
        rounds_once::<bf16>(0x7f80, bf16::from_bits, bf16::to_bits);
        assert!(<f16 as Element>::from_f64(f64::NAN).is_nan());
        assert_eq!(<bf16 as Element>::from_f64(f64::MAX), bf16::INFINITY);
        assert_eq!(<bf16 as Element>::from_f64(-1e-300).to_bits(), 0x8000);
    }

    #[test]
    fn large_integers_round_to_halves_once() {
        let (step, tie) = (1_i64 << 53, (1_i64 << 60) + (1 << 52));
        let want = |v: i64| bf16::from_f32(v as f32);
        assert_eq!(bf16::from_i64(tie), want(1 << 60));
        assert_eq!(bf16::from_i64(tie + 1), want((1 << 60) + step));
        assert_eq!(bf16::from_i64(-tie - 1), want(-(1 << 60) - step));
        assert_eq!(bf16::from_i64(i64::MIN), want(i64::MIN));
        assert_eq!(f16::from_i64(65519), f16::MAX);
    }

    #[test]
    fn numbers_that_a_cast_would_change_do_not_fit() {
        let int = |v: i64| Scalar::Int(v);
        for (v, dtype, fits) in [
            (int(255), DType::U8, true),
            (int(256), DType::U8, false),
            (int(-1), DType::U8, false),
            (int(-128), DType::I8, true),
            (int(-129), DType::I8, false),
            (int(i64::MIN), DType::I64, true),
            (int(-1), DType::U64, false),
            (Scalar::Uint(u64::MAX), DType::U64, true),
            (Scalar::Uint(u64::MAX), DType::I64, false),
            (Scalar::Float(255.9), DType::U8, true),
            (Scalar::Float(256.0), DType::U8, false),
            (Scalar::Float(f64::NAN), DType::I32, false),
            (Scalar::Float(f64::INFINITY), DType::I64, false),
            (Scalar::Float(9.3e18), DType::I64, false),
            (Scalar::Float(f64::NAN), DType::Bool, true),
            (Scalar::Float(1e300), DType::F16, true),
            (Scalar::Bool(true), DType::I8, true),
        ] {
            assert_eq!(v.fits(dtype), fits, "{v:?} as {dtype}");
        }
    }

    #[test]
    fn a_nan_scalar_equals_itself_and_differs_from_another_kind() {
        assert_eq!(Scalar::Float(f64::NAN), Scalar::Float(f64::NAN));
        assert_ne!(Scalar::Float(0.0), Scalar::Float(-0.0));
        assert_ne!(Scalar::Float(1.0), Scalar::Int(1));
    }
}
