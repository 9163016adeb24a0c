//! `.remat` files: read, and run as sessions.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use remat_fuzz::{Random, give, header, heap, model};
use remat_graph::ir::{Graph, GraphFile, Key};
use remat_lite::{Network, Options};
use remat_runtime::control_flow::registry;

const READ_MULTIPLE: usize = 1024;
const READ_CONSTANT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let registry = registry();
    let key = Key::new([7; Key::BYTES]);
    let read = || {
        let file = GraphFile::from_bytes(data, None, &registry)
            .or_else(|_| GraphFile::from_bytes(data, Some(&key), &registry));
        file.is_ok()
    };
    let is_file = heap::within("read", READ_MULTIPLE, READ_CONSTANT, data.len(), read);
    let _ = heap::within("graph", READ_MULTIPLE, READ_CONSTANT, data.len(), || Graph::from_bytes(data, &registry));
    if !is_file {
        return;
    }
    // what was read is written, and read again
    let file =
        GraphFile::from_bytes(data, None, &registry).or_else(|_| GraphFile::from_bytes(data, Some(&key), &registry));
    if let Ok(again) = file.and_then(|f| f.to_bytes(None)) {
        GraphFile::from_bytes(&again, None, &registry).expect("it was written here");
    }
    let options = Options { key: Some(key), ..model::options((data.len() % 4) as u8) };
    if let Ok(network) = Network::from_bytes(data, options) {
        model::run(&network, data.len());
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut plain = |bytes: &mut [u8], n: usize| {
        let most = bytes.len();
        fuzzer_mutate(bytes, n, most)
    };
    let new = header::mutate(&data[..size], &mut Random::new(seed), &mut plain);
    give(&mut data[..max_size], size, &new)
});
