//! Models of files, whose large tensors are read by themselves, beside models of bytes.

use super::*;
use crate::proto::tensor_proto::DataType;

fn raw(name: &str, data_type: DataType, elems: i64, bytes: usize) -> TensorProto {
    let seed = name.bytes().map(usize::from).sum::<usize>();
    let byte = |i: usize| if data_type == DataType::Bool { (i * i + seed) % 3 / 2 } else { i * 31 + seed };
    TensorProto {
        name: Some(name.into()),
        data_type: Some(data_type as i32),
        dims: vec![elems],
        raw_data: Some((0..bytes).map(|i| byte(i) as u8).collect::<Vec<u8>>().into()),
        ..Default::default()
    }
}

fn in_a_file(m: &ModelProto) -> Result<Model> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, m.encode_to_vec()).expect("written");
    Model::open(path)
}

fn results(model: Model, inputs: &[HostTensor]) -> Vec<(remat_types::DType, Vec<usize>, Vec<u8>)> {
    let device = device();
    let network = model.on(&device).expect("it is supported");
    let x: Vec<Value> =
        inputs.iter().map(|h| Value::Tensor(Tensor::from_host(&device, h).expect("a tensor"))).collect();
    let hosts = network.run(&x).expect("it runs").into_iter().map(|v| v.tensor().expect("a tensor").to_host());
    hosts.map(|h| h.expect("a value")).map(|h| (h.dtype(), h.shape().dims().to_vec(), h.bytes().to_vec())).collect()
}

fn weights() -> Vec<TensorProto> {
    vec![
        raw("float", DataType::Float, 2048, 8192),
        floats("short", &[2], &[1.0, 2.0]),
        raw("byte", DataType::Uint8, 5001, 5001),
        raw("bool", DataType::Bool, 4096, 4096),
        raw("double", DataType::Double, 600, 4800),
        raw("half", DataType::Float16, 2049, 4098),
        raw("nibble", DataType::Int4, 9999, 5000),
        raw("long", DataType::Int64, 512, 4096),
        raw("little", DataType::Float, 1023, 4092),
    ]
}

#[test]
fn a_file_gives_what_its_bytes_give() {
    let names: Vec<String> = weights().iter().map(|t| t.name().to_owned()).collect();
    let outputs: Vec<&str> = names.iter().map(|n| &**n).collect();
    let mut g = graph(&[], vec![], &outputs);
    g.initializer = weights();
    let m = model(g);
    let (own, theirs) = (results(in_a_file(&m).expect("a model"), &[]), results(load(&m).expect("a model"), &[]));
    assert_eq!(own.len(), outputs.len());
    for ((a, b), name) in own.iter().zip(&theirs).zip(outputs) {
        assert!(a == b, "{name}: {:?} {:?} and {:?} {:?}", a.0, a.1, b.0, b.1);
    }
}

#[test]
fn weights_of_inner_graphs_are_their_own() {
    let inner = |name: &str, op: &str| {
        let mut g = graph(&[], vec![node(op, &[name], &["y"])], &["y"]);
        g.initializer = vec![raw(name, DataType::Float, 2048, 8192)];
        g
    };
    let choose = node("If", &["c"], &["y"]).graph("then_branch", inner("a", "Identity"));
    let mut g = graph(&["c"], vec![choose.graph("else_branch", inner("b", "Identity"))], &["y", "float"]);
    g.initializer = weights();
    let m = model(g);
    for c in [true, false] {
        let x = [HostTensor::scalar(c)];
        let (own, theirs) = (results(in_a_file(&m).expect("a model"), &x), results(load(&m).expect("a model"), &x));
        assert!(own == theirs && own[0] != own[1], "{c}");
    }
}

#[test]
fn what_is_wrong_with_a_large_tensor_is_told_the_same_way() {
    let mut two = raw("bool", DataType::Bool, 5000, 5000);
    two.raw_data = Some([&[0; 4999][..], &[2]].concat().into());
    let wrong = [
        raw("short", DataType::Float, 2048, 8191),
        raw("long", DataType::Float, 2048, 8196),
        raw("huge", DataType::Float, i64::MAX / 2, 8192),
        raw("nibbles", DataType::Int4, 9999, 5001),
        two,
        TensorProto { data_type: Some(99), ..raw("none", DataType::Float, 2048, 8192) },
    ];
    for t in wrong {
        let name = t.name().to_owned();
        let mut g = graph(&[], vec![], &[&name]);
        g.initializer = vec![t];
        let m = model(g);
        let (own, theirs) = (in_a_file(&m).expect_err("wrong"), load(&m).expect_err("wrong"));
        assert!(own.kind() == theirs.kind() && own.to_string().contains(theirs.message()), "{own}\n{theirs}");
    }
}
