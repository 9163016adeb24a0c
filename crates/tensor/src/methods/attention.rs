//! Attention of separate queries, keys and values, and of one tensor that holds them.

use remat_ops::attention::Attention;
use remat_types::{DType, Error, ErrorKind, Result};

use crate::Tensor;

/// The places that queries attend to, and the scale of scores. The default: all places, and scores over `sqrt(d)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attend<'a> {
    /// Query `i` sees keys `j <= i` only, where `i` counts as [`Attend::place`] says.
    pub causal: bool,
    /// Query `i` of a head sees key `j` where this is true; bool, broadcasts to `[n, heads, tq, tk]`.
    pub mask: Option<&'a Tensor>,
    /// Factor of the scores, if not `1 / sqrt(d)`.
    pub scale: Option<f64>,
    /// Added to the scores; of the queries' dtype, broadcasts to `[n, heads, tq, tk]`. Its gradient makes all scores.
    pub bias: Option<&'a Tensor>,
    /// How many keys before its own place and behind it a query sees: a sliding window, beside `causal` and the mask.
    pub window: Option<[usize; 2]>,
    /// Which key the first query stands at.
    pub place: QueryPlace,
    /// Scores become `cap tanh(score / cap)` before mask and bias.
    pub soft_cap: Option<f64>,
    /// The probability with which a probability is dropped, and the key of the random numbers, `u64 [2]`.
    pub dropout: Option<(f64, &'a Tensor)>,
}

/// Which key the first query stands at, for [`Attend::causal`] and [`Attend::window`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryPlace {
    /// The first one.
    #[default]
    Start,
    /// That with which the last query stands at the last key: queries behind keys that were kept.
    End,
    /// This one.
    At(isize),
}

impl<'a> Attend<'a> {
    /// Everything.
    pub const ALL: Attend<'static> = Attend {
        causal: false,
        mask: None,
        scale: None,
        bias: None,
        window: None,
        place: QueryPlace::Start,
        soft_cap: None,
        dropout: None,
    };

    /// Places see themselves and the places before them.
    pub const CAUSAL: Attend<'static> = Attend { causal: true, ..Attend::ALL };

    /// The places that the mask shows.
    pub fn masked(mask: &'a Tensor) -> Self {
        Attend { mask: Some(mask), ..Attend::default() }
    }

    /// The first output of the op on `x`, whose numbers of a query are `d`.
    #[track_caller]
    fn of(self, x: &[&Tensor], d: usize, [tq, tk]: [usize; 2]) -> Result<Tensor> {
        // the operator tells a mask from a bias by its dtype
        if let Some(mask) = self.mask.filter(|m| m.dtype() != DType::Bool) {
            let text = format!("the mask is {}, must be bool; what is added to scores is `Attend::bias`", mask.dtype());
            return Err(Error::new(ErrorKind::DType, text).with_op("attention"));
        }
        let scale = self.scale.unwrap_or_else(|| (d.max(1) as f64).sqrt().recip());
        let offset = match self.place {
            QueryPlace::Start => 0,
            QueryPlace::End => tk as isize - tq as isize,
            QueryPlace::At(i) => i,
        };
        let [left, right] = self.window.map_or([None; 2], |w| w.map(Some));
        let (p, key) = self.dropout.map_or((0.0, None), |(p, key)| (p, (p > 0.0).then_some(key)));
        let op = Attention {
            causal: self.causal,
            packed_qkv: x.len() == 1,
            offset,
            left,
            right,
            cap: self.soft_cap.unwrap_or(0.0).into(),
            dropout: p.into(),
            ..Attention::plain(scale)
        };
        let x: Vec<&Tensor> = x.iter().copied().chain(self.mask).chain(self.bias).chain(key).collect();
        Tensor::apply(op, &x)?
            .into_iter()
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "attention has outputs"))
    }
}

/// The extent of axis 1, of what has one.
fn length(x: &Tensor) -> usize {
    x.dims().get(1).copied().unwrap_or(0)
}

impl Tensor {
    /// `softmax(scale q k^T) v` for each image and head (Vaswani et al., 2017), where `self` is `q: [n, tq, heads, d]`,
    /// `k: [n, tk, heads_kv, d]` and `v: [n, tk, heads_kv, dv]`; gives `[n, tq, heads, dv]`. Where there are fewer heads of keys,
    /// `heads / heads_kv` heads of queries share one (Ainslie et al., 2023), which is not repeated for that.
    ///
    /// The scores are never a tensor, neither here nor in the backward pass, which computes them again in tiles. A query
    /// that sees nothing gives 0, and no gradient. Errors: DType, Axis, Shape; Value for a scale that is not finite.
    ///
    /// ```
    /// # use remat_tensor::{Attend, QueryPlace, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (q, k) = (Tensor::new(&device, &[0.0, 0.0], [1, 2, 1, 1])?, Tensor::new(&device, &[1.0, 5.0], [1, 2, 1, 1])?);
    /// let v = Tensor::new(&device, &[4.0, 8.0], [1, 2, 1, 1])?;
    /// assert_eq!(q.attention(&k, &v, Attend::default())?.to_vec::<f32>()?, [6.0, 6.0]);
    /// assert_eq!(q.attention(&k, &v, Attend::CAUSAL)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// // a query behind the keys sees them all, or those of its window
    /// let last = q.narrow(1, 0, 1)?;
    /// let behind = Attend { place: QueryPlace::End, ..Attend::CAUSAL };
    /// assert_eq!(last.attention(&k, &v, behind)?.to_vec::<f32>()?, [6.0]);
    /// assert_eq!(last.attention(&k, &v, Attend { window: Some([0, 0]), ..behind })?.to_vec::<f32>()?, [8.0]);
    /// let second = Tensor::new(&device, &[false, true], [2])?;
    /// assert_eq!(q.attention(&k, &v, Attend::masked(&second))?.to_vec::<f32>()?, [8.0, 8.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn attention(&self, k: &Tensor, v: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
        attend.of(&[self, k, v], self.dims().last().copied().unwrap_or(1), [length(self), length(k)])
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
        attend.of(&[self], self.dims().last().copied().unwrap_or(1), [length(self); 2])
    }
}
