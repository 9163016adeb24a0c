//! The standard's comparison: `|got - wanted| <= absolute + relative |wanted|`, NaN equal to NaN, one infinity to the same.

use std::path::Path;

use remat_onnx::Value;
use remat_types::HostTensor;

/// How far values may be apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    relative: f64,
    absolute: f64,
}

/// The defaults of the standard's own runner (`onnx.backend.test.case.test_case.TestCase`): they are part of what conformance is,
/// and wider than Remat's arithmetic needs.
const USUAL: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-7 };

/// That of a case: a file `data.json` in its folder may say another one. Errors if there is one that says nothing.
pub(crate) fn tolerance(folder: &Path) -> Result<Tolerance, String> {
    let file = folder.join("data.json");
    if !file.exists() {
        return Ok(USUAL);
    }
    let wrong = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|e| wrong(&e))?;
    let said: serde_json::Value = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
    let number = |key: &str, usual: f64| match &said[key] {
        serde_json::Value::Null => Ok(usual),
        v => v.as_f64().ok_or_else(|| wrong(&format!("`{key}` is {v}"))),
    };
    Ok(Tolerance { relative: number("rtol", USUAL.relative)?, absolute: number("atol", USUAL.absolute)? })
}

/// Why the outputs differ from those that are wanted.
pub(crate) fn all(got: &[Value], wanted: &[Value], within: Tolerance) -> Result<(), String> {
    if got.len() != wanted.len() {
        return Err(format!("{} values, not {}", got.len(), wanted.len()));
    }
    got.iter()
        .zip(wanted)
        .enumerate()
        .try_for_each(|(i, (a, b))| one(a, b, within).map_err(|e| format!("output {i}: {e}")))
}

fn one(got: &Value, wanted: &Value, within: Tolerance) -> Result<(), String> {
    match (got, wanted) {
        (Value::Optional(None), Value::Optional(None)) => Ok(()),
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => one(a, b, within),
        (a, Value::Optional(Some(b))) => one(a, b, within),
        (Value::Optional(Some(a)), b) => one(a, b, within),
        (Value::Sequence(a), Value::Sequence(b)) => all(a, b, within),
        (Value::Text(a), Value::Text(b)) if a == b => Ok(()),
        (Value::Text(a), Value::Text(b)) => {
            Err(format!("{:?} under {}, not {:?} under {}", a.data, a.shape, b.data, b.shape))
        }
        (a, b) => {
            let (Ok(a), Ok(b)) = (a.tensor(), b.tensor()) else {
                return Err(format!("{}, not {}", a.kind(), b.kind()));
            };
            let read = |t: &remat_tensor::Tensor| t.to_host().map_err(|e| e.to_string());
            tensors(&read(a)?, &read(b)?, within)
        }
    }
}

fn tensors(got: &HostTensor, wanted: &HostTensor, within: Tolerance) -> Result<(), String> {
    if got.dtype() != wanted.dtype() || got.shape() != wanted.shape() {
        let (g, w) = (got, wanted);
        return Err(format!("{} {}, not {} {}", g.dtype(), g.shape(), w.dtype(), w.shape()));
    }
    let near = |a: f64, b: f64| {
        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= within.absolute + within.relative * b.abs()
    };
    let (a, b) = (got.to_f64_vec(), wanted.to_f64_vec());
    let far: Vec<usize> = (0..a.len()).filter(|i| !near(a[*i], b[*i])).collect();
    match far.first() {
        None => Ok(()),
        Some(i) => Err(format!("{} of {} elements differ: at {i} {} is not {}", far.len(), a.len(), a[*i], b[*i])),
    }
}
