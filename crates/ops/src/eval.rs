//! The context of a running op: typed slices of its inputs and outputs, a workspace, a thread pool.
//!
//! The caller (`runtime::execute::run_op`, or `eval_on_host`) allocates; an op never does. `x`, `y`, `workspace` and
//! `pool` are separate fields, so that an op can borrow inputs and outputs at once.
//!
//! A donated input has no bytes of its own: its elements already lie in the output that took its storage.

use bytemuck::{cast_slice, cast_slice_mut};
use remat_kernels::pool::Pool;
use remat_types::{DType, Error, ErrorKind, Layout, Result, Shape, Storage};

/// An input: the bytes of its storage and the layout of its elements therein.
#[derive(Clone, Copy)]
pub struct In<'a> {
    dtype: DType,
    layout: &'a Layout,
    bytes: &'a [u8],
    donated: bool,
}

impl<'a> In<'a> {
    /// An input with bytes; the layout lies within them (`Layout::fits`), which the caller has checked.
    pub fn new(dtype: DType, layout: &'a Layout, bytes: &'a [u8]) -> Self {
        In { dtype, layout, bytes, donated: false }
    }

    /// An input whose elements already lie in an output.
    pub fn donated(dtype: DType, layout: &'a Layout) -> Self {
        In { dtype, layout, bytes: &[], donated: true }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Layout within [`In::storage`].
    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// Extents.
    pub fn shape(&self) -> &'a Shape {
        self.layout.shape()
    }

    /// The bytes of the whole storage; none if donated.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// True if the elements already lie in an output.
    pub fn is_donated(&self) -> bool {
        self.donated
    }

    /// The whole storage as elements, to be indexed through [`In::layout`]. Errors (Internal): donated, or another type.
    pub fn storage<T: Storage>(&self) -> Result<&'a [T]> {
        if self.donated || !T::stores(self.dtype) {
            return Err(internal(format!("input of {} (donated: {}) read as another type", self.dtype, self.donated)));
        }
        Ok(cast_slice(self.bytes))
    }

    /// The elements in row-major order. Errors (Internal): donated, another type, or a layout with gaps.
    pub fn slice<T: Storage>(&self) -> Result<&'a [T]> {
        let all = self.storage::<T>()?;
        if !self.layout.is_contiguous() {
            return Err(internal(format!("strided input {:?} read as a slice", self.layout)));
        }
        let at = self.layout.offset();
        all.get(at..at + self.layout.elems()).ok_or_else(|| internal("layout leaves its storage".into()))
    }
}

impl<'a> In<'a> {
    /// The bytes of the elements in row-major order, which may be a part of the storage; none if donated. Errors
    /// (Internal): a layout with gaps, or beyond the storage.
    pub fn element_bytes(&self) -> Result<&'a [u8]> {
        if self.donated {
            return Ok(&[]);
        }
        let size = self.dtype.size_bytes();
        let (from, bytes) = (self.layout.offset() * size, self.layout.elems() * size);
        let found = self.bytes.get(from..from + bytes).filter(|_| self.layout.is_contiguous());
        found.ok_or_else(|| internal(format!("{:?} is no run of elements of {} bytes", self.layout, self.bytes.len())))
    }
}

/// An output: contiguous and uninitialised, or holding a donated input.
pub struct Out<'a> {
    dtype: DType,
    shape: &'a Shape,
    bytes: &'a mut [u8],
    holds: Option<usize>,
}

impl<'a> Out<'a> {
    /// An output of `shape`; `holds` is the input whose storage it took.
    pub fn new(dtype: DType, shape: &'a Shape, bytes: &'a mut [u8], holds: Option<usize>) -> Self {
        Out { dtype, shape, bytes, holds }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The input whose elements lie here already.
    pub fn holds(&self) -> Option<usize> {
        self.holds
    }

    /// The elements, to be written. Errors (Internal): another type.
    pub fn slice_mut<T: Storage>(&mut self) -> Result<&mut [T]> {
        if !T::stores(self.dtype) {
            return Err(internal(format!("output of {} written as another type", self.dtype)));
        }
        Ok(cast_slice_mut(self.bytes))
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

/// Everything an op may touch while it computes.
pub struct EvalCx<'a> {
    /// Inputs, in order.
    pub x: &'a [In<'a>],
    /// Outputs, in order.
    pub y: &'a mut [Out<'a>],
    /// [`Op::workspace`](crate::Op::workspace) bytes, aligned to 64, of any content.
    pub workspace: &'a mut [u8],
    /// The threads to compute with.
    pub pool: &'a Pool,
}

impl EvalCx<'_> {
    /// Output `j`, made to hold the elements of contiguous input `i`: nothing to do if it was donated, a copy
    /// otherwise. An op with one in-place kernel starts with this.
    pub fn output_from<T: Storage>(&mut self, i: usize, j: usize) -> Result<&mut [T]> {
        let y = &mut self.y[j];
        if y.holds != Some(i) {
            let x = self.x[i].slice::<T>()?;
            y.slice_mut::<T>()?.copy_from_slice(x);
        }
        y.slice_mut()
    }
}

fn internal(message: String) -> Error {
    Error::new(ErrorKind::Internal, message)
}
