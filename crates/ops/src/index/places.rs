//! The places of index tensors: the common part of the ops that gather and of those that put.

use remat_kernels::copy::Walk;
use remat_kernels::index::{Named, Places, Row};
use remat_types::{Error, ErrorKind, Fact, Layout, Result, Shape, SmallVec};

use super::{axis_in, bad_index, indices_in, is_index};
use crate::In;

/// The extents of a tensor indexed along some axes by tensors that broadcast.
///
/// Axes that stand side by side give way to those of the indices; otherwise those of the indices come first, then the others
/// (NumPy's rule).
#[derive(Debug)]
pub(super) struct Selection {
    /// The axes in front of the indices', which every position has.
    lead: usize,
    /// Of what is named: positions, an element or a row of `x` each.
    positions: Shape,
    /// The axes of `x` that a row has.
    row: SmallVec<[usize; 4]>,
    /// Of the result: those of positions, then those of a row.
    pub(super) shape: Shape,
}

impl Selection {
    /// Errors: Axis for axes that are out of range or not ascending, DType for indices that are no integers, Arity unless
    /// there is one for each axis, Shape if they do not broadcast or the result is too large.
    pub(super) fn new(x: &Shape, axes: &[usize], index: &[&Fact]) -> Result<Self> {
        if axes.is_empty() || axes.len() != index.len() {
            return Err(Error::new(ErrorKind::Arity, format!("{} index tensors for axes {axes:?}", index.len())));
        }
        axes.iter().try_for_each(|&a| axis_in(a, x))?;
        if !axes.is_sorted_by(|a, b| a < b) {
            return Err(Error::new(ErrorKind::Axis, format!("the axes {axes:?} do not ascend")));
        }
        index.iter().try_for_each(|i| is_index(i))?;
        let over = index.iter().try_fold(Shape::scalar(), |s, i| s.broadcast(&i.shape))?;
        Selection::of(x, axes, &over)
    }

    /// As [`Selection::new`], of indices that broadcast to `over`.
    pub(super) fn of(x: &Shape, axes: &[usize], over: &Shape) -> Result<Self> {
        let side_by_side = axes.windows(2).all(|w| w[0] + 1 == w[1]);
        let lead = if side_by_side { axes[0] } else { 0 };
        let positions: Shape = x[..lead].iter().chain(over.iter()).copied().collect();
        let row: SmallVec<[usize; 4]> = (lead..x.rank()).filter(|a| !axes.contains(a)).collect();
        let shape: Shape = positions.iter().copied().chain(row.iter().map(|&a| x[a])).collect();
        shape.checked_elems()?;
        Ok(Selection { lead, positions, row, shape })
    }

    /// The indices of `x`, each for its axis of a tensor under the layout `of`. Errors: Index, which names the axis.
    pub(super) fn named<'a>(
        &self,
        of: &Layout,
        axes: &[usize],
        index: &[In<'a>],
        negative: bool,
    ) -> Result<SmallVec<[Named<'a>; 4]>> {
        let one = |(&axis, index): (&usize, &In<'a>)| {
            let over = index.layout().broadcast_to(&self.positions)?;
            named(index, &over, of, axis, negative)
        };
        axes.iter().zip(index).map(one).collect()
    }

    /// The places of a tensor under the layout `of`.
    pub(super) fn places<'a>(&self, of: &Layout, named: &'a [Named<'a>]) -> Result<Places<'a>> {
        let stride = |a: usize| if a < self.lead { of.strides()[a] } else { 0 };
        let strides: SmallVec<[isize; 6]> = (0..self.positions.rank()).map(stride).collect();
        let base = Layout::new(self.positions.clone(), &strides, of.offset())?;
        Ok(Places { base: Walk::new(&base), named })
    }

    /// The rows of a tensor under the layout `of`.
    pub(super) fn row(&self, of: &Layout) -> Result<Row> {
        let shape: Shape = self.row.iter().map(|&a| of.shape()[a]).collect();
        let strides: SmallVec<[isize; 6]> = self.row.iter().map(|&a| of.strides()[a]).collect();
        let len = shape.elems();
        Ok(Row { walk: Walk::new(&Layout::new(shape, &strides, 0)?), len })
    }

    /// The number of positions.
    pub(super) fn positions(&self) -> usize {
        self.positions.elems()
    }

    /// How many parts of a contiguous tensor of `shape` have positions of their own.
    pub(super) fn cuts(&self, shape: &Shape) -> usize {
        shape[..self.lead].iter().product()
    }
}

/// An index tensor that is read as `over`, for an axis of a tensor under the layout `of`. Errors: Index.
pub(super) fn named<'a>(index: &In<'a>, over: &Layout, of: &Layout, axis: usize, negative: bool) -> Result<Named<'a>> {
    let (extent, step) = (of.shape()[axis], of.strides()[axis]);
    Named::new(indices_in(index)?, index.layout(), over, extent, step, negative).map_err(|bad| {
        let e = bad_index(bad, extent);
        if negative {
            let text = format!("index {} at position {} is not in -{extent}..{extent}", bad.value, bad.position);
            return Error::new(ErrorKind::Index, text);
        }
        e
    })
}

/// The places that an index tensor names along one axis of a tensor under the layout `of`, other axes taken as they come:
/// a position each, under the index's shape, which may be smaller. Its row is one element.
pub(super) struct Along<'a> {
    named: [Named<'a>; 1],
    base: Layout,
}

impl<'a> Along<'a> {
    /// Errors: Index.
    pub(super) fn new(of: &Layout, axis: usize, index: &In<'a>) -> Result<Self> {
        let mut strides: SmallVec<[isize; 6]> = of.strides().iter().copied().collect();
        strides[axis] = 0;
        let base = Layout::new(index.shape().clone(), &strides, of.offset())?;
        Ok(Along { named: [named(index, index.layout(), of, axis, false)?], base })
    }

    pub(super) fn places(&self) -> Places<'_> {
        Places { base: Walk::new(&self.base), named: &self.named }
    }

    /// A row of one element.
    pub(super) fn row() -> Row {
        Row { walk: Walk::new(&Layout::contiguous([])), len: 1 }
    }
}

/// Errors (Shape) unless `index` has the rank of `x`, and no larger extents beside `axis`.
pub(super) fn fits_beside(x: &Shape, index: &Shape, axis: usize, name: &str) -> Result<()> {
    let fits = x.rank() == index.rank() && (0..x.rank()).all(|a| a == axis || index[a] <= x[a]);
    if !fits {
        let text = format!("index {index} is not within {name} {x} beside axis {axis}");
        return Err(Error::new(ErrorKind::Shape, text));
    }
    Ok(())
}
