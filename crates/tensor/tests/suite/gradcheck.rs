//! The public gradient check passes what is right and catches what is wrong.

use remat_tensor::{Tensor, custom, gradcheck};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::support::{plain, wave};

fn host(v: &[f64]) -> HostTensor {
    HostTensor::from_slice(v, [v.len()]).expect("fits")
}

/// A function that claims to be a derivative.
type Slope = fn(&Tensor) -> Result<Tensor>;

/// `sin x` whose gradient is `slope(x) dy`.
fn sine_with(x: &Tensor, slope: Slope) -> Result<Tensor> {
    let at = x.detach();
    let y = vec![at.sin()?];
    let back = move |dy: &[Option<Tensor>]| {
        let dy = dy[0].as_ref().expect("the only output");
        Ok(vec![Some(dy.mul(&slope(&at)?)?)])
    };
    Ok(custom("sine", &[x], y, back)?.remove(0))
}

#[test]
fn right_gradients_pass() {
    let d = plain();
    let x = [host(&wave(6)), host(&wave(6)[..3])];
    let f = |x: &[Tensor]| x[0].reshape(&[2, 3])?.mul(&x[1].exp()?)?.tanh();
    let r = gradcheck(&d, &x, f).expect("evaluates");
    assert!(r.max_error < 1e-8 && r.max_gradient > 0.1, "{r:?}");
    let r = gradcheck(&d, &[host(&wave(5))], |x| sine_with(&x[0], Tensor::cos)).expect("evaluates");
    assert!(r.max_error < 1e-8 && r.max_gradient > 0.1, "{r:?}");
}

#[test]
fn wrong_gradients_are_found_and_located() {
    let d = plain();
    let wrong: [(&str, Slope); 4] = [
        ("negated", |x| x.cos()?.neg()),
        ("of another function", Tensor::sin),
        ("a little off", |x| x.cos()?.mul(1.0 + 1e-5)),
        ("NaN", |x| x.sub(10.0)?.log()),
    ];
    for (what, slope) in wrong {
        let r = gradcheck(&d, &[host(&wave(5))], |x| sine_with(&x[0], slope)).expect("evaluates");
        assert!(r.max_error > 1e-6 || r.max_error.is_nan(), "{what}: {r:?}");
    }
    // wrong in one element of the second input only
    let r = gradcheck(&d, &[host(&wave(4)), host(&wave(4))], |x| {
        let one = |x: &Tensor| x.cos()?.add(Tensor::new(&x.device(), &[0.0, 0.0, 0.5, 0.0], [4])?);
        sine_with(&x[0], Tensor::cos)?.mul(&sine_with(&x[1], one)?)
    });
    let r = r.expect("evaluates");
    // the planted error is 0.5 sin(wave(4)[2]) = 0.22 times the checker's weight of that element
    assert!(r.max_error > 0.1 && r.at == (1, 2), "{r:?}");
}

#[test]
fn a_missing_term_is_found() {
    let d = plain();
    // x is used twice, once behind detach
    let r = gradcheck(&d, &[host(&wave(3))], |x| x[0].mul(x[0].detach())).expect("evaluates");
    assert!(r.max_error > 0.1, "{r:?}");
    // an input without a gradient claims not to matter
    let r = gradcheck(&d, &[host(&wave(3)), host(&wave(3))], |x| x[0].mul(x[1].detach())).expect("evaluates");
    assert!(r.max_error > 0.1 && r.at.0 == 1, "{r:?}");
}

#[test]
fn what_cannot_be_checked_is_an_error() {
    let d = plain();
    let single = HostTensor::from_slice(&[1.0f32], [1]).expect("fits");
    assert_eq!(gradcheck(&d, &[single], |x| x[0].exp()).expect_err("f32").kind(), ErrorKind::DType);
    let x = [host(&[1.0])];
    assert_eq!(gradcheck(&d, &x, |x| Ok(x[0].detach())).expect_err("constant").kind(), ErrorKind::NotDifferentiable);
    let e = gradcheck(&d, &x, |x| x[0].cast(remat_types::DType::F32)).expect_err("not f64");
    assert_eq!(e.kind(), ErrorKind::DType, "{e}");
    assert_eq!(gradcheck(&d, &x, |x| x[0].softmax(1)).expect_err("refused").kind(), ErrorKind::Axis);
}
