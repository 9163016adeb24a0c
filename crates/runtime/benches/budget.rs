//! What a budget that never binds costs a training step: the same steps without a budget and with one, in turns.
//!
//! A step is the forward and backward pass of a plain network of matrix products and `tanh`, with an update of every
//! weight. Prints the median over rounds of the ratio of neighbouring runs, which a change of the machine's load
//! disturbs least, and the quarters beside it.

use std::time::Instant;

use remat_ops::OpRef;
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::shape::Permute;
use remat_runtime::{Channel, Device, DeviceOptions, Handle, Kind};
use remat_types::{HostTensor, Result, SmallVec, smallvec};

const LAYERS: usize = 6;
/// Widths of the layers, each with a batch of half as many rows.
const WIDTHS: [usize; 2] = [128, 256];
/// Few, so that neighbours run under one load of the machine and some of them undisturbed.
const STEPS: usize = 2;
const ROUNDS: usize = 601;

fn main() -> Result<()> {
    WIDTHS.into_iter().try_for_each(compare)
}

fn compare(width: usize) -> Result<()> {
    let options = DeviceOptions { threads: 1, ..DeviceOptions::default() };
    let with = DeviceOptions { budget_bytes: Some(1 << 30), ..options.clone() };
    let (mut free, mut bound) = (Net::new(options, width)?, Net::new(with, width)?);
    let mut ratios = Vec::new();
    let mut least = [f64::INFINITY; 2];
    for round in 0..=ROUNDS {
        // Whoever runs second finds warmer caches: they take turns at that, too.
        let (a, b) = if round % 2 == 0 {
            let a = free.steps()?;
            (a, bound.steps()?)
        } else {
            let b = bound.steps()?;
            (free.steps()?, b)
        };
        // The first round warms up.
        if round > 0 {
            ratios.push(b / a);
            least = [least[0].min(a), least[1].min(b)];
        }
    }
    ratios.sort_by(f64::total_cmp);
    let at = |quarter: usize| ratios[quarter * (ratios.len() - 1) / 4];
    println!("width {width}: a step takes {:.0} us without, {:.0} us with a budget (least)", least[0], least[1]);
    println!("  ratio {:.4} (quarters {:.4} and {:.4}), of the least {:.4}", at(2), at(1), at(3), least[1] / least[0]);
    Ok(())
}

struct Net {
    c: Channel,
    x: Handle,
    weights: Vec<Handle>,
}

impl Net {
    fn new(options: DeviceOptions, width: usize) -> Result<Net> {
        let c = Device::cpu(options)?.channel();
        let data = |rows: usize, scale: f32, kind| {
            let v: Vec<f32> = (0..rows * width).map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0) * scale).collect();
            c.put_as(&HostTensor::from_slice(&v, [rows, width])?, kind)
        };
        let x = data(width / 2, 1.0, Kind::Data)?;
        let weights = (0..LAYERS).map(|_| data(width, 0.1, Kind::Parameter)).collect::<Result<_>>()?;
        Ok(Net { c, x, weights })
    }

    /// Microseconds a step.
    fn steps(&mut self) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..STEPS {
            self.step()?;
        }
        self.c.sync()?;
        Ok(start.elapsed().as_secs_f64() * 1e6 / STEPS as f64)
    }

    fn step(&mut self) -> Result<()> {
        let c = &self.c;
        let mut x = self.x.clone();
        let mut saved = Vec::new();
        for w in &self.weights {
            let y = one(c, Unary { f: UnaryFn::Tanh }, [one(c, MatMul {}, [x.clone(), w.clone()])?])?;
            saved.push((x, y.clone()));
            x = y;
        }
        let mut dy = one(c, Unary { f: UnaryFn::Neg }, [x])?;
        for (w, (x, y)) in self.weights.iter_mut().zip(saved).rev() {
            let d = one(c, Binary { f: BinaryFn::Mul }, [dy, y])?;
            let transposed = |h: Handle| one(c, Permute { order: smallvec![1, 0] }, [h]);
            let dw = one(c, MatMul {}, [transposed(x)?, d.clone()])?;
            dy = one(c, MatMul {}, [d, transposed(w.clone())?])?;
            let dw = one(c, Unary { f: UnaryFn::Tanh }, [dw])?;
            let new = c.update(Binary { f: BinaryFn::Sub }, smallvec![w.clone(), dw], &[Some(0)])?;
            *w = new[0].clone();
            c.commit(w, Kind::Parameter)?;
        }
        c.step_mark()
    }
}

fn one(c: &Channel, op: impl Into<OpRef>, x: impl IntoIterator<Item = Handle>) -> Result<Handle> {
    Ok(c.apply(op, SmallVec::from_iter(x))?.swap_remove(0))
}
