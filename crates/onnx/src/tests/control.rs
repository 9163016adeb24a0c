//! One small model of each structure, eagerly and compiled.

use remat_tensor::Tensor;
use remat_types::HostTensor;

use super::*;

#[test]
fn a_branch_is_chosen_by_a_value() {
    let yes = graph(&[], vec![node("Neg", &["x"], &["a"])], &["a"]);
    let no = graph(&[], vec![node("Abs", &["x"], &["b"])], &["b"]);
    let choose = node("If", &["c"], &["y"]).graph("then_branch", yes).graph("else_branch", no);
    let m = model(graph(&["c", "x"], vec![choose], &["y"]));
    for (c, y) in [(true, [-1.0, 2.0]), (false, [1.0, 2.0])] {
        let x = if c { [1.0, -2.0] } else { [-1.0, 2.0] };
        let got = both(&m, &[HostTensor::scalar(c), vector(&x)]);
        assert_eq!(got[0].to_vec::<f32>().expect("floats"), y);
    }
}

/// `x` times 2 as often as `n` says, with the value of each step.
fn doubling() -> GraphProto {
    let two = node("Constant", &[], &["two"]).constant(floats("", &[], &[2.0]));
    let nodes = vec![
        two,
        node("Mul", &["v", "two"], &["next"]),
        node("Identity", &["c"], &["go"]),
        node("Identity", &["next"], &["row"]),
    ];
    graph(&["i", "c", "v"], nodes, &["go", "next", "row"])
}

#[test]
fn a_counted_loop_carries_and_collects() {
    for n in [1i64, 3, 9] {
        let count = node("Constant", &[], &["n"]).constant(ints("", &[], &[n]));
        let m = model(graph(
            &["x"],
            vec![count, node("Loop", &["n", "", "x"], &["y", "rows"]).graph("body", doubling())],
            &["y", "rows"],
        ));
        let got = both(&m, &[vector(&[1.0])]);
        assert_eq!(got[0].to_vec::<f32>().expect("floats"), [2f32.powi(n as i32)]);
        let rows: Vec<f32> = (1..=n as i32).map(|k| 2f32.powi(k)).collect();
        assert_eq!((got[1].shape().dims(), got[1].to_vec::<f32>().expect("floats")), (&[n as usize, 1][..], rows));
    }
}

#[test]
fn a_loop_ends_when_its_condition_does() {
    let two = node("Constant", &[], &["two"]).constant(floats("", &[], &[2.0]));
    let top = node("Constant", &[], &["top"]).constant(floats("", &[], &[100.0]));
    let body = vec![two, top, node("Mul", &["v", "two"], &["next"]), node("Less", &["next", "top"], &["go"])];
    let body = graph(&["i", "c", "v"], body, &["go", "next"]);
    let m = model(graph(&["x"], vec![node("Loop", &["", "", "x"], &["y"]).graph("body", body)], &["y"]));
    assert_eq!(both(&m, &[HostTensor::scalar(3f32)])[0].to_vec::<f32>().expect("floats"), [192.0]);
}

/// A loop that appends a row to its carried value, in each of `n` steps.
fn growing(n: Option<i64>) -> ModelProto {
    let body = graph(
        &["i", "c", "v"],
        vec![
            node("Identity", &["c"], &["go"]),
            node("Cast", &["i"], &["number"]).int("to", 1),
            node("Reshape", &["number", "row"], &["last"]),
            node("Concat", &["v", "last"], &["next"]).int("axis", 0),
        ],
        &["go", "next"],
    );
    let mut g = graph(&["x"], vec![node("Loop", &["n", "", "x"], &["y"]).graph("body", body)], &["y"]);
    g.initializer.push(ints("row", &[1], &[1]));
    match n {
        Some(n) => g.initializer.push(ints("n", &[], &[n])),
        None => g.input.push(value("n")),
    }
    model(g)
}

#[test]
fn what_a_loop_of_a_constant_count_carries_may_grow() {
    for n in [3i64, 200] {
        let m = growing(Some(n));
        let want: Vec<f32> = std::iter::once(7.0).chain((0..n).map(|i| i as f32)).collect();
        assert_eq!(both(&m, &[vector(&[7.0])])[0].to_vec::<f32>().expect("floats"), want);
        let fact = remat_types::Fact::new(remat_types::DType::F32, [1]);
        assert!(load(&m).expect("a model").trace(&[fact]).expect("well formed").is_some());
    }
}

#[test]
fn a_growing_loop_of_more_steps_than_are_written_out_is_run_node_by_node() {
    let fact = |dtype, dims: &[usize]| remat_types::Fact::new(dtype, dims);
    let x = fact(remat_types::DType::F32, &[1]);
    let long = load(&growing(Some(5000))).expect("a model");
    assert!(long.trace(std::slice::from_ref(&x)).expect("well formed").is_none());
    let asked = load(&growing(None)).expect("a model");
    assert!(asked.trace(&[x, fact(remat_types::DType::I64, &[])]).expect("well formed").is_none());
}

#[test]
fn a_scan_adds_up_rows() {
    let body = vec![node("Add", &["s", "r"], &["sum"]), node("Identity", &["sum"], &["row"])];
    let scan = node("Scan", &["s0", "x"], &["y", "rows"]).int("num_scan_inputs", 1);
    let m =
        model(graph(&["s0", "x"], vec![scan.graph("body", graph(&["s", "r"], body, &["sum", "row"]))], &["y", "rows"]));
    for rows in [2usize, 8] {
        let x: Vec<f32> = (0..rows).map(|i| i as f32).collect();
        let got = both(&m, &[vector(&[1.0]), HostTensor::from_slice(&x, [rows, 1]).expect("rows")]);
        assert_eq!(got[0].to_vec::<f32>().expect("floats"), [1.0 + x.iter().sum::<f32>()]);
        assert_eq!(got[1].shape().dims(), [rows, 1]);
    }
}

#[test]
fn a_function_of_the_model_has_the_attributes_of_its_call() {
    let leaky = NodeProto {
        attribute: vec![AttributeProto {
            name: Some("alpha".into()),
            ref_attr_name: Some("slope".into()),
            r#type: Some(AttributeType::Float as i32),
            ..Default::default()
        }],
        ..node("LeakyRelu", &["a"], &["b"])
    };
    let mut m = model(graph(&["x"], vec![], &["y"]));
    m.functions.push(FunctionProto {
        name: Some("Own".into()),
        domain: Some("own".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute: vec!["slope".into()],
        node: vec![leaky],
        opset_import: m.opset_import.clone(),
        ..Default::default()
    });
    let call = NodeProto { domain: Some("own".into()), ..node("Own", &["x"], &["y"]) };
    m.graph.as_mut().expect("a graph").node.push(call.with("slope", AttributeType::Float, |a| a.f = Some(0.5)));
    assert_eq!(both(&m, &[vector(&[-4.0, 4.0])])[0].to_vec::<f32>().expect("floats"), [-2.0, 4.0]);
}

#[test]
fn a_sequence_is_taken_apart_and_put_together() {
    let body = graph(&["e"], vec![node("Neg", &["e"], &["n"])], &["n"]);
    let nodes = vec![
        node("SplitToSequence", &["x"], &["s"]),
        node("SequenceMap", &["s"], &["t"]).graph("body", body),
        node("ConcatFromSequence", &["t"], &["y"]).int("axis", 0),
    ];
    let m = model(graph(&["x"], nodes, &["y"]));
    assert_eq!(both(&m, &[vector(&[1.0, 2.0, 3.0])])[0].to_vec::<f32>().expect("floats"), [-1.0, -2.0, -3.0]);
}

#[test]
fn sizes_that_follow_from_shapes_by_way_of_floats_do_not_cut_a_trace() {
    let nodes = vec![
        node("Shape", &["x"], &["s"]),
        node("Cast", &["s"], &["f"]).int("to", 1),
        node("Constant", &[], &["half"]).constant(floats("", &[2], &[0.5, 2.0])),
        node("Mul", &["f", "half"], &["g"]),
        node("Floor", &["g"], &["h"]),
        node("Cast", &["h"], &["i"]).int("to", 7),
        node("Reshape", &["x", "i"], &["y"]),
    ];
    let m = model(graph(&["x"], nodes, &["y"]));
    let x = HostTensor::from_slice(&[1f32; 12], [4, 3]).expect("a matrix");
    assert_eq!(both(&m, std::slice::from_ref(&x))[0].shape().dims(), [2, 6]);
    let device = device();
    let network = load(&m).and_then(|m| m.on(&device)).expect("a model");
    let x = Tensor::from_host(&device, &x).expect("a tensor");
    let mut f = remat_tensor::compile(&device, |x: &[Tensor]| network.call(x));
    let pieces = f.pieces(&[&x]).expect("it compiles");
    assert_eq!(pieces.len(), 1);
    // nothing is left but the view
    let names: Vec<&str> = pieces[0].nodes().iter().map(|n| n.op.label()).collect();
    assert!(names.len() <= 1, "{names:?}");
}

#[test]
fn a_model_is_differentiated_as_a_function_of_its_inputs() {
    let m = model(graph(&["x"], vec![node("Mul", &["x", "x"], &["y"])], &["y"]));
    let device = device();
    let network = load(&m).and_then(|m| m.on(&device)).expect("a model");
    let x = Tensor::new(&device, &[3.0, -1.0], [2]).and_then(|t| t.requires_grad()).expect("a leaf");
    let y = network.call(std::slice::from_ref(&x)).expect("it runs");
    y[0].sum().and_then(|s| s.backward()).expect("a gradient");
    assert_eq!(x.grad().expect("a gradient").to_vec::<f32>().expect("floats"), [6.0, -2.0]);
}

#[test]
fn weights_of_one_name_in_graphs_beside_each_other_are_traced() {
    let branch = |w: f32| {
        let mut g = graph(&[], vec![node("Mul", &["x", "w"], &["a"])], &["a"]);
        g.initializer.push(floats("w", &[], &[w]));
        g
    };
    let choose = node("If", &["c"], &["y"]).graph("then_branch", branch(2.0)).graph("else_branch", branch(3.0));
    let both_ways = vec![
        choose.clone(),
        node("Not", &["c"], &["d"]),
        NodeProto { input: vec!["d".into()], output: vec!["z".into()], ..choose },
    ];
    let mut g = graph(&["x"], both_ways, &["y", "z"]);
    g.initializer.push(TensorProto {
        name: Some("c".into()),
        data_type: Some(9),
        int32_data: vec![1],
        ..Default::default()
    });
    let traced = load(&model(g))
        .expect("a model")
        .trace(&[remat_types::Fact::new(remat_types::DType::F32, [2])])
        .expect("a model");
    let traced = traced.expect("one graph").graph;
    assert!(traced.find("w").is_some() && traced.find("y").is_some() && traced.find("x").is_some());
    let pool = remat_kernels::pool::Pool::new(1);
    let values = traced.evaluate(&[vector(&[1.0, 2.0])], &[], &pool).expect("it runs");
    for (output, want) in traced.outputs().iter().zip([[2f32, 4.0], [3.0, 6.0]]) {
        assert_eq!(values.get(output.value).expect("computed").to_vec::<f32>().expect("floats"), want);
    }
}
