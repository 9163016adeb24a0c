//! Tensors that should be equal.

use clap::Args;
use remat::types::HostTensor;
use serde_json::{Value as Json, json};

/// How far numbers may be apart: `|got - want| <= atol + rtol |want|`, as NumPy's `allclose` has it.
///
/// The defaults are those of the standard's own runner (`onnx.backend.test.case.test_case.TestCase`), so that `--check` says of a model
/// what that would say. They are wider than the arithmetic of f32 needs.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Tolerance {
    /// Where numbers are compared: largest difference as a share of the expected number ..
    #[arg(long, value_name = "X", default_value = "1e-3", value_parser = tolerance)]
    rtol: f64,
    /// .. plus this absolute difference
    #[arg(long, value_name = "X", default_value = "1e-7", value_parser = tolerance)]
    atol: f64,
}

fn tolerance(text: &str) -> std::result::Result<f64, String> {
    let v: Option<f64> = text.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0);
    v.ok_or_else(|| "give a number of at least 0, such as 1e-3".to_owned())
}

/// How a tensor differs from another.
pub(super) struct Difference {
    pub(super) name: String,
    ty: String,
    pub(super) is_within: bool,
    /// The difference in the type, or in the number that exceeds the tolerance by most.
    what: String,
    /// Infinite for other types, and for NaN beside a number.
    pub(super) largest: f64,
}

impl Difference {
    /// The result of a comparison as a whole: `wrong` describes the difference.
    pub(super) fn whole(name: &str, ty: &str, wrong: Option<String>) -> Difference {
        let largest = if wrong.is_some() { f64::INFINITY } else { 0.0 };
        Difference {
            name: name.to_owned(),
            ty: ty.to_owned(),
            is_within: wrong.is_none(),
            what: wrong.unwrap_or_else(|| "equal".to_owned()),
            largest,
        }
    }

    pub(super) fn text(&self) -> String {
        let word = if self.is_within { "" } else { " DIFFERENT;" };
        format!("{} {}:{word} {}", self.name, self.ty, self.what)
    }

    pub(super) fn json(&self) -> Json {
        json!({
            "name": self.name,
            "type": self.ty,
            "is_within": self.is_within,
            "largest": self.largest,
            "what": self.what,
        })
    }
}

impl Tolerance {
    /// Compares numbers; element types may differ unless they are asked to be the same.
    pub(super) fn compare(&self, name: &str, got: &HostTensor, want: &HostTensor, same_type: bool) -> Difference {
        let (name, ty) = (name.to_owned(), format!("{}{}", want.dtype(), want.shape()));
        if got.shape() != want.shape() || same_type && got.dtype() != want.dtype() {
            let what = format!("{}{}, not {ty}", got.dtype(), got.shape());
            return Difference { name, ty, is_within: false, what, largest: f64::INFINITY };
        }
        let (a, b) = (got.to_f64_vec(), want.to_f64_vec());
        let off = |(a, b): (&f64, &f64)| match a == b || a.is_nan() && b.is_nan() {
            true => 0.0,
            // NaN beside a number is as wrong as can be
            false => Some((a - b).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY),
        };
        let excess = |(a, b): (&f64, &f64)| match off((a, b)) {
            0.0 => 0.0,
            d => d - Some(self.atol + self.rtol * b.abs()).filter(|t| t.is_finite()).unwrap_or(0.0),
        };
        let worst = a.iter().zip(&b).map(excess).enumerate().max_by(|x, y| x.1.total_cmp(&y.1));
        let largest = a.iter().zip(&b).map(off).fold(0.0, f64::max);
        let Some((at, excess)) = worst else {
            return Difference { name, ty, is_within: true, what: "without elements".into(), largest };
        };
        let what = match largest {
            0.0 => "equal".to_owned(),
            _ => format!("largest difference {largest:.3e}; {} at [{}], expected {}", a[at], index(at, got), b[at]),
        };
        Difference { name, ty, is_within: excess <= 0.0, what, largest }
    }
}

/// The place of an element, an index for each axis.
fn index(mut at: usize, t: &HostTensor) -> String {
    let mut all = Vec::new();
    for n in t.shape().dims().iter().rev() {
        all.push((at % n).to_string());
        at /= n;
    }
    all.reverse();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_number_is_told_with_its_place() {
        let of = |v: &[f32]| HostTensor::from_slice(v, [2, 2]).expect("fits");
        let t = Tolerance { rtol: 0.1, atol: 0.0 };
        let want = of(&[1.0, 100.0, 0.0, f32::NAN]);
        let d = t.compare("y", &of(&[1.05, 95.0, 0.0, f32::NAN]), &want, true);
        assert!(d.is_within && d.largest == 5.0, "{}", d.text());
        let d = t.compare("y", &of(&[1.05, 80.0, 0.0, f32::NAN]), &want, true);
        assert!(!d.is_within && d.text().contains("80 at [0, 1], expected 100"), "{}", d.text());
        let d = t.compare("y", &of(&[1.0, 100.0, f32::NAN, f32::NAN]), &want, true);
        assert!(!d.is_within && d.largest == f64::INFINITY, "{}", d.text());
        let d = t.compare("y", &of(&[f32::INFINITY, 1.0, 0.0, 0.0]), &of(&[f32::INFINITY, 1.0, 0.0, 0.0]), true);
        assert!(d.is_within && d.text().contains("equal"), "{}", d.text());
        let d = t.compare("y", &of(&[1.0, 1.0, 0.0, 0.0]), &of(&[f32::INFINITY, 1.0, 0.0, 0.0]), true);
        assert!(!d.is_within, "a number beside infinity: {}", d.text());
        let flat = HostTensor::from_slice(&[1f32, 100.0, 0.0, 1.0], [4]).expect("fits");
        assert!(t.compare("y", &flat, &want, false).text().contains("f32[4], not f32[2, 2]"));
    }
}
