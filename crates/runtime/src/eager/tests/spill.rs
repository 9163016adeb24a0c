//! Plans that copy to a file give the same bits, whatever happens to the steps and the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use remat_graph::plan::problem::SpillRates;
use remat_types::{Error, ErrorKind, HostTensor, Result};

use super::foresight::{Net, Step, free, planned};
use super::ops::{Mode, Probe};
use super::{apply1, back, chain, cpu, host, put, tanh, value};
use crate::eager::{Channel, Device, Handle};
use crate::options::{DeviceOptions, Foresight, PolicyKind};
use crate::report::Stats;
use crate::{Backend, Event, FileCopy, Launch};
use remat_cpu::Cpu;
use remat_device::spill::SpillTo;
use remat_device::{Buffer, StreamId};

/// A disk so fast that copies always cost less than computing.
pub(super) const FAST: SpillRates = SpillRates { write_bytes_per_s: 1 << 50, read_bytes_per_s: 1 << 50 };

/// The CPU with a disk whose copies fail from a certain one on, and write nothing.
pub(super) struct FailingDisk {
    cpu: Cpu,
    /// How many copies succeed.
    pub(super) good: usize,
    pub(super) begun: Arc<AtomicUsize>,
}

impl FailingDisk {
    pub(super) fn new(good: usize) -> FailingDisk {
        let cpu = Cpu::new(1 << 30, 1 << 30, 1, Default::default()).expect("address space");
        FailingDisk { cpu, good, begun: Arc::default() }
    }

    fn copy(&mut self, copy: FileCopy, f: impl FnOnce(&mut Cpu, FileCopy) -> Result<()>) -> Result<()> {
        if self.begun.fetch_add(1, Relaxed) < self.good {
            return f(&mut self.cpu, copy);
        }
        Ok(())
    }
}

impl Backend for FailingDisk {
    fn name(&self) -> &str {
        "failing disk"
    }

    fn threads(&self) -> usize {
        self.cpu.threads()
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.cpu.reserve(bytes)
    }

    fn release(&mut self, from: usize, to: usize) {
        self.cpu.release(from, to);
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event> {
        self.cpu.launch(launch)
    }

    fn upload(&mut self, stream: StreamId, at: usize, data: &HostTensor) -> Result<Event> {
        self.cpu.upload(stream, at, data)
    }

    fn download(&mut self, x: &Buffer<'_>, after: &[Event]) -> Result<HostTensor> {
        self.cpu.download(x, after)
    }

    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<Event> {
        self.cpu.shift(from, to, bytes)
    }

    fn open_spill(&mut self, to: &SpillTo) -> Result<bool> {
        self.cpu.open_spill(to)
    }

    fn copy_out(&mut self, copy: FileCopy) -> Result<()> {
        self.copy(copy, |cpu, c| cpu.copy_out(c))
    }

    fn copy_in(&mut self, copy: FileCopy) -> Result<()> {
        self.copy(copy, |cpu, c| cpu.copy_in(c))
    }

    fn wait_copy(&mut self, number: usize) -> Result<()> {
        self.cpu.wait_copy(number)?;
        if self.begun.load(Relaxed) <= self.good {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Io, format!("copy {number}: the disk is full")))
    }

    fn wait(&mut self, stream: StreamId, event: Event) {
        self.cpu.wait(stream, event);
    }

    fn synchronize(&mut self, event: Event) -> Result<()> {
        self.cpu.synchronize(event)
    }

    fn now_ns(&self) -> u64 {
        self.cpu.now_ns()
    }
}

/// The values of `x`, larger by one, in a tensor of their own.
fn increment(c: &Channel, x: &Handle) -> Handle {
    apply1(c, Probe(Mode::Increment), [x.clone()])
}

fn spilling(bytes: usize, folder: &tempfile::TempDir) -> DeviceOptions {
    DeviceOptions { spill: Some(SpillTo::with_rates(folder.path(), FAST).expect("positive")), ..planned(bytes) }
}

/// Runs the steps without a budget and under one with copies, compares all values, and returns the figures.
fn compare(steps: &[Step], percent: usize) -> Stats {
    let folder = tempfile::tempdir().expect("a folder");
    let mut net = Net::new(free());
    let want = (net.losses(steps), net.weights());
    let budget = net.stats().peak_bytes * percent / 100;
    let mut net = Net::new(spilling(budget, &folder));
    let losses = net.losses(steps);
    let s = net.stats();
    assert_eq!(losses, want.0, "{percent} %: losses of {steps:?}");
    assert!(net.weights() == want.1, "{percent} %: weights after {steps:?}");
    assert!(net.stats().peak_bytes <= budget && s.spill_failure.is_none(), "{s:?}");
    s
}

#[test]
fn a_followed_step_copies_instead_of_computing_again_with_the_same_bits() {
    for percent in [80, 60, 50] {
        let s = compare(&[Step::Plain; 8], percent);
        assert!(s.steps_followed >= 4 && s.steps_abandoned == 0, "{percent} %: {s:?}");
        assert!(s.spilled_bytes > 0 && s.fetched_bytes >= s.spilled_bytes, "{percent} %: {s:?}");
        assert_eq!(s.misplaced, 0, "{percent} %: {s:?}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut net = Net::new(free());
    net.losses(&[Step::Plain; 2]);
    let mut net = Net::new(spilling(net.stats().peak_bytes * 6 / 10, &folder));
    net.losses(&[Step::Plain; 6]);
    net.c.reset_peak().expect("open");
    net.losses(&[Step::Plain; 2]);
    let s = net.stats();
    assert_eq!((s.steps_followed, s.recomputed_ops), (2, 0), "copies that cost nothing: {s:?}");
    assert!(s.spilled_bytes > 0, "{s:?}");
}

#[test]
fn what_has_no_room_in_the_file_is_computed_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut net = Net::new(free());
    let want = net.losses(&[Step::Plain; 8]);
    let budget = net.stats().peak_bytes * 6 / 10;
    let run = |most: Option<u64>| {
        let mut options = spilling(budget, &folder);
        options.spill = options.spill.map(|to| most.map_or_else(|| to.clone(), |most| to.clone().at_most(most)));
        let mut net = Net::new(options);
        assert_eq!(net.losses(&[Step::Plain; 8]), want);
        let s = net.stats();
        (s.recomputed_ops, s.spill_file.expect("there is one"))
    };
    let (again, whole) = run(None);
    assert_eq!((whole.budget_bytes, whole.in_use_bytes), (None, 0));
    let most = whole.peak_bytes / 2;
    let (more, half) = run(Some(most));
    assert!(more > again && half.peak_bytes <= most && half.peak_bytes > 0, "{again} {more}: {whole:?} {half:?}");
}

#[test]
fn another_shape_branch_or_end_in_the_middle_of_copies_changes_no_bit() {
    for other in [Step::Small, Step::Branch, Step::Forward] {
        let mut steps = vec![Step::Plain; 6];
        steps.extend([other, Step::Plain, Step::Plain]);
        assert!(compare(&steps, 60).spilled_bytes > 0, "{other:?}");
        let steps: Vec<Step> = (0..16).map(|i| if i % 2 == 0 { Step::Plain } else { other }).collect();
        let s = compare(&steps, 50);
        assert!(s.steps_followed >= 7 && s.spilled_bytes > 0, "{other:?}: {s:?}");
    }
}

/// Steps that read twelve results again in the opposite order. The last step also reads a result where the others read
/// none.
fn read_out_of_turn(options: DeviceOptions) -> (Vec<Vec<f32>>, Stats) {
    let c = cpu(options);
    let x = put(&c, &host(&[0.25; 4096]));
    let mut read = Vec::new();
    for step in 0..6 {
        let all = chain(&c, &x, |_| ());
        if step == 5 {
            let before = c.stats().expect("open");
            read.extend([0, 6, 3].map(|i| value(&c, &all[i])));
            let s = c.stats().expect("open");
            assert!(before.budget_bytes.is_none() || s.fetched_bytes > before.fetched_bytes, "{s:?}");
            assert_eq!(s.recomputed_ops, before.recomputed_ops, "what has a copy is not made again");
        }
        let sum = back(&c, tanh(&c, &x), all);
        c.step_mark().expect("open");
        read.push(value(&c, &sum));
    }
    c.verify().expect("consistent");
    (read, c.stats().expect("open"))
}

#[test]
fn what_was_copied_can_be_read_at_any_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (want, _) = read_out_of_turn(free());
    let (got, s) = read_out_of_turn(spilling(6 * 4 * 4096, &folder));
    assert!(got == want && s.steps_followed >= 2, "{s:?}");
    assert!(s.steps_abandoned > 0, "{s:?}");
}

#[test]
fn a_disk_that_fails_loses_nothing_and_is_used_no_more() {
    let steps = [Step::Plain; 9];
    let folder = tempfile::tempdir().expect("a folder");
    let mut net = Net::new(free());
    let want = (net.losses(&steps), net.weights());
    // Enough for the steps to run without copies, too. Half of the peak suffices only by chance.
    let options = spilling(net.stats().peak_bytes * 6 / 10, &folder);
    let disk = FailingDisk::new(usize::MAX);
    let begun = disk.begun.clone();
    let open = |disk: FailingDisk| Device::with_backend(Box::new(disk), options.clone()).expect("opens").channel();
    let mut net = Net::on(open(disk));
    assert!(net.losses(&steps) == want.0);
    let all = begun.load(Relaxed);
    assert!(all > 20, "{all} copies");
    for good in 0..all {
        let mut net = Net::on(open(FailingDisk::new(good)));
        let losses = net.losses(&steps);
        let s = net.stats();
        assert_eq!(losses, want.0, "after {good} of {all} copies: {:?} {s:?}", net.c.sync());
        assert!(net.weights() == want.1, "after {good} of {all} copies: {s:?}");
        let why = s.spill_failure.as_ref().expect("it is told");
        assert!(why.contains("the disk is full"), "{why}");
        net.losses(&[Step::Plain; 3]);
        let before = net.stats();
        net.losses(&[Step::Plain; 2]);
        let s = net.stats();
        assert_eq!(s.spilled_bytes, before.spilled_bytes, "nothing is copied any more");
        assert_eq!(s.steps_followed, before.steps_followed + 2, "after {good} copies a plan without any: {s:?}");
    }
}

#[test]
fn a_new_budget_and_a_reset_in_the_middle_of_a_step_wait_for_copies() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |options: DeviceOptions, budgets: [Option<usize>; 2]| {
        let c = cpu(options);
        let x = put(&c, &host(&[0.25; 4096]));
        let mut read = Vec::new();
        for step in 0..8 {
            let all = chain(&c, &x, |_| ());
            if step >= 5 {
                c.evict_all().expect("open");
                c.set_budget(budgets[step % 2]).expect("what is needed at once fits");
            }
            let sum = back(&c, increment(&c, &x), all);
            c.step_mark().expect("open");
            read.push(value(&c, &sum));
        }
        c.verify().expect("consistent");
        (read, c.stats().expect("open"))
    };
    let (want, _) = run(free(), [None, None]);
    let bytes = 6 * 4 * 4096;
    let (got, s) = run(spilling(bytes, &folder), [Some(bytes), Some(bytes * 5 / 6)]);
    assert!(got == want && s.spilled_bytes > 0, "{s:?}");
}

#[test]
fn blocks_that_move_wait_for_their_copies() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |options: DeviceOptions| {
        let c = cpu(DeviceOptions { policy: PolicyKind::Dtr, ..options });
        let x = put(&c, &host(&[0.25; 4096]));
        let (mut read, mut moved) = (Vec::new(), 0);
        for step in 0..60 {
            // A loader's buffer that no earlier step had. Storages are evicted for it here and there, and the rest is
            // compacted.
            let (when, units) = (step % 11, 1 + step % 3);
            let is_odd = step >= 5 && step % 2 == 0;
            let all = chain(&c, &x, |i| {
                if is_odd && i == when {
                    let before = c.stats().expect("open").compactions;
                    drop(c.charge(units * 4 * 4096, "batch").expect("fits beside what is needed at once"));
                    moved += usize::from(c.stats().expect("open").compactions > before);
                }
            });
            let sum = back(&c, increment(&c, &x), all);
            c.step_mark().expect("open");
            read.push(value(&c, &sum));
        }
        c.verify().expect("consistent");
        (read, moved, c.stats().expect("open"))
    };
    let (want, ..) = run(free());
    let (got, moved, s) = run(spilling(6 * 4 * 4096, &folder));
    assert!(got == want && s.spilled_bytes > 0, "{s:?}");
    assert!(moved > 0, "{s:?}");
}

#[test]
fn a_folder_that_is_not_there_is_an_error_when_the_device_opens_or_gets_its_budget() {
    let spill = Some(SpillTo::with_rates("/nowhere/at/all", FAST).expect("positive"));
    let options = DeviceOptions { spill, ..free() };
    let e = Device::cpu(DeviceOptions { budget_bytes: Some(1 << 20), ..options.clone() }).expect_err("no folder");
    assert!(e.kind() == ErrorKind::Io && e.to_string().contains("`/nowhere/at/all`"), "{e}");
    // Without a budget nothing is copied, and without plans neither.
    let c = Device::cpu(options.clone()).expect("opens").channel();
    assert_eq!(c.set_budget(Some(1 << 20)).expect_err("no folder").kind(), ErrorKind::Io);
    c.set_budget(None).expect("as before");
    let off = DeviceOptions { budget_bytes: Some(1 << 20), foresight: Foresight::Off, ..options };
    Device::cpu(off).expect("opens");
}
