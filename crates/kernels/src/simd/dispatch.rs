//! Loops without intrinsics, compiled for each width of vectors and chosen at run time.

/// Calls `f`, compiled for AVX-512 or AVX2 where the processor has it. `f` must be inlined to gain: mark what it calls
/// `#[inline(always)]`. The bits do not depend on it, since nothing is fused that is not written so, and lanes are fixed in
/// the source.
#[inline(always)]
pub(crate) fn widest<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
    {
        // SAFETY: the processor has these, and AVX-512F, without which there are none.
        return unsafe { with_avx512(f) };
    }
    wide(f)
}

/// As [`widest`], with AVX2 at most: for sums in 16 lanes. One vector of AVX-512 would hold all lanes, and its
/// additions would be a single chain of dependences.
#[inline(always)]
pub(crate) fn wide<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has AVX2 and FMA, as just checked.
        return unsafe { with_avx2(f) };
    }
    f()
}

/// Calls `f`.
///
/// # Safety
/// The processor has FMA, and AVX-512 F, BW, DQ and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn with_avx512<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// Calls `f`.
///
/// # Safety
/// The processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn with_avx2<R>(f: impl FnOnce() -> R) -> R {
    f()
}
