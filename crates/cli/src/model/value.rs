//! Values of inputs, as they are written on the command line.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use remat::types::{DType, Error, ErrorKind, Fact, HostTensor, Result, Shape, read_file, read_npy};
use remat_lite::{Extent, Port, ValueType};

use super::inputs::Pictures;
use super::picture::Picture;
use crate::random::mixed;

/// The largest file that is read as one input.
const MOST_BYTES: u64 = 1 << 34;

/// The forms of an input, for help and errors.
pub(super) const FORMS: &str = "\
  FILE.npy       an array of NumPy
  FILE.pb        a tensor as the standard's test data has it
  FILE.png       a picture, as [1, channels, height, width]: numbers of 0 to 1 for floats, of 0 to 255 for integers, and what
                 `--preprocess` makes of them; FILE.jpg too
  '[1, 2; 3, 4]' numbers; `;` ends a row, and lists may be nested
  1x3x224x224    random numbers of this shape, the same in every run: of 0 to 1 for floats, 0 and 1 for integers";

/// The value of an input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    File(PathBuf),
    Numbers(Vec<f64>, Vec<usize>),
    Random(Vec<usize>),
}

/// `NAME=VALUE`, or a value for the only input.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Input {
    pub(super) name: Option<String>,
    pub(super) value: Value,
}

impl FromStr for Input {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        // a list holds no `=`, and the ending tells a file from a name
        let (name, value) = text.split_once('=').map_or((None, text), |(name, value)| (Some(name.to_owned()), value));
        let value = if value.trim_start().starts_with('[') {
            let (numbers, dims) = list(value)?;
            Value::Numbers(numbers, dims)
        } else if let Some(dims) = dims(value) {
            Value::Random(dims)
        } else if Path::new(value).extension().is_some() {
            Value::File(value.into())
        } else {
            return Err(format!("`{value}` is none of\n{FORMS}"));
        };
        Ok(Input { name, value })
    }
}

/// `1x3x224x224`; an empty text is no shape.
pub(super) fn dims(text: &str) -> Option<Vec<usize>> {
    let size = |s: &str| s.parse::<usize>().ok().filter(|_| s.bytes().all(|b| b.is_ascii_digit()));
    text.split('x').map(size).collect()
}

/// Numbers and the shape of a list, nested or in rows.
fn list(text: &str) -> std::result::Result<(Vec<f64>, Vec<usize>), String> {
    let rows = if text.contains(';') && !text.trim_start_matches('[').contains('[') {
        let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
        format!("[{}]", inner.split(';').map(|row| format!("[{row}]")).collect::<Vec<_>>().join(","))
    } else {
        text.to_owned()
    };
    let parsed: serde_json::Value = serde_json::from_str(&rows).map_err(|e| format!("`{text}` is no list: {e}"))?;
    let (mut numbers, mut dims) = (Vec::new(), Vec::new());
    walk(&parsed, 0, &mut numbers, &mut dims).map_err(|e| format!("`{text}`: {e}"))?;
    Ok((numbers, dims))
}

/// Lists within lists, in numbers.
const MOST_DEPTH: usize = 8;

fn walk(
    v: &serde_json::Value,
    depth: usize,
    numbers: &mut Vec<f64>,
    dims: &mut Vec<usize>,
) -> std::result::Result<(), String> {
    let serde_json::Value::Array(parts) = v else {
        if depth != dims.len() {
            return Err("numbers and lists beside each other".into());
        }
        let number = v.as_f64().or_else(|| v.as_bool().map(|b| f64::from(u8::from(b))));
        numbers.push(number.ok_or_else(|| format!("`{v}` is no number"))?);
        return Ok(());
    };
    if depth == MOST_DEPTH {
        return Err(format!("more than {MOST_DEPTH} lists within each other"));
    }
    match dims.get(depth) {
        None if numbers.is_empty() && dims.len() == depth => dims.push(parts.len()),
        None => return Err("numbers and lists beside each other".into()),
        Some(n) if *n != parts.len() => return Err(format!("a row of {} beside one of {n}", parts.len())),
        Some(_) => {}
    }
    parts.iter().try_for_each(|p| walk(p, depth + 1, numbers, dims))
}

/// The element type that a port declares. Errors: DType.
pub(super) fn dtype(port: &Port) -> Result<DType> {
    match &port.ty {
        ValueType::Tensor(Some(dtype), _) => Ok(*dtype),
        other => Err(Error::new(ErrorKind::DType, format!("input `{}` is {other}", port.name))),
    }
}

impl Value {
    /// The tensor for an input. Errors: Io, Format for files; DType, Value for numbers that the input's type cannot hold.
    pub(super) fn tensor(&self, port: &Port, pictures: &Pictures<'_>) -> Result<HostTensor> {
        let dtype = dtype(port)?;
        match self {
            Value::Random(dims) => random(&Fact::new(dtype, dims.clone())),
            Value::Numbers(numbers, dims) => converted(&HostTensor::from_slice(numbers, fitted(dims, port))?, dtype),
            Value::File(path) => {
                let bytes = || read_file(path, MOST_BYTES);
                let extension = path.extension().and_then(|e| e.to_str()).map(str::to_lowercase);
                let read = match extension.as_deref() {
                    Some("npy") => read_npy(&bytes()?),
                    Some("pb") => remat_onnx::read_tensor(bytes()?),
                    Some("png") => bytes().and_then(|b| pictures.tensor(&Picture::png(&b)?, port)),
                    Some("jpg" | "jpeg") => bytes().and_then(|b| pictures.tensor(&Picture::jpeg(&b)?, port)),
                    _ => Err(Error::new(ErrorKind::Format, format!("a file of none of these forms:\n{FORMS}"))),
                };
                let read = read.map_err(|e| e.context(path.display()))?;
                // what NumPy makes of Python's numbers
                if read.dtype() == dtype { Ok(read) } else { converted(&read, dtype) }
            }
        }
    }
}

/// One number for an input of any rank, and a row for one of rank 2 with a first extent of 1 or open.
fn fitted(dims: &[usize], port: &Port) -> Shape {
    let ValueType::Tensor(_, Some(extents)) = &port.ty else { return dims.into() };
    let missing = extents.len().saturating_sub(dims.len());
    let is_one = |e: &Extent| e.fixed().is_none_or(|n| n == 1);
    if dims.len() == 1 && dims[0] == 1 && extents.is_empty() {
        return Shape::scalar();
    }
    if missing > 0 && extents[..missing].iter().all(is_one) {
        return std::iter::repeat_n(1, missing).chain(dims.iter().copied()).collect::<Vec<_>>().into();
    }
    dims.into()
}

/// The same numbers in another type. Errors (Value): a number that this type does not have.
fn converted(from: &HostTensor, to: DType) -> Result<HostTensor> {
    let cast = cast(from, to)?;
    let back = HostTensor::from_f64_slice(&cast.to_f64_vec(), from.dtype(), from.shape().clone())?;
    if to.is_float() || back.bytes() == from.bytes() {
        return Ok(cast);
    }
    Err(Error::new(ErrorKind::Value, format!("numbers of {} that {to} does not have", from.dtype())))
}

/// Random numbers, the same in every run. Errors: Io without memory.
pub(crate) fn random(fact: &Fact) -> Result<HostTensor> {
    let n = fact.shape.checked_elems()?;
    let mut numbers = remat::types::vec_for::<f32>(n)?;
    let is_float = fact.dtype.is_float();
    numbers.extend((0..n as u64).map(|i| {
        let v = mixed(i) >> 40;
        if is_float { v as f32 / (1u32 << 24) as f32 } else { (v & 1) as f32 }
    }));
    cast(&HostTensor::from_slice(&numbers, fact.shape.clone())?, fact.dtype)
}

/// The numbers in another type, as far as it has them.
pub(super) fn cast(from: &HostTensor, to: DType) -> Result<HostTensor> {
    HostTensor::from_f64_slice(&from.to_f64_vec(), to, from.shape().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> std::result::Result<Input, String> {
        text.parse()
    }

    #[test]
    fn every_form_is_read() {
        let value = |text: &str| input(text).expect("valid").value;
        assert_eq!(value("1x3x8"), Value::Random(vec![1, 3, 8]));
        assert_eq!(value("[1, 2; 3, 4]"), Value::Numbers(vec![1.0, 2.0, 3.0, 4.0], vec![2, 2]));
        assert_eq!(value("[[1, 2], [3, 4]]"), Value::Numbers(vec![1.0, 2.0, 3.0, 4.0], vec![2, 2]));
        assert_eq!(value("[1.5]"), Value::Numbers(vec![1.5], vec![1]));
        assert_eq!(value("x=a/b.npy"), Value::File("a/b.npy".into()));
        assert_eq!(input("x=2x2").expect("valid").name.as_deref(), Some("x"));
    }

    #[test]
    fn wrong_forms_say_what_is_wrong() {
        for (text, word) in [
            ("[1, 2; 3]", "a row of 1 beside one of 2"),
            ("[[1], 2]", "beside each other"),
            ("[1, [2]]", "beside each other"),
            ("[\"a\"]", "is no number"),
            ("[1", "no list"),
            ("one", "FILE.npy"),
            ("", "FILE.npy"),
            ("[[[[[[[[[1]]]]]]]]]", "within each other"),
        ] {
            let e = input(text).expect_err(text);
            assert!(e.contains(word), "{text}: {e}");
        }
    }

    #[test]
    fn numbers_that_a_type_does_not_have_are_errors() {
        let port = |dtype, extents: &[Extent]| Port {
            name: "x".into(),
            ty: ValueType::Tensor(Some(dtype), Some(extents.to_vec())),
            has_default: false,
        };
        let row = port(DType::I64, &[Extent::Open, Extent::Open]);
        let read = |text: &str, port: &Port| input(text).expect("valid").value.tensor(port, &Pictures::AS_THEY_ARE);
        let t = read("[1, 2, 3]", &row).expect("whole numbers");
        assert_eq!((t.dtype(), t.shape().dims()), (DType::I64, &[1, 3][..]));
        assert!(read("[1.5]", &row).is_err() && read("[300]", &port(DType::U8, &[Extent::Fixed(1)])).is_err());
        assert_eq!(read("[1]", &port(DType::F32, &[])).expect("a scalar").shape().rank(), 0);
        let t = read("2x3", &port(DType::F32, &[Extent::Open, Extent::Open])).expect("random");
        assert!(t.as_slice::<f32>().expect("f32").iter().all(|v| (0.0..1.0).contains(v)));
    }
}
