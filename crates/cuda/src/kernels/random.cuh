// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011), and what draws take of its words. Block `b` of a stream is
// a function of key, stream and `b`, so an element depends on its position only.

__device__ __forceinline__ void random_block(const u64 *key, u64 b, u32 *words) {
    u32 c0 = (u32)b, c1 = (u32)(b >> 32), c2 = (u32)key[1], c3 = (u32)(key[1] >> 32);
    u32 k0 = (u32)key[0], k1 = (u32)(key[0] >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        const u32 h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c1 = l1;
        c2 = h0 ^ c3 ^ k1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

// 24 bits of a word, and 53 of two, in [0, 1)
__device__ __forceinline__ double unit_of(u32 word) { return (double)(word >> 8) * (1.0 / 16777216.0); }

__device__ __forceinline__ double unit_of(u32 high, u32 low) {
    return (double)(((u64)high << 32 | low) >> 11) * (1.0 / 9007199254740992.0);
}

// The logarithm of a positive normal number as the CPU's kernels have it for f32, whose bits this keeps.
__device__ __forceinline__ double short_logarithm(double x) {
    const u64 least = 0x3fe6a09e00000000ull, bits = bits_of_f64(x) + (0x3ff0000000000000ull - least);
    const double m = f64_of_bits((bits & 0xfffffffffffffull) + least);
    const double e = f64_of_bits((bits >> 52) | bits_of_f64(4503599627370496.0)) - (4503599627370496.0 + 1023.0);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.19612083335967757;
    p = fma(p, z, 0.2217397834081491);
    p = fma(p, z, 0.28572172575264787);
    p = fma(p, z, 0.3999999483020283);
    p = fma(p, z, 0.66666666679784);
    p = fma(p, z, 1.999999999999946);
    return fma(e, 0.6931471805599453, s * p);
}

// sin(r + q pi/2) from both of r
__device__ __forceinline__ double quarter_turned(double sin, double cos, u32 q) {
    const double y = (q & 1) == 0 ? sin : cos;
    return f64_of_bits(bits_of_f64(y) ^ ((u64)(q & 2) << 62));
}

// Sine and cosine of turns / 2^32 turns, as the CPU's kernels have them.
__device__ __forceinline__ void sin_cos_turns(u32 turns, double &sin, double &cos) {
    const u32 q = (turns + (1u << 29)) >> 30;
    const double r = (double)(i32)(turns - (q << 30)) * (1.5707963267948966 / 1073741824.0), z = r * r;
    double s = -2.4755249242413503e-8;
    s = fma(s, z, 2.7555251770037607e-6);
    s = fma(s, z, -0.00019841263190136633);
    s = fma(s, z, 0.008333333323640378);
    s = fma(s, z, -0.16666666666614857);
    s = fma(s, z, 0.9999999999999954);
    s = r * s;
    double c = -2.716789932098653e-7;
    c = fma(c, z, 2.47988430992253e-5);
    c = fma(c, z, -0.0013888879928728293);
    c = fma(c, z, 0.041666666533581635);
    c = fma(c, z, -0.4999999999927051);
    c = fma(c, z, 0.9999999999999343);
    sin = quarter_turned(s, c, q);
    cos = quarter_turned(s, c, q + 1);
}

// Fisher and Yates' shuffle by one block of 1024 threads. Each takes an exchange of a window; an exchange is done
// once no earlier one has its places, which are held by the least number (Shun et al., SODA 2015), so the order is
// that of a loop. `held` is all ones at first.
__device__ __forceinline__ void shuffle(u64 n, const u64 *key, i64 *y, u32 *held) {
    const u32 own = threadIdx.x;
    for (u64 last = n - 1; last > 0; last -= last < 1024 ? last : 1024) {
        bool is_pending = own < last;
        const u64 i = is_pending ? last - own : 0;
        u64 j = 0;
        if (is_pending) {
            u32 w[4];
            random_block(key, i, w);
            j = __umul64hi((u64)w[0] << 32 | w[1], i + 1);
        }
        while (__syncthreads_or(is_pending)) {
            if (is_pending) {
                atomicMin(held + i, own);
                atomicMin(held + j, own);
            }
            __syncthreads();
            const bool is_first = is_pending && held[i] == own && held[j] == own;
            __syncthreads();
            if (is_pending) {
                held[i] = ~0u;
                held[j] = ~0u;
            }
            if (is_first) {
                const i64 v = y[i];
                y[i] = y[j];
                y[j] = v;
                is_pending = false;
            }
        }
    }
}
