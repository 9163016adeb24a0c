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
