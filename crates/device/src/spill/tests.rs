#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each test touches memory only after its copies have been waited for"
)]

use std::fs::OpenOptions;

use super::*;

const BYTES: usize = 1 << 16;

fn slots() -> [Slot; 3] {
    std::array::from_fn(|i| Slot { at: (i * BYTES) as u64, bytes: BYTES })
}

fn data(i: usize) -> Vec<u8> {
    (0..BYTES).map(|k| (k * 7 + i * 13 + k / 251) as u8).collect()
}

#[test]
fn what_went_out_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let rates = SpillRates { write_bytes_per_s: 1, read_bytes_per_s: 1 };
    let mut file = SpillTo::with_rates(folder.path(), rates).expect("positive").open().expect("a file");
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0, "the file has no name");
    assert_eq!(file.rates(), None);
    for run in 0..3 {
        let mut memory: Vec<Vec<u8>> = (0..3).map(|i| data(i + run)).collect();
        let mut flight = file.begin(3, 3);
        for (i, m) in memory.iter().enumerate() {
            unsafe { flight.copy_out(i, slots()[i], m.as_ptr()) };
        }
        (0..3).for_each(|i| flight.wait(i).expect("written"));
        memory.iter_mut().for_each(|m| m.fill(0));
        for (i, m) in memory.iter_mut().enumerate() {
            unsafe { flight.copy_in(i, slots()[i], m.as_mut_ptr()) };
        }
        (0..3).for_each(|i| flight.wait(i).expect("read"));
        drop(flight);
        assert_eq!(memory, (0..3).map(|i| data(i + run)).collect::<Vec<_>>());
    }
    assert!(file.rates().expect("copied both ways").is_possible());
}

#[test]
fn bytes_across_blocks_come_back_to_other_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let rates = SpillRates { write_bytes_per_s: 1, read_bytes_per_s: 1 };
    let mut file = SpillTo::with_rates(folder.path(), rates).expect("positive").open().expect("a file");
    // Longer than a part, longer than a block, one block, and shorter.
    for bytes in [(3 << 20) + 5, BLOCK_BYTES + 64, BLOCK_BYTES, 7] {
        for (from, to) in [(0, 0), (0, 64), (64, 0), (64, 1)] {
            let (mut left, mut right) = (Bounce::default(), Bounce::default());
            let (left, right) = (left.part(bytes + from), right.part(bytes + to));
            left.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 31 + i / 4099) as u8);
            right.fill(0);
            // The slot lies between two others, which must not change.
            let slots = [0, 1, 1 + bytes.div_ceil(BLOCK_BYTES)].map(|b| (b * BLOCK_BYTES) as u64);
            let around = [1u8; 16];
            let mut flight = file.begin(3, 3);
            unsafe { flight.copy_out(0, Slot { at: slots[0], bytes: 16 }, around.as_ptr()) };
            unsafe { flight.copy_out(2, Slot { at: slots[2], bytes: 16 }, around.as_ptr()) };
            unsafe { flight.copy_out(1, Slot { at: slots[1], bytes }, left[from..].as_ptr()) };
            (0..3).for_each(|i| flight.wait(i).expect("written"));
            let mut others = [[0u8; 16]; 2];
            unsafe { flight.copy_in(1, Slot { at: slots[1], bytes }, right[to..].as_mut_ptr()) };
            unsafe { flight.copy_in(0, Slot { at: slots[0], bytes: 16 }, others[0].as_mut_ptr()) };
            unsafe { flight.copy_in(2, Slot { at: slots[2], bytes: 16 }, others[1].as_mut_ptr()) };
            (0..3).for_each(|i| flight.wait(i).expect("read"));
            drop(flight);
            assert!(left[from..] == right[to..], "{bytes} bytes from {from} to {to}");
            assert!(right[..to].iter().all(|b| *b == 0), "{bytes} bytes from {from} to {to}: what lies before them");
            assert_eq!(others, [around; 2], "{bytes} bytes from {from} to {to}: neighbours");
        }
    }
}

#[test]
fn a_disk_that_refuses_direct_transfers_is_used_through_the_cache() {
    let disk = Disk::new(tempfile::tempfile().expect("a file"));
    let mut bounce = Bounce::default();
    let bytes = data(3);
    // No multiple of a block: a direct transfer there is refused.
    disk.write(&bytes, 3, &mut bounce).expect("written");
    let was_refused = !disk.is_direct();
    let mut back = vec![0; bytes.len()];
    disk.read(&mut back, 3, &mut bounce).expect("read");
    assert!(back == bytes && (was_refused || !cfg!(target_os = "linux")), "{disk:?}");
    disk.flush().expect("on the disk");
}

#[test]
fn a_full_disk_is_an_error_of_this_run_alone() {
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else { return };
    let mut file = SpillFile::over(full, "folder".into()).expect("threads");
    for _ in 0..2 {
        let memory = data(0);
        let mut flight = file.begin(2, 2);
        assert!(flight.wait(1).is_ok(), "nothing was written yet");
        unsafe { flight.copy_out(0, slots()[0], memory.as_ptr()) };
        unsafe { flight.copy_out(1, slots()[1], memory.as_ptr()) };
        let e = flight.wait(0).expect_err("the disk is full");
        assert_eq!(e.kind(), ErrorKind::Io);
        assert!(e.to_string().contains("write to a spill file in `folder`"), "{e}");
        assert!(flight.wait(1).is_err(), "what comes after a failure is not written");
    }
}

/// The error of reading bytes back after `change` to the file.
fn read_after(change: impl FnOnce(&std::fs::File)) -> remat_types::Error {
    let mut file = SpillFile::over(tempfile::tempfile().expect("a file"), "folder".into()).expect("threads");
    let mut memory = data(0);
    let disk = file.file().expect("a descriptor");
    let mut flight = file.begin(1, 1);
    unsafe { flight.copy_out(0, slots()[0], memory.as_ptr()) };
    flight.wait(0).expect("written");
    change(&disk);
    unsafe { flight.copy_in(0, slots()[0], memory.as_mut_ptr()) };
    flight.wait(0).expect_err("it was changed")
}

#[test]
fn a_short_read_is_an_error() {
    let e = read_after(|disk| disk.set_len(0).expect("a file can be cut"));
    assert!(e.to_string().contains("read from a spill file in `folder`"), "{e}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let e = SpillTo::measure("/nowhere/at/all").expect_err("no such folder");
    assert_eq!(e.kind(), ErrorKind::Io);
    assert!(e.to_string().contains("`/nowhere/at/all`"), "{e}");
    let zero = SpillRates::default();
    assert_eq!(SpillTo::with_rates("x", zero).expect_err("no rate").kind(), ErrorKind::Value);
}

#[test]
fn a_folder_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = SpillTo::measure(folder.path()).expect("can be written");
    assert!(to.rates().is_possible(), "{to:?}");
    assert_eq!(to.folder(), folder.path());
}

#[test]
fn a_disk_that_gives_other_bytes_back_is_an_error() {
    use std::os::unix::fs::FileExt;
    let e = read_after(|disk| {
        // Changes one bit, as if the disk had reported a write that it did not make. The test writes whole blocks,
        // since the file may bypass the cache.
        let mut blocks = Bounce::default();
        let block = blocks.part(BLOCK_BYTES);
        disk.read_exact_at(block, 0).expect("there");
        block[100] ^= 4;
        disk.write_all_at(block, 0).expect("there");
    });
    assert!(e.to_string().contains("are not those written"), "{e}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_is_memory_is_told_from_a_disk() {
    let mounts = std::fs::read_to_string("/proc/mounts").expect("of every Linux");
    let is_mounted = mounts.lines().any(|l| l.contains(" /dev/shm tmpfs "));
    assert_eq!(SpillTo::is_in_memory(Path::new("/dev/shm")), is_mounted);
    assert!(!SpillTo::is_in_memory(Path::new("/proc")) && !SpillTo::is_in_memory(Path::new("/nowhere/at/all")));
}
