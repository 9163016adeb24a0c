// Reductions in the order of the CPU's kernels, so that their bits are those.
//
// An output is a fold over parts, a part over units, and a unit over some neighbouring elements. Units are independent.
// They come to lanes, which are added up in order to the totals of parts, and these in order to that of the output. `R`
// is the reducer, `load(i)` gives an element by its index, `kept` and `reduced` give where an index over the kept and
// the reduced axes begins.

// elements of a block of a run, and rows of a block of columns
constexpr u64 BLOCK = 256, ROWS = 32;
// threads that fold a block of a run together
constexpr int LANES = 16;

__device__ __forceinline__ u64 least(u64 a, u64 b) { return a < b ? a : b; }

// The value of the thread that is `by` further in a group of 16.
template <typename T>
__device__ __forceinline__ T from_beyond(T x, int by) {
    constexpr int WORDS = (sizeof(T) + 3) / 4;
    union Words {
        u32 word[WORDS];
        T value;
        __device__ Words() { word[WORDS - 1] = 0; }
    } from, to;
    from.value = x;
    const u32 members = 0xffffu << (threadIdx.x & 16);
#pragma unroll
    for (int w = 0; w < WORDS; ++w) to.word[w] = __shfl_down_sync(members, from.word[w], by, LANES);
    return to.value;
}

// The innermost axes are reduced. Pieces are contiguous, and are cut to units of `BLOCK` elements.
struct Runs {
    u64 pieces, length, last, per_part, blocks;

    __device__ u64 elems(u64 piece) const { return piece + 1 == pieces ? last : length; }

    __device__ u64 units(u64, u64 part) const {
        const u64 first = part * per_part;
        if (first >= pieces) return 0;
        const u64 n = least(per_part, pieces - first);
        return (n - 1) * blocks + (elems(first + n - 1) + BLOCK - 1) / BLOCK;
    }

    template <typename Kept>
    __device__ u64 base(u64 o, Kept kept) const {
        return kept(o);
    }

    // The lane of a unit by `G` threads: lanes of every 16th element, joined as a tree. Only the first thread's is
    // right.
    template <typename R, int G, int UNROLL, typename Load, typename Reduced>
    __device__ typename R::Lane fold(u64 base, u64, u64 part, u64 unit, typename R::Parameter p, Load load,
                                     Reduced reduced) const {
        const u64 piece = part * per_part + unit / blocks, at = unit % blocks * BLOCK;
        const u64 n = least(BLOCK, elems(piece) - at);
        const u64 from = base + reduced(piece) + at, position = piece * length + at;
        const u64 t = threadIdx.x % G;
        typename R::Lane lane = R::lane();
        if (G == 1 || n < LANES) {
            for (u64 j = 0; t == 0 && j < n; ++j) lane = R::step(lane, load(from + j), p, position + j);
            return lane;
        }
        if (n == BLOCK) {
#pragma unroll UNROLL
            for (int j = 0; j < (int)BLOCK; j += LANES) lane = R::step(lane, load(from + j + t), p, position + j + t);
        } else {
            for (u64 j = t; j < n; j += LANES) lane = R::step(lane, load(from + j), p, position + j);
        }
#pragma unroll
        for (int half = LANES / 2; half > 0; half /= 2) lane = R::join(lane, from_beyond(lane, half));
        return lane;
    }
};

// The innermost axes are kept: `width` neighbouring columns. A unit is one column of as many as `ROWS` rows, `together`
// apart. The columns from `tail` on have parts of another length.
struct Columns {
    u64 width, rows, together, tail, part_rows, tail_rows;

    __device__ u64 length(u64 o) const { return o % width < tail ? part_rows : tail_rows; }

    __device__ u64 units(u64 o, u64 part) const {
        const u64 from = part * length(o);
        if (from >= rows) return 0;
        const u64 n = least(length(o), rows - from);
        return (n / together + ROWS - 1) / ROWS * together + (n % together != 0);
    }

    template <typename Kept>
    __device__ u64 base(u64 o, Kept kept) const {
        return kept(o / width) + o % width;
    }

    template <typename R, int G, int UNROLL, typename Load, typename Reduced>
    __device__ typename R::Lane fold(u64 base, u64 o, u64 part, u64 unit, typename R::Parameter p, Load load,
                                     Reduced reduced) const {
        const u64 from = part * length(o), n = least(length(o), rows - from), whole = n / together;
        // rows that are too few for one more to each of those together are folded one after the other
        const u64 group = unit / together * ROWS;
        const bool is_rest = group >= whole;
        const u64 row = from + (is_rest ? whole * together : group * together + unit % together);
        const u64 count = is_rest ? n % together : least(ROWS, whole - group), step = is_rest ? 1 : together;
        typename R::Lane lane = R::lane();
#pragma unroll 4
        for (u64 j = 0; j < count; ++j) lane = R::step(lane, load(base + reduced(row + j * step)), p, row + j * step);
        return lane;
    }
};

// All of an output by `G` threads.
template <typename R, int G, int UNROLL, typename Shape, typename Load, typename Kept, typename Reduced>
__device__ __forceinline__ void fold_all(Shape shape, u64 outputs, u64 parts, result *y, Numbers numbers, Load load,
                                         Kept kept, Reduced reduced) {
    const u64 step = (u64)gridDim.x * blockDim.x / G;
    for (u64 o = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / G; o < outputs; o += step) {
        const typename R::Parameter p = R::parameter(y + o);
        const u64 base = shape.base(o, kept);
        typename R::Total all = R::total();
        for (u64 part = 0; part < parts; ++part) {
            typename R::Total total = R::total();
            const u64 units = shape.units(o, part);
            for (u64 unit = 0; unit < units; ++unit)
                total = R::add(total, shape.template fold<R, G, UNROLL>(base, o, part, unit, p, load, reduced));
            all = part == 0 ? total : R::merge(all, total);
        }
        if (threadIdx.x % G == 0) y[o] = R::finish(all, p, numbers);
    }
}

// The lanes of all units, each by `G` threads. A part has at most `most` units. Lanes of neighbouring columns are
// neighbours.
template <typename R, int G, int UNROLL, typename Shape, typename Load, typename Kept, typename Reduced>
__device__ __forceinline__ void fold_units(Shape shape, u64 outputs, u64 parts, u64 most, u64 width, const result *y,
                                           typename R::Lane *lanes, Load load, Kept kept, Reduced reduced) {
    const u64 step = (u64)gridDim.x * blockDim.x / G, all = outputs * parts * most;
    for (u64 s = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / G; s < all; s += step) {
        const u64 rest = s / width, unit = rest % most, part = rest / most % parts;
        const u64 o = rest / most / parts * width + s % width;
        if (unit >= shape.units(o, part)) continue;
        const typename R::Parameter p = R::parameter(y + o);
        const typename R::Lane lane =
            shape.template fold<R, G, UNROLL>(shape.base(o, kept), o, part, unit, p, load, reduced);
        if (threadIdx.x % G == 0) lanes[s] = lane;
    }
}

// The outputs of the lanes of all units: a thread for each part, of which a block has as many of `PARTS` outputs in a
// row.
template <typename R, int PARTS, typename Shape>
__device__ __forceinline__ void fold_lanes(Shape shape, u64 outputs, u64 parts, u64 most, u64 width, result *y,
                                           const typename R::Lane *lanes, Numbers numbers) {
    constexpr int OUTPUTS = 256 / PARTS;
    __shared__ __align__(16) unsigned char room[256 * sizeof(typename R::Total)];
    typename R::Total *totals = (typename R::Total *)room;
    const u64 part = threadIdx.x / OUTPUTS;
    for (u64 o0 = (u64)blockIdx.x * OUTPUTS; o0 < outputs; o0 += (u64)gridDim.x * OUTPUTS) {
        const u64 o = o0 + threadIdx.x % OUTPUTS;
        typename R::Total total = R::total();
        if (o < outputs && part < parts) {
            const u64 units = shape.units(o, part);
            const typename R::Lane *own = lanes + ((o / width * parts + part) * most * width + o % width);
            // a sum waits for the one before, and loads need not
#pragma unroll 8
            for (u64 unit = 0; unit < units; ++unit) total = R::add(total, own[unit * width]);
        }
        totals[threadIdx.x] = total;
        __syncthreads();
        if (o < outputs && part == 0) {
            for (u64 k = 1; k < parts; ++k) total = R::merge(total, totals[k * OUTPUTS + threadIdx.x]);
            y[o] = R::finish(total, R::parameter(y + o), numbers);
        }
        __syncthreads();
    }
}
