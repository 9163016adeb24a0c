//! Folds over any set of axes, in the order of the CPU's kernels: a whole output by a few threads, or its units apart
//! and then their lanes through the workspace.

use std::fmt::Write;

use remat_types::{DType, Shape, SmallVec};

use super::plan::{Builder, Call, Plan, THREADS, Value};
use crate::driver::Grid;
use crate::source::{c_type, cast};

/// Elements of a block of a run, and threads that fold it.
const BLOCK: u64 = 256;
const LANES: u64 = 16;
/// Columns that the CPU folds at once, and rows of a block of columns.
const COLUMNS: u64 = 512;
const ROWS: u64 = 32;
/// The most parts of an output.
const MAX_PARTS: u64 = 64;
/// Totals of the parts of columns, and the elements of a part unless it needs more.
const PART_TOTALS: u64 = 8 * COLUMNS;
const PART_ELEMS: u64 = 64 * 1024;
/// The most blocks of a launch; their threads go on to further units.
const MOST_BLOCKS: u64 = 1 << 16;
/// Threads that occupy a device, for folds of whole outputs.
const ENOUGH_THREADS: u64 = 1 << 16;
/// Units that a few threads fold in less time than a second launch takes.
const FEW_UNITS: u64 = 8;

/// The values that are folded, as types and functions of C.
#[derive(Clone, Debug)]
pub(super) struct Reducer {
    /// The type `R`.
    pub(super) name: String,
    /// Dtypes of elements, of numbers to compute with, of totals, and of the output.
    pub(super) element: DType,
    pub(super) number: DType,
    pub(super) total: DType,
    pub(super) result: DType,
    /// Bytes of a lane.
    pub(super) lane_bytes: u64,
    /// The element that a search for an extreme begins with, as an expression of C.
    pub(super) first: String,
    /// Functions behind those of `reducers.cuh`.
    pub(super) functions: String,
    /// The divisor of squares.
    pub(super) divisor: f64,
}

/// Where the elements come from: parameters, and a function that gives the element of index `i`.
pub(super) trait Elements {
    /// Declares what the statements read.
    fn declare(&self, b: &mut Builder);
    /// Statements that give the element of index `i`.
    fn load(&self) -> String;
    /// Elements that a thread loads before it waits.
    fn unroll(&self) -> u64;
}

/// Extents and strides of groups of neighbouring axes, outermost first.
type Groups = SmallVec<[(u64, u64); 4]>;

/// The two shapes of work.
#[derive(Clone, Debug)]
enum Work {
    Runs { pieces: u64, length: u64, last: u64, per_part: u64 },
    Columns { width: u64, rows: u64, together: u64, tail: u64, part_rows: u64, tail_rows: u64 },
}

/// A fold over `axes` of a dense shape.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    kept: Groups,
    reduced: Groups,
    work: Work,
    outputs: u64,
    parts: u64,
    /// The most units of a part.
    units: u64,
    /// Elements of an output.
    count: u64,
}

/// Rows or elements of a part of `n` that take `width` elements each.
fn part_length(n: u64, width: u64, most: u64) -> u64 {
    (PART_ELEMS / width.max(1)).max(n.div_ceil(most)).max(1)
}

impl Fold {
    pub(super) fn new(shape: &Shape, axes: &[usize]) -> Fold {
        let mut groups: SmallVec<[(u64, bool); 8]> = SmallVec::new();
        for (axis, extent) in shape.iter().enumerate().filter(|(_, d)| **d != 1) {
            let is_reduced = axes.contains(&axis);
            match groups.last_mut() {
                Some((last, kind)) if *kind == is_reduced => *last *= *extent as u64,
                _ => groups.push((*extent as u64, is_reduced)),
            }
        }
        let product = |kind: bool| groups.iter().filter(|g| g.1 == kind).map(|g| g.0).product::<u64>();
        let (outputs, count) = (product(false), product(true));
        let (width, is_run) = groups.pop().unwrap_or((1, true));
        let (mut kept, mut reduced, mut stride) = (Groups::new(), Groups::new(), width);
        for (extent, is_reduced) in groups.iter().rev() {
            if *is_reduced { &mut reduced } else { &mut kept }.insert(0, (*extent, stride));
            stride *= extent;
        }
        let mut fold = Fold { kept, reduced, work: Work::runs(0, 0, 0, 1), outputs, parts: 0, units: 0, count };
        match (outputs * count, is_run) {
            (0, _) => {}
            (_, true) => fold.set_runs(width),
            (_, false) => fold.set_columns(width),
        }
        fold
    }

    fn set_runs(&mut self, run: u64) {
        let outer = self.count / run;
        let blocks = |elems: u64| elems.div_ceil(BLOCK);
        if outer > 1 {
            let per_part = part_length(outer, run, MAX_PARTS);
            self.parts = outer.div_ceil(per_part);
            self.units = per_part.min(outer) * blocks(run);
            self.work = Work::runs(outer, run, run, per_part);
            return;
        }
        // pieces of the one run
        let length = part_length(run, 1, MAX_PARTS).min(run);
        self.parts = run.div_ceil(length);
        self.units = blocks(length);
        self.reduced = SmallVec::from_slice(&[(self.parts, length)]);
        self.work = Work::runs(self.parts, length, run - (self.parts - 1) * length, 1);
    }

    fn set_columns(&mut self, width: u64) {
        let rows = self.count;
        let is_adjacent = matches!(self.reduced[..], [(_, stride)] if stride == width);
        let together = if is_adjacent && width <= COLUMNS { (COLUMNS / width).min(rows) } else { 1 };
        let length = |w: u64| part_length(rows, w, (PART_TOTALS / w).min(MAX_PARTS)).min(rows);
        // the CPU's last chunk of columns may be narrower
        let tail = if width <= COLUMNS { 0 } else { width / COLUMNS * COLUMNS };
        let tail_rows = length(if tail == width { COLUMNS } else { width - tail });
        let part_rows = if tail == 0 { tail_rows } else { length(COLUMNS) };
        let most = |length: u64| (length / together).div_ceil(ROWS) * together + u64::from(together > 1);
        self.parts = rows.div_ceil(part_rows.min(tail_rows));
        self.units = most(part_rows.max(tail_rows));
        self.work = Work::Columns { width, rows, together, tail, part_rows, tail_rows };
    }

    /// Threads that fold a unit together.
    fn group(&self) -> u64 {
        match self.work {
            Work::Runs { length, .. } if length >= LANES => LANES,
            _ => 1,
        }
    }

    fn width(&self) -> u64 {
        match self.work {
            Work::Columns { width, .. } => width,
            Work::Runs { .. } => 1,
        }
    }

    /// True if threads fold whole outputs.
    fn is_whole(&self) -> bool {
        self.parts * self.units <= FEW_UNITS || self.outputs * self.group() >= ENOUGH_THREADS
    }

    /// Bytes of the workspace.
    fn workspace(&self, r: &Reducer) -> u64 {
        if self.is_whole() { 0 } else { self.outputs * self.parts * self.units * r.lane_bytes }
    }

    /// Adds the launches to a plan.
    pub(super) fn plan(&self, plan: &mut Plan, r: &Reducer, x: &impl Elements) {
        if self.outputs == 0 {
            return;
        }
        plan.workspace = plan.workspace.max(self.workspace(r) as usize);
        if self.is_whole() {
            plan.calls.push(self.whole(r, x));
            return;
        }
        plan.calls.push(self.partial(r, x));
        plan.calls.push(self.totals(r));
    }

    /// A kernel with the sources, and the statements that begin it.
    fn builder(&self, name: &'static str, r: &Reducer) -> (Builder, String) {
        let mut b = Builder::new(name);
        b.resident(2);
        b.functions(&r.vocabulary());
        b.functions(include_str!("reducers.cuh"));
        b.functions(&r.functions);
        b.functions(include_str!("fold.cuh"));
        b.functions(&format!("typedef {} R;\n", r.name));
        b.y(0, r.result);
        b.u64("outputs", self.outputs);
        b.u64("parts", self.parts);
        b.parameter("double count", Value::F64(self.count as f64));
        b.parameter("double divisor", Value::F64(r.divisor));
        let fields: &[(&str, u64)] = match self.work {
            Work::Runs { pieces, length, last, per_part } => {
                &[("pieces", pieces), ("length", length), ("last", last), ("per_part", per_part)] as &[_]
            }
            Work::Columns { width, rows, together, tail, part_rows, tail_rows } => &[
                ("width", width),
                ("rows", rows),
                ("together", together),
                ("tail", tail),
                ("part_rows", part_rows),
                ("tail_rows", tail_rows),
            ],
        };
        fields.iter().for_each(|(name, value)| b.u64(name, *value));
        let names: Vec<&str> = fields.iter().map(|f| f.0).collect();
        let made = match self.work {
            Work::Runs { .. } => format!("const Runs shape{{{}, (length + BLOCK - 1) / BLOCK}};\n", names.join(", ")),
            Work::Columns { .. } => format!("const Columns shape{{{}}};\n", names.join(", ")),
        };
        (b, format!("{made}const Numbers numbers{{count, divisor}};\n"))
    }

    /// Declares what loads and places read, and gives these as functions.
    fn access(&self, b: &mut Builder, x: &impl Elements) -> String {
        x.declare(b);
        let mut text = format!("const auto load = [&](u64 i) -> element {{\n{}}};\n", x.load());
        for (name, groups) in [("kept", &self.kept), ("reduced", &self.reduced)] {
            for (k, (extent, stride)) in groups.iter().enumerate() {
                b.u64(format!("{name}_e{k}"), *extent);
                b.u64(format!("{name}_s{k}"), *stride);
            }
            text += &place(name, groups.len());
        }
        text
    }

    fn whole(&self, r: &Reducer, x: &impl Elements) -> Call {
        let (mut b, mut body) = self.builder("fold_all", r);
        body += &self.access(&mut b, x);
        let (group, unroll) = (self.group(), x.unroll());
        body += &format!("fold_all<R, {group}, {unroll}>(shape, outputs, parts, y0, numbers, load, kept, reduced);\n");
        b.build(blocks(self.outputs * group), &body)
    }

    fn partial(&self, r: &Reducer, x: &impl Elements) -> Call {
        let (mut b, mut body) = self.builder("fold_units", r);
        body += &self.access(&mut b, x);
        self.lanes(&mut b);
        let (group, unroll) = (self.group(), x.unroll());
        body += &format!(
            "fold_units<R, {group}, {unroll}>(shape, outputs, parts, units, across, y0, lanes, load, kept, reduced);\n"
        );
        b.build(blocks(self.outputs * self.parts * self.units * group), &body)
    }

    fn totals(&self, r: &Reducer) -> Call {
        let (mut b, mut body) = self.builder("fold_lanes", r);
        self.lanes(&mut b);
        let parts = self.parts.next_power_of_two();
        body += &format!("fold_lanes<R, {parts}>(shape, outputs, parts, units, across, y0, lanes, numbers);\n");
        b.build(blocks(self.outputs.saturating_mul(parts)), &body)
    }

    fn lanes(&self, b: &mut Builder) {
        b.parameter("R::Lane *lanes", Value::Workspace(0));
        b.u64("units", self.units);
        b.u64("across", self.width());
    }
}

impl Work {
    fn runs(pieces: u64, length: u64, last: u64, per_part: u64) -> Work {
        Work::Runs { pieces, length, last, per_part }
    }
}

/// Blocks for so many threads.
fn blocks(threads: u64) -> Grid {
    let blocks = threads.div_ceil(u64::from(THREADS)).clamp(1, MOST_BLOCKS) as u32;
    Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }
}

/// A function that takes an index over groups to the index of an element.
fn place(name: &str, groups: usize) -> String {
    let mut text = format!("const auto {name} = [&](u64 i) -> u64 {{\nu64 at = 0;\n");
    for k in (0..groups).rev() {
        // writing to a String cannot fail
        let _ = match k {
            0 => writeln!(text, "at += i * {name}_s0;"),
            _ => writeln!(text, "at += i % {name}_e{k} * {name}_s{k};\ni /= {name}_e{k};"),
        };
    }
    text + "return at;\n};\n"
}

impl Reducer {
    /// The types and functions that `reducers.cuh` uses.
    fn vocabulary(&self) -> String {
        let (element, result) = (c_type(self.element), c_type(self.result));
        let (number, total) = (c_type(self.number), c_type(self.total));
        let (up, down) = (cast(self.element, self.number, "x"), cast(self.total, self.result, "x"));
        let first = &self.first;
        format!(
            "typedef {element} element;\ntypedef {result} result;\n\
             __device__ __forceinline__ {number} up(element x) {{ return {up}; }}\n\
             __device__ __forceinline__ result down({total} x) {{ return {down}; }}\n\
             __device__ __forceinline__ element first() {{ return {first}; }}\n"
        )
    }
}
