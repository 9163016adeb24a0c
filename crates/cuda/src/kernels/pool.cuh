// Maxima and averages over windows of planes, and their gradients. `index` holds every index; IS_SLIDING says how
// windows lie.

// The windows along an axis of `size` elements.
struct Axis {
    index size, out, kernel, stride, before, after;

    // Window `o` is from `begin` to before `end`, cut to the axis.
    __device__ __forceinline__ index begin(index o) const {
        if (!IS_SLIDING) return o * size / out;
        const index at = o * stride > before ? o * stride - before : 0;
        return at < size ? at : size;
    }
    __device__ __forceinline__ index end(index o) const {
        if (!IS_SLIDING) return ((o + 1) * size + out - 1) / out;
        const index at = o * stride + kernel > before ? o * stride + kernel - before : 0;
        return at < size ? at : size;
    }

    // The windows that hold element `r` are from `first` to before `past`.
    __device__ __forceinline__ index first(index r) const {
        if (!IS_SLIDING) return r * out / size;
        const index at = r + before + 1;
        return at > kernel ? (at - kernel + stride - 1) / stride : 0;
    }
    __device__ __forceinline__ index past(index r) const {
        const index at = IS_SLIDING ? (r + before) / stride + 1 : ((r + 1) * out + size - 1) / size;
        return at < out ? at : out;
    }

    // Elements of window `o` within the axis and its padding.
    __device__ __forceinline__ index padded_len(index o) const {
        if (!IS_SLIDING) return end(o) - begin(o);
        const index last = o * stride + kernel, all = size + before + after;
        return (last < all ? last : all) - o * stride;
    }
};

// The divisor of the average of window `(i, j)`; 0 for a window that is all padding, where padding does not count.
template <bool COUNTS_PADDING>
__device__ __forceinline__ index divisor(const Axis &h, const Axis &w, index i, index j) {
    if (COUNTS_PADDING) return h.padded_len(i) * w.padded_len(j);
    return (h.end(i) - h.begin(i)) * (w.end(j) - w.begin(j));
}
