//! Reads and writes of the spill file that bypass the system's cache, where the file system allows it.
//!
//! A cache would cost what spilling is to save: a copy of the bytes in memory, and the processor's time to make it.
//! Direct transfers need addresses, offsets and lengths in whole blocks. Other bytes go through an aligned buffer.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Addresses, offsets and lengths of direct transfers are multiples of this. It is the usual size of a page, and
/// suffices for usual disks. A disk that needs more refuses the transfer.
pub const BLOCK_BYTES: usize = 4096;

/// The size of the parts that go through a buffer. A part stays in the processor's cache.
const PART_BYTES: usize = 1 << 20;

/// Memory for parts that lie across blocks; each thread that copies has one.
#[derive(Debug, Default)]
pub(super) struct Bounce {
    bytes: Vec<u8>,
}

impl Bounce {
    /// `len` bytes from a multiple of [`BLOCK_BYTES`] on.
    pub(super) fn part(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(self.bytes.len().max(len + BLOCK_BYTES), 0);
        let skip = self.bytes.as_ptr().align_offset(BLOCK_BYTES);
        &mut self.bytes[skip..skip + len]
    }
}

/// See the module's note.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    is_direct: AtomicBool,
}

impl Disk {
    pub(super) fn new(file: File) -> Disk {
        let is_direct = AtomicBool::new(set_direct(&file, true));
        Disk { file, is_direct }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Writes bytes at a multiple of [`BLOCK_BYTES`]. The file's bytes after them, up to the next multiple, may change
    /// too.
    pub(super) fn write(&self, bytes: &[u8], at: u64, bounce: &mut Bounce) -> io::Result<()> {
        if self.is_direct() {
            match self.write_direct(bytes, at, bounce) {
                Err(e) if is_refused(&e) => self.end_direct(),
                done => return done,
            }
        }
        self.file.write_all_at(bytes, at)
    }

    fn write_direct(&self, bytes: &[u8], at: u64, bounce: &mut Bounce) -> io::Result<()> {
        let whole = whole_blocks(bytes.as_ptr(), bytes.len());
        self.file.write_all_at(&bytes[..whole], at)?;
        let mut at = at + whole as u64;
        for part in bytes[whole..].chunks(PART_BYTES) {
            let blocks = bounce.part(part.len().next_multiple_of(BLOCK_BYTES));
            blocks[..part.len()].copy_from_slice(part);
            self.file.write_all_at(blocks, at)?;
            at += blocks.len() as u64;
        }
        Ok(())
    }

    /// Reads what was written there.
    pub(super) fn read(&self, bytes: &mut [u8], at: u64, bounce: &mut Bounce) -> io::Result<()> {
        if self.is_direct() {
            match self.read_direct(bytes, at, bounce) {
                Err(e) if is_refused(&e) => self.end_direct(),
                done => return done,
            }
        }
        self.file.read_exact_at(bytes, at)
    }

    fn read_direct(&self, bytes: &mut [u8], at: u64, bounce: &mut Bounce) -> io::Result<()> {
        let whole = whole_blocks(bytes.as_ptr(), bytes.len());
        self.file.read_exact_at(&mut bytes[..whole], at)?;
        let mut at = at + whole as u64;
        for part in bytes[whole..].chunks_mut(PART_BYTES) {
            let blocks = bounce.part(part.len().next_multiple_of(BLOCK_BYTES));
            self.file.read_exact_at(blocks, at)?;
            part.copy_from_slice(&blocks[..part.len()]);
            at += blocks.len() as u64;
        }
        Ok(())
    }

    /// Waits until all bytes are on the disk, and asks the system to drop its cache of the file.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()?;
        forget(&self.file);
        Ok(())
    }

    /// Ends direct transfers: some file systems accept the flag and then refuse the transfers.
    fn end_direct(&self) {
        set_direct(&self.file, false);
        self.is_direct.store(false, Ordering::Relaxed);
    }
}

/// How many of `bytes` bytes at an address can be transferred without a buffer.
fn whole_blocks(first: *const u8, bytes: usize) -> usize {
    if first.align_offset(BLOCK_BYTES) == 0 { bytes / BLOCK_BYTES * BLOCK_BYTES } else { 0 }
}

#[cfg(target_os = "linux")]
fn is_refused(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EINVAL)
}

#[cfg(not(target_os = "linux"))]
fn is_refused(_: &io::Error) -> bool {
    false
}

/// True if the folder's file system has no disk.
#[cfg(target_os = "linux")]
pub(super) fn is_in_memory(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;

    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    let mut seen = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends with a zero and `seen` has room; the call has written it if it returns 0.
    let kind = unsafe { (libc::statfs(path.as_ptr(), seen.as_mut_ptr()) == 0).then(|| seen.assume_init().f_type) };
    // linux/magic.h defines RAMFS_MAGIC; the crate libc does not
    const RAMFS: i128 = 0x8584_58f6;
    // the integer types of both sides depend on the processor and the C library
    kind.is_some_and(|k| [i128::from(libc::TMPFS_MAGIC), RAMFS].contains(&i128::from(k)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_memory(_: &Path) -> bool {
    false
}

/// Switches direct transfers on or off. True if transfers bypass the cache from now on.
#[cfg(target_os = "linux")]
fn set_direct(file: &File, on: bool) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the calls read and set its flags alone.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags) == 0 && on
    }
}

#[cfg(not(target_os = "linux"))]
fn set_direct(_: &File, _: bool) -> bool {
    false
}

/// Asks the system to drop its cache of a file, where there is a way to ask.
#[cfg(target_os = "linux")]
fn forget(file: &File) {
    // SAFETY: the descriptor is open for as long as `file` is borrowed. The system may refuse the advice: then a
    // measurement measures the cache.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

#[cfg(not(target_os = "linux"))]
fn forget(_: &File) {}
