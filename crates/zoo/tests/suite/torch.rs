//! Files of `torch.save` hold what PyTorch says that they hold, to the bit, and a hostile one is no more than an error.
//!
//! `scripts/make_torch_checkpoints.py` wrote the cases.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};

use base64::Engine;
use remat_types::{ErrorKind, HostTensor};
use remat_zoo::{TorchReader, TorchScalar, read_torch};
use serde_json::Value;

/// A file and what is to be found in it.
pub(crate) struct Case {
    pub name: String,
    pub file: Vec<u8>,
    pub told: Value,
}

fn decoded(text: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text.as_str().expect("a text")).expect("base64")
}

/// The lines of the script's file.
pub(crate) fn lines() -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("../data/torch.jsonl.gz")[..])
        .read_to_string(&mut text)
        .expect("a text");
    text.lines().map(|line| serde_json::from_str(line).expect("the script wrote it")).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let with_file = |told: Value| {
        let file = told.get("file").map(decoded)?;
        Some(Case { name: told["name"].as_str().expect("a name").to_owned(), file, told })
    };
    lines().into_iter().filter_map(with_file).collect()
}

pub(crate) fn case(name: &str) -> Case {
    cases().into_iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no case {name}"))
}

/// The tensors that a case is to have.
pub(crate) fn tensors(told: &Value) -> BTreeMap<String, HostTensor> {
    let of = |(name, value): (&String, &Value)| {
        let dtype = serde_json::from_value(value[0].clone()).expect("a dtype");
        let shape: Vec<usize> = serde_json::from_value(value[1].clone()).expect("a shape");
        (name.clone(), HostTensor::from_bytes(dtype, shape, &decoded(&value[2])).expect("fits"))
    };
    told["tensors"].as_object().expect("tensors").iter().map(of).collect()
}

fn same(got: &TorchScalar, want: &Value) -> bool {
    match got {
        TorchScalar::Bool(b) => want.as_bool() == Some(*b),
        TorchScalar::Int(n) => want.as_i64() == Some(*n),
        TorchScalar::Float(x) => want.as_f64().map(f64::to_bits) == Some(x.to_bits()),
        TorchScalar::Text(text) => want.as_str() == Some(text),
    }
}

#[test]
fn files_hold_what_pytorch_says_to_the_bit() {
    let mut read = 0;
    for Case { name, file, told } in cases().into_iter().filter(|c| c.told.get("refused").is_none()) {
        let mut reader = TorchReader::new(Cursor::new(file)).expect(&name);
        let (want, errors) = (tensors(&told), told["errors"].as_object().expect("errors"));
        let names: BTreeSet<&str> = reader.names().collect();
        assert_eq!(names, want.keys().chain(errors.keys()).map(String::as_str).collect(), "{name}");
        for (key, value) in &want {
            let fact = reader.fact(key).expect(key);
            assert_eq!((fact.dtype, &fact.shape), (value.dtype(), value.shape()), "{name}: {key}");
            assert!(reader.tensor(key).expect(key) == *value, "{name}: {key}");
            read += 1;
        }
        for (key, part) in errors {
            let e = reader.tensor(key).expect_err(key);
            let told = e.kind() == ErrorKind::DType && e.message().contains(part.as_str().expect("a text"));
            assert!(told && e.message().contains(key), "{name}: {e}");
        }
        match reader.all() {
            Ok(all) => assert!(errors.is_empty() && all == want, "{name}"),
            Err(e) => assert!(!errors.is_empty() && e.kind() == ErrorKind::DType, "{name}: {e}"),
        }
        let scalars = reader.scalars().expect("few");
        for (key, want) in told["scalars"].as_object().expect("scalars").iter().filter(|(_, v)| !v.is_null()) {
            let got = scalars.get(key).unwrap_or_else(|| panic!("{name} has no {key}: {scalars:?}"));
            assert!(same(got, want), "{name}: {key} is {got:?}, not {want}");
        }
    }
    assert!(read > 350, "{read} tensors were compared");
}

#[test]
fn other_files_are_refused_with_the_way_over() {
    let mut refused = 0;
    for Case { name, file, told } in cases() {
        let Some(part) = told.get("refused").and_then(Value::as_str) else { continue };
        let e = TorchReader::new(Cursor::new(file)).err().expect(&name);
        assert!(e.kind() == ErrorKind::Format && e.message().contains(part), "{name}: {e}");
        refused += 1;
    }
    assert_eq!(refused, 3);
    for bytes in [&b""[..], b"PK", b"GIF89a", b"\x80\x02", &[0; 300]] {
        assert_eq!(TorchReader::new(Cursor::new(bytes)).err().map(|e| e.kind()), Some(ErrorKind::Format));
    }
}

#[test]
fn what_a_pickle_would_call_is_not_called() {
    for name in ["malicious", "malicious of protocol 4", "old malicious"] {
        let mut reader = TorchReader::new(Cursor::new(case(name).file)).expect(name);
        assert_eq!(reader.all().expect("one tensor").keys().collect::<Vec<_>>(), ["weight"]);
        // the arguments are there, as data
        let scalars = reader.scalars().expect("few");
        assert_eq!(scalars["system.args.0"], TorchScalar::Text("touch remat-was-here".to_owned()));
    }
    assert!(!std::path::Path::new("remat-was-here").exists());
}

#[test]
fn tied_weights_share_their_bytes() {
    for name in ["tied weights", "old tied weights"] {
        let mut all = TorchReader::new(Cursor::new(case(name).file)).expect(name).all().expect("two tensors");
        let mut one = all.remove("head.weight").expect("is there");
        assert!(!one.owns_bytes(), "{name}: two tensors, one storage");
        drop(all);
        assert!(one.owns_bytes());
    }
}

#[test]
fn errors_name_the_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("some.pt");
    let file = case("unsupported").file;
    std::fs::write(&path, &file).expect("a disk");
    let text = read_torch(&path).expect_err("no dtype").to_string();
    assert!(text.contains("some.pt") && text.contains("tensor `c128`"), "{text}");
    std::fs::write(&path, &file[..file.len() / 2]).expect("a disk");
    assert!(read_torch(&path).expect_err("cut off").to_string().contains("some.pt"));
    assert_eq!(read_torch(dir.path()).expect_err("a folder").kind(), ErrorKind::Format);
}

/// Looks at all of a file, and says whether it was read.
fn looked_at(file: &[u8]) -> bool {
    let Ok(mut reader) = TorchReader::new(Cursor::new(file)) else { return false };
    let names: Vec<String> = reader.names().map(str::to_owned).collect();
    let facts = names.iter().filter(|n| reader.fact(n).is_ok()).count();
    let scalars = reader.scalars().is_ok();
    let tensors = names.iter().filter(|n| reader.tensor(n).is_ok()).count();
    reader.all().is_ok() && scalars && facts == names.len() && tensors == names.len()
}

#[test]
fn a_file_that_is_cut_off_is_an_error() {
    for name in ["state dict", "old state dict", "deflated", "protocol 4", "tied weights"] {
        let file = case(name).file;
        for len in 0..file.len() {
            assert!(!looked_at(&file[..len]), "{name}, cut to {len} of {} bytes", file.len());
        }
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
fn a_damaged_file_is_an_error_or_read() {
    const SEED: u64 = 7;
    const FLIPS: usize = 600;
    let mut state = SEED;
    for Case { name, file, .. } in cases() {
        let mut read = 0;
        for _ in 0..FLIPS {
            let mut damaged = file.clone();
            // one to three bytes
            for _ in 0..=next(&mut state) % 3 {
                let at = next(&mut state) as usize % damaged.len();
                damaged[at] ^= 1 << (next(&mut state) % 8);
            }
            read += usize::from(looked_at(&damaged));
        }
        println!("{name}: {read} of {FLIPS} damaged files were read");
    }
}
