//! A fault of a kernel: its kind, and where it happened.

use std::fmt;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The launch has extents, shared memory or parameters that the kernel does not take. No block ran.
    Launch,
    /// An access outside of what was allocated.
    OutOfBounds,
    /// An access to reserved addresses at which no memory is mapped, or none that may be accessed.
    Unmapped,
    /// An address that is not a multiple of the size of the access.
    Misaligned,
    /// A read of bytes that nobody wrote.
    Uninitialised,
    /// Two threads of a block used the same bytes of shared memory, one of them wrote, and no barrier orders them.
    SharedRace,
    /// Two blocks of a launch used the same bytes, and one of them wrote, not by atomics.
    GlobalRace,
    /// A read of bytes to which an asynchronous copy is under way.
    PendingCopy,
    /// A barrier that not all threads of the block reach.
    Barrier,
    /// An instruction of a warp whose members are not all there.
    Warp,
    /// `trap`.
    Trap,
    /// More instructions than the limit: the kernel hangs.
    Limit,
}

/// A fault of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// The block.
    pub block: [u32; 3],
    /// The thread within the block.
    pub thread: [u32; 3],
    /// Line of the PTX, from 1; 0 for a fault of the launch itself.
    pub line: u32,
    /// The text of that line.
    pub text: String,
    /// The address, for faults of memory. Addresses of shared and local memory count from the beginning of that space.
    pub address: Option<u64>,
    /// The fault in words.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}", self.kernel)?;
        if self.line > 0 {
            let (b, t) = (self.block, self.thread);
            write!(f, ", block ({}, {}, {}), thread ({}, {}, {})", b[0], b[1], b[2], t[0], t[1], t[2])?;
            write!(f, ", PTX line {}: `{}`", self.line, self.text)?;
        }
        write!(f, ": {}", self.message)?;
        match self.address {
            Some(address) => write!(f, " (address {address:#x})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// A fault before its place is known.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) kind: FaultKind,
    pub(super) address: Option<u64>,
    /// The thread, counted within the block.
    pub(super) thread: usize,
    pub(super) message: String,
}

impl Trouble {
    #[cold]
    pub(super) fn at(kind: FaultKind, address: u64, message: impl Into<String>) -> Box<Self> {
        Box::new(Trouble { kind, address: Some(address), thread: 0, message: message.into() })
    }

    #[cold]
    pub(super) fn new(kind: FaultKind, thread: usize, message: impl Into<String>) -> Box<Self> {
        Box::new(Trouble { kind, address: None, thread, message: message.into() })
    }

    #[cold]
    pub(super) fn by(mut self: Box<Self>, thread: usize) -> Box<Self> {
        self.thread = thread;
        self
    }
}

/// The trouble is boxed: what is returned for each access of each lane must be small.
pub(super) type Tried<T> = Result<T, Box<Trouble>>;
