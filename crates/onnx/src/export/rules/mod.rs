//! The rules: a row for each op, in the table of its file, or among those that are left out.

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

use remat_ops::{OpDef, OpRef};
use remat_ops::{
    activation, attention as attend, collective, conv as conv_ops, cpu, factor, loss as losses, norm as norms,
};
use remat_ops::{optim, pooling, random, recurrent as recurrent_ops, trees, vision as vision_ops};
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

/// A list from each file, beside its rules.
const FAMILIES: &[&[Row]] = &[
    attention::ROWS,
    boxes::ROWS,
    conv::ROWS,
    flow::ROWS,
    index::ROWS,
    linalg::ROWS,
    loss::ROWS,
    norm::ROWS,
    order::ROWS,
    pointwise::ROWS,
    pool::ROWS,
    recurrent::ROWS,
    reduce::ROWS,
    shape::ROWS,
    spectral::ROWS,
    vision::ROWS,
    walk::ROWS,
];

/// The ops that are written.
pub(in crate::export) fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().copied().flatten()
}

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
    LazyLock::new(|| rows().map(|row| (row.name, row)).collect());

/// Writes an op. Errors: Value for what cannot be written, with the reason.
pub(super) fn emit(op: &OpRef, c: &mut Cx<'_>) -> Result<Vec<Name>> {
    if let Some(row) = TABLE.get(op.name()) {
        return (row.emit)(op, c);
    }
    Err(left_out(reason(op.name()).unwrap_or("an op that no rule is known for")))
}

/// Why ops of this name are never written.
pub(in crate::export) fn reason(name: &str) -> Option<&'static str> {
    LEFT_OUT.iter().find(|l| l.name == name).map(|l| l.reason)
}
