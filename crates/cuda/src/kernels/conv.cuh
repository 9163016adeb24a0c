// Convolutions in two dimensions and their gradients as products of matrices that are never made: a factor maps row or column and
// k to an element of a tensor, or to zero. `index` holds every index, `offset` is as wide with a sign. R, S are the taps down and
// across, SH, SW their strides and DH, DW their dilations. It stands behind matmul.cuh.

// x: [n, c, h, w], weight: [k, gc, R, S] and y: [n, k, oh, ow], of groups of gc and gk channels
struct Geometry {
    index c, h, w, k, oh, ow, gc, gk, top, left;
};

// Of [k, channel, place] with the images of a group: x at the places that the taps of an output read.
struct WindowLine {
    const element *x;
    // of the first tap; below 0 is beyond every extent
    index row, column, h, w;
    __device__ __forceinline__ total operator()(u64 p) const {
        const index channel = (index)p / (R * S), tap = (index)p % (R * S);
        const index r = row + tap / S * DH, s = column + tap % S * DW;
        return r < h && s < w ? wide(x[(channel * h + r) * w + s]) : (total)0;
    }
};

// [channel, tap] by [image, place of y]
struct Windows {
    typedef WindowLine Line;
    const element *x;
    Geometry g;
    __device__ __forceinline__ bool is_along() const { return false; }
    __device__ __forceinline__ Line line(u64 at) const {
        const index image = (index)at / (g.oh * g.ow), place = (index)at % (g.oh * g.ow);
        return {x + image * g.c * g.h * g.w, place / g.ow * SH - g.top, place % g.ow * SW - g.left, g.h, g.w};
    }
};

// The output along an axis of which a tap reads place `at` - `back`, padding counted; all ones for none.
template <int STRIDE>
__device__ __forceinline__ index output_of(index at, index back, index outputs) {
    const offset begin = (offset)at - (offset)back;
    const index o = (index)begin / STRIDE;
    return begin >= 0 && o * STRIDE == (index)begin && o < outputs ? o : ~(index)0;
}

// dy at the outputs that read a place of x
struct ReaderLine {
    const element *dy;
    index row, column, oh, ow;
    __device__ __forceinline__ total operator()(u64 p) const {
        const index channel = (index)p / (R * S), tap = (index)p % (R * S);
        const index i = output_of<SH>(row, tap / S * DH, oh), j = output_of<SW>(column, tap % S * DW, ow);
        return i < oh && j < ow ? wide(dy[(channel * oh + i) * ow + j]) : (total)0;
    }
};

// [output channel, tap] by [image, place of x]
struct Readers {
    typedef ReaderLine Line;
    const element *dy;
    Geometry g;
    __device__ __forceinline__ bool is_along() const { return false; }
    __device__ __forceinline__ Line line(u64 at) const {
        const index image = (index)at / (g.h * g.w), place = (index)at % (g.h * g.w);
        return {dy + image * g.k * g.oh * g.ow, place / g.w + g.top, place % g.w + g.left, g.oh, g.ow};
    }
};

struct TurnedLine {
    const element *weight;
    index step;
    __device__ __forceinline__ total operator()(u64 p) const {
        return wide(weight[(index)p / (R * S) * step + (index)p % (R * S)]);
    }
};

// The weight of a group as [input channel] by [output channel, tap].
struct TurnedWeight {
    typedef TurnedLine Line;
    const element *weight;
    index gc;
    __device__ __forceinline__ bool is_along() const { return true; }
    __device__ __forceinline__ Line line(u64 at) const { return {weight + (index)at * (R * S), gc * (R * S)}; }
};

struct PlaneLine {
    const element *x;
    index places, step;
    __device__ __forceinline__ total operator()(u64 p) const {
        return wide(x[(index)p / places * step + (index)p % places]);
    }
};

// dy as [output channel] by [image, place]
struct Planes {
    typedef PlaneLine Line;
    const element *dy;
    Geometry g;
    __device__ __forceinline__ bool is_along() const { return true; }
    __device__ __forceinline__ Line line(u64 at) const {
        return {dy + (index)at * (g.oh * g.ow), g.oh * g.ow, g.k * g.oh * g.ow};
    }
};

struct ShiftLine {
    const element *x;
    index row, column, h, w, places, ow, step;
    __device__ __forceinline__ total operator()(u64 p) const {
        const index image = (index)p / places, place = (index)p % places;
        const index r = place / ow * SH + row, s = place % ow * SW + column;
        return r < h && s < w ? wide(x[image * step + r * w + s]) : (total)0;
    }
};

// x as [image, place of y] by [input channel, tap]
struct Shifts {
    typedef ShiftLine Line;
    const element *x;
    Geometry g;
    __device__ __forceinline__ bool is_along() const { return true; }
    __device__ __forceinline__ Line line(u64 at) const {
        const index channel = (index)at / (R * S), tap = (index)at % (R * S);
        return {x + channel * g.h * g.w, tap / S * DH - g.top, tap % S * DW - g.left, g.h, g.w,
                g.oh * g.ow, g.ow, g.c * g.h * g.w};
    }
};

// Element `i` of y where each input channel is a group of its own.
__device__ __forceinline__ total depthwise(const Geometry &g, const element *x, const element *weight, index i) {
    const index places = g.oh * g.ow, plane = i / places, place = i % places, channel = plane % g.k;
    const index image = plane / g.k;
    const WindowLine line = {x + (image * g.c + channel / g.gk) * g.h * g.w, place / g.ow * SH - g.top,
                             place % g.ow * SW - g.left, g.h, g.w};
    total sum = 0;
    for (int tap = 0; tap < R * S; ++tap) sum = multiply_add(line(tap), wide(weight[channel * (R * S) + tap]), sum);
    return sum;
}

// Element `i` of dx likewise.
__device__ __forceinline__ total depthwise_input(const Geometry &g, const element *dy, const element *weight, index i) {
    const index places = g.h * g.w, plane = i / places, place = i % places, image = plane / g.c;
    const index first = plane % g.c * g.gk;
    const ReaderLine line = {dy + (image * g.k + first) * g.oh * g.ow, place / g.w + g.top, place % g.w + g.left,
                             g.oh, g.ow};
    total sum = 0;
    for (index p = 0; p < g.gk * (R * S); ++p) sum = multiply_add(line(p), wide(weight[first * (R * S) + p]), sum);
    return sum;
}

// The sum over images and places for output channel and tap `i`, likewise; that of a block, of which thread 0 has the total.
__device__ __forceinline__ total depthwise_weight(const Geometry &g, const element *x, const element *dy, index i, u64 k) {
    __shared__ total sums[256];
    const index channel = i / (R * S), tap = i % (R * S);
    const PlaneLine a = {dy + channel * g.oh * g.ow, g.oh * g.ow, g.k * g.oh * g.ow};
    const ShiftLine b = {x + channel / g.gk * g.h * g.w, tap / S * DH - g.top, tap % S * DW - g.left, g.h, g.w,
                         g.oh * g.ow, g.ow, g.c * g.h * g.w};
    total sum = 0;
    for (u64 p = threadIdx.x; p < k; p += 256) sum = multiply_add(b(p), a(p), sum);
    sums[threadIdx.x] = sum;
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    sum = sums[0];
    // before the next sum takes the places
    __syncthreads();
    return sum;
}
