// Taps of a point between pixels: places in the plane and weights. BETWEEN is 0 for the nearest pixel, 1 for the
// neighbours of each axis, 2 for four of them by Keys' kernel. BEYOND is 0 for zeros beyond the image, 1 for its last
// pixel, 2 for the image reflected at the middle of that, 3 at its outer edge, 4 for the image again. Coordinates are
// f64, weights are rounded once to `real`.

#define NONE 0xffffffffffffffffull

constexpr int ALONG = BETWEEN == 0 ? 1 : BETWEEN == 1 ? 2 : 4;
constexpr int TAPS = AXES == 1 ? ALONG : AXES == 2 ? ALONG * ALONG : ALONG * ALONG * ALONG;

// A coordinate moved into the image, and how fast it moves with the one that was given.
struct Moved {
    double c, slope;
};

// The slope is 0 from the ends on.
__device__ __forceinline__ Moved clipped(Moved m, double last) {
    if (m.c <= 0.0) return {0.0, 0.0};
    if (m.c >= last) return {last, 0.0};
    return m;
}

// Reflected at both ends of a span that begins at `low`.
__device__ __forceinline__ Moved reflected(double c, double low, double span) {
    if (span <= 0.0) return {low > 0.0 ? low : 0.0, 0.0};
    const double way = c < low ? low - c : c - low, sign = c < low ? -1.0 : 1.0;
    const double flips = floor(way / span), rest = fmod_f64(way, span);
    if (fmod_f64(flips, 2.0) == 0.0) return {rest + low, sign};
    return {span - rest + low, -sign};
}

__device__ __forceinline__ Moved inside(double c, u64 size, int beyond) {
    const double last = (double)(size - 1);
    if (beyond == 0) return {c, 1.0};
    if (beyond == 1) return clipped({c, 1.0}, last);
    if (beyond == 2) return clipped(reflected(c, 0.0, last), last);
    if (beyond == 3) return clipped(reflected(c, -0.5, (double)size), last);
    const double rest = fmod_f64(c, (double)size);
    return {rest < 0.0 ? rest + (double)size : rest, 1.0};
}

__device__ __forceinline__ u64 place_of(double i, u64 size, int beyond) {
    if (i >= 0.0 && i < (double)size) return (u64)i;
    if (beyond == 0 || i != i) return NONE;
    const u64 at = u64_of_f64(rint(inside(i, size, beyond).c));
    return at < size - 1 ? at : size - 1;
}

// Keys' kernel with a = -0.75 within 1 of its middle and beyond, differentiated `order` times.
__device__ __forceinline__ double near_kernel(double x, u64 order) {
    const double a = -0.75;
    if (order == 0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (order == 1) return (3.0 * (a + 2.0) * x - 2.0 * (a + 3.0)) * x;
    if (order == 2) return 6.0 * (a + 2.0) * x - 2.0 * (a + 3.0);
    return order == 3 ? 6.0 * (a + 2.0) : 0.0;
}

__device__ __forceinline__ double far_kernel(double x, u64 order) {
    const double a = -0.75;
    if (order == 0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    if (order == 1) return (3.0 * a * x - 10.0 * a) * x + 8.0 * a;
    if (order == 2) return 6.0 * a * x - 10.0 * a;
    return order == 3 ? 6.0 * a : 0.0;
}

// The taps along an axis.
__device__ __forceinline__ void axis_taps(double c, u64 size, u64 order, u64 (&places)[ALONG],
                                          double (&weights)[ALONG]) {
#pragma unroll
    for (int k = 0; k < ALONG; ++k) {
        places[k] = NONE;
        weights[k] = 0.0;
    }
    if (!(c - c == 0.0)) return;
    if (BETWEEN == 0) {
        places[0] = place_of(rint(inside(c, size, BEYOND).c), size, BEYOND);
        weights[0] = order == 0 ? 1.0 : 0.0;
    } else if (BETWEEN == 1) {
        const Moved m = inside(c, size, BEYOND);
        const double low = floor(m.c), part = m.c - low;
        // beside the last pixel lies what has no weight, but in an image that is repeated
        const int beyond = BEYOND == 4 ? 4 : 0;
        places[0] = place_of(low, size, beyond);
        places[ALONG - 1] = place_of(low + 1.0, size, beyond);
        weights[0] = order == 0 ? 1.0 - part : order == 1 ? -m.slope : 0.0;
        weights[ALONG - 1] = order == 0 ? part : order == 1 ? m.slope : 0.0;
    } else {
        const double low = floor(c), t = c - low, sign = order % 2 == 0 ? 1.0 : -1.0;
        const double w[4] = {far_kernel(t + 1.0, order), near_kernel(t, order), sign * near_kernel(1.0 - t, order),
                             sign * far_kernel(2.0 - t, order)};
#pragma unroll
        for (int k = 0; k < ALONG; ++k) {
            places[k] = place_of(low - 1.0 + k, size, BEYOND);
            weights[k] = w[k];
        }
    }
}

// All taps of a point. With SLOPES the slopes of the weights along the axes, too.
template <bool SLOPES>
struct Taps {
    u64 places[TAPS];
    real weights[TAPS];
    real slopes[SLOPES ? AXES : 1][TAPS];

    __device__ __forceinline__ Taps(const real *point, const u64 (&size)[AXES], const u64 (&orders)[AXES]) {
        u64 at[AXES][ALONG];
        double along[AXES][ALONG], steep[AXES][ALONG];
        for (int a = 0; a < AXES; ++a) {
            axis_taps((double)point[a], size[a], orders[a], at[a], along[a]);
            if (SLOPES) axis_taps((double)point[a], size[a], orders[a] + 1, at[a], steep[a]);
        }
        for (int t = 0; t < TAPS; ++t) {
            // the last axis counts fastest
            int digits[AXES], rest = t;
            for (int a = AXES - 1; a >= 0; --a) {
                digits[a] = rest % ALONG;
                rest /= ALONG;
            }
            u64 place = 0;
            double weight = 1.0;
            bool is_pixel = true;
            for (int a = 0; a < AXES; ++a) {
                const u64 own = at[a][digits[a]];
                is_pixel = is_pixel && own != NONE;
                place = place * size[a] + (own == NONE ? 0 : own);
                weight *= along[a][digits[a]];
            }
            places[t] = is_pixel ? place : NONE;
            weights[t] = (real)weight;
            if (!SLOPES) continue;
            for (int s = 0; s < AXES; ++s) {
                double slope = 1.0;
                for (int a = 0; a < AXES; ++a) slope *= (a == s ? steep : along)[a][digits[a]];
                slopes[SLOPES ? s : 0][t] = (real)slope;
            }
        }
    }
};
