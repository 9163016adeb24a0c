// The backward pass: from the last step to the first, the gradients of the sums of gates, and those of the states
// before.

// What the forward pass left, by step and row.
struct Kept {
    const total *gates, *cells, *y, *initial;
};

// The state, of a row of `count`, before step `t`; 0 where there is none.
__device__ __forceinline__ total before(const Layer &a, const total *all, const total *initial, u64 count, u64 b, u64 t,
                                        u64 u) {
    const bool has = a.is_reverse ? t + 1 < a.steps && a.has(b, t + 1) : t > 0;
    if (has) return all[((a.is_reverse ? t + 1 : t - 1) * a.batch + b) * count + u];
    return initial != 0 ? initial[b * count + u] : (total)0;
}

__device__ __forceinline__ total slope(total s) { return s * (1 - s); }

// The gradients of the sums of unit `u` of row `b` at step `t`. `d` is that of what came out of the cell; what of it
// passes by the gates of a GRU is left in `dh`, and that of the cell before in `dc`.
__device__ __forceinline__ void unit_gradient(const Layer &a, const Kept &x, u64 b, u64 t, u64 u, total d,
                                              total *dgates, total *dh, total *dc) {
    const u64 n = a.hidden, at = t * a.batch + b;
    const total *const g = x.gates + at * a.columns() + u;
    total *const to = dgates + at * a.columns() + u;
    if (CELL == LSTM) {
        const total i = g[0], f = g[n], v = g[2 * n], o = g[3 * n], tc = hyperbolic(x.cells[at * n + u]);
        const total of_cell = *dc + d * o * (1 - tc * tc), last = before(a, x.cells, x.initial, n, b, t, u);
        to[0] = of_cell * v * slope(i);
        to[n] = of_cell * last * slope(f);
        to[2 * n] = of_cell * i * (1 - v * v);
        to[3 * n] = d * tc * slope(o);
        *dc = of_cell * f;
    } else if (CELL == GRU) {
        const total v = g[0], r = g[n], z = g[2 * n], s = g[3 * n], last = before(a, x.y, x.initial, n, b, t, u);
        const total of_new = d * (1 - z) * (1 - v * v), of_z = d * (last - v);
        to[0] = of_new;
        to[n] = of_new * s * slope(r);
        to[2 * n] = of_z * slope(z);
        to[3 * n] = of_new * r;
        *dh = d * z;
    } else {
        const total y = x.y[at * n + u];
        to[0] = CELL == TANH ? d * (1 - y * y) : y > 0 ? d : (total)0;
    }
}

// All steps of rows from `b0` on. `outs` and `dm`, of a projection, are the gradients of outputs and of what came out
// of cells.
template <int R>
__device__ __forceinline__ void run_backward(const Layer &a, const Kept &x, const total *dy, i64 dy_t, i64 dy_b,
                                             i64 dy_j, const total *w_hh, const total *w_hr, u64 b0, total *dgates,
                                             total *dh, total *dc, total *outs, total *dm) {
    const u64 rows = a.batch - b0 < R ? a.batch - b0 : R, n = a.hidden, width = a.width;
    for (u64 i = a.steps; i-- > 0;) {
        const u64 t = a.step(i), at = t * a.batch + b0;
        for (u64 e = threadIdx.x; e < rows * width; e += THREADS) {
            const u64 r = e / width, j = e % width, b = b0 + r;
            const bool has = a.has(b, t);
            if (has) dh[b * width + j] += dy[(i64)t * dy_t + (i64)b * dy_b + (i64)j * dy_j];
            if (PROJECTS) outs[(at + r) * width + j] = has ? dh[b * width + j] : (total)0;
        }
        __syncthreads();
        if (PROJECTS) {
            rows_product<R>(outs + at * width, width, rows, w_hr, width, n,
                            [&](u64 r, u64 u, total sum) { dm[(b0 + r) * n + u] = sum; });
            __syncthreads();
        }
        for (u64 e = threadIdx.x; e < rows * n; e += THREADS) {
            const u64 r = e / n, u = e % n, b = b0 + r;
            if (a.has(b, t)) {
                unit_gradient(a, x, b, t, u, PROJECTS ? dm[b * n + u] : dh[b * width + u], dgates, dh + b * width + u,
                              dc + b * n + u);
            } else {
                for (int gate = 0; gate < COLUMNS; ++gate) dgates[(at + r) * a.columns() + gate * n + u] = 0;
            }
        }
        __syncthreads();
        rows_product<R>(dgates + at * a.columns() + FIRST * n, a.columns(), rows, w_hh, a.gate_rows(), width,
                        [&](u64 r, u64 j, total sum) {
                            const u64 b = b0 + r;
                            if (a.has(b, t)) dh[b * width + j] = CELL == GRU ? dh[b * width + j] + sum : sum;
                        });
        __syncthreads();
    }
}
