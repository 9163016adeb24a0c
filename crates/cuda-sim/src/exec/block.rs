//! One block: groups of lanes, branches and barriers.

use super::atomics::Copies;
use super::fault::{Fault, FaultKind, Tried, Trouble};
use super::global::Global;
use super::launch::Limit;
use super::shared::Shared;
use crate::code::{Barrier, BarrierResult, Inst, Kernel, Op};
use crate::lanes::{LANES, Regs, Slot};

/// Atomic instructions of a group after which another has its turn: one that waits for a lock waits for a group that is further.
const PATIENCE: u32 = 256;

/// The most warps of a block.
pub(super) const MAX_WARPS: usize = 32;

/// The lanes of a block, one word for each warp.
pub(super) type Mask = [u32; MAX_WARPS];

fn is_empty(mask: &Mask) -> bool {
    mask.iter().all(|warp| *warp == 0)
}

fn and(a: &Mask, b: &Mask) -> Mask {
    std::array::from_fn(|warp| a[warp] & b[warp])
}

fn without(a: &Mask, b: &Mask) -> Mask {
    std::array::from_fn(|warp| a[warp] & !b[warp])
}

fn or(a: &Mask, b: &Mask) -> Mask {
    std::array::from_fn(|warp| a[warp] | b[warp])
}

/// The number of the first thread of a mask.
fn first(mask: &Mask) -> usize {
    let warp = mask.iter().position(|warp| *warp != 0).unwrap_or(0);
    warp * LANES + mask[warp].trailing_zeros() as usize % LANES
}

/// Lanes that are at the same instruction.
#[derive(Clone, Copy, Debug)]
struct Group {
    at: usize,
    mask: Mask,
}

/// How a group goes on.
enum Next {
    /// At the instruction that follows.
    On,
    /// At another one.
    To(usize),
    /// Elsewhere: the groups were told.
    Apart,
}

/// A block and everything that is its own. One value runs many blocks in turn.
pub(super) struct Block<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) params: &'a [u8],
    pub(super) regs: Regs,
    pub(super) shared: Shared,
    pub(super) local: Vec<u8>,
    pub(super) global: Global<'a>,
    pub(super) copies: Copies,
    /// Lanes that have not exited.
    pub(super) live: Mask,
    /// All lanes of the block.
    pub(super) all: Mask,
    pub(super) warps: usize,
    pub(super) threads: u32,
    pub(super) extents: [u32; 3],
    pub(super) coordinates: [u32; 3],
    /// Groups that run, with the least instruction last.
    groups: Vec<Group>,
    waiting: Vec<Group>,
    pub(super) limit: Limit<'a>,
}

impl<'a> Block<'a> {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        kernel: &'a Kernel,
        params: &'a [u8],
        extents: [u32; 3],
        shared: Shared,
        global: Global<'a>,
        regs: Regs,
        limit: Limit<'a>,
    ) -> Self {
        let threads = extents[0] * extents[1] * extents[2];
        let warps = regs.warps;
        let all = std::array::from_fn(|warp| {
            let left = (threads as usize).saturating_sub(warp * LANES);
            if left >= LANES { u32::MAX } else { (1u32 << left) - 1 }
        });
        let local = vec![0; kernel.local_bytes as usize * warps * LANES];
        let (copies, live) = (Copies::default(), [0; MAX_WARPS]);
        let (groups, waiting, coordinates) = (Vec::new(), Vec::new(), [0; 3]);
        Block {
            kernel,
            params,
            regs,
            shared,
            local,
            global,
            copies,
            live,
            all,
            warps,
            threads,
            extents,
            coordinates,
            groups,
            waiting,
            limit,
        }
    }

    /// Runs one block from its first instruction to the exit of all lanes.
    pub(super) fn run(&mut self) -> Result<(), Box<Fault>> {
        self.live = self.all;
        self.shared.begin();
        self.copies.begin(self.threads as usize);
        self.groups.clear();
        self.waiting.clear();
        self.groups.push(Group { at: 0, mask: self.all });
        let mut turn = 0;
        loop {
            while let Some(group) = self.groups.pop() {
                let is_long = self.run_group(group, false)?;
                let others = self.groups.len().saturating_sub(1);
                if is_long && others > 0 {
                    turn = (turn + 1) % others;
                    let other = self.groups.remove(turn);
                    self.run_group(other, true)?;
                }
            }
            if self.waiting.is_empty() {
                return Ok(());
            }
            self.pass_barrier()?;
        }
    }

    #[cold]
    fn fault(&self, t: &Trouble, line: u32) -> Box<Fault> {
        let [x, y, _] = self.extents;
        let t_number = t.thread as u32;
        Box::new(Fault {
            kind: t.kind,
            kernel: self.kernel.name.clone(),
            block: self.coordinates,
            thread: [t_number % x, t_number / x % y, t_number / (x * y)],
            line,
            text: self.kernel.line(line).to_string(),
            address: t.address,
            message: t.message.clone(),
        })
    }

    /// Runs the group with the least instruction until it ends, waits, parts, or passes another group. One that has its turn may
    /// pass others. True if it took long, and goes on later.
    fn run_group(&mut self, group: Group, is_turn: bool) -> Result<bool, Box<Fault>> {
        let kernel = self.kernel;
        let Group { mut at, mut mask } = group;
        let mut left = PATIENCE;
        loop {
            while let Some(next) = self.groups.last()
                && next.at == at
            {
                mask = or(&mask, &next.mask);
                self.groups.pop();
            }
            let inst = &kernel.code[at];
            if is_turn && matches!(inst.op, Op::Warp(_)) {
                // the others of the warp come there in their order
                self.put(Group { at, mask });
                return Ok(false);
            }
            if !self.limit.step() {
                let message = "the launch has run more instructions than the limit: it hangs";
                return Err(self.fault(&Trouble::new(FaultKind::Limit, first(&mask), message), inst.line));
            }
            let active = match inst.guard {
                None => mask,
                Some((slot, is_negated)) => self.guarded(&mask, slot, is_negated),
            };
            let next = self.step(inst, at, &mut mask, &active).map_err(|t| self.fault(&t, inst.line))?;
            at = match next {
                Next::On => at + 1,
                Next::To(to) => to,
                Next::Apart => return Ok(false),
            };
            left = left.saturating_sub(u32::from(matches!(inst.op, Op::Atomic(_))));
            let is_long = left == 0 && !self.groups.is_empty();
            if is_long || (!is_turn && self.groups.last().is_some_and(|next| next.at < at)) {
                self.put(Group { at, mask });
                return Ok(is_long);
            }
        }
    }

    #[inline(always)]
    fn guarded(&self, mask: &Mask, slot: Slot, is_negated: bool) -> Mask {
        let mut active = [0; MAX_WARPS];
        for warp in 0..self.warps {
            active[warp] = mask[warp] & self.yes(slot, is_negated, warp);
        }
        active
    }

    /// Adds a group, in order.
    fn put(&mut self, group: Group) {
        if is_empty(&group.mask) {
            return;
        }
        let place = self.groups.partition_point(|g| g.at > group.at);
        match self.groups.get_mut(place) {
            Some(same) if same.at == group.at => same.mask = or(&same.mask, &group.mask),
            _ => self.groups.insert(place, group),
        }
    }

    fn step(&mut self, inst: &Inst, at: usize, mask: &mut Mask, active: &Mask) -> Tried<Next> {
        let masks = &active[..self.warps];
        match &inst.op {
            Op::Alu(run) => run(&mut self.regs, masks),
            Op::Load(access) => self.load(access, masks)?,
            Op::Store(access) => self.store(access, masks)?,
            Op::Branch(to) => return Ok(self.branch(*to, at, mask, active)),
            Op::Exit => {
                self.live = without(&self.live, active);
                *mask = without(mask, active);
                if is_empty(mask) {
                    return Ok(Next::Apart);
                }
            }
            Op::Barrier(_) => {
                if !is_empty(active) {
                    self.waiting.push(Group { at, mask: *active });
                    self.put(Group { at: at + 1, mask: without(mask, active) });
                    return Ok(Next::Apart);
                }
            }
            Op::Atomic(a) => self.atomic(a, masks)?,
            Op::Warp(op) => self.warp_op(op, masks)?,
            Op::CopyAsync(copy) => self.copy_async(copy, masks)?,
            Op::CommitCopies => self.commit_copies(masks),
            Op::WaitCopies(groups) => self.wait_copies(*groups, masks)?,
            Op::Trap => {
                if !is_empty(active) {
                    return Err(Trouble::new(FaultKind::Trap, first(active), "the kernel trapped"));
                }
            }
            Op::Fence => {}
        }
        Ok(Next::On)
    }

    fn branch(&mut self, to: usize, at: usize, mask: &Mask, taken: &Mask) -> Next {
        let stays = without(mask, taken);
        if is_empty(&stays) {
            return Next::To(to);
        }
        if is_empty(taken) {
            return Next::On;
        }
        self.put(Group { at: to, mask: *taken });
        self.put(Group { at: at + 1, mask: stays });
        Next::Apart
    }

    /// All lanes wait or have exited: they must wait at the same barrier, all of them.
    fn pass_barrier(&mut self) -> Result<(), Box<Fault>> {
        let kernel = self.kernel;
        let Group { at, .. } = self.waiting[0];
        let inst = &kernel.code[at];
        let here = self.waiting.iter().filter(|g| g.at == at).fold([0; MAX_WARPS], |m, g| or(&m, &g.mask));
        let missing = without(&self.all, &here);
        if !is_empty(&missing) {
            let thread = first(&missing);
            let other = self.waiting.iter().find(|g| !is_empty(&and(&g.mask, &missing)));
            let message = match other {
                Some(other) => {
                    let line = kernel.code[other.at].line;
                    format!("not all threads reach this barrier: thread number {thread} waits at that of line {line}")
                }
                None => format!("not all threads reach this barrier: thread number {thread} has exited"),
            };
            return Err(self.fault(&Trouble::new(FaultKind::Barrier, first(&here), message), inst.line));
        }
        if let Op::Barrier(barrier) = &inst.op {
            self.finish_barrier(barrier).map_err(|t| self.fault(&t, inst.line))?;
        }
        self.shared.pass_barrier();
        self.waiting.clear();
        self.groups.push(Group { at: at + 1, mask: here });
        Ok(())
    }

    fn finish_barrier(&mut self, barrier: &Barrier) -> Tried<()> {
        let (masks, warps) = (self.all, self.warps);
        let id = self.regs.words[self.regs.row(barrier.id, 0)][0];
        for (warp, &mask) in masks.iter().enumerate().take(warps) {
            for lane in super::access::lanes(mask) {
                let thread = warp * LANES + lane;
                let here = self.regs.words[self.regs.row(barrier.id, warp)][lane];
                if here != id || id > 15 {
                    let message = format!("threads name the barriers {id} and {here}; there are 0 to 15");
                    return Err(Trouble::new(FaultKind::Barrier, thread, message));
                }
                let count = barrier.threads.map(|slot| self.regs.words[self.regs.row(slot, warp)][lane]);
                if count.is_some_and(|count| count != self.threads) {
                    let message = format!("only barriers of all {} threads of the block are known", self.threads);
                    return Err(Trouble::new(FaultKind::Barrier, thread, message));
                }
            }
        }
        let Some(result) = barrier.result else { return Ok(()) };
        let (BarrierResult::Count { from, is_negated, .. }
        | BarrierResult::All { from, is_negated, .. }
        | BarrierResult::Any { from, is_negated, .. }) = result;
        let count: u32 = (0..warps).map(|warp| (self.yes(from, is_negated, warp) & masks[warp]).count_ones()).sum();
        for (warp, &mask) in masks.iter().enumerate().take(warps) {
            match result {
                BarrierResult::Count { to, .. } => {
                    let row = self.regs.row(to, warp);
                    self.regs.words[row] = [count; LANES];
                }
                BarrierResult::All { to, .. } => {
                    self.set_predicates(to, warp, mask, if count == self.threads { u32::MAX } else { 0 });
                }
                BarrierResult::Any { to, .. } => {
                    self.set_predicates(to, warp, mask, if count > 0 { u32::MAX } else { 0 });
                }
            }
        }
        Ok(())
    }
}
