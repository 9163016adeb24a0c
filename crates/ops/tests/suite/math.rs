//! Special functions at values that are known.

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2};

use remat_kernels::pool::Pool;
use remat_ops::eval_on_host;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_types::{Element, HostTensor};

/// The functions, as their ops compute them.
trait Functions: Element {
    fn erfinv(self) -> Self {
        unary(UnaryFn::Erfinv, self)
    }
    fn erfcinv(self) -> Self {
        unary(UnaryFn::Erfcinv, self)
    }
    fn log_add_exp(self, other: Self) -> Self {
        let x = [HostTensor::scalar(self), HostTensor::scalar(other)];
        value(&eval_on_host(&Binary { f: BinaryFn::LogAddExp }, &x, &Pool::new(1)).expect("computes")[0])
    }
}

impl Functions for f32 {}
impl Functions for f64 {}

fn unary<T: Element>(f: UnaryFn, x: T) -> T {
    value(&eval_on_host(&Unary { f }, &[HostTensor::scalar(x)], &Pool::new(1)).expect("computes")[0])
}

fn value<T: Element>(t: &HostTensor) -> T {
    t.item().expect("one element")
}

#[test]
fn the_inverses_undo_erf_and_erfc_over_their_whole_range() {
    for i in -999..=999 {
        let p = f64::from(i) / 1000.0;
        let x = p.erfinv();
        // erf is flat near the ends: the error in x that one rounding of p allows
        let slack = 4.0 * f64::EPSILON * (p.abs() / (FRAC_2_SQRT_PI * (-x * x).exp()) + x.abs());
        let step = (libm::erf(x) - p).abs() / (FRAC_2_SQRT_PI * (-x * x).exp());
        assert!(step <= slack.max(f64::EPSILON * x.abs()), "erfinv({p}) = {x}, off by {step:e}");
    }
    for e in 1..300 {
        let q = 10f64.powi(-e);
        let x = q.erfcinv();
        assert!((libm::erfc(x) / q - 1.0).abs() < 4e-13, "erfcinv({q:e}) = {x}");
        assert!((f64::from((q as f32).erfcinv()) - x).abs() < 1e-6 * x || q < 1e-37);
    }
}

#[test]
fn known_values_of_the_inverses() {
    // Wolfram: InverseErf[1/2], InverseErfc[10^-10]
    assert!((0.5f64.erfinv() - 0.476_936_276_204_469_9).abs() < 2e-16);
    assert!((1e-10f64.erfcinv() - 4.572_824_967_389_486).abs() < 4e-15);
    assert_eq!(1.0f64.erfinv(), f64::INFINITY);
    assert_eq!(2.0f32.erfcinv(), f32::NEG_INFINITY);
    assert!(1.5f64.erfinv().is_nan() && (-0.1f64).erfcinv().is_nan());
    assert_eq!(0.0f64.erfinv(), 0.0);
}

#[test]
fn log_add_exp_keeps_infinities_and_nan() {
    let inf = f64::INFINITY;
    assert_eq!((-inf).log_add_exp(-inf), -inf);
    assert_eq!(inf.log_add_exp(3.0), inf);
    assert_eq!((-inf).log_add_exp(3.0), 3.0);
    assert!(f64::NAN.log_add_exp(1.0).is_nan() && 1.0.log_add_exp(f64::NAN).is_nan());
    assert!((1000f64.log_add_exp(1000.0) - (1000.0 + LN_2)).abs() < 1e-12);
}
