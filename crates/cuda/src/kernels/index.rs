//! Elements read where index tensors say, and what is made of indices.
//!
//! A bad index is refused by its position; the element that it would give is left out.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::index::{Index, OneHot, Take, TakeAlong};
use remat_ops::loss::TargetWeight;
use remat_ops::order::SearchSorted;
use remat_types::{DType, Error, ErrorKind, Layout, Result, Scalar, Shape, SmallVec};

use super::movement::{bits_of, bits_type, place_type};
use super::plan::{Builder, Failure, Operands, Plan, THREADS, Value, grid};
use super::walk::Walk;
use crate::source::cast;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<Take>() {
        return Ok(Some(take(op, o)));
    }
    if let Some(op) = any.downcast_ref::<OneHot>() {
        return Ok(Some(one_hot(op, o)));
    }
    if let Some(op) = any.downcast_ref::<TakeAlong>() {
        return take_along(op, o).map(Some);
    }
    if let Some(op) = any.downcast_ref::<Index>().filter(|op| op.axes.len() <= OWN.len()) {
        return index(op, o).map(Some);
    }
    if let Some(op) = any.downcast_ref::<SearchSorted>() {
        return Ok(Some(search_sorted(op, o)));
    }
    Ok(any.downcast_ref::<TargetWeight>().map(|op| label_weight(op, o)))
}

/// The indices that a tensor of them may have.
#[derive(Clone, Copy)]
pub(super) struct Range {
    extent: u64,
    dtype: DType,
    /// True if those from `-extent` on count from the end.
    has_negative: bool,
}

impl Range {
    /// From 0 on.
    pub(super) fn new(extent: u64, dtype: DType) -> Range {
        Range { extent, dtype, has_negative: false }
    }

    /// The error of an index of this value.
    pub(super) fn error(self, position: u64, value: i64) -> Error {
        let Range { extent, dtype, has_negative } = self;
        let value = if dtype == DType::U64 { (value as u64).to_string() } else { value.to_string() };
        let first = if has_negative { format!("-{extent}") } else { "0".to_owned() };
        let text = format!("index {value} at position {position} is not in {first}..{extent}");
        Error::new(ErrorKind::Index, text)
    }
}

/// The errors of indices that are out of the ranges of their tensors, whose positions stand behind each other.
pub(super) fn bad_index(ranges: Vec<Range>) -> Option<Failure> {
    let any = Range::new(0, DType::I64);
    Some(Arc::new(move |position, value| {
        let range = ranges.get((position / TENSOR) as usize).copied().unwrap_or(any);
        range.error(position % TENSOR, value)
    }))
}

/// The range of positions of each of several index tensors.
pub(super) const TENSOR: u64 = 1 << 48;

fn take(op: &Take, o: &Operands<'_>) -> Plan {
    let bits = bits_type(o.y[0].0);
    let place = place_type(o.elems(0));
    let mut b = Builder::new("take");
    b.parameter(format!("const {bits} *x0"), Value::X(0));
    b.x(1, o.x[1].dtype);
    b.parameter(format!("{bits} *y0"), Value::Y(0));
    b.failure();
    let extent = o.shape(0)[op.axis] as u64;
    b.u64("extent", extent);
    b.u64("inner", o.shape(0)[op.axis + 1..].iter().product::<usize>() as u64);
    b.u64("count", o.shape(1).elems() as u64);
    let body = format!(
        "const {place} row = ({place})i / ({place})inner, outer = row / ({place})count;\n\
         const {place} m = row - outer * ({place})count;\n\
         const u64 c = (u64)i - (u64)row * inner, at = (u64)x1[m];\n\
         if (at < extent) y0[i] = x0[((u64)outer * extent + at) * inner + c];\n\
         else if (c == 0) refuse(failure, m, (i64)at);\n"
    );
    Plan {
        calls: b.each(o.elems(0), &body).into_iter().collect(),
        failure: bad_index(vec![Range::new(extent, o.x[1].dtype)]),
        ..Plan::default()
    }
}

fn one_hot(op: &OneHot, o: &Operands<'_>) -> Plan {
    let failure = bad_index(vec![Range::new(op.depth as u64, o.x[0].dtype)]);
    if op.depth == 0 {
        // every index is refused, though there is nothing to write
        let mut b = Builder::new("one_hot_of_none");
        b.x(0, o.x[0].dtype);
        b.failure();
        let call = b.each(o.shape(0).elems() as u64, "refuse(failure, i, (i64)x0[i]);\n");
        return Plan { calls: call.into_iter().collect(), failure, ..Plan::default() };
    }
    let dtype = o.y[0].0;
    let bits = bits_type(dtype);
    let place = place_type(o.elems(0));
    let mut b = Builder::new("one_hot");
    b.x(0, o.x[0].dtype);
    b.parameter(format!("{bits} *y0"), Value::Y(0));
    b.failure();
    b.u64("depth", op.depth as u64);
    b.u64("one", bits_of(Scalar::Int(1), dtype));
    let body = format!(
        "const {place} m = ({place})i / ({place})depth, k = ({place})i - m * ({place})depth;\n\
         const u64 at = (u64)x0[m];\n\
         if (k == 0 && at >= depth) refuse(failure, m, (i64)at);\n\
         y0[i] = ({bits})(at == k ? one : 0);\n"
    );
    Plan { calls: b.each(o.elems(0), &body).into_iter().collect(), failure, ..Plan::default() }
}

/// The layout of all axes of `x` but one, which stays where it is, over the extents of an index.
pub(super) fn beside(x: &Layout, axis: usize, shape: &Shape) -> Result<Layout> {
    let strides: SmallVec<[isize; 6]> =
        x.strides().iter().enumerate().map(|(a, s)| if a == axis { 0 } else { *s }).collect();
    Layout::new(shape.clone(), &strides, 0)
}

fn take_along(op: &TakeAlong, o: &Operands<'_>) -> Result<Plan> {
    let bits = bits_type(o.y[0].0);
    let (x, shape) = (o.x[0].layout, o.shape(1));
    let walk = Walk::new(shape, &[&beside(x, op.axis, shape)?, o.x[1].layout])?;
    let mut b = Builder::new("take_along");
    b.parameter(format!("const {bits} *x0"), Value::X(0));
    b.x(1, o.x[1].dtype);
    b.parameter(format!("{bits} *y0"), Value::Y(0));
    b.failure();
    let extent = x.shape()[op.axis] as u64;
    b.u64("extent", extent);
    b.i64("stride", x.strides()[op.axis] as i64);
    walk.declare(&mut b);
    let (places, at) = walk.places();
    let body = format!(
        "{places}const u64 k = (u64)x1[{}];\n\
         if (k < extent) y0[i] = x0[(i64)({}) + (i64)k * stride];\nelse refuse(failure, i, (i64)k);\n",
        at[1], at[0]
    );
    Ok(Plan {
        calls: b.each(walk.elems(), &body).into_iter().collect(),
        failure: bad_index(vec![Range::new(extent, o.x[1].dtype)]),
        ..Plan::default()
    })
}

/// How index tensors along axes of a tensor are read together: NumPy's rule. See the operator's own.
pub(super) struct Selection {
    /// The extents of positions.
    pub(super) positions: Shape,
    /// The axes in front that every position has.
    lead: usize,
    /// Other axes.
    row: SmallVec<[usize; 4]>,
}

impl Selection {
    pub(super) fn new(x: &Shape, axes: &[usize], index: &[&Shape]) -> Result<Selection> {
        let over = index.iter().try_fold(Shape::scalar(), |s, i| s.broadcast(i))?;
        let side_by_side = axes.windows(2).all(|w| w[0] + 1 == w[1]);
        let lead = if side_by_side { axes.first().copied().unwrap_or(0) } else { 0 };
        let positions = x[..lead].iter().chain(over.iter()).copied().collect();
        let row = (lead..x.rank()).filter(|a| !axes.contains(a)).collect();
        Ok(Selection { positions, lead, row })
    }

    /// The extents of a row.
    pub(super) fn row_shape(&self, x: &Shape) -> Shape {
        self.row.iter().map(|a| x[*a]).collect()
    }

    /// Where rows of a tensor begin, were all indices 0, over positions.
    pub(super) fn base(&self, x: &Layout) -> Result<Layout> {
        let stride = |a: usize| if a < self.lead { x.strides()[a] } else { 0 };
        let strides: SmallVec<[isize; 6]> = (0..self.positions.rank()).map(stride).collect();
        Layout::new(self.positions.clone(), &strides, 0)
    }

    /// Where the elements of a row of a tensor lie.
    pub(super) fn row(&self, x: &Layout) -> Result<Layout> {
        let strides: SmallVec<[isize; 6]> = self.row.iter().map(|a| x.strides()[*a]).collect();
        Layout::new(self.row_shape(x.shape()), &strides, 0)
    }

    /// A row that is one element again and again.
    fn fixed(&self, x: &Shape) -> Result<Layout> {
        Layout::contiguous(Shape::scalar()).broadcast_to(&self.row_shape(x))
    }

    /// A layout over positions, over those and rows.
    fn widened(&self, over: &Layout, row: &Layout) -> Result<Layout> {
        let over = over.broadcast_to(&self.positions)?;
        let shape: Shape = over.shape().iter().chain(row.shape().iter()).copied().collect();
        let strides: SmallVec<[isize; 6]> = over.strides().iter().chain(row.strides()).copied().collect();
        Layout::new(shape, &strides, 0)
    }
}

/// Statements that read index `k` as `name{k}`, checked. `at` is its place, and `own` are statements that find its
/// position `position` in its tensor.
pub(super) fn checked(name: &str, k: usize, x: usize, at: &str, negative: bool, own: &str, position: &str) -> String {
    let turn = match negative {
        true => format!("if ({name}{k} < 0) {name}{k} += (i64)extent{k};\n"),
        false => String::new(),
    };
    format!(
        "const i64 given{k} = (i64)x{x}[{at}];\ni64 {name}{k} = given{k};\n{turn}\
         if ((u64){name}{k} >= extent{k}) {{\nis_good = false;\n{own}\
         refuse(failure, {}ull + (u64)({position}), given{k});\n}}\n",
        k as u64 * TENSOR
    )
}

/// The ranges of index tensors along axes of a tensor, which are inputs from `first` on.
pub(super) fn selection_ranges(
    o: &Operands<'_>,
    axes: &[usize],
    x: &Shape,
    first: usize,
    negative: bool,
) -> Vec<Range> {
    let range = |(k, axis): (usize, &usize)| Range {
        has_negative: negative,
        ..Range::new(x[*axis] as u64, o.x[first + k].dtype)
    };
    axes.iter().enumerate().map(range).collect()
}

fn index(op: &Index, o: &Operands<'_>) -> Result<Plan> {
    let bits = bits_type(o.y[0].0);
    let x = o.x[0].layout;
    let shapes: SmallVec<[&Shape; 4]> = (1..o.x.len()).map(|i| o.shape(i)).collect();
    let selection = Selection::new(x.shape(), &op.axes, &shapes)?;
    let (row, fixed) = (selection.row(x)?, selection.fixed(x.shape())?);
    let mut layouts = vec![selection.widened(&selection.base(x)?, &row)?];
    for i in 1..o.x.len() {
        layouts.push(selection.widened(o.x[i].layout, &fixed)?);
    }
    let walk = Walk::new(o.y[0].1, &layouts.iter().collect::<Vec<_>>())?;
    let mut b = Builder::new("index");
    b.parameter(format!("const {bits} *x0"), Value::X(0));
    b.parameter(format!("{bits} *y0"), Value::Y(0));
    b.failure();
    walk.declare(&mut b);
    let (places, at) = walk.places();
    let mut body = format!("{places}i64 at = (i64)({});\nbool is_good = true;\n", at[0]);
    let ranges = selection_ranges(o, &op.axes, x.shape(), 1, op.negative);
    for (k, axis) in op.axes.iter().enumerate() {
        b.x(k + 1, o.x[k + 1].dtype);
        b.u64(format!("extent{k}"), x.shape()[*axis] as u64);
        b.i64(format!("stride{k}"), x.strides()[*axis] as i64);
        let own = selection.widened(&Layout::contiguous(o.shape(k + 1).clone()), &fixed)?;
        let own = Walk::named(OWN[k], o.y[0].1, &[&own])?;
        own.declare(&mut b);
        let (text, position) = own.places();
        let negative = op.negative && is_signed(o.x[k + 1].dtype);
        body += &checked("k", k, k + 1, &at[k + 1], negative, &text, &position[0]);
        body += &format!("at += k{k} * stride{k};\n");
    }
    body += "if (is_good) y0[i] = x0[at];\n";
    Ok(Plan { calls: b.each(walk.elems(), &body).into_iter().collect(), failure: bad_index(ranges), ..Plan::default() })
}

/// Names of the walks that find positions of refused indices.
pub(super) const OWN: [&str; 6] = ["p0_", "p1_", "p2_", "p3_", "p4_", "p5_"];

pub(super) fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// Halves of a lane for each value.
fn search_sorted(op: &SearchSorted, o: &Operands<'_>) -> Plan {
    let dtype = o.x[0].dtype;
    let last = |i: usize| o.shape(i).last().copied().unwrap_or(1) as u64;
    let wide = match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    };
    let mut b = Builder::new("search_sorted");
    b.operands(o);
    b.u64("extent", last(0));
    b.u64("values", last(1));
    b.u64("lane", if o.shape(0).rank() == 1 { 0 } else { last(0) });
    let before = match op.right {
        true => "!(v < e || (e != e && v == v))",
        false => "e < v || (v != v && e == e)",
    };
    let (v, e) = (cast(dtype, wide, "x1[i]"), cast(dtype, wide, "sorted[first + half]"));
    let body = format!(
        "const auto *sorted = x0 + i / values * lane;\nconst auto v = {v};\nu64 first = 0, rest = extent;\n\
         while (rest > 0) {{\nconst u64 half = rest / 2;\nconst auto e = {e};\n\
         if ({before}) {{\nfirst += half + 1;\nrest -= half + 1;\n}} else rest = half;\n}}\ny0[i] = (i64)first;\n"
    );
    b.each(o.elems(0), &body).map_or_else(Plan::default, Plan::from)
}

/// Labels that a block counts.
const COUNTED: u64 = 16 * 1024;

/// 1 or the share of each label that counts. Of their mean the counted ones are counted first.
fn label_weight(op: &TargetWeight, o: &Operands<'_>) -> Plan {
    let n = o.elems(0);
    let counts = op.ignore_index.filter(|_| op.mean && n > 0);
    let parts = n.div_ceil(COUNTED);
    let mut plan = Plan::default();
    let mut b = Builder::new("label_weight");
    b.x(0, o.x[0].dtype);
    b.y(0, o.y[0].0);
    b.i64("ignored", op.ignore_index.unwrap_or(0));
    let is_counted = if op.ignore_index.is_some() { "(i64)x0[i] != ignored" } else { "true" };
    let mut weight = "weight";
    if let Some(ignored) = counts {
        let mut b = Builder::new("label_count");
        b.functions(COUNT);
        b.x(0, o.x[0].dtype);
        b.parameter("u64 *parts", Value::Workspace(0));
        b.i64("ignored", ignored);
        b.u64("n", n);
        let body = format!(
            "const u64 first = (u64)blockIdx.x * {COUNTED};\nu64 count = 0;\n\
             for (u64 i = first + threadIdx.x; i < n && i < first + {COUNTED}; i += blockDim.x)\n\
             count += (i64)x0[i] != ignored;\n\
             count = block_count(count);\nif (threadIdx.x == 0) parts[blockIdx.x] = count;\n"
        );
        let grid = grid(parts, THREADS);
        plan.calls.push(b.build(grid, &body));
        plan.workspace = 8 * parts as usize;
        weight = "1.0 / (double)total";
    }
    let value = cast(DType::F64, o.y[0].0, "v");
    if counts.is_none() {
        b.parameter("double weight", Value::F64(if op.mean { 1.0 / n as f64 } else { 1.0 }));
        let body = format!("const double v = {is_counted} ? {weight} : 0.0;\ny0[i] = {value};\n");
        plan.calls.extend(b.each(n, &body));
        return plan;
    }
    b.functions(COUNT);
    b.parameter("const u64 *parts", Value::Workspace(0));
    b.u64("count", parts);
    b.u64("n", n);
    let body = format!(
        "u64 total = 0;\nfor (u64 k = threadIdx.x; k < count; k += blockDim.x) total += parts[k];\n\
         total = block_count(total);\n\
         for (u64 i = (u64)blockIdx.x * {COUNTED} + threadIdx.x; i < n && i < ((u64)blockIdx.x + 1) * {COUNTED}; \
         i += blockDim.x) {{\nconst double v = {is_counted} ? {weight} : 0.0;\ny0[i] = {value};\n}}\n"
    );
    let grid = grid(parts, THREADS);
    plan.calls.push(b.build(grid, &body));
    plan
}

/// The sum of whole numbers over a block of 256 threads, in all of them.
pub(super) const COUNT: &str = "__device__ __forceinline__ u64 block_count(u64 x) {\n\
    __shared__ u64 sums[256];\nsums[threadIdx.x] = x;\n\
    for (int width = 128; width > 0; width /= 2) {\n__syncthreads();\n\
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];\n}\n\
    __syncthreads();\nreturn sums[0];\n}\n";
