use remat_graph::ir::Graph;
use remat_ops::pointwise::UnaryFn;
use remat_ops::testing::{check_entry, each_sample};
use remat_types::DType;

use super::samples::Make;
use super::*;

const OWN: [&str; 3] = ["call", "switch", "loop"];

#[test]
fn ops_that_own_graphs_pass_every_check_on_every_sample() {
    let all = registry();
    let failures: Vec<String> =
        OWN.iter().flat_map(|name| check_entry(all.entry(name).expect("registered"))).map(|f| f.to_string()).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn graphs_within_graphs_survive_text_and_file() {
    let mut seen = 0;
    each_sample(&registry(), |entry, i, s| {
        let facts: Vec<remat_types::Fact> = s.x.iter().map(remat_types::Fact::of).collect();
        let fits = s.op.infer(&facts.iter().collect::<Vec<_>>()).is_ok();
        if !OWN.contains(&entry.name) || !fits {
            return;
        }
        let b = remat_graph::ir::Builder::new();
        let x: Vec<_> = facts.iter().map(|f| b.input(f.clone(), None)).collect();
        let y = b.node(s.op.clone(), &x, None).expect("fits");
        y.iter().enumerate().for_each(|(j, v)| b.output(*v, &format!("y{j}")));
        let g = b.finish().expect("valid");
        let text = g.to_text().expect("serialises");
        let again = Graph::parse(&text, &registry()).expect("parses");
        assert_eq!(again.to_text().expect("serialises"), text, "{} sample {i}", entry.name);
        let file = Graph::from_bytes(&g.to_bytes().expect("serialises"), &registry()).expect("reads");
        assert_eq!(file.to_text().expect("serialises"), text, "{} sample {i}", entry.name);
        seen += 1;
    });
    assert!(seen > 10, "{seen} samples");
}

/// A loop over rows within a choice within a call, on batches of `b` rows in `t` steps; a body that fixes a shape.
fn nested(t: usize, b: usize, fixed: Option<usize>) -> Graph {
    use remat_ops::pointwise::BinaryFn;
    use remat_ops::shape::BroadcastTo;
    let f = DType::F64;
    let (m, rows) = (Make::new(), [t, b, 3]);
    m.input(DType::I64, &[]);
    let (c, x) = (m.input(f, &[b, 3]), m.input(f, &[b, 3]));
    let y = m.un(UnaryFn::Tanh, m.bin(BinaryFn::Add, c, x));
    let y = match fixed {
        Some(n) => m.bin(BinaryFn::Add, y, m.op(BroadcastTo { shape: [n, 3].into() }, &[m.constant(1.0f64)])),
        None => y,
    };
    let body = m.body(&[y, y]);
    let steps = Loop { body, trips: t, carried: 1, sliced: 1, reverse: false, counted: false, conditional: false };
    let m = Make::new();
    let (c, x) = (m.input(f, &[b, 3]), m.input(f, &rows));
    let y = m.0.node(steps.into(), &[c, x], None).expect("fits");
    let looped = m.body(&y);
    let m = Make::new();
    let (c, x) = (m.input(f, &[b, 3]), m.input(f, &rows));
    let y = [m.un(UnaryFn::Neg, c), m.un(UnaryFn::Exp, x)];
    let other = m.body(&y);
    let m = Make::new();
    let (p, c, x) = (m.input(DType::Bool, &[]), m.input(f, &[b, 3]), m.input(f, &rows));
    let y = m.0.node(Switch { branches: vec![other, looped] }.into(), &[p, c, x], None).expect("fits");
    let body = m.body(&y);
    let m = Make::new();
    let x = [m.input(DType::Bool, &[]), m.input(f, &[b, 3]), m.input(f, &rows)];
    let y = m.0.node(Call { body }.into(), &x, None).expect("fits");
    m.graph(&y)
}

#[test]
fn graphs_within_graphs_follow_another_batch() {
    let facts = |g: &Graph| -> Vec<remat_types::Fact> { g.inputs().iter().map(|v| g.fact(*v).clone()).collect() };
    for (t, b) in [(5, 7), (2, 7), (5, 4), (1, 1)] {
        let want = nested(t, b, None);
        let got = nested(2, 4, None).with_inputs(&facts(&want)).expect("follows");
        assert_eq!(got.to_text().expect("text"), want.to_text().expect("text"), "{t} steps of {b}");
    }
    // a body that fixes a shape keeps it, and says so
    let e = nested(2, 4, Some(4)).with_inputs(&facts(&nested(2, 7, None))).expect_err("fixed");
    assert!(e.to_string().contains("a graph within a graph at another size"), "{e}");
    assert!(nested(2, 4, Some(4)).with_inputs(&facts(&nested(9, 4, None))).is_ok());
}

#[test]
fn a_body_that_is_no_graph_is_an_error_and_no_panic() {
    let call = |body: serde_json::Value| {
        registry().load(&serde_json::json!({ "op": "call", "v": 1, "params": { "body": body } }))
    };
    let good = super::samples::calls().remove(0).op.body;
    let good = serde_json::to_value(&good).expect("serialises");
    assert!(call(good.clone()).is_ok());
    for bad in [serde_json::json!([]), serde_json::json!(["remat.graph 1", "output y = %9"]), serde_json::json!(3)] {
        assert!(call(bad.clone()).is_err(), "{bad}");
    }
    let mut lines = good.as_array().expect("lines").clone();
    lines.push("state s: f64[]".into());
    let e = call(lines.into()).expect_err("a state");
    assert!(e.to_string().contains("states"), "{e}");
}

#[test]
fn the_workspace_is_the_plan_of_the_body_and_two_sets_of_what_is_carried() {
    let m = Make::new();
    m.input(DType::I64, &[]);
    let s = m.input(DType::F64, &[1000]);
    // two temporaries that do not live at once take one place
    let y = m.un(UnaryFn::Exp, m.un(UnaryFn::Tanh, m.un(UnaryFn::Sin, s)));
    let op = Loop {
        body: m.body(&[y]),
        trips: 7,
        carried: 1,
        sliced: 0,
        reverse: false,
        counted: false,
        conditional: false,
    };
    let inner = op.body.program(1).expect("builds").workspace_bytes;
    let set = remat_device::Alignment::HOST.pad(8000);
    assert_eq!(remat_ops::Op::workspace(&op, &[], 1), remat_device::Alignment::HOST.pad(inner) + 64 + 2 * set);
    assert!(inner <= 2 * set, "{inner}");
}

/// A choice within other work. One branch of the outer choice `outer` is a choice by a constant.
fn choosing(outer: Option<i64>) -> Graph {
    use remat_graph::ir::Builder;
    use remat_ops::pointwise::BinaryFn;
    let (f, facts) = (DType::F64, [2usize, 3]);
    let scaled = |f2: BinaryFn| {
        let m = Make::new();
        let (a, b) = (m.input(f, &facts), m.input(f, &facts));
        let y = m.bin(BinaryFn::Mul, m.bin(f2, a, b), m.constant(0.5f64));
        m.body(&[y, a])
    };
    let m = Make::new();
    let (a, b) = (m.input(f, &facts), m.input(f, &facts));
    let inner = Switch { branches: vec![scaled(BinaryFn::Add), scaled(BinaryFn::Sub)] };
    let y = m.0.node(inner.into(), &[m.constant(1i64), b, a], None).expect("fits");
    let negative = m.un(UnaryFn::Neg, y[0]);
    let within = m.body(&[negative, b]);
    let b = Builder::raw();
    let x: Vec<_> = (0..2).map(|_| b.input(remat_types::Fact::new(f, facts), None)).collect();
    let choice = match outer {
        Some(n) => b.constant(&remat_types::HostTensor::scalar(n)),
        None => b.input(remat_types::Fact::new(DType::I64, []), None),
    };
    let m = Make(b);
    let (p, q) = (m.un(UnaryFn::Tanh, x[0]), m.un(UnaryFn::Exp, x[1]));
    let branches = vec![within, scaled(BinaryFn::Mul)];
    let y = m.0.node(Switch { branches }.into(), &[choice, p, q], None).expect("fits");
    let difference = m.bin(BinaryFn::Sub, y[0], y[1]);
    m.graph(&[difference])
}

#[test]
fn a_choice_that_a_constant_makes_is_its_branch() {
    use remat_graph::passes::cpu::Cpu;
    use remat_graph::passes::{PassCx, PassOptions, optimize, verify};
    let pool = remat_kernels::pool::Pool::new(1);
    let wave = |k: usize| (0..6).map(|i| ((i + k) as f64 * 1.3).sin()).collect::<Vec<f64>>();
    let x: Vec<_> = (0..2).map(|k| remat_types::HostTensor::from_slice(&wave(k), [2, 3]).expect("fits")).collect();
    for level in [1, 2] {
        let options = PassOptions { level, ..PassOptions::default() };
        let cx = PassCx { options: &options, target: &Cpu, pool: &pool };
        for n in 0..2 {
            let g = choosing(Some(n));
            assert_eq!(verify(&g, &x, &[], &cx).expect("computes"), None, "branch {n}, level {level}");
            let after = optimize(g.clone(), &cx).expect("patches fit").0;
            let left = after.nodes().iter().filter(|n| n.op.downcast::<Switch>().is_some()).count();
            assert_eq!((left, after.nodes().len() > 1), (0, level == 1), "the nodes are among the others, and fuse");
        }
        // an op that fails at run time still fails then, and an unknown choice stays
        for outer in [Some(2), Some(-1), None] {
            let after = optimize(choosing(outer), &cx).expect("patches fit").0;
            assert!(after.nodes().iter().any(|n| n.op.downcast::<Switch>().is_some()), "{outer:?}");
        }
    }
}

#[test]
fn what_an_op_runs_is_part_of_the_program_of_its_graph() {
    use crate::{Executable, Session};
    use remat_device::program::Flow;
    use std::sync::Arc;
    let graph = Arc::new(choosing(None));
    let executable = || Executable::new(graph.clone(), 1).expect("builds");
    let program = executable().into_program();
    let flows: Vec<&Flow> = program.steps.iter().filter_map(|s| s.flow.as_ref()).collect();
    let [Flow::Switch(branches)] = flows[..] else { panic!("one step that chooses: {flows:?}") };
    let within = |k: usize| branches[k].steps.iter().filter(|s| matches!(s.flow, Some(Flow::Switch(_)))).count();
    assert_eq!((branches.len(), within(0), within(1)), (2, 1, 0), "a choice within a branch, too");
    let mut s = Session::new(Arc::new(executable())).expect("memory");
    let wave = |k: usize| (0..6).map(|i| ((i + k) as f64 * 1.3).sin()).collect::<Vec<f64>>();
    for n in 0..2i64 {
        let mut x: Vec<_> =
            (0..2).map(|k| remat_types::HostTensor::from_slice(&wave(k), [2, 3]).expect("fits")).collect();
        x.push(remat_types::HostTensor::scalar(n));
        let wanted = graph.evaluate(&x, &[], &remat_kernels::pool::Pool::new(1)).expect("computes");
        x.iter().enumerate().for_each(|(i, x)| s.set_input(i, x).expect("fits"));
        s.run().expect("runs");
        let wanted = wanted.get(graph.outputs()[0].value).expect("computed");
        assert_eq!(s.output(0).expect("there").bytes, wanted.bytes(), "branch {n}");
    }
    s.set_input(2, &remat_types::HostTensor::scalar(2i64)).expect("fits");
    let e = s.run().expect_err("there is no third branch");
    assert_eq!((e.kind(), e.op()), (remat_types::ErrorKind::Index, Some("switch")));
}
