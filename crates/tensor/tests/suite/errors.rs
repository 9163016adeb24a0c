//! A wrong call is an error that names its op and the caller's line, and changes nothing.

use remat_ops::compose::{Interpolation, ScatterReduce};
use remat_ops::order::CumulateFn;
use remat_tensor::ConvParams;
use remat_tensor::Windows;
use remat_tensor::{Attend, Tensor};
use remat_types::ErrorKind::{Arity, Axis, DType as Dtype, Index, Shape as Shapes, Value};
use remat_types::{DType, Error, ErrorKind, Result};

use crate::support::{leaf, plain, tensor, values, wave};

/// Asserts kind and op of an error that was made at `line` of this file.
#[track_caller]
fn expect(line: u32, e: Error, kind: ErrorKind, op: &str) {
    assert_eq!((e.kind(), e.op()), (kind, Some(op)), "{e}");
    let site = e.call_site().unwrap_or_else(|| panic!("no place: {e}"));
    assert_eq!((site.file(), site.line()), (file!(), line), "{e}");
}

/// Calls, one a line, each with its kind of error and its op.
macro_rules! wrong {
    ($($kind:ident $op:literal: $call:expr;)*) => {{
        let mut line = line!();
        $(
            line += 1;
            expect(line, $call.map(|_| ()).expect_err($op), $kind, $op);
        )*
    }};
}

#[test]
fn wrong_arguments_name_op_and_line() {
    let d = plain();
    let x = tensor(&d, &wave(6), [2, 3]);
    let (i, b) = (x.cast(DType::I32).expect("casts"), x.gt(0.0).expect("compares"));
    let four = tensor(&d, &wave(4), [1, 1, 2, 2]);
    wrong! {
        Shapes "add": x.add(tensor(&d, &wave(2), [2]));
        Shapes "sub": &x - &tensor(&d, &wave(2), [2]);
        Dtype "add": b.add(&b);
        Dtype "mul": i.mul(0.5);
        Value "add": i.cast(DType::U8).expect("casts").add(300);
        Value "sub": i.cast(DType::U8).expect("casts") - 300;
        Dtype "exp": i.exp();
        Dtype "relu": b.relu();
        Shapes "lt": x.lt(tensor(&d, &wave(2), [2]));
        Value "clamp": x.clamp(1.0, 0.0);
        Shapes "matmul": x.matmul(&x);
        Axis "matmul": x.matmul(&x.sum().expect("a float"));
        Axis "softmax": x.softmax(2);
        Axis "log_softmax": x.log_softmax(-3);
        Axis "sum": x.sum_over(&[2], false);
        Axis "mean": x.mean_over(&[0, 0], false);
        Dtype "any": x.any();
        Axis "var": x.var_over(&[5], false, 0);
        Axis "log_sum_exp": x.log_sum_exp_over(&[-4], false);
        Axis "argmax": x.argmax_over(2, false);
        Shapes "argmin": tensor(&d, &[], [0]).argmin_over(0, false);
        Shapes "reshape": x.reshape(&[4, 2]);
        Shapes "reshape": x.reshape(&[-1, 4]);
        Shapes "reshape": x.reshape(&[-1, -1]);
        Axis "transpose": x.transpose(0, 2);
        Axis "transpose": tensor(&d, &[1.0], [1]).t();
        Axis "permute": x.permute(&[0, 0]);
        Shapes "broadcast_to": x.broadcast_to([3, 3]);
        Shapes "squeeze": x.squeeze(&[0]);
        Axis "squeeze": x.squeeze(&[2]);
        Axis "unsqueeze": x.unsqueeze(4);
        Axis "flatten": x.flatten_from(3);
        Shapes "conv2d": four.conv2d(&tensor(&d, &wave(2), [1, 2, 1, 1]), ConvParams::PLAIN);
        Shapes "conv1d": x.unsqueeze(0).expect("fits").conv1d(&tensor(&d, &wave(4), [1, 1, 4]), ConvParams::PLAIN);
        Axis "conv3d": four.conv3d(&four, ConvParams::PLAIN);
        Axis "conv_transpose1d": four.conv_transpose1d(&four, ConvParams::PLAIN, [0]);
        Value "conv_transpose2d": four.conv_transpose2d(&four, ConvParams::PLAIN, [0, 1]);
        Axis "conv_transpose3d": four.conv_transpose3d(&four, ConvParams::PLAIN, [0, 0, 0]);
        Axis "max_pool2d": x.max_pool2d(Windows::sliding([1, 1], [1, 1], [0, 0]));
        Axis "avg_pool2d": x.avg_pool2d(Windows::sliding([1, 1], [1, 1], [0, 0]), true);
        Dtype "cross_entropy": x.cross_entropy(&x);
        Axis "attention": x.attention(&x, &x, Attend::default());
        Shapes "attention": four.attention(&tensor(&d, &wave(2), [1, 1, 2, 1]), &four, Attend::default());
        Shapes "attention": four.unsqueeze(0).expect("fits").self_attention(Attend::CAUSAL);
        Value "attention": four.attention(&four, &four, Attend { scale: Some(f64::NAN), ..Attend::default() });
        Shapes "layer_norm": x.layer_norm(&x, &x, 1, 1e-5);
        Shapes "batch_norm": x.batch_norm(&x, &x, 1e-5);
        Shapes "new": Tensor::new(&d, &[1.0f32], [2]);
        Shapes "fill": Tensor::zeros(&d, [usize::MAX, 2], DType::F32);
        Value "arange": Tensor::arange(&d, 0.5, 3.0, 1.0, DType::I32);
        Value "arange": Tensor::arange(&d, 0, 3, 0, DType::I32);
        Value "arange": Tensor::arange(&d, 0.0, f64::INFINITY, 1.0, DType::F32);
        Shapes "arange": Tensor::arange(&d, 0.0, 1e300, 1.0, DType::F32);
        Dtype "linspace": Tensor::linspace(&d, 0.0, 1.0, 3, DType::Bool);
        Value "linspace": Tensor::linspace(&d, 0.0, f64::NAN, 3, DType::F32);
        Axis "slice": x.slice(2, ..);
        Value "slice_step": x.slice_step(0, .., 0);
        Index "narrow": x.narrow(1, 2, 2);
        Index "narrow": x.narrow(1, -4, 1);
        Index "narrow": x.narrow(1, isize::MIN, usize::MAX);
        Index "select": x.select(0, 2);
        Index "select": x.select(0, -3);
        Axis "flip": x.flip(&[0, 0]);
        Axis "take": x.take(2, &i);
        Dtype "take": x.take(0, &x);
        Axis "index_select": x.index_select(0, &i);
        Shapes "gather": x.gather(0, &i.flatten(0, -1).expect("fits").unsqueeze(0).expect("fits"));
        Axis "gather": x.gather(-3, &i);
        Shapes "index_add": x.index_add(0, &i.select(0, 0).expect("there"), &four.reshape(&[1, 4]).expect("fits"));
        Shapes "index_add": x.index_add(0, &i.select(0, 0).expect("there"), &x);
        Dtype "index_add": x.index_add(1, &i.select(0, 0).expect("there"), &i);
        Shapes "scatter_add": x.scatter_add(0, &i, &x.slice(0, ..1).expect("there"));
        Dtype "scatter_add": x.scatter_add(0, &i, &i);
        Dtype "scatter_add": b.scatter_add(0, &i, &b);
        Axis "scatter": x.scatter(2, &i, 0);
        Shapes "scatter": x.scatter(1, &i.reshape(&[3, 2]).expect("fits"), 0);
        Dtype "scatter_reduce": x.scatter_reduce(1, &x, &x, ScatterReduce::Sum, true);
        Shapes "index_fill": x.index_fill(0, &i, 1);
        Dtype "index_copy": x.index_copy(0, &x.select(1, 0).expect("there"), &x);
        Shapes "gather_nd": x.gather_nd(&i, 0);
        Shapes "put": x.put(&i, &four, false);
        Dtype "masked_scatter": x.masked_scatter(&i, &x);
        Index "select_scatter": x.select_scatter(&x.select(0, 0).expect("there"), 0, 2);
        Axis "cumsum": x.cumsum(2);
        Dtype "cumprod": b.cumprod(0);
        Dtype "logcumsumexp": i.logcumsumexp(0);
        Value "cummax": x.cumulate(CumulateFn::Max, 0, true, false);
        Axis "sort": x.sort(2, false);
        Axis "argsort": x.argsort(-3, false);
        Value "topk": x.topk(4, 1, true, true);
        Value "kthvalue": x.kthvalue(0, 1, false);
        Value "kthvalue": x.kthvalue(4, 1, false);
        Shapes "median": tensor(&d, &[], [0]).median();
        Value "quantile": x.quantile(1.5, Interpolation::Linear);
        Dtype "quantile_over": i.quantile_over(0.5, 0, false, Interpolation::Linear);
        Axis "bucketize": x.bucketize(&x, false);
        Shapes "searchsorted": x.searchsorted(&four, false);
        Axis "count_nonzero": x.count_nonzero_over(&[2], false);
        Shapes "topk_accuracy": x.topk_accuracy(&i, 1);
        Dtype "bincount": x.bincount(None, 0);
        Axis "bincount": i.bincount(None, 0);
        Value "histogram": x.histogram(0, None, None, false);
        Value "histogram": x.histogram(3, Some((1.0, 0.0)), None, false);
        Dtype "histc": i.histc(3, 0.0, 1.0);
        Value "multinomial": x.multinomial(&i, 4, false);
        Axis "shuffle": x.shuffle(&i, 2);
        Dtype "one_hot": x.one_hot(3, DType::F32);
        Dtype "where": x.where_cond(&x, 0.0);
        Dtype "where": b.where_cond(&i, 0.5);
        Shapes "where": b.where_cond(&x, four.reshape(&[4]).expect("fits"));
        Dtype "masked_fill": x.masked_fill(&x, 0.0);
        Shapes "masked_fill": x.masked_fill(&four.gt(0.0).expect("compares"), 0.0);
        Shapes "masked_fill": x.select(0, 0).expect("there").masked_fill(&b, 0.0);
        Dtype "masked_fill": i.masked_fill(&b, &x);
        Axis "tril": x.select(0, 0).expect("there").tril(0);
        Axis "triu": x.sum().expect("a float").triu(0);
        Arity "concat": Tensor::concat(&[], 0);
        Axis "concat": Tensor::concat(&[&x], 2);
        Shapes "concat": Tensor::concat(&[&x, &x.t().expect("fits")], 0);
        Dtype "concat": Tensor::concat(&[&x, &i], 0);
        Arity "stack": Tensor::stack(&[], 0);
        Shapes "stack": Tensor::stack(&[&x, &x.t().expect("fits")], 0);
        Axis "stack": Tensor::stack(&[&x], 3);
        Shapes "split": x.split(&[1, 3], 1);
        Shapes "split": x.split(&[usize::MAX, 4], 1);
        Value "chunk": x.chunk(0, 0);
        Shapes "pad": x.pad(&[(0, 1)], 0);
        Shapes "pad": x.pad(&[(0, 0), (usize::MAX, 4)], 0);
        Shapes "repeat": x.repeat(&[2]);
        Shapes "repeat": x.repeat(&[usize::MAX, 2]);
        Shapes "repeat_interleave": x.repeat_interleave(usize::MAX, 0);
        Axis "repeat_interleave": x.repeat_interleave(2, 2);
        Axis "roll": x.roll(1, 2);
        Axis "flatten": x.flatten(1, 0);
        Axis "flatten": x.flatten(0, 2);
        Shapes "unflatten": x.unflatten(1, &[2, 2]);
        Axis "unflatten": x.unflatten(2, &[1]);
        Axis "movedim": x.movedim(0, 2);
        Axis "outer": x.outer(&x);
        Dtype "elu": i.elu(1.0);
        Dtype "mul": i.allclose(&i, 0.0, 0.0);
        Dtype "requires_grad": i.requires_grad();
        Shapes "dims_n": x.dims_n::<3>();
    }
    assert_eq!(values(&x), wave(6), "nothing happened");
}

#[test]
fn wrong_reads_name_their_line() {
    let d = plain();
    let x = tensor(&d, &wave(6), [2, 3]);
    wrong! {
        Dtype "to_vec": x.to_vec::<f32>();
        Shapes "item": x.item::<f64>();
        Dtype "item": x.sum().expect("a float").item::<f32>();
    }
}

#[test]
fn a_wrong_backward_names_the_line_that_asked_for_it() {
    let d = plain();
    let x = leaf(&d, &[1.0, 2.0]);
    let y = x.exp().expect("a float");
    let constant = x.detach().exp().expect("a float");
    use remat_types::ErrorKind::{NotDifferentiable, Shape};
    wrong! {
        NotDifferentiable "backward": constant.backward();
        Shape "backward": y.backward_with(Some(&tensor(&d, &[1.0], [1])), false);
        NotDifferentiable "grad": remat_tensor::grad(&constant, &[&x], false);
        NotDifferentiable "grad": remat_tensor::grad(&y, &[&constant], false);
        Shape "grad": remat_tensor::grad_with(&y, Some(&tensor(&d, &[1.0], [1])), &[&x], false);
    }
}

#[test]
fn an_error_found_at_run_time_names_the_line_of_the_call() {
    let d = plain();
    let n = tensor(&d, &wave(16), [16]).cast(DType::I32).expect("casts");
    let zero = n.sub(&n).expect("fits");
    let run = || -> Result<(u32, Tensor)> { Ok((line!(), n.div(&zero)?)) };
    let (line, y) = run().expect("only the data can tell");
    let z = y.add(1).expect("fits");
    expect(line, z.to_host().expect_err("division by zero"), Value, "div");
    assert_eq!(y.to_host().expect_err("reported before").kind(), ErrorKind::Poisoned);
    assert_eq!(n.to_vec::<i32>().expect("intact").len(), 16);
}

#[test]
fn a_failure_in_a_backward_pass_names_the_forward_line() {
    let d = plain();
    // a label that is no class is found at run time, by the loss and by its gradient
    let x = tensor(&d, &wave(6), [2, 3]).requires_grad().expect("a float");
    let labels = Tensor::new(&d, &[0i64, 9], [2]).expect("fits");
    let held = d.channel().pause().expect("open");
    let line = line!() + 1;
    let loss = x.cross_entropy(&labels).expect("only the data can tell");
    loss.backward().expect("queued");
    drop(held);
    let dx = x.grad().expect("queued");
    expect(line, dx.to_host().expect_err("no class 9"), ErrorKind::Index, "cross_entropy_grad");
    // One error reports all failures of a step.
    assert_eq!(loss.to_host().expect_err("no class 9").kind(), ErrorKind::Poisoned);
}

#[test]
fn a_view_beyond_the_hosts_memory_is_an_error_to_read() {
    let d = plain();
    let x = Tensor::from_slice(&d, &[1.5f64], []).and_then(|x| x.broadcast_to([1usize << 42])).expect("a view");
    for e in [x.to_host().expect_err("32 TiB"), x.to_vec::<f64>().expect_err("32 TiB")] {
        assert!(e.kind() == ErrorKind::Io && e.message().contains(&(8u64 << 42).to_string()), "{e}");
    }
    assert_eq!(x.item::<f64>().expect_err("many").kind(), ErrorKind::Shape);
    // the device goes on
    assert_eq!(x.slice(0, ..3).and_then(|x| x.to_vec::<f64>()).expect("three"), [1.5; 3]);
}

#[test]
fn recurrent_layers_of_integers_say_what_is_no_float() {
    let d = plain();
    let integers = |dims: &[usize]| Tensor::zeros(&d, dims, DType::I32).expect("fits");
    let (x, w) = (integers(&[1, 1, 2]), integers(&[2, 2]));
    let weights = remat_tensor::RecurrentWeights::new(&w, &w);
    let e = x.rnn(remat_tensor::Nonlinearity::Tanh, None, weights, remat_tensor::RecurrentSteps::default());
    let e = e.map(|_| ()).expect_err("integers");
    assert_eq!(e.kind(), Dtype, "{e}");
    assert!(e.to_string().contains("x is i32, not a float"), "{e}");
}
