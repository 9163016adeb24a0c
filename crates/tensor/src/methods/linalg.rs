//! Products.

use remat_ops::OpRef;
use remat_ops::linalg::{MatMul, MatMulWide};
use remat_ops::shape::Reshape;
use remat_types::{Error, ErrorKind, Result, Shape};

use crate::Tensor;
use crate::site::InOp;

impl Tensor {
    /// The matrix product, batched over leading axes with broadcasting: `[.., m, k] x [.., k, n] -> [.., m, n]`.
    /// A vector on the left is a row, on the right a column, and its axis is not in the result. Transposed operands are
    /// not copied. Errors: Shape; DType; Axis for rank 0.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// let v = Tensor::new(&device, &[1.0, -1.0], [2])?;
    /// assert_eq!(a.matmul(&a)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// assert_eq!(a.matmul(&v)?.to_vec::<f32>()?, [-1.0, -1.0]);
    /// assert_eq!(v.matmul(&a)?.to_vec::<f32>()?, [-2.0, -2.0]);
    /// assert_eq!(v.matmul(&v)?.item::<f32>()?, 2.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "mm")]
    #[doc(alias = "bmm")]
    #[doc(alias = "dot")]
    #[track_caller]
    pub fn matmul(&self, b: &Tensor) -> Result<Tensor> {
        self.product(b, MatMul {})
    }

    /// As [`Tensor::matmul`], with a result of the type that the product is summed in: f32 for f16 and bf16, i32 for i8,
    /// u8 and i16; f32, f64, i32 and i64 stay. Errors: those of `matmul`; DType for other types.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[100i8, 100, 0, -128], [2, 2])?;
    /// assert_eq!(a.matmul_wide(&a)?.to_vec::<i32>()?, [10_000, -2_800, 0, 16_384]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul_wide(&self, b: &Tensor) -> Result<Tensor> {
        self.product(b, MatMulWide {})
    }

    #[track_caller]
    fn product(&self, b: &Tensor, op: impl Into<OpRef>) -> Result<Tensor> {
        let (row, column) = (self.rank() == 1, b.rank() == 1);
        if !row && !column {
            return Tensor::apply1(op, &[self, b]);
        }
        let a = if row { self.unsqueeze(0)? } else { self.clone() };
        let b = if column { b.unsqueeze(1)? } else { b.clone() };
        let y = Tensor::apply_owned(op, [a, b])?;
        let rank = y.rank();
        // of the last two axes, a row's and a column's go
        let stays = |a: &usize| !(row && a + 2 == rank || column && a + 1 == rank);
        let shape: Shape = (0..rank).filter(stays).map(|a| y.dims()[a]).collect();
        Tensor::apply_owned(Reshape { shape }, [y])
    }

    /// `y[i, j] = a[i] b[j]` of two vectors. Errors: Axis for another rank; DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1, 2], [2])?;
    /// let b = Tensor::new(&device, &[10, 20, 30], [3])?;
    /// assert_eq!(a.outer(&b)?.to_vec::<i32>()?, [10, 20, 30, 20, 40, 60]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn outer(&self, b: &Tensor) -> Result<Tensor> {
        if let Some(t) = [self, b].into_iter().find(|t| t.rank() != 1) {
            let text = format!("a factor has shape {}: rank {}, not 1", t.shape(), t.rank());
            return Err(Error::new(ErrorKind::Axis, text)).in_op("outer");
        }
        self.unsqueeze(1)?.mul(b)
    }
}
