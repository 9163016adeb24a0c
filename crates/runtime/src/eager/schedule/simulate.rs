//! Extending the schedule by a command: the sweeps of `sweep.rs` over sizes.

use remat_types::{Error, PinnedBytes, SmallVec};

use super::{Action, COST_MAX, OUTGROWN_SPARE_PART, SPARE_PART};
use crate::eager::failure::OpFailure;
use crate::eager::memory::table::{Input, RecipeId, StorageId};
use crate::eager::sweep::{NESTED_MAX, Run};
use crate::eager::worker::Worker;

/// A log of this length is begun anew: a program that marks no steps would have an endless one.
const LOG_MAX: usize = 1 << 20;

/// When a storage comes or goes, the costs of its dependents through at most so many recipes are updated.
const READERS_MAX: usize = 16;

/// The reason that the schedule does not perform a command.
enum Stop {
    /// The bytes do not fit beside the storages that must stay.
    Memory,
    Work,
    Other(OpFailure),
}

/// The memory that a command needs at once.
pub(in crate::eager) struct Needs {
    pub(in crate::eager) x: SmallVec<[Input; 4]>,
    /// Bytes of outputs and scratch memory.
    pub(in crate::eager) beside: usize,
}

impl From<OpFailure> for Stop {
    fn from(e: OpFailure) -> Self {
        Stop::Other(e)
    }
}

impl Worker {
    /// Extends the schedule by a command. Errors: Budget if it does not perform the command. The schedule then is as if
    /// it had just begun.
    pub(in crate::eager) fn extend_schedule(&mut self, needs: &Needs) -> std::result::Result<(), OpFailure> {
        if !std::mem::replace(&mut self.schedule.is_active, true) || self.schedule.log.len() > LOG_MAX {
            self.begin_schedule();
            if self.work.does_follow() && !self.schedule.is_followed() {
                self.follow_schedule()?;
            }
        }
        let launches = self.schedule.launches;
        let mut stop = match self.is_log_within_room() {
            true => match self.extend(needs) {
                Ok(()) => return Ok(()),
                Err(stop) => stop,
            },
            false => Stop::Memory,
        };
        // The residents may be in the way of an order that needs less.
        if matches!(stop, Stop::Memory) {
            self.schedule.restart();
            self.schedule.launches = launches;
            match self.extend(needs) {
                Ok(()) => return Ok(()),
                Err(e) => stop = e,
            }
        }
        self.schedule.restart();
        // The runs of a failed extension are never performed, so they do not count.
        self.schedule.launches = launches;
        Err(match stop {
            Stop::Memory => {
                let e = self.schedule_shortfall(needs);
                self.with_bounds(e.into(), &needs.x, needs.beside, 0)
            }
            Stop::Work => self.too_much_work(),
            Stop::Other(e) => e,
        })
    }

    /// False if leaves have grown so that the log could no longer be acted out, even without its useless actions.
    fn is_log_within_room(&mut self) -> bool {
        let does_fit = |w: &Worker| w.room_in_schedule().is_some_and(|room| w.schedule.highest_bytes <= room);
        if does_fit(self) {
            return true;
        }
        self.schedule.is_outgrown = true;
        let position = self.schedule.log.len();
        if self.make_room_in_schedule(0).is_err() {
            return false;
        }
        let gone = self.schedule.log.split_off(position);
        self.shorten_log();
        // A follower of the schedule has yet to perform these actions.
        self.schedule.log.extend(gone);
        does_fit(self)
    }

    /// Begins from nothing. If nothing was ever evicted, begins with the resident storages, made in the program's
    /// order.
    fn begin_schedule(&mut self) {
        self.schedule.restart();
        if self.eviction.has_evicted() {
            return;
        }
        let there = self.table.storages().filter(|(_, s)| s.handles > 0 && s.is_resident() && s.recipe.is_some());
        let mut there: Vec<(u64, StorageId)> = there.map(|(id, s)| (s.number, id)).collect();
        there.sort_unstable_by_key(|t| t.0);
        let launches = self.schedule.launches;
        if there.into_iter().any(|(_, id)| self.sweep_in_schedule(&[id]).is_err()) {
            self.schedule.restart();
        }
        // The program's own runs are no recomputation.
        self.schedule.launches = launches;
    }

    /// The error of a command that does not fit. It depends on commands and sizes alone.
    fn schedule_shortfall(&self, needs: &Needs) -> Error {
        let inputs = self.evictable_bytes(&needs.x);
        if needs.beside == 0 {
            // A read needs only the storages that it reads.
            return self.shortfall_of(inputs);
        }
        let e = self.shortfall_of(needs.beside);
        let Some(s) = e.shortfall() else { return e };
        let mut s = s.clone();
        if inputs > 0 {
            s.pinned.push(PinnedBytes { by: format!("inputs and outputs of {}", self.running.label), bytes: inputs });
            s.pinned.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.by.cmp(&b.by)));
        }
        Error::budget(s)
    }

    /// Bytes beside leaves. Staging buffers count as room, since they give way.
    fn room_in_schedule(&self) -> Option<usize> {
        let fixed = self.table.fixed_bytes() - self.feasibility.passing_bytes(&self.table);
        let fixed = fixed.saturating_sub(self.step_planner.staging_bytes());
        self.memory.arena().capacity().checked_sub(fixed)
    }

    fn extend(&mut self, needs: &Needs) -> std::result::Result<(), Stop> {
        let order = self.turns(&needs.x, self.first_of(&needs.x));
        order.iter().for_each(|id| self.schedule.want(*id, 1));
        let mut done = self.hold_in_schedule(&order);
        if done.is_ok() {
            done = self.make_room_in_schedule(needs.beside);
            for &id in &order {
                self.schedule.touch(id);
                self.schedule.change(id, |r| r.pins -= 1);
            }
        }
        order.iter().for_each(|id| self.schedule.want(*id, -1));
        done
    }

    /// As `hold_in_turn` of a worker.
    fn hold_in_schedule(&mut self, order: &[StorageId]) -> std::result::Result<(), Stop> {
        let missing: SmallVec<[StorageId; 4]> =
            order.iter().copied().filter(|id| !self.schedule.is_resident(*id)).collect();
        let mut result = match missing.len() {
            0 | 1 => Ok(()),
            // One after the other may need less memory.
            _ => self.sweep_in_schedule(&missing).or_else(|e| if matches!(e, Stop::Memory) { Ok(()) } else { Err(e) }),
        };
        let mut held = 0;
        while let (Ok(()), Some(&id)) = (&result, order.get(held)) {
            if !self.schedule.is_resident(id) {
                result = self.sweep_in_schedule(&[id]);
                if result.is_err() {
                    break;
                }
            }
            self.schedule.change(id, |r| r.pins += 1);
            held += 1;
        }
        if result.is_err() {
            order[..held].iter().for_each(|id| self.schedule.change(*id, |r| r.pins -= 1));
        }
        result
    }

    fn sweep_in_schedule(&mut self, roots: &[StorageId]) -> std::result::Result<(), Stop> {
        if self.schedule.nested == NESTED_MAX {
            return Err(Stop::Work);
        }
        // A leaf is always resident.
        let is_there = |id: StorageId| self.schedule.is_resident(id) || self.table[id].recipe.is_none();
        let order = self.missing_ancestors(roots, is_there)?;
        let inputs =
            |w: &Worker, r: RecipeId| -> SmallVec<[StorageId; 4]> { w.table[r].x.iter().map(|s| s.storage).collect() };
        for r in &order {
            inputs(self, r.recipe).into_iter().for_each(|id| self.schedule.want(id, 1));
        }
        self.schedule.nested += 1;
        let mut result = Ok(());
        for r in &order {
            if result.is_ok() {
                result = self.run_in_schedule(r);
            }
            for id in inputs(self, r.recipe) {
                self.schedule.want(id, -1);
                if self.table[id].handles == 0 && self.schedule.is_idle(id) {
                    self.release_in_schedule(id);
                }
            }
        }
        self.schedule.nested -= 1;
        result
    }

    fn run_in_schedule(&mut self, run: &Run) -> std::result::Result<(), Stop> {
        if run.needed.iter().all(|y| self.schedule.is_resident(*y)) {
            return Ok(());
        }
        let recipe = run.recipe;
        let r = &self.table[recipe];
        let order = self.turns(&r.x, r.first);
        self.hold_in_schedule(&order)?;
        let r = &self.table[recipe];
        let outputs: usize = r.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum();
        let scratch = self.scratch_bytes(&r.op, &r.x, r.workspace_bytes);
        let bytes_of = |w: &Worker, id: Option<StorageId>| id.map_or(0, |id| w.alignment().pad(w.table[id].bytes));
        let mut taken = self.taken_in_schedule(recipe, 1);
        let mut result = self.make_room_in_schedule(outputs + scratch - bytes_of(self, taken));
        if result.is_err() && taken.is_none() {
            // Without other room the output takes an input that will be read again. That input is recomputed later.
            taken = self.taken_in_schedule(recipe, u32::MAX);
            result = self.make_room_in_schedule(outputs + scratch - bytes_of(self, taken));
        }
        if self.work_left() == 0 {
            result = Err(Stop::Work);
        }
        for &id in &order {
            self.schedule.touch(id);
            self.schedule.change(id, |r| r.pins -= 1);
        }
        result?;
        self.schedule.launches += 1;
        // This comes last: making room may have evicted an output, which the run makes again, too.
        let y = self.table[recipe].y.iter().flatten().copied();
        let missing: SmallVec<[StorageId; 2]> = y.filter(|y| !self.schedule.is_resident(*y)).collect();
        let number = self.table[recipe].number;
        self.schedule.log.push(Action::Run { recipe, number });
        taken.into_iter().for_each(|id| self.evict_in_schedule(id));
        missing.iter().for_each(|y| self.make_in_schedule(*y));
        // A sibling that was recomputed as well stays only if something may read it.
        for y in missing {
            if !run.needed.contains(&y) && self.table[y].handles == 0 && !self.schedule.wanted.contains_key(&y) {
                self.release_in_schedule(y);
            }
        }
        Ok(())
    }

    /// The input whose bytes the only output of a recomputed recipe takes: nothing names it, and it has at most `reads`
    /// reads to come, this one included.
    fn taken_in_schedule(&self, recipe: RecipeId, reads: u32) -> Option<StorageId> {
        let r = &self.table[recipe];
        let [Some(y)] = r.y[..] else { return None };
        if self.schedule.is_resident(y) {
            return None;
        }
        let is_free = |id: StorageId| {
            let s = &self.table[id];
            let is_alone = self.schedule.residents.get(&id).is_some_and(|r| r.pins == 1 && r.wanted <= reads);
            is_alone && s.handles == 0 && s.recipe.is_some()
        };
        let pairs = self.overwrite(&r.op).iter().filter(|p| p.1 == 0 && p.0 < r.x.len());
        let mut free = pairs.filter(|p| self.is_whole(&r.x, p.0, &r.facts[0])).map(|p| r.x[p.0].storage);
        free.find(|id| is_free(*id))
    }

    /// Evicts until so many bytes fit beside the residents.
    fn make_room_in_schedule(&mut self, bytes: usize) -> std::result::Result<(), Stop> {
        let Some(room) = self.room_in_schedule() else { return Err(Stop::Memory) };
        let spare = room / if self.schedule.is_outgrown { OUTGROWN_SPARE_PART } else { SPARE_PART };
        while self.schedule.bytes + bytes > room - spare {
            let Some(id) = self.schedule.next_to_go() else { break };
            self.schedule.level = self.schedule.level.max(self.schedule.worth(id));
            self.evict_in_schedule(id);
        }
        let most = self.schedule.bytes + bytes;
        if most > room {
            return Err(Stop::Memory);
        }
        self.schedule.highest_bytes = self.schedule.highest_bytes.max(most);
        Ok(())
    }

    /// The outputs of a command that can be recomputed are resident from now on.
    pub(in crate::eager) fn add_to_schedule(&mut self, y: &[StorageId]) {
        if !self.schedule.is_active {
            return;
        }
        for &id in y {
            if let Some((recipe, _)) = self.table[id].recipe {
                self.make_in_schedule(id);
                // Acting out the log makes it, too.
                let made = Action::Run { recipe, number: self.table[recipe].number };
                if self.schedule.log.last() != Some(&made) {
                    self.schedule.log.push(made);
                }
            }
        }
        for (storage, number) in std::mem::take(&mut self.schedule.taken) {
            if self.table.storage(storage).is_some_and(|s| s.number == number) {
                self.schedule.log.push(Action::Evict { storage, number });
            }
        }
    }

    /// No handle and no read of a storage is left for now. It stays if a storage that would not be resident depends on
    /// it.
    pub(in crate::eager) fn release_in_schedule(&mut self, id: StorageId) {
        if !self.schedule.is_active || !self.schedule.is_resident(id) {
            return;
        }
        let leads = self.leads_to(id, |y| !self.schedule.is_resident(y));
        if !leads {
            self.evict_in_schedule(id);
        }
    }

    fn evict_in_schedule(&mut self, id: StorageId) {
        let number = self.table[id].number;
        self.schedule.log.push(Action::Evict { storage: id, number });
        self.lose_in_schedule(id);
    }

    /// A storage is evicted: its dependents cost more.
    fn lose_in_schedule(&mut self, id: StorageId) {
        self.schedule.remove(id);
        self.settle_costs_above(id);
    }

    /// A storage is resident: its dependents cost less.
    fn make_in_schedule(&mut self, id: StorageId) {
        let cost = self.cost_in_schedule(id);
        let s = &self.table[id];
        self.schedule.insert(id, self.alignment().pad(s.bytes), s.number, cost);
        self.settle_costs_above(id);
    }

    fn settle_costs_above(&mut self, id: StorageId) {
        let readers = self.table[id].readers.iter().take(READERS_MAX);
        let made: SmallVec<[StorageId; 8]> = readers.flat_map(|r| self.table[*r].y.iter().flatten().copied()).collect();
        for y in made {
            if self.schedule.is_resident(y) {
                let cost = self.cost_in_schedule(y);
                self.schedule.change(y, |r| r.cost = cost);
            }
        }
    }

    /// Operators that would run to recompute a storage. A shared ancestor counts as often as it is read.
    fn cost_in_schedule(&self, id: StorageId) -> f64 {
        let Some((recipe, _)) = self.table[id].recipe else { return 0.0 };
        let x = self.table[recipe].x.iter().map(|s| s.storage);
        let missing = x.filter(|x| self.table[*x].recipe.is_some() && !self.schedule.is_resident(*x));
        let before: f64 = missing.map(|x| self.schedule.costs.get(&x).copied().unwrap_or(1.0)).sum();
        (1.0 + before).min(COST_MAX)
    }
}
