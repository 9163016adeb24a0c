//! Instructions of whole warps: shuffles, votes, matches and reductions (PTX ISA 8.7, sections 9.7.9.6 and 9.7.13).

use super::access::lanes;
use super::block::Block;
use super::fault::{FaultKind, Tried, Trouble};
use crate::code::{Shuffle, WarpOp};
use crate::lanes::{Class, LANES, Slot};

impl Block<'_> {
    pub(super) fn warp_op(&mut self, op: &WarpOp, mask: &[u32]) -> Tried<()> {
        for (warp, &mask) in mask.iter().enumerate().filter(|(_, mask)| **mask != 0) {
            self.one_warp(op, warp, mask)?;
        }
        Ok(())
    }

    fn one_warp(&mut self, op: &WarpOp, warp: usize, mask: u32) -> Tried<()> {
        match *op {
            WarpOp::Shuffle { mode, to, is_valid, from, lane, clamp, members } => {
                self.check_members(members, warp, mask)?;
                return self.shuffle(mode, (to, is_valid), (from, lane, clamp), warp, mask);
            }
            WarpOp::Ballot { to, from, is_negated, members } => {
                self.check_members(members, warp, mask)?;
                let yes = self.yes(from, is_negated, warp) & mask;
                self.each(to, warp, mask, |members, _| yes & members, members);
            }
            WarpOp::Vote { to, from, is_negated, members, holds } => {
                self.check_members(members, warp, mask)?;
                let yes = self.yes(from, is_negated, warp) & mask;
                let row = self.regs.row(members, warp);
                let mut out = 0;
                for lane in lanes(mask) {
                    let members = self.regs.words[row][lane] & mask;
                    out |= u32::from(holds(yes & members, members)) << lane;
                }
                self.set_predicates(to, warp, mask, out);
            }
            WarpOp::ActiveMask { to } => self.each(to, warp, mask, |_, _| mask, to),
            WarpOp::Match { to, all, from, members } => {
                self.check_members(members, warp, mask)?;
                self.find_matches(to, all, from, members, warp, mask);
            }
            WarpOp::Reduce { to, from, members, combine } => {
                self.check_members(members, warp, mask)?;
                let values = self.regs.words[self.regs.row(from, warp)];
                let fold = |members: u32, lane: usize| {
                    let others = lanes(members & mask).filter(|l| *l != lane);
                    others.fold(values[lane], |sum, l| combine(sum, values[l]))
                };
                self.each(to, warp, mask, fold, members);
            }
            WarpOp::Sync { members } => {
                self.check_members(members, warp, mask)?;
                self.shared.pass_sync(warp);
            }
            WarpOp::LoadMatrix { ref to, ref address, is_transposed } => {
                return self.load_matrix(to, address, is_transposed, warp, mask);
            }
            WarpOp::Multiply { kind, k, ref d, ref a, ref b, ref c } => {
                self.check_whole(warp, mask)?;
                self.multiply(kind, k, (d, a, b, c), warp);
            }
        }
        Ok(())
    }

    /// Sets a register of each lane of the mask from the value of another register there.
    fn each(&mut self, to: Slot, warp: usize, mask: u32, f: impl Fn(u32, usize) -> u32, from: Slot) {
        let from = self.regs.words[self.regs.row(from, warp)];
        let row = self.regs.row(to, warp);
        for lane in lanes(mask) {
            self.regs.words[row][lane] = f(from[lane], lane);
        }
    }

    pub(super) fn yes(&self, from: Slot, is_negated: bool, warp: usize) -> u32 {
        let row = self.regs.predicates[self.regs.row(from, warp)];
        if is_negated { !row } else { row }
    }

    pub(super) fn set_predicates(&mut self, to: Slot, warp: usize, mask: u32, values: u32) {
        let row = self.regs.row(to, warp);
        let old = self.regs.predicates[row];
        self.regs.predicates[row] = old & !mask | values & mask;
    }

    /// Errors unless each lane is among the members that it names, and all of those that still run are here.
    fn check_members(&self, members: Slot, warp: usize, mask: u32) -> Tried<()> {
        let row = self.regs.row(members, warp);
        for lane in lanes(mask) {
            let thread = warp * LANES + lane;
            let named = self.regs.words[row][lane];
            if named >> lane & 1 == 0 {
                let message = format!("the lane is not among the members {named:#x} that it names");
                return Err(Trouble::new(FaultKind::Warp, thread, message));
            }
            let missing = named & self.live[warp] & !mask;
            if missing != 0 {
                let message = format!("of the members {named:#x} the lanes {missing:#x} are not at this instruction");
                return Err(Trouble::new(FaultKind::Warp, thread, message));
            }
        }
        Ok(())
    }

    pub(super) fn check_whole(&self, warp: usize, mask: u32) -> Tried<()> {
        if mask == u32::MAX {
            return Ok(());
        }
        let message = format!("the instruction takes a whole warp, and the lanes {:#x} are not here", !mask);
        Err(Trouble::new(FaultKind::Warp, warp * LANES, message))
    }

    fn shuffle(
        &mut self,
        mode: Shuffle,
        (to, is_valid): (Slot, Option<Slot>),
        (from, lane, clamp): (Slot, Slot, Slot),
        warp: usize,
        mask: u32,
    ) -> Tried<()> {
        let values = self.regs.words[self.regs.row(from, warp)];
        let amounts = self.regs.words[self.regs.row(lane, warp)];
        let clamps = self.regs.words[self.regs.row(clamp, warp)];
        let (row, mut valid) = (self.regs.row(to, warp), 0);
        for lane in lanes(mask) {
            let (source, is_valid) = source_lane(mode, lane as i32, amounts[lane], clamps[lane]);
            if mask >> source & 1 == 0 {
                let message = format!("the lane reads from lane {source}, which is not here");
                return Err(Trouble::new(FaultKind::Warp, warp * LANES + lane, message));
            }
            self.regs.words[row][lane] = values[source];
            valid |= u32::from(is_valid) << lane;
        }
        if let Some(p) = is_valid {
            self.set_predicates(p, warp, mask, valid);
        }
        Ok(())
    }

    fn find_matches(
        &mut self,
        to: Slot,
        all: Option<Slot>,
        (class, from): (Class, Slot),
        members: Slot,
        warp: usize,
        mask: u32,
    ) {
        let values: Vec<u64> = (0..LANES).map(|lane| self.register(class, from, warp, lane)).collect();
        let same = |lane: usize, members: u32| {
            lanes(members & mask).filter(|l| values[*l] == values[lane]).fold(0, |found, l| found | 1 << l)
        };
        let named = self.regs.words[self.regs.row(members, warp)];
        let agree =
            lanes(mask).filter(|&lane| same(lane, named[lane]) == named[lane] & mask).fold(0, |a, l| a | 1 << l);
        let is_all = all.is_some();
        let out = |members: u32, lane: usize| match is_all {
            true if agree >> lane & 1 == 0 => 0,
            _ => same(lane, members),
        };
        self.each(to, warp, mask, out, members);
        if let Some(p) = all {
            self.set_predicates(p, warp, mask, agree);
        }
    }
}

/// The lane from which a shuffle reads, and whether it is in range (PTX ISA 8.7, section 9.7.9.6).
fn source_lane(mode: Shuffle, lane: i32, amount: u32, clamp: u32) -> (usize, bool) {
    let amount = (amount & 0x1f) as i32;
    let (limit, segment) = ((clamp & 0x1f) as i32, (clamp >> 8 & 0x1f) as i32);
    let last = lane & segment | limit & !segment;
    let first = lane & segment;
    let (source, is_valid) = match mode {
        Shuffle::Up => (lane - amount, lane - amount >= last),
        Shuffle::Down => (lane + amount, lane + amount <= last),
        Shuffle::Xor => (lane ^ amount, lane ^ amount <= last),
        Shuffle::Index => {
            let source = first | amount & !segment;
            (source, source <= last)
        }
    };
    if is_valid && (0..LANES as i32).contains(&source) { (source as usize, true) } else { (lane as usize, false) }
}
