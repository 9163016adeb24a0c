//! The methods beyond their documentation's examples: every op has one, gradients pass, views are views, and the edges are
//! where NumPy and PyTorch have them.

use std::collections::BTreeSet;
use std::path::Path;

use remat_ops::testing::each_sample;
use remat_ops::{OpRef, Registry};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::ConvParams;
use remat_tensor::Windows;
use remat_tensor::comm::{Communicator, Reduction};
use remat_tensor::{
    Attend, Between, Beyond, FftNorm, Interpolate, InterpolateOptions, Nonlinearity, Pooling, RecurrentSteps,
    RecurrentWeights, Sizes, Tensor, TriangleOptions, gradcheck,
};
use remat_types::{DType, ErrorKind, HostTensor, Result, bf16};

use crate::support::{cpu, plain, tensor, values, wave};

/// Ops of gradient rules, optimisers and models from files, which are no one's to call by a method.
const WITHOUT_METHOD: &[&str] = &[
    "abs_grad",
    "acosh_grad",
    "adadelta_update",
    "adafactor_update",
    "adagrad_update",
    "adamax_update",
    "adamw_update",
    "asin_grad",
    "asinh_grad",
    "atan_grad",
    "atanh_grad",
    "attention_grad",
    "avg_pool2d_grad",
    "batch_norm_grad",
    "bce",
    "bce_prob_slope",
    "bce_slope",
    "conv2d_weight_grad",
    "conv_blocked",
    "cross_entropy_grad",
    "ctc_loss",
    "ctc_loss_grad",
    "div_or_zero",
    "elu_slope",
    "erf_grad",
    "erfinv_grad",
    "expm1_grad",
    "from_blocked",
    "fused",
    "fused_matmul",
    "fused_reduce",
    "gamma_log_slope",
    "gamma_slope",
    "gather_shards",
    "gelu_grad",
    "gelu_tanh_grad",
    "hsigmoid_grad",
    "hswish_grad",
    "huber",
    "huber_slope",
    "label_weight",
    "lamb_update",
    "layer_norm_grad",
    "linear_packed",
    "lion_update",
    "log1p_grad",
    "logsigmoid_grad",
    "max_pool2d_grad",
    "max_pool2d_pick",
    "max_pool_blocked",
    "max_share",
    "min_share",
    "mish_grad",
    "nadam_update",
    "pack_conv",
    "pack_linear",
    "pow_slope_a",
    "pow_slope_b",
    "prelu_slope",
    "radam_update",
    "recip_grad",
    "recurrence",
    "recurrent_grad",
    "relu6_grad",
    "relu_grad",
    "rms_norm_grad",
    "rmsprop_update",
    "rsqrt_grad",
    "sample_points_grad",
    "sample_points_slope",
    "sgd_rows_update",
    "sgd_update",
    "sigmoid_grad",
    "silu_grad",
    "softmax_grad",
    "softplus_grad",
    "softsign_grad",
    "sparse_adam_update",
    "sqrt_grad",
    "square_grad",
    "take_grad",
    "tan_grad",
    "tanh_grad",
    "to_blocked",
    "tree_leaf",
    "tree_sum",
    "unslice",
    "zero_test",
];

/// Calls a method for each op that should have one.
/// Special functions, factorisations, transforms.
fn call_maths(x: &Tensor) -> Result<()> {
    let _ = (x.log2()?, x.log10()?, x.exp2()?, x.lgamma()?, x.digamma()?, x.round()?, x.round_away()?);
    let _ = (x.i0()?, x.i0e()?, x.i1()?, x.i1e()?, x.bessel_j0()?, x.bessel_j1()?);
    let _ = (x.hypot(1.0)?, x.fmod(1.0)?, x.copysign(1.0)?, x.zeta(1.0)?, x.gammainc(1.0)?, x.gammaincc(1.0)?);
    let key = Tensor::new(&x.device(), &[1u64, 2], [2])?;
    let _ = (x.gamma_sample(&key)?, x.poisson_sample(&key)?, Tensor::all_finite(&[x])?);
    let _ = x.abs()?.multinomial(&key, 1, true)?;
    let a = Tensor::eye(&x.device(), 3, x.dtype())?;
    let _ = (a.cholesky()?, a.solve(&a)?, a.solve_triangular(&a, TriangleOptions::default())?, a.slogdet()?, a.pinv()?);
    let _ = (a.qr()?, a.svd()?, a.eigh()?);
    let norm = FftNorm::Backward;
    x.rfft(None, -1, norm)?.fft(None, -1, norm)?.irfft(Some(3), -1, norm)?;
    Ok(())
}

/// The collectives, on one rank; messages need two.
fn call_collectives(x: &Tensor) -> Result<()> {
    let (alone, f) = (Communicator::alone(), Reduction::Sum);
    let _ = (x.all_reduce(f, &alone)?, x.all_gather(0, &alone)?, x.reduce_scatter(f, 1, &alone)?);
    let _ = (x.broadcast_from(0, &alone)?, x.reduce_to(0, f, &alone)?, x.gather_to(0, 1, &alone)?);
    let _ = (x.scatter_from(0, 2, 0, &alone)?, x.all_to_all(0, 1, &alone)?);
    Ok(())
}

/// Images between their pixels, windows and regions, boxes.
fn call_vision(x: &Tensor) -> Result<()> {
    let image = x.reshape(&[1, 1, 2, 3])?;
    image.interpolate(Sizes::To(vec![4, 4]), InterpolateOptions::with_mode(Interpolate::Linear))?;
    image.max_pool_with_indices(Pooling::new([2, 2]))?;
    image.grid_sample(&image.zeros_like()?.reshape(&[1, 3, 1, 2])?, Between::Linear, Beyond::Zeros, true)?;
    let boxes = Tensor::new(&x.device(), &[0.0, 0.0, 0.0, 1.0, 1.0], [1, 5])?.cast(x.dtype())?;
    image.roi_pool(&boxes, [1, 1], 1.0)?;
    boxes.narrow(1, 1, 4)?.nms(&Tensor::new(&x.device(), &[1.0], [1])?.cast(x.dtype())?, 0.5, None)?;
    Ok(())
}

fn call_everything(d: &Device) -> Result<()> {
    let x = tensor(d, &wave(6), [2, 3]);
    type Unary = fn(&Tensor) -> Result<Tensor>;
    let unary: &[Unary] = &[
        Tensor::relu,
        Tensor::relu6,
        Tensor::abs,
        Tensor::neg,
        Tensor::exp,
        Tensor::expm1,
        Tensor::log,
        Tensor::log1p,
        Tensor::sqrt,
        Tensor::rsqrt,
        Tensor::square,
        Tensor::recip,
        Tensor::sin,
        Tensor::cos,
        Tensor::tan,
        Tensor::asin,
        Tensor::acos,
        Tensor::atan,
        Tensor::sinh,
        Tensor::cosh,
        Tensor::tanh,
        Tensor::asinh,
        Tensor::acosh,
        Tensor::atanh,
        Tensor::sigmoid,
        Tensor::logsigmoid,
        Tensor::softplus,
        Tensor::silu,
        Tensor::mish,
        Tensor::softsign,
        Tensor::gelu,
        Tensor::gelu_tanh,
        Tensor::erf,
        Tensor::erfc,
        Tensor::erfinv,
        Tensor::erfcinv,
        Tensor::floor,
        Tensor::ceil,
        Tensor::round,
        Tensor::trunc,
        Tensor::sign,
        Tensor::hsigmoid,
        Tensor::hswish,
        Tensor::is_nan,
        Tensor::is_inf,
        Tensor::is_finite,
        Tensor::contiguous,
        Tensor::t,
        Tensor::sum,
        Tensor::mean,
        Tensor::prod,
        Tensor::max,
        Tensor::min,
        Tensor::sum_sqr,
    ];
    unary.iter().try_for_each(|f| f(&x).map(|_| ()))?;
    let (i, b) = (x.cast(DType::I32)?.bit_not()?, x.gt(0.0)?.logical_not()?);
    let _ = (x.add(1.0)?, x.sub(1.0)?, x.mul(1.0)?, x.div(1.0)?, x.floor_div(1.0)?, x.rem(1.0)?, x.pow(1.0)?);
    let _ = (x.maximum(0.0)?, x.minimum(0.0)?, x.atan2(1.0)?, x.log_add_exp(1.0)?, x.prelu(0.1)?, x.elu(1.0)?);
    let _ = (i.bit_and(1)?, i.bit_or(1)?, i.bit_xor(1)?, i.shl(1)?, i.shr(1)?);
    let _ = (b.logical_and(&b)?, b.logical_or(&b)?, b.logical_xor(&b)?, b.any()?, b.all()?);
    let _ = (x.eq(0.0)?, x.ne(0.0)?, x.lt(0.0)?, x.le(0.0)?, x.ge(0.0)?, x.clamp(0, 1)?, b.where_cond(&x, 0.0)?);
    let _ = (
        x.matmul(&x.t()?)?,
        x.matmul_wide(&x.t()?)?,
        x.softmax(0)?,
        x.log_softmax(0)?,
        x.log_sum_exp_over(&[], false)?,
        x.var_over(&[], false, 0)?,
        x.std_over(&[], false, 0)?,
        x.norm_over(&[], false)?,
        x.bce_with_logits(0.0)?,
    );
    call_maths(&x)?;
    call_collectives(&x)?;
    call_vision(&x)?;
    x.rms_norm(&x.select(0, 0)?, 1, 1e-5)?;
    let _ = (x.argmax_over(0, false)?, x.argmin_over(0, false)?, x.reshape(&[-1])?, x.broadcast_to([2, 2, 3])?);
    let index = Tensor::new(d, &[0i64, 1], [2])?;
    let _ =
        (x.slice(0, 1..)?, x.pad(&[(1, 1), (0, 0)], 0)?, Tensor::concat(&[&x, &x], 0)?, index.one_hot(2, DType::F32)?);
    let _ = (x.take(0, &index)?, x.gather(1, &index.unsqueeze(1)?)?, x.cross_entropy(&index)?, x.nonzero()?);
    let _ = (x.slice(1, ..2)?.index_add(0, &index, &x.slice(1, ..2)?)?, x.gather(0, &i.zeros_like()?)?);
    x.scatter_add(0, &i.zeros_like()?, &x)?;
    let w = tensor(d, &wave(27), [9, 3]);
    x.reshape(&[1, 2, 3])?.gru(None, RecurrentWeights::new(&w, &w), RecurrentSteps::default())?;
    let _ = (x.gather_nd(&index.unsqueeze(1)?, 0)?, x.cumsum(0)?, x.cumprod(0)?, x.logcumsumexp(0)?);
    let _ = (x.cummax(0)?, x.cummin(0)?, x.sort(0, false)?, x.topk(1, 0, true, true)?, x.kthvalue(1, 0, false)?);
    let _ = (x.median()?, x.nanmedian()?, x.mode()?, x.select(0, 0)?.searchsorted(&x, false)?);
    let key = Tensor::new(d, &[1u64, 2], [2])?;
    let _ = (Tensor::uniform(&key, [2], DType::F32, 0.0, 1.0)?, Tensor::normal(&key, [2], DType::F32, 0.0, 1.0)?);
    key.fold_in(&Tensor::scalar(d, 3i64)?)?;
    let _ = (Tensor::bernoulli(&key, [2], DType::F32, 0.5)?, Tensor::permutation(&key, 3)?, x.dropout(0.5, &key)?);
    let _ = (Tensor::full(d, [2], DType::F32, 1)?, Tensor::arange(d, 0, 3, 1, DType::F32)?);
    let (scale, bias) = (tensor(d, &wave(3), [3]), tensor(d, &wave(3), [3]));
    let (_, mean, var) = x.batch_norm(&scale, &bias, 1e-5)?;
    let _ = (x.batch_norm_with(&scale, &bias, &mean, &var, 1e-5)?, x.layer_norm(&scale, &bias, 1, 1e-5)?);
    x.reshape(&[1, 2, 3, 1, 1])?.self_attention(Attend::default())?;
    let square = Tensor::zeros(d, [3, 3], x.dtype())?;
    x.rnn_cell(Nonlinearity::Tanh, None, RecurrentWeights::new(&square, &square))?;
    let image = x.reshape(&[1, 1, 2, 3])?;
    let windows = Windows::sliding([1, 1], [1, 1], [0, 0]);
    let _ = (image.conv2d(&image, ConvParams::PLAIN)?, image.max_pool2d(windows)?, image.avg_pool2d(windows, true)?);
    image.conv_transpose2d(&image, ConvParams::PLAIN, [0, 0])?;
    Ok(())
}

/// The words of the methods' sources.
fn words(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("the crate has sources") {
        let path = entry.expect("it can be listed").path();
        if path.is_dir() {
            words(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).expect("a text");
            found.extend(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
        }
    }
}

/// Whether the methods' sources name all types and functions of an op: then one makes it, and its documentation's example calls that.
fn is_named(op: &OpRef, words: &BTreeSet<String>) -> bool {
    let form = format!("{op:?}");
    let parts = form.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.filter(|w| w.starts_with(char::is_uppercase)).all(|w| words.contains(w))
}

#[test]
fn every_op_has_a_method_or_belongs_to_a_rule() {
    let d = cpu(DeviceOptions { host_compute: false, ..DeviceOptions::default() });
    d.channel().start_trace().expect("open");
    call_everything(&d).expect("right calls");
    d.channel().sync().expect("they compute");
    let trace = d.channel().stop_trace().expect("open").to_chrome_json();
    let events = trace["traceEvents"].as_array().expect("a list");
    let called: BTreeSet<&str> =
        events.iter().filter(|e| e["cat"] == "dispatch").filter_map(|e| e["name"].as_str()).collect();
    let mut sources = BTreeSet::new();
    words(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/methods"), &mut sources);
    let (mut labels, mut named) = (BTreeSet::new(), BTreeSet::new());
    each_sample(&Registry::builtin(), |_, _, s| {
        labels.insert(s.op.label());
        if is_named(&s.op, &sources) {
            named.insert(s.op.label());
        }
    });
    let listed = BTreeSet::from_iter(WITHOUT_METHOD.iter().copied());
    let without: BTreeSet<&str> = labels.difference(&called).copied().collect();
    let new: Vec<&&str> = without.difference(&listed).filter(|label| !named.contains(*label)).collect();
    assert!(new.is_empty(), "these need a method: {new:?}");
    let gone: Vec<&&str> = listed.difference(&without).collect();
    assert!(gone.is_empty(), "these have a method: {gone:?}");
}

fn host(shape: &[usize]) -> HostTensor {
    let n = shape.iter().product();
    HostTensor::from_slice(&wave(n), shape).expect("fits")
}

#[test]
fn the_gradients_of_methods_agree_with_differences() {
    let d = plain();
    let int = |v: &[i64], shape: &[usize]| Tensor::new(&d, v, shape).expect("fits");
    let mask = Tensor::new(&d, &[true, false, true], [3]).expect("fits");
    let (rows, along) = (int(&[2, 0, 2, 2], &[2, 2]), int(&[1, 0, 1, 2, 2, 0], &[2, 3]));
    type F<'a> = Box<dyn Fn(&[Tensor]) -> Result<Tensor> + 'a>;
    let cases: Vec<(&str, &[&[usize]], F<'_>)> = vec![
        ("slice", &[&[3, 4]], Box::new(|x| x[0].slice(1, (1, -1)))),
        ("slice_step", &[&[3, 5]], Box::new(|x| x[0].slice_step(-1, .., -2))),
        ("narrow", &[&[3, 4]], Box::new(|x| x[0].narrow(0, -2, 2))),
        ("select", &[&[3, 4]], Box::new(|x| x[0].select(1, -2))),
        ("flip", &[&[3, 4]], Box::new(|x| x[0].flip(&[0, -1]))),
        ("take", &[&[3, 4]], Box::new(|x| x[0].take(0, &rows))),
        ("index_select", &[&[3, 4]], Box::new(|x| x[0].index_select(0, &rows.select(0, 0)?))),
        ("gather", &[&[2, 3]], Box::new(|x| x[0].gather(1, &along))),
        ("index_add", &[&[2, 3], &[2, 2]], Box::new(|x| x[0].index_add(1, &rows.select(0, 0)?, &x[1]))),
        ("scatter_add", &[&[3, 3], &[2, 3]], Box::new(|x| x[0].scatter_add(0, &along, &x[1]))),
        ("where_cond", &[&[2, 3], &[3]], Box::new(|x| mask.where_cond(&x[0], &x[1]))),
        ("masked_fill", &[&[2, 3], &[]], Box::new(|x| x[0].masked_fill(&mask, &x[1]))),
        ("tril", &[&[2, 3, 3]], Box::new(|x| x[0].tril(1))),
        ("triu", &[&[2, 3]], Box::new(|x| x[0].triu(-1))),
        ("concat", &[&[2, 1], &[2, 2]], Box::new(|x| Tensor::concat(&[&x[0], &x[1], &x[0]], -1))),
        ("stack", &[&[2, 2], &[2, 2]], Box::new(|x| Tensor::stack(&[&x[0], &x[1]], 1))),
        (
            "split",
            &[&[2, 5]],
            Box::new(|x| {
                let parts = x[0].split(&[2, 1, 2], 1)?;
                parts[0].mul(&parts[2])?.add(&parts[1])
            }),
        ),
        (
            "chunk",
            &[&[5, 2]],
            Box::new(|x| {
                let parts = x[0].chunk(2, 0)?;
                parts[0].slice(0, ..2)?.mul(&parts[1])
            }),
        ),
        ("pad", &[&[2, 2]], Box::new(|x| x[0].pad(&[(1, 0), (0, 2)], 3.0))),
        ("repeat", &[&[2, 2]], Box::new(|x| x[0].repeat(&[2, 1, 3])?.square())),
        ("repeat_interleave", &[&[2, 2]], Box::new(|x| x[0].repeat_interleave(3, 0)?.square())),
        ("roll", &[&[2, 3]], Box::new(|x| x[0].roll(-2, 1)?.mul(&x[0]))),
        ("flatten", &[&[2, 3, 2]], Box::new(|x| x[0].flatten(1, 2)?.matmul(&x[0].flatten(1, -1)?.t()?))),
        ("unflatten", &[&[2, 6]], Box::new(|x| x[0].unflatten(1, &[-1, 2])?.softmax(1))),
        ("movedim", &[&[2, 3, 2]], Box::new(|x| x[0].movedim(0, -1)?.log_softmax(0))),
        ("matmul of a vector", &[&[3], &[2, 3, 2]], Box::new(|x| x[0].matmul(&x[1]))),
        ("matmul with a vector", &[&[2, 2, 3], &[3]], Box::new(|x| x[0].matmul(&x[1]))),
        ("matmul of vectors", &[&[3], &[3]], Box::new(|x| x[0].matmul(&x[1]))),
        ("matmul_wide", &[&[2, 2, 3], &[3, 2]], Box::new(|x| x[0].matmul_wide(&x[1]))),
        ("outer", &[&[3], &[2]], Box::new(|x| x[0].outer(&x[1]))),
        ("lerp", &[&[3], &[3], &[3]], Box::new(|x| x[0].lerp(&x[1], &x[2]))),
        ("leaky_relu", &[&[5]], Box::new(|x| x[0].leaky_relu(0.1))),
        ("elu", &[&[5]], Box::new(|x| x[0].elu(0.7))),
        ("std", &[&[2, 4]], Box::new(|x| x[0].std_over(&[1], true, 1))),
        ("norm", &[&[2, 4]], Box::new(|x| x[0].norm_over(&[1], false))),
        ("numbers on the left", &[&[4]], Box::new(|x| (2.0 / &x[0])? - (1.5 * (0.5 - &x[0])?)?)),
    ];
    for (name, shapes, f) in cases {
        let x: Vec<HostTensor> = shapes.iter().map(|s| host(s)).collect();
        let r = gradcheck(&d, &x, f).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(r.max_error < 1e-7 && r.max_gradient > 0.05, "{name}: {r:?}");
    }
}

#[test]
fn slicing_is_that_of_python() {
    let d = plain();
    // n, start, end, step and list(range(n))[start:end:step], by Python
    type Row<'a> = (i64, Option<isize>, Option<isize>, isize, &'a [i64]);
    let table: &[Row] = &[
        (5, Some(1), None, 1, &[1, 2, 3, 4]),
        (5, None, Some(-1), 1, &[0, 1, 2, 3]),
        (5, Some(-2), Some(1), -2, &[3]),
        (5, None, None, -2, &[4, 2, 0]),
        (5, Some(9), Some(-9), -1, &[4, 3, 2, 1, 0]),
        (5, Some(-9), Some(9), 3, &[0, 3]),
        (5, Some(3), Some(1), 1, &[]),
        (5, Some(1), Some(3), -1, &[]),
        (5, Some(0), None, -1, &[0]),
        (0, None, None, -1, &[]),
        (1, Some(-1), None, 1, &[0]),
    ];
    for (n, start, end, step, want) in table {
        let x = Tensor::arange(&d, 0, *n, 1, DType::I64).expect("fits");
        let y = x.slice_step(0, remat_tensor::Span { start: *start, end: *end }, *step).expect("fits");
        assert_eq!(&y.to_vec::<i64>().expect("computes"), want, "{n} {start:?} {end:?} {step}");
    }
}

#[test]
fn parts_are_views_and_take_no_bytes() {
    let d = plain();
    let x = tensor(&d, &wave(24 * 64), [24, 64]);
    d.channel().sync().expect("open");
    let bytes = || d.channel().stats().expect("open").in_use_bytes;
    let before = bytes();
    let mut views = x.split(&[10, 14], 0).expect("fits");
    views.extend(x.chunk(5, 1).expect("fits"));
    let more = [
        x.slice_step(1, .., -3),
        x.narrow(0, 3, 4),
        x.select(0, -1),
        x.flip(&[0, 1]),
        x.movedim(0, 1),
        x.flatten(0, 1),
        x.unflatten(1, &[8, 8]),
        x.unsqueeze(1),
        x.broadcast_to([3, 24, 64]),
    ];
    views.extend(more.into_iter().map(|v| v.expect("fits")));
    d.channel().sync().expect("they are made");
    assert_eq!(bytes(), before);
    assert_eq!(values(&views[1]), wave(24 * 64)[10 * 64..]);
}

#[test]
fn empty_tensors_and_rank_0_pass_through() {
    let d = plain();
    let none = Tensor::zeros(&d, [0, 3], DType::F32).expect("fits");
    let one = Tensor::scalar(&d, 5i64).expect("fits");
    let index = Tensor::zeros(&d, [0], DType::I64).expect("fits");
    let dims = |t: Result<Tensor>| t.expect("fits").dims().to_vec();
    assert_eq!(dims(none.slice(0, ..)), [0, 3]);
    assert_eq!(dims(none.flip(&[0])), [0, 3]);
    assert_eq!(dims(none.roll(2, 0)), [0, 3]);
    assert_eq!(dims(none.repeat(&[2, 2])), [0, 6]);
    assert_eq!(dims(none.repeat_interleave(0, 1)), [0, 0]);
    assert_eq!(dims(none.take(1, &index)), [0, 0]);
    assert_eq!(dims(none.tril(0)), [0, 3]);
    assert_eq!(dims(none.pad(&[(1, 1), (0, 0)], 7)), [2, 3]);
    assert_eq!(dims(Tensor::concat(&[&none, &none], 0)), [0, 3]);
    assert_eq!(dims(Tensor::stack(&[&none, &none], 0)), [2, 0, 3]);
    assert_eq!(none.chunk(3, 0).expect("fits").len(), 1);
    assert!(none.split(&[], 0).expect("nothing adds up to 0").is_empty());
    assert_eq!(dims(one.flatten(0, -1)), [1]);
    assert_eq!(dims(one.repeat(&[2, 3])), [2, 3]);
    assert_eq!(dims(Tensor::stack(&[&one, &one], 0)), [2]);
    assert!(dims(one.squeeze(&[])).is_empty());
    let three = Tensor::arange(&d, 0, 3, 1, DType::I64).expect("fits");
    assert!(dims(three.take(0, &one.zeros_like().expect("fits"))).is_empty());
    assert_eq!(dims(Tensor::eye(&d, 0, DType::F32)), [0, 0]);
    assert!(none.allclose(&none, 0.0, 0.0).and_then(|c| c.item::<bool>()).expect("computes"));
}

#[test]
fn every_dtype_can_be_taken_apart_and_put_together() {
    let d = plain();
    let index = Tensor::new(&d, &[1u8, 0], [2]).expect("fits");
    for dtype in DType::ALL {
        let x = HostTensor::from_f64_slice(&[1.0, 0.0, 1.0, 1.0], dtype, [2, 2]).expect("fits");
        let x = Tensor::from_host(&d, &x).expect("open");
        let run = || -> Result<Vec<f64>> {
            let y = Tensor::concat(&[&x.slice(0, 1..)?, &x.flip(&[1])?], 0)?.roll(1, 0)?.take(1, &index)?;
            let y = y.pad(&[(0, 0), (0, 1)], 1)?.masked_fill(
                &index.cast(DType::Bool)?.repeat(&[3, 2])?.slice(1, ..3)?,
                &x.select(0, 0)?.select(0, 1)?,
            )?;
            assert_eq!(y.dtype(), dtype);
            Ok(y.triu(0)?.to_host()?.to_f64_vec())
        };
        let want = [0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(run().unwrap_or_else(|e| panic!("{dtype}: {e}")), want, "{dtype}");
    }
}

#[test]
fn sixteen_bits_are_scattered_by_way_of_f32() {
    let d = plain();
    let n = 300;
    let ones = Tensor::ones(&d, [n], DType::BF16).expect("fits");
    let index = Tensor::zeros(&d, [n], DType::I64).expect("fits");
    let sum = Tensor::zeros(&d, [1], DType::BF16).and_then(|x| x.index_add(0, &index, &ones)).expect("fits");
    // in bf16 the sum would stay at 256
    assert_eq!(sum.item::<bf16>().expect("computes"), bf16::from_f32(300.0));
}

#[test]
fn numbers_on_the_left_take_the_tensors_dtype() {
    let d = plain();
    let x = Tensor::new(&d, &[1u8, 2], [2]).expect("fits");
    let y = (10 - &x).and_then(|y| 2 * y).and_then(|y| 1 + y).expect("fits");
    assert_eq!(y.to_vec::<u8>().expect("u8"), [19, 17]);
    let z = tensor(&d, &[1.0, 4.0], [2]);
    assert_eq!(values(&(2.0 / &z).expect("fits")), [2.0, 0.5]);
    assert_eq!(values(&(-z).expect("fits")), [-1.0, -4.0]);
    assert!((300 + &x).is_err() && (0.5 * &x).is_err());
}

#[test]
fn a_tensor_that_goes_into_an_operator_by_value_gives_its_storage() {
    let peak = |f: fn(Tensor, f64) -> Result<Tensor>| {
        let d = plain();
        let x = Tensor::full(&d, [1 << 14], DType::F64, 1.0).expect("fits");
        let y = (0..8).try_fold(x, |x, i| f(x, f64::from(i))).expect("fits");
        assert_eq!(values(&y)[0], 29.0);
        d.channel().stats().expect("open").peak_bytes
    };
    let (owned, borrowed) = (peak(|x, i| x + i), peak(|x, i| &x + i));
    assert!(owned < (1 << 17) + 4096 && borrowed > 2 << 17, "{owned} {borrowed}");
}

#[test]
fn ranges_that_contain_their_end_are_pythons_with_one_more() {
    let d = plain();
    let x = tensor(&d, &[0.0, 1.0, 2.0, 3.0, 4.0], [5]);
    let of = |span: remat_tensor::Span| values(&x.slice(0, span).expect("fits"));
    assert_eq!(of((1..=2).into()), [1.0, 2.0]);
    assert_eq!(of((-3..=-2).into()), [2.0, 3.0]);
    assert_eq!(of((-2..=-1).into()), [3.0, 4.0], "the last element is -1, and nothing is behind it");
    assert_eq!(of((..=1).into()), [0.0, 1.0]);
    assert_eq!(of((..=-1).into()), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(of((..=isize::MAX).into()), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_number_is_scattered_to_every_place_of_an_index() {
    let d = plain();
    let x = tensor(&d, &[1.0, 2.0, 3.0, 4.0], [4]);
    let index = Tensor::new(&d, &[3, 0], [2]).expect("fits");
    assert_eq!(values(&x.scatter(0, &index, 9.0).expect("fits")), [9.0, 2.0, 3.0, 9.0]);
    let index = Tensor::new(&d, &[1, 0], [1, 2]).expect("fits");
    let y = x.reshape(&[2, 2]).and_then(|x| x.scatter(0, &index, 9.0)).expect("fits");
    assert_eq!(values(&y), [1.0, 9.0, 9.0, 4.0]);
}

#[test]
fn a_complete_qr_of_more_rows_than_columns_has_no_gradient() {
    let d = plain();
    let gradient = |shape: [usize; 2]| {
        let x = tensor(&d, &[1.0, 2.0, 3.0, -4.0, 5.0, 1.5], shape).requires_grad()?;
        Tensor::apply(remat_ops::factor::Qr { complete: true }, &[&x])?[1].sum()?.backward()
    };
    gradient([2, 3]).expect("no fewer columns than rows");
    let e = gradient([3, 2]).expect_err("the rest of q is free");
    assert_eq!(e.kind(), ErrorKind::NotDifferentiable);
    assert!(e.to_string().contains("complete qr"), "{e}");
}
