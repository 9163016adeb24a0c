use remat_kernels::recurrent::{Backward, Lengths, Sequence, Unit, backward, backward_workspace_bytes};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, smallvec};

use super::compose::recurrent_gradients;
use super::forward::{facts_of, for_real, lengths_of};
use super::{CellKind, Recurrent};
use crate::args::{checked_fact, not_taken, want_dtype, want_rank, want_shape};
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, LayoutReq, Op};

/// The gradient of [`Recurrent`] through its steps: `(dy, dh, .., w_hh, ..) -> (dgates, dh0, ..)`.
///
/// Inputs: `dy: [t, b, p]`, `dh: [b, p]` and, of an LSTM, `dc: [b, n]`, the gradients of the outputs; `w_hh`; what the forward
/// pass kept, the gates and cells of an LSTM, the gates of a GRU; `y` of another cell than an LSTM; then, as the parameters of
/// the forward op say, the initial `c0` of an LSTM or `h0` of a GRU, `w_hr`, and the lengths.
///
/// `dgates: [t, b, columns]` are the gradients of the sums that the gates are functions of, in the order of the kept gates;
/// `dh0` and, of an LSTM, `dc0` those of the initial states; with a projection follows `[t, b, p]`, the gradient of each
/// output, including the part through later steps. Errors: as the forward op.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(dy: float, dh: float, rest..: any), gradient(dy, dh, rest))]
pub struct RecurrentGrad {
    /// The forward op; its `keep` counts for nothing.
    pub of: Recurrent,
}

/// Places of the inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) dc: Option<usize>,
    pub(crate) w_hh: usize,
    pub(crate) gates: Option<usize>,
    pub(crate) cells: Option<usize>,
    pub(crate) y: Option<usize>,
    /// The initial state that the gradient reads.
    pub(crate) initial: Option<usize>,
    pub(crate) w_hr: Option<usize>,
    pub(crate) lengths: Option<usize>,
    pub(crate) count: usize,
}

impl RecurrentGrad {
    pub(crate) fn places(&self) -> Places {
        let (of, is_lstm) = (&self.of, self.of.cell == CellKind::Lstm);
        let mut count = 2;
        let mut next = |there: bool| {
            count += usize::from(there);
            there.then(|| count - 1)
        };
        let dc = next(is_lstm);
        let w_hh = next(true).unwrap_or(2);
        let gates = next(of.cell.kept() > 0);
        let cells = next(is_lstm);
        let y = next(!is_lstm);
        let initial = next(of.initial && of.cell.kept() > 0);
        let (w_hr, lengths) = (next(of.project), next(of.lengths));
        Places { dc, w_hh, gates, cells, y, initial, w_hr, lengths, count }
    }

    /// The sizes; of the inputs of the layer nothing is known. Errors as [`Recurrent`].
    pub(crate) fn sizes(&self, x: &[&Fact]) -> Result<Sequence> {
        let (places, cell) = (self.places(), self.of.cell);
        if x.len() != places.count {
            return Err(Error::new(ErrorKind::Arity, format!("takes {} inputs, got {}", places.count, x.len())));
        }
        let dtype = x[0].dtype;
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(not_taken(dtype));
        }
        if self.of.project && cell != CellKind::Lstm {
            return Err(Error::new(ErrorKind::Value, "only an LSTM has a projection"));
        }
        let want = |at: usize, shape: &[usize], name: &str| {
            want_dtype(x[at], dtype, name)?;
            want_rank(x[at], shape.len(), name)?;
            want_shape(x[at], shape, name)
        };
        want_rank(x[0], 3, "dy")?;
        want_rank(x[places.w_hh], 2, "w_hh")?;
        let (steps, batch, width) = (x[0].shape[0], x[0].shape[1], x[0].shape[2]);
        let hidden = x[places.w_hh].shape[0] / cell.gates();
        if !self.of.project && width != hidden {
            let text = format!("dy has shape {}, w_hh {}", x[0].shape, x[places.w_hh].shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let s = Sequence { cell: cell.cell(), steps, batch, inputs: 0, hidden, width, reverse: self.of.reverse };
        checked_fact(dtype, [steps.max(1), batch.max(1), hidden.max(1).saturating_mul(8), width.max(hidden).max(1)])?;
        want(places.w_hh, &[cell.gates() * hidden, width], "w_hh")?;
        want(1, &[batch, width], "dh")?;
        let is_lstm = cell == CellKind::Lstm;
        let all: [(Option<usize>, &[usize], &str); 6] = [
            (places.dc, &[batch, hidden], "dc"),
            (places.gates, &[steps, batch, s.columns()], "the gates"),
            (places.cells, &[steps, batch, hidden], "the cells"),
            (places.y, &[steps, batch, width], "y"),
            (places.initial, &[batch, if is_lstm { hidden } else { width }], "the initial state"),
            (places.w_hr, &[width, hidden], "w_hr"),
        ];
        for (at, shape, name) in all {
            at.map_or(Ok(()), |at| want(at, shape, name))?;
        }
        if let Some(at) = places.lengths {
            want_dtype(x[at], DType::I64, "lengths")?;
            want_rank(x[at], 1, "lengths")?;
            want_shape(x[at], &[batch], "lengths")?;
        }
        Ok(s)
    }

    fn eval_in<T: Unit>(&self, cx: &mut EvalCx<'_>, s: &Sequence) -> Result<()> {
        let (x, places, is_lstm) = (cx.x, self.places(), self.of.cell == CellKind::Lstm);
        let lengths = places.lengths.map(|at| lengths_of(&x[at], s.steps)).transpose()?;
        let of = |at: Option<usize>| at.map(|at| x[at].slice::<T>()).transpose();
        let first = of(places.initial)?;
        let strides = x[0].layout().strides();
        let given = Backward {
            cells: of(places.cells)?.unwrap_or_default(),
            y: of(places.y)?.unwrap_or_default(),
            h0: first.filter(|_| !is_lstm),
            c0: first.filter(|_| is_lstm),
            w_hh: x[places.w_hh].slice()?,
            w_hr: of(places.w_hr)?,
            lengths: Lengths(lengths),
            dy: x[0].storage()?,
            dy_offset: x[0].layout().offset(),
            dy_strides: [strides[0], strides[1], strides[2]],
        };
        if let Some(at) = places.gates {
            cx.output_from::<T>(at, 0)?;
        }
        for i in 0..self.of.cell.states() {
            cx.output_from::<T>(1 + i, 1 + i)?;
        }
        let mut y = cx.y.iter_mut();
        let mut next = |there: bool| match y.next().filter(|_| there) {
            Some(y) => y.slice_mut::<T>(),
            None => Ok(Default::default()),
        };
        let (gates, dh) = (next(true)?, next(true)?);
        let dc = if is_lstm { next(true)? } else { Default::default() };
        let douts = next(self.of.project)?;
        backward(cx.pool, s, &given, gates, [dh, dc], douts, cx.workspace);
        Ok(())
    }
}

impl Op for RecurrentGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let s = self.sizes(x)?;
        let dtype = x[0].dtype;
        let mut y: Facts =
            smallvec![checked_fact(dtype, [s.steps, s.batch, s.columns()])?, checked_fact(dtype, [s.batch, s.width])?];
        if self.of.cell == CellKind::Lstm {
            y.push(checked_fact(dtype, [s.batch, s.hidden])?);
        }
        if self.of.project {
            y.push(checked_fact(dtype, [s.steps, s.batch, s.width])?);
        }
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (facts, dtype) = (facts_of(cx.x), cx.x[0].dtype());
        let s = self.sizes(&facts.iter().collect::<Vec<_>>())?;
        for_real!(dtype, T => self.eval_in::<T>(cx, &s), else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        cx.grad_via_composite(|cx, x| recurrent_gradients(cx, self, x))
    }

    fn may_fail(&self) -> bool {
        self.of.lengths
    }

    fn layout(&self, input: usize) -> LayoutReq {
        if input == 0 { LayoutReq::Strided } else { LayoutReq::Contiguous }
    }

    fn overwrite(&self) -> &[(usize, usize)] {
        match self.of.cell {
            CellKind::Lstm => &[(4, 0), (1, 1), (2, 2)],
            CellKind::Gru => &[(3, 0), (1, 1)],
            CellKind::RnnTanh | CellKind::RnnRelu => &[(1, 1)],
        }
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(s) = self.sizes(x) else { return 0 };
        for_real!(x[0].dtype, T => backward_workspace_bytes::<T>(&s, self.of.project, threads), else 0)
    }

    /// Products alone.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = self.sizes(x).map_or(0, |s| {
            let of_cell = self.of.cell.gates() * s.hidden * s.width;
            2 * s.steps * s.batch * (of_cell + if self.of.project { s.hidden * s.width } else { 0 })
        });
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
