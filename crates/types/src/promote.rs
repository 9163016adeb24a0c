//! The dtype of an expression over two dtypes.
//!
//! Written down because three layers of rules that disagree are what users of other frameworks trip over:
//!
//! 1. equal dtypes stay;
//! 2. bool gives way to any other;
//! 3. a float and an integer give the float;
//! 4. two floats give the wider; f16 with bf16 gives f32, since neither holds the other;
//! 5. two integers of equal signedness give the wider;
//! 6. a signed and an unsigned integer give the smallest signed type that holds both; with u64 that is i64, which
//!    wraps above `i64::MAX` (PyTorch raises here; NumPy gives f64, which is worse for indices).
//!
//! Python-style weak scalars do not exist: a Rust literal is cast to the tensor's dtype by the method that takes it.

use crate::DType;

/// The common dtype of `a` and `b` by the rules of this module; symmetric, and `promote(a, a) == a`.
pub fn promote(a: DType, b: DType) -> DType {
    use DType::*;
    if a == b {
        return a;
    }
    match (a, b) {
        (Bool, x) | (x, Bool) => x,
        (F16, BF16) | (BF16, F16) => F32,
        _ if a.is_float() && b.is_float() => wider(a, b),
        _ if a.is_float() => a,
        _ if b.is_float() => b,
        _ if a.is_signed_int() == b.is_signed_int() => wider(a, b),
        _ => {
            let (signed, unsigned) = if a.is_signed_int() { (a, b) } else { (b, a) };
            let at_least = match unsigned {
                U8 => I16,
                U16 => I32,
                _ => I64,
            };
            wider(signed, at_least)
        }
    }
}

fn wider(a: DType, b: DType) -> DType {
    if a.size_bytes() >= b.size_bytes() { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn the_rules_hold_pair_by_pair() {
        for (a, b, want) in [
            (Bool, U8, U8),
            (I64, F16, F16),
            (F16, BF16, F32),
            (F32, F64, F64),
            (I8, I32, I32),
            (U8, I8, I16),
            (U8, I32, I32),
            (U16, I16, I32),
            (U32, I8, I64),
            (U64, I8, I64),
            (U64, F32, F32),
        ] {
            assert_eq!(promote(a, b), want, "{a} with {b}");
        }
    }

    #[test]
    fn promotion_is_symmetric_idempotent_and_a_fixed_point() {
        for a in DType::ALL {
            for b in DType::ALL {
                let p = promote(a, b);
                assert_eq!(p, promote(b, a));
                assert_eq!(promote(p, a), p, "{a} with {b}");
            }
            assert_eq!(promote(a, a), a);
        }
    }
}
