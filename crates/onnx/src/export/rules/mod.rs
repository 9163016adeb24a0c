//! The rules: one row each op, in one of two tables.

mod attention;
mod boxes;
mod conv;
mod flow;
mod index;
mod linalg;
mod loss;
mod norm;
mod order;
mod pointwise;
mod pool;
mod recurrent;
mod reduce;
mod shape;
mod spectral;
mod vision;
mod walk;

use std::collections::HashMap;
use std::sync::LazyLock;

use remat_ops::vision as vision_ops;
use remat_ops::{OpDef, OpRef};
use remat_ops::{
    activation, attention as attend, collective, conv as conv_ops, cpu, factor, index as index_ops, linalg as products,
};
use remat_ops::{loss as losses, norm as norms, optim, order as order_ops, pointwise as point, pooling, random};
use remat_ops::{
    recurrent as recurrent_ops, reduce as reduce_ops, shape as shape_ops, spectral as spectral_ops, trees,
};
use remat_runtime::control_flow;
use remat_types::{Error, ErrorKind, Result};

use super::emit::Name;
use super::lower::{Cx, left_out};

/// How an op is written: the names of its outputs. Those that [`Cx::wants`] does not ask for may be left out at the end, or be
/// any.
trait Rule: OpDef {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>>;
}

/// An op that is written.
pub(in crate::export) struct Row {
    pub(in crate::export) name: &'static str,
    emit: fn(&OpRef, &mut Cx<'_>) -> Result<Vec<Name>>,
}

const fn row<T: Rule>() -> Row {
    Row {
        name: T::NAME,
        emit: |op, c| match op.downcast::<T>() {
            Some(op) => op.emit(c),
            None => Err(Error::new(ErrorKind::Internal, format!("an op of another type is called {}", T::NAME))),
        },
    }
}

/// The ops that are written.
pub(in crate::export) const ROWS: &[Row] = &[
    row::<activation::Softmax>(),
    row::<attend::Attention>(),
    row::<control_flow::Call>(),
    row::<control_flow::Loop>(),
    row::<control_flow::Switch>(),
    row::<conv_ops::Conv2d>(),
    row::<conv_ops::Conv2dInputGrad>(),
    row::<factor::SlogDet>(),
    row::<index_ops::Index>(),
    row::<index_ops::IndexPut>(),
    row::<index_ops::NonZero>(),
    row::<index_ops::OneHot>(),
    row::<index_ops::Scatter>(),
    row::<index_ops::Take>(),
    row::<index_ops::TakeAlong>(),
    row::<index_ops::TakeGrad>(),
    row::<losses::CrossEntropy>(),
    row::<norms::BatchNorm>(),
    row::<norms::BatchNormInfer>(),
    row::<norms::LayerNorm>(),
    row::<norms::RmsNorm>(),
    row::<order_ops::Cumulate>(),
    row::<order_ops::OrderStatistic>(),
    row::<order_ops::Recurrence>(),
    row::<order_ops::SearchSorted>(),
    row::<order_ops::Sort>(),
    row::<order_ops::TopK>(),
    row::<point::Arange>(),
    row::<point::Binary>(),
    row::<point::Cast>(),
    row::<point::Clamp>(),
    row::<point::Compare>(),
    row::<point::Fill>(),
    row::<point::Fused>(),
    row::<point::FusedMatMul>(),
    row::<point::FusedReduce>(),
    row::<point::Unary>(),
    row::<point::Where>(),
    row::<pooling::AvgPool2d>(),
    row::<pooling::MaxPool2d>(),
    row::<products::MatMul>(),
    row::<products::MatMulWide>(),
    row::<recurrent_ops::Recurrent>(),
    row::<reduce_ops::AllFinite>(),
    row::<reduce_ops::ArgReduce>(),
    row::<reduce_ops::LogSumExp>(),
    row::<reduce_ops::Reduce>(),
    row::<reduce_ops::Std>(),
    row::<reduce_ops::Var>(),
    row::<shape_ops::BroadcastTo>(),
    row::<shape_ops::Concat>(),
    row::<shape_ops::Contiguous>(),
    row::<shape_ops::Pad>(),
    row::<shape_ops::Permute>(),
    row::<shape_ops::Reshape>(),
    row::<shape_ops::Slice>(),
    row::<shape_ops::SliceGrad>(),
    row::<spectral_ops::Fft>(),
    row::<spectral_ops::Irfft>(),
    row::<spectral_ops::Rfft>(),
    row::<vision_ops::Nms>(),
    row::<vision_ops::PoolIndices>(),
    row::<vision_ops::Resample>(),
    row::<vision_ops::SamplePoints>(),
];

/// An op that is not written, and why.
pub(in crate::export) struct LeftOut {
    pub(in crate::export) name: &'static str,
    pub(in crate::export) reason: &'static str,
}

const fn without<T: OpDef>(reason: &'static str) -> LeftOut {
    LeftOut { name: T::NAME, reason }
}

const GRADIENT: &str = "a gradient; an exported model is for inference";
const UPDATE: &str = "an update of parameters; an exported model is for inference";
const DRAW: &str = "random numbers of a key; the standard's have another generator";
const FACTOR: &str = "the standard has no factorisations of matrices";
const PACKED: &str = "a layout that a pass for this machine made; export the graph of a level below 3";
const RANKS: &str = "what ranks do together; a model runs in one process";
const TREES: &str = "trees are of another domain of the standard, which takes their tables as attributes";

/// The ops that are not written.
pub(in crate::export) const LEFT_OUT: &[LeftOut] = &[
    without::<activation::SoftmaxGrad>(GRADIENT),
    without::<attend::AttentionGrad>(GRADIENT),
    without::<collective::AllGather>(RANKS),
    without::<collective::AllReduce>(RANKS),
    without::<collective::AllToAll>(RANKS),
    without::<collective::Broadcast>(RANKS),
    without::<collective::GatherShards>(RANKS),
    without::<collective::GatherTo>(RANKS),
    without::<collective::ReduceScatter>(RANKS),
    without::<collective::ReduceTo>(RANKS),
    without::<collective::ScatterFrom>(RANKS),
    without::<conv_ops::Conv2dWeightGrad>(GRADIENT),
    without::<cpu::ConvBlocked>(PACKED),
    without::<cpu::FromBlocked>(PACKED),
    without::<cpu::LinearPacked>(PACKED),
    without::<cpu::MaxPoolBlocked>(PACKED),
    without::<cpu::PackConv>(PACKED),
    without::<cpu::PackLinear>(PACKED),
    without::<cpu::ToBlocked>(PACKED),
    without::<trees::TreeLeaf>(TREES),
    without::<trees::TreeSum>(TREES),
    without::<factor::Cholesky>(FACTOR),
    without::<factor::Eigh>(FACTOR),
    without::<factor::Pinv>(FACTOR),
    without::<factor::Qr>(FACTOR),
    without::<factor::Solve>(FACTOR),
    without::<factor::SolveTriangular>(FACTOR),
    without::<factor::Svd>(FACTOR),
    without::<losses::CrossEntropyGrad>(GRADIENT),
    without::<losses::CtcLoss>("the standard has no sum over alignments; an exported model is for inference"),
    without::<losses::CtcLossGrad>(GRADIENT),
    without::<losses::TargetWeight>(GRADIENT),
    without::<norms::BatchNormGrad>(GRADIENT),
    without::<norms::LayerNormGrad>(GRADIENT),
    without::<norms::RmsNormGrad>(GRADIENT),
    without::<optim::AdadeltaUpdate>(UPDATE),
    without::<optim::AdafactorUpdate>(UPDATE),
    without::<optim::AdagradUpdate>(UPDATE),
    without::<optim::AdamWUpdate>(UPDATE),
    without::<optim::AdamaxUpdate>(UPDATE),
    without::<optim::LambUpdate>(UPDATE),
    without::<optim::LionUpdate>(UPDATE),
    without::<optim::NAdamUpdate>(UPDATE),
    without::<optim::RAdamUpdate>(UPDATE),
    without::<optim::RmsPropUpdate>(UPDATE),
    without::<optim::SgdRowsUpdate>(UPDATE),
    without::<optim::SgdUpdate>(UPDATE),
    without::<optim::SparseAdamUpdate>(UPDATE),
    without::<pooling::AvgPool2dGrad>(GRADIENT),
    without::<pooling::GatherByArgmax>(GRADIENT),
    without::<pooling::MaxPool2dGrad>(GRADIENT),
    without::<random::Bernoulli>(DRAW),
    without::<random::Dropout>("dropout; call `eval` before the function is compiled"),
    without::<random::FoldIn>(DRAW),
    without::<random::GammaSample>(DRAW),
    without::<random::Normal>(DRAW),
    without::<random::PoissonSample>(DRAW),
    without::<random::RandomPermutation>(DRAW),
    without::<random::Uniform>(DRAW),
    without::<random::Weights>(DRAW),
    without::<recurrent_ops::RecurrentGrad>(GRADIENT),
    without::<vision_ops::RoiPoolIndices>("the standard's pooling of regions gives no places"),
    without::<vision_ops::SamplePointsGrad>(GRADIENT),
    without::<vision_ops::SamplePointsSlope>(GRADIENT),
];

static TABLE: LazyLock<HashMap<&'static str, &'static Row>> =
    LazyLock::new(|| ROWS.iter().map(|row| (row.name, row)).collect());

/// Writes an op. Errors: Value for what cannot be written, with the reason.
pub(super) fn emit(op: &OpRef, c: &mut Cx<'_>) -> Result<Vec<Name>> {
    if let Some(row) = TABLE.get(op.name()) {
        return (row.emit)(op, c);
    }
    let known = LEFT_OUT.iter().find(|l| l.name == op.name());
    Err(left_out(known.map_or("an op that no rule is known for", |l| l.reason)))
}
