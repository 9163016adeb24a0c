//! Small models of tensors, traced, exported and imported.

use remat_graph::ir::symbolic::Dim;
use remat_tensor::{CompileOptions, Tensor, compile_with};
use remat_types::DType;

use super::*;

/// The graph of a function, with captured values as constants.
fn traced(device: &Device, x: &[&Tensor], f: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>>) -> Graph {
    let options = CompileOptions { freeze: true, ..Default::default() };
    let mut f = compile_with(device, options, f);
    (*f.graph(x).expect("it compiles")).clone()
}

fn wave(device: &Device, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let v: Vec<f32> = (0..n).map(|i| (i as f32 * 1.3).sin()).collect();
    Tensor::from_slice(device, &v, shape).expect("a tensor")
}

/// The extents of a tensor of f32; those that are open have none.
fn fixed(port: &crate::Port) -> Vec<Option<usize>> {
    match &port.ty {
        crate::ValueType::Tensor(Some(DType::F32), Some(extents)) => extents.iter().map(crate::Extent::fixed).collect(),
        other => panic!("a tensor of f32, not {other}"),
    }
}

#[test]
fn a_linear_layer_keeps_its_names_and_its_bits() {
    let device = device();
    let (w, b, x) = (wave(&device, &[4, 8]), wave(&device, &[4]), wave(&device, &[3, 8]));
    let layer = |x: &[Tensor]| Ok(vec![x[0].matmul(&w.t()?)?.add(&b)?.relu()?]);
    let g = traced(&device, &[&x], layer);
    let options = ExportOptions {
        inputs: vec!["features".into()],
        outputs: vec!["scores".into()],
        parameters: vec![("layer.bias".into(), b.to_host().expect("a value"))],
        extents: vec![vec![Some("batch".into()), None]],
        ..Default::default()
    };
    let exported = export(&g, &options).expect("it is exported");
    let model = Model::from_bytes(exported.to_bytes().expect("bytes")).expect("a model");
    assert_eq!(model.inputs()[0].name, "features");
    assert_eq!(model.outputs()[0].name, "scores");
    assert_eq!(fixed(&model.inputs()[0]), [None, Some(8)]);
    assert!(exported.constants.iter().any(|(name, _)| &**name == "layer.bias"));
    let want = layer(std::slice::from_ref(&x)).expect("it runs")[0].to_host().expect("a value");
    let got = imported(&device, &g, &options, &[x.to_host().expect("a value")]).expect("it runs");
    assert_eq!(got[0].bytes(), want.bytes());
}

#[test]
fn constants_beside_the_file_are_read_again() {
    let device = device();
    let (w, x) = (wave(&device, &[64, 32]), wave(&device, &[2, 64]));
    let g = traced(&device, &[&x], |x: &[Tensor]| Ok(vec![x[0].matmul(&w)?]));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("m.onnx");
    let exported = export(&g, &ExportOptions::default()).expect("it is exported");
    exported.save(&path, DataPlace::Beside).expect("it is saved");
    assert!(std::fs::metadata(folder.path().join("m.onnx.data")).expect("a file").len() >= 64 * 32 * 4);
    let network = Model::open(&path).expect("a model").on(&device).expect("a network");
    let got = network.call(std::slice::from_ref(&x)).expect("it runs")[0].to_host().expect("a value");
    let want = x.matmul(&w).expect("a product").to_host().expect("a value");
    assert_eq!(got.bytes(), want.bytes());
}

#[test]
fn what_cannot_be_written_is_listed_whole() {
    let device = device();
    let x = Tensor::of(&device, [[2f32, 0.5], [0.5, 1.0]]).expect("a tensor");
    let g = traced(&device, &[&x], |x: &[Tensor]| Ok(vec![x[0].lgamma()?.add(&x[0].cholesky()?)?]));
    let all = unsupported(&g, &ExportOptions::default()).expect("a list");
    let mut ops: Vec<&str> = all.iter().map(|u| &*u.op).collect();
    ops.sort_unstable();
    assert_eq!(ops, ["cholesky", "lgamma"], "a step of a fused op by its own name");
    let e = export(&g, &ExportOptions::default()).expect_err("two ops");
    assert!(e.message().contains("lgamma") && e.message().contains("factorisations"), "{e}");
}

#[test]
fn a_version_that_is_none_and_a_name_that_is_taken_are_errors() {
    let device = device();
    let x = wave(&device, &[2]);
    let g = traced(&device, &[&x], |x: &[Tensor]| Ok(vec![x[0].relu()?, x[0].clone(), x[0].neg()?]));
    let old = ExportOptions { opset: 7, ..Default::default() };
    assert_eq!(export(&g, &old).expect_err("too old").kind(), ErrorKind::Value);
    let twice = ExportOptions { outputs: vec!["y".into(), "y".into()], ..Default::default() };
    assert_eq!(export(&g, &twice).expect_err("two of one name").kind(), ErrorKind::Format);
    let got = imported(&device, &g, &ExportOptions::default(), &[x.to_host().expect("a value")]).expect("it runs");
    assert_eq!(got[1].bytes(), x.to_host().expect("a value").bytes());
}

/// The names of all nodes, those of inner graphs too.
fn node_names(g: &crate::proto::GraphProto, to: &mut Vec<String>) {
    for n in &g.node {
        to.push(n.name().to_owned());
        n.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|g| node_names(g, to));
    }
}

#[test]
fn every_node_has_a_name_of_its_own() {
    let device = device();
    let x = wave(&device, &[2, 3]);
    let twice = |x: &[Tensor]| {
        let y = x[0].gelu()?;
        Ok(vec![x[0].clone(), y.gelu()?, y.clone(), x[0].clone(), y])
    };
    for opset in [OLDEST_OPSET, DEFAULT_OPSET, NEWEST_OPSET] {
        let g = traced(&device, &[&x], twice);
        let model = export(&g, &ExportOptions { opset, ..Default::default() }).expect("it is exported");
        let mut names = Vec::new();
        node_names(&model.graph, &mut names);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == count && names.iter().all(|n| !n.is_empty()), "{names:?} of {count} nodes");
        let host = x.to_host().expect("a value");
        let got = imported(&device, &g, &ExportOptions { opset, ..Default::default() }, &[host]).expect("it runs");
        let want = twice(std::slice::from_ref(&x)).expect("it runs");
        for (got, want) in got.iter().zip(&want) {
            let far = got.to_f64_vec().into_iter().zip(want.to_host().expect("a value").to_f64_vec());
            assert!(far.into_iter().all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}

#[test]
fn norms_of_groups_and_instances_are_written() {
    let device = device();
    let (w, b, x) = (wave(&device, &[6]), wave(&device, &[6]), wave(&device, &[2, 6, 4, 5]));
    let net = |x: &[Tensor]| {
        let y = x[0].group_norm(3, Some(&w), Some(&b), 1e-5)?;
        Ok(vec![y.instance_norm(None, None, 1e-3)?])
    };
    let g = traced(&device, &[&x], net);
    let want = net(std::slice::from_ref(&x)).expect("it runs")[0].to_host().expect("a value");
    let got = imported(&device, &g, &ExportOptions::default(), &[x.to_host().expect("a value")]).expect("it runs");
    let far = got[0].to_f64_vec().into_iter().zip(want.to_f64_vec()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(far < 1e-5, "{far}");
    // of a batch in training it stays an error
    let train = traced(&device, &[&x], |x: &[Tensor]| Ok(vec![x[0].batch_norm(&w, &b, 1e-5)?.0]));
    let e = export(&train, &ExportOptions::default()).expect_err("statistics of a batch");
    assert!(e.message().contains("call `eval`"), "{e}");
}

#[test]
fn norms_of_groups_follow_an_open_batch() {
    let device = device();
    let (w, b) = (wave(&device, &[6]), wave(&device, &[6]));
    let net = |x: &[Tensor]| Ok(vec![x[0].group_norm(3, Some(&w), Some(&b), 1e-5)?]);
    let graph = |sizes: &[usize]| Ok(traced(&device, &[&wave(&device, &[sizes[0], 6, 4, 5])], net));
    let model = export_symbolic(&[Dim::new("batch", 1, 16)], graph, &ExportOptions::default()).expect("it is exported");
    let mut names = Vec::new();
    node_names(&model.graph, &mut names);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
    let network = Model::from_bytes(model.to_bytes().expect("bytes")).and_then(|m| m.on(&device)).expect("a model");
    for n in [1, 3, 16] {
        let x = wave(&device, &[n, 6, 4, 5]);
        let want = net(std::slice::from_ref(&x)).expect("it runs")[0].to_host().expect("a value");
        let got = network.call(&[x]).expect("it runs")[0].to_host().expect("a value");
        let far = got.to_f64_vec().into_iter().zip(want.to_f64_vec()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(got.shape() == want.shape() && far < 1e-5, "{far}");
    }
}

#[test]
fn extents_that_have_names_may_be_any() {
    let device = device();
    let (w, b) = (wave(&device, &[6, 5]), wave(&device, &[5]));
    let net = |x: &[Tensor]| {
        let [n, t, _] = x[0].dims_n()?;
        let y = x[0].reshape(&[(n * t) as isize, 6])?.matmul(&w)?.add(&b)?.reshape(&[n as isize, t as isize, 5])?;
        let last = y.narrow(1, t as isize - 1, 1)?.broadcast_to([n, t, 5])?;
        let mean = y.sub(&last)?.softmax(1)?.sum_over(&[0, 1], false)?.mul(1.0 / (n * t) as f64)?;
        let row = y.reshape(&[n as isize, (5 * t) as isize])?;
        Ok(vec![mean, row])
    };
    let passes = remat_graph::passes::PassOptions { level: 1, ..Default::default() };
    let options = CompileOptions { freeze: true, passes, ..Default::default() };
    let mut f = compile_with(&device, options, net);
    let dims = [Dim::new("batch", 1, 32), Dim::new("length", 1, 32)];
    let at = |n: &[usize]| Ok((*f.graph(&[&wave(&device, &[n[0], n[1], 6])])?).clone());
    let exported = export_symbolic(&dims, at, &ExportOptions::default()).expect("it follows from the sizes");
    let model = Model::from_bytes(exported.to_bytes().expect("bytes")).expect("a model");
    assert_eq!(fixed(&model.inputs()[0]), [None, None, Some(6)]);
    assert_eq!(fixed(&model.outputs()[1]), [None, None]);
    let network = model.on(&device).expect("a network");
    for (n, t) in [(1, 1), (2, 7), (5, 3), (1, 32)] {
        let x = wave(&device, &[n, t, 6]);
        let want = net(std::slice::from_ref(&x)).expect("it runs");
        let got = network.call(&[x]).expect("it runs");
        for (g, w) in got.iter().zip(&want) {
            let (g, w) = (g.to_host().expect("a value"), w.to_host().expect("a value"));
            assert_eq!(remat_ops::testing::difference(&g, &w, remat_ops::Tolerance::Ulp(1)), None, "{n} by {t}");
        }
    }
}

#[test]
fn what_does_not_follow_from_a_size_is_an_error() {
    let device = device();
    let passes = remat_graph::passes::PassOptions { level: 1, ..Default::default() };
    let options = CompileOptions { freeze: true, passes, ..Default::default() };
    let mut f = compile_with(&device, options, |x: &[Tensor]| {
        let half = x[0].dims()[0] / 2;
        Ok(vec![x[0].narrow(0, 0, half)?])
    });
    let e = export_symbolic(
        &[Dim::new("n", 1, 16)],
        |n| Ok((*f.graph(&[&wave(&device, &[n[0]])])?).clone()),
        &ExportOptions::default(),
    );
    let e = e.expect_err("halves are no polynomials");
    assert!(e.kind() == ErrorKind::Value && e.message().contains("does not follow"), "{e}");
}
