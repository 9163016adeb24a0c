//! A network in stages, against one process that accumulates the same micro-batches.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use remat_nn::distributed::{Communicator, Pipeline, PipelineSchedule, threads};
use remat_nn::{
    Accumulate, AdamW, AdamWOptions, Embedding, InitCx, Layer, Linear, Module, Optimizer, Sequential, Tanh, Visit, Walk,
};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile};
use remat_types::{Error, ErrorKind, HostTensor, Result};

use crate::support::{tensor, wave32};

const LIMIT: Duration = Duration::from_secs(120);
const WIDTH: usize = 24;
const ROWS: usize = 3;
const LAYERS: usize = 6;
const STEPS: usize = 3;
const BOTH: [PipelineSchedule; 2] = [PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward];

fn device(ranks: Option<&Communicator>, budget_bytes: Option<usize>) -> Result<Device> {
    Device::cpu(DeviceOptions { threads: 1, budget_bytes, ranks: ranks.cloned(), ..Default::default() })
}

/// The layers of stage `stage` of `stages`, of a network that is the same for any number of stages.
fn stage(d: &Device, stage: usize, stages: usize) -> Result<Sequential> {
    let cx = &mut InitCx::new(d, 9);
    let mut own = Sequential::new();
    for i in 0..LAYERS {
        let layer = Linear::new(cx, WIDTH, WIDTH)?;
        if i * stages / LAYERS == stage {
            own = own.then(layer).then(Tanh);
        }
    }
    Ok(own)
}

/// Micro-batch `i` of a step.
fn rows(d: &Device, step: usize, i: usize) -> Tensor {
    tensor(d, &wave32(ROWS * WIDTH, (step * 100 + i) as f64), [ROWS, WIDTH])
}

fn loss(y: &Tensor, i: usize) -> Result<Tensor> {
    y.square()?.mul(1.0 + i as f64)?.mean()
}

fn adam(net: &impl Module) -> Result<AdamW> {
    AdamW::new(net.named_parameters(), AdamWOptions { lr: 0.01, ..Default::default() })
}

fn bits(net: &impl Module) -> Result<Vec<HostTensor>> {
    net.parameters().iter().map(|p| p.to_host()).collect()
}

/// Losses and weights of one process.
fn accumulated(micro_batches: usize, steps: usize) -> Result<(Vec<f32>, Vec<HostTensor>)> {
    let d = device(None, None)?;
    let net = stage(&d, 0, 1)?;
    let mut optimizer = adam(&net)?;
    let mut accumulate = Accumulate::new(micro_batches as u64)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        for i in 0..micro_batches {
            let loss = loss(&net.forward(&rows(&d, step, i))?, i)?;
            losses.push(loss.item::<f32>()?);
            if accumulate.backward(&loss)? {
                optimizer.step()?;
            }
        }
    }
    Ok((losses, bits(&net)?))
}

/// A rank's losses and weights after some steps, its peak and what it computed again.
fn piped(
    ranks: &Communicator,
    schedule: PipelineSchedule,
    micro_batches: usize,
    budget: Option<usize>,
) -> Result<(Vec<f32>, Vec<HostTensor>, usize, u64)> {
    let d = device(Some(ranks), budget)?;
    let pipeline = Pipeline::new(stage(&d, ranks.rank(), ranks.size())?, &d, ranks, schedule)?;
    let mut optimizer = adam(pipeline.stage())?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let given = pipeline.backward(micro_batches, |i| Ok(rows(&d, step, i)), loss)?;
        optimizer.step()?;
        given.iter().try_for_each(|l| l.item::<f32>().map(|l| losses.push(l)))?;
    }
    let bits = bits(pipeline.stage())?;
    let stats = d.channel().report()?.stats;
    Ok((losses, bits, stats.peak_bytes, stats.recomputed_ops))
}

/// The part of one of `ranks`, which may be processes, has the bits of one process.
pub(crate) fn check(ranks: &Communicator) -> Result<()> {
    let (losses, weights) = accumulated(5, STEPS)?;
    let d = device(None, None)?;
    let counts: Vec<usize> =
        (0..ranks.size()).map(|s| Ok(stage(&d, s, ranks.size())?.parameters().len())).collect::<Result<_>>()?;
    let before = counts[..ranks.rank()].iter().sum::<usize>();
    for schedule in BOTH {
        let seen = piped(ranks, schedule, 5, None)?;
        assert!(seen.1 == weights[before..before + counts[ranks.rank()]], "{schedule:?}: weights");
        assert!(if ranks.rank() + 1 == ranks.size() { seen.0 == losses } else { seen.0.is_empty() }, "{schedule:?}");
    }
    Ok(())
}

#[test]
fn losses_and_weights_have_the_bits_of_one_process_that_accumulates() {
    for micro_batches in 1..=6 {
        let (losses, weights) = accumulated(micro_batches, STEPS).expect("trains");
        for stages in [1, 2, 3] {
            for schedule in BOTH {
                let what = format!("{micro_batches} micro-batches, {stages} stages, {schedule:?}");
                let run = |ranks: Communicator| piped(&ranks, schedule, micro_batches, None);
                let seen = threads::run_within(stages, LIMIT, run).unwrap_or_else(|e| panic!("{what}: {e}"));
                let got: Vec<HostTensor> = seen.iter().flat_map(|s| s.1.clone()).collect();
                assert!(got == weights, "{what}: weights");
                let told: Vec<&[f32]> = seen.iter().map(|s| &s.0[..]).collect();
                assert!(
                    told[stages - 1] == losses && told[..stages - 1].iter().all(|l| l.is_empty()),
                    "{what}: losses"
                );
            }
        }
    }
}

#[test]
fn one_forward_and_one_backward_in_turn_hold_fewer_activations() {
    let peaks = |schedule, micro_batches| -> Vec<usize> {
        let run = |ranks: Communicator| piped(&ranks, schedule, micro_batches, None);
        threads::run_within(3, LIMIT, run).expect("trains").iter().map(|s| s.2).collect()
    };
    let [few, many] = [4, 12].map(|n| BOTH.map(|schedule| peaks(schedule, n)));
    // what a stage keeps of a micro-batch: its input, and the outputs of its two functions
    let kept = 3 * ROWS * WIDTH * size_of::<f32>();
    for rank in 0..3 {
        let [gpipe, turns] = [0, 1].map(|s| (few[s][rank], many[s][rank]));
        assert!(gpipe.1 >= gpipe.0 + 8 * kept * 2 / 3, "rank {rank} of GPipe: {gpipe:?}");
        assert!(turns.1 < turns.0 + kept, "rank {rank} in turn: {turns:?}");
        assert!(turns.1 < gpipe.1, "rank {rank}: {} in turn, {} of GPipe", turns.1, gpipe.1);
    }
}

#[test]
fn a_budget_changes_no_bits() {
    let (losses, weights) = accumulated(6, STEPS).expect("trains");
    let free = threads::run_within(2, LIMIT, |ranks| piped(&ranks, PipelineSchedule::GPipe, 6, None)).expect("trains");
    let seen = threads::run_within(2, LIMIT, |ranks| {
        piped(&ranks, PipelineSchedule::GPipe, 6, Some(free[ranks.rank()].2 * 97 / 100))
    });
    let seen = seen.unwrap_or_else(|e| panic!("{e}"));
    assert!(seen.iter().flat_map(|s| s.1.clone()).collect::<Vec<_>>() == weights && seen[1].0 == losses);
    assert!(seen.iter().any(|s| s.3 > 0), "there was memory for everything");
}

#[test]
fn compiled_steps_have_the_same_bits() {
    let (losses, weights) = accumulated(4, STEPS).expect("trains");
    for schedule in BOTH {
        let seen = threads::run_within(3, LIMIT, |ranks| {
            let d = device(Some(&ranks), None)?;
            let pipeline = Rc::new(Pipeline::new(stage(&d, ranks.rank(), 3)?, &d, &ranks, schedule)?);
            let optimizer = Rc::new(RefCell::new(adam(pipeline.stage())?));
            let own = (pipeline.clone(), optimizer);
            let mut f = compile(&d, move |x: &[Tensor]| {
                let given = own.0.backward(4, |i| Ok(x[i].clone()), loss)?;
                own.1.borrow_mut().step()?;
                // a function has a result
                if given.is_empty() { Ok(vec![x[0].clone()]) } else { Ok(given) }
            });
            let mut losses = Vec::new();
            for step in 0..STEPS {
                let x: Vec<Tensor> = (0..4).map(|i| rows(&d, step, i)).collect();
                let given = f.call(&x.iter().collect::<Vec<_>>())?;
                if ranks.rank() == 2 {
                    given.iter().try_for_each(|l| l.item::<f32>().map(|l| losses.push(l)))?;
                }
            }
            assert_eq!(f.traces(), 1);
            Ok((losses, bits(pipeline.stage())?))
        });
        let seen = seen.unwrap_or_else(|e| panic!("{schedule:?}: {e}"));
        assert!(seen[2].0 == losses, "{schedule:?}: losses");
        assert!(seen.iter().flat_map(|s| s.1.clone()).collect::<Vec<_>>() == weights, "{schedule:?}: weights");
    }
}

#[test]
fn outputs_come_without_gradients_and_inputs_may_be_numbers_of_words() {
    let run = |ranks: Option<&Communicator>| -> Result<Vec<HostTensor>> {
        let d = device(ranks, None)?;
        let cx = &mut InitCx::new(&d, 4);
        let (words, last) = (Embedding::new(cx, 7, WIDTH)?, Linear::new(cx, WIDTH, 2)?);
        let ids = |i: usize| Tensor::from_slice(&d, &[i as i64, 6 - i as i64, 3], [3]);
        let Some(ranks) = ranks else {
            let mut all: Vec<HostTensor> =
                (0..5).map(|i| last.forward(&words.forward(&ids(i)?)?)?.to_host()).collect::<Result<_>>()?;
            (0..5).try_for_each(|i| loss(&last.forward(&words.forward(&ids(i)?)?)?, i)?.div(5.0)?.backward())?;
            for p in words.parameters().iter().chain(&last.parameters()) {
                all.push(p.grad().expect("used").to_host()?);
            }
            return Ok(all);
        };
        let stage: Box<dyn Layer> = if ranks.rank() == 0 { Box::new(words) } else { Box::new(last) };
        let pipeline = Pipeline::new(stage, &d, ranks, PipelineSchedule::default())?;
        let given = pipeline.forward(5, ids)?;
        assert!(given.iter().all(|y| !y.is_tracked()));
        let mut all: Vec<HostTensor> = given.iter().map(Tensor::to_host).collect::<Result<_>>()?;
        pipeline.backward(5, ids, loss)?;
        for p in pipeline.stage().parameters() {
            all.push(p.grad().expect("used").to_host()?);
        }
        Ok(all)
    };
    let want = run(None).expect("runs");
    let seen = threads::run_within(2, LIMIT, |ranks| run(Some(&ranks))).unwrap_or_else(|e| panic!("{e}"));
    // outputs, the gradient of the words, those of the last layer
    let got: Vec<HostTensor> = [&seen[1][..5], &seen[0], &seen[1][5..]].concat();
    assert!(got == want);
}

/// Fails in one of its calls.
struct Fails {
    at: usize,
    calls: AtomicUsize,
    on_device: bool,
}

impl Visit for Fails {
    fn visit(&self, _at: &mut Walk<'_>) {}
}
impl Module for Fails {}
impl Layer for Fails {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.calls.fetch_add(1, Ordering::Relaxed) != self.at {
            return Ok(x.clone());
        }
        if !self.on_device {
            return Err(Error::new(ErrorKind::Value, "the planted failure"));
        }
        // an index that only its value shows to be none
        let rows = Tensor::from_slice(&x.device(), &[ROWS as i64 + 7], [1])?;
        x.index_select(0, &rows)?.broadcast_to(x.shape().clone())
    }
}

/// Every rank's error of a step in which rank `of` fails in micro-batch `at`, after which a step of all has the bits of one process.
fn failed(stages: usize, schedule: PipelineSchedule, of: usize, at: usize, on_device: bool) -> Vec<Error> {
    let what = format!("{stages} stages, {schedule:?}, rank {of} in micro-batch {at}, on the device: {on_device}");
    let (_, weights) = accumulated(4, 1).expect("trains");
    let start = Instant::now();
    let seen = threads::run_within(stages, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let at = if ranks.rank() == of { at } else { usize::MAX };
        let own = stage(&d, ranks.rank(), stages)?.then(Fails { at, calls: AtomicUsize::new(0), on_device });
        let pipeline = Pipeline::new(own, &d, &ranks, schedule)?;
        let mut optimizer = adam(pipeline.stage())?;
        let before = bits(pipeline.stage())?;
        let step = |optimizer: &mut AdamW| {
            pipeline.backward(4, |i| Ok(rows(&d, 0, i)), loss)?;
            optimizer.step()?;
            d.channel().sync()
        };
        let e = step(&mut optimizer).expect_err("one stage fails");
        optimizer.skip_step()?;
        assert!(bits(pipeline.stage())? == before, "rank {} moved", ranks.rank());
        // and all go on together
        step(&mut optimizer)?;
        Ok((e, bits(pipeline.stage())?))
    });
    let seen = seen.unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(seen.iter().flat_map(|s| s.1.clone()).collect::<Vec<_>>() == weights, "{what}: the step afterwards");
    assert!(start.elapsed() < LIMIT / 2, "{what}: a rank waited");
    seen.into_iter().map(|s| s.0).collect()
}

#[test]
fn a_stage_that_fails_makes_all_fail_and_none_hang() {
    for schedule in BOTH {
        for stages in [2, 3] {
            for of in 0..stages {
                for (at, on_device) in [(0, false), (2, false), (0, true), (3, true)] {
                    for (rank, e) in failed(stages, schedule, of, at, on_device).iter().enumerate() {
                        let what = format!("{stages} stages, {schedule:?}, {of} fails in {at}, rank {rank}: {e}");
                        assert_eq!(e.kind() == ErrorKind::Peer, rank != of, "{what}");
                        let text = if on_device { "index" } else { "the planted failure" };
                        assert!(e.to_string().contains(text) || rank != of, "{what}");
                        assert!(!e.to_string().contains("has not come"), "{what}");
                    }
                }
            }
        }
    }
}

/// A step of a rank with its pipeline.
type Step = dyn Fn(&Pipeline<Sequential>, &Communicator, &Device) -> Result<Vec<Tensor>> + Sync;

#[test]
fn what_ranks_do_otherwise_is_an_error_on_all() {
    // the first wrong call, which all ranks survive, and another that is right
    let run = |call: &Step| {
        let seen = threads::run_within(2, LIMIT, |ranks| {
            let d = device(Some(&ranks), None)?;
            let pipeline = Pipeline::new(stage(&d, ranks.rank(), 2)?, &d, &ranks, PipelineSchedule::default())?;
            let e = call(&pipeline, &ranks, &d).map(drop).and_then(|()| d.channel().sync()).expect_err("a wrong call");
            d.channel().meet_again()?;
            pipeline.stage().zero_grad();
            pipeline.backward(2, |i| Ok(rows(&d, 0, i)), loss)?;
            d.channel().sync()?;
            Ok(e)
        });
        seen.unwrap_or_else(|e| panic!("{e}"))
    };
    let seen = run(&|p, ranks, d| p.backward(2 + ranks.rank(), |i| Ok(rows(d, 0, i)), loss));
    for e in seen {
        let text = e.to_string();
        assert!(e.kind() == ErrorKind::Peer && text.contains("of 2 micro") && text.contains("of 3 micro"), "{e}");
    }
    let seen = run(&|p, _, d| p.backward(3, |i| rows(d, 0, i).narrow(0, 0, ROWS - i / 2), loss));
    assert!(seen[0].kind() == ErrorKind::Shape && seen[0].message().contains("[3, 24]"), "{}", seen[0]);
    assert!(seen[1].kind() == ErrorKind::Peer && seen[1].to_string().contains("[2, 24]"), "{}", seen[1]);
    let seen = run(&|p, ranks, d| match ranks.rank() {
        0 => p.backward(2, |i| Ok(rows(d, 0, i)), loss),
        _ => p.backward(2, |i| Ok(rows(d, 0, i)), |_, i| Err(Error::new(ErrorKind::Io, format!("no target {i}")))),
    });
    assert!(seen[0].kind() == ErrorKind::Peer && seen[0].to_string().contains("no target 0"), "{}", seen[0]);
    assert_eq!(seen[1].kind(), ErrorKind::Io);
    assert!(run(&|p, _, d| p.backward(0, |i| Ok(rows(d, 0, i)), loss)).iter().all(|e| e.kind() == ErrorKind::Value));
}

#[test]
fn other_shapes_may_come_in_another_step() {
    threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let pipeline = Pipeline::new(stage(&d, ranks.rank(), 2)?, &d, &ranks, PipelineSchedule::default())?;
        for n in [3, 1, 2] {
            pipeline.backward(2, |i| rows(&d, 0, i).narrow(0, 0, n), loss)?;
        }
        d.channel().sync()?;
        let plain = device(None, None)?;
        let e =
            Pipeline::new(stage(&plain, 0, 2)?, &plain, &ranks, PipelineSchedule::default()).err().expect("no ranks");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("DeviceOptions::ranks"), "{e}");
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn each_rank_finds_its_own_part_right() {
    for size in [1, 2, 3] {
        threads::run_within(size, LIMIT, |ranks| check(&ranks)).unwrap_or_else(|e| panic!("{size} ranks: {e}"));
    }
}
