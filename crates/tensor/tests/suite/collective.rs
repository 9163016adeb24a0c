//! Collectives on ranks that are threads: values, gradients, compiled functions, budgets, and what fails.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use remat_ops::schema::Params;
use remat_ops::{EvalCx, GradCx, Grads, Op, OpDef, Sample};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::comm::{Communicator, Reduction, threads};
use remat_tensor::{Tensor, compile, grad};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, smallvec};
use serde::{Deserialize, Serialize};

/// Longer than any test waits, shorter than patience.
const LIMIT: Duration = Duration::from_secs(60);

fn device(ranks: &Communicator, budget_bytes: Option<usize>) -> Result<Device> {
    let ranks = Some(ranks.clone());
    Device::cpu(DeviceOptions { threads: 1, budget_bytes, ranks, ..DeviceOptions::default() })
}

/// Every rank's result.
fn on<T: Send>(size: usize, f: impl Fn(&Communicator, &Device) -> Result<T> + Sync) -> Vec<T> {
    let run = |ranks: Communicator| f(&ranks, &device(&ranks, None)?);
    threads::run_within(size, LIMIT, run).unwrap_or_else(|e| panic!("{e}"))
}

/// A `[2, 3]` of numbers of this rank.
fn own(d: &Device, ranks: &Communicator) -> Result<Tensor> {
    let r = ranks.rank() as f64;
    Tensor::from_slice(d, &[1.0 + r, 2.0, 3.0 * r, -r, 5.0, 0.5], [2, 3])
}

/// All ranks' numbers, computed without a collective.
fn all(d: &Device, size: usize) -> Result<Vec<Tensor>> {
    let of = |r: usize| {
        let r = r as f64;
        Tensor::from_slice(d, &[1.0 + r, 2.0, 3.0 * r, -r, 5.0, 0.5], [2, 3])
    };
    (0..size).map(of).collect()
}

fn concat(x: &[Tensor], axis: isize) -> Result<Tensor> {
    Tensor::concat(&x.iter().collect::<Vec<_>>(), axis)
}

/// A collective in two forms: a function of each rank's own tensors, and a function of all ranks' tensors in one process, which
/// gives the part of rank `r`.
struct Case {
    name: &'static str,
    together: fn(&Tensor, &Communicator) -> Result<Tensor>,
    alone: fn(&[Tensor], usize) -> Result<Tensor>,
}

fn folded(x: &[Tensor], f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    x[1..].iter().try_fold(x[0].clone(), |y, x| f(&y, x))
}

fn sum(x: &[Tensor]) -> Result<Tensor> {
    folded(x, |a, b| a.add(b))
}

const CASES: [Case; 13] = [
    Case { name: "sum", together: |x, g| x.all_reduce(Reduction::Sum, g), alone: |x, _| sum(x) },
    Case { name: "mean", together: |x, g| x.all_reduce(Reduction::Mean, g), alone: |x, _| sum(x)?.div(x.len() as f64) },
    Case {
        name: "max",
        together: |x, g| x.all_reduce(Reduction::Max, g),
        alone: |x, _| Tensor::stack(&x.iter().collect::<Vec<_>>(), 0)?.max_over(&[0], false),
    },
    Case {
        name: "product",
        together: |x, g| x.all_reduce(Reduction::Product, g),
        alone: |x, _| folded(x, |a, b| a.mul(b)),
    },
    Case { name: "gather 0", together: |x, g| x.all_gather(0, g), alone: |x, _| concat(x, 0) },
    Case { name: "gather 1", together: |x, g| x.all_gather(-1, g), alone: |x, _| concat(x, 1) },
    Case {
        name: "reduce scatter",
        together: |x, g| Tensor::concat(&vec![x; g.size()], 0)?.reduce_scatter(Reduction::Sum, 0, g),
        alone: |x, _| sum(x),
    },
    Case {
        name: "reduce scatter of the least",
        together: |x, g| Tensor::concat(&vec![x; g.size()], 1)?.reduce_scatter(Reduction::Min, 1, g),
        alone: |x, _| Tensor::stack(&x.iter().collect::<Vec<_>>(), 0)?.min_over(&[0], false),
    },
    Case { name: "broadcast", together: |x, g| x.square()?.broadcast_from(1, g), alone: |x, _| x[1].square() },
    Case {
        name: "reduce to",
        together: |x, g| x.reduce_to(1, Reduction::Mean, g),
        alone: |x, r| if r == 1 { sum(x)?.div(x.len() as f64) } else { x[r].mul(0.0)?.abs() },
    },
    Case {
        name: "reduce the greatest to",
        together: |x, g| x.reduce_to(0, Reduction::Max, g),
        alone: |x, r| {
            let y = Tensor::stack(&x.iter().collect::<Vec<_>>(), 0)?.max_over(&[0], false)?;
            if r == 0 { Ok(y) } else { y.mul(0.0)?.abs() }
        },
    },
    Case {
        name: "all to all",
        together: |x, g| concat(&vec![x.clone(); g.size()], 0)?.mul(2.0)?.all_to_all(0, 1, g),
        alone: |x, _| {
            let x: Vec<Tensor> = x.iter().map(|x| x.mul(2.0)).collect::<Result<_>>()?;
            concat(&x, 1)
        },
    },
    Case {
        name: "gather to and scatter from",
        together: |x, g| x.gather_to(1, 1, g)?.mul(3.0)?.scatter_from(1, 3, 1, g),
        alone: |x, r| x[r].mul(3.0),
    },
];

/// A number that depends on every element in its own way.
fn weighted(y: &Tensor, rank: usize) -> Result<Tensor> {
    let n = y.elems();
    let w =
        Tensor::from_slice(&y.device(), &(0..n).map(|i| 1.0 + (i + rank) as f64 * 0.25).collect::<Vec<f64>>(), [n])?;
    let y = y.flatten(0, -1)?;
    y.mul(&y)?.mul(&w)?.sum()
}

#[test]
fn values_are_those_of_one_process() {
    for size in [1, 2, 3] {
        for case in CASES.iter().filter(|c| size > 1 || !c.name.contains("to") && c.name != "broadcast") {
            on(size, |ranks, d| {
                let y = (case.together)(&own(d, ranks)?, ranks)?.to_host()?;
                let want = (case.alone)(&all(d, size)?, ranks.rank())?.to_host()?;
                assert_eq!(y, want, "{} on {ranks:?}", case.name);
                Ok(())
            });
        }
    }
}

#[test]
fn gradients_are_those_of_the_sum_of_all_losses() {
    for size in [2, 3] {
        for case in &CASES {
            on(size, |ranks, d| {
                let x = own(d, ranks)?.requires_grad()?;
                let loss = weighted(&(case.together)(&x, ranks)?, ranks.rank())?;
                let first = grad(&loss, &[&x], true)?.remove(0).ok_or_else(|| missing(case.name))?;
                let second = grad(&weighted(&first, 7)?, &[&x], false)?.remove(0);

                let leaves: Vec<Tensor> =
                    all(d, size)?.into_iter().map(|x| x.requires_grad()).collect::<Result<_>>()?;
                let losses: Vec<Tensor> =
                    (0..size).map(|r| weighted(&(case.alone)(&leaves, r)?, r)).collect::<Result<_>>()?;
                let of: Vec<&Tensor> = leaves.iter().collect();
                // one process has none where a rank's values go nowhere; the ranks have zeros
                let found = grad(&sum(&losses)?, &of, true)?.into_iter().zip(&leaves);
                let grads: Vec<Tensor> =
                    found.map(|(g, x)| g.map_or_else(|| x.detach().mul(0.0), Ok)).collect::<Result<_>>()?;
                let seconds: Vec<Tensor> = grads.iter().map(|g| weighted(g, 7)).collect::<Result<_>>()?;
                let want_second = grad(&sum(&seconds)?, &of, false)?.swap_remove(ranks.rank());

                close(&first, &grads[ranks.rank()], case.name)?;
                let zeros = || x.detach().mul(0.0);
                close(&second.map_or_else(zeros, Ok)?, &want_second.map_or_else(zeros, Ok)?, case.name)
            });
        }
    }
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("no gradient of {name}"))
}

/// Within what f64 loses in sums of some dozen terms in another order, as `Tolerance::Float`.
fn close(a: &Tensor, b: &Tensor, name: &str) -> Result<()> {
    let (a, b) = (a.to_vec::<f64>()?, b.to_vec::<f64>()?);
    for (a, b) in a.iter().zip(&b) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{name}: {a} is not {b}");
    }
    Ok(())
}

#[test]
fn messages_carry_values_and_gradients() {
    on(2, |ranks, d| {
        if ranks.rank() == 0 {
            let x = own(d, ranks)?.requires_grad()?;
            let sent = x.mul(2.0)?.send_to(1, ranks)?;
            // what the other makes of it comes back
            let y = sent.receive_from(1, [2, 3], ranks)?;
            y.sum()?.backward()?;
            let g = x.grad().ok_or_else(|| missing("x"))?.to_vec::<f64>()?;
            assert_eq!(g, [1.0, 2.0, 0.0, 0.0, 5.0, 0.5].map(|x| 2.0 * 2.0 * x * 2.0), "of (2 x)^2");
        } else {
            let start = Tensor::zeros(d, [0], DType::F64)?.requires_grad()?;
            let x = start.receive_from(0, [2, 3], ranks)?;
            let done = x.square()?.send_to(0, ranks)?;
            assert_eq!(done.dims(), [0]);
            done.sum()?.backward()?;
        }
        Ok(())
    });
    // over axes and dtypes that nothing computes with
    on(2, |ranks, d| {
        let other = 1 - ranks.rank();
        let x = Tensor::full(d, [3], DType::U8, ranks.rank() as f64)?;
        let y = if ranks.rank() == 0 {
            x.send_to(other, ranks)?;
            Tensor::receive(d, other, DType::U8, [3], ranks)?
        } else {
            let y = Tensor::receive(d, other, DType::U8, [3], ranks)?;
            x.send_to(other, ranks)?;
            y
        };
        assert_eq!(y.to_vec::<u8>()?, [other as u8; 3]);
        Ok(())
    });
}

#[test]
fn compiled_functions_keep_the_order_of_collectives() {
    for size in [2, 3] {
        on(size, |ranks, d| {
            let group = ranks.clone();
            let mut f = compile(d, move |x: &[Tensor]| {
                // the second does not depend on the first, and the third is not used
                let a = x[0].all_reduce(Reduction::Sum, &group)?;
                let b = x[1].all_reduce(Reduction::Max, &group)?;
                x[1].exp()?.all_reduce(Reduction::Mean, &group)?;
                let c = x[0].add(&x[1])?.all_gather(0, &group)?;
                Ok(vec![c.sum()?, b.add(&a)?])
            });
            let (x, y) = (own(d, ranks)?, own(d, ranks)?.cos()?);
            let calls = ranks.statistics().calls;
            for _ in 0..3 {
                let got = f.call(&[&x, &y])?;
                let everything = all(d, size)?;
                let others: Vec<Tensor> = everything.iter().map(Tensor::cos).collect::<Result<_>>()?;
                let a = sum(&everything)?;
                let b = Tensor::stack(&others.iter().collect::<Vec<_>>(), 0)?.max_over(&[0], false)?;
                assert_eq!(got[1].to_host()?, b.add(&a)?.to_host()?);
                got[0].to_host()?;
            }
            assert_eq!(
                ranks.statistics().calls - calls,
                3 * 4,
                "each runs exactly once a call, also what nothing reads"
            );
            Ok(())
        });
    }
}

/// A chain with collectives between, whose activations do not fit a small budget.
fn chain(x: &Tensor, ranks: &Communicator, layers: usize) -> Result<Tensor> {
    (0..layers).try_fold(x.clone(), |x, i| {
        // every layer is another op
        let y = x.mul(1.0 + i as f64 / 1024.0)?.sin()?.exp()?;
        if i % 4 == 1 { y.all_reduce(Reduction::Mean, ranks) } else { Ok(y) }
    })
}

#[test]
fn ranks_with_other_budgets_get_the_same_bits_without_a_deadlock() {
    const BYTES: usize = 1 << 15;
    let run = |ranks: &Communicator, budget: Option<usize>| {
        let d = device(ranks, budget)?;
        let data: Vec<f32> = (0..BYTES / 4).map(|i| ((i * 7 + ranks.rank()) % 100) as f32 * 0.01).collect();
        let x = Tensor::new(&d, &data, [BYTES / 4])?.requires_grad()?;
        chain(&x, ranks, 24)?.sum()?.backward()?;
        let g = x.grad().ok_or_else(|| missing("x"))?.to_host()?;
        let stats = d.channel().stats()?;
        assert!(budget.is_none_or(|b| stats.peak_bytes <= b), "{stats:?}");
        Ok((g, stats.recomputed_ops))
    };
    let free = threads::run_within(3, LIMIT, |ranks| run(&ranks, None)).expect("fits");
    let tight = threads::run_within(3, LIMIT, |ranks| {
        let budget = [None, Some(20 * BYTES), Some(28 * BYTES)][ranks.rank()];
        run(&ranks, budget)
    });
    let tight = tight.expect("fits");
    for (rank, (free, tight)) in free.iter().zip(&tight).enumerate() {
        assert_eq!(free.0, tight.0, "rank {rank}");
        assert_eq!(tight.1 > 0, rank > 0, "rank {rank} recomputed {} ops", tight.1);
    }
}

#[test]
fn a_budget_that_fails_on_one_rank_fails_on_all() {
    let seen = threads::run_within(3, LIMIT, |ranks| {
        let d = device(&ranks, (ranks.rank() == 1).then_some(1 << 16))?;
        // what rank 1 cannot make goes into a collective of all, and one more behind it
        let big = Tensor::ones(&d, [1 << 16], DType::F32)?;
        let y = big.all_reduce(Reduction::Sum, &ranks)?.sum()?.all_reduce(Reduction::Max, &ranks)?;
        let e = y.to_host().expect_err("one of them has no memory for it");
        // and afterwards the ranks still meet
        let z = Tensor::full(&d, [1], DType::F32, ranks.rank() as f64)?.all_reduce(Reduction::Sum, &ranks)?;
        assert_eq!(z.to_vec::<f32>()?, [3.0]);
        Ok(e)
    });
    let seen = seen.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(seen[1].kind(), ErrorKind::Budget, "{}", seen[1]);
    for rank in [0, 2] {
        let e = &seen[rank];
        assert!(e.kind() == ErrorKind::Peer && e.message().contains("rank 1"), "rank {rank}: {e}");
        assert!(e.message().contains("budget of 64.0 KiB"), "the reason travels: {e}");
    }
}

#[test]
fn a_compiled_call_that_one_rank_cannot_make_fails_on_all() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(&ranks, (ranks.rank() == 1).then_some(1 << 16))?;
        let group = ranks.clone();
        let mut f = compile(&d, move |x: &[Tensor]| {
            let big = x[0].broadcast_to([1 << 16])?.exp()?.all_reduce(Reduction::Sum, &group)?;
            Ok(vec![big.sum()?.all_reduce(Reduction::Max, &group)?])
        });
        let x = Tensor::new(&d, &[1.0f32], [1])?;
        let result = f.call(&[&x]).and_then(|y| y[0].to_host());
        // a rank that does not even compile has not called anything: it says so
        Ok(result.expect_err("one of them has no memory for it"))
    });
    let seen = seen.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(seen[1].kind(), ErrorKind::Budget, "{}", seen[1]);
    assert_eq!(seen[0].kind(), ErrorKind::Peer, "{}", seen[0]);
}

#[test]
fn other_calls_on_other_ranks_are_errors_that_name_both() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(&ranks, None)?;
        let x = Tensor::ones(&d, [2 + ranks.rank()], DType::F32)?;
        Ok(x.all_reduce(Reduction::Sum, &ranks)?.to_host().expect_err("they differ"))
    });
    for e in seen.unwrap_or_else(|e| panic!("{e}")) {
        assert_eq!((e.kind(), e.op()), (ErrorKind::Peer, Some("all_reduce")));
        assert!(e.message().contains("f32 [2]") && e.message().contains("f32 [3]"), "{e}");
    }
    on(2, |ranks, d| {
        let x = own(d, ranks)?;
        assert_eq!(x.all_gather(2, ranks).expect_err("two axes").kind(), ErrorKind::Axis);
        assert_eq!(x.reduce_scatter(Reduction::Sum, 1, ranks).expect_err("3 of 2").kind(), ErrorKind::Shape);
        assert_eq!(x.all_to_all(1, 0, ranks).expect_err("3 of 2").kind(), ErrorKind::Shape);
        assert_eq!(x.broadcast_from(2, ranks).expect_err("no rank 2").kind(), ErrorKind::Value);
        assert_eq!(x.send_to(ranks.rank(), ranks).expect_err("itself").kind(), ErrorKind::Value);
        Ok(())
    });
}

/// Lets rank 1 wait for rank 0's word; one for each test, by number.
static GATES: [Gate; 3] = [const { Gate(Mutex::new(false), Condvar::new()) }; 3];

struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().expect("no panic") = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.lock().expect("no panic");
        let (open, _) = self.1.wait_timeout_while(open, LIMIT, |open| !*open).expect("no panic");
        assert!(*open, "rank 0 does not come");
    }
}

/// `x`, and opens a gate when it runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Opens(usize);

impl Op for Opens {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        Ok(smallvec![x[0].clone()])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        GATES[self.0].open();
        cx.output_from::<f32>(0, 0).map(|_| ())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }

    fn repeatable(&self) -> bool {
        false
    }
}

impl Params for Opens {}

impl OpDef for Opens {
    const NAME: &'static str = "opens";

    fn samples() -> Vec<Sample<Self>> {
        Vec::new()
    }
}

#[test]
fn ops_run_while_a_collective_waits_for_another_rank() {
    const N: usize = 1 << 16;
    on(2, |ranks, d| {
        let x = Tensor::full(d, [N], DType::F32, 1.0 + ranks.rank() as f64)?;
        if ranks.rank() == 1 {
            GATES[0].pass();
            let y = x.all_reduce(Reduction::Sum, ranks)?;
            assert_eq!(y.to_vec::<f32>()?, vec![3.0; N]);
            return Ok(());
        }
        let y = x.all_reduce(Reduction::Sum, ranks)?;
        for i in 0..4 {
            let z = Tensor::full(d, [8], DType::F32, f64::from(i))?.add(1.0)?;
            assert_eq!(z.to_vec::<f32>()?, [i as f32 + 1.0; 8], "read while the collective waits");
        }
        GATES[0].open();
        // its bytes are wanted for another while the collective may still read them
        drop(x);
        let filled = Tensor::full(d, [N], DType::F32, 7.0)?;
        assert_eq!(y.to_vec::<f32>()?, vec![3.0; N]);
        assert_eq!(filled.to_vec::<f32>()?, vec![7.0; N]);
        let stats = d.channel().stats()?;
        assert!(stats.communication_ns > 0 && stats.exposed_communication_ns <= stats.communication_ns, "{stats:?}");
        Ok(())
    });
}

#[test]
fn steps_of_a_compiled_function_run_while_a_collective_waits() {
    const N: usize = 1 << 14;
    on(2, |ranks, d| {
        let group = ranks.clone();
        let rank = ranks.rank();
        let mut f = compile(d, move |x: &[Tensor]| {
            let y = x[0].add(1.0)?.all_reduce(Reduction::Sum, &group)?;
            let other = if rank == 0 { Tensor::apply1(Opens(1), &[&x[0]])?.sqrt()? } else { x[0].sqrt()? };
            Ok(vec![y.sum()?, other.sum()?])
        });
        let x = Tensor::full(d, [N], DType::F32, 4.0)?;
        for _ in 0..3 {
            if rank == 1 {
                GATES[1].pass();
            }
            let y = f.call(&[&x])?;
            assert_eq!(y[0].to_vec::<f32>()?, [10.0 * N as f32]);
            assert_eq!(y[1].to_vec::<f32>()?, [2.0 * N as f32]);
        }
        Ok(())
    });
}

#[test]
fn whatever_reads_a_collective_that_failed_fails() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(&ranks, (ranks.rank() == 1).then_some(1 << 14))?;
        let x = Tensor::ones(&d, [1024], DType::F32)?;
        if ranks.rank() == 1 {
            GATES[2].pass();
            let no_memory = Tensor::ones(&d, [1 << 14], DType::F32)?.sum()?.add(&x)?;
            let e = no_memory.all_reduce(Reduction::Sum, &ranks)?.to_host().expect_err("no memory");
            return Ok(vec![e]);
        }
        let y = x.all_reduce(Reduction::Sum, &ranks)?;
        let (z, other) = (y.mul(2.0)?, x.add(1.0)?);
        GATES[2].open();
        assert_eq!(other.to_vec::<f32>()?, vec![2.0; 1024]);
        let read = [y.to_host(), z.to_host(), y.add(1.0)?.to_host(), y.reshape(&[32, 32])?.to_host()];
        let errors = read.into_iter().map(|r| r.expect_err("rank 1 has no part in it")).collect();
        // what takes its bytes has nothing to do with it
        drop((y, z));
        assert_eq!(Tensor::full(&d, [1024], DType::F32, 3.0)?.to_vec::<f32>()?, vec![3.0; 1024]);
        Ok(errors)
    });
    let seen = seen.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(seen[1][0].kind(), ErrorKind::Budget, "{}", seen[1][0]);
    for e in &seen[0] {
        assert!(e.message().contains("rank 1"), "{e}");
    }
}
