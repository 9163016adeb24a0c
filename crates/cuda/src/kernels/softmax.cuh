// Softmax, its logarithm, cross-entropy, and their gradients: along rows by teams, and along columns by a thread each.

// The largest of a row; NaN is passed over.
template <int TEAM, int M, int CHUNKS>
__device__ __forceinline__ real largest(Room<TEAM, M, CHUNKS> &room, const element *x, u64 n) {
    real most = (real)f64_of_bits(0xfff0000000000000ull);
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) {
        const real v = up(x[k]);
        most = v > most ? v : most;
    }
    return team_join<TEAM>(most, room.values, [](real a, real b) { return b > a ? b : a; });
}

// The sum of `exp(x - most)` of a row without one element, the parts before and behind it apart.
template <int TEAM, int M, int CHUNKS>
__device__ __forceinline__ real sum_around(Room<TEAM, M, CHUNKS> &room, const element *x, u64 n, u64 at, real most) {
    const double before = sum_of(room, at, [&](u64 k) { return exponential(up(x[k]) - most); });
    const double behind = sum_of(room, n - at - 1, [&](u64 k) { return exponential(up(x[at + 1 + k]) - most); });
    return (real)(before + behind);
}

template <int TEAM, bool LOG, int M, int CHUNKS>
__device__ void softmax_row(Room<TEAM, M, CHUNKS> &room, const element *x, element *y, u64 n) {
    const real most = largest(room, x, n);
    if (LOG) {
        // without the maximum's own 1, beside which what is small would not be seen
        const u64 found = first_where(room, n, [&](u64 k) { return up(x[k]) == most; });
        const real rest = sum_around(room, x, n, found == n ? 0 : found, most);
        // NaN for an infinite maximum
        const real last = ln_1p(rest + (most - most));
        for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) y[k] = down(up(x[k]) - most - last);
        return;
    }
    const real sum = (real)sum_of(room, n, [&](u64 k) { return exponential(up(x[k]) - most); });
    const real inverse = (real)1 / sum;
    if (TEAM > LANES && n <= CHUNKS * SPAN) {
        // all terms are there still
        for (int k = threadIdx.x; k < (int)n; k += TEAM) y[k] = down(room.term(0, k) * inverse);
        return;
    }
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM) y[k] = down(exponential(up(x[k]) - most) * inverse);
}

// A column of `n` elements that are `step` apart.
struct Column {
    const element *x;
    u64 n, step;

    __device__ real at(u64 k) const { return up(x[k * step]); }

    __device__ real largest() const {
        real most = (real)f64_of_bits(0xfff0000000000000ull);
        for (u64 k = 0; k < n; ++k) most = at(k) > most ? at(k) : most;
        return most;
    }

    // the first that is the largest; 0 for none
    __device__ u64 first(real most) const {
        for (u64 k = 0; k < n; ++k)
            if (at(k) == most) return k;
        return 0;
    }

    // without the element `out`, if there is that
    __device__ real sum(real most, u64 out) const {
        real sum = 0;
        for (u64 k = 0; k < n; ++k) sum += k == out ? (real)0 : exponential(at(k) - most);
        return sum;
    }
};

template <bool LOG>
__device__ void softmax_column(Column x, element *y) {
    const real most = x.largest();
    const real sum = x.sum(most, LOG ? x.first(most) : ~0ull);
    const real last = LOG ? ln_1p(sum + (most - most)) : (real)1 / sum;
    for (u64 k = 0; k < x.n; ++k) {
        const real v = x.at(k) - most;
        y[k * x.step] = down(LOG ? v - last : exponential(v) * last);
    }
}

// of the logarithms of a row at most one is above it
__device__ __forceinline__ real minus_ln_2() { return (real)-0.693147180559945309417; }

template <bool LOG>
__device__ __forceinline__ element gradient(real y, real dy, real sum) {
    return LOG ? down(dy - exponential(y) * sum) : down(y * (dy - sum));
}

// as `gradient` of a logarithm, without a difference of numbers that are nearly equal
__device__ __forceinline__ element certain(real y, real dy, real sum) { return down((dy - sum) - exp_m1(y) * sum); }

template <int TEAM, bool LOG, int M, int CHUNKS>
__device__ void softmax_grad_row(Room<TEAM, M, CHUNKS> &room, const element *y, const element *dy, element *dx, u64 n) {
    const real sum = (real)sum_of(room, n, [&](u64 k) { return LOG ? up(dy[k]) : up(dy[k]) * up(y[k]); });
    const u64 at = LOG ? first_where(room, n, [&](u64 k) { return up(y[k]) > minus_ln_2(); }) : n;
    for (u64 k = threadIdx.x % TEAM; k < n; k += TEAM)
        dx[k] = k == at ? certain(up(y[k]), up(dy[k]), sum) : gradient<LOG>(up(y[k]), up(dy[k]), sum);
}

template <bool LOG>
__device__ void softmax_grad_column(Column y, Column dy, element *dx) {
    real sum = 0;
    for (u64 k = 0; k < y.n; ++k) sum += LOG ? dy.at(k) : dy.at(k) * y.at(k);
    for (u64 k = 0; k < y.n; ++k) {
        const bool is_certain = LOG && y.at(k) > minus_ln_2();
        dx[k * y.step] = is_certain ? certain(y.at(k), dy.at(k), sum) : gradient<LOG>(y.at(k), dy.at(k), sum);
    }
}
