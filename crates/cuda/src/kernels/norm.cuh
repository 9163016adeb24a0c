// Rows over the root of their mean square, about their mean or not, and the gradients.

// How a row is normalised: `(x - mean) inverse` in `real`; or of a row whose squares are beyond the numbers `(x by -
// mean) inverse` in double, with a power of two that brings its largest element to 1. `by` is 0 for the former.
struct Row {
    double by, mean, inverse;

    __device__ real near(real x) const { return (x - (real)mean) * (real)inverse; }
    __device__ double far(real x) const { return ((double)x * by - mean) * inverse; }
};

// True if a mean square says nothing about a row: it is not a number, infinite, or too small for squares that are
// normal numbers.
__device__ __forceinline__ bool is_far(double square, double eps) {
    return !(square + eps > LEAST_SQUARE && square < f64_of_bits(0x7ff0000000000000ull));
}

// The power of two that takes a positive number to between 1 and 2, as far as double has it and its reciprocal.
__device__ inline double scale_of(double most) {
    int exponent = (int)(bits_of_f64(most) >> 52) - 1023;
    if (exponent == -1023) exponent = -1022;
    const int n = exponent < -1021 ? 1021 : exponent > 1021 ? -1021 : -exponent;
    return f64_of_bits((u64)(1023 + n) << 52);
}

// The row that `x(k)` gives once it is scaled; false for one that is 0 everywhere or holds NaN or an infinity. `square`
// is the mean of the squares of what was scaled, about the mean.
template <int TEAM, bool CENTRED, int M, int CHUNKS, typename X>
__device__ __noinline__ bool scaled_row(Room<TEAM, M, CHUNKS> &room, u64 n, double eps, X x, Row &row, double &square) {
    double most = 0;
    bool is_finite = true;
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) {
        const double v = fabs((double)x(k));
        is_finite = is_finite && v - v == 0;
        most = v > most ? v : most;
    }
    // an infinity for what is not finite
    if (!is_finite) most = f64_of_bits(0x7ff0000000000000ull);
    most = team_join<TEAM>(most, room.values, [](double a, double b) { return b > a ? b : a; });
    if (most == 0 || most - most != 0) return false;
    row.by = scale_of(most);
    row.mean = CENTRED ? wide_sum(room, n, [&](u64 k) { return (double)x(k) * row.by; }) / (double)n : 0;
    square = wide_sum(room, n, [&](u64 k) {
        const double d = (double)x(k) * row.by - row.mean;
        return d * d;
    }) / (double)n;
    row.inverse = 1.0 / __dsqrt_rn(square + eps * row.by * row.by);
    return true;
}

// The sums that a row's statistics come of.
template <bool CENTRED, int TEAM, int M, int CHUNKS>
__device__ __forceinline__ Row row_of(Room<TEAM, M, CHUNKS> &room, const element *x, u64 n, double eps) {
    double square;
    real about = 0;
    if constexpr (CENTRED) {
        about = (real)(sum_of(room, n, [&](u64 k) { return up(x[k]); }) / (double)n);
        double t[2];
        sum_row(room, n, t, [&](u64 k, real(&v)[2]) {
            v[0] = up(x[k]) - about;
            v[1] = v[0] * v[0];
        });
        square = (t[1] - t[0] * t[0] / (double)n) / (double)n;
    } else {
        square = sum_of(room, n, [&](u64 k) { return up(x[k]) * up(x[k]); }) / (double)n;
    }
    Row row{0, (double)about, 0};
    double unused;
    if (is_far(square, eps) && scaled_row<TEAM, CENTRED>(room, n, eps, [&](u64 k) { return up(x[k]); }, row, unused))
        return row;
    return Row{0, (double)about, (double)(real)(1.0 / __dsqrt_rn(square + eps))};
}

template <bool CENTRED, int TEAM, int M, int CHUNKS>
__device__ void norm_row(Room<TEAM, M, CHUNKS> &room, const element *x, const element *scale, const element *bias,
                         element *y, u64 n, double eps) {
    const Row row = row_of<CENTRED>(room, x, n, eps);
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) {
        const real v = up(x[k]), by = up(scale[k]);
        if (row.by != 0) {
            y[k] = down64(row.far(v) * (double)by + (CENTRED ? (double)up(bias[k]) : 0.0));
        } else {
            y[k] = down(CENTRED ? row.near(v) * by + up(bias[k]) : v * (real)row.inverse * by);
        }
    }
}

// The gradient of a row that was scaled.
template <bool CENTRED, int TEAM, int M, int CHUNKS>
__device__ __noinline__ void far_grad_row(Room<TEAM, M, CHUNKS> &room, Row row, const element *x, const element *scale,
                                          const element *dy, element *dx, u64 n) {
    const auto g = [&](u64 k) { return (double)up(dy[k]) * (double)up(scale[k]); };
    const double sum = CENTRED ? wide_sum(room, n, g) / (double)n : 0;
    const double moment = wide_sum(room, n, [&](u64 k) { return g(k) * row.far(up(x[k])); }) / (double)n;
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM)
        dx[k] = down64((g(k) - sum - row.far(up(x[k])) * moment) * row.inverse * row.by);
}

// The gradient of a row; gives how it was normalised, for the gradients of the scale and the bias.
template <bool CENTRED, int TEAM, int M, int CHUNKS>
__device__ Row norm_grad_row(Room<TEAM, M, CHUNKS> &room, const element *x, const element *scale, const element *dy,
                             element *dx, u64 n, double eps) {
    const double count = (double)n;
    const real about = CENTRED ? (real)(sum_of(room, n, [&](u64 k) { return up(x[k]); }) / count) : 0;
    // of the deviations and their squares, of the gradients, and of their products with the deviations
    double t[4];
    sum_row(room, n, t, [&](u64 k, real(&v)[4]) {
        const real d = up(x[k]) - about, u = up(dy[k]) * up(scale[k]);
        v[0] = d;
        v[1] = d * d;
        v[2] = u;
        v[3] = u * d;
    });
    const double square = CENTRED ? (t[1] - t[0] * t[0] / count) / count : t[1] / count;
    Row row{0, (double)about, 0};
    double unused;
    if (is_far(square, eps) && scaled_row<TEAM, CENTRED>(room, n, eps, [&](u64 k) { return up(x[k]); }, row, unused)) {
        far_grad_row<CENTRED>(room, row, x, scale, dy, dx, n);
        return row;
    }
    const double inverse = 1.0 / __dsqrt_rn(square + eps);
    row = Row{0, (double)about, (double)(real)inverse};
    const real sum = (real)(t[2] / count), moment = (real)(t[3] * inverse / count);
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) {
        const real g = up(dy[k]), by = up(scale[k]);
        const real hat = CENTRED ? row.near(up(x[k])) : up(x[k]) * (real)row.inverse;
        dx[k] = down((real)row.inverse * (CENTRED ? g * by - sum - hat * moment : g * by - hat * moment));
    }
    return row;
}

// The sums of gradients of the scale and the bias over a block of rows: for `i` a block and a column of `n`.
template <bool CENTRED>
__device__ __forceinline__ void norm_grad_column(u64 i, u64 rows, u64 n, u64 blocks, const element *x,
                                                 const element *dy, const Row *all, real *scales, real *biases) {
    const u64 size = rows / blocks, rest = rows % blocks, block = i / n, k = i % n;
    const u64 from = block * size + least(block, rest), to = from + size + (block < rest);
    real scale = 0, bias = 0;
#pragma unroll 4
    for (u64 r = from; r < to; ++r) {
        const Row row = all[r];
        const real g = up(dy[r * n + k]), v = up(x[r * n + k]);
        const real hat = CENTRED ? row.near(v) : v * (real)row.inverse;
        scale += row.by != 0 ? (real)((double)g * row.far(v)) : g * hat;
        bias += g;
    }
    scales[i] = scale;
    if (CENTRED) biases[i] = bias;
}

// The sum over blocks, in double.
__device__ __forceinline__ element over_blocks(const real *parts, u64 blocks, u64 n, u64 k) {
    double sum = 0;
#pragma unroll 8
    for (u64 block = 0; block < blocks; ++block) sum += (double)parts[block * n + k];
    return down64(sum);
}
