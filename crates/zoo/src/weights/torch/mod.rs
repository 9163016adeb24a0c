//! Files that PyTorch's `torch.save` writes, read without Python and without running what they ask for.
//!
//! A pickle is a program for a machine that may call any function. The machine of [`unpickle`] knows no function: what would
//! be called is kept as data, [`view`] finds the tensors among it by the few names of [`globals`], and [`contents`] gives them
//! names. Their bytes lie beside the pickle, in members of an [`archive`], or behind one another in older files ([`stream`]), and
//! are read when a tensor is asked for.
//!
//! Memory is bounded by the file: at most 400 bytes for each of its pickle, all that is freed again included, four for each of an
//! archive's directory, and for tensors what [`npz_limit_bytes`] says, as they may repeat what they show. A deflated pickle may
//! unpack to [`PICKLE_EXPANSION`] times the file. `crates/zoo/tests/torch_memory.rs` measures it.

mod archive;
mod contents;
mod globals;
mod stream;
mod unpickle;
mod value;
mod view;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Layout, Result, npz_limit_bytes, open_file, vec_for};

use archive::{Archive, take};
use stream::Stream;
use value::{Pickle, Value};
use view::View;

/// The most that a deflated pickle may unpack to, in lengths of the file. PyTorch stores pickles uncompressed.
const PICKLE_EXPANSION: u64 = 8;
/// The size to which it may unpack in any case.
const PICKLE_ALWAYS_BYTES: u64 = 1 << 16;
/// The member with the pickle, behind the archive's name.
const PICKLE: &str = "data.pkl";

/// The first bytes of an archive.
const ARCHIVE_MAGIC: &[u8] = b"PK\x03\x04";
/// The first bytes of an older file: a pickle of the number 0x1950a86a20f9469cfc6c.
const STREAM_MAGIC: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
/// Where a tar archive says that it is one, and what it says.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
/// Bytes that tell what a file is.
pub(super) const MAGIC_BYTES: u64 = 262;

const SAVE_ANEW: &str = "load it with PyTorch and save it anew, with `torch.save(model.state_dict(), path)`";

/// A single value of a checkpoint: an epoch, a rate, a name.
#[derive(Clone, Debug, PartialEq)]
pub enum TorchScalar {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A float.
    Float(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for TorchScalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TorchScalar::Bool(b) => b.fmt(f),
            TorchScalar::Int(n) => n.fmt(f),
            TorchScalar::Float(x) => x.fmt(f),
            TorchScalar::Text(text) => f.pad(text),
        }
    }
}

/// A file of PyTorch's `torch.save` whose contents are known; tensors are read when they are asked for.
///
/// Names are the keys and places on the way to a tensor, joined by dots: `state_dict.layer1.weight`, `optimizer.state.0.exp_avg`.
/// A module that was saved whole has the names of its state dict; any other object gives its attributes their names, and its
/// constructor's arguments `args.0` and so on. A tensor that is the whole file has the empty name. Nothing of the file is run:
/// an object of a class that is not known is a name and a state.
///
/// Every dtype of Remat is read, in either byte order, from views of any strides.
pub struct TorchReader<R> {
    source: Source<R>,
    pickle: Pickle,
    tensors: BTreeMap<String, Value>,
    /// The most bytes that tensors may take.
    limit_bytes: u64,
}

enum Source<R> {
    Archive { archive: Archive<R>, folder: String, is_big_endian: bool },
    Stream(Stream<R>),
}

impl TorchReader<BufReader<File>> {
    /// Opens a file. Errors, naming the path: as [`open_file`] and [`TorchReader::new`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (file, _) = open_file(&path)?;
        TorchReader::new(BufReader::new(file)).map_err(|e| e.context(path.as_ref().display()))
    }
}

impl<R: BufRead + Seek> TorchReader<R> {
    /// Reads what a file describes. Errors: Format for no such file, for one of before PyTorch 0.2, which says how to save it
    /// anew, for two tensors of one name, and for a pickle that names more than its length allows; Io.
    pub fn new(mut from: R) -> Result<Self> {
        let len = from.seek(SeekFrom::End(0))?;
        let mut start = Vec::new();
        from.rewind()?;
        from.by_ref().take(MAGIC_BYTES).read_to_end(&mut start)?;
        from.rewind()?;
        let (source, pickle) = match TorchKind::of(&start) {
            Some(TorchKind::Archive) => from_archive(from, len)?,
            Some(TorchKind::Stream) => {
                let (stream, pickle) = Stream::new(from, len)?;
                (Source::Stream(stream), pickle)
            }
            Some(TorchKind::Tar) => {
                let text = format!("a tar archive, which PyTorch wrote before version 0.2: {SAVE_ANEW}");
                return Err(bad(text));
            }
            Some(TorchKind::Pickle) => {
                let text = format!("a pickle that `torch.save` did not write: {SAVE_ANEW}");
                return Err(bad(text));
            }
            None => return Err(bad("no file of `torch.save`: it begins neither as an archive nor as a pickle")),
        };
        let tensors = pickle.tensors()?;
        Ok(TorchReader { source, pickle, tensors, limit_bytes: npz_limit_bytes(len) })
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Every number and text beside the tensors, by name: `epoch`, `optimizer.param_groups.0.lr`. Of two of one name, the later.
    ///
    /// Errors: Format if there are more than the file's length allows.
    pub fn scalars(&self) -> Result<BTreeMap<String, TorchScalar>> {
        self.pickle.scalars()
    }

    /// Dtype and shape of a tensor, without reading its data. Errors: as [`TorchReader::tensor`], but for its bytes.
    pub fn fact(&self, name: &str) -> Result<Fact> {
        let view = self.view(name)?;
        Ok(Fact::new(view.dtype, view.layout.shape().clone()))
    }

    /// A tensor. Errors, naming it: Value if there is none of the name; DType for what has no dtype here (8-bit floats, complex
    /// and quantised numbers) or no plain values (sparse, nested, lazily negated); Format for a tensor that leaves its storage,
    /// a bool that is not 0 or 1, bytes without their check sum, or more than [`npz_limit_bytes`] of the file's length; Io.
    pub fn tensor(&mut self, name: &str) -> Result<HostTensor> {
        let mut left = self.limit_bytes;
        self.tensor_within(name, &mut left)
    }

    /// All tensors. What shows the same elements of one storage shares its bytes here, too. Errors: as [`TorchReader::tensor`].
    pub fn all(&mut self) -> Result<BTreeMap<String, HostTensor>> {
        let names: Vec<String> = self.tensors.keys().cloned().collect();
        let mut left = self.limit_bytes;
        let (mut all, mut made) = (BTreeMap::new(), HashMap::<View, HostTensor>::new());
        for name in names {
            let view = self.view(&name)?;
            let value = match made.get(&view) {
                Some(value) => value.clone(),
                None => {
                    let value = self.read(&view, &mut left).map_err(|e| named(e, &name))?;
                    made.insert(view, value.clone());
                    value
                }
            };
            all.insert(name, value);
        }
        Ok(all)
    }

    /// The most bytes that all tensors may take.
    pub(super) fn limit(&self) -> u64 {
        self.limit_bytes
    }

    /// A tensor, which is counted against `left`.
    pub(super) fn tensor_within(&mut self, name: &str, left: &mut u64) -> Result<HostTensor> {
        let view = self.view(name)?;
        self.read(&view, left).map_err(|e| named(e, name))
    }

    fn view(&self, name: &str) -> Result<View> {
        let value = self.tensors.get(name);
        let value = value.ok_or_else(|| Error::new(ErrorKind::Value, format!("the file has no tensor `{name}`")))?;
        self.pickle.view(*value).map_err(|e| named(e, name))
    }

    fn read(&mut self, view: &View, left: &mut u64) -> Result<HostTensor> {
        let View { dtype, key, base_bytes, layout } = view;
        let size = dtype.size_bytes();
        let (low, high) = layout.span().ok_or_else(|| bad("a layout beyond what can be addressed"))?;
        let (at, bytes) = (base_bytes.saturating_add((low * size) as u64), (high - low) * size);
        let have = self.source.prepare(key, left)?;
        if at.checked_add(bytes as u64).is_none_or(|end| end > have) {
            return Err(bad(format!("{bytes} bytes from {at} of storage `{key}`, which has {have} in the file")));
        }
        take(left, (layout.elems() * size) as u64)?;
        let is_big_endian = self.source.is_big_endian();
        let fill = |source: &mut Source<R>, into: &mut [u8], left: &mut u64| -> Result<()> {
            source.read(key, at, into, left)?;
            if is_big_endian {
                into.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            }
            match into.iter().position(|b| *b > 1) {
                Some(i) if *dtype == DType::Bool => Err(bad(format!("byte {i} of a bool tensor is {}", into[i]))),
                _ => Ok(()),
            }
        };
        if layout.is_contiguous() {
            let mut value = HostTensor::zeros(*dtype, layout.shape().clone())?;
            fill(&mut self.source, value.try_bytes_mut()?, left)?;
            return Ok(value);
        }
        take(left, bytes as u64)?;
        let mut span = vec_for(bytes)?;
        span.resize(bytes, 0u8);
        fill(&mut self.source, &mut span, left)?;
        let layout = Layout::new(layout.shape().clone(), layout.strides(), layout.offset() - low)?;
        HostTensor::gather(*dtype, &layout, &span)
    }
}

impl<R: BufRead + Seek> Source<R> {
    fn is_big_endian(&self) -> bool {
        matches!(self, Source::Archive { is_big_endian: true, .. })
    }

    /// Prepares a storage for reading, and returns its number of bytes. Nothing is allocated for bytes that are not in the file.
    fn prepare(&mut self, key: &str, left: &mut u64) -> Result<u64> {
        match self {
            Source::Archive { archive, folder, .. } => {
                let member = archive.member(&format!("{folder}data/{key}"))?;
                archive.prepare(&member, left)?;
                Ok(member.size)
            }
            Source::Stream(stream) => stream.storage_bytes(key),
        }
    }

    fn read(&mut self, key: &str, at: u64, into: &mut [u8], left: &mut u64) -> Result<()> {
        match self {
            Source::Archive { archive, folder, .. } => {
                let member = archive.member(&format!("{folder}data/{key}"))?;
                archive.read(&member, at, into, left)
            }
            Source::Stream(stream) => stream.read(key, at, into),
        }
    }
}

fn from_archive<R: BufRead + Seek>(from: R, len: u64) -> Result<(Source<R>, Pickle)> {
    let mut archive = Archive::new(from, len)?;
    // the archive has one folder, of any name
    let folder = archive.names().filter_map(|n| n.strip_suffix(PICKLE)).filter(|f| f.is_empty() || f.ends_with('/'));
    let folder = folder.min_by_key(|f| f.len()).map(str::to_owned);
    let folder =
        folder.ok_or_else(|| bad(format!("an archive without `{PICKLE}`, which `torch.save` did not write")))?;
    let member = archive.member(&format!("{folder}{PICKLE}"))?;
    if member.size > len.saturating_mul(PICKLE_EXPANSION).max(PICKLE_ALWAYS_BYTES) {
        return Err(bad(format!("a pickle of {} bytes in a file of {len}", member.size)));
    }
    // a flipped bit in a name or in a list would be read as another name, or as an end
    archive.check(&member).map_err(|e| e.context(format!("`{PICKLE}`")))?;
    let pickle = unpickle::unpickle(&mut archive.stream(&member)?)?;
    let mut is_big_endian = false;
    if let Ok(member) = archive.member(&format!("{folder}byteorder")) {
        let mut order = [0; 6];
        let order = &mut order[..usize::try_from(member.size).unwrap_or(usize::MAX).min(6)];
        archive.read(&member, 0, order, &mut PICKLE_ALWAYS_BYTES.clone())?;
        is_big_endian = match &*order {
            b"little" => false,
            b"big" => true,
            _ => return Err(bad("a byte order that is neither `little` nor `big`")),
        };
    }
    Ok((Source::Archive { archive, folder, is_big_endian }, pickle))
}

/// The kind of a PyTorch file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TorchKind {
    Archive,
    Stream,
    Tar,
    Pickle,
}

impl TorchKind {
    /// `None` for the bytes of a safetensors file and of anything else.
    pub(super) fn of(start: &[u8]) -> Option<TorchKind> {
        // behind the protocol, and from protocol 4 on a frame's length
        let pickle = match start {
            [0x80, 0..=5, 0x95, _, _, _, _, _, _, _, _, rest @ ..] | [0x80, 0..=5, rest @ ..] => Some(rest),
            _ => None,
        };
        // a safetensors file has its header's length here, which is less than 2^32, and then the header
        let is_safetensors = matches!(start, [_, _, _, _, 0, 0, 0, 0, b'{', ..]);
        if is_safetensors {
            None
        } else if start.starts_with(ARCHIVE_MAGIC) {
            Some(TorchKind::Archive)
        } else if let Some(pickle) = pickle {
            Some(if pickle.starts_with(STREAM_MAGIC) { TorchKind::Stream } else { TorchKind::Pickle })
        } else if start.get(TAR_MAGIC.0..).is_some_and(|s| s.starts_with(TAR_MAGIC.1)) {
            Some(TorchKind::Tar)
        } else {
            None
        }
    }
}

/// Reads every tensor of a file that PyTorch's `torch.save` wrote, by the names of [`TorchReader`]; nothing of the file is run.
///
/// Errors, naming the path: as [`TorchReader::open`] and [`TorchReader::tensor`].
pub fn read_torch(path: impl AsRef<Path>) -> Result<BTreeMap<String, HostTensor>> {
    TorchReader::open(&path)?.all().map_err(|e| e.context(path.as_ref().display()))
}

fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}

fn named(e: Error, name: &str) -> Error {
    e.context(format_args!("tensor `{name}`"))
}

#[cfg(test)]
mod tests;
