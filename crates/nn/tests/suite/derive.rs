//! The fields that `#[derive(Module)]` visits, and their names.

use remat_nn::{BatchNorm2d, Dropout, InitCx, Layer, Linear, Module, Parameter, Relu, Sequential};
use remat_tensor::Tensor;
use remat_types::Result;

use crate::support::cpu;

#[derive(Module)]
#[module(crate = remat_nn)]
struct Block<T, const N: usize> {
    first: T,
    rest: Vec<T>,
    extra: Option<T>,
    none: Option<T>,
    pair: (T, T),
    array: [T; N],
    boxed: Box<T>,
    size: usize,
    #[module(rename = "other")]
    renamed: T,
    #[module(flatten)]
    flat: Pair,
    #[module(skip)]
    _skipped: std::sync::OnceLock<()>,
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Pair(Parameter, Parameter);

#[derive(Module)]
#[module(crate = remat_nn)]
enum Either {
    Dense(Linear),
    Named { inner: Parameter },
    Nothing,
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Nested {
    next: Option<Box<Nested>>,
    own: Parameter,
}

fn parameter(cx: &mut InitCx) -> Parameter {
    cx.parameter([1], remat_nn::Init::Zeros).expect("fits")
}

/// A traversal written by hand.
struct Shared<T>(T);
impl<T: remat_nn::Visit> remat_nn::Visit for Shared<T> {
    fn visit(&self, at: &mut remat_nn::Walk<'_>) {
        at.field("shared", &self.0);
    }
}

fn names<M: Module>(m: &M) -> Vec<String> {
    m.named_parameters().into_iter().map(|(n, _)| n).collect()
}

#[test]
fn every_kind_of_field_is_visited_under_its_name() {
    let cx = &mut InitCx::new(&cpu(), 1);
    let mut p = || parameter(cx);
    let b = Block::<Parameter, 2> {
        first: p(),
        rest: vec![p(), p()],
        extra: Some(p()),
        none: None,
        pair: (p(), p()),
        array: [p(), p()],
        boxed: Box::new(p()),
        size: 3,
        renamed: p(),
        flat: Pair(p(), p()),
        _skipped: std::sync::OnceLock::new(),
    };
    let want =
        ["first", "rest.0", "rest.1", "extra", "pair.0", "pair.1", "array.0", "array.1", "boxed", "other", "0", "1"];
    assert_eq!(names(&b), want);
    assert!(b.size == 3 && b.none.is_none());
}

#[derive(Default)]
struct Names(Vec<String>);
impl remat_nn::Visitor for Names {
    fn parameter(&mut self, name: &str, _p: &Parameter) {
        self.0.push(name.to_owned());
    }
}

#[test]
fn of_an_enum_the_present_variant_is_visited() {
    let cx = &mut InitCx::new(&cpu(), 1);
    assert_eq!(names(&Either::Dense(Linear::new(cx, 2, 3).expect("fits"))), ["0.weight", "0.bias"]);
    assert_eq!(names(&Either::Named { inner: parameter(cx) }), ["inner"]);
    assert!(names(&Either::Nothing).is_empty());
}

#[test]
fn modules_may_nest_in_themselves_and_share_parameters() {
    let cx = &mut InitCx::new(&cpu(), 1);
    let shared = parameter(cx);
    let inner = Nested { next: None, own: shared.clone() };
    let outer = Nested { next: Some(Box::new(inner)), own: shared };
    assert_eq!(names(&outer), ["next.own"], "a shared parameter is listed once");
    assert_eq!(outer.parameter_count(), 1);
}

#[test]
fn a_visit_written_by_hand_joins_in() {
    let cx = &mut InitCx::new(&cpu(), 1);
    let mut seen = Names::default();
    remat_nn::Visit::visit(&vec![Shared(parameter(cx))], &mut remat_nn::Walk::new(&mut seen, "root"));
    assert_eq!(seen.0, ["root.0.shared"]);
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Net {
    norm: BatchNorm2d,
    head: Sequential,
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.norm.forward(x)?.flatten_from(1)?)
    }
}

fn net(cx: &mut InitCx) -> Result<Net> {
    let norm = BatchNorm2d::new(cx, 2)?;
    let head = Sequential::new().then(Linear::new(cx, 8, 3)?).then(Relu).then(Dropout::new(0.5, &mut cx.rng)?);
    Ok(Net { norm, head })
}

#[test]
fn a_network_names_counts_and_switches_its_parts() {
    let d = cpu();
    let net = net(&mut InitCx::new(&d, 1)).expect("fits");
    assert_eq!(names(&net), ["norm.weight", "norm.bias", "head.0.weight", "head.0.bias"]);
    let buffers: Vec<String> = net.named_buffers().into_iter().map(|(n, _)| n).collect();
    assert_eq!(buffers, ["norm.running_mean", "norm.running_var"]);
    assert_eq!(net.parameter_count(), 2 + 2 + 24 + 3);
    assert_eq!(net.rng_states().keys().collect::<Vec<_>>(), ["head.2.rng"]);
    let x = Tensor::ones(&d, [1, 2, 2, 2], remat_types::DType::F32).expect("fits");
    net.eval();
    let a = net.forward(&x).expect("forward").to_host().expect("value");
    assert_eq!(a, net.forward(&x).expect("forward").to_host().expect("value"), "evaluation draws nothing");
    assert_eq!(net.rng_states()["head.2.rng"].counter(), 0);
    net.train();
    net.forward(&x).expect("forward");
    assert_eq!(net.rng_states()["head.2.rng"].counter(), 1);
}

#[test]
fn named_scopes_reach_the_trace() {
    let d = cpu();
    let net = net(&mut InitCx::new(&d, 1)).expect("fits");
    net.name_scopes("net");
    let channel = d.channel();
    channel.start_trace().expect("open");
    let x = Tensor::ones(&d, [1, 2, 2, 2], remat_types::DType::F32).expect("fits");
    net.forward(&x).expect("forward").to_host().expect("value");
    let trace = format!("{:?}", channel.stop_trace().expect("open"));
    for scope in ["net.norm", "net.head.0", "relu", "net.head.2"] {
        assert!(trace.contains(&format!("{scope:?}")), "{scope} is not in the trace");
    }
}
