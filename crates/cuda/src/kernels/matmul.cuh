// Products of matrices in tiles. `element` is the type of the inputs, `total` that of the sums, `wide` takes an element
// to a total.

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ u32 multiply_add(u32 a, u32 b, u32 c) { return a * b + c; }
__device__ __forceinline__ u64 multiply_add(u64 a, u64 b, u64 c) { return a * b + c; }

// The elements of a line, of those of a factor: `p` counts along the sum.
struct StridedLine {
    const element *x;
    i64 step;
    __device__ __forceinline__ total operator()(u64 p) const { return wide(x[(i64)p * step]); }
};

// A factor whose elements lie by strides.
struct StridedFactor {
    typedef StridedLine Line;
    const element *x;
    i64 outer, inner;
    // whether neighbouring threads should read along a line, rather than across
    __device__ __forceinline__ bool is_along() const { return inner == 1; }
    __device__ __forceinline__ Line line(u64 at) const { return {x + (i64)at * outer, inner}; }
};

// Calls `finish(row, column, sum)` for each element of a tile of a [m, k] times b [k, n]. A block of 256 threads takes
// 16 `TR` rows and 16 `TC` columns, each thread `TR` by `TC` of them. Each sum goes over k in order, by one multiply-add
// after the other, so its bits depend neither on the tile nor on m and n. A factor gives a function of k for a row or
// column: no element is asked for that lies beyond m, n or k, but lines may be. The sum begins at `from`.
// `tile` is that of the rows, as a grid has few blocks along its second axis.
//
// `IS_CUT` sums each 16 products for themselves and adds that up, for sums that are so long that they would lose much.
template <int TR, int TC, bool IS_CUT = false, typename A, typename B, typename Finish>
__device__ __forceinline__ void product(const A &a, const B &b, u64 m, u64 n, u64 from, u64 k, Finish finish,
                                        u64 tile = blockIdx.y) {
    constexpr unsigned ROWS = 16 * TR, COLUMNS = 16 * TC, DEPTH = 16;
    // one more, so that threads that write a column do not all meet in one bank
    __shared__ total rows[DEPTH][ROWS + 1], columns[DEPTH][COLUMNS + 1];
    const u64 row0 = tile * ROWS, column0 = (u64)blockIdx.x * COLUMNS;
    const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    // a thread loads TR elements of a and TC of b for each step: of as many lines or of one
    const bool a_along = a.is_along(), b_along = b.is_along();
    const unsigned a_across = threadIdx.x % ROWS, a_deep = threadIdx.x / ROWS;
    const unsigned b_across = threadIdx.x % COLUMNS, b_deep = threadIdx.x / COLUMNS;
    typename A::Line a_lines[TR];
    typename B::Line b_lines[TC];
#pragma unroll
    for (unsigned t = 0; t < TR; ++t) a_lines[t] = a.line(row0 + (a_along ? ty + 16 * t : a_across));
#pragma unroll
    for (unsigned t = 0; t < TC; ++t) b_lines[t] = b.line(column0 + (b_along ? ty + 16 * t : b_across));
    total sums[TR][TC], pieces[TR][TC];
#pragma unroll
    for (int r = 0; r < TR; ++r)
#pragma unroll
        for (int c = 0; c < TC; ++c) sums[r][c] = pieces[r][c] = 0;
    for (u64 k0 = from; k0 < k; k0 += DEPTH) {
#pragma unroll
        for (unsigned t = 0; t < TR; ++t) {
            const unsigned ra = a_along ? ty + 16 * t : a_across, ka = a_along ? tx : a_deep + 16 / TR * t;
            rows[ka][ra] = row0 + ra < m && k0 + ka < k ? a_lines[t](k0 + ka) : (total)0;
        }
#pragma unroll
        for (unsigned t = 0; t < TC; ++t) {
            const unsigned cb = b_along ? ty + 16 * t : b_across, kb = b_along ? tx : b_deep + 16 / TC * t;
            columns[kb][cb] = column0 + cb < n && k0 + kb < k ? b_lines[t](k0 + kb) : (total)0;
        }
        __syncthreads();
        // not further than k: a product of zeros would take the sign of a sum that is -0
        const int depth = k - k0 < DEPTH ? (int)(k - k0) : DEPTH;
#pragma unroll 4
        for (int p = 0; p < depth; ++p) {
            total x[TR], y[TC];
#pragma unroll
            for (int t = 0; t < TR; ++t) x[t] = rows[p][ty + 16 * t];
#pragma unroll
            for (int t = 0; t < TC; ++t) y[t] = columns[p][tx + 16 * t];
#pragma unroll
            for (int r = 0; r < TR; ++r)
#pragma unroll
                for (int c = 0; c < TC; ++c) sums[r][c] = multiply_add(x[r], y[c], sums[r][c]);
        }
#pragma unroll
        for (int r = 0; r < TR; ++r)
#pragma unroll
            for (int c = 0; c < TC && IS_CUT; ++c) {
                pieces[r][c] += sums[r][c];
                sums[r][c] = 0;
            }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < TR; ++r)
#pragma unroll
        for (int c = 0; c < TC; ++c) {
            const u64 row = row0 + ty + 16 * r, column = column0 + tx + 16 * c;
            if (row < m && column < n) finish(row, column, IS_CUT ? pieces[r][c] : sums[r][c]);
        }
}
