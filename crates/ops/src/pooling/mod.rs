//! Pooling over windows of the last two axes of `x: [n, c, h, w]`: sliding windows or PyTorch's adaptive ones.

mod avg;
mod max;

pub use avg::{AvgPool2d, AvgPool2dGrad};
pub use max::{GatherByArgmax, MaxPool2d, MaxPool2dGrad};

use remat_kernels::window::{Axis, AxisKind};
use remat_types::{Error, ErrorKind, Fact, Padding, Result};
use serde::{Deserialize, Serialize};

use crate::args::want_rank;
use crate::op::{Entry, entries};
use crate::schema::Choice;

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad, GatherByArgmax];

/// The windows of a pooling op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Windows {
    /// `out = floor((size + padding - kernel) / stride) + 1` along each axis.
    Sliding {
        /// Extents of a window: height, width.
        kernel: [usize; 2],
        /// Steps between windows: down, right.
        stride: [usize; 2],
        /// Rows or columns of padding: top, left, bottom, right; each less than the kernel.
        padding: [usize; 4],
    },
    /// `out` is given; window `o` is `floor(o size / out) .. ceil((o + 1) size / out)`.
    Adaptive {
        /// Extents of the output: height, width.
        size: [usize; 2],
    },
}

impl Windows {
    /// Sliding windows; a number for each axis is the padding of both its sides.
    pub fn sliding(kernel: [usize; 2], stride: [usize; 2], padding: impl Into<Padding>) -> Self {
        let Padding { begin: [top, left], end: [bottom, right] } = padding.into();
        Windows::Sliding { kernel, stride, padding: [top, left, bottom, right] }
    }

    /// The windows on an input of `h` by `w`. Errors: Value for a kernel or stride of 0, or padding that is not less
    /// than the kernel; Shape if no window fits, or an adaptive window would be empty.
    pub(crate) fn axes(&self, h: usize, w: usize) -> Result<[Axis; 2]> {
        let one = |axis: usize, size: usize| -> Result<Axis> {
            match *self {
                Windows::Sliding { kernel, stride, padding } => {
                    sliding(size, kernel[axis], stride[axis], padding[axis], padding[axis + 2])
                }
                Windows::Adaptive { size: out } if size == 0 && out[axis] > 0 => {
                    Err(Error::new(ErrorKind::Shape, format!("an axis of extent 0 has no {} windows", out[axis])))
                }
                Windows::Adaptive { size: out } => Ok(Axis { size, out: out[axis], kind: AxisKind::Adaptive }),
            }
        };
        Ok([one(0, h)?, one(1, w)?])
    }

    /// The windows on `x: [n, c, h, w]`. Errors: Axis for another rank, and those of the windows.
    fn of(&self, x: &Fact) -> Result<[Axis; 2]> {
        want_rank(x, 4, "x")?;
        self.axes(x.shape[2], x.shape[3])
    }
}

fn sliding(size: usize, kernel: usize, stride: usize, before: usize, after: usize) -> Result<Axis> {
    if kernel == 0 || stride == 0 {
        return Err(Error::new(ErrorKind::Value, format!("kernel {kernel} and stride {stride} must be at least 1")));
    }
    if before >= kernel || after >= kernel {
        let text = format!("padding {before} and {after} must be less than the kernel of {kernel}");
        return Err(Error::new(ErrorKind::Value, text));
    }
    // padding is below the kernel, so only the size can be near the largest number
    let padded =
        size.checked_add(before).and_then(|s| s.checked_add(after)).filter(|&p| p >= kernel).ok_or_else(|| {
            Error::new(
                ErrorKind::Shape,
                format!("a kernel of {kernel} does not fit {before} + {size} + {after} elements"),
            )
        })?;
    let out = (padded - kernel) / stride + 1;
    Ok(Axis { size, out, kind: AxisKind::Sliding { kernel, stride, before, after } })
}

/// The shape of `x` with its last two axes replaced.
fn with_plane(x: &Fact, h: usize, w: usize) -> [usize; 4] {
    [x.shape[0], x.shape[1], h, w]
}
