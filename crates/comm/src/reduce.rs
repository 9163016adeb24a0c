//! Reductions of elements, one rank's after the other's.

use bytemuck::{cast_slice, cast_slice_mut};
use remat_types::{DType, Error, ErrorKind, Result, bf16, f16};
use serde::{Deserialize, Serialize};

/// How elements of several ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Their sum; integers wrap.
    Sum,
    /// Their sum, divided by the number of ranks; of floats alone.
    Mean,
    /// The greatest; NaN if one is.
    Max,
    /// The least; NaN if one is.
    Min,
    /// Their product; integers wrap.
    Product,
}

impl Reduction {
    /// A short lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Mean => "mean",
            Reduction::Max => "max",
            Reduction::Min => "min",
            Reduction::Product => "product",
        }
    }

    /// Errors (DType): bool has no sum and no mean, an integer has no mean.
    pub fn check(self, dtype: DType) -> Result<()> {
        let has = match self {
            Reduction::Sum => dtype != DType::Bool,
            Reduction::Mean => dtype.is_float(),
            Reduction::Max | Reduction::Min | Reduction::Product => true,
        };
        match has {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorKind::DType, format!("{dtype} has no {} over ranks; cast it first", self.name())))
            }
        }
    }
}

/// `y = y (reduction) x`, element by element. Both are contiguous elements of `dtype`, aligned to their size.
pub(crate) fn accumulate(reduction: Reduction, dtype: DType, y: &mut [u8], x: &[u8]) {
    match dtype {
        DType::F16 => numbers::<f16>(reduction, y, x),
        DType::BF16 => numbers::<bf16>(reduction, y, x),
        DType::F32 => numbers::<f32>(reduction, y, x),
        DType::F64 => numbers::<f64>(reduction, y, x),
        DType::I8 => numbers::<i8>(reduction, y, x),
        DType::I16 => numbers::<i16>(reduction, y, x),
        DType::I32 => numbers::<i32>(reduction, y, x),
        DType::I64 => numbers::<i64>(reduction, y, x),
        // a bool is 0 or 1, and these are its reductions
        DType::U8 | DType::Bool => numbers::<u8>(reduction, y, x),
        DType::U16 => numbers::<u16>(reduction, y, x),
        DType::U32 => numbers::<u32>(reduction, y, x),
        DType::U64 => numbers::<u64>(reduction, y, x),
    }
}

/// Divides the sum of `size` ranks, for a mean.
pub(crate) fn finish(reduction: Reduction, dtype: DType, y: &mut [u8], size: usize) {
    if reduction != Reduction::Mean || size == 1 {
        return;
    }
    match dtype {
        DType::F16 => {
            cast_slice_mut::<u8, f16>(y).iter_mut().for_each(|y| *y = f16::from_f32(y.to_f32() / size as f32))
        }
        DType::BF16 => {
            cast_slice_mut::<u8, bf16>(y).iter_mut().for_each(|y| *y = bf16::from_f32(y.to_f32() / size as f32))
        }
        DType::F32 => cast_slice_mut::<u8, f32>(y).iter_mut().for_each(|y| *y /= size as f32),
        DType::F64 => cast_slice_mut::<u8, f64>(y).iter_mut().for_each(|y| *y /= size as f64),
        _ => {}
    }
}

/// The operations that a reduction needs of a type.
trait Number: bytemuck::Pod {
    fn plus(self, x: Self) -> Self;
    fn times(self, x: Self) -> Self;
    fn greater(self, x: Self) -> Self;
    fn lesser(self, x: Self) -> Self;
}

fn numbers<T: Number>(reduction: Reduction, y: &mut [u8], x: &[u8]) {
    let (y, x): (&mut [T], &[T]) = (cast_slice_mut(y), cast_slice(x));
    // one loop for each, so that each is vectors
    match reduction {
        Reduction::Sum | Reduction::Mean => y.iter_mut().zip(x).for_each(|(y, x)| *y = y.plus(*x)),
        Reduction::Product => y.iter_mut().zip(x).for_each(|(y, x)| *y = y.times(*x)),
        Reduction::Max => y.iter_mut().zip(x).for_each(|(y, x)| *y = y.greater(*x)),
        Reduction::Min => y.iter_mut().zip(x).for_each(|(y, x)| *y = y.lesser(*x)),
    }
}

macro_rules! integer {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn plus(self, x: Self) -> Self { self.wrapping_add(x) }
            fn times(self, x: Self) -> Self { self.wrapping_mul(x) }
            fn greater(self, x: Self) -> Self { self.max(x) }
            fn lesser(self, x: Self) -> Self { self.min(x) }
        }
    )*};
}
integer!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! float {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn plus(self, x: Self) -> Self { self + x }
            fn times(self, x: Self) -> Self { self * x }
            fn greater(self, x: Self) -> Self { if x > self || x.is_nan() { x } else { self } }
            fn lesser(self, x: Self) -> Self { if x < self || x.is_nan() { x } else { self } }
        }
    )*};
}
float!(f32, f64, f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced<T: bytemuck::Pod>(reduction: Reduction, dtype: DType, values: &[[T; 2]]) -> [T; 2] {
        let mut y = values[0];
        for x in &values[1..] {
            accumulate(reduction, dtype, cast_slice_mut(&mut y), cast_slice(x));
        }
        finish(reduction, dtype, cast_slice_mut(&mut y), values.len());
        y
    }

    #[test]
    fn floats_are_reduced_in_order_and_nan_stays() {
        let x = [[1e8f32, 1.0], [1.0, f32::NAN], [-1e8, 2.0]];
        assert_eq!(reduced(Reduction::Sum, DType::F32, &x)[0], (1e8f32 + 1.0) - 1e8);
        for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min, Reduction::Product] {
            assert!(reduced(reduction, DType::F32, &x)[1].is_nan(), "{reduction:?}");
        }
        assert_eq!(reduced(Reduction::Max, DType::F32, &x)[0], 1e8);
        assert_eq!(reduced(Reduction::Min, DType::F32, &x)[0], -1e8);
        assert_eq!(reduced(Reduction::Mean, DType::F64, &[[1.0f64, 2.0], [2.0, 4.0]]), [1.5, 3.0]);
        let half = |v| [f16::from_f32(v); 2];
        assert_eq!(reduced(Reduction::Mean, DType::F16, &[half(1.0), half(2.0)]), half(1.5));
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(reduced(Reduction::Sum, DType::U8, &[[200u8, 1], [100, 1]]), [44, 2]);
        assert_eq!(reduced(Reduction::Product, DType::I8, &[[64i8, 3], [4, -2]]), [0, -6]);
        assert_eq!(reduced(Reduction::Max, DType::I64, &[[-5i64, 3], [4, -2]]), [4, 3]);
    }

    #[test]
    fn only_reductions_that_a_dtype_has() {
        for (reduction, dtype) in
            [(Reduction::Sum, DType::Bool), (Reduction::Mean, DType::I32), (Reduction::Mean, DType::Bool)]
        {
            let e = reduction.check(dtype).expect_err("there is none");
            assert_eq!(e.kind(), ErrorKind::DType);
            assert!(e.message().contains(dtype.name()), "{e}");
        }
        Reduction::Max.check(DType::Bool).expect("any");
        Reduction::Sum.check(DType::U16).expect("wraps");
    }
}
