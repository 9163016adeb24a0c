use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_ops::shape::Reshape;
use remat_types::{DType, Shape};

use super::*;
use crate::ir::Builder;

fn registry() -> Registry {
    Registry::builtin()
}

/// Rows of three times a weight, and times how many there are.
fn rows(n: usize) -> Result<Graph> {
    let b = Builder::new();
    let x = b.input(Fact::new(DType::F32, [n, 3]), Some("x"));
    let w = b.constant(&HostTensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2])?);
    let count = b.constant(&HostTensor::scalar(n as f32));
    let y = b.node(MatMul {}.into(), &[x, w], None)?[0];
    let y = b.node(Binary { f: BinaryFn::Mul }.into(), &[y, count], None)?[0];
    let y = b.node(Reshape { shape: Shape::from([2 * n]) }.into(), &[y], None)?[0];
    b.output(y, "y");
    let g = b.finish()?;
    let mut patch = crate::ir::Patch::new();
    patch.rename(w, Some("layer weight"));
    g.patched(&patch)
}

fn fixed() -> GraphFile {
    let metadata = [("name".to_owned(), "rows".to_owned())].into();
    GraphFile { form: GraphForm::Fixed(rows(4).expect("a graph")), metadata }
}

fn symbolic() -> GraphFile {
    let form = Symbolic::new(&[Dim::new("n", 1, 64)], &registry(), |n| rows(n[0])).expect("follows from n");
    GraphFile { form: GraphForm::Symbolic(form), metadata: BTreeMap::new() }
}

#[test]
fn names_metadata_and_weights_are_there_for_any_reader() {
    let bytes = fixed().to_bytes(None).expect("writes");
    let (tensors, text) = read_safetensors(&bytes).expect("a safetensors file");
    assert_eq!(tensors["layer weight"].to_vec::<f32>().expect("f32"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!((&*text["remat.version"], &*text["name"]), ("2", "rows"));
    let again = GraphFile::from_bytes(&bytes, None, &registry()).expect("reads");
    assert_eq!(again.metadata, fixed().metadata);
    assert_eq!(again.form.example().to_text().expect("prints"), rows(4).expect("a graph").to_text().expect("prints"));
}

#[test]
fn a_graph_over_symbols_is_that_of_every_size() {
    let bytes = symbolic().to_bytes(None).expect("writes");
    let again = GraphFile::from_bytes(&bytes, None, &registry()).expect("reads");
    let GraphForm::Symbolic(s) = again.form else { panic!("over symbols") };
    assert_eq!(s.dims(), [Dim::new("n", 1, 64)]);
    for n in [1, 2, 3, 17, 64] {
        let (own, made) = (s.instantiate(&[n]).expect("within bounds"), rows(n).expect("a graph"));
        assert_eq!(own.to_text().expect("prints"), made.to_text().expect("prints"), "{n}");
    }
    assert!(s.instantiate(&[65]).is_err());
    let e = Graph::from_bytes(&bytes, &registry()).expect_err("no graph of one size");
    assert!(e.kind() == ErrorKind::Value && e.message().contains("sizes of n"), "{e}");
}

#[test]
fn weights_are_once_in_memory_for_all_sizes() {
    let bytes = symbolic().to_bytes(None).expect("writes");
    let GraphForm::Symbolic(s) = GraphFile::from_bytes(&bytes, None, &registry()).expect("reads").form else {
        panic!("over symbols")
    };
    let weight = |g: &Graph| {
        g.value_ids().find_map(|v| match &g.value(v).origin {
            Origin::Constant(data) if data.elems() == 6 => Some(data.clone()),
            _ => None,
        })
    };
    let (a, b) = (s.instantiate(&[5]).expect("fits"), s.instantiate(&[9]).expect("fits"));
    assert!(Arc::ptr_eq(&weight(&a).expect("there"), &weight(&b).expect("there")));
}

/// Files of versions before there was a checksum.
fn unchecked(file: &GraphFile) -> Vec<u8> {
    let bytes = file.to_bytes(None).expect("writes");
    let (tensors, mut text) = read_safetensors(&bytes).expect("a safetensors file");
    text.remove(checksum::KEY);
    text.insert(VERSION.into(), UNCHECKED.into());
    write_safetensors(&tensors, &text).expect("writes")
}

#[test]
fn every_byte_that_is_flipped_is_found_out() {
    let key = Key::new([7; 32]);
    for (file, key) in [(fixed(), None), (symbolic(), None), (fixed(), Some(&key))] {
        let bytes = file.to_bytes(key).expect("writes");
        assert!(GraphFile::from_bytes(&bytes, key, &registry()).is_ok());
        for at in 0..bytes.len() {
            for flip in [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                let read = GraphFile::from_bytes(&damaged, key, &registry());
                assert!(read.is_err(), "byte {at} of {} with {flip:#x}", bytes.len());
            }
        }
    }
}

#[test]
fn a_damaged_weight_is_called_that_and_files_without_a_checksum_are_read() {
    let mut bytes = fixed().to_bytes(None).expect("writes");
    *bytes.last_mut().expect("weights") ^= 1;
    let e = GraphFile::from_bytes(&bytes, None, &registry()).map(drop).expect_err("a flipped bit");
    assert!(e.kind() == ErrorKind::Format && e.message().contains("damaged"), "{e}");
    for file in [fixed(), symbolic()] {
        let again = GraphFile::from_bytes(&unchecked(&file), None, &registry()).expect("reads");
        let text = |f: &GraphFile| f.form.example().to_text().expect("prints");
        assert_eq!(text(&again), text(&file));
    }
}

#[test]
fn encrypted_weights_need_their_key_and_their_file() {
    let key = Key::new([7; 32]);
    for file in [fixed(), symbolic()] {
        let bytes = file.to_bytes(Some(&key)).expect("writes");
        let again = GraphFile::from_bytes(&bytes, Some(&key), &registry()).expect("reads");
        let text = |f: &GraphFile| f.form.example().to_text().expect("prints");
        assert_eq!(text(&again), text(&file));
        // neither the numbers nor two equal files are seen
        let plain: Vec<u8> = [1f32, 2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert!(!bytes.windows(plain.len()).any(|w| w == plain));
        assert_ne!(bytes, file.to_bytes(Some(&key)).expect("writes"));
        let e = GraphFile::from_bytes(&bytes, None, &registry()).map(drop).expect_err("no key");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("give the key"), "{e}");
        let e = GraphFile::from_bytes(&bytes, Some(&Key::new([8; 32])), &registry()).map(drop).expect_err("another");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("another key"), "{e}");
    }
}

#[test]
fn a_changed_graph_or_a_weight_of_another_name_is_found_out() {
    let key = Key::new([7; 32]);
    let sealed = fixed().to_bytes(Some(&key)).expect("writes");
    let (tensors, text) = read_safetensors(&sealed).expect("a safetensors file");
    let open = |tensors: &BTreeMap<String, HostTensor>, text: &BTreeMap<String, String>| {
        let bytes = write_safetensors(tensors, text).expect("writes");
        GraphFile::from_bytes(&bytes, Some(&key), &registry()).map(drop)
    };
    assert!(open(&tensors, &text).is_ok());
    let mut other = text.clone();
    other.insert("name".into(), "other".into());
    assert!(open(&tensors, &other).expect_err("other text").message().contains("was changed"));
    let mut renamed = tensors.clone();
    let weight = renamed.remove("layer weight").expect("there");
    renamed.insert("other".into(), weight);
    let graph = text["remat.graph"].replace("\"layer weight\"", "other");
    let other = BTreeMap::from_iter(text.clone().into_iter().chain([("remat.graph".to_owned(), graph)]));
    assert!(open(&renamed, &other).is_err());
    let mut flipped = tensors.clone();
    flipped.values_mut().for_each(|t| *t.bytes_mut().last_mut().expect("a tag") ^= 1);
    assert!(open(&flipped, &text).expect_err("another tag").message().contains("was changed"));
}

#[test]
fn keys_are_bytes_or_digits() {
    let digits = "00ff".repeat(16);
    let key = Key::from_file_bytes(format!("{digits}\n").as_bytes()).expect("digits");
    let mut bytes = [0u8; 32];
    bytes.iter_mut().skip(1).step_by(2).for_each(|b| *b = 255);
    let file = fixed().to_bytes(Some(&Key::from_file_bytes(&bytes).expect("bytes"))).expect("writes");
    assert!(GraphFile::from_bytes(&file, Some(&key), &registry()).is_ok(), "the same key");
    for wrong in [&b""[..], b"short", &[1; 33], "0g".repeat(32).as_bytes()] {
        assert!(Key::from_file_bytes(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(format!("{key:?}"), "Key(..)");
}

#[test]
fn wrong_files_are_errors() {
    let bytes = symbolic().to_bytes(None).expect("writes");
    for n in 0..bytes.len() {
        assert!(GraphFile::from_bytes(&bytes[..n], None, &registry()).is_err(), "cut to {n}");
    }
    let (tensors, mut text) = read_safetensors(&bytes).expect("a safetensors file");
    // of another text the checksum says enough
    text.remove(checksum::KEY);
    text.insert(VERSION.into(), UNCHECKED.into());
    let table = [
        ("remat.version", "3", "version `3`"),
        ("remat.symbols", "[]", "other"),
        ("remat.symbols", "nonsense", "remat.symbols"),
        ("remat.symbols", r#"[{"name":"n","least":1,"most":4}]"#, "room"),
        ("remat.symbols", r#"[{"name":"n","least":18446744073709551615,"most":18446744073709551615}]"#, "room"),
        ("remat.graph.1", "remat.graph 1\n", "other nodes"),
        ("remat.graph", "remat.graph 1\nconst w: f32[] = tensor nowhere\n", "nowhere"),
    ];
    for (key, value, part) in table {
        let mut text = text.clone();
        text.insert(key.into(), value.into());
        let bytes = write_safetensors(&tensors, &text).expect("writes");
        match GraphFile::from_bytes(&bytes, None, &registry()) {
            // without symbols the first of the graphs is one of fixed sizes
            Ok(file) => assert!(value == "[]" && matches!(file.form, GraphForm::Symbolic(_)), "{key} {value}"),
            Err(e) => assert!(e.to_string().contains(part), "{key} {value}: {e}"),
        }
    }
    let own = GraphFile { metadata: [("remat.mine".to_owned(), String::new())].into(), ..fixed() };
    assert!(own.to_bytes(None).expect_err("reserved").message().contains("remat.mine"));
}
