//! Random numbers: pure functions of a seed, which a node has by its attribute, or else by its name.
//!
//! The standard leaves the generator open. A model without seeds gives the same numbers each time it runs; who wants others gives the
//! numbers as inputs.

use remat_import::{Cx, Value, one, size};
use remat_tensor::Tensor;
use remat_types::{DType, HostTensor, Result, Shape};

use super::{Row, dtype, free};

pub(super) const ROWS: &[Row] = &[
    free("Bernoulli", 15, |c| {
        let p = c.x(0)?;
        let dtype = dtype(c, "dtype")?.unwrap_or(p.dtype());
        one(Tensor::uniform(&key(c)?, p.shape(), p.dtype(), 0.0, 1.0)?.lt(p)?.cast(dtype)?)
    }),
    free("Dropout", 1, dropout),
    free("Multinomial", 7, |c| {
        let n = size(c.int("sample_size", 1)?)?;
        let dtype = dtype(c, "dtype")?.unwrap_or(DType::I32);
        one(c.x(0)?.softmax(-1)?.multinomial(&key(c)?, n, true)?.cast(dtype)?)
    }),
    free("RandomNormal", 1, |c| {
        let shape = c.sizes("shape")?.ok_or_else(|| c.missing("shape"))?;
        normal(c, shape.into(), dtype(c, "dtype")?.unwrap_or(DType::F32))
    }),
    free("RandomNormalLike", 1, |c| {
        let x = c.x(0)?;
        normal(c, x.shape().clone(), dtype(c, "dtype")?.unwrap_or(x.dtype()))
    }),
    free("RandomUniform", 1, |c| {
        let shape = c.sizes("shape")?.ok_or_else(|| c.missing("shape"))?;
        uniform(c, shape.into(), dtype(c, "dtype")?.unwrap_or(DType::F32))
    }),
    free("RandomUniformLike", 1, |c| {
        let x = c.x(0)?;
        uniform(c, x.shape().clone(), dtype(c, "dtype")?.unwrap_or(x.dtype()))
    }),
];

fn key(c: &Cx<'_>) -> Result<Tensor> {
    let seed = match (c.opt_real("seed"), c.opt_int("seed")) {
        (Ok(Some(v)), _) => v.to_bits(),
        (_, Ok(Some(v))) => v as u64,
        // FNV-1a, so that nodes differ
        _ => c.name().bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)),
    };
    Tensor::from_host(c.device(), &HostTensor::from_slice(&[seed, 0], [2])?)
}

fn normal(c: &Cx<'_>, shape: Shape, dtype: DType) -> Result<Vec<Value>> {
    one(Tensor::normal(&key(c)?, shape, dtype, c.real("mean", 0.0)?, c.real("scale", 1.0)?)?)
}

fn uniform(c: &Cx<'_>, shape: Shape, dtype: DType) -> Result<Vec<Value>> {
    one(Tensor::uniform(&key(c)?, shape, dtype, c.real("low", 0.0)?, c.real("high", 1.0)?)?)
}

fn dropout(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let all = |c: &Cx<'_>| {
        // before version 10 the mask is of the input's type
        let dtype = if c.version() < 10 { x.dtype() } else { DType::Bool };
        Tensor::ones(c.device(), x.shape(), dtype)
    };
    let training = c.version() >= 12 && c.value(2).is_some() && c.scalar(2)?.cast::<bool>();
    let ratio = if c.version() >= 12 && c.value(1).is_some() { c.float(1)? } else { 0.5 };
    if !training || ratio == 0.0 {
        let mut y = vec![Value::Tensor(x.clone())];
        if c.wants(1) {
            y.push(all(c)?.into());
        }
        return Ok(y);
    }
    let keep = Tensor::uniform(&key(c)?, x.shape(), DType::F32, 0.0, 1.0)?.ge(ratio)?;
    let y = keep.where_cond(x, &x.zeros_like()?)?.mul(1.0 / (1.0 - ratio))?;
    Ok(vec![y.into(), keep.into()])
}
