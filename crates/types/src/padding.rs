//! Padding: places around an image, for a window that slides over it.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Places before the first and after the last one of each of `D` axes; the two need not be as many.
///
/// A number, or one for each axis, means both sides; `[before, after]` of each axis says both. So is the serial form: a list of
/// numbers where both sides of every axis are alike, as it was before they could differ, else of pairs.
///
/// ```
/// # use remat_types::Padding;
/// assert_eq!(Padding::from([1, 2]), Padding { begin: [1, 2], end: [1, 2] });
/// assert_eq!(Padding::from([[0, 1], [2, 2]]), Padding { begin: [0, 2], end: [1, 2] });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Padding<const D: usize = 2> {
    /// Before the first place: of two axes, above and to the left.
    pub begin: [usize; D],
    /// After the last place: of two axes, below and to the right.
    pub end: [usize; D],
}

impl<const D: usize> Padding<D> {
    /// Nothing on any side.
    pub const NONE: Self = Padding { begin: [0; D], end: [0; D] };

    /// True if there is nothing on any side.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The padding before and after the places of an axis.
    ///
    /// # Panics
    /// If there is no such axis.
    pub fn axis(&self, axis: usize) -> [usize; 2] {
        [self.begin[axis], self.end[axis]]
    }

    /// Padding with which the number of windows of stride 1 is the number of places, PyTorch's `padding="same"`. It
    /// is `dilation (kernel - 1)` in all; an odd one is at the end.
    pub fn same(kernel: [usize; D], dilation: [usize; D]) -> Self {
        let all: [usize; D] = std::array::from_fn(|a| dilation[a].saturating_mul(kernel[a].saturating_sub(1)));
        Padding::halves(all)
    }

    /// Padding with which windows are `ceil(size / stride)`, ONNX's `SAME_UPPER` and TensorFlow's `SAME`:
    /// `(ceil(size / stride) - 1) stride + dilation (kernel - 1) + 1 - size` in all, or none if that is negative; the odd
    /// one is at the end. A stride of 0, which no op takes, counts as 1.
    pub fn same_upper(size: [usize; D], kernel: [usize; D], stride: [usize; D], dilation: [usize; D]) -> Self {
        Padding::halves(std::array::from_fn(|a| {
            let stride = stride[a].max(1);
            let last = size[a].div_ceil(stride).saturating_sub(1).saturating_mul(stride);
            let reach = dilation[a].saturating_mul(kernel[a].saturating_sub(1)).saturating_add(1);
            last.saturating_add(reach).saturating_sub(size[a])
        }))
    }

    /// As [`Padding::same_upper`] with the odd one at the beginning, ONNX's `SAME_LOWER`.
    pub fn same_lower(size: [usize; D], kernel: [usize; D], stride: [usize; D], dilation: [usize; D]) -> Self {
        let Padding { begin, end } = Padding::same_upper(size, kernel, stride, dilation);
        Padding { begin: end, end: begin }
    }

    /// So much in all, shared out between the two sides of each axis.
    fn halves(all: [usize; D]) -> Self {
        Padding { begin: all.map(|all| all / 2), end: all.map(|all| all.div_ceil(2)) }
    }

    fn pairs(&self) -> [[usize; 2]; D] {
        std::array::from_fn(|a| self.axis(a))
    }
}

impl<const D: usize> Default for Padding<D> {
    fn default() -> Self {
        Padding::NONE
    }
}

impl<const D: usize> From<usize> for Padding<D> {
    fn from(both: usize) -> Self {
        Padding::from([both; D])
    }
}

impl<const D: usize> From<[usize; D]> for Padding<D> {
    fn from(both: [usize; D]) -> Self {
        Padding { begin: both, end: both }
    }
}

impl<const D: usize> From<[[usize; 2]; D]> for Padding<D> {
    fn from(pairs: [[usize; 2]; D]) -> Self {
        Padding { begin: pairs.map(|[begin, _]| begin), end: pairs.map(|[_, end]| end) }
    }
}

impl<const D: usize> fmt::Debug for Padding<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.begin == self.end { self.begin.fmt(f) } else { self.pairs().fmt(f) }
    }
}

/// The serial form of an axis.
#[derive(Deserialize)]
#[serde(untagged)]
enum Sides {
    Both(usize),
    Each([usize; 2]),
}

impl<const D: usize> Serialize for Padding<D> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.begin == self.end { to.collect_seq(self.begin) } else { to.collect_seq(self.pairs()) }
    }
}

impl<'de, const D: usize> Deserialize<'de> for Padding<D> {
    fn deserialize<R: Deserializer<'de>>(from: R) -> Result<Self, R::Error> {
        let axes = Vec::<Sides>::deserialize(from)?;
        let pairs = axes.into_iter().map(|sides| match sides {
            Sides::Both(n) => [n, n],
            Sides::Each(pair) => pair,
        });
        let pairs: [[usize; 2]; D] = pairs
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|v: Vec<_>| R::Error::custom(format!("padding of {} axes, not {D}", v.len())))?;
        Ok(pairs.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_sides_are_written_as_numbers_and_others_as_pairs() {
        let write = |p: Padding| serde_json::to_string(&p).expect("has a serial form");
        let read = |text: &str| serde_json::from_str::<Padding>(text);
        assert_eq!(write([1, 2].into()), "[1,2]");
        assert_eq!(write([[1, 1], [0, 3]].into()), "[[1,1],[0,3]]");
        for (text, want) in
            [("[1,2]", [[1, 1], [2, 2]]), ("[[1,1],[0,3]]", [[1, 1], [0, 3]]), ("[4,[0,1]]", [[4, 4], [0, 1]])]
        {
            assert_eq!(read(text).expect("is padding"), Padding::from(want));
        }
        for text in ["[1]", "[1,2,3]", "[-1,0]", "[[1,2,3],0]", "1"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(format!("{:?} {:?}", Padding::from([1, 2]), Padding::from([[0, 1]])), "[1, 2] [[0, 1]]");
    }

    #[test]
    fn same_padding_has_the_odd_one_at_its_end() {
        assert_eq!(Padding::same([4, 3], [1, 2]), Padding::from([[1, 2], [2, 2]]));
        assert_eq!(Padding::same([1, 0], [5, 5]), Padding::NONE);
    }

    #[test]
    fn same_upper_and_lower_give_an_output_for_each_step() {
        for (size, kernel, stride, dilation) in
            (1..9).flat_map(|s| (1..6).flat_map(move |k| (1..5).flat_map(move |t| (1..4).map(move |d| (s, k, t, d)))))
        {
            let upper = Padding::same_upper([size], [kernel], [stride], [dilation]);
            let lower = Padding::same_lower([size], [kernel], [stride], [dilation]);
            assert_eq!((upper.begin, upper.end), (lower.end, lower.begin));
            let [[begin], [end]] = [upper.begin, upper.end];
            assert!(end == begin || end == begin + 1);
            let padded = size + begin + end;
            let reach = dilation * (kernel - 1) + 1;
            assert_eq!((padded - reach) / stride + 1, size.div_ceil(stride), "{size} {kernel} {stride} {dilation}");
            if stride == 1 {
                assert_eq!(upper, Padding::same([kernel], [dilation]));
            }
        }
    }
}
