// Batch normalisation of `[n, c, s]`: sums of units of a channel, then a block for each channel, then all elements.
//
// The order is that of the CPU's kernels: a unit is at most 1024 elements of a channel in 16 lanes, from one image or
// from as many whole images as fit, and the units of an image are added up before those of the next. Of `s = 1` a unit
// is some images in order.

struct Batch {
    u64 n, c, s, images, blocks;

    // Elements of a unit; `images` is those of a run, whose elements are in `blocks` units.
    __device__ u64 count() const { return n * s; }

    __device__ u64 runs() const { return (n + images - 1) / images; }

    // The element of a channel whose number within it is `k`.
    __device__ u64 at(u64 channel, u64 k) const { return (k / s * c + channel) * s + k % s; }
};

// Two sums over elements of a channel.
struct Pair {
    double a, b;
};

// The sums of a unit by a group of 16 threads. `terms(i, v)` gives those of element `i`.
template <typename Terms>
__device__ __forceinline__ Pair unit_sums(Batch d, u64 channel, u64 unit, Terms terms) {
    const u64 run = unit / d.blocks, from = unit % d.blocks * SPAN;
    const u64 first = run * d.images, images = least(d.images, d.n - first);
    const u32 count = (u32)least(SPAN, images * d.s - from), s = (u32)least(d.s, 0xffffffffu);
    // of a long row one part, and of short ones all
    const u64 base = (first * d.c + channel) * d.s + from;
    real lanes[2] = {0, 0}, v[2];
#pragma unroll 4
    for (u32 k = threadIdx.x % LANES; k < count; k += LANES) {
        const u64 i = d.images == 1 ? base + k : ((first + k / s) * d.c + channel) * d.s + k % s;
        terms(i, v);
        lanes[0] += v[0];
        lanes[1] += v[1];
    }
    return Pair{lanes_sum((double)lanes[0]), lanes_sum((double)lanes[1])};
}

// The sums of some images in order, of channels with an element each.
template <typename Terms>
__device__ __forceinline__ Pair column_sums(Batch d, u64 channel, u64 unit, Terms terms) {
    Pair sums{0, 0};
    const u64 to = least(d.n, (unit + 1) * d.images);
#pragma unroll 4
    for (u64 image = unit * d.images; image < to; ++image) {
        double v[2];
        terms(image * d.c + channel, v);
        sums.a += v[0];
        sums.b += v[1];
    }
    return sums;
}

// The sums of all units of a channel, of a run and then of runs, by a block of 256 threads for all of them.
__device__ inline Pair channel_sums(Batch d, const Pair *units, u64 channel) {
    __shared__ Pair some[256];
    const u64 count = d.runs() * d.blocks;
    Pair all{0, 0}, run{0, 0};
    u64 unit = 0;
    for (u64 from = 0; from < count; from += 256) {
        if (from + threadIdx.x < count) some[threadIdx.x] = units[(from + threadIdx.x) * d.c + channel];
        __syncthreads();
        // each thread adds up all, which takes no longer than one
        const int end = (int)least(256, count - from);
        for (int k = 0; k < end; ++k) {
            run = Pair{run.a + some[k].a, run.b + some[k].b};
            if (++unit == d.blocks) {
                all = Pair{all.a + run.a, all.b + run.b};
                run = Pair{0, 0};
                unit = 0;
            }
        }
        __syncthreads();
    }
    return all;
}

// How a channel is normalised; `row.by` is 0 for one whose variance is a number.
struct Channel {
    Row row;
    real mean, factor;
};

__device__ __forceinline__ real slope(element scale, real var, double eps) {
    return (real)((double)up(scale) / __dsqrt_rn((double)var + eps));
}

// The statistics of a channel by a block.
template <int M, int CHUNKS>
__device__ __forceinline__ Channel channel_of(Room<256, M, CHUNKS> &room, Batch d, u64 channel, const element *x,
                                              element scale, double eps, double mean, Pair sums, real &found_mean,
                                              real &found_var) {
    const double count = (double)d.count();
    const real var = (real)((sums.b - sums.a * sums.a / count) / count);
    Channel all{Row{0, 0, 0}, (real)mean, slope(scale, var, eps)};
    double square;
    found_mean = all.mean;
    found_var = var;
    if (is_far((double)var, eps) &&
        scaled_row<256, true>(room, d.count(), eps, [&](u64 k) { return up(x[d.at(channel, k)]); }, all.row, square)) {
        found_mean = (real)(all.row.mean / all.row.by);
        found_var = (real)(square / all.row.by / all.row.by);
    }
    return all;
}

__device__ __forceinline__ element normalised(const Channel &c, element x, element scale, element bias) {
    if (c.row.by != 0) return down64(c.row.far(up(x)) * (double)up(scale) + (double)up(bias));
    return down((up(x) - c.mean) * c.factor + up(bias));
}

// The terms of `dx` of a channel: `a dy + (b (x - about) + c)`; of one that was scaled the means of `dy` and of its
// products.
struct Terms {
    Row row;
    double sum, moment;
    real about, a, b, c;
};

template <int M, int CHUNKS>
__device__ __forceinline__ Terms terms_of(Room<256, M, CHUNKS> &room, Batch d, u64 channel, const element *x,
                                          const element *dy, element scale, real mean, real var, double eps, Pair sums,
                                          element &dscale, element &dbias) {
    const double count = (double)d.count(), inverse = 1.0 / __dsqrt_rn((double)var + eps);
    const double a = (double)up(scale) * inverse;
    dbias = down64(sums.a);
    dscale = down64(sums.b * inverse);
    const real b = (real)(-a * inverse * inverse * sums.b / count), c = (real)(-a * sums.a / count);
    Terms t{Row{0, 0, 0}, 0, 0, mean, (real)a, b, c};
    double square;
    const auto at = [&](u64 k) { return d.at(channel, k); };
    if (is_far((double)var, eps) &&
        scaled_row<256, true>(room, d.count(), eps, [&](u64 k) { return up(x[at(k)]); }, t.row, square)) {
        const double sum = wide_sum(room, d.count(), [&](u64 k) { return (double)up(dy[at(k)]); });
        const double moment =
            wide_sum(room, d.count(), [&](u64 k) { return (double)up(dy[at(k)]) * t.row.far(up(x[at(k)])); });
        dbias = down64(sum);
        dscale = down64(moment);
        t.sum = sum / count;
        t.moment = moment / count;
    }
    return t;
}

__device__ __forceinline__ element gradient(const Terms &t, element x, element dy, element scale) {
    if (t.row.by != 0) {
        const double g = (double)up(dy) - t.sum - t.row.far(up(x)) * t.moment;
        return down64(g * (double)up(scale) * t.row.inverse * t.row.by);
    }
    return down(t.a * up(dy) + (t.b * (up(x) - t.about) + t.c));
}
