//! Activations with parameters, noise that networks are trained with, and distances of vectors.

use remat_ops::{compose, random};
use remat_types::{DType, Error, ErrorKind, Result, axis_of};

use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// `x` where it is positive, else `alpha (e^x - 1)`. The derivative at 0 is `alpha`. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[f32::NEG_INFINITY, 0.0, 1000.0], [3])?;
    /// assert_eq!(x.elu(2.0)?.to_vec::<f32>()?, [-2.0, 0.0, 1000.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        compose::elu(&TapeCx::of(self), self.clone(), alpha)
    }

    /// `x` where it is positive, else `alpha (e^(x / alpha) - 1)`. Errors: DType for other than floats; Value for an `alpha`
    /// that is not above 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[f32::NEG_INFINITY, 0.0, 1000.0], [3])?;
    /// assert_eq!(x.celu(2.0)?.to_vec::<f32>()?, [-2.0, 0.0, 1000.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        compose::celu(&TapeCx::of(self), self.clone(), alpha).in_op("celu")
    }

    /// `1.0507 x` where it is positive, else `1.7581 (e^x - 1)`, with the constants of self-normalising networks to f64's
    /// precision. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0f32, 1.0], [2])?;
    /// assert_eq!(x.selu()?.to_vec::<f32>()?, [0.0, 1.050701]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn selu(&self) -> Result<Tensor> {
        compose::selu(&TapeCx::of(self), self.clone())
    }

    /// `ln(1 + e^(beta x)) / beta`, and `x` where `beta x` is above the threshold: [`Tensor::softplus`] with PyTorch's
    /// parameters, whose defaults are 1 and 20. Errors: DType for other than floats; Value for a `beta` that is not above 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0f32, 10.5], [2])?;
    /// assert_eq!(x.softplus_with(2.0, 20.0)?.to_vec::<f32>()?, [0.5 * 2f32.ln(), 10.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn softplus_with(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        compose::softplus(&TapeCx::of(self), self.clone(), beta, threshold).in_op("softplus")
    }

    /// `min(max(x, lo), hi)`: [`Tensor::clamp`] under PyTorch's name. Errors: Value if `lo > hi`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-3.0f32, 0.5, 9.0], [3])?;
    /// assert_eq!(x.hardtanh(-1.0, 1.0)?.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn hardtanh(&self, lo: f64, hi: f64) -> Result<Tensor> {
        self.clamp(lo, hi)
    }

    /// 0 within `-lambda ..= lambda`, else `x`. Errors: DType for bools; Value for a negative `lambda`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-2.0f32, 0.5, 1.0], [3])?;
    /// assert_eq!(x.hardshrink(0.5)?.to_vec::<f32>()?, [-2.0, 0.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn hardshrink(&self, lambda: f64) -> Result<Tensor> {
        compose::hardshrink(&TapeCx::of(self), self.clone(), lambda).in_op("hardshrink")
    }

    /// 0 within `-lambda ..= lambda`, else `x` nearer to 0 by `lambda`. Errors: DType for bools; Value for a negative `lambda`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-2.0f32, 0.5, 1.0], [3])?;
    /// assert_eq!(x.softshrink(0.5)?.to_vec::<f32>()?, [-1.5, 0.0, 0.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn softshrink(&self, lambda: f64) -> Result<Tensor> {
        compose::softshrink(&TapeCx::of(self), self.clone(), lambda).in_op("softshrink")
    }

    /// `x - tanh x`. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0f32, 100.0], [2])?;
    /// assert_eq!(x.tanhshrink()?.to_vec::<f32>()?, [0.0, 99.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn tanhshrink(&self) -> Result<Tensor> {
        compose::tanhshrink(&TapeCx::of(self), self.clone())
    }

    /// `x` where it is above the threshold, else `value`; NaN stays. Errors: DType for bools.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-2.0f32, 0.5, 1.0], [3])?;
    /// assert_eq!(x.threshold(0.5, 7.0)?.to_vec::<f32>()?, [7.0, 7.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        compose::threshold(&TapeCx::of(self), self.clone(), threshold, value).in_op("threshold")
    }

    /// `x` where it is positive, else `x` times a number that `key: u64 [2]` draws from `lower .. upper` for each element.
    /// PyTorch's bounds are 1/8 and 1/3 by default. Errors: DType for other than floats; Value for bounds that descend.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::new(&device, &[-1.0f32, 2.0], [2])?;
    /// let y = x.rrelu(0.25, 0.5, &key)?.to_vec::<f32>()?;
    /// assert!((-0.5..=-0.25).contains(&y[0]) && y[1] == 2.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rrelu(&self, lower: f64, upper: f64, key: &Tensor) -> Result<Tensor> {
        random::rrelu(&TapeCx::of(self), self.clone(), key.clone(), lower, upper)
    }

    /// `e^-x / sum e^-x` along `axis`. Errors: Axis; DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0f32, 1.0, -1000.0, 0.0], [2, 2])?;
    /// assert_eq!(x.softmin(-1)?.to_vec::<f32>()?, [0.5, 0.5, 1.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn softmin(&self, axis: isize) -> Result<Tensor> {
        self.neg()?.softmax(axis)
    }

    /// A sample of the classes along `axis`, whose logits `x` are, made soft: the softmax of `x` plus Gumbel's noise over `tau`
    /// (Jang et al., ICLR 2017). If `hard`, the likeliest class is 1 and the others 0, with the gradient of the soft sample. A
    /// pure function of `key: u64 [2]`.
    ///
    /// Errors: Axis; DType for other than floats; Value for a `tau` that is not above 0; Shape of an empty axis, if `hard`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::new(&device, &[0.0f32, 1000.0, 1000.0, 0.0], [2, 2])?;
    /// assert_eq!(x.gumbel_softmax(1.0, true, 1, &key)?.to_vec::<f32>()?, [0.0, 1.0, 1.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn gumbel_softmax(&self, tau: f64, hard: bool, axis: isize, key: &Tensor) -> Result<Tensor> {
        let at = axis_of(axis, self.rank()).in_op("gumbel_softmax")?;
        let noisy = random::gumbel(&TapeCx::of(self), self.clone(), key.clone(), tau).in_op("gumbel_softmax")?;
        let soft = noisy.softmax(axis)?;
        if !hard {
            return Ok(soft);
        }
        let mut along = vec![1isize; self.rank()];
        along[at] = -1;
        let classes = Tensor::arange(&self.device(), 0, self.dims()[at] as i64, 1, DType::I64)?.reshape(&along)?;
        let one = soft.detach().argmax_over(axis, true)?.eq(&classes)?.cast(self.dtype())?;
        // the soft sample less itself is 0, and has its gradient
        soft.sub(soft.detach())?.add(one)
    }

    /// As [`Tensor::dropout`] of whole channels: of all that has one place in the first two axes. Errors: Value; Axis for a rank
    /// below 2.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::new(&device, &[1.0f32; 12], [2, 3, 2])?;
    /// let y = x.dropout_channels(0.5, &key)?.to_vec::<f32>()?;
    /// assert!(y.chunks(2).all(|c| c == [0.0, 0.0] || c == [2.0, 2.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "dropout2d")]
    #[doc(alias = "feature_dropout")]
    #[track_caller]
    pub fn dropout_channels(&self, p: f64, key: &Tensor) -> Result<Tensor> {
        self.dropout_beyond(2, p, key, "dropout_channels")
    }

    /// As [`Tensor::dropout`] of whole examples: of all that has one place in the first axis (stochastic depth; Huang et al.,
    /// ECCV 2016). Errors: Value; Axis for rank 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::new(&device, &[1.0f32; 12], [6, 2])?;
    /// let y = x.drop_path(0.5, &key)?.to_vec::<f32>()?;
    /// assert!(y.chunks(2).all(|c| c == [0.0, 0.0] || c == [2.0, 2.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "stochastic_depth")]
    #[track_caller]
    pub fn drop_path(&self, p: f64, key: &Tensor) -> Result<Tensor> {
        self.dropout_beyond(1, p, key, "drop_path")
    }

    #[track_caller]
    fn dropout_beyond(&self, axes: usize, p: f64, key: &Tensor, op: &str) -> Result<Tensor> {
        if self.rank() < axes {
            let text = format!("x has shape {}: rank {}, below {axes}", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op(op);
        }
        let mask = self.dims().iter().enumerate().map(|(a, d)| if a < axes { *d } else { 1 }).collect();
        random::dropout_parts(&TapeCx::of(self), self.clone(), key.clone(), p, mask)
    }

    /// Each element at the limit of [`Tensor::selu`] with probability `p`, then scaled and moved so that means of 0 and variances
    /// of 1 stay (Klambauer et al., NeurIPS 2017). A pure function of `key: u64 [2]`. Errors: DType for other than floats; Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::new(&device, &[1.0f32; 100], [100])?;
    /// let y = x.alpha_dropout(0.5, &key)?.to_vec::<f32>()?;
    /// assert!(y.iter().all(|v| *v < -0.7 || *v > 1.6));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn alpha_dropout(&self, p: f64, key: &Tensor) -> Result<Tensor> {
        random::alpha_dropout(&TapeCx::of(self), self.clone(), key.clone(), p).in_op("alpha_dropout")
    }

    /// The cosine of the angle between vectors along `axis`: `x y / (max(|x|, eps) max(|y|, eps))`, of shapes that broadcast.
    /// PyTorch's `eps` is 1e-8 by default. Errors: Axis, Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0f32, 4.0, 1.0, 0.0], [2, 2])?;
    /// let y = Tensor::new(&device, &[6.0f32, 8.0], [2])?;
    /// assert_eq!(x.cosine_similarity(&y, 1, 1e-8)?.to_vec::<f32>()?, [1.0, 0.6]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cosine_similarity(&self, y: &Tensor, axis: isize, eps: f64) -> Result<Tensor> {
        let rank = self.rank().max(y.rank());
        let axis = axis_of(axis, rank).in_op("cosine_similarity")?;
        compose::cosine_similarity(&TapeCx::of(self), self.clone(), y.clone(), axis, eps).in_op("cosine_similarity")
    }

    /// The `p`-norm of `x - y + eps` over the last axis, which stays with extent 1 if `keepdims`; shapes broadcast. PyTorch's `p`
    /// is 2 by default, its `eps` 1e-6. Errors: Axis, Shape, DType; Value for a `p` that is not above 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0f32, 4.0, 1.0, 0.0], [2, 2])?;
    /// let y = Tensor::new(&device, &[0.0f32, 0.0], [2])?;
    /// assert_eq!(x.pairwise_distance(&y, 2.0, 0.0, false)?.to_vec::<f32>()?, [5.0, 1.0]);
    /// assert_eq!(x.pairwise_distance(&y, 1.0, 0.0, false)?.to_vec::<f32>()?, [7.0, 1.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn pairwise_distance(&self, y: &Tensor, p: f64, eps: f64, keepdims: bool) -> Result<Tensor> {
        compose::pairwise_distance(&TapeCx::of(self), self.clone(), y.clone(), p, eps, keepdims)
            .in_op("pairwise_distance")
    }
}
