// The table of a resampled axis: which run of places each output is a sum of, and with which weights. All is worked
// out in f64 as on the CPU, and a weight is rounded to `real`.

// Keys' kernel (IEEE Trans. ASSP 29, 1981).
__device__ __forceinline__ double keys_kernel(double x, double a) {
    x = fabs(x);
    if (x <= 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    return x < 2.0 ? ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a : 0.0;
}

__device__ __forceinline__ double within(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

// Up to four neighbours from `first` on with weights `w`. Places beyond an end are its last one.
template <int N>
__device__ __forceinline__ void neighbours(u64 size, double first, const double (&w)[N], u64 *run, real *weights) {
    const double last = (double)(size - 1);
    const u64 start = u64_of_f64(within(first, 0.0, last)), end = u64_of_f64(within(first + (N - 1), 0.0, last));
    double sums[N] = {};
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const u64 at = u64_of_f64(within(first + k, 0.0, last)) - start;
#pragma unroll
        for (int j = 0; j < N; ++j)
            if (at == j) sums[j] += w[k];
    }
    run[0] = start;
    run[1] = end - start + 1;
#pragma unroll
    for (int j = 0; j < N; ++j)
        if (j <= end - start) weights[j] = (real)sums[j];
}

__device__ __forceinline__ void linear(u64 size, u64 o, double scale, double shift, u64 *run, real *weights) {
    const double c = fmax((double)o * scale + shift, 0.0), part = c - floor(c);
    const double w[2] = {1.0 - part, part};
    neighbours(size, floor(c), w, run, weights);
}

__device__ __forceinline__ void cubic(u64 size, u64 o, double scale, double shift, u64 *run, real *weights) {
    const double c = (double)o * scale + shift, part = c - floor(c);
    const double w[4] = {keys_kernel(part + 1.0, -0.75), keys_kernel(part + 1.0 - 1.0, -0.75),
                         keys_kernel(part + 1.0 - 2.0, -0.75), keys_kernel(part + 1.0 - 3.0, -0.75)};
    neighbours(size, floor(c) - 1.0, w, run, weights);
}

// A filter around the middle of output `o`, whose weights add up to 1.
template <bool CUBIC>
__device__ __forceinline__ void smooth(u64 size, u64 most, u64 o, double scale, u64 *run, real *weights) {
    const double stretch = fmax(scale, 1.0), centre = ((double)o + 0.5) * scale, reach = (CUBIC ? 2.0 : 1.0) * stretch;
    const u64 start = u64_of_f64(fmin(fmax(centre - reach + 0.5, 0.0), (double)size - 1.0));
    const u64 room = most < size - start ? most : size - start;
    u64 end = u64_of_f64(fmin(centre + reach + 0.5, (double)size));
    end = end < start + 1 ? start + 1 : end > start + room ? start + room : end;
    const auto weight = [&](u64 k) -> double {
        const double x = ((double)(start + k) - centre + 0.5) / stretch;
        return CUBIC ? keys_kernel(x, -0.5) : fmax(1.0 - fabs(x), 0.0);
    };
    double total = 0.0;
    for (u64 k = 0; k < end - start; ++k) total += weight(k);
    for (u64 k = 0; k < end - start; ++k) weights[k] = (real)(total != 0.0 ? weight(k) / total : weight(k));
    run[0] = start;
    run[1] = end - start;
}

__device__ __forceinline__ void mean(u64 size, u64 outs, u64 o, u64 *run, real *weights) {
    const u64 start = o * size / outs, end = ((o + 1) * size + outs - 1) / outs;
    for (u64 k = 0; k < end - start; ++k) weights[k] = (real)(1.0 / (double)(end - start));
    run[0] = start;
    run[1] = end - start;
}

__device__ __forceinline__ void sum(u64 size, u64 o, u64 reach, u64 stride, u64 dilation, u64 before, u64 *run,
                                    real *weights) {
    const u64 from = o * stride, first = from > before ? from - before : 0;
    const u64 start = first < size ? first : size;
    u64 end = from + reach > before ? from + reach - before : 0;
    end = end < start ? start : end > size ? size : end;
    for (u64 k = 0; k < end - start; ++k) weights[k] = (start + k + before - from) % dilation == 0 ? (real)1 : (real)0;
    run[0] = start;
    run[1] = end - start;
}

// The first output whose run ends behind place `i`, and the first behind it whose run begins behind `i`: runs ascend.
__device__ __forceinline__ void readers_of(u64 i, u64 outs, const u64 *runs, u64 *readers) {
    u64 low = 0, rest = outs;
    while (rest > 0) {
        const u64 half = rest / 2, o = low + half;
        if (runs[2 * o] + runs[2 * o + 1] <= i) {
            low += half + 1;
            rest -= half + 1;
        } else {
            rest = half;
        }
    }
    u64 high = 0;
    rest = outs;
    while (rest > 0) {
        const u64 half = rest / 2;
        if (runs[2 * (high + half)] <= i) {
            high += half + 1;
            rest -= half + 1;
        } else {
            rest = half;
        }
    }
    readers[0] = low;
    readers[1] = high > low ? high : low;
}
