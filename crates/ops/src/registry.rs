//! The list of all ops.
//!
//! Explicit static arrays, one a family, so that nothing depends on link order. A host program adds entries of its own with
//! [`Registry::with`]: custom ops use the same door. A program that is deployed makes a registry of the families that its
//! graphs need, [`Registry::of`]: a value of that program, so nothing is switched on or off for the whole process.

use remat_types::{Error, ErrorKind, Result};

#[cfg(feature = "samples")]
use crate::Sample;
use crate::schema::Schema;
use crate::{OpDef, OpRef};

/// The registry's entry for one op type.
#[derive(Clone, Copy)]
pub struct Entry {
    /// [`OpDef::NAME`].
    pub name: &'static str,
    /// [`OpDef::VERSION`].
    pub version: u32,
    load: fn(&serde_json::Value) -> serde_json::Result<OpRef>,
    schema: fn() -> Schema,
    #[cfg(feature = "samples")]
    samples: fn() -> Vec<Sample<OpRef>>,
}

impl Entry {
    /// The entry of `T`.
    pub const fn of<T: OpDef>() -> Self {
        Entry {
            name: T::NAME,
            version: T::VERSION,
            schema: T::schema,
            load: |params| Ok(OpRef::new(T::deserialize(params)?)),
            #[cfg(feature = "samples")]
            samples: || T::samples().into_iter().map(|s| s.map(OpRef::new)).collect(),
        }
    }

    /// As [`Registry::load`], for a serial form that must be of this op. One of an earlier version is read where all that came
    /// later are parameters with defaults.
    pub fn load(&self, v: &serde_json::Value) -> Result<OpRef> {
        let name = self.name;
        if v.get("op").and_then(|n| n.as_str()) != Some(name) {
            return Err(bad(format!("field `op` is not `{name}`")));
        }
        let version = v.get("v").and_then(serde_json::Value::as_u64);
        let is_read = |v| u32::try_from(v).is_ok_and(|v| v == self.version || self.schema().reads(v));
        if !version.is_some_and(is_read) {
            return Err(bad(format!("op `{name}` has version {}, the file says {version:?}", self.version)));
        }
        let params = v.get("params").ok_or_else(|| bad(format!("op `{name}` has no field `params`")))?;
        (self.load)(params).map_err(|e| bad(format!("parameters of op `{name}`: {e}")))
    }

    /// The inputs and parameters of the op.
    pub fn schema(&self) -> Schema {
        (self.schema)()
    }

    /// The op's samples; with the feature `samples`, without which a program does not link them.
    #[cfg(feature = "samples")]
    pub fn samples(&self) -> Vec<Sample<OpRef>> {
        (self.samples)()
    }
}

/// A set of ops by name, and the families that they are of.
#[derive(Clone)]
pub struct Registry {
    entries: Vec<Entry>,
    families: Vec<Family>,
}

impl Registry {
    /// The ops of this crate.
    pub fn builtin() -> Self {
        let mut all = families::ALL.to_vec();
        all.sort_unstable_by_key(|f| f.name);
        Registry::of(&all)
    }

    /// The ops that a device other than the CPU may be asked for: all but blocked layouts and trees.
    pub fn portable() -> Self {
        Registry::of(families::PORTABLE)
    }

    /// The ops of these families and no others: for a program that reads graphs which contain nothing else. What a
    /// registry does not name is not linked because of it.
    pub fn of(families: &[&Family]) -> Self {
        let families: Vec<Family> = families.iter().map(|f| **f).collect();
        Registry { entries: families.iter().flat_map(|f| f.ops).copied().collect(), families }
    }

    /// Adds a family. Errors: Value if the name of one of its ops is taken.
    pub fn with_family(mut self, family: &Family) -> Result<Self> {
        for op in family.ops {
            self = self.with_entry(*op)?;
        }
        self.families.push(*family);
        Ok(self)
    }

    /// Adds an op. Errors: Value if the name is taken.
    pub fn with<T: OpDef>(self) -> Result<Self> {
        self.with_entry(Entry::of::<T>())
    }

    fn with_entry(mut self, entry: Entry) -> Result<Self> {
        let name = entry.name;
        if self.entry(name).is_some() {
            return Err(Error::new(ErrorKind::Value, format!("an op named {name} is registered already")));
        }
        self.entries.push(entry);
        Ok(self)
    }

    /// The families that were given. Ops that came alone are in none.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
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

/// A group of ops that a program takes or leaves as a whole.
#[derive(Clone, Copy)]
pub struct Family {
    /// Its name: that of the module.
    pub name: &'static str,
    /// The purpose of its ops.
    pub text: &'static str,
    /// Its ops.
    pub ops: &'static [Entry],
}

/// The families of this crate, one line per op. A program that names some of them only, and not [`families::ALL`] or
/// [`Registry::builtin`], links the others' ops only where it uses them.
pub mod families {
    use super::{Entry, Family};

    macro_rules! families {
        (portable { $($name:ident, $module:ident = $text:literal: $($op:ident),*;)* }
         of_the_cpu { $($cpu:ident, $cpu_module:ident = $cpu_text:literal: $($cpu_op:ident),*;)* }) => {
            families! { @each $($name, $module = $text: $($op),*;)* $($cpu, $cpu_module = $cpu_text: $($cpu_op),*;)* }

            /// Those that a device has kernels for or may want: programs are written with them.
            pub static PORTABLE: &[&Family] = &[$( &$name ),*];

            /// All of them: those, and what only the CPU has.
            pub static ALL: &[&Family] = &[$( &$name, )* $( &$cpu ),*];
        };
        (@each $($name:ident, $module:ident = $text:literal: $($op:ident),*;)*) => {
            $(
                #[doc = $text]
                pub static $name: Family = Family {
                    name: stringify!($module),
                    text: $text,
                    ops: &[$( Entry::of::<crate::$module::$op>() ),*],
                };
            )*
        };
    }

    families! {
        portable {
        ACTIVATION, activation = "Functions that make outputs of numbers, along an axis.": Softmax, SoftmaxGrad;
        ATTENTION, attention = "Attention and its gradients.": Attention, AttentionGrad;
        COLLECTIVE, collective = "Collectives: calls that all ranks of a group make.":
            AllGather, AllReduce, AllToAll, Broadcast, GatherShards, GatherTo, ReduceScatter, ReduceTo, ScatterFrom;
        CONV, conv = "Convolution and its gradients.": Conv2d, Conv2dInputGrad, Conv2dWeightGrad;
        FACTOR, factor = "Factorisations of matrices, and solutions by them.":
            Cholesky, Eigh, Pinv, Qr, SlogDet, Solve, SolveTriangular, Svd;
        INDEX, index = "By index tensors.": Index, IndexPut, NonZero, OneHot, Scatter, Take, TakeAlong, TakeGrad;
        LINALG, linalg = "Products of matrices.": MatMul, MatMulWide;
        LOSS, loss = "Losses, and what their gradients need.":
            CrossEntropy, CrossEntropyGrad, CtcLoss, CtcLossGrad, TargetWeight;
        NORM, norm = "Normalisation.": BatchNorm, BatchNormGrad, BatchNormInfer, LayerNorm, LayerNormGrad,
            RmsNorm, RmsNormGrad;
        OPTIM, optim = "Updates of parameters.":
            AdadeltaUpdate, AdafactorUpdate, AdagradUpdate, AdamWUpdate, AdamaxUpdate, LambUpdate, LionUpdate,
            NAdamUpdate, RAdamUpdate, RmsPropUpdate, SgdRowsUpdate, SgdUpdate, SparseAdamUpdate;
        ORDER, order = "Along an axis, in order.":
            Cumulate, OrderStatistic, Recurrence, SearchSorted, Sort, TopK;
        POINTWISE, pointwise = "Element by element, what is made of nothing, and chains of such in one op.":
            Arange, Binary, Cast, Clamp, Compare, Fill, Fused, FusedMatMul, FusedReduce, Unary, Where;
        POOLING, pooling = "Pooling of windows.": AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad, GatherByArgmax;
        RANDOM, random = "Random numbers: functions of a key.":
            Bernoulli, Dropout, FoldIn, GammaSample, Normal, PoissonSample, RandomPermutation, Uniform, Weights;
        RECURRENT, recurrent = "Recurrent layers and their gradients.": Recurrent, RecurrentGrad;
        REDUCE, reduce = "Over axes.": AllFinite, ArgReduce, LogSumExp, Reduce, Std, Var;
        SHAPE, shape = "Other shapes and parts of a tensor.":
            BroadcastTo, Concat, Contiguous, Pad, Permute, Reshape, Slice, SliceGrad;
        SPECTRAL, spectral = "Fourier transforms.": Fft, Irfft, Rfft;
        VISION, vision = "Images between their pixels, windows and regions, boxes.":
            Nms, PoolIndices, Resample, RoiPoolIndices, SamplePoints, SamplePointsGrad, SamplePointsSlope;
        }
        of_the_cpu {
        CPU, cpu = "Operators that passes make for the CPU: weights packed for a kernel, images in blocks of channels.":
            ConvBlocked, FromBlocked, LinearPacked, MaxPoolBlocked, PackConv, PackLinear, ToBlocked;
        TREES, trees = "Decision trees, for the models of ONNX-ML.": TreeLeaf, TreeSum;
        }
    }
}
