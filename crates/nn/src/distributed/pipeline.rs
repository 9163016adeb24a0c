use std::collections::BTreeMap;

use remat_runtime::{Device, tracing};
use remat_tensor::comm::{Call, Communicator};
use remat_tensor::{Tensor, no_grad};
use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape};

use super::alike::Alike;
use super::pipeline_schedule::{Move, PipelineSchedule};
use crate::Layer;

/// A network as stages that pass micro-batches on to one another: each rank of a group has one stage, the first on rank 0, where
/// batches come in, the last on the last rank, where losses are. (Huang et al., GPipe, 2019; Narayanan et al., PipeDream, 2019
/// and 2021.)
///
/// The gradients, and so the weights, have the bits of one process that takes the same micro-batches one after the other
/// ([`Accumulate`](crate::Accumulate)), under every [`PipelineSchedule`]. The input that a stage receives is a leaf: a budget may
/// spill it to a file, but not drop it. Other tensors of the stage are evicted and recomputed as always. A stage may itself lie
/// on several ranks, which have the same place in their own groups ([`Communicator::split`]).
///
/// ```
/// # use remat_nn::distributed::{Pipeline, threads};
/// # use remat_nn::{InitCx, Layer, Linear, Module, Optimizer, Reduction, Sgd, SgdOptions, loss};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let stage = Linear::new(&mut InitCx::new(&device, ranks.rank() as u64), 2, 2)?;
///     let pipeline = Pipeline::new(stage, &device, &ranks, Default::default())?;
///     let mut sgd = Sgd::new(pipeline.stage().named_parameters(), SgdOptions::default())?;
///     let x = Tensor::ones(&device, [4, 2], remat_types::DType::F32)?;
///     for _ in 0..3 {
///         // only rank 0 is asked for inputs, only the last rank for losses
///         let input = |i: usize| x.narrow(0, i as isize, 1);
///         let losses = pipeline.backward(4, input, |y, i| loss::mse(y, &x.narrow(0, i as isize, 1)?, Reduction::Mean))?;
///         assert_eq!(losses.len(), if ranks.rank() == 1 { 4 } else { 0 });
///         sgd.step()?;
///     }
///     Ok(())
/// })?;
/// # Ok::<(), remat_types::Error>(())
/// ```
pub struct Pipeline<S> {
    stage: S,
    device: Device,
    group: Communicator,
    /// The communicator for messages between the threads of the ranks' programs.
    facts: Communicator,
    schedule: PipelineSchedule,
}

/// The longest text that says a dtype and a shape.
const FACT_BYTES: usize = 256;

impl<S: Layer> Pipeline<S> {
    /// A pipeline. This rank has `stage`, on `device`. All ranks call this function.
    ///
    /// Errors: Value for a device that was opened without [`DeviceOptions::ranks`](remat_runtime::DeviceOptions::ranks) where there are
    /// several; Peer if a rank failed, does not come, or has another schedule.
    pub fn new(stage: S, device: &Device, group: &Communicator, schedule: PipelineSchedule) -> Result<Self> {
        if group.size() > 1 && device.options().ranks.is_none() {
            let text = "the device was opened without `DeviceOptions::ranks`, so its updates could be made on some stages only";
            return Err(Error::new(ErrorKind::Value, text).with_op("pipeline"));
        }
        // the device's thread makes no call meanwhile
        Alike::default().option("schedule", format_args!("{schedule:?}")).check("pipeline", group, [device], Ok(()))?;
        device.channel().sync()?;
        let facts = group.duplicate()?;
        Ok(Pipeline { stage, device: device.clone(), group: group.clone(), facts, schedule })
    }

    /// This rank's stage.
    pub fn stage(&self) -> &S {
        &self.stage
    }

    /// The ranks.
    pub fn group(&self) -> &Communicator {
        &self.group
    }

    /// Accumulates the gradient of the mean of all micro-batches' losses into each stage's parameters; gives the losses on the last
    /// rank, and none on others. `input(i)` gives micro-batch `i`, on rank 0; `loss(y, i)` its loss, on the last rank. All ranks call it
    /// with the same number of micro-batches, whose outputs have one dtype and shape between two stages; another call may have others.
    ///
    /// An error of one rank's stage, input or loss, on its program's thread or on its device, comes to all ranks. In a compiled function
    /// ranks trace together: where the trace of one fails, all of them compile anew.
    ///
    /// Errors: Value for no micro-batch; DType for an output between stages that is no float, Shape for one of other extents than the
    /// first; those of inputs, stage and loss; Peer if another rank failed, does not come, or calls something else.
    #[track_caller]
    pub fn backward(
        &self,
        micro_batches: usize,
        input: impl FnMut(usize) -> Result<Tensor>,
        loss: impl FnMut(&Tensor, usize) -> Result<Tensor>,
    ) -> Result<Vec<Tensor>> {
        let moves = self.schedule.moves(self.group.rank(), self.group.size(), micro_batches);
        Pass::new(self, micro_batches, true, input, loss).run(&moves)
    }

    /// The outputs of all micro-batches on the last rank, and none on others; nothing is recorded for gradients.
    /// Otherwise, and in its errors, as [`Pipeline::backward`]; outputs between stages may be of any dtype.
    #[track_caller]
    pub fn forward(&self, micro_batches: usize, input: impl FnMut(usize) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        let _quiet = no_grad();
        let moves = PipelineSchedule::forward_moves(self.group.rank(), self.group.size(), micro_batches);
        Pass::new(self, micro_batches, false, input, |y, _| Ok(y.clone())).run(&moves)
    }

    fn is_last(&self) -> bool {
        self.group.rank() + 1 == self.group.size()
    }
}

/// The tensors of a micro-batch that a stage holds.
#[derive(Default)]
struct Held {
    /// From the stage before; a leaf, for its gradient.
    x: Option<Tensor>,
    /// The output; on the last stage the loss.
    y: Option<Tensor>,
    /// From the stage behind.
    dy: Option<Tensor>,
}

/// All micro-batches' passes of one stage.
struct Pass<'p, S, I, L> {
    pipeline: &'p Pipeline<S>,
    micro_batches: usize,
    is_training: bool,
    input: I,
    loss: L,
    held: BTreeMap<usize, Held>,
    given: Vec<Tensor>,
    /// Of inputs, as the stage before has said.
    heard: Told,
    /// Of outputs, as the stage behind was told.
    told: Told,
}

/// The dtype and shape on which two ranks agree with the first micro-batch.
#[derive(Default)]
struct Told {
    fact: Option<Fact>,
    /// Both have met, whatever came of it.
    is_over: bool,
}

impl<'p, S, I, L> Pass<'p, S, I, L>
where
    S: Layer,
    I: FnMut(usize) -> Result<Tensor>,
    L: FnMut(&Tensor, usize) -> Result<Tensor>,
{
    fn new(pipeline: &'p Pipeline<S>, micro_batches: usize, is_training: bool, input: I, loss: L) -> Self {
        let (heard, told) = (Told::default(), Told::default());
        Pass {
            pipeline,
            micro_batches,
            is_training,
            input,
            loss,
            held: BTreeMap::new(),
            given: Vec::new(),
            heard,
            told,
        }
    }

    #[track_caller]
    fn run(mut self, moves: &[Move]) -> Result<Vec<Tensor>> {
        if self.micro_batches == 0 {
            let e = Error::new(ErrorKind::Value, "takes at least one micro-batch").with_op("pipeline");
            self.give_up(&[], &e);
            return Err(e);
        }
        for (done, m) in moves.iter().enumerate() {
            if let Err(e) = self.make(*m) {
                let e = e.context(format_args!("stage {}, {m:?}", self.pipeline.group.rank()));
                // nothing of a trace has run
                self.give_up(if tracing::is_tracing() { moves } else { &moves[done..] }, &e);
                return Err(e);
            }
        }
        Ok(self.given)
    }

    #[track_caller]
    fn make(&mut self, m: Move) -> Result<()> {
        match m {
            Move::ReceiveInput(i) => {
                if i == 0 {
                    self.hear()?;
                }
                let x = self.receive(self.before(), &fact_of(&self.heard)?)?;
                self.held.entry(i).or_default().x = Some(x);
                Ok(())
            }
            Move::Forward(i) => self.forward(i),
            Move::SendOutput(i) => {
                let y = self.held(i).y.clone().ok_or_else(|| missing("an output"))?;
                if i == 0 {
                    self.tell(&y)?;
                }
                self.check_told(&y, i)?;
                self.send(&y.detach(), self.behind())?;
                if !self.is_training {
                    self.held.remove(&i);
                }
                Ok(())
            }
            Move::ReceiveGradient(i) => {
                let dy = self.receive(self.behind(), &fact_of(&self.told)?)?;
                self.held(i).dy = Some(dy);
                Ok(())
            }
            Move::Backward(i) => self.backward(i),
            Move::SendGradient(i) => {
                let x = self.held.remove(&i).and_then(|h| h.x).ok_or_else(|| missing("an input"))?;
                let dx = match x.take_grad() {
                    Some(dx) => dx,
                    // the stage does not use it
                    None => Tensor::zeros(&x.device(), x.shape().clone(), x.dtype())?,
                };
                self.send(&dx, self.before())
            }
        }
    }

    #[track_caller]
    fn forward(&mut self, i: usize) -> Result<()> {
        let x = match self.held(i).x.take() {
            // an input of the first stage is no leaf: its gradient goes nowhere
            None => (self.input)(i)?,
            Some(x) if self.is_training => {
                let x = x.requires_grad()?;
                self.held(i).x = Some(x.clone());
                x
            }
            Some(x) => x,
        };
        let y = self.pipeline.stage.forward(&x)?;
        if !self.pipeline.is_last() {
            if self.is_training && !y.dtype().is_float() {
                let text = format!("the output is {}, which has no gradient", y.dtype());
                return Err(Error::new(ErrorKind::DType, text).with_op("pipeline"));
            }
            self.held(i).y = Some(y);
            return Ok(());
        }
        let loss = (self.loss)(&y, i)?;
        self.given.push(loss.detach());
        if self.is_training {
            self.held(i).y = Some(loss);
        } else {
            self.held.remove(&i);
        }
        Ok(())
    }

    #[track_caller]
    fn backward(&mut self, i: usize) -> Result<()> {
        let Held { y, dy, .. } = self.held(i);
        let (y, dy) = (y.take().ok_or_else(|| missing("an output"))?, dy.take());
        if self.pipeline.is_last() {
            return y.div(self.micro_batches as f64)?.backward();
        }
        // a first stage may have nothing to train
        if y.is_tracked() { y.backward_with(dy.as_ref(), false) } else { Ok(()) }
    }

    fn held(&mut self, i: usize) -> &mut Held {
        self.held.entry(i).or_default()
    }

    fn before(&self) -> usize {
        self.pipeline.group.rank() - 1
    }

    fn behind(&self) -> usize {
        self.pipeline.group.rank() + 1
    }

    #[track_caller]
    fn send(&self, x: &Tensor, to: usize) -> Result<()> {
        x.send_to(to, &self.pipeline.group).map(drop)
    }

    #[track_caller]
    fn receive(&self, from: usize, fact: &Fact) -> Result<Tensor> {
        Tensor::receive(&self.pipeline.device, from, fact.dtype, fact.shape.clone(), &self.pipeline.group)
    }

    /// The call that both ranks of a link must make before the first message.
    fn call(&self) -> Call {
        let name = if self.is_training { "backward" } else { "forward" };
        Call::named(format!("pipeline {name} of {} micro-batches, {:?}", self.micro_batches, self.pipeline.schedule))
    }

    /// Tells the next stage the dtype and shape to come. Errors: Peer; Shape for more axes than there is room for.
    fn tell(&mut self, y: &Tensor) -> Result<()> {
        let text = text_of(y.dtype(), y.shape());
        let mut bytes = [0; FACT_BYTES];
        let Some(room) = bytes.get_mut(..text.len()) else {
            let text = format!("an output of shape {} is not told to another stage", y.shape());
            return Err(Error::new(ErrorKind::Shape, text).with_op("pipeline"));
        };
        room.copy_from_slice(text.as_bytes());
        self.told.is_over = true;
        self.pipeline.facts.send(&self.call(), self.behind(), &bytes)?;
        self.told.fact = Some(Fact::new(y.dtype(), y.shape().clone()));
        Ok(())
    }

    /// Receives the dtype and shape to come from the previous stage. Errors: Peer.
    fn hear(&mut self) -> Result<()> {
        let mut bytes = [0; FACT_BYTES];
        self.heard.is_over = true;
        self.pipeline.facts.receive(&self.call(), self.before(), &mut bytes)?;
        let text = bytes.split(|b| *b == 0).next().unwrap_or_default();
        let fact = std::str::from_utf8(text).ok().and_then(fact_from);
        self.heard.fact = Some(fact.ok_or_else(|| missing("a dtype and a shape"))?);
        Ok(())
    }

    /// Errors (Shape) for an output that is not as the first.
    fn check_told(&self, y: &Tensor, i: usize) -> Result<()> {
        let fact = fact_of(&self.told)?;
        if fact.dtype == y.dtype() && fact.shape == *y.shape() {
            return Ok(());
        }
        let text = format!(
            "the output of micro-batch {i} is {} {}, that of the first {} {}",
            y.dtype(),
            y.shape(),
            fact.dtype,
            fact.shape
        );
        Err(Error::new(ErrorKind::Shape, text).with_op("pipeline"))
    }

    /// Tells the neighbours, in the place of all messages that will not be made, why; they tell theirs, and none waits for this one.
    fn give_up(&mut self, left: &[Move], why: &Error) {
        let Pipeline { group, facts, device, .. } = self.pipeline;
        let (rank, call) = (group.rank(), self.call());
        let is_unheard = rank > 0 && !self.heard.is_over;
        if is_unheard && facts.fail_message(&call, rank - 1, why).is_err() {
            return;
        }
        let is_untold = !self.pipeline.is_last() && !self.told.is_over;
        if is_untold && facts.fail_message(&call, rank + 1, why).is_err() {
            return;
        }
        // the device's thread makes the messages that it has; what failed there comes behind what failed here
        let _ = device.channel().sync();
        for m in left {
            // a link on which nothing was agreed has no messages, on either side
            let (peer, told) = match m {
                Move::ReceiveInput(_) | Move::SendGradient(_) => (rank.wrapping_sub(1), &self.heard),
                Move::SendOutput(_) | Move::ReceiveGradient(_) => (rank + 1, &self.told),
                Move::Forward(_) | Move::Backward(_) => continue,
            };
            if told.fact.is_some() && group.fail_message(&call, peer, why).is_err() {
                // a rank is gone, which the others hear by themselves
                return;
            }
        }
    }
}

fn fact_of(told: &Told) -> Result<Fact> {
    told.fact.clone().ok_or_else(|| missing("a dtype and a shape"))
}

fn missing(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("a pipeline without {what}"))
}

fn text_of(dtype: DType, shape: &Shape) -> String {
    shape.iter().fold(dtype.name().to_owned(), |text, extent| format!("{text} {extent}"))
}

fn fact_from(text: &str) -> Option<Fact> {
    let mut words = text.split(' ');
    let name = words.next()?;
    let dtype = DType::ALL.into_iter().find(|d| d.name() == name)?;
    let extents: Vec<usize> = words.map(|w| w.parse().ok()).collect::<Option<_>>()?;
    Some(Fact::new(dtype, extents))
}
