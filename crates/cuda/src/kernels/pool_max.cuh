// Maxima: `beats(a, b)` is true if `a` takes the place of the maximum so far, `lowest` is the maximum of nothing. They
// stand behind pool.cuh.

struct Maximum {
    element value;
    // within the plane; all ones for a window that is empty
    index place;
};

// The first maximum of window `(i, j)` of a plane.
__device__ __forceinline__ Maximum maximum(const Axis &h, const Axis &w, const element *x, index i, index j) {
    Maximum best = {lowest(), ~(index)0};
    const index bottom = h.end(i), left = w.begin(j), right = w.end(j);
    for (index r = h.begin(i); r < bottom; ++r)
        for (index c = left; c < right; ++c) {
            const element value = x[r * w.size + c];
            if (best.place == ~(index)0 || beats(value, best.value)) best = {value, r * w.size + c};
        }
    return best;
}

// The same, found by a warp of which `lane` is one thread; all of them have it. Every order of elements gives the first maximum,
// as the lesser of two places wins where neither element beats the other.
__device__ __forceinline__ Maximum maximum_by_warp(const Axis &h, const Axis &w, const element *x, index i, index j,
                                                   unsigned lane) {
    Maximum best = {lowest(), ~(index)0};
    const index top = h.begin(i), left = w.begin(j), width = w.end(j) - left, count = (h.end(i) - top) * width;
    for (index e = lane; e < count; e += 32) {
        const index place = (top + e / width) * w.size + left + e % width;
        const element value = x[place];
        if (best.place == ~(index)0 || beats(value, best.value)) best = {value, place};
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const Maximum other = {(element)__shfl_xor_sync(~0u, best.value, distance),
                               (index)__shfl_xor_sync(~0u, best.place, distance)};
        if (other.place == ~(index)0) continue;
        const bool is_first = other.place < best.place && !beats(best.value, other.value);
        if (best.place == ~(index)0 || beats(other.value, best.value) || is_first) best = other;
    }
    return best;
}
