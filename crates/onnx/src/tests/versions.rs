//! The attributes and inputs that a version of an operator has, and those that it lacks.

use remat_types::{DType, ErrorKind, HostTensor};

use super::*;

fn at(opset: i64, g: GraphProto) -> ModelProto {
    let mut m = model(g);
    m.opset_import[0].version = Some(opset);
    m
}

fn one_node(n: NodeProto, inputs: &[&str]) -> GraphProto {
    graph(inputs, vec![n], &["y"])
}

/// The error of running a model on these inputs, eagerly.
fn fails(m: &ModelProto, inputs: &[HostTensor]) -> remat_types::Error {
    let device = device();
    let network = load(m).and_then(|m| m.on(&device)).expect("a model");
    let x: Vec<Value> = inputs.iter().map(|h| Tensor::from_host(&device, h).expect("a tensor").into()).collect();
    network.run(&x).expect_err("it must not run")
}

#[test]
fn an_attribute_that_the_version_has_not_is_an_error() {
    let named = |n: NodeProto| NodeProto { name: Some("here".into()), ..n };
    for (opset, n, word) in [
        (21, node("Relu", &["x"], &["y"]).int("foo", 3), "Relu of version 21 has no attribute `foo`; it has none"),
        (21, node("Softmax", &["x"], &["y"]).int("axes", 1), "has no attribute `axes`; it has axis"),
        (21, node("Conv", &["x", "x"], &["y"]).int("stride", 2), "no attribute `stride`; it has auto_pad, dilations"),
        (27, node("SpaceToDepth", &["x"], &["y"]).int("mode", 1), "no attribute `mode` before version 28"),
        (24, node("Attention", &["x", "x", "x"], &["y"]).int("left_window_size", 1), "before version 25"),
    ] {
        let e = load(&at(opset, one_node(named(n), &["x"]))).expect_err(word);
        assert_eq!(e.kind(), ErrorKind::Format);
        assert!(e.to_string().contains("node `here`") && e.to_string().contains(word), "{e}");
    }
    // nodes of inner graphs are checked too
    let branch = graph(&[], vec![node("Neg", &["x"], &["a"]).int("foo", 1)], &["a"]);
    let choose = node("If", &["c"], &["y"]).graph("then_branch", branch.clone()).graph("else_branch", branch);
    assert!(load(&model(graph(&["c", "x"], vec![choose], &["y"]))).is_err());
}

#[test]
fn attributes_of_old_versions_and_those_of_exporters_own_are_taken() {
    let old = node("Relu", &["x"], &["y"]).with("consumed_inputs", AttributeType::Ints, |a| a.ints = vec![0]);
    assert!(load(&at(1, one_node(old.clone(), &["x"]))).is_ok());
    assert!(load(&at(6, one_node(old, &["x"]))).is_err());
    assert!(load(&at(21, one_node(node("Relu", &["x"], &["y"]).int("__line", 3), &["x"]))).is_ok());
}

#[test]
fn inputs_and_outputs_that_an_operator_has_not_are_errors() {
    let e = load(&model(one_node(node("Relu", &["x", "x"], &["y"]), &["x"]))).expect_err("two inputs");
    assert!(e.to_string().contains("2 inputs, and Relu of version 21 has at most 1"), "{e}");
    let e = load(&model(one_node(node("Relu", &["x"], &["y", "z"]), &["x"]))).expect_err("two outputs");
    assert!(e.to_string().contains("2 outputs"), "{e}");
    // absent ones at the end are none
    assert!(load(&model(one_node(node("Relu", &["x", ""], &["y"]), &["x"]))).is_ok());
    assert!(load(&model(one_node(node("Sum", &["x"; 9], &["y"]), &["x"]))).is_ok());
}

#[test]
fn inputs_of_several_types_are_an_error_where_the_operator_has_one() {
    let (f, i) = (vector(&[1.0]), HostTensor::from_slice(&[1i64], [1]).expect("a vector"));
    for op in ["Add", "Concat", "Max", "Less", "MatMul"] {
        let n = node(op, &["a", "b"], &["y"]);
        let n = if op == "Concat" { n.int("axis", 0) } else { n };
        let m = model(one_node(n, &["a", "b"]));
        assert!(load(&m).is_ok(), "{op}");
        let e = fails(&m, &[f.clone(), i.clone()]);
        assert_eq!(e.kind(), ErrorKind::DType);
        assert!(e.message().contains("input 0 is f32 and input 1 i64"), "{e}");
    }
    // exponents are of a type of their own
    let m = model(one_node(node("Pow", &["a", "b"], &["y"]), &["a", "b"]));
    assert_eq!(both(&m, &[vector(&[3.0]), HostTensor::from_slice(&[2i64], [1]).expect("a vector")])[0], vector(&[9.0]));
}

#[test]
fn an_output_of_another_type_than_declared_is_an_error() {
    let declared = |elem_type| {
        let mut g = graph(&["x"], vec![node("Relu", &["x"], &["y"])], &["y"]);
        g.output[0] = typed_value("y", elem_type, &[1]);
        model(g)
    };
    assert_eq!(both(&declared(1), &[vector(&[2.0])])[0], vector(&[2.0]));
    let e = fails(&declared(7), &[vector(&[2.0])]);
    assert_eq!(e.kind(), ErrorKind::DType);
    assert!(e.message().contains("output `y`: f32 where the model declares i64"), "{e}");
    let fact = remat_types::Fact::new(DType::F32, [1]);
    assert_eq!(load(&declared(7)).expect("a model").trace(&[fact]).expect_err("i64").kind(), ErrorKind::DType);
}

#[test]
fn files_of_the_newest_version_are_read() {
    let mut m = at(28, one_node(node("Relu", &["x"], &["y"]), &["x"]));
    m.ir_version = Some(14);
    assert_eq!(both(&m, &[vector(&[-1.0, 2.0])])[0], vector(&[0.0, 2.0]));
    m.ir_version = Some(15);
    assert_eq!(load(&m).expect_err("newer").kind(), ErrorKind::Value);
}

#[test]
fn blocks_of_space_become_channels_in_either_order() {
    let mode = |text: &'static str| {
        let n = node("SpaceToDepth", &["x"], &["y"]).int("blocksize", 2);
        let n = n.with("mode", AttributeType::String, |a| a.s = Some(text.as_bytes().into()));
        at(28, one_node(n, &["x"]))
    };
    let x = HostTensor::from_slice(&[0f32, 1., 2., 3., 4., 5., 6., 7.], [1, 2, 2, 2]).expect("an image");
    let of = |text| both(&mode(text), std::slice::from_ref(&x))[0].to_vec::<f32>().expect("floats");
    assert_eq!(of("DCR"), [0., 4., 1., 5., 2., 6., 3., 7.]);
    assert_eq!(of("CRD"), [0., 1., 2., 3., 4., 5., 6., 7.]);
    assert!(fails(&mode("RCD"), &[x]).message().contains("`RCD`"));
}

#[test]
fn shifts_by_negative_amounts_leave_the_sign_alone() {
    let of = |direction: &'static str| {
        let n = node("BitShift", &["x", "n"], &["y"]);
        let n = n.with("direction", AttributeType::String, |a| a.s = Some(direction.as_bytes().into()));
        let host = |v: &[i32]| HostTensor::from_slice(v, [v.len()]).expect("a vector");
        let given = [host(&[-8, -8, 8, 8]), host(&[1, -1, -1, 40])];
        both(&at(28, graph(&["x", "n"], vec![n], &["y"])), &given)[0].to_vec::<i32>().expect("integers")
    };
    assert_eq!(of("RIGHT"), [-4, -1, 0, 0]);
    assert_eq!(of("LEFT"), [-16, 0, 0, 0]);
}

/// Attention of one head over values that tell which keys were seen: all scores are equal, so it is their mean.
fn attend(
    opset: i64,
    extra: &[(&str, i64)],
    inputs: &[&str],
    outputs: &[&str],
    given: &[HostTensor],
) -> Vec<HostTensor> {
    let n = extra.iter().fold(node("Attention", inputs, outputs), |n, (name, v)| n.int(name, *v));
    let names: Vec<&str> = inputs.iter().copied().filter(|n| !n.is_empty()).collect();
    let wanted: Vec<&str> = outputs.iter().copied().filter(|n| !n.is_empty()).collect();
    both(&at(opset, graph(&names, vec![n], &wanted)), given)
}

/// Zeros as queries and keys, and powers of two as values, for sequences of `batch`.
fn sequences(batch: usize, queries: usize, keys: usize) -> Vec<HostTensor> {
    let values: Vec<f32> = (0..batch * keys).map(|i| f32::from(1u16 << (i % keys))).collect();
    vec![
        HostTensor::zeros(DType::F32, [batch, 1, queries, 1]).expect("queries"),
        HostTensor::zeros(DType::F32, [batch, 1, keys, 1]).expect("keys"),
        HostTensor::from_slice(&values, [batch, 1, keys, 1]).expect("values"),
    ]
}

#[track_caller]
fn near(got: &HostTensor, want: &[f64]) {
    let got = got.to_f64_vec();
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs();
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?}, not {want:?}");
}

#[test]
fn queries_of_a_cache_stand_behind_the_keys_that_are_no_padding() {
    let lengths = HostTensor::from_slice(&[2i64, 4, 1], [3]).expect("lengths");
    let given = [sequences(3, 2, 4), vec![lengths]].concat();
    let inputs = ["q", "k", "v", "", "", "", "n"];
    // two keys: the queries are those; four: they are the last two; one: the first query is before all keys
    let causal = [1.0, 1.5, 7.0 / 3.0, 15.0 / 4.0, 0.0, 1.0];
    near(&attend(24, &[("is_causal", 1)], &inputs, &["y"], &given)[0], &causal);
    near(&attend(24, &[("is_causal", 1)], &inputs, &["y", "", "", "s"], &given)[0], &causal);
    near(&attend(24, &[], &inputs, &["y"], &given)[0], &[1.5, 1.5, 15.0 / 4.0, 15.0 / 4.0, 1.0, 1.0]);
}

#[test]
fn windows_bound_what_a_query_sees_on_either_side() {
    let given = sequences(1, 4, 4);
    for (extra, want) in [
        (&[("left_window_size", 1)][..], [15.0 / 4.0, 15.0 / 4.0, 14.0 / 3.0, 6.0]),
        (&[("right_window_size", 0)], [1.0, 1.5, 7.0 / 3.0, 15.0 / 4.0]),
        (&[("left_window_size", 0), ("right_window_size", 1)], [1.5, 3.0, 6.0, 8.0]),
        (&[("left_window_size", 0), ("is_causal", 1)], [1.0, 2.0, 4.0, 8.0]),
    ] {
        near(&attend(25, extra, &["q", "k", "v"], &["y"], &given)[0], &want);
        near(&attend(25, extra, &["q", "k", "v"], &["y", "", "", "s"], &given)[0], &want);
    }
    let cache = [given, vec![HostTensor::from_slice(&[3i64], [1]).expect("a length")]].concat();
    let extra = [("left_window_size", 0), ("is_causal", 1)];
    near(&attend(25, &extra, &["q", "k", "v", "", "", "", "n"], &["y"], &cache)[0], &[0.0, 1.0, 2.0, 4.0]);
}

#[test]
fn a_query_that_sees_nothing_gives_zero_with_and_without_scores() {
    let shows = HostTensor::from_slice(&[true, false, false, false], [2, 2]).expect("a mask");
    let low = f32::NEG_INFINITY;
    let bias = HostTensor::from_slice(&[0f32, low, low, low], [2, 2]).expect("a mask");
    for mask in [shows, bias] {
        let given = [sequences(1, 2, 2), vec![mask]].concat();
        let inputs = ["q", "k", "v", "m"];
        let plain = attend(23, &[], &inputs, &["y"], &given);
        assert_eq!(plain[0].to_vec::<f32>().expect("floats"), [1.0, 0.0]);
        let y = attend(23, &[("qk_matmul_output_mode", 3)], &inputs, &["y", "", "", "s"], &given);
        assert_eq!(y[0].to_vec::<f32>().expect("floats"), [1.0, 0.0]);
        assert_eq!(y[1].to_vec::<f32>().expect("floats"), [1.0, 0.0, 0.0, 0.0]);
    }
}
