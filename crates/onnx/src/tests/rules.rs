//! Behaviour of rules beyond the standard's cases.

use remat_types::{ErrorKind, HostTensor};

use super::*;

#[test]
fn integers_of_four_bits_are_read_as_bytes() {
    let t = TensorProto {
        data_type: Some(22),
        dims: vec![3],
        raw_data: Some(vec![0xf7, 0x08].into()),
        ..Default::default()
    };
    let nodes = vec![
        node("Constant", &[], &["c"]).constant(t.clone()),
        node("Cast", &["c"], &["f"]).int("to", 1),
        node("Add", &["f", "x"], &["y"]),
    ];
    let got = both(&model(graph(&["x"], nodes, &["y"])), &[vector(&[0.0; 3])]);
    assert_eq!(got[0].to_vec::<f32>().expect("floats"), [7.0, -1.0, -8.0]);
    let mut g = graph(&[], vec![], &[]);
    g.initializer.push(TensorProto { dims: vec![5], ..t });
    assert_eq!(load(&model(g)).expect_err("a byte is missing").kind(), ErrorKind::Format);
}

#[test]
fn numbers_that_only_a_run_knows_may_be_negative() {
    let m = model(graph(&["x", "starts", "ends"], vec![node("Slice", &["x", "starts", "ends"], &["y"])], &["y"]));
    let x = vector(&[1.0, 2.0, 3.0, 4.0]);
    let n = |v: i64| HostTensor::from_slice(&[v], [1]).expect("a vector");
    assert_eq!(both(&m, &[x.clone(), n(-3), n(-1)])[0].to_vec::<f32>().expect("floats"), [2.0, 3.0]);
    assert_eq!(both(&m, &[x, n(0), n(-3)])[0].to_vec::<f32>().expect("floats"), [1.0]);
}

#[test]
fn an_error_names_node_operator_and_version() {
    let m = model(graph(&["x"], vec![node("Softmax", &["x"], &["y"]).int("axis", 7)], &["y"]));
    let device = device();
    let network = load(&m).and_then(|m| m.on(&device)).expect("a model");
    let x = Tensor::new(&device, &[1.0], [1]).expect("a tensor");
    let e = network.call(&[x]).expect_err("there is no axis 7");
    assert_eq!(e.kind(), ErrorKind::Axis);
    assert!(e.message().contains("node `y` (Softmax of version 21)"), "{e}");
}

#[test]
fn an_input_that_is_fixed_decides_branches_and_is_not_asked_for() {
    let branch = |op: &str| graph(&[], vec![node(op, &["x"], &["a"])], &["a"]);
    // the other branch has another shape: without the value the model is no single graph
    let wide = graph(&[], vec![node("Concat", &["x", "x"], &["b"]).int("axis", 0)], &["b"]);
    let nodes = vec![
        node("Equal", &["rate", "known"], &["c"]),
        node("If", &["c"], &["y"]).graph("then_branch", branch("Neg")).graph("else_branch", wide),
    ];
    let mut g = graph(&["x", "rate"], nodes, &["y"]);
    g.initializer.push(ints("known", &[], &[16000]));
    let m = load(&model(g)).expect("a model");
    let fact = |dtype, dims: &[usize]| remat_types::Fact::new(dtype, dims);
    let (x, rate) = (fact(remat_types::DType::F32, &[2]), fact(remat_types::DType::I64, &[]));
    assert!(m.trace(&[x.clone(), rate]).expect("well formed").is_none());
    let device = device();
    for (rate, nodes, want) in [(16000i64, 1, vec![-1f32, 2.0]), (8000, 1, vec![1.0, -2.0, 1.0, -2.0])] {
        let fixed = m.clone().with_input("rate", &HostTensor::scalar(rate)).expect("an input");
        let traced = fixed.trace(std::slice::from_ref(&x)).expect("well formed").expect("one graph").graph;
        assert_eq!((traced.nodes().len(), traced.inputs().len()), (nodes, 1));
        let x = Tensor::new(&device, &[1.0, -2.0], [2]).expect("a tensor");
        let y = fixed.on(&device).and_then(|n| n.call(&[x])).expect("it runs");
        assert_eq!(y[0].to_vec::<f32>().expect("floats"), want);
    }
    let no = |name: &str| m.clone().with_input(name, &HostTensor::scalar(1i64)).expect_err("no such input");
    assert_eq!(no("speed").kind(), ErrorKind::Value);
    let typed = |dtype| {
        let mut g = graph(&["x"], vec![node("Neg", &["x"], &["y"])], &["y"]);
        g.input[0] = typed_value("x", dtype, &[2]);
        load(&model(g)).expect("a model")
    };
    let two = HostTensor::from_slice(&[1i64, 2], [2]).expect("two");
    assert!(typed(7).with_input("x", &two).is_ok());
    assert_eq!(typed(1).with_input("x", &two).expect_err("floats").kind(), ErrorKind::DType);
    assert_eq!(typed(7).with_input("x", &HostTensor::scalar(1i64)).expect_err("two").kind(), ErrorKind::Shape);
}

#[test]
fn nodes_that_only_other_outputs_need_are_gone() {
    let inner = graph(&[], vec![node("Add", &["a", "x"], &["i"])], &["i"]);
    let no = graph(&[], vec![node("Identity", &["x"], &["j"])], &["j"]);
    let nodes = vec![
        node("Neg", &["x"], &["a"]),
        node("Nobodys", &["x"], &["b"]),
        node("Greater", &["x", "a"], &["c"]),
        node("ReduceMax", &["x"], &["m"]).int("keepdims", 0),
        node("Greater", &["m", "zero"], &["d"]),
        node("If", &["d"], &["e"]).graph("then_branch", inner).graph("else_branch", no),
    ];
    let mut g = graph(&["x"], nodes, &["a", "b", "c", "e"]);
    g.initializer.push(floats("zero", &[], &[0.0]));
    let m = load(&model(g)).expect("a model");
    assert_eq!(m.unsupported().len(), 1);
    // what an inner graph reads stays
    let some = m.clone().with_outputs(&["e", "a"]).expect("outputs");
    assert!(some.unsupported().is_empty());
    let names: Vec<String> = some.outputs().into_iter().map(|p| p.name).collect();
    assert_eq!(names, ["e", "a"]);
    assert_eq!(some.operators().iter().filter(|(_, op, _)| op == "Greater").map(|o| o.2).sum::<usize>(), 1);
    let device = device();
    let x = Tensor::new(&device, &[1.0, -2.0], [2]).expect("a tensor");
    let y = some.on(&device).and_then(|n| n.call(std::slice::from_ref(&x))).expect("it runs");
    assert_eq!(y[0].to_vec::<f32>().expect("floats"), [0.0, 0.0]);
    assert_eq!(y[1].to_vec::<f32>().expect("floats"), [-1.0, 2.0]);
    // also where no output is that value
    let alone = m.clone().with_outputs(&["e"]).expect("an output");
    let y = alone.on(&device).and_then(|n| n.call(&[x])).expect("it runs");
    assert_eq!(y[0].to_vec::<f32>().expect("floats"), [0.0, 0.0]);
    assert_eq!(m.with_outputs(&["f"]).expect_err("no such output").kind(), ErrorKind::Value);
}

#[test]
fn a_map_of_a_sample_is_a_row() {
    let zip = NodeProto { domain: Some("ai.onnx.ml".into()), ..node("ZipMap", &["x"], &["y"]) };
    let zip = zip.with("classlabels_int64s", AttributeType::Ints, |a| a.ints = vec![4, 7]);
    let mut m = model(graph(&["x"], vec![zip], &["y"]));
    m.opset_import.push(OperatorSetIdProto { domain: Some("ai.onnx.ml".into()), version: Some(1) });
    let x = HostTensor::from_slice(&[0.25f32, 0.75], [1, 2]).expect("a row");
    assert_eq!(both(&m, std::slice::from_ref(&x))[0], x);
}

/// A tree of one node that asks whether feature 0 is at most 0, and goes on to `yes` or to a leaf of weight 5.
fn tree(yes: i64) -> ModelProto {
    let list = |v: &[i64]| v.to_vec();
    let ints = |n: NodeProto, name: &str, v: Vec<i64>| n.with(name, AttributeType::Ints, |a| a.ints = v);
    let n = NodeProto { domain: Some("ai.onnx.ml".into()), ..node("TreeEnsembleRegressor", &["x"], &["y"]) };
    let n = ints(n, "nodes_treeids", list(&[0, 0, 0]));
    let n = ints(n, "nodes_nodeids", list(&[0, 1, 2]));
    let n = ints(n, "nodes_featureids", list(&[0, 0, 0]));
    let n = ints(n, "nodes_truenodeids", list(&[yes, 0, 0]));
    let n = ints(n, "nodes_falsenodeids", list(&[2, 0, 0]));
    let n = ints(n, "target_treeids", list(&[0, 0]));
    let n = ints(n, "target_nodeids", list(&[1, 2]));
    let n = ints(n, "target_ids", list(&[0, 0]));
    let n = n.with("target_weights", AttributeType::Floats, |a| a.floats = vec![3.0, 5.0]);
    let n = n.with("nodes_values", AttributeType::Floats, |a| a.floats = vec![0.0; 3]);
    let n = n.with("nodes_modes", AttributeType::Strings, |a| {
        a.strings = ["BRANCH_LEQ", "LEAF", "LEAF"].iter().map(|s| s.as_bytes().to_vec().into()).collect();
    });
    let mut m = model(graph(&["x"], vec![n], &["y"]));
    m.opset_import.push(OperatorSetIdProto { domain: Some("ai.onnx.ml".into()), version: Some(3) });
    m
}

#[test]
fn a_tree_whose_ways_come_back_is_an_error() {
    let x = HostTensor::from_slice(&[-1f32, 1.0], [2, 1]).expect("two samples");
    assert_eq!(both(&tree(1), std::slice::from_ref(&x))[0].to_vec::<f32>().expect("floats"), [3.0, 5.0]);
    let device = device();
    let x = Tensor::from_host(&device, &x).expect("a tensor");
    for yes in [0, 2, 9] {
        let network = load(&tree(yes)).and_then(|m| m.on(&device)).expect("a model");
        let got = network.call(std::slice::from_ref(&x)).map_err(|e| e.kind());
        // both ways may lead to one leaf, but not back, and not to a node that is not there
        assert_eq!(got.is_ok(), yes == 2, "{yes}");
        assert!(yes == 2 || got.expect_err("no tree") == ErrorKind::Format);
    }
}

#[test]
fn trees_are_an_operator_unless_nodes_differ_in_kind_or_lead_back() {
    let x = HostTensor::from_slice(&[-1f32, f32::NAN, 1.0, 0.0], [4, 1]).expect("samples");
    let run = |m: &ModelProto, is_operator: bool| {
        let y = both(m, std::slice::from_ref(&x))[0].to_vec::<f32>().expect("floats");
        let facts = [remat_types::Fact::of(&x)];
        let g = load(m).and_then(|m| m.trace(&facts)).expect("a model").expect("one graph").graph;
        assert_eq!(g.nodes().iter().any(|n| ["tree_leaf", "tree_sum"].contains(&n.op.label())), is_operator);
        y
    };
    let change = |name: &str, kind, set: &dyn Fn(&mut AttributeProto)| {
        let mut m = tree(1);
        let n = &mut m.graph.as_mut().expect("a graph").node[0];
        n.attribute.retain(|a| a.name() != name);
        *n = n.clone().with(name, kind, set);
        m
    };
    assert_eq!(run(&tree(1), true), [3.0, 5.0, 5.0, 3.0]);
    let modes = |mode: &str| {
        let all: Vec<bytes::Bytes> = [mode, "LEAF", "LEAF"].iter().map(|s| s.as_bytes().to_vec().into()).collect();
        change("nodes_modes", AttributeType::Strings, &move |a| a.strings = all.clone())
    };
    assert_eq!(run(&modes("BRANCH_LT"), true), [3.0, 5.0, 5.0, 5.0]);
    assert_eq!(run(&modes("BRANCH_GTE"), true), [5.0, 5.0, 3.0, 3.0]);
    assert_eq!(run(&modes("BRANCH_GT"), true), [5.0, 5.0, 3.0, 5.0]);
    assert_eq!(run(&modes("BRANCH_EQ"), true), [5.0, 5.0, 5.0, 3.0]);
    assert_eq!(run(&modes("BRANCH_NEQ"), true), [3.0, 3.0, 3.0, 5.0]);
    // missing values go along
    let missing = change("nodes_missing_value_tracks_true", AttributeType::Ints, &|a| a.ints = vec![1, 0, 0]);
    assert_eq!(run(&missing, false), [3.0, 3.0, 5.0, 3.0]);
    // the leaf that is a way's end stands before the node
    let mut back = tree(1);
    let n = &mut back.graph.as_mut().expect("a graph").node[0];
    let more = [("nodes_treeids", 0), ("nodes_nodeids", 9), ("nodes_featureids", 0)];
    for (name, v) in more.into_iter().chain([("nodes_truenodeids", 0), ("nodes_falsenodeids", 0)]) {
        let a = n.attribute.iter_mut().find(|a| a.name() == name).expect("a list");
        a.ints.insert(0, v);
        if name == "nodes_treeids" {
            // a tree of its own, of a leaf alone without a weight
            a.ints[0] = 1;
        }
    }
    for a in &mut n.attribute {
        match a.name() {
            "nodes_values" => a.floats.insert(0, 0.0),
            "nodes_modes" => a.strings.insert(0, b"LEAF".to_vec().into()),
            _ => {}
        }
    }
    assert_eq!(run(&back, true), [3.0, 5.0, 5.0, 3.0]);
    let n = &mut back.graph.as_mut().expect("a graph").node[0];
    let swap = |name: &str, n: &mut NodeProto| {
        let a = n.attribute.iter_mut().find(|a| a.name() == name).expect("a list");
        if a.strings.is_empty() { a.ints.swap(1, 2) } else { a.strings.swap(1, 2) }
    };
    let lists = ["nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_modes"];
    lists.into_iter().for_each(|name| swap(name, n));
    // its first node is taken for the root, which is a leaf now
    assert_eq!(run(&back, false), [3.0; 4]);
}

#[test]
fn names_of_classes_are_places_in_a_list_until_they_are_read() {
    let names = TensorProto {
        data_type: Some(8),
        dims: vec![3],
        string_data: ["low", "middle", "high"].iter().map(|s| s.as_bytes().to_vec().into()).collect(),
        ..Default::default()
    };
    let pick =
        NodeProto { domain: Some("ai.onnx.ml".into()), ..node("ArrayFeatureExtractor", &["names", "x"], &["y"]) };
    let nodes = vec![node("Constant", &[], &["names"]).constant(names), pick, node("Shape", &["y"], &["s"])];
    let with = |outputs: &[&str], nodes: &[NodeProto]| {
        let mut m = model(graph(&["x"], nodes.to_vec(), outputs));
        m.opset_import.push(OperatorSetIdProto { domain: Some("ai.onnx.ml".into()), version: Some(1) });
        load(&m).expect("a model")
    };
    let fact = remat_types::Fact::new(remat_types::DType::I64, [2]);
    let device = device();
    let x = Value::Tensor(Tensor::from_slice(&device, &[2i64, 0], [2]).expect("places"));
    let last = with(&["y"], &nodes[..2]);
    let y = last.on(&device).and_then(|n| n.run(std::slice::from_ref(&x))).expect("it runs");
    let Value::Text(text) = &y[0] else { panic!("strings") };
    assert_eq!((text.shape.dims(), &text.data[..]), (&[1, 2][..], &["high".to_owned(), "low".to_owned()][..]));
    let trace = last.trace(std::slice::from_ref(&fact)).expect("well formed").expect("one graph");
    let names = trace.labels[0].as_ref().expect("a list");
    let places = HostTensor::from_slice(&[1i64, 7, -1], [3]).expect("places");
    assert_eq!(crate::Labels::at(names, &places).data[..], ["middle", "", ""]);
    // a reader gets strings, and a graph cannot hold these
    let read = with(&["s"], &nodes);
    assert!(read.trace(&[fact]).expect("well formed").is_none());
    let s = read.on(&device).and_then(|n| n.run(&[x])).expect("it runs");
    assert_eq!(s[0].tensor().and_then(|t| t.to_vec::<i64>()).expect("a shape"), [1, 2]);
}

#[test]
fn patches_of_sizes_that_no_image_has_are_errors() {
    let device = device();
    let numbers = |v: &[i64]| Tensor::from_slice(&device, v, [v.len()]).expect("a vector");
    let call = |image: &[i64], block: &[i64], strides: Vec<i64>, pads: Vec<i64>, x: [usize; 3]| {
        let n = node("Col2Im", &["x", "image", "block"], &["y"]);
        let n = n.with("strides", AttributeType::Ints, |a| a.ints = strides);
        let n = n.with("pads", AttributeType::Ints, |a| a.ints = pads);
        let network = load(&model(graph(&["x", "image", "block"], vec![n], &["y"]))).and_then(|m| m.on(&device))?;
        let x = Tensor::zeros(&device, x, remat_types::DType::F32)?;
        network.call(&[x, numbers(image), numbers(block)])
    };
    let plain = (vec![1, 1], vec![0; 4]);
    assert!(call(&[2, 2], &[1, 2], plain.0.clone(), plain.1.clone(), [1, 2, 2]).is_ok());
    let most = i64::MAX;
    let kind = |r: Result<Vec<Tensor>>| r.expect_err("no such image").kind();
    // more elements than can be addressed; a patch larger than what there is of it, even of nothing
    assert_eq!(kind(call(&[most, most], &[1, 1], plain.0.clone(), plain.1.clone(), [1, 1, 1])), ErrorKind::Shape);
    assert_eq!(kind(call(&[2, 2], &[most, most], plain.0.clone(), plain.1.clone(), [1, 1, 1])), ErrorKind::Shape);
    let wide = [(1i64 << 31) + 4, 1];
    assert_eq!(kind(call(&wide, &[1 << 31, 1], plain.0.clone(), plain.1.clone(), [1, 0, 5])), ErrorKind::Shape);
    assert_eq!(kind(call(&[2, 2], &[1, 2], plain.0.clone(), vec![most, 0, most, 0], [1, 2, 2])), ErrorKind::Value);
    assert_eq!(kind(call(&[2, 2], &[1, 2], vec![1], plain.1, [1, 2, 2])), ErrorKind::Shape);
}

#[test]
fn zeros_have_a_scale_by_which_they_can_be_read_again() {
    let quantise = node("DynamicQuantizeLinear", &["x"], &["q", "scale", "zero"]);
    let back = node("QuantizeLinear", &["x", "scale", "zero"], &["again"]);
    let m = model(graph(&["x"], vec![quantise, back], &["q", "scale", "zero", "again"]));
    // as ONNX Runtime has it: 1 of zeros alone
    let y = both(&m, &[vector(&[0.0, 0.0, 0.0])]);
    assert_eq!(y[0].to_vec::<u8>().expect("u8"), [0; 3]);
    assert_eq!((y[1].to_f64_vec(), y[2].to_vec::<u8>().expect("u8")), (vec![1.0], vec![0]));
    assert_eq!(y[3].to_vec::<u8>().expect("u8"), [0; 3]);
    let y = both(&m, &[vector(&[0.0, 5.0, 2.0])]);
    assert_eq!(y[0].to_vec::<u8>().expect("u8"), [0, 255, 102]);
}
