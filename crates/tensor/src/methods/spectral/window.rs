use std::f64::consts::{PI, TAU};

use remat_runtime::Device;
use remat_types::{DType, Error, ErrorKind, Result, vec_for};

use crate::Tensor;
use crate::site::InOp;

/// A weighting of a frame, so that its ends do not look like edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Window {
    /// Ones.
    Rectangular,
    /// A triangle.
    Bartlett,
    /// `1/2 - 1/2 cos`.
    Hann,
    /// `0.54 - 0.46 cos`.
    Hamming,
    /// `0.42 - 0.5 cos + 0.08 cos 2`.
    Blackman,
    /// Half a sine.
    Cosine,
    /// The bell of this standard deviation, in points.
    Gaussian(f64),
    /// Kaiser's, of this `beta`.
    Kaiser(f64),
}

impl Window {
    /// Point `i` of a window whose last point is `last`.
    fn at(self, i: usize, last: f64) -> f64 {
        let x = if last > 0.0 { i as f64 / last } else { 0.5 };
        match self {
            Window::Rectangular => 1.0,
            Window::Bartlett => 1.0 - (2.0 * x - 1.0).abs(),
            Window::Hann => 0.5 - 0.5 * (TAU * x).cos(),
            Window::Hamming => 0.54 - 0.46 * (TAU * x).cos(),
            Window::Blackman => 0.42 - 0.5 * (TAU * x).cos() + 0.08 * (2.0 * TAU * x).cos(),
            // half a step inside, so that no point is 0
            Window::Cosine => (PI * (i as f64 + 0.5) / (last + 1.0)).sin(),
            Window::Gaussian(std) => (-0.5 * ((i as f64 - last / 2.0) / std).powi(2)).exp(),
            Window::Kaiser(beta) => bessel(beta * (1.0 - (2.0 * x - 1.0).powi(2)).max(0.0).sqrt()) / bessel(beta),
        }
    }
}

/// The modified Bessel function of order 0, by its series: `sum (x^2 / 4)^k / k!^2`.
fn bessel(x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..500 {
        term *= x * x / 4.0 / f64::from(k * k);
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    sum
}

/// How pitch follows from frequency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MelScale {
    /// `2595 log10(1 + f / 700)` (O'Shaughnessy, 1987), as HTK has it.
    #[default]
    Htk,
    /// Linear below 1000 Hz and logarithmic above (Slaney, 1998).
    Slaney,
}

impl MelScale {
    fn to_mel(self, f: f64) -> f64 {
        match self {
            MelScale::Htk => 2595.0 * (1.0 + f / 700.0).log10(),
            MelScale::Slaney if f >= 1000.0 => 15.0 + (f / 1000.0).ln() / (6.4f64.ln() / 27.0),
            MelScale::Slaney => 3.0 * f / 200.0,
        }
    }

    fn to_hz(self, m: f64) -> f64 {
        match self {
            MelScale::Htk => 700.0 * (10f64.powf(m / 2595.0) - 1.0),
            MelScale::Slaney if m >= 15.0 => 1000.0 * ((6.4f64.ln() / 27.0) * (m - 15.0)).exp(),
            MelScale::Slaney => 200.0 * m / 3.0,
        }
    }
}

/// Of [`Tensor::mel_filters`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MelOptions {
    /// Points in a second.
    pub sample_rate: f64,
    /// The lowest frequency, in Hz.
    pub from: f64,
    /// The highest, in Hz; half the sample rate if none.
    pub to: Option<f64>,
    /// How pitch follows from frequency.
    pub scale: MelScale,
    /// Filters of area 1 and not of height 1.
    pub unit_area: bool,
}

impl Default for MelOptions {
    fn default() -> Self {
        MelOptions { sample_rate: 16_000.0, from: 0.0, to: None, scale: MelScale::Htk, unit_area: false }
    }
}

impl Tensor {
    /// A window of `n` points. If `periodic`, of the first `n` of `n + 1`, as frames of a transform want it. Errors: DType for other than
    /// floats; Value for a deviation that is not positive, or a beta that is negative or not finite.
    ///
    /// ```
    /// # use remat_tensor::{Tensor, Window};
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let w = Tensor::window(&device, Window::Hann, 4, true, DType::F64)?.to_vec::<f64>()?;
    /// assert!(w.iter().zip([0.0, 0.5, 1.0, 0.5]).all(|(a, b)| (a - b).abs() < 1e-15));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "hann_window")]
    #[doc(alias = "hamming_window")]
    #[doc(alias = "blackman_window")]
    #[doc(alias = "kaiser_window")]
    #[track_caller]
    pub fn window(device: &Device, window: Window, n: usize, periodic: bool, dtype: DType) -> Result<Tensor> {
        let fits = match window {
            Window::Gaussian(std) => std > 0.0 && std.is_finite(),
            Window::Kaiser(beta) => (0.0..=500.0).contains(&beta),
            _ => true,
        };
        if !fits {
            return Err(Error::new(ErrorKind::Value, format!("{window:?} is no window"))).in_op("window");
        }
        if !dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, format!("a window of {dtype}; floats are needed")))
                .in_op("window");
        }
        remat_types::Shape::from([n]).checked_elems().in_op("window")?;
        // one point is 1, periodic or not
        let last = if n <= 1 {
            0.0
        } else if periodic {
            n as f64
        } else {
            (n - 1) as f64
        };
        let mut points: Vec<f64> = vec_for(n).in_op("window")?;
        points.extend((0..n).map(|i| if n == 1 { 1.0 } else { window.at(i, last) }));
        Tensor::from_slice(device, &points, [n])?.cast(dtype)
    }

    /// Triangular filters that gather the numbers of a spectrum into `n_mels` bands of equal pitch: `[n_bins, n_mels]`, so that
    /// `filters.t() x spectrogram` is a mel spectrogram. Errors: DType for other than floats; Value for frequencies or counts that make
    /// no bands.
    ///
    /// ```
    /// # use remat_tensor::{MelOptions, Tensor};
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// assert_eq!(Tensor::mel_filters(&device, 201, 40, MelOptions::default(), DType::F32)?.dims(), [201, 40]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn mel_filters(device: &Device, n_bins: usize, n_mels: usize, o: MelOptions, dtype: DType) -> Result<Tensor> {
        let to = o.to.unwrap_or(o.sample_rate / 2.0);
        if !(o.from >= 0.0 && o.from < to && to.is_finite() && o.sample_rate > 0.0 && o.sample_rate.is_finite())
            || n_bins < 2
            || n_mels == 0
        {
            let text = format!(
                "{n_mels} bands from {} to {to} Hz out of {n_bins} numbers at {} points a second",
                o.from, o.sample_rate
            );
            return Err(Error::new(ErrorKind::Value, text)).in_op("mel_filters");
        }
        if !dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, format!("filters of {dtype}; floats are needed")))
                .in_op("mel_filters");
        }
        remat_types::Shape::from([n_bins, n_mels]).checked_elems().in_op("mel_filters")?;
        let (low, high) = (o.scale.to_mel(o.from), o.scale.to_mel(to));
        let edge = |i: usize| o.scale.to_hz(low + (high - low) * i as f64 / (n_mels + 1) as f64);
        let mut edges: Vec<f64> = vec_for(n_mels.saturating_add(2)).in_op("mel_filters")?;
        edges.extend((0..n_mels + 2).map(edge));
        let mut filters: Vec<f64> = vec_for(n_bins * n_mels).in_op("mel_filters")?;
        filters.resize(n_bins * n_mels, 0.0);
        for (bin, row) in filters.chunks_exact_mut(n_mels).enumerate() {
            let f = o.sample_rate / 2.0 * bin as f64 / (n_bins - 1) as f64;
            for (m, y) in row.iter_mut().enumerate() {
                let (a, b, c) = (edges[m], edges[m + 1], edges[m + 2]);
                let height = ((f - a) / (b - a)).min((c - f) / (c - b)).max(0.0);
                *y = if o.unit_area { height * 2.0 / (c - a) } else { height };
            }
        }
        Tensor::from_slice(device, &filters, [n_bins, n_mels])?.cast(dtype)
    }
}
