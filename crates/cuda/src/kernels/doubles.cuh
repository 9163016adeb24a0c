// Functions of double within a few units in the last place, of plain arithmetic alone: the CPU has those of its C
// library.

// ln 2, whose high part has so few digits that its multiples are exact
__device__ constexpr double LN_2_HIGH = 0x1.62e42fefa0000p-1, LN_2_LOW = 0x1.cf79abc9e3b3ap-40;

__device__ __forceinline__ bool is_infinite(double x) { return fabs(x) == f64_of_bits(0x7ff0000000000000ull); }

// e^x = 2^n e^r by the series of e^r, in factors that are normal numbers
__device__ __noinline__ double exp_f64(double x) {
    if (x != x) return x;
    if (x > 710) return f64_of_bits(0x7ff0000000000000ull);
    if (x < -746) return 0;
    const double n = rint(x * 0x1.71547652b82fep+0);
    const double r = fma(-n, LN_2_LOW, fma(-n, LN_2_HIGH, x));
    double y = 1.0 / 6227020800.0;
    const double c[12] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                          1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0};
#pragma unroll
    for (int i = 0; i < 12; ++i) y = fma(y, r, c[i]);
    y = fma(y, r, 1.0);
    const i64 k = (i64)n, half = k / 2;
    return y * f64_of_bits((u64)(1023 + half) << 52) * f64_of_bits((u64)(1023 + k - half) << 52);
}

// e^x - 1 of |x| up to 1 by its series
__device__ __noinline__ double exp_m1_f64(double x) {
    if (!(fabs(x) <= 1)) return exp_f64(x) - 1;
    double y = 0;
#pragma unroll 1
    for (int i = 22; i > 1; --i) y = (y + 1) * x / i;
    return fma(y, x, x);
}

// x = 2^n m; ln m = 2 artanh((m - 1) / (m + 1)) by its series
__device__ __noinline__ double ln_f64(double x) {
    if (x != x || x == f64_of_bits(0x7ff0000000000000ull)) return x;
    if (x == 0) return f64_of_bits(0xfff0000000000000ull);
    if (x < 0) return f64_of_bits(0x7ff8000000000000ull);
    int n = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        n = -54;
    }
    u64 bits = bits_of_f64(x);
    n += (int)(bits >> 52) - 1023;
    double m = f64_of_bits((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        n += 1;
    }
    const double f = m - 1, s = f / (m + 1), z = s * s;
    double y = 0;
#pragma unroll
    for (int i = 25; i >= 3; i -= 2) y = fma(y, z, 1.0 / i);
    // 2 s = f - s f, without the rounding of s
    const double rest = fma(-s, f, 2 * s * z * y);
    return fma((double)n, LN_2_HIGH, f + fma((double)n, LN_2_LOW, rest));
}

// ln(1 + x): the digits that 1 + x loses come back by the ratio
__device__ __noinline__ double ln_1p_f64(double x) {
    const double u = 1 + x;
    if (u == 1 || (x > 0 && is_infinite(x))) return x;
    return ln_f64(u) * (x / (u - 1));
}
