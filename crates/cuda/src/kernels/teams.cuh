// Teams of threads that take rows: 16 threads for a short row, else a block of 256.
//
// `element` is the type in memory and `real` the type to compute in; `up` and `down` convert between them, and `down64`
// rounds a double to an element. A row's sums go in the order of the CPU's kernels: blocks of 1024 elements in 16 lanes
// of `real`, which are added pairwise in double, and blocks one after the other in double.

constexpr int LANES = 16, SPAN = 1024;
// between two blocks of terms in shared memory: two groups of lanes read them from different banks
constexpr int STRIDE = SPAN + LANES;

__device__ __forceinline__ u64 least(u64 a, u64 b) { return a < b ? a : b; }

template <typename T>
union Words {
    u32 word[(sizeof(T) + 3) / 4];
    T value;
};

// The value of the thread whose number within `TEAM` has other bits.
template <int TEAM, typename T>
__device__ __forceinline__ T from_other(T x, int bits) {
    constexpr int COUNT = (sizeof(T) + 3) / 4, WIDTH = TEAM < 32 ? TEAM : 32;
    Words<T> from, to;
    from.value = x;
    const u32 members = WIDTH == 32 ? 0xffffffffu : ((1u << WIDTH % 32) - 1) << (threadIdx.x % 32 / WIDTH * WIDTH);
#pragma unroll
    for (int w = 0; w < COUNT; ++w) to.word[w] = __shfl_xor_sync(members, from.word[w], bits, WIDTH);
    return to.value;
}

// Pairwise over 16 threads, in the order in which a thread's partner is `half` further. Both of two threads add the
// same two numbers, so that all have the sum.
__device__ __forceinline__ double lanes_sum(double x) {
#pragma unroll
    for (int half = LANES / 2; half > 0; half /= 2) x += from_other<LANES>(x, half);
    return x;
}

// What `join` makes of the values of all threads of a team, for each of them. `room` has a value for each warp of a
// block.
template <int TEAM, typename T, typename Join>
__device__ __forceinline__ T team_join(T x, u64 *room, Join join) {
#pragma unroll
    for (int half = (TEAM < 32 ? TEAM : 32) / 2; half > 0; half /= 2) x = join(x, from_other<TEAM>(x, half));
    if (TEAM <= 32) return x;
    T *values = (T *)room;
    __syncthreads();
    if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = x;
    __syncthreads();
    x = values[0];
#pragma unroll
    for (int warp = 1; warp < TEAM / 32; ++warp) x = join(x, values[warp]);
    return x;
}

// Shared memory of a block: the terms of `N` sums over `CHUNKS` blocks of elements, sums of blocks, and values of
// warps.
template <int TEAM, int N, int CHUNKS>
struct Room {
    real terms[TEAM > LANES ? N * CHUNKS * STRIDE : 1];
    double sums[N * CHUNKS];
    u64 values[8];

    // Term `k` of sum `i`.
    __device__ real &term(int i, int k) { return terms[(i * CHUNKS + k / SPAN) * STRIDE + k % SPAN]; }
};

// Totals of `N` sums over a row of `n` terms, for each thread of the team. `terms(k, v)` gives those of element `k`.
template <int TEAM, int N, int M, int CHUNKS, typename Terms>
__device__ __forceinline__ void sum_row(Room<TEAM, M, CHUNKS> &room, u64 n, double (&totals)[N], Terms terms) {
    static_assert(N <= M, "there is room for fewer sums");
#pragma unroll
    for (int i = 0; i < N; ++i) totals[i] = 0;
    if constexpr (TEAM == LANES) {
        for (u64 from = 0; from < n; from += SPAN) {
            const u64 to = least(n, from + SPAN);
            real lanes[N], v[N];
#pragma unroll
            for (int i = 0; i < N; ++i) lanes[i] = 0;
#pragma unroll 4
            for (u64 k = from + threadIdx.x % LANES; k < to; k += LANES) {
                terms(k, v);
#pragma unroll
                for (int i = 0; i < N; ++i) lanes[i] += v[i];
            }
#pragma unroll
            for (int i = 0; i < N; ++i) totals[i] += lanes_sum((double)lanes[i]);
        }
        return;
    }
    const int own = threadIdx.x, lane = own % LANES, chunk = own / LANES % CHUNKS, sum = own / LANES / CHUNKS;
    for (u64 from = 0; from < n; from += CHUNKS * SPAN) {
        const int count = (int)least(n - from, CHUNKS * SPAN);
        for (int k = own; k < count; k += TEAM) {
            real v[N];
            terms(from + k, v);
#pragma unroll
            for (int i = 0; i < N; ++i) room.term(i, k) = v[i];
        }
        __syncthreads();
        if (sum < N) {
            const real *at = room.terms + (sum * CHUNKS + chunk) * STRIDE;
            const int rest = count - chunk * SPAN, end = rest < SPAN ? rest : SPAN;
            real total = 0;
#pragma unroll 8
            for (int k = lane; k < end; k += LANES) total += at[k];
            const double all = lanes_sum((double)total);
            if (lane == 0) room.sums[sum * CHUNKS + chunk] = all;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < N; ++i)
            for (int c = 0; c * SPAN < count; ++c) totals[i] += room.sums[i * CHUNKS + c];
    }
}

template <int TEAM, int M, int CHUNKS, typename Term>
__device__ __forceinline__ double sum_of(Room<TEAM, M, CHUNKS> &room, u64 n, Term term) {
    double total[1];
    sum_row(room, n, total, [&](u64 k, real(&v)[1]) { v[0] = term(k); });
    return total[0];
}

// The first `k` for which `is_it(k)`; `n` for none.
template <int TEAM, int M, int CHUNKS, typename IsIt>
__device__ __forceinline__ u64 first_where(Room<TEAM, M, CHUNKS> &room, u64 n, IsIt is_it) {
    u64 found = n;
    for (u64 k = threadIdx.x % TEAM; k < n && found == n; k += TEAM)
        if (is_it(k)) found = k;
    return team_join<TEAM>(found, room.values, [](u64 a, u64 b) { return least(a, b); });
}

// A sum in double in an order of its own.
template <int TEAM, int M, int CHUNKS, typename Term>
__device__ __forceinline__ double wide_sum(Room<TEAM, M, CHUNKS> &room, u64 n, Term term) {
    double sum = 0;
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) sum += term(k);
    return team_join<TEAM>(sum, room.values, [](double a, double b) { return a + b; });
}

// Calls `f(row, room)` for each row by a team.
template <int TEAM, int M, int CHUNKS, typename F>
__device__ __forceinline__ void each_row(u64 rows, F f) {
    __shared__ Room<TEAM, M, CHUNKS> room;
    const u64 step = (u64)gridDim.x * (blockDim.x / TEAM);
    for (u64 row = (u64)blockIdx.x * (blockDim.x / TEAM) + threadIdx.x / TEAM; row < rows; row += step) f(row, room);
}
