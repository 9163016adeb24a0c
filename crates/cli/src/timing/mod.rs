//! Times of runs: how often, how long, and where.

pub(crate) mod figures;
pub(crate) mod operators;

/// Seconds of a measurement.
pub(crate) fn seconds(text: &str) -> std::result::Result<f64, String> {
    let v: Option<f64> = text.parse().ok().filter(|v: &f64| *v > 0.0 && *v <= 3600.0);
    v.ok_or_else(|| "give seconds above 0 and at most 3600, such as 0.5".to_owned())
}
