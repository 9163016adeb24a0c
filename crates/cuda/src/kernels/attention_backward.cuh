// The backward pass. Probabilities are made again from the logarithms of the sums, and each gradient is summed by one
// block.

// A pair's probability, its gradient `dp` with what dropout makes of both, and the slope of its cap. 0 where the key is
// hidden.
struct Pair {
    total p, kept, dp, slope;
    bool is_seen;

    // The gradient of the product of query and key, where the sum of p dp is known.
    __device__ __forceinline__ total gradient(total delta) const {
        return is_seen ? p * (dp - delta) * slope : (total)0;
    }
};

__device__ __forceinline__ Pair pair_of(const Sizes &a, const Pairs<u8> &mask, const Pairs<element> &bias, Draw &draw,
                                        u64 pair, u64 query, u64 key, total s, total dp, total lse) {
    Pair x;
    s = score_of(a, mask, bias, pair / a.heads, pair % a.heads, query, key, s, x.slope);
    // also where dp is not finite, and no probability of 0 makes it 0
    if (s == -infinite()) return {0, 0, 0, 0, false};
    x.p = x.kept = exponential(s - (lse == -infinite() ? (total)0 : lse));
    x.dp = dp;
    x.is_seen = true;
    if (DROPS) {
        const total factor = kept_of(a, draw, pair, query, key);
        x.kept = x.p * factor;
        x.dp = factor == 0 ? (total)0 : dp * factor;
    }
    return x;
}

// The gradient of a tile of queries of one head, 16 C columns of it, and the sums of p dp, from column 0 only.
template <int QT, int KT, int C, typename Write>
__device__ __forceinline__ void query_gradient(const Sizes &a, const Heads &q, const Heads &k, const Heads &v,
                                               const Heads &dy, const Pairs<u8> &mask, const Pairs<element> &bias,
                                               const total *lse, total *deltas, u64 pair, u64 q0, u64 from,
                                               Write write) {
    __shared__ total tile[16 * QT][16 * KT + 1];
    const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const u64 image = pair / a.heads, head = pair % a.heads, kv = head / a.group;
    const u64 q_end = q0 + 16 * QT < a.tq ? q0 + 16 * QT : a.tq, first = a.begin(q0), last = a.end(q_end - 1);
    const Rows queries = q.head(image, head, a.scale), slopes = dy.head(image, head, 1);
    const Rows keys = k.head(image, kv, 1), values = v.head(image, kv, 1);
    total sums[QT][C], logs[QT], delta[QT], s[QT][KT], dp[QT][KT];
#pragma unroll
    for (int t = 0; t < QT; ++t) {
        const u64 query = q0 + ty * QT + t;
        logs[t] = query < a.tq ? lse[pair * a.tq + query] : (total)0;
        delta[t] = 0;
#pragma unroll
        for (int c = 0; c < C; ++c) sums[t][c] = 0;
    }
    Draw draw = {~0ull};
    // twice over all keys: the second needs the sums of the first
    for (int is_second = 0; is_second < 2; ++is_second) {
        for (u64 k0 = first; k0 < last; k0 += 16 * KT) {
            dots<QT, KT>(queries, q0, q_end, keys, k0, last, a.d, s);
            dots<QT, KT>(slopes, q0, q_end, values, k0, last, a.dv, dp);
#pragma unroll
            for (int u = 0; u < KT; ++u)
#pragma unroll
                for (int t = 0; t < QT; ++t) {
                    const u64 query = q0 + ty * QT + t, key = k0 + tx + 16 * u;
                    const Pair x = pair_of(a, mask, bias, draw, pair, query, key, s[t][u], dp[t][u], logs[t]);
                    if (is_second)
                        tile[ty * QT + t][tx + 16 * u] = x.gradient(delta[t]);
                    else
                        delta[t] += x.p * x.dp;
                }
            if (is_second) add_rows<QT, KT, C>(tile, keys, k0, last, from, a.d, sums);
        }
#pragma unroll
        for (int t = 0; t < QT && !is_second; ++t) delta[t] = row_total(delta[t]);
    }
#pragma unroll
    for (int t = 0; t < QT; ++t) {
        const u64 query = q0 + ty * QT + t;
        if (query >= a.tq) continue;
        if (tx == 0 && from == 0) deltas[pair * a.tq + query] = delta[t];
#pragma unroll
        for (int c = 0; c < C; ++c)
            if (from + tx + 16 * c < a.d) write(image, query, head, from + tx + 16 * c, sums[t][c] * a.scale);
    }
}

// The gradients of a tile of keys and values of one head, 16 C columns of each, over all heads of queries that share it
// in order.
template <int QT, int KT, int C, typename WriteKey, typename WriteValue>
__device__ __forceinline__ void key_gradient(const Sizes &a, const Heads &q, const Heads &k, const Heads &v,
                                             const Heads &dy, const Pairs<u8> &mask, const Pairs<element> &bias,
                                             const total *lse, const total *deltas, u64 image, u64 kv, u64 k0, u64 from,
                                             WriteKey write_key, WriteValue write_value) {
    __shared__ total tile[16 * KT][16 * QT + 1];
    const unsigned tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const u64 k_end = k0 + 16 * KT < a.tk ? k0 + 16 * KT : a.tk;
    const Rows keys = k.head(image, kv, 1), values = v.head(image, kv, 1);
    total key_sums[KT][C], value_sums[KT][C], s[KT][QT], dp[KT][QT], ds[KT][QT];
#pragma unroll
    for (int t = 0; t < KT; ++t)
#pragma unroll
        for (int c = 0; c < C; ++c) key_sums[t][c] = value_sums[t][c] = 0;
    // queries that see one of these keys
    const u64 first = (u64)clamp_i64((i64)k0 - a.high + 1, 0, (i64)a.tq);
    const u64 last = (u64)clamp_i64((i64)k_end - a.low, 0, (i64)a.tq);
    Draw draw = {~0ull};
    for (u64 head = kv * a.group; head < (kv + 1) * a.group; ++head) {
        const u64 pair = image * a.heads + head;
        const Rows queries = q.head(image, head, a.scale), slopes = dy.head(image, head, 1);
        for (u64 q0 = first; q0 < last; q0 += 16 * QT) {
            dots<KT, QT>(keys, k0, k_end, queries, q0, last, a.d, s);
            dots<KT, QT>(values, k0, k_end, slopes, q0, last, a.dv, dp);
#pragma unroll
            for (int u = 0; u < QT; ++u) {
                const u64 query = q0 + tx + 16 * u;
                const total log = query < last ? lse[pair * a.tq + query] : (total)0;
                const total delta = query < last ? deltas[pair * a.tq + query] : (total)0;
#pragma unroll
                for (int t = 0; t < KT; ++t) {
                    const Pair x = pair_of(a, mask, bias, draw, pair, query, k0 + ty * KT + t, s[t][u], dp[t][u], log);
                    tile[ty * KT + t][tx + 16 * u] = x.kept;
                    ds[t][u] = x.gradient(delta);
                }
            }
            add_rows<KT, QT, C>(tile, slopes, q0, last, from, a.dv, value_sums);
#pragma unroll
            for (int t = 0; t < KT; ++t)
#pragma unroll
                for (int u = 0; u < QT; ++u) tile[ty * KT + t][tx + 16 * u] = ds[t][u];
            add_rows<KT, QT, C>(tile, queries, q0, last, from, a.d, key_sums);
        }
    }
#pragma unroll
    for (int t = 0; t < KT; ++t) {
        const u64 key = k0 + ty * KT + t;
        if (key >= a.tk) continue;
#pragma unroll
        for (int c = 0; c < C; ++c) {
            const u64 column = from + tx + 16 * c;
            if (column < a.d) write_key(image, key, kv, column, key_sums[t][c]);
            if (column < a.dv) write_value(image, key, kv, column, value_sums[t][c]);
        }
    }
}
