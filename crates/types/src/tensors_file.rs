//! The safetensors format: named tensors and a map of text, in one file that other frameworks read.
//!
//! Layout: <https://github.com/huggingface/safetensors>, the section "Format".

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use safetensors::tensor::{TensorInfo, TensorView};
use safetensors::{Dtype, tensor::Metadata};

use crate::{DType, Error, ErrorKind, HostTensor, Result, open_file};

mod header;

/// The key of a file's text, which therefore names no tensor.
const TEXT_KEY: &str = "__metadata__";
/// Largest header that is read; the limit of the format's own library.
const HEADER_MAX_BYTES: u64 = 100_000_000;

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

/// The contents of a file: its tensors by name, and its text by key.
pub type TensorsFile = (BTreeMap<String, HostTensor>, BTreeMap<String, String>);

/// A safetensors file under way: its header was read and checked, its tensors come one at a time.
///
/// Nothing is allocated for what the file is too short to hold, so a hostile header costs no more than it is long.
pub struct TensorsReader<R> {
    from: R,
    header: Vec<u8>,
    text: BTreeMap<String, String>,
    /// In the order of their data.
    left: std::vec::IntoIter<(String, TensorInfo)>,
}

impl TensorsReader<BufReader<File>> {
    /// Opens a file. Errors, naming the path: as [`open_file`] and [`TensorsReader::new`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (file, len) = open_file(&path)?;
        TensorsReader::new(BufReader::new(file), len).map_err(|e| e.context(path.as_ref().display()))
    }
}

impl<R: Read> TensorsReader<R> {
    /// Reads the header of a file of `len` bytes. Errors: Format for an invalid file: a bad header, a name that comes
    /// twice, tensors that do not fill the file one behind the other; Io.
    pub fn new(mut from: R, len: u64) -> Result<Self> {
        let no = |text: &str| bad(format!("no safetensors file: {text}"));
        let mut size = [0; size_of::<u64>()];
        if len < size.len() as u64 {
            return Err(no(&format!("of its {} bytes the header's length takes 8", len)));
        }
        from.read_exact(&mut size)?;
        let header_bytes = u64::from_le_bytes(size);
        if header_bytes > HEADER_MAX_BYTES.min(len - size.len() as u64) {
            return Err(no(&format!("a header of {header_bytes} bytes in a file of {len}")));
        }
        let mut header = size.to_vec();
        header.resize(size.len() + header_bytes as usize, 0);
        from.read_exact(&mut header[size.len()..])?;
        let parsed = header::parse(&header[size.len()..]).map_err(|e| no(&e))?;
        // checks that the tensors lie one behind the other, and offsets against shapes and dtypes
        let checked = Metadata::new(None, parsed.tensors.clone()).map_err(|e| no(&e.to_string()))?;
        let end = parsed.tensors.last().map_or(0, |(_, t)| t.data_offsets.1 as u64);
        drop(checked);
        if (header.len() as u64).checked_add(end) != Some(len) {
            return Err(no(&format!("header and tensors take {} and {end} bytes of its {len}", header.len())));
        }
        Ok(TensorsReader { from, header, text: parsed.text, left: parsed.tensors.into_iter() })
    }

    /// The file's bytes up to the first tensor's.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The file's text by key.
    pub fn text(&self) -> &BTreeMap<String, String> {
        &self.text
    }

    /// The next tensor. Errors, naming it: Format for a dtype that does not exist here or a bool that is not 0 or 1; Io.
    pub fn next_tensor(&mut self) -> Result<Option<(String, HostTensor)>> {
        let Some((name, info)) = self.left.next() else { return Ok(None) };
        let value = self.value(&info).map_err(|e| Error::new(e.kind(), format!("tensor `{name}`: {}", e.message())))?;
        Ok(Some((name, value)))
    }

    fn value(&mut self, info: &TensorInfo) -> Result<HostTensor> {
        let dtype = DTYPES.iter().find(|d| d.1 == info.dtype).map(|d| d.0);
        let dtype = dtype.ok_or_else(|| bad(format!("no dtype {}", info.dtype)))?;
        let mut value = HostTensor::zeros(dtype, &info.shape[..]).map_err(|e| bad(e.message()))?;
        self.from.read_exact(value.bytes_mut())?;
        match value.bytes().iter().position(|&b| b > 1) {
            Some(at) if dtype == DType::Bool => {
                Err(bad(format!("byte {at} of a bool tensor is {}", value.bytes()[at])))
            }
            _ => Ok(value),
        }
    }

    /// All tensors that are left, and the text. Errors: as [`TensorsReader::next_tensor`].
    pub fn rest(mut self) -> Result<TensorsFile> {
        let mut tensors = BTreeMap::new();
        while let Some((name, value)) = self.next_tensor()? {
            tensors.insert(name, value);
        }
        Ok((tensors, self.text))
    }
}

/// Reads a safetensors file that is in memory. Errors: as [`TensorsReader::new`] and [`TensorsReader::next_tensor`].
pub fn read_safetensors(bytes: &[u8]) -> Result<TensorsFile> {
    TensorsReader::new(bytes, bytes.len() as u64)?.rest()
}

/// The bytes of a safetensors file. Errors (Format): a dtype that the format does not have, or a tensor called
/// `__metadata__`, which is where the format keeps the text.
pub fn write_safetensors(tensors: &BTreeMap<String, HostTensor>, text: &BTreeMap<String, String>) -> Result<Vec<u8>> {
    if tensors.contains_key(TEXT_KEY) {
        return Err(bad(format!("a tensor cannot be called `{TEXT_KEY}`: the format keeps text under that name")));
    }
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

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn the_name_of_the_text_is_refused_for_a_tensor() {
        let tensors = BTreeMap::from([(TEXT_KEY.to_owned(), HostTensor::scalar(1f32))]);
        let e = write_safetensors(&tensors, &BTreeMap::new()).expect_err("it could not be read");
        assert!(e.kind() == ErrorKind::Format && e.message().contains(TEXT_KEY), "{e}");
    }

    #[test]
    fn a_name_that_comes_twice_is_refused() {
        let one = r#""a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
        let other = r#""a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}"#;
        assert!(read_safetensors(&file(&format!("{{{one}}}"), &[7])).is_ok());
        let text = r#""__metadata__":{"k":"1","k":"2"}"#;
        let texts = r#""__metadata__":{"k":"1"},"__metadata__":{"l":"2"}"#;
        for twice in
            [format!("{one},{one}"), format!("{one},{other}"), format!("{text},{one}"), format!("{texts},{one}")]
        {
            let e = read_safetensors(&file(&format!("{{{twice}}}"), &[7])).expect_err("twice");
            assert!(e.kind() == ErrorKind::Format && e.message().contains("twice"), "{e}");
        }
    }

    #[test]
    fn a_header_that_the_file_is_too_short_for_is_refused_before_its_tensors_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("hole.safetensors");
        std::fs::File::create(&path).and_then(|f| f.set_len(1 << 40)).expect("a hole takes no room");
        assert_eq!(TensorsReader::open(&path).err().map(|e| e.kind()), Some(ErrorKind::Format));
        let one = file(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#, &[7]);
        std::fs::write(&path, &one).expect("written");
        std::fs::OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(1 << 40)).expect("longer");
        let e = TensorsReader::open(&path).err().expect("a hole behind the tensor");
        assert!(e.message().contains("hole.safetensors") && e.message().contains("take"), "{e}");
    }
}
