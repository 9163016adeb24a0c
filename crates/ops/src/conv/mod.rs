//! Convolution in two dimensions and its gradients, which are each other's gradients.
//!
//! All three are bilinear forms of one kind: with `<a, b>` the sum of products,
//! `<dy, conv(x, w)> = <input_grad(dy, w), x> = <weight_grad(x, dy), w>`.

mod conv2d;
mod input_grad;
mod weight_grad;

pub use conv2d::Conv2d;
pub use input_grad::Conv2dInputGrad;
pub use weight_grad::Conv2dWeightGrad;

use remat_kernels::conv::Conv2d as Geometry;
use remat_types::{Error, ErrorKind, Fact, Padding, Result};

use crate::args::{want_dtype, want_float, want_rank};
use crate::op::{Entry, entries};
use crate::schema::Params;

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Conv2d, Conv2dInputGrad, Conv2dWeightGrad];

/// How the taps of a convolution lie on its input of `D` axes: depth, height, width of three, height and width of two.
///
/// `oh = (h + padding - dilation (r - 1) - 1) / stride + 1`, where `padding` is that of both sides, and the others likewise.
/// Zeros outside the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Params)]
pub struct ConvParams<const D: usize = 2> {
    /// Input places from one output to the next: of two axes, down and across.
    #[param(default = [1; D])]
    pub stride: [usize; D],
    /// Zeros around the input, a number of both sides of an axis or `[begin, end]`: of two axes, above and below, left and right.
    #[param(default = Padding::NONE)]
    pub padding: Padding<D>,
    /// Input places from one tap to the next: of two axes, down and across.
    #[param(default = [1; D])]
    pub dilation: [usize; D],
    /// Groups of channels that do not see each other.
    #[param(default = 1)]
    pub groups: usize,
}

impl<const D: usize> ConvParams<D> {
    /// Stride 1, no padding, no dilation, one group.
    pub const PLAIN: Self = ConvParams { stride: [1; D], padding: Padding::NONE, dilation: [1; D], groups: 1 };

    /// The same with [`Padding::same`] for a kernel of these extents: as many outputs as inputs, the odd place of padding at
    /// the end, as PyTorch's `padding="same"`. Errors: Value for a stride other than 1.
    pub fn with_same_padding(self, kernel: [usize; D]) -> Result<Self> {
        if self.stride != [1; D] {
            let text = format!("no padding gives as many outputs as inputs under a stride of {:?}", self.stride);
            return Err(Error::new(ErrorKind::Value, text));
        }
        Ok(ConvParams { padding: Padding::same(kernel, self.dilation), ..self })
    }
}

impl ConvParams {
    /// The geometry for `x: [n, c, h, w]` and `weight: [k, c / groups, r, s]`. Errors: Value, Shape.
    pub(crate) fn geometry(&self, x: [usize; 4], weight: [usize; 4]) -> Result<Geometry> {
        Geometry::new(x, weight, self.stride, self.padding, self.dilation, self.groups)
    }
}

impl ConvParams<1> {
    /// The same taps on an image of one row.
    pub fn as_2d(self) -> ConvParams {
        let ConvParams { stride: [stride], padding, dilation: [dilation], groups } = self;
        let padding = [[0, 0], padding.axis(0)].into();
        ConvParams { stride: [1, stride], padding, dilation: [1, dilation], groups }
    }
}

impl ConvParams<3> {
    /// The taps along the depth, on an image of one column.
    pub fn depth_only(self) -> ConvParams {
        let ConvParams { stride: [stride, ..], padding, dilation: [dilation, ..], groups } = self;
        let padding = [padding.axis(0), [0, 0]].into();
        ConvParams { stride: [stride, 1], padding, dilation: [dilation, 1], groups }
    }

    /// The taps within a frame.
    pub fn spatial(self) -> ConvParams {
        let two = |[_, h, w]: [usize; 3]| [h, w];
        ConvParams {
            stride: two(self.stride),
            padding: [self.padding.axis(1), self.padding.axis(2)].into(),
            dilation: two(self.dilation),
            groups: self.groups,
        }
    }
}

/// The extents of a tensor of rank 4. Errors: Axis.
fn extents(f: &Fact, name: &str) -> Result<[usize; 4]> {
    want_rank(f, 4, name)?;
    Ok([f.shape[0], f.shape[1], f.shape[2], f.shape[3]])
}

/// The extents of two float tensors of one dtype and rank 4. Errors: DType, Axis.
fn two_extents(x: &[&Fact], names: [&str; 2]) -> Result<[[usize; 4]; 2]> {
    want_float(x[0], names[0])?;
    want_dtype(x[1], x[0].dtype, names[1])?;
    Ok([extents(x[0], names[0])?, extents(x[1], names[1])?])
}

/// Values of both signs without a pattern in step with any axis, for samples.
pub(crate) fn wave(shape: &[usize], phase: f32) -> remat_types::HostTensor {
    let n: usize = shape.iter().product();
    let v: Vec<f32> = (0..n).map(|i| (i as f32 * 1.27 + phase).sin()).collect();
    crate::sample::t(&v, shape)
}
