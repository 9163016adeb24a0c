//! A run of a compiled training step takes nothing from the heap.

use std::alloc::System;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use remat_kernels::pool::Pool;
use remat_nn::*;
use remat_ops::{EvalCx, In, Op, Out};
use remat_runtime::{Device, DeviceOptions, Executable};
use remat_tensor::{Tensor, compile};
use remat_types::{DType, Fact};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn device(threads: usize) -> Device {
    Device::cpu(DeviceOptions { threads, ..DeviceOptions::default() }).expect("a CPU")
}

/// Memory of a run, made by hand: what a device would give it.
struct Memory {
    facts: Vec<(Fact, Vec<u8>)>,
    outputs: Vec<(Fact, Vec<u8>)>,
    workspace: Vec<u64>,
}

impl Memory {
    fn new(exe: &Executable) -> Memory {
        let g = exe.graph();
        let given = g.inputs().iter().copied().chain(g.states().iter().map(|s| s.value));
        let filled = |f: &Fact| (Fact::new(f.dtype, f.shape.clone()), data(f));
        let facts: Vec<(Fact, Vec<u8>)> = given.map(|v| filled(g.fact(v))).collect();
        let x: Vec<&Fact> = facts.iter().map(|f| &f.0).collect();
        let outputs = exe.infer(&x).expect("fits").iter().map(filled).collect();
        let workspace = vec![0u64; exe.workspace(&x, exe.threads()) / 8 + 8];
        Memory { facts, outputs, workspace }
    }
}

/// Small numbers in floats, zeros (a valid label, a valid key) elsewhere.
fn data(f: &Fact) -> Vec<u8> {
    let one = if f.dtype == DType::F32 { 0.01f32.to_le_bytes().to_vec() } else { vec![0; f.dtype.size_bytes()] };
    one.repeat(f.elems())
}

/// Runs before the count, by the end of which the pool's threads have started.
const WARM_UP: usize = 20;

/// Heap calls of all threads during `runs` runs after the warm-up.
fn heap_calls(exe: &Executable, runs: usize) -> usize {
    let mut m = Memory::new(exe);
    let pool = Pool::new(exe.threads());
    let layouts: Vec<_> = m.facts.iter().map(|f| f.0.layout()).collect();
    let held = |i: usize| exe.updates().iter().find(|u| u.0 == i).map(|u| u.1);
    let x: Vec<In<'_>> = m
        .facts
        .iter()
        .zip(&layouts)
        .enumerate()
        .map(|(i, (f, l))| if held(i).is_some() { In::donated(f.0.dtype, l) } else { In::new(f.0.dtype, l, &f.1) })
        .collect();
    let workspace: &mut [u8] = bytemuck::cast_slice_mut(&mut m.workspace);
    let at = workspace.as_ptr().align_offset(64);
    let mut calls = 0;
    for run in 0..WARM_UP + runs {
        let outputs = m.outputs.iter_mut().enumerate();
        let mut y: Vec<Out<'_>> = outputs
            .map(|(j, (f, bytes))| {
                let holds = exe.updates().iter().find(|u| u.1 == j).map(|u| u.0);
                Out::new(f.dtype, &f.shape, bytes, holds)
            })
            .collect();
        let region = Region::new(HEAP);
        let mut cx = EvalCx { x: &x, y: &mut y, workspace: &mut workspace[at..], pool: &pool };
        exe.eval(&mut cx).expect("runs");
        let s = region.change();
        if run >= WARM_UP {
            calls += s.allocations + s.reallocations;
        }
    }
    calls
}

fn step(device: &Device, net: Sequential, adam: bool, x: &[usize], classes: usize) -> Arc<Executable> {
    let net = Rc::new(net);
    let optimizer: Box<dyn Optimizer> = if adam {
        Box::new(AdamW::new(net.named_parameters(), AdamWOptions::default()).expect("valid"))
    } else {
        let o = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
        Box::new(Sgd::new(net.named_parameters(), o).expect("valid"))
    };
    let optimizer = RefCell::new(optimizer);
    let mut f = compile(device, |x: &[Tensor]| {
        let loss = net.forward(&x[0])?.cross_entropy(&x[1])?;
        loss.backward()?;
        optimizer.borrow_mut().step()?;
        Ok(vec![loss.detach()])
    });
    let labels = Tensor::new(device, &vec![(classes - 1) as i64; x[0]], [x[0]]).expect("fits");
    let x = Tensor::zeros(device, x, DType::F32).expect("fits");
    f.executable(&[&x, &labels]).expect("compiles")
}

#[test]
fn a_compiled_training_step_takes_nothing_from_the_heap() {
    for threads in [1, 2] {
        let d = device(threads);
        let mut cx = InitCx::new(&d, 3);
        let cx = &mut cx;
        let conv = Sequential::new()
            .then(Conv2d::new(cx, 3, 8, 3).expect("valid"))
            .then(BatchNorm2d::new(cx, 8).expect("valid"))
            .then(Relu)
            .then(MaxPool2d::new(2))
            .then(Dropout::new(0.2, &mut Rng::new(5)).expect("valid"))
            .then(Flatten::default())
            .then(Linear::new(cx, 8 * 15 * 15, 10).expect("valid"));
        let mlp = Sequential::new()
            .then(Linear::new(cx, 784, 128).expect("valid"))
            .then(LayerNorm::new(cx, [128]).expect("valid"))
            .then(Gelu)
            .then(Linear::new(cx, 128, 10).expect("valid"));
        for (name, exe) in
            [("convolution", step(&d, conv, false, &[4, 3, 32, 32], 10)), ("mlp", step(&d, mlp, true, &[64, 784], 10))]
        {
            // the device drops what the trace has left on a thread of its own
            d.channel().sync().expect("open");
            assert_eq!(heap_calls(&exe, 10), 0, "{name}, {threads} threads");
        }
    }
}
