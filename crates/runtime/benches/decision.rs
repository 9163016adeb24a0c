//! Time of the worker's whole decision when something does not fit, from the reading of the queue to the last eviction,
//! by the number of evictable storages. Compaction is not included.
//!
//! Prints quarters and the last hundredth of the decisions of a program (see [`World`]). The program waits for each of
//! its commands, so that each decision is measured alone.

use std::collections::VecDeque;

use remat_ops::OpRef;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_runtime::{Channel, Device, DeviceOptions, Handle, PolicyKind};
use remat_types::{DType, HostTensor, Result, SmallVec};

const COUNTS: [usize; 2] = [1_000, 10_000];
const POLICIES: [PolicyKind; 3] = [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream];
/// For each four results that fit, so many are made before they are read.
const OF_FOUR: usize = 5;
const TURNS: usize = 2;

fn main() -> Result<()> {
    println!("{:>8} {:>9} {:>7} {:>10}  quarters, 99 % in us", "", "policy", "fit", "decisions");
    for shape in [Shape::Chain, Shape::Layers] {
        for count in COUNTS {
            for policy in POLICIES {
                report(shape, policy, count)?;
            }
        }
    }
    Ok(())
}

fn report(shape: Shape, policy: PolicyKind, count: usize) -> Result<()> {
    let mut world = World::new(shape, policy, count)?;
    let s = world.c.stats()?;
    world.watched = Some(Watched { decisions: s.decisions, policy_ns: s.policy_ns, us: Vec::new() });
    (0..TURNS).try_for_each(|_| world.turn())?;
    let Watched { mut us, decisions, .. } = world.watched.take().unwrap_or_default();
    let decisions = decisions - s.decisions;
    us.sort_by(f64::total_cmp);
    let at = |share: f64| us.get((us.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let (shape, policy) = (format!("{shape:?}"), format!("{policy:?}"));
    let figures = [0.25, 0.5, 0.75, 0.99].map(|q| format!("{:>8.1}", at(q))).concat();
    println!("{shape:>8} {policy:>9} {count:>7} {decisions:>10} {figures}");
    Ok(())
}

/// Decisions so far.
#[derive(Default)]
struct Watched {
    decisions: u64,
    policy_ns: u64,
    /// Each command's mean.
    us: Vec<f64>,
}

/// The dependencies among results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Each result depends on the one before.
    Chain,
    /// Each result of a layer depends on two of the layer before.
    Layers,
}

const WIDTH: usize = 64;
const LAYERS: usize = 40;
const CHAIN: usize = 100;
/// The number of sizes of results.
const SIZES: usize = 8;
const UNIT_ELEMS: usize = 256;

/// A program makes its parts one after the other. It reads each part in reverse once a full set of later parts has been
/// made. A fifth of all results is evicted then.
struct World {
    c: Channel,
    shape: Shape,
    given: Vec<Handle>,
    parts: VecDeque<Vec<Handle>>,
    watched: Option<Watched>,
}

impl World {
    /// A world with room for about `count` results.
    fn new(shape: Shape, policy: PolicyKind, count: usize) -> Result<World> {
        let mean_bytes = UNIT_ELEMS * 4 * (SIZES + 1) / 2;
        let budget_bytes = Some(count * mean_bytes);
        let c = Device::dry(DeviceOptions { budget_bytes, policy, threads: 1, ..DeviceOptions::default() })?.channel();
        let given = (1..=SIZES).map(|units| c.put(&HostTensor::zeros(DType::F32, [units * UNIT_ELEMS])?));
        let mut world = World { given: given.collect::<Result<_>>()?, c, shape, parts: VecDeque::new(), watched: None };
        let mut made = 0;
        while made < count * OF_FOUR / 4 {
            world.make()?;
            made += world.parts.back().map_or(0, Vec::len);
        }
        (0..world.parts.len()).try_for_each(|_| world.turn())?;
        Ok(world)
    }

    fn make(&mut self) -> Result<()> {
        let mut part: Vec<Handle> = Vec::new();
        match self.shape {
            Shape::Chain => {
                let mut x = self.given[self.parts.len() % SIZES].clone();
                for _ in 0..CHAIN {
                    x = self.one(Unary { f: UnaryFn::Tanh }, [x])?;
                    part.push(x.clone());
                }
            }
            Shape::Layers => {
                let mut before: Vec<Handle> = (0..WIDTH).map(|i| self.given[i % SIZES].clone()).collect();
                for _ in 0..LAYERS {
                    let mut node = |i: usize| {
                        let x = [before[i].clone(), before[(i + SIZES) % WIDTH].clone()];
                        self.one(Binary { f: BinaryFn::Add }, x)
                    };
                    before = (0..WIDTH).map(&mut node).collect::<Result<_>>()?;
                    part.extend(before.iter().cloned());
                }
            }
        }
        self.parts.push_back(part);
        Ok(())
    }

    /// Makes a part and reads the oldest.
    fn turn(&mut self) -> Result<()> {
        self.make()?;
        for y in self.parts.pop_front().into_iter().flatten().rev() {
            self.one(Unary { f: UnaryFn::Neg }, [y])?;
        }
        Ok(())
    }

    fn one(&mut self, op: impl Into<OpRef>, x: impl IntoIterator<Item = Handle>) -> Result<Handle> {
        let y = self.c.apply(op, SmallVec::from_iter(x))?.swap_remove(0);
        if let Some(w) = &mut self.watched {
            let s = self.c.stats()?;
            let count = s.decisions - std::mem::replace(&mut w.decisions, s.decisions);
            let ns = s.policy_ns - std::mem::replace(&mut w.policy_ns, s.policy_ns);
            if count > 0 {
                w.us.push(ns as f64 / 1e3 / count as f64);
            }
        }
        Ok(y)
    }
}
