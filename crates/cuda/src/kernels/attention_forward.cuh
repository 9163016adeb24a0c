// The forward pass with a running maximum (Milakov and Gimelshein, 2018; Dao et al., 2022). A block has the queries of
// a tile of one head, keys from `k_first` to before `k_last`, and 16 C columns of the values. Sums are divided by their
// weights, and come with the greatest score and the weights, unless they are PARTS.
template <int QT, int KT, int C, bool PARTS, typename Write, typename WriteSum>
__device__ __forceinline__ void attend(const Sizes &a, const Heads &q, const Heads &k, const Heads &v,
                                       const Pairs<u8> &mask, const Pairs<element> &bias, u64 pair, u64 q0, u64 k_first,
                                       u64 k_last, u64 from, Write write, WriteSum write_sum) {
    __shared__ total tile[16 * QT][16 * KT + 1];
    const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const u64 image = pair / a.heads, head = pair % a.heads, kv = head / a.group;
    const u64 q_end = q0 + 16 * QT < a.tq ? q0 + 16 * QT : a.tq, begin = a.begin(q0), end = a.end(q_end - 1);
    const u64 first = begin > k_first ? begin : k_first, last = end < k_last ? end : k_last;
    const Rows queries = q.head(image, head, a.scale), keys = k.head(image, kv, 1), values = v.head(image, kv, 1);
    total sums[QT][C], most[QT], weights[QT];
#pragma unroll
    for (int t = 0; t < QT; ++t) {
        most[t] = -infinite();
        weights[t] = 0;
#pragma unroll
        for (int c = 0; c < C; ++c) sums[t][c] = 0;
    }
    Draw draw = {~0ull};
    for (u64 k0 = first; k0 < last; k0 += 16 * KT) {
        total s[QT][KT];
        dots<QT, KT>(queries, q0, q_end, keys, k0, last, a.d, s);
#pragma unroll
        for (int t = 0; t < QT; ++t) {
            const u64 query = q0 + ty * QT + t;
            total greatest = most[t], slope;
#pragma unroll
            for (int u = 0; u < KT; ++u) {
                const u64 key = k0 + tx + 16 * u;
                // the next block's keys are hidden from this one
                s[t][u] = key < last ? score_of(a, mask, bias, image, head, query, key, s[t][u], slope) : -infinite();
                greatest = s[t][u] > greatest ? s[t][u] : greatest;
            }
            greatest = row_greatest(greatest);
            // of a query that sees nothing the maximum counts as 0, so that no exponential is NaN
            const total base = greatest == -infinite() ? (total)0 : greatest, factor = exponential(most[t] - base);
            most[t] = greatest;
            weights[t] *= factor;
#pragma unroll
            for (int c = 0; c < C; ++c) sums[t][c] *= factor;
#pragma unroll
            for (int u = 0; u < KT; ++u) {
                const total p = exponential(s[t][u] - base);
                weights[t] += p;
                tile[ty * QT + t][tx + 16 * u] = p;
            }
        }
        if (DROPS) {
#pragma unroll
            for (int u = 0; u < KT; ++u)
#pragma unroll
                for (int t = 0; t < QT; ++t)
                    tile[ty * QT + t][tx + 16 * u] *= kept_of(a, draw, pair, q0 + ty * QT + t, k0 + tx + 16 * u);
        }
        add_rows<QT, KT, C>(tile, values, k0, last, from, a.dv, sums);
    }
#pragma unroll
    for (int t = 0; t < QT; ++t) {
        const u64 query = q0 + ty * QT + t;
        const total sum = row_total(weights[t]), share = PARTS ? (total)1 : sum == 0 ? sum : 1 / sum;
        if (query >= a.tq) continue;
#pragma unroll
        for (int c = 0; c < C; ++c)
            if (from + tx + 16 * c < a.dv) write(image, query, head, from + tx + 16 * c, sums[t][c] * share);
        if (tx == 0 && from == 0) write_sum(pair * a.tq + query, most[t], sum);
    }
}

// The logarithm of a row's sum, from its greatest score.
__device__ __forceinline__ total log_total(total most, total sum) {
    return (most == -infinite() ? (total)0 : most) + logarithm(sum);
}

// Adds up the parts of column `c` of row `i`, in order.
__device__ __forceinline__ void add_parts(u64 parts, u64 rows, u64 dv, const total *sums, const total *mosts,
                                          const total *weights, u64 i, u64 c, total &y, total &lse) {
    total most = -infinite(), sum = 0, weight = 0;
    for (u64 p = 0; p < parts; ++p) most = mosts[p * rows + i] > most ? mosts[p * rows + i] : most;
    const total base = most == -infinite() ? (total)0 : most;
    for (u64 p = 0; p < parts; ++p) {
        const total factor = exponential(mosts[p * rows + i] - base);
        weight += weights[p * rows + i] * factor;
        if (c < dv) sum += sums[(p * rows + i) * dv + c] * factor;
    }
    y = sum * (weight == 0 ? weight : 1 / weight);
    lse = log_total(most, weight);
}
