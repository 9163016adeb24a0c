//! The list of all ops.
//!
//! An explicit static array, so that nothing depends on link order. A host program adds entries of its own with
//! [`Registry::with`]: custom ops use the same door.

use remat_types::{Error, ErrorKind, Result};

use crate::{OpDef, OpRef, Sample};

/// What the registry knows of one op type.
#[derive(Clone, Copy)]
pub struct Entry {
    /// [`OpDef::NAME`].
    pub name: &'static str,
    /// [`OpDef::VERSION`].
    pub version: u32,
    load: fn(&serde_json::Value) -> serde_json::Result<OpRef>,
    samples: fn() -> Vec<Sample<OpRef>>,
}

impl Entry {
    /// The entry of `T`.
    pub const fn of<T: OpDef>() -> Self {
        Entry {
            name: T::NAME,
            version: T::VERSION,
            load: |params| Ok(OpRef::new(T::deserialize(params)?)),
            samples: || T::samples().into_iter().map(|s| s.map(OpRef::new)).collect(),
        }
    }

    /// As [`Registry::load`], for a serial form that must be of this op.
    pub fn load(&self, v: &serde_json::Value) -> Result<OpRef> {
        let name = self.name;
        if v.get("op").and_then(|n| n.as_str()) != Some(name) {
            return Err(bad(format!("field `op` is not `{name}`")));
        }
        let version = v.get("v").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(self.version)) {
            return Err(bad(format!("op `{name}` has version {}, the file says {version:?}", self.version)));
        }
        let params = v.get("params").ok_or_else(|| bad(format!("op `{name}` has no field `params`")))?;
        (self.load)(params).map_err(|e| bad(format!("parameters of op `{name}`: {e}")))
    }

    /// The op's samples.
    pub fn samples(&self) -> Vec<Sample<OpRef>> {
        (self.samples)()
    }
}

/// A set of ops by name.
#[derive(Clone)]
pub struct Registry(Vec<Entry>);

impl Registry {
    /// The ops of this crate.
    pub fn builtin() -> Self {
        Registry(BUILTIN.to_vec())
    }

    /// Adds an op. Errors: Value if the name is taken.
    pub fn with<T: OpDef>(mut self) -> Result<Self> {
        if self.entry(T::NAME).is_some() {
            return Err(Error::new(ErrorKind::Value, format!("an op named {} is registered already", T::NAME)));
        }
        self.0.push(Entry::of::<T>());
        Ok(self)
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.0.iter().find(|e| e.name == name)
    }

    /// Reads the serial form of [`crate::DynIdentity::to_json`]. Errors (Format): a missing field, an unknown op or
    /// version, or parameters that do not fit.
    pub fn load(&self, v: &serde_json::Value) -> Result<OpRef> {
        let name = v.get("op").and_then(|n| n.as_str()).ok_or_else(|| bad("no string field `op`".into()))?;
        let entry = self.entry(name).ok_or_else(|| bad(format!("unknown op `{name}`")))?;
        entry.load(v)
    }
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::Format, what)
}

use crate::{attention, blocked, conv, index, linalg, loss, norm, optim, pointwise, pooling, random, reduce, shape};

/// One line per op.
static BUILTIN: &[Entry] = &[
    Entry::of::<attention::Attention>(),
    Entry::of::<attention::AttentionGrad>(),
    Entry::of::<blocked::ConvBlocked>(),
    Entry::of::<blocked::FromBlocked>(),
    Entry::of::<blocked::LinearPacked>(),
    Entry::of::<blocked::MaxPoolBlocked>(),
    Entry::of::<blocked::PackConv>(),
    Entry::of::<blocked::PackLinear>(),
    Entry::of::<blocked::ToBlocked>(),
    Entry::of::<conv::Conv2d>(),
    Entry::of::<conv::Conv2dInputGrad>(),
    Entry::of::<conv::Conv2dWeightGrad>(),
    Entry::of::<linalg::MatMul>(),
    Entry::of::<linalg::MatMulWide>(),
    Entry::of::<loss::CrossEntropy>(),
    Entry::of::<loss::CrossEntropyGrad>(),
    Entry::of::<loss::LabelWeight>(),
    Entry::of::<loss::Softmax>(),
    Entry::of::<loss::SoftmaxGrad>(),
    Entry::of::<norm::BatchNorm>(),
    Entry::of::<norm::BatchNormGrad>(),
    Entry::of::<norm::BatchNormInfer>(),
    Entry::of::<norm::LayerNorm>(),
    Entry::of::<norm::LayerNormGrad>(),
    Entry::of::<optim::AdamWUpdate>(),
    Entry::of::<optim::SgdUpdate>(),
    Entry::of::<index::NonZero>(),
    Entry::of::<index::OneHot>(),
    Entry::of::<index::Take>(),
    Entry::of::<index::TakeAlong>(),
    Entry::of::<index::TakeAlongGrad>(),
    Entry::of::<index::TakeGrad>(),
    Entry::of::<pointwise::Arange>(),
    Entry::of::<pointwise::Binary>(),
    Entry::of::<pointwise::Cast>(),
    Entry::of::<pointwise::Clamp>(),
    Entry::of::<pointwise::Fused>(),
    Entry::of::<pointwise::FusedMatMul>(),
    Entry::of::<pointwise::FusedReduce>(),
    Entry::of::<pointwise::Compare>(),
    Entry::of::<pointwise::Fill>(),
    Entry::of::<pointwise::Unary>(),
    Entry::of::<pointwise::Where>(),
    Entry::of::<pooling::AvgPool2d>(),
    Entry::of::<pooling::AvgPool2dGrad>(),
    Entry::of::<pooling::MaxPool2d>(),
    Entry::of::<pooling::MaxPool2dGrad>(),
    Entry::of::<pooling::MaxPool2dPick>(),
    Entry::of::<random::Bernoulli>(),
    Entry::of::<random::Dropout>(),
    Entry::of::<random::FoldIn>(),
    Entry::of::<random::Normal>(),
    Entry::of::<random::RandomPermutation>(),
    Entry::of::<random::Uniform>(),
    Entry::of::<reduce::ArgReduce>(),
    Entry::of::<reduce::LogSumExp>(),
    Entry::of::<reduce::Reduce>(),
    Entry::of::<reduce::Var>(),
    Entry::of::<reduce::Std>(),
    Entry::of::<shape::BroadcastTo>(),
    Entry::of::<shape::Contiguous>(),
    Entry::of::<shape::Concat>(),
    Entry::of::<shape::Pad>(),
    Entry::of::<shape::Permute>(),
    Entry::of::<shape::Reshape>(),
    Entry::of::<shape::Slice>(),
    Entry::of::<shape::Unslice>(),
];
