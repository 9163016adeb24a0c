// Second pass of the logarithm of a sum of exponentials, about the maximum that the first pass left.

// nothing is subtracted where the maximum is infinite, so that no inf - inf arises
__device__ __forceinline__ float shift_of(float most) { return fabsf(most) == f32_of_bits(0x7f800000u) ? 0 : most; }
__device__ __forceinline__ double shift_of(double most) { return is_infinite(most) ? 0 : most; }

struct ShiftedExp : Sum<float, double> {
    typedef float Parameter;
    static __device__ float parameter(const result *y) { return shift_of((float)up(*y)); }
    static __device__ float step(float a, element x, float most, u64) { return a + exponential((float)up(x) - most); }
    static __device__ result finish(double a, float most, Numbers) { return down((double)most + ln_f64(a)); }
};

// what is below the largest, and how often that is there: its ones would hide the others
struct Exponentials {
    double rest, count;
};

struct ShiftedExp64 {
    typedef Exponentials Lane;
    typedef Exponentials Total;
    typedef double Parameter;
    static __device__ double parameter(const result *y) { return shift_of((double)up(*y)); }
    static __device__ Lane lane() { return Lane{0, 0}; }
    static __device__ Lane step(Lane a, element x, double most, u64) {
        const double v = (double)up(x);
        return v == most ? Lane{a.rest, a.count + 1} : Lane{a.rest + exp_f64(v - most), a.count};
    }
    static __device__ Lane join(Lane a, Lane b) { return Lane{a.rest + b.rest, a.count + b.count}; }
    static __device__ Lane total() { return lane(); }
    static __device__ Lane add(Lane a, Lane b) { return join(a, b); }
    static __device__ Lane merge(Lane a, Lane b) { return join(a, b); }
    static __device__ result finish(Lane a, double most, Numbers) {
        return down(most + (a.count == 1 ? ln_1p_f64(a.rest) : ln_f64(a.count + a.rest)));
    }
};
