//! ONNX models: read, looked at, traced, compiled and run.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use remat_fuzz::{Random, give, heap, message, model};
use remat_lite::Network;
use remat_onnx::{Model, read_tensor};

/// The heap that reading a model may take for each of its bytes: a message of two bytes becomes a struct with its lists.
const READ_MULTIPLE: usize = 1024;
const READ_CONSTANT: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let read = || {
        let model = Model::from_bytes(data.to_vec())?;
        let shown: usize = model.inputs().iter().chain(&model.outputs()).map(|p| p.ty.to_string().len()).sum();
        let missing: usize = model.unsupported().iter().map(|u| u.to_string().len()).sum();
        remat_lite::Result::Ok(shown + missing + model.operators().len())
    };
    let is_model = heap::within("read", READ_MULTIPLE, READ_CONSTANT, data.len(), || read().is_ok());
    let _ = heap::within("tensor", READ_MULTIPLE, READ_CONSTANT, data.len(), || read_tensor(data.to_vec()));
    if !is_model {
        return;
    }
    let level = (data.len() % 4) as u8;
    if let Ok(network) = Network::from_bytes(data, model::options(level)) {
        model::run(&network, data.len());
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut plain = |bytes: &mut [u8], n: usize| {
        let most = bytes.len();
        fuzzer_mutate(bytes, n, most)
    };
    let new = message::mutate(&data[..size], &model::words(), &mut Random::new(seed), &mut plain);
    give(&mut data[..max_size], size, &new)
});
