//! Images read between their pixels: along an axis, at points, in windows and regions; and boxes that overlap.

mod nms;
mod peaks;
mod resample;
mod sample;
#[cfg(test)]
mod tests;

pub use nms::{iou, keep_boxes};
pub use peaks::{Peaks, WindowAxis, region_peaks, window_peaks};
pub use resample::{Resampling, Rule, Table, resample, resample_transposed};
pub use sample::{Between, Beyond, MAX_AXES, Points, sample, sample_gradient, sample_slope};
