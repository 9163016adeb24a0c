//! How far two tensors are apart.

use remat_types::{DType, Element, HostTensor, bf16, f16};

use crate::Tolerance;

/// Number of representable values of `dtype` between `a` and `b`; 0 for two NaNs, `u64::MAX` for one.
///
/// +0 and -0 are 0 apart. `a` and `b` are values of `dtype`, as f64.
pub fn ulp_distance(a: f64, b: f64, dtype: DType) -> u64 {
    if a.is_nan() || b.is_nan() {
        return if a.is_nan() && b.is_nan() { 0 } else { u64::MAX };
    }
    /// Maps sign-magnitude bits of `width` bits to a monotone integer.
    fn ordered(bits: u64, width: u32) -> i128 {
        let magnitude = i128::from(bits & ((1u64 << (width - 1)) - 1));
        if bits >> (width - 1) == 1 { -magnitude } else { magnitude }
    }
    let key = |v: f64| match dtype {
        DType::F16 => ordered(u64::from(<f16 as Element>::from_f64(v).to_bits()), 16),
        DType::BF16 => ordered(u64::from(<bf16 as Element>::from_f64(v).to_bits()), 16),
        DType::F32 => ordered(u64::from((v as f32).to_bits()), 32),
        DType::F64 => ordered(v.to_bits(), 64),
        _ => v as i128,
    };
    u64::try_from((key(a) - key(b)).unsigned_abs()).unwrap_or(u64::MAX)
}

/// The relative bound of [`Tolerance::Float`] for a dtype; 0 for integers and bool.
pub fn float_bound(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 | DType::BF16 => 1e-2,
        _ => 0.0,
    }
}

/// True if `got` is within `bound` of `want`, relative to the magnitude of `want` (at least 1). NaN equals NaN, an
/// infinity only itself.
pub fn is_near(got: f64, want: f64, bound: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= bound * want.abs().max(1.0)
}

/// Says where and how `got` differs from `want` by more than `tolerance` allows; `None` if it does not.
pub fn difference(got: &HostTensor, want: &HostTensor, tolerance: Tolerance) -> Option<String> {
    if got.dtype() != want.dtype() || got.shape() != want.shape() {
        return Some(format!("is {} {}, not {} {}", got.dtype(), got.shape(), want.dtype(), want.shape()));
    }
    let dtype = got.dtype();
    let exact = tolerance == Tolerance::Exact || !dtype.is_float();
    let size = dtype.size_bytes();
    for (i, (g, w)) in got.to_f64_vec().into_iter().zip(want.to_f64_vec()).enumerate() {
        let same = match tolerance {
            _ if exact => {
                got.bytes()[i * size..(i + 1) * size] == want.bytes()[i * size..(i + 1) * size]
                    || (g.is_nan() && w.is_nan())
            }
            Tolerance::Exact => false,
            Tolerance::Ulp(n) => ulp_distance(g, w, dtype) <= u64::from(n),
            Tolerance::Float => is_near(g, w, float_bound(dtype)),
            Tolerance::Loose(bound, _) => is_near(g, w, bound),
        };
        if !same {
            return Some(format!("element {i} is {g:?}, not {w:?} (of {} {}, {tolerance:?})", dtype, got.shape()));
        }
    }
    // a bool of another byte than 0 or 1 reads as an empty list of values
    (got.bytes() != want.bytes() && dtype == DType::Bool).then(|| "bool bytes differ".to_owned())
}

/// [`difference`] of two lists of outputs.
pub fn differences(got: &[HostTensor], want: &[HostTensor], tolerance: Tolerance) -> Option<String> {
    if got.len() != want.len() {
        return Some(format!("{} outputs, not {}", got.len(), want.len()));
    }
    got.iter()
        .zip(want)
        .enumerate()
        .find_map(|(j, (g, w))| Some(format!("output {j} {}", difference(g, w, tolerance)?)))
}

/// [`differences`] bit for bit, NaN payloads included.
pub fn bit_differences(got: &[HostTensor], want: &[HostTensor]) -> Option<String> {
    if got == want {
        return None;
    }
    Some(differences(got, want, Tolerance::Exact).unwrap_or_else(|| "the bits of a NaN differ".to_owned()))
}
