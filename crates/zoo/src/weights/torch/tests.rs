use std::io::Cursor;

use super::unpickle::unpickle;
use super::value::{Object, Pickle, Value};
use super::*;

fn pickle(bytes: &[u8]) -> Result<Pickle> {
    unpickle(&mut Cursor::new(bytes))
}

fn items(bytes: &[u8]) -> Vec<Value> {
    let p = pickle(bytes).expect("a pickle");
    p.parts(p.root).expect("a list or tuple").to_vec()
}

fn error(bytes: &[u8]) -> String {
    let e = pickle(bytes).expect_err("no pickle");
    assert_eq!(e.kind(), ErrorKind::Format);
    e.message().to_owned()
}

#[test]
fn numbers_of_all_opcodes_are_read() {
    let all = items(
        b"(I01\nI00\nI-7\nL12L\nJ\xff\xff\xff\xffK\xffM\x00\x01\
        \x8a\x00\x8a\x01\x80\x8a\x02\x80\x00\x8b\x01\x00\x00\x00\x7ft.",
    );
    let ints = [-7, 12, -1, 255, 256, 0, -128, 128, 127].map(Value::Int);
    assert_eq!(all[..2], [Value::Bool(true), Value::Bool(false)]);
    assert_eq!(all[2..], ints);
    assert_eq!(items(b"(F0.5\nG\x3f\xf0\x00\x00\x00\x00\x00\x00l."), [Value::Float(0.5), Value::Float(1.0)]);
    assert_eq!(items(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85."), [Value::Int(i64::MAX)]);
    assert!(matches!(items(b"\x8a\x09\0\0\0\0\0\0\0\0\x01\x85.")[..], [Value::Big(_)]));
    assert!(matches!(items(b"I99999999999999999999\n\x85.")[..], [Value::Big(_)]));
}

#[test]
fn texts_of_all_opcodes_are_read() {
    let p = pickle(
        b"(S'a\\n\\x41\\''\nV\\u00fc\\U0001F600\\q\xfc\n\
        X\x02\0\0\0hiU\x01b\x8c\x01c\x8d\x01\0\0\0\0\0\0\0dT\x01\0\0\0e\
        C\x01f\x96\x01\0\0\0\0\0\0\0gU\x01\xffl.",
    )
    .expect("a pickle");
    let parts = p.parts(p.root).expect("a list");
    let texts: Vec<&str> = parts[..7].iter().map(|v| p.text_of(*v).expect("a text")).collect();
    assert_eq!(texts, ["a\nA'", "\u{fc}\u{1f600}\\q\u{fc}", "hi", "b", "c", "d", "e"]);
    assert!(parts[7..].iter().all(|v| matches!(v, Value::Bytes(_))));
}

#[test]
fn the_stack_and_the_memo_work_as_pythons() {
    // a mark is dropped by a pop; the items below it are out of reach
    assert_eq!(items(b"(K\x01(K\x020(K\x0310t."), [Value::Int(1)]);
    assert_eq!(items(b"(K\x012t."), [Value::Int(1); 2]);
    assert_eq!(items(b"(K\x01q\x00K\x02r\x09\0\0\0K\x03\x940j\x09\0\0\0h\x00t."), [1, 2, 2, 1].map(Value::Int));
    assert!(error(b"K\x01(\x85.").contains("more than the stack has"));
    assert!(error(b"K\x01(0R.").contains("more than the stack has"));
    assert!(error(b"t.").contains("mark"));
    assert!(error(b"h\x05.").contains("5 of the memo"));
    assert!(error(b"(K\x01u.").contains("key"));
    assert!(error(b"K\x01K\x02a.").contains("no list"));
    assert!(error(b"\x80\x06.").contains("protocol 6"));
    assert!(error(b"\xfe").contains("0xfe is no opcode"));
    assert!(error(b"K").contains("byte 0"), "{}", error(b"K"));
    assert!(error(b"X\xff\xff\xff\xff").contains("ends within 4294967295 bytes"));
}

#[test]
fn every_way_to_call_is_kept_as_data() {
    for bytes in [
        &b"cos\nsystem\n(S'a'\ntR."[..],
        b"(S'a'\nios\nsystem\n.",
        b"(cos\nsystem\nS'a'\no.",
        b"cos\nsystem\nS'a'\n\x85\x81.",
        b"\x8c\x02os\x8c\x06system\x93S'a'\n\x85}\x92.",
    ] {
        let p = pickle(bytes).expect("a pickle");
        let Some(Object::Call(call)) = p.object(p.root) else { panic!("no call") };
        assert_eq!(p.global(call.func), Some(("os", "system")));
        assert_eq!(p.parts(call.args).and_then(|a| p.text_of(a[0])), Some("a"));
    }
}

/// Bytes of a pickle that has a tensor of one number at `name`, with these arguments behind the storage.
fn tensor(key: &str, args: &str) -> Vec<u8> {
    format!("ctorch._utils\n_rebuild_tensor_v2\n((S'storage'\nctorch\nFloatStorage\nS'{key}'\nS'cpu'\nI4\ntQ{args}tR")
        .into_bytes()
}

fn view_error(args: &str) -> String {
    let mut bytes = tensor("0", args);
    bytes.push(b'.');
    let p = pickle(&bytes).expect("a pickle");
    p.view(p.root).expect_err("no tensor").message().to_owned()
}

#[test]
fn tensors_stay_within_their_storages() {
    let mut good = tensor("0", "I1\n(I2\nt(I2\ntI00\n)");
    good.push(b'.');
    let p = pickle(&good).expect("a pickle");
    assert_eq!(p.view(p.root).expect("fits").layout.span(), Some((1, 4)));
    for (args, part) in [
        ("I1\n(I2\nt(I3\nt", "leave a storage of 4"),
        ("I4\n(I1\nt(I1\nt", "leave a storage of 4"),
        ("I0\n(I2\nt(I-1\nt", "leave a storage of 4"),
        ("I-1\n(I2\nt(I1\nt", "-1"),
        ("I0\n(I9223372036854775807\nI9223372036854775807\nt(I1\nI1\nt", "address"),
        ("I0\n(I3\nt(I9223372036854775807\nt", "leave a storage of 4"),
        ("I0\n(I1\nt(t", "strides"),
        ("I0\nI1\n(I1\nt", "no tuple"),
        ("I0\n(I1\nt", "fewer than four"),
    ] {
        let text = view_error(args);
        assert!(text.contains(part), "{args:?}: {text}");
    }
    let axes = format!("I0\n({}t({}t", "I1\n".repeat(65), "I1\n".repeat(65));
    assert!(view_error(&axes).contains("65 axes"));
}

#[test]
fn a_pickle_that_names_more_than_its_length_allows_is_refused() {
    // pairs of pairs of pairs, the two of each the same: 2^40 places
    let doubled = [&b"]"[..], &b"2\x86".repeat(40), b"."].concat();
    let p = pickle(&doubled).expect("a pickle");
    let text = p.tensors().expect_err("2^40 places").message().to_owned();
    assert!(text.contains("too many places"), "{text}");
    // long names around one another
    let key = [b'k'; 1024];
    let bytes =
        [b"X\0\x04\0\0", &key[..], b"\x940", &b"}h\0".repeat(20_000), b"N", &b"s".repeat(20_000), b"."].concat();
    let p = pickle(&bytes).expect("a pickle");
    let text = p.tensors().expect_err("20 000 keys, each around the next").message().to_owned();
    assert!(text.contains("too many long names"), "{text}");
}

#[test]
fn a_file_is_told_by_its_first_bytes() {
    assert_eq!(TorchKind::of(b"PK\x03\x04\0\0\x08\x08\0\0"), Some(TorchKind::Archive));
    // a safetensors file whose header is as long as an archive's first bytes say
    assert_eq!(TorchKind::of(b"PK\x03\x04\0\0\0\0{"), None);
    assert_eq!(TorchKind::of(b"\x80\x02}."), Some(TorchKind::Pickle));
    assert_eq!(TorchKind::of(b"\x80\x01\0\0\0\0\0\0{\""), None);
    assert_eq!(TorchKind::of(b""), None);
}
