// The gradient. Places of the same label are linked, so that one thread sums what belongs to a class, in order.

// The next place of the label at `k`; the upper bit says that there is none before.
__device__ __forceinline__ void link(const Batch &b, const Sequence &s, u64 *links) {
    for (u64 k = threadIdx.x; k < s.labels; k += 256) {
        const i64 label = b.integers.label_at(s.start + k);
        u64 before = 0, behind = k + 1;
        while (before < k && b.integers.label_at(s.start + before) != label) ++before;
        while (behind < s.labels && b.integers.label_at(s.start + behind) != label) ++behind;
        links[k] = (before == k ? 1ull << 63 : 0) | behind;
    }
    __syncthreads();
}

// `beta` of step `t`, from that of the step behind it; `ahead` is overwritten.
__device__ __forceinline__ void retreat(const Batch &b, const Sequence &s, u64 i, u64 t, total *beta, total *ahead) {
    const u64 count = 2 * s.labels + 1;
    if (t + 1 == s.steps) {
        for (u64 e = threadIdx.x; e < count; e += 256) beta[e] = e + 2 >= count ? (total)0 : -infinite();
        __syncthreads();
        return;
    }
    const element *row = b.at(t + 1, i);
    for (u64 e = threadIdx.x; e < count; e += 256)
        ahead[e] = beta[e] + wide(row[e % 2 == 1 ? (u64)b.integers.label_at(s.start + e / 2) : b.blank]);
    __syncthreads();
    for (u64 e = threadIdx.x; e < count; e += 256) {
        const u64 k = e / 2;
        const bool skips = e % 2 == 1 && k + 1 < s.labels
            && b.integers.label_at(s.start + k + 1) != b.integers.label_at(s.start + k);
        beta[e] = e + 1 == count ? ahead[e] : log_sum(ahead[e], ahead[e + 1], skips ? ahead[e + 2] : -infinite());
    }
    __syncthreads();
}

// Row `t` of the gradient: `dy` times the probability of each state is taken from that of its class. `p` is
// overwritten.
__device__ __forceinline__ void posterior(const Batch &b, const Sequence &s, const total *alpha, const total *beta,
                                          total nll, total dy, const u64 *links, total *p, element *dx) {
    total blanks = 0;
    for (u64 e = threadIdx.x; e < 2 * s.labels + 1; e += 256) {
        p[e] = exponential(alpha[e] + beta[e] + nll);
        blanks += e % 2 == 0 ? p[e] : (total)0;
    }
    for (u64 c = threadIdx.x; c < b.classes; c += 256) dx[c] = narrow(0);
    blanks = block_total(blanks);
    for (u64 k = threadIdx.x; k < s.labels; k += 256) {
        if (links[k] >> 63 == 0) continue;
        element sum = narrow(0);
        for (u64 at = k; at < s.labels; at = links[at] & ~(1ull << 63)) sum = narrow(wide(sum) - dy * p[2 * at + 1]);
        dx[b.integers.label_at(s.start + k)] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) dx[b.blank] = narrow(wide(dx[b.blank]) - dy * blanks);
    __syncthreads();
}

__device__ __forceinline__ void clear(const Batch &b, u64 i, u64 first, element *dx) {
    for (u64 t = first; t < b.steps; ++t)
        for (u64 c = threadIdx.x; c < b.classes; c += 256) dx[(t * b.n + i) * b.classes + c] = narrow(0);
}

__device__ __forceinline__ void gradient(const Batch &b, const Sequence &s, u64 i, total dy, total *states, u64 *links,
                                         element *dx) {
    const u64 count = 2 * s.labels + 1;
    total *alpha = states + (b.steps + 2) * (2 * s.start + i), *beta = alpha + b.steps * count, *ahead = beta + count;
    for (u64 t = 0; t < s.steps; ++t) advance(b, s, i, t, alpha + (t - 1) * count, alpha + t * count);
    const total nll = loss_of(s, alpha + (s.steps - 1) * count);
    if (b.zero_infinity && nll == infinite()) return clear(b, i, 0, dx);
    clear(b, i, s.steps, dx);
    link(b, s, links + s.start);
    for (u64 t = s.steps; t-- > 0;) {
        retreat(b, s, i, t, beta, ahead);
        posterior(b, s, alpha + t * count, beta, nll, dy, links + s.start, ahead, dx + (t * b.n + i) * b.classes);
    }
}
