// Folds along an axis that each element sees. `state` is what is known of a run of elements: `nothing()` of none,
// `load(at)` of one, `join(a, b)` of two runs, the earlier one first; `store(at, k, s)` writes an element that sees
// `s`, the k-th of its lane.

// Lanes [outer, n, inner] of which each is one thread's, in the order of the axis. `i` is the lane.
__device__ __forceinline__ void fold_lane(const Operands &o, u64 i, u64 n, u64 inner, bool reverse, bool exclusive) {
    const u64 outer = i / inner, first = outer * n * inner + (i - outer * inner);
    state s = nothing();
    for (u64 walked = 0; walked < n; ++walked) {
        const u64 k = reverse ? n - 1 - walked : walked, at = first + k * inner;
        const state next = join(s, load(o, at, walked, k));
        store(o, at, exclusive ? s : next);
        s = next;
    }
}

// A lane that is one block's, of 256 threads: each folds some elements in a row, and the runs are joined in a tree.
__device__ __forceinline__ void scan_lane(const Operands &o, u64 n, u64 inner, bool reverse, bool exclusive) {
    constexpr int EACH = 4;
    __shared__ state runs[256];
    const u64 outer = blockIdx.x / inner, first = outer * n * inner + (blockIdx.x - outer * inner);
    state before = nothing();
    for (u64 from = 0; from < n; from += 256 * EACH) {
        const u64 own = from + threadIdx.x * EACH;
        state run = nothing();
        for (u64 walked = own; walked < n && walked < own + EACH; ++walked) {
            const u64 k = reverse ? n - 1 - walked : walked;
            run = join(run, load(o, first + k * inner, walked, k));
        }
        runs[threadIdx.x] = run;
        for (int distance = 1; distance < 256; distance *= 2) {
            __syncthreads();
            const state earlier = threadIdx.x >= distance ? runs[threadIdx.x - distance] : nothing();
            __syncthreads();
            runs[threadIdx.x] = join(earlier, runs[threadIdx.x]);
        }
        __syncthreads();
        state s = threadIdx.x > 0 ? join(before, runs[threadIdx.x - 1]) : before;
        before = join(before, runs[255]);
        __syncthreads();
        for (u64 walked = own; walked < n && walked < own + EACH; ++walked) {
            const u64 k = reverse ? n - 1 - walked : walked, at = first + k * inner;
            const state next = join(s, load(o, at, walked, k));
            store(o, at, exclusive ? s : next);
            s = next;
        }
    }
}
