//! The safetensors format: named tensors and a map of text, in one file that other frameworks read.
//!
//! Layout: <https://github.com/huggingface/safetensors>, the section "Format".

use std::collections::{BTreeMap, HashMap};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::{DType, Error, ErrorKind, HostTensor, Result};

const DTYPES: [(DType, Dtype); 13] = [
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::Bool, Dtype::BOOL),
];

/// The format's name of a dtype.
pub fn safetensors_dtype(dtype: DType) -> Option<Dtype> {
    DTYPES.iter().find(|d| d.0 == dtype).map(|d| d.1)
}

fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// What a file holds: its tensors by name, and its text by key.
pub type TensorsFile = (BTreeMap<String, HostTensor>, BTreeMap<String, String>);

/// Reads a safetensors file. Sizes are checked against the file before anything is allocated.
///
/// Errors (Format): no such file, a dtype that does not exist here, data that do not fit their shape; with the tensor.
pub fn read_safetensors(bytes: &[u8]) -> Result<TensorsFile> {
    // checks the header's length, offsets against shapes and dtypes, and that the tensors fill the file
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| bad(format!("no safetensors file: {e}")))?;
    let data = bytes.get(size_of::<u64>() + header..).ok_or_else(|| bad("the header leaves the file"))?;
    let mut tensors = BTreeMap::new();
    for (name, info) in metadata.tensors() {
        let dtype = DTYPES.iter().find(|d| d.1 == info.dtype).map(|d| d.0);
        let dtype = dtype.ok_or_else(|| bad(format!("tensor `{name}`: no dtype {}", info.dtype)))?;
        let (from, to) = info.data_offsets;
        let data = data.get(from..to).ok_or_else(|| bad(format!("tensor `{name}` leaves the file")))?;
        let value = HostTensor::from_bytes(dtype, &info.shape, data)
            .map_err(|e| bad(format!("tensor `{name}`: {}", e.message())))?;
        tensors.insert(name, value);
    }
    let text = metadata.metadata().iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    Ok((tensors, text))
}

/// The bytes of a safetensors file. Errors (Format): a dtype that the format does not have.
pub fn write_safetensors(tensors: &BTreeMap<String, HostTensor>, text: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    let mut views = Vec::with_capacity(tensors.len());
    for (name, t) in tensors {
        let dtype = safetensors_dtype(t.dtype()).ok_or_else(|| bad(format!("{name}: no name for {}", t.dtype())))?;
        let view = TensorView::new(dtype, t.shape().to_vec(), t.bytes());
        views.push((name, view.map_err(|e| bad(format!("{name}: {e}")))?));
    }
    let text: HashMap<String, String> = text.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    safetensors::serialize(views, Some(text)).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let tensors: BTreeMap<String, HostTensor> = DType::ALL
            .into_iter()
            .map(|d| (format!("t.{d}"), HostTensor::from_f64_slice(&[0.0, 1.0, 1.0], d, [3]).expect("fits")))
            .collect();
        let text = BTreeMap::from([("k".to_owned(), "v\"w".to_owned())]);
        let bytes = write_safetensors(&tensors, &text).expect("every dtype has a name");
        assert_eq!(read_safetensors(&bytes).expect("reads back"), (tensors, text));
    }

    #[test]
    fn damaged_files_are_errors() {
        let tensors = BTreeMap::from([("a".to_owned(), HostTensor::from_slice(&[1f32, 2.0], [2]).expect("fits"))]);
        let bytes = write_safetensors(&tensors, &BTreeMap::new()).expect("writes");
        for n in 0..bytes.len() {
            assert!(read_safetensors(&bytes[..n]).is_err(), "cut to {n} bytes");
        }
        let mut huge = bytes.clone();
        huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read_safetensors(&huge).is_err(), "a header longer than memory");
    }
}
