//! Arguments that name one of several things.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat::tensor::{BagMode, Between, Beyond, BoxForm, Colour, FftNorm, Interpolate, MatrixNorm, PadMode};
use remat::{Padding, Reduction};

pub(crate) use remat::ops::compose::{Interpolation, ScatterReduce};
pub(crate) use remat::ops::index::PutFn;
pub(crate) use remat::ops::order::CumulateFn;

/// A choice among several things. Each has a name.
pub(crate) trait Choice: Copy + 'static {
    /// All of them.
    const ALL: &'static [(&'static str, Self)];
}

/// The choice of that name. Errors: ValueError, which lists all names.
pub(crate) fn of_name<T: Choice>(name: &str) -> PyResult<T> {
    let found = T::ALL.iter().find(|(n, _)| *n == name);
    found.map(|(_, v)| *v).ok_or_else(|| {
        let all: Vec<&str> = T::ALL.iter().map(|(n, _)| *n).collect();
        PyValueError::new_err(format!("`{name}` is none of {}", all.join(", ")))
    })
}

macro_rules! choices {
    ($($t:ident { $($name:literal $variant:ident),* $(,)? })*) => { $(
        impl Choice for $t {
            const ALL: &'static [(&'static str, Self)] = &[$(($name, $t::$variant)),*];
        }
    )* };
}
choices! {
    Reduction { "none" None, "sum" Sum, "mean" Mean }
    Interpolation { "linear" Linear, "lower" Lower, "higher" Higher, "midpoint" Midpoint, "nearest" Nearest }
    PutFn { "set" Set, "add" Add, "mul" Mul, "max" Max, "min" Min }
    ScatterReduce { "sum" Sum, "prod" Prod, "mean" Mean, "amax" Amax, "amin" Amin }
    CumulateFn { "sum" Sum, "prod" Prod, "max" Max, "min" Min, "logsumexp" LogSumExp }
    FftNorm { "backward" Backward, "ortho" Ortho, "forward" Forward }
    BagMode { "sum" Sum, "mean" Mean, "max" Max }
    BoxForm { "xyxy" Corners, "xywh" CornerSize, "cxcywh" CentreSize }
    Colour {
        "rgb_to_gray" RgbToGray, "bgr_to_gray" BgrToGray, "gray_to_rgb" GrayToRgb, "gray_to_bgr" GrayToBgr,
        "rgb_to_bgr" RgbToBgr, "bgr_to_rgb" BgrToRgb, "rgb_to_yuv" RgbToYuv, "bgr_to_yuv" BgrToYuv,
        "yuv_to_rgb" YuvToRgb, "yuv_to_bgr" YuvToBgr,
    }
    Between { "nearest" Nearest, "linear" Linear, "cubic" Cubic }
    Beyond { "zeros" Zeros, "edge" Edge, "reflect" Reflect, "reflect_edge" ReflectEdge, "wrap" Wrap }
    MatrixNorm { "fro" Frobenius, "nuc" Nuclear, "2" Spectral, "1" Columns, "inf" Rows }
    PadMode { "zeros" Zeros, "reflect" Reflect, "replicate" Replicate, "circular" Circular }
    Interpolate {
        "nearest" Nearest, "nearest_exact" NearestExact, "linear" Linear, "cubic" Cubic, "area" Area,
    }
}

/// Extents of `D` axes: a number for all, or one of each.
pub(crate) fn extents<const D: usize>(x: &Bound<'_, PyAny>) -> PyResult<[usize; D]> {
    match x.extract::<usize>() {
        Ok(n) => Ok([n; D]),
        Err(_) => {
            let all: Vec<usize> = x.extract()?;
            let n = all.len();
            all.try_into().map_err(|_| PyValueError::new_err(format!("{n} numbers for {D} axes")))
        }
    }
}

/// Padding of `D` axes: a number for all, one of each, or a pair `(begin, end)` of each.
pub(crate) fn padding<const D: usize>(x: &Bound<'_, PyAny>) -> PyResult<Padding<D>> {
    match x.extract::<Vec<[usize; 2]>>() {
        Ok(pairs) => {
            let n = pairs.len();
            let pairs: [[usize; 2]; D] =
                pairs.try_into().map_err(|_| PyValueError::new_err(format!("{n} pairs for {D} axes")))?;
            Ok(Padding::from(pairs))
        }
        Err(_) => Ok(Padding::from(extents::<D>(x)?)),
    }
}
