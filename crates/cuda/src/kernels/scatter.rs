//! Elements put where index tensors say.
//!
//! Targets are sorted, so each is one thread's, which takes what is put there in the order of the indices: no
//! atomics, and the bits of a loop.

use remat_ops::Op;
use remat_ops::index::{IndexPut, PutFn, Scatter, TakeGrad};
use remat_types::{DType, Layout, Result, Shape, SmallVec};

use super::index::{OWN, Range, Selection, bad_index, beside, checked, is_signed, selection_ranges};
use super::movement::{bits_type, place_type};
use super::optim::vocabulary;
use super::plan::{Builder, Call, Operands, Plan, Value};
use super::sorting::Sorting;
use super::walk::Walk;
use crate::source::c_type;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<TakeGrad>() {
        return Ok(Some(take_grad(op, o)));
    }
    if let Some(op) = any.downcast_ref::<Scatter>() {
        return scatter(op, o).map(Some);
    }
    match any.downcast_ref::<IndexPut>().filter(|op| op.axes.len() <= OWN.len()) {
        Some(op) => index_put(op, o).map(Some),
        None => Ok(None),
    }
}

/// The function `put(a, b)` of an element and the one put there.
fn function(f: PutFn, dtype: DType) -> String {
    let is_float = dtype.is_float();
    let element = c_type(dtype);
    let mut text = match is_float {
        true => vocabulary(dtype),
        false => format!("typedef {element} element;\n"),
    };
    let arithmetic = |sign: &str| match is_float {
        true => format!("return down(up(a) {sign} up(b));"),
        false => format!("return (element)((u64)a {sign} (u64)b);"),
    };
    let extreme = |sign: &str| match is_float {
        true => format!("const auto x = up(a), y = up(b);\nreturn y {sign} x || y != y ? b : a;"),
        false => format!("return b {sign} a ? b : a;"),
    };
    let body = match f {
        PutFn::Set => "return b;".to_owned(),
        PutFn::Add => arithmetic("+"),
        PutFn::Mul => arithmetic("*"),
        PutFn::Max => extreme(">"),
        PutFn::Min => extreme("<"),
    };
    text += &format!("__device__ __forceinline__ element put(element a, element b) {{\n{body}\n}}\n");
    text
}

/// The input's elements at first. An output that lies where the input does has them already.
pub(super) fn copy(o: &Operands<'_>, x: usize, y: usize) -> Option<Call> {
    let bits = bits_type(o.y[y].0);
    let mut b = Builder::new("copy");
    b.parameter(format!("const {bits} *x"), Value::X(x));
    b.parameter(format!("{bits} *y"), Value::Y(y));
    b.each(o.elems(y), "if (x == y) return;\ny[i] = x[i];\n")
}

/// Indices that each element of a sum looks through.
const FEW: u64 = 32;

/// [`take_grad`] in one launch.
fn take_grad_of_few(o: &Operands<'_>, extent: u64, count: u64, inner: u64) -> Plan {
    let mut b = Builder::new("take_grad_few");
    b.resident(2);
    b.functions(&function(PutFn::Add, o.y[0].0));
    b.operands(o);
    b.failure();
    for (name, v) in [("count", count), ("extent", extent), ("inner", inner)] {
        b.u64(name, v);
    }
    let of = place_type(o.elems(0));
    let body = format!(
        "const {of} row = ({of})i / ({of})inner, outer = row / ({of})extent, target = row - outer * ({of})extent;\n\
         const element *terms = x0 + (u64)outer * count * inner + ((u64)i - (u64)row * inner);\nelement sum = 0;\n\
         for (u64 m = 0; m < count; ++m) {{\nconst u64 at = (u64)x1[m];\n\
         if (at == target) sum = put(sum, terms[m * inner]);\n\
         if (i == 0 && at >= extent) refuse(failure, m, (i64)at);\n}}\ny0[i] = sum;\n"
    );
    Plan {
        calls: b.each(o.elems(0), &body).into_iter().collect(),
        failure: bad_index(vec![Range::new(extent, o.x[1].dtype)]),
        ..Plan::default()
    }
}

/// Sums of the rows of each target: `dy [outer, count, inner]` to `[outer, extent, inner]`.
fn take_grad(op: &TakeGrad, o: &Operands<'_>) -> Plan {
    let dtype = o.y[0].0;
    let (extent, count) = (op.extent as u64, o.shape(1).elems() as u64);
    let inner = o.y[0].1[op.axis + 1..].iter().product::<usize>() as u64;
    if o.elems(0) == 0 {
        return Plan::default();
    }
    if count <= FEW {
        return take_grad_of_few(o, extent, count, inner);
    }
    // what is refused comes after all targets
    let sorting = Sorting::new(1, count, Sorting::bits_of(extent), 0);
    let place = sorting.place();
    let mut b = Builder::new("take_grad_keys");
    b.x(1, o.x[1].dtype);
    b.parameter(format!("{} *keys", sorting.key()), sorting.keys());
    b.u64("extent", extent);
    b.failure();
    let body = format!(
        "const u64 at = (u64)x1[i];\nif (at >= extent) refuse(failure, i, (i64)at);\n\
         keys[i] = ({})(at < extent ? at : extent);\n",
        sorting.key()
    );
    let mut plan = Plan { failure: bad_index(vec![Range::new(extent, o.x[1].dtype)]), ..Plan::default() };
    plan.calls.extend(b.each(count, &body));
    plan.calls.extend(sorting.calls());
    let starts = Value::Workspace(sorting.end());
    plan.calls.extend(self::starts(&sorting, starts, count, extent));
    let mut b = Builder::new("take_grad");
    b.functions(&function(PutFn::Add, dtype));
    b.x(0, dtype);
    b.y(0, dtype);
    b.parameter(format!("const {place} *order"), sorting.order());
    b.parameter(format!("const {place} *starts"), starts);
    for (name, v) in [("count", count), ("extent", extent), ("inner", inner)] {
        b.u64(name, v);
    }
    let of = place_type(o.elems(0));
    let body = format!(
        "const {of} row = ({of})i / ({of})inner, outer = row / ({of})extent, target = row - outer * ({of})extent;\n\
         const element *terms = x0 + (u64)outer * count * inner + ((u64)i - (u64)row * inner);\nelement sum = 0;\n\
         const {place} end = starts[target + 1];\n#pragma unroll 8\n\
         for ({place} k = starts[target]; k < end; ++k) sum = put(sum, terms[order[k] * inner]);\ny0[i] = sum;\n"
    );
    plan.calls.extend(b.each(o.elems(0), &body));
    plan.workspace = sorting.end().saturating_add((op.extent + 1).saturating_mul(8));
    plan
}

/// Writes where the keys of each target below `targets` begin among `count` sorted ones, and where those of the last
/// one end.
pub(super) fn starts(sorting: &Sorting, starts: Value, count: u64, targets: u64) -> Option<Call> {
    let mut b = Builder::new("starts");
    b.parameter(format!("const {} *keys", sorting.key()), sorting.sorted());
    b.parameter(format!("{} *starts", sorting.place()), starts);
    b.u64("count", count);
    let body = format!(
        "u64 first = 0, rest = count;\nwhile (rest > 0) {{\nconst u64 half = rest / 2;\n\
         if (keys[first + half] < i) {{\nfirst += half + 1;\nrest -= half + 1;\n}} else rest = half;\n}}\n\
         starts[i] = ({})first;\n",
        sorting.place()
    );
    b.each(targets + 1, &body)
}

/// Where elements are put: positions and rows of a contiguous tensor, and the source over both.
struct Target<'a, 'o> {
    o: &'a Operands<'o>,
    f: PutFn,
    /// The number of positions. A row is put for each.
    positions: u64,
    row: Walk,
    source: Walk,
}

impl Target<'_, '_> {
    fn sorting(&self) -> Sorting {
        Sorting::new(1, self.positions, Sorting::bits_of(self.o.elems(0)), 0)
    }

    /// The plan, with a kernel for the keys: the places of rows, or the number of elements for what is refused. `None` for
    /// nothing to put.
    fn plan(&self, keys: Option<Call>, ranges: Vec<Range>) -> Plan {
        let mut plan = Plan { failure: bad_index(ranges), ..Plan::default() };
        plan.calls.extend(copy(self.o, 0, 0));
        let sorting = self.sorting();
        if self.o.elems(0) > 0 && self.row.elems() > 0 && self.positions > 0 {
            plan.calls.extend(keys);
            plan.calls.extend(sorting.calls());
            plan.calls.extend(self.put(&sorting));
        }
        plan.workspace = sorting.end();
        plan
    }

    /// A thread for each element of the row of each position. The thread of a target's first position takes all of them. Of
    /// values that are set the last one stays.
    fn put(&self, sorting: &Sorting) -> Option<Call> {
        let dtype = self.o.y[0].0;
        let mut b = Builder::new("put");
        b.after_checks();
        b.functions(&function(self.f, dtype));
        b.x(1, dtype);
        b.y(0, dtype);
        b.parameter(format!("const {} *keys", sorting.key()), sorting.sorted());
        b.parameter(format!("const {} *order", sorting.place()), sorting.order());
        for (name, v) in [("positions", self.positions), ("row", self.row.elems()), ("elems", self.o.elems(0))] {
            b.u64(name, v);
        }
        self.row.declare(&mut b);
        self.source.declare(&mut b);
        let (in_row, at_row) = self.row.places();
        let (in_source, at_source) = self.source.places();
        let mut body = format!(
            "const u64 first = i / row, r = i - first * row, target = keys[first];\nif (target >= elems) continue;\n\
             const auto element_of = [&](u64 i) -> u64 {{\n{in_row}return (u64)({});\n}};\n\
             const auto source = [&](u64 k) -> element {{\nconst u64 i = order[k] * row + r;\n{in_source}\
             return x1[{}];\n}};\n",
            at_row[0], at_source[0]
        );
        body += match self.f {
            PutFn::Set => {
                "if (first + 1 < positions && keys[first + 1] == target) continue;\n\
                 y0[target + element_of(r)] = source(first);\n"
            }
            _ => {
                "if (first > 0 && keys[first - 1] == target) continue;\nconst u64 at = target + element_of(r);\n\
                 element v = y0[at];\n\
                 for (u64 k = first; k < positions && keys[k] == target; ++k) v = put(v, source(k));\ny0[at] = v;\n"
            }
        };
        b.each(self.positions.saturating_mul(self.row.elems()), &body)
    }
}

fn index_put(op: &IndexPut, o: &Operands<'_>) -> Result<Plan> {
    let whole = Layout::contiguous(o.y[0].1.clone());
    let shapes: SmallVec<[&Shape; 4]> = (2..o.x.len()).map(|i| o.shape(i)).collect();
    let selection = Selection::new(whole.shape(), &op.axes, &shapes)?;
    let row = selection.row(&whole)?;
    let target = Target {
        o,
        f: op.f,
        positions: selection.positions.checked_elems()? as u64,
        row: Walk::named("r_", row.shape(), &[&row])?,
        source: Walk::named("s_", o.shape(1), &[o.x[1].layout])?,
    };
    let sorting = target.sorting();
    let mut layouts: Vec<Layout> = vec![selection.base(&whole)?];
    for i in 2..o.x.len() {
        layouts.push(o.x[i].layout.broadcast_to(&selection.positions)?);
    }
    let walk = Walk::new(&selection.positions, &layouts.iter().collect::<Vec<_>>())?;
    let mut b = Builder::new("index_put_keys");
    b.parameter(format!("{} *keys", sorting.key()), sorting.keys());
    b.u64("elems", o.elems(0));
    b.failure();
    walk.declare(&mut b);
    let (places, at) = walk.places();
    let mut body = format!("{places}i64 at = (i64)({});\nbool is_good = true;\n", at[0]);
    for (k, axis) in op.axes.iter().enumerate() {
        b.x(k + 2, o.x[k + 2].dtype);
        b.u64(format!("extent{k}"), whole.shape()[*axis] as u64);
        b.i64(format!("stride{k}"), whole.strides()[*axis] as i64);
        let own = Walk::named(OWN[k], &selection.positions, &[&Layout::contiguous(o.shape(k + 2).clone())])?;
        own.declare(&mut b);
        let (text, position) = own.places();
        let negative = op.negative && is_signed(o.x[k + 2].dtype);
        body += &checked("k", k, k + 2, &at[k + 1], negative, &text, &position[0]);
        body += &format!("at += k{k} * stride{k};\n");
    }
    body += &format!("keys[i] = ({})(is_good ? (u64)at : elems);\n", sorting.key());
    let ranges = selection_ranges(o, &op.axes, whole.shape(), 2, op.negative);
    Ok(target.plan(b.each(walk.elems(), &body), ranges))
}

/// Indices along the axis that one thread takes in order, where there are few of them or many such threads.
const DIRECT_LEN: usize = 64;
const DIRECT_COLUMNS: usize = 8192;

fn scatter(op: &Scatter, o: &Operands<'_>) -> Result<Plan> {
    let whole = Layout::contiguous(o.y[0].1.clone());
    let index = o.x[2].layout;
    let len = index.shape()[op.axis];
    let columns = index.shape().elems().checked_div(len).unwrap_or(0);
    if len <= DIRECT_LEN || columns >= DIRECT_COLUMNS {
        return scatter_columns(op, o, &whole);
    }
    let one = Layout::contiguous(Shape::scalar());
    let within = Layout::new(index.shape().clone(), o.x[1].layout.strides(), 0)?;
    let target = Target {
        o,
        f: op.f,
        positions: index.shape().elems() as u64,
        row: Walk::named("r_", one.shape(), &[&one])?,
        source: Walk::named("s_", index.shape(), &[&within])?,
    };
    let sorting = target.sorting();
    let walk = Walk::new(index.shape(), &[&beside(&whole, op.axis, index.shape())?, index])?;
    let mut b = Builder::new("scatter_keys");
    b.x(2, o.x[2].dtype);
    b.parameter(format!("{} *keys", sorting.key()), sorting.keys());
    b.u64("elems", o.elems(0));
    b.u64("extent", whole.shape()[op.axis] as u64);
    b.u64("stride", whole.strides()[op.axis] as u64);
    b.failure();
    walk.declare(&mut b);
    let (places, at) = walk.places();
    let body = format!(
        "{places}const u64 k = (u64)x2[{}];\nif (k >= extent) refuse(failure, i, (i64)k);\n\
         keys[i] = ({})(k < extent ? (u64)({}) + k * stride : elems);\n",
        at[1],
        sorting.key(),
        at[0]
    );
    let range = Range::new(whole.shape()[op.axis] as u64, o.x[2].dtype);
    Ok(target.plan(b.each(walk.elems(), &body), vec![range]))
}

/// Refuses indices that are out of range, before anything is put.
fn check_indices(index: &Layout, dtype: DType, extent: u64) -> Result<Option<Call>> {
    let walk = Walk::new(index.shape(), &[index])?;
    let mut b = Builder::new("scatter_check");
    b.x(2, dtype);
    b.u64("extent", extent);
    b.failure();
    walk.declare(&mut b);
    let (places, at) = walk.places();
    let body = format!("{places}const u64 k = (u64)x2[{}];\nif (k >= extent) refuse(failure, i, (i64)k);\n", at[0]);
    Ok(b.each(walk.elems(), &body))
}

/// A thread for all indices along the axis: targets of others lie elsewhere.
fn scatter_columns(op: &Scatter, o: &Operands<'_>, whole: &Layout) -> Result<Plan> {
    let (dtype, index) = (o.y[0].0, o.x[2].layout);
    let mut shape = index.shape().clone();
    let len = std::mem::replace(&mut shape.dims_mut()[op.axis], 1);
    let of = |l: &Layout| Layout::new(shape.clone(), l.strides(), 0);
    let walk = Walk::new(&shape, &[&of(whole)?, &of(o.x[1].layout)?, &of(index)?])?;
    let extent = whole.shape()[op.axis] as u64;
    let mut plan = Plan { failure: bad_index(vec![Range::new(extent, o.x[2].dtype)]), ..Plan::default() };
    plan.calls.extend(copy(o, 0, 0));
    plan.calls.extend(check_indices(index, o.x[2].dtype, extent)?);
    if len == 0 {
        return Ok(plan);
    }
    let mut b = Builder::new("scatter");
    b.functions(&function(op.f, dtype));
    b.x(1, dtype);
    b.x(2, o.x[2].dtype);
    b.y(0, dtype);
    b.after_checks();
    b.u64("len", len as u64);
    for (name, layout) in [("y_step", whole), ("src_step", o.x[1].layout), ("index_step", index)] {
        b.i64(name, layout.strides()[op.axis] as i64);
    }
    walk.declare(&mut b);
    let (places, at) = walk.places();
    let body = format!(
        "{places}for (u64 m = 0; m < len; ++m) {{\n\
         const u64 k = (u64)x2[(i64)({}) + (i64)m * index_step];\n\
         element *y = y0 + ((i64)({}) + (i64)k * y_step);\n*y = put(*y, x1[(i64)({}) + (i64)m * src_step]);\n}}\n",
        at[2], at[0], at[1]
    );
    plan.calls.extend(b.each(if o.elems(0) == 0 { 0 } else { walk.elems() }, &body));
    Ok(plan)
}
