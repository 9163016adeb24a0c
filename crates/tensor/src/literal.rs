//! Numbers written into a program.

use remat_types::{Element, HostTensor, Result, Shape, bf16, f16};

/// The element of a tensor that is written into a program.
///
/// Every element type but f64, so that floating-point literals without a suffix are f32: beside an f64 the rest of a model
/// would be computed in f64, too. f64 comes from [`Tensor::from_slice`](crate::Tensor::from_slice).
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

/// The nested arrays as a tensor of the host. Errors: Io.
pub(crate) fn host<N: NestedLiteral>(nested: N) -> Result<HostTensor> {
    let (mut shape, mut data) = (Shape::scalar(), Vec::new());
    N::extents(&mut shape);
    nested.push_to(&mut data);
    HostTensor::from_slice(&data, shape)
}
