//! Checkpoints: of PyTorch, safetensors files, and those of a training run. The first byte says which.
#![no_main]

use std::io::Cursor;
use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use remat_fuzz::archive::archive;
use remat_fuzz::{Random, changed, give, header, heap};
use remat_nn::{AdamW, AdamWOptions, Checkpoint, InitCx, Linear, Module};
use remat_runtime::{Device, DeviceOptions};
use remat_types::read_safetensors;
use remat_zoo::{NameMap, TorchReader, load_weights_partly};

/// Of a file of PyTorch's without its tensors.
const TORCH: (usize, usize) = (1024, 1 << 20);
/// With them: views may repeat what they show, to a hundred times the file and 256 MiB, once as it lies and once in order.
const TORCH_TENSORS: (usize, usize) = (1024, 520 << 20);
const TENSORS: (usize, usize) = (512, 1 << 20);
const CHECKPOINT: (usize, usize) = (512, 1 << 20);
/// Loading makes state on a device besides.
const WEIGHTS: (usize, usize) = (2048, 520 << 20);

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

static NET: LazyLock<Linear> = LazyLock::new(|| {
    let device = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("a device");
    Linear::new(&mut InitCx::new(&device, 1), 2, 3).expect("small")
});

fn torch(bytes: &[u8], file_bytes: usize) {
    let read = heap::within("torch", TORCH.0, TORCH.1, file_bytes, || {
        let reader = TorchReader::new(Cursor::new(bytes)).ok()?;
        let _ = reader.scalars();
        Some(reader)
    });
    let Some(mut reader) = read else { return };
    heap::within("torch tensors", TORCH_TENSORS.0, TORCH_TENSORS.1, file_bytes, || {
        let names: Vec<String> = reader.names().take(64).map(str::to_owned).collect();
        for name in names {
            let fact = reader.fact(&name);
            if let (Ok(fact), Ok(t)) = (fact, reader.tensor(&name)) {
                assert!(fact.shape == *t.shape() && fact.dtype == t.dtype());
            }
        }
        let _ = reader.all();
    });
}

fn weights(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("writable");
    let net = &*NET;
    let names = NameMap::parse("{p} -> {p}").expect("a rule");
    heap::within("weights", WEIGHTS.0, WEIGHTS.1, bytes.len(), || {
        let _ = load_weights_partly(net, path, &names);
    });
}

fn checkpoint(folder: &Path, bytes: &[u8]) {
    std::fs::write(folder.join("checkpoint.safetensors"), bytes).expect("writable");
    let read = heap::within("checkpoint", CHECKPOINT.0, CHECKPOINT.1, bytes.len(), || Checkpoint::load(folder));
    let net = &*NET;
    let mut optimizer = AdamW::new(net.named_parameters(), AdamWOptions::default()).expect("valid");
    if let Ok(c) = read {
        let _ = c.restore(net, Some(&mut optimizer));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 5 {
        0 => torch(bytes, bytes.len()),
        1 => {
            let members: [(&str, &[u8]); 4] =
                [("a/data.pkl", bytes), ("a/byteorder", b"little"), ("a/data/0", &[1; 64]), ("a/version", b"3\n")];
            let file = archive(&members);
            torch(&file, file.len());
        }
        2 => drop(heap::within("tensors", TENSORS.0, TENSORS.1, bytes.len(), || read_safetensors(bytes))),
        3 => checkpoint(FOLDER.path(), bytes),
        _ => weights(&FOLDER.path().join("weights"), bytes),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut plain = |bytes: &mut [u8], n: usize| {
        let most = bytes.len();
        fuzzer_mutate(bytes, n, most)
    };
    let mut random = Random::new(seed);
    let Some((kind, bytes)) = data[..size].split_first() else { return fuzzer_mutate(data, size, max_size) };
    let kind = if random.once_in(30) { random.below(5) as u8 } else { kind % 5 };
    let mut new = vec![kind];
    new.append(&mut match kind {
        0 | 1 => changed(bytes, &mut plain),
        _ => header::mutate(bytes, &mut random, &mut plain),
    });
    give(&mut data[..max_size], size, &new)
});
