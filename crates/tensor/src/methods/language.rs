//! Parts of language models beside attention: rotary embeddings and gated units.

use remat_types::{DType, Error, ErrorKind, Result, axis_of};

use crate::Tensor;
use crate::site::InOp;

/// Which numbers of a row [`Tensor::rope`] turns together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopePairs {
    /// Number `i` and number `i + w / 2` of the `w` that are turned: GPT-NeoX, Llama in Hugging Face's layout.
    #[default]
    Halves,
    /// Numbers `2 i` and `2 i + 1`: the paper, GPT-J.
    Neighbours,
}

/// How [`Tensor::rope`] turns.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a> {
    /// Pair `i` of `w / 2` turns by `base^(-2 i / w)` for each step.
    pub base: f64,
    /// How many numbers of a row are turned, from the first on; all if `None`.
    pub width: Option<usize>,
    /// Which numbers are a pair.
    pub pairs: RopePairs,
    /// The place of the first row.
    pub offset: usize,
    /// The place of each row, `[t]` or `[n, t]`, in the stead of the offset and those after it.
    pub positions: Option<&'a Tensor>,
    /// Places are divided by this: longer texts than a model was trained with (Chen et al., 2023, arXiv:2306.15595).
    pub scale: f64,
}

impl Default for Rope<'_> {
    fn default() -> Self {
        Rope { base: 10_000.0, width: None, pairs: RopePairs::Halves, offset: 0, positions: None, scale: 1.0 }
    }
}

impl Tensor {
    /// Rotary embeddings (Su et al., 2021, arXiv:2104.09864) of queries or keys `[n, t, heads, d]`: pairs of numbers of a row are turned
    /// by an angle that grows with the row's place, so that products of two rows depend on how far they are apart.
    ///
    /// The angles are computed in f32, in f64 for f64. Errors: Axis for another rank; Shape for an odd width, one above `d`, or
    /// positions that do not fit; DType for other than floats; Value for a base or scale that is not positive and finite.
    ///
    /// ```
    /// # use remat_tensor::{Rope, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 0.0, 1.0, 0.0], [1, 2, 1, 2])?;
    /// let y = x.rope(Rope::default())?.to_vec::<f32>()?;
    /// assert!(y.iter().zip([1.0, 0.0, 1f32.cos(), 1f32.sin()]).all(|(a, b)| (a - b).abs() < 1e-6));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rope(&self, rope: Rope<'_>) -> Result<Tensor> {
        let [_, t, _, d] = *self.dims() else {
            let text = format!("shape {} has rank {}; it must be [n, t, heads, d]", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("rope");
        };
        let width = rope.width.unwrap_or(d);
        if !width.is_multiple_of(2) || width > d {
            let text = format!("a width of {width} of rows of {d}; it must be even and at most that");
            return Err(Error::new(ErrorKind::Shape, text)).in_op("rope");
        }
        let positive = |v: f64| v > 0.0 && v.is_finite();
        if !positive(rope.base) || !positive(rope.scale) {
            let text = format!("base {}, scale {}; both must be positive and finite", rope.base, rope.scale);
            return Err(Error::new(ErrorKind::Value, text)).in_op("rope");
        }
        if width == 0 {
            return Ok(self.clone());
        }
        let device = self.device();
        let real = if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let places = match rope.positions {
            Some(p) => {
                let fits =
                    matches!(p.dims(), [m] if *m == t) || matches!(p.dims(), [n, m] if *m == t && *n == self.dims()[0]);
                if !fits {
                    let text = format!("positions of shape {} for {} rows of shape {}", p.shape(), t, self.shape());
                    return Err(Error::new(ErrorKind::Shape, text)).in_op("rope");
                }
                p.cast(real)?
            }
            None => {
                let start = rope.offset as i64;
                Tensor::arange(&device, start, start.saturating_add(t as i64), 1, DType::I64)?.cast(real)?
            }
        };
        let half = width / 2;
        let steps: Vec<f64> = (0..half).map(|i| rope.base.powf(-2.0 * i as f64 / width as f64) / rope.scale).collect();
        let steps = Tensor::from_slice(&device, &steps, [half])?.cast(real)?;
        // [.., t, 1, half], beside heads
        let angles = places.unsqueeze(-1)?.mul(&steps)?.unsqueeze(-2)?;
        let (cos, sin) = (angles.cos()?.cast(self.dtype())?, angles.sin()?.cast(self.dtype())?);
        let turned = self.narrow(-1, 0, width)?;
        let (a, b) = match rope.pairs {
            RopePairs::Halves => (turned.narrow(-1, 0, half)?, turned.narrow(-1, half as isize, half)?),
            RopePairs::Neighbours => (turned.slice_step(-1, 0.., 2)?, turned.slice_step(-1, 1.., 2)?),
        };
        let first = a.mul(&cos)?.sub(b.mul(&sin)?)?;
        let second = a.mul(&sin)?.add(b.mul(&cos)?)?;
        let y = match rope.pairs {
            RopePairs::Halves => Tensor::concat(&[&first, &second], -1)?,
            RopePairs::Neighbours => Tensor::stack(&[&first, &second], -1)?.flatten(-2, -1)?,
        };
        if width == d {
            return Ok(y);
        }
        Tensor::concat(&[&y, &self.narrow(-1, width as isize, d - width)?], -1)
    }

    /// The halves of `axis`. Errors: Axis; Shape for an odd extent.
    #[track_caller]
    fn halves(&self, axis: isize, name: &str) -> Result<(Tensor, Tensor)> {
        let at = axis_of(axis, self.rank()).in_op(name)?;
        let n = self.dims()[at];
        if !n.is_multiple_of(2) {
            let text = format!("shape {}: axis {at} has {n} elements, which is odd", self.shape());
            return Err(Error::new(ErrorKind::Shape, text)).in_op(name);
        }
        let half = n / 2;
        Ok((self.narrow(axis, 0, half)?, self.narrow(axis, half as isize, half)?))
    }

    /// The gated linear unit (Dauphin et al., 2017): the first half of `axis` times the sigmoid of the second. Errors: Axis, DType; Shape for an
    /// odd extent.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3.0, 0.0], [2])?;
    /// assert_eq!(x.glu(0)?.to_vec::<f32>()?, [1.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn glu(&self, axis: isize) -> Result<Tensor> {
        let (a, b) = self.halves(axis, "glu")?;
        a.mul(b.sigmoid()?)
    }

    /// The first half of `axis` through [`Tensor::silu`], times the second (Shazeer, 2020, arXiv:2002.05202). Errors: as [`Tensor::glu`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 5.0], [2])?;
    /// assert_eq!(x.swiglu(0)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn swiglu(&self, axis: isize) -> Result<Tensor> {
        let (a, b) = self.halves(axis, "swiglu")?;
        a.silu()?.mul(b)
    }

    /// The first half of `axis` through [`Tensor::gelu`], times the second (Shazeer, 2020). Errors: as [`Tensor::glu`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 5.0], [2])?;
    /// assert_eq!(x.geglu(0)?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn geglu(&self, axis: isize) -> Result<Tensor> {
        let (a, b) = self.halves(axis, "geglu")?;
        a.gelu()?.mul(b)
    }

    /// The first half of `axis` through [`Tensor::relu`], times the second (Shazeer, 2020). Errors: as [`Tensor::glu`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[2.0, 5.0], [2])?;
    /// assert_eq!(x.reglu(0)?.to_vec::<f32>()?, [10.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn reglu(&self, axis: isize) -> Result<Tensor> {
        let (a, b) = self.halves(axis, "reglu")?;
        a.relu()?.mul(b)
    }
}
