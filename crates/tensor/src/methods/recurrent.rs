//! Recurrent layers in one direction, and single steps of them.

use remat_ops::recurrent::{CellKind, Recurrent, recurrent_layer};
use remat_ops::schema::Choice;
use remat_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::site::InOp;
use crate::{TapeCx, Tensor, is_recording};

/// The weights of a recurrent layer in one direction, as PyTorch has them: the rows of each gate one after the other.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentWeights<'a> {
    /// `[gates hidden, inputs]`.
    pub w_ih: &'a Tensor,
    /// `[gates hidden, outputs]`, where there are as many outputs as `hidden` unless they are projected.
    pub w_hh: &'a Tensor,
    /// `b_ih` and `b_hh`, `[gates hidden]` each.
    pub bias: Option<[&'a Tensor; 2]>,
    /// The projection of an LSTM's outputs, `[outputs, hidden]`.
    pub w_hr: Option<&'a Tensor>,
}

impl<'a> RecurrentWeights<'a> {
    /// Without biases or a projection.
    pub fn new(w_ih: &'a Tensor, w_hh: &'a Tensor) -> Self {
        RecurrentWeights { w_ih, w_hh, bias: None, w_hr: None }
    }

    /// With biases.
    #[must_use]
    pub fn with_bias(self, b_ih: &'a Tensor, b_hh: &'a Tensor) -> Self {
        RecurrentWeights { bias: Some([b_ih, b_hh]), ..self }
    }
}

/// Which steps a recurrent layer takes, and in which order. The default: all, from the first to the last.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecurrentSteps<'a> {
    /// From the last step to the first.
    pub reverse: bool,
    /// Steps of each row: `[batch]`, integers within `0 ..= steps`. Outputs behind them are 0, and the last state is that of a
    /// row's own last step.
    pub lengths: Option<&'a Tensor>,
}

/// The function of a plain recurrent layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "snake_case")]
pub enum Nonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(0, x)`.
    Relu,
}

impl Nonlinearity {
    fn cell(self) -> CellKind {
        match self {
            Nonlinearity::Tanh => CellKind::RnnTanh,
            Nonlinearity::Relu => CellKind::RnnRelu,
        }
    }
}

/// Outputs and last states of a layer of `cell`.
#[track_caller]
fn run(
    cell: CellKind,
    x: &Tensor,
    state: &[&Tensor],
    w: RecurrentWeights<'_>,
    steps: RecurrentSteps<'_>,
) -> Result<Vec<Tensor>> {
    let cx = TapeCx::of(x);
    let float = x.dtype();
    if !float.is_float() {
        return Err(Error::new(ErrorKind::DType, format!("x is {float}, not a float")));
    }
    let mut all: Vec<Tensor> = vec![x.clone(), w.w_ih.clone(), w.w_hh.clone()];
    all.extend(state.iter().map(|t| (*t).clone()));
    all.extend(w.bias.iter().flatten().chain(w.w_hr.iter()).map(|t| (*t).clone()));
    if let Some(other) = all.iter().find(|t| t.dtype() != float) {
        let text = format!("x is {float}, a state or weight {}", other.dtype());
        return Err(Error::new(ErrorKind::DType, text));
    }
    // what the gradient reads is an output where there will be one
    let keep = is_recording() && all.iter().any(Tensor::is_tracked);
    let (initial, bias, project) = (!state.is_empty(), w.bias.is_some(), w.w_hr.is_some());
    let op = Recurrent { cell, reverse: steps.reverse, initial, bias, project, lengths: steps.lengths.is_some(), keep };
    let y = recurrent_layer(&cx, op, all, steps.lengths.cloned())?;
    Ok(y.into_vec())
}

fn two(y: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
    let [y, h] = <[Tensor; 2]>::try_from(y).map_err(|_| Error::new(ErrorKind::Internal, "a layer has two outputs"))?;
    Ok((y, h))
}

fn three(y: Vec<Tensor>) -> Result<(Tensor, [Tensor; 2])> {
    let [y, h, c] =
        <[Tensor; 3]>::try_from(y).map_err(|_| Error::new(ErrorKind::Internal, "an LSTM has three outputs"))?;
    Ok((y, [h, c]))
}

impl Tensor {
    /// `[batch, n]` as one step.
    fn as_step(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            let text = format!("x has shape {}: its rank must be 2", self.shape());
            return Err(Error::new(ErrorKind::Axis, text));
        }
        self.unsqueeze(0)
    }

    /// A plain recurrent layer: `h' = f(W_ih x + b_ih + W_hh h + b_hh)` for each step of `self: [steps, batch, inputs]`. Gives
    /// the states after each step, `[steps, batch, hidden]`, and the last one, `[batch, hidden]`. `state` is the first one, of
    /// zeros if there is none.
    ///
    /// Errors: DType, Axis, Shape; Index for a length that is not in `0 ..= steps`.
    ///
    /// ```
    /// # use remat_tensor::{Nonlinearity, RecurrentSteps, RecurrentWeights, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0], [3, 1, 1])?;
    /// let one = Tensor::new(&device, &[1.0f32], [1, 1])?;
    /// let w = RecurrentWeights::new(&one, &one);
    /// let (y, h) = x.rnn(Nonlinearity::Relu, None, w, RecurrentSteps::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
    /// assert_eq!(h.to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    #[doc(alias = "rnn_tanh")]
    #[doc(alias = "rnn_relu")]
    pub fn rnn(
        &self,
        f: Nonlinearity,
        state: Option<&Tensor>,
        w: RecurrentWeights<'_>,
        steps: RecurrentSteps<'_>,
    ) -> Result<(Tensor, Tensor)> {
        run(f.cell(), self, state.as_slice(), w, steps).and_then(two).in_op("rnn")
    }

    /// Long short-term memory (Hochreiter and Schmidhuber, 1997), for each step of `self: [steps, batch, inputs]`, with the
    /// gates `i, f, g, o` in the order of PyTorch's weights: `c' = f c + i g`, `h' = o tanh(c')`, where `i, f, o` go through
    /// the sigmoid and `g` through tanh. Gives the `h` after each step and the last `[h, c]`. `state` is the first `[h, c]`, of
    /// zeros if there is none. With a projection `h' = W_hr (o tanh(c'))`.
    ///
    /// Errors: as [`Tensor::rnn`].
    ///
    /// ```
    /// # use remat_tensor::{RecurrentSteps, RecurrentWeights, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::zeros(&device, [3, 2, 4], remat_types::DType::F32)?;
    /// let (w_ih, w_hh) = (Tensor::ones(&device, [20, 4], x.dtype())?, Tensor::ones(&device, [20, 5], x.dtype())?);
    /// let (y, [h, c]) = x.lstm(None, RecurrentWeights::new(&w_ih, &w_hh), RecurrentSteps::default())?;
    /// assert_eq!((y.dims(), h.dims(), c.dims()), (&[3, 2, 5][..], &[2, 5][..], &[2, 5][..]));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn lstm(
        &self,
        state: Option<[&Tensor; 2]>,
        w: RecurrentWeights<'_>,
        steps: RecurrentSteps<'_>,
    ) -> Result<(Tensor, [Tensor; 2])> {
        run(CellKind::Lstm, self, state.as_ref().map_or(&[], |s| &s[..]), w, steps).and_then(three).in_op("lstm")
    }

    /// Gated recurrent unit (Cho et al., 2014), for each step of `self: [steps, batch, inputs]`, with the gates `r, z, n` in
    /// the order of PyTorch's weights: `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`, `h' = (1 - z) n + z h`, where `r, z` go
    /// through the sigmoid. Gives the states after each step, and the last one. `state` is the first one, of zeros if there is
    /// none.
    ///
    /// Errors: as [`Tensor::rnn`].
    ///
    /// ```
    /// # use remat_tensor::{RecurrentSteps, RecurrentWeights, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0f32, 1.0], [2, 1, 1])?;
    /// let zeros = Tensor::zeros(&device, [3, 1], x.dtype())?;
    /// let first = Tensor::new(&device, &[8.0f32], [1, 1])?;
    /// // both gates are one half
    /// let (y, _) = x.gru(Some(&first), RecurrentWeights::new(&zeros, &zeros), RecurrentSteps::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [4.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn gru(
        &self,
        state: Option<&Tensor>,
        w: RecurrentWeights<'_>,
        steps: RecurrentSteps<'_>,
    ) -> Result<(Tensor, Tensor)> {
        run(CellKind::Gru, self, state.as_slice(), w, steps).and_then(two).in_op("gru")
    }

    /// One step of [`Tensor::rnn`] for `self: [batch, inputs]`: the next state, `[batch, hidden]`. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::{Nonlinearity, RecurrentWeights, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let one = Tensor::new(&device, &[1.0f32], [1, 1])?;
    /// let h = one.rnn_cell(Nonlinearity::Relu, Some(&one), RecurrentWeights::new(&one, &one))?;
    /// assert_eq!(h.to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    #[doc(alias = "rnn_tanh_cell")]
    #[doc(alias = "rnn_relu_cell")]
    pub fn rnn_cell(&self, f: Nonlinearity, state: Option<&Tensor>, w: RecurrentWeights<'_>) -> Result<Tensor> {
        let x = self.as_step().in_op("rnn_cell")?;
        let y = run(f.cell(), &x, state.as_slice(), w, RecurrentSteps::default());
        y.and_then(two).in_op("rnn_cell").map(|(_, h)| h)
    }

    /// One step of [`Tensor::lstm`] for `self: [batch, inputs]`: the next `[h, c]`. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::{RecurrentWeights, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0f32], [1, 1])?;
    /// let zeros = Tensor::zeros(&device, [4, 1], x.dtype())?;
    /// // all gates are one half, and `g` is 0
    /// let [_, c] = x.lstm_cell(Some([&x, &x]), RecurrentWeights::new(&zeros, &zeros))?;
    /// assert_eq!(c.to_vec::<f32>()?, [0.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn lstm_cell(&self, state: Option<[&Tensor; 2]>, w: RecurrentWeights<'_>) -> Result<[Tensor; 2]> {
        let x = self.as_step().in_op("lstm_cell")?;
        let y = run(CellKind::Lstm, &x, state.as_ref().map_or(&[], |s| &s[..]), w, RecurrentSteps::default());
        y.and_then(three).in_op("lstm_cell").map(|(_, state)| state)
    }

    /// One step of [`Tensor::gru`] for `self: [batch, inputs]`: the next state, `[batch, hidden]`. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::{RecurrentWeights, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[6.0f32], [1, 1])?;
    /// let zeros = Tensor::zeros(&device, [3, 1], x.dtype())?;
    /// assert_eq!(x.gru_cell(Some(&x), RecurrentWeights::new(&zeros, &zeros))?.to_vec::<f32>()?, [3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn gru_cell(&self, state: Option<&Tensor>, w: RecurrentWeights<'_>) -> Result<Tensor> {
        let x = self.as_step().in_op("gru_cell")?;
        let y = run(CellKind::Gru, &x, state.as_slice(), w, RecurrentSteps::default());
        y.and_then(two).in_op("gru_cell").map(|(_, h)| h)
    }
}
