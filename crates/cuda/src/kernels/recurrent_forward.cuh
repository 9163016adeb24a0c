// The forward pass. Gates come as the products of the inputs, and become functions of the sums.

struct Biases {
    const total *ih, *hh;
    // of weight rows `i` and `h`; that of a GRU's new state has its parts apart
    __device__ __forceinline__ total both(u64 i) const { return HAS_BIAS ? 0 + ih[i] + hh[i] : 0; }
    __device__ __forceinline__ total of_input(u64 i) const { return HAS_BIAS ? ih[i] : 0; }
    __device__ __forceinline__ total of_state(u64 i) const { return HAS_BIAS ? hh[i] : 0; }
};

// What comes out of unit `u` of a cell, from its sums, the state `h` and the cell `c`.
__device__ __forceinline__ total unit(const Layer &a, const Biases &bias, total *gates, u64 u, total h, total *c) {
    const u64 n = a.hidden;
    total *const g = gates + u;
    if (CELL == LSTM) {
        const total si = logistic(g[0] + bias.both(u)), sf = logistic(g[n] + bias.both(n + u));
        const total tg = hyperbolic(g[2 * n] + bias.both(2 * n + u)), so = logistic(g[3 * n] + bias.both(3 * n + u));
        const total next = multiply_add(si, tg, sf * c[u]);
        g[0] = si;
        g[n] = sf;
        g[2 * n] = tg;
        g[3 * n] = so;
        c[u] = next;
        return so * hyperbolic(next);
    }
    if (CELL == GRU) {
        const total sr = logistic(g[n] + bias.both(u)), sz = logistic(g[2 * n] + bias.both(n + u));
        const total ss = g[3 * n] + bias.of_state(2 * n + u);
        const total tn = hyperbolic(multiply_add(sr, ss, g[0] + bias.of_input(2 * n + u)));
        g[0] = tn;
        g[n] = sr;
        g[2 * n] = sz;
        g[3 * n] = ss;
        return multiply_add(sz, h - tn, tn);
    }
    const total sum = g[0] + bias.both(u);
    // a NaN stays
    return CELL == TANH ? hyperbolic(sum) : sum < 0 ? (total)0 : sum;
}

// Steps `from` to before `to` in the order of time, of rows from `b0` on. `gates` has those of all rows from step
// `first` on. `cells` and `out` may be 0: the cells of an LSTM for the gradient, and what comes out of cells before a
// projection.
template <int R>
__device__ __forceinline__ void run_forward(const Layer &a, const Biases &bias, const total *w_hh, const total *w_hr,
                                            u64 b0, u64 from, u64 to, u64 first, total *h, total *c, total *y,
                                            total *gates, total *cells, total *out) {
    const u64 rows = a.batch - b0 < R ? a.batch - b0 : R, n = a.hidden, width = a.width;
    for (u64 i = from; i < to; ++i) {
        const u64 t = a.step(i);
        total *const own = gates + ((t - first) * a.batch + b0) * a.columns();
        rows_product<R>(h + b0 * width, width, rows, w_hh, width, a.gate_rows(), [&](u64 r, u64 j, total sum) {
            total *const g = own + r * a.columns() + FIRST * n + j;
            *g = CELL == GRU && j >= 2 * n ? sum : *g + sum;
        });
        __syncthreads();
        for (u64 e = threadIdx.x; e < rows * n; e += THREADS) {
            const u64 r = e / n, u = e % n, b = b0 + r, at = t * a.batch + b;
            total *const g = own + r * a.columns();
            const bool has = a.has(b, t);
            total m = 0;
            if (has) m = unit(a, bias, g, u, PROJECTS ? (total)0 : h[b * width + u], c + b * n);
            for (int gate = 0; gate < COLUMNS && !has; ++gate) g[gate * n + u] = 0;
            if (cells != 0) cells[at * n + u] = has ? c[b * n + u] : (total)0;
            if (PROJECTS) {
                out[b * n + u] = m;
            } else {
                y[at * width + u] = m;
                if (has) h[b * width + u] = m;
            }
        }
        __syncthreads();
        if (!PROJECTS) continue;
        rows_product<R>(out + b0 * n, n, rows, w_hr, n, width, [&](u64 r, u64 j, total sum) {
            const u64 b = b0 + r;
            const bool has = a.has(b, t);
            y[(t * a.batch + b) * width + j] = has ? sum : (total)0;
            if (has) h[b * width + j] = sum;
        });
        __syncthreads();
    }
}
