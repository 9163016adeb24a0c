// Products of matrices in tiles. `element` is the type of the inputs, `total` that of the sums, `wide` takes an element to a total.

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ u32 multiply_add(u32 a, u32 b, u32 c) { return a * b + c; }
__device__ __forceinline__ u64 multiply_add(u64 a, u64 b, u64 c) { return a * b + c; }

// Calls `finish(row, column, sum)` for each element of a tile of a [m, k] times b [k, n]. A block of 256 threads takes 16 `T`
// rows and columns, each thread `T` of both. Each sum goes over k in order, by one multiply-add after the other, so its bits
// depend neither on the tile nor on m and n. `am` and the like are strides.
template <int T, typename Finish>
__device__ __forceinline__ void product(const element *a, i64 am, i64 ak, const element *b, i64 bk, i64 bn, u64 m, u64 n, u64 k,
                                        Finish finish) {
    constexpr int SIDE = 16 * T, DEPTH = 16;
    // one more, so that threads that write a column do not all meet in one bank
    __shared__ total rows[DEPTH][SIDE + 1], columns[DEPTH][SIDE + 1];
    const u64 row0 = (u64)blockIdx.y * SIDE, column0 = (u64)blockIdx.x * SIDE;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    total sums[T][T];
#pragma unroll
    for (int r = 0; r < T; ++r)
#pragma unroll
        for (int c = 0; c < T; ++c) sums[r][c] = 0;
    for (u64 k0 = 0; k0 < k; k0 += DEPTH) {
        for (int e = threadIdx.x; e < DEPTH * SIDE; e += 256) {
            // neighbouring threads read neighbouring elements, where these lie along an axis
            const int ra = ak == 1 ? e / DEPTH : e % SIDE, ka = ak == 1 ? e % DEPTH : e / SIDE;
            const bool has_a = row0 + ra < m && k0 + ka < k;
            rows[ka][ra] = has_a ? wide(a[(i64)(row0 + ra) * am + (i64)(k0 + ka) * ak]) : (total)0;
            const int cb = bk == 1 ? e / DEPTH : e % SIDE, kb = bk == 1 ? e % DEPTH : e / SIDE;
            const bool has_b = column0 + cb < n && k0 + kb < k;
            columns[kb][cb] = has_b ? wide(b[(i64)(k0 + kb) * bk + (i64)(column0 + cb) * bn]) : (total)0;
        }
        __syncthreads();
        // not further than k: a product of zeros would take the sign of a sum that is -0
        const int depth = k - k0 < DEPTH ? (int)(k - k0) : DEPTH;
#pragma unroll 4
        for (int p = 0; p < depth; ++p) {
            total x[T], y[T];
#pragma unroll
            for (int t = 0; t < T; ++t) {
                x[t] = rows[p][ty + 16 * t];
                y[t] = columns[p][tx + 16 * t];
            }
#pragma unroll
            for (int r = 0; r < T; ++r)
#pragma unroll
                for (int c = 0; c < T; ++c) sums[r][c] = multiply_add(x[r], y[c], sums[r][c]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < T; ++r)
#pragma unroll
        for (int c = 0; c < T; ++c) {
            const u64 row = row0 + ty + 16 * r, column = column0 + tx + 16 * c;
            if (row < m && column < n) finish(row, column, sums[r][c]);
        }
}
