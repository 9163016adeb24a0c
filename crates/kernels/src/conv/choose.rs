//! Which kernel a convolution takes: one table with a row for each kernel, which `conv` alone asks.
//!
//! A choice follows from the sizes, the type and the instruction set, never from threads, so that pools of any size give the
//! same bits. How a kernel then cuts its work (tiles, blocks, what is read where it is) is said where the kernel is. Types
//! without vector kernels have the plain loops of module `direct`.

use super::batch_innermost_strided::{self, Plan};
use super::kernel::ConvKernels;
use super::{Conv2d, ConvElement, lanes, winograd};
use crate::blocked::winograd::Winograd;

/// Which of the three results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    InputGrad,
    WeightGrad,
}

/// A way to make a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// `blocked::winograd`
    Winograd,
    /// `batch_innermost_small`
    BatchInnermostSmall,
    /// `batch_innermost_strided`
    BatchInnermostStrided,
    /// `lanes`
    DepthwiseLanes,
    /// `depthwise`
    Depthwise,
    /// `weight_grad`
    OuterProducts,
    /// `correlate`
    Correlate,
}

/// The parameters of a choice.
struct Params<'a, T: 'static> {
    geom: &'a Conv2d,
    pass: Pass,
    kernels: &'a ConvKernels<T>,
}

/// A kernel, and whether it is for these sizes.
struct Row<T: 'static> {
    kernel: Kernel,
    fits: fn(&Params<'_, T>) -> bool,
}

/// The kernels; the first that fits is taken.
fn rows<T: ConvElement>() -> [Row<T>; 7] {
    [
        // a quarter of the multiply-adds, where that saves more than the transforms cost
        Row { kernel: Kernel::Winograd, fits: |p| p.is_winograd() },
        // taps that read beside the image are left out, which of small images are many
        Row { kernel: Kernel::BatchInnermostSmall, fits: |p| p.is_batch_innermost_small() },
        // copies and results of a few elements, a step apart, become moves of vectors
        Row { kernel: Kernel::BatchInnermostStrided, fits: |p| p.is_batch_innermost_strided() },
        // rows of small images are shorter than a vector, or just longer
        Row { kernel: Kernel::DepthwiseLanes, fits: |p| p.is_depthwise_lanes() },
        // single channels share nothing, so there is nothing to pack
        Row { kernel: Kernel::Depthwise, fits: |p| p.is_depthwise() },
        // what is left of weight gradients, and of the other two
        Row { kernel: Kernel::OuterProducts, fits: |p| p.pass == Pass::WeightGrad },
        Row { kernel: Kernel::Correlate, fits: |_| true },
    ]
}

/// The kernel for a result of these sizes.
pub(super) fn kernel<T: ConvElement>(geom: &Conv2d, pass: Pass, kernels: &ConvKernels<T>) -> Kernel {
    let params = Params { geom, pass, kernels };
    let row = rows::<T>().into_iter().find(|row| (row.fits)(&params));
    row.expect("the last row fits all").kernel
}

/// As [`kernel`], of those that only sum.
#[cfg(test)]
pub(super) fn kernel_of_sums<T: ConvElement>(geom: &Conv2d, pass: Pass, kernels: &ConvKernels<T>) -> Kernel {
    let params = Params { geom, pass, kernels };
    let row = rows::<T>().into_iter().find(|row| row.kernel != Kernel::Winograd && (row.fits)(&params));
    row.expect("the last row fits all").kernel
}

/// Limits of [`Kernel::BatchInnermostSmall`].
mod small {
    /// Most taps.
    pub(super) const MAX_TAPS: usize = 25;
    /// Most places of an image or an output: of more, fewer taps read beside the image, and the other way takes as long.
    pub(super) const MAX_PLACES: usize = 144;
    /// The same for the gradients: that of the input has a phase for each step of a stride the other way.
    pub(super) const MAX_GRAD_PLACES: usize = 256;
    /// Bytes of the images or the outputs, which each thread reads for each panel of weights.
    pub(super) const MAX_IMAGES_BYTES: usize = 4 << 20;
    /// Fewest channels on either side: those of fewer are not worth the transpositions.
    pub(super) const MIN_CHANNELS: usize = 16;
    /// Fewest images and places that follow one another for the gradient of the weight: sums of fewer cost more to read and
    /// write than to add up.
    pub(super) const MIN_STEPS: usize = 24;
    /// Most images and places in all: as many of `dy` a thread holds for each panel of output channels.
    pub(super) const MAX_STEPS: usize = 1 << 13;
}

/// Limits of [`Kernel::BatchInnermostStrided`].
mod strided {
    /// A batch is so many images or a multiple: whole squares of a transposition. Half as many gained less often than they
    /// lost.
    pub(super) const IMAGES: usize = 8;
    /// Fewest channels on either side: those of fewer are not worth the transpositions.
    pub(super) const MIN_CHANNELS: usize = 64;
    /// Columns of a grid: of fewer, sums are as much work to move; more have rows that are long enough for the other way.
    pub(super) const GRID_COLUMNS: std::ops::RangeInclusive<usize> = 256..=2048;
    /// Multiply-adds for each element of the images and of what is gathered, at least. Several phases save more moves than
    /// they cost.
    pub(super) const MULS_PER_MOVE: usize = 128;
    /// The same for what is gathered, and for each time that a sum is read or written: threads share it, in caches that are
    /// slower than their own. A forward pass of several taps saves less than others do.
    pub(super) const MULS_PER_SUM: usize = 64;
    pub(super) const MULS_PER_SUM_OF_TAPS: usize = 128;
    /// Fewest rows of a tile for several taps: lower ones read what is gathered too often from the L2 cache.
    pub(super) const MIN_TILE_ROWS: usize = 8;
}

/// Limits of [`Kernel::DepthwiseLanes`].
mod depthwise_lanes {
    /// Bytes of the padded block of the source up to which this way is taken: 28 x 28 places of 8 floats and a border.
    pub(super) const MAX_BLOCK_BYTES: usize = 32 << 10;
    /// The same under a stride, where the other way splits rows into phases: a block then stays in the L2 cache.
    pub(super) const MAX_STRIDED_BLOCK_BYTES: usize = 256 << 10;
}

impl<T: ConvElement> Params<'_, T> {
    fn is_winograd(&self) -> bool {
        winograd::<T>(self.geom, self.pass).as_ref().is_some_and(Winograd::pays)
    }

    fn is_batch_innermost_small(&self) -> bool {
        let (geom, lanes) = (self.geom, self.kernels.gemm.tall().lanes);
        let (places, outputs, taps) = (geom.h * geom.w, geom.oh * geom.ow, geom.r * geom.s);
        let [x, y] = [geom.c * places, geom.k * outputs].map(|len| geom.n.saturating_mul(len));
        let most = if self.pass == Pass::Forward { small::MAX_PLACES } else { small::MAX_GRAD_PLACES };
        let pays = if self.pass == Pass::WeightGrad {
            let run = if [geom.stride[1], geom.dilation[1]] == [1, 1] { geom.ow } else { 1 };
            taps > 1 && geom.n * run >= small::MIN_STEPS && geom.n * outputs <= small::MAX_STEPS
        } else {
            // lanes are full, and with a single tap, which no output leaves out, weights outweigh the transpositions
            let padded = geom.n.next_multiple_of(lanes);
            padded * 2 <= geom.n * 3 && (taps > 1 || x + y <= geom.weight_len() / 2 * 3)
        };
        geom.groups == 1
            && pays
            && taps <= small::MAX_TAPS
            && geom.c.min(geom.k) >= small::MIN_CHANNELS
            && places.max(outputs) <= most
            && x.max(y).saturating_mul(size_of::<T>()) <= small::MAX_IMAGES_BYTES
    }

    fn is_batch_innermost_strided(&self) -> bool {
        let (geom, gemm) = (self.geom, self.kernels.gemm.tall());
        let (n, taps) = (geom.n, geom.r * geom.s);
        let fits = self.pass != Pass::WeightGrad
            && geom.groups == 1
            && geom.stride.iter().all(|stride| (2..=batch_innermost_strided::MAX_STRIDE).contains(stride))
            && n > 0
            && n.is_multiple_of(strided::IMAGES)
            && n <= gemm.nr()
            && geom.c.min(geom.k) >= strided::MIN_CHANNELS
            && taps <= batch_innermost_strided::MAX_TAPS
            && (taps == 1 || gemm.mr() >= strided::MIN_TILE_ROWS);
        fits && self.is_worth(&Plan::new(geom, self.pass, self.kernels, 1))
    }

    /// Whether it takes less time with the batch innermost under a stride.
    fn is_worth(&self, plan: &Plan<T>) -> bool {
        let columns = strided::GRID_COLUMNS;
        if !plan.columns_of_phases().all(|phase| columns.contains(&phase)) {
            return false;
        }
        let (used, work): (usize, _) = (plan.columns_of_phases().sum(), plan.work());
        let (forward, taps) = (self.pass == Pass::Forward, self.geom.r * self.geom.s);
        let least = if forward && taps > 1 { strided::MULS_PER_SUM_OF_TAPS } else { strided::MULS_PER_SUM };
        let images = self.geom.x_len() + self.geom.y_len();
        // rows of whole vectors cost the other way no short moves
        let short_rows = !forward || !self.geom.ow.is_multiple_of(strided::IMAGES);
        let saves = plan.columns_of_phases().count() > 1
            || (short_rows && work.muls >= strided::MULS_PER_MOVE * (images + work.gathered));
        used * 8 >= work.columns * 7 && work.muls >= least * (work.gathered + work.summed) && saves
    }

    fn is_depthwise_lanes(&self) -> bool {
        if !self.is_depthwise() {
            return false;
        }
        let plan = lanes::Plan::new(self.geom, self.pass, self.kernels.lanes);
        // Rows of whole vectors without a stride go faster the other way.
        if !plan.is_strided() && plan.dst[1] >= self.kernels.lanes {
            return false;
        }
        let most =
            if plan.is_strided() { depthwise_lanes::MAX_STRIDED_BLOCK_BYTES } else { depthwise_lanes::MAX_BLOCK_BYTES };
        let block = plan.block_len().saturating_mul(size_of::<T>());
        block.max(plan.dst_len() * size_of::<T>()) <= most && (1..=lanes::MAX_TAPS).contains(&plan.taps)
    }

    fn is_depthwise(&self) -> bool {
        let geom = self.geom;
        geom.groups == geom.c && geom.groups == geom.k && geom.groups > 1
    }
}
