// Running functions along an axis. `State` is what is known of some elements in a row, with `nothing()`, `of(element,
// place)` and `join(state, state)`, of which the joined ones lie one behind the other; `put(i, state)` writes an
// output.

// How an axis is walked.
struct Along {
    u64 n, inner;
    bool is_reverse, is_exclusive;

    // The place of the `k`-th element of the walk, and its index in a lane.
    __device__ u64 place(u64 k) const { return is_reverse ? n - 1 - k : k; }

    __device__ u64 base(u64 lane) const { return lane / inner * n * inner + lane % inner; }
};

// A lane by a thread, in the order of the walk.
template <typename Put>
__device__ __forceinline__ void walk_lane(Along along, u64 lane, const element *x, Put put) {
    const u64 base = along.base(lane);
    State state = nothing();
#pragma unroll 4
    for (u64 k = 0; k < along.n; ++k) {
        const u64 place = along.place(k), i = base + place * along.inner;
        const State next = k == 0 ? of(x[i], place) : join(state, of(x[i], place));
        put(i, along.is_exclusive ? state : next);
        state = next;
    }
}

template <typename T>
union Words {
    u32 word[(sizeof(T) + 3) / 4];
    T value;
};

// The value of the thread that is `by` before in a warp.
__device__ __forceinline__ State from_before(State x, int by) {
    Words<State> from, to;
    from.value = x;
#pragma unroll
    for (int w = 0; w < (int)(sizeof(State) / 4); ++w) to.word[w] = __shfl_up_sync(0xffffffffu, from.word[w], by);
    return to.value;
}

// The elements `from .. to` of a walk by a block of 256 threads, behind those of which `carry` is the state; gives the
// state of all.
template <typename Put>
__device__ State walk_part(Along along, u64 lane, u64 from, u64 to, State carry, const element *x, Put put) {
    constexpr int ITEMS = 8, WARPS = 8;
    __shared__ __align__(16) unsigned char room[WARPS * sizeof(State)];
    State *totals = (State *)room;
    const int warp = threadIdx.x / 32, number = threadIdx.x % 32;
    const u64 base = along.base(lane);
    for (u64 tile = from; tile < to; tile += 256 * ITEMS) {
        const u64 first = tile + threadIdx.x * ITEMS;
        State own[ITEMS], all = nothing();
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const u64 place = along.place(first + j);
            if (first + j < to) all = join(all, of(x[base + place * along.inner], place));
            own[j] = all;
        }
#pragma unroll
        for (int by = 1; by < 32; by *= 2) {
            const State before = from_before(all, by);
            if (number >= by) all = join(before, all);
        }
        if (number == 31) totals[warp] = all;
        const State neighbour = from_before(all, 1);
        __syncthreads();
        State before = carry;
        for (int w = 0; w < WARPS; ++w) {
            if (w < warp) before = join(before, totals[w]);
            carry = join(carry, totals[w]);
        }
        if (number > 0) before = join(before, neighbour);
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            // what the thread has before an element that does not count itself
            const State earlier = j > 0 ? own[j > 0 ? j - 1 : 0] : nothing();
            const State seen = join(before, along.is_exclusive ? earlier : own[j]);
            if (first + j < to) put(base + along.place(first + j) * along.inner, seen);
        }
        __syncthreads();
    }
    return carry;
}
