//! Products of matrices.

use remat_ops::factor::SlogDet;
use remat_ops::linalg::{MatMul, MatMulWide};
use remat_types::{DType, Fact, Result};

use super::{Row, Rule, row};
use crate::export::emit::{Emit, Name};
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] = &[row::<MatMul>(), row::<MatMulWide>(), row::<SlogDet>()];

impl Rule for MatMul {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, of) = (c.all(), c.x.clone());
        Ok(vec![product(c, &x, &of)?])
    }
}

/// The product of two inputs: of small integers in one of 32 bits, whose low bits are those of a sum that wraps.
pub(super) fn product(e: &mut Emit, x: &[Name], of: &[Fact]) -> Result<Name> {
    let ([a, b], [f, ..]) = (x, of) else {
        return Err(remat_types::Error::new(remat_types::ErrorKind::Arity, "a product of two"));
    };
    let small = f.dtype.is_int() && f.dtype.size_bytes() <= 2;
    let wide = if small { DType::I32 } else { f.dtype };
    let (a, b) = (e.cast_from(a, f.dtype, wide), e.cast_from(b, f.dtype, wide));
    let y = e.op("MatMul", &[&a, &b]);
    Ok(e.cast_from(&y, wide, f.dtype))
}

impl Rule for MatMulWide {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (a, b, from, to) = (c.x(0)?, c.x(1)?, c.dtype(0)?, c.result(0)?.dtype);
        if matches!(from, DType::I8 | DType::U8) {
            return Ok(vec![c.op("MatMulInteger", &[&a, &b])]);
        }
        let (a, b) = (c.cast_from(&a, from, to), c.cast_from(&b, from, to));
        Ok(vec![c.op("MatMul", &[&a, &b])])
    }
}

impl Rule for SlogDet {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let a = c.x(0)?;
        let det = c.op("Det", &[&a]);
        let (sign, size) = (c.op("Sign", &[&det]), c.op("Abs", &[&det]));
        Ok(vec![sign, c.op("Log", &[&size])])
    }
}
