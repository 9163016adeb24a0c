//! Functions of C that several families use.

use remat_kernels::scalar::Expression;
use remat_ops::pointwise::{Pointwise, Unary, UnaryFn};
use remat_types::{DType, Error, ErrorKind, Result};

use crate::source::c_type;
use crate::source::expression::statements;

/// A function of an expression's inputs that gives its first result. Errors: those of [`statements`]; Internal for no
/// result.
pub(super) fn function(name: &str, e: &Expression) -> Result<String> {
    let names: Vec<String> = (0..e.inputs.len()).map(|k| format!("x{k}")).collect();
    let parameters: Vec<String> = e.inputs.iter().zip(&names).map(|(d, x)| format!("{} {x}", c_type(*d))).collect();
    let (text, results) = statements(e, &names, "v")?;
    let (Some(result), Some(node)) = (results.first(), e.results.first()) else {
        return Err(Error::new(ErrorKind::Internal, format!("{name} gives nothing")));
    };
    let to = c_type(e.nodes[*node as usize].dtype);
    let parameters = parameters.join(", ");
    Ok(format!("__device__ __forceinline__ {to} {name}({parameters}) {{\n{text}return {result};\n}}\n"))
}

/// A function of f32 with the bits of the CPU's. Errors: those of [`function`].
pub(super) fn unary(name: &str, f: UnaryFn) -> Result<String> {
    function(name, &Pointwise::Unary(Unary { f }).expression(&[DType::F32])?)
}
