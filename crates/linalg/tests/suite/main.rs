//! Factorisations and transforms beside what defines them.

mod factor;
mod fft;
