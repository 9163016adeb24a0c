//! Fourier transforms, windows, mel filters.

use std::f64::consts::PI;

use remat_import::{Cx, Value, one, shape_error, size, value_error};
use remat_tensor::{Complex, FftNorm, Tensor};
use remat_types::{DType, HostTensor, Result, axis_of};

use super::{Row, row};
use crate::tensor::dtype_of;

pub(super) const ROWS: &[Row] = &[
    row("BlackmanWindow", 17, |c| window(c, &[0.42, -0.5, 0.08])),
    row("DFT", 17, dft),
    row("HammingWindow", 17, |c| window(c, &[25.0 / 46.0, -21.0 / 46.0])),
    row("HannWindow", 17, |c| window(c, &[0.5, -0.5])),
    row("MelWeightMatrix", 17, mel),
    row("STFT", 17, stft),
];

/// Points of a transform that a file may ask for.
const MOST_POINTS: i64 = 1 << 24;

/// Numbers of a window or of filters, which are made on the host.
const MOST_MADE: usize = 1 << 21;

fn points(n: i64) -> Result<usize> {
    if n > MOST_POINTS { Err(value_error(format!("{n} points; at most {MOST_POINTS}"))) } else { size(n) }
}

fn made(n: usize) -> Result<usize> {
    if n > MOST_MADE { Err(value_error(format!("{n} numbers; at most {MOST_MADE}"))) } else { Ok(n) }
}

fn given_dtype(c: &Cx<'_>) -> Result<DType> {
    dtype_of(i32::try_from(c.int("output_datatype", 1)?).unwrap_or(-1))
}

/// A sum of cosines: `sum_k a[k] cos(2 pi k i / n)`.
fn window(c: &Cx<'_>, terms: &[f64]) -> Result<Vec<Value>> {
    let n = made(points(c.number(0)?)?)?;
    let period = if c.flag("periodic", true)? { n } else { n.saturating_sub(1) }.max(1) as f64;
    let at = |i: usize| -> f64 {
        terms.iter().enumerate().map(|(k, a)| a * (2.0 * PI * k as f64 * i as f64 / period).cos()).sum()
    };
    let all: Vec<f64> = (0..n).map(at).collect();
    Ok(vec![c.constant(&HostTensor::from_f64_slice(&all, given_dtype(c)?, [n])?)?])
}

/// Real numbers have a last axis of one, complex ones of two.
///
/// Forwards in f64: beside large terms those that cancel are 0 to the last digit of f32, as the standard's own values are.
fn dft(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    if c.flag("inverse", false)? {
        return one(transform(c, x)?);
    }
    one(transform(c, &x.cast(DType::F64)?)?.cast(x.dtype())?)
}

fn transform(c: &Cx<'_>, x: &Tensor) -> Result<Tensor> {
    let axis = match c.version() < 20 {
        true => c.int("axis", 1)?,
        false => {
            if c.value(2).is_some() {
                c.number(2)?
            } else {
                -2
            }
        }
    };
    let axis = axis_of(axis as isize, x.rank())? as isize;
    let n = if c.value(1).is_some() { Some(points(c.number(1)?)?) } else { None };
    let (inverse, onesided) = (c.flag("inverse", false)?, c.flag("onesided", false)?);
    if axis as usize + 1 == x.rank() {
        return Err(shape_error("a transform along the axis of real and imaginary parts"));
    }
    let last = x.dims().last().copied().unwrap_or(0);
    let norm = FftNorm::Backward;
    let whole = match last {
        1 => {
            let real = x.squeeze(&[-1])?;
            if onesided && !inverse {
                return Ok(real.rfft(n, axis, norm)?.pairs().clone());
            }
            Complex::from_real(&real)?
        }
        2 => Complex::from_pairs(x.clone())?,
        _ => return Err(shape_error(format!("shape {}: the last axis has one or two numbers", x.shape()))),
    };
    if inverse && onesided {
        return whole.irfft(n, axis, norm)?.unsqueeze(-1);
    }
    let y = if inverse { whole.ifft(n, axis, norm)? } else { whole.fft(n, axis, norm)? };
    if !onesided {
        return Ok(y.pairs().clone());
    }
    let bins = y.dims()[axis as usize] / 2 + 1;
    Ok(y.narrow(axis, 0, bins)?.pairs().clone())
}

fn stft(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, step) = (c.x(0)?, points(c.number(1)?)?);
    let window = c.opt(2)?;
    let n = match (c.value(3), window) {
        (Some(_), _) => points(c.number(3)?)?,
        (None, Some(w)) => w.elems(),
        (None, None) => return Err(value_error("neither a window nor the length of a frame")),
    };
    let onesided = c.flag("onesided", true)?;
    let framed = |t: &Tensor| -> Result<Tensor> {
        let frames = t.frames(n, step)?;
        window.map_or(Ok(frames.clone()), |w| frames.mul(w))
    };
    let norm = FftNorm::Backward;
    let last = if x.rank() == 2 { 1 } else { x.dims().last().copied().unwrap_or(0) };
    match last {
        1 => {
            let real = framed(&if x.rank() == 2 { x.clone() } else { x.squeeze(&[-1])? })?;
            let y =
                if onesided { real.rfft(None, -1, norm)? } else { Complex::from_real(&real)?.fft(None, -1, norm)? };
            one(y.pairs().clone())
        }
        2 => {
            let (re, im) = (framed(&x.select(-1, 0)?)?, framed(&x.select(-1, 1)?)?);
            one(Complex::new(&re, &im)?.fft(None, -1, norm)?.pairs().clone())
        }
        _ => Err(shape_error(format!("a signal of shape {}", x.shape()))),
    }
}

/// Triangles at equal distances of mel: `[bins, mels]`.
fn mel(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (mels, length) = (points(c.number(0)?)?, points(c.number(1)?)?);
    let (rate, low, high) = (c.number(2)? as f64, c.float(3)?, c.float(4)?);
    let bins = length / 2 + 1;
    made(bins.saturating_mul(mels))?;
    if rate <= 0.0 {
        return Err(value_error(format!("{bins} bins of {mels} filters at a rate of {rate}")));
    }
    let to_mel = |f: f64| 2595.0 * (1.0 + f / 700.0).log10();
    let step = (to_mel(high) - to_mel(low)) / (mels + 2) as f64;
    let bin = |k: usize| {
        let f = 700.0 * (10f64.powf((k as f64 * step + to_mel(low)) / 2595.0) - 1.0);
        ((length as f64 + 1.0) * f / rate).floor().max(0.0) as usize
    };
    let mut y = vec![0.0; bins * mels];
    let mut put = |row: usize, column: usize, v: f64| {
        if row < bins {
            y[row * mels + column] = v;
        }
    };
    for i in 0..mels {
        let (left, middle, right) = (bin(i), bin(i + 1), bin(i + 2));
        if left == middle {
            put(middle, i, 1.0);
        }
        for j in left..=middle.min(bins) {
            if middle > left {
                put(j, i, (j - left) as f64 / (middle - left) as f64);
            }
        }
        for j in middle..right.min(bins) {
            put(j, i, (right - j) as f64 / (right - middle) as f64);
        }
    }
    Ok(vec![c.constant(&HostTensor::from_f64_slice(&y, given_dtype(c)?, [bins, mels])?)?])
}
