use std::collections::BTreeMap;

use remat_nn::{InitCx, Linear, Sequential};
use remat_runtime::{Device, DeviceOptions};
use remat_types::{DType, ErrorKind, HostTensor, write_safetensors};

use super::*;

fn net() -> Sequential {
    let device = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("a device");
    let cx = &mut InitCx::new(&device, 1);
    Sequential::new().then(Linear::new(cx, 2, 3).expect("fits")).then(Linear::new(cx, 3, 2).expect("fits"))
}

fn host(values: &[f32], shape: impl Into<remat_types::Shape>) -> HostTensor {
    HostTensor::from_slice(values, shape).expect("fits")
}

/// Names of another framework: two halves of a weight, a matrix the other way round.
fn theirs() -> BTreeMap<String, HostTensor> {
    BTreeMap::from([
        ("m.first.kernel".to_owned(), host(&[1., 3., 5., 2., 4., 6.], [2, 3])),
        ("m.first.bias".to_owned(), HostTensor::from_f64_slice(&[1., 2., 3.], DType::F16, [3]).expect("fits")),
        ("m.second.top".to_owned(), host(&[1., 2., 3.], [1, 3])),
        ("m.second.bottom".to_owned(), host(&[4., 5., 6.], [1, 3])),
        ("m.second.bias".to_owned(), host(&[7., 8.], [2, 1])),
        ("m.steps".to_owned(), host(&[0.], [1])),
    ])
}

const NAMES: &str = "
    # a comment
    prefix m.
    first.kernel -> 0.weight | transpose
    {l=first:0,second:1}.bias -> {l}.bias | reshape
    second.{h=top:1} -> {h}.weight | part 0/2
    second.bottom -> 1.weight | part 1/2
    steps -> -";

#[test]
fn layouts_and_dtypes_become_those_of_the_module() {
    let net = net();
    let report = load_state(&net, theirs(), &NameMap::parse(NAMES).expect("rules"), true).expect("all fits");
    assert_eq!((report.matched.len(), report.missing.len(), report.unexpected.len()), (4, 0, 0));
    let state = net.state_dict().expect("values");
    let of = |name: &str| state[name].to_vec::<f32>().expect("f32");
    assert_eq!(of("0.weight"), [1., 2., 3., 4., 5., 6.]);
    assert_eq!(of("0.bias"), [1., 2., 3.]);
    assert_eq!(of("1.weight"), [1., 2., 3., 4., 5., 6.]);
    assert_eq!(of("1.bias"), [7., 8.]);
}

#[test]
fn one_error_lists_all_that_does_not_fit_and_changes_nothing() {
    let (net, mut state) = (net(), theirs());
    let before = net.state_dict().expect("values");
    let names = NameMap::parse(NAMES).expect("rules");
    let bias = state.remove("m.first.bias").expect("is there");
    state.insert("m.first.biass".to_owned(), bias);
    state.remove("m.second.bottom");
    let e = load_state(&net, state.clone(), &names, true).expect_err("three faults");
    assert_eq!(e.kind(), ErrorKind::Value);
    let text = e.to_string();
    for part in ["0.bias", "m.first.biass", "2 parts make it, the file has m.second.top"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let names = NameMap::parse(&format!("{NAMES}\nfirst.biass -> 0.biass")).expect("rules");
    let text = load_state(&net, state, &names, true).expect_err("still").to_string();
    assert!(text.contains("m.first.biass, as 0.biass (nearest: 0.bias)"), "{text}");
    assert!(text.contains("0.bias (nearest: 0.biass)"), "{text}");
    assert!(net.state_dict().expect("values") == before);
}

#[test]
fn a_file_is_taken_partly_if_asked() {
    let (net, mut state) = (net(), theirs());
    state.remove("m.first.kernel");
    state.insert("other".to_owned(), host(&[0.], [1]));
    let path = std::env::temp_dir().join(format!("remat-partly-{}.safetensors", std::process::id()));
    std::fs::write(&path, write_safetensors(&state, &BTreeMap::new()).expect("writes")).expect("a disk");
    let names = NameMap::parse(NAMES).expect("rules");
    let e = load_weights(&net, &path, &names).expect_err("one is missing");
    assert!(e.to_string().contains("0.weight") && e.to_string().contains("other"), "{e}");
    let report = load_weights_partly(&net, &path, &names).expect("some fits");
    std::fs::remove_file(&path).expect("is there");
    assert_eq!(report.missing, ["0.weight"]);
    assert_eq!(report.unexpected, ["other"]);
    state.insert("m.second.bias".to_owned(), host(&[7.], [1]));
    let e = load_state(&net, state, &names, false).expect_err("a shape");
    assert!(e.to_string().contains("1.bias: m.second.bias is [1], not [2]"), "{e}");
}

#[test]
fn blocks_are_numbered_through() {
    let names = NameMap::parse("layer{s}.{b}.{p} -> blocks.{#s.b}.{p}").expect("rules");
    let theirs = ["layer1.0.a", "layer1.10.a", "layer1.9.a", "layer2.0.b", "layer2.0.c"].map(str::to_owned);
    let found = names.find(theirs.iter()).expect("numbers");
    let ours: Vec<String> =
        found.into_iter().map(|f| if let Found::Called(n, _) = f { n } else { String::new() }).collect();
    assert_eq!(ours, ["blocks.0.a", "blocks.2.a", "blocks.1.a", "blocks.3.b", "blocks.3.c"]);
}

#[test]
fn a_part_of_a_file_is_taken_by_a_line_or_a_method() {
    let line = NameMap::parse("within net.\nlayer{i}.{p} -> {i-1}.{p}").expect("rules");
    let method = NameMap::parse("layer{i}.{p} -> {i-1}.{p}").expect("rules").within("net.");
    assert_eq!(line, method);
    let theirs = ["net.layer2.w", "layer2.w", "net.other"].map(str::to_owned);
    let found = method.find(theirs.iter()).expect("numbers");
    assert!(
        matches!(&found[..], [Found::Called(name, _), Found::Dropped, Found::Nothing] if name == "1.w"),
        "{found:?}"
    );
}

#[test]
fn rules_that_are_none_are_errors_with_their_line() {
    for text in [
        "a b",
        "a.{x -> b",
        "a -> {x}",
        "{x}.{x} -> a",
        "{} -> a",
        "a -> b | part 3/3",
        "{x} -> {x+y}",
        "a -> b | turn",
    ] {
        let e = NameMap::parse(&format!("\n{text}")).expect_err(text);
        assert!(e.kind() == ErrorKind::Value && e.to_string().contains("line 2"), "{text}: {e}");
    }
    let names = NameMap::parse("{x}.a -> {x-1}").expect("a rule");
    assert!(names.find(["0.a".to_owned()].iter()).is_err(), "below 0");
    assert!(names.find(["w.a".to_owned()].iter()).is_err(), "no number");
}
