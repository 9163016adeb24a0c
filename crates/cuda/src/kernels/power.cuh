// Powers in f64, correct to far more bits than it has: rounded, they equal those of a good library but where that
// rounds a tie the other way.

// An unevaluated sum whose second term is below half a unit in the last place of the first (Dekker, 1971).
struct Pair {
    double hi, lo;
};

__device__ __forceinline__ Pair normal(double a, double b) {
    const double sum = a + b;
    return {sum, b - (sum - a)};
}

__device__ __forceinline__ Pair times(Pair a, Pair b) {
    const double p = a.hi * b.hi;
    return normal(p, fma(a.hi, b.hi, -p) + (a.hi * b.lo + a.lo * b.hi));
}

__device__ __forceinline__ Pair plus(Pair a, Pair b) {
    const double s = a.hi + b.hi, t = s - a.hi;
    return normal(s, (a.hi - (s - t)) + (b.hi - t) + (a.lo + b.lo));
}

__device__ __forceinline__ Pair over(Pair a, double n) {
    const double q = a.hi / n;
    return normal(q, (fma(-q, n, a.hi) + a.lo) / n);
}

// x^n for a whole n that is not negative, by squaring.
__device__ __noinline__ double whole_power(double x, double n) {
    Pair base = {x, 0.0}, y = {1.0, 0.0};
    for (u64 k = (u64)n; k != 0; k >>= 1) {
        if (k & 1) y = times(y, base);
        base = times(base, base);
    }
    return y.hi;
}

// e^x: a power of two, and the 256th power of a series whose terms fall fast.
__device__ __noinline__ Pair exponential(Pair x) {
    const double k = rint(x.hi * 1.4426950408889634);
    const Pair ln2 = {0.6931471805599453, 2.3190468138462996e-17};
    const Pair r = over(plus(x, times({-k, 0.0}, ln2)), 256.0);
    Pair y = {1.0, 0.0};
    for (int n = 12; n > 0; --n) y = plus({1.0, 0.0}, times(r, over(y, n)));
    for (int n = 0; n < 8; ++n) y = times(y, y);
    return {ldexp(y.hi, (int)k), ldexp(y.lo, (int)k)};
}

// The natural logarithm of a normal number above 0, by the series of the inverse hyperbolic tangent.
__device__ __forceinline__ double near_logarithm(double x) {
    int exponent = (int)(bits_of_f64(x) >> 52) - 1023;
    double m = f64_of_bits((bits_of_f64(x) & 0xfffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1;
    }
    const double s = (m - 1.0) / (m + 1.0), square = s * s;
    double sum = 0.0;
    for (int n = 23; n > 0; n -= 2) sum = sum * square + 1.0 / n;
    return 2.0 * s * sum + exponent * 0.6931471805599453;
}

// x^y for a normal x above 0. A step of Newton's method makes the logarithm twice as long.
__device__ __noinline__ double general_power(double x, double y) {
    const double near = near_logarithm(x);
    const Pair rest = plus(times(exponential({-near, 0.0}), {x, 0.0}), {-1.0, 0.0});
    const Pair power = times(plus({near, 0.0}, rest), {y, 0.0});
    // out of the range of f64
    if (power.hi < -1000.0) return 0.0;
    if (power.hi > 1000.0) return f64_of_bits(0x7ff0000000000000ull);
    return exponential(power).hi;
}

// e^x in f64, 0 far below and infinite far above; NaN stays.
__device__ __forceinline__ double short_exponential(double x) {
    if (x < -1000.0) return 0.0;
    if (x > 1000.0) return f64_of_bits(0x7ff0000000000000ull);
    return x == x ? exponential({x, 0.0}).hi : x;
}

// The logarithm of a number that is not below 0, subnormal ones included.
__device__ __forceinline__ double short_logarithm_of(double x) {
    if (!(x > 0.0)) return x == 0.0 ? f64_of_bits(0xfff0000000000000ull) : f64_of_bits(0x7ff8000000000000ull);
    if (x == f64_of_bits(0x7ff0000000000000ull)) return x;
    if (x >= 2.2250738585072014e-308) return near_logarithm(x);
    return near_logarithm(x * 18014398509481984.0) - 37.42994775023705;
}

// ln(1 + x) for x from -1 on. What rounding takes from the sum comes back as a share of it.
__device__ __forceinline__ double logarithm_of_1_plus(double x) {
    const double sum = 1.0 + x;
    if (!(sum > 0.0) || sum == f64_of_bits(0x7ff0000000000000ull)) return short_logarithm_of(sum);
    return near_logarithm(sum) + (x - (sum - 1.0)) / sum;
}
