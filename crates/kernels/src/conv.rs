//! Two-dimensional convolution in NCHW, and its two gradients.
//!
//! `y[n, k, oh, ow] = sum over c, r, s of x[n, c, oh * stride + r * dilation - pad, ..] * w[k, c, r, s]`, zeros outside
//! the image; with groups, output channel `k` sees the input channels of its group only. This is what neural networks
//! call convolution (mathematically a cross-correlation: the kernel is not flipped).
//!
//! * Forward and input gradient are both a *correlation* (module `correlate`): a matrix product whose right side is packed
//!   a block at a time, straight from the image or from a padded copy of a few rows. No im2col matrix exists.
//! * In f32, 3x3 taps go by Winograd's algorithm where that is less work (module `blocked::winograd`); its error is about
//!   that of plain sums, but what an infinity or NaN touches becomes NaN in a tile of 4x4 outputs.
//! * Depthwise convolution runs over rows, a channel at a time (module `depthwise`), or with the channels of small images
//!   in the lanes of vectors (module `lanes`).
//! * Small images in batches go with the batch innermost (module `batch_innermost_small`): with the images in the lanes of
//!   vectors, a tap that would read beside the image is left out.
//! * Forward pass and input gradient under a stride of a few images have the images innermost, too (module
//!   `batch_innermost_strided`).
//! * The weight gradient (module `weight_grad`) is a sum of outer products over output places, in a fixed number of
//!   partial sums over the images.
//! * f16 and bf16 go through plain loops that sum in f32 (module `direct`).
//!
//! Which of them a convolution takes is said in one table (module `choose`).
//!
//! All memory comes from the caller (`*_workspace_bytes`); sums are cut by sizes only, so pools of any size give the same
//! bits. Rejected: a full im2col matrix (nine times the image in memory).

use crate::blocked::winograd::{Taps, Winograd};
use crate::gemm::GemmElement;
pub use crate::geometry::Conv2d;
use crate::pool::Pool;
use crate::simd::Isa;
use choose::{Kernel, Pass};
use correlate::{Axis, Correlation};
use kernel::ConvKernels;
use remat_types::Padding;

mod batch_innermost_small;
mod batch_innermost_strided;
mod choose;
mod chunk;
mod correlate;
mod depthwise;
mod direct;
mod kernel;
mod lanes;
mod plane;
mod weight_grad;

/// Elements that are worth a part of a pool run when they are only filled.
const FILL_ELEMS: usize = 1 << 17;

impl Conv2d {
    /// The fields are public, so what `new` established is asserted before it is relied on.
    fn assert_lengths(&self, x: usize, weight: usize, y: usize) {
        let Conv2d { n, c, h, w, k, r, s, stride, pad, dilation, groups, .. } = *self;
        let weight_shape = [k, c / groups.max(1), r, s];
        let again = Conv2d::new([n, c, h, w], weight_shape, stride, pad, dilation, groups);
        assert!(again.is_ok_and(|geom| geom == *self), "{self:?} is not what Conv2d::new makes");
        assert_eq!(x, self.x_len(), "elements of x for {self:?}");
        assert_eq!(weight, self.weight_len(), "elements of the weight for {self:?}");
        assert_eq!(y, self.y_len(), "elements of y for {self:?}");
    }

    /// The input gradient as a convolution of `dy` with the weight the other way round, where that is one.
    fn back(&self) -> Option<Conv2d> {
        // as many places as two taps reach, less those that the image had
        let rest = |[rows, columns]: [usize; 2]| Some([2usize.checked_sub(rows)?, 2usize.checked_sub(columns)?]);
        let pad = Padding { begin: rest(self.pad.begin)?, end: rest(self.pad.end)? };
        let (dy, weight) = ([self.n, self.k, self.oh, self.ow], [self.c, self.k, self.r, self.s]);
        let back = Conv2d::new(dy, weight, [1, 1], pad, [1, 1], 1).ok()?;
        (self.groups == 1 && [back.oh, back.ow] == [self.h, self.w]).then_some(back)
    }

    /// The forward pass as a correlation.
    fn forward(&self) -> Correlation {
        let [rows, cols] = [(self.h, self.oh, self.r), (self.w, self.ow, self.s)];
        let axis = |i: usize, (src, out, kernel): (usize, usize, usize)| Axis {
            src,
            pad: self.pad.begin[i] as isize,
            stride: self.stride[i],
            out,
            dst: out,
            dst_start: 0,
            dst_step: 1,
            kernel,
            tap_start: 0,
            tap_step: self.dilation[i] as isize,
            tap_divisor: 1,
        };
        let taps = self.r * self.s;
        let [src_c, out_c] = [self.c / self.groups, self.k / self.groups];
        Correlation {
            n: self.n,
            groups: self.groups,
            src_c,
            out_c,
            rows: axis(0, rows),
            cols: axis(1, cols),
            weight_group: out_c * src_c * taps,
            weight_out: src_c * taps,
            weight_src: taps,
        }
    }

    /// The input gradient as correlations of `dy`, one per phase of the input under the stride.
    ///
    /// Input row `i * stride + phase` gets `dy` row `i + (phase + pad - r * dilation) / stride` for each tap `r` for which
    /// that is whole.
    fn input_grad(&self) -> impl Iterator<Item = Correlation> + Clone + Sync + '_ {
        let forward = self.forward();
        let phases = [self.stride[0].min(self.h), self.stride[1].min(self.w)];
        (0..phases[0] * phases[1]).map(move |phase| Correlation {
            src_c: forward.out_c,
            out_c: forward.src_c,
            rows: self.input_grad_axis(0, (self.h, self.oh, self.r), phase / phases[1]),
            cols: self.input_grad_axis(1, (self.w, self.ow, self.s), phase % phases[1]),
            weight_out: forward.weight_src,
            weight_src: forward.weight_out,
            ..forward
        })
    }

    /// The correlations of a pass; the gradient of the weight is none.
    fn phases(&self, pass: Pass) -> impl Iterator<Item = Correlation> + Clone + Sync + '_ {
        let forward = (pass == Pass::Forward).then(|| self.forward());
        let back = (pass == Pass::InputGrad).then(|| self.input_grad());
        forward.into_iter().chain(back.into_iter().flatten())
    }

    fn input_grad_axis(&self, i: usize, (size, out, kernel): (usize, usize, usize), phase: usize) -> Axis {
        let (stride, step) = (self.stride[i], self.dilation[i] as isize);
        let start = (phase + self.pad.begin[i]) as isize;
        let is_whole = |at: &isize| at.rem_euclid(stride as isize) == 0;
        let least = (0..kernel as isize).map(|r| start - r * step).filter(is_whole).min().unwrap_or(0);
        Axis {
            src: out,
            pad: -(least / stride as isize),
            stride: 1,
            out: (size - phase).div_ceil(stride),
            dst: size,
            dst_start: phase,
            dst_step: stride,
            kernel,
            tap_start: start - least,
            tap_step: -step,
            tap_divisor: stride,
        }
    }
}

/// An element type of convolutions: f32, f64, and f16 and bf16 (slow: plain loops that sum in f32).
pub trait ConvElement: GemmElement {
    /// The vector kernels for this type, where it has any.
    #[doc(hidden)]
    fn conv_kernels() -> Option<ConvKernels<Self>> {
        None
    }

    /// Whether the kernels of Winograd's algorithm are for this type, as they are for f32 alone.
    #[doc(hidden)]
    const WINOGRAD: bool = false;
}

impl ConvElement for f32 {
    const WINOGRAD: bool = true;

    fn conv_kernels() -> Option<ConvKernels<f32>> {
        Some(kernel::f32_kernels(Isa::best()))
    }
}
impl ConvElement for f64 {
    fn conv_kernels() -> Option<ConvKernels<f64>> {
        Some(kernel::f64_kernels(Isa::best()))
    }
}
impl ConvElement for half::f16 {}
impl ConvElement for half::bf16 {}

/// Bytes of workspace that [`forward`] needs: a pure function of its arguments on one machine.
#[must_use]
pub fn forward_workspace_bytes<T: ConvElement>(geom: &Conv2d, threads: usize) -> usize {
    workspace_bytes::<T>(geom, Pass::Forward, threads)
}

/// `y = x * weight`, overwriting `y`; see the module and [`Conv2d`] for shapes.
///
/// `workspace` has at least [`forward_workspace_bytes`] for `pool.threads()`, of any alignment and content.
///
/// # Panics
/// If `geom` was not made by [`Conv2d::new`], a slice has another length than it says, or the workspace is too small.
pub fn forward<T: ConvElement>(pool: &Pool, geom: &Conv2d, x: &[T], weight: &[T], y: &mut [T], workspace: &mut [u8]) {
    geom.assert_lengths(x.len(), weight.len(), y.len());
    match T::conv_kernels() {
        Some(kernels) => run(pool, &kernels, geom, Pass::Forward, [x, weight], y, workspace),
        None => direct::forward(pool, geom, x, weight, y),
    }
}

/// Bytes of workspace that [`input_grad`] needs: a pure function of its arguments on one machine.
#[must_use]
pub fn input_grad_workspace_bytes<T: ConvElement>(geom: &Conv2d, threads: usize) -> usize {
    workspace_bytes::<T>(geom, Pass::InputGrad, threads)
}

/// The gradient of the input, `dx: [n, c, h, w]` from `dy: [n, k, oh, ow]`, overwriting `dx`.
///
/// `dx[n, c, ih, iw] = sum over k, r, s of dy[n, k, oh, ow] * weight[k, c, r, s]` where tap `(r, s)` of output `(oh, ow)`
/// reads `(ih, iw)`. `workspace` has at least [`input_grad_workspace_bytes`].
///
/// # Panics
/// As [`forward`].
pub fn input_grad<T: ConvElement>(
    pool: &Pool,
    geom: &Conv2d,
    dy: &[T],
    weight: &[T],
    dx: &mut [T],
    workspace: &mut [u8],
) {
    geom.assert_lengths(dx.len(), weight.len(), dy.len());
    match T::conv_kernels() {
        Some(kernels) => run(pool, &kernels, geom, Pass::InputGrad, [dy, weight], dx, workspace),
        None => direct::input_grad(pool, geom, dy, weight, dx),
    }
}

/// Bytes of workspace that [`weight_grad`] needs: a pure function of its arguments on one machine.
#[must_use]
pub fn weight_grad_workspace_bytes<T: ConvElement>(geom: &Conv2d, threads: usize) -> usize {
    workspace_bytes::<T>(geom, Pass::WeightGrad, threads)
}

/// The gradient of the weight, `dw: [k, c / groups, r, s]` from `x` and `dy: [n, k, oh, ow]`, overwriting `dw`.
///
/// `dw[k, c, r, s] = sum over n, oh, ow of dy[n, k, oh, ow] * x[n, c, ..]`, in a fixed number of partial sums over the
/// images that follows from the sizes. `workspace` has at least [`weight_grad_workspace_bytes`].
///
/// # Panics
/// As [`forward`].
pub fn weight_grad<T: ConvElement>(pool: &Pool, geom: &Conv2d, x: &[T], dy: &[T], dw: &mut [T], workspace: &mut [u8]) {
    geom.assert_lengths(x.len(), dw.len(), dy.len());
    match T::conv_kernels() {
        Some(kernels) => run(pool, &kernels, geom, Pass::WeightGrad, [x, dy], dw, workspace),
        None => direct::weight_grad(pool, geom, x, dy, dw),
    }
}

/// Winograd's algorithm for a pass, if it has the taps.
fn winograd<T: ConvElement>(geom: &Conv2d, pass: Pass) -> Option<Winograd> {
    let conv = match pass {
        Pass::Forward => Some(*geom),
        Pass::InputGrad => geom.back(),
        Pass::WeightGrad => None,
    };
    conv.filter(|_| T::WINOGRAD).and_then(|conv| Winograd::new(conv, crate::blocked::lanes(), true))
}

fn winograd_bytes(w: &Winograd, threads: usize) -> usize {
    let mut sizer = Workspace::sizer();
    sizer.add::<f32>(w.packed_len());
    sizer.bytes() + w.workspace_bytes(threads)
}

fn run_winograd<T: ConvElement>(
    pool: &Pool,
    w: &Winograd,
    taps: Taps,
    [x, weight]: [&[T]; 2],
    y: &mut [T],
    workspace: &mut [u8],
) {
    let mut workspace = Workspace::new(workspace);
    let packed = workspace.take::<f32>(w.packed_len());
    w.pack(pool, taps, bytemuck::cast_slice(weight), packed);
    w.correlate(pool, bytemuck::cast_slice(x), packed, bytemuck::cast_slice_mut(y), workspace.bytes);
}

/// Bytes of workspace for a result, by the kernel that makes it.
fn workspace_bytes<T: ConvElement>(geom: &Conv2d, pass: Pass, threads: usize) -> usize {
    T::conv_kernels()
        .map_or(0, |kernels| bytes_of(choose::kernel(geom, pass, &kernels), &kernels, geom, pass, threads.max(1)))
}

/// Bytes of workspace for a result by this kernel.
fn bytes_of<T: ConvElement>(
    kernel: Kernel,
    kernels: &ConvKernels<T>,
    geom: &Conv2d,
    pass: Pass,
    threads: usize,
) -> usize {
    let most = |bytes: fn(&Correlation, &ConvKernels<T>, usize) -> usize| {
        let phases = geom.phases(pass).filter(Correlation::has_taps);
        phases.map(|corr| bytes(&corr, kernels, threads)).max().unwrap_or(0)
    };
    match kernel {
        Kernel::Winograd => winograd::<T>(geom, pass).map_or(0, |w| winograd_bytes(&w, threads)),
        Kernel::BatchInnermostSmall => {
            batch_innermost_small::Plan::new(geom, pass, kernels, threads).workspace_bytes(threads)
        }
        Kernel::BatchInnermostStrided => {
            batch_innermost_strided::Plan::new(geom, pass, kernels, threads).workspace_bytes(threads)
        }
        Kernel::DepthwiseLanes => lanes::workspace_bytes(geom, pass, kernels, threads),
        Kernel::Depthwise if pass == Pass::WeightGrad => depthwise::weight_grad_workspace_bytes(geom, kernels, threads),
        Kernel::Depthwise => most(depthwise::workspace_bytes),
        Kernel::OuterProducts => weight_grad::workspace_bytes(geom, kernels, threads),
        Kernel::Correlate => most(correlate::workspace_bytes),
    }
}

/// A result from its two operands, by the kernel that makes it.
fn run<T: ConvElement>(
    pool: &Pool,
    kernels: &ConvKernels<T>,
    geom: &Conv2d,
    pass: Pass,
    operands: [&[T]; 2],
    out: &mut [T],
    workspace: &mut [u8],
) {
    run_by(choose::kernel(geom, pass, kernels), pool, kernels, geom, pass, operands, out, workspace);
}

/// A result by this kernel.
fn run_by<T: ConvElement>(
    kernel: Kernel,
    pool: &Pool,
    kernels: &ConvKernels<T>,
    geom: &Conv2d,
    pass: Pass,
    [a, b]: [&[T]; 2],
    out: &mut [T],
    workspace: &mut [u8],
) {
    let is_weight_grad = pass == Pass::WeightGrad;
    match kernel {
        Kernel::Winograd => {
            let w = winograd::<T>(geom, pass).expect("it was chosen for its taps");
            let taps = if pass == Pass::Forward { Taps::Forward } else { Taps::Back };
            run_winograd(pool, &w, taps, [a, b], out, workspace);
        }
        Kernel::BatchInnermostSmall => {
            let plan = batch_innermost_small::Plan::new(geom, pass, kernels, pool.threads());
            if is_weight_grad {
                plan.run_weight_grad(pool, a, b, out, workspace);
            } else {
                plan.run(pool, a, b, out, workspace);
            }
        }
        Kernel::BatchInnermostStrided => {
            batch_innermost_strided::Plan::new(geom, pass, kernels, pool.threads()).run(pool, a, b, out, workspace);
        }
        Kernel::DepthwiseLanes if is_weight_grad => lanes::weight_grad(pool, kernels, geom, a, b, out, workspace),
        Kernel::DepthwiseLanes => lanes::run(pool, kernels, geom, pass, a, b, out, workspace),
        Kernel::Depthwise if is_weight_grad => depthwise::weight_grad(pool, kernels, geom, a, b, out, workspace),
        Kernel::Depthwise => {
            fill_without_taps(pool, geom, pass, out);
            for corr in geom.phases(pass).filter(Correlation::has_taps) {
                depthwise::run(pool, kernels, &corr, a, b, out, workspace);
            }
        }
        Kernel::OuterProducts => weight_grad::run(pool, kernels, geom, a, b, out, workspace),
        Kernel::Correlate => {
            fill_without_taps(pool, geom, pass, out);
            for corr in geom.phases(pass).filter(Correlation::has_taps) {
                correlate::run(pool, kernels, &corr, a, b, out, workspace);
            }
        }
    }
}

/// Phases that no tap reaches are zero: one sweep over all costs less than strided writes.
fn fill_without_taps<T: ConvElement>(pool: &Pool, geom: &Conv2d, pass: Pass, out: &mut [T]) {
    if !geom.phases(pass).all(|corr| corr.has_taps()) {
        pool.chunks_mut(out, FILL_ELEMS, |_, part| part.fill(T::default()));
    }
}

/// A caller's workspace, handed out piece by piece, each piece aligned to a cache line.
struct Workspace<'a> {
    bytes: &'a mut [u8],
}

const ALIGN_BYTES: usize = 64;

impl<'a> Workspace<'a> {
    fn new(bytes: &'a mut [u8]) -> Self {
        let skip = bytes.as_ptr().align_offset(ALIGN_BYTES).min(bytes.len());
        Workspace { bytes: &mut bytes[skip..] }
    }

    /// The next `len` elements.
    fn take<T: bytemuck::Pod>(&mut self, len: usize) -> &'a mut [T] {
        let size = (len * size_of::<T>()).next_multiple_of(ALIGN_BYTES);
        let bytes = std::mem::take(&mut self.bytes);
        assert!(size <= bytes.len(), "the workspace is too small: {size} bytes needed, {} left", bytes.len());
        let (piece, rest) = bytes.split_at_mut(size);
        self.bytes = rest;
        if len == 0 {
            // An empty slice may sit at any address; a cast would refuse it.
            return &mut [];
        }
        bytemuck::cast_slice_mut(&mut piece[..len * size_of::<T>()])
    }

    /// All that is left.
    fn rest<T: bytemuck::Pod>(self) -> &'a mut [T] {
        let len = self.bytes.len() / size_of::<T>();
        if len == 0 {
            return &mut [];
        }
        bytemuck::cast_slice_mut(&mut self.bytes[..len * size_of::<T>()])
    }

    /// Adds up the bytes for a sequence of pieces.
    fn sizer() -> Sizer {
        Sizer(ALIGN_BYTES)
    }
}

struct Sizer(usize);

impl Sizer {
    fn add<T>(&mut self, len: usize) {
        self.0 += (len * size_of::<T>()).next_multiple_of(ALIGN_BYTES);
    }
    fn bytes(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests;
