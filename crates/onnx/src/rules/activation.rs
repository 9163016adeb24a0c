//! Activations.

use remat_import::{Cx, Value, one, shape_error};
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Result};

use super::{Row, of, row};

pub(super) const ROWS: &[Row] = &[
    row("Celu", 12, |c| c.unary(|x| x.celu(c.real("alpha", 1.0)?))),
    row("Elu", 1, |c| c.unary(|x| x.elu(c.real("alpha", 1.0)?))),
    row("Gelu", 20, |c| match c.string("approximate", "none")? {
        "none" => c.unary(Tensor::gelu),
        "tanh" => c.unary(Tensor::gelu_tanh),
        other => Err(c.unknown("approximate", other)),
    }),
    row("HardSigmoid", 1, hard_sigmoid),
    row("HardSwish", 14, |c| c.unary(Tensor::hswish)),
    row("Hardmax", 1, hardmax),
    row("LeakyRelu", 1, |c| c.unary(|x| x.leaky_relu(c.real("alpha", 0.01)?))),
    row("LogSoftmax", 1, |c| softmax(c, Tensor::log_softmax)),
    row("Mish", 18, |c| c.unary(Tensor::mish)),
    row("PRelu", 1, prelu),
    row("Relu", 1, |c| c.unary(Tensor::relu)),
    row("Selu", 1, selu),
    row("Shrink", 9, shrink),
    row("Sigmoid", 1, |c| c.unary(Tensor::sigmoid)),
    row("Softmax", 1, |c| softmax(c, Tensor::softmax)),
    row("Softplus", 1, |c| c.unary(Tensor::softplus)),
    row("Softsign", 1, |c| c.unary(Tensor::softsign)),
    row("SwiGLU", 28, |c| {
        let (gate, x) = (c.x(0)?, c.x(1)?);
        if gate.shape() != x.shape() {
            return Err(shape_error(format!("a gate of shape {} for {}", gate.shape(), x.shape())));
        }
        one(swish(gate, c.real("alpha", 1.0)?)?.mul(x)?)
    }),
    row("Swish", 24, |c| one(swish(c.x(0)?, c.real("alpha", 1.0)?)?)),
    row("ThresholdedRelu", 10, |c| c.unary(|x| x.threshold(c.real("alpha", 1.0)?, 0.0))),
    of("com.microsoft", "Gelu", 1, |c| c.unary(Tensor::gelu)),
    of("com.microsoft", "FastGelu", 1, |c| match c.opt(1)? {
        Some(bias) => one(c.x(0)?.add(bias)?.gelu_tanh()?),
        None => c.unary(Tensor::gelu_tanh),
    }),
    of("com.microsoft", "BiasGelu", 1, |c| one(c.x(0)?.add(c.x(1)?)?.gelu()?)),
    of("com.microsoft", "QuickGelu", 1, |c| {
        let x = c.x(0)?;
        one(x.mul(&x.mul(c.real("alpha", 1.702)?)?.sigmoid()?)?)
    }),
];

fn hard_sigmoid(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (alpha, beta) = (c.real("alpha", 0.2)?, c.real("beta", 0.5)?);
    c.unary(|x| x.mul(alpha)?.add(beta)?.clamp(0.0, 1.0))
}

fn prelu(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, slope) = (c.x(0)?, c.x(1)?);
    // before version 7 a vector has a number for each channel
    if c.version() < 7 && slope.rank() == 1 && x.rank() > 2 && slope.elems() > 1 {
        let shape: Vec<isize> = std::iter::once(-1).chain((2..x.rank()).map(|_| 1)).collect();
        return one(x.prelu(&slope.reshape(&shape)?)?);
    }
    if x.dtype().is_float() {
        return one(x.prelu(slope)?);
    }
    one(x.lt(0)?.where_cond(&x.mul(slope)?, x)?)
}

fn selu(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (alpha, gamma) = (c.real("alpha", 1.673_263_2)?, c.real("gamma", 1.050_701)?);
    c.unary(|x| x.elu(alpha)?.mul(gamma))
}

fn shrink(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (bias, lambda) = (c.real("bias", 0.0)?, c.real("lambd", 0.5)?);
    let x = c.x(0)?;
    let f = if x.dtype().is_float() { x.clone() } else { x.cast(remat_types::DType::F64)? };
    let zero = f.zeros_like()?;
    let low = f.lt(-lambda)?.where_cond(&f.add(bias)?, &zero)?;
    one(f.gt(lambda)?.where_cond(&f.sub(bias)?, &low)?.cast(x.dtype())?)
}

fn swish(x: &Tensor, alpha: f64) -> Result<Tensor> {
    if alpha == 1.0 { x.silu() } else { x.mul(&x.mul(alpha)?.sigmoid()?) }
}

/// Before version 13 the axes from `axis` on are one.
fn softmax(c: &Cx<'_>, f: fn(&Tensor, isize) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    if c.version() >= 13 {
        return one(f(x, c.axis("axis", -1)?)?);
    }
    let (flat, shape) = flattened(x, c.axis("axis", 1)?)?;
    one(f(&flat, 1)?.reshape(&shape)?)
}

/// A matrix of the axes before `axis` and those from it on, and the shape that it had.
fn flattened(x: &Tensor, axis: isize) -> Result<(Tensor, Vec<isize>)> {
    let rank = x.rank() as isize;
    let at = if axis < 0 { axis + rank } else { axis };
    if !(0..=rank).contains(&at) {
        return Err(Error::new(ErrorKind::Axis, format!("axis {axis} of shape {}", x.shape())));
    }
    let rows: usize = x.dims()[..at as usize].iter().product();
    let columns: usize = x.dims()[at as usize..].iter().product();
    let shape = x.dims().iter().map(|d| *d as isize).collect();
    Ok((x.reshape(&[rows as isize, columns as isize])?, shape))
}

fn hardmax(c: &Cx<'_>) -> Result<Vec<Value>> {
    let hard = |x: &Tensor, axis: isize| -> Result<Tensor> {
        let axis = remat_types::axis_of(axis, x.rank())?;
        let mut shape = vec![1isize; x.rank()];
        shape[axis] = -1;
        let n = x.dims()[axis] as i64;
        let places = Tensor::arange(&x.device(), 0, n, 1, remat_types::DType::I64)?.reshape(&shape)?;
        x.argmax_over(axis as isize, true)?.eq(&places)?.cast(x.dtype())
    };
    let x = c.x(0)?;
    if c.version() >= 13 {
        return one(hard(x, c.axis("axis", -1)?)?);
    }
    let (flat, shape) = flattened(x, c.axis("axis", 1)?)?;
    one(hard(&flat, 1)?.reshape(&shape)?)
}
