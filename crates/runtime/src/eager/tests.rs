mod budget;
mod channel;
mod devices;
mod errors;
mod foresight;
mod kernels;
mod ops;
mod programs;
mod spill;
mod upstream;

use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::{OpRef, linalg::MatMul};
use remat_types::{HostTensor, Result, SmallVec};

use super::{Channel, Device, Handle};
use crate::options::DeviceOptions;
use crate::report::Kind;

fn cpu(options: DeviceOptions) -> Channel {
    Device::cpu(DeviceOptions { threads: 1, ..options }).expect("the CPU opens").channel()
}

fn recording() -> DeviceOptions {
    DeviceOptions { always_record: true, threads: 1, ..DeviceOptions::default() }
}

fn budget(bytes: usize) -> DeviceOptions {
    DeviceOptions { threads: 1, ..DeviceOptions::with_budget(bytes) }
}

fn host(v: &[f32]) -> HostTensor {
    HostTensor::from_slice(v, [v.len()]).expect("fits")
}

/// `n` floats that differ.
fn ramp(n: usize) -> HostTensor {
    host(&(0..n).map(|i| (i % 97) as f32 * 0.25 - 3.0).collect::<Vec<_>>())
}

fn put(c: &Channel, t: &HostTensor) -> Handle {
    c.put_as(t, Kind::Data).expect("the channel is open")
}

#[track_caller]
fn apply1(c: &Channel, op: impl Into<OpRef>, x: impl IntoIterator<Item = Handle>) -> Handle {
    try1(c, op, x).expect("the call is right")
}

#[track_caller]
fn try1(c: &Channel, op: impl Into<OpRef>, x: impl IntoIterator<Item = Handle>) -> Result<Handle> {
    Ok(c.apply(op, SmallVec::from_iter(x))?.remove(0))
}

#[track_caller]
fn add(c: &Channel, a: &Handle, b: &Handle) -> Handle {
    apply1(c, Binary { f: BinaryFn::Add }, [a.clone(), b.clone()])
}

#[track_caller]
fn tanh(c: &Channel, x: &Handle) -> Handle {
    apply1(c, Unary { f: UnaryFn::Tanh }, [x.clone()])
}

#[track_caller]
fn exp(c: &Channel, x: &Handle) -> Handle {
    apply1(c, Unary { f: UnaryFn::Exp }, [x.clone()])
}

#[track_caller]
fn matmul(c: &Channel, a: &Handle, b: &Handle) -> Handle {
    apply1(c, MatMul {}, [a.clone(), b.clone()])
}

/// Twelve results, each computed from the one before. `before` is called with the number of each result but the first.
fn chain(c: &Channel, x: &Handle, mut before: impl FnMut(usize)) -> Vec<Handle> {
    let mut all = vec![tanh(c, x)];
    for i in 0..11 {
        before(i);
        let next = if i % 2 == 0 { exp(c, &all[i]) } else { tanh(c, &all[i]) };
        all.push(next);
    }
    all
}

/// Reads results again in the opposite order.
fn back(c: &Channel, first: Handle, all: Vec<Handle>) -> Handle {
    all.into_iter().rev().fold(first, |sum, h| add(c, &sum, &h))
}

#[track_caller]
fn value(c: &Channel, h: &Handle) -> Vec<f32> {
    c.value(h).expect("the value exists").to_vec().expect("f32")
}
