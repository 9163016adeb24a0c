//! The backward pass through the steps: the gradients of the gates, and of the initial state.

use std::ops::Range;

use super::packed::{Packed, is_packed, packed_len, rows_len};
use super::{ALIGN_BYTES, Cell, Disjoint, Lengths, Pool, Sequence, Unit, aligned, check_bounds, cut, line};
use crate::gemm::View;
use crate::pool::part_range;
use crate::recurrent::unit;

/// The inputs of the backward pass.
#[derive(Clone, Copy, Debug)]
pub struct Backward<'a, R> {
    /// The cells that it kept: `[steps, batch, hidden]`, those of an LSTM.
    pub cells: &'a [R],
    /// Its outputs: `[steps, batch, width]`, unless it was an LSTM.
    pub y: &'a [R],
    /// The initial `h: [batch, width]` of a GRU; zeros if there is none.
    pub h0: Option<&'a [R]>,
    /// The initial `c: [batch, hidden]` of an LSTM; zeros if there is none.
    pub c0: Option<&'a [R]>,
    /// `[gates hidden, width]`.
    pub w_hh: &'a [R],
    /// `[width, hidden]`, of an LSTM with a projection.
    pub w_hr: Option<&'a [R]>,
    /// As in the forward pass.
    pub lengths: Lengths<'a>,
    /// The gradient of `y`, whose element `(t, b, j)` is `data[offset + t strides[0] + b strides[1] + j strides[2]]`.
    pub dy: &'a [R],
    /// Where it begins.
    pub dy_offset: usize,
    /// Its strides.
    pub dy_strides: [isize; 3],
}

fn lens<R: Unit>(s: &Sequence, projects: bool, threads: usize) -> [usize; 3] {
    let (rows, gates) = (s.part_rows(threads), s.gate_rows());
    let packed = |k: usize, n: usize| if is_packed(s) { packed_len::<R>(k, n) } else { 0 };
    let of_projection = if projects { packed(s.width, s.hidden) } else { 0 };
    [packed(gates, s.width), of_projection, slot_lens::<R>(s, rows, projects).iter().sum::<usize>() * s.parts(threads)]
}

/// Elements of a slot: a left operand, the gradients of outputs of the cell and of the state before, and a row of zeros.
fn slot_lens<R: Unit>(s: &Sequence, rows: usize, projects: bool) -> [usize; 4] {
    let left = rows_len::<R>(rows, s.gate_rows());
    let left = if projects { left.max(rows_len::<R>(rows, s.width)) } else { left };
    [left, line::<R>(rows * s.hidden), line::<R>(rows * s.width), line::<R>(s.hidden.max(s.width))]
}

/// Bytes of workspace that [`backward`] needs on a pool of `threads` threads. A pure function of its arguments on one machine.
#[must_use]
pub fn backward_workspace_bytes<R: Unit>(s: &Sequence, projects: bool, threads: usize) -> usize {
    if s.is_empty() {
        return 0;
    }
    ALIGN_BYTES + lens::<R>(s, projects, threads).iter().sum::<usize>() * size_of::<R>()
}

/// From the gates that the forward pass kept (of an LSTM or a GRU) to the gradients of their sums, `gates: [steps, batch,
/// columns]`, and from the gradients of the last state to those of the initial one: `dh: [batch, width]`, `dc: [batch, hidden]`
/// (of an LSTM, else empty). With a projection `douts: [steps, batch,
/// width]` becomes the whole gradient of each output, that through later steps included; else it is empty.
///
/// # Panics
/// If a slice is shorter than that, a length is not within `0 ..= steps`, or the workspace is too small.
pub fn backward<R: Unit>(
    pool: &Pool,
    s: &Sequence,
    x: &Backward<'_, R>,
    gates: &mut [R],
    [dh, dc]: [&mut [R]; 2],
    douts: &mut [R],
    workspace: &mut [u8],
) {
    if s.is_empty() {
        return;
    }
    let (threads, projects) = (pool.threads(), x.w_hr.is_some());
    let mut all = aligned::<R>(workspace);
    let [hh, hr, slots] = cut(&mut all, lens::<R>(s, projects, threads));
    let view = |w: &[R], rows: usize, cols: usize, name: &str| {
        check_bounds(w.len(), 0, &[(rows, cols as isize), (cols, 1)], name);
        View { data: w.as_ptr(), row_stride: cols as isize, col_stride: 1 }
    };
    let extents = [s.steps, s.batch, s.width];
    let axes: [(usize, isize); 3] = std::array::from_fn(|i| (extents[i], x.dy_strides[i]));
    check_bounds(x.dy.len(), x.dy_offset, &axes, "dy");
    let pack = |w: View<R>, k: usize, n: usize, out| match is_packed(s) {
        // SAFETY: both weights are checked to have these elements.
        true => unsafe { Packed::pack(pool, w, k, n, out) },
        false => Packed::in_place(w, k, n),
    };
    let hh = pack(view(x.w_hh, s.gate_rows(), s.width, "w_hh"), s.gate_rows(), s.width, hh);
    let hr = x.w_hr.map(|w| pack(view(w, s.width, s.hidden, "w_hr"), s.width, s.hidden, hr));
    let parts = s.parts(threads);
    let slot_len = slots.len() / parts;
    let [dgates, dh, dc, douts] = [gates, dh, dc, douts].map(Disjoint::new);
    let part = Part { s, x, hh: &hh, hr: hr.as_ref(), dgates: &dgates, dh: &dh, dc: &dc, douts: &douts };
    pool.with_slots(parts, &mut *slots, slot_len, |i, mut slot| {
        let rows = part_range(s.batch, parts, i);
        let lens = slot_lens::<R>(s, rows.len(), projects);
        let [left, dm, before, zeros] = cut(&mut slot, lens);
        zeros.fill(R::ZERO);
        let mut scratch = Scratch { left, dm, before, zeros };
        for i in (0..s.steps).rev() {
            part.step(s.step(i), rows.clone(), &mut scratch);
        }
    });
}

/// Memory of a thread.
struct Scratch<'a, R> {
    left: &'a mut [R],
    dm: &'a mut [R],
    before: &'a mut [R],
    zeros: &'a [R],
}

struct Part<'a, R: 'static> {
    s: &'a Sequence,
    x: &'a Backward<'a, R>,
    hh: &'a Packed<'a, R>,
    hr: Option<&'a Packed<'a, R>>,
    dgates: &'a Disjoint<'a, R>,
    dh: &'a Disjoint<'a, R>,
    dc: &'a Disjoint<'a, R>,
    douts: &'a Disjoint<'a, R>,
}

impl<'a, R: Unit> Part<'a, R> {
    /// The step before `t` in the order of time that row `b` has, unless `t` is its first.
    fn before(&self, b: usize, t: usize) -> Option<usize> {
        if !self.s.reverse {
            return t.checked_sub(1);
        }
        Some(t + 1).filter(|t| *t < self.s.steps && self.x.lengths.has(b, *t))
    }

    /// Row `b` of `all` at the step before `t`, else of `first`.
    fn row_before<'z>(
        &self,
        all: &'a [R],
        first: Option<&'a [R]>,
        n: usize,
        [b, t]: [usize; 2],
        zeros: &'z [R],
    ) -> &'z [R]
    where
        'a: 'z,
    {
        match (self.before(b, t), first) {
            (Some(t), _) => &all[(t * self.s.batch + b) * n..][..n],
            (None, Some(first)) => &first[b * n..][..n],
            (None, None) => &zeros[..n],
        }
    }

    /// Step `t` of rows that nobody else has.
    fn step(&self, t: usize, rows: Range<usize>, scratch: &mut Scratch<'_, R>) {
        let (s, lengths, columns) = (self.s, self.x.lengths, self.s.columns());
        let active = lengths.rows(rows.clone(), t);
        // SAFETY: these rows of every tensor are this thread's; a part leaves no slice.
        unsafe {
            for b in rows.filter(|b| !lengths.has(*b, t)) {
                self.dgates.part((t * s.batch + b) * columns, columns).fill(R::ZERO);
                if self.hr.is_some() {
                    self.douts.part((t * s.batch + b) * s.width, s.width).fill(R::ZERO);
                }
            }
            if active.is_empty() {
                return;
            }
            for b in active.clone().filter(|b| lengths.has(*b, t)) {
                self.add_dy(t, b);
            }
            if let Some(hr) = self.hr {
                let at = (t * s.batch + active.start) * s.width;
                let dout = self.douts.part(at, active.len() * s.width);
                for (row, b) in dout.chunks_exact_mut(s.width.max(1)).zip(active.clone()) {
                    if lengths.has(b, t) {
                        row.copy_from_slice(self.dh.part(b * s.width, s.width));
                    }
                }
                let dout = View { data: dout.as_ptr(), row_stride: s.width as isize, col_stride: 1 };
                hr.multiply(active.len(), dout, scratch.left, scratch.dm.as_mut_ptr(), s.hidden, false);
            }
            for (i, b) in active.clone().enumerate().filter(|(_, b)| lengths.has(*b, t)) {
                self.gradients_of(t, b, &mut scratch.dm[i * s.hidden..][..s.hidden], scratch.zeros);
            }
            let at = (t * s.batch + active.start) * columns + s.first_of_state();
            let of_state = self.dgates.part(at, active.len() * columns - s.first_of_state());
            let of_state = View { data: of_state.as_ptr(), row_stride: columns as isize, col_stride: 1 };
            self.hh.multiply(active.len(), of_state, scratch.left, scratch.before.as_mut_ptr(), s.width, false);
            for (i, b) in active.enumerate().filter(|(_, b)| lengths.has(*b, t)) {
                let (dh, more) = (self.dh.part(b * s.width, s.width), &scratch.before[i * s.width..][..s.width]);
                if s.cell == Cell::Gru {
                    dh.iter_mut().zip(more).for_each(|(d, m)| *d += *m);
                } else {
                    dh.copy_from_slice(more);
                }
            }
        }
    }

    /// Adds the gradient of output `(t, b)` to that of the state.
    ///
    /// # Safety
    /// As [`Part::step`].
    unsafe fn add_dy(&self, t: usize, b: usize) {
        let (n, [st, sb, sj]) = (self.s.width, self.x.dy_strides);
        if n == 0 {
            return;
        }
        let first = self.x.dy_offset as isize + t as isize * st + b as isize * sb;
        // SAFETY: as the caller says.
        let dh = unsafe { self.dh.part(b * n, n) };
        if sj == 1 {
            dh.iter_mut().zip(&self.x.dy[first as usize..][..n]).for_each(|(d, dy)| *d += *dy);
        } else {
            dh.iter_mut().enumerate().for_each(|(j, d)| *d += self.x.dy[(first + j as isize * sj) as usize]);
        }
    }

    /// The gradients of the gates of row `b`. `dm` is that of what came out of its cell, with a projection.
    ///
    /// # Safety
    /// As [`Part::step`].
    unsafe fn gradients_of(&self, t: usize, b: usize, dm: &mut [R], zeros: &[R]) {
        let (s, x, hidden, columns) = (self.s, self.x, self.s.hidden, self.s.columns());
        let at = t * s.batch + b;
        // SAFETY: as the caller says.
        unsafe {
            let dgates = self.dgates.part(at * columns, columns);
            match s.cell {
                Cell::Tanh | Cell::Relu => {
                    let (y, dh) = (&x.y[at * hidden..][..hidden], self.dh.part(b * hidden, hidden));
                    unit::plain_gradient(s.cell == Cell::Tanh, y, dh, dgates);
                }
                Cell::Gru => {
                    let before = self.row_before(x.y, x.h0, hidden, [b, t], zeros);
                    unit::gru_gradient(dgates, before, self.dh.part(b * hidden, hidden));
                }
                Cell::Lstm => {
                    if self.hr.is_none() {
                        dm.copy_from_slice(self.dh.part(b * hidden, hidden));
                    }
                    let before = self.row_before(x.cells, x.c0, hidden, [b, t], zeros);
                    let c = &x.cells[at * hidden..][..hidden];
                    unit::lstm_gradient(dgates, [before, c], dm, self.dc.part(b * hidden, hidden));
                }
            }
        }
    }
}
