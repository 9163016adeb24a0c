//! Tensors as people read them: nested rows, aligned, every element as its dtype has it.

use std::fmt::{self, Formatter, Write as _};

use crate::{Element, HostTensor, bf16, f16, for_dtype};

/// Tensors of more elements than this are shown by their edges.
const WHOLE_UP_TO: usize = 1000;
/// So many elements at each end of an axis of a tensor that is shown by its edges.
const EDGE: usize = 3;
/// Rows that are longer go on in the next line.
const COLUMNS: usize = 100;
/// So many elements of a tensor are shown in one line for debugging.
const DEBUG_ELEMS: usize = 16;

/// An element as text.
trait Shown: Element {
    /// The shortest decimal number that reads as the same value; with `digits`, so many behind the point.
    fn shown(self, digits: Option<usize>) -> String;
}

macro_rules! exact {
    ($($t:ty),*) => { $(
        impl Shown for $t {
            fn shown(self, _: Option<usize>) -> String {
                self.to_string()
            }
        }
    )* };
}
exact!(bool, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! float {
    ($($t:ty),*) => { $(
        impl Shown for $t {
            fn shown(self, digits: Option<usize>) -> String {
                match digits {
                    Some(n) => format!("{self:.n$}"),
                    None => format!("{self:?}"),
                }
            }
        }
    )* };
}
float!(f32, f64);

/// The first of the f32s with few digits that `same` takes for the value: 16-bit floats have five at most.
fn few_digits(v: f32, same: impl Fn(f32) -> bool) -> String {
    let tries = (0..5).filter_map(|digits| format!("{v:.digits$e}").parse::<f32>().ok());
    format!("{:?}", tries.into_iter().find(|t| same(*t)).unwrap_or(v))
}

impl Shown for f16 {
    fn shown(self, digits: Option<usize>) -> String {
        match digits {
            Some(_) => self.to_f32().shown(digits),
            None => few_digits(self.to_f32(), |t| f16::from_f32(t) == self),
        }
    }
}
impl Shown for bf16 {
    fn shown(self, digits: Option<usize>) -> String {
        match digits {
            Some(_) => self.to_f32().shown(digits),
            None => few_digits(self.to_f32(), |t| bf16::from_f32(t) == self),
        }
    }
}

/// The places of an axis that are shown; `None` stands for those between.
fn places(extent: usize, whole: bool) -> Vec<Option<usize>> {
    if whole || extent <= 2 * EDGE {
        return (0..extent).map(Some).collect();
    }
    (0..EDGE).map(Some).chain([None]).chain((extent - EDGE..extent).map(Some)).collect()
}

/// Tensors of more axes are shown without brackets for each: nested rows of as many would say nothing, and printing them takes a
/// frame of the stack for each axis.
const MOST_NESTED: usize = 1000;

struct Printer<'a, T> {
    data: &'a [T],
    dims: &'a [usize],
    /// Whether all elements are shown.
    whole: bool,
    digits: Option<usize>,
    /// Columns of an element.
    width: usize,
}

impl<T: Shown> Printer<'_, T> {
    /// Calls `see` with every element that is shown of the block of `dims[axis..]` that begins at `at`.
    fn each(&self, axis: usize, at: usize, see: &mut dyn FnMut(T)) {
        let Some(&extent) = self.dims.get(axis) else { return see(self.data[at]) };
        let step: usize = self.dims[axis + 1..].iter().product();
        places(extent, self.whole).into_iter().flatten().for_each(|i| self.each(axis + 1, at + i * step, see));
    }

    fn block(&self, f: &mut Formatter<'_>, axis: usize, at: usize) -> fmt::Result {
        let Some(&extent) = self.dims.get(axis) else {
            return write!(f, "{:>width$}", self.data[at].shown(self.digits), width = self.width);
        };
        let step: usize = self.dims[axis + 1..].iter().product();
        let last = axis + 1 == self.dims.len();
        f.write_char('[')?;
        let mut column = axis + 1;
        for (n, place) in places(extent, self.whole).into_iter().enumerate() {
            if n > 0 {
                f.write_char(',')?;
                let full = last && column + self.width + 2 > COLUMNS;
                if !last || full {
                    // blocks of more axes stand further apart
                    let lines = if last { 1 } else { self.dims.len() - axis - 1 };
                    (0..lines).try_for_each(|_| f.write_char('\n'))?;
                    write!(f, "{:indent$}", "", indent = axis + 1)?;
                    column = axis + 1;
                } else {
                    f.write_char(' ')?;
                    column += 1;
                }
            }
            match place {
                Some(i) => self.block(f, axis + 1, at + i * step)?,
                None => f.write_str("...")?,
            }
            column += self.width + 1;
        }
        f.write_char(']')
    }
}

fn print<T: Shown>(t: &HostTensor, f: &mut Formatter<'_>) -> fmt::Result {
    let Ok(data) = t.to_vec::<T>() else { return Err(fmt::Error) };
    let flat = [data.len()];
    let mut p = Printer {
        data: &data,
        dims: if t.shape().rank() > MOST_NESTED { &flat } else { t.shape().dims() },
        whole: t.elems() <= WHOLE_UP_TO,
        digits: f.precision(),
        width: f.width().unwrap_or(0),
    };
    if t.elems() > 0 {
        let mut width = p.width;
        p.each(0, 0, &mut |v| width = width.max(v.shown(p.digits).chars().count()));
        p.width = width;
        p.block(f, 0, 0)?;
    } else {
        f.write_str("[]")?;
    }
    write!(f, "  {}{}", t.dtype(), t.shape())
}

impl fmt::Display for HostTensor {
    /// Nested rows with dtype and shape behind. Numbers are the shortest that read as the same value, or have as many digits
    /// as a precision says (`{:.3}`); a width is that of an element. Of more than 1,000 elements the edges are shown.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for_dtype!(self.dtype(), T => print::<T>(self, f))
    }
}

impl fmt::Debug for HostTensor {
    /// One line: dtype, shape and the first elements.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} [", self.dtype(), self.shape())?;
        let digits = f.precision();
        let shown = self.elems().min(DEBUG_ELEMS);
        for_dtype!(self.dtype(), T => {
            let bytes = &self.bytes()[..shown * size_of::<T>()];
            for (i, at) in bytes.chunks_exact(size_of::<T>()).enumerate() {
                let v = bytemuck::checked::pod_read_unaligned::<T>(at);
                write!(f, "{}{}", if i > 0 { ", " } else { "" }, v.shown(digits))?;
            }
            Ok(())
        })?;
        f.write_str(if shown < self.elems() { ", ...]" } else { "]" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    fn host<T: Element>(data: &[T], shape: impl Into<Shape>) -> HostTensor {
        HostTensor::from_slice(data, shape).expect("fits")
    }

    #[test]
    fn rows_are_nested_and_aligned() {
        let t = host(&[1.0f32, -2.5, 0.1, 1e-20, f32::NAN, f32::NEG_INFINITY], [2, 3]);
        assert_eq!(t.to_string(), "[[  1.0,  -2.5,   0.1],\n [1e-20,   NaN,  -inf]]  f32[2, 3]");
        assert_eq!(format!("{t:.1}"), "[[ 1.0, -2.5,  0.1],\n [ 0.0,  NaN, -inf]]  f32[2, 3]");
        assert_eq!(format!("{:7.1}", host(&[1.0f32], [1])), "[    1.0]  f32[1]");
        let deep = host(&[1, 2, 3, 4], [2, 1, 2]);
        assert_eq!(deep.to_string(), "[[[1, 2]],\n\n [[3, 4]]]  i32[2, 1, 2]");
        assert_eq!(host(&[7u8], []).to_string(), "7  u8[]");
        assert_eq!(host::<f32>(&[], [0, 3]).to_string(), "[]  f32[0, 3]");
    }

    #[test]
    fn a_tensor_of_very_many_axes_is_a_row() {
        let t = host(&[7u8], vec![1; 100_000].as_slice());
        assert!(t.to_string().starts_with("[7]  u8[1, 1, "));
    }

    #[test]
    fn elements_are_what_their_dtype_says() {
        assert_eq!(host(&[i64::MAX, -1], [2]).to_string(), format!("[{}, {:>19}]  i64[2]", i64::MAX, -1));
        assert_eq!(host(&[true, false], [2]).to_string(), "[ true, false]  bool[2]");
        assert_eq!(host(&[0.1f32, -0.0], [2]).to_string(), "[ 0.1, -0.0]  f32[2]");
        let half = [f16::from_f32(0.1), f16::from_f32(65504.0), f16::INFINITY];
        assert_eq!(host(&half, [3]).to_string(), "[    0.1, 65500.0,     inf]  f16[3]");
        assert_eq!(host(&[bf16::from_f32(0.1)], [1]).to_string(), "[0.1]  bf16[1]");
        assert_eq!(format!("{:?}", host(&[u64::MAX], [1])), format!("u64[1] [{}]", u64::MAX));
    }

    #[test]
    fn every_16_bit_float_reads_as_itself() {
        for bits in 0..=u16::MAX {
            let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            let read = |text: String| text.parse::<f32>().expect("a number");
            assert!(h.is_nan() || f16::from_f32(read(h.shown(None))) == h, "{h:?}");
            assert!(b.is_nan() || bf16::from_f32(read(b.shown(None))) == b, "{b:?}");
        }
    }

    #[test]
    fn large_tensors_show_their_edges_and_long_rows_go_on() {
        let t = host(&(0..1200).collect::<Vec<i32>>(), [2, 600]);
        assert_eq!(
            t.to_string(),
            "[[   0,    1,    2, ...,  597,  598,  599],\n [ 600,  601,  602, ..., 1197, 1198, 1199]]  i32[2, 600]"
        );
        let long = host(&[100; 60], [60]).to_string();
        assert_eq!(long.lines().count(), 3, "{long}");
        assert!(long.lines().all(|l| l.len() <= COLUMNS + 9), "{long}");
        assert!(long.lines().skip(1).all(|l| l.starts_with(" 100")), "{long}");
        assert_eq!(format!("{:?}", host(&[1; 20], [20])).matches('1').count(), 16);
    }
}
