// Sorting of keys with their places, by lanes of n. `key` and `place` are unsigned types. The order of equal keys is
// that of their places.

// Elements of a tile: a warp of a block takes eighths of it.
#define TILE 2048

// How many elements of a tile have each digit: counts [lane][digit][tile].
__device__ __forceinline__ void count_digits(u64 n, u64 tiles, const key *keys, int shift, place *counts) {
    __shared__ u32 tally[256];
    tally[threadIdx.x] = 0;
    __syncthreads();
    const u64 lane = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    for (u64 i = tile * TILE + threadIdx.x; i < n && i < (tile + 1) * TILE; i += 256)
        atomicAdd(tally + (u32)(keys[lane * n + i] >> shift & 255), 1u);
    __syncthreads();
    counts[(lane * 256 + threadIdx.x) * tiles + tile] = tally[threadIdx.x];
}

// The sum of what the threads before this one of 256 have, and that of all.
__device__ __forceinline__ place block_scan(place x, place &sum) {
    __shared__ place sums[256];
    sums[threadIdx.x] = x;
    for (int distance = 1; distance < 256; distance *= 2) {
        __syncthreads();
        const place before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    __syncthreads();
    sum = sums[255];
    const place before = sums[threadIdx.x] - x;
    __syncthreads();
    return before;
}

// The counts of a digit, which a block has, become those of all tiles before; its total [lane][digit].
__device__ __forceinline__ void scan_digit(u64 tiles, place *counts, place *totals) {
    place carry = 0;
    place *own = counts + blockIdx.x * tiles;
    for (u64 from = 0; from < tiles; from += 256) {
        const u64 tile = from + threadIdx.x;
        place sum;
        const place before = block_scan(tile < tiles ? own[tile] : 0, sum);
        if (tile < tiles) own[tile] = carry + before;
        carry += sum;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

// Moves the elements of a tile to where their digit puts them, in their order. `order` is null where that is the
// first one.
__device__ __forceinline__ void move_by_digit(u64 n, u64 tiles, const key *from, const place *order, int shift,
                                              const place *counts, const place *totals, key *to, place *to_order) {
    __shared__ place next[8][256];
    const u64 lane = blockIdx.x / tiles, tile = blockIdx.x % tiles;
    const u32 warp = threadIdx.x / 32, own = threadIdx.x % 32;
    const u64 first = tile * TILE + warp * (TILE / 8) + own;
    for (int w = 0; w < 8; ++w) next[w][threadIdx.x] = 0;
    __syncthreads();
    for (int k = 0; k < TILE / 8; k += 32)
        if (first + k < n) atomicAdd(&next[warp][(u32)(from[lane * n + first + k] >> shift & 255)], (place)1);
    place sum;
    place base = block_scan(totals[lane * 256 + threadIdx.x], sum) + counts[(lane * 256 + threadIdx.x) * tiles + tile];
    for (int w = 0; w < 8; ++w) {
        const place count = next[w][threadIdx.x];
        next[w][threadIdx.x] = base;
        base += count;
    }
    __syncthreads();
    for (int k = 0; k < TILE / 8; k += 32) {
        const u64 i = first + k;
        const u32 members = __ballot_sync(0xffffffffu, i < n);
        if (i < n) {
            const key v = from[lane * n + i];
            const u32 digit = (u32)(v >> shift & 255), same = __match_any_sync(members, digit);
            const place at = next[warp][digit] + __popc(same & ((1u << own) - 1));
            __syncwarp(members);
            // the last of the same digit
            if (same >> own == 1) next[warp][digit] = at + 1;
            __syncwarp(members);
            to[lane * n + at] = v;
            to_order[lane * n + at] = order == 0 ? (place)i : order[lane * n + i];
        }
    }
}

// Sorts a lane of at most N elements in the memory of its block (Batcher, 1968).
template <int N>
__device__ __forceinline__ void sort_short(u64 n, key *keys, place *order) {
    __shared__ key k[N];
    __shared__ u32 p[N];
    const u64 lane = blockIdx.x;
    for (u32 i = threadIdx.x; i < N; i += blockDim.x) {
        k[i] = i < n ? keys[lane * n + i] : (key)~(key)0;
        p[i] = i;
    }
    for (u32 size = 2; size <= N; size *= 2) {
        for (u32 distance = size / 2; distance > 0; distance /= 2) {
            __syncthreads();
            for (u32 u = threadIdx.x; u < N / 2; u += blockDim.x) {
                const u32 a = 2 * u - (u & (distance - 1)), b = a + distance;
                const bool is_after = k[a] > k[b] || (k[a] == k[b] && p[a] > p[b]);
                if (is_after == ((a & size) == 0)) {
                    const key v = k[a];
                    k[a] = k[b];
                    k[b] = v;
                    const u32 at = p[a];
                    p[a] = p[b];
                    p[b] = at;
                }
            }
        }
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
        keys[lane * n + i] = k[i];
        order[lane * n + i] = p[i];
    }
}
