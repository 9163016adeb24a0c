use remat_tensor::{RecurrentSteps, RecurrentWeights, Tensor};
use remat_types::{Error, ErrorKind, Result};

use crate::layers::linear::bias_init;
use crate::{Dropout, Init, InitCx, Layer, Parameter, Visit, Walk};

/// The weights of one layer in one direction, by PyTorch's names: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`,
/// `weight_hr_l0`, with `_reverse` behind those of the second direction.
pub struct RecurrentDirection {
    suffix: String,
    reverse: bool,
    /// `[gates hidden, inputs]`.
    pub weight_ih: Parameter,
    /// `[gates hidden, outputs]`.
    pub weight_hh: Parameter,
    /// `[gates hidden]`.
    pub bias_ih: Option<Parameter>,
    /// `[gates hidden]`.
    pub bias_hh: Option<Parameter>,
    /// `[outputs, hidden]`, of an LSTM with a projection.
    pub weight_hr: Option<Parameter>,
}

impl Visit for RecurrentDirection {
    fn visit(&self, at: &mut Walk<'_>) {
        at.field(&format!("weight_ih{}", self.suffix), &self.weight_ih);
        at.field(&format!("weight_hh{}", self.suffix), &self.weight_hh);
        at.field(&format!("bias_ih{}", self.suffix), &self.bias_ih);
        at.field(&format!("bias_hh{}", self.suffix), &self.bias_hh);
        at.field(&format!("weight_hr{}", self.suffix), &self.weight_hr);
    }
}

/// More layers than anyone stacks: a larger number is a mistake, and is refused before it takes memory.
const MOST_LAYERS: usize = 1 << 16;

/// Sizes and options that all recurrent layers share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) op: &'static str,
    pub(super) gates: usize,
    pub(super) inputs: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) bias: bool,
    pub(super) batch_first: bool,
    pub(super) dropout: f64,
    pub(super) bidirectional: bool,
    pub(super) project: Option<usize>,
}

/// Layers one after the other, in one direction or two.
pub struct RecurrentStack {
    /// Those of the first layer, forward and perhaps reverse, then those of the next.
    pub directions: Vec<RecurrentDirection>,
    dropout: Option<Dropout>,
    sizes: Sizes,
}

impl Visit for RecurrentStack {
    fn visit(&self, at: &mut Walk<'_>) {
        self.directions.iter().for_each(|d| d.visit(at));
        if let Some(dropout) = &self.dropout {
            at.field("dropout", dropout);
        }
    }
}

/// The initial or the last states of all layers and directions: `h` and, of an LSTM, `c`.
pub(super) type States = Vec<Tensor>;

impl RecurrentStack {
    pub(super) fn new(cx: &mut InitCx, s: Sizes) -> Result<RecurrentStack> {
        let refuse = |text: String| Err(Error::new(ErrorKind::Value, text).with_op(s.op));
        if s.layers > MOST_LAYERS {
            return refuse(format!("{} layers; there may be {MOST_LAYERS}", s.layers));
        }
        if s.layers == 0 || s.hidden == 0 {
            return refuse(format!("{} layers of {} states: there must be one of each", s.layers, s.hidden));
        }
        if s.project.is_some_and(|p| p == 0 || p >= s.hidden) {
            return refuse(format!("a projection of {} states to {} outputs", s.hidden, s.project.unwrap_or(0)));
        }
        let sides = if s.bidirectional { 2 } else { 1 };
        let width = s.project.unwrap_or(s.hidden);
        let mut directions = Vec::with_capacity(s.layers.saturating_mul(sides));
        for (layer, reverse) in (0..s.layers).flat_map(|layer| (0..sides).map(move |side| (layer, side == 1))) {
            let inputs = if layer == 0 { s.inputs } else { sides * width };
            let (rows, init) = (s.gates.saturating_mul(s.hidden), bias_init(s.hidden));
            directions.push(RecurrentDirection {
                suffix: format!("_l{layer}{}", if reverse { "_reverse" } else { "" }),
                reverse,
                weight_ih: cx.parameter([rows, inputs], init)?,
                weight_hh: cx.parameter([rows, width], init)?,
                bias_ih: optional(cx, s.bias, rows, init)?,
                bias_hh: optional(cx, s.bias, rows, init)?,
                weight_hr: s.project.map(|p| cx.parameter([p, s.hidden], init)).transpose()?,
            });
        }
        let dropout = if s.dropout == 0.0 { None } else { Some(Dropout::new(s.dropout, &mut cx.rng)?) };
        Ok(RecurrentStack { directions, dropout, sizes: s })
    }

    /// Outputs and last states of all layers. `one` is a layer in one direction: outputs, then last states.
    pub(super) fn forward(
        &self,
        x: &Tensor,
        states: &[&Tensor],
        lengths: Option<&Tensor>,
        one: impl Fn(&Tensor, &[Tensor], RecurrentWeights<'_>, RecurrentSteps<'_>) -> Result<(Tensor, States)>,
    ) -> Result<(Tensor, States)> {
        let s = &self.sizes;
        let is_batch = x.rank() == 3;
        if !is_batch && x.rank() != 2 {
            let text = format!("x has shape {}: its rank must be 3, or 2 without a batch", x.shape());
            return Err(Error::new(ErrorKind::Axis, text).with_op(s.op));
        }
        let swapped = is_batch && s.batch_first;
        let mut y = match (is_batch, swapped) {
            (false, _) => x.unsqueeze(1)?,
            (true, false) => x.clone(),
            (true, true) => x.transpose(0, 1)?,
        };
        let states = states.iter().map(|v| self.each_state(v, is_batch)).collect::<Result<Vec<_>>>()?;
        let mut last: Vec<Vec<Tensor>> = Vec::new();
        let sides = if s.bidirectional { 2 } else { 1 };
        for (layer, directions) in self.directions.chunks(sides).enumerate() {
            if let Some(dropout) = self.dropout.as_ref().filter(|_| layer > 0) {
                y = dropout.forward(&y)?;
            }
            let mut outputs = Vec::with_capacity(sides);
            for (side, d) in directions.iter().enumerate() {
                let first: Vec<Tensor> = states.iter().map(|all| all[layer * sides + side].clone()).collect();
                let (out, end) = d.run(&y, &first, lengths, &one)?;
                outputs.push(out);
                last.resize_with(end.len(), Vec::new);
                last.iter_mut().zip(end).for_each(|(all, state)| all.push(state));
            }
            y = match &outputs[..] {
                [only] => only.clone(),
                both => Tensor::concat(&both.iter().collect::<Vec<_>>(), -1)?,
            };
        }
        let y = match (is_batch, swapped) {
            (false, _) => y.squeeze(&[1])?,
            (true, false) => y,
            (true, true) => y.transpose(0, 1)?,
        };
        let join = |all: Vec<Tensor>| {
            let state = Tensor::stack(&all.iter().collect::<Vec<_>>(), 0)?;
            if is_batch { Ok(state) } else { state.squeeze(&[1]) }
        };
        Ok((y, last.into_iter().map(join).collect::<Result<_>>()?))
    }

    /// The states of each layer and direction.
    fn each_state(&self, all: &Tensor, is_batch: bool) -> Result<Vec<Tensor>> {
        let (count, rank) = (self.directions.len(), if is_batch { 3 } else { 2 });
        if all.rank() != rank || all.dims()[0] != count {
            let text = format!("a state has shape {}: it must be of rank {rank} and begin with {count}", all.shape());
            return Err(Error::new(ErrorKind::Shape, text).with_op(self.sizes.op));
        }
        let of = |i: usize| {
            let state = all.select(0, i as isize)?;
            if is_batch { Ok(state) } else { state.unsqueeze(0) }
        };
        (0..count).map(of).collect()
    }
}

impl RecurrentDirection {
    fn run(
        &self,
        x: &Tensor,
        first: &[Tensor],
        lengths: Option<&Tensor>,
        one: impl Fn(&Tensor, &[Tensor], RecurrentWeights<'_>, RecurrentSteps<'_>) -> Result<(Tensor, States)>,
    ) -> Result<(Tensor, States)> {
        let get = |p: &Option<Parameter>| p.as_ref().map(Parameter::get).transpose();
        let (w_ih, w_hh) = (self.weight_ih.get()?, self.weight_hh.get()?);
        let (b_ih, b_hh, w_hr) = (get(&self.bias_ih)?, get(&self.bias_hh)?, get(&self.weight_hr)?);
        let bias = b_ih.as_ref().zip(b_hh.as_ref()).map(|(ih, hh)| [ih, hh]);
        let w = RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, bias, w_hr: w_hr.as_ref() };
        one(x, first, w, RecurrentSteps { reverse: self.reverse, lengths })
    }
}

/// A parameter that may be left out.
pub(super) fn optional(cx: &mut InitCx, there: bool, len: usize, init: Init) -> Result<Option<Parameter>> {
    if there { Ok(Some(cx.parameter([len], init)?)) } else { Ok(None) }
}
