//! Memory of sessions: blocks from the system or the user, and workspaces that sessions share.

use std::fmt;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{Advice, MmapMut};
use remat_types::{Error, ErrorKind, Result};

use remat_device::Alignment;

/// Memory that a session borrows for its life.
pub type SessionMemory = Box<dyn DerefMut<Target = [u8]> + Send>;

/// Gives memory of at least so many bytes. Its alignment and content do not matter.
pub type Allocate = Arc<dyn Fn(usize) -> Result<SessionMemory> + Send + Sync>;

/// Scratch memory of sessions. Clones share one memory.
#[derive(Clone, Debug, Default)]
pub struct Workspace(Arc<Mutex<Block>>);

impl Workspace {
    /// An empty workspace. It grows to the need of the largest of its sessions.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes that it has now.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Block> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the memory back. The next run takes it again.
    pub fn release(&self) {
        *self.lock() = Block::default();
    }
}

/// Memory, with the number of bytes in use from its first aligned byte on.
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
    /// Makes the block `bytes` large if it is smaller; its content is lost then. Errors: the allocator's; Io.
    pub(super) fn reserve(&mut self, bytes: usize, allocate: Option<&Allocate>) -> Result<()> {
        if self.bytes >= bytes {
            return Ok(());
        }
        // the old block goes first: the two together may exceed the memory of the machine
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

    /// The bytes in use, aligned. Errors (Value) if the user's memory is smaller than requested.
    pub(super) fn slice(&mut self) -> Result<&mut [u8]> {
        let Some(memory) = &mut self.memory else {
            // An empty slice literal begins at address 1, where wider elements may not lie. SAFETY: the pointer is not
            // null and aligned, and the slice has no bytes.
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
        // Writes the byte that is there already. The compiler must not remove this.
        for page in self.slice()?.chunks_mut(PAGE) {
            page[0] = std::hint::black_box(page[0]);
        }
        Ok(())
    }
}

fn mapped(bytes: usize) -> Result<SessionMemory> {
    let map =
        MmapMut::map_anon(bytes).map_err(|e| Error::new(ErrorKind::Io, format!("cannot map {bytes} bytes: {e}")))?;
    // the system may refuse this where it has no huge pages; it changes speed only
    let _ = map.advise(Advice::HugePage);
    Ok(Box::new(map))
}
