//! Time of one decision of each policy, by the number of candidates: of the choice among given costs, and of all that the
//! worker does when something does not fit, from the reading of the queue to the last eviction.

use std::collections::VecDeque;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use remat_ops::OpRef;
use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
use remat_runtime::{Beyond, Candidate, Channel, Device, DeviceOptions, Handle, PolicyKind, Range, Segment, choose};
use remat_types::{DType, HostTensor, Result, SmallVec};

const COUNTS: [usize; 2] = [1_000, 10_000];
const POLICIES: [PolicyKind; 3] = [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream];

/// Blocks of one to eight units, every ninth pinned and every eleventh free.
fn ranges(count: usize) -> (Vec<Range>, usize) {
    let mut at = 0;
    let ranges = (0..count)
        .map(|i| {
            let bytes = (1 + i * 7 % 8) * 4096;
            let owner = (i % 11 != 0).then_some(i as u32);
            let candidate = (owner.is_some() && i % 9 != 0).then(|| Candidate {
                own_ns: 1e4 + (i * 31 % 97) as f64 * 1e3,
                ancestors_ns: (i % 5) as f64 * 2e4,
                descendants_ns: (i % 3) as f64 * 1e4,
                idle_ns: 1e6 + (count - i) as f64 * 1e3,
            });
            at += bytes;
            Range { segment: Segment { start: at - bytes, bytes, owner }, candidate }
        })
        .collect();
    (ranges, 24 * 4096)
}

fn choices(c: &mut Criterion) {
    let mut group = c.benchmark_group("choice");
    for count in COUNTS {
        let (ranges, need) = ranges(count);
        for policy in POLICIES {
            group.bench_with_input(BenchmarkId::new(format!("{policy:?}"), count), &ranges, |b, ranges| {
                b.iter(|| choose(policy, ranges, Beyond::default(), need));
            });
        }
    }
    group.finish();
}

/// How results depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Each on the one before.
    Chain,
    /// Each of a layer on two of the layer before.
    Layers,
}

const WIDTH: usize = 64;
const LAYERS: usize = 40;
const CHAIN: usize = 100;
/// Bytes of a result come in so many sizes.
const SIZES: usize = 8;
const UNIT_ELEMS: usize = 256;

/// Parts of a program that are made one after the other, and each read in reverse when many others have been made since: as
/// many as fit are there, about as many again are not.
struct World {
    c: Channel,
    shape: Shape,
    given: Vec<Handle>,
    parts: VecDeque<Vec<Handle>>,
}

impl World {
    /// With room for about `count` results.
    fn new(shape: Shape, policy: PolicyKind, count: usize) -> Result<World> {
        let mean_bytes = UNIT_ELEMS * 4 * (SIZES + 1) / 2;
        let budget_bytes = Some(count * mean_bytes);
        let c = Device::dry(DeviceOptions { budget_bytes, policy, threads: 1, ..DeviceOptions::default() })?.channel();
        let given = (1..=SIZES).map(|units| c.put(&HostTensor::zeros(DType::F32, [units * UNIT_ELEMS])?));
        let mut world = World { given: given.collect::<Result<_>>()?, c, shape, parts: VecDeque::new() };
        let mut made = 0;
        while made < count * 2 {
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
                    x = one(&self.c, Unary { f: UnaryFn::Tanh }, [x])?;
                    part.push(x.clone());
                }
            }
            Shape::Layers => {
                let mut before: Vec<Handle> = (0..WIDTH).map(|i| self.given[i % SIZES].clone()).collect();
                for _ in 0..LAYERS {
                    let node = |i: usize| {
                        let x = [before[i].clone(), before[(i + SIZES) % WIDTH].clone()];
                        one(&self.c, Binary { f: BinaryFn::Add }, x)
                    };
                    before = (0..WIDTH).map(node).collect::<Result<_>>()?;
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
            one(&self.c, Unary { f: UnaryFn::Neg }, [y])?;
        }
        Ok(())
    }

    /// Time of about so many decisions.
    fn decisions(&mut self, count: u64) -> Result<Duration> {
        let before = self.c.stats()?;
        loop {
            self.turn()?;
            let now = self.c.stats()?;
            let made = now.decisions - before.decisions;
            if made >= count {
                let each_ns = (now.policy_ns - before.policy_ns) as f64 / made as f64;
                return Ok(Duration::from_nanos((each_ns * count as f64) as u64));
            }
        }
    }
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decision");
    group.sample_size(20);
    for shape in [Shape::Chain, Shape::Layers] {
        for count in COUNTS {
            for policy in POLICIES {
                let mut world = World::new(shape, policy, count).expect("a dry device with room");
                let id = BenchmarkId::new(format!("{shape:?}/{policy:?}"), count);
                group.bench_function(id, |b| b.iter_custom(|n| world.decisions(n).expect("as before")));
            }
        }
    }
    group.finish();
}

fn one(c: &Channel, op: impl Into<OpRef>, x: impl IntoIterator<Item = Handle>) -> Result<Handle> {
    Ok(c.apply(op, SmallVec::from_iter(x))?.swap_remove(0))
}

criterion_group!(benches, choices, decisions);
criterion_main!(benches);
