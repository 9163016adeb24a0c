//! Files that `torch.save` wrote before version 1.6: five pickles, and the storages one behind the other.
//!
//! The pickles are a magic number, a version, facts of the machine, the object, and the keys of the storages in the order in
//! which they follow: for each the number of elements in 8 bytes, and the elements.

use std::collections::BTreeMap;
use std::io::{BufRead, Seek, SeekFrom};

use remat_types::{Error, ErrorKind, Result};

use super::unpickle::unpickle;
use super::value::{Object, Pickle, Value};

/// The only version of the layout.
const VERSION: i64 = 1001;
/// Bytes before the elements of a storage.
const COUNT_BYTES: u64 = 8;

/// Where the storages of a file lie.
pub(super) struct Stream<R> {
    from: R,
    /// Where each begins, and its bytes.
    storages: BTreeMap<String, (u64, u64)>,
}

fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}

impl<R: BufRead + Seek> Stream<R> {
    /// Reads the pickles of a file of `len` bytes, and finds its storages. Errors: Format, Io.
    pub(super) fn new(mut from: R, len: u64) -> Result<(Self, Pickle)> {
        let in_part = |part: &'static str| move |e: Error| e.context(part);
        unpickle(&mut from).map_err(in_part("the magic number"))?;
        let version = unpickle(&mut from).map_err(in_part("the version"))?;
        if version.root != Value::Int(VERSION) {
            return Err(bad(format!("a file of an unknown version; {VERSION} is known")));
        }
        let machine = unpickle(&mut from).map_err(in_part("facts of the machine"))?;
        if is_big_endian(&machine) {
            return Err(bad("a file of a big-endian machine in the layout of before PyTorch 1.6"));
        }
        let object = unpickle(&mut from).map_err(in_part("the object"))?;
        let keys = unpickle(&mut from).map_err(in_part("the keys of storages"))?;
        let sizes = element_bytes(&object);
        let mut at = from.stream_position()?;
        let mut storages = BTreeMap::new();
        for key in keys.parts(keys.root).ok_or_else(|| bad("keys of storages that are no list"))? {
            let key = keys.text_of(*key).ok_or_else(|| bad("a storage whose key is no text"))?;
            let size = *sizes.get(key).ok_or_else(|| bad(format!("storage `{key}` of no known type")))?;
            let mut count = [0; COUNT_BYTES as usize];
            from.seek(SeekFrom::Start(at))?;
            from.read_exact(&mut count).map_err(|_| bad(format!("the file ends before storage `{key}`")))?;
            let count = u64::from_le_bytes(count);
            let begin = at + COUNT_BYTES;
            let bytes = count.checked_mul(size);
            let end = bytes.and_then(|b| begin.checked_add(b)).filter(|end| *end <= len);
            let (Some(bytes), Some(end)) = (bytes, end) else {
                return Err(bad(format!("storage `{key}` of {count} elements at byte {at} of a file of {len}")));
            };
            storages.insert(key.to_owned(), (begin, bytes));
            at = end;
        }
        Ok((Stream { from, storages }, object))
    }

    pub(super) fn storage_bytes(&self, key: &str) -> Result<u64> {
        self.find(key).map(|found| found.1)
    }

    fn find(&self, key: &str) -> Result<(u64, u64)> {
        self.storages.get(key).copied().ok_or_else(|| bad(format!("the file has no storage `{key}`")))
    }

    /// Fills `into` with the bytes from `at` of a storage.
    pub(super) fn read(&mut self, key: &str, at: u64, into: &mut [u8]) -> Result<()> {
        let (begin, bytes) = self.find(key)?;
        if at.checked_add(into.len() as u64).is_none_or(|end| end > bytes) {
            return Err(bad(format!("{} bytes from {at} of a storage of {bytes}", into.len())));
        }
        self.from.seek(SeekFrom::Start(begin + at))?;
        Ok(self.from.read_exact(into)?)
    }
}

fn is_big_endian(machine: &Pickle) -> bool {
    let Some(Object::Dict(pairs)) = machine.object(machine.root) else { return false };
    pairs.iter().any(|(k, v)| machine.text_of(*k) == Some("little_endian") && *v == Value::Bool(false))
}

/// Bytes of an element by the storage's key.
fn element_bytes(object: &Pickle) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for outside in &object.objects {
        let Object::Outside(id) = outside else { continue };
        if let Some(&[_, class, key, ..]) = object.parts(*id)
            && let (Some((_, class)), Some(key)) = (object.global(class), object.text_of(key))
            && let Some(bytes) = storage_element_bytes(class)
        {
            sizes.insert(key.to_owned(), bytes);
        }
    }
    sizes
}

/// Those of types that do not exist here, too: what follows them in the file is found.
fn storage_element_bytes(class: &str) -> Option<u64> {
    Some(match class {
        "ComplexDoubleStorage" => 16,
        "DoubleStorage" | "LongStorage" | "ComplexFloatStorage" => 8,
        "FloatStorage" | "IntStorage" | "QInt32Storage" => 4,
        "HalfStorage" | "BFloat16Storage" | "ShortStorage" => 2,
        "CharStorage" | "ByteStorage" | "BoolStorage" | "QInt8Storage" | "QUInt8Storage" => 1,
        "UntypedStorage" | "_UntypedStorage" | "QUInt4x2Storage" | "QUInt2x4Storage" => 1,
        _ => return None,
    })
}
