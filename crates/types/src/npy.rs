//! NumPy's `.npy` and `.npz` files (NEP 1, format versions 1.0 to 3.0).
//!
//! Files are hostile: nothing is allocated before its size is checked against the bytes that are there, and a bad file is
//! an error of kind Format that names the offset or the header's field. The header's grammar is three fields, so it is
//! read here; `npyz`, whose parser recurses without bound and multiplies extents unchecked, serves the tests as oracle.
//!
//! bf16 does not exist in NumPy and is refused. Everything is written little-endian in C order.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};

use crate::{DType, Error, ErrorKind, HostTensor, Layout, Result, Shape, vec_for};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Data begins at a multiple of this, for memory-mapped readers.
const HEADER_ALIGN: usize = 64;
/// Largest header that is read; NumPy's own limit for untrusted files is 10 000.
const HEADER_MAX_BYTES: usize = 1 << 16;
/// Largest rank that is read; NumPy's own limit is 64.
const RANK_MAX: usize = 64;
/// Bytes that one byte of an archive may unpack to; deflate itself reaches 1032.
const NPZ_EXPANSION: u64 = 100;
/// How often the bytes of an archive may be read to find its directory: the crate `zip` tries every end record in turn, and reads
/// the directory of each, which for a file of many takes the square of its length.
const DIRECTORY_READS: u64 = 4;
/// Bytes that may be read for it in any case.
const DIRECTORY_ALWAYS_BYTES: u64 = 1 << 20;
/// Bytes that any archive may unpack to.
const NPZ_ALWAYS_BYTES: u64 = 256 << 20;

fn bad(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, message)
}

/// The contents of a header.
#[derive(Debug)]
struct Header {
    dtype: DType,
    big_endian: bool,
    fortran: bool,
    shape: Shape,
    /// Bytes before the data.
    bytes: usize,
}

impl Header {
    /// Bytes of the elements. The shape was checked.
    fn data_bytes(&self) -> usize {
        self.shape.elems() * self.dtype.size_bytes()
    }
}

/// Reads a `.npy` file that is in memory.
///
/// Errors: Format for anything that is not such a file, or whose data are shorter or longer than its header says; DType
/// for element types that Remat has not (complex numbers, strings, records, objects).
pub fn read_npy(bytes: &[u8]) -> Result<HostTensor> {
    let mut rest = bytes;
    let header = read_header(&mut rest)?;
    let at = bytes.len() - rest.len();
    let want = header.data_bytes();
    if rest.len() != want {
        let text = format!("data begin at byte {at} and have {} bytes; shape and dtype say {want}", rest.len());
        return Err(bad(text));
    }
    let mut data = vec_for(want)?;
    data.extend_from_slice(rest);
    assemble(&header, data).map_err(|e| e.context(format_args!("data at byte {at}")))
}

/// Writes `t` as a `.npy` file. Errors: DType for bf16, Io.
pub fn write_npy(t: &HostTensor, mut to: impl Write) -> Result<()> {
    to.write_all(&header_bytes(t)?)?;
    to.write_all(t.bytes())?;
    Ok(())
}

/// The limit of bytes to which [`read_npz`] unpacks an archive of so many bytes: a hundred times as much, and 256 MiB in any
/// case. Trained weights hardly shrink. An archive that shrinks more is mostly zeros, or meant to fill the memory.
pub fn npz_limit_bytes(archive_bytes: u64) -> u64 {
    archive_bytes.saturating_mul(NPZ_EXPANSION).max(NPZ_ALWAYS_BYTES)
}

/// Reads every array of a `.npz` archive, by name without `.npy`; members are stored or deflated. They may unpack to
/// [`npz_limit_bytes`].
///
/// Errors: as [`read_npy`], naming the member; Format for an invalid archive, a member that is no array, a name that
/// comes twice, or more bytes than the limit, before they are unpacked.
pub fn read_npz(mut from: impl Read + Seek) -> Result<BTreeMap<String, HostTensor>> {
    let archive_bytes = from.seek(SeekFrom::End(0))?;
    read_npz_within(from, npz_limit_bytes(archive_bytes))
}

/// As [`read_npz`], for members that unpack to at most `limit_bytes` together.
pub fn read_npz_within(mut from: impl Read + Seek, limit_bytes: u64) -> Result<BTreeMap<String, HostTensor>> {
    let mut left = limit_bytes;
    let directory_left =
        Cell::new(from.seek(SeekFrom::End(0))?.saturating_mul(DIRECTORY_READS) + DIRECTORY_ALWAYS_BYTES);
    let opened = zip::ZipArchive::new(Metered { from, left: &directory_left });
    let mut zip = opened.map_err(|e| match directory_left.replace(u64::MAX) {
        0 => bad("archive: it has one end after the other, and none of an archive"),
        _ => archive_error(e, "archive"),
    })?;
    directory_left.set(u64::MAX);
    let mut all = BTreeMap::new();
    for i in 0..zip.len() {
        let mut member = zip.by_index(i).map_err(|e| archive_error(e, &format!("member {i}")))?;
        let name = member.name().to_owned();
        let Some(key) = name.strip_suffix(".npy") else {
            return Err(bad(format!("member `{name}` is not an array (.npy)")));
        };
        let size = member.size();
        let tensor = left.checked_sub(size).ok_or_else(|| {
            bad(format!("it unpacks to {size} bytes, and {left} are left of the {limit_bytes} that the archive may"))
        });
        let tensor = tensor.and_then(|rest| {
            left = rest;
            read_member(&mut member, size)
        });
        let tensor = tensor.map_err(|e| e.context(format_args!("member `{name}`")))?;
        if all.insert(key.to_owned(), tensor).is_some() {
            return Err(bad(format!("member `{name}` comes twice")));
        }
    }
    Ok(all)
}

/// Writes arrays as a `.npz` archive, deflated if `compress`. Errors: DType for bf16, Format for names an archive cannot
/// hold, Io.
pub fn write_npz<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a HostTensor)>,
    compress: bool,
    to: impl Write + Seek,
) -> Result<()> {
    let method = if compress { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let mut zip = zip::ZipWriter::new(to);
    for (name, t) in tensors {
        let large = t.bytes().len() >= u32::MAX as usize / 2;
        let options = zip::write::SimpleFileOptions::default().compression_method(method).large_file(large);
        zip.start_file(format!("{name}.npy"), options).map_err(|e| archive_error(e, name))?;
        write_npy(t, &mut zip).map_err(|e| e.context(format_args!("member `{name}`")))?;
    }
    zip.finish().map_err(|e| archive_error(e, "archive"))?;
    Ok(())
}

/// A reader that gives no more than some bytes of a file.
struct Metered<'l, R> {
    from: R,
    left: &'l Cell<u64>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(to)?;
        let left = self.left.get().saturating_sub(read as u64);
        self.left.set(left);
        if left == 0 && read > 0 {
            return Err(std::io::Error::other("read too often"));
        }
        Ok(read)
    }
}

impl<R: Seek> Seek for Metered<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.from.seek(to)
    }
}

fn archive_error(e: zip::result::ZipError, what: &str) -> Error {
    let kind = if matches!(e, zip::result::ZipError::Io(_)) { ErrorKind::Io } else { ErrorKind::Format };
    Error::new(kind, format!("{what}: {e}")).with_source(e)
}

/// An array from a stream that unpacks to `size` bytes, as the archive says. Memory grows with the bytes that come, not with
/// what the header promises, and to no more than both agree on.
fn read_member(from: &mut impl Read, size: u64) -> Result<HostTensor> {
    let header = read_header(from)?;
    let want = header.data_bytes();
    if (header.bytes as u64).checked_add(want as u64) != Some(size) {
        let text = format!("header and data take {} and {want} bytes, the archive says {size} together", header.bytes);
        return Err(bad(text));
    }
    let mut data = Vec::new();
    // one byte more than promised shows data that are too long
    from.by_ref().take(want as u64 + 1).read_to_end(&mut data).map_err(|e| bad(format!("data: {e}")).with_source(e))?;
    if data.len() != want {
        let have = if data.len() > want { "more".to_owned() } else { data.len().to_string() };
        return Err(bad(format!("data have {have} bytes; shape and dtype say {want}")));
    }
    assemble(&header, data)
}

/// The tensor of a header and its data, which have the right length.
fn assemble(header: &Header, mut data: Vec<u8>) -> Result<HostTensor> {
    if header.big_endian {
        data.chunks_exact_mut(header.dtype.size_bytes()).for_each(<[u8]>::reverse);
    }
    if !header.fortran {
        return HostTensor::from_bytes(header.dtype, header.shape.clone(), &data);
    }
    let reversed: Shape = header.shape.iter().rev().copied().collect();
    let stored = HostTensor::from_bytes(header.dtype, reversed, &data)?;
    let order: Vec<usize> = (0..header.shape.rank()).rev().collect();
    let layout = Layout::contiguous(stored.shape().clone()).permute(&order)?;
    HostTensor::gather(header.dtype, &layout, stored.bytes())
}

/// Reads magic, version and header; leaves the reader at the data.
fn read_header(from: &mut impl Read) -> Result<Header> {
    let mut take = |n: usize, what: &str| -> Result<Vec<u8>> {
        let mut b = vec_for(n)?;
        b.resize(n, 0);
        from.read_exact(&mut b).map_err(|e| bad(format!("{what}: {e}")).with_source(e))?;
        Ok(b)
    };
    let start = take(8, "magic at byte 0")?;
    if start[..6] != MAGIC[..] {
        return Err(bad("magic at byte 0 is not that of a .npy file"));
    }
    let len = match (start[6], start[7]) {
        (1, 0) => take(2, "header length at byte 8")?.iter().rev().fold(0usize, |n, &b| n << 8 | usize::from(b)),
        (2 | 3, 0) => take(4, "header length at byte 8")?.iter().rev().fold(0usize, |n, &b| n << 8 | usize::from(b)),
        (a, b) => return Err(bad(format!("version at byte 6 is {a}.{b}; 1.0 to 3.0 are known"))),
    };
    if len > HEADER_MAX_BYTES {
        return Err(bad(format!("header length at byte 8 is {len}, above {HEADER_MAX_BYTES}")));
    }
    let text = take(len, "header")?;
    let text = std::str::from_utf8(&text).map_err(|e| bad(format!("header is not text: {e}")).with_source(e))?;
    let header = Parser { text, at: 0 }.header()?;
    Ok(Header { bytes: MAGIC.len() + 2 + if start[6] == 1 { 2 } else { 4 } + len, ..header })
}

/// A parser of the header's dictionary: three known fields in any order.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn header(mut self) -> Result<Header> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect('{')?;
        while !self.eat('}') {
            let key = self.string()?;
            self.expect(':')?;
            let twice = match key {
                "descr" => descr.replace(self.descr()?).is_some(),
                "fortran_order" => fortran.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                _ => return Err(bad(format!("header has an unknown field `{key}`"))),
            };
            if twice {
                return Err(bad(format!("header has the field `{key}` twice")));
            }
            if !self.eat(',') {
                self.expect('}')?;
                break;
            }
        }
        if !self.rest().trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0').is_empty() {
            return Err(self.unexpected("nothing more"));
        }
        let missing = |name: &str| bad(format!("header has no field `{name}`"));
        let (dtype, big_endian) = descr.ok_or_else(|| missing("descr"))?;
        let fortran = fortran.ok_or_else(|| missing("fortran_order"))?;
        Ok(Header { dtype, big_endian, fortran, bytes: 0, shape: shape.ok_or_else(|| missing("shape"))? })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(|c: char| c.is_ascii_whitespace()).len();
    }

    fn unexpected(&self, wanted: &str) -> Error {
        let found: String = self.rest().chars().take(12).collect();
        bad(format!("header: expected {wanted} at byte {} of the header, found {found:?}", self.at))
    }

    fn eat(&mut self, c: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c) { Ok(()) } else { Err(self.unexpected(&format!("`{c}`"))) }
    }

    fn string(&mut self) -> Result<&'a str> {
        self.skip_space();
        let quote = self.rest().chars().next().filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or_else(|| self.unexpected("a string"))?;
        let inside = &self.rest()[1..];
        let len = inside.find(quote).ok_or_else(|| self.unexpected("the end of a string"))?;
        self.at += len + 2;
        Ok(&inside[..len])
    }

    fn boolean(&mut self) -> Result<bool> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("`True` or `False` for fortran_order"))
    }

    fn shape(&mut self) -> Result<Shape> {
        self.expect('(')?;
        let mut shape = Shape::scalar();
        while !self.eat(')') {
            self.skip_space();
            let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
            let extent = self.rest()[..digits].parse::<usize>().map_err(|_| self.unexpected("an extent of shape"))?;
            self.at += digits;
            // Python 2 wrote long integers with an L
            self.eat('L');
            shape.push(extent);
            if shape.rank() > RANK_MAX {
                return Err(bad(format!("header field `shape` has more than {RANK_MAX} axes")));
            }
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        shape.checked_elems().map_err(|e| bad(format!("header field `shape`: {}", e.message())))?;
        Ok(shape)
    }

    fn descr(&mut self) -> Result<(DType, bool)> {
        self.skip_space();
        if self.rest().starts_with('[') {
            return Err(Error::new(ErrorKind::DType, "header field `descr`: records have no dtype in Remat"));
        }
        let text = self.string()?;
        let (order, kind) = text.split_at_checked(1).ok_or_else(|| bad("header field `descr` is empty"))?;
        let dtype = match kind {
            "b1" => DType::Bool,
            "i1" => DType::I8,
            "i2" => DType::I16,
            "i4" => DType::I32,
            "i8" => DType::I64,
            "u1" => DType::U8,
            "u2" => DType::U16,
            "u4" => DType::U32,
            "u8" => DType::U64,
            "f2" => DType::F16,
            "f4" => DType::F32,
            "f8" => DType::F64,
            _ => {
                return Err(Error::new(
                    ErrorKind::DType,
                    format!("header field `descr`: {text:?} is no dtype of Remat"),
                ));
            }
        };
        match order {
            "<" | "=" | "|" => Ok((dtype, false)),
            ">" => Ok((dtype, true)),
            _ => Err(bad(format!("header field `descr`: {text:?} has no byte order"))),
        }
    }
}

/// Magic, version and padded header for `t`.
fn header_bytes(t: &HostTensor) -> Result<Vec<u8>> {
    let kind = match t.dtype() {
        DType::BF16 => return Err(Error::new(ErrorKind::DType, "NumPy has no bf16: cast to f32 before writing")),
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::U8 => "|u1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    };
    let extents: String = t.shape().iter().map(|d| format!("{d}, ")).collect();
    let extents = if t.shape().rank() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
    let mut dict = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({extents}), }}");
    let prefix = MAGIC.len() + 4;
    let total = (prefix + dict.len() + 1).next_multiple_of(HEADER_ALIGN);
    dict.extend(std::iter::repeat_n(' ', total - prefix - dict.len() - 1));
    dict.push('\n');
    let len = u16::try_from(dict.len())
        .map_err(|_| Error::new(ErrorKind::Shape, format!("shape {} does not fit a header", t.shape())))?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(len.to_le_bytes());
    bytes.extend(dict.into_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests;
