//! The zip archive that `torch.save` writes: members, and ranges of them.
//!
//! The layout is that of PKWARE's APPNOTE 6.3, with Zip64. It is read here since the crate `zip`, which reads `.npz` files,
//! tries every end record of a file in turn (a minute for a hostile file of half a megabyte, and four times that for twice as
//! much), reads a member from its beginning, where a tensor may be a small part of a storage, and always compares check sums,
//! which PyTorch may leave out.
//!
//! The last end record counts. The directory is read as a whole, so its cost is proportional to its length; a member's
//! place and length are checked against the file before anything is allocated for it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::ops::Range;

use remat_types::{Error, ErrorKind, Result, vec_for};

const END: [u8; 4] = *b"PK\x05\x06";
const END_BYTES: usize = 22;
/// The end record and its comment.
const END_MAX_BYTES: u64 = (END_BYTES + u16::MAX as usize) as u64;
const LOCATOR: [u8; 4] = *b"PK\x06\x07";
const LOCATOR_BYTES: u64 = 20;
const END64: [u8; 4] = *b"PK\x06\x06";
const END64_BYTES: usize = 56;
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const LOCAL: [u8; 4] = *b"PK\x03\x04";
const LOCAL_BYTES: usize = 30;
/// The extra field with sizes beyond 32 bits.
const EXTRA64: u16 = 1;
/// Larger directories are not read; a million members take less.
const DIRECTORY_MAX_BYTES: u64 = 1 << 28;
/// The flag of encrypted members.
const ENCRYPTED: u16 = 1;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// A member of an archive.
#[derive(Clone, Debug)]
pub(super) struct Member {
    method: u16,
    /// 0 if it was not computed.
    crc: u32,
    packed: u64,
    pub size: u64,
    header: u64,
}

/// An archive whose directory was read.
pub(super) struct Archive<R> {
    from: R,
    members: BTreeMap<String, Member>,
    /// The member that was unpacked last, by where its header lies.
    unpacked: Option<(u64, Vec<u8>)>,
}

fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// A number at a place of a record that is long enough.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().map_or(0, |b| u16::from_le_bytes(*b))
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

/// So many bytes of the file from `at`; the caller has checked that it is that long.
fn bytes_at<R: Read + Seek>(from: &mut R, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec_for(usize::try_from(len).unwrap_or(usize::MAX))?;
    bytes.resize(len as usize, 0);
    from.seek(SeekFrom::Start(at))?;
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl<R: Read + Seek> Archive<R> {
    /// Reads the directory of a file of `len` bytes. Errors: Format for no such archive; Io.
    pub(super) fn new(mut from: R, len: u64) -> Result<Self> {
        let (at, bytes, count) = directory(&mut from, len)?;
        let directory = bytes_at(&mut from, at, bytes)?;
        let mut members = BTreeMap::new();
        let mut rest = directory.as_slice();
        for i in 0..count {
            let (name, member, tail) = entry(rest, at).map_err(|e| e.context(format_args!("member {i}")))?;
            rest = tail;
            if members.contains_key(name) {
                return Err(bad(format!("member `{name}` comes twice")));
            }
            members.insert(name.to_owned(), member);
        }
        Ok(Archive { from, members, unpacked: None })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    pub(super) fn member(&self, name: &str) -> Result<Member> {
        self.members.get(name).cloned().ok_or_else(|| bad(format!("the archive has no member `{name}`")))
    }

    /// Where a member's bytes begin.
    fn data_at(&mut self, member: &Member) -> Result<u64> {
        let header = bytes_at(&mut self.from, member.header, LOCAL_BYTES as u64)?;
        if header[..4] != LOCAL {
            return Err(bad(format!("no member begins at byte {}", member.header)));
        }
        Ok(member.header + LOCAL_BYTES as u64 + u64::from(u16_at(&header, 26)) + u64::from(u16_at(&header, 28)))
    }

    /// Compares a member with its check sum, if the archive has one. Errors: they differ; it does not unpack.
    pub(super) fn check(&mut self, member: &Member) -> Result<()> {
        if member.crc == 0 {
            return Ok(());
        }
        let (mut hash, mut stream) = (crc32fast::Hasher::new(), self.stream(member)?);
        loop {
            let part = stream.fill_buf().map_err(|e| bad(format!("deflated data: {e}")).with_source(e))?;
            if part.is_empty() {
                break;
            }
            hash.update(part);
            let read = part.len();
            stream.consume(read);
        }
        match hash.finalize() == member.crc {
            true => Ok(()),
            false => Err(bad("its bytes do not have the archive's check sum")),
        }
    }

    /// A member's bytes one after the other, as they come; no check sum is compared.
    pub(super) fn stream(&mut self, member: &Member) -> Result<BufReader<Box<dyn Read + '_>>> {
        let at = self.data_at(member)?;
        self.from.seek(SeekFrom::Start(at))?;
        let packed: Take<&mut R> = self.from.by_ref().take(member.packed);
        Ok(BufReader::new(match member.method {
            STORED => Box::new(packed),
            _ => Box::new(flate2::read::DeflateDecoder::new(packed).take(member.size)),
        }))
    }

    /// Unpacks a deflated member whole, if it is not the last that was; what that takes is counted against `left`.
    pub(super) fn prepare(&mut self, member: &Member, left: &mut u64) -> Result<()> {
        if member.method != STORED {
            self.unpack(member, 0..0, left)?;
        }
        Ok(())
    }

    /// Fills `into` with the bytes from `at` of a member that is [prepared](Archive::prepare), or else made so. A whole member is
    /// compared with its check sum, if the archive has one.
    pub(super) fn read(&mut self, member: &Member, at: u64, into: &mut [u8], left: &mut u64) -> Result<()> {
        let range = at..at.saturating_add(into.len() as u64);
        if range.end > member.size {
            return Err(bad(format!("bytes {range:?} of a member of {}", member.size)));
        }
        match member.method {
            STORED => {
                let start = self.data_at(member)?;
                self.from.seek(SeekFrom::Start(start.saturating_add(at)))?;
                self.from.read_exact(into)?;
            }
            _ => into.copy_from_slice(self.unpack(member, range, left)?),
        }
        if member.crc != 0 && into.len() as u64 == member.size && crc32fast::hash(into) != member.crc {
            return Err(bad("its bytes do not have the archive's check sum"));
        }
        Ok(())
    }

    fn unpack(&mut self, member: &Member, range: Range<u64>, left: &mut u64) -> Result<&[u8]> {
        if self.unpacked.as_ref().is_none_or(|(header, _)| *header != member.header) {
            self.unpacked = None;
            take(left, member.size)?;
            let mut bytes = Vec::new();
            let read = self.stream(member)?.read_to_end(&mut bytes);
            read.map_err(|e| bad(format!("deflated data: {e}")).with_source(e))?;
            if bytes.len() as u64 != member.size {
                return Err(bad(format!("it unpacks to {} bytes, the archive says {}", bytes.len(), member.size)));
            }
            self.unpacked = Some((member.header, bytes));
        }
        let all = self.unpacked.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        // the range was checked against the member's size, which is that of the bytes
        Ok(&all[range.start as usize..range.end as usize])
    }
}

/// Counts bytes against the rest of a limit. Errors: Format if they are more.
pub(super) fn take(left: &mut u64, bytes: u64) -> Result<()> {
    *left = left.checked_sub(bytes).ok_or_else(|| {
        bad(format!("{bytes} bytes where {left} are left of what tensors of a file of this length may take"))
    })?;
    Ok(())
}

/// Place and length of the directory, and how many members it has.
fn directory<R: Read + Seek>(from: &mut R, len: u64) -> Result<(u64, u64, u64)> {
    let no_end = || bad("the archive's end is missing: the file is cut off, or no zip archive");
    let tail_bytes = len.min(END_MAX_BYTES);
    let tail = bytes_at(from, len - tail_bytes, tail_bytes)?;
    // the comment behind it ends the file
    let is_end = |at: &usize| {
        tail[*at..].starts_with(&END) && *at + END_BYTES + usize::from(u16_at(&tail, at + 20)) == tail.len()
    };
    let end = (0..=tail.len().checked_sub(END_BYTES).ok_or_else(no_end)?).rev().find(is_end).ok_or_else(no_end)?;
    let end_at = len - tail_bytes + end as u64;
    let record = &tail[end..];
    let mut count = u64::from(u16_at(record, 10));
    let (mut bytes, mut at) = (u64::from(u32_at(record, 12)), u64::from(u32_at(record, 16)));
    if let Some(locator_at) = end_at.checked_sub(LOCATOR_BYTES) {
        let locator = bytes_at(from, locator_at, LOCATOR_BYTES)?;
        let end64_at = u64_at(&locator, 8);
        let is_there = end64_at.checked_add(END64_BYTES as u64).is_some_and(|end| end <= locator_at);
        if locator[..4] == LOCATOR && is_there {
            let record = bytes_at(from, end64_at, END64_BYTES as u64)?;
            if record[..4] != END64 {
                return Err(bad("no end record where the archive says it is"));
            }
            (count, bytes, at) = (u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48));
        }
    }
    let end = at.checked_add(bytes).filter(|end| *end <= end_at && bytes <= DIRECTORY_MAX_BYTES);
    match end {
        Some(_) => Ok((at, bytes, count)),
        None => Err(bad(format!("a directory of {bytes} bytes at byte {at} of a file of {len}"))),
    }
}

/// The first entry of a directory that begins at `directory_at` of the file, and what follows it.
fn entry(bytes: &[u8], directory_at: u64) -> Result<(&str, Member, &[u8])> {
    let cut = || bad("the directory ends within it");
    let (fixed, rest) = bytes.split_at_checked(ENTRY_BYTES).ok_or_else(cut)?;
    if fixed[..4] != ENTRY {
        return Err(bad("no entry of a directory"));
    }
    let (name, rest) = rest.split_at_checked(u16_at(fixed, 28).into()).ok_or_else(cut)?;
    let (extra, rest) = rest.split_at_checked(u16_at(fixed, 30).into()).ok_or_else(cut)?;
    let (_, rest) = rest.split_at_checked(u16_at(fixed, 32).into()).ok_or_else(cut)?;
    let name = std::str::from_utf8(name).map_err(|_| bad("a name that is no UTF-8"))?;
    let mut large = extra64(extra);
    // what does not fit in 32 bits is all ones, and in the extra field, one behind the other
    let mut wide = |at: usize| match u32_at(fixed, at) {
        u32::MAX => {
            let (first, rest) = large.split_first_chunk()?;
            large = rest;
            Some(u64::from_le_bytes(*first))
        }
        size => Some(u64::from(size)),
    };
    let no_size = || bad(format!("`{name}` has no size"));
    let size = wide(24).ok_or_else(no_size)?;
    let packed = wide(20).ok_or_else(no_size)?;
    let header = wide(42).ok_or_else(no_size)?;
    let member = Member { method: u16_at(fixed, 10), crc: u32_at(fixed, 16), packed, size, header };
    let end = header.checked_add(LOCAL_BYTES as u64).and_then(|data| data.checked_add(packed));
    if end.is_none_or(|end| end > directory_at) {
        return Err(bad(format!("`{name}` has {packed} bytes from {header} on, behind which the directory begins")));
    }
    let fault = match member.method {
        _ if u16_at(fixed, 8) & ENCRYPTED != 0 => "is encrypted",
        STORED if packed != size => "is stored in another size than its own",
        STORED | DEFLATED => return Ok((name, member, rest)),
        _ => "is packed by a method other than deflate",
    };
    Err(bad(format!("`{name}` {fault}")))
}

/// The sizes of an entry's extra fields.
fn extra64(mut extra: &[u8]) -> &[u8] {
    while let Some((head, rest)) = extra.split_at_checked(4) {
        let Some((field, rest)) = rest.split_at_checked(u16_at(head, 2).into()) else { break };
        if u16_at(head, 0) == EXTRA64 {
            return field;
        }
        extra = rest;
    }
    &[]
}
