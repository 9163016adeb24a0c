//! Ranges of an axis, as Python's slices.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use remat_types::{Error, ErrorKind, Result};

/// A range of an axis, made from Rust's ranges: `1..3`, `..-1`, `2..`, `..`, `0..=4`. Bounds count from the end if
/// negative, and are cut to the extent. A pair `(1, -1)` says the same as `1..-1`, which Clippy takes for an empty range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// The first element; `None` for where the axis begins, or ends if the step is negative.
    pub start: Option<isize>,
    /// The bound that no element reaches; `None` for beyond the other end of the axis.
    pub end: Option<isize>,
}

impl Span {
    /// First element and number of elements of an axis of `extent`, stepping by `step`: Python's `slice.indices`.
    /// Errors: Value for a step of 0.
    pub(super) fn resolve(self, extent: usize, step: isize) -> Result<(usize, usize)> {
        if step == 0 {
            return Err(Error::new(ErrorKind::Value, "a slice steps by 0"));
        }
        let n = isize::try_from(extent).map_err(|_| Error::new(ErrorKind::Shape, "the extent cannot be addressed"))?;
        // the begin of a walk in this direction, and the bound that it never reaches
        let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let cut = |v: isize| (if v < 0 { v.saturating_add(n) } else { v }).clamp(low, high);
        let start = self.start.map_or(if step > 0 { low } else { high }, cut);
        let end = self.end.map_or(if step > 0 { high } else { low }, cut);
        let way = if step > 0 { end - start } else { start - end };
        let len = usize::try_from(way).map_or(0, |way| way.div_ceil(step.unsigned_abs()));
        Ok((if len == 0 { 0 } else { start as usize }, len))
    }
}

/// The end of a range that contains `last`: what follows -1 is the end of the axis.
fn behind(last: isize) -> Option<isize> {
    last.checked_add(1).filter(|end| *end != 0)
}

impl From<RangeFull> for Span {
    fn from(_: RangeFull) -> Span {
        Span::default()
    }
}
impl From<Range<isize>> for Span {
    fn from(r: Range<isize>) -> Span {
        Span { start: Some(r.start), end: Some(r.end) }
    }
}
impl From<(isize, isize)> for Span {
    fn from((start, end): (isize, isize)) -> Span {
        Span::from(start..end)
    }
}
impl From<RangeFrom<isize>> for Span {
    fn from(r: RangeFrom<isize>) -> Span {
        Span { start: Some(r.start), end: None }
    }
}
impl From<RangeTo<isize>> for Span {
    fn from(r: RangeTo<isize>) -> Span {
        Span { start: None, end: Some(r.end) }
    }
}
impl From<RangeInclusive<isize>> for Span {
    fn from(r: RangeInclusive<isize>) -> Span {
        Span { start: Some(*r.start()), end: behind(*r.end()) }
    }
}
impl From<RangeToInclusive<isize>> for Span {
    fn from(r: RangeToInclusive<isize>) -> Span {
        Span { start: None, end: behind(r.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The elements that a span names, by walking from its first bound.
    fn walked(span: Span, extent: isize, step: isize) -> Vec<isize> {
        let (first, beyond) = if step > 0 { (0, extent) } else { (extent - 1, -1) };
        let from_end = |v: isize| if v < 0 { v + extent } else { v };
        // a bound before the axis is cut to before its first element, whichever way the walk goes
        let cut =
            |v: isize| from_end(v).clamp(if step > 0 { 0 } else { -1 }, if step > 0 { extent } else { extent - 1 });
        let (mut at, end) = (span.start.map_or(first, cut), span.end.map_or(beyond, cut));
        let mut all = Vec::new();
        while if step > 0 { at < end } else { at > end } {
            all.push(at);
            at += step;
        }
        all
    }

    #[test]
    fn spans_name_what_a_walk_meets() {
        let bounds: Vec<Option<isize>> = std::iter::once(None).chain((-7..=7).map(Some)).collect();
        for extent in 0..5isize {
            for step in [-9, -3, -2, -1, 1, 2, 3, 9] {
                for (&start, &end) in bounds.iter().flat_map(|s| bounds.iter().map(move |e| (s, e))) {
                    let span = Span { start, end };
                    let (first, len) = span.resolve(extent as usize, step).expect("a step");
                    let got: Vec<isize> = (0..len as isize).map(|i| first as isize + i * step).collect();
                    assert_eq!(got, walked(span, extent, step), "{span:?} of {extent} by {step}");
                }
            }
        }
        let far = Span { start: Some(isize::MIN), end: Some(isize::MAX) };
        assert_eq!(far.resolve(3, 1).expect("a step"), (0, 3));
        assert_eq!(far.resolve(3, isize::MIN).expect("a step"), (0, 0));
        assert_eq!(Span::default().resolve(3, 0).expect_err("no step").kind(), ErrorKind::Value);
    }

    #[test]
    fn inclusive_ranges_end_behind_their_last_element() {
        assert_eq!(Span::from((1, -1)), Span { start: Some(1), end: Some(-1) });
        assert_eq!(Span::from(0..=1), Span::from(0..2));
        assert_eq!(Span::from(RangeInclusive::new(0, -1)), Span::from(0..));
        assert_eq!(Span::from(..=-2), Span::from(..-1));
        assert_eq!(Span::from(..=isize::MAX), Span::from(..));
    }
}
