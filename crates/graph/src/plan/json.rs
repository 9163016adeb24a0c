//! Strict reading of JSON: every error names the field, and callers put the place in front of it.

use remat_types::{Error, ErrorKind, Result};
use serde_json::{Map, Value};

/// No size, time or sum of them is larger: their sums stay clear of `u64`'s end.
pub(crate) const LARGEST: u64 = 1 << 60;

pub(crate) type Object = Map<String, Value>;

pub(crate) fn format_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, message)
}

/// Parses a document whose top is an object with `"version": 1`.
pub(crate) fn document(text: &str) -> Result<Object> {
    let value: Value = serde_json::from_str(text).map_err(|e| format_error(format!("not valid JSON: {e}")))?;
    let Value::Object(object) = value else {
        return Err(format_error(format!("the document must be an object, not {}", kind(&value))));
    };
    match number(&object, "version")? {
        1 => Ok(object),
        v => Err(format_error(format!("`version` {v} is not known; this reader knows 1"))),
    }
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn required<'a>(object: &'a Object, key: &str) -> Result<&'a Value> {
    object.get(key).ok_or_else(|| format_error(format!("field `{key}` is missing")))
}

fn wrong(key: &str, wanted: &str, found: &Value) -> Error {
    let found = if found.is_number() { found.to_string() } else { kind(found).to_string() };
    format_error(format!("`{key}` must be {wanted}, not {found}"))
}

/// Errors for a field that is none of `names`: otherwise a mistyped name would silently leave the default.
pub(crate) fn only(object: &Object, names: &[&str]) -> Result<()> {
    match object.keys().find(|key| !names.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format_error(format!("there is no field `{key}`; there are `{}`", names.join("`, `")))),
    }
}

/// A whole number from 0 to [`LARGEST`].
pub(crate) fn to_number(key: &str, value: &Value) -> Result<u64> {
    value
        .as_u64()
        .filter(|v| *v <= LARGEST)
        .ok_or_else(|| wrong(key, &format!("a whole number from 0 to {LARGEST}"), value))
}

pub(crate) fn number(object: &Object, key: &str) -> Result<u64> {
    to_number(key, required(object, key)?)
}

pub(crate) fn number_or(object: &Object, key: &str, default: u64) -> Result<u64> {
    object.get(key).map_or(Ok(default), |v| to_number(key, v))
}

pub(crate) fn bool_or(object: &Object, key: &str, default: bool) -> Result<bool> {
    object.get(key).map_or(Ok(default), |v| v.as_bool().ok_or_else(|| wrong(key, "true or false", v)))
}

pub(crate) fn to_text<'a>(key: &str, value: &'a Value) -> Result<&'a str> {
    value.as_str().ok_or_else(|| wrong(key, "a string", value))
}

pub(crate) fn text<'a>(object: &'a Object, key: &str) -> Result<&'a str> {
    to_text(key, required(object, key)?)
}

pub(crate) fn to_object<'a>(key: &str, value: &'a Value) -> Result<&'a Object> {
    value.as_object().ok_or_else(|| wrong(key, "an object", value))
}

pub(crate) fn array<'a>(object: &'a Object, key: &str) -> Result<&'a [Value]> {
    let value = required(object, key)?;
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(key, "an array", value))
}

/// Reads each element of array `key` as an object; an error of `read` gets the element's place, and its name if it has
/// one.
pub(crate) fn objects<T>(object: &Object, key: &str, mut read: impl FnMut(&Object) -> Result<T>) -> Result<Vec<T>> {
    let items = array(object, key)?.iter().enumerate();
    items
        .map(|(i, value)| {
            let item = to_object("element", value).map_err(|e| e.context(format!("{key}[{i}]")))?;
            read(item).map_err(|e| match item.get("name").and_then(Value::as_str) {
                Some(name) => e.context(format!("{key}[{i}] `{name}`")),
                None => e.context(format!("{key}[{i}]")),
            })
        })
        .collect()
}

/// The strings of array `key`.
pub(crate) fn texts(object: &Object, key: &str) -> Result<Vec<String>> {
    let items = array(object, key)?.iter().enumerate();
    items.map(|(i, v)| to_text(&format!("{key}[{i}]"), v).map(str::to_owned)).collect()
}
