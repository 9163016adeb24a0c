// Boxes that overlap: left, top, right, bottom of a `real`, in the CPU's order of operations.

struct Box {
    real left, top, right, bottom;
    __device__ __forceinline__ real area() const { return (right - left) * (bottom - top); }
};

__device__ __forceinline__ Box box_at(const real *boxes, u64 i) {
    return {boxes[4 * i], boxes[4 * i + 1], boxes[4 * i + 2], boxes[4 * i + 3]};
}

__device__ __forceinline__ real larger(real a, real b) { return a > b ? a : b; }
__device__ __forceinline__ real smaller(real a, real b) { return a < b ? a : b; }

// Intersection over union, above `most`; NaN, of two without an area, is not.
__device__ __forceinline__ bool overlaps(const Box &a, const Box &b, double most) {
    const real width = larger(smaller(a.right, b.right) - larger(a.left, b.left), 0);
    const real height = larger(smaller(a.bottom, b.bottom) - larger(a.top, b.top), 0);
    const real both = width * height;
    return (double)(both / (a.area() + b.area() - both)) > most;
}

// A word for each box and 64 boxes: which of these come behind it and do not stay if it does. A block has 256 boxes and
// 64.
__device__ __forceinline__ void find_overlaps(const real *boxes, const i64 *groups, double most, u64 n, u64 words,
                                              u64 *masks) {
    __shared__ Box others[64];
    __shared__ i64 others_groups[64];
    const u64 first = (u64)blockIdx.x * 64, i = (u64)blockIdx.y * 256 + threadIdx.x;
    if (threadIdx.x < 64 && first + threadIdx.x < n) {
        others[threadIdx.x] = box_at(boxes, first + threadIdx.x);
        others_groups[threadIdx.x] = groups[first + threadIdx.x];
    }
    __syncthreads();
    if (i >= n) return;
    const Box own = box_at(boxes, i);
    const i64 group = groups[i];
    u64 mask = 0;
    for (u64 j = first > i ? 0 : i + 1 - first; j < 64 && first + j < n; ++j)
        if (others_groups[j] == group && overlaps(own, others[j], most)) mask |= 1ull << j;
    masks[i * words + blockIdx.x] = mask;
}

// Goes through all boxes, 64 at a time, in one block. `gone` has a bit for each box.
template <int WORDS>
__device__ __forceinline__ void sweep(const u64 *masks, u64 n, u64 words, u8 *keep) {
    __shared__ u64 gone[WORDS], own[64], staying;
    for (u64 w = threadIdx.x; w < words; w += 256) gone[w] = 0;
    for (u64 w = 0; w < words; ++w) {
        const u64 first = w * 64, count = n - first < 64 ? n - first : 64;
        if (threadIdx.x < count) own[threadIdx.x] = masks[(first + threadIdx.x) * words + w];
        __syncthreads();
        if (threadIdx.x == 0) {
            u64 out = gone[w], stay = 0;
            for (u64 i = 0; i < count; ++i)
                if ((out >> i & 1) == 0) {
                    stay |= 1ull << i;
                    out |= own[i];
                }
            staying = stay;
        }
        __syncthreads();
        const u64 stay = staying;
        if (threadIdx.x < count) keep[first + threadIdx.x] = (u8)(stay >> threadIdx.x & 1);
        for (u64 other = w + 1 + threadIdx.x; other < words; other += 256) {
            u64 more = 0;
            for (u64 i = 0; i < count; ++i)
                if (stay >> i & 1) more |= masks[(first + i) * words + other];
            gone[other] |= more;
        }
        __syncthreads();
    }
}

// The same without words for pairs, where these would be too many: one box after the other.
__device__ __forceinline__ void sweep_slowly(const real *boxes, const i64 *groups, double most, u64 n, u8 *keep) {
    for (u64 j = threadIdx.x; j < n; j += 256) keep[j] = 1;
    for (u64 i = 0; i < n; ++i) {
        __syncthreads();
        if (keep[i] == 0) continue;
        const Box own = box_at(boxes, i);
        const i64 group = groups[i];
        for (u64 j = i + 1 + threadIdx.x; j < n; j += 256)
            if (groups[j] == group && keep[j] == 1 && overlaps(own, box_at(boxes, j), most)) keep[j] = 0;
    }
}
