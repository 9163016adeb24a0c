// Shared by all generated sources: conversions and exact arithmetic with the bits of the CPU's kernels.
//
// 16-bit floats are their bits, as `unsigned short`; a Bool is an `unsigned char`, 0 or 1. No header is included, so that no
// toolkit is needed.

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float f32_of_bits(u32 bits) { return __uint_as_float(bits); }
__device__ __forceinline__ double f64_of_bits(u64 bits) { return __longlong_as_double((i64)bits); }
__device__ __forceinline__ u32 bits_of_f32(float x) { return __float_as_uint(x); }
__device__ __forceinline__ u64 bits_of_f64(double x) { return (u64)__double_as_longlong(x); }

// the instruction may give a NaN without its sign, which `copysign` takes from it
__device__ __forceinline__ float f32_of_f16(u16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return f32_of_bits((bits_of_f32(y) & 0x7fffffffu) | (u32)(x & 0x8000) << 16);
}

__device__ __forceinline__ float f32_of_bf16(u16 x) { return f32_of_bits((u32)x << 16); }

// rounded once to nearest even
__device__ __forceinline__ u16 f16_of_f32(float x) {
    u16 y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ u16 f16_of_f64(double x) {
    u16 y;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(y) : "d"(x));
    return y;
}

// the upper half, rounded to nearest even; a NaN stays quiet
__device__ __forceinline__ u16 bf16_of_f32(float x) {
    u32 bits = bits_of_f32(x);
    return x != x ? (u16)((bits >> 16) | 0x40) : (u16)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// Rounded to odd: cut off, with the last bit set where something was lost. A second rounding to at most 22 bits then rounds as
// if it were the only one (Boldo and Melquiond, "When double rounding is odd", 2005).
__device__ __forceinline__ float odd_of_f64(double x) {
    float y = __double2float_rz(x);
    return (double)y == x ? y : f32_of_bits(bits_of_f32(y) | 1);
}

__device__ __forceinline__ float odd_of_i64(i64 x) {
    float y = __ll2float_rz(x);
    return (i64)y == x ? y : f32_of_bits(bits_of_f32(y) | 1);
}

__device__ __forceinline__ float odd_of_u64(u64 x) {
    float y = __ull2float_rz(x);
    return (u64)y == x ? y : f32_of_bits(bits_of_f32(y) | 1);
}

__device__ __forceinline__ u16 f16_of_i64(i64 x) { return f16_of_f32(odd_of_i64(x)); }
__device__ __forceinline__ u16 f16_of_u64(u64 x) { return f16_of_f32(odd_of_u64(x)); }
__device__ __forceinline__ u16 bf16_of_f64(double x) { return bf16_of_f32(odd_of_f64(x)); }
__device__ __forceinline__ u16 bf16_of_i64(i64 x) { return bf16_of_f32(odd_of_i64(x)); }
__device__ __forceinline__ u16 bf16_of_u64(u64 x) { return bf16_of_f32(odd_of_u64(x)); }

// towards zero, saturated, 0 of NaN
__device__ __forceinline__ i64 i64_of_f64(double x) {
    if (x != x) return 0;
    if (x >= 9223372036854775808.0) return 0x7fffffffffffffffll;
    if (x < -9223372036854775808.0) return (i64)0x8000000000000000ull;
    return (i64)x;
}

__device__ __forceinline__ u64 u64_of_f64(double x) {
    if (!(x > 0.0)) return 0;
    if (x >= 18446744073709551616.0) return 0xffffffffffffffffull;
    return (u64)x;
}

__device__ __forceinline__ i64 clamp_i64(i64 x, i64 lo, i64 hi) { return x < lo ? lo : x > hi ? hi : x; }

// x^n modulo a power of two, by squaring
template <typename T>
__device__ __forceinline__ T power(T x, T n) {
    u64 base = (u64)x, y = 1;
    for (u64 k = (u64)n; k != 0; k >>= 1) {
        if (k & 1) y *= base;
        base *= base;
    }
    return (T)y;
}

// Integer division and remainder. A divisor of 0 comes only of a value that a select leaves; the least number over -1 is itself.
template <typename T>
__device__ __forceinline__ T quotient(T a, T b) {
    if (b == 0) return a;
    return b == (T)-1 && (T)-1 < (T)0 ? (T)(0 - (u64)a) : (T)(a / b);
}

template <typename T>
__device__ __forceinline__ T remainder_of(T a, T b) {
    if (b == 0) return 0;
    return b == (T)-1 && (T)-1 < (T)0 ? (T)0 : (T)(a % b);
}

// The mantissa of a positive number with its first bit. Of a subnormal number it is shifted up, and the exponent goes below 1: a
// long division takes one bit in each step, so that both mantissas must have as many.
__device__ __forceinline__ u64 whole_mantissa(u64 bits, int &exponent) {
    u64 m = bits & 0xfffffffffffffull;
    if (exponent != 0) return m | 0x10000000000000ull;
    for (exponent = 1; m < 0x10000000000000ull; --exponent) m <<= 1;
    return m;
}

// C's fmod, exactly: the remainder of a long division of the mantissas, bit by bit
__device__ __noinline__ double fmod_f64(double x, double y) {
    u64 a = bits_of_f64(x), b = bits_of_f64(y) & 0x7fffffffffffffffull, sign = a & 0x8000000000000000ull;
    a ^= sign;
    if (b == 0 || a >= 0x7ff0000000000000ull || b > 0x7ff0000000000000ull) return f64_of_bits(0x7ff8000000000000ull);
    if (a < b) return x;
    if (a == b) return f64_of_bits(sign);
    int ea = (int)(a >> 52), eb = (int)(b >> 52);
    u64 ma = whole_mantissa(a, ea), mb = whole_mantissa(b, eb);
    for (; ea > eb; --ea) {
        if (ma >= mb) ma -= mb;
        ma <<= 1;
    }
    if (ma >= mb) ma -= mb;
    if (ma == 0) return f64_of_bits(sign);
    for (; ma < 0x10000000000000ull; --eb) ma <<= 1;
    // a multiple of the least number, so that nothing is lost where the result is subnormal
    u64 bits = eb > 0 ? (ma & 0xfffffffffffffull) | ((u64)eb << 52) : ma >> (1 - eb);
    return f64_of_bits(sign | bits);
}

// the remainder of two floats is a float, and doubles hold both
__device__ __forceinline__ float fmod_f32(float x, float y) { return (float)fmod_f64((double)x, (double)y); }

// Notes that a launch refuses what it finds at a position, with a value for the error. The least position stays. The words are
// all ones at first: position, value, and a lock, which is free then. A fourth word becomes 1. Of the threads of a warp that are
// here together the one of the least position takes the lock: two of them would wait for each other on a device that runs them
// in step.
__device__ __noinline__ void refuse(u64 *failure, u64 position, i64 value) {
    const u32 members = __activemask();
    u64 least = position;
    for (u32 rest = members; rest != 0; rest &= rest - 1) {
        const u64 other = __shfl_sync(members, position, __ffs(rest) - 1);
        if (other < least) least = other;
    }
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    if ((int)lane != __ffs(__ballot_sync(members, position == least)) - 1) return;
    volatile u64 *words = failure;
    for (bool is_done = position >= words[0]; !is_done;) {
        if (atomicCAS(failure + 2, ~0ull, 0ull) != ~0ull) continue;
        // what the last holder wrote is seen from here on
        __threadfence();
        if (position < words[0]) {
            words[0] = position;
            words[1] = (u64)value;
            words[3] = 1;
        }
        __threadfence();
        atomicExch(failure + 2, ~0ull);
        is_done = true;
    }
}
