//! A range of host memory that is addressed by offset and handed out as disjoint slices.
//!
//! The whole address range is mapped once without reserving swap, so that growing and shrinking move nothing; pages
//! cost memory only after they are first written, and [`Region::release`] gives them back.

use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use remat_types::{Error, ErrorKind, Result};

/// See the module's note.
pub struct Region {
    map: MmapRaw,
    /// Offsets below this may be used; it never shrinks.
    usable: AtomicUsize,
}

/// The size of a huge page on most processors.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The least size for which a range asks for huge pages. Smaller ranges would only be rounded up.
pub const HUGE_PAGE_MIN_BYTES: usize = 4 * HUGE_PAGE_BYTES;

impl Region {
    /// Maps `bytes` of address space; none of it is usable yet.
    pub fn new(bytes: usize) -> Result<Self> {
        let map = MmapOptions::new().len(bytes.max(4096)).no_reserve_swap().map_anon().map_err(|e| {
            let hint = "a limit of the address space (`ulimit -v`) must leave room for it, or give a smaller budget";
            Error::new(ErrorKind::Io, format!("cannot map {bytes} bytes of address space: {e}; {hint}"))
        })?;
        Ok(Region { map: MmapRaw::from(map), usable: AtomicUsize::new(0) })
    }

    /// Makes `0..bytes` usable. Errors: Io beyond the mapped range.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        if bytes > self.map.len() {
            let text = format!("{bytes} bytes asked of a device that mapped {} when it was opened", self.map.len());
            return Err(Error::new(ErrorKind::Io, text));
        }
        if bytes > self.usable.load(Ordering::Relaxed) && bytes >= HUGE_PAGE_MIN_BYTES {
            // The system may refuse the advice (no huge pages); that changes speed only.
            let _ = self.map.advise_range(Advice::HugePage, 0, bytes);
        }
        self.usable.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the whole pages within `from..to` back to the system; their content becomes zero.
    ///
    /// # Safety
    /// No slice of a range that overlaps `from..to` may be alive.
    pub unsafe fn release(&self, from: usize, to: usize) {
        const PAGE: usize = 4096;
        let (from, to) = (from.div_ceil(PAGE) * PAGE, to.min(self.map.len()) / PAGE * PAGE);
        if from < to {
            // SAFETY: DontNeed zeroes anonymous private pages, which is a write; the caller promises that no slice sees it.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, to - from) };
        }
    }

    /// Shared bytes `at..at + bytes`. Errors: Internal outside the usable range.
    ///
    /// # Safety
    /// No mutable slice of an overlapping range may be alive while the result is.
    pub unsafe fn bytes(&self, at: usize, bytes: usize) -> Result<&[u8]> {
        self.check(at, bytes)?;
        // SAFETY: the check keeps the bytes within the mapping, which does not move while `self` lives. Anonymous
        // memory is initialised (zero). Aliasing is the caller's promise.
        Ok(unsafe { slice::from_raw_parts(self.map.as_mut_ptr().add(at), bytes) })
    }

    /// Exclusive bytes `at..at + bytes`. Errors: Internal outside the usable range.
    ///
    /// # Safety
    /// No other slice of an overlapping range may be alive while the result is.
    #[allow(clippy::mut_from_ref, reason = "disjointness is established by the arena, range by range")]
    pub unsafe fn bytes_mut(&self, at: usize, bytes: usize) -> Result<&mut [u8]> {
        self.check(at, bytes)?;
        // SAFETY: as in `bytes`; exclusiveness is the caller's promise.
        Ok(unsafe { slice::from_raw_parts_mut(self.map.as_mut_ptr().add(at), bytes) })
    }

    /// First of the bytes `at..at + bytes`. Errors: Internal outside the usable range.
    pub fn first(&self, at: usize, bytes: usize) -> Result<*mut u8> {
        self.check(at, bytes)?;
        // SAFETY: in bounds of the mapping by the check.
        Ok(unsafe { self.map.as_mut_ptr().add(at) })
    }

    fn check(&self, at: usize, bytes: usize) -> Result<()> {
        let usable = self.usable.load(Ordering::Relaxed);
        if at.checked_add(bytes).is_none_or(|end| end > usable) {
            let text = format!("bytes {at}..+{bytes} lie outside the {usable} usable ones");
            return Err(Error::new(ErrorKind::Internal, text));
        }
        Ok(())
    }
}
