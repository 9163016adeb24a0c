//! Layers of two inputs.

use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::linear::bias_init;
use super::plus;
use crate::{InitCx, Label, Module, Parameter};

/// `y[o] = x1^T weight[o] x2 + bias[o]`; `x1: [.., in1]`, `x2: [.., in2]`, `y: [.., out]`, `weight: [out, in1, in2]`,
/// `bias: [out]`.
#[derive(Module)]
#[module(crate = crate)]
pub struct Bilinear {
    #[module(flatten)]
    label: Label,
    /// `[out, in1, in2]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
}

impl Bilinear {
    /// With a bias; both uniform in `-b .. b`, `b = 1 / sqrt in1`, as PyTorch's. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: [usize; 2], outputs: usize) -> Result<Self> {
        Bilinear::with(cx, inputs, outputs, true)
    }

    /// As [`Bilinear::new`], and without a bias unless `bias`.
    pub fn with(cx: &mut InitCx, [in1, in2]: [usize; 2], outputs: usize, bias: bool) -> Result<Self> {
        let weight = cx.parameter([outputs, in1, in2], bias_init(in1))?;
        let bias = if bias { Some(cx.parameter([outputs], bias_init(in1))?) } else { None };
        Ok(Bilinear { label: Label::new("bilinear"), weight, bias })
    }

    /// The output for `x1` and `x2`. Errors: Axis for rank 0; Shape for other last extents, or others that differ.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        let weight = self.weight.get()?;
        let [out, in1, in2] = super::extents(&weight, "bilinear")?;
        let batch = |x: &Tensor, own: usize| match x.dims() {
            [batch @ .., last] if *last == own => Ok(batch.to_vec()),
            _ => Err(wrong(format!("an input has shape {}: its last extent must be {own}", x.shape()))),
        };
        let (first, second) = (batch(x1, in1)?, batch(x2, in2)?);
        if first != second {
            return Err(wrong(format!("the inputs have shapes {} and {}", x1.shape(), x2.shape())));
        }
        let sizes = |v: &[usize]| v.iter().map(|d| *d as isize).collect::<Vec<_>>();
        let n = first.iter().product::<usize>();
        // [n, in1] [in1, out in2], and then a sum over in2
        let by_first = weight.permute(&[1, 0, 2])?.reshape(&sizes(&[in1, out * in2]))?;
        let partial = x1.reshape(&sizes(&[n, in1]))?.matmul(&by_first)?.reshape(&sizes(&[n, out, in2]))?;
        let y = partial.mul(&x2.reshape(&sizes(&[n, 1, in2]))?)?.sum_over(&[2], false)?;
        let mut shape = first;
        shape.push(out);
        let y = y.reshape(&sizes(&shape))?;
        match &self.bias {
            Some(bias) => plus(y, bias.get()?),
            None => Ok(y),
        }
    }
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Shape, text).with_op("bilinear")
}

/// The cosine of the angle between vectors along an axis: [`Tensor::cosine_similarity`].
#[derive(Clone, Copy, Debug, PartialEq, Module)]
#[module(crate = crate)]
pub struct CosineSimilarity {
    /// The axis; counts from the end if negative. Default: 1.
    pub axis: isize,
    /// The lower bound of a norm. Default: 1e-8.
    pub eps: f64,
}

impl Default for CosineSimilarity {
    fn default() -> Self {
        CosineSimilarity { axis: 1, eps: 1e-8 }
    }
}

impl CosineSimilarity {
    /// The cosines of `x1` and `x2`. Errors: Axis, Shape, DType.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("cosine_similarity", CallSite::here());
        x1.cosine_similarity(x2, self.axis, self.eps)
    }
}

/// The distance of vectors along the last axis: [`Tensor::pairwise_distance`].
#[derive(Clone, Copy, Debug, PartialEq, Module)]
#[module(crate = crate)]
pub struct PairwiseDistance {
    /// The norm. Default: 2.
    pub p: f64,
    /// Added to each difference. Default: 1e-6.
    pub eps: f64,
    /// Whether the axis stays with extent 1. Default: false.
    pub keepdims: bool,
}

impl Default for PairwiseDistance {
    fn default() -> Self {
        PairwiseDistance { p: 2.0, eps: 1e-6, keepdims: false }
    }
}

impl PairwiseDistance {
    /// The distances of `x1` and `x2`. Errors: Axis, Shape, DType; Value for a `p` that is not above 0.
    #[track_caller]
    pub fn forward(&self, x1: &Tensor, x2: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("pairwise_distance", CallSite::here());
        x1.pairwise_distance(x2, self.p, self.eps, self.keepdims)
    }
}
