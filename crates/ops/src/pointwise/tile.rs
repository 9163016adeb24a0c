//! How a [`Fused`] runs: tile after tile through all steps.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use remat_kernels::copy::{PARALLEL_MIN_ELEMS, Walk};
use remat_kernels::pointwise::BLOCK;
use remat_kernels::pool::part_range;
use remat_types::{DType, Error, ErrorKind, Fact, Layout, Result, Shape, SmallVec, for_storage};

use super::fused::{Fused, Pointwise};
use super::loops::{Lane, block_mixed, test_mixed};
use super::unary_table::Form1;
use super::{binary_table, cast, unary_table};
use crate::{EvalCx, In};

/// Registers begin at multiples of this.
pub(super) const ALIGN: usize = 64;
/// Values that an op of the largest size has.
const MOST: usize = Fused::MAX_INPUTS + Fused::MAX_STEPS;

/// Elements of a tile of an output of `elems`.
fn tile_elems(elems: usize) -> usize {
    elems.min(BLOCK)
}

/// Bytes of a register, which holds a tile of any of the values.
fn register_bytes(widest: usize, elems: usize) -> usize {
    (tile_elems(elems) * widest).next_multiple_of(ALIGN)
}

/// Bytes of registers for a pool of `threads`.
pub(super) fn workspace(op: &Fused, facts: &[Fact], threads: usize) -> usize {
    scratch_bytes(op, facts) * parts(facts[usize::from(op.inputs)].elems(), threads)
}

/// Bytes of the registers of a part: one for each input, for it may need gathering, and for each step that is alive beside
/// others.
pub(super) fn scratch_bytes(op: &Fused, facts: &[Fact]) -> usize {
    let inputs = usize::from(op.inputs);
    let elems = facts[inputs].elems();
    if elems == 0 {
        return 0;
    }
    let widest = facts.iter().map(|f| f.dtype.size_bytes()).max().unwrap_or(1);
    (inputs + Registers::of(op).used) * register_bytes(widest, elems)
}

/// Parts that are computed at the same time.
pub(super) fn parts(elems: usize, threads: usize) -> usize {
    if elems < PARALLEL_MIN_ELEMS { 1 } else { threads }
}

/// Where the value of a step lies.
#[derive(Clone, Copy)]
enum Place {
    Register(usize),
    Output(usize),
}

/// Registers of the steps: one is free again after the last step that reads its value.
struct Registers {
    of_step: SmallVec<[Place; Fused::MAX_STEPS]>,
    used: usize,
}

impl Registers {
    fn of(op: &Fused) -> Self {
        let inputs = usize::from(op.inputs);
        let mut last: SmallVec<[usize; Fused::MAX_STEPS]> = (0..op.steps.len()).collect();
        for (k, s) in op.steps.iter().enumerate() {
            s.x.iter().filter_map(|x| usize::from(*x).checked_sub(inputs)).for_each(|x| last[x] = k);
        }
        let mut taken: SmallVec<[Option<usize>; Fused::MAX_STEPS]> = SmallVec::new();
        let of_step = (0..op.steps.len()).map(|k| {
            if let Some(j) = op.outputs.iter().position(|o| usize::from(*o) == k) {
                return Place::Output(j);
            }
            // read by this step too, so that a step never writes what it reads
            let free = taken.iter().position(|t| t.is_none_or(|by| last[by] < k));
            let r = free.unwrap_or(taken.len());
            if r == taken.len() {
                taken.push(None);
            }
            taken[r] = Some(k);
            Place::Register(r)
        });
        let of_step = of_step.collect();
        Registers { of_step, used: taken.len() }
    }
}

/// Where the elements of an input are.
enum Source<'a> {
    /// In row-major order, as many as the output has.
    Slice(&'a [u8]),
    /// Selected of these by a walk of the output's shape.
    Walk(&'a [u8], Walk),
    /// In this output, which took its storage.
    Held(usize),
}

/// The data that all parts of a run share.
pub(super) struct Run<'a> {
    op: &'a Fused,
    /// Element types of inputs and steps.
    dtypes: SmallVec<[DType; MOST]>,
    sources: SmallVec<[Source<'a>; Fused::MAX_INPUTS]>,
    places: SmallVec<[Place; Fused::MAX_STEPS]>,
    tile: usize,
    /// Registers of a part, and bytes of each.
    count: usize,
    each: usize,
}

/// Registers; one is taken out while it is written.
pub(super) type Held<'c> = SmallVec<[Option<&'c mut [u8]>; MOST]>;

/// The bytes of outputs; one is taken out while it is written.
pub(super) type Outputs<'c> = SmallVec<[Option<&'c mut [u8]>; Fused::MAX_OUTPUTS]>;

/// The share of one thread: elements, the outputs' bytes for these, and registers (those of the inputs come first).
pub(super) struct Part<'c> {
    pub(super) range: Range<usize>,
    /// Where in the outputs' bytes the range begins, in elements.
    pub(super) at: usize,
    pub(super) y: Outputs<'c>,
    pub(super) registers: Held<'c>,
}

/// Computes all outputs of `op`.
pub(super) fn run(op: &Fused, cx: &mut EvalCx<'_>) -> Result<()> {
    let EvalCx { x, y, workspace, pool } = cx;
    let Some(shape) = y.first().map(|y| y.shape()) else { return Ok(()) };
    let elems = shape.elems();
    if elems == 0 {
        return Ok(());
    }
    let run = Run::new(op, x, shape, |i| y.iter().position(|y| y.holds() == Some(i)))?;
    let parts = parts(elems, pool.threads());
    let mut outputs: SmallVec<[&mut [u8]; Fused::MAX_OUTPUTS]> = y.iter_mut().map(|y| y.bytes_mut()).collect();
    let mut memory: &mut [u8] = workspace;
    let mut shares: SmallVec<[Part<'_>; 4]> = SmallVec::new();
    for p in 0..parts {
        let range = part_range(elems.div_ceil(BLOCK), parts, p);
        let range = range.start * BLOCK..(range.end * BLOCK).min(elems);
        let y = outputs
            .iter_mut()
            .zip(&op.outputs)
            .map(|(y, k)| take(y, range.len() * run.dtypes[x.len() + usize::from(*k)].size_bytes()).map(Some));
        let y = y.collect::<Result<_>>()?;
        shares.push(Part { range, at: 0, y, registers: run.registers(&mut memory)? });
    }
    pool.chunks_mut(&mut shares, 1, |_, part| part.iter_mut().for_each(|p| run.part(p)));
    Ok(())
}

fn source<'a>(bytes: &'a [u8], dtype: DType, layout: &Layout) -> Source<'a> {
    let size = dtype.size_bytes();
    match bytes.get(layout.offset() * size..(layout.offset() + layout.elems()) * size) {
        Some(run) if layout.is_contiguous() => Source::Slice(run),
        _ => Source::Walk(bytes, Walk::new(layout)),
    }
}

/// The first `n` bytes, which leave the slice.
pub(super) fn take<'c>(from: &mut &'c mut [u8], n: usize) -> Result<&'c mut [u8]> {
    let all = std::mem::take(from);
    let short = || Error::new(ErrorKind::Internal, "an output or the workspace is too small");
    let (first, rest) = all.split_at_mut_checked(n).ok_or_else(short)?;
    *from = rest;
    Ok(first)
}

impl<'a> Run<'a> {
    /// The shared data of a run over `shape`; `held` names the output that took the storage of an input.
    pub(super) fn new(
        op: &'a Fused,
        x: &[In<'a>],
        shape: &Shape,
        held: impl Fn(usize) -> Option<usize>,
    ) -> Result<Run<'a>> {
        let mut dtypes: SmallVec<[DType; MOST]> = x.iter().map(|x| x.dtype()).collect();
        for s in &op.steps {
            let given: SmallVec<[DType; 3]> = s.x.iter().map(|i| dtypes[usize::from(*i)]).collect();
            dtypes.push(s.op.dtype(&given));
        }
        let mut sources = SmallVec::new();
        for (i, x) in x.iter().enumerate() {
            sources.push(match held(i) {
                Some(j) => Source::Held(j),
                None => source(x.bytes(), x.dtype(), &x.layout().broadcast_to(shape)?),
            });
        }
        let Registers { of_step, used } = Registers::of(op);
        let widest = dtypes.iter().map(|d| d.size_bytes()).max().unwrap_or(1);
        let elems = shape.elems();
        let each = register_bytes(widest, elems);
        Ok(Run { op, dtypes, sources, places: of_step, tile: tile_elems(elems), count: x.len() + used, each })
    }

    /// The inputs that are read at the place of each element, and bytes of an element.
    pub(super) fn read_in_order(&self) -> impl Iterator<Item = (&'a [u8], usize)> {
        self.sources.iter().zip(&self.dtypes).filter_map(|(source, dtype)| match source {
            Source::Slice(x) => Some((*x, dtype.size_bytes())),
            Source::Walk(..) | Source::Held(_) => None,
        })
    }

    /// The dtype of output `j`.
    pub(super) fn dtype_of(&self, j: usize) -> DType {
        self.dtypes[self.sources.len() + usize::from(self.op.outputs[j])]
    }

    /// Bytes of the registers of a part.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.count * self.each
    }

    /// The registers of a part, from the front of `memory`.
    pub(super) fn registers<'c>(&self, memory: &mut &'c mut [u8]) -> Result<Held<'c>> {
        (0..self.count).map(|_| take(memory, self.each).map(Some)).collect()
    }

    /// Computes a part.
    pub(super) fn part(&self, part: &mut Part<'_>) {
        self.begin(&mut part.registers);
        self.tiles(part);
    }

    /// Fills the registers that are the same for every tile.
    pub(super) fn begin(&self, registers: &mut Held<'_>) {
        for (i, s) in self.sources.iter().enumerate() {
            if let (Source::Walk(x, walk), Some(to)) = (s, &mut registers[i])
                && walk.is_uniform()
            {
                fill(self.dtypes[i], x, walk, &mut to[..self.tile * self.dtypes[i].size_bytes()]);
            }
        }
    }

    /// Computes a part that has begun.
    pub(super) fn tiles(&self, part: &mut Part<'_>) {
        self.elements(part.range.clone(), part.at, &mut part.y, &mut part.registers);
    }

    /// Computes the elements of `range`, to `at` and on in the outputs, by registers that have begun.
    pub(super) fn elements(&self, range: Range<usize>, at: usize, y: &mut Outputs<'_>, registers: &mut Held<'_>) {
        for first in range.clone().step_by(self.tile) {
            let tile = Tile { at: first, n: self.tile.min(range.end - first), to: first - range.start + at };
            self.tile(tile, y, registers);
        }
    }

    fn tile(&self, tile: Tile, y: &mut Outputs<'_>, registers: &mut Held<'_>) {
        for (i, s) in self.sources.iter().enumerate() {
            let size = self.dtypes[i].size_bytes();
            let Some(to) = &mut registers[i] else { continue };
            let to = &mut to[..tile.n * size];
            match s {
                Source::Walk(x, walk) if !walk.is_uniform() && walk.run_at(tile.at, tile.n).is_none() => {
                    gather(self.dtypes[i], x, walk, tile.at, to);
                }
                Source::Held(j) => {
                    if let Some(y) = &y[*j] {
                        to.copy_from_slice(&y[tile.in_outputs(size)]);
                    }
                }
                Source::Slice(_) | Source::Walk(..) => {}
            }
        }
        for (k, place) in self.places.iter().enumerate() {
            // taken out, so that the others can be read while this one is written
            match place {
                Place::Register(r) => {
                    let Some(memory) = registers[self.sources.len() + r].take() else { continue };
                    self.step(k, tile, memory, y, registers);
                    registers[self.sources.len() + r] = Some(memory);
                }
                Place::Output(j) => {
                    let Some(memory) = y[*j].take() else { continue };
                    self.step(k, tile, memory, y, registers);
                    y[*j] = Some(memory);
                }
            }
        }
    }

    /// Step `k` of a tile, to its place.
    fn step(&self, k: usize, tile: Tile, place: &mut [u8], y: &Outputs<'_>, registers: &Held<'_>) {
        let s = &self.op.steps[k];
        let read = |i: usize| s.x.get(i).map_or(&[][..], |v| self.read(tile, usize::from(*v), y, registers));
        let x = [read(0), read(1), read(2)];
        let dtype = |i: usize| s.x.get(i).map_or(DType::Bool, |v| self.dtypes[usize::from(*v)]);
        let given = [dtype(0), dtype(1)];
        let span = tile.span(self.places[k], self.dtypes[self.sources.len() + k].size_bytes());
        s.op.block(given, &x, &mut place[span]);
    }

    /// A tile of a value: an input or a step.
    fn read<'t>(&'t self, tile: Tile, value: usize, y: &'t Outputs<'_>, registers: &'t Held<'_>) -> &'t [u8] {
        let size = self.dtypes[value].size_bytes();
        let (memory, span) = match value.checked_sub(self.sources.len()) {
            None => match &self.sources[value] {
                Source::Slice(x) => return &x[tile.at * size..(tile.at + tile.n) * size],
                Source::Walk(x, walk) => match walk.run_at(tile.at, tile.n) {
                    Some(first) => return &x[first * size..(first + tile.n) * size],
                    None => (registers[value].as_deref(), 0..tile.n * size),
                },
                Source::Held(_) => (registers[value].as_deref(), 0..tile.n * size),
            },
            Some(k) => {
                let memory = match self.places[k] {
                    Place::Register(r) => registers[self.sources.len() + r].as_deref(),
                    Place::Output(j) => y[j].as_deref(),
                };
                (memory, tile.span(self.places[k], size))
            }
        };
        memory.map_or(&[], |m| &m[span])
    }
}

/// The elements that go through the steps together: the first one, how many, and the first one's place in the outputs.
#[derive(Clone, Copy)]
struct Tile {
    at: usize,
    n: usize,
    to: usize,
}

impl Tile {
    /// Its bytes in an output whose elements have `size` bytes.
    fn in_outputs(&self, size: usize) -> Range<usize> {
        self.to * size..(self.to + self.n) * size
    }

    /// Its bytes in a place.
    fn span(&self, place: Place, size: usize) -> Range<usize> {
        match place {
            Place::Register(_) => 0..self.n * size,
            Place::Output(_) => self.in_outputs(size),
        }
    }
}

/// The elements at `at ..` of a walk.
fn gather(dtype: DType, x: &[u8], walk: &Walk, at: usize, to: &mut [u8]) {
    for_storage!(dtype, T => walk.read(cast_slice::<u8, T>(x), at, cast_slice_mut(to)));
}

/// The one element of a walk, everywhere.
fn fill(dtype: DType, x: &[u8], walk: &Walk, to: &mut [u8]) {
    for_storage!(dtype, T => {
        let to = cast_slice_mut::<u8, T>(to);
        walk.read(cast_slice(x), 0, &mut to[..1]);
        let v = to[0];
        to.fill(v);
    });
}

impl Pointwise {
    /// The element type of the result.
    pub(super) fn dtype(&self, x: &[DType]) -> DType {
        match self {
            Pointwise::Compare(_) => DType::Bool,
            Pointwise::Cast(op) => op.dtype,
            Pointwise::Unary(op) if matches!(unary_table::row(op.f).form, Form1::Test(_)) => DType::Bool,
            Pointwise::Where(_) => x[1],
            // an f32 beside a 16-bit float gives the latter
            Pointwise::Binary(_) if x[0] == DType::F32 => x[1],
            Pointwise::Unary(_) | Pointwise::Binary(_) | Pointwise::Clamp(_) => x[0],
        }
    }

    /// The op on a block, given as bytes.
    fn block(&self, dtypes: [DType; 2], x: &[&[u8]], y: &mut [u8]) {
        match self {
            Pointwise::Unary(op) => for_storage!(dtypes[0], T => {
                let a = cast_slice::<u8, T>(x[0]);
                match &unary_table::row(op.f).form {
                    Form1::Same(l) => T::block1(l, dtypes[0], a, cast_slice_mut(y)),
                    Form1::Test(l) => T::block_test(l, dtypes[0], a, y),
                };
            }),
            Pointwise::Binary(op) if dtypes[0] != dtypes[1] => {
                if let Some(f) = binary_table::row(op.f).loops.f32 {
                    block_mixed(f, dtypes, x[0], x[1], y);
                }
            }
            Pointwise::Binary(op) => for_storage!(dtypes[0], T => {
                let l = &binary_table::row(op.f).loops;
                T::block2(l, dtypes[0], cast_slice(x[0]), cast_slice(x[1]), cast_slice_mut(y));
            }),
            Pointwise::Compare(op) if dtypes[0] != dtypes[1] => test_mixed(op.f.loops::<f32>(), dtypes, x[0], x[1], y),
            Pointwise::Compare(op) => for_storage!(dtypes[0], T => {
                op.f.loops::<T>()(cast_slice(x[0]), cast_slice(x[1]), y);
            }),
            Pointwise::Where(_) => for_storage!(dtypes[1], T => {
                let (a, b) = (cast_slice::<u8, T>(x[1]), cast_slice::<u8, T>(x[2]));
                for (((y, a), b), c) in cast_slice_mut::<u8, T>(y).iter_mut().zip(a).zip(b).zip(x[0]) {
                    *y = if *c != 0 { *a } else { *b };
                }
            }),
            Pointwise::Cast(op) => cast::block(dtypes[0], op.dtype, x[0], y),
            Pointwise::Clamp(op) => for_storage!(dtypes[0], T => {
                op.block::<T>(cast_slice(x[0]), cast_slice_mut(y));
            }),
        }
    }
}
