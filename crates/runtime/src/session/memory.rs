//! Memory of sessions: blocks from the system or the user, and workspaces that sessions share.

use std::fmt;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{Advice, MmapMut};
use remat_types::{Error, ErrorKind, Result};

use remat_device::Alignment;

/// Memory that a session borrows for its life.
pub type SessionMemory = Box<dyn DerefMut<Target = [u8]> + Send>;

/// Gives memory of at least so many bytes; its alignment and content do not matter.
pub type Allocate = Arc<dyn Fn(usize) -> Result<SessionMemory> + Send + Sync>;

/// Scratch memory of sessions; clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct Workspace(Arc<Mutex<Block>>);

impl Workspace {
    /// No memory yet; it grows to what the largest of its sessions needs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes it has now.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Block> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives its memory back; the next run takes it again.
    pub fn release(&self) {
        *self.lock() = Block::default();
    }
}

/// Memory and how much of it, from its first aligned byte, is used.
#[derive(Default)]
pub(super) struct Block {
    memory: Option<SessionMemory>,
    pub(super) bytes: usize,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

impl Block {
    /// Makes it `bytes` large if it is smaller; what it held is lost then. Errors: the allocator's; Io.
    pub(super) fn reserve(&mut self, bytes: usize, allocate: Option<&Allocate>) -> Result<()> {
        if self.bytes >= bytes {
            return Ok(());
        }
        // the old block goes first: both at once may be more than there is
        *self = Block::default();
        let asked = bytes
            .checked_add(Alignment::HOST.bytes())
            .ok_or_else(|| Error::new(ErrorKind::Io, format!("{bytes} bytes of memory for a session")))?;
        let memory = match allocate {
            Some(f) => f(asked)?,
            None => mapped(asked)?,
        };
        *self = Block { memory: Some(memory), bytes };
        self.slice().map(|_| ())
    }

    /// The used bytes, aligned. Errors (Value) if the user's memory is smaller than it was asked to be.
    pub(super) fn slice(&mut self) -> Result<&mut [u8]> {
        let Some(memory) = &mut self.memory else {
            // A plain empty slice begins at address 1, where no wider element may lie.
            // SAFETY: not null, aligned and of no bytes.
            return Ok(unsafe {
                std::slice::from_raw_parts_mut(std::ptr::without_provenance_mut(Alignment::HOST.bytes()), 0)
            });
        };
        let all: &mut [u8] = memory;
        let (at, has) = (all.as_ptr().align_offset(Alignment::HOST.bytes()), all.len());
        let small = || {
            let text = format!(
                "the session's memory has {has} bytes, and {} were asked for",
                self.bytes + Alignment::HOST.bytes()
            );
            Error::new(ErrorKind::Value, text)
        };
        all.get_mut(at..at.saturating_add(self.bytes)).ok_or_else(small)
    }

    /// Writes to every page.
    pub(super) fn prefault(&mut self) -> Result<()> {
        const PAGE: usize = 4096;
        // A write of what is there already, which the compiler must not see through.
        for page in self.slice()?.chunks_mut(PAGE) {
            page[0] = std::hint::black_box(page[0]);
        }
        Ok(())
    }
}

fn mapped(bytes: usize) -> Result<SessionMemory> {
    let map =
        MmapMut::map_anon(bytes).map_err(|e| Error::new(ErrorKind::Io, format!("cannot map {bytes} bytes: {e}")))?;
    // may be refused where there are no huge pages; it changes speed only
    let _ = map.advise(Advice::HugePage);
    Ok(Box::new(map))
}
