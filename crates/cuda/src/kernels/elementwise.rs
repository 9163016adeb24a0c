//! The pointwise operators, fused or not, and copies of strided tensors.

use std::sync::Arc;

use remat_kernels::scalar::Expression;
use remat_ops::pointwise::{Binary, BinaryFn, Cast, Fused, Pointwise};
use remat_ops::shape::Contiguous;
use remat_ops::{Class, Op};
use remat_types::{DType, Error, ErrorKind, Layout, Result, SmallVec};

use super::index::is_signed;
use super::plan::{Builder, Call, Failure, Operands, Plan};
use super::walk::Walk;
use crate::source::expression::statements;

/// The function of one element that an op computes for inputs of these dtypes. `None` for an op that is no such
/// function.
fn expression(op: &dyn Op, dtypes: &[DType]) -> Option<Expression> {
    let first = *dtypes.first()?;
    if op.as_any().is::<Contiguous>() {
        return Pointwise::Cast(Cast { dtype: first }).expression(&[first]).ok();
    }
    if let Some(fused) = op.as_any().downcast_ref::<Fused>() {
        return fused.expression(dtypes).ok();
    }
    match op.class() {
        Class::Pointwise(found) => found.expression(dtypes).ok(),
        _ => None,
    }
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, operands: &Operands<'_>) -> Result<Option<Plan>> {
    let Some(e) = expression(op, &operands.dtypes()) else { return Ok(None) };
    let layouts: SmallVec<[&Layout; 8]> = operands.x.iter().map(|x| x.layout).collect();
    let walk = Walk::new(operands.y[0].1, &layouts)?;
    let refusal = refusal(op, operands)?;
    match kernel_behind(&e, &walk, refusal.is_some()) {
        Ok(call) => {
            let (check, failure) = refusal.map_or((None, None), |r| (r.check, Some(r.failure)));
            let calls = check.filter(|_| call.is_some()).into_iter().chain(call).collect();
            Ok(Some(Plan { calls, failure, ..Plan::default() }))
        }
        // a function of a library has no form in C
        Err(e) if e.kind() == ErrorKind::Device => Ok(None),
        Err(e) => Err(e),
    }
}

/// The refusal of elements of the second input, by a function of integers.
struct Refusal {
    /// Looks at all of it, before anything is written.
    check: Option<Call>,
    failure: Failure,
}

fn is_zero(position: u64, _: i64) -> Error {
    Error::new(ErrorKind::Value, format!("element {position} of the second input is zero"))
}

fn is_negative(position: u64, _: i64) -> Error {
    Error::new(ErrorKind::Value, format!("element {position} of the second input is negative"))
}

/// The refusal of a quotient, a power or a shift of integers.
fn refusal(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Refusal>> {
    let Some(op) = op.as_any().downcast_ref::<Binary>().filter(|_| o.x[0].dtype.is_int()) else { return Ok(None) };
    let (comparison, failure): (_, Failure) = match op.f {
        BinaryFn::Div | BinaryFn::FloorDiv | BinaryFn::Rem | BinaryFn::Fmod => ("==", Arc::new(is_zero)),
        BinaryFn::Pow | BinaryFn::Shl | BinaryFn::Shr if is_signed(o.x[1].dtype) => ("<", Arc::new(is_negative)),
        _ => return Ok(None),
    };
    let walk = Walk::new(o.shape(1), &[o.x[1].layout])?;
    let mut b = Builder::new("check");
    b.x(1, o.x[1].dtype);
    b.failure();
    walk.declare(&mut b);
    let (places, at) = walk.places();
    let body = format!("{places}if (x1[{}] {comparison} 0) refuse(failure, i, 0);\n", at[0]);
    Ok(Some(Refusal { check: b.each(walk.elems(), &body), failure }))
}

/// The kernel of an expression over inputs that a walk finds. An output may lie where a dense input does. `None` for
/// no elements. Errors: those of [`statements`]; Internal for another number of inputs.
pub fn kernel(e: &Expression, walk: &Walk) -> Result<Option<Call>> {
    kernel_behind(e, walk, false)
}

/// [`kernel`], behind a check or not.
fn kernel_behind(e: &Expression, walk: &Walk, is_checked: bool) -> Result<Option<Call>> {
    let (mut body, places) = walk.places();
    if places.len() != e.inputs.len() {
        let text = format!("{} inputs for a function of {}", places.len(), e.inputs.len());
        return Err(Error::new(ErrorKind::Internal, text));
    }
    let inputs: Vec<String> = places.iter().enumerate().map(|(k, place)| format!("x{k}[{place}]")).collect();
    let (statements, results) = statements_of(e, &inputs)?;
    let mut b = Builder::new("elementwise");
    if is_checked {
        b.after_checks();
    }
    body += &statements;
    results.iter().enumerate().for_each(|(j, dtype)| b.y(j, *dtype));
    e.inputs.iter().enumerate().for_each(|(k, dtype)| b.x(k, *dtype));
    walk.declare(&mut b);
    Ok(b.each(walk.elems(), &body))
}

/// Statements that write the results of an expression to `y0[i]`, `y1[i]` and so on, and the dtypes of these. Errors:
/// those of [`statements`].
pub(super) fn statements_of(e: &Expression, inputs: &[String]) -> Result<(String, Vec<DType>)> {
    let (mut text, results) = statements(e, inputs, "v")?;
    for (j, result) in results.iter().enumerate() {
        text += &format!("y{j}[i] = {result};\n");
    }
    Ok((text, e.results.iter().map(|r| e.nodes[*r as usize].dtype).collect()))
}
