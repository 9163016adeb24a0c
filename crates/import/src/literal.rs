//! Constants of a file: checked against their bytes before anything is allocated.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use remat_types::{DType, Error, ErrorKind, HostTensor, Result, Shape, open_file};

use crate::value::Text;

/// A constant of a file.
#[derive(Clone, Debug)]
pub enum Literal {
    /// Numbers.
    Tensor(HostTensor),
    /// Strings.
    Text(Text),
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first byte.
    pub at: u64,
    /// Their number.
    pub bytes: u64,
}

/// Bytes that are in a file still. The reader has compared the place with the file's size.
#[derive(Clone, Copy, Debug)]
pub struct Held<'f> {
    /// The file.
    pub file: &'f File,
    /// Where in it.
    pub place: Place,
}

impl Held<'_> {
    /// Errors: Io, also for a file that has become shorter.
    fn read(mut self, to: &mut [u8]) -> Result<()> {
        self.file.seek(SeekFrom::Start(self.place.at))?;
        Ok(self.file.read_exact(to)?)
    }

    /// The bytes by themselves. Errors: Io, also without memory.
    fn to_vec(self) -> Result<Vec<u8>> {
        let mut bytes = remat_types::vec_for::<u8>(self.place.bytes as usize)?;
        bytes.resize(self.place.bytes as usize, 0);
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    /// The tensor that they are, in its own memory from the first; `narrow` if its integers stand side by side in bytes, with the
    /// dtype that holds them. Errors: as [`HostTensor::from_bytes`], Format; Io.
    pub fn tensor(self, dtype: DType, shape: Shape, narrow: Option<Narrow>) -> Result<HostTensor> {
        if let Some(n) = narrow {
            return n.unpack(&self.to_vec()?, shape);
        }
        let fits = shape.checked_elems()?.checked_mul(dtype.size_bytes()).map(|b| b as u64) == Some(self.place.bytes);
        if !fits || dtype == DType::Bool {
            // `from_bytes` checks bools, and reports data that do not fit
            return HostTensor::from_bytes(dtype, shape, &self.to_vec()?);
        }
        let mut t = HostTensor::zeros(dtype, shape)?;
        self.read(t.try_bytes_mut()?)?;
        Ok(t)
    }
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// An integer of less than a byte: read as one of a byte, since Remat has no smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    bits: u32,
    signed: bool,
}

impl Narrow {
    /// Two bits, without a sign.
    pub const U2: Narrow = Narrow { bits: 2, signed: false };
    /// Two bits.
    pub const I2: Narrow = Narrow { bits: 2, signed: true };
    /// Four bits, without a sign.
    pub const U4: Narrow = Narrow { bits: 4, signed: false };
    /// Four bits.
    pub const I4: Narrow = Narrow { bits: 4, signed: true };

    /// The dtype in which they are held.
    pub fn dtype(self) -> DType {
        if self.signed { DType::I8 } else { DType::U8 }
    }

    /// How many numbers there are.
    pub fn count(self) -> i64 {
        1 << self.bits
    }

    /// The least of them.
    pub fn least(self) -> i64 {
        if self.signed { -self.count() / 2 } else { 0 }
    }

    /// Bytes of so many of them, side by side.
    pub fn packed_bytes(self, elems: usize) -> usize {
        elems.div_ceil((8 / self.bits) as usize)
    }

    /// Numbers that stand side by side in bytes, the first in the lowest bits. Errors: Format for another number of bytes; Shape for a
    /// shape too large to address.
    pub fn unpack(self, packed: &[u8], shape: Shape) -> Result<HostTensor> {
        let elems = shape.checked_elems()?;
        if packed.len() != self.packed_bytes(elems) {
            let text = format!("{} bytes for shape {shape} of integers of {} bits", packed.len(), self.bits);
            return Err(wrong(text));
        }
        let each = (8 / self.bits) as usize;
        let number = |i: usize| {
            let bits = i64::from(packed[i / each] >> (self.bits as usize * (i % each))) % self.count();
            if self.signed && bits >= self.count() / 2 { bits - self.count() } else { bits }
        };
        match self.signed {
            true => HostTensor::from_slice(&(0..elems).map(|i| number(i) as i8).collect::<Vec<_>>(), shape),
            false => HostTensor::from_slice(&(0..elems).map(|i| number(i) as u8).collect::<Vec<_>>(), shape),
        }
    }
}

/// Where external data lies: a path within `folder`, links followed. Errors: Format for any other.
fn external_path(location: &str, folder: Option<&Path>) -> Result<PathBuf> {
    let Some(folder) = folder else {
        return Err(wrong(format!("external data in `{location}`, of a model that was not read from a file")));
    };
    let outside = || wrong(format!("external data in `{location}`, which is outside the model's folder"));
    let inside = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
    if location.is_empty() || !Path::new(location).components().all(inside) {
        return Err(outside());
    }
    let named = |e: std::io::Error| Error::from(e).context(location);
    let path = folder.join(location).canonicalize().map_err(named)?;
    if path.starts_with(folder.canonicalize().map_err(named)?) { Ok(path) } else { Err(outside()) }
}

/// Opens a file beside the model's, by its path within `folder`. Errors: Format for a path that leads elsewhere, and for a place that
/// the file has not; Io.
pub fn open_external(location: &str, folder: Option<&Path>, place: Place) -> Result<File> {
    let (file, size) = open_file(&external_path(location, folder)?)?;
    let Place { at, bytes } = place;
    if at.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(wrong(format!("{bytes} bytes from {at} on in `{location}`, which has {size}")));
    }
    Ok(file)
}
