//! Layers whose parameters are divided among ranks: the bits of whole ones, in a part of the bytes.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use remat_nn::distributed::{Communicator, DataParallel, FullySharded, threads};
use remat_nn::{
    AdamW, AdamWOptions, Average, AverageOptions, BatchNorm1d, Checkpoint, Dropout, InitCx, Lamb, Layer, Lbfgs, Linear,
    Module, Optimizer, TrainState, clip_grad_norm,
};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{CompileOptions, Tensor, compile_with, fori_loop, grad, no_grad};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::distributed::LIMIT;
use crate::support::{tensor, wave32};

const WIDTH: usize = 96;
const BATCH: usize = 8;
const BLOCKS: usize = 4;
const STEPS: usize = 3;
const ROOM_BYTES: usize = 64 << 20;

/// With random keys, and statistics that a pass changes.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Block {
    a: Linear,
    norm: BatchNorm1d,
    drop: Dropout,
    b: Linear,
}

impl Block {
    fn new(cx: &mut InitCx) -> Result<Block> {
        Ok(Block {
            a: Linear::new(cx, WIDTH, WIDTH)?,
            norm: BatchNorm1d::new(cx, WIDTH)?,
            drop: Dropout::new(0.2, &mut cx.rng)?,
            // its parts are padded on any number of ranks but one
            b: Linear::new(cx, WIDTH, WIDTH - 1)?,
        })
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.drop.forward(&self.norm.forward(&self.a.forward(x)?)?.relu()?)?;
        // keys that are drawn for the steps of a loop
        let h = fori_loop(2, &[&h], |_, h| Ok(vec![self.drop.forward(&h[0])?]))?.swap_remove(0);
        self.b.forward(&h)?.pad(&[(0, 0), (0, 1)], 0.0)?.add(x)
    }
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Net {
    first: Linear,
    blocks: Vec<Box<dyn Layer>>,
}

impl Net {
    fn new(device: &Device, ranks: &Communicator, is_divided: bool) -> Result<Net> {
        // other weights and keys on each rank
        let cx = &mut InitCx::new(device, ranks.rank() as u64);
        let first = Linear::new(cx, 3, WIDTH)?;
        let mut blocks: Vec<Box<dyn Layer>> = Vec::new();
        for _ in 0..BLOCKS {
            let block = Block::new(cx)?;
            blocks.push(if is_divided { Box::new(FullySharded::new(block, ranks)?) } else { Box::new(block) });
        }
        Ok(Net { first, blocks })
    }

    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = self.first.forward(x)?.tanh()?;
        for block in &self.blocks {
            h = block.forward(&h)?;
        }
        h.square()?.mean()
    }
}

fn batch(device: &Device, step: usize, rank: usize) -> Tensor {
    tensor(device, &wave32(BATCH * 3, (step * 10 + rank) as f64), [BATCH, 3])
}

/// The training result of a rank, with whole or divided parameters.
struct Run {
    device: Device,
    net: Net,
    parallel: DataParallel,
    optimizer: AdamW,
}

fn run(ranks: &Communicator, is_divided: bool, budget_bytes: Option<usize>) -> Result<Run> {
    let options = DeviceOptions { threads: 1, budget_bytes, ranks: Some(ranks.clone()), ..Default::default() };
    let device = Device::cpu(options)?;
    let net = Net::new(&device, ranks, is_divided)?;
    let parallel = DataParallel::new(&net, ranks, Default::default())?;
    let optimizer = AdamW::new(net.named_parameters(), AdamWOptions { lr: 0.01, ..Default::default() })?;
    Ok(Run { device, net, parallel, optimizer })
}

impl Run {
    fn step(&mut self, step: usize) -> Result<()> {
        self.parallel.backward(&self.net.loss(&batch(&self.device, step, self.parallel.group().rank()))?)?;
        self.optimizer.step()
    }

    /// Parameters and buffers, as wholes.
    fn bits(&self) -> Result<Vec<HostTensor>> {
        Ok(self.net.state_dict()?.into_values().collect())
    }
}

fn trained(ranks: &Communicator, is_divided: bool, budget: Option<usize>) -> Result<(Vec<HostTensor>, usize)> {
    let mut r = run(ranks, is_divided, budget)?;
    r.device.channel().sync()?;
    r.device.channel().reset_peak()?;
    (0..STEPS).try_for_each(|step| r.step(step))?;
    r.device.channel().sync()?;
    let peak = r.device.channel().stats()?.peak_bytes;
    assert!(budget.is_none_or(|b| peak <= b));
    Ok((r.bits()?, peak))
}

#[test]
fn divided_parameters_have_the_bits_of_whole_ones() {
    for size in [1, 2, 3] {
        let both = threads::run_within(size, LIMIT, |ranks| {
            Ok((trained(&ranks, false, None)?.0, trained(&ranks, true, None)?.0))
        });
        for (rank, (whole, divided)) in both.unwrap_or_else(|e| panic!("{e}")).into_iter().enumerate() {
            assert!(whole == divided, "rank {rank} of {size}");
        }
    }
}

#[test]
fn a_rank_has_whole_parameters_of_one_layer_at_a_time() {
    let size = 4;
    let seen = threads::run_within(size, LIMIT, |ranks| {
        let mut held = Vec::new();
        for is_divided in [false, true] {
            // with room enough, in which what could be made again is remembered
            let r = run(&ranks, is_divided, Some(ROOM_BYTES))?;
            r.device.channel().sync()?;
            let before = r.device.channel().stats()?.in_use_bytes;
            let loss = r.net.loss(&batch(&r.device, 0, ranks.rank()))?;
            r.device.channel().sync()?;
            // a tape of all layers, and no whole parameters on it
            let after = r.device.channel().stats()?.in_use_bytes;
            drop(loss);
            held.push((before, after - before));
        }
        let peaks = [trained(&ranks, false, None)?.1, trained(&ranks, true, None)?.1];
        let net = Net::new(&run(&ranks, false, None)?.device, &ranks, false)?;
        let block: usize = net.blocks[0].parameters().iter().map(|p| p.elems() * size_of::<f32>()).sum();
        Ok((held, peaks, block))
    });
    for (held, peaks, block) in seen.unwrap_or_else(|e| panic!("{e}")) {
        // parameters and two states of Adam; the first layer is whole, and every tensor padded
        assert!(held[1].0 * size <= held[0].0 * 5 / 4, "{held:?} bytes on {size} ranks");
        assert!(held[1].1 < block, "{held:?} bytes, of which the second is of a pass; a block has {block}");
        // four of four blocks become four parts, one whole and its gradient
        assert!(peaks[1] * 2 < peaks[0], "{peaks:?}");
    }
}

#[test]
fn a_budget_changes_no_bits() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let (want, peak) = trained(&ranks, true, None)?;
        let budget = [None, Some(peak * 98 / 100)][ranks.rank()];
        Ok(trained(&ranks, true, budget)?.0 == want)
    });
    assert!(seen.unwrap_or_else(|e| panic!("{e}")).into_iter().all(|same| same));
}

/// As [`trained`], in compiled steps.
fn compiled(ranks: &Communicator, is_divided: bool) -> Result<Vec<HostTensor>> {
    let r = run(ranks, is_divided, None)?;
    let (d, r) = (r.device.clone(), Rc::new(RefCell::new(r)));
    let traced = r.clone();
    let mut f = compile_with(&d, CompileOptions::default(), move |x: &[Tensor]| {
        let r = &mut *traced.borrow_mut();
        let loss = r.net.loss(&x[0])?;
        r.parallel.backward(&loss)?;
        r.optimizer.step()?;
        Ok(vec![loss.detach()])
    });
    for step in 0..STEPS {
        f.call(&[&batch(&d, step, ranks.rank())])?;
    }
    let bits = r.borrow().bits()?;
    Ok(bits)
}

#[test]
fn compiled_steps_divide_parameters_too() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        // eager loops draw other keys than compiled ones, of whole parameters too
        Ok(compiled(&ranks, false)? == compiled(&ranks, true)?)
    });
    assert!(seen.unwrap_or_else(|e| panic!("{e}")).into_iter().all(|same| same));
}

#[test]
fn gradients_accumulate_and_are_limited_by_the_norm_of_the_whole() {
    let seen = threads::run_within(3, LIMIT, |ranks| {
        let norm = |is_divided| {
            let r = run(&ranks, is_divided, None)?;
            r.parallel.backward(&r.net.loss(&batch(&r.device, 0, ranks.rank()))?)?;
            clip_grad_norm(&r.net.parameters(), 0.01)?.item::<f32>()
        };
        Ok((norm(false)?, norm(true)?))
    });
    let seen = seen.unwrap_or_else(|e| panic!("{e}"));
    for (whole, divided) in &seen {
        assert!(*whole > 0.01 && ((divided - whole) / whole).abs() < 1e-5 && *divided == seen[0].1, "{seen:?}");
    }
}

#[test]
fn checkpoints_of_divided_parameters_are_those_of_whole_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = |is_divided: bool| dir.path().join(is_divided.to_string());
    let save = |size: usize, is_divided: bool, to: &Path| {
        threads::run_within(size, LIMIT, |ranks| {
            let mut r = run(&ranks, is_divided, None)?;
            (0..2).try_for_each(|step| r.step(step))?;
            // each rank has statistics of its own
            r.parallel.broadcast_buffers()?;
            match is_divided || ranks.rank() == 0 {
                true => Checkpoint::save(to, &r.net, Some(&r.optimizer), &TrainState::default()),
                false => Ok(()),
            }
        })
        .unwrap_or_else(|e| panic!("{e}"));
    };
    let file = |is_divided| std::fs::read(kept(is_divided).join(remat_nn::FILE_NAME)).expect("is there");
    for is_divided in [false, true] {
        save(2, is_divided, &kept(is_divided));
    }
    assert!(file(false) == file(true));
    // and goes on, on more ranks than it was saved on
    for size in [1, 3] {
        let both = threads::run_within(size, LIMIT, |ranks| {
            let go_on = |is_divided| {
                let mut r = run(&ranks, is_divided, None)?;
                Checkpoint::load(kept(true))?.restore(&r.net, Some(&mut r.optimizer))?;
                (2..4).try_for_each(|step| r.step(step))?;
                r.bits()
            };
            Ok(go_on(false)? == go_on(true)?)
        });
        assert!(both.unwrap_or_else(|e| panic!("{e}")).into_iter().all(|same| same), "{size} ranks");
    }
}

#[test]
fn a_layer_is_evaluated_without_gradients() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let loss = |is_divided| {
            let r = run(&ranks, is_divided, None)?;
            let _quiet = no_grad();
            r.net.eval();
            r.net.loss(&batch(&r.device, 0, 0))?.item::<f32>()
        };
        Ok((loss(false)?, loss(true)?))
    });
    assert!(seen.unwrap_or_else(|e| panic!("{e}")).into_iter().all(|(whole, divided)| whole == divided));
}

#[test]
fn a_layer_may_be_used_twice() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let statistics = |is_divided| {
            let r = run(&ranks, is_divided, None)?;
            let x = r.net.first.forward(&batch(&r.device, 0, ranks.rank()))?;
            let block = &r.net.blocks[0];
            let loss = block.forward(&block.forward(&x)?)?.square()?.mean()?;
            r.parallel.backward(&loss)?;
            // the second pass made again what it had found, and left what the last one made
            block.named_buffers().iter().map(|(_, p)| p.to_host()).collect::<Result<Vec<_>>>()
        };
        Ok(statistics(false)? == statistics(true)?)
    });
    assert!(seen.unwrap_or_else(|e| panic!("{e}")).into_iter().all(|same| same));
}

#[test]
fn what_cannot_be_divided_is_an_error() {
    threads::run_within(2, LIMIT, |ranks| {
        let mut r = run(&ranks, true, None)?;
        let cx = &mut InitCx::new(&r.device, 0);
        let wrapped = FullySharded::new(Linear::new(cx, 4, 4)?, &ranks)?;
        let e = wrapped.layer().weight.get().expect_err("nobody has it");
        assert!(e.kind() == ErrorKind::NoValue && e.message().contains("divided among ranks"), "{e}");
        let e = FullySharded::new(wrapped, &ranks).err().expect("twice");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("divided already"), "{e}");
        let e = Lamb::new(r.net.named_parameters(), Default::default()).err().expect("it looks at norms");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("divided"), "{e}");
        let e = Lbfgs::new(r.net.parameters(), Default::default()).err().expect("it looks at products");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("divided"), "{e}");
        // an average of parts is one of the whole
        let average = Average::new(&r.net, AverageOptions::swa())?.state_dict()?;
        assert!(r.net.state_dict()?.iter().all(|(name, value)| average[name] == *value));
        // a second derivative, and a mode that changes between the passes
        let x = tensor(&r.device, &wave32(BATCH * WIDTH, 0.0), [BATCH, WIDTH]).requires_grad()?;
        let e = grad(&r.net.blocks[0].forward(&x)?.sum()?, &[&x], true).expect_err("not twice");
        assert_eq!(e.kind(), ErrorKind::NotDifferentiable, "{e}");
        let y = r.net.blocks[0].forward(&x)?.sum()?;
        r.net.eval();
        let e = y.backward().expect_err("another pass");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("training or evaluation"), "{e}");
        r.net.train();
        r.optimizer.skip_step()?;
        // and all go on
        r.step(0)
    })
    .unwrap_or_else(|e| panic!("{e}"));
}
