//! Who used a word since the last point that orders all: in 64 bits, as pure functions.
//!
//! A cell names one writer and one reader, or says that there were several. That is enough to find every race: the first
//! access that conflicts with any earlier one meets a cell that names a conflicting party. A word that is used in parts is
//! split: its four bytes have cells of their own, elsewhere.

/// A way to use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    /// A read that no write of the launch may precede, by `ld.global.nc`.
    ReadOnly,
    Write,
    Atomic,
    /// A read beside which others may use atomics.
    StrongRead,
}

/// The party with which an access conflicts, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clash {
    /// The number of the block or thread; `None` for several.
    pub(super) other: Option<u32>,
    pub(super) other_wrote: bool,
}

const SPLIT: u64 = 1 << 63;
const ATOMIC: u64 = 1 << 62;

/// True if the word is split in this epoch.
pub(super) fn is_split(cell: u64, epoch: u64, layout: &Layout) -> bool {
    cell & SPLIT != 0 && cell >> layout.epoch_at & layout.epoch_mask == epoch
}

/// A cell that says that the word is split.
pub(super) fn split(epoch: u64, layout: &Layout) -> u64 {
    SPLIT | epoch << layout.epoch_at
}

/// Where the epoch lies in a cell.
pub(super) struct Layout {
    epoch_at: u32,
    pub(super) epoch_mask: u64,
}

/// Cells of memory of the device: writer and reader are blocks.
pub(super) mod by_block {
    use super::{ATOMIC, Clash, Layout, Use};

    const BITS: u32 = 24;
    const PARTY: u64 = (1 << BITS) - 1;
    pub(in super::super) const LAYOUT: Layout = Layout { epoch_at: 48, epoch_mask: (1 << 14) - 1 };
    /// The most blocks that cells can tell apart.
    pub(in super::super) const MAX_BLOCKS: u64 = PARTY - 1;

    fn party(code: u64) -> Option<u32> {
        (code != PARTY).then(|| code as u32 - 1)
    }

    /// True if the word was read, and if it was written, in this epoch.
    pub(in super::super) fn uses(cell: u64, epoch: u64) -> (bool, bool) {
        let is_now = cell >> LAYOUT.epoch_at & LAYOUT.epoch_mask == epoch;
        (is_now && cell >> BITS & PARTY != 0, is_now && cell & PARTY != 0)
    }

    /// The cell after a use by a block.
    #[inline(always)]
    pub(in super::super) fn after(cell: u64, epoch: u64, block: u32, how: Use) -> Result<u64, Clash> {
        let me = u64::from(block) + 1;
        let is_now = cell >> LAYOUT.epoch_at & LAYOUT.epoch_mask == epoch;
        let cell = if is_now { cell } else { 0 };
        let (writer, reader, is_atomic) = (cell & PARTY, cell >> BITS & PARTY, cell & ATOMIC != 0);
        let is_foreign = |code: u64| code != 0 && code != me;
        let wrote = || Clash { other: party(writer), other_wrote: true };
        let read = || Clash { other: party(reader), other_wrote: false };
        let (writer, reader, is_atomic) = match how {
            Use::Read | Use::ReadOnly => {
                if is_foreign(writer) || how == Use::ReadOnly && writer != 0 {
                    return Err(wrote());
                }
                (writer, if is_foreign(reader) { PARTY } else { me }, is_atomic)
            }
            Use::StrongRead => {
                if is_foreign(writer) && !is_atomic {
                    return Err(wrote());
                }
                (writer, reader, is_atomic)
            }
            Use::Write => {
                if is_foreign(writer) {
                    return Err(wrote());
                }
                if is_foreign(reader) {
                    return Err(read());
                }
                (me, reader, false)
            }
            Use::Atomic => {
                if is_foreign(writer) && !is_atomic {
                    return Err(wrote());
                }
                if is_foreign(reader) {
                    return Err(read());
                }
                (if is_foreign(writer) { PARTY } else { me }, reader, writer == 0 || is_atomic)
            }
        };
        Ok(writer | reader << BITS | epoch << LAYOUT.epoch_at | if is_atomic { ATOMIC } else { 0 })
    }
}

/// Cells of shared memory: writer and reader are threads of a block. A sync of their warp orders threads of one warp, so the
/// cell keeps how many syncs their warps had passed.
pub(super) mod by_thread {
    use super::{ATOMIC, Clash, Layout, Use};

    const BITS: u32 = 11;
    const FIELD: u64 = (1 << BITS) - 1;
    /// Several threads, all of one warp: this plus the number of the warp.
    const WARP: u64 = 1025;
    const MANY: u64 = FIELD;
    pub(in super::super) const LAYOUT: Layout = Layout { epoch_at: 44, epoch_mask: (1 << 18) - 1 };
    /// Syncs of a warp are counted modulo this.
    pub(in super::super) const SYNCS: u64 = FIELD + 1;

    /// A thread and the point that its block and its warp have reached.
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Who {
        pub(in super::super) thread: u32,
        pub(in super::super) epoch: u64,
        pub(in super::super) syncs: u64,
    }

    impl Who {
        fn code(self) -> u64 {
            u64::from(self.thread) + 1
        }

        fn warp(self) -> u64 {
            u64::from(self.thread) / 32
        }

        fn shares_warp(self, code: u64) -> bool {
            if code >= WARP { code == WARP + self.warp() } else { code != 0 && (code - 1) / 32 == self.warp() }
        }

        /// True if whoever has this code came before this thread's access, or is this thread.
        fn follows(self, code: u64, syncs: u64) -> bool {
            code == 0 || code == self.code() || self.shares_warp(code) && syncs != self.syncs
        }
    }

    fn clash(code: u64, other_wrote: bool) -> Clash {
        Clash { other: (code < WARP).then(|| code as u32 - 1), other_wrote }
    }

    /// 0 if the word was only read in this epoch, by threads of several warps.
    #[inline(always)]
    pub(in super::super) fn other_than_read_by_many(cell: u64, epoch: u64) -> u64 {
        let asked = super::SPLIT | LAYOUT.epoch_mask << LAYOUT.epoch_at | FIELD << BITS | FIELD;
        cell & asked ^ (epoch << LAYOUT.epoch_at | MANY << BITS)
    }

    /// A cell without what does not matter: the syncs of readers of several warps, which no sync orders.
    #[cfg(test)]
    pub(in super::super) fn known(cell: u64) -> u64 {
        if cell >> BITS & FIELD == MANY { cell & !(FIELD << (3 * BITS)) } else { cell }
    }

    /// The cell after a read of a word that nobody wrote in this epoch, and that is not split. It is what `after` gives.
    #[inline(always)]
    pub(in super::super) fn after_simple_read(cell: u64, who: Who) -> Option<u64> {
        let now = who.epoch << LAYOUT.epoch_at;
        let read_by = |reader: u64| now | reader << BITS | who.syncs << (3 * BITS);
        if cell >> LAYOUT.epoch_at & LAYOUT.epoch_mask != who.epoch {
            return Some(read_by(who.code()));
        }
        if cell & (super::SPLIT | FIELD) != 0 {
            return None;
        }
        let reader = cell >> BITS & FIELD;
        if reader == MANY {
            return Some(cell);
        }
        if who.follows(reader, cell >> (3 * BITS) & FIELD) {
            return Some(read_by(who.code()));
        }
        Some(read_by(if who.shares_warp(reader) { WARP + who.warp() } else { MANY }))
    }

    /// The cell after a use by a thread.
    #[inline(always)]
    pub(in super::super) fn after(cell: u64, who: Who, how: Use) -> Result<u64, Clash> {
        let is_now = cell >> LAYOUT.epoch_at & LAYOUT.epoch_mask == who.epoch;
        let cell = if is_now { cell } else { 0 };
        let (writer, reader) = (cell & FIELD, cell >> BITS & FIELD);
        let (writer_syncs, reader_syncs) = (cell >> (2 * BITS) & FIELD, cell >> (3 * BITS) & FIELD);
        let is_atomic = cell & ATOMIC != 0;
        let follows_writer = who.follows(writer, writer_syncs);
        let me = who.code();
        let pack = |writer: u64, reader: u64, writer_syncs: u64, reader_syncs: u64, is_atomic: bool| {
            let fields = writer | reader << BITS | writer_syncs << (2 * BITS) | reader_syncs << (3 * BITS);
            fields | who.epoch << LAYOUT.epoch_at | if is_atomic { ATOMIC } else { 0 }
        };
        match how {
            Use::Read | Use::ReadOnly | Use::StrongRead => {
                if !(follows_writer || how == Use::StrongRead && is_atomic) {
                    return Err(clash(writer, true));
                }
                let reader = if who.follows(reader, reader_syncs) {
                    me
                } else if who.shares_warp(reader) {
                    WARP + who.warp()
                } else {
                    MANY
                };
                Ok(pack(writer, reader, writer_syncs, who.syncs, is_atomic))
            }
            Use::Write | Use::Atomic => {
                if !(follows_writer || how == Use::Atomic && is_atomic) {
                    return Err(clash(writer, true));
                }
                if !who.follows(reader, reader_syncs) {
                    return Err(clash(reader, false));
                }
                // A thread that conflicts with an earlier reader also conflicts with this writer, who came after it.
                let stays_atomic = how == Use::Atomic && (writer == 0 || is_atomic);
                let writer = if follows_writer { me } else { MANY };
                Ok(pack(writer, 0, who.syncs, 0, stays_atomic))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::by_thread::Who;
    use super::*;

    #[test]
    fn blocks_race_in_either_order() {
        let step = |cell, block, how| by_block::after(cell, 5, block, how);
        let read = step(0, 1, Use::Read).unwrap();
        assert_eq!(step(read, 2, Use::Write), Err(Clash { other: Some(1), other_wrote: false }));
        let many = step(read, 2, Use::Read).unwrap();
        assert_eq!(step(many, 1, Use::Write), Err(Clash { other: None, other_wrote: false }));
        let write = step(0, 1, Use::Write).unwrap();
        assert_eq!(step(write, 0, Use::Read), Err(Clash { other: Some(1), other_wrote: true }));
        assert!(step(write, 1, Use::Read).is_ok() && step(write, 1, Use::ReadOnly).is_err());
        // another launch
        assert!(by_block::after(write, 6, 0, Use::Write).is_ok());
    }

    #[test]
    fn atomics_race_only_with_others() {
        let step = |cell, block, how| by_block::after(cell, 5, block, how);
        let atomic = step(0, 1, Use::Atomic).unwrap();
        let both = step(atomic, 2, Use::Atomic).unwrap();
        assert!(step(both, 3, Use::StrongRead).is_ok() && step(both, 1, Use::Read).is_err());
        assert!(step(both, 1, Use::Write).is_err());
        let plain = step(atomic, 1, Use::Write).unwrap();
        assert!(step(plain, 2, Use::Atomic).is_err());
    }

    #[test]
    fn a_sync_of_the_warp_orders_its_threads_only() {
        let who = |thread, syncs| Who { thread, epoch: 7, syncs };
        let step = by_thread::after;
        let write = step(0, who(0, 0), Use::Write).unwrap();
        assert!(step(write, who(1, 0), Use::Read).is_err());
        let read = step(write, who(1, 1), Use::Read).unwrap();
        assert!(step(read, who(32, 1), Use::Read).is_err(), "another warp is not ordered after the write");
        let two = step(read, who(2, 1), Use::Read).unwrap();
        assert!(step(two, who(1, 1), Use::Write).is_err() && step(two, who(1, 2), Use::Write).is_ok());
        assert!(step(two, Who { thread: 40, epoch: 8, syncs: 0 }, Use::Write).is_ok());
    }
}
