//! Checks of an op's identity: its serial form, equality and hash say the same, and say all.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use super::{Check, Harness, text};
use crate::{Entry, OpRef, Sample};

fn hash_of(op: &OpRef) -> u64 {
    let mut h = DefaultHasher::new();
    op.hash(&mut h);
    h.finish()
}

/// Through text, as a file would carry it.
fn reload(entry: &Entry, json: &Value) -> Result<OpRef, String> {
    let again: Value = serde_json::from_str(&json.to_string()).map_err(|e| e.to_string())?;
    entry.load(&again).map_err(text)
}

pub(super) fn serial_form_round_trips(_: &Harness, entry: &Entry, s: &Sample<OpRef>) -> Check {
    let json = s.op.to_json().map_err(text)?;
    let again = reload(entry, &json)?;
    if again != s.op || hash_of(&again) != hash_of(&s.op) || format!("{again:?}") != format!("{:?}", s.op) {
        return Err(format!("{:?} is written as {json} and read as {again:?}", s.op));
    }
    Ok(())
}

/// Changing any number, flag or name in the serial form gives an op that is not equal to the first.
pub(super) fn every_parameter_counts(_: &Harness, entry: &Entry, s: &Sample<OpRef>) -> Check {
    let json = s.op.to_json().map_err(text)?;
    let mut paths = Vec::new();
    leaves(&json["params"], String::from("/params"), &mut paths);
    for path in paths {
        let mut changed = json.clone();
        let Some(leaf) = changed.pointer_mut(&path) else { continue };
        match leaf {
            Value::Bool(b) => *b = !*b,
            Value::Number(n) => match n.as_i64() {
                Some(i) => *leaf = Value::from(i + 1),
                None => *leaf = Value::from(n.as_f64().unwrap_or(0.0) + 1.0),
            },
            _ => continue,
        }
        // values that the op's type cannot hold do not load
        let Ok(other) = reload(entry, &changed) else { continue };
        if other == s.op {
            return Err(format!("{:?} equals {other:?}, which differs in {path}", s.op));
        }
        if other.to_json().map_err(text)? != changed {
            return Err(format!("{path} of {changed} is lost when it is read as {other:?}"));
        }
    }
    Ok(())
}

fn leaves(v: &Value, path: String, into: &mut Vec<String>) {
    match v {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, v)| leaves(v, format!("{path}/{i}"), into));
        }
        Value::Object(fields) => fields.iter().for_each(|(k, v)| leaves(v, format!("{path}/{k}"), into)),
        _ => into.push(path),
    }
}

/// Between samples: equal ops have equal parameters and hashes, unequal ones differ in their serial form.
pub(super) fn equal_means_equal_parameters(samples: &[Sample<OpRef>]) -> Check {
    for (i, a) in samples.iter().enumerate() {
        for b in &samples[..i] {
            let (ja, jb) = (a.op.to_json().map_err(text)?, b.op.to_json().map_err(text)?);
            let equal = a.op == b.op;
            let same_text = format!("{:?}", a.op) == format!("{:?}", b.op);
            if equal != (ja == jb) || equal != same_text {
                return Err(format!("{:?} and {:?} are equal: {equal}; in serial form {ja} and {jb}", a.op, b.op));
            }
            if equal && hash_of(&a.op) != hash_of(&b.op) {
                return Err(format!("{:?} has two hashes", a.op));
            }
        }
    }
    Ok(())
}
