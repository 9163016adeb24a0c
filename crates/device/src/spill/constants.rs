//! A file of constants, which is written once and read in every run that needs them.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use remat_types::Result;

use super::disk::{BLOCK_BYTES, Bounce, Disk};
use super::{SpillTo, failed};

/// A file without a name that only grows. The system removes it when this is dropped.
#[derive(Debug)]
pub struct ConstantFile {
    disk: Disk,
    folder: PathBuf,
    end: u64,
    bounce: Mutex<Bounce>,
}

impl ConstantFile {
    /// Errors (Io): the folder is not there, or cannot be written.
    pub fn create(to: &SpillTo) -> Result<ConstantFile> {
        let (disk, folder) = (Disk::new(to.file()?), to.folder().to_owned());
        Ok(ConstantFile { disk, folder, end: 0, bounce: Mutex::default() })
    }

    /// Writes bytes, and gives their place. Errors (Io): no room.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64> {
        let (at, bounce) = (self.end, self.bounce.get_mut().unwrap_or_else(PoisonError::into_inner));
        self.disk.write(bytes, at, bounce).map_err(|e| failed("write", &self.folder, &e))?;
        self.end += bytes.len().next_multiple_of(BLOCK_BYTES) as u64;
        Ok(at)
    }

    /// Waits until all bytes are on the disk, so that the system's cache need not keep them in memory. Errors (Io): the
    /// disk failed.
    pub fn flush(&self) -> Result<()> {
        self.disk.flush().map_err(|e| failed("write", &self.folder, &e))
    }

    /// Reads bytes that were written at a place. Errors (Io): the disk failed.
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let mut bounce = self.bounce.lock().unwrap_or_else(PoisonError::into_inner);
        self.disk.read(bytes, at, &mut bounce).map_err(|e| failed("read", &self.folder, &e))
    }
}
