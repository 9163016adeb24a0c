//! Several backward passes for one step of data parallel training: of all ranks, of each alone, eager and compiled, with gradients that
//! are replaced between them.

use std::cell::RefCell;
use std::rc::Rc;

use remat_nn::distributed::{
    Communicator, DataParallel, DataParallelOptions, FullySharded, Gradients, Sharded, threads,
};
use remat_nn::{InitCx, Layer, Linear, Module, Optimizer, Parameter, Sgd, SgdOptions, clip_grad_norm};
use remat_tensor::{CompileOptions, Tensor, compile_with};
use remat_types::{DType, ErrorKind, Result};

use crate::distributed::{LIMIT, device};

const WIDTH: usize = 8;

#[derive(Module)]
#[module(crate = remat_nn)]
struct One {
    w: Parameter,
}

impl One {
    /// The gradient of it is `k` times `x` in each place.
    fn loss(&self, x: &Tensor, k: f64) -> Result<Tensor> {
        self.w.get()?.mul(x)?.mul(k)?.sum()
    }
}

/// The part of a step before the optimiser.
type Passes = fn(&One, &DataParallel, &Tensor) -> Result<()>;

fn twice(net: &One, parallel: &DataParallel, x: &Tensor) -> Result<()> {
    parallel.backward(&net.loss(x, 1.0)?)?;
    parallel.backward(&net.loss(x, 2.0)?)
}

fn thrice(net: &One, parallel: &DataParallel, x: &Tensor) -> Result<()> {
    (1..=3).try_for_each(|k| parallel.backward(&net.loss(x, f64::from(k))?))
}

fn clipped_between(net: &One, parallel: &DataParallel, x: &Tensor) -> Result<()> {
    parallel.backward(&net.loss(x, 1.0)?)?;
    if parallel.options().gradients == Gradients::Whole {
        clip_grad_norm(&net.parameters(), 1e9)?;
    }
    parallel.backward(&net.loss(x, 2.0)?)
}

fn replaced_between(net: &One, parallel: &DataParallel, x: &Tensor) -> Result<()> {
    parallel.backward(&net.loss(x, 2.0)?)?;
    if let Some(g) = net.w.take_grad() {
        net.w.set_grad(Some(g.mul(0.5)?))?;
    } else {
        // divided: the part has it
        parallel.backward(&net.loss(x, -1.0)?)?;
    }
    parallel.backward(&net.loss(x, 2.0)?)
}

fn alone_then_all(net: &One, parallel: &DataParallel, x: &Tensor) -> Result<()> {
    let alone = parallel.no_sync();
    parallel.backward(&net.loss(x, 0.5)?)?;
    net.loss(x, 0.5)?.backward()?;
    drop(alone);
    parallel.backward(&net.loss(x, 2.0)?)
}

fn divided_by_hand(net: &One, parallel: &DataParallel, x: &Tensor) -> Result<()> {
    net.loss(x, 1.0)?.div(parallel.group().size() as f64)?.backward()?;
    parallel.backward(&net.loss(x, 2.0)?)
}

/// The first weight after two steps at a rate of 1.
fn trained(ranks: &Communicator, options: DataParallelOptions, passes: Passes, is_compiled: bool) -> Result<Vec<f32>> {
    let d = device(Some(ranks), None)?;
    let net = Rc::new(One { w: Parameter::new(Tensor::zeros(&d, [WIDTH], DType::F32)?)? });
    let parallel = Rc::new(DataParallel::new(&*net, ranks, options)?);
    let rule = SgdOptions { lr: 1.0, ..Default::default() };
    let optimizer: Box<dyn Optimizer> = match options.gradients {
        Gradients::Whole => Box::new(Sgd::new(net.named_parameters(), rule)?),
        Gradients::Divided => Box::new(Sharded::new(net.named_parameters(), ranks, rule)?),
    };
    let optimizer = Rc::new(RefCell::new(optimizer));
    let of_step = net.clone();
    let step = move |x: &[Tensor]| {
        passes(&of_step, &parallel, &x[0])?;
        optimizer.borrow_mut().step()?;
        x[0].sum().map(|y| vec![y])
    };
    let x = Tensor::full(&d, [WIDTH], DType::F32, 10f64.powi(ranks.rank() as i32))?;
    if is_compiled {
        let mut step = compile_with(&d, CompileOptions::default(), step);
        (0..2).try_for_each(|_| step.call(&[&x]).map(drop))?;
    } else {
        (0..2).try_for_each(|_| step(std::slice::from_ref(&x)).map(drop))?;
    }
    net.w.get()?.to_vec::<f32>()
}

#[test]
fn each_pass_of_a_step_counts_once() {
    let all: [(&str, Passes, f32); 6] = [
        ("twice", twice, -33.0),
        ("thrice", thrice, -66.0),
        ("clipped between", clipped_between, -33.0),
        ("replaced between", replaced_between, -33.0),
        ("alone, then all", alone_then_all, -33.0),
        ("divided by hand", divided_by_hand, -33.0),
    ];
    for (name, passes, want) in all {
        for gradients in [Gradients::Whole, Gradients::Divided] {
            for is_compiled in [false, true] {
                let options = DataParallelOptions { gradients, ..Default::default() };
                let seen = threads::run_within(2, LIMIT, |ranks| trained(&ranks, options, passes, is_compiled));
                let seen = seen.unwrap_or_else(|e| panic!("{name}, {gradients:?}, compiled: {is_compiled}: {e}"));
                for w in seen {
                    assert_eq!(w, [want; WIDTH], "{name}, {gradients:?}, compiled: {is_compiled}");
                }
            }
        }
    }
}

#[test]
fn a_gradient_that_a_step_has_used_says_nothing_of_the_next() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = One { w: Parameter::new(Tensor::zeros(&d, [WIDTH], DType::F32)?)? };
        let parallel = DataParallel::new(&net, &ranks, Default::default())?;
        let mut sgd = Sgd::new(net.named_parameters(), SgdOptions { lr: 1.0, ..Default::default() })?;
        let x = Tensor::full(&d, [WIDTH], DType::F32, 10f64.powi(ranks.rank() as i32))?;
        parallel.backward(&net.loss(&x, 1.0)?)?;
        sgd.step()?;
        // this rank's own, put there by hand
        net.w.set_grad(Some(x.div(2.0)?))?;
        parallel.backward(&net.loss(&x, 1.0)?)?;
        net.w.grad().expect("two passes").to_vec::<f32>()
    });
    for g in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert_eq!(g, [11.0; WIDTH]);
    }
}

#[test]
fn a_compiled_step_asks_whether_a_gradient_from_outside_is_reduced() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = Rc::new(One { w: Parameter::new(Tensor::zeros(&d, [WIDTH], DType::F32)?)? });
        let parallel = Rc::new(DataParallel::new(&*net, &ranks, Default::default())?);
        let mut sgd = Sgd::new(net.named_parameters(), SgdOptions { lr: 1.0, ..Default::default() })?;
        let x = Tensor::full(&d, [WIDTH], DType::F32, 10f64.powi(ranks.rank() as i32))?;
        let (of_step, of_all) = (net.clone(), parallel.clone());
        let mut step = compile_with(&d, CompileOptions::default(), move |x: &[Tensor]| {
            of_all.backward(&of_step.loss(&x[0], 1.0)?)?;
            sgd.step()?;
            Ok(vec![x[0].sum()?])
        });
        // with a gradient of all ranks, of this one, and none, twice: -5.5 from each pass
        for _ in 0..2 {
            parallel.backward(&net.loss(&x, 1.0)?)?;
            step.call(&[&x])?;
            let alone = parallel.no_sync();
            parallel.backward(&net.loss(&x, 1.0)?)?;
            drop(alone);
            step.call(&[&x])?;
            step.call(&[&x])?;
        }
        net.w.get()?.to_vec::<f32>()
    });
    for w in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert_eq!(w, [-55.0; WIDTH]);
    }
}

#[test]
fn passes_alone_count_as_those_of_all_where_parameters_are_divided() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = FullySharded::new(Linear::new(&mut InitCx::new(&d, 1), 4, 1)?, &ranks)?;
        let parallel = DataParallel::new(&net, &ranks, Default::default())?;
        let x = Tensor::full(&d, [1, 4], DType::F32, 10f64.powi(ranks.rank() as i32))?;
        let alone = parallel.no_sync();
        net.forward(&x)?.sum()?.backward()?;
        parallel.backward(&net.forward(&x)?.sum()?)?;
        drop(alone);
        parallel.backward(&net.forward(&x)?.sum()?)?;
        net.parameters()[0].grad().expect("three passes").to_vec::<f32>()
    });
    for g in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert_eq!(g, [16.5; 2]);
    }
}

#[test]
fn a_pass_alone_does_not_mix_with_a_gradient_of_all_ranks() {
    threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = One { w: Parameter::new(Tensor::zeros(&d, [WIDTH], DType::F32)?)? };
        let parallel = DataParallel::new(&net, &ranks, Default::default())?;
        let x = Tensor::ones(&d, [WIDTH], DType::F32)?;
        parallel.backward(&net.loss(&x, 1.0)?)?;
        clip_grad_norm(&net.parameters(), 1.0)?;
        let _alone = parallel.no_sync();
        let e = parallel.backward(&net.loss(&x, 1.0)?).expect_err("the gradient is all ranks'");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("before `DataParallel::backward`"), "{e}");
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
}
