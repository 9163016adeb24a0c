//! Every sample of every op: exported, imported and run, the results are those of the op.
//!
//! Named as the target of `crates/ops` that tests samples, and built with it: `cargo test --workspace --test samples`.

use std::collections::BTreeSet;

use remat_graph::ir::{Builder, Graph};
use remat_kernels::pool::Pool;
use remat_onnx::Model;
use remat_onnx::export::{ExportOptions, NEWEST_OPSET, OLDEST_OPSET, export, why_left_out};
use remat_ops::testing::{difference, each_sample, ulp_distance};
use remat_ops::{Entry, Expect, OpRef, Sample, Tolerance, eval_on_host};
use remat_runtime::Device;
use remat_runtime::control_flow::registry;
use remat_tensor::Tensor;
use remat_types::{Fact, HostTensor, Result};

/// Forms of ops that are not written, although the ops are: a part of the reason, and the labels of the functions, or of the op,
/// to which it applies.
const LEFT_OUT_FORMS: &[(&str, &[&str])] = &[
    (
        "the standard has no such function, and none that it is composed of",
        &[
            "digamma",
            "erfcinv",
            "erfinv",
            "gammainc",
            "gammaincc",
            "i0",
            "i0e",
            "i1",
            "i1e",
            "j0",
            "j1",
            "lgamma",
            "zeta",
        ],
    ),
    (
        "a gradient; an exported model is for inference",
        &[
            "abs_grad",
            "acosh_grad",
            "asin_grad",
            "asinh_grad",
            "atan_grad",
            "atanh_grad",
            "bce_prob_slope",
            "bce_slope",
            "elu_slope",
            "erf_grad",
            "erfinv_grad",
            "expm1_grad",
            "gamma_log_slope",
            "gamma_slope",
            "gelu_grad",
            "gelu_tanh_grad",
            "hsigmoid_grad",
            "hswish_grad",
            "huber_slope",
            "log1p_grad",
            "logsigmoid_grad",
            "max_share",
            "min_share",
            "mish_grad",
            "pow_slope_a",
            "pow_slope_b",
            "prelu_slope",
            "recip_grad",
            "relu6_grad",
            "relu_grad",
            "rsqrt_grad",
            "sigmoid_grad",
            "silu_grad",
            "softplus_grad",
            "softsign_grad",
            "sqrt_grad",
            "square_grad",
            "tan_grad",
            "tanh_grad",
        ],
    ),
    ("derivatives of an image", &["sample_points"]),
    ("dropout; call `eval`", &["attention"]),
    ("statistics of a batch; call `eval`", &["batch_norm"]),
    ("gates that a gradient reads", &["recurrent"]),
];

/// As [`LEFT_OUT_FORMS`], in the oldest version alone.
const NEWER_FORMS: &[(&str, &[&str])] = &[
    ("for which it is padded since version 19", &["sample_points"]),
    ("points in volumes, which the standard has since version 20", &["sample_points"]),
];

/// Ops whose result is rounded otherwise when it is imported, and why; of all others it has the same bits.
#[rustfmt::skip]
const ROUNDED: &[(&str, Tolerance, &str)] = &[
    ("attention", Tolerance::Float, "products and a softmax, and the logarithm of their sum"),
    ("avg_pool2d", Tolerance::Ulp(4), "means of windows that differ in size are products, those of all places a reduction"),
    ("bce", Tolerance::Ulp(1), "the sign of zeros"),
    ("cross_entropy", Tolerance::Float, "the sign of zeros, and sums of logarithms where labels are smoothed"),
    ("erfc", Tolerance::Float, "one less the error function, which cancels in the tail"),
    ("expm1", Tolerance::Ulp(4), "by the hyperbolic tangent"),
    ("fft", Tolerance::Float, "another order of the sum"),
    ("gelu", Tolerance::Ulp(4), "before version 20 by the error function"),
    ("irfft", Tolerance::Float, "a transform of all numbers"),
    ("log1p", Tolerance::Ulp(4), "by the inverse of the hyperbolic tangent"),
    ("logcumsumexp", Tolerance::Ulp(4), "one term after the other"),
    ("recurrent", Tolerance::Float, "an LSTM with a projection is written step by step"),
    ("resample", Tolerance::Float, "weights that no mode of the standard has are a product"),
    ("rms_norm", Tolerance::Ulp(4), "before version 23 a quotient"),
    ("sample_points", Tolerance::Loose(2e-4, "places in f32 from -1 to 1"), "points are scaled to the standard's range and back"),
];

/// The results of a graph after it was exported and imported.
fn imported(device: &Device, g: &Graph, options: &ExportOptions, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
    let network = Model::from_bytes(export(g, options)?.to_bytes()?)?.on(device)?;
    let x = x.iter().map(|h| Tensor::from_host(device, h)).collect::<Result<Vec<_>>>()?;
    network.call(&x)?.iter().map(Tensor::to_host).collect()
}

fn graph(s: &Sample<OpRef>) -> Graph {
    let b = Builder::raw();
    let x: Vec<_> = s.x.iter().map(|t| b.input(Fact::new(t.dtype(), t.shape().clone()), None)).collect();
    let y = b.node(s.op.clone(), &x, None).expect("the op takes its sample");
    y.iter().enumerate().for_each(|(j, v)| b.output(*v, &format!("y{j}")));
    b.finish().expect("a graph")
}

/// How far results are from those of the op, or why there are none.
fn outcome(device: &Device, s: &Sample<OpRef>, opset: i64, tolerance: Tolerance) -> std::result::Result<(), String> {
    let Ok(want) = eval_on_host(&*s.op, &s.x, &Pool::new(1)) else { return Ok(()) };
    let got = imported(device, &graph(s), &ExportOptions { opset, ..Default::default() }, &s.x);
    let got = got.map_err(|e| e.to_string())?;
    assert_eq!(got.len(), want.len());
    for (j, (g, w)) in got.iter().zip(&want).enumerate() {
        if let Some(text) = difference(g, w, tolerance) {
            let far = g.to_f64_vec().into_iter().zip(w.to_f64_vec()).map(|(g, w)| ulp_distance(g, w, want[j].dtype()));
            return Err(format!("output {j} {text}; {} ulp", far.max().unwrap_or(0)));
        }
    }
    Ok(())
}

fn tolerance_of(label: &str) -> Tolerance {
    ROUNDED.iter().find(|r| r.0 == label).map_or(Tolerance::Exact, |r| r.1)
}

fn check(opset: i64, forms: &[&(&str, &[&str])]) {
    let device = Device::cpu(Default::default()).expect("a device");
    let (mut failures, mut seen, mut compared) = (Vec::new(), BTreeSet::new(), 0);
    each_sample(&registry(), |entry: &Entry, i, s| {
        if matches!(s.expect, Expect::Error(_)) || why_left_out(entry.name).is_some() {
            return;
        }
        let label = s.op.label();
        match outcome(&device, s, opset, tolerance_of(label)) {
            Ok(()) => compared += 1,
            Err(text) => match forms.iter().find(|(why, labels)| labels.contains(&label) && text.contains(why)) {
                Some((why, _)) => drop(seen.insert((*why, label))),
                None => failures.push(format!("{} sample {i} ({label}): {text}", entry.name)),
            },
        }
    });
    assert!(failures.is_empty(), "{} of {compared} samples:\n{}", failures.len(), failures.join("\n"));
    let listed = forms.iter().flat_map(|(why, labels)| labels.iter().map(move |label| (*why, *label)));
    let gone: Vec<_> = listed.filter(|form| !seen.contains(form)).collect();
    assert!(gone.is_empty(), "listed as not written, but no sample says so: {gone:?}");
    assert!(compared > 600, "{compared} samples");
}

#[test]
fn samples_of_all_ops_survive_the_newest_operators() {
    check(NEWEST_OPSET, &LEFT_OUT_FORMS.iter().collect::<Vec<_>>());
}

#[test]
fn samples_of_all_ops_survive_the_oldest_operators() {
    check(OLDEST_OPSET, &LEFT_OUT_FORMS.iter().chain(NEWER_FORMS).collect::<Vec<_>>());
}
