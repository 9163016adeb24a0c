//! Errors of the functions of f32 in units in the last place, against references in f64.

use remat_kernels::float::Real;
use remat_kernels::maths;
use remat_kernels::pointwise::each1;

/// A function on slices and its reference.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) f: fn(&[f32], &mut [f32]),
    pub(crate) exact: fn(f64) -> f64,
}

/// The worst that was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worst {
    /// Units in the last place.
    pub(crate) ulps: f64,
    /// Where.
    pub(crate) x: f32,
    /// Arguments whose result is not the correctly rounded one.
    pub(crate) others: u64,
    /// Arguments that were tried.
    pub(crate) tried: u64,
}

fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// `x` times what goes to 0 at minus infinity faster than `x` grows.
fn times(x: f64, y: f64) -> f64 {
    if x == f64::NEG_INFINITY { f64::NAN } else { x * y }
}

fn sigmoid(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}

fn gelu_tanh(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    times(x, sigmoid(2.0 * u))
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// By Newton's method on the error function, and towards the ends on its complement, whose argument `1 - |x|` is exact.
fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    if a == 1.0 {
        return f64::INFINITY.copysign(x);
    }
    let mut y = f64::from(maths::erfinv(a as f32));
    for _ in 0..3 {
        let off = if a < 0.5 { libm::erf(y) - a } else { (1.0 - a) - libm::erfc(y) };
        y -= off / (std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp());
    }
    y.copysign(x)
}

macro_rules! unary {
    ($name:literal, $f:expr, $exact:expr) => {
        Function { name: $name, f: |x, y| each1(x, y, $f), exact: $exact }
    };
}

/// Every function that is stated to be within 2 ulp; those of two arguments with one fixed.
pub(crate) static ALL: [Function; 34] = [
    unary!("exp_m1", maths::exp_m1, f64::exp_m1),
    unary!("ln_1p", maths::ln_1p, f64::ln_1p),
    unary!("log2", maths::log2, f64::log2),
    unary!("log10", maths::log10, f64::log10),
    unary!("exp2", maths::exp2, f64::exp2),
    unary!("sinh", maths::sinh, f64::sinh),
    unary!("cosh", maths::cosh, f64::cosh),
    unary!("asinh", maths::asinh, libm::asinh),
    unary!("acosh", maths::acosh, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }),
    unary!("atanh", maths::atanh, libm::atanh),
    unary!("asin", maths::asin, f64::asin),
    unary!("acos", maths::acos, f64::acos),
    unary!("atan", maths::atan, f64::atan),
    Function { name: "tan", f: maths::tan_each, exact: f64::tan },
    unary!("softplus", maths::softplus, softplus),
    unary!("erfinv", maths::erfinv, erfinv),
    unary!("atan2(x, 0.75)", |x| maths::atan2(x, 0.75), |x| x.atan2(0.75)),
    unary!("atan2(-1.5, x)", |x| maths::atan2(-1.5, x), |x| (-1.5f64).atan2(x)),
    unary!("log_add_exp(x, 0.25)", |x| maths::log_add_exp(x, 0.25), |x| x.max(0.25)
        + (-(x - 0.25).abs()).exp().ln_1p()),
    unary!("pow(x, 2.5)", |x| maths::pow(x, 2.5), |x| x.powf(2.5)),
    unary!("pow(x, -3)", |x| maths::pow(x, -3.0), |x| x.powf(-3.0)),
    unary!("pow(1.75, x)", |x| maths::pow(1.75, x), |x| 1.75f64.powf(x)),
    unary!("pow(-2, x)", |x| maths::pow(-2.0, x), |x| (-2f64).powf(x)),
    Function { name: "exp", f: |x, y| each1(x, y, Real::exp), exact: f64::exp },
    Function { name: "log", f: |x, y| each1(x, y, maths::ln), exact: f64::ln },
    Function { name: "tanh", f: |x, y| each1(x, y, maths::tanh), exact: f64::tanh },
    Function { name: "erf", f: |x, y| each1(x, y, maths::erf), exact: libm::erf },
    Function { name: "erfc", f: |x, y| each1(x, y, maths::erfc), exact: libm::erfc },
    Function { name: "sin", f: maths::sin_each, exact: f64::sin },
    Function { name: "cos", f: maths::cos_each, exact: f64::cos },
    Function { name: "sigmoid", f: |x, y| each1(x, y, maths::sigmoid), exact: sigmoid },
    Function { name: "silu", f: |x, y| each1(x, y, maths::silu), exact: |x| times(x, sigmoid(x)) },
    Function { name: "gelu", f: |x, y| each1(x, y, maths::gelu), exact: |x| times(x, normal(x)) },
    Function { name: "gelu_tanh", f: |x, y| each1(x, y, maths::gelu_tanh), exact: gelu_tanh },
];

/// The distance of `got` from `want` in units in the last place of `want`; infinite where one is NaN or infinite and the
/// other is not.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got.is_nan() || rounded.is_nan() {
        return if got.is_nan() && rounded.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == rounded {
        return if got.is_finite() { (f64::from(got) - want).abs() / unit(rounded) } else { 0.0 };
    }
    // a neighbour of the largest number may be infinite
    let finite = |v: f32| if v.is_infinite() { f64::from(f32::MAX) + unit(f32::MAX) } else { f64::from(v) };
    (finite(got).copysign(f64::from(got)) - want.clamp(-finite(f32::INFINITY), finite(f32::INFINITY))).abs()
        / unit(rounded)
}

/// The gap between numbers of the size of `v`.
fn unit(v: f32) -> f64 {
    let e = ((v.to_bits() >> 23 & 255) as i32).max(1) - 150;
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// The worst of the arguments whose bits are `from`, `from + step`, ... below `to`.
pub(crate) fn worst(f: &Function, from: u64, to: u64, step: u64) -> Worst {
    const BLOCK: u64 = 1024;
    let (mut x, mut y) = (Vec::new(), vec![0.0; BLOCK as usize]);
    let mut w = Worst::default();
    let mut at = from;
    while at < to {
        x.clear();
        x.extend((0..BLOCK).map(|i| at + i * step).take_while(|b| *b < to).map(|b| f32::from_bits(b as u32)));
        (f.f)(&x, &mut y[..x.len()]);
        for (&x, &y) in x.iter().zip(&y) {
            let want = (f.exact)(f64::from(x));
            let u = ulps(y, want);
            w.others += u64::from(u > 0.0 && y != want as f32);
            if u > w.ulps {
                (w.ulps, w.x) = (u, x);
            }
        }
        w.tried += x.len() as u64;
        at += BLOCK * step;
    }
    w
}
