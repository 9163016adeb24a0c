//! Scalar functions that rows of the tables are made of, each for a number and for an expression of one.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use remat_kernels::scalar::{Expr, Float, Fn64, Fn64x2, Int, Mask as _, lit};

/// The trait, and where each type has its functions from.
macro_rules! real {
    (@trait $($f:ident($($b:ident: $b_type:ty),*))*) => {
        /// A float that pointwise functions compute in. In f32 its functions are those of [`remat_kernels::maths`], which are
        /// arithmetic; in f64 they call the standard library and libm.
        pub(crate) trait Real: Float {
            $( fn $f(self, $($b: $b_type),*) -> Self; )*
        }
    };
    (@of $t:ty, $from:ident, $($f:ident($($b:ident: $b_type:ty),*))*) => {
        impl Real for $t {
            $( #[inline(always)] fn $f(self, $($b: $b_type),*) -> Self { $from::$f(self, $($b),*) } )*
        }
    };
    ($($functions:tt)*) => {
        real! { @trait $($functions)* }
        real! { @of f32, single, $($functions)* }
        real! { @of Expr<'_, f32>, single, $($functions)* }
        real! { @of f64, double, $($functions)* }
        real! { @of Expr<'_, f64>, double, $($functions)* }
    };
}

real! {
    // a function of f64, rounded
    by(f: Fn64) with(b: Self, f: Fn64x2)
    // the logarithms of the library in f32 too
    library_ln() library_ln_1p()
    exp() exp_m1() exp2() ln() ln_1p() log2() log10() pow(b: Self) hypot(b: Self)
    sin() cos() tan() asin() acos() atan() atan2(b: Self) sinh() cosh() tanh() asinh() acosh() atanh()
    // `softplus_below(x)` is `ln(1 + exp(-|x|))`; `gelu_slope` is the derivative of `gelu`
    sigmoid() silu() softplus() softplus_below() log_add_exp(b: Self) gelu() gelu_slope() gelu_tanh()
    erf() erfc() erfinv()
}

/// In f32.
mod single {
    use remat_kernels::scalar::{Double as _, Fn32, Fn64, Fn64x2, Single};

    pub(super) use remat_kernels::maths::{
        acos, acosh, asin, asinh, atan, atan2, atanh, cos, cosh, erf, erfc, erfinv, exp, exp_m1, exp2, gelu,
        gelu_slope, gelu_tanh, hypot, ln, ln_1p, log_add_exp, log2, log10, pow, sigmoid, silu, sin, sinh, softplus,
        softplus_below, tan, tanh,
    };

    #[inline(always)]
    pub(super) fn by<F: Single>(x: F, f: Fn64) -> F {
        F::nearest(x.wide().call(f))
    }

    #[inline(always)]
    pub(super) fn with<F: Single>(a: F, b: F, f: Fn64x2) -> F {
        F::nearest(a.wide().call2(b.wide(), f))
    }

    #[inline(always)]
    pub(super) fn library_ln<F: Single>(x: F) -> F {
        x.call(Fn32::Ln)
    }

    #[inline(always)]
    pub(super) fn library_ln_1p<F: Single>(x: F) -> F {
        x.call(Fn32::Ln1p)
    }
}

/// In f64, as they are written.
mod double {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2};

    use remat_kernels::scalar::{Double, Fn64, Fn64x2, Mask as _, lit};

    macro_rules! calls {
        ($($f:ident: $name:ident)*) => { $(
            #[inline(always)]
            pub(super) fn $f<D: Double>(x: D) -> D { x.call(Fn64::$name) }
        )* };
        (two $($f:ident: $name:ident)*) => { $(
            #[inline(always)]
            pub(super) fn $f<D: Double>(a: D, b: D) -> D { a.call2(b, Fn64x2::$name) }
        )* };
    }
    calls! {
        exp: Exp exp_m1: ExpM1 exp2: Exp2 ln: Ln ln_1p: Ln1p log2: Log2 log10: Log10 library_ln: Ln library_ln_1p: Ln1p
        sin: Sin cos: Cos tan: Tan asin: Asin acos: Acos atan: Atan sinh: Sinh cosh: Cosh tanh: Tanh asinh: Asinh
        acosh: Acosh atanh: Atanh erf: Erf erfc: Erfc erfinv: Erfinv
    }
    calls! { two pow: Pow hypot: Hypot atan2: Atan2 }

    #[inline(always)]
    pub(super) fn by<D: Double>(x: D, f: Fn64) -> D {
        x.call(f)
    }

    #[inline(always)]
    pub(super) fn with<D: Double>(a: D, b: D, f: Fn64x2) -> D {
        a.call2(b, f)
    }

    #[inline(always)]
    pub(super) fn softplus_below<D: Double>(x: D) -> D {
        ln_1p(exp(-x.abs()))
    }

    #[inline(always)]
    pub(super) fn softplus<D: Double>(x: D) -> D {
        x.larger(lit(0.0)) + softplus_below(x)
    }

    #[inline(always)]
    pub(super) fn log_add_exp<D: Double>(a: D, b: D) -> D {
        a.eq(b).pick(|| a + lit(LN_2), || a.larger(b) + softplus_below(a - b))
    }

    #[inline(always)]
    pub(super) fn sigmoid<D: Double>(x: D) -> D {
        D::lit(1.0) / (D::lit(1.0) + exp(-x))
    }

    #[inline(always)]
    pub(super) fn silu<D: Double>(x: D) -> D {
        x * sigmoid(x)
    }

    #[inline(always)]
    fn normal_cdf<D: Double>(x: D) -> D {
        D::lit(0.5) * erfc(-x * lit(FRAC_1_SQRT_2))
    }

    #[inline(always)]
    pub(super) fn gelu<D: Double>(x: D) -> D {
        x * normal_cdf(x)
    }

    #[inline(always)]
    pub(super) fn gelu_slope<D: Double>(x: D) -> D {
        const HEIGHT: f64 = 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
        normal_cdf(x) + x * (D::lit(HEIGHT) * exp(D::lit(-0.5) * x * x))
    }

    #[inline(always)]
    pub(super) fn gelu_tanh<D: Double>(x: D) -> D {
        D::lit(0.5) * x * (D::lit(1.0) + tanh(super::gelu_inner(x)))
    }
}

/// The argument of `tanh` in the tanh form of GELU: `sqrt(2/pi) (x + 0.044715 x^3)`.
#[inline(always)]
pub(super) fn gelu_inner<F: Float>(x: F) -> F {
    F::lit(FRAC_2_SQRT_PI) * F::lit(FRAC_1_SQRT_2) * (x + F::lit(0.044715) * x * x * x)
}

/// -1, 0 or 1; NaN stays. Zero keeps its sign.
#[inline(always)]
pub(super) fn sign<F: Float>(x: F) -> F {
    x.gt(lit(0.0)).select(lit(1.0), x.lt(lit(0.0)).select(lit(-1.0), x))
}

/// The floor of the exact `a / b`, which fits [`remat_kernels::maths::floor_rem`]; `a / b` for `b = 0`, NaN for an infinite `a`.
#[inline(always)]
pub(super) fn floor_div<F: Float>(a: F, b: F) -> F {
    // as CPython's float_divmod: the rest is a multiple of b except for rounding
    let r = a % b;
    let beyond = r.ne(lit(0.0)) & (r.lt(lit(0.0)) ^ b.lt(lit(0.0)));
    let q = (a - r) / b - beyond.select(lit(1.0), lit(0.0));
    let floor = q.floor();
    let whole = (q - floor).gt(lit(0.5)).select(floor + lit(1.0), floor);
    b.eq(lit(0.0)).select(a / b, q.eq(lit(0.0)).select(q.copysign(a / b), whole))
}

/// The binary cross-entropy of the logit `x` with the target `y`, without cancellation.
#[inline(always)]
pub(super) fn bce_with_logits<F: Real>(x: F, y: F) -> F {
    let off = x.gt(lit(0.0)).select(F::lit(1.0) - y, y);
    let far = off.eq(lit(0.0)).select(lit(0.0), x.abs() * off);
    far + x.softplus_below()
}

/// The derivative of it: `sigmoid(x) - y`.
#[inline(always)]
pub(super) fn bce_slope<F: Real>(x: F, y: F) -> F {
    let tail = (-x.abs()).sigmoid();
    x.gt(lit(0.0)).select((F::lit(1.0) - y) - tail, tail - y)
}

/// The binary cross-entropy of the probability `p` with the target `y`, of logarithms that are at least -100.
#[inline(always)]
pub(super) fn bce<F: Real>(p: F, y: F) -> F {
    let least = |log: F| log.lt(lit(-100.0)).select(lit(-100.0), log);
    F::lit(0.0) - ((F::lit(1.0) - y) * least((-p).library_ln_1p()) + y * least(p.library_ln()))
}

/// True if the remainder of a division by `b` has the other sign, so that the floor is one less. It is never true of unsigned
/// integers.
#[inline(always)]
fn is_beyond<I: Int>(r: I, b: I) -> I::Mask {
    r.ne(I::lit(0)) & (r ^ b).lt(I::lit(0))
}

/// `floor(a / b)`, wrapping; `b` is not 0, which the op has checked.
#[inline(always)]
pub(super) fn int_floor_div<I: Int>(a: I, b: I) -> I {
    let q = a.wrapping_div(b);
    is_beyond(a.wrapping_rem(b), b).select(q.wrapping_sub(I::lit(1)), q)
}

/// `a - b floor(a / b)`, wrapping.
#[inline(always)]
pub(super) fn int_floor_rem<I: Int>(a: I, b: I) -> I {
    let r = a.wrapping_rem(b);
    is_beyond(r, b).select(r.wrapping_add(b), r)
}

/// `a` shifted left; 0 where `b`, which is not negative, is the width or more.
#[inline(always)]
pub(super) fn int_shl<I: Int>(a: I, b: I) -> I {
    b.ge(I::lit(I::BITS.into())).select(I::lit(0), a.shl(b))
}

/// `a` shifted right, filled with the sign; where `b`, which is not negative, is the width or more, the filling.
#[inline(always)]
pub(super) fn int_shr<I: Int>(a: I, b: I) -> I {
    let last = I::lit(i64::from(I::BITS) - 1);
    b.gt(last).select(a.shr(last).shr(I::lit(1)), a.shr(b))
}
