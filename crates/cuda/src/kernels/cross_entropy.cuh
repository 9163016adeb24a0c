// Cross-entropy with class labels, and its gradient.

// Labels of examples; `ignored` is that of examples that do not count, if there is one.
struct Labels {
    const label *labels;
    u64 classes;
    bool has_ignored;
    i64 ignored;

    __device__ bool counts(u64 i) const { return !has_ignored || (i64)labels[i] != ignored; }

    // The class of an example; all ones for none, and for a label that is no class.
    __device__ u64 of(u64 i) const { return counts(i) && (u64)labels[i] < classes ? (u64)labels[i] : ~0ull; }

    __device__ void check(u64 i, u64 *failure) const {
        if (counts(i) && (u64)labels[i] >= classes) refuse(failure, i, (i64)labels[i]);
    }
};

// The loss of an example: `rest` is the sum of the other classes' exponentials, `own` the logit less the largest;
// `mean` gives the mean of these.
template <typename Mean>
__device__ __forceinline__ real loss_of(real rest, real own, double smoothing, Mean mean) {
    const real lse = own == 0 ? ln_1p(rest) : ln(rest + exponential(own));
    const real v = lse - own;
    return smoothing > 0 ? (real)((1.0 - smoothing) * (double)v + smoothing * ((double)lse - mean())) : v;
}

template <int TEAM, int M, int CHUNKS>
__device__ real loss_row(Room<TEAM, M, CHUNKS> &room, const element *x, u64 n, u64 label, double smoothing) {
    const real most = largest(room, x, n);
    const real rest = sum_around(room, x, n, label, most);
    return loss_of(rest, up(x[label]) - most, smoothing, [&] {
        return wide_sum(room, n, [&](u64 k) { return (double)(up(x[k]) - most); }) / (double)n;
    });
}

__device__ inline real loss_column(Column x, u64 label, double smoothing) {
    const real most = x.largest();
    const real rest = x.sum(most, label);
    return loss_of(rest, x.at(label) - most, smoothing, [&] {
        double sum = 0;
        for (u64 k = 0; k < x.n; ++k) sum += (double)(x.at(k) - most);
        return sum / (double)x.n;
    });
}

// Numbers of a smoothed gradient: what a class that is missed loses, and what is spared of the label.
struct Smoothing {
    real miss, spared;
};

template <int TEAM, int M, int CHUNKS>
__device__ void loss_grad_row(Room<TEAM, M, CHUNKS> &room, const element *x, element *dx, u64 n, u64 label, real w,
                              Smoothing s) {
    const real most = largest(room, x, n);
    const real rest = sum_around(room, x, n, label, most);
    const real inverse = (real)1 / (rest + exponential(up(x[label]) - most));
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) {
        const real share = exponential(up(x[k]) - most) * inverse;
        dx[k] = down(k == label ? w * (s.spared - rest * inverse) : w * (share - s.miss));
    }
}

__device__ inline void loss_grad_column(Column x, element *dx, u64 label, real w, Smoothing s) {
    const real most = x.largest();
    const real rest = x.sum(most, label);
    const real inverse = (real)1 / (rest + exponential(x.at(label) - most));
    for (u64 k = 0; k < x.n; ++k)
        dx[k * x.step] =
            down(k == label ? w * (s.spared - rest * inverse) : w * (exponential(x.at(k) - most) * inverse - s.miss));
}

// A sum of losses, and how many examples count.
struct Loss {
    double sum;
    u64 count;
};

// The sum over a part of the examples for each block. `each` is null where only their number is asked for.
__device__ inline void loss_parts(Labels labels, u64 n, const real *each, Loss *parts) {
    __shared__ u64 room[8];
    const u64 length = (n + gridDim.x - 1) / gridDim.x, from = blockIdx.x * length, to = least(n, from + length);
    Loss own{-0.0, 0}; // as the CPU begins a sum
    for (u64 i = from + threadIdx.x; i < to; i += blockDim.x) {
        own.count += labels.counts(i);
        if (each != 0) own.sum += (double)each[i];
    }
    own.count = team_join<256>(own.count, room, [](u64 a, u64 b) { return a + b; });
    own.sum = team_join<256>(own.sum, room, [](double a, double b) { return a + b; });
    if (threadIdx.x == 0) parts[blockIdx.x] = own;
}

__device__ inline Loss loss_total(const Loss *parts, u64 n) {
    Loss all{-0.0, 0};
#pragma unroll 8
    for (u64 i = 0; i < n; ++i) all = Loss{all.sum + parts[i].sum, all.count + parts[i].count};
    return all;
}
