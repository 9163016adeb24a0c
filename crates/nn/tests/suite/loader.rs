//! The loader: order, resumption, failures, threads, charges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use remat_nn::{DataLoader, Dataset, LoaderOptions, LoaderPosition, Shard, TensorDataset};
use remat_runtime::{Device, DeviceOptions, Kind};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::support::cpu;

/// Example `i` is the number `i`.
fn numbers(n: usize) -> TensorDataset {
    let v: Vec<i64> = (0..n as i64).collect();
    TensorDataset::new(vec![HostTensor::from_slice(&v, [n]).expect("fits")]).expect("one part")
}

fn options(workers: usize) -> LoaderOptions {
    LoaderOptions { batch_size: 4, shuffle: Some(3), workers, ..LoaderOptions::default() }
}

fn epoch(l: &mut DataLoader) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    while let Some(b) = l.next_host_batch().expect("no failure") {
        all.push(b[0].to_vec().expect("i64"));
    }
    all
}

#[test]
fn the_order_is_one_of_seed_and_epoch_alone() {
    let d = cpu();
    let run = |workers, prefetch| {
        let o = LoaderOptions { prefetch, ..options(workers) };
        let mut l = DataLoader::new(&d, numbers(23), o).expect("valid");
        (0..3).map(|_| epoch(&mut l)).collect::<Vec<_>>()
    };
    let want = run(0, 0);
    for (workers, prefetch) in [(1, 1), (1, 3), (2, 2), (4, 8), (8, 3)] {
        assert_eq!(run(workers, prefetch), want, "{workers} workers, {prefetch} ahead");
    }
    for e in &want {
        let all: BTreeSet<i64> = e.iter().flatten().copied().collect();
        assert_eq!((all.len(), e.len(), e[5].len()), (23, 6, 3));
    }
    assert_ne!(want[0], want[1], "epochs differ");
    let other = LoaderOptions { shuffle: Some(4), ..options(0) };
    assert_ne!(epoch(&mut DataLoader::new(&d, numbers(23), other).expect("valid")), want[0], "seeds differ");
}

#[test]
fn without_shuffling_the_dataset_gives_the_order() {
    let o = LoaderOptions { shuffle: None, drop_last: true, ..options(2) };
    let mut l = DataLoader::new(&cpu(), numbers(10), o).expect("valid");
    assert_eq!((l.batches(), epoch(&mut l)), (2, vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]]));
    let mut none = DataLoader::new(&cpu(), numbers(0), options(2)).expect("valid");
    assert!(epoch(&mut none).is_empty());
}

#[test]
fn a_saved_position_continues() {
    let d = cpu();
    let new = || DataLoader::new(&d, numbers(23), options(2)).expect("valid");
    let mut whole = new();
    let first = epoch(&mut whole);
    let second = epoch(&mut whole);
    let mut a = new();
    epoch(&mut a);
    (0..2).for_each(|_| drop(a.next_host_batch().expect("no failure")));
    let at = a.position();
    assert_eq!(at, LoaderPosition { epoch: 1, batch: 2 });
    let mut b = new();
    b.set_position(at).expect("within the epoch");
    assert_eq!(epoch(&mut b), second[2..]);
    b.set_position(LoaderPosition { epoch: 0, batch: 0 }).expect("within the epoch");
    assert_eq!(epoch(&mut b), first);
    assert_eq!(b.set_position(LoaderPosition { epoch: 0, batch: 7 }).expect_err("of 6").kind(), ErrorKind::Value);
}

/// Fails or panics at one example, until it was asked for so often.
struct Fragile {
    inner: TensorDataset,
    at: usize,
    panics: bool,
    failures_left: AtomicUsize,
}

impl Dataset for Fragile {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>> {
        let fails = indices.contains(&self.at)
            && self.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        if fails && self.panics {
            panic!("example {} is gone", self.at);
        }
        if fails {
            return Err(Error::new(ErrorKind::Io, "the disk is gone"));
        }
        self.inner.batch(indices)
    }
}

#[test]
fn failures_and_panics_come_out_in_their_turn_and_can_be_tried_again() {
    for workers in [0, 1, 3] {
        for panics in [false, true] {
            let data = Fragile { inner: numbers(23), at: 9, panics, failures_left: AtomicUsize::new(1) };
            let o = LoaderOptions { shuffle: None, ..options(workers) };
            let mut l = DataLoader::new(&cpu(), data, o).expect("valid");
            for want in 0..2 {
                assert_eq!(l.next_host_batch().expect("good").expect("more")[0].to_i64_vec()[0], 4 * want);
            }
            let e = l.next_host_batch().expect_err("example 9");
            assert_eq!(e.kind(), if panics { ErrorKind::Value } else { ErrorKind::Io });
            assert!(e.message().contains("batch 2") && e.message().contains("gone"), "{e}");
            assert_eq!(l.position().batch, 2);
            assert_eq!(epoch(&mut l).len(), 4, "the rest, with the failed batch tried again");
        }
    }
}

/// Counts itself, so that a test sees when the last thread let go of it.
struct Slow {
    inner: TensorDataset,
    _alive: Arc<()>,
}

impl Dataset for Slow {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>> {
        std::thread::sleep(Duration::from_millis(5));
        self.inner.batch(indices)
    }
}

#[test]
fn dropping_a_loader_in_an_epoch_ends_its_threads() {
    let alive = Arc::new(());
    let mut l =
        DataLoader::new(&cpu(), Slow { inner: numbers(4000), _alive: alive.clone() }, options(3)).expect("valid");
    l.next_host_batch().expect("no failure");
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(l);
    assert_eq!(Arc::strong_count(&alive), 1, "a thread still holds the dataset");
}

#[test]
fn prefetched_bytes_count_against_the_budget() {
    let d = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(1 << 20) }).expect("a CPU");
    let rows = |n: usize| {
        let t = HostTensor::zeros(remat_types::DType::F32, [n, 1024]).expect("small");
        TensorDataset::new(vec![t]).expect("one part")
    };
    let o = LoaderOptions { batch_size: 16, prefetch: 4, workers: 2, ..LoaderOptions::default() };
    let mut l = DataLoader::new(&d, rows(128), o).expect("valid");
    while l.next_batch().expect("fits").is_some() {}
    let report = d.channel().report().expect("open");
    let staging = report.peak_by_kind.iter().find(|h| h.name == Kind::Staging.name()).expect("charged").bytes;
    // four places of 64 KiB; the peak may come before all are taken
    assert!((1..=4).any(|n| staging == n * (64 << 10)), "{report:?}");
    d.channel().sync().expect("no failure");
    assert!(d.channel().stats().expect("open").in_use_bytes < 64 << 10, "charges end with the epoch");
    let o = LoaderOptions { batch_size: 512, ..o };
    let mut l = DataLoader::new(&d, rows(512), o).expect("valid");
    assert_eq!(l.next_batch().expect_err("2 MiB").kind(), ErrorKind::Budget);
}

fn rows_of_40_kb(n: usize) -> TensorDataset {
    let t = HostTensor::zeros(remat_types::DType::F32, [n, 10_000]).expect("small");
    TensorDataset::new(vec![t]).expect("one part")
}

fn staged(d: &Device) -> usize {
    let report = d.channel().report().expect("open");
    report.peak_by_kind.iter().find(|h| h.name == Kind::Staging.name()).map_or(0, |h| h.bytes)
}

#[test]
fn batches_ahead_take_no_more_than_a_share_and_every_batch_comes() {
    for (budget, most) in [(100_000, 0), (200_000, 1), (500_000, 3), (10_000_000, 8)] {
        let options = DeviceOptions { threads: 1, ..DeviceOptions::with_budget(budget) };
        let d = Device::cpu(options).expect("a CPU");
        let o = LoaderOptions { batch_size: 1, prefetch: 8, workers: 3, ..LoaderOptions::default() };
        let mut l = DataLoader::new(&d, rows_of_40_kb(30), o).expect("valid");
        let mut batches = 0;
        while let Some(batch) = l.next_batch().expect("always fits") {
            batch[0].to_host().expect("it is there");
            batches += 1;
        }
        assert_eq!(batches, 30, "{budget} bytes");
        // blocks are padded a little
        assert!(staged(&d) <= most * 41_000, "{} bytes staged of {budget}", staged(&d));
    }
}

#[test]
fn what_is_prefetched_can_be_waited_for() {
    let d = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(10_000_000) }).expect("a CPU");
    let o = LoaderOptions { batch_size: 1, prefetch: 3, workers: 1, ..LoaderOptions::default() };
    let data = Slow { inner: rows_of_40_kb(5), _alive: Arc::new(()) };
    let mut l = DataLoader::new(&d, data, o).expect("valid");
    l.wait_for_prefetch().expect("there is no epoch");
    for left in [3, 3, 2, 1, 0] {
        l.next_host_batch().expect("good").expect("more");
        l.wait_for_prefetch().expect("good");
        let bytes = d.channel().stats().expect("open").in_use_bytes;
        assert!((3 * 40_000..=3 * 41_000).contains(&bytes), "{bytes} bytes with {left} batches to come");
    }
    assert!(l.next_host_batch().expect("good").is_none());
    // where there is no room for what is ahead nothing is waited for
    let d = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(100_000) }).expect("a CPU");
    let mut l = DataLoader::new(&d, rows_of_40_kb(5), o).expect("valid");
    while l.next_host_batch().expect("good").is_some() {
        l.wait_for_prefetch().expect("good");
    }
}

#[test]
fn prefetching_gives_way_where_the_device_needs_the_memory() {
    for was_short in [false, true] {
        prefetching_gives_way(was_short);
    }
}

/// `was_short`: something had to be evicted before.
fn prefetching_gives_way(was_short: bool) {
    let d = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(1 << 20) }).expect("a CPU");
    if was_short {
        let x = remat_tensor::Tensor::ones(&d, [27_000], remat_types::DType::F32).expect("fits");
        let all: Vec<remat_tensor::Tensor> = (0..12).map(|_| x.neg()).collect::<Result<_>>().expect("queued");
        all[0].to_host().expect("recomputed");
        assert!(d.channel().stats().expect("open").evictions > 0);
        drop((x, all));
        d.channel().reset_peak().expect("open");
    }
    let o = LoaderOptions { batch_size: 1, prefetch: 6, workers: 2, ..LoaderOptions::default() };
    let mut l = DataLoader::new(&d, rows_of_40_kb(30), o).expect("valid");
    l.next_batch().expect("fits");
    let wanted = Duration::from_secs(20);
    let began = std::time::Instant::now();
    while staged(&d) < 200_000 && began.elapsed() < wanted {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(staged(&d) >= 200_000, "it prefetches while memory is free");
    // all but one batch of the budget
    let all: Vec<remat_tensor::Tensor> = (0..9)
        .map(|_| {
            remat_tensor::Tensor::from_host(&d, &HostTensor::zeros(remat_types::DType::F32, [27_000]).expect("small"))
        })
        .collect::<Result<_>>()
        .expect("queued");
    for t in &all {
        t.to_host().expect("what is prefetched gives way");
    }
    let s = d.channel().stats().expect("open");
    assert!(was_short || s.decisions == 0, "it gives way before memory counts as short: {s:?}");
    let mut batches = 1;
    while let Some(batch) = l.next_batch().expect("one at a time fits") {
        batch[0].to_host().expect("it is there");
        batches += 1;
    }
    assert_eq!(batches, 30, "what was let go is prepared again");
    d.channel().verify().expect("consistent");
}

/// More examples than any memory, which are all alike.
struct Endless {
    parts: usize,
}

impl Dataset for Endless {
    fn len(&self) -> usize {
        usize::MAX
    }

    fn batch(&self, indices: &[usize]) -> Result<Vec<HostTensor>> {
        Ok(vec![HostTensor::zeros(remat_types::DType::U8, [indices.len()])?; self.parts])
    }
}

#[test]
fn a_dataset_without_end_and_one_without_parts_are_no_panic() {
    let o = LoaderOptions { shuffle: None, prefetch: usize::MAX, ..options(2) };
    let mut l = DataLoader::new(&cpu(), Endless { parts: 1 }, o).expect("valid");
    for _ in 0..3 {
        assert_eq!(l.next_host_batch().expect("no failure").expect("more")[0].elems(), 4);
    }
    for workers in [0, 2] {
        let shuffled = LoaderOptions { shuffle: Some(1), ..options(workers) };
        let e = DataLoader::new(&cpu(), Endless { parts: 1 }, shuffled).and_then(|mut l| l.next_host_batch());
        assert_eq!(e.expect_err("no order of so many").kind(), ErrorKind::Value);
        let mut l = DataLoader::new(&cpu(), Endless { parts: 0 }, LoaderOptions { shuffle: None, ..options(workers) });
        let e = l.as_mut().map_err(|e| e.clone()).and_then(|l| l.next_batch()).expect_err("nothing to train with");
        assert!(e.kind() == ErrorKind::Arity && e.message().contains("batch 0"), "{e}");
    }
}

#[test]
fn senseless_options_are_refused() {
    let kind = |o| DataLoader::new(&cpu(), numbers(3), o).err().expect("refused").kind();
    assert_eq!(kind(LoaderOptions { batch_size: 0, ..options(1) }), ErrorKind::Value);
    assert_eq!(kind(LoaderOptions { prefetch: 0, ..options(1) }), ErrorKind::Value);
    assert_eq!(kind(LoaderOptions { batch_size: usize::MAX, ..options(1) }), ErrorKind::Value);
    assert_eq!(kind(options(usize::MAX)), ErrorKind::Value);
}

#[test]
fn shards_of_an_epoch_are_its_batches_in_rounds() {
    let d = cpu();
    for (workers, drop_last) in [(0, false), (2, false), (0, true), (3, true)] {
        let o = LoaderOptions { drop_last, ..options(workers) };
        let whole = epoch(&mut DataLoader::new(&d, numbers(23), o).expect("valid"));
        for ranks in [1, 2, 3, 4, 7] {
            let mut shards: Vec<DataLoader> = (0..ranks)
                .map(|rank| {
                    DataLoader::new(&d, numbers(23), LoaderOptions { shard: Shard { rank, ranks }, ..o })
                        .expect("valid")
                })
                .collect();
            let rounds = if drop_last { whole.len() / ranks } else { whole.len().div_ceil(ranks) };
            assert!(shards.iter().all(|l| l.batches() == rounds));
            let read: Vec<Vec<Vec<i64>>> = shards.iter_mut().map(epoch).collect();
            for round in 0..rounds {
                for (rank, batches) in read.iter().enumerate() {
                    // a round that is not whole goes on at the begin
                    assert_eq!(batches[round], whole[(round * ranks + rank) % whole.len()], "{rank} of {ranks}");
                }
            }
        }
    }
    let o = LoaderOptions { shard: Shard { rank: 2, ranks: 3 }, ..options(2) };
    let mut l = DataLoader::new(&d, numbers(40), o).expect("valid");
    let all = epoch(&mut l);
    l.set_position(LoaderPosition { epoch: 0, batch: 2 }).expect("a place of the epoch");
    assert_eq!(epoch(&mut l), all[2..], "it goes on in the middle");
    for shard in [Shard { rank: 1, ranks: 1 }, Shard { rank: 0, ranks: 0 }] {
        let e = DataLoader::new(&d, numbers(4), LoaderOptions { shard, ..options(0) }).err().expect("no such rank");
        assert_eq!(e.kind(), ErrorKind::Value);
    }
}
