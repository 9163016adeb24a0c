//! Functions of one number for kernels that compute more than elements.

use remat_ops::pointwise::{Pointwise, Unary, UnaryFn};
use remat_types::{DType, Error, ErrorKind, Result};

use crate::source::c_type;
use crate::source::expression::statements;

/// Functions of the device by these names, in a dtype of 32 or 64 bits. In f32 they have the CPU's bits. In f64 the CPU
/// calls a library that has no transcription; the device has the functions of `scalars.cuh` there, for sums that agree to
/// a tolerance.
///
/// Errors: those of [`statements`]; Internal for a function that is not there.
pub(super) fn scalar_functions(dtype: DType, functions: &[(&str, UnaryFn)]) -> Result<String> {
    let t = c_type(dtype);
    let mut all = String::new();
    if dtype == DType::F64 {
        all += include_str!("scalars.cuh");
    }
    for (name, f) in functions {
        let body = match f {
            _ if dtype != DType::F64 => {
                let e = Pointwise::Unary(Unary { f: *f }).expression(&[dtype])?;
                let (text, results) = statements(&e, &["x".to_owned()], "v")?;
                format!("{text}return {};\n", results.join(", "))
            }
            UnaryFn::Exp => "return exp_f64(x);\n".to_owned(),
            UnaryFn::Log => "return log_f64(x);\n".to_owned(),
            UnaryFn::Sigmoid => "return 1 / (1 + exp_f64(-x));\n".to_owned(),
            UnaryFn::Tanh => "return tanh_f64(x);\n".to_owned(),
            f => return Err(Error::new(ErrorKind::Internal, format!("{f:?} of doubles"))),
        };
        all += &format!("__device__ __forceinline__ {t} {name}({t} x) {{\n{body}}}\n");
    }
    Ok(all)
}
