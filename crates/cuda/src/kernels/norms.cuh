// Sums of squares of a parameter and of its step, in f64 and in an order that depends on the extents only.

// The sums over a block of 256 threads, in its first thread.
__device__ __forceinline__ void block_sums(double &a, double &b) {
    __shared__ double sums[2][256];
    sums[0][threadIdx.x] = a;
    sums[1][threadIdx.x] = b;
    for (int width = 128; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) {
            sums[0][threadIdx.x] += sums[0][threadIdx.x + width];
            sums[1][threadIdx.x] += sums[1][threadIdx.x + width];
        }
    }
    a = sums[0][threadIdx.x];
    b = sums[1][threadIdx.x];
}

// The sum over a warp, in each of its threads.
__device__ __forceinline__ double warp_sum(double x) {
    for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(0xffffffffu, x, width);
    return x;
}

// Writes the sums of the block's chunk of n elements, of which `terms(i, a, b)` gives the numbers whose squares are
// summed.
template <int CHUNK, typename Terms>
__device__ __forceinline__ void chunk_sums(u64 n, double *parts, Terms terms) {
    double a = 0.0, b = 0.0;
    const u64 first = (u64)blockIdx.x * CHUNK;
    const u64 end = n - first < CHUNK ? n : first + CHUNK;
    for (u64 i = first + threadIdx.x; i < end; i += 256) {
        double x, y;
        terms(i, x, y);
        a += x * x;
        b += y * y;
    }
    block_sums(a, b);
    if (threadIdx.x == 0) {
        parts[2 * (u64)blockIdx.x] = a;
        parts[2 * (u64)blockIdx.x + 1] = b;
    }
}

// The sums of all chunks, in the first thread of the only block.
__device__ __forceinline__ void total_sums(u64 chunks, const double *parts, double &a, double &b) {
    a = b = 0.0;
    for (u64 k = threadIdx.x; k < chunks; k += 256) {
        a += parts[2 * k];
        b += parts[2 * k + 1];
    }
    block_sums(a, b);
}
