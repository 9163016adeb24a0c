//! Tensors in ordinary host memory, for transfers to and from a device.

use std::sync::Arc;

use bytemuck::{cast_slice, cast_slice_mut, checked};

use crate::{DType, Element, Error, ErrorKind, Layout, Result, Shape};

/// A contiguous tensor in host memory. Clones share the bytes; writing to a shared one copies first.
///
/// The bytes begin at a multiple of eight, so that a slice of any element type is aligned.
#[derive(Clone)]
pub struct HostTensor {
    dtype: DType,
    shape: Shape,
    store: Store,
}

/// Memory outside the heap that holds a tensor's bytes: [`HostTensor::moved`].
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

#[derive(Clone)]
enum Store {
    Own(Arc<Vec<u64>>),
    Lent(SharedBytes),
}

/// An empty vector with room for `elems` elements, which the system may refuse: for sizes that come from shapes.
///
/// Errors: Io, with the bytes that were asked for.
pub fn vec_for<T>(elems: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(elems).map_err(|e| {
        let bytes = elems as u128 * size_of::<T>() as u128;
        Error::new(ErrorKind::Io, format!("no host memory for {bytes} bytes: {e}")).with_source(e)
    })?;
    Ok(room)
}

/// So many bytes of zeros, as words.
fn zeros(bytes: usize) -> Result<Vec<u64>> {
    let mut words = vec_for(bytes.div_ceil(8))?;
    words.resize(bytes.div_ceil(8), 0);
    Ok(words)
}

/// A copy of `bytes`, as words: they are written once, and not cleared before.
fn copied(bytes: &[u8]) -> Result<Vec<u64>> {
    let mut words: Vec<u64> = vec_for(bytes.len().div_ceil(8))?;
    let (whole, rest) = bytes.as_chunks::<8>();
    words.extend(whole.iter().map(|w| u64::from_ne_bytes(*w)));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words.push(u64::from_ne_bytes(last));
    }
    Ok(words)
}

impl HostTensor {
    /// A tensor of zeros (false). Errors: Shape if it is too large to address, Io if there is no memory for it.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let bytes = shape.checked_elems()? * dtype.size_bytes();
        Ok(HostTensor { dtype, shape, store: Store::Own(Arc::new(zeros(bytes)?)) })
    }

    /// A copy of bytes that fill `shape`. Errors: Io.
    fn filled(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Self> {
        Ok(HostTensor { dtype, shape, store: Store::Own(Arc::new(copied(bytes)?)) })
    }

    /// A tensor of `data` in row-major order. Errors: Shape if the number of elements differs, Io as all that allocate.
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if shape.checked_elems()? != data.len() {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{} elements do not fill shape {shape} of {} elements", data.len(), shape.elems()),
            ));
        }
        HostTensor::filled(T::DTYPE, shape, cast_slice(data))
    }

    /// A tensor of raw little-endian bytes. Errors: Shape for a wrong length, Format for a bool that is not 0 or 1.
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Self> {
        let shape = shape.into();
        let want = shape.checked_elems()? * dtype.size_bytes();
        if want != bytes.len() {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{} bytes for shape {shape} of {dtype}, which takes {want}", bytes.len()),
            ));
        }
        if dtype == DType::Bool
            && let Some(at) = bytes.iter().position(|&b| b > 1)
        {
            return Err(Error::new(ErrorKind::Format, format!("byte {at} of a bool tensor is {}", bytes[at])));
        }
        HostTensor::filled(dtype, shape, bytes)
    }

    /// The same tensor with its bytes in `memory`, where they are already and never change.
    ///
    /// Errors: Value if they are not there, or not aligned to eight.
    pub fn moved(&self, memory: SharedBytes) -> Result<Self> {
        let there: &[u8] = (*memory).as_ref();
        if there != self.bytes() || !there.as_ptr().addr().is_multiple_of(8) {
            return Err(Error::new(
                ErrorKind::Value,
                "a tensor moved to memory that holds other bytes, or not aligned",
            ));
        }
        Ok(HostTensor { dtype: self.dtype, shape: self.shape.clone(), store: Store::Lent(memory) })
    }

    /// True if the bytes are on the heap and no other tensor shares them: they are freed with this one.
    pub fn owns_bytes(&mut self) -> bool {
        match &mut self.store {
            Store::Own(words) => Arc::get_mut(words).is_some(),
            Store::Lent(_) => false,
        }
    }

    /// A rank-0 tensor.
    pub fn scalar<T: Element>(v: T) -> Self {
        HostTensor::from_slice(&[v], Shape::scalar()).expect("one element fills the rank-0 shape")
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of elements.
    pub fn elems(&self) -> usize {
        self.shape.elems()
    }

    /// The elements' bytes, row-major.
    pub fn bytes(&self) -> &[u8] {
        let n = self.elems() * self.dtype.size_bytes();
        match &self.store {
            Store::Own(words) => &cast_slice::<u64, u8>(words)[..n],
            Store::Lent(memory) => &(**memory).as_ref()[..n],
        }
    }

    /// The elements' bytes, to be changed; copies them first if they are shared. Bools must stay 0 or 1.
    ///
    /// # Panics
    /// If there is no memory for that copy; see [`HostTensor::try_bytes_mut`].
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.try_bytes_mut().expect("memory for a copy of shared bytes")
    }

    /// [`HostTensor::bytes_mut`], with an error of kind Io where there is no memory for a copy.
    pub fn try_bytes_mut(&mut self) -> Result<&mut [u8]> {
        let n = self.elems() * self.dtype.size_bytes();
        if !self.owns_bytes() {
            self.store = Store::Own(Arc::new(copied(self.bytes())?));
        }
        match &mut self.store {
            // nobody shares them
            Store::Own(words) => Ok(&mut cast_slice_mut::<u64, u8>(Arc::make_mut(words).as_mut_slice())[..n]),
            Store::Lent(_) => unreachable!("it was copied just now"),
        }
    }

    /// The elements. Errors: DType if they are of another type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.expect_dtype(T::DTYPE)?;
        checked::try_cast_slice(self.bytes())
            .map_err(|e| Error::new(ErrorKind::Format, format!("bytes are no {}: {e}", T::DTYPE)))
    }

    /// A copy of the elements. Errors: DType if they are of another type; Io.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let all = self.as_slice::<T>()?;
        let mut copy = vec_for(all.len())?;
        copy.extend_from_slice(all);
        Ok(copy)
    }

    /// The only element. Errors: Shape if there is not exactly one, DType if it is of another type.
    pub fn item<T: Element>(&self) -> Result<T> {
        match self.as_slice::<T>()? {
            [v] => Ok(*v),
            _ => Err(Error::new(ErrorKind::Shape, format!("shape {} holds not one element", self.shape))),
        }
    }

    /// Every element as f64.
    pub fn to_f64_vec(&self) -> Vec<f64> {
        fn conv<T: Element>(t: &HostTensor) -> Vec<f64> {
            t.as_slice::<T>().map(|s| s.iter().map(|v| v.to_f64()).collect()).unwrap_or_default()
        }
        crate::for_dtype!(self.dtype, T => conv::<T>(self))
    }

    /// Every element as i64, with [`Element::to_i64`]'s rules.
    pub fn to_i64_vec(&self) -> Vec<i64> {
        fn conv<T: Element>(t: &HostTensor) -> Vec<i64> {
            t.as_slice::<T>().map(|s| s.iter().map(|v| v.to_i64()).collect()).unwrap_or_default()
        }
        crate::for_dtype!(self.dtype, T => conv::<T>(self))
    }

    /// A tensor of `values` converted to `dtype` with [`Element::from_f64`]. Errors: Shape as `from_slice`.
    pub fn from_f64_slice(values: &[f64], dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        crate::for_dtype!(dtype, T => {
            let mut v: Vec<T> = vec_for(values.len())?;
            v.extend(values.iter().map(|&v| T::from_f64(v)));
            HostTensor::from_slice(&v, shape)
        })
    }

    /// The same bytes under another shape. Errors: Shape if the number of elements differs.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if shape.checked_elems()? != self.elems() {
            return Err(Error::new(ErrorKind::Shape, format!("shape {} does not reshape to {shape}", self.shape)));
        }
        Ok(HostTensor { shape, ..self.clone() })
    }

    /// The elements that `layout` selects of `bytes`, made contiguous. Errors: Shape if the layout leaves the bytes; Io if
    /// there is no memory for what a small storage was repeated to.
    pub fn gather(dtype: DType, layout: &Layout, bytes: &[u8]) -> Result<Self> {
        let size = dtype.size_bytes();
        if !layout.fits(bytes.len() / size) {
            return Err(Error::new(ErrorKind::Shape, format!("layout {layout:?} leaves {} bytes", bytes.len())));
        }
        layout.shape().checked_elems()?;
        if layout.is_contiguous() {
            let (lo, hi) = layout.span().expect("fits was checked");
            return HostTensor::filled(dtype, layout.shape().clone(), &bytes[lo * size..hi * size]);
        }
        let mut t = HostTensor::zeros(dtype, layout.shape().clone())?;
        for (dst, at) in t.try_bytes_mut()?.chunks_exact_mut(size).zip(layout.indices()) {
            dst.copy_from_slice(&bytes[at * size..(at + 1) * size]);
        }
        Ok(t)
    }

    fn expect_dtype(&self, dtype: DType) -> Result<()> {
        if self.dtype != dtype {
            return Err(Error::new(ErrorKind::DType, format!("elements are {}, not {dtype}", self.dtype)));
        }
        Ok(())
    }
}

impl PartialEq for HostTensor {
    /// Equal dtype, shape and bytes; so a NaN equals itself and -0 differs from 0.
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}
impl Eq for HostTensor {}

impl std::hash::Hash for HostTensor {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.dtype.hash(state);
        self.shape.hash(state);
        self.bytes().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_to_a_shared_tensor_copies() {
        let a = HostTensor::from_slice(&[1i32, 2], [2]).expect("fits");
        let mut b = a.clone();
        b.bytes_mut()[0] = 9;
        assert_eq!(a.to_vec::<i32>().expect("i32"), [1, 2]);
        assert_eq!(b.to_vec::<i32>().expect("i32"), [9, 2]);
    }

    #[test]
    fn a_moved_tensor_reads_the_same_and_is_copied_before_it_is_written() {
        /// Bytes that are aligned to eight.
        struct Words(Vec<u64>, std::ops::Range<usize>);
        impl AsRef<[u8]> for Words {
            fn as_ref(&self) -> &[u8] {
                &cast_slice(&self.0)[self.1.clone()]
            }
        }
        let at = |range| -> SharedBytes { Arc::new(Words(vec![2 << 32 | 1, 3, 2 << 32 | 1, 3], range)) };
        let mut a = HostTensor::from_slice(&[1i32, 2, 3], [3]).expect("fits");
        for wrong in [0..8, 0..16, 4..16, 8..20] {
            assert_eq!(a.moved(at(wrong)).expect_err("other bytes").kind(), ErrorKind::Value);
        }
        let unaligned: SharedBytes = Arc::new(Words(vec![1 << 32, 3 << 32 | 2], 4..16));
        assert_eq!(a.moved(unaligned).expect_err("not aligned").kind(), ErrorKind::Value);
        let mut b = a.moved(at(16..28)).expect("it is there");
        assert!(b == a && !b.owns_bytes());
        let c = b.clone();
        b.bytes_mut()[4] = 9;
        assert_eq!(b.to_vec::<i32>().expect("i32"), [1, 9, 3]);
        assert!(c == a && b.owns_bytes() && a.owns_bytes());
        let _shared = a.clone();
        assert!(!a.owns_bytes());
    }

    #[test]
    fn wrong_sizes_and_types_are_errors() {
        assert_eq!(HostTensor::from_slice(&[1u8], [2]).expect_err("1 of 2").kind(), ErrorKind::Shape);
        assert_eq!(HostTensor::scalar(1u8).as_slice::<i8>().expect_err("u8").kind(), ErrorKind::DType);
        assert_eq!(HostTensor::from_bytes(DType::Bool, [1], &[2]).expect_err("2").kind(), ErrorKind::Format);
        assert!(HostTensor::zeros(DType::F64, [usize::MAX / 4]).is_err());
    }

    #[test]
    fn memory_that_is_not_there_is_an_error_that_says_how_much() {
        // 32 TiB: more than a machine has, though no more than it can address
        const ELEMS: usize = 1 << 42;
        let e = HostTensor::zeros(DType::F64, [ELEMS]).expect_err("too much");
        assert!(e.kind() == ErrorKind::Io && e.message().contains(&(ELEMS * 8).to_string()), "{e}");
        let one = HostTensor::scalar(1.0f64);
        let all = Layout::contiguous(Shape::scalar()).broadcast_to(&Shape::from([ELEMS])).expect("repeats");
        assert_eq!(HostTensor::gather(DType::F64, &all, one.bytes()).expect_err("too much").kind(), ErrorKind::Io);
    }

    #[test]
    fn gather_reads_strided_bytes() {
        let a = HostTensor::from_slice(&[0i16, 1, 2, 3, 4, 5], [2, 3]).expect("fits");
        let t = Layout::contiguous([2, 3]).permute(&[1, 0]).expect("permutation");
        let g = HostTensor::gather(DType::I16, &t, a.bytes()).expect("fits");
        assert_eq!(g.to_vec::<i16>().expect("i16"), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn empty_and_rank_zero_tensors_exist() {
        assert_eq!(HostTensor::from_slice::<f32>(&[], [0, 3]).expect("empty").bytes().len(), 0);
        assert!(HostTensor::scalar(true).item::<bool>().expect("one"));
    }
}
