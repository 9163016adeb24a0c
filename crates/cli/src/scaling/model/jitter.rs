//! The slowest of many ranks.

/// The normal density is nothing beyond this many standard deviations, for up to a million ranks.
const EDGE: f64 = 10.0;

/// Steps of the integral; its error is below 1e-7.
const STEPS: usize = 20_000;

/// The expected maximum of `n` independent standard normal variables: 0 of one, 0.56 of two, 3.24 of a thousand.
///
/// `E = ∫ x d(Φ(x)^n) = ∫₀ (1 - Φ(x)^n) dx - ∫⁰ Φ(x)^n dx` (David and Nagaraja, Order Statistics, 3.1), by trapezoids.
pub(in crate::scaling) fn expected_maximum(n: usize) -> f64 {
    if n <= 1 {
        return 0.0;
    }
    let h = 2.0 * EDGE / STEPS as f64;
    let density = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
    let (mut below, mut sum, mut last) = (0.0f64, 0.0, 0.0);
    for i in 1..=STEPS {
        let (from, to) = (-EDGE + (i - 1) as f64 * h, -EDGE + i as f64 * h);
        below += (density(from) + 4.0 * density(from + 0.5 * h) + density(to)) * h / 6.0;
        let all_below = below.min(1.0).powf(n as f64);
        // both integrals at once: from the left edge to the right one, 1 - Φ^n, less the length of the left half
        sum += h * (1.0 - 0.5 * (all_below + last));
        last = all_below;
    }
    sum - EDGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_are_met() {
        // 1/sqrt(pi) and 3/(2 sqrt(pi)) exactly, the others from tables (Teichroew, Ann. Math. Stat. 27, 1956; Harter, 1961)
        let pi = std::f64::consts::PI;
        let known = [
            (1, 0.0),
            (2, 1.0 / pi.sqrt()),
            (3, 1.5 / pi.sqrt()),
            (10, 1.538_752_73),
            (100, 2.507_594),
            (1000, 3.241_436),
        ];
        for (n, want) in known {
            let got = expected_maximum(n);
            assert!((got - want).abs() < 2e-6, "{n}: {got}, not {want}");
        }
    }

    #[test]
    fn more_ranks_wait_longer() {
        let all: Vec<f64> = (0..20).map(|i| expected_maximum(1 << i)).collect();
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
    }
}
