//! Files with false claims: each is an error of a stated kind, and no panic.

use std::path::Path;

use remat_types::ErrorKind;

use super::*;

/// A model with something of all that a file can have.
fn rich() -> ModelProto {
    let body = graph(&[], vec![node("Neg", &["x"], &["a"])], &["a"]);
    let choose = node("If", &["c"], &["y"]).graph("then_branch", body.clone()).graph("else_branch", body);
    let mut g = graph(&["c", "x"], vec![choose, node("Add", &["y", "w"], &["z"])], &["z"]);
    g.initializer.push(floats("w", &[2], &[1.0, 2.0]));
    g.initializer.push(TensorProto {
        name: Some("r".into()),
        data_type: Some(6),
        dims: vec![2],
        raw_data: Some(vec![1, 0, 0, 0, 2, 0, 0, 0].into()),
        ..Default::default()
    });
    model(g)
}

fn refused(m: &ModelProto) -> remat_types::Error {
    load(m).expect_err("it is not so")
}

#[test]
fn a_file_that_ends_anywhere_does_not_panic() {
    let bytes = rich().encode_to_vec();
    assert!(Model::from_bytes(bytes.clone()).is_ok());
    for n in 0..bytes.len() {
        if let Err(e) = Model::from_bytes(bytes[..n].to_vec()) {
            assert!(matches!(e.kind(), ErrorKind::Format | ErrorKind::Value | ErrorKind::Shape), "{n}: {e}");
        }
    }
}

#[test]
fn a_file_with_any_other_byte_does_not_panic() {
    let bytes = rich().encode_to_vec();
    let device = device();
    for i in 0..bytes.len() {
        for flip in [1u8, 0x08, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[i] ^= flip;
            if let Ok(m) = Model::from_bytes(bytes) {
                let _ = m.on(&device);
            }
        }
    }
}

#[test]
fn sizes_are_compared_with_the_bytes_before_anything_is_allocated() {
    let with = |t: TensorProto| {
        let mut g = graph(&[], vec![], &[]);
        g.initializer.push(t);
        refused(&model(g)).kind()
    };
    assert_eq!(with(floats("w", &[3], &[1.0])), ErrorKind::Format);
    assert_eq!(with(floats("w", &[1 << 40], &[])), ErrorKind::Format);
    assert_eq!(with(floats("w", &[1 << 40, 1 << 40], &[])), ErrorKind::Shape);
    assert_eq!(with(floats("w", &[-1], &[1.0])), ErrorKind::Format);
    assert_eq!(with(TensorProto { data_type: Some(99), ..floats("w", &[], &[1.0]) }), ErrorKind::Format);
    assert_eq!(with(TensorProto { data_type: Some(17), ..floats("w", &[], &[1.0]) }), ErrorKind::DType);
    let raw = TensorProto { raw_data: Some(vec![0; 7].into()), ..floats("w", &[2], &[]) };
    assert_eq!(with(raw), ErrorKind::Shape);
    // a dense form that nothing in the file pays for
    let mut g = graph(&[], vec![], &[]);
    g.sparse_initializer.push(SparseTensorProto {
        values: Some(floats("w", &[1], &[1.0])),
        indices: Some(ints("", &[1], &[0])),
        dims: vec![1 << 40],
    });
    assert_eq!(refused(&model(g)).kind(), ErrorKind::Format);
}

#[test]
fn names_are_computed_once_and_before_they_are_read() {
    let cycle = vec![node("Neg", &["b"], &["a"]), node("Neg", &["a"], &["b"])];
    let e = refused(&model(graph(&[], cycle, &["a"])));
    assert!(e.kind() == ErrorKind::Format && e.message().contains("before it is computed"), "{e}");
    let twice = vec![node("Neg", &["x"], &["a"]), node("Abs", &["x"], &["a"])];
    assert!(refused(&model(graph(&["x"], twice, &["a"]))).message().contains("computed twice"));
    assert!(refused(&model(graph(&["x"], vec![], &["y"]))).message().contains("not computed"));
}

#[test]
fn graphs_are_nested_only_so_deep() {
    let mut g = graph(&[], vec![node("Neg", &["x"], &["y"])], &["y"]);
    for _ in 0..200 {
        let choose =
            node("If", &["c"], &["y"]).graph("then_branch", g.clone()).graph("else_branch", graph(&[], vec![], &[]));
        g = graph(&[], vec![choose], &["y"]);
    }
    g.input = vec![value("c"), value("x")];
    assert_eq!(refused(&model(g)).kind(), ErrorKind::Format);
}

fn function(name: &str, calls: &[&str]) -> FunctionProto {
    let call =
        |(i, op): (usize, &&str)| NodeProto { domain: Some("own".into()), ..node(op, &["a"], &[&format!("b{i}")]) };
    FunctionProto {
        name: Some(name.into()),
        domain: Some("own".into()),
        input: vec!["a".into()],
        output: vec!["b0".into()],
        node: calls.iter().enumerate().map(call).collect(),
        opset_import: model(graph(&[], vec![], &[])).opset_import,
        ..Default::default()
    }
}

#[test]
fn functions_that_call_themselves_or_multiply_are_refused() {
    let call = NodeProto { domain: Some("own".into()), ..node("F0", &["x"], &["y"]) };
    let mut m = model(graph(&["x"], vec![call], &["y"]));
    m.functions = vec![function("F0", &["F0"])];
    assert_eq!(refused(&m).kind(), ErrorKind::Format);
    // each doubles the next: a few hundred bytes would be a billion nodes
    m.functions =
        (0..30).map(|i| function(&format!("F{i}"), &[&format!("F{}", i + 1), &format!("F{}", i + 1)])).collect();
    m.functions.push(FunctionProto { node: vec![node("Neg", &["a"], &["b0"])], ..function("F30", &[]) });
    let e = refused(&m);
    assert!(e.kind() == ErrorKind::Format && e.message().contains("nodes"), "{e}");
}

fn external(location: &str, more: &[(&str, &str)]) -> ModelProto {
    let entry = |k: &str, v: &str| StringStringEntryProto { key: Some(k.into()), value: Some(v.into()) };
    let mut t = floats("w", &[2], &[]);
    t.data_location = Some(1);
    t.external_data = vec![entry("location", location)];
    t.external_data.extend(more.iter().map(|(k, v)| entry(k, v)));
    let mut g = graph(&["x"], vec![node("Add", &["x", "w"], &["y"])], &["y"]);
    g.initializer.push(t);
    model(g)
}

fn open(folder: &Path, m: &ModelProto) -> Result<Model> {
    let path = folder.join("model.onnx");
    std::fs::write(&path, m.encode_to_vec()).expect("written");
    Model::open(&path)
}

#[test]
fn external_data_lies_in_the_folder_of_the_model_alone() {
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("model");
    std::fs::create_dir(&folder).expect("made");
    let bytes: Vec<u8> = [0f32, 1.0, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(folder.join("w.bin"), &bytes).expect("written");
    std::fs::write(outer.path().join("secret.bin"), &bytes).expect("written");
    assert!(open(&folder, &external("w.bin", &[("offset", "4")])).is_ok());
    assert!(open(&folder, &external("./w.bin", &[("offset", "4"), ("length", "8")])).is_ok());
    let absolute = outer.path().join("secret.bin").display().to_string();
    for location in ["../secret.bin", "a/../../secret.bin", &absolute, ""] {
        let e = open(&folder, &external(location, &[])).expect_err("outside");
        assert!(e.kind() == ErrorKind::Format && e.message().contains("outside"), "{location}: {e}");
    }
    for more in [("offset", "8"), ("offset", "18446744073709551615"), ("length", "4"), ("offset", "-1")] {
        assert_eq!(
            open(&folder, &external("w.bin", &[more])).expect_err("not there").kind(),
            ErrorKind::Format,
            "{more:?}"
        );
    }
    assert_eq!(open(&folder, &external("none.bin", &[])).expect_err("not there").kind(), ErrorKind::Io);
    assert_eq!(load(&external("w.bin", &[])).expect_err("no folder").kind(), ErrorKind::Format);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret.bin", folder.join("link.bin")).expect("a link");
        assert_eq!(open(&folder, &external("link.bin", &[])).expect_err("outside").kind(), ErrorKind::Format);
    }
}

#[test]
fn what_is_not_supported_is_named_all_at_once() {
    let inner = graph(&[], vec![node("Sofmax", &["x"], &["a"])], &["a"]);
    let choose = node("If", &["c"], &["y"]).graph("then_branch", inner.clone()).graph("else_branch", inner);
    let m =
        load(&model(graph(&["c", "x"], vec![choose, node("Qwertyuiop", &["y"], &["z"])], &["z"]))).expect("it loads");
    let all = m.unsupported();
    assert_eq!(all.iter().map(|u| u.op.as_str()).collect::<Vec<_>>(), ["Sofmax", "Sofmax", "Qwertyuiop"]);
    assert_eq!((all[0].nearest, all[0].version), (Some("Softmax"), OPSET));
    let e = m.on(&device()).expect_err("no rule");
    assert!(e.message().contains("Softmax") && e.message().contains("Qwertyuiop"), "{e}");
}

#[test]
fn versions_that_are_not_known_are_refused() {
    let mut m = rich();
    m.opset_import[0].version = Some(1000);
    assert_eq!(refused(&m).kind(), ErrorKind::Value);
    let mut m = rich();
    m.ir_version = Some(1000);
    assert_eq!(refused(&m).kind(), ErrorKind::Value);
}

#[test]
fn inputs_are_what_the_model_declares() {
    let mut m = model(graph(&["x"], vec![node("Neg", &["x"], &["y"])], &["y"]));
    let dim = |n| tensor_shape_proto::Dimension {
        value: Some(tensor_shape_proto::dimension::Value::DimValue(n)),
        ..Default::default()
    };
    let tensor = type_proto::Tensor { elem_type: Some(1), shape: Some(TensorShapeProto { dim: vec![dim(2)] }) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    m.graph.as_mut().expect("a graph").input[0].r#type = Some(ty);
    let device = device();
    let network = load(&m).and_then(|m| m.on(&device)).expect("a model");
    let run = |h: HostTensor| {
        network.call(&[Tensor::from_host(&device, &h).expect("a tensor")]).map(|_| ()).map_err(|e| e.kind())
    };
    assert_eq!(run(vector(&[1.0, 2.0])), Ok(()));
    assert_eq!(run(vector(&[1.0])), Err(ErrorKind::Shape));
    assert_eq!(run(HostTensor::from_slice(&[1i64, 2], [2]).expect("a vector")), Err(ErrorKind::DType));
    assert_eq!(network.run(&[]).expect_err("no input").kind(), ErrorKind::Arity);
}
