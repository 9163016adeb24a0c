//! Averages of a module's weights over its training, and the statistics of batches that fit them.

use std::collections::BTreeMap;

use remat_ops::pointwise::{Binary, BinaryFn, Where};
use remat_tensor::{Tensor, no_grad};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

use crate::module::walk;
use crate::state::{self, LoadReport};
use crate::{Arg, Mode, Module, Momentum, Parameter, Role, Visitor, update};

/// How an [`Average`] counts what it sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AverageOptions {
    /// The weight of the earlier average in an exponential moving average (EMA); `None` gives all versions the same weight,
    /// as stochastic weight averaging does (SWA; Izmailov et al., UAI 2018).
    pub decay: Option<f64>,
    /// Averages the buffers of floats as well, such as running statistics; else they are taken as they are. Default: false.
    pub buffers: bool,
}

impl AverageOptions {
    /// An exponential moving average: `a = decay a + (1 - decay) w`.
    pub fn ema(decay: f64) -> Self {
        AverageOptions { decay: Some(decay), buffers: false }
    }

    /// The mean of all.
    pub fn swa() -> Self {
        AverageOptions { decay: None, buffers: false }
    }
}

struct Entry {
    name: String,
    own: Parameter,
    average: Parameter,
}

/// A second copy of a module's state that follows it, as `torch.optim.swa_utils.AveragedModel`. The first [`Average::update`]
/// takes the weights as they are.
///
/// The average lives on the device and under its budget, and an update may be part of a compiled step.
///
/// ```
/// # use remat_nn::{Average, AverageOptions, InitCx, Linear, Module};
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let net = Linear::new(&mut InitCx::new(&device, 1), 2, 1)?;
/// let mut average = Average::new(&net, AverageOptions::ema(0.999))?;
/// average.update()?; // after each step
/// average.swap()?; // the averages are evaluated ..
/// average.swap()?; // .. and training goes on
/// # Ok::<(), remat_types::Error>(())
/// ```
pub struct Average {
    options: AverageOptions,
    entries: Vec<Entry>,
    /// Updates so far: an i64 of rank 0, on the device so that a failed step counts nowhere.
    count: Option<Parameter>,
}

/// The name of the count among the averages.
const COUNT: &str = "n_averaged";

impl Average {
    /// Over all state of `module`, which the average begins as. Errors: Value for a decay outside 0 ..= 1; Budget if the copy
    /// does not fit.
    pub fn new<M: Module + ?Sized>(module: &M, options: AverageOptions) -> Result<Self> {
        if let Some(d) = options.decay.filter(|d| !(0.0..=1.0).contains(d)) {
            return Err(Error::new(ErrorKind::Value, format!("the decay is {d}, must be 0 to 1")).with_op("average"));
        }
        let copy = |(name, own): (String, Parameter)| {
            let value = own.get()?.detach();
            let average = match own.division() {
                Some(d) => Parameter::divided(value, Role::Buffer, d.clone())?,
                None => Parameter::with_role(value, Role::Buffer)?,
            };
            Ok(Entry { name, own, average })
        };
        let entries: Vec<Entry> = module.named_state().into_iter().map(copy).collect::<Result<_>>()?;
        let count = match entries.first() {
            Some(e) => Some(Parameter::buffer(Tensor::scalar(e.own.device(), 0i64)?)?),
            None => None,
        };
        Ok(Average { options, entries, count })
    }

    /// Takes the module's state into the average. Errors: as of an update.
    pub fn update(&mut self) -> Result<()> {
        let _quiet = no_grad();
        let Some(count) = &self.count else { return Ok(()) };
        let seen = count.get()?;
        let share = match self.options.decay {
            // 1 at first
            Some(decay) => {
                let one = Tensor::from_slice(count.device(), &[1.0], [])?;
                seen.eq(0)?.where_cond(&one, 1.0 - decay)?
            }
            None => seen.cast(DType::F64)?.add(1.0)?.recip()?,
        };
        for e in &self.entries {
            let averaged = e.own.role() == Role::Trained || self.options.buffers;
            if averaged && e.own.dtype().is_float() {
                e.blend(&share)?;
            } else {
                e.average.set(&e.own.get()?.detach())?;
            }
        }
        // The count increases only if the averaged value exists: a step that fails is not counted.
        let counted = seen.add(1)?;
        let exists = match self.entries.iter().find(|e| e.own.elems() > 0) {
            Some(e) => {
                let first = e.own.get()?.detach().reshape(&[-1])?.narrow(0, 0, 1)?.reshape(&[])?;
                first.eq(&first)?.logical_or(&Tensor::ones(count.device(), [], DType::Bool)?)?
            }
            None => Tensor::ones(count.device(), [], DType::Bool)?,
        };
        update(Where, vec![Arg::Value(exists), Arg::Value(counted), Arg::State(count)])
    }

    /// Exchanges the averages and the module's parameters: the second call undoes the first.
    ///
    /// Errors: Closed.
    pub fn swap(&mut self) -> Result<()> {
        for e in &self.entries {
            let (own, average) = (e.own.get()?.detach(), e.average.get()?);
            e.own.set(&average)?;
            e.average.set(&own)?;
        }
        Ok(())
    }

    /// Lets the module have the averages. Errors: Closed; Budget if both do not fit.
    pub fn copy_to_module(&self) -> Result<()> {
        self.entries.iter().try_for_each(|e| e.own.set(&e.average.get()?))
    }

    /// The averages under the module's names, and the count of updates as `n_averaged`.
    pub fn named_state(&self) -> Vec<(String, Parameter)> {
        let all = self.entries.iter().map(|e| (e.name.clone(), e.average.clone()));
        all.chain(self.count.iter().map(|c| (COUNT.to_owned(), c.clone()))).collect()
    }

    /// The averages on the host. Errors: what made one fail.
    pub fn state_dict(&self) -> Result<BTreeMap<String, HostTensor>> {
        state::read(&self.named_state())
    }

    /// Replaces the averages, as [`Module::load_state_dict`] does.
    pub fn load_state_dict(&mut self, state: &BTreeMap<String, HostTensor>, strict: bool) -> Result<LoadReport> {
        state::stage(&self.named_state(), state, strict)?.apply()
    }
}

impl Entry {
    /// `average = (1 - share) average + share own`.
    fn blend(&self, share: &Tensor) -> Result<()> {
        let real = if self.own.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let share = share.cast(real)?;
        let own = self.own.get()?.detach();
        let part = Tensor::apply_owned(Binary { f: BinaryFn::Sub }, [own, self.average.get()?])?;
        let part = Tensor::apply_owned(Binary { f: BinaryFn::Mul }, [part, share])?;
        update(Binary { f: BinaryFn::Add }, vec![Arg::State(&self.average), Arg::Value(part)])
    }
}

/// The running statistics of a module whose weights were averaged: the means over all batches, each with the same weight.
/// `forward` is called with each batch, while the module trains and nothing is recorded. Gives the number of batches.
///
/// Modes and momenta are as before when it returns. Errors: those of batches and of `forward`.
#[doc(alias = "update_bn")]
pub fn update_batch_norm<M: Module + ?Sized, B>(
    module: &M,
    batches: impl IntoIterator<Item = Result<B>>,
    mut forward: impl FnMut(B) -> Result<()>,
) -> Result<usize> {
    let _quiet = no_grad();
    let mut before = Cells::default();
    walk(module, "", &mut before);
    module.train();
    let mut seen = 0;
    let run = || -> Result<()> {
        for batch in batches {
            seen += 1;
            walk(module, "", &mut SetMomentum(1.0 / seen as f64));
            forward(batch?)?;
        }
        Ok(())
    };
    let outcome = run();
    walk(module, "", &mut Restore(&before));
    outcome.map(|()| seen)
}

/// Modes and momenta by name.
#[derive(Default)]
struct Cells {
    modes: BTreeMap<String, bool>,
    momenta: BTreeMap<String, f64>,
}

impl Visitor for Cells {
    fn mode(&mut self, name: &str, m: &Mode) {
        self.modes.insert(name.to_owned(), m.is_training());
    }
    fn momentum(&mut self, name: &str, m: &Momentum) {
        self.momenta.insert(name.to_owned(), m.get());
    }
}

struct SetMomentum(f64);

impl Visitor for SetMomentum {
    fn momentum(&mut self, _name: &str, m: &Momentum) {
        m.set(self.0);
    }
}

struct Restore<'c>(&'c Cells);

impl Visitor for Restore<'_> {
    fn mode(&mut self, name: &str, m: &Mode) {
        if let Some(training) = self.0.modes.get(name) {
            m.set_training(*training);
        }
    }
    fn momentum(&mut self, name: &str, m: &Momentum) {
        if let Some(momentum) = self.0.momenta.get(name) {
            m.set(*momentum);
        }
    }
}
