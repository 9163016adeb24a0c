//! Tensors that come of numbers alone.

use remat_ops::Op;
use remat_ops::pointwise::{Arange, Fill};
use remat_types::{DType, Result};

use super::movement::{bits_of, bits_type};
use super::plan::{Builder, Call, Operands, Plan, Value};
use crate::source::cast;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let call = if let Some(op) = op.as_any().downcast_ref::<Fill>() {
        fill(op, o)
    } else if let Some(op) = op.as_any().downcast_ref::<Arange>() {
        arange(op, o)
    } else {
        return Ok(None);
    };
    Ok(Some(call.map_or_else(Plan::default, Plan::from)))
}

/// The bits of the value, whatever they mean.
fn fill(op: &Fill, o: &Operands<'_>) -> Option<Call> {
    let mut b = Builder::new("fill");
    let bits = bits_type(op.dtype);
    b.parameter(format!("{bits} *y0"), Value::Y(0));
    b.u64("value", bits_of(op.value, op.dtype));
    b.each(o.elems(0), &format!("y0[i] = ({bits})value;\n"))
}

fn arange(op: &Arange, o: &Operands<'_>) -> Option<Call> {
    let mut b = Builder::new("arange");
    b.y(0, op.dtype);
    let value = if op.dtype.is_float() {
        b.parameter("double start", Value::F64(op.start.to_f64()));
        b.parameter("double by", Value::F64(op.step.to_f64()));
        cast(DType::F64, op.dtype, "(start + (double)i * by)")
    } else {
        b.u64("start", op.start.cast::<i64>() as u64);
        b.u64("by", op.step.cast::<i64>() as u64);
        cast(DType::I64, op.dtype, "(i64)(start + i * by)")
    };
    b.each(o.elems(0), &format!("y0[i] = {value};\n"))
}
