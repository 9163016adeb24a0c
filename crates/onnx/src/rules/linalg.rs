//! Products.

use remat_import::{Cx, Value, one};
use remat_tensor::Tensor;
use remat_types::{DType, Result};

use super::{Row, of, row};

pub(super) const ROWS: &[Row] = &[
    row("Det", 11, |c| c.unary(Tensor::det)),
    row("Einsum", 12, |c| one(Tensor::einsum(&equation(c.string("equation", "")?), &c.all()?)?)),
    row("Gemm", 1, gemm),
    row("MatMul", 1, |c| one(product(c.x(0)?, c.x(1)?)?)),
    of("com.microsoft", "FusedMatMul", 1, fused_matmul),
];

/// An equation without the spaces that it may have.
fn equation(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The matrix product of any numbers.
pub(super) fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match a.dtype() {
        DType::U32 => a.cast(DType::I64)?.matmul(&b.cast(DType::I64)?)?.cast(DType::U32),
        DType::U64 => a.cast(DType::I64)?.matmul(&b.cast(DType::I64)?)?.cast(DType::U64),
        _ => a.matmul(b),
    }
}

/// `alpha a b + beta c`.
fn gemm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let turned = |i: usize, name: &str| -> Result<Tensor> {
        if c.flag(name, false)? { c.x(i)?.t() } else { Ok(c.x(i)?.clone()) }
    };
    let (alpha, beta) = (c.real("alpha", 1.0)?, c.real("beta", 1.0)?);
    let mut y = product(&turned(0, "transA")?, &turned(1, "transB")?)?;
    let scale = |t: &Tensor, by: f64| -> Result<Tensor> {
        match by {
            1.0 => Ok(t.clone()),
            _ if t.dtype().is_float() => t.mul(by),
            _ => t.cast(DType::F64)?.mul(by)?.cast(t.dtype()),
        }
    };
    y = scale(&y, alpha)?;
    match c.opt(2)? {
        Some(bias) if beta != 0.0 => one(y.add(&scale(bias, beta)?)?),
        _ => one(y),
    }
}

fn fused_matmul(c: &Cx<'_>) -> Result<Vec<Value>> {
    for name in ["transBatchA", "transBatchB"] {
        if c.flag(name, false)? {
            return Err(c.unknown(name, 1));
        }
    }
    let turned = |i: usize, name: &str| -> Result<Tensor> {
        if c.flag(name, false)? { c.x(i)?.t() } else { Ok(c.x(i)?.clone()) }
    };
    let y = product(&turned(0, "transA")?, &turned(1, "transB")?)?;
    let alpha = c.real("alpha", 1.0)?;
    one(if alpha == 1.0 { y } else { y.mul(alpha)? })
}
