//! A file for tensors that leave the memory of a run and come back later in the run.
//!
//! One thread copies out and one copies in, both beside the kernels, as the planner's clock assumes
//! ([`remat_graph::plan`]). The file has no name, so the system removes it however the process ends.

mod constants;
mod disk;
mod file;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remat_graph::plan::problem::{Bytes, OpSpec, SpillRates};
use remat_types::{Error, ErrorKind, Result};

use crate::arena::Alignment;

pub use constants::ConstantFile;
pub use disk::BLOCK_BYTES;
use disk::{Bounce, Disk};
pub use file::{Flight, Slot, SpillFile};

/// A folder to which a device may copy tensors that it will need later, and the rates of such copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpillTo {
    folder: PathBuf,
    rates: SpillRates,
    most_bytes: u64,
}

impl SpillTo {
    /// Measures the folder: writes 64 MiB to the disk and reads them back, past the system's cache where the system
    /// allows it. Plans count on three quarters of the measured rates. Errors (Io): the folder is not there, cannot be
    /// written or has no room.
    pub fn measure(folder: impl Into<PathBuf>) -> Result<SpillTo> {
        let folder = folder.into();
        let rates = measure(&folder).map_err(|e| failed("measure", &folder, &e))?;
        Ok(SpillTo { folder, rates, most_bytes: u64::MAX })
    }

    /// A folder with given rates, on which plans count. Errors (Value): a rate of zero.
    pub fn with_rates(folder: impl Into<PathBuf>, rates: SpillRates) -> Result<SpillTo> {
        if !rates.is_possible() {
            return Err(Error::new(ErrorKind::Value, format!("{rates:?}: both must be positive")));
        }
        Ok(SpillTo { folder: folder.into(), rates, most_bytes: u64::MAX })
    }

    /// The same with files of at most `bytes` bytes. An eager device has one file; an executable has one for each run
    /// at a time. The planner computes values again that have no room in the file.
    pub fn at_most(self, bytes: u64) -> SpillTo {
        SpillTo { most_bytes: bytes, ..self }
    }

    /// The most bytes that a file may have.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// The same folder at other rates. Errors (Value): a rate of zero.
    pub fn at_rates(&self, rates: SpillRates) -> Result<SpillTo> {
        Ok(SpillTo::with_rates(self.folder.clone(), rates)?.at_most(self.most_bytes))
    }

    /// True if the system keeps files of this folder in memory (tmpfs, ramfs): a copy there would take the memory that
    /// it is to save. Known on Linux only.
    pub fn is_in_memory(folder: &Path) -> bool {
        disk::is_in_memory(folder)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The rates on which plans count.
    pub fn rates(&self) -> SpillRates {
        self.rates
    }

    /// Opens a file in the folder that nobody else sees. Errors (Io): the folder is not there, or cannot be written.
    pub fn open(&self) -> Result<SpillFile> {
        SpillFile::over(self.file()?, self.folder.clone())
    }

    /// A file in the folder that has no name.
    fn file(&self) -> Result<File> {
        tempfile::tempfile_in(&self.folder).map_err(|e| failed("open", &self.folder, &e))
    }
}

/// The best alignment of storages if some of them are copied. Whole blocks are copied without a buffer, so that is
/// [`BLOCK_BYTES`]. Where storages are so small that whole blocks would waste memory, it is the device's.
pub fn alignment(ops: &[OpSpec], device: Alignment) -> u64 {
    const MOST_WASTE: u64 = 32;
    let (block, mut bytes, mut waste) = (BLOCK_BYTES as u64, 0u64, 0u64);
    for y in ops.iter().flat_map(|o| &o.outputs) {
        if let Bytes::Own(own) | Bytes::OwnOr(own, _) = y.bytes {
            bytes = bytes.saturating_add(own);
            waste = waste.saturating_add((block - own % block) % block);
        }
    }
    if waste <= bytes / MOST_WASTE { block } else { device.bytes() as u64 }
}

/// The bytes per second on which plans may count, where a copy of `bytes` bytes took `took`. It is less than the
/// measured rate: kernels run beside the copies, and a plan leaves copies no spare time, so one late copy delays all
/// that follow.
fn dependable(bytes: u64, took: Duration) -> u64 {
    const SHARE: f64 = 0.75;
    ((bytes as f64 * SHARE / took.as_secs_f64().max(1e-9)) as u64).max(1)
}

fn failed(what: &str, folder: &Path, e: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what} a spill file in `{}`: {e}", folder.display()))
}

fn measure(folder: &Path) -> std::io::Result<SpillRates> {
    const CHUNK: usize = 4 << 20;
    const CHUNKS: usize = 16;
    let disk = Disk::new(tempfile::tempfile_in(folder)?);
    let (mut memory, mut unused) = (Bounce::default(), Bounce::default());
    let chunk = memory.part(CHUNK);
    // bytes without a pattern, since the disk may compress
    let mut word = 1u64;
    for bytes in chunk.chunks_exact_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.copy_from_slice(&word.rotate_left(29).to_le_bytes());
    }
    let rate = |begin: Instant| dependable((CHUNK * CHUNKS) as u64, begin.elapsed());
    let begin = Instant::now();
    for i in 0..CHUNKS {
        disk.write(chunk, (i * CHUNK) as u64, &mut unused)?;
    }
    if !disk.is_direct() {
        disk.flush()?;
    }
    let write_bytes_per_s = rate(begin);
    let begin = Instant::now();
    for i in 0..CHUNKS {
        disk.read(chunk, (i * CHUNK) as u64, &mut unused)?;
    }
    Ok(SpillRates { write_bytes_per_s, read_bytes_per_s: rate(begin) })
}
