//! Distributions of several numbers against their formulas.

use remat_nn::distribution::{Distribution, MultivariateNormal};

use crate::support::{assert_close, cpu, tensor, values};

/// A few units in the last place of f32, for results of up to 4: a logarithm, a quotient and some sums.
const ROUNDING: f64 = 1e-6;

#[test]
fn the_normal_distribution_of_vectors_has_its_density_and_divergence() {
    let d = cpu();
    let (mean, covariance) = (tensor(&d, &[1.0, -1.0], [2]), tensor(&d, &[2.0, 0.6, 0.6, 1.0], [2, 2]));
    let p = MultivariateNormal::new(&mean, &covariance).expect("positive definite");
    let x = tensor(&d, &[0.5, 0.25, 1.0, -1.0], [2, 2]);
    // of a 2 by 2 matrix with determinant 1.64: ln p = -(a^T adj(c) a / 1.64 + ln 1.64) / 2 - ln 2 pi
    let density = |a: f64, b: f64| {
        let size = (a * a - 2.0 * 0.6 * a * b + 2.0 * b * b) / 1.64;
        -0.5 * (size + 1.64f64.ln()) - std::f64::consts::TAU.ln()
    };
    assert_close(&values(&p.log_prob(&x).expect("fits")), &[density(-0.5, 1.25), density(0.0, 0.0)], ROUNDING);
    // from the one with mean 0 and covariance 1: (tr c + |mean|^2 - 2 - ln det c) / 2
    let q = MultivariateNormal::of_factor(&tensor(&d, &[0.0, 0.0], [2]), &tensor(&d, &[1.0, 0.0, 0.0, 1.0], [2, 2]));
    let kl = p.kl(&q.expect("a factor")).expect("fits");
    assert_close(&values(&kl), &[0.5 * (3.0 + 2.0 - 2.0 - 1.64f64.ln())], ROUNDING);
    // of a batch each has its own determinant
    let factors = tensor(&d, &[2.0, 0.0, 0.0, 3.0, 1.0, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0, 1.0], [3, 2, 2]);
    let batch = MultivariateNormal::of_factor(&tensor(&d, &[0.0, 0.0], [2]), &factors).expect("factors");
    let at_mean = batch.log_prob(&tensor(&d, &[0.0, 0.0], [2])).expect("fits");
    let want = [6.0f64, 1.0, 4.0].map(|det| -det.ln() - std::f64::consts::TAU.ln());
    assert_close(&values(&at_mean), &want, ROUNDING);
}
