use remat_tensor::Tensor;
use remat_tensor::comm::Communicator;
use remat_types::{Error, ErrorKind, Result};

use super::conjugate::{enter_parallel, gather_blocks, leave_parallel, take_part};
use crate::divided::Divided;
use crate::layers::{plus, product};
use crate::{InitCx, Label, Layer, Linear, LinearOptions, Module, Parameter};

/// How a [`ColumnParallelLinear`] is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnParallelOptions {
    /// All ranks get the whole output, `[.., out]`; else each has its part, `[.., out / ranks]`, which a [`RowParallelLinear`] takes.
    /// Default: false.
    pub gather_output: bool,
    /// The number of consecutive blocks of outputs. Each rank has a part of each block. 3 for `q, k, v` in one layer, 2 for the
    /// halves of a gated one. Default: 1.
    pub blocks: usize,
}

impl Default for ColumnParallelOptions {
    fn default() -> Self {
        ColumnParallelOptions { gather_output: false, blocks: 1 }
    }
}

/// A [`Linear`] layer whose outputs are divided by ranks (Shoeybi et al., Megatron-LM, 2019, section 3): `x: [.., in]`, which all ranks
/// have alike, to this rank's `y: [.., out / ranks]`; `weight: [out / ranks, in]`, `bias: [out / ranks]`.
///
/// Each rank's backward pass of its own loss gives the gradients that one process gets; there is no factor to think of, and nothing to
/// reduce afterwards. Names are those of [`Linear`], and [`whole_state_dict`](super::whole_state_dict) has the whole layer.
///
/// Errors: those of [`Linear`]. On the device: those of a collective.
///
/// ```
/// # use remat_nn::distributed::{ColumnParallelLinear, RowParallelLinear, threads, whole_state_dict};
/// # use remat_nn::{InitCx, Layer, Linear, Module};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// let seen = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let cx = &mut InitCx::new(&device, 1);
///     let up = ColumnParallelLinear::new(cx, 4, 8, &ranks)?;
///     let down = RowParallelLinear::new(cx, 8, 4, &ranks)?;
///     let x = Tensor::ones(&device, [3, 4], remat_types::DType::F32)?;
///     down.forward(&up.forward(&x)?.relu()?)?.square()?.mean()?.backward()?;
///     assert_eq!(up.named_parameters()[0].1.shape()[..], [4, 4]);
///     whole_state_dict(&up)
/// })?;
/// // the whole layer's state, on every rank: that of one process with the same seed
/// assert_eq!(seen[0]["weight"].shape()[..], [8, 4]);
/// assert_eq!(seen[0], seen[1]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct ColumnParallelLinear {
    #[module(flatten)]
    label: Label,
    /// `[out / ranks, in]`.
    pub weight: Divided,
    /// `[out / ranks]`.
    pub bias: Option<Divided>,
    #[module(skip)]
    options: ColumnParallelOptions,
}

impl ColumnParallelLinear {
    /// A layer from `inputs` to `outputs` numbers of all ranks together, with a bias. Each rank draws the whole layer, which its device
    /// holds for that moment: so the numbers are those of [`Linear::new`], whatever the number of ranks.
    ///
    /// Errors: Value if the ranks do not divide the outputs; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, group: &Communicator) -> Result<Self> {
        ColumnParallelLinear::with(cx, inputs, outputs, LinearOptions::default(), Default::default(), group)
    }

    /// As [`ColumnParallelLinear::new`] with options. Errors: also those of [`Linear::with`].
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        of_layer: LinearOptions,
        options: ColumnParallelOptions,
        group: &Communicator,
    ) -> Result<Self> {
        ColumnParallelLinear::from_linear(&Linear::with(cx, inputs, outputs, of_layer)?, options, group)
    }

    /// This rank's part of a layer that all ranks have alike. Errors: Value if blocks and ranks do not divide the outputs; Budget if the
    /// part does not fit beside the whole.
    pub fn from_linear(whole: &Linear, options: ColumnParallelOptions, group: &Communicator) -> Result<Self> {
        let (outputs, parts) = (whole.weight.shape()[0], options.blocks.saturating_mul(group.size()));
        if parts == 0 || !outputs.is_multiple_of(parts) {
            let blocks = if options.blocks == 1 { String::new() } else { format!(" in {} blocks", options.blocks) };
            let text = format!("{} ranks do not divide {outputs} outputs{blocks}", group.size());
            return Err(Error::new(ErrorKind::Value, text).with_op("linear"));
        }
        let part = |p: &Parameter| Divided::from_whole(p, 0, options.blocks, group);
        let (weight, bias) = (part(&whole.weight)?, whole.bias.as_ref().map(part).transpose()?);
        Ok(ColumnParallelLinear { label: Label::new("linear"), weight, bias, options })
    }
}

impl Layer for ColumnParallelLinear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        let group = self.weight.group();
        let mut y = product(&enter_parallel(x, group)?, &self.weight.part().get()?)?;
        if let Some(bias) = &self.bias {
            y = plus(y, bias.part().get()?)?;
        }
        if self.options.gather_output { gather_blocks(&y, -1, self.options.blocks, group) } else { Ok(y) }
    }
}

/// A [`Linear`] layer whose inputs are divided by ranks (Shoeybi et al., Megatron-LM, 2019, section 3): this rank's
/// `x: [.., in / ranks]`, as a [`ColumnParallelLinear`] gives it, to `y: [.., out]`, which all ranks get alike; `weight:
/// [out, in / ranks]`, and the whole `bias: [out]`, which is added once.
///
/// Gradients and names are as there. Errors: those of [`Linear`]. On the device: those of a collective.
///
/// ```
/// # use remat_nn::distributed::{RowParallelLinear, threads};
/// # use remat_nn::{InitCx, Layer, Linear};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let whole = Linear::new(&mut InitCx::new(&device, 1), 8, 4)?;
///     let divided = RowParallelLinear::from_linear(&whole, Default::default(), &ranks)?;
///     let x = Tensor::ones(&device, [3, 8], remat_types::DType::F32)?;
///     let y = divided.forward(&x.narrow(1, 4 * ranks.rank() as isize, 4)?)?;
///     assert!(y.sub(whole.forward(&x)?)?.abs()?.max()?.item::<f32>()? < 1e-6);
///     Ok(())
/// })?;
/// # Ok::<(), remat_types::Error>(())
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct RowParallelLinear {
    #[module(flatten)]
    label: Label,
    /// `[out, in / ranks]`.
    pub weight: Divided,
    /// `[out]`, alike on all ranks.
    pub bias: Option<Parameter>,
    #[module(skip)]
    options: RowParallelOptions,
}

/// How a [`RowParallelLinear`] is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowParallelOptions {
    /// The input is whole, `[.., in]`, alike on all ranks, and each takes its part of it. Default: false.
    pub whole_input: bool,
}

impl RowParallelLinear {
    /// A layer from `inputs` numbers of all ranks together to `outputs`, with a bias; drawn as
    /// [`ColumnParallelLinear::new`] says. Errors: Value if the ranks do not divide the inputs; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, group: &Communicator) -> Result<Self> {
        RowParallelLinear::with(cx, inputs, outputs, LinearOptions::default(), Default::default(), group)
    }

    /// As [`RowParallelLinear::new`] with options. Errors: also those of [`Linear::with`].
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        of_layer: LinearOptions,
        options: RowParallelOptions,
        group: &Communicator,
    ) -> Result<Self> {
        RowParallelLinear::from_linear(&Linear::with(cx, inputs, outputs, of_layer)?, options, group)
    }

    /// This rank's part of a layer that all ranks have alike; the bias is the layer's own. Errors: Value if the ranks do not divide the
    /// inputs; Budget if the part does not fit beside the whole.
    pub fn from_linear(whole: &Linear, options: RowParallelOptions, group: &Communicator) -> Result<Self> {
        let inputs = whole.weight.shape()[1];
        if !inputs.is_multiple_of(group.size()) {
            let text = format!("{} ranks do not divide {inputs} inputs", group.size());
            return Err(Error::new(ErrorKind::Value, text).with_op("linear"));
        }
        let weight = Divided::from_whole(&whole.weight, 1, 1, group)?;
        Ok(RowParallelLinear { label: Label::new("linear"), weight, bias: whole.bias.clone(), options })
    }
}

impl Layer for RowParallelLinear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        let (group, weight) = (self.weight.group(), self.weight.part().get()?);
        let part = match self.options.whole_input {
            true => product(&take_part(x, -1, group)?, &weight)?,
            false => product(x, &weight)?,
        };
        let y = leave_parallel(&part, group)?;
        match &self.bias {
            Some(bias) => plus(y, bias.get()?),
            None => Ok(y),
        }
    }
}
