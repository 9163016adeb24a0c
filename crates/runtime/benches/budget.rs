//! The cost of a budget that never binds for a training step: the same steps without a budget and with one, in turns.
//!
//! A step is the forward and backward pass of a plain network of matrix products and `tanh`, with an update of every
//! weight. The bench prints the least time, the lower tenth and quarter, and the median of both, with their ratios.
//! Other processes only ever add time, so the lowest figures are disturbed least.

use std::time::{Duration, Instant};

use remat_ops::OpRef;
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_ops::shape::Permute;
use remat_runtime::{Channel, Device, DeviceOptions, Handle, Kind};
use remat_types::{HostTensor, Result, SmallVec, smallvec};

const LAYERS: usize = 6;
/// Widths of the layers, each with a batch of half as many rows.
const WIDTHS: [usize; 3] = [128, 256, 512];
/// Few steps, so that neighbouring runs see the same load of the machine, and some runs are undisturbed.
const STEPS: usize = 2;
/// For each width.
const TIME: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    WIDTHS.into_iter().try_for_each(compare)
}

fn compare(width: usize) -> Result<()> {
    let options = DeviceOptions { threads: 1, ..DeviceOptions::default() };
    let with = DeviceOptions { budget_bytes: Some(1 << 30), ..options.clone() };
    let (mut free, mut bound) = (Net::new(options, width)?, Net::new(with, width)?);
    let mut us: [Vec<f64>; 2] = Default::default();
    // The first steps warm up.
    free.steps()?;
    bound.steps()?;
    let start = Instant::now();
    while start.elapsed() < TIME {
        // The second of the two finds warmer caches, so they take turns at that, too.
        if us[0].len().is_multiple_of(2) {
            us[0].push(free.steps()?);
            us[1].push(bound.steps()?);
        } else {
            us[1].push(bound.steps()?);
            us[0].push(free.steps()?);
        }
    }
    us.iter_mut().for_each(|all| all.sort_by(f64::total_cmp));
    let at = |share: f64| us.each_ref().map(|all| all[(all.len() as f64 * share) as usize]);
    println!("width {width}, {} runs of each, us a step without and with a budget, and their ratio:", us[0].len());
    for (name, [a, b]) in [("least", at(0.0)), ("tenth", at(0.1)), ("quarter", at(0.25)), ("median", at(0.5))] {
        println!("  {name:>8} {a:10.1} {b:10.1} {:8.4}", b / a);
    }
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
        for (k, (x, y)) in saved.into_iter().enumerate().rev() {
            let d = one(c, Binary { f: BinaryFn::Mul }, [dy, y])?;
            let transposed = |h: Handle| one(c, Permute { order: smallvec![1, 0] }, [h]);
            let dw = one(c, MatMul {}, [transposed(x)?, d.clone()])?;
            dy = one(c, MatMul {}, [d, transposed(self.weights[k].clone())?])?;
            let dw = one(c, Unary { f: UnaryFn::Tanh }, [dw])?;
            // The only handle goes to the update, so the update writes in place, as an optimiser's does.
            let w = self.weights.remove(k);
            let new = c.update(Binary { f: BinaryFn::Sub }, smallvec![w, dw], &[Some(0)])?.swap_remove(0);
            c.commit(&new, Kind::Parameter)?;
            self.weights.insert(k, new);
        }
        c.step_mark()
    }
}

fn one(c: &Channel, op: impl Into<OpRef>, x: impl IntoIterator<Item = Handle>) -> Result<Handle> {
    Ok(c.apply(op, SmallVec::from_iter(x))?.swap_remove(0))
}
