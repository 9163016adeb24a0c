//! The known facts of a tensor, without its data.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{DType, HostTensor, Layout, Shape};

/// Integer or bool tensors of at most this many elements carry their value in the fact.
///
/// Eight covers every shape and axis list; upstream keeps values up to its maximal rank of 7.
pub const VALUE_MAX_ELEMS: usize = 8;

/// Dtype and shape of a tensor, and its value where it is small, integral and known on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
    /// The value, if known.
    pub value: Option<Arc<HostTensor>>,
}

/// The facts of an op's outputs.
pub type Facts = SmallVec<[Fact; 2]>;

impl Fact {
    /// A fact without a value.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        Fact { dtype, shape: shape.into(), value: None }
    }

    /// The fact of a host tensor; carries the value if it is one that facts carry.
    pub fn of(t: &HostTensor) -> Self {
        let carries = Fact::carries_value(t.dtype(), t.elems());
        Fact { dtype: t.dtype(), shape: t.shape().clone(), value: carries.then(|| Arc::new(t.clone())) }
    }

    /// True for dtypes and sizes whose values travel in facts.
    pub fn carries_value(dtype: DType, elems: usize) -> bool {
        !dtype.is_float() && elems <= VALUE_MAX_ELEMS
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.shape.elems()
    }

    /// Number of bytes of a contiguous tensor of this fact.
    pub fn bytes(&self) -> usize {
        self.shape.elems() * self.dtype.size_bytes()
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The contiguous layout of this shape.
    pub fn layout(&self) -> Layout {
        Layout::contiguous(self.shape.clone())
    }

    /// True if dtype and shape agree; the value is not compared.
    pub fn same_type(&self, other: &Fact) -> bool {
        self.dtype == other.dtype && self.shape == other.shape
    }
}
