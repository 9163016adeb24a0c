//! Layers over several ranks, against one process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use remat_nn::distributed::{
    ColumnParallelLinear, ColumnParallelOptions, Communicator, DataParallel, Divided, ParallelAttention,
    RowParallelLinear, RowParallelOptions, enter_parallel, gather_parts, leave_parallel, load_whole_state_dict,
    take_part, threads, whole_state_dict,
};
use remat_nn::{
    AdamW, AdamWOptions, Attend, AttentionOptions, InitCx, Layer, LayerNorm, Linear, LinearOptions, Module,
    MultiHeadAttention, Optimizer, Parameter, Sgd, SgdOptions,
};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile, grad};
use remat_types::{DType, ErrorKind, HostTensor, Result};

use crate::support::wave;

const LIMIT: Duration = Duration::from_secs(120);
const WIDTH: usize = 16;
const HEADS: usize = 4;
const STEPS: usize = 4;

/// Sums of some tens of numbers around 1, in another order, after some steps.
const F64: f64 = 1e-12;
const F32: f64 = 1e-5;

fn device(ranks: Option<&Communicator>) -> Result<Device> {
    Device::cpu(DeviceOptions { threads: 1, ranks: ranks.cloned(), ..Default::default() })
}

fn cx(d: &Device, dtype: DType) -> InitCx {
    let mut cx = InitCx::new(d, 3);
    cx.dtype = dtype;
    cx
}

fn input(d: &Device, dtype: DType, step: usize) -> Result<Tensor> {
    let values = wave(2 * 5 * WIDTH, step as f64);
    Tensor::from_host(d, &HostTensor::from_f64_slice(&values, dtype, [2, 5, WIDTH])?)
}

/// An MLP or a block of a transformer, on one process or on several ranks.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Block<A, U, D> {
    norm: LayerNorm,
    attention: Option<A>,
    up: U,
    down: D,
}

type Whole = Block<MultiHeadAttention, Linear, Linear>;
type Parallel = Block<ParallelAttention, ColumnParallelLinear, RowParallelLinear>;

impl<A: Layer, U: Layer, D: Layer> Block<A, U, D> {
    fn out(&self, x: &Tensor) -> Result<Tensor> {
        let h = match &self.attention {
            Some(a) => x.add(a.forward(&self.norm.forward(x)?)?)?,
            None => self.norm.forward(x)?,
        };
        self.down.forward(&self.up.forward(&h)?.gelu()?)?.add(&h)
    }

    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let weight = HostTensor::from_f64_slice(&wave(x.elems(), 0.4), x.dtype(), x.shape())?;
        self.out(x)?.square()?.mul(Tensor::from_host(&x.device(), &weight)?)?.mean()
    }
}

impl Whole {
    fn whole(d: &Device, dtype: DType, attends: bool) -> Result<Whole> {
        let cx = &mut cx(d, dtype);
        Ok(Block {
            norm: LayerNorm::new(cx, [WIDTH])?,
            attention: if attends { Some(MultiHeadAttention::new(cx, WIDTH, HEADS)?) } else { None },
            up: Linear::new(cx, WIDTH, 4 * WIDTH)?,
            down: Linear::new(cx, 4 * WIDTH, WIDTH)?,
        })
    }
}

impl Parallel {
    fn parallel(d: &Device, dtype: DType, attends: bool, group: &Communicator) -> Result<Parallel> {
        let cx = &mut cx(d, dtype);
        Ok(Block {
            norm: LayerNorm::new(cx, [WIDTH])?,
            attention: if attends { Some(ParallelAttention::new(cx, WIDTH, HEADS, group)?) } else { None },
            up: ColumnParallelLinear::new(cx, WIDTH, 4 * WIDTH, group)?,
            down: RowParallelLinear::new(cx, 4 * WIDTH, WIDTH, group)?,
        })
    }
}

type State = BTreeMap<String, HostTensor>;

#[track_caller]
fn assert_near(got: &HostTensor, want: &HostTensor, tolerance: f64, what: &str) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{what}");
    let (got, want) = (got.to_f64_vec(), want.to_f64_vec());
    // errors of a sum are in proportion to its terms
    let scale = want.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    for (g, w) in got.iter().zip(&want) {
        assert!((g - w).abs() <= tolerance * scale, "{what}: {g} against {w}");
    }
}

#[track_caller]
fn assert_states_near(got: &State, want: &State, tolerance: f64, what: &str) {
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{what}");
    got.iter().for_each(|(name, got)| assert_near(got, &want[name], tolerance, &format!("{what}, {name}")));
}

/// Gradients by name, put in the parameters' place so that parts come together as state does.
fn grads(net: &impl Module) -> Result<State> {
    let parameters = net.parameters();
    let values: Vec<Tensor> = parameters.iter().map(|p| Ok(p.get()?.detach())).collect::<Result<_>>()?;
    parameters.iter().try_for_each(|p| p.set(&p.grad().expect("used")))?;
    let all = whole_state_dict(net);
    parameters.iter().zip(&values).try_for_each(|(p, value)| p.set(value))?;
    all
}

/// The results of a run: the first output and gradients, and the weights in the end.
#[derive(Debug, PartialEq)]
struct Seen {
    y: HostTensor,
    dx: HostTensor,
    grads: State,
    weights: State,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    dtype: DType,
    attends: bool,
    adam: bool,
    compiled: bool,
}

fn train<A, U, D>(d: &Device, case: Case, net: Block<A, U, D>) -> Result<Seen>
where
    A: Layer + 'static,
    U: Layer + 'static,
    D: Layer + 'static,
{
    let x = input(d, case.dtype, 0)?.requires_grad()?;
    let y = net.out(&x)?.to_host()?;
    net.loss(&x)?.backward()?;
    let (grads, dx) = (grads(&net)?, x.grad().expect("used").to_host()?);
    let parameters = net.named_parameters();
    let mut optimizer: Box<dyn Optimizer> = match case.adam {
        // the gradient of the bias of `k` is 0 except for rounding errors, and a small eps would make steps of these
        true => Box::new(AdamW::new(parameters, AdamWOptions { lr: 0.01, eps: 1e-4, ..Default::default() })?),
        false => Box::new(Sgd::new(parameters, SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() })?),
    };
    optimizer.step()?;
    let (net, optimizer) = (Rc::new(net), Rc::new(RefCell::new(optimizer)));
    let own = (net.clone(), optimizer);
    let step = move |x: &[Tensor]| {
        let loss = own.0.loss(&x[0])?;
        loss.backward()?;
        own.1.borrow_mut().step()?;
        Ok(vec![loss.detach()])
    };
    let mut f = compile(d, step.clone());
    for i in 1..STEPS {
        let x = input(d, case.dtype, i)?;
        let loss = if case.compiled { f.call(&[&x])? } else { step(&[x])? };
        loss[0].to_host()?;
    }
    Ok(Seen { y, dx, grads, weights: whole_state_dict(&*net)? })
}

fn one(case: Case) -> Result<Seen> {
    let d = device(None)?;
    train(&d, case, Whole::whole(&d, case.dtype, case.attends)?)
}

fn several(case: Case, size: usize) -> Result<Vec<Seen>> {
    threads::run_within(size, LIMIT, |ranks| {
        let d = device(Some(&ranks))?;
        train(&d, case, Parallel::parallel(&d, case.dtype, case.attends, &ranks)?)
    })
}

fn compare(case: Case, size: usize) {
    let want = one(case).expect("trains");
    let seen = several(case, size).unwrap_or_else(|e| panic!("{case:?} on {size}: {e}"));
    for (rank, got) in seen.iter().enumerate() {
        assert!(*got == seen[0], "{case:?} on {size} ranks: bits of rank {rank}");
        assert_trained_near(got, &want, case);
    }
}

#[track_caller]
fn assert_trained_near(got: &Seen, want: &Seen, case: Case) {
    let tolerance = if case.dtype == DType::F64 { F64 } else { F32 };
    let what = |part: &str| format!("{part} of {case:?}");
    assert_near(&got.y, &want.y, tolerance, &what("output"));
    assert_near(&got.dx, &want.dx, tolerance, &what("gradient of the input"));
    assert_states_near(&got.grads, &want.grads, tolerance, &what("gradients"));
    // Adam divides by the root of a square: a relative error of a gradient comes through several steps whole
    assert_states_near(&got.weights, &want.weights, tolerance * 10.0, &what("weights"));
}

/// A block of a transformer over `ranks`, which may be processes, trains as on one process.
pub(crate) fn check(ranks: &Communicator) -> Result<()> {
    for compiled in [false, true] {
        let case = Case { dtype: DType::F64, attends: true, adam: true, compiled };
        let d = device(Some(ranks))?;
        let got = train(&d, case, Parallel::parallel(&d, case.dtype, case.attends, ranks)?)?;
        assert_trained_near(&got, &one(case)?, case);
    }
    Ok(())
}

#[test]
fn an_mlp_trains_as_on_one_process() {
    for (size, adam) in [(1, true), (2, false), (2, true), (4, false), (4, true)] {
        for dtype in [DType::F32, DType::F64] {
            compare(Case { dtype, attends: false, adam, compiled: false }, size);
        }
    }
    compare(Case { dtype: DType::F64, attends: false, adam: true, compiled: true }, 4);
}

#[test]
fn a_block_of_a_transformer_trains_as_on_one_process() {
    for (size, adam) in [(2, false), (2, true), (4, true)] {
        compare(Case { dtype: DType::F64, attends: true, adam, compiled: false }, size);
    }
    compare(Case { dtype: DType::F32, attends: true, adam: false, compiled: false }, 2);
}

#[test]
fn compiled_steps_have_the_bits_of_eager_ones() {
    for attends in [false, true] {
        let case = Case { dtype: DType::F32, attends, adam: true, compiled: false };
        let eager = several(case, 2).expect("trains");
        let compiled = several(Case { compiled: true, ..case }, 2).expect("trains");
        assert!(eager == compiled, "attention: {attends}");
    }
}

#[test]
fn outputs_are_gathered_and_inputs_taken_apart() {
    for blocks in [1, 3] {
        let want = {
            let d = device(None).expect("a device");
            let cx = &mut cx(&d, DType::F64);
            let first = Linear::new(cx, WIDTH, 12).expect("fits");
            let second = Linear::new(cx, 12, 5).expect("fits");
            through(&d, &first, &second).expect("runs")
        };
        let seen = threads::run_within(2, LIMIT, |ranks| {
            let d = device(Some(&ranks))?;
            let cx = &mut cx(&d, DType::F64);
            let options = ColumnParallelOptions { gather_output: true, blocks };
            let first = ColumnParallelLinear::with(cx, WIDTH, 12, LinearOptions::default(), options, &ranks)?;
            let options = RowParallelOptions { whole_input: true };
            let second = RowParallelLinear::with(cx, 12, 5, LinearOptions::default(), options, &ranks)?;
            assert_eq!(first.weight.whole_shape()[..], [12, WIDTH]);
            through(&d, &first, &second)
        });
        for got in seen.expect("runs") {
            got.iter().zip(&want).for_each(|(got, want)| assert_near(got, want, F64, "a whole between two layers"));
        }
    }
}

/// The output of two layers with a square between them, and the gradient of their input.
fn through(d: &Device, first: &dyn Layer, second: &dyn Layer) -> Result<[HostTensor; 2]> {
    let x = input(d, DType::F64, 0)?.requires_grad()?;
    let y = second.forward(&first.forward(&x)?.square()?)?;
    y.square()?.sum()?.backward()?;
    Ok([y.to_host()?, x.grad().expect("used").to_host()?])
}

#[test]
fn masks_biases_and_caches_are_of_all_heads() {
    let tensor = |d: &Device, shape: &[usize], phase: f64| {
        let values = wave(shape.iter().product(), phase);
        Tensor::from_host(d, &HostTensor::from_f64_slice(&values, DType::F64, shape).expect("fits"))
    };
    // the outputs and the gradients of the biases
    let run = |d: &Device, attend: &dyn Fn(&Tensor, Attend<'_>) -> Result<Tensor>| -> Result<Vec<HostTensor>> {
        let x = input(d, DType::F64, 0)?;
        let mut all = Vec::new();
        for shape in [&[2, HEADS, 5, 5][..], &[1, 5, 5], &[5]] {
            let bias = tensor(d, shape, 0.9)?.requires_grad()?;
            let mask = tensor(d, shape, 1.7)?.gt(-0.8)?;
            let y = attend(&x, Attend { bias: Some(&bias), mask: Some(&mask), ..Attend::default() })?;
            y.square()?.sum()?.backward()?;
            all.extend([y.to_host()?, bias.grad().expect("used").to_host()?]);
        }
        Ok(all)
    };
    let cached = |x: &Tensor, forward: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<HostTensor> {
        let (first, second) = (forward(&x.narrow(1, 0, 3)?)?, forward(&x.narrow(1, 3, 2)?)?);
        Tensor::concat(&[&first, &second], 1)?.to_host()
    };
    let d = device(None).expect("a device");
    let whole = MultiHeadAttention::new(&mut cx(&d, DType::F64), WIDTH, HEADS).expect("fits");
    let mut want = run(&d, &|x, attend| whole.forward_with(x, attend)).expect("runs");
    let cache = whole.cache(&mut cx(&d, DType::F64), 2, 8).expect("fits");
    want.push(cached(&input(&d, DType::F64, 0).expect("fits"), &|x| whole.forward_cached(x, &cache)).expect("runs"));
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks))?;
        let layer = ParallelAttention::new(&mut cx(&d, DType::F64), WIDTH, HEADS, &ranks)?;
        let mut all = run(&d, &|x, attend| layer.forward_with(x, attend))?;
        let cache = layer.cache(&mut cx(&d, DType::F64), 2, 8)?;
        all.push(cached(&input(&d, DType::F64, 0)?, &|x| layer.forward_cached(x, &cache))?);
        // a mask of this rank's heads alone would be taken for another's
        let own = Tensor::ones(&d, [HEADS / 2, 5, 5], DType::Bool)?;
        let e = layer.forward_with(&input(&d, DType::F64, 0)?, Attend::masked(&own)).expect_err("of 2 heads");
        assert!(e.kind() == ErrorKind::Shape && e.message().contains("for 2 heads, not for all 4"), "{e}");
        let key = Tensor::from_slice(&d, &[1u64, 2], [2])?;
        let drops = Attend { dropout: Some((0.1, &key)), ..Attend::default() };
        let e = layer.forward_with(&input(&d, DType::F64, 0)?, drops).expect_err("numbers of all heads");
        assert_eq!(e.kind(), ErrorKind::Value);
        Ok(all)
    });
    for got in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert_eq!(got.len(), want.len());
        got.iter().zip(&want).for_each(|(got, want)| assert_near(got, want, F64, "attention with a bias"));
    }
}

#[test]
fn checkpoints_go_from_any_number_of_ranks_to_any_other() {
    let d = device(None).expect("a device");
    let whole = Whole::whole(&d, DType::F32, true).and_then(|net| net.state_dict()).expect("a state");
    for size in [1, 2, 4] {
        let saved = threads::run_within(size, LIMIT, |ranks| {
            let d = device(Some(&ranks))?;
            let net = Parallel::parallel(&d, DType::F32, true, &ranks)?;
            // drawn from the same seed
            assert!(whole_state_dict(&net)? == whole, "{size} ranks");
            let zeros = net.named_state();
            zeros.iter().try_for_each(|(_, p)| p.set(&Tensor::zeros(&d, p.shape().clone(), p.dtype())?))?;
            assert!(whole_state_dict(&net)? != whole);
            load_whole_state_dict(&net, &whole, true)?;
            let mut odd = whole.clone();
            odd.insert("up.weight".into(), HostTensor::zeros(DType::F32, [3, 3])?);
            let e = load_whole_state_dict(&net, &odd, true).expect_err("another shape");
            assert!(e.kind() == ErrorKind::Shape && e.to_string().contains("up.weight"), "{e}");
            whole_state_dict(&net)
        });
        assert!(saved.unwrap_or_else(|e| panic!("{e}")).iter().all(|s| *s == whole), "{size} ranks");
    }
}

#[test]
fn divided_layers_train_on_several_batches_at_once() {
    // ranks 0 and 1, 2 and 3 have a layer together; 0 and 2, 1 and 3 have the same part and a batch each
    let case = |dtype| -> Result<State> {
        let d = device(None)?;
        let net = Whole::whole(&d, dtype, false)?;
        for step in 0..2 {
            net.loss(&input(&d, dtype, step)?)?.div(2.0)?.backward()?;
        }
        grads(&net)
    };
    let want = case(DType::F64).expect("trains");
    let seen = threads::run_within(4, LIMIT, |ranks| {
        let d = device(Some(&ranks))?;
        let (batch, part) = (ranks.rank() / 2, ranks.rank() % 2);
        let layer = ranks.split(Some(batch), part)?.expect("a member");
        let data = ranks.split(Some(part), batch)?.expect("a member");
        let net = Parallel::parallel(&d, DType::F64, false, &layer)?;
        let parallel = DataParallel::new(&net, &data, Default::default())?;
        parallel.backward(&net.loss(&input(&d, DType::F64, batch)?)?)?;
        grads(&net)
    });
    for got in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert_states_near(&got, &want, F64, "gradients of two batches");
    }
}

#[test]
fn gradients_of_gradients_count_one_loss() {
    // |grad of sum (x a x)^2|^2, with a in two parts
    let second = |x: &Tensor, y: Tensor| -> Result<f64> {
        let dx = grad(&y.square()?.sum()?, &[x], true)?.swap_remove(0).expect("used");
        let twice = grad(&dx.square()?.sum()?, &[x], false)?.swap_remove(0).expect("used");
        twice.sum()?.item::<f64>()
    };
    let x = |d: &Device| input(d, DType::F64, 0)?.requires_grad();
    let d = device(None).expect("a device");
    let want = x(&d).and_then(|x| second(&x, x.square()?.sum_over(&[-1], false)?)).expect("runs");
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks))?;
        let x = x(&d)?;
        let part = take_part(&x, -1, &ranks)?.square()?.sum_over(&[-1], false)?;
        let taken = second(&x, leave_parallel(&part, &ranks)?)?;
        let own = enter_parallel(&x, &ranks)?.narrow(-1, (8 * ranks.rank()) as isize, 8)?;
        let entered = second(&x, gather_parts(&own.square()?, -1, &ranks)?.sum_over(&[-1], false)?)?;
        Ok([taken, entered])
    });
    for got in seen.expect("runs").iter().flatten() {
        assert!((got - want).abs() <= 1e-10 * want.abs(), "{got} against {want}");
    }
}

#[test]
fn what_ranks_do_not_divide_is_an_error_with_figures() {
    threads::run_within(3, LIMIT, |ranks| {
        let d = device(Some(&ranks))?;
        let cx = &mut cx(&d, DType::F32);
        let told = |e: Option<remat_types::Error>, text: &str| {
            let e = e.expect("not divisible");
            assert!(e.kind() == ErrorKind::Value && e.message().contains(text), "{e}");
        };
        told(ColumnParallelLinear::new(cx, 4, 8, &ranks).err(), "3 ranks do not divide 8 outputs");
        told(RowParallelLinear::new(cx, 8, 3, &ranks).err(), "3 ranks do not divide 8 inputs");
        told(ParallelAttention::new(cx, 16, 4, &ranks).err(), "3 ranks do not divide 4 heads");
        let blocks = ColumnParallelOptions { blocks: 2, ..Default::default() };
        let whole = Linear::new(cx, 4, 9)?;
        told(ColumnParallelLinear::from_linear(&whole, blocks, &ranks).err(), "9 outputs in 2 blocks");
        let odd = AttentionOptions::default();
        told(ParallelAttention::with(cx, 10, 4, odd, &ranks).err(), "4 heads do not divide a width of 10");
        let p = Parameter::new(Tensor::ones(&d, [2, 4], DType::F32)?)?;
        told(Divided::from_whole(&p, 1, 1, &ranks).err(), "3 ranks do not divide the 4 of axis 1 of [2, 4]");
        // a frozen layer stays frozen
        let whole = Linear::new(cx, 4, 9)?;
        whole.set_frozen(true);
        let part = ColumnParallelLinear::from_linear(&whole, Default::default(), &ranks)?;
        assert!(part.parameters().iter().all(Parameter::is_frozen));
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn each_rank_finds_its_own_part_right() {
    for size in [1, 2, 4] {
        threads::run_within(size, LIMIT, |ranks| check(&ranks)).unwrap_or_else(|e| panic!("{size} ranks: {e}"));
    }
}
