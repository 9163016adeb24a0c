//! Numbers written into a program.

use remat_runtime::Device;
use remat_types::{Element, HostTensor, Result, Shape, bf16, f16};

use crate::Tensor;
use crate::site::InOp;

/// The element of a tensor that is written into a program.
///
/// Every element type but f64, so that floating-point literals without a suffix are f32: beside an f64 the rest of a model
/// would be computed in f64, too. f64 comes from [`Tensor::from_slice`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the element of a literal tensor",
    note = "floating-point literals are f32; for f64 use `Tensor::from_slice(&device, data, shape)`"
)]
pub trait Literal: Element {}

/// Nested arrays of literals, all of whose rows have equal lengths.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a literal tensor",
    note = "it is a number, or arrays of those; floating-point literals are f32, f64 comes from `Tensor::from_slice`"
)]
pub trait NestedLiteral {
    /// The numbers.
    type Item: Literal;

    /// Puts the extents behind `shape`.
    fn extents(shape: &mut Shape);

    /// Puts the numbers behind `data`.
    fn push_to(self, data: &mut Vec<Self::Item>);
}

macro_rules! literals {
    ($($t:ty),*) => { $(
        impl Literal for $t {}

        impl NestedLiteral for $t {
            type Item = $t;

            fn extents(_: &mut Shape) {}

            fn push_to(self, data: &mut Vec<$t>) {
                data.push(self);
            }
        }
    )* };
}
literals!(f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool);

impl<N: NestedLiteral, const LEN: usize> NestedLiteral for [N; LEN] {
    type Item = N::Item;

    fn extents(shape: &mut Shape) {
        shape.push(LEN);
        N::extents(shape);
    }

    fn push_to(self, data: &mut Vec<N::Item>) {
        self.into_iter().for_each(|row| row.push_to(data));
    }
}

impl Tensor {
    /// A tensor of nested arrays: the shape is theirs. [`tensor!`](crate::tensor!) writes the same with fewer brackets.
    /// Errors: Closed.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::of(&device, [[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.to_string(), "[[1.0, 2.0],\n [3.0, 4.0]]  f32[2, 2]");
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn of(device: &Device, nested: impl NestedLiteral) -> Result<Tensor> {
        fn host<N: NestedLiteral>(nested: N) -> Result<HostTensor> {
            let (mut shape, mut data) = (Shape::scalar(), Vec::new());
            N::extents(&mut shape);
            nested.push_to(&mut data);
            HostTensor::from_slice(&data, shape)
        }
        Tensor::from_host(device, &host(nested).in_op("of")?)
    }
}

/// A tensor on a device, written out: `tensor![&device; 1.0, 2.0]` is a vector, `tensor![&device; [1, 2], [3, 4]]` a matrix.
/// Floats are f32. Gives a [`Result`](remat_types::Result); rows of unequal length do not compile.
///
/// ```
/// use remat_tensor::tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let w = tensor![&device; [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]?;
/// assert_eq!((w.dims(), w.dtype().name()), (&[2, 3][..], "f32"));
/// let labels = tensor![&device; 3, 1, 2]?;
/// assert_eq!(labels.to_vec::<i32>()?, [3, 1, 2]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[macro_export]
macro_rules! tensor {
    ($device:expr; $($row:expr),* $(,)?) => {
        $crate::Tensor::of($device, [$($row),*])
    };
}
