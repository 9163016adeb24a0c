// Averages over windows and their gradient, in the CPU's orders of sums. They stand behind pool.cuh.

// The sum of window `(i, j)` of a plane: columns first.
__device__ __forceinline__ total window_sum(const Axis &h, const Axis &w, const element *x, index i, index j) {
    const index top = h.begin(i), bottom = h.end(i), right = w.end(j);
    total sum = 0;
    for (index c = w.begin(j); c < right; ++c) {
        total column = 0;
        for (index r = top; r < bottom; ++r) column += wide(x[r * w.size + c]);
        sum += column;
    }
    return sum;
}

// The sum of elements in a row, by 16 threads of which `lane` is one; thread 0 has it. `group` are their bits in a
// warp. Few elements are summed one after the other, more in 16 lanes.
__device__ __forceinline__ double row_sum(const element *x, index n, int lane, u32 group) {
    double sum = n < 16 ? -0.0 : 0.0;
    if (n < 16) {
        for (index e = 0; e < n && lane == 0; ++e) sum += (double)wide(x[e]);
        return sum;
    }
    for (index from = 0; from < n; from += 1024) {
        const index end = n - from < 1024 ? n : from + 1024;
        total part = 0;
        for (index e = from + lane; e < end; e += 16) part += wide(x[e]);
        double all = (double)part;
#pragma unroll
        for (int width = 8; width > 0; width /= 2) all += __shfl_down_sync(group, all, width, 16);
        sum += all;
    }
    return sum;
}

// The sum of window `(i, j)` as a double, of whole rows in one go.
__device__ __forceinline__ double wide_window_sum(const Axis &h, const Axis &w, const element *x, index i, index j,
                                                  int lane, u32 group) {
    const index top = h.begin(i), bottom = h.end(i), left = w.begin(j), right = w.end(j);
    if (left == 0 && right == w.size) return row_sum(x + top * w.size, (bottom - top) * w.size, lane, group);
    double sum = -0.0;
    for (index r = top; r < bottom; ++r) sum += row_sum(x + r * w.size + left, right - left, lane, group);
    return sum;
}

// The shares of windows of few rows and columns in element `(r, c)` of a plane.
template <bool COUNTS_PADDING>
__device__ __forceinline__ total share_sum(const Axis &h, const Axis &w, const element *dy, index r, index c) {
    const index top = h.first(r), bottom = h.past(r), right = w.past(c);
    total sum = 0;
    for (index j = w.first(c); j < right; ++j) {
        total column = 0;
        for (index i = top; i < bottom; ++i) {
            const index n = divisor<COUNTS_PADDING>(h, w, i, j);
            column += wide(dy[i * w.out + j]) / (total)(n == 0 ? 1 : n);
        }
        sum += column;
    }
    return sum;
}
