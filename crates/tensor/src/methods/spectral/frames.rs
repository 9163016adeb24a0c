use remat_types::{Error, ErrorKind, Result};

use super::{Complex, FftNorm};
use crate::Tensor;
use crate::methods::vision::PadMode;
use crate::site::InOp;

/// How [`Tensor::stft`] cuts a signal into frames.
#[derive(Clone, Copy, Debug)]
pub struct StftOptions<'a> {
    /// Points of a frame.
    pub n_fft: usize,
    /// Points between the beginnings of frames; a quarter of a frame if 0.
    pub hop: usize,
    /// The factors of a frame, `[n_fft]`; ones if none.
    pub window: Option<&'a Tensor>,
    /// Frames are centred on the points `0, hop, ..`: the signal is mirrored at its ends by half a frame.
    pub center: bool,
    /// Divided by the root of `n_fft`.
    pub normalized: bool,
}

impl Default for StftOptions<'_> {
    fn default() -> Self {
        StftOptions { n_fft: 400, hop: 0, window: None, center: true, normalized: false }
    }
}

impl StftOptions<'_> {
    fn hop(&self) -> usize {
        if self.hop == 0 { (self.n_fft / 4).max(1) } else { self.hop }
    }

    fn norm(&self) -> FftNorm {
        if self.normalized { FftNorm::Ortho } else { FftNorm::Backward }
    }

    fn checked(&self) -> Result<()> {
        if self.n_fft == 0 {
            return Err(Error::new(ErrorKind::Value, "frames of 0 points"));
        }
        if let Some(w) = self.window
            && w.dims() != [self.n_fft]
        {
            let text = format!("a window of shape {} for frames of {} points", w.shape(), self.n_fft);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        Ok(())
    }

    /// The extents of the parts of a frame between the beginnings of others: `hop` each; the last one is the rest.
    fn parts(&self) -> Vec<usize> {
        let hop = self.hop();
        (0..self.n_fft.div_ceil(hop)).map(|i| hop.min(self.n_fft - i * hop)).collect()
    }
}

impl Tensor {
    /// Overlapping frames of the last axis: `[.., t]` to `[.., frames, n]`, `hop` points apart, as many as fit. Errors: Axis for rank 0;
    /// Value for a frame or a hop of 0 points; Shape for less than a frame.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4, 5], [5])?;
    /// assert_eq!(x.frames(3, 2)?.to_vec::<i32>()?, [1, 2, 3, 3, 4, 5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn frames(&self, n: usize, hop: usize) -> Result<Tensor> {
        let Some(len) = self.dims().last().copied() else {
            return Err(Error::new(ErrorKind::Axis, "a tensor of rank 0 has no points")).in_op("frames");
        };
        if n == 0 || hop == 0 {
            return Err(Error::new(ErrorKind::Value, format!("frames of {n} points, {hop} apart"))).in_op("frames");
        }
        if len < n {
            return Err(Error::new(ErrorKind::Shape, format!("{len} points are no frame of {n}"))).in_op("frames");
        }
        let count = (len - n) / hop + 1;
        let options = StftOptions { n_fft: n, hop, ..StftOptions::default() };
        // rows of `hop` points: a frame takes neighbouring rows, so copies of views suffice, without a table of places
        let rows = count + n.div_ceil(hop) - 1;
        let whole = if rows * hop > len {
            let mut amounts = vec![(0, 0); self.rank()];
            amounts[self.rank() - 1] = (0, rows * hop - len);
            self.pad(&amounts, 0i64)?
        } else {
            self.narrow(-1, 0, rows * hop)?
        };
        let rows = whole.unflatten(-1, &[rows as isize, hop as isize])?;
        let parts: Vec<Tensor> = options
            .parts()
            .into_iter()
            .enumerate()
            .map(|(i, width)| rows.narrow(-2, i as isize, count)?.narrow(-1, 0, width))
            .collect::<Result<_>>()?;
        Tensor::concat(&parts.iter().collect::<Vec<_>>(), -1)
    }

    /// The adjoint of [`Tensor::frames`]: frames `[.., frames, n]` added up where they overlap, `[.., (frames - 1) hop + n]`. Errors: Axis
    /// for a rank below 2; Value for a hop of 0; Shape for no frames.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0], [2, 3])?;
    /// assert_eq!(x.overlap_add(2)?.to_vec::<f32>()?, [1.0, 2.0, 13.0, 20.0, 30.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn overlap_add(&self, hop: usize) -> Result<Tensor> {
        let [.., count, n] = *self.dims() else {
            let text = format!("shape {} has rank {}; it must be 2 or more", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("overlap_add");
        };
        if hop == 0 {
            return Err(Error::new(ErrorKind::Value, "frames that are 0 points apart")).in_op("overlap_add");
        }
        if count == 0 || n == 0 {
            let text = format!("shape {}: no frames to add up", self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op("overlap_add");
        }
        let parts = StftOptions { n_fft: n, hop, ..StftOptions::default() }.parts();
        let rows = count + parts.len() - 1;
        let mut sum: Option<Tensor> = None;
        for (i, width) in parts.iter().enumerate() {
            let part = self.narrow(-1, (i * hop) as isize, *width)?;
            let mut amounts = vec![(0, 0); self.rank()];
            amounts[self.rank() - 2] = (i, rows - count - i);
            amounts[self.rank() - 1] = (0, hop - width);
            let placed = part.pad(&amounts, 0i64)?;
            sum = Some(match sum {
                Some(sum) => sum.add(placed)?,
                None => placed,
            });
        }
        let Some(sum) = sum else { return Err(Error::new(ErrorKind::Internal, "a frame has parts")) };
        let mut flat: Vec<isize> = sum.dims()[..sum.rank() - 2].iter().map(|d| *d as isize).collect();
        flat.push((rows * hop) as isize);
        sum.reshape(&flat)?.narrow(-1, 0, (count - 1) * hop + n)
    }

    /// The transforms of overlapping frames of a signal: `[.., t]` to `[.., n_fft / 2 + 1, frames]`, as PyTorch's `stft`. Errors: Axis,
    /// DType for other than f32 and f64; Value, Shape for frames that do not fit.
    ///
    /// ```
    /// # use remat_tensor::{StftOptions, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0; 16], [16])?;
    /// let y = x.stft(StftOptions { n_fft: 4, ..StftOptions::default() })?;
    /// assert_eq!(y.dims(), [3, 17]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn stft(&self, options: StftOptions<'_>) -> Result<Complex> {
        options.checked().in_op("stft")?;
        let half = options.n_fft / 2;
        let x = match self.rank() {
            0 => return Err(Error::new(ErrorKind::Axis, "a tensor of rank 0 has no points")).in_op("stft"),
            rank if options.center => {
                let mut amounts = vec![(0, 0); rank];
                amounts[rank - 1] = (half, half);
                self.pad_with(&amounts, PadMode::Reflect).called("stft")?
            }
            _ => self.clone(),
        };
        let mut frames = x.frames(options.n_fft, options.hop()).called("stft")?;
        if let Some(w) = options.window {
            frames = frames.mul(w).called("stft")?;
        }
        frames.rfft(None, -1, options.norm())?.transpose(-2, -1)
    }

    /// The size of [`Tensor::stft`] to the power `power`, 2 for energies. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::{StftOptions, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0; 8], [8])?;
    /// let y = x.spectrogram(2.0, StftOptions { n_fft: 4, hop: 4, center: false, ..StftOptions::default() })?;
    /// assert_eq!(y.to_vec::<f32>()?, [16.0, 16.0, 0.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn spectrogram(&self, power: f64, options: StftOptions<'_>) -> Result<Tensor> {
        let y = self.stft(options).called("spectrogram")?;
        if power == 2.0 {
            y.abs_square()
        } else if power == 1.0 {
            y.abs()
        } else {
            y.abs()?.pow(power)
        }
    }
}

impl Complex {
    /// The signal whose [`Tensor::stft`] with the same options is nearest (Griffin and Lim, 1984): `[.., n_fft / 2 + 1, frames]` to
    /// `[.., t]`, cut off or filled up with zeros to `length`. Errors: Axis, Shape, DType; Value for a length of 0.
    #[track_caller]
    pub fn istft(&self, length: Option<usize>, options: StftOptions<'_>) -> Result<Tensor> {
        options.checked().in_op("istft")?;
        let [.., bins, count] = *self.dims() else {
            let text = format!("shape {} has rank {}; it must be 2 or more", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("istft");
        };
        if bins != options.n_fft / 2 + 1 || count == 0 {
            let text = format!(
                "shape {}: frames of {} points have {} numbers",
                self.shape(),
                options.n_fft,
                options.n_fft / 2 + 1
            );
            return Err(Error::new(ErrorKind::Shape, text)).in_op("istft");
        }
        if length == Some(0) {
            return Err(Error::new(ErrorKind::Value, "a signal of 0 points")).in_op("istft");
        }
        let (n, hop) = (options.n_fft, options.hop());
        let frames = self.transpose(-2, -1)?.irfft(Some(n), -1, options.norm())?;
        let window = match options.window {
            Some(w) => w.cast(frames.dtype())?,
            None => Tensor::ones(&frames.device(), [n], frames.dtype())?,
        };
        let signal = frames.mul(&window)?.overlap_add(hop)?;
        let weight = window.square()?.broadcast_to([count, n])?.overlap_add(hop)?;
        let skip = if options.center { n / 2 } else { 0 };
        let have = (count - 1) * hop + n - skip;
        let want = length.unwrap_or_else(|| have.saturating_sub(skip));
        let len = want.min(have);
        let part = |x: &Tensor| x.narrow(-1, skip as isize, len);
        // points that no window sees are 0, as their sum is
        let weight = part(&weight)?;
        let unseen = weight.lt(1e-11)?;
        let y = part(&signal)?.div(weight.masked_fill(&unseen, 1.0)?)?;
        if want == len {
            return Ok(y);
        }
        let mut amounts = vec![(0, 0); y.rank()];
        amounts[y.rank() - 1] = (0, want - len);
        y.pad(&amounts, 0.0)
    }
}
