//! Which values there are, and how many: sets, counts and histograms, and draws by weights.

use remat_ops::compose;
use remat_ops::index::{NonZero, PutFn, Take};
use remat_types::{CallSite, DType, Error, ErrorKind, Result, axis_of};

use super::pointwise::promoted;
use crate::Tensor;
use crate::site::InOp;
use crate::tape::TapeCx;

impl Tensor {
    /// The values that there are, ascending, as a vector. Each NaN is one of its own. Reads their number: see
    /// [`Tensor::as_size`]. Errors: those of it.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 3, 2], [2, 2])?;
    /// assert_eq!(x.unique()?.to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn unique(&self) -> Result<Tensor> {
        let (sorted, _, starts, _) = self.runs("unique")?;
        Tensor::apply1(Take { axis: 0 }, &[&sorted, &starts])
    }

    /// The values that there are, ascending; the first place of each in row-major order; for each element the place of its value
    /// among them, in the shape of `self`; and how often each is there. Places and counts are I64.
    /// Errors: as [`Tensor::unique`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[3, 1, 3, 2], [2, 2])?;
    /// let (values, places, inverse, counts) = x.unique_all()?;
    /// assert_eq!((values.to_vec::<i32>()?, places.to_vec::<i64>()?), (vec![1, 2, 3], vec![1, 3, 0]));
    /// assert_eq!((inverse.to_vec::<i64>()?, counts.to_vec::<i64>()?), (vec![2, 0, 2, 1], vec![1, 1, 2]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "return_inverse")]
    #[doc(alias = "return_counts")]
    #[track_caller]
    pub fn unique_all(&self) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
        let (sorted, order, starts, is_start) = self.runs("unique_all")?;
        let values = Tensor::apply1(Take { axis: 0 }, &[&sorted, &starts])?;
        let places = Tensor::apply1(Take { axis: 0 }, &[&order, &starts])?;
        let group = (is_start.cumsum(0)? - 1)?;
        let cx = TapeCx::of(self);
        let inverse =
            compose::scatter(&cx, PutFn::Set, order.zeros_like()?, 0, order, group)?.shaped(self.shape().clone())?;
        let end = Tensor::full(&self.device(), [1], DType::I64, self.elems() as i64)?;
        let next = Tensor::concat(&[&starts, &end], 0)?.slice(0, 1..)?;
        let counts = if starts.elems() == 0 { starts.clone() } else { (&next - &starts)? };
        Ok((values, places, inverse, counts))
    }

    /// The elements in order, their places, where runs of equal ones start, and for each element whether one does.
    #[track_caller]
    fn runs(&self, op: &str) -> Result<(Tensor, Tensor, Tensor, Tensor)> {
        let site = CallSite::here();
        let n = self.elems();
        let (sorted, order) = self.shaped([n])?.sort(0, false)?;
        let values = sorted.detach();
        let is_start = if n == 0 {
            Tensor::zeros(&self.device(), [0], DType::Bool)?
        } else {
            let differs = values.slice(0, 1..)?.ne(&values.slice(0, ..-1)?)?;
            Tensor::concat(&[&Tensor::ones(&self.device(), [1], DType::Bool)?, &differs], 0)?
        };
        let size = is_start.sum()?.as_size().in_op_at(op, site)?;
        let starts = Tensor::apply1(NonZero { size }, &[&is_start])?.shaped([size])?;
        Ok((sorted, order, starts, is_start))
    }

    /// How often each number from 0 on is there: `y[i]` = the number of elements that are `i`, as I64, or the sum of their
    /// `weights`. At least `minlength` of them. Reads the largest number: see [`Tensor::as_size`].
    ///
    /// Errors: DType for other dtypes than integers; Axis unless of rank 1; Shape for other weights; Value or, at run time, Index
    /// for a negative number.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0, 2, 2], [3])?;
    /// assert_eq!(x.bincount(None, 4)?.to_vec::<i64>()?, [1, 0, 2, 0]);
    /// let weights = Tensor::new(&device, &[0.5, 1.0, 2.0], [3])?;
    /// assert_eq!(x.bincount(Some(&weights), 0)?.to_vec::<f32>()?, [0.5, 0.0, 3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Result<Tensor> {
        const NAME: &str = "bincount";
        let site = CallSite::here();
        if !self.dtype().is_int() {
            let text = format!("is not defined for {}", self.dtype());
            return Err(Error::new(ErrorKind::DType, text)).in_op_at(NAME, site);
        }
        if self.rank() != 1 {
            let text = format!("shape {} has rank {}, not 1", self.shape(), self.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op_at(NAME, site);
        }
        let src = match weights {
            Some(weights) if weights.shape() != self.shape() => {
                let text = format!("weights of shape {} for {}", weights.shape(), self.shape());
                return Err(Error::new(ErrorKind::Shape, text)).in_op_at(NAME, site);
            }
            Some(weights) => weights.clone(),
            None => Tensor::full(&self.device(), [], DType::I64, 1i64)?.broadcast_to(self.shape())?,
        };
        let least = if self.elems() == 0 { 0 } else { self.max()?.as_size().in_op_at(NAME, site)?.saturating_add(1) };
        let zeros = Tensor::zeros(&self.device(), [least.max(minlength)], src.dtype()).in_op_at(NAME, site)?;
        compose::scatter(&TapeCx::of(self), PutFn::Add, zeros, 0, self.clone(), src).in_op_at(NAME, site)
    }

    /// How many elements lie in each of `bins` equal intervals, in the dtype of `self`, or the sum of their `weights`; and the
    /// ends of the intervals, `[bins + 1]`. From `range`, or from the least to the largest element. With `density` the
    /// integral is 1. An interval has its lower end, the last one its upper end too; what lies outside does not count.
    ///
    /// Errors: DType for other dtypes than floats; Value for no bins or no range; Shape for other weights, and for the range of
    /// nothing.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[0.0, 1.0, 1.5, 4.0], [4])?;
    /// let (counts, ends) = x.histogram(4, None, None, false)?;
    /// assert_eq!((counts.to_vec::<f32>()?, ends.to_vec::<f32>()?), (vec![1.0, 2.0, 0.0, 1.0], vec![0.0, 1.0, 2.0, 3.0, 4.0]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn histogram(
        &self,
        bins: usize,
        range: Option<(f64, f64)>,
        weights: Option<&Tensor>,
        density: bool,
    ) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "histogram";
        let (cx, x) = (TapeCx::of(self), self.detach());
        let ends = compose::bin_edges(&cx, &x, bins, range, 0.5).in_op(NAME)?;
        let counts = compose::histogram(&cx, x, ends.clone(), weights.cloned()).in_op(NAME)?;
        if !density {
            return Ok((counts, ends));
        }
        let widths = (&ends.slice(0, 1..)? - &ends.slice(0, ..-1)?)?;
        Ok((((&counts / &counts.sum()?)? / widths)?, ends))
    }

    /// How many elements lie in each of `bins` equal intervals from `low` to `high`, or from the least to the largest element
    /// if these are equal. Errors: as [`Tensor::histogram`].
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 1.0], [3])?;
    /// assert_eq!(x.histc(4, 0.0, 3.0)?.to_vec::<f32>()?, [0.0, 2.0, 1.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn histc(&self, bins: usize, low: f64, high: f64) -> Result<Tensor> {
        let range = if low == high { None } else { Some((low, high)) };
        let (cx, x) = (TapeCx::of(self), self.detach());
        let ends = compose::bin_edges(&cx, &x, bins, range, 1.0).in_op("histc")?;
        compose::histogram(&cx, x, ends, None).in_op("histc")
    }

    /// Whether each element is among those of `test`, or is not if `invert`. NaN is not.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3], [3])?;
    /// let test = Tensor::new(&device, &[3, 1], [2])?;
    /// assert_eq!(x.isin(&test, false)?.to_vec::<bool>()?, [true, false, true]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn isin(&self, test: &Tensor, invert: bool) -> Result<Tensor> {
        let both = promoted(self.detach(), test.detach()).in_op("isin")?;
        compose::isin(&TapeCx::of(self), both[0].clone(), both[1].clone(), invert).in_op("isin")
    }

    /// `n` draws by the weights of the last axis, which need not add up to 1, as I64: `[.., n]`. Without `replacement` none is
    /// drawn twice. What has weight 0 is never drawn.
    ///
    /// Errors: DType for other dtypes than floats, or a wrong key; Axis for rank 0; Value for more draws than weights without
    /// replacement; when it runs Value for a weight that is negative or not finite, or fewer above 0 than are needed.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let p = Tensor::new(&device, &[0.0, 3.0, 0.0], [3])?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// assert_eq!(p.multinomial(&key, 4, true)?.to_vec::<i64>()?, [1; 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn multinomial(&self, key: &Tensor, n: usize, replacement: bool) -> Result<Tensor> {
        compose::multinomial(&TapeCx::of(self), self.detach(), key.clone(), n, replacement).in_op("multinomial")
    }

    /// The elements of `axis` in a random order. Errors: Axis; DType or Shape for a wrong key.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1, 2, 3, 4], [4])?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// assert_eq!(x.shuffle(&key, 0)?.sort(0, false)?.0.to_vec::<i32>()?, [1, 2, 3, 4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn shuffle(&self, key: &Tensor, axis: isize) -> Result<Tensor> {
        let axis = axis_of(axis, self.rank()).in_op("shuffle")?;
        compose::shuffle(&TapeCx::of(self), self.clone(), key.clone(), axis).in_op("shuffle")
    }
}
