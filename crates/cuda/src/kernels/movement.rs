//! Elements that go elsewhere as they are: concatenation, padding, and the gradient of a slice.
//!
//! Elements are moved as bits, so one kernel serves all dtypes of a size.

use remat_ops::Op;
use remat_ops::shape::{Concat, Pad, SliceGrad};
use remat_types::{DType, Result, Scalar, for_storage};

use super::plan::{Builder, Call, Operands, Plan, Value};

/// The unsigned type of as many bits as an element has.
pub(super) fn bits_type(dtype: DType) -> &'static str {
    match dtype.size_bytes() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    }
}

/// A type for places below `n`: division takes far longer in 64 bits.
pub(super) fn place_type(n: u64) -> &'static str {
    if n <= u64::from(u32::MAX) { "u32" } else { "u64" }
}

/// The bits of a number in a dtype.
pub(super) fn bits_of(value: Scalar, dtype: DType) -> u64 {
    if dtype == DType::Bool {
        return u64::from(value.cast::<bool>());
    }
    let mut bits = [0; 8];
    for_storage!(dtype, T => {
        for (to, from) in bits.iter_mut().zip(value.cast::<T>().to_le_bytes()) {
            *to = from;
        }
    });
    u64::from_le_bytes(bits)
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    if let Some(op) = op.as_any().downcast_ref::<Concat>() {
        return Ok(Some(concat(op, o)));
    }
    let call = if let Some(op) = op.as_any().downcast_ref::<Pad>() {
        pad(op, o)
    } else if let Some(op) = op.as_any().downcast_ref::<SliceGrad>() {
        unslice(op, o)
    } else {
        return Ok(None);
    };
    Ok(Some(call.map_or_else(Plan::default, Plan::from)))
}

/// A copy for each input: its rows of `part` elements come at `first` of the output's rows of `whole`.
fn concat(op: &Concat, o: &Operands<'_>) -> Plan {
    let bits = bits_type(o.y[0].0);
    let inner = |shape: &[usize]| shape[op.axis..].iter().product::<usize>() as u64;
    let whole = inner(o.y[0].1);
    let place = place_type(o.elems(0));
    let mut first = 0;
    let mut calls = Plan::default().calls;
    for i in 0..o.x.len() {
        let part = inner(o.shape(i));
        let mut b = Builder::new("concat");
        b.parameter(format!("const {bits} *x"), Value::X(i));
        b.parameter(format!("{bits} *y"), Value::Y(0));
        for (name, v) in [("part", part), ("whole", whole), ("first", first)] {
            b.u64(name, v);
        }
        let body = format!(
            "const {place} row = ({place})i / ({place})part;\n\
             y[(u64)row * whole + first + (({place})i - row * ({place})part)] = x[i];\n"
        );
        calls.extend(b.each(o.shape(i).elems() as u64, &body));
        first += part;
    }
    Plan { calls, ..Plan::default() }
}

/// The input's element, where all coordinates are within it.
fn pad(op: &Pad, o: &Operands<'_>) -> Option<Call> {
    let bits = bits_type(o.y[0].0);
    let place = place_type(o.elems(0));
    let mut b = Builder::new("pad");
    b.parameter(format!("const {bits} *x0"), Value::X(0));
    b.parameter(format!("{bits} *y0"), Value::Y(0));
    b.u64("value", bits_of(op.value, o.y[0].0));
    let mut body = format!("{place} rest = ({place})i;\nu64 at = 0, step = 1;\nbool is_inside = true;\n");
    for axis in (0..o.y[0].1.rank()).rev() {
        b.u64(format!("e{axis}"), o.y[0].1[axis] as u64);
        b.u64(format!("x_e{axis}"), o.shape(0)[axis] as u64);
        b.u64(format!("before{axis}"), op.before[axis] as u64);
        // below the first element the difference wraps, and is not within
        body += &format!(
            "{{\nconst {place} outer = rest / ({place})e{axis};\n\
             const u64 c = (u64)(rest - outer * ({place})e{axis}) - before{axis};\n\
             is_inside = is_inside && c < x_e{axis};\nat += c * step;\nstep *= x_e{axis};\nrest = outer;\n}}\n"
        );
    }
    body += &format!("y0[i] = is_inside ? x0[at] : ({bits})value;\n");
    b.each(o.elems(0), &body)
}

/// The element that a slice takes from this place, or 0.
fn unslice(op: &SliceGrad, o: &Operands<'_>) -> Option<Call> {
    let bits = bits_type(o.y[0].0);
    let place = place_type(o.elems(0));
    let len = o.shape(0)[op.axis];
    let mut b = Builder::new("unslice");
    b.parameter(format!("const {bits} *x0"), Value::X(0));
    b.parameter(format!("{bits} *y0"), Value::Y(0));
    b.u64("extent", op.extent as u64);
    b.u64("inner", o.y[0].1[op.axis + 1..].iter().product::<usize>() as u64);
    b.u64("len", len as u64);
    b.i64("start", op.start as i64);
    // one element or none takes no step
    b.i64("by", if len <= 1 { 1 } else { op.step as i64 });
    let body = format!(
        "const {place} row = ({place})i / ({place})inner, outer = row / ({place})extent;\n\
         const i64 d = (i64)(row - outer * ({place})extent) - start, k = d / by;\n\
         const bool is_taken = k * by == d && (u64)k < len;\n\
         y0[i] = is_taken ? x0[((u64)outer * len + (u64)k) * inner + ((u64)i - (u64)row * inner)] : ({bits})0;\n"
    );
    b.each(o.elems(0), &body)
}
