//! A stream of work on one arena, by offset. Its methods are safe: they check every range and every argument before the driver
//! sees it, and keep pinned memory until its copies are done.

use remat_types::{Error, ErrorKind, Result};

use super::context::Context;
use super::memory::{Arena, Pinned};
use super::module::{Argument, Function, Grid};
use super::stream::{Event, Stream};
use super::table::Address;

/// Bytes of the least staging buffer.
const LEAST_STAGING: usize = 64 << 10;
/// Bytes that a move within the arena goes through, where both ranges are nearer to one another.
const BOUNCE_BYTES: usize = 1 << 20;

/// See the module's note.
pub struct Lane {
    stream: Stream,
    /// Buffers for copies to the device, each with the end of its last copy.
    staging: Vec<(Pinned, Event)>,
    /// Memory of the device for moves; made with the first one.
    bounce: Option<Arena>,
}

/// A kernel whose parameters are known, so that a launch can be checked.
#[derive(Clone)]
pub struct Kernel {
    pub(super) function: Function,
    /// Bytes of each parameter.
    pub(super) parameters: Vec<usize>,
}

impl Lane {
    /// A lane of a context.
    pub fn new(context: &Context) -> Result<Lane> {
        Ok(Lane { stream: Stream::new(context)?, staging: Vec::new(), bounce: None })
    }

    /// Its stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues a copy of `bytes` to offset `at`. They are copied from before this returns.
    pub fn upload(&mut self, arena: &Arena, at: usize, bytes: &[u8]) -> Result<()> {
        let to = within(arena, at, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let i = self.free_buffer(bytes.len())?;
        let (pinned, done) = &mut self.staging[i];
        pinned.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: the buffer is used again only after `done`, which is recorded behind the copy, and is dropped only after the
        // stream's work; the range lies in the arena, whose owner orders its work.
        unsafe { pinned.copy_in(0, to, bytes.len(), &self.stream) }?;
        done.record(&self.stream)
    }

    /// Queues a fill of a range with one byte.
    pub fn fill(&mut self, arena: &Arena, at: usize, byte: u8, bytes: usize) -> Result<()> {
        let to = within(arena, at, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range lies in the arena, whose owner orders its work.
        unsafe { self.stream.fill(to, byte, bytes) }
    }

    /// Queues a copy of bytes from one offset to another. Errors (Internal): the ranges overlap.
    pub fn copy(&mut self, arena: &Arena, from: usize, to: usize, bytes: usize) -> Result<()> {
        if from.abs_diff(to) < bytes {
            return Err(Error::new(ErrorKind::Internal, "a copy onto itself"));
        }
        self.shift(arena, from, to, bytes)
    }

    /// A buffer of at least `bytes` bytes whose last copy is done.
    fn free_buffer(&mut self, bytes: usize) -> Result<usize> {
        for (i, (pinned, done)) in self.staging.iter().enumerate() {
            if pinned.bytes().len() >= bytes && done.state()? == super::State::Reached {
                return Ok(i);
            }
        }
        let context = self.stream.context();
        let pinned = Pinned::new(context, bytes.next_power_of_two().max(LEAST_STAGING))?;
        self.staging.push((pinned, Event::new(context, false)?));
        Ok(self.staging.len() - 1)
    }

    /// Waits for the stream's work and copies bytes from offset `at` to the host.
    pub fn download(&mut self, arena: &Arena, at: usize, bytes: usize) -> Result<Vec<u8>> {
        let from = within(arena, at, bytes)?;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let i = self.free_buffer(bytes)?;
        let pinned = &mut self.staging[i].0;
        // SAFETY: the copy is waited for before the buffer is read; the range lies in the arena.
        unsafe { pinned.copy_out(0, from, bytes, &self.stream) }?;
        self.stream.synchronize()?;
        Ok(pinned.bytes()[..bytes].to_vec())
    }

    /// Queues a move of bytes from one offset to another. The ranges may overlap.
    pub fn shift(&mut self, arena: &Arena, from: usize, to: usize, bytes: usize) -> Result<()> {
        let (source, target) = (within(arena, from, bytes)?, within(arena, to, bytes)?);
        let distance = from.abs_diff(to);
        if distance == 0 || bytes == 0 {
            return Ok(());
        }
        if self.bounce.is_none() && distance < bytes.min(BOUNCE_BYTES) {
            self.bounce = Some(Arena::whole(self.stream.context(), BOUNCE_BYTES)?);
        }
        // pieces that are not longer than the distance do not overlap their target; nearer ones go through other memory
        let is_near = distance < bytes.min(BOUNCE_BYTES);
        let piece = if is_near { BOUNCE_BYTES } else { distance };
        let pieces = (0..bytes).step_by(piece).map(|begin| (begin, piece.min(bytes - begin)));
        let mut pieces: Vec<(usize, usize)> = pieces.collect();
        if to > from {
            pieces.reverse();
        }
        for (begin, size) in pieces {
            let (source, target) = (source + begin as Address, target + begin as Address);
            match self.bounce.as_ref().filter(|_| is_near) {
                // SAFETY: all ranges are allocated, as checked above, and do not overlap; one stream orders them.
                Some(b) => unsafe {
                    self.stream.copy(b.base(), source, size)?;
                    self.stream.copy(target, b.base(), size)?;
                },
                // SAFETY: as above; the piece is not longer than the distance.
                None => unsafe { self.stream.copy(target, source, size) }?,
            }
        }
        Ok(())
    }

    /// Queues a launch. Errors (Internal): the arguments are not those that the kernel declares.
    ///
    /// The kernel may write wherever its arguments lead on the device; it reaches no memory of the host.
    pub fn launch(&self, kernel: &Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
        if !arguments.iter().map(Argument::size_bytes).eq(kernel.parameters.iter().copied()) {
            let text = format!("kernel `{}` takes other arguments than {arguments:?}", kernel.function.name());
            return Err(Error::new(ErrorKind::Internal, text));
        }
        // SAFETY: the arguments have the declared number and sizes.
        unsafe { kernel.function.launch(grid, arguments, &self.stream) }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // its buffers go now: their copies must be done; an error was told, or will be told by the next call
        let _ = self.stream.synchronize();
    }
}

/// The address of offset `at`. Errors (Internal): the range leaves the arena.
fn within(arena: &Arena, at: usize, bytes: usize) -> Result<Address> {
    match at.checked_add(bytes) {
        Some(end) if end <= arena.bytes() => Ok(arena.base() + at as Address),
        _ => {
            let text = format!("bytes {at}..+{bytes} of an arena of {}", arena.bytes());
            Err(Error::new(ErrorKind::Internal, text))
        }
    }
}
