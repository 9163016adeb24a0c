use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::{OpRef, Registry};
use remat_types::{DType, ErrorKind, Fact, HostTensor, SmallVec};

use super::*;

fn f32s(dims: &[usize]) -> Fact {
    Fact::new(DType::F32, dims)
}

fn add() -> OpRef {
    Binary { f: BinaryFn::Add }.into()
}

fn unary(f: UnaryFn) -> OpRef {
    Unary { f }.into()
}

/// relu(x + w) + c with the state w becoming x + w.
fn small() -> Graph {
    let b = Builder::new();
    let x = b.input(f32s(&[2, 3]), Some("x"));
    let w = b.state(f32s(&[2, 3]), Some("w"));
    b.set_scope(Some("block 1".into()));
    let s = b.node(add(), &[x, w], None).expect("fits")[0];
    let r = b.node(unary(UnaryFn::Relu), &[s], None).expect("fits")[0];
    let c = b.constant(&HostTensor::from_slice(&[0.5f32, -0.0, f32::MIN_POSITIVE], [3]).expect("fits"));
    let y = b.node(add(), &[r, c], None).expect("fits")[0];
    b.set_state(w, s).expect("same type");
    b.output(y, "y");
    b.output(r, "relu \"out\"");
    b.finish().expect("valid")
}

fn registry() -> Registry {
    Registry::builtin()
}

#[test]
fn equal_calls_are_one_and_unequal_ones_are_not() {
    let b = Builder::new();
    let x = b.input(f32s(&[4]), None);
    let one = b.node(unary(UnaryFn::Relu), &[x], None).expect("fits");
    assert_eq!(one, b.node(unary(UnaryFn::Relu), &[x], None).expect("fits"));
    assert_ne!(one, b.node(unary(UnaryFn::Exp), &[x], None).expect("fits"));
    assert_eq!(b.len(), 2);
    let raw = Builder::raw();
    let x = raw.input(f32s(&[4]), None);
    raw.node(unary(UnaryFn::Relu), &[x], None).expect("fits");
    raw.node(unary(UnaryFn::Relu), &[x], None).expect("fits");
    assert_eq!(raw.len(), 2);
}

#[test]
fn an_error_of_inference_names_the_op() {
    let b = Builder::new();
    let (x, y) = (b.input(f32s(&[4]), None), b.input(f32s(&[3]), None));
    let e = b.node(add(), &[x, y], None).expect_err("shapes do not broadcast");
    assert_eq!(e.kind(), ErrorKind::Shape);
    assert!(e.to_string().contains("[add]"), "{e}");
    let e = b.node(add(), &[x, ValueId(99)], None).expect_err("no such value");
    assert_eq!(e.kind(), ErrorKind::Value);
}

#[test]
fn two_updates_of_one_state_are_an_error() {
    let b = Builder::new();
    let w = b.state(f32s(&[4]), None);
    let y = b.node(unary(UnaryFn::Relu), &[w], None).expect("fits")[0];
    let z = b.node(unary(UnaryFn::Exp), &[w], None).expect("fits")[0];
    b.set_state(w, y).expect("first");
    assert_eq!(b.set_state(w, z).expect_err("second").kind(), ErrorKind::Value);
    let x = b.input(f32s(&[4]), None);
    assert_eq!(b.set_state(x, z).expect_err("no state").kind(), ErrorKind::Value);
}

#[test]
fn text_and_file_read_back_as_the_same_graph() {
    let g = small();
    let text = g.to_text().expect("prints");
    let back = Graph::parse(&text, &registry()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back.to_text().expect("prints"), text);
    assert_eq!(back.nodes()[0].scope.as_deref(), Some("block 1"));
    let bytes = g.to_bytes().expect("writes");
    let back = Graph::from_bytes(&bytes, &registry()).expect("reads");
    assert_eq!(back.to_text().expect("prints"), text);
    assert_eq!(back.outputs()[1].name.as_ref(), "relu \"out\"");
}

#[test]
fn wrong_text_is_an_error_that_names_the_line() {
    let good = small().to_text().expect("prints");
    let table = [
        ("remat.graph 1", "remat.graph 2", "line 1"),
        ("input x: f32[2, 3]", "input x: f33[2, 3]", "line 2"),
        ("input x: f32[2, 3]", "input x: f32[18446744073709551615, 3, 9]", "line 2"),
        ("input x: f32[2, 3]", "input x: f32[2, 3] junk", "line 2"),
        ("state w: f32[2, 3]", "state w: f32[2, 4]", "[add]"),
        ("state w", "state x", "defined twice"),
        ("(x, w)", "(x, v)", "not defined"),
        ("(x, w)", "(x, %3)", "its own output"),
        ("[0.5, -0.0", "[0.5, \"a\"", "f32"),
        ("[0.5, -0.0", "[0.5, 1, -0.0", "numbers for"),
        ("binary 1", "binry 1", "no op"),
        ("binary 1", "binary 9", "version"),
        ("next w", "next x", "state"),
        ("output y", "output \"relu \\\"out\\\"\"", "two outputs"),
    ];
    for (from, to, part) in table {
        assert!(good.contains(from), "{from} in\n{good}");
        let e = Graph::parse(&good.replacen(from, to, 1), &registry()).expect_err(to);
        assert!(e.to_string().contains(part), "{to}: {e}");
    }
    let bytes = small().to_bytes().expect("writes");
    for n in 0..bytes.len() {
        assert!(Graph::from_bytes(&bytes[..n], &registry()).is_err(), "cut to {n}");
    }
}

#[test]
fn cut_and_mangled_text_never_panics() {
    let good = small().to_text().expect("prints");
    for n in (0..good.len()).filter(|n| good.is_char_boundary(*n)) {
        // A cut at the end of a line may leave a smaller graph that is valid.
        let _ = Graph::parse(&good[..n], &registry());
        for c in ["\"", "(", "]", "%", "9", "\u{e9}", "{"] {
            let _ = Graph::parse(&format!("{}{c}{}", &good[..n], &good[n..]), &registry());
        }
    }
}

#[test]
fn verify_finds_what_is_wrong() {
    type Plant = fn(&mut Graph);
    let faults: [(&str, Plant); 7] = [
        ("defined after", |g| g.nodes.swap(0, 1)),
        ("has no value", |g| g.nodes[0].x[0] = ValueId(999)),
        ("gives f32", |g| g.values[g.nodes[1].y[0].index()].fact = f32s(&[7])),
        ("next version of two", |g| {
            let s = State { value: g.states[0].value, next: g.states[0].next };
            g.values.push(Value { origin: Origin::State(1), fact: f32s(&[2, 3]), name: None });
            g.states.push(State { value: ValueId(g.values.len() as u32 - 1), ..s });
        }),
        ("origin", |g| g.values[g.inputs[0].index()].origin = Origin::State(7)),
        ("two outputs", |g| g.outputs[1].name = g.outputs[0].name.clone()),
        ("runs", |g| g.nodes[0].after.push(NodeId(2))),
    ];
    small().verify().expect("valid before");
    for (part, plant) in faults {
        let mut g = small();
        plant(&mut g);
        let e = g.verify().expect_err(part).to_string();
        let swapped = part == "defined after" && e.contains("comes from elsewhere");
        let origin = part == "origin" && e.contains("comes from elsewhere");
        assert!(e.contains(part) || swapped || origin, "{part}: {e}");
    }
}

#[test]
fn names_readers_and_dependents_are_found() {
    let g = small();
    let (x, w) = (g.find("x").expect("named"), g.find("w").expect("named"));
    assert_eq!(g.readers(x), [NodeId(0)]);
    assert_eq!(g.readers(w), [NodeId(0)]);
    assert_eq!(g.find("nothing"), None);
    let r = g.reachability();
    assert!(r.depends(NodeId(2), NodeId(0)) && !r.depends(NodeId(0), NodeId(2)));
    assert_eq!(r.dependents(NodeId(1)).collect::<Vec<_>>(), [NodeId(1), NodeId(2)]);
    assert_eq!(r.dependencies(NodeId(2)).count(), 3);
}

#[test]
fn a_patch_replaces_and_dead_nodes_go() {
    let g = small();
    let relu = g.nodes()[1].y[0];
    let mut p = Patch::new();
    let new = p.node(unary(UnaryFn::Abs), &[PatchValue::Old(g.nodes()[0].y[0])], Some(NodeId(1)));
    p.replace(relu, new);
    let h = g.patched(&p).expect("applies");
    let labels: Vec<&str> = h.nodes().iter().map(|n| n.op.label()).collect();
    assert_eq!(labels, ["add", "abs", "add"]);
    assert_eq!(h.nodes()[1].scope.as_deref(), Some("block 1"));
    let mut p = Patch::new();
    p.remove_output("y");
    p.remove_output("relu \"out\"");
    assert_eq!(g.patched(&p).expect("applies").nodes().len(), 1, "only the state is left");
    let mut p = Patch::new();
    p.add_output("sum", g.nodes()[0].y[0]);
    p.rename(g.find("x").expect("named"), Some("images"));
    let h = g.patched(&p).expect("applies");
    assert_eq!((h.outputs().len(), h.find("images").is_some(), h.find("x")), (3, true, None));
    assert!(Patch::new().is_empty() && !p.is_empty());
}

#[test]
fn a_frozen_state_is_a_constant() {
    let b = Builder::new();
    let fact = || Fact::new(DType::F32, [2]);
    let (x, w, v) = (b.input(fact(), None), b.state(fact(), Some("w")), b.state(fact(), Some("v")));
    let y = b.node(Binary { f: BinaryFn::Mul }.into(), &[x, w], None).expect("fits")[0];
    let next = b.node(Binary { f: BinaryFn::Add }.into(), &[v, y], None).expect("fits")[0];
    b.output(y, "y");
    b.set_state(v, next).expect("same type");
    let g = b.finish().expect("valid");
    let data = |v: &[f32]| HostTensor::from_slice(v, [2]).expect("fits");
    let mut patch = Patch::new();
    patch.freeze(&g, 0, data(&[2.0, 3.0]));
    let frozen = g.patched(&patch).expect("fits");
    assert_eq!((frozen.states().len(), g.label(g.states()[1].value).as_str()), (1, "v"));
    let values = frozen
        .evaluate(&[data(&[5.0, 7.0])], &[data(&[1.0, 1.0])], &remat_kernels::pool::Pool::new(1))
        .expect("computes");
    assert_eq!(values.get(frozen.outputs()[0].value), Some(&data(&[10.0, 21.0])));
    assert_eq!(frozen.states()[0].next.and_then(|v| values.get(v)), Some(&data(&[11.0, 22.0])));
    let refused = |state: usize| {
        let mut patch = Patch::new();
        patch.freeze(&g, state, data(&[0.0, 0.0]));
        g.patched(&patch).expect_err("refused").message().to_owned()
    };
    assert!(refused(1).contains("state v is updated"), "{}", refused(1));
    assert!(refused(2).contains("no state 2"), "{}", refused(2));
}

#[test]
fn wrong_patches_are_errors() {
    let g = small();
    let relu = g.nodes()[1].y[0];
    let error = |f: &dyn Fn(&mut Patch)| {
        let mut p = Patch::new();
        f(&mut p);
        g.patched(&p).expect_err("refused").to_string()
    };
    let e = error(&|p| {
        let c = p.constant(HostTensor::scalar(1f32));
        p.replace(relu, c);
    });
    assert!(e.contains("its replacement f32[]"), "{e}");
    let e = error(&|p| {
        let c = p.constant(HostTensor::scalar(1f32));
        let n = p.node(unary(UnaryFn::Abs), &[c], None);
        p.replace(relu, n);
    });
    assert!(e.contains("its replacement f32[]"), "{e}");
    assert!(error(&|p| p.remove_output("z")).contains("no output `z`"));
    assert!(error(&|p| p.replace(relu, PatchValue::Old(ValueId(99)))).contains("not there"));
    let e = error(&|p| {
        p.replace(relu, PatchValue::Old(g.nodes()[2].y[0]));
        p.replace(g.nodes()[2].y[0], PatchValue::Old(relu));
    });
    assert!(e.contains("circle"), "{e}");
}

#[test]
fn another_batch_is_inferred_anew() {
    let b = Builder::new();
    let x = b.input(f32s(&[2, 3]), Some("x"));
    let y = b.node(unary(UnaryFn::Exp), &[x], None).expect("fits")[0];
    b.output(y, "y");
    let g = b.finish().expect("valid");
    let h = g.with_inputs(&[f32s(&[5, 3])]).expect("infers");
    assert_eq!(h.fact(h.outputs()[0].value).shape.dims(), [5, 3]);
    assert_eq!(g.with_inputs(&[]).expect_err("one input").kind(), ErrorKind::Arity);
}

#[test]
fn a_node_runs_after_another_through_text_and_patches() {
    let b = Builder::new();
    let x = b.input(f32s(&[2]), Some("x"));
    let y = b.node(unary(UnaryFn::Exp), &[x], None).expect("fits")[0];
    let z = b.node(unary(UnaryFn::Abs), &[x], None).expect("fits")[0];
    b.run_after(z, y).expect("earlier");
    assert_eq!(b.run_after(y, z).expect_err("later").kind(), ErrorKind::Value);
    b.output(z, "z");
    let g = b.finish().expect("valid");
    let back = Graph::parse(&g.to_text().expect("prints"), &registry()).expect("reads");
    assert_eq!(back.nodes()[1].after.as_slice(), [NodeId(0)]);
    let h = back.patched(&Patch::new()).expect("applies");
    assert_eq!((h.nodes().len(), h.nodes()[1].after.as_slice()), (2, &[NodeId(0)][..]), "it keeps what it follows");
}

#[test]
fn every_sample_of_the_registry_survives_text_and_file() {
    let mut seen = 0;
    remat_ops::testing::each_sample(&registry(), |entry, i, sample| {
        let b = Builder::raw();
        let x: Vec<ValueId> = sample.x.iter().map(|t| b.constant(t)).collect();
        let Ok(y) = b.node(sample.op.clone(), &x, None) else { return };
        y.iter().enumerate().for_each(|(j, v)| b.output(*v, &format!("y{j}")));
        let g = b.finish().expect("valid");
        let text = g.to_text().expect("prints");
        let back = Graph::parse(&text, &registry()).unwrap_or_else(|e| panic!("{} {i}: {e}\n{text}", entry.name));
        assert_eq!(back.nodes()[0].op, sample.op, "{} {i}", entry.name);
        for (a, b) in g.values().iter().zip(back.values()) {
            if let (Origin::Constant(a), Origin::Constant(b)) = (&a.origin, &b.origin) {
                assert_eq!(a.bytes(), b.bytes(), "{} {i}: bits of a constant", entry.name);
            }
        }
        let file = Graph::from_bytes(&g.to_bytes().expect("writes"), &registry()).expect("reads");
        assert_eq!(file.to_text().expect("prints"), text, "{} {i}", entry.name);
        seen += 1;
    });
    assert!(seen > 200, "{seen} samples");
}

#[test]
fn costs_and_state_bytes_add_up() {
    let g = small();
    assert_eq!(g.state_bytes(), 24);
    let refs: SmallVec<[&Fact; 4]> = g.nodes()[1].x.iter().map(|v| g.fact(*v)).collect();
    let relu = g.nodes()[1].op.cost(&refs, &[f32s(&[2, 3])]);
    assert_eq!(g.node_cost(&g.nodes()[1]), relu);
    assert!(g.cost().bytes > relu.bytes);
    let text = "remat.graph 1\ninput x: f32[2, 3]\n%1: f32[3, 2] = permute 1 {\"order\":[1,0]} (x)\noutput y = %1\n";
    let view = Graph::parse(text, &registry()).expect("a graph");
    assert_eq!(view.node_cost(&view.nodes()[0]), remat_ops::Cost::default(), "a view moves nothing");
}

/// The same function over every seam: what a builder recorded computes what the host computed at once.
#[test]
fn compositions_become_nodes_of_a_graph() {
    use remat_kernels::pool::Pool;
    use remat_ops::compose::{self, Arith};
    use remat_ops::conv::ConvParams;
    use remat_ops::testing::HostApply;
    use remat_ops::{Apply, loss::Reduction};
    use remat_types::Result;

    fn all<A: Apply>(cx: &A, x: [A::Value; 3]) -> Result<Vec<A::Value>> {
        let [x, weight, index] = x;
        let taps = ConvParams { stride: [2, 1, 1], padding: [1, 0, 1].into(), ..ConvParams::PLAIN };
        let y = compose::conv3d(cx, x.clone(), weight.clone(), taps)?;
        let back = compose::conv_transpose3d(cx, y.clone(), weight.clone(), taps, [1, 0, 0])?;
        let row = compose::select(cx, back.clone(), 0, 0)?;
        let row = compose::roll(cx, compose::flip(cx, row, &[1])?, 1, 2)?;
        let both = compose::stack(cx, [row.clone(), row], 1)?;
        let wide = compose::repeat(cx, compose::repeat_interleave(cx, both.clone(), 2, 0)?, &[1, 1, 2, 1, 1])?;
        let more = compose::index_put(cx, x.clone(), &[2], vec![index], x.clone(), true)?;
        let loss = compose::mse(cx, more.clone(), x, Reduction::Mean)?;
        let parts = compose::split(cx, &wide, 2, &[5, 7])?;
        let norm = compose::norm(cx, Arith(cx).scale(more, 0.5)?, &[1, 2], false)?;
        Ok([y, back, loss, norm].into_iter().chain(parts).collect())
    }
    let wave = |dims: &[usize]| {
        let n: usize = dims.iter().product();
        let v: Vec<f32> = (0..n).map(|i| (i as f32 * 0.9).cos()).collect();
        HostTensor::from_slice(&v, dims).expect("fits")
    };
    let index = HostTensor::from_slice(&[4i64, 0, 1, 1, 2], [5]).expect("fits");
    let x = [wave(&[1, 2, 5, 3, 4]), wave(&[2, 2, 3, 2, 2]), index];
    let pool = Pool::new(1);
    let at_once = all(&HostApply { pool: &pool }, x.clone()).expect("computes");
    let b = Builder::new();
    let inputs = [0, 1, 2].map(|i| b.input(Fact::new(x[i].dtype(), x[i].shape().clone()), None));
    let y = all(&b, inputs).expect("records");
    y.iter().enumerate().for_each(|(i, y)| b.output(*y, &format!("y{i}")));
    let g = b.finish().expect("valid");
    let values = g.evaluate(&x, &[], &pool).expect("computes");
    for (at_once, y) in at_once.iter().zip(&y) {
        assert_eq!(values.get(*y).map(HostTensor::bytes), Some(at_once.bytes()));
    }
}
