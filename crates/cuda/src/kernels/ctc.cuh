// Connectionist temporal classification in logarithms. `element`, `total` and `wide` as for products; `exponential` and
// `logarithm` are functions of totals, `infinite` is a total. `label_at`, `steps_at` and `length_at` give integers,
// whatever their dtype; IS_FLAT says that all targets lie behind each other. A block takes one sequence through all its
// steps, a thread some of the states: labels with blanks before, between and after them.

struct Batch {
    const element *log_probs;
    Integers integers;
    u64 steps, n, classes, row, labels, blank;
    bool zero_infinity;

    __device__ __forceinline__ const element *at(u64 t, u64 i) const { return log_probs + (t * n + i) * classes; }
};

struct Sequence {
    u64 start, labels, steps;
};

// The sum over a block, in each thread.
template <typename T>
__device__ __forceinline__ T block_total(T x) {
    __shared__ T sums[256];
    sums[threadIdx.x] = x;
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    x = sums[0];
    __syncthreads();
    return x;
}

// Reads sequence `i`. False, in all threads, where something of it is refused; then it is left alone. Positions have
// what was read in their upper bits, in the order in which the CPU looks at it.
__device__ __forceinline__ bool read(const Batch &b, u64 i, u64 *failure, Sequence &s) {
    const i64 steps = b.integers.steps_at(i), length = b.integers.length_at(i);
    const u64 most = IS_FLAT ? b.labels : b.row;
    const bool has_steps = steps >= 0 && (u64)steps <= b.steps, has_length = length >= 0 && (u64)length <= most;
    if (threadIdx.x == 0 && !has_steps) refuse(failure, i, steps);
    if (threadIdx.x == 0 && !has_length) refuse(failure, 1ull << 60 | i, length);
    s = {i * b.row, (u64)length, (u64)steps};
    if (IS_FLAT) {
        u64 before = 0, all = 0;
        for (u64 j = threadIdx.x; j < b.n; j += 256) {
            const i64 other = b.integers.length_at(j);
            const u64 counted = other < 0 || (u64)other > most ? 0 : (u64)other;
            before += j < i ? counted : 0;
            all += counted;
        }
        s.start = block_total(before);
        all = block_total(all);
        if (all != b.labels) {
            if (threadIdx.x == 0) refuse(failure, 2ull << 60, (i64)all);
            return false;
        }
    }
    if (!has_steps || !has_length) return false;
    u64 wrong = 0;
    for (u64 k = threadIdx.x; k < s.labels; k += 256) {
        const i64 label = b.integers.label_at(s.start + k);
        if (label >= 0 && (u64)label < b.classes) continue;
        refuse(failure, 3ull << 60 | (s.start + k), label);
        wrong += 1;
    }
    return block_total(wrong) == 0;
}

// ln(e^a + e^b + e^c); minus infinity if all are
__device__ __forceinline__ total log_sum(total a, total b, total c) {
    total m = a > b ? a : b;
    m = m > c ? m : c;
    m = m == -infinite() ? (total)0 : m;
    return m + logarithm(exponential(a - m) + exponential(b - m) + exponential(c - m));
}

// The states of step `t` from those of the step before.
__device__ __forceinline__ void advance(const Batch &b, const Sequence &s, u64 i, u64 t, const total *last,
                                        total *next) {
    const element *row = b.at(t, i);
    const total none = -infinite(), empty = wide(row[b.blank]);
    for (u64 e = threadIdx.x; e < 2 * s.labels + 1; e += 256) {
        const u64 k = e / 2;
        const u64 label = e % 2 == 1 ? (u64)b.integers.label_at(s.start + k) : b.blank;
        if (t == 0) {
            next[e] = e < 2 ? wide(row[label]) : none;
        } else if (e == 0) {
            next[e] = last[e] + empty;
        } else {
            const bool skips = e % 2 == 1 && k > 0 && (u64)b.integers.label_at(s.start + k - 1) != label;
            next[e] = log_sum(last[e], last[e - 1], skips ? last[e - 2] : none) + wide(row[label]);
        }
    }
    __syncthreads();
}

// Minus the logarithm of the probability, from the states of the last step.
__device__ __forceinline__ total loss_of(const Sequence &s, const total *states) {
    if (s.steps == 0) return s.labels == 0 ? (total)0 : infinite();
    const u64 last = 2 * s.labels;
    return -log_sum(states[last], last > 0 ? states[last - 1] : -infinite(), -infinite());
}

__device__ __forceinline__ total loss(const Batch &b, const Sequence &s, u64 i, total *states) {
    const u64 count = 2 * s.labels + 1;
    total *last = states + 2 * (2 * s.start + i), *next = last + count;
    for (u64 t = 0; t < s.steps; ++t) {
        advance(b, s, i, t, last, next);
        total *const done = next;
        next = last;
        last = done;
    }
    const total nll = loss_of(s, last);
    return b.zero_infinity && nll == infinite() ? (total)0 : nll;
}
