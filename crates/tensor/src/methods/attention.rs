//! Attention of separate queries, keys and values, and of one tensor that holds them.

use remat_ops::attention::Attention;
use remat_types::{Error, ErrorKind, Result};

use crate::Tensor;

/// What queries attend to, and how much a score counts. The default: everything, and scores over `sqrt(d)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attend<'a> {
    /// Query `i` sees keys `j <= i` only.
    pub causal: bool,
    /// Query `i` of a head sees key `j` where this is true; bool, broadcasts to `[n, heads, tq, tk]`.
    pub mask: Option<&'a Tensor>,
    /// Factor of the scores, if not `1 / sqrt(d)`.
    pub scale: Option<f64>,
}

impl<'a> Attend<'a> {
    /// Places see themselves and what comes before.
    pub const CAUSAL: Attend<'static> = Attend { causal: true, mask: None, scale: None };

    /// What the mask shows.
    pub fn masked(mask: &'a Tensor) -> Self {
        Attend { mask: Some(mask), ..Attend::default() }
    }

    /// The first output of the op on `x`, whose numbers of a query are `d`.
    #[track_caller]
    fn of(self, x: &[&Tensor], d: usize) -> Result<Tensor> {
        let scale = self.scale.unwrap_or_else(|| (d.max(1) as f64).sqrt().recip());
        let op = Attention { scale: scale.into(), causal: self.causal, packed_qkv: x.len() == 1 };
        let x: Vec<&Tensor> = x.iter().copied().chain(self.mask).collect();
        Tensor::apply(op, &x)?
            .into_iter()
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "attention has outputs"))
    }
}

impl Tensor {
    /// `softmax(scale q k^T) v` for each image and head (Vaswani et al., 2017), where `self` is `q: [n, tq, heads, d]`,
    /// `k: [n, tk, heads, d]` and `v: [n, tk, heads, dv]`; gives `[n, tq, heads, dv]`.
    ///
    /// The scores are never a tensor, neither here nor in the backward pass, which computes them again in tiles. A query
    /// that sees nothing gives 0, and no gradient. Errors: DType, Axis, Shape; Value for a scale that is not finite.
    ///
    /// ```
    /// # use remat_tensor::{Attend, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (q, k) = (Tensor::new(&device, &[0.0, 0.0], [1, 2, 1, 1])?, Tensor::new(&device, &[1.0, 5.0], [1, 2, 1, 1])?);
    /// let v = Tensor::new(&device, &[4.0, 8.0], [1, 2, 1, 1])?;
    /// assert_eq!(q.attention(&k, &v, Attend::default())?.to_vec::<f32>()?, [6.0, 6.0]);
    /// assert_eq!(q.attention(&k, &v, Attend::CAUSAL)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// let second = Tensor::new(&device, &[false, true], [2])?;
    /// assert_eq!(q.attention(&k, &v, Attend::masked(&second))?.to_vec::<f32>()?, [8.0, 8.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn attention(&self, k: &Tensor, v: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        attend.of(&[self, k, v], self.dims().last().copied().unwrap_or(1))
    }

    /// [`Tensor::attention`] of the queries, keys and values `self[.., 0, .., ..]` to `self[.., 2, .., ..]` of
    /// `[n, t, 3, heads, d]`, as one linear layer makes them; gives `[n, t, heads, d]`. Their gradient is one tensor, too.
    /// Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::{Attend, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let qkv = Tensor::new(&device, &[0.0, 1.0, 4.0, 0.0, 5.0, 8.0], [1, 2, 3, 1, 1])?;
    /// assert_eq!(qkv.self_attention(Attend::CAUSAL)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn self_attention(&self, attend: Attend<'_>) -> Result<Tensor> {
        attend.of(&[self], self.dims().last().copied().unwrap_or(1))
    }
}
