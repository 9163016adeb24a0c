// Recurrent layers. Rows of a batch do not see each other: a block takes R of them through all steps, so that nothing
// waits but its own threads. `total` is the type of all numbers, CELL the function of a step; `hyperbolic` and
// `logistic` are functions.

constexpr int THREADS = 512;
constexpr int TANH = 0, RELU = 1, LSTM = 2, GRU = 3;
constexpr int COLUMNS = CELL == GRU || CELL == LSTM ? 4 : 1;
// the first of a row's gates that meets the state
constexpr int FIRST = CELL == GRU ? 1 : 0;

struct Layer {
    u64 steps, batch, hidden, width;
    // a row has this many steps; all of them without lengths
    const i64 *lengths;
    bool is_reverse;

    __device__ __forceinline__ u64 columns() const { return COLUMNS * hidden; }
    __device__ __forceinline__ u64 gate_rows() const { return (CELL == GRU ? 3 : COLUMNS) * hidden; }
    __device__ __forceinline__ u64 step(u64 i) const { return is_reverse ? steps - 1 - i : i; }
    __device__ __forceinline__ bool has(u64 b, u64 t) const {
        return !HAS_LENGTHS || (lengths[b] <= (i64)steps && (i64)t < lengths[b]);
    }
};

// Calls `finish(r, j, sum)` with the sums over k of state[r][k] weights[k][j], in order, for all rows and columns. Rows
// of the state are `step` apart.
template <int R, typename Finish>
__device__ __forceinline__ void rows_product(const total *state, u64 step, u64 rows, const total *weights, u64 depth,
                                             u64 columns, Finish finish) {
    constexpr int PART = 64;
    __shared__ total part[PART][R];
    for (u64 j0 = 0; j0 < columns; j0 += THREADS) {
        const u64 j = j0 + threadIdx.x;
        total sums[R];
#pragma unroll
        for (int r = 0; r < R; ++r) sums[r] = 0;
        for (u64 k0 = 0; k0 < depth; k0 += PART) {
            const int count = depth - k0 < PART ? (int)(depth - k0) : PART;
            for (int e = threadIdx.x; e < PART * R; e += THREADS) {
                const int k = e % PART, r = e / PART;
                part[k][r] = k < count && r < rows ? state[r * step + k0 + k] : (total)0;
            }
            __syncthreads();
            if (j < columns) {
#pragma unroll 8
                for (int k = 0; k < count; ++k) {
                    const total w = weights[(k0 + k) * columns + j];
#pragma unroll
                    for (int r = 0; r < R; ++r) sums[r] = multiply_add(part[k][r], w, sums[r]);
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (j < columns && r < rows) finish(r, j, sums[r]);
    }
}
