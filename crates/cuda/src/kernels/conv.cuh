// Convolutions in two dimensions and their gradients as products of matrices that are never made: a factor maps row or
// column and k to an element of a tensor, or to zero. `index` holds every index, `offset` is as wide with a sign. R, S
// are the taps down and across, SH, SW their strides and DH, DW their dilations; for ROW_STEP and COLUMN_STEP see
// `phase_of`. It stands behind matmul.cuh.

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

// Places of x along an axis that have one remainder by the stride are read by the same taps: `taps` of them from
// `first` on, every `tap_step`-th. Of such a place, counted by `i`, tap `first` + q tap_step reads output i + base - q
// back.
struct Phase {
    index start, places, first, taps, tap_step, back;
    offset base;
};

// The phase of places `start` + i STRIDE of `size`, where TAPS taps lie DILATION apart and `before` zeros before x;
// STEP is the least number of taps after which their places have the same remainder.
template <index STRIDE, index DILATION, index TAPS, index STEP>
__device__ __forceinline__ Phase phase_of(index start, index size, index before) {
    // known to the compiler without a stride
    if (STRIDE == 1) return {0, size, 0, TAPS, 1, DILATION, (offset)before};
    const auto place = [&](index tap) { return (offset)(start + before) - (offset)(tap * DILATION); };
    index first = 0;
    while (first < STEP && first < TAPS && place(first) % (offset)STRIDE != 0) ++first;
    const index taps = first < STEP && first < TAPS ? (TAPS - first + STEP - 1) / STEP : 0;
    return {start, (size - start + STRIDE - 1) / STRIDE, first, taps, STEP, STEP * DILATION / STRIDE,
            place(first) / (offset)STRIDE};
}

// dy at the outputs that read a place of x; below 0 is beyond every extent
struct ReaderLine {
    const element *dy;
    index row, column, oh, ow, down, across, row_back, column_back;
    __device__ __forceinline__ total operator()(u64 p) const {
        const index channel = (index)p / (down * across), tap = (index)p % (down * across);
        const index i = row - tap / across * row_back, j = column - tap % across * column_back;
        return i < oh && j < ow ? wide(dy[(channel * oh + i) * ow + j]) : (total)0;
    }
};

// [output channel, tap] by [image, place of x], of two phases
struct Readers {
    typedef ReaderLine Line;
    const element *dy;
    Geometry g;
    Phase v, u;
    __device__ __forceinline__ bool is_along() const { return false; }
    __device__ __forceinline__ Line line(u64 at) const {
        const index image = (index)at / (v.places * u.places), place = (index)at % (v.places * u.places);
        return {dy + image * g.k * g.oh * g.ow, place / u.places + (index)v.base, place % u.places + (index)u.base,
                g.oh, g.ow, v.taps, u.taps, v.back, u.back};
    }
    // Element `column` of channel `row` in dx.
    __device__ __forceinline__ u64 at(index group, index row, index column) const {
        const index image = column / (v.places * u.places), place = column % (v.places * u.places);
        const index channel = image * g.c + group * g.gc + row;
        return (channel * g.h + v.start + place / u.places * SH) * g.w + u.start + place % u.places * SW;
    }
};

struct TurnedLine {
    const element *weight;
    index step, down, across, row_step, column_step;
    __device__ __forceinline__ total operator()(u64 p) const {
        const index channel = (index)p / (down * across), tap = (index)p % (down * across);
        return wide(weight[channel * step + tap / across * row_step + tap % across * column_step]);
    }
};

// The weight of a group as [input channel] by [output channel, tap], of two phases.
struct TurnedWeight {
    typedef TurnedLine Line;
    const element *weight;
    index gc;
    Phase v, u;
    __device__ __forceinline__ bool is_along() const { return true; }
    __device__ __forceinline__ Line line(u64 at) const {
        return {weight + (index)at * (R * S) + v.first * S + u.first, gc * (R * S), v.taps, u.taps, v.tap_step * S,
                u.tap_step};
    }
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
    const index places = g.h * g.w, plane = i / places, row = i % places / g.w, column = i % g.w, image = plane / g.c;
    const index first = plane % g.c * g.gk;
    const Phase v = phase_of<SH, DH, R, ROW_STEP>(row % SH, g.h, g.top);
    const Phase u = phase_of<SW, DW, S, COLUMN_STEP>(column % SW, g.w, g.left);
    const ReaderLine line = {dy + (image * g.k + first) * g.oh * g.ow, row / SH + (index)v.base,
                             column / SW + (index)u.base, g.oh, g.ow, v.taps, u.taps, v.back, u.back};
    const TurnedLine taps = {weight + first * (R * S) + v.first * S + u.first, R * S, v.taps, u.taps, v.tap_step * S,
                             u.tap_step};
    total sum = 0;
    for (index p = 0; p < g.gk * v.taps * u.taps; ++p) sum = multiply_add(line(p), taps(p), sum);
    return sum;
}

// The sum over images and places for output channel and tap `i`, likewise: that of a block, in all its threads.
__device__ __forceinline__ total depthwise_weight(const Geometry &g, const element *x, const element *dy, index i,
                                                  u64 k) {
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
