// Gamma and Poisson numbers by rejection, as the CPU draws them: an element has a range of blocks of its own.
// Functions are correct to the last bits of f64, so what is rounded to fewer bits is the CPU's.

struct Draws {
    const u64 *stream;
    u64 next;

    // two numbers in (0, 1]
    __device__ __forceinline__ void pair(double &a, double &b) {
        u32 w[4];
        random_block(stream, next, w);
        next += 1;
        a = 1.0 - unit_of(w[0], w[1]);
        b = 1.0 - unit_of(w[2], w[3]);
    }
};

__device__ __forceinline__ bool is_finite(double x) { return x - x == 0.0; }

// The cosine of a number of at most a few turns.
__device__ __forceinline__ double short_cosine(double x) {
    const double q = rint(x * 0.6366197723675814);
    const double r = fma(-q, 6.123233995736766e-17, fma(-q, 1.5707963267948966, x)), z = r * r;
    double s = 1.0, c = 1.0;
#pragma unroll
    for (int n = 18; n > 0; n -= 2) {
        c = 1.0 - z / (double)(n * (n - 1)) * c;
        s = 1.0 - z / (double)(n * (n + 1)) * s;
    }
    return quarter_turned(r * s, c, (u32)(i32)q + 1);
}

// ln gamma(x) for x from 1 on, by Stirling's series.
__device__ __forceinline__ double log_gamma(double x) {
    double below = 1.0;
    for (; x < 16.0; x += 1.0) below *= x;
    const double r = 1.0 / x, z = r * r;
    const double series = r * (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0))));
    return (x - 0.5) * short_logarithm_of(x) - x + 0.9189385332046728 + series - short_logarithm_of(below);
}

// Marsaglia and Tsang, 2000; the logarithm if LOG.
template <bool LOG>
__device__ __noinline__ double gamma_number(Draws draws, double alpha) {
    if (!(alpha > 0.0 && is_finite(alpha))) return f64_of_bits(0x7ff8000000000000ull);
    const double own = alpha;
    double share = 1.0, unused;
    // below 1 a number of the next shape is scaled
    if (alpha < 1.0) {
        alpha += 1.0;
        draws.pair(share, unused);
    }
    const double d = alpha - 1.0 / 3.0, c = 1.0 / __dsqrt_rn(9.0 * d);
    for (;;) {
        double u, v;
        draws.pair(u, v);
        const double x = __dsqrt_rn(-2.0 * short_logarithm_of(u)) * short_cosine(6.283185307179586 * v);
        const double root = 1.0 + c * x;
        v = root * root * root;
        draws.pair(u, unused);
        if (!(v > 0.0 && short_logarithm_of(u) < 0.5 * x * x + d - d * v + d * short_logarithm_of(v))) continue;
        if (LOG) return short_logarithm_of(share) / own + short_logarithm_of(d * v);
        return general_power(share, 1.0 / own) * d * v;
    }
}

// By products of uniform numbers below 10 (Knuth), else by transformed rejection (Hörmann, 1993, PTRS).
__device__ __noinline__ double poisson_number(Draws draws, double rate) {
    if (!(rate >= 0.0 && is_finite(rate))) return f64_of_bits(0x7ff8000000000000ull);
    double u, v;
    if (rate < 10.0) {
        const double least = short_exponential(-rate);
        double product = 1.0, count = 0.0;
        for (;;) {
            draws.pair(u, v);
            product *= u;
            if (product <= least) return count;
            product *= v;
            count += 1.0;
            if (product <= least) return count;
            count += 1.0;
        }
    }
    const double ln = short_logarithm_of(rate), root = __dsqrt_rn(rate);
    const double b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    const double inverse = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2.0);
    for (;;) {
        draws.pair(u, v);
        u = u - 0.5;
        const double us = 0.5 - fabs(u), k = floor((2.0 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= quick) return k;
        if (k < 0.0 || (us < 0.013 && v > us)) continue;
        const double left = short_logarithm_of(v) + short_logarithm_of(inverse) - short_logarithm_of(a / (us * us) + b);
        if (left <= k * ln - rate - log_gamma(k + 1.0)) return k;
    }
}
