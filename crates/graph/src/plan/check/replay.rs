//! The replay: the resident storages, their places and versions, and the clocks.

use std::collections::BTreeSet;

use remat_types::Result;

use super::Checked;
use super::map::Map;
use crate::plan::json::format_error;
use crate::plan::problem::{Op, OutputKind, Problem};
use crate::plan::schedule::Step;

/// A resident storage.
struct Resident {
    offset: u64,
    /// Values that can be read.
    readable: BTreeSet<usize>,
    /// Nothing was written over the producer's output.
    is_original: bool,
    /// Readers wait until then.
    arrives_ns: u64,
    /// A copy out runs until then.
    leaves_ns: u64,
}

/// A spilled copy.
struct Copy {
    readable: BTreeSet<usize>,
    is_original: bool,
    done_ns: u64,
}

pub(super) struct Replay<'p> {
    p: &'p Problem,
    map: Map,
    resident: Vec<Option<Resident>>,
    copies: Vec<Option<Copy>>,
    has_run: Vec<bool>,
    clock_ns: u64,
    write_free_ns: u64,
    read_free_ns: u64,
    computes: usize,
    spilled_bytes: u64,
}

impl<'p> Replay<'p> {
    pub(super) fn new(p: &'p Problem, values: &[(usize, u64)]) -> Result<Replay<'p>> {
        let count = p.storages().len();
        let mut r = Replay {
            p,
            map: Map::default(),
            resident: (0..count).map(|_| None).collect(),
            copies: (0..count).map(|_| None).collect(),
            has_run: vec![false; p.ops().len()],
            clock_ns: 0,
            write_free_ns: 0,
            read_free_ns: 0,
            computes: 0,
            spilled_bytes: 0,
        };
        for &(storage, offset) in values {
            if p.storages()[storage].producer.is_some() {
                return Err(format_error(format!("values: `{}` is not a given value", p.storage_name(storage))));
            }
            let readable = BTreeSet::from([p.storages()[storage].root]);
            r.place(storage, offset, readable, 0).map_err(|e| e.context("values"))?;
        }
        let missing = (0..count).find(|&s| p.storages()[s].producer.is_none() && r.resident[s].is_none());
        match missing {
            Some(s) => Err(format_error(format!("values: `{}` has no offset", p.storage_name(s)))),
            None => Ok(r),
        }
    }

    fn place(&mut self, storage: usize, offset: u64, readable: BTreeSet<usize>, arrives_ns: u64) -> Result<()> {
        let name = self.p.storage_name(storage);
        if self.resident[storage].is_some() {
            return Err(format_error(format!("`{name}` is resident already")));
        }
        self.map.occupy(name, offset, self.p.storages()[storage].padded, self.p.align())?;
        self.resident[storage] = Some(Resident { offset, readable, is_original: true, arrives_ns, leaves_ns: 0 });
        Ok(())
    }

    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Compute { op, at, workspace_at } => {
                let o = &self.p.ops()[*op];
                self.compute(*op, o, at, *workspace_at).map_err(|e| e.context(format!("compute `{}`", o.name)))
            }
            Step::Free { storage } => self.free(*storage),
            Step::Spill { storage } => self.spill(*storage),
            Step::Fetch { storage, at } => self.fetch(*storage, *at),
        }
    }

    fn compute(&mut self, op: usize, o: &Op, at: &[(usize, u64)], workspace_at: Option<u64>) -> Result<()> {
        if self.has_run[op] && !o.repeatable {
            return Err(format_error("it may run once only"));
        }
        let mut start_ns = self.clock_ns;
        for &value in &o.inputs {
            start_ns = start_ns.max(self.readable(value)?.arrives_ns);
        }
        self.outputs(o, at, &mut start_ns)?;
        match (o.workspace, workspace_at) {
            (0, _) => {}
            (_, None) => return Err(format_error("`workspace_at` is missing")),
            (bytes, Some(offset)) => {
                self.map.occupy("workspace", offset, bytes, self.p.align())?;
                self.map.release(offset, bytes);
            }
        }
        let end = start_ns.checked_add(o.time_ns);
        self.clock_ns = end.ok_or_else(|| format_error("the times together overflow"))?;
        self.has_run[op] = true;
        self.computes += 1;
        Ok(())
    }

    fn readable(&self, value: usize) -> Result<&Resident> {
        let v = &self.p.values()[value];
        let resident = self.resident[v.storage].as_ref();
        let resident = resident.ok_or_else(|| format_error(format!("`{}` is not resident", v.name)))?;
        if resident.readable.contains(&value) {
            Ok(resident)
        } else {
            Err(format_error(format!("`{}` cannot be read: not made since its storage was, or overwritten", v.name)))
        }
    }

    fn outputs(&mut self, o: &Op, at: &[(usize, u64)], start_ns: &mut u64) -> Result<()> {
        for &(value, kind) in &o.outputs {
            let storage = self.p.values()[value].storage;
            if kind == OutputKind::Own {
                self.take(o, storage, at, start_ns);
                self.own_output(value, storage, at)?;
                continue;
            }
            let resident = self.resident[storage].as_mut().expect("an input lies in it, and inputs are resident");
            if kind == OutputKind::Writes {
                resident.readable.clear();
                resident.is_original = false;
                *start_ns = (*start_ns).max(resident.leaves_ns);
            }
            resident.readable.insert(value);
        }
        let owns = |s: usize| o.outputs.iter().any(|&(v, k)| k == OutputKind::Own && self.p.values()[v].storage == s);
        match at.iter().find(|(s, _)| !owns(*s)) {
            Some((s, _)) => {
                Err(format_error(format!("`at` names `{}`, which it does not make", self.p.storage_name(*s))))
            }
            None => Ok(()),
        }
    }

    /// An output placed where an input lies that it may take over: then the input is gone.
    fn take(&mut self, o: &Op, storage: usize, at: &[(usize, u64)], start_ns: &mut u64) {
        let offset = at.iter().find(|(s, _)| *s == storage).map(|(_, at)| *at);
        let is_at = |from: usize| self.resident[from].as_ref().is_some_and(|r| Some(r.offset) == offset);
        let from = o.takes.iter().find(|(to, from)| *to == storage && is_at(*from)).map(|t| t.1);
        let Some(gone) = from.filter(|_| self.resident[storage].is_none()).and_then(|f| self.resident[f].take()) else {
            return;
        };
        self.map.release(gone.offset, self.p.storages()[storage].padded);
        *start_ns = (*start_ns).max(gone.leaves_ns);
    }

    fn own_output(&mut self, value: usize, storage: usize, at: &[(usize, u64)]) -> Result<()> {
        let name = self.p.storage_name(storage);
        let offset = at.iter().find(|(s, _)| *s == storage).map(|(_, o)| *o);
        let offset = offset.ok_or_else(|| format_error(format!("`at` lacks `{name}`")))?;
        match &self.resident[storage] {
            None => self.place(storage, offset, BTreeSet::from([value]), 0),
            Some(r) if !r.is_original => Err(format_error(format!("it would undo what was written over `{name}`"))),
            Some(r) if r.offset != offset => {
                Err(format_error(format!("`{name}` is resident at {} and cannot be made at {offset}", r.offset)))
            }
            Some(_) => Ok(()),
        }
    }

    fn free(&mut self, storage: usize) -> Result<()> {
        let name = self.p.storage_name(storage);
        if self.p.storages()[storage].producer.is_none() {
            return Err(format_error(format!("`{name}` is given and cannot be freed")));
        }
        let gone = self.resident[storage].take();
        let gone = gone.ok_or_else(|| format_error(format!("free: `{name}` is not resident")))?;
        self.map.release(gone.offset, self.p.storages()[storage].padded);
        self.clock_ns = self.clock_ns.max(gone.leaves_ns).max(gone.arrives_ns);
        Ok(())
    }

    fn spill(&mut self, storage: usize) -> Result<()> {
        let name = self.p.storage_name(storage);
        if !self.p.spill().is_possible() {
            return Err(format_error(format!("spill `{name}`: the problem allows no spilling")));
        }
        let resident = self.resident[storage].as_mut();
        let resident = resident.ok_or_else(|| format_error(format!("spill: `{name}` is not resident")))?;
        let bytes = self.p.storages()[storage].padded;
        let start = self.clock_ns.max(self.write_free_ns).max(resident.arrives_ns);
        let done_ns = later(start, self.p.spill().write_ns(bytes))?;
        self.write_free_ns = done_ns;
        resident.leaves_ns = done_ns;
        self.copies[storage] =
            Some(Copy { readable: resident.readable.clone(), is_original: resident.is_original, done_ns });
        self.spilled_bytes = self.spilled_bytes.saturating_add(bytes);
        Ok(())
    }

    fn fetch(&mut self, storage: usize, at: u64) -> Result<()> {
        let name = self.p.storage_name(storage);
        let copy = self.copies[storage].as_ref();
        let copy = copy.ok_or_else(|| format_error(format!("fetch: `{name}` was not spilled")))?;
        let (readable, is_original) = (copy.readable.clone(), copy.is_original);
        let bytes = self.p.storages()[storage].padded;
        let start = self.clock_ns.max(self.read_free_ns).max(copy.done_ns);
        let done_ns = later(start, self.p.spill().read_ns(bytes))?;
        self.read_free_ns = done_ns;
        self.place(storage, at, readable, done_ns)?;
        self.resident[storage].as_mut().expect("just placed").is_original = is_original;
        self.spilled_bytes = self.spilled_bytes.saturating_add(bytes);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Checked> {
        for &value in self.p.outputs() {
            let arrives = self.readable(value).map_err(|e| e.context("at the end"))?.arrives_ns;
            self.clock_ns = self.clock_ns.max(arrives);
        }
        if let Some(op) = self.has_run.iter().position(|ran| !ran) {
            return Err(format_error(format!("at the end: `{}` never ran", self.p.ops()[op].name)));
        }
        Ok(Checked {
            arena_bytes: self.map.highest,
            time_ns: self.clock_ns,
            computes: self.computes,
            spilled_bytes: self.spilled_bytes,
        })
    }
}

fn later(start: u64, ns: u64) -> Result<u64> {
    start.checked_add(ns).ok_or_else(|| format_error("the times together overflow"))
}
