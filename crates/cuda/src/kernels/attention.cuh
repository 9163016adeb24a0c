// Attention in tiles of queries and keys. `element`, `total` and `wide` as for products; `exponential`, `logarithm` and
// `tangent` are functions of totals. HAS_MASK, HAS_BIAS, HAS_CAP and DROPS say what happens to scores. It stands behind
// matmul.cuh.
//
// A block has 256 threads: thread (ty, tx) has T rows of a tile side by side from `ty` T on, and every 16th of its
// columns from `tx` on. So a row of a tile belongs to half a warp.

// Rows of one head, times a factor.
struct Rows {
    const element *x;
    i64 row, column;
    total factor;
    __device__ __forceinline__ total at(u64 r, u64 c) const { return wide(x[(i64)r * row + (i64)c * column]) * factor; }
};

// A tensor of heads: [image, place, head, number].
struct Heads {
    const element *x;
    i64 n, t, h, d;
    __device__ __forceinline__ Rows head(u64 image, u64 head, total factor) const {
        return {x + (i64)image * n + (i64)head * h, t, d, factor};
    }
};

// Elements for pairs of a query and a key: [image, head, query, key].
template <typename T>
struct Pairs {
    const T *x;
    i64 n, h, i, j;
    __device__ __forceinline__ T at(u64 image, u64 head, u64 query, u64 key) const {
        return x[(i64)image * n + (i64)head * h + (i64)query * i + (i64)key * j];
    }
};

struct Sizes {
    u64 heads, group, tq, tk, d, dv;
    // query i sees keys from i + low to before i + high
    i64 low, high;
    total scale, cap, inverse_cap;
    // words below are dropped, probabilities of others times `kept`
    u64 below;
    total kept;
    const u64 *key;
    i64 key_step;

    __device__ __forceinline__ u64 place(u64 i, i64 by) const { return (u64)clamp_i64((i64)i + by, 0, (i64)tk); }
    __device__ __forceinline__ u64 begin(u64 i) const { return place(i, low); }
    __device__ __forceinline__ u64 end(u64 i) const { return place(i, high); }
};

// Random words of a dropout: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011). Four queries share a block.
struct Draw {
    u64 block;
    u32 words[4];

    __device__ __forceinline__ u32 word(const Sizes &a, u64 pair, u64 query, u64 key) {
        const u64 tiles = (a.tq + 63) / 64;
        const u64 b = ((pair * a.tk + key) * tiles + query / 64) * 16 + query % 64 / 4;
        if (b != block) {
            block = b;
            fill(a.key[0], a.key[a.key_step]);
        }
        const unsigned w = query % 4;
        return w == 0 ? words[0] : w == 1 ? words[1] : w == 2 ? words[2] : words[3];
    }

    __device__ __forceinline__ void fill(u64 key, u64 stream) {
        u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32);
        u32 k0 = (u32)key, k1 = (u32)(key >> 32);
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
};

// What a pair's probability is multiplied by.
__device__ __forceinline__ total kept_of(const Sizes &a, Draw &draw, u64 pair, u64 query, u64 key) {
    return draw.word(a, pair, query, key) < a.below ? (total)0 : a.kept;
}

// s[r][c] = the product of row `r` of a tile of `a` and row `c` of one of `b`. Rows from their ends on count as 0.
template <int RT, int CT>
__device__ __forceinline__ void dots(const Rows &a, u64 a0, u64 a_end, const Rows &b, u64 b0, u64 b_end, u64 depth,
                                     total (&s)[RT][CT]) {
    __shared__ total rows[16][16 * RT + 1], columns[16][16 * CT + 1];
    const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int r = 0; r < RT; ++r)
#pragma unroll
        for (int c = 0; c < CT; ++c) s[r][c] = 0;
    for (u64 p0 = 0; p0 < depth; p0 += 16) {
#pragma unroll
        for (int t = 0; t < RT; ++t) {
            const u64 r = a0 + ty + 16 * t;
            rows[tx][ty + 16 * t] = r < a_end && p0 + tx < depth ? a.at(r, p0 + tx) : (total)0;
        }
#pragma unroll
        for (int t = 0; t < CT; ++t) {
            const u64 r = b0 + ty + 16 * t;
            columns[tx][ty + 16 * t] = r < b_end && p0 + tx < depth ? b.at(r, p0 + tx) : (total)0;
        }
        __syncthreads();
        const int count = depth - p0 < 16 ? (int)(depth - p0) : 16;
#pragma unroll 4
        for (int p = 0; p < count; ++p) {
            total x[RT], y[CT];
#pragma unroll
            for (int t = 0; t < RT; ++t) x[t] = rows[p][ty * RT + t];
#pragma unroll
            for (int t = 0; t < CT; ++t) y[t] = columns[p][tx + 16 * t];
#pragma unroll
            for (int r = 0; r < RT; ++r)
#pragma unroll
                for (int c = 0; c < CT; ++c) s[r][c] = multiply_add(x[r], y[c], s[r][c]);
        }
        __syncthreads();
    }
}

// sums[r][c] += the sum over `j` of tile[r][j] times element `from` + c of row `j` of a tile of `b`. No thread may
// still read what was in the tile; other threads' rows of it are seen after the first barrier here.
template <int RT, int CT, int C>
__device__ __forceinline__ void add_rows(const total (&tile)[16 * RT][16 * CT + 1], const Rows &b, u64 b0, u64 b_end,
                                         u64 from, u64 width, total (&sums)[RT][C]) {
    __shared__ total part[16][16 * C];
    const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (unsigned j0 = 0; j0 < 16 * CT && b0 + j0 < b_end; j0 += 16) {
        for (unsigned e = threadIdx.x; e < 256 * C; e += 256) {
            const unsigned j = e / (16 * C), c = e % (16 * C);
            part[j][c] = b0 + j0 + j < b_end && from + c < width ? b.at(b0 + j0 + j, from + c) : (total)0;
        }
        __syncthreads();
        const int count = b_end - b0 - j0 < 16 ? (int)(b_end - b0 - j0) : 16;
#pragma unroll 4
        for (int j = 0; j < count; ++j) {
            total x[RT], y[C];
#pragma unroll
            for (int t = 0; t < RT; ++t) x[t] = tile[ty * RT + t][j0 + j];
#pragma unroll
            for (int c = 0; c < C; ++c) y[c] = part[j][tx + 16 * c];
#pragma unroll
            for (int r = 0; r < RT; ++r)
#pragma unroll
                for (int c = 0; c < C; ++c) sums[r][c] = multiply_add(x[r], y[c], sums[r][c]);
        }
        __syncthreads();
    }
}

// The sum over the 16 threads of a row, in each of them.
__device__ __forceinline__ total row_total(total x) {
#pragma unroll
    for (int width = 8; width > 0; width /= 2) x += __shfl_xor_sync(~0u, x, width, 16);
    return x;
}

// The greatest, where a NaN is passed over.
__device__ __forceinline__ total row_greatest(total x) {
#pragma unroll
    for (int width = 8; width > 0; width /= 2) {
        const total other = __shfl_xor_sync(~0u, x, width, 16);
        x = other > x ? other : x;
    }
    return x;
}

// A product of query and key becomes a score: minus infinity where the key is hidden. `slope` is the derivative of the
// cap.
__device__ __forceinline__ total score_of(const Sizes &a, const Pairs<u8> &mask, const Pairs<element> &bias, u64 image,
                                          u64 head, u64 query, u64 key, total s, total &slope) {
    slope = 1;
    const i64 behind = (i64)key - (i64)query;
    if (query >= a.tq || key >= a.tk || behind < a.low || behind >= a.high) return -infinite();
    if (HAS_MASK && mask.at(image, head, query, key) == 0) return -infinite();
    if (HAS_CAP) {
        const total t = tangent(s * a.inverse_cap);
        s = a.cap * t;
        slope = 1 - t * t;
    }
    if (HAS_BIAS) s += wide(bias.at(image, head, query, key));
    return s;
}
