// States of running functions. `wide` takes an element to a number to compute with.

struct Extreme {
    element value;
    i64 at;
};

// The last of equal extremes, or the last NaN; nowhere is below 0.
template <bool IS_MAX>
__device__ __forceinline__ Extreme later(Extreme a, Extreme b) {
    if (a.at < 0 || b.at < 0) return b.at < 0 ? a : b;
    const auto u = wide(a.value), v = wide(b.value);
    return v != v || (u == u && (IS_MAX ? v >= u : v <= u)) ? b : a;
}

// A sum of exponentials is `(rest + 1) e^most`.
struct Exponentials {
    double most, rest;
};
