//! A hostile file of `torch.save` takes memory and time by its own length, whatever it claims.

use std::alloc::System;
use std::io::Cursor;
use std::time::{Duration, Instant};

use remat_types::npz_limit_bytes;
use remat_zoo::TorchReader;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Heap bytes for each byte of a file, summed over all that is taken, freed or not: what is held at once is less. A byte of a
/// pickle can be a place on the stack (16 bytes), in the memo (16) or an object (32), in vectors that double as they grow; the
/// names of tensors and those of scalars take a walk each, with at most 64 bytes of names for each.
const BYTES_PER_BYTE: usize = 400;
/// Heap bytes for any file: buffers, and names for small pickles.
const BYTES_ALWAYS: usize = 1 << 20;
/// Far above what the slowest takes, with a machine that does other things.
const TIME_MAX: Duration = Duration::from_secs(20);

/// An archive of stored members.
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let at = file.len() as u32;
        let mut sizes = Vec::new();
        // method, time, check sum, sizes, length of the name, no extra fields
        sizes.extend([0; 10]);
        sizes.extend([data.len() as u32; 2].map(u32::to_le_bytes).concat());
        sizes.extend((name.len() as u16).to_le_bytes());
        sizes.extend([0; 2]);
        file.extend(b"PK\x03\x04\0\0\0\0");
        file.extend(&sizes);
        file.extend(name.as_bytes());
        file.extend(*data);
        directory.extend(b"PK\x01\x02\0\0\0\0\0\0");
        directory.extend(&sizes);
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (at, bytes, count) = (file.len() as u32, directory.len() as u32, (members.len() as u16).to_le_bytes());
    file.extend(&directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([count, count].concat());
    file.extend([bytes, at].map(u32::to_le_bytes).concat());
    file.extend([0; 2]);
    file
}

/// Heap bytes that were taken while all of a file but its tensors' elements was looked at.
fn taken(name: &str, file: &[u8]) -> usize {
    let (region, start) = (Region::new(HEAP), Instant::now());
    if let Ok(reader) = TorchReader::new(Cursor::new(file)) {
        let facts = reader.names().filter(|n| reader.fact(n).is_ok()).count();
        let scalars = reader.scalars().map_or(0, |s| s.len());
        println!("{name}: {facts} tensors, {scalars} scalars");
    }
    let (time, change) = (start.elapsed(), region.change());
    assert!(time < TIME_MAX, "{name}: {time:?}");
    let bytes = change.bytes_allocated + change.bytes_reallocated.max(0) as usize;
    println!("{name}: {} bytes for {}, {:.1} for each, {time:?}", bytes, file.len(), bytes as f64 / file.len() as f64);
    bytes
}

#[test]
fn memory_and_time_are_bounded_by_the_file() {
    const N: usize = 1 << 20;
    let tensor = b"((X\x07\0\0\0storagectorch\nFloatStorage\n\
        X\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ\x94K\x00))\x89N)t\x94";
    let call = [&b"ctorch._utils\n_rebuild_tensor_v2\n\x94"[..], tensor].concat();
    let pickles: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", b"N".repeat(N)),
        ("marks", b"(".repeat(N)),
        ("lists", b"]".repeat(N)),
        ("lists in the memo", b"]\x94".repeat(N / 2)),
        ("the memo", [&b"N"[..], &b"\x94".repeat(N)].concat()),
        (
            "far places of the memo",
            std::iter::once(b'N')
                .chain((0..N as u32 / 5).flat_map(|i| [&b"r"[..], &(!i).to_le_bytes()].concat()))
                .collect(),
        ),
        ("nested lists", [&b"]".repeat(N / 2)[..], &b"a".repeat(N / 2 - 1), b"."].concat()),
        ("nested tuples", [&b")"[..], &b"\x85".repeat(N), b"."].concat()),
        ("doubled tuples", [&b")"[..], &b"2\x86".repeat(N / 2), b"."].concat()),
        ("a list of numbers", [&b"]("[..], &b"K\x01".repeat(N / 2), b"e."].concat()),
        ("lists of one", [&b"]("[..], &b"]Na".repeat(N / 3), b"e."].concat()),
        ("calls", [&b"cos\nsystem\n\x940]("[..], &b"h\0)R".repeat(N / 4), b"e."].concat()),
        ("one tensor at many places", [&call[..], b"R\x940](", &b"h\x03".repeat(N / 2), b"e."].concat()),
        ("many tensors of one storage", [&call[..], b"R0](", &b"h\0h\x02R".repeat(N / 5), b"e."].concat()),
        ("long names", [&b"}X\x78\0\0\0"[..], &[b'k'; 120], b"](", &b"K\x01".repeat(N / 2), b"es."].concat()),
        ("lines", b"I1\n".repeat(N / 3)),
        ("an endless line", [&b"V"[..], &b"\\".repeat(N)].concat()),
        ("a long text", [&b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f"[..], &b"a".repeat(N)].concat()),
        ("nothing but zeros", vec![0; N]),
    ];
    for (name, pickle) in &pickles {
        let file = archive(&[("a/data.pkl", pickle), ("a/data/0", &[0; 4])]);
        let bytes = taken(name, &file);
        assert!(bytes <= BYTES_PER_BYTE * file.len() + BYTES_ALWAYS, "{name}: {bytes} bytes for {}", file.len());
    }
    directories_and_ends();
    a_member_that_says_more_than_it_has();
    elements_are_bounded();
}

/// Part of the test above: the count is of the whole process, so one test at a time.
fn directories_and_ends() {
    let many: Vec<String> = (0..20_000).map(|i| format!("a/data/{i}")).collect();
    let mut members: Vec<(&str, &[u8])> = many.iter().map(|n| (n.as_str(), &b""[..])).collect();
    members.push(("a/data.pkl", b"N."));
    // a zip reader that tries each end record takes the square of them
    let ends = [&b"PK\x03\x04"[..], &[&b"PK\x05\x06"[..], &[0xFF; 18]].concat().repeat(1 << 16)].concat();
    for (name, file) in [("many members", archive(&members)), ("many ends", ends)] {
        let bytes = taken(name, &file);
        assert!(bytes <= BYTES_PER_BYTE * file.len() + BYTES_ALWAYS, "{name}: {bytes} bytes for {}", file.len());
    }
}

/// A deflated member whose size is a word: 128 MiB, of a few bytes.
fn a_member_that_says_more_than_it_has() {
    const SIZE: u32 = 1 << 27;
    let pickle =
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nByteStorage\nX\x01\0\0\x000X\x03\0\0\0cpu\
        J\0\0\0\x08tQK\0J\0\0\0\x08\x85K\x01\x85\x89N)tR.";
    let mut file = archive(&[("a/data.pkl", pickle), ("a/data/0", &[3, 0])]);
    let entry = file.windows(4).rposition(|w| w == b"PK\x01\x02").expect("an entry");
    file[entry + 10] = 8;
    file[entry + 24..entry + 28].copy_from_slice(&SIZE.to_le_bytes());
    let mut reader = TorchReader::new(Cursor::new(&file)).expect("describes a tensor");
    assert_eq!(reader.fact("").expect("a tensor").shape[..], [SIZE as usize]);
    let region = Region::new(HEAP);
    let e = reader.tensor("").expect_err("two bytes");
    let bytes = region.change().bytes_allocated;
    assert!(e.message().contains("unpacks to 0 bytes"), "{e}");
    assert!(bytes < BYTES_ALWAYS, "{bytes} bytes for a file of {}", file.len());
}

/// Elements that a few bytes of a storage are repeated to.
fn elements_are_bounded() {
    let storage = vec![0; 1 << 16];
    // 2^14 elements of a storage, seen 2^k times
    let repeated = |k: u32, times: usize| {
        let mut pickle = b"](ctorch._utils\n_rebuild_tensor_v2\n\x94(X\x07\0\0\0storagectorch\nFloatStorage\n\
            X\x01\0\0\x000X\x03\0\0\0cpuM\0\x40tQ\x940"
            .to_vec();
        for i in 0..times {
            pickle.extend(b"h\0(h\x01K\0(J");
            pickle.extend((1i32 << k).to_le_bytes());
            pickle.extend([&b"M"[..], &(0x4000 - i as u16).to_le_bytes(), b"t(K\0K\x01t\x89N)tR"].concat());
        }
        pickle.extend(b"e.");
        archive(&[("a/data.pkl", &pickle), ("a/data/0", &storage)])
    };
    for (k, times, fits) in
        [(4, 1, true), (10, 8, false), (14, 1, false), (30, 1, false), (0, 1000, true), (8, 100, false)]
    {
        let file = repeated(k, times);
        let mut reader = TorchReader::new(Cursor::new(&file)).expect("describes tensors");
        assert_eq!(reader.names().count(), times);
        let region = Region::new(HEAP);
        let all = reader.all();
        let bytes = region.change().bytes_allocated as u64;
        assert_eq!(all.is_ok(), fits, "2^{k}, {times} times");
        let limit = npz_limit_bytes(file.len() as u64);
        assert!(bytes <= limit + limit / 8, "2^{k}, {times} times: {bytes} bytes, {limit} are the limit");
        drop(all);
    }
}
