//! Layers against values worked out by hand.

use remat_nn::Reduction;
use remat_nn::*;
use remat_tensor::Tensor;
use remat_types::{DType, ErrorKind};

use crate::support::{F32, FLOATS, assert_close, cpu, set, state, tensor, values};

#[test]
fn linear_multiplies_by_the_transposed_weight() {
    let d = cpu();
    let l = Linear::new(&mut InitCx::new(&d, 1), 2, 3).expect("fits");
    set(&l.weight, &[1., 2., 3., 4., 5., 6.]);
    set(l.bias.as_ref().expect("bias"), &[0.5, 0., -0.5]);
    let x = tensor(&d, &[1., 1., 2., -1.], [2, 2]);
    assert_eq!(values(&l.forward(&x).expect("fits")), [3.5, 7., 10.5, 0.5, 2., 3.5]);
    let row = tensor(&d, &[1., 1.], [2]);
    assert_eq!(values(&l.forward(&row).expect("one row")), [3.5, 7., 10.5]);
    assert_eq!(l.forward(&tensor(&d, &[1.0; 8], [2, 2, 2])).expect("batched").dims(), [2, 2, 3]);
    assert_eq!(l.forward(&tensor(&d, &[1.0; 3], [1, 3])).expect_err("3").kind(), ErrorKind::Shape);
    assert_eq!(l.forward(&Tensor::scalar(&d, 1.0f32).expect("fits")).expect_err("rank 0").kind(), ErrorKind::Axis);
}

#[test]
fn conv2d_correlates_and_adds_a_bias_per_channel() {
    let d = cpu();
    let o = Conv2dOptions { stride: 2.into(), padding: 1.into(), ..Conv2dOptions::default() };
    let c = Conv2d::with(&mut InitCx::new(&d, 1), 1, 2, 2, o).expect("fits");
    set(&c.weight, &[1., 2., 3., 4., 0., 0., 0., 1.]);
    set(c.bias.as_ref().expect("bias"), &[0., 10.]);
    let x = tensor(&d, &[1., 2., 3., 4., 5., 6., 7., 8., 9.], [1, 1, 3, 3]);
    // windows over the padded 5x5: [0 0;0 1] [0 0;2 3] [0 4;0 7] [5 6;8 9]
    let want = [4., 18., 36., 77., 11., 13., 17., 19.];
    let y = c.forward(&x).expect("fits");
    assert_eq!(y.dims(), [1, 2, 2, 2]);
    assert_eq!(values(&y), want);
    let bad = Conv2dOptions { groups: 2, ..Conv2dOptions::default() };
    let e = Conv2d::with(&mut InitCx::new(&d, 1), 3, 2, 2, bad).err().expect("2 does not divide 3");
    assert_eq!(e.kind(), ErrorKind::Value);
}

#[test]
fn conv2d_dilates_and_groups() {
    let d = cpu();
    let o = Conv2dOptions { dilation: Extents([1, 2]), groups: 2, bias: false, ..Conv2dOptions::default() };
    let c = Conv2d::with(&mut InitCx::new(&d, 1), 2, 2, [1, 2], o).expect("fits");
    set(&c.weight, &[1., 10., 100., 1000.]);
    let x = tensor(&d, &[1., 2., 3., 4., 5., 6.], [1, 2, 1, 3]);
    assert_eq!(values(&c.forward(&x).expect("fits")), [31., 6400.]);
}

#[test]
fn convolutions_name_and_shape_their_parameters() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    let names = |layer: &dyn Layer| -> Vec<(String, Vec<usize>)> {
        layer.named_parameters().into_iter().map(|(name, p)| (name, p.shape().dims().to_vec())).collect()
    };
    let of =
        |weight: &[usize], bias: usize| vec![("weight".to_string(), weight.to_vec()), ("bias".to_string(), vec![bias])];
    let forward =
        |layer: &dyn Layer, x: &[usize]| layer.forward(&Tensor::ones(&d, x, DType::F32)?).map(|y| y.dims().to_vec());
    let o = Conv1dOptions { groups: 2, stride: 2.into(), ..Conv1dOptions::default() };
    let line = Conv1d::with(cx, 4, 6, 3, o).expect("fits");
    assert_eq!((names(&line), forward(&line, &[2, 4, 9]).expect("fits")), (of(&[6, 2, 3], 6), vec![2, 6, 4]));
    let o = Conv3dOptions { padding: [1, 0, 1].into(), ..Conv3dOptions::default() };
    let volume = Conv3d::with(cx, 2, 3, [3, 2, 1], o).expect("fits");
    // one more at the end than at the beginning
    let same = Conv2dOptions { dilation: [1, 3].into(), ..Conv2dOptions::default() };
    let same = same.with_same_padding([4, 2]).expect("no stride");
    assert_eq!(same.padding, [[1, 2], [1, 2]].into());
    let image = Conv2d::with(cx, 2, 3, [4, 2], same).expect("fits");
    assert_eq!(forward(&image, &[1, 2, 7, 5]).expect("fits"), [1, 3, 7, 5]);
    let strided = Conv2dOptions { stride: 2.into(), ..Conv2dOptions::default() };
    assert_eq!(strided.with_same_padding(3).expect_err("a stride").kind(), ErrorKind::Value);
    assert_eq!(names(&volume), of(&[3, 2, 3, 2, 1], 3));
    assert_eq!(forward(&volume, &[1, 2, 4, 5, 6]).expect("fits"), [1, 3, 4, 4, 8]);
    assert_eq!(forward(&volume, &[1, 2, 5, 6]).expect_err("an image").kind(), ErrorKind::Axis);
    let o = Conv2dOptions { groups: 2, stride: 2.into(), padding: 1.into(), ..Conv2dOptions::default() };
    let up = ConvTranspose2d::with(cx, 4, 6, 3, o).expect("fits").with_output_padding(1);
    assert_eq!(names(&up), of(&[4, 3, 3, 3], 6));
    assert_eq!(forward(&up, &[1, 4, 5, 7]).expect("fits"), [1, 6, 10, 14]);
    let up = up.with_output_padding(2);
    assert_eq!(forward(&up, &[1, 4, 5, 7]).expect_err("the stride is 2").kind(), ErrorKind::Value);
    let up = ConvTranspose3d::new(cx, 2, 3, 2).expect("fits");
    assert_eq!(forward(&up, &[1, 2, 3, 4, 5]).expect("fits"), [1, 3, 4, 5, 6]);
    let o = Conv1dOptions { bias: false, ..Conv1dOptions::default() };
    let up = ConvTranspose1d::with(cx, 2, 3, 2, o).expect("fits");
    assert_eq!(names(&up), of(&[2, 3, 2], 0)[..1]);
    assert_eq!(forward(&up, &[1, 2, 3]).expect("fits"), [1, 3, 4]);

    let bad = Conv2dOptions { groups: 2, ..Conv2dOptions::default() };
    let e = ConvTranspose2d::with(cx, 2, 3, 2, bad).err().expect("2 does not divide 3");
    assert_eq!((e.kind(), e.op()), (ErrorKind::Value, Some("conv_transpose2d")));
    let e = Conv3d::new(cx, 1, 1, usize::MAX).err().expect("too large");
    assert_eq!(e.kind(), ErrorKind::Shape, "{e}");
}

#[test]
fn a_transposed_convolution_spreads_and_adds_a_bias_per_channel() {
    let d = cpu();
    let o = Conv2dOptions { stride: 2.into(), ..Conv2dOptions::default() };
    let c = ConvTranspose2d::with(&mut InitCx::new(&d, 1), 1, 2, [1, 2], o).expect("fits").with_output_padding([0, 1]);
    set(&c.weight, &[1., 10., 2., 3.]);
    set(c.bias.as_ref().expect("bias"), &[0., 0.5]);
    let y = c.forward(&tensor(&d, &[1., -2.], [1, 1, 1, 2])).expect("fits");
    assert_eq!(y.dims(), [1, 2, 1, 5]);
    assert_eq!(values(&y), [1., 10., -2., -20., 0., 2.5, 3.5, -3.5, -5.5, 0.5]);
}

#[test]
fn batch_norm_tracks_like_pytorch() {
    let d = cpu();
    let bn = BatchNorm2d::new(&mut InitCx::new(&d, 1), 2).expect("fits");
    set(&bn.weight, &[1., 2.]);
    set(&bn.bias, &[0., 1.]);
    // channel means 2 and 0, biased variances 1 and 4, unbiased 4/3 and 16/3
    let x = tensor(&d, &[1., 3., -2., 2., 1., 3., 2., -2.], [2, 2, 1, 2]);
    let y = bn.forward(&x).expect("fits");
    // Loose: eps 1e-5 is in the values, which were worked out without it
    assert_close(&values(&y), &[-1., 1., -1., 3., -1., 1., 3., -1.], 1e-5);
    assert_close(&state(&bn.running_mean), &[0.2, 0.], F32);
    assert_close(&state(&bn.running_var), &[0.9 + 0.1 * 4. / 3., 0.9 + 0.1 * 16. / 3.], F32);
    bn.forward(&x).expect("fits");
    assert_close(&state(&bn.running_mean), &[0.38, 0.], F32);
    bn.eval();
    let (mean, var) = (state(&bn.running_mean), state(&bn.running_var));
    let y = values(&bn.forward(&x).expect("fits"));
    let want = |x: f64, c: usize| (x - mean[c]) / (var[c] + 1e-5).sqrt() * [1., 2.][c] + [0., 1.][c];
    assert_close(
        &y,
        &[want(1., 0), want(3., 0), want(-2., 1), want(2., 1), want(1., 0), want(3., 0), want(2., 1), want(-2., 1)],
        F32,
    );
    assert_eq!(state(&bn.running_mean), mean, "evaluation tracks nothing");
}

#[test]
fn batch_norm_of_one_dimension_takes_two_ranks_and_no_other() {
    let d = cpu();
    let bn = BatchNorm1d::new(&mut InitCx::new(&d, 1), 1).expect("fits");
    assert_close(&values(&bn.forward(&tensor(&d, &[1., 3.], [2, 1])).expect("[n, c]")), &[-1., 1.], 1e-5);
    assert_close(&values(&bn.forward(&tensor(&d, &[1., 3.], [1, 1, 2])).expect("[n, c, l]")), &[-1., 1.], 1e-5);
    assert_eq!(bn.forward(&tensor(&d, &[1.], [1, 1, 1, 1])).expect_err("rank 4").kind(), ErrorKind::Axis);
    let var = state(&bn.running_var);
    bn.forward(&tensor(&d, &[5.], [1, 1])).expect("one element");
    assert_eq!(state(&bn.running_var), var, "one element has no unbiased variance");
}

#[test]
fn running_statistics_of_half_floats_are_kept_in_f32() {
    for dtype in FLOATS {
        let d = cpu();
        let bn = BatchNorm1d::new(&mut InitCx::new(&d, 1).with_dtype(dtype), 1).expect("fits");
        let x = Tensor::new(&d, &[1.0f32, 3.], [2, 1]).expect("fits").cast(dtype).expect("float");
        let y = bn.forward(&x).expect("fits");
        assert_eq!(y.dtype(), dtype);
        assert_eq!(bn.running_mean.dtype(), if dtype == DType::F64 { DType::F64 } else { DType::F32 });
        assert_close(&state(&bn.running_mean), &[0.2], F32);
    }
}

#[test]
fn layer_norm_normalises_the_last_axes() {
    let d = cpu();
    let ln = LayerNorm::with(&mut InitCx::new(&d, 1), [2], 0.0).expect("fits");
    set(&ln.weight, &[2., 3.]);
    set(&ln.bias, &[1., 0.]);
    let y = ln.forward(&tensor(&d, &[1., 3., 10., 6.], [2, 2])).expect("fits");
    assert_close(&values(&y), &[-1., 3., 3., -3.], F32);
    assert_eq!(ln.forward(&tensor(&d, &[1.; 3], [3])).expect_err("3").kind(), ErrorKind::Shape);
}

#[test]
fn embedding_takes_rows_and_adds_up_their_gradients() {
    let d = cpu();
    let e = Embedding::new(&mut InitCx::new(&d, 1), 3, 2).expect("fits");
    set(&e.weight, &[1., 2., 3., 4., 5., 6.]);
    let i = Tensor::new(&d, &[2i64, 0, 2], [3]).expect("fits");
    let y = e.forward(&i).expect("rows");
    assert_eq!((y.dims(), values(&y)), (&[3, 2][..], vec![5., 6., 1., 2., 5., 6.]));
    y.sum().expect("float").backward().expect("tracked");
    assert_eq!(values(&e.weight.grad().expect("a gradient")), [1., 1., 0., 0., 2., 2.]);
    let bad = e.forward(&Tensor::new(&d, &[3i64; 20], [20]).expect("fits")).expect("found on the device");
    assert_eq!(bad.to_host().expect_err("no such row").kind(), ErrorKind::Index);
}

#[test]
fn the_row_for_padding_begins_as_zero_and_is_not_trained() {
    let d = cpu();
    let options = EmbeddingOptions { padding_idx: Some(-1), init: Init::Ones, ..EmbeddingOptions::default() };
    let e = Embedding::with_options(&mut InitCx::new(&d, 1), 3, 2, options).expect("fits");
    assert_eq!(values(&e.weight.get().expect("open")), [1., 1., 1., 1., 0., 0.]);
    let i = Tensor::new(&d, &[2u8, 0, 2], [3]).expect("fits");
    e.forward(&i).expect("rows").sum().expect("float").backward().expect("tracked");
    assert_eq!(values(&e.weight.grad().expect("a gradient")), [1., 1., 0., 0., 0., 0.]);
    for out in [3, -4, isize::MIN, isize::MAX] {
        let options = EmbeddingOptions { padding_idx: Some(out), ..EmbeddingOptions::default() };
        let e = Embedding::with_options(&mut InitCx::new(&d, 1), 3, 2, options).err().expect("no such row");
        assert_eq!(e.kind(), ErrorKind::Index, "{out}");
    }
}

#[test]
fn bags_of_rows_become_one_row_each() {
    let d = cpu();
    let table = tensor(&d, &[1., 2., 3., 4., 5., 6.], [3, 2]);
    let ints = |v: &[i64], shape: &[usize]| Tensor::new(&d, v, shape.to_vec()).expect("fits");
    let (index, offsets) = (ints(&[2, 0, 1, 2, 1], &[5]), ints(&[0, 2, 2, 5], &[4]));
    let bags = |mode, padding_idx, last| {
        let bags = Bags { offsets: Some(&offsets), include_last_offset: last, padding_idx, ..Bags::with_mode(mode) };
        values(&table.embedding_bag(&index, bags).expect("fits"))
    };
    assert_eq!(bags(BagMode::Sum, None, false), [6., 8., 0., 0., 11., 14., 0., 0.]);
    assert_eq!(bags(BagMode::Mean, Some(1), false), [3., 4., 0., 0., 5., 6., 0., 0.]);
    assert_eq!(bags(BagMode::Max, Some(2), false), [1., 2., 0., 0., 3., 4., 0., 0.]);
    assert_eq!(bags(BagMode::Max, None, true), [5., 6., 0., 0., 5., 6.]);
    // rows of an index; a bag of padding alone is empty
    let square = ints(&[0, 0, 0, 1], &[2, 2]);
    for (mode, y) in
        [(BagMode::Sum, [0., 0., 3., 4.]), (BagMode::Mean, [0., 0., 3., 4.]), (BagMode::Max, [0., 0., 3., 4.])]
    {
        let y2 = table.embedding_bag(&square, Bags { padding_idx: Some(0), ..Bags::with_mode(mode) }).expect("fits");
        assert_eq!(values(&y2), y, "{mode:?}");
        let none = table.embedding_bag(&ints(&[], &[2, 0]), Bags::with_mode(mode)).expect("empty bags");
        assert_eq!(values(&none), [0.; 4], "{mode:?}");
        let none = table.embedding_bag(&ints(&[], &[0, 3]), Bags::with_mode(mode)).expect("no bags");
        assert_eq!(none.dims(), [0, 2]);
    }
    let late = ints(&[1], &[1]);
    let y = table.embedding_bag(&index, Bags { offsets: Some(&late), ..Bags::default() }).expect("found on the device");
    assert_eq!(y.to_host().expect_err("rows before the first bag").kind(), ErrorKind::Index);
    let kind = |index: &Tensor, b: Bags<'_>| table.embedding_bag(index, b).expect_err("refused").kind();
    assert_eq!(kind(&index, Bags::default()), ErrorKind::Axis);
    assert_eq!(kind(&square, Bags { offsets: Some(&offsets), ..Bags::default() }), ErrorKind::Axis);
    assert_eq!(kind(&square, Bags { weights: Some(&table), ..Bags::default() }), ErrorKind::Value);
    assert_eq!(kind(&square, Bags { weights: Some(&table), ..Bags::with_mode(BagMode::Sum) }), ErrorKind::Shape);
    assert_eq!(kind(&square, Bags { padding_idx: Some(3), ..Bags::default() }), ErrorKind::Index);
}

#[test]
fn dropout_drops_by_its_key_and_only_while_training() {
    let d = cpu();
    let layer = Dropout::new(0.25, &mut Rng::new(3)).expect("a probability");
    let x = Tensor::ones(&d, [40_000], DType::F32).expect("fits");
    let (a, b) = (values(&layer.forward(&x).expect("float")), values(&layer.forward(&x).expect("float")));
    assert_ne!(a, b, "each pass has its own key");
    assert!(a.iter().all(|v| *v == 0.0 || (*v - 4.0 / 3.0).abs() < 1e-6));
    let dropped = a.iter().filter(|v| **v == 0.0).count() as f64 / 40_000.0;
    // five standard errors
    assert!((dropped - 0.25).abs() < 0.011, "{dropped}");
    let key = Rng::new(9).next_key(&d).expect("open");
    let with = |k| values(&layer.forward_with(&x, k).expect("float"));
    assert_eq!(with(&key), with(&key));
    layer.eval();
    assert_eq!(values(&layer.forward(&x).expect("float")), vec![1.0; 40_000]);
    assert!(Dropout::new(1.5, &mut Rng::new(1)).is_err());
}

#[test]
fn pools_take_windows() {
    let d = cpu();
    let x = tensor(&d, &[1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15., 16.], [1, 1, 4, 4]);
    let of = |l: &dyn Layer| values(&l.forward(&x).expect("fits"));
    assert_eq!(of(&MaxPool2d::new(2)), [6., 8., 14., 16.]);
    assert_eq!(of(&MaxPool2d::with(3, 2, 1)), [6., 8., 14., 16.]);
    assert_eq!(of(&AvgPool2d::new(2)), [3.5, 5.5, 11.5, 13.5]);
    assert_eq!(of(&AvgPool2d::with(2, 3, 1, true)), [0.25, 1.75, 5.5, 13.5]);
    assert_eq!(of(&AvgPool2d::with(2, 3, 1, false)), [1., 3.5, 11., 13.5]);
    assert_eq!(of(&AdaptiveAvgPool2d::new(1)), [8.5]);
    // rows 0..2, 1..3, 2..4 of 4 for 3 windows
    assert_eq!(of(&AdaptiveAvgPool2d::new([3, 1])), [4.5, 8.5, 12.5]);
    assert_eq!(Flatten::default().forward(&x).expect("fits").dims(), [1, 16]);
    assert_eq!(Flatten { first: 3 }.forward(&x).expect("fits").dims(), [1, 1, 4, 4]);
    assert_eq!(Flatten { first: 5 }.forward(&x).expect_err("rank 4").kind(), ErrorKind::Axis);
}

#[test]
fn activations_are_their_formulas() {
    let d = cpu();
    let v = [-2.0f64, -0.5, 0.0, 1.0, 3.0];
    let x = Tensor::from_slice(&d, &v, [5]).expect("fits");
    let of = |l: &dyn Layer| values(&l.forward(&x).expect("float"));
    let all = |f: fn(f64) -> f64| v.map(f);
    assert_close(&of(&Relu), &all(|x| x.max(0.0)), 0.0);
    assert_close(&of(&Identity), &v, 0.0);
    assert_close(&of(&Tanh), &all(f64::tanh), 1e-14);
    assert_close(&of(&Sigmoid), &all(|x| 1.0 / (1.0 + (-x).exp())), 1e-14);
    assert_close(&of(&Silu), &all(|x| x / (1.0 + (-x).exp())), 1e-14);
    assert_close(&of(&LeakyRelu::default()), &all(|x| if x > 0.0 { x } else { 0.01 * x }), 1e-15);
    // x Phi(x), with Phi from tables
    let phi = [0.022_750_131_948_179_2, 0.308_537_538_725_986_9, 0.5, 0.841_344_746_068_542_9, 0.998_650_101_968_369_9];
    let want: Vec<f64> = v.iter().zip(phi).map(|(x, p)| x * p).collect();
    assert_close(&of(&Gelu), &want, 1e-12);
    let sum: f64 = v.iter().map(|x| x.exp()).sum();
    assert_close(&of(&Softmax { axis: -1 }), &v.map(|x| x.exp() / sum), 1e-14);
    assert_close(&of(&LogSoftmax { axis: 0 }), &v.map(|x| x - sum.ln()), 1e-14);
}

#[test]
fn a_sequential_names_the_layer_that_fails() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    let s = Sequential::new().then(Relu).then(Linear::new(cx, 3, 2).expect("fits"));
    let e = s.forward(&tensor(&d, &[1., 2.], [1, 2])).expect_err("2 is not 3");
    assert!(e.message().starts_with("layer 1: "), "{e}");
    assert_eq!((s.len(), s.is_empty(), s.iter().count()), (2, false, 2));
}

#[test]
fn losses_are_their_formulas() {
    let d = cpu();
    let x = Tensor::from_slice(&d, &[0.0f64, 2.0f64.ln(), 5.0f64.ln(), 2.0f64.ln(), 0.0, 0.0], [2, 3]).expect("fits");
    let labels = Tensor::new(&d, &[2i64, 1], [2]).expect("fits");
    let (a, b) = (-(0.625f64.ln()), -(0.25f64.ln()));
    let close = |t: Tensor, want: &[f64]| assert_close(&values(&t), want, 1e-14);
    close(loss::cross_entropy(&x, &labels).expect("fits"), &[(a + b) / 2.0]);
    let logs = x.log_softmax(1).expect("axis 1");
    close(loss::nll(&logs, &labels, Reduction::Mean).expect("fits"), &[(a + b) / 2.0]);
    close(loss::nll(&logs, &labels, Reduction::None).expect("fits"), &[a, b]);
    let with = loss::cross_entropy_with(&x, &labels, Reduction::Sum, 0.3, Some(1)).expect("fits");
    close(with, &[0.7 * a - 0.1 * (0.125f64.ln() + 0.25f64.ln() + 0.625f64.ln())]);
    let (p, t) = (
        Tensor::from_slice(&d, &[1.0f64, -2.0], [2]).expect("fits"),
        Tensor::from_slice(&d, &[0.0f64, 1.0], [2]).expect("fits"),
    );
    close(loss::mse(&p, &t, Reduction::Mean).expect("alike"), &[5.0]);
    close(loss::l1(&p, &t, Reduction::Sum).expect("alike"), &[4.0]);
    let s = |x: f64| 1.0 / (1.0 + (-x).exp());
    close(loss::bce_with_logits(&p, &t, Reduction::None).expect("alike"), &[-(1.0 - s(1.0)).ln(), -s(-2.0).ln()]);
    assert_eq!(loss::mse(&p, &x, Reduction::Mean).expect_err("shapes").kind(), ErrorKind::Shape);
    let single = t.cast(DType::F32).expect("float");
    assert_eq!(loss::mse(&p, &single, Reduction::Mean).expect_err("dtypes").kind(), ErrorKind::DType);
    let huge = Tensor::new(&d, &[1e4f32, -1e4], [2]).expect("fits");
    let y = Tensor::new(&d, &[1.0f32, 0.0], [2]).expect("fits");
    assert_eq!(values(&loss::bce_with_logits(&huge, &y, Reduction::Sum).expect("alike")), [0.0]);
}

#[test]
fn attention_refuses_what_does_not_fit() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    assert_eq!(MultiHeadAttention::new(cx, 8, 3).err().expect("8 / 3").kind(), ErrorKind::Value);
    assert_eq!(MultiHeadAttention::new(cx, 8, 0).err().expect("8 / 0").kind(), ErrorKind::Value);
    let a = MultiHeadAttention::new(cx, 4, 2).expect("fits");
    assert_eq!(a.forward(&tensor(&d, &[0.0; 8], [2, 4])).expect_err("rank 2").kind(), ErrorKind::Axis);
    assert_eq!(a.forward(&tensor(&d, &[0.0; 6], [1, 2, 3])).expect_err("width 3").kind(), ErrorKind::Shape);
    let x = tensor(&d, &[0.0; 8], [1, 2, 4]);
    let wide = Tensor::new(&d, &[true; 9], [3, 3]).expect("fits");
    assert_eq!(a.forward_with(&x, Attend::masked(&wide)).expect_err("3 is not 2").kind(), ErrorKind::Shape);
    let floats = tensor(&d, &[0.0; 4], [2, 2]);
    assert_eq!(a.forward_with(&x, Attend::masked(&floats)).expect_err("floats").kind(), ErrorKind::DType);
}

#[test]
fn relu6_cuts_on_both_sides() {
    let d = cpu();
    assert_eq!(values(&Relu6.forward(&tensor(&d, &[-1., 0.5, 7.], [3])).expect("floats")), [0., 0.5, 6.]);
}
