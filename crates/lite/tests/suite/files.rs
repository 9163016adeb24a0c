//! Files of graphs: what ONNX models are converted to, and what they give then.

use std::path::PathBuf;

use remat_lite::{Dim, ErrorKind, Extent, GraphFile, Key, Network, Options, Shapes, ValueType, optimize};

use crate::{TOLERANCE, bits, open, recorded, session};

/// A model as a file whose named extents are open.
fn file(name: &str, symbols: &[(&str, usize)]) -> GraphFile {
    let network = open(name, Options::default());
    let symbols: Vec<Dim> = symbols.iter().map(|(symbol, most)| Dim::new(symbol, 1, *most)).collect();
    network.graph_file(&Shapes::new(), &symbols).expect("it is one graph")
}

fn read(bytes: Vec<u8>, options: Options) -> Network {
    Network::from_bytes(bytes, options).expect("it was written whole")
}

/// The file of a release, which goes on loading.
fn kept() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/models/cnn-version-1.remat")
}

#[test]
fn a_converted_model_gives_the_bits_of_the_model() {
    for (name, symbols) in [("cnn", &[("batch", 64)][..]), ("encoder", &[("batch", 64), ("length", 32)])] {
        let bytes = file(name, symbols).to_bytes(None).expect("it is written");
        for level in [0, 2, 3] {
            let options = || Options { level, ..Options::default() };
            let (theirs, own) = (open(name, options()), read(bytes.clone(), options()));
            assert_eq!(own.inputs(), theirs.inputs(), "names, types and open extents");
            let names = |n: &Network| n.outputs().iter().map(|p| p.name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&own), names(&theirs));
            let output = &own.outputs()[0].name;
            let (mut a, mut b) = (session(&theirs, name), session(&own, name));
            a.run().expect("it runs");
            b.run().expect("it runs");
            assert!(b.is_planned());
            assert_eq!(bits(&mut a, output), bits(&mut b, output), "{name} at level {level}");
        }
    }
}

#[test]
fn a_converted_model_keeps_to_a_budget_with_the_same_bits() {
    let bytes = file("skip", &[("batch", 64)]).to_bytes(None).expect("it is written");
    let run = |memory_budget: Option<usize>| {
        let network = read(bytes.clone(), Options { memory_budget, threads: 1, ..Options::default() });
        let mut s = network.session(&Shapes::new().extent("batch", 4))?;
        let x = s.input_as_mut::<f32>("x")?;
        x.iter_mut().enumerate().for_each(|(i, v)| *v = (i % 17) as f32 * 0.1 - 0.8);
        s.run()?;
        let memory = s.memory()?;
        assert!(memory_budget.is_none_or(|b| memory.total_bytes() <= b), "{memory:?} of {memory_budget:?}");
        remat_lite::Result::Ok((bits(&mut s, "y"), memory))
    };
    let (want, whole) = run(None).expect("without a budget");
    // kernels of other processors have other workspaces, so that the least budget is another
    let tight = [60, 70, 75, 80, 85, 90, 95].map(|percent| run(Some(whole.total_bytes() * percent / 100)));
    let met: Vec<_> = tight.into_iter().flatten().collect();
    assert!(met.iter().all(|(got, _)| *got == want));
    assert!(met.iter().any(|(_, memory)| memory.recomputed_calls > 0), "{} budgets are met", met.len());
}

#[test]
fn open_extents_have_bounds() {
    let network = read(file("cnn", &[("batch", 64)]).to_bytes(None).expect("it is written"), Options::default());
    let [port] = network.inputs() else { panic!("one input") };
    let ValueType::Tensor(_, Some(extents)) = &port.ty else { panic!("a tensor") };
    assert_eq!(extents[0], Extent::Named("batch".into()));
    for batch in [1, 2, 64] {
        let mut s = network.session(&Shapes::new().extent("batch", batch)).expect("within");
        s.run().expect("it runs");
        assert_eq!(s.output("probabilities").expect("there").shape.dims()[0], batch);
    }
    let e = network.session(&Shapes::new().extent("batch", 65)).expect_err("beyond");
    assert!(e.kind() == ErrorKind::Value && e.to_string().contains("`batch` is 65"), "{e}");
}

#[test]
fn the_file_says_what_the_model_said() {
    let theirs = open("cnn", Options::default());
    let own = read(file("cnn", &[("batch", 64)]).to_bytes(None).expect("it is written"), Options::default());
    assert_eq!(own.about().name, theirs.about().name);
    assert_eq!(own.about().producer, theirs.about().producer);
    assert!(own.operators().iter().any(|(domain, op, _)| domain == "remat" && op.contains("conv")), "{own:?}");
    assert!(own.unsupported().is_empty());
}

#[test]
fn passes_that_ran_beforehand_change_no_bit_of_what_keeps_bits() {
    let plain = file("cnn", &[("batch", 64)]);
    let run = |file: &GraphFile| {
        let network = read(file.to_bytes(None).expect("it is written"), Options { level: 0, ..Options::default() });
        let mut s = session(&network, "cnn");
        s.run().expect("it runs");
        bits(&mut s, "probabilities")
    };
    let want = run(&plain);
    let at = |level| optimize(&plain, &Options { level, ..Options::default() }).expect("passes fit");
    let two = at(2);
    assert!(two.form.example().nodes().len() < plain.form.example().nodes().len());
    assert_eq!(run(&two), want);
    for (got, want) in run(&at(3)).into_iter().zip(want) {
        assert!((f32::from_bits(got) - f32::from_bits(want)).abs() <= TOLERANCE);
    }
}

#[test]
fn encrypted_weights_need_the_key() {
    let bytes = file("cnn", &[("batch", 64)]).to_bytes(Some(&Key::new([3; 32]))).expect("it is written");
    let with = |key: Option<Key>| Network::from_bytes(bytes.clone(), Options { key, ..Options::default() });
    let network = with(Some(Key::new([3; 32]))).expect("its key");
    let mut s = session(&network, "cnn");
    s.run().expect("it runs");
    for wrong in [None, Some(Key::new([4; 32]))] {
        assert_eq!(with(wrong).expect_err("not its key").kind(), ErrorKind::Value);
    }
}

#[test]
fn what_is_no_single_graph_is_no_file() {
    let e = open("positive", Options::default()).graph_file(&Shapes::new().input("x", [4]), &[]).expect_err("sizes");
    assert!(e.kind() == ErrorKind::Value && e.to_string().contains("follow from values"), "{e}");
    let e =
        open("encoder", Options::default()).graph_file(&Shapes::new(), &[Dim::new("batch", 1, 9)]).expect_err("open");
    assert!(e.to_string().contains("extents that are open"), "{e}");
    let all = [Dim::new("batch", 1, 9), Dim::new("rows", 1, 9)];
    let e = open("cnn", Options::default()).graph_file(&Shapes::new(), &all).expect_err("no such extent");
    assert!(e.to_string().contains("no extent `rows`"), "{e}");
}

/// With `REMAT_RECORD` set, and no file, writes one: of this version, whose name and test are then new.
#[test]
fn a_file_of_the_first_version_loads_and_gives_what_it_gave() {
    if std::env::var_os("REMAT_RECORD").is_some() && !kept().exists() {
        std::fs::write(kept(), file("cnn", &[("batch", 64)]).to_bytes(None).expect("it is written")).expect("writable");
    }
    let network = Network::open(kept(), Options::default()).expect("it goes on loading");
    assert_eq!(network.inputs()[0].ty.to_string(), "f32[batch, 3, 16, 16]");
    let mut s = session(&network, "cnn");
    s.run().expect("it runs");
    let got = s.output("probabilities").expect("there");
    let want = &recorded("cnn", "output")[0];
    for (got, want) in got.as_slice::<f32>().expect("f32").iter().zip(want.as_slice::<f32>().expect("f32")) {
        assert!((got - want).abs() <= TOLERANCE);
    }
}

#[test]
fn a_file_that_is_cut_short_is_an_error() {
    let whole = file("cnn", &[("batch", 64)]).to_bytes(None).expect("it is written");
    for len in (0..whole.len()).step_by(13) {
        assert!(Network::from_bytes(&whole[..len], Options::default()).is_err(), "{len} bytes");
    }
}
