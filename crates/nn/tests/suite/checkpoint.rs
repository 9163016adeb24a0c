//! Checkpoints: bits, atomicity, hostile files.

use std::fs;
use std::path::Path;

use remat_nn::*;
use remat_runtime::Device;
use remat_types::{DType, ErrorKind, HostTensor, Result};
use sha2::{Digest, Sha256};

use crate::support::{FLOATS, cpu, host};
use crate::training::{network, step};

fn adam(net: &dyn Module) -> AdamW {
    AdamW::new(net.named_parameters(), AdamWOptions::default()).expect("valid")
}

fn train_state() -> TrainState {
    TrainState {
        step: 3,
        epoch: 1,
        schedule: Some(Schedule::Cosine { lr: 0.1, min: 0.001, steps: 100 }.after_warmup(5)),
        rng: Some(Rng::new(77)),
        loader: Some(LoaderPosition { epoch: 1, batch: 9 }),
        user: serde_json::json!({ "name": "a \"quoted\" run", "accuracy": [0.5, 0.75] }),
    }
}

#[test]
fn a_resumed_run_continues_bit_for_bit() {
    let dir = tempfile::tempdir().expect("a directory");
    let d = cpu();
    let net = network(&d);
    let mut a =
        AdamW::new(net.named_parameters(), AdamWOptions { lr: 0.02, ..AdamWOptions::default() }).expect("valid");
    let go = |d: &Device, n: &Sequential, o: &mut AdamW, steps: std::ops::Range<usize>| {
        steps.map(|i| step(d, n, o, i).expect("fits").to_host().expect("a number")).collect::<Vec<_>>()
    };
    go(&d, &net, &mut a, 0..3);
    Checkpoint::save(&dir, &net, Some(&a), &train_state()).expect("written");
    let want = go(&d, &net, &mut a, 3..6);

    let d = cpu();
    let other = network(&d);
    let mut b = adam(&other);
    let c = Checkpoint::load(&dir).expect("read");
    assert_eq!(c.train, train_state());
    c.restore(&other, Some(&mut b)).expect("fits");
    assert_eq!(b.lr(), 0.02, "options come back");
    assert_eq!(other.rng_states()["20.rng"].counter(), 3, "dropout goes on where it was");
    assert_eq!(go(&d, &other, &mut b, 3..6), want);
    assert!(other.state_dict().expect("values") == net.state_dict().expect("values"));
    assert!(b.state_dict().expect("values") == a.state_dict().expect("values"));
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Zoo {
    parts: Vec<Parameter>,
}

#[test]
fn every_dtype_survives_bit_for_bit() {
    let dir = tempfile::tempdir().expect("a directory");
    let d = cpu();
    let bits: Vec<u8> = (0..48).map(|i| (i * 37 + 11) as u8).collect();
    let value = |t: DType| match t {
        DType::Bool => HostTensor::from_slice(&[true, false, true], [3]).expect("fits"),
        t => HostTensor::from_bytes(t, [48 / t.size_bytes()], &bits).expect("fits"),
    };
    let with = |f: &dyn Fn(DType) -> HostTensor| Zoo {
        parts: DType::ALL
            .iter()
            .map(|&t| {
                let role = if FLOATS.contains(&t) { Role::Trained } else { Role::Buffer };
                Parameter::from_host(&d, &f(t), role).expect("fits")
            })
            .chain([Parameter::from_host(&d, &HostTensor::zeros(DType::F32, [0, 3]).expect("empty"), Role::Buffer)
                .expect("empty")])
            .collect(),
    };
    let zoo = with(&value);
    Checkpoint::save(&dir, &zoo, None, &TrainState::default()).expect("written");
    let zeros = with(&|t| HostTensor::zeros(t, value(t).shape()).expect("small"));
    let c = Checkpoint::load(&dir).expect("read");
    c.restore(&zeros, None).expect("fits");
    assert!(zeros.state_dict().expect("values") == zoo.state_dict().expect("values"));
    assert_eq!((c.train, c.optimizer), (TrainState::default(), None));
}

fn small(d: &Device) -> Linear {
    Linear::new(&mut InitCx::new(d, 1), 2, 2).expect("fits")
}

#[test]
fn equal_states_give_equal_files() {
    let (a, b) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    for dir in [&a, &b] {
        let l = small(&cpu());
        Checkpoint::save(dir, &l, Some(&adam(&l)), &train_state()).expect("written");
    }
    let read = |d: &tempfile::TempDir| fs::read(d.path().join(FILE_NAME)).expect("there");
    assert_eq!(read(&a), read(&b));
}

#[test]
fn a_write_that_fails_leaves_the_old_checkpoint() {
    let dir = tempfile::tempdir().expect("a directory");
    let d = cpu();
    let good = small(&d);
    Checkpoint::save(&dir, &good, None, &train_state()).expect("written");
    let before = fs::read(dir.path().join(FILE_NAME)).expect("there");
    // a tensor that cannot be read, met after the first bytes were written
    let bad = small(&d);
    let zero = remat_tensor::Tensor::new(&d, &[0i64; 20], [20]).expect("fits");
    let poison = zero.div(&zero).expect("found on the device").cast(DType::F32).expect("numeric");
    bad.weight.set(&poison.sum().expect("numeric").broadcast_to([2, 2]).expect("fits")).expect("same shape");
    let e = Checkpoint::save(&dir, &bad, None, &train_state()).expect_err("poisoned");
    assert!(e.message().contains("weight"), "{e}");
    assert_eq!(fs::read(dir.path().join(FILE_NAME)).expect("there"), before);
    assert_eq!(fs::read_dir(&dir).expect("there").count(), 1, "the temporary file is gone");
    Checkpoint::load(&dir).expect("still good");
}

#[test]
fn a_directory_that_cannot_be_is_an_error_of_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, b"x").expect("written");
    let save = Checkpoint::save(file.join("below"), &small(&cpu()), None, &TrainState::default());
    assert_eq!(save.expect_err("below a file").kind(), ErrorKind::Io);
    assert_eq!(Checkpoint::load(dir.path().join("none")).expect_err("not there").kind(), ErrorKind::Io);
}

#[test]
fn a_checkpoint_of_another_network_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let d = cpu();
    let l = small(&d);
    Checkpoint::save(&dir, &l, Some(&adam(&l)), &TrainState::default()).expect("written");
    let c = Checkpoint::load(&dir).expect("read");
    let other = Linear::with(&mut InitCx::new(&d, 9), 2, 2, LinearOptions { bias: false, ..Default::default() });
    let other = other.expect("fits");
    let before = other.state_dict().expect("values");
    let mut o = adam(&other);
    let e = c.restore(&other, Some(&mut o)).expect_err("no bias there");
    assert!(e.message().contains("model") && e.message().contains("bias"), "{e}");
    assert_eq!(other.state_dict().expect("values"), before);
    // the model fits, the optimiser does not
    let same = small(&d);
    same.weight.set_host(&host(&[1.0, 2.0, 3.0, 4.0], [2, 2])).expect("same shape");
    let before = same.state_dict().expect("values");
    let mut sgd = Sgd::new(same.named_parameters(), SgdOptions::default()).expect("valid");
    let e = c.restore(&same, Some(&mut sgd)).expect_err("adam's");
    assert!(e.message().contains("optimizer"), "{e}");
    assert_eq!(same.state_dict().expect("values"), before);
}

/// A checkpoint of a small layer, taken apart: header and data.
fn taken_apart() -> (serde_json::Value, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a directory");
    let l = small(&cpu());
    Checkpoint::save(&dir, &l, Some(&adam(&l)), &train_state()).expect("written");
    let bytes = fs::read(dir.path().join(FILE_NAME)).expect("there");
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    (serde_json::from_slice(&bytes[8..8 + n]).expect("json"), bytes[8 + n..].to_vec())
}

fn load(bytes: &[u8]) -> Result<Checkpoint> {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join(FILE_NAME), bytes).expect("written");
    Checkpoint::load(dir.path())
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// The file of a header and data, with the header's checksum where there is a place for it.
fn put_together(header: &serde_json::Value, data: &[u8]) -> Vec<u8> {
    let file = |header: &serde_json::Value| {
        let text = header.to_string();
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
    };
    let meta = header["__metadata__"]["remat"].as_str().and_then(|m| serde_json::from_str(m).ok());
    let mut header = header.clone();
    if let Some(mut meta) = meta.filter(|m: &serde_json::Value| m["sha256"].is_object()) {
        for sum in ["0".repeat(64), String::new()] {
            let sum = if sum.is_empty() { checksum(&file(&header)) } else { sum };
            meta["sha256"]["header"] = sum.into();
            header["__metadata__"]["remat"] = meta.to_string().into();
        }
    }
    [&file(&header)[..], data].concat()
}

#[track_caller]
fn assert_bad(bytes: &[u8], names: &str) {
    let e = load(bytes).expect_err(names);
    assert_eq!(e.kind(), ErrorKind::Format, "{e}");
    assert!(e.message().contains(names), "`{names}` is not in: {e}");
}

/// Changes the metadata and expects an error that contains `names`.
#[track_caller]
fn assert_bad_meta(names: &str, change: impl Fn(&mut serde_json::Value)) {
    let (mut header, data) = taken_apart();
    let mut meta: serde_json::Value =
        serde_json::from_str(header["__metadata__"]["remat"].as_str().expect("text")).expect("json");
    change(&mut meta);
    header["__metadata__"]["remat"] = meta.to_string().into();
    assert_bad(&put_together(&header, &data), names);
}

#[test]
fn what_was_taken_apart_goes_together_again() {
    let (header, data) = taken_apart();
    load(&put_together(&header, &data)).expect("unchanged");
}

#[test]
fn damaged_metadata_is_named() {
    assert_bad_meta("`version`", |m| m["version"] = 3.into());
    assert_bad_meta("`sha256`", |m| drop(m.as_object_mut().expect("a map").remove("sha256")));
    assert_bad_meta("checksum", |m| m["sha256"]["tensors"] = serde_json::json!({}));
    assert_bad_meta("`version`", |m| m["version"] = "1".into());
    assert_bad_meta("`version`", |m| drop(m.as_object_mut().expect("a map").remove("version")));
    assert_bad_meta("`train.step`", |m| m["train"]["step"] = (-1).into());
    assert_bad_meta("`train.loader`", |m| m["train"]["loader"]["batch"] = 1.5.into());
    assert_bad_meta("`train.schedule`", |m| m["train"]["schedule"] = serde_json::json!({ "sine": {} }));
    assert_bad_meta("`train.rng`", |m| m["train"]["rng"] = serde_json::json!({ "seed": 1 }));
    assert_bad_meta("`train.user`", |m| drop(m["train"].as_object_mut().expect("a map").remove("user")));
    assert_bad_meta("`rngs`", |m| m["rngs"] = 3.into());
    assert_bad_meta("optimizer", |m| drop(m.as_object_mut().expect("a map").remove("optimizer")));
}

#[test]
fn damaged_headers_are_named() {
    let (header, data) = taken_apart();
    let change = |f: &dyn Fn(&mut serde_json::Value)| {
        let mut h = header.clone();
        f(&mut h);
        put_together(&h, &data)
    };
    assert_bad(&change(&|h| drop(h.as_object_mut().expect("a map").remove("__metadata__"))), "__metadata__");
    assert_bad(&change(&|h| h["__metadata__"]["remat"] = "{".into()), "`remat`");
    assert_bad(&change(&|h| h["model.weight"]["shape"] = serde_json::json!([2, 3])), "no safetensors file");
    assert_bad(&change(&|h| h["model.weight"]["shape"] = serde_json::json!([u64::MAX, u64::MAX])), "no safetensors");
    assert_bad(&change(&|h| h["model.weight"]["data_offsets"] = serde_json::json!([4, 20])), "no safetensors file");
    assert_bad(&change(&|h| h["model.weight"]["dtype"] = "F13".into()), "F13");
    let mut renamed = header.clone();
    let w = renamed.as_object_mut().expect("a map").remove("model.weight").expect("there");
    renamed["stray"] = w;
    assert_bad(&put_together(&renamed, &data), "`stray` has no checksum");
    let mut meta: serde_json::Value =
        serde_json::from_str(renamed["__metadata__"]["remat"].as_str().expect("text")).expect("json");
    meta["sha256"]["tensors"]["stray"] = meta["sha256"]["tensors"]["model.weight"].clone();
    renamed["__metadata__"]["remat"] = meta.to_string().into();
    assert_bad(&put_together(&renamed, &data), "`stray` is neither");
    // complex numbers of the same size
    let complex = change(&|h| {
        h["model.weight"]["dtype"] = "C64".into();
        h["model.weight"]["shape"] = serde_json::json!([2]);
    });
    assert_bad(&complex, "`model.weight`");
}

#[test]
fn no_truncation_is_a_checkpoint() {
    let (header, data) = taken_apart();
    let whole = put_together(&header, &data);
    for n in 0..whole.len() {
        assert!(load_quickly(&whole[..n]).is_err(), "{n} bytes of {}", whole.len());
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(load_quickly(&longer).is_err(), "a byte too many");
}

#[test]
fn one_flipped_bit_anywhere_is_an_error_that_names_the_file() {
    let (header, data) = taken_apart();
    let whole = put_together(&header, &data);
    load_quickly(&whole).expect("whole");
    for i in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[i] ^= 1 << (i % 8);
        let e = load_quickly(&flipped).expect_err(&format!("bit {} of byte {i}", i % 8));
        assert!(e.kind() == ErrorKind::Format && e.message().contains(FILE_NAME), "{e:?}");
        let weights = whole.len() - data.len();
        assert!(i < weights || e.message().contains("is damaged") && e.message().contains("tensor `"), "{e}");
    }
}

#[test]
fn what_an_older_program_saved_is_loaded() {
    let dir = tempfile::tempdir().expect("a directory");
    // two steps of `remat train chars` with a width of 8, by the program from before there were checksums
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-v1.safetensors");
    fs::copy(old, dir.path().join(FILE_NAME)).expect("copied");
    let c = Checkpoint::load(&dir).expect("version 1");
    assert_eq!((c.train.step, c.train.user["recipe"].as_str()), (2, Some("chars")));
    assert_eq!(c.model.len() * 3, c.optimizer.expect("AdamW's").state.len(), "two moments and a count for each");
}

/// As `load`, in one file for all.
fn load_quickly(bytes: &[u8]) -> Result<Checkpoint> {
    let dir =
        std::env::temp_dir().join(format!("remat-nn-flips-{}-{:?}", std::process::id(), std::thread::current().id()));
    fs::create_dir_all(&dir).expect("made");
    fs::write(Path::new(&dir).join(FILE_NAME), bytes).expect("written");
    let r = Checkpoint::load(&dir);
    fs::remove_dir_all(&dir).expect("removed");
    r
}
