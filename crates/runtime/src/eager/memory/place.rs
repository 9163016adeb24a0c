//! Placing and freeing storages: the executive part of the online policy.
//!
//! Every block of the arena belongs to a storage of the table, scratch and staging included, so a compaction can move
//! all of them. No part of the worker holds an address across commands. Within a command, addresses are read at the
//! launch.

use remat_types::{Error, ErrorKind, Result};

use super::ledger::Label;
use super::table::{Storage, StorageId};
use crate::eager::launcher::note_last;
use crate::eager::worker::Worker;
use crate::profile::{Lane, Span};
use crate::report::Kind;
use crate::slab::Key;
use remat_device::{Block, End};
use remat_device::{Event, StreamId};

/// Without a budget the address range grows by at least this much.
const GROW_BYTES: usize = 32 << 20;

/// A result below this time per MiB counts as cheap to recompute, and is placed at the low end.
const CHEAP_NS_PER_MIB: f64 = 1.0e6;

impl Worker {
    /// Gives a storage bytes. It evicts others if the budget requires it. Errors: Budget.
    pub(in crate::eager) fn place(&mut self, id: StorageId, end: End) -> Result<()> {
        let bytes = self.table[id].bytes;
        let block = match self.place_planned(id, bytes).or_else(|| self.memory.arena.alloc(bytes, id.raw(), end)) {
            Some(b) => b,
            None => {
                let window = self.free_space(bytes, id)?;
                match window.and_then(|at| self.memory.arena.alloc_at(at, bytes, id.raw())) {
                    Some(b) => b,
                    None => self.memory.arena.alloc(bytes, id.raw(), end).ok_or_else(|| {
                        Error::new(ErrorKind::Internal, format!("no room for {bytes} bytes was made"))
                    })?,
                }
            }
        };
        self.put_down(id, block);
        Ok(())
    }

    /// Gives a storage a block that was allocated for it.
    pub(in crate::eager) fn put_down(&mut self, id: StorageId, block: Block) {
        let s = &self.table[id];
        self.memory.ledger.add(s.kind, s.label, block.bytes());
        self.table.set_block(id, block);
        self.invalidate_neighbours(id);
        if let Some(t) = &mut self.figures.trace {
            t.memory(self.launcher.now_ns(), self.memory.arena.in_use());
        }
    }

    /// Frees a storage's bytes. The storage stays in the table.
    pub(in crate::eager) fn unplace(&mut self, id: StorageId) {
        self.wait_copies_of(id);
        self.memory.ledger.note_peak(self.memory.arena.in_use());
        if let Some(block) = self.table.take_block(id) {
            let s = &self.table[id];
            self.memory.ledger.sub(s.kind, s.label, block.bytes());
            if self.launcher.is_asynchronous() {
                self.launcher.free_range(block.start(), block.end(), &s.touched);
            }
            self.memory.arena.free(block, s.bytes);
            let s = &mut self.table[id];
            s.touched.clear();
            (s.written, s.settled) = (Event::REACHED, Event::REACHED);
            self.invalidate_neighbours(id);
            if let Some(t) = &mut self.figures.trace {
                t.memory(self.launcher.now_ns(), self.memory.arena.in_use());
            }
        }
    }

    /// Waits for a collective that writes a storage beside the kernels of a synchronous device. Errors: the collective
    /// failed.
    pub(in crate::eager) fn settle(&mut self, id: StorageId) -> Result<()> {
        let s = &self.table[id];
        match s.is_resident() {
            true => self.launcher.device().settle(s.start(), s.bytes),
            false => Ok(()),
        }
    }

    /// Changes what a storage counts as.
    pub(in crate::eager) fn set_kind(&mut self, id: StorageId, kind: Kind) {
        let s = &mut self.table[id];
        if let Some(b) = &s.block {
            self.memory.ledger.sub(s.kind, s.label, b.bytes());
            self.memory.ledger.add(kind, s.label, b.bytes());
        }
        s.kind = kind;
    }

    /// Moves a block from one storage to another of the same size.
    pub(in crate::eager) fn hand_over(&mut self, from: StorageId, to: StorageId) {
        self.wait_copies_of(from);
        if let Some(block) = self.table.take_block(from) {
            let (f, t) = (&self.table[from], &self.table[to]);
            self.memory.ledger.sub(f.kind, f.label, block.bytes());
            self.memory.ledger.add(t.kind, t.label, block.bytes());
            let (written, settled, touched) = (f.written, f.settled, f.touched.clone());
            self.table[from].pinned_by_plan = false;
            self.memory.arena.set_owner(&block, to.raw());
            self.table.set_block(to, block);
            let t = &mut self.table[to];
            (t.written, t.settled, t.touched) = (written, settled, touched);
            self.invalidate_neighbours(from);
        }
    }

    /// A storage without bytes.
    pub(in crate::eager) fn new_storage(&mut self, bytes: usize, kind: Kind, label: Label) -> StorageId {
        let mut s = Storage::new(bytes, kind, label);
        s.last_use_ns = self.now_ns;
        let id = self.table.add(s);
        self.eviction.forget_costs(id);
        id
    }

    /// Extends the arena without a budget so that `need` bytes are free at its end. Errors: the device has no more.
    pub(in crate::eager) fn grow(&mut self, need: usize) -> Result<()> {
        let old = self.memory.arena.capacity();
        let generous = old + need.max(GROW_BYTES);
        let capacity = match self.launcher.device().reserve(generous) {
            Ok(()) => generous,
            Err(_) => {
                let exact = old + need - self.memory.arena.free_tail().min(need);
                self.launcher.device().reserve(exact)?;
                exact
            }
        };
        self.memory.arena.grow(capacity);
        Ok(())
    }

    pub(in crate::eager) fn evict(&mut self, id: StorageId) {
        let s = &self.table[id];
        let (bytes, label) = (s.block.as_ref().map_or(0, |b| b.bytes()), s.label);
        self.figures.stats.evictions += 1;
        self.eviction.note_evicted();
        self.figures.stats.evicted_bytes += bytes as u64;
        if let Some(t) = &mut self.figures.trace {
            let start_ns = self.launcher.now_ns();
            t.span(Span { lane: Lane::Memory, name: label.text, scope: None, start_ns, duration_ns: 0, bytes });
        }
        self.unplace(id);
    }

    /// Evicts everything that can be evicted, and gives the number of storages.
    pub(in crate::eager) fn evict_all(&mut self) -> usize {
        self.begin_short();
        let evictable = self.table.storages().filter(|(_, s)| s.is_evictable());
        let all: Vec<StorageId> = evictable.map(|(id, _)| id).collect();
        all.iter().for_each(|&id| self.evict(id));
        all.len()
    }

    /// Compacts the arena: moves all blocks together. That costs time, and changes no value.
    pub(in crate::eager) fn compact(&mut self) -> Result<()> {
        match self.launcher.is_asynchronous() {
            true => self.launcher.order_streams(),
            false => self.launcher.wait_idle(),
        }
        self.wait_copies();
        let mut moves = Vec::new();
        self.memory.arena.compact(|owner, from, block| moves.push((owner, from, block)));
        self.figures.stats.compactions += 1;
        for (owner, from, block) in moves {
            let moved = self.launcher.device().shift(from, block.start(), block.bytes())?;
            self.figures.stats.compacted_bytes += block.bytes() as u64;
            let id: StorageId = Key::from_raw(owner);
            self.table[id].block = Some(block);
            if self.launcher.is_asynchronous() {
                self.table[id].settled = moved;
                self.touch(id, moved);
            }
        }
        Ok(())
    }

    /// The end of the arena for a result: the low end if it is cheap to recompute, and else the high end.
    pub(in crate::eager) fn end_for(&self, cost_ns: f64, bytes: usize) -> End {
        if self.eviction.is_canonical() {
            return End::High;
        }
        let mib = bytes as f64 / (1 << 20) as f64;
        if cost_ns <= CHEAP_NS_PER_MIB * mib { End::Low } else { End::High }
    }

    /// On asynchronous devices: makes `stream` wait for earlier uses, on other streams, of the range that `id` was
    /// given.
    pub(in crate::eager) fn wait_for_range(&mut self, id: StorageId, stream: StreamId) {
        let Some(block) = &self.table[id].block else { return };
        self.launcher.wait_for_range(block.start(), block.end(), stream);
    }

    /// Notes a use of a storage on an asynchronous device.
    pub(in crate::eager) fn touch(&mut self, id: StorageId, event: Event) {
        note_last(&mut self.table[id].touched, event);
        self.launcher.note_event(event);
    }
}
