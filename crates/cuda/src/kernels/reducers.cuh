// What a reduction does with its elements: the reducers of the CPU's kernels, whose steps these are one by one.
//
// `element` and `result` are the types in memory. A reducer has a lane, the accumulator of neighbouring elements, and a
// total, that of lanes. A second pass reads what a first one left in the output: its parameter.

// Numbers of a reduction that finish an output: the elements of one, and a divisor of their squares.
struct Numbers {
    double count, divisor;
};

// the parameter of reducers that have none
struct Nothing {};

// Elements, as `L`, are added up to lanes, and lanes, as `W`, to totals.
template <typename L, typename W>
struct Sum {
    typedef L Lane;
    typedef W Total;
    typedef Nothing Parameter;
    static __device__ Nothing parameter(const result *) { return Nothing(); }
    static __device__ L lane() { return 0; }
    static __device__ L step(L a, element x, Nothing, u64) { return a + up(x); }
    static __device__ L join(L a, L b) { return a + b; }
    static __device__ W total() { return 0; }
    static __device__ W add(W a, L b) { return a + (W)b; }
    static __device__ W merge(W a, W b) { return a + b; }
    static __device__ result finish(W a, Nothing, Numbers) { return down(a); }
};

template <typename L, typename W>
struct Mean : Sum<L, W> {
    static __device__ result finish(W a, Nothing, Numbers n) { return down(a / n.count); }
};

template <typename L, typename W>
struct SumSqr : Sum<L, W> {
    static __device__ L step(L a, element x, Nothing, u64) { return a + up(x) * up(x); }
};

template <typename L, typename W>
struct Prod {
    typedef L Lane;
    typedef W Total;
    typedef Nothing Parameter;
    static __device__ Nothing parameter(const result *) { return Nothing(); }
    static __device__ L lane() { return 1; }
    static __device__ L step(L a, element x, Nothing, u64) { return a * up(x); }
    static __device__ L join(L a, L b) { return a * b; }
    static __device__ W total() { return 1; }
    static __device__ W add(W a, L b) { return a * b; }
    static __device__ W merge(W a, W b) { return a * b; }
    static __device__ result finish(W a, Nothing, Numbers) { return down(a); }
};

// The largest, or else the smallest, or a NaN. `L` is a number for a comparison.
template <bool IS_MAX>
struct Pick {
    typedef element Lane;
    typedef element Total;
    typedef Nothing Parameter;
    static __device__ Nothing parameter(const result *) { return Nothing(); }
    static __device__ element lane() { return first(); }
    static __device__ element step(element a, element b, Nothing, u64) { return join(a, b); }
    static __device__ element join(element a, element b) {
        const auto u = up(a), v = up(b);
        return v != v || (IS_MAX ? v > u : v < u) ? b : a;
    }
    static __device__ element total() { return first(); }
    static __device__ element add(element a, element b) { return join(a, b); }
    static __device__ element merge(element a, element b) { return join(a, b); }
    static __device__ result finish(element a, Nothing, Numbers) { return (result)a; }
};

// An element and where it is; nowhere, all ones, for none.
struct Place {
    element value;
    u64 at;
};

// Where the first of the extreme elements is, or the first NaN.
template <bool IS_MAX>
struct Arg {
    typedef Place Lane;
    typedef Place Total;
    typedef Nothing Parameter;
    static __device__ Nothing parameter(const result *) { return Nothing(); }
    static __device__ Place lane() { return Place{0, ~0ull}; }
    static __device__ bool is_better(Place a, Place b) {
        const auto u = up(a.value), v = up(b.value);
        return (IS_MAX ? u > v : u < v) || (u != u && v == v);
    }
    static __device__ Place step(Place a, element x, Nothing, u64 at) { return join(a, Place{x, at}); }
    static __device__ Place join(Place a, Place b) {
        if (a.at == ~0ull || b.at == ~0ull) return a.at == ~0ull ? b : a;
        if (is_better(b, a)) return b;
        return is_better(a, b) || a.at < b.at ? a : b;
    }
    static __device__ Place total() { return lane(); }
    static __device__ Place add(Place a, Place b) { return join(a, b); }
    static __device__ Place merge(Place a, Place b) { return join(a, b); }
    static __device__ result finish(Place a, Nothing, Numbers) { return (result)a.at; }
};

// A sum of squares of numbers whose squares double holds.
struct Squares {
    double sum;
    static __device__ Squares none() { return Squares{0}; }
    __device__ Squares with(double d) const { return Squares{sum + d * d}; }
    __device__ Squares plus(Squares b) const { return Squares{sum + b.sum}; }
    // the sum is this over the square of the unit
    __device__ double scaled(double &unit) const {
        unit = 1;
        return sum;
    }
};

// A sum of squares of any doubles: each under the scale of its size (Blue, "A portable Fortran program to find the
// Euclidean norm of a vector", 1978).
struct BySize {
    double small, middle, large;
    static __device__ BySize none() { return BySize{0, 0, 0}; }
    __device__ BySize with(double d) const {
        const double size = fabs(d), up = d * 0x1p540, down = d * 0x1p-540;
        const bool is_large = size > 0x1p470, is_small = size < 0x1p-470;
        return BySize{small + (is_small ? up * up : 0.0), middle + (is_small || is_large ? 0.0 : d * d),
                      large + (is_large ? down * down : 0.0)};
    }
    __device__ BySize plus(BySize b) const { return BySize{small + b.small, middle + b.middle, large + b.large}; }
    __device__ double scaled(double &unit) const {
        const double down = 0x1p-540;
        unit = large != 0 ? down : middle == 0 ? 0x1p540 : 1.0;
        if (large != 0) return large + middle * down * down;
        return middle == 0 ? small : middle + small * down * down;
    }
};

template <typename S>
struct Norm {
    typedef S Lane;
    typedef S Total;
    typedef Nothing Parameter;
    static __device__ Nothing parameter(const result *) { return Nothing(); }
    static __device__ S lane() { return S::none(); }
    static __device__ S step(S a, element x, Nothing, u64) { return a.with((double)up(x)); }
    static __device__ S join(S a, S b) { return a.plus(b); }
    static __device__ S total() { return S::none(); }
    static __device__ S add(S a, S b) { return a.plus(b); }
    static __device__ S merge(S a, S b) { return a.plus(b); }
    static __device__ result finish(S a, Nothing, Numbers) {
        double unit;
        const double squares = a.scaled(unit);
        return down(__dsqrt_rn(squares) / unit);
    }
};

// The sums of differences from a mean and of their squares.
template <typename S>
struct Moments {
    double sum;
    S squares;
};

// Second pass of a variance: of the sums about the rounded mean that the first pass left.
template <typename S>
struct Deviation {
    typedef Moments<S> Lane;
    typedef Moments<S> Total;
    typedef double Parameter;
    static __device__ double parameter(const result *y) { return (double)up(*y); }
    static __device__ Lane lane() { return Lane{0, S::none()}; }
    static __device__ Lane step(Lane a, element x, double mean, u64) {
        const double d = (double)up(x) - mean;
        return Lane{a.sum + d, a.squares.with(d)};
    }
    static __device__ Lane join(Lane a, Lane b) { return Lane{a.sum + b.sum, a.squares.plus(b.squares)}; }
    static __device__ Lane total() { return lane(); }
    static __device__ Lane add(Lane a, Lane b) { return join(a, b); }
    static __device__ Lane merge(Lane a, Lane b) { return join(a, b); }
    static __device__ result finish(Lane a, double, Numbers n) {
        const double left = a.squares.sum - a.sum * a.sum / n.count;
        // rounding alone takes more than there is
        return down((left < 0 ? 0.0 : left) / n.divisor);
    }
};

// As `Deviation`, and the root of it. What is within the rounding of the squares is 0.
template <typename S>
struct RootDeviation : Deviation<S> {
    static __device__ result finish(Moments<S> a, double, Numbers n) {
        double unit;
        const double squares = a.squares.scaled(unit);
        const double sum = a.sum * unit;
        double left = squares - sum * sum / n.count;
        if (left <= n.count * 0x1p-52 * squares) left = 0;
        return down(__dsqrt_rn(left / n.divisor) / unit);
    }
};
