//! A tape of layers that writes the training step: forward, backward, updates.

use crate::plan::problem::{Bytes, OpSpec, OutputSpec, Spec, SpillRates};

const FLOPS_PER_NS: f64 = 15_000.0;
const BYTES_PER_NS: f64 = 600.0;
/// Launching a kernel, however small.
const LAUNCH_NS: f64 = 3000.0;
/// Scratch of a convolution that is more than a matrix product.
const CONV_WORKSPACE: u64 = 8 << 20;
const ALIGN: u64 = 256;

/// A tensor on the tape: its name, and channels (or features), height, width of one example.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    name: String,
    pub(super) c: u64,
    pub(super) h: u64,
    pub(super) w: u64,
}

/// How the gradient of a layer is computed.
struct Layer {
    name: String,
    inputs: Vec<Tensor>,
    output: Tensor,
    /// Values that the gradient reads besides `dy`.
    saved: Vec<String>,
    weight: Option<(String, u64)>,
    flops: f64,
    workspace: u64,
    /// The gradient of every input is `dy` itself.
    passes_through: bool,
}

pub(super) struct Tape {
    batch: u64,
    values: Vec<(String, u64)>,
    ops: Vec<OpSpec>,
    layers: Vec<Layer>,
    /// The weight of the next layer that has one, unless that is its own.
    shared: Option<String>,
}

impl Tape {
    pub(super) fn new(batch: u64) -> Tape {
        Tape { batch, values: Vec::new(), ops: Vec::new(), layers: Vec::new(), shared: None }
    }

    pub(super) fn data(&mut self, c: u64, h: u64, w: u64) -> Tensor {
        let x = Tensor { name: "data".into(), c, h, w };
        self.values.push((x.name.clone(), self.bytes(&x)));
        x
    }

    fn bytes(&self, t: &Tensor) -> u64 {
        self.batch * t.c * t.h * t.w * 4
    }

    fn fresh(&self, kind: &str) -> String {
        format!("{kind}{}", self.layers.len())
    }

    fn emit(&mut self, name: &str, inputs: Vec<String>, outputs: Vec<(String, Bytes)>, time_ns: u64, workspace: u64) {
        let outputs = outputs.into_iter().map(|(name, bytes)| OutputSpec { name, bytes }).collect();
        self.ops.push(OpSpec { name: name.into(), time_ns, inputs, outputs, workspace, repeatable: true });
    }

    /// A layer with a weight of `weight` elements (0 for none) that saves its inputs, its output, or neither.
    fn layer(
        &mut self,
        kind: &str,
        inputs: &[&Tensor],
        shape: (u64, u64, u64),
        weight: u64,
        flops: f64,
        save: Save,
    ) -> Tensor {
        let name = self.fresh(kind);
        let y = Tensor { name: format!("{name}.y"), c: shape.0, h: shape.1, w: shape.2 };
        let mut reads: Vec<String> = inputs.iter().map(|t| t.name.clone()).collect();
        let mut moved: u64 = inputs.iter().map(|t| self.bytes(t)).sum::<u64>() + self.bytes(&y);
        let mut saved = match save {
            Save::Inputs => reads.clone(),
            Save::Output => vec![y.name.clone()],
            Save::Nothing => Vec::new(),
        };
        let mut outputs = vec![(y.name.clone(), Bytes::Own(self.bytes(&y)))];
        if kind == "bn" || kind == "ln" {
            let rows = if kind == "bn" { y.c } else { self.batch * y.h * y.w };
            outputs.push((format!("{name}.stats"), Bytes::Own(rows * 8)));
            saved.push(format!("{name}.stats"));
        }
        let weight = (weight > 0).then(|| {
            let w = (self.shared.take().unwrap_or_else(|| format!("{name}.w")), weight * 4);
            if !self.values.contains(&w) {
                self.values.push(w.clone());
            }
            reads.push(w.0.clone());
            moved += w.1;
            w
        });
        let workspace = if kind == "conv" { CONV_WORKSPACE } else { 0 };
        self.emit(&name, reads, outputs, time(flops, moved), workspace);
        let inputs = inputs.iter().map(|&t| t.clone()).collect();
        let layer = Layer { name, inputs, output: y.clone(), saved, weight, flops, workspace, passes_through: false };
        self.layers.push(layer);
        y
    }

    pub(super) fn conv(&mut self, x: &Tensor, c: u64, k: u64, stride: u64, groups: u64) -> Tensor {
        let (h, w) = (x.h.div_ceil(stride), x.w.div_ceil(stride));
        let weight = c * (x.c / groups) * k * k;
        let flops = 2.0 * (self.batch * h * w) as f64 * weight as f64;
        self.layer(if k == 1 { "conv1x1_" } else { "conv" }, &[x], (c, h, w), weight, flops, Save::Inputs)
    }

    /// A matrix product over the channels.
    pub(super) fn linear(&mut self, x: &Tensor, c: u64) -> Tensor {
        let flops = 2.0 * (self.batch * x.h * x.w * x.c * c) as f64;
        self.layer("linear", &[x], (c, x.h, x.w), c * (x.c + 1), flops, Save::Inputs)
    }

    /// The same by a weight that other layers have, too.
    pub(super) fn linear_by(&mut self, weight: &str, x: &Tensor, c: u64) -> Tensor {
        self.shared = Some(weight.to_owned());
        self.linear(x, c)
    }

    /// A part of the channels.
    pub(super) fn slice(&mut self, x: &Tensor, c: u64) -> Tensor {
        self.layer("slice", &[x], (c, x.h, x.w), 0, 0.0, Save::Nothing)
    }

    pub(super) fn mul(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        self.layer("mul", &[a, b], (a.c, a.h, a.w), 0, 0.0, Save::Inputs)
    }

    /// A function whose gradient is one of its result.
    pub(super) fn squash(&mut self, kind: &str, x: &Tensor) -> Tensor {
        self.layer(kind, &[x], (x.c, x.h, x.w), 0, 0.0, Save::Output)
    }

    /// Rows of a table of `rows` x `c`.
    pub(super) fn lookup(&mut self, x: &Tensor, c: u64, rows: u64) -> Tensor {
        self.layer("embedding", &[x], (c, x.h, x.w), c * rows, 0.0, Save::Inputs)
    }

    pub(super) fn norm(&mut self, kind: &str, x: &Tensor) -> Tensor {
        self.layer(kind, &[x], (x.c, x.h, x.w), 2 * x.c, 0.0, Save::Inputs)
    }

    pub(super) fn pointwise(&mut self, kind: &str, x: &Tensor) -> Tensor {
        self.layer(kind, &[x], (x.c, x.h, x.w), 0, 0.0, Save::Inputs)
    }

    /// Over its input, which nothing else may read.
    pub(super) fn relu(&mut self, x: &Tensor) -> Tensor {
        let name = self.fresh("relu");
        let y = Tensor { name: format!("{name}.y"), ..x.clone() };
        let time_ns = time(0.0, 2 * self.bytes(x));
        self.emit(&name, vec![x.name.clone()], vec![(y.name.clone(), Bytes::Writes(x.name.clone()))], time_ns, 0);
        self.push(name, &[x], &y, vec![y.name.clone()], false);
        y
    }

    pub(super) fn softmax(&mut self, x: &Tensor) -> Tensor {
        self.layer("softmax", &[x], (x.c, x.h, x.w), 0, 0.0, Save::Output)
    }

    /// A product of two tensors of this many operations.
    pub(super) fn product(&mut self, a: &Tensor, b: &Tensor, shape: (u64, u64, u64), flops: f64) -> Tensor {
        self.layer("matmul", &[a, b], shape, 0, flops * self.batch as f64, Save::Inputs)
    }

    pub(super) fn resize(&mut self, kind: &str, x: &Tensor, h: u64, w: u64) -> Tensor {
        let save = if kind == "maxpool" { Save::Inputs } else { Save::Nothing };
        self.layer(kind, &[x], (x.c, h, w), 0, 0.0, save)
    }

    pub(super) fn concat(&mut self, parts: &[&Tensor]) -> Tensor {
        let c = parts.iter().map(|t| t.c).sum();
        self.layer("concat", parts, (c, parts[0].h, parts[0].w), 0, 0.0, Save::Nothing)
    }

    pub(super) fn add(&mut self, a: &Tensor, b: &Tensor) -> Tensor {
        let y = self.layer("add", &[a, b], (a.c, a.h, a.w), 0, 0.0, Save::Nothing);
        self.layers.last_mut().expect("just pushed").passes_through = true;
        y
    }

    /// The same bytes under another shape.
    pub(super) fn view(&mut self, x: &Tensor, shape: (u64, u64, u64)) -> Tensor {
        let name = self.fresh("view");
        let y = Tensor { name: format!("{name}.y"), c: shape.0, h: shape.1, w: shape.2 };
        self.emit(&name, vec![x.name.clone()], vec![(y.name.clone(), Bytes::AliasOf(x.name.clone()))], 0, 0);
        self.push(name, &[x], &y, Vec::new(), true);
        y
    }

    fn push(&mut self, name: String, inputs: &[&Tensor], y: &Tensor, saved: Vec<String>, passes_through: bool) {
        let inputs = inputs.iter().map(|&t| t.clone()).collect();
        let output = y.clone();
        self.layers.push(Layer { name, inputs, output, saved, weight: None, flops: 0.0, workspace: 0, passes_through });
    }

    /// Loss, backward pass, one update for each weight.
    pub(super) fn finish(mut self, logits: &Tensor) -> Spec {
        let labels = ("labels".to_string(), self.batch * logits.h * logits.w * 8);
        self.values.push(labels.clone());
        let bytes = self.bytes(logits);
        let grad = "loss.dx".to_string();
        let outputs = vec![("loss".to_string(), Bytes::Own(4)), (grad.clone(), Bytes::Own(bytes))];
        self.emit("loss", vec![logits.name.clone(), labels.0], outputs, time(0.0, 3 * bytes), 0);
        let mut grads = vec![(logits.name.clone(), grad)];
        let mut updates = Vec::new();
        let layers = std::mem::take(&mut self.layers);
        for layer in layers.iter().rev() {
            let at = grads.iter().position(|(of, _)| *of == layer.output.name).expect("every layer reaches the loss");
            let dy = grads.swap_remove(at).1;
            self.backward(layer, &dy, &mut grads, &mut updates);
        }
        let mut outputs = vec!["loss".to_string()];
        for (w, dw, bytes) in updates {
            let new = format!("{w}.new");
            let write = vec![(new.clone(), Bytes::Writes(w.clone()))];
            self.emit(&format!("{w}.update"), vec![w, dw], write, time(0.0, 3 * bytes), 0);
            self.ops.last_mut().expect("just emitted").repeatable = false;
            outputs.push(new);
        }
        Spec { align: ALIGN, values: self.values, ops: self.ops, outputs, spill: SpillRates::default() }
    }

    fn backward(
        &mut self,
        l: &Layer,
        dy: &str,
        grads: &mut Vec<(String, String)>,
        updates: &mut Vec<(String, String, u64)>,
    ) {
        let moved = 2 * self.bytes(&l.output) + l.inputs.iter().map(|t| self.bytes(t)).sum::<u64>();
        if let Some((w, bytes)) = &l.weight {
            let dw = format!("{}.dw", l.name);
            let mut reads = vec![dy.to_owned()];
            reads.extend(l.saved.iter().cloned());
            let own = vec![(dw.clone(), Bytes::Own(*bytes))];
            self.emit(&format!("{}.wgrad", l.name), reads, own, time(l.flops, moved + bytes), l.workspace);
            match updates.iter().position(|u| u.0 == *w) {
                None => updates.push((w.clone(), dw, *bytes)),
                Some(at) => {
                    let sum = format!("{}.dw.sum", l.name);
                    let reads = vec![std::mem::replace(&mut updates[at].1, sum.clone()), dw];
                    let own = vec![(sum, Bytes::Own(*bytes))];
                    self.emit(&format!("{}.dw.add", l.name), reads, own, time(0.0, 3 * bytes), 0);
                }
            }
        }
        // A linear layer's data gradient reads the weight, not the input.
        let is_linear = l.weight.is_some() && l.flops > 0.0;
        for (i, x) in l.inputs.iter().enumerate().filter(|(_, x)| x.name != "data") {
            let dx = if l.passes_through {
                dy.to_owned()
            } else {
                let dx = format!("{}.dx{i}", l.name);
                let mut reads = vec![dy.to_owned()];
                match (&l.weight, is_linear) {
                    (Some((w, _)), true) => reads.push(w.clone()),
                    _ => reads.extend(l.saved.iter().cloned()),
                }
                let bytes = self.bytes(x);
                let outputs = vec![(dx.clone(), Bytes::Own(bytes))];
                self.emit(&format!("{}.dgrad{i}", l.name), reads, outputs, time(l.flops, moved), l.workspace);
                dx
            };
            self.accumulate(x, dx, grads);
        }
    }

    fn accumulate(&mut self, x: &Tensor, dx: String, grads: &mut Vec<(String, String)>) {
        let Some(at) = grads.iter().position(|(of, _)| *of == x.name) else {
            grads.push((x.name.clone(), dx));
            return;
        };
        let sum = format!("{}.sum{}", x.name, self.ops.len());
        let bytes = self.bytes(x);
        let inputs = vec![grads[at].1.clone(), dx];
        self.emit(&format!("{sum}.add"), inputs, vec![(sum.clone(), Bytes::Own(bytes))], time(0.0, 3 * bytes), 0);
        grads[at].1 = sum;
    }
}

#[derive(Clone, Copy)]
enum Save {
    Inputs,
    Output,
    Nothing,
}

fn time(flops: f64, bytes: u64) -> u64 {
    (LAUNCH_NS + (flops / FLOPS_PER_NS).max(bytes as f64 / BYTES_PER_NS)) as u64
}
