//! Complex numbers, Fourier transforms, and what sound is looked at with.

mod complex;
mod frames;
mod transform;
mod window;

pub use complex::Complex;
pub use frames::StftOptions;
pub use transform::FftNorm;
pub use window::{MelOptions, MelScale, Window};
