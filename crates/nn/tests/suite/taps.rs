//! Taps around a layer within a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use remat_nn::{AdaptiveAvgPool2d, ConvNorm, InitCx, Label, Layer, Linear, Module, Tap, Tapped, Visit, Visitor, Walk};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, no_grad};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::support::cpu;

/// Counts calls, and lets the layer read and give something else.
struct Around {
    calls: Arc<AtomicUsize>,
    /// Added to what the layer reads.
    before: f64,
    /// The result, if the layer is not to compute.
    instead: Option<Linear>,
    /// Added to what the layer gives.
    after: f64,
}

impl Tap for Around {
    fn before(&self, x: &Tensor) -> Result<Tapped> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(match &self.instead {
            Some(layer) => Tapped::Output(layer.forward(x)?),
            None => Tapped::Input(x.add(self.before)?),
        })
    }

    fn after(&self, x: &Tensor, y: Tensor) -> Result<Tensor> {
        assert!(x.rank() > 0);
        y.add(self.after)
    }
}

/// Puts a tap around the part of a name; none takes it out. False if there is no such part that takes one.
fn put(net: &dyn Module, name: &str, tap: Option<Around>) -> bool {
    struct Put<'n>(&'n str, Option<Arc<dyn Tap>>, bool);
    impl Visitor for Put<'_> {
        fn label(&mut self, name: &str, l: &Label) {
            if name == self.0 && l.takes_tap() {
                l.set_tap(self.1.clone()).expect("it takes one");
                self.2 = true;
            }
        }
    }
    let mut put = Put(name, tap.map(|t| Arc::new(t) as Arc<dyn Tap>), false);
    net.visit(&mut Walk::new(&mut put, ""));
    put.2
}

/// `relu(conv(x) + skip(x))`.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Block {
    #[module(flatten)]
    label: Label,
    conv: ConvNorm,
    skip: Option<ConvNorm>,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.label.around(x, |x| {
            let y = self.conv.forward(x)?;
            match &self.skip {
                Some(skip) => (y + skip.forward(x)?)?.relu(),
                None => (y + x)?.relu(),
            }
        })
    }
}

/// Layers of layers, in fields and in a list.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Net {
    stem: ConvNorm,
    blocks: Vec<Block>,
    head: Linear,
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.blocks.iter().try_fold(self.stem.forward(x)?, |y, block| block.forward(&y))?;
        self.head.forward(&AdaptiveAvgPool2d::new(1).forward(&y)?.flatten_from(1)?)
    }
}

fn net(d: &Device) -> Net {
    let cx = &mut InitCx::new(d, 1);
    let mut conv = |inputs, outputs| ConvNorm::new(cx, inputs, outputs, 3, 1).expect("fits");
    let stem = conv(3, 8);
    let blocks = vec![
        Block { label: Label::of_layer("block"), conv: conv(8, 8), skip: None },
        Block { label: Label::of_layer("block"), conv: conv(8, 16), skip: Some(conv(8, 16)) },
    ];
    let net = Net { stem, blocks, head: Linear::new(cx, 16, 4).expect("fits") };
    net.eval();
    net
}

fn output(net: &Net, x: &Tensor) -> HostTensor {
    let _quiet = no_grad();
    net.forward(x).and_then(|y| y.to_host()).expect("fits")
}

#[test]
fn a_tap_is_called_and_changes_what_a_layer_reads_and_gives() {
    let d = cpu();
    let (net, calls) = (net(&d), Arc::new(AtomicUsize::new(0)));
    let x = Tensor::ones(&d, [1, 3, 16, 16], remat_types::DType::F32).expect("fits");
    let plain = output(&net, &x);
    let around = |before, after| Around { calls: calls.clone(), before, instead: None, after };
    for name in ["stem", "stem.conv", "stem.norm", "blocks.0", "blocks.1.skip", "head"] {
        calls.store(0, Ordering::Relaxed);
        assert!(put(&net, name, Some(around(0.0, 0.0))), "{name}");
        assert_eq!(output(&net, &x), plain, "{name}");
        assert_eq!(calls.load(Ordering::Relaxed), 1, "{name}");
        assert!(put(&net, name, Some(around(1.0, 0.0))));
        assert_ne!(output(&net, &x), plain, "{name}: its input");
        assert!(put(&net, name, Some(around(0.0, 1.0))));
        assert_ne!(output(&net, &x), plain, "{name}: its output");
        assert!(put(&net, name, None));
        assert_eq!(output(&net, &x), plain, "{name}: without");
    }
    assert!(!put(&net, "blocks", Some(around(0.0, 0.0))), "a list is no layer");
}

#[test]
fn another_layer_computes_in_the_place_of_one() {
    let d = cpu();
    let net = net(&d);
    let x = Tensor::ones(&d, [2, 3, 16, 16], remat_types::DType::F32).expect("fits");
    let other = Linear::new(&mut InitCx::new(&d, 2), 16, 7).expect("fits");
    let weight = other.weight.clone();
    let tap = Around { calls: Arc::default(), before: 0.0, instead: Some(other), after: 0.0 };
    assert!(put(&net, "head", Some(tap)));
    let y = net.forward(&x).expect("fits");
    assert_eq!(y.dims(), [2, 7]);
    y.sum().and_then(|y| y.backward()).expect("differentiable");
    assert!(weight.grad().is_some(), "it trains");
}

#[test]
fn a_label_of_what_is_no_layer_takes_no_tap() {
    let tap = Around { calls: Arc::default(), before: 0.0, instead: None, after: 0.0 };
    let e = Label::new("attention").set_tap(Some(Arc::new(tap))).expect_err("no layer of one tensor");
    assert_eq!(e.kind(), ErrorKind::Value);
}

#[test]
fn a_visit_leaves_out_what_something_else_stands_for() {
    #[derive(Default)]
    struct Names(Vec<String>);
    impl Visitor for Names {
        fn parameter(&mut self, name: &str, _: &remat_nn::Parameter) {
            self.0.push(name.to_owned());
        }
    }
    struct Without<'n>(&'n Net, Vec<String>);
    impl Visit for Without<'_> {
        fn visit(&self, at: &mut Walk<'_>) {
            at.visit_without(self.0, &self.1);
        }
    }
    let d = Device::dry(DeviceOptions::default()).expect("opens");
    let net = net(&d);
    let names = |left_out: &[&str], root: &str| {
        let mut all = Names::default();
        let without = Without(&net, left_out.iter().map(|&n| n.to_owned()).collect());
        if root.is_empty() {
            without.visit(&mut Walk::new(&mut all, ""));
        } else {
            Walk::new(&mut all, "").field(root, &without);
        }
        all.0
    };
    let all: Vec<String> = net.named_state().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names(&[], ""), all);
    let left: Vec<String> =
        all.iter().filter(|n| !n.starts_with("head.") && !n.starts_with("stem.norm.")).cloned().collect();
    assert!(left.len() == all.len() - 2 - 4 && names(&["head", "stem.norm"], "") == left);
    let rooted: Vec<String> = left.iter().map(|n| format!("net.{n}")).collect();
    assert_eq!(names(&["head", "stem.norm"], "net"), rooted);
    assert_eq!(names(&["hea"], ""), all, "a name is whole");
}
