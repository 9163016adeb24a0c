// Exponential, logarithm and hyperbolic tangent of doubles, for sums that agree with the CPU's to a tolerance: it calls
// its own library, of which there is no transcription, and the compiler's functions take instructions whose bits are
// not fixed.

// e^r - 1 for |r| <= ln(2) / 2, by the series: the first term that is left out is below 1e-17 of the first.
__device__ __forceinline__ double short_expm1(double r) {
    double p = 1.6059043836821613e-10;
    p = fma(p, r, 2.08767569878681e-9);
    p = fma(p, r, 2.505210838544172e-8);
    p = fma(p, r, 2.755731922398589e-7);
    p = fma(p, r, 2.7557319223985893e-6);
    p = fma(p, r, 2.48015873015873e-5);
    p = fma(p, r, 1.984126984126984e-4);
    p = fma(p, r, 1.388888888888889e-3);
    p = fma(p, r, 8.333333333333333e-3);
    p = fma(p, r, 4.1666666666666664e-2);
    p = fma(p, r, 1.6666666666666666e-1);
    p = fma(p, r, 0.5);
    return fma(p * r, r, r);
}

__device__ __forceinline__ double power_of_two(int e) { return f64_of_bits((u64)(e + 1023) << 52); }

__device__ __noinline__ double exp_f64(double x) {
    if (x != x || x > 709.8) return x + x > 0 ? f64_of_bits(0x7ff0000000000000ull) : x;
    if (x < -745.2) return 0;
    const double k = rint(x * 1.4426950408889634);
    const double r = fma(k, -1.9082149292705877e-10, fma(k, -0.6931471803691238, x));
    // in two steps, as the result may be subnormal, or its power of two too large
    const int e = (int)k, half = e / 2;
    return (short_expm1(r) + 1) * power_of_two(half) * power_of_two(e - half);
}

__device__ __noinline__ double log_f64(double x) {
    if (x == 0) return f64_of_bits(0xfff0000000000000ull);
    if (!(x > 0) || x == f64_of_bits(0x7ff0000000000000ull)) return x > 0 ? x : f64_of_bits(0x7ff8000000000000ull);
    const bool is_subnormal = x < f64_of_bits(0x0010000000000000ull);
    if (is_subnormal) x *= 18014398509481984.0;
    // a mantissa between the root of a half and that of 2
    const u64 least = 0x3fe6a09e667f3bcdull, bits = bits_of_f64(x) - least;
    const double e = (double)(i32)((i64)bits >> 52) - (is_subnormal ? 54.0 : 0.0);
    const double m = f64_of_bits((bits & 0xfffffffffffffull) + least);
    const double s = (m - 1) / (m + 1), z = s * s;
    double p = 2.0 / 21;
#pragma unroll
    for (int k = 19; k > 1; k -= 2) p = fma(p, z, 2.0 / k);
    return fma(e, 0.6931471803691238, fma(e, 1.9082149292705877e-10, fma(p * z, s, 2 * s)));
}

__device__ __noinline__ double tanh_f64(double x) {
    const double a = fabs(x);
    const double e = a < 0.17 ? short_expm1(2 * a) : exp_f64(2 * a) - 1;
    return copysign(a > 22 ? 1.0 : e / (e + 2), x);
}
