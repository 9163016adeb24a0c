//! Losses with logits against f64, where a prediction is certain: right, and wrong.

use remat_nn::Reduction;
use remat_nn::loss::{bce_with_logits, cross_entropy_with, nll};
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{DType, Result};

use crate::support::{cpu, values};

/// Dtypes with distances of logits at which what is certain is more than 0, and how exact values are.
const ENDS: [(DType, &[f64], f64); 4] = [
    (DType::F16, &[0.0, 0.5, 4.0, 9.0], 2e-3),
    (DType::BF16, &[0.0, 0.5, 6.0, 17.0, 80.0], 1.2e-2),
    (DType::F32, &[0.0, 0.5, 9.0, 17.0, 40.0, 80.0], 1e-6),
    (DType::F64, &[0.0, 0.5, 17.0, 36.0, 40.0, 100.0, 700.0], 1e-14),
];

fn of(d: &Device, v: &[f64], shape: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::from_slice(d, v, shape)?.cast(dtype)
}

#[track_caller]
fn assert_near(what: &str, got: &[f64], want: &[f64], bound: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= bound * w.abs(), "{what}: element {i} is {g}, not {w}");
    }
}

#[test]
fn binary_cross_entropy_has_its_digits_at_both_ends() -> Result<()> {
    let d = cpu();
    for (dtype, distances, bound) in ENDS {
        for (&far, sign, target) in
            distances.iter().flat_map(|x| [(x, 1.0), (x, -1.0)]).flat_map(|(x, s)| [0.0, 0.25, 1.0].map(|t| (x, s, t)))
        {
            let x = of(&d, &[sign * far], &[1], dtype)?.requires_grad()?;
            let y = of(&d, &[target], &[1], dtype)?;
            let loss = bce_with_logits(&x, &y, Reduction::Sum)?;
            loss.backward()?;
            let tail = (-far).exp() / (1.0 + (-far).exp());
            let off = if sign > 0.0 { 1.0 - target } else { target };
            let slope = if sign > 0.0 { (1.0 - target) - tail } else { tail - target };
            let what = format!("{dtype}, logit {}, target {target}", sign * far);
            assert_near(&what, &values(&loss), &[far * off + (-far).exp().ln_1p()], bound);
            assert_near(&what, &values(&x.grad().expect("a gradient")), &[slope], bound);
        }
    }
    Ok(())
}

#[test]
fn cross_entropy_has_its_digits_at_both_ends() -> Result<()> {
    let d = cpu();
    for (dtype, distances, bound) in ENDS {
        for (&far, label) in distances.iter().flat_map(|x| [0i64, 1, 2].map(|l| (x, l))) {
            // three classes, the last two as likely as each other
            let logits = of(&d, &[0.0, -far, -far], &[1, 3], dtype)?.requires_grad()?;
            let labels = Tensor::new(&d, &[label], [1])?;
            let rest = 2.0 * (-far).exp();
            let (small, share) = (rest.ln_1p(), (-far).exp() / (1.0 + rest));
            let loss = if label == 0 { small } else { far + small };
            let mut dx = [1.0 / (1.0 + rest), share, share];
            dx[label as usize] = if label == 0 { -2.0 * share } else { share - 1.0 };
            let what = format!("{dtype}, {far} apart, label {label}");
            let y = cross_entropy_with(&logits, &labels, Reduction::Sum, 0.0, None)?;
            y.backward()?;
            assert_near(&what, &values(&y), &[loss], bound);
            assert_near(&what, &values(&logits.take_grad().expect("a gradient")), &dx, bound);
            // in two ops; the exponential of a rounded logarithm is off by as much as that was rounded
            let y = nll(&logits.log_softmax(1)?, &labels, Reduction::Sum)?;
            y.backward()?;
            assert_near(&what, &values(&y), &[loss], bound);
            let found = values(&logits.take_grad().expect("a gradient"));
            assert_near(&what, &found[..1], &dx[..1], bound);
            assert_near(&what, &found[1..], &dx[1..], bound * (1.0 + far));
        }
    }
    Ok(())
}
