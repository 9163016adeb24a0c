//! The results of models, and the reasons for which they are refused.

use remat_lite::{ErrorKind, Extent, Network, Options, Shapes, ValueType};

use crate::{TOLERANCE, bits, folder, open, recorded, session, shapes};

#[test]
fn models_give_what_another_runtime_recorded() {
    for name in ["cnn", "encoder", "positive", "external", "skip"] {
        for level in 0..=3 {
            let network = open(name, Options { level, ..Options::default() });
            let mut session = session(&network, name);
            session.run().expect("it runs");
            assert_eq!(session.is_planned(), name != "positive");
            for (port, want) in network.outputs().iter().zip(recorded(name, "output")) {
                let got = session.output(&port.name).expect("an output");
                assert_eq!((got.dtype, got.shape), (want.dtype(), want.shape()), "{name}");
                let pairs = got.as_slice::<f32>().expect("f32").iter().zip(want.as_slice::<f32>().expect("f32"));
                for (got, want) in pairs {
                    assert!((got - want).abs() <= TOLERANCE, "{name} at level {level}: {got}, not {want}");
                }
            }
        }
    }
}

#[test]
fn facts_are_there_before_a_session() {
    let network = open("encoder", Options::default());
    let [port] = network.inputs() else { panic!("one input") };
    let named = |n: &str| Extent::Named(n.to_owned());
    let want = ValueType::Tensor(Some(remat_types::DType::I64), Some(vec![named("batch"), named("length")]));
    assert_eq!((&*port.name, &port.ty), ("tokens", &want));
    assert_eq!(port.ty.to_string(), "i64[batch, length]");
    assert_eq!(network.outputs()[0].name, "encoded");
    assert!(network.operators().iter().any(|(_, op, n)| op == "MatMul" && *n >= 5), "{:?}", network.operators());
}

#[test]
fn extents_are_given_by_name_or_with_the_whole_shape() {
    let network = open("encoder", Options::default());
    let e = network.session(&Shapes::new().extent("batch", 2)).expect_err("length is open");
    assert!(e.to_string().contains("input `tokens`: i64[batch, length] has extents that are open"), "{e}");
    let e = network.session(&Shapes::new().extent("rows", 2)).expect_err("no such extent");
    assert!(e.to_string().contains("no extent `rows`; it has `batch`, `length`"), "{e}");
    let e = network.session(&Shapes::new().input("x", [2, 2])).expect_err("no such input");
    assert!(e.to_string().contains("no input `x`; it has `tokens`"), "{e}");
    let e = network.session(&Shapes::new().input("tokens", [2])).expect_err("of rank two");
    assert!(e.kind() == ErrorKind::Shape && e.to_string().contains("shape [2] where the model takes"), "{e}");
    let e = network.session(&Shapes::new().extent("batch", 3).input("tokens", [2, 2])).expect_err("two numbers");
    assert_eq!(e.kind(), ErrorKind::Shape);
    for (batch, length) in [(1, 1), (3, 5), (1, 1)] {
        let mut s = network.session(&Shapes::new().extent("batch", batch).extent("length", length)).expect("both");
        assert_eq!(s.output("encoded").expect("zeros").shape.dims(), [batch, length, 16], "known before a run");
        s.run().expect("it runs");
        assert_eq!(s.output("encoded").expect("there").shape.dims(), [batch, length, 16]);
    }
}

#[test]
fn only_the_outputs_that_are_asked_for_are_computed() {
    let of = |outputs: &[&str]| {
        let outputs = Some(outputs.iter().map(|o| (*o).to_owned()).collect());
        Network::open(folder("cnn").join("model.onnx"), Options { outputs, ..Options::default() })
    };
    let e = of(&["logits"]).expect_err("no such output");
    assert!(e.to_string().contains("no output `logits`; it has `probabilities`"), "{e}");
    assert!(of(&["probabilities", "probabilities"]).is_err());
    let network = of(&[]).expect("none is fine");
    let mut s = session(&network, "cnn");
    s.run().expect("it runs");
    assert_eq!(s.runtime().expect("planned").executable().expect("not running").graph().nodes().len(), 0);
    assert!(s.output("probabilities").is_err());
}

#[test]
fn an_input_may_be_fixed_to_a_tensor() {
    let inputs = recorded("encoder", "input");
    let fixed = |name: &str, x: &remat_lite::HostTensor| Options {
        fixed: vec![(name.into(), x.clone())],
        ..Options::default()
    };
    let network = open("encoder", fixed("tokens", &inputs[0]));
    assert!(network.inputs().is_empty());
    let mut s = network.session(&Shapes::new()).expect("nothing is open");
    s.run().expect("it runs");
    let want = {
        let network = open("encoder", Options::default());
        let mut s = session(&network, "encoder");
        s.run().expect("it runs");
        bits(&mut s, "encoded")
    };
    // a product of constants alone is computed by another kernel than one with its weight packed
    let close = |a: &u32, b: &u32| (f32::from_bits(*a) - f32::from_bits(*b)).abs() <= crate::TOLERANCE;
    assert!(bits(&mut s, "encoded").iter().zip(&want).all(|(a, b)| close(a, b)));
    let refused =
        |options: Options| Network::open(folder("encoder").join("model.onnx"), options).expect_err("impossible");
    let e = refused(fixed("words", &inputs[0]));
    assert!(e.to_string().contains("no input `words`; it has `tokens`"), "{e}");
    let twice = Options { fixed: vec![("tokens".into(), inputs[0].clone()); 2], ..Options::default() };
    assert_eq!(refused(twice).kind(), ErrorKind::Value);
    let e = refused(fixed("tokens", &remat_lite::HostTensor::scalar(1i64)));
    assert_eq!(e.kind(), ErrorKind::Shape);
}

#[test]
fn where_an_integer_decides_each_of_its_values_has_a_plan() {
    let run = |s: &mut remat_lite::Session, rate: i64| {
        s.input_as_mut::<i64>("rate").expect("an input")[0] = rate;
        s.run().expect("it runs");
        let y = s.output("y").expect("an output");
        (y.shape.dims().to_vec(), y.as_slice::<f32>().expect("floats").to_vec())
    };
    let x = recorded("rate", "input")[0].to_vec::<f32>().expect("floats");
    let want = |step: usize| -> Vec<f32> {
        let row = |x: &[f32]| (step..9).step_by(step).map(|i| x[i] - x[i - step]).collect::<Vec<f32>>();
        x.chunks(9).flat_map(row).collect()
    };
    let network = open("rate", Options { threads: 1, ..Options::default() });
    let mut s = session(&network, "rate");
    assert!(!s.is_planned(), "which value decides is not known yet");
    assert!(s.output("y").is_err(), "no run yet");
    for (rate, step) in [(16000, 1), (8000, 2), (16000, 1), (8000, 2)] {
        assert_eq!(run(&mut s, rate), (vec![2, 8 / step], want(step)), "{rate}");
        assert!(s.is_planned());
        assert!(s.output_value("y").expect_err("a tensor").to_string().contains("Session::output"));
    }
    assert!(s.memory().expect("idle").total_bytes() > 0);
    // plans are shared, and no more than four are kept
    let mut other = session(&network, "rate");
    let held = |s: &mut remat_lite::Session| s.memory().expect("idle").total_bytes();
    run(&mut other, 1);
    let one = held(&mut other);
    for rate in [2, 3, 4, 5, 16000, 1] {
        let step = if rate == 16000 { 1 } else { 2 };
        assert_eq!(run(&mut other, rate), (vec![2, 8 / step], want(step)), "{rate}");
        assert!(other.is_planned());
    }
    assert!((3 * one..5 * one).contains(&held(&mut other)), "{one} of four or so");
    let fixed =
        Options { fixed: vec![("rate".into(), remat_lite::HostTensor::scalar(16000i64))], ..Options::default() };
    let network = open("rate", fixed);
    let mut s = network.session(&Shapes::new().extent("batch", 2)).expect("one graph");
    assert!(s.is_planned());
    s.input_as_mut::<f32>("x").expect("an input").copy_from_slice(&x);
    s.run().expect("it runs");
    assert_eq!(s.output("y").expect("an output").as_slice::<f32>().expect("floats"), want(1));
}

#[test]
fn what_has_no_rule_is_listed_and_refused_with_the_nearest_name() {
    let network = open("foreign", Options::default());
    let [missing] = network.unsupported() else { panic!("one node") };
    assert_eq!((&*missing.node, &*missing.domain, &*missing.op), ("second", "com.example", "Flashier"));
    let e = network.session(&Shapes::new()).expect_err("it cannot run");
    assert!(e.to_string().contains("`second`: com.example.Flashier of version 1 is not supported"), "{e}");
}

#[test]
fn a_file_that_is_cut_short_is_an_error_and_never_a_panic() {
    let whole = std::fs::read(folder("cnn").join("model.onnx")).expect("readable");
    let inputs = recorded("cnn", "input");
    for len in (0..whole.len()).step_by(7) {
        let Ok(network) = Network::from_bytes(&whole[..len], Options::default()) else { continue };
        // what is left may be a model, of no inputs or of fewer nodes
        if let Ok(mut s) = network.session(&shapes(&network, &inputs)) {
            let _ = s.run();
        }
    }
    let e = Network::open(folder("cnn"), Options::default()).expect_err("a folder");
    assert!(e.to_string().contains("cnn"), "{e}");
}

#[test]
fn options_that_nothing_can_have_are_errors() {
    let refused = |options: Options, word: &str| {
        let e = Network::open(folder("cnn").join("model.onnx"), options).expect_err("impossible");
        assert!(e.kind() == ErrorKind::Value && e.to_string().contains(word), "{e}");
    };
    refused(Options { threads: 0, ..Options::default() }, "threads");
    refused(Options { level: 4, ..Options::default() }, "level");
    refused(Options { half: Some(remat_types::DType::I8), ..Options::default() }, "half");
}

#[test]
fn bytes_that_are_shared_are_not_copied_and_go_when_nothing_needs_them() {
    struct Held(Vec<u8>, #[expect(dead_code, reason = "told by its count")] std::sync::Arc<()>);
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let shared = |network: &str| {
        let bytes = std::fs::read(folder(network).join("model.onnx")).expect("readable");
        let alive = std::sync::Arc::new(());
        let bytes = remat_lite::Bytes::from_owner(Held(bytes, alive.clone()));
        let is_alive = move || std::sync::Arc::strong_count(&alive) > 1;
        (Network::from_shared(bytes, Options::default()).expect("the model is well formed"), is_alive)
    };
    for name in ["cnn", "positive"] {
        let (network, is_alive) = shared(name);
        assert!(is_alive(), "for sessions of other shapes");
        let mut s = session(&network, name);
        s.run().expect("it runs");
        let output = network.outputs()[0].name.clone();
        let mut other = session(&open(name, Options::default()), name);
        other.run().expect("it runs");
        assert_eq!(bits(&mut s, &output), bits(&mut other, &output));
        drop(network);
        drop(s);
        assert!(!is_alive(), "{name}");
    }
}
