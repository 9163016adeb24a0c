//! Images read between their pixels: along an axis, at points, in windows and regions; and boxes that overlap.

mod nms;
mod peaks;
mod resample;
mod sample_points;

pub use nms::Nms;
pub use peaks::{PoolIndices, RoiPoolIndices};
pub use resample::{Resample, ResampleRule};
pub use sample_points::{Between, Beyond, SamplePoints, SamplePointsGrad, SamplePointsSlope};

use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] =
    entries![Nms, PoolIndices, Resample, RoiPoolIndices, SamplePoints, SamplePointsGrad, SamplePointsSlope];
