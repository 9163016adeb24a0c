// Sorting along an axis. An element becomes a word: its key, an unsigned integer in the same order, and its place
// below. All words of a lane are different, so that every way of sorting gives the one stable order.
//
// `element` is the type in memory; `key_of(x)` gives the key of an element in the order that is wanted. A word is 64
// bits where key and place have 32 of them, else two numbers.

// Bits of a float as a key: NaN is the largest, and -0 equals 0.
template <typename U>
__device__ __forceinline__ u64 float_key(U bits, U sign, U infinity) {
    const U magnitude = (U)(bits & ~sign);
    if (magnitude > infinity) return (U)~(U)0;
    if (magnitude == 0) return sign;
    return bits & sign ? (U)~bits : (U)(bits | sign);
}

__device__ __forceinline__ u64 least(u64 a, u64 b) { return a < b ? a : b; }

// The lanes of `[outer, n, inner]`.
struct Lanes {
    u64 n, inner;

    __device__ u64 at(u64 lane, u64 place, u64 extent) const {
        return (lane / inner * extent + place) * inner + lane % inner;
    }
};

__device__ __forceinline__ void order(Word &a, Word &b) {
    if (is_less(b, a)) {
        const Word x = a;
        a = b;
        b = x;
    }
}

// Sorts each `SIZE` of `ALL` words in shared memory by a block of 256 threads (Batcher, 1968).
template <int SIZE, int ALL>
__device__ __forceinline__ void sort_shared(Word *words) {
    __syncthreads();
    for (int size = 2; size <= SIZE; size *= 2) {
        // the second half backwards, so that every network ascends
        for (int p = threadIdx.x; p < ALL / 2; p += 256) {
            const int i = p / (size / 2) * size + p % (size / 2);
            order(words[i], words[i ^ (size - 1)]);
        }
        __syncthreads();
        for (int half = size / 4; half > 0; half /= 2) {
            for (int p = threadIdx.x; p < ALL / 2; p += 256) {
                const int i = p / half * (2 * half) + p % half;
                order(words[i], words[i + half]);
            }
            __syncthreads();
        }
    }
}

// How many of the first `d` words of two sorted runs, merged, are of the first. `a(i)` and `b(i)` give their words.
template <typename A, typename B>
__device__ __forceinline__ u64 split(A a, u64 n, B b, u64 m, u64 d) {
    u64 low = d > m ? d - m : 0, high = least(d, n);
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (is_less(a(middle), b(d - 1 - middle))) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// The `tile`-th `TILE` words of the merged runs of a lane, each of which has `run` words in `from` (Green and others,
// "GPU merge path", 2012).
template <int TILE>
__device__ void merge_tile(const Word *from, Word *to, u64 n, u64 run, u64 tile) {
    constexpr int ITEMS = TILE / 256;
    __shared__ __align__(16) unsigned char room[TILE * sizeof(Word)];
    __shared__ u64 ends[2];
    Word *words = (Word *)room;
    const u64 first = tile * TILE, pair = first / (2 * run) * (2 * run);
    const u64 middle = least(n, pair + run), end = least(n, pair + 2 * run);
    const Word *a = from + pair, *b = from + middle;
    const u64 na = middle - pair, nb = end - middle, d0 = first - pair, d1 = least(d0 + TILE, na + nb);
    if (threadIdx.x < 2) {
        const u64 d = threadIdx.x == 0 ? d0 : d1;
        ends[threadIdx.x] = split([&](u64 i) { return a[i]; }, na, [&](u64 i) { return b[i]; }, nb, d);
    }
    __syncthreads();
    const u64 a0 = ends[0], b0 = d0 - a0;
    const int count = (int)(d1 - d0), of_a = (int)(ends[1] - a0), of_b = count - of_a;
    for (int i = threadIdx.x; i < count; i += 256) words[i] = i < of_a ? a[a0 + i] : b[b0 + i - of_a];
    __syncthreads();
    const int own = threadIdx.x * ITEMS;
    if (own < count) {
        const Word *x = words, *y = words + of_a;
        int i = (int)split([&](u64 k) { return x[k]; }, of_a, [&](u64 k) { return y[k]; }, of_b, own), j = own - i;
        for (int k = own; k < own + ITEMS && k < count; ++k) {
            const bool is_a = j == of_b || (i < of_a && is_less(x[i], y[j]));
            to[first + k] = is_a ? x[i++] : y[j++];
        }
    }
    __syncthreads();
}

// The first of `n` sorted words whose key is `key` or above.
template <typename At>
__device__ __forceinline__ u64 first_from(At at, u64 n, u64 key) {
    u64 low = 0, high = n;
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (key_part(at(middle)) < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// The rank of the lower middle one: of all, or the first NaN; or of what is no NaN.
template <bool IS_FLOAT, typename At>
__device__ __forceinline__ u64 middle_rank(At at, u64 n, bool is_of_numbers) {
    const u64 numbers = IS_FLOAT ? first_from(at, n, NAN_KEY) : n;
    if (is_of_numbers) return numbers > 0 ? (numbers - 1) / 2 : 0;
    return numbers < n ? numbers : (n - 1) / 2;
}

// The rank of the last of the longest run of equal keys, the first of several, by a block of 256 threads.
template <typename At>
__device__ u64 mode_rank(At at, u64 n) {
    __shared__ u64 lengths[256], lasts[256];
    u64 length = 0, last = 0;
    for (u64 i = threadIdx.x; i < n; i += 256) {
        const u64 key = key_part(at(i));
        if (i > 0 && key_part(at(i - 1)) == key) continue;
        const u64 end = key == ~0ull ? n : first_from(at, n, key + 1);
        if (end - i > length) {
            length = end - i;
            last = end - 1;
        }
    }
    __syncthreads();
    lengths[threadIdx.x] = length;
    lasts[threadIdx.x] = last;
    __syncthreads();
    for (int k = 0; k < 256; ++k) {
        const bool is_better = lengths[k] > length || (lengths[k] == length && lasts[k] < last);
        length = is_better ? lengths[k] : length;
        last = is_better ? lasts[k] : last;
    }
    return last;
}
