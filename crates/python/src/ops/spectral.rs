//! Spectra and complex numbers. A complex tensor is a tensor of pairs: its last axis, of extent 2, holds real and
//! imaginary part.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat::tensor::{Complex, FftNorm, MelOptions, MelScale, StftOptions, Window};
use remat::{Result, Tensor};

use super::Row;
use super::args::Args;

/// Argument `i`, a tensor whose last axis holds pairs.
fn complex(a: &Args<'_, '_>, i: usize) -> PyResult<Tensor> {
    a.tensor(i)
}

/// Applies a function of complex numbers to a tensor of pairs.
fn of(z: Tensor, f: impl FnOnce(&Complex) -> Result<Complex>) -> Result<Tensor> {
    Ok(f(&Complex::from_pairs(z)?)?.pairs().clone())
}

fn of_two(a: &Args<'_, '_>, f: fn(&Complex, &Complex) -> Result<Complex>) -> PyResult<Py<PyAny>> {
    let (z, w) = (complex(a, 0)?, complex(a, 1)?);
    a.run(move || of(z, |z| f(z, &Complex::from_pairs(w)?)))
}

fn of_one(a: &Args<'_, '_>, f: fn(&Complex) -> Result<Complex>) -> PyResult<Py<PyAny>> {
    let z = complex(a, 0)?;
    a.run(move || of(z, f))
}

fn real(a: &Args<'_, '_>, f: fn(&Complex) -> Result<Tensor>) -> PyResult<Py<PyAny>> {
    let z = complex(a, 0)?;
    a.run(move || f(&Complex::from_pairs(z)?))
}

/// `n, axis, norm` from argument 1 on.
fn along(a: &Args<'_, '_>) -> PyResult<(Option<usize>, isize, FftNorm)> {
    Ok((a.get(1)?, a.get(2)?, a.choice(3)?))
}

/// `axes, norm` from argument 1 on.
fn over(a: &Args<'_, '_>) -> PyResult<(Vec<isize>, FftNorm)> {
    Ok((a.axes(1)?, a.choice(2)?))
}

/// The options of a short-time transform. It owns the window that [`StftOptions`] borrows.
struct Frames {
    n_fft: usize,
    hop: usize,
    window: Option<Tensor>,
    center: bool,
    normalized: bool,
}

impl Frames {
    /// `n_fft, hop, window, center, normalized` from argument `i` on.
    fn new(a: &Args<'_, '_>, i: usize) -> PyResult<Self> {
        Ok(Frames {
            n_fft: a.get(i)?,
            hop: a.get(i + 1)?,
            window: a.opt_tensor(i + 2)?,
            center: a.get(i + 3)?,
            normalized: a.get(i + 4)?,
        })
    }

    fn options(&self) -> StftOptions<'_> {
        StftOptions {
            n_fft: self.n_fft,
            hop: self.hop,
            window: self.window.as_ref(),
            center: self.center,
            normalized: self.normalized,
        }
    }
}

/// The window of a name; `shape` is the deviation of a Gaussian, and Kaiser's beta.
fn window(name: &str, shape: Option<f64>) -> PyResult<Window> {
    let shaped = |made: fn(f64) -> Window| {
        shape.map(made).ok_or_else(|| PyValueError::new_err(format!("a window `{name}` needs its `shape`")))
    };
    match name {
        "rectangular" => Ok(Window::Rectangular),
        "bartlett" => Ok(Window::Bartlett),
        "hann" => Ok(Window::Hann),
        "hamming" => Ok(Window::Hamming),
        "blackman" => Ok(Window::Blackman),
        "cosine" => Ok(Window::Cosine),
        "gaussian" => shaped(Window::Gaussian),
        "kaiser" => shaped(Window::Kaiser),
        other => Err(PyValueError::new_err(format!(
            "`{other}` is none of rectangular, bartlett, hann, hamming, blackman, cosine, gaussian, kaiser"
        ))),
    }
}

/// Transforms take `x, n, axis, norm`, those over several axes `x, axes, norm`; the others as named.
pub(super) const METHODS: &[Row] = &[
    ("rfft", |a| {
        let (x, (n, axis, norm)) = (a.tensor(0)?, along(a)?);
        a.run(move || Ok(x.rfft(n, axis, norm)?.pairs().clone()))
    }),
    ("irfft", |a| {
        let (z, (n, axis, norm)) = (complex(a, 0)?, along(a)?);
        a.run(move || Complex::from_pairs(z)?.irfft(n, axis, norm))
    }),
    ("fft", |a| {
        let (z, (n, axis, norm)) = (complex(a, 0)?, along(a)?);
        a.run(move || of(z, |z| z.fft(n, axis, norm)))
    }),
    ("ifft", |a| {
        let (z, (n, axis, norm)) = (complex(a, 0)?, along(a)?);
        a.run(move || of(z, |z| z.ifft(n, axis, norm)))
    }),
    ("rfftn", |a| {
        let (x, (axes, norm)) = (a.tensor(0)?, over(a)?);
        a.run(move || Ok(x.rfftn(&axes, norm)?.pairs().clone()))
    }),
    ("fftn", |a| {
        let (z, (axes, norm)) = (complex(a, 0)?, over(a)?);
        a.run(move || of(z, |z| z.fftn(&axes, norm)))
    }),
    ("ifftn", |a| {
        let (z, (axes, norm)) = (complex(a, 0)?, over(a)?);
        a.run(move || of(z, |z| z.ifftn(&axes, norm)))
    }),
    // `z, axes, norm, n`, where `n` is the extent of the last of the axes
    ("irfftn", |a| {
        let (z, (axes, norm), n) = (complex(a, 0)?, over(a)?, a.get(3)?);
        a.run(move || Complex::from_pairs(z)?.irfftn(n, &axes, norm))
    }),
    // `x, n_fft, hop, window, center, normalized`
    ("stft", |a| {
        let (x, frames) = (a.tensor(0)?, Frames::new(a, 1)?);
        a.run(move || Ok(x.stft(frames.options())?.pairs().clone()))
    }),
    // `z, length, n_fft, hop, window, center, normalized`
    ("istft", |a| {
        let (z, length, frames) = (complex(a, 0)?, a.get(1)?, Frames::new(a, 2)?);
        a.run(move || Complex::from_pairs(z)?.istft(length, frames.options()))
    }),
    // `x, power, n_fft, hop, window, center, normalized`
    ("spectrogram", |a| {
        let (x, power, frames) = (a.tensor(0)?, a.get(1)?, Frames::new(a, 2)?);
        a.run(move || x.spectrogram(power, frames.options()))
    }),
    // `device, name, shape, n, periodic, dtype`
    ("window", |a| {
        let (device, of) = (a.device(0)?, window(&a.get::<String>(1)?, a.get(2)?)?);
        let (n, periodic, dtype) = (a.get(3)?, a.get(4)?, a.dtype(5)?);
        a.run(move || Tensor::window(&device, of, n, periodic, dtype))
    }),
    // `device, n_bins, n_mels, sample_rate, from, to, slaney, unit_area, dtype`
    ("mel_filters", |a| {
        let (device, bins, mels, dtype) = (a.device(0)?, a.get(1)?, a.get(2)?, a.dtype(8)?);
        let scale = if a.get(6)? { MelScale::Slaney } else { MelScale::Htk };
        let how = MelOptions { sample_rate: a.get(3)?, from: a.get(4)?, to: a.get(5)?, scale, unit_area: a.get(7)? };
        a.run(move || Tensor::mel_filters(&device, bins, mels, how, dtype))
    }),
    ("complex_real", |a| real(a, Complex::re)),
    ("complex_imag", |a| real(a, Complex::im)),
    ("complex_abs", |a| real(a, Complex::abs)),
    ("complex_abs_square", |a| real(a, Complex::abs_square)),
    ("complex_angle", |a| real(a, Complex::angle)),
    ("complex_conj", |a| of_one(a, Complex::conj)),
    ("complex_exp", |a| of_one(a, Complex::exp)),
    ("complex_log", |a| of_one(a, Complex::log)),
    ("complex_sqrt", |a| of_one(a, Complex::sqrt)),
    ("complex_add", |a| of_two(a, Complex::add)),
    ("complex_subtract", |a| of_two(a, Complex::sub)),
    ("complex_multiply", |a| of_two(a, Complex::mul)),
    ("complex_divide", |a| of_two(a, Complex::div)),
    ("complex_matmul", |a| of_two(a, Complex::matmul)),
    ("complex_of_parts", |a| {
        let (re, im) = (a.tensor(0)?, a.tensor(1)?);
        a.run(move || Ok(Complex::new(&re, &im)?.pairs().clone()))
    }),
    ("complex_polar", |a| {
        let (abs, angle) = (a.tensor(0)?, a.tensor(1)?);
        a.run(move || Ok(Complex::from_polar(&abs, &angle)?.pairs().clone()))
    }),
];
