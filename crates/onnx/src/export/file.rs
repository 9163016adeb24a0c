//! The bytes of a model.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use remat_types::{Error, ErrorKind, HostTensor, Result};

use super::Exported;
use super::emit::data_type;
use crate::proto::tensor_proto::DataLocation;
use crate::proto::{StringStringEntryProto, TensorProto};

/// Protobuf's lengths are of 32 bits with a sign; nodes and names take a part of that.
const MOST_INSIDE_BYTES: usize = (1 << 31) - (64 << 20);

/// Constants below this stay inside a file with external data.
const LEAST_OUTSIDE_BYTES: usize = 1024;

/// Where tensors begin in a file of external data: a page, so that they can be mapped.
const PAGE_BYTES: u64 = 4096;

/// Where constants go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DataPlace {
    /// Into the file, unless they are more than protobuf takes.
    #[default]
    Inside,
    /// Into a file beside it, called as it with `.data` behind.
    Beside,
}

/// The bytes of a tensor, which stay where they are.
struct Held(Arc<HostTensor>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

fn described(name: &str, data: &HostTensor) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        data_type: Some(data_type(data.dtype())),
        dims: data.shape().dims().iter().map(|d| *d as i64).collect(),
        ..Default::default()
    }
}

fn inside(name: &str, data: &Arc<HostTensor>) -> TensorProto {
    TensorProto { raw_data: Some(Bytes::from_owner(Held(data.clone()))), ..described(name, data) }
}

/// A tensor as the value of an attribute.
pub(super) fn literal(data: HostTensor) -> TensorProto {
    inside("", &Arc::new(data))
}

impl Exported {
    /// The bytes of a file with everything in it. Errors: Value for constants of two gigabytes and more, which need a file
    /// beside it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let bytes = self.constant_bytes();
        if bytes > MOST_INSIDE_BYTES {
            let text =
                format!("constants of {bytes} bytes are more than a file of ONNX takes; `save` puts them beside it");
            return Err(Error::new(ErrorKind::Value, text));
        }
        let mut graph = self.graph.clone();
        graph.initializer = self.constants.iter().map(|(name, data)| inside(name, data)).collect();
        Ok(self.model(graph).encode_to_vec())
    }

    /// Writes the file, and beside it, if that is asked for or it must be, one with the constants. Errors, naming the path: Io.
    pub fn save(&self, path: impl AsRef<Path>, place: DataPlace) -> Result<()> {
        let path = path.as_ref();
        let done = match place {
            DataPlace::Inside if self.constant_bytes() <= MOST_INSIDE_BYTES => {
                self.to_bytes().and_then(|bytes| Ok(std::fs::write(path, bytes)?))
            }
            _ => self.save_beside(path),
        };
        done.map_err(|e| e.context(path.display()))
    }

    fn save_beside(&self, path: &Path) -> Result<()> {
        let name = path.file_name().and_then(|n| n.to_str());
        let name =
            name.ok_or_else(|| Error::new(ErrorKind::Value, "a path without a name, or with one that is no text"))?;
        let location = format!("{name}.data");
        let mut file = BufWriter::new(File::create(path.with_file_name(&location))?);
        let (mut at, mut graph) = (0u64, self.graph.clone());
        for (name, data) in &self.constants {
            let bytes = data.bytes();
            if bytes.len() < LEAST_OUTSIDE_BYTES {
                graph.initializer.push(inside(name, data));
                continue;
            }
            let begin = at.next_multiple_of(PAGE_BYTES);
            file.write_all(&vec![0; (begin - at) as usize])?;
            file.write_all(bytes)?;
            at = begin + bytes.len() as u64;
            let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
            let external_data = vec![
                entry("location", location.clone()),
                entry("offset", begin.to_string()),
                entry("length", bytes.len().to_string()),
            ];
            let data_location = Some(DataLocation::External as i32);
            graph.initializer.push(TensorProto { external_data, data_location, ..described(name, data) });
        }
        file.into_inner().map_err(|e| e.into_error())?.sync_all()?;
        Ok(std::fs::write(path, self.model(graph).encode_to_vec())?)
    }
}
