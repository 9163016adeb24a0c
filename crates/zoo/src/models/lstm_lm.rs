use remat_nn::{Dropout, Embedding, Init, InitCx, Layer, Linear, LinearOptions, Lstm, LstmOptions, Module, extents};
use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};
use serde::{Deserialize, Serialize};

use super::transformer::{drop_some, dropout};

/// Which [`LstmLm`]. The default is the small network of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LstmLmConfig {
    /// Recurrent layers.
    pub layers: usize,
    /// Numbers of a token, and of each layer's state.
    pub width: usize,
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Probability with which a number between layers is dropped in training.
    pub dropout: f64,
}

impl LstmLmConfig {
    /// 2 layers of 200 numbers, 10,000 words: 4,653,200 parameters (the paper's has one bias a gate, and 1,600 fewer).
    pub fn small() -> Self {
        LstmLmConfig { layers: 2, width: 200, vocabulary: 10_000, dropout: 0.0 }
    }

    /// 2 layers of 650: 19,780,400 parameters.
    pub fn medium() -> Self {
        LstmLmConfig { width: 650, dropout: 0.5, ..LstmLmConfig::small() }
    }

    /// 2 layers of 1,500: 66,034,000 parameters.
    pub fn large() -> Self {
        LstmLmConfig { width: 1500, dropout: 0.65, ..LstmLmConfig::small() }
    }
}

impl Default for LstmLmConfig {
    fn default() -> Self {
        LstmLmConfig::small()
    }
}

/// A language model of LSTM layers (Zaremba et al., 2014): tokens `[n, t]` of any integer dtype to logits `[n, t,
/// vocabulary]` of the
/// token that comes next.
///
/// Errors: Axis for another rank, DType for tokens that are no integers; at run time, Index for one that is not in the
/// vocabulary.
///
/// ```
/// use remat_zoo::models::{LstmLm, LstmLmConfig};
/// use remat_nn::InitCx;
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let config = LstmLmConfig { layers: 2, width: 16, vocabulary: 256, dropout: 0.0 };
/// let net = LstmLm::new(&mut InitCx::new(&device, 1), &config)?;
/// let tokens = Tensor::new(&device, b"to be", [1, 5])?;
/// let (logits, state) = net.forward_with(&tokens, None)?;
/// // goes on where it was
/// let (next, _) = net.forward_with(&tokens, Some(&state))?;
/// assert_eq!((logits.dims(), next.dims()), (&[1, 5, 256][..], &[1, 5, 256][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct LstmLm {
    tokens: Embedding,
    dropout: Option<Dropout>,
    body: Lstm,
    head: Linear,
}

impl LstmLm {
    /// A network with scopes named `lstm_lm`. Errors: Value for no layers, a width of 0 or a dropout outside 0 ..= 1; Budget if
    /// it does not fit.
    pub fn new(cx: &mut InitCx, config: &LstmLmConfig) -> Result<Self> {
        let LstmLmConfig { layers, width, vocabulary, dropout: p } = *config;
        let init = Init::Uniform { lo: -RANGE, hi: RANGE };
        let options = LstmOptions { num_layers: layers, batch_first: true, dropout: p, ..LstmOptions::default() };
        let head = LinearOptions { weight_init: init, bias_init: Some(Init::Zeros), ..LinearOptions::default() };
        let net = LstmLm {
            tokens: Embedding::with(cx, vocabulary, width, init)?,
            dropout: dropout(cx, p)?,
            body: Lstm::with(cx, width, width, options)?,
            head: Linear::with(cx, width, vocabulary, head)?,
        };
        net.name_scopes("lstm_lm");
        Ok(net)
    }

    /// Logits, and the state behind the last token, from a state or from zeros; states are `[layers, n, width]`.
    #[track_caller]
    pub fn forward_with(&self, tokens: &Tensor, state: Option<&[Tensor; 2]>) -> Result<(Tensor, [Tensor; 2])> {
        let _site = Scope::at(CallSite::here());
        extents::<2>(tokens, "lstm_lm")?;
        let x = drop_some(self.tokens.forward(tokens)?, self.dropout.as_ref())?;
        let (y, state) = self.body.forward_with(&x, state.map(|[h, c]| [h, c]), None)?;
        Ok((self.head.forward(&drop_some(y, self.dropout.as_ref())?)?, state))
    }
}

/// Weights begin in `-RANGE .. RANGE`, as in the paper's small network.
const RANGE: f64 = 0.1;

impl Layer for LstmLm {
    #[track_caller]
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        Ok(self.forward_with(tokens, None)?.0)
    }
}
