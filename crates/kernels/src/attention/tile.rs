//! Operations of both passes on a tile: products with packed operands, reading rows of a head, hiding scores, writing rows.

use std::any::TypeId;
use std::ops::Range;

use super::{ALIGN_BYTES, Attention, Drops, HALF, KEYS, QUERIES, Strided};
use crate::float::{Disjoint, FloatElement, Real};
use crate::gemm::element::Engine;
use crate::gemm::kernel::Kernels;
use crate::gemm::pack::pack_b;
use crate::gemm::{GemmElement, View};
use crate::prefetch::PrefetchRows;
use remat_types::Element;

/// Bytes of a packed operand that stays in the first cache beside the rows that meet it.
const SMALL_BYTES: usize = 16 << 10;

/// Steps of a tile for each line that is prefetched meanwhile. With 8 not all is there when the next head begins, and 2 hold up
/// what a tile loads itself: with either the passes gain half as much or less.
const STEPS_PER_LINE: usize = 4;

/// The scores of some keys, or what is made of them: a row a key, a column a query.
pub(super) type Row<R> = [R; QUERIES];

/// The register tiles of the type that is computed in.
pub(super) fn kernels<R: GemmElement>() -> &'static Kernels<R> {
    match R::engine() {
        Engine::Same(kernels) => kernels,
        Engine::Plain | Engine::Narrow(_) => unreachable!("floats of 32 and 64 bits have tiles of their own"),
    }
}

/// `len` items, rounded up to whole cache lines.
pub(super) fn line<R>(len: usize) -> usize {
    len.next_multiple_of(ALIGN_BYTES / size_of::<R>())
}

/// Columns of a packed operand that has `d`.
pub(super) fn padded<R: GemmElement>(d: usize) -> usize {
    d.next_multiple_of(kernels::<R>().lanes)
}

/// True if elements are computed with as they are stored.
pub(super) fn is_real<T: FloatElement>() -> bool {
    TypeId::of::<T>() == TypeId::of::<T::Real>()
}

/// Items of a copy of `len` elements in the type that is computed in: none where they can be read as they are.
pub(super) fn wide_len<T: FloatElement>(len: usize) -> usize {
    if is_real::<T>() { 0 } else { line::<T::Real>(len) }
}

/// Rows `rows` of image `n` and head `h`, `cols` elements each: where they are, or a copy of them in `buffer`.
///
/// # Safety
/// They were checked to lie in `x`.
pub(super) unsafe fn rows_of<T: FloatElement>(
    x: &Strided<'_, T>,
    [n, h]: [usize; 2],
    rows: Range<usize>,
    cols: usize,
    buffer: &mut [T::Real],
) -> View<T::Real> {
    let [sn, st, sh, sd] = x.strides;
    let first = n as isize * sn + rows.start as isize * st + h as isize * sh;
    let from = x.data.as_ptr().wrapping_add(x.offset).wrapping_offset(first);
    if is_real::<T>() {
        return View { data: from.cast(), row_stride: st, col_stride: sd };
    }
    let buffer = &mut buffer[..rows.len() * cols];
    for (i, row) in buffer.chunks_exact_mut(cols.max(1)).enumerate() {
        for (j, to) in row.iter_mut().enumerate() {
            // SAFETY: element `(i, j)` is one of those checked.
            *to = unsafe { *from.offset(i as isize * st + j as isize * sd) }.up();
        }
    }
    View { data: buffer.as_ptr(), row_stride: cols as isize, col_stride: 1 }
}

/// The right operand of a product: `depth` rows of `width` columns, in panels as `pack_b` leaves them.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, R> {
    data: &'a [R],
    depth: usize,
    width: usize,
    /// The first row and the first column of those that a product takes.
    from: [usize; 2],
}

impl<'a, R: Real + GemmElement> Panels<'a, R> {
    /// Packs `depth` rows of `cols` columns of `b`.
    ///
    /// # Safety
    /// `b` is readable there.
    pub(super) unsafe fn pack(b: View<R>, depth: usize, cols: usize, out: &'a mut [R]) -> Panels<'a, R> {
        let (kernels, width) = (kernels::<R>(), padded::<R>(cols));
        let out = &mut out[..depth * width];
        // SAFETY: as the caller says.
        unsafe { pack_b(b, depth, cols, kernels.nr(), kernels.lanes, out) };
        Panels { data: out, depth, width, from: [0; 2] }
    }

    /// As [`Panels::pack`], times `factor`.
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn scaled(b: View<R>, depth: usize, cols: usize, factor: R, out: &'a mut [R]) -> Panels<'a, R> {
        // SAFETY: as the caller says.
        let Panels { width, .. } = unsafe { Panels::pack(b, depth, cols, out) };
        let out = &mut out[..depth * width];
        out.iter_mut().for_each(|x| *x *= factor);
        Panels { data: out, depth, width, from: [0; 2] }
    }

    /// The rows from `row` on.
    pub(super) fn below(self, row: usize) -> Self {
        Panels { from: [row, self.from[1]], ..self }
    }

    /// The columns from `column` on, which is a multiple of a vector's lanes.
    pub(super) fn right_of(self, column: usize) -> Self {
        debug_assert!(column.is_multiple_of(kernels::<R>().lanes));
        Panels { from: [self.from[0], column], ..self }
    }
}

/// `c[i, j] = (accumulate ? c[i, j] : 0) + sum over p < k of a[i, p] b[p, j]` for `i < m` and all columns of `b`: `p` counts
/// the rows that `b` takes, and `j` all its columns. The columns before the first that it takes are left alone.
///
/// # Safety
/// `a` is readable for `m x k`.
pub(super) unsafe fn multiply<R: Real + GemmElement>(
    [m, k]: [usize; 2],
    a: View<R>,
    b: Panels<'_, R>,
    c: &mut [R],
    c_row_stride: usize,
    accumulate: bool,
    ahead: &mut PrefetchRows,
) {
    let kernels = kernels::<R>();
    let (nr, lanes) = (kernels.nr(), kernels.lanes);
    let [row_of_b, column_of_b] = b.from;
    let (panels, columns) = (m.div_ceil(kernels.mr()), (b.width.div_ceil(nr)).saturating_sub(column_of_b / nr));
    if m == 0 || columns == 0 {
        return;
    }
    assert!(row_of_b + k <= b.depth && b.width <= c_row_stride && c.len() >= (m - 1) * c_row_stride + b.width);
    let (size, rest) = (m / panels, m % panels);
    // a small B stays in the first cache while A passes by; of a large one a panel does
    let rows_outside = size_of_val(b.data) <= SMALL_BYTES;
    let (outer, inner) = if rows_outside { (panels, columns) } else { (columns, panels) };
    for o in 0..outer {
        for i in 0..inner {
            let (panel, column) = if rows_outside { (o, i) } else { (i, o) };
            let (row, rows) = (panel * size + panel.min(rest), size + usize::from(panel < rest));
            let first = (column_of_b / nr + column) * nr;
            let (width, skipped) = (nr.min(b.width - first), column_of_b.saturating_sub(first));
            let tile = kernels.tiles_in_place[rows - 1][(width - skipped) / lanes - 1];
            ahead.next_lines(k / STEPS_PER_LINE);
            // SAFETY: rows below `m` of A and C, a panel of B or its last columns, at least one vector of them; C's
            // columns end within its rows, as asserted.
            unsafe {
                tile(
                    k,
                    a.at(row, 0),
                    [a.row_stride, a.col_stride],
                    b.data.as_ptr().add(first * b.depth + row_of_b * width + skipped),
                    width,
                    c.as_mut_ptr().add(row * c_row_stride + first + skipped),
                    c_row_stride,
                    accumulate,
                );
            }
        }
    }
}

/// All keys of a head as a right operand, whose rows are summed over: packed in blocks of [`KEYS`] rows.
#[derive(Clone, Copy)]
pub(super) struct Stack<'a, R> {
    data: &'a [R],
    rows: usize,
    cols: usize,
}

impl<'a, R: Real + GemmElement> Stack<'a, R> {
    /// Packs rows `0..rows` of `cols` columns; `block` gives the rows of a range.
    ///
    /// # Safety
    /// The views that it gives are readable for the range's rows.
    pub(super) unsafe fn pack(
        rows: usize,
        cols: usize,
        mut block: impl FnMut(Range<usize>) -> View<R>,
        out: &'a mut [R],
    ) -> Stack<'a, R> {
        let width = padded::<R>(cols);
        for range in blocks(rows) {
            // SAFETY: as the caller says.
            unsafe { Panels::pack(block(range.clone()), range.len(), cols, &mut out[range.start * width..]) };
        }
        Stack { data: out, rows, cols }
    }

    /// `y[i] = sum over keys p of tile[p][i] * row start + p`, for `i` in `queries`, in rows as wide as [`padded`] says; `start` is that
    /// of a block.
    pub(super) fn sum(
        &self,
        start: usize,
        tile: &[Row<R>],
        queries: Range<usize>,
        y: &mut [R],
        ahead: &mut PrefetchRows,
    ) {
        assert!(start + tile.len() <= self.rows.max(start) && queries.end <= QUERIES && start.is_multiple_of(KEYS));
        let width = padded::<R>(self.cols);
        let y = &mut y[queries.start * width..queries.end * width];
        if tile.is_empty() {
            y.fill(R::ZERO);
        }
        for block in blocks(tile.len()) {
            let first = start + block.start;
            let depth = KEYS.min(self.rows - first);
            let b = Panels { data: &self.data[first * width..][..depth * width], depth, width, from: [0; 2] };
            let p: View<R> =
                View { data: tile[block.clone()].as_ptr().cast(), row_stride: 1, col_stride: QUERIES as isize };
            // SAFETY: the tile has a row for each key of the block and a column for each query.
            unsafe {
                multiply([queries.len(), block.len()], p.shifted(queries.start, 0), b, y, width, block.start > 0, ahead)
            };
        }
    }
}

/// A tile's keys, cut at the one from which on none of its first [`HALF`] queries sees any: what is left of such keys is
/// not computed. Rows of the tile are keys from `start` on.
pub(super) struct Cut {
    /// The first key: that of a block of [`KEYS`].
    pub(super) start: usize,
    /// Rows before the cut.
    pub(super) before: usize,
    /// All rows.
    pub(super) rows: usize,
}

impl Cut {
    /// Of the keys that some of these queries see.
    pub(super) fn of(a: &Attention, queries: &Range<usize>) -> Cut {
        let start = a.begin(queries.start) / KEYS * KEYS;
        let rows = |end: usize| a.seen_below(end).saturating_sub(start);
        Cut { start, before: rows((queries.start + HALF).min(queries.end)), rows: rows(queries.end) }
    }

    /// Ranges of queries of the tile, of `queries`, and the number of rows that each sees some of.
    pub(super) fn queries(&self, queries: usize) -> [(Range<usize>, usize); 2] {
        let half = HALF.min(queries);
        if self.before == self.rows {
            return [(0..queries, self.rows), (queries..queries, 0)];
        }
        [(0..half, self.before), (half..queries, self.rows)]
    }

    /// `tile[p, i] = sum over j < d of x[start + p, j] b[j, i]` where query `i` may see key `start + p`.
    ///
    /// # Safety
    /// `x` is readable for `start + rows` rows of `d`.
    pub(super) unsafe fn scores<R: Real + GemmElement>(
        &self,
        d: usize,
        x: View<R>,
        b: Panels<'_, R>,
        tile: &mut [Row<R>],
        ahead: &mut PrefetchRows,
    ) {
        let (before, behind) = tile.split_at_mut(self.before);
        // SAFETY: rows below `start + rows`.
        unsafe {
            let x = x.shifted(self.start, 0);
            multiply([before.len(), d], x, b, before.as_flattened_mut(), QUERIES, false, ahead);
            let (x, b) = (x.shifted(self.before, 0), b.right_of(HALF));
            multiply([behind.len(), d], x, b, behind.as_flattened_mut(), QUERIES, false, ahead);
        }
    }

    /// `sums[start + p] += sum over queries i of tile[p, i] * row i of b`.
    pub(super) fn add_up<R: Real + GemmElement>(
        &self,
        tile: &[Row<R>],
        queries: usize,
        b: Panels<'_, R>,
        sums: &mut [R],
        ahead: &mut PrefetchRows,
    ) {
        let (before, behind) = tile.split_at(self.before);
        let view = |rows: &[Row<R>]| View { data: rows.as_ptr().cast(), row_stride: QUERIES as isize, col_stride: 1 };
        let (sums_before, sums_behind) = sums[self.start * b.width..].split_at_mut(self.before * b.width);
        // SAFETY: a row of the tile has all queries.
        unsafe {
            multiply([before.len(), queries], view(before), b, sums_before, b.width, true, ahead);
            if !behind.is_empty() {
                let (rows, b) = (view(behind).shifted(0, HALF), b.below(HALF));
                multiply([behind.len(), queries - HALF], rows, b, sums_behind, b.width, true, ahead);
            }
        }
    }
}

/// Ranges of [`KEYS`] that cover `0..keys`.
fn blocks(keys: usize) -> impl Iterator<Item = Range<usize>> {
    (0..keys).step_by(KEYS).map(move |start| start..(start + KEYS).min(keys))
}

/// Puts `value` where a query does not see a key; rows of the tile are keys from `start` on.
///
/// # Safety
/// The mask was checked for the sizes of `a`; `queries` are some of a head's, and the rows some of its keys.
pub(super) unsafe fn hide<R: Real>(
    a: &Attention,
    mask: Option<&Strided<'_, u8>>,
    [n, h]: [usize; 2],
    queries: Range<usize>,
    start: usize,
    tile: &mut [Row<R>],
    value: R,
) {
    // of the tile, the column of the query whose bound a key is
    let column = |key: usize, by: isize| {
        (key as isize).saturating_sub(by).saturating_sub_unsigned(queries.start).clamp(0, QUERIES as isize) as usize
    };
    if let Some(high) = a.span.high() {
        // query i sees keys below i + high
        for (row, to) in tile.iter_mut().enumerate() {
            to[..column(start + row + 1, high)].fill(value);
        }
    }
    if let Some(low) = a.span.low() {
        // and from i + low on
        for (row, to) in tile.iter_mut().enumerate() {
            to[column(start + row + 1, low)..].fill(value);
        }
    }
    let Some(mask) = mask else { return };
    // SAFETY: as the caller says.
    unsafe {
        each_pair(mask, [n, h], queries, start, tile, |seen, s| {
            if seen == 0 {
                *s = value;
            }
        });
    }
}

/// `f(element, score)` for each query and key of a tile.
///
/// # Safety
/// `x: [n, heads, tq, tk]` was checked; `queries` are some of a head's, and the rows some of its keys from `start` on.
unsafe fn each_pair<T: Copy, R>(
    x: &Strided<'_, T>,
    [n, h]: [usize; 2],
    queries: Range<usize>,
    start: usize,
    tile: &mut [Row<R>],
    mut f: impl FnMut(T, &mut R),
) {
    let [sn, sh, sq, sk] = x.strides;
    let first = n as isize * sn + h as isize * sh + queries.start as isize * sq + start as isize * sk;
    let from = x.data.as_ptr().wrapping_add(x.offset).wrapping_offset(first);
    for (key, row) in tile.iter_mut().enumerate() {
        for (i, s) in row[..queries.len()].iter_mut().enumerate() {
            // SAFETY: query and key are of this head, as the caller says.
            f(unsafe { *from.offset(key as isize * sk + i as isize * sq) }, s);
        }
    }
}

/// `tanh x`.
pub(super) fn tanh<R: Real>(x: R) -> R {
    if TypeId::of::<R>() == TypeId::of::<f32>() {
        return R::from_f64(f64::from(crate::maths::tanh(x.to_f64() as f32)));
    }
    R::from_f64(x.to_f64().tanh())
}

/// Caps the scores and adds the bias. `slopes`, if wanted, are the derivatives of the caps.
///
/// # Safety
/// As [`hide`], of the bias.
pub(super) unsafe fn adjust<T: FloatElement>(
    a: &Attention,
    bias: Option<&Strided<'_, T>>,
    at: [usize; 2],
    queries: Range<usize>,
    start: usize,
    tile: &mut [Row<T::Real>],
    slopes: Option<&mut [Row<T::Real>]>,
) {
    if a.cap != 0.0 {
        let (cap, inverse) = (T::Real::from_f64(a.cap), T::Real::from_f64(1.0 / a.cap));
        crate::simd::widest(
            #[inline(always)]
            || match slopes {
                Some(slopes) => {
                    for (row, slopes) in tile.iter_mut().zip(slopes) {
                        for i in 0..QUERIES {
                            let t = tanh(row[i] * inverse);
                            row[i] = cap * t;
                            slopes[i] = T::Real::ONE - t * t;
                        }
                    }
                }
                None => tile.as_flattened_mut().iter_mut().for_each(|s| *s = cap * tanh(*s * inverse)),
            },
        );
    }
    if let Some(bias) = bias {
        // SAFETY: as the caller says.
        unsafe { each_pair(bias, at, queries, start, tile, |b, s| *s += b.up()) };
    }
}

/// Calls `each(row, factors)` with what each query's probability of a row's key is multiplied by: 0 where it is dropped. Rows are keys
/// from `start` on, queries those of a tile.
pub(super) fn dropped<R: Real>(
    a: &Attention,
    drops: &Drops,
    [n, h]: [usize; 2],
    tile: usize,
    start: usize,
    mut each: impl FnMut(usize, &Row<R>),
    rows: usize,
) {
    let below = (drops.p * 4_294_967_296.0) as u64;
    let kept = R::from_f64(if drops.p < 1.0 { 1.0 / (1.0 - drops.p) } else { 0.0 });
    for row in 0..rows {
        let key = (n * a.heads + h) * a.tk + start + row;
        let words = drops.stream.words((key * a.tiles() + tile) as u64 * (QUERIES as u64 / 4));
        let factors = words.map(|w| if u64::from(w) < below { R::ZERO } else { kept });
        each(row, &factors);
    }
}

/// Rows of `d` elements of one head in a tensor that threads write together.
pub(super) struct RowsMut<'a, T> {
    pub(super) data: &'a Disjoint<'a, T>,
    pub(super) offset: usize,
    /// Elements from image to image, from row to row, and from head to head.
    pub(super) strides: [usize; 3],
}

impl<T: FloatElement> RowsMut<'_, T> {
    /// Where the first row of image `n` and head `h` lies, and the elements from row to row.
    fn place(&self, [n, h]: [usize; 2]) -> (*const T, isize) {
        let [sn, st, sh] = self.strides;
        (self.data.place(self.offset + n * sn + h * sh), st as isize)
    }

    /// Adds the rows of a head to what is prefetched: a cache reads a line before it writes to it.
    pub(super) fn prefetch(&self, to: &mut PrefetchRows, at: [usize; 2], rows: usize, cols: usize) {
        let (first, step) = self.place(at);
        to.push(first, step, rows, cols);
    }

    /// Writes the first `d` of each `width` numbers, times `factor(i)`, to rows from `first` on.
    ///
    /// # Safety
    /// Nobody else has these rows.
    pub(super) unsafe fn write(
        &self,
        [n, h]: [usize; 2],
        first: usize,
        rows: &[T::Real],
        width: usize,
        d: usize,
        factor: impl Fn(usize) -> T::Real,
    ) {
        let [sn, st, sh] = self.strides;
        for (i, row) in rows.chunks_exact(width.max(1)).enumerate() {
            let factor = factor(i);
            // SAFETY: rows do not overlap, and these are the caller's.
            let to = unsafe { self.data.part(self.offset + n * sn + (first + i) * st + h * sh, d) };
            to.iter_mut().zip(row).for_each(|(y, x)| *y = T::down(*x * factor));
        }
    }

    /// Writes zeros to these rows.
    ///
    /// # Safety
    /// Nobody else has them.
    pub(super) unsafe fn clear(&self, [n, h]: [usize; 2], rows: Range<usize>, d: usize) {
        let [sn, st, sh] = self.strides;
        for t in rows {
            // SAFETY: rows do not overlap, and these are the caller's.
            unsafe { self.data.part(self.offset + n * sn + t * st + h * sh, d) }.fill(T::default());
        }
    }
}
