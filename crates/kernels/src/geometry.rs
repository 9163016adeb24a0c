//! The sizes of a convolution, which its kernels on plain and on blocked images share.

use remat_types::{Error, ErrorKind, Padding, Result};

/// The sizes of a convolution: `x: [n, c, h, w]`, `weight: [k, c / groups, r, s]`, `y: [n, k, oh, ow]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    /// Images.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Input height.
    pub h: usize,
    /// Input width.
    pub w: usize,
    /// Output channels.
    pub k: usize,
    /// Kernel height.
    pub r: usize,
    /// Kernel width.
    pub s: usize,
    /// Input places from one output to the next, down and across.
    pub stride: [usize; 2],
    /// Zeros around the image: above and below, left and right.
    pub pad: Padding,
    /// Input places from one tap to the next, down and across.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Output height.
    pub oh: usize,
    /// Output width.
    pub ow: usize,
}

/// Largest padding, stride, dilation or size of an axis: sums of a few of them stay far from overflow.
const AXIS_MAX: usize = 1 << 24;

impl Conv2d {
    /// Checks the sizes and computes `oh = (h + pad - dilation (r - 1) - 1) / stride + 1`, where `pad` is that of both sides, and
    /// `ow` likewise.
    ///
    /// `x` is `[n, c, h, w]`, `weight` is `[k, c / groups, r, s]`.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] for a zero stride, dilation or group count; [`ErrorKind::Shape`] where sizes do not fit: a
    /// size of zero (other than `n`), channels that the groups do not divide, a kernel larger than the padded image, or
    /// sizes whose product overflows.
    pub fn new(
        x: [usize; 4],
        weight: [usize; 4],
        stride: [usize; 2],
        pad: impl Into<Padding>,
        dilation: [usize; 2],
        groups: usize,
    ) -> Result<Conv2d> {
        let ([n, c, h, w], [k, group_c, r, s], pad) = (x, weight, pad.into());
        let fail = |kind, message: String| Err(Error::new(kind, message));
        if groups == 0 || stride.contains(&0) || dilation.contains(&0) {
            let message = format!("stride {stride:?}, dilation {dilation:?} and groups {groups} must be at least 1");
            return fail(ErrorKind::Value, message);
        }
        if [c, h, w, k, r, s].contains(&0) {
            return fail(ErrorKind::Shape, format!("x {x:?} and weight {weight:?} have an axis of size 0"));
        }
        if group_c.checked_mul(groups) != Some(c) {
            let of = if groups == 1 { String::new() } else { format!(" in each of {groups} groups") };
            let message = format!("x {x:?} has {c} channels, weight {weight:?} takes {group_c}{of}");
            return fail(ErrorKind::Shape, message);
        }
        if k % groups != 0 {
            let message = format!("weight {weight:?} has {k} outputs, which {groups} groups do not divide");
            return fail(ErrorKind::Shape, message);
        }
        let axes = [[h, w], [r, s], stride, pad.begin, pad.end, dilation];
        if axes.as_flattened().iter().any(|&size| size > AXIS_MAX) {
            let message = format!("a size of {axes:?} exceeds {AXIS_MAX}");
            return fail(ErrorKind::Shape, message);
        }
        let mut out = [0; 2];
        for (axis, (size, kernel)) in [(h, r), (w, s)].into_iter().enumerate() {
            let (padded, reach) = (size + pad.begin[axis] + pad.end[axis], (kernel - 1) * dilation[axis] + 1);
            if reach > padded {
                let message = format!("the kernel reaches over {reach} places, the padded image has {padded}");
                return fail(ErrorKind::Shape, message);
            }
            out[axis] = (padded - reach) / stride[axis] + 1;
        }
        let [oh, ow] = out;
        let all = [[n, c, h, w], [k, group_c, r, s], [n, k, oh, ow]];
        let elems = |s: [usize; 4]| s.iter().try_fold(1usize, |a, &b| a.checked_mul(b)).filter(|&e| e < 1 << 46);
        if all.into_iter().any(|shape| elems(shape).is_none()) {
            return fail(ErrorKind::Shape, format!("the element count of one of {all:?} is too large"));
        }
        Ok(Conv2d { n, c, h, w, k, r, s, stride, pad, dilation, groups, oh, ow })
    }

    /// Elements of `x`.
    #[must_use]
    pub fn x_len(&self) -> usize {
        self.n * self.c * self.h * self.w
    }

    /// Elements of the weight.
    #[must_use]
    pub fn weight_len(&self) -> usize {
        self.k * (self.c / self.groups) * self.r * self.s
    }

    /// Elements of `y`.
    #[must_use]
    pub fn y_len(&self) -> usize {
        self.n * self.k * self.oh * self.ow
    }

    /// Floating-point operations of the forward pass, and of each gradient: two per product, padding included.
    #[must_use]
    pub fn flops(&self) -> u64 {
        2 * self.y_len() as u64 * (self.c / self.groups * self.r * self.s) as u64
    }
}
