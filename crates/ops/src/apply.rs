//! The one seam through which every operation passes.

use remat_types::{DType, Error, ErrorKind, Fact, Result, Scalar, Shape, SmallVec};

use crate::OpRef;
use crate::pointwise::Fill;

/// Something that takes operations: the eager channel, a graph builder, or the tape above one of them.
///
/// Gradient rules and modules are written against this trait, so they run eagerly, record, and trace unchanged.
pub trait Apply {
    /// A handle on a value; cloning it is cheap.
    type Value: Clone;

    /// Applies `op`; facts of the outputs are known when it returns, their data need not be.
    ///
    /// A value that comes in as the last handle on it dies here: its storage may become an output's.
    #[track_caller]
    fn apply(&self, op: OpRef, x: SmallVec<[Self::Value; 4]>) -> Result<SmallVec<[Self::Value; 2]>>;

    /// Dtype, shape and known value.
    fn fact(&self, v: &Self::Value) -> Fact;

    /// A number, of rank 0.
    #[track_caller]
    fn scalar(&self, dtype: DType, v: Scalar) -> Result<Self::Value> {
        let y = self.apply(Fill { dtype, shape: Shape::scalar(), value: v }.into(), SmallVec::new())?;
        first(y)
    }

    /// As [`Apply::apply`] for an op with one output, or whose first one is wanted.
    #[track_caller]
    fn apply1(&self, op: impl Into<OpRef>, x: impl IntoIterator<Item = Self::Value>) -> Result<Self::Value>
    where
        Self: Sized,
    {
        first(self.apply(op.into(), x.into_iter().collect())?)
    }
}

fn first<V>(y: SmallVec<[V; 2]>) -> Result<V> {
    y.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, "the op has no output"))
}
