//! Files that come from outside: what they are and how large is looked at before anything of them is read.
//!
//! A device such as `/dev/zero` has no end, a pipe may never begin, and a hole takes no room on a disk and all of it in
//! memory. So readers of whole files take regular files alone, and state the most that they read.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{Error, ErrorKind, Result};

/// Opens a regular file; with its length. Errors, naming the path: Io, and Format for a folder, pipe, socket or device.
pub fn open_file(path: impl AsRef<Path>) -> Result<(File, u64)> {
    let path = path.as_ref();
    let named = |e: std::io::Error| Error::from(e).context(path.display());
    // looked at before it is opened: opening a pipe waits for a writer
    let kind = std::fs::metadata(path).map_err(named)?.file_type();
    if kind.is_file() {
        let file = File::open(path).map_err(named)?;
        let now = file.metadata().map_err(named)?;
        if now.is_file() {
            return Ok((file, now.len()));
        }
    }
    let what = if kind.is_dir() { "a folder" } else { "a pipe, socket or device" };
    Err(Error::new(ErrorKind::Format, format!("{}: {what}, not a regular file", path.display())))
}

/// The bytes of a regular file that has at most `limit_bytes`. Errors, naming the path: as [`open_file`], and Format for a
/// larger file, before it is read.
pub fn read_file(path: impl AsRef<Path>, limit_bytes: u64) -> Result<Vec<u8>> {
    let path = path.as_ref();
    let (file, len) = open_file(path)?;
    let too_large = |len: u64| {
        let text = format!("{}: {len} bytes, and at most {limit_bytes} are read", path.display());
        Error::new(ErrorKind::Format, text)
    };
    if len > limit_bytes {
        return Err(too_large(len));
    }
    let no_room = |e: std::collections::TryReserveError| Error::new(ErrorKind::Io, format!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX)).map_err(no_room)?;
    // it may grow while it is read
    let read = file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|e| Error::from(e).context(path.display()))?;
    if bytes.len() as u64 > limit_bytes {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit_and_not_beyond() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("four");
        std::fs::write(&path, b"four").expect("written");
        assert_eq!(read_file(&path, 4).expect("fits"), b"four");
        let e = read_file(&path, 3).expect_err("four bytes");
        assert!(e.kind() == ErrorKind::Format && e.message().contains("four") && e.message().contains('3'), "{e}");
        assert_eq!(read_file(dir.path().join("none"), 9).expect_err("not there").kind(), ErrorKind::Io);
        assert_eq!(read_file(dir.path(), 9).expect_err("a folder").kind(), ErrorKind::Format);
    }

    #[test]
    fn a_hole_larger_than_the_limit_is_refused_unread() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("hole");
        File::create(&path).and_then(|f| f.set_len(1 << 40)).expect("a hole takes no room");
        assert_eq!(read_file(&path, 1 << 30).expect_err("1 TiB").kind(), ErrorKind::Format);
    }

    #[cfg(unix)]
    #[test]
    fn devices_and_pipes_are_refused_unread() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
        assert!(made.success());
        for path in [Path::new("/dev/zero"), &pipe] {
            let e = read_file(path, 1 << 20).expect_err("no file");
            assert!(e.kind() == ErrorKind::Format && e.message().contains("not a regular file"), "{e}");
        }
    }
}
