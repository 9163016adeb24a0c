//! The pointwise operators, fused or not, and copies of strided tensors.

use remat_kernels::scalar::Expression;
use remat_ops::pointwise::{Cast, Fused, Pointwise};
use remat_ops::shape::Contiguous;
use remat_ops::{Class, Op};
use remat_types::{DType, Error, ErrorKind, Layout, Result, SmallVec};

use super::plan::{Builder, Call, Operands, Plan};
use super::walk::Walk;
use crate::source::expression::statements;

/// The function of one element that an op computes for inputs of these dtypes. `None` for an op that is no such function, and for
/// one that may refuse an element.
fn expression(op: &dyn Op, dtypes: &[DType]) -> Option<Expression> {
    let first = *dtypes.first()?;
    if op.as_any().is::<Contiguous>() {
        return Pointwise::Cast(Cast { dtype: first }).expression(&[first]).ok();
    }
    if let Some(fused) = op.as_any().downcast_ref::<Fused>() {
        return fused.expression(dtypes).ok();
    }
    match op.class() {
        // integers may have no quotient, power or shift
        Class::Pointwise(Pointwise::Binary(b)) => Pointwise::fusible(&b.into(), first)?.expression(dtypes).ok(),
        Class::Pointwise(found) => found.expression(dtypes).ok(),
        _ => None,
    }
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, operands: &Operands<'_>) -> Result<Option<Plan>> {
    let Some(e) = expression(op, &operands.dtypes()) else { return Ok(None) };
    let layouts: SmallVec<[&Layout; 8]> = operands.x.iter().map(|x| x.layout).collect();
    let walk = Walk::new(operands.y[0].1, &layouts)?;
    match kernel(&e, &walk) {
        Ok(call) => Ok(Some(call.map_or_else(Plan::default, Plan::from))),
        // a function of a library has no form in C
        Err(e) if e.kind() == ErrorKind::Device => Ok(None),
        Err(e) => Err(e),
    }
}

/// The kernel of an expression over inputs that a walk finds. An output may lie where a dense input does. `None` for no elements.
/// Errors: those of [`statements`]; Internal for another number of inputs.
pub fn kernel(e: &Expression, walk: &Walk) -> Result<Option<Call>> {
    let (mut body, places) = walk.places();
    if places.len() != e.inputs.len() {
        let text = format!("{} inputs for a function of {}", places.len(), e.inputs.len());
        return Err(Error::new(ErrorKind::Internal, text));
    }
    let inputs: Vec<String> = places.iter().enumerate().map(|(k, place)| format!("x{k}[{place}]")).collect();
    let (statements, results) = statements_of(e, &inputs)?;
    body += &statements;
    let mut b = Builder::new("elementwise");
    results.iter().enumerate().for_each(|(j, dtype)| b.y(j, *dtype));
    e.inputs.iter().enumerate().for_each(|(k, dtype)| b.x(k, *dtype));
    walk.declare(&mut b);
    Ok(b.each(walk.elems(), &body))
}

/// Statements that write the results of an expression to `y0[i]`, `y1[i]` and so on, and the dtypes of these. Errors: those of
/// [`statements`].
pub(super) fn statements_of(e: &Expression, inputs: &[String]) -> Result<(String, Vec<DType>)> {
    let (mut text, results) = statements(e, inputs, "v")?;
    for (j, result) in results.iter().enumerate() {
        text += &format!("y{j}[i] = {result};\n");
    }
    Ok((text, e.results.iter().map(|r| e.nodes[*r as usize].dtype).collect()))
}
