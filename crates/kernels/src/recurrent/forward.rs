//! The forward pass.

use std::ops::Range;

use super::packed::{Packed, is_packed, packed_len, rows_len};
use super::{ALIGN_BYTES, Cell, Lengths, Sequence, Unit, aligned, check_bounds, cut, line};
use super::{Disjoint, MatRef, Pool, gemm, gemm_workspace_bytes};
use crate::gemm::View;
use crate::pool::part_range;
use crate::recurrent::unit;

/// The inputs of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Forward<'a, R> {
    /// `[steps, batch, inputs]`.
    pub x: &'a [R],
    /// `[gates hidden, inputs]`, the gates in PyTorch's order.
    pub w_ih: &'a [R],
    /// `[gates hidden, width]`.
    pub w_hh: &'a [R],
    /// `b_ih` and `b_hh`: `[gates hidden]`.
    pub bias: Option<[&'a [R]; 2]>,
    /// `[width, hidden]`, of an LSTM with a projection.
    pub w_hr: Option<&'a [R]>,
    /// `[batch]`, each within `0 ..= steps`.
    pub lengths: Lengths<'a>,
}

/// Elements of the workspace, in the order in which they lie there, but for the products of the inputs.
fn lens<R: Unit>(s: &Sequence, keeps: bool, projects: bool, threads: usize) -> [usize; 5] {
    let (rows, gates) = (s.part_rows(threads), s.gate_rows());
    let packed = |k: usize, n: usize| if is_packed(s) { packed_len::<R>(k, n) } else { 0 };
    let of_projection = if projects { packed(s.hidden, s.width) } else { 0 };
    let block = if keeps { 0 } else { line::<R>(s.block_steps() * s.batch * s.columns()) };
    let left = rows_len::<R>(rows, s.width).max(if projects { rows_len::<R>(rows, s.hidden) } else { 0 });
    let slot = left + if projects { line::<R>(rows * s.hidden) } else { 0 };
    [packed(s.width, gates), of_projection, line::<R>(s.columns()), block, slot * s.parts(threads)]
}

/// The products of the inputs: rows of the weights, and the first column that they make.
pub(super) fn input_products(s: &Sequence) -> [(Range<usize>, usize); 2] {
    let h = s.hidden;
    match s.cell {
        Cell::Gru => [(0..2 * h, h), (2 * h..3 * h, 0)],
        _ => [(0..s.gate_rows(), 0), (0..0, 0)],
    }
}

fn input_workspace_bytes<R: Unit>(s: &Sequence, threads: usize) -> usize {
    let block = s.block_steps();
    let of = |steps: usize| {
        let of = |(rows, _): (Range<usize>, usize)| {
            gemm_workspace_bytes::<R>(steps * s.batch, rows.len(), s.inputs, threads)
        };
        input_products(s).map(of).into_iter().max().unwrap_or(0)
    };
    of(block).max(of(s.steps % block))
}

/// Bytes of workspace that [`forward`] needs on a pool of `threads` threads. A pure function of its arguments on one machine.
#[must_use]
pub fn forward_workspace_bytes<R: Unit>(s: &Sequence, keeps: bool, projects: bool, threads: usize) -> usize {
    if s.is_empty() {
        return 0;
    }
    let own: usize = lens::<R>(s, keeps, projects, threads).iter().sum();
    ALIGN_BYTES + own * size_of::<R>() + input_workspace_bytes::<R>(s, threads)
}

/// Outputs `y: [steps, batch, width]`, and from the initial to the last state: `h: [batch, width]`, `c: [batch, hidden]` (of an
/// LSTM, else empty). `kept` are the gates `[steps, batch, columns]` and, of an LSTM, the cells `[steps, batch, hidden]`, for
/// the backward pass; zeros beyond the lengths.
///
/// # Panics
/// If a slice is shorter than that, a length is not within `0 ..= steps`, or the workspace is too small.
pub fn forward<R: Unit>(
    pool: &Pool,
    s: &Sequence,
    x: &Forward<'_, R>,
    [h, c]: [&mut [R]; 2],
    y: &mut [R],
    mut kept: Option<[&mut [R]; 2]>,
    workspace: &mut [u8],
) {
    if s.is_empty() {
        return;
    }
    let (threads, projects) = (pool.threads(), x.w_hr.is_some());
    let mut all = aligned::<R>(workspace);
    let [hh, hr, bias, block, slots] = cut(&mut all, lens::<R>(s, kept.is_some(), projects, threads));
    let products: &mut [u8] = bytemuck::cast_slice_mut(all);
    add_biases(s, x.bias, bias);
    check(x.w_hh, [s.gate_rows(), s.width], "w_hh");
    let view = |w: &[R], cols: usize| View { data: w.as_ptr(), row_stride: 1, col_stride: cols as isize };
    let pack = |w: View<R>, k: usize, n: usize, out| match is_packed(s) {
        // SAFETY: both weights are checked to have these elements; they are read transposed.
        true => unsafe { Packed::pack(pool, w, k, n, out) },
        false => Packed::in_place(w, k, n),
    };
    let hh = pack(view(x.w_hh, s.width), s.width, s.gate_rows(), hh);
    let hr = x.w_hr.map(|w| {
        check(w, [s.width, s.hidden], "w_hr");
        pack(view(w, s.hidden), s.hidden, s.width, hr)
    });
    let (row, parts) = (s.batch * s.columns(), s.parts(threads));
    let slot_len = slots.len() / parts;
    let (h, c, y) = (Disjoint::new(h), Disjoint::new(c), Disjoint::new(y));
    let cells = kept.as_mut().map(|k| Disjoint::new(std::mem::take(&mut k[1])));
    for first in (0..s.steps).step_by(s.block_steps()) {
        let steps = s.block_steps().min(s.steps - first);
        // the steps of a block in the order of memory
        let from = if s.reverse { s.steps - first - steps } else { first };
        let gates = match &mut kept {
            Some(k) => &mut k[0][from * row..][..steps * row],
            None => &mut block[..steps * row],
        };
        project_inputs(pool, s, x, from..from + steps, gates, products);
        let part = Part {
            s,
            x,
            hh: &hh,
            hr: hr.as_ref(),
            bias,
            from,
            keeps: cells.is_some(),
            h: &h,
            c: &c,
            y: &y,
            cells: cells.as_ref(),
            gates: &Disjoint::new(gates),
        };
        pool.with_slots(parts, &mut *slots, slot_len, |i, slot| {
            let rows = part_range(s.batch, parts, i);
            for i in first..first + steps {
                part.step(s.step(i), rows.clone(), slot);
            }
        });
    }
}

/// # Panics
/// If `w` has fewer elements.
fn check<R>(w: &[R], [rows, cols]: [usize; 2], name: &str) {
    check_bounds(w.len(), 0, &[(rows, cols as isize), (cols, 1)], name);
}

/// The bias of each column of a row of gates.
fn add_biases<R: Unit>(s: &Sequence, bias: Option<[&[R]; 2]>, to: &mut [R]) {
    to.fill(R::ZERO);
    let Some([ih, hh]) = bias else { return };
    let mut add = |from: &[R], at: usize| to[at..][..from.len()].iter_mut().zip(from).for_each(|(y, b)| *y += *b);
    for (rows, column) in input_products(s) {
        add(&ih[rows], column);
    }
    add(&hh[..s.gate_rows()], s.first_of_state());
}

fn project_inputs<R: Unit>(
    pool: &Pool,
    s: &Sequence,
    x: &Forward<'_, R>,
    steps: Range<usize>,
    gates: &mut [R],
    workspace: &mut [u8],
) {
    let (rows, row) = (steps.len() * s.batch, s.batch * s.inputs);
    let a = MatRef { offset: steps.start * row, ..MatRef::row_major(x.x, s.inputs) };
    for (of_w, column) in input_products(s) {
        let b = MatRef { offset: of_w.start * s.inputs, ..MatRef::row_major(x.w_ih, s.inputs) }.t();
        let c = &mut gates[column.min(s.columns())..];
        gemm(pool, rows, of_w.len(), s.inputs, a, b, c, s.columns(), false, workspace);
    }
}

/// A block of steps. Threads take rows of it.
struct Part<'a, R: 'static> {
    s: &'a Sequence,
    x: &'a Forward<'a, R>,
    hh: &'a Packed<'a, R>,
    hr: Option<&'a Packed<'a, R>>,
    bias: &'a [R],
    /// The first step of the block.
    from: usize,
    keeps: bool,
    h: &'a Disjoint<'a, R>,
    c: &'a Disjoint<'a, R>,
    y: &'a Disjoint<'a, R>,
    cells: Option<&'a Disjoint<'a, R>>,
    gates: &'a Disjoint<'a, R>,
}

impl<R: Unit> Part<'_, R> {
    /// Step `t` of rows that nobody else has.
    fn step(&self, t: usize, rows: Range<usize>, slot: &mut [R]) {
        let (s, lengths) = (self.s, self.x.lengths);
        let active = lengths.rows(rows.clone(), t);
        let first = (t - self.from) * s.batch;
        let columns = s.columns();
        // SAFETY: these rows of every tensor are this thread's; a part leaves no slice.
        unsafe {
            if !active.is_empty() {
                self.rows(t, active, slot);
            }
            for b in rows.filter(|b| !lengths.has(*b, t)) {
                self.y.part((t * s.batch + b) * s.width, s.width).fill(R::ZERO);
                if self.keeps {
                    self.gates.part((first + b) * columns, columns).fill(R::ZERO);
                }
                if let Some(cells) = self.cells.filter(|_| s.cell == Cell::Lstm) {
                    cells.part((t * s.batch + b) * s.hidden, s.hidden).fill(R::ZERO);
                }
            }
        }
    }

    /// Step `t` of rows that have it. Those between that do not are made, too, but for their state, which stays.
    ///
    /// # Safety
    /// Nobody else has these rows.
    unsafe fn rows(&self, t: usize, active: Range<usize>, slot: &mut [R]) {
        let (s, columns) = (self.s, self.s.columns());
        let first = (t - self.from) * s.batch + active.start;
        // SAFETY: as the caller says; a part leaves no slice.
        unsafe {
            let sums = self.gates.part(first * columns, active.len() * columns);
            let state = self.h.part(active.start * s.width, active.len() * s.width);
            let state = View { data: state.as_ptr(), row_stride: s.width as isize, col_stride: 1 };
            if s.cell == Cell::Gru {
                let n = 3 * s.hidden..columns;
                sums.chunks_exact_mut(columns.max(1)).for_each(|row| row[n.clone()].fill(R::ZERO));
            }
            let to = sums.as_mut_ptr().add(s.first_of_state());
            self.hh.multiply(active.len(), state, slot, to, columns, true);
            self.cells_of(t, active.clone(), sums, slot);
            if let Some(hr) = self.hr {
                self.project(t, active, hr, slot);
            }
        }
    }

    /// The passes over the gates of rows `active`; `sums` has these rows.
    ///
    /// # Safety
    /// As [`Part::rows`].
    unsafe fn cells_of(&self, t: usize, active: Range<usize>, sums: &mut [R], slot: &mut [R]) {
        let (s, hidden) = (self.s, self.s.hidden);
        let kept = slot.len() - if self.hr.is_some() { line::<R>(active.len() * hidden) } else { 0 };
        let out = &mut slot[kept..];
        for (i, b) in active.enumerate().filter(|(_, b)| self.x.lengths.has(*b, t)) {
            let gates = &mut sums[i * s.columns()..][..s.columns()];
            let at = t * s.batch + b;
            // SAFETY: row `b` of state and outputs, as the caller says.
            unsafe {
                match s.cell {
                    Cell::Tanh | Cell::Relu => {
                        let h = self.h.part(b * hidden, hidden);
                        unit::plain(s.cell == Cell::Tanh, gates, self.bias, h);
                        self.y.part(at * hidden, hidden).copy_from_slice(h);
                    }
                    Cell::Gru => {
                        let h = self.h.part(b * hidden, hidden);
                        unit::gru(gates, self.bias, h, self.keeps);
                        self.y.part(at * hidden, hidden).copy_from_slice(h);
                    }
                    Cell::Lstm => {
                        let c = self.c.part(b * hidden, hidden);
                        if self.hr.is_some() {
                            unit::lstm(gates, self.bias, c, &mut out[i * hidden..][..hidden], self.keeps);
                        } else {
                            let h = self.h.part(b * hidden, hidden);
                            unit::lstm(gates, self.bias, c, h, self.keeps);
                            self.y.part(at * hidden, hidden).copy_from_slice(h);
                        }
                        if let Some(cells) = self.cells {
                            cells.part(at * hidden, hidden).copy_from_slice(c);
                        }
                    }
                }
            }
        }
    }

    /// Projects the outputs of the cells of rows `active`.
    ///
    /// # Safety
    /// As [`Part::rows`].
    unsafe fn project(&self, t: usize, active: Range<usize>, hr: &Packed<'_, R>, slot: &mut [R]) {
        let s = self.s;
        let (left, out) = slot.split_at_mut(slot.len() - line::<R>(active.len() * s.hidden));
        let out = View { data: out.as_ptr(), row_stride: s.hidden as isize, col_stride: 1 };
        // SAFETY: as the caller says. Rows beyond their length are made and cleared again.
        unsafe {
            let y = self.y.part((t * s.batch + active.start) * s.width, active.len() * s.width);
            hr.multiply(active.len(), out, left, y.as_mut_ptr(), s.width, false);
            for (row, b) in y.chunks_exact_mut(s.width.max(1)).zip(active) {
                if self.x.lengths.has(b, t) {
                    self.h.part(b * s.width, s.width).copy_from_slice(row);
                } else {
                    row.fill(R::ZERO);
                }
            }
        }
    }
}
