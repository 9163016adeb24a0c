use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use remat_ops::collective::AllReduce;
use remat_runtime::{Kind, tracing};
use remat_tensor::comm::{Communicator, Reduction};
use remat_tensor::{Tensor, no_grad};
use remat_types::{DType, Error, ErrorKind, Result};

use super::alike::Alike;
use super::gradients::{self, Gradients};
use super::no_sync::{Alone, NoSync};
use crate::{Module, Parameter};

/// How a [`DataParallel`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataParallelOptions {
    /// Gradients are reduced together up to about so many bytes, and up to about an eighth of all: with less than that many buckets
    /// nothing would be reduced before the end of a pass, and a bucket lies beside its gradients. Default: 10 MiB, as MegEngine's
    /// `AllreduceCallback`.
    pub bucket_bytes: usize,
    /// If true, a parameter without a gradient on any rank keeps none, as in one process. The ranks then ask each other after
    /// each pass, which waits for the device. If false, such a gradient is zeros. A compiled step cannot ask, so with this option
    /// it must use every parameter on every rank. Default: false.
    pub find_unused: bool,
    /// The part of the reduced gradients that each rank keeps. Default: all.
    pub gradients: Gradients,
}

impl Default for DataParallelOptions {
    fn default() -> Self {
        DataParallelOptions { bucket_bytes: 10 << 20, find_unused: false, gradients: Gradients::Whole }
    }
}

/// Data parallel training of a module: every rank has the same parameters, passes its own batch, and gets the gradient of the mean
/// of all ranks' losses.
///
/// The gradients' bits are those of one process that [accumulates](crate::Accumulate) the ranks' batches in their order. They are
/// reduced in buckets while the backward pass goes on: a bucket goes as soon as its last gradient is there and all buckets before it
/// went, so that the order of reductions is the same on all ranks.
///
/// ```
/// # use remat_nn::distributed::{DataParallel, threads};
/// # use remat_nn::{InitCx, Layer, Linear, Module, Optimizer, Reduction, Sgd, SgdOptions, loss};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// let weights = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let net = Linear::new(&mut InitCx::new(&device, ranks.rank() as u64), 1, 1)?;
///     let parallel = DataParallel::new(&net, &ranks, Default::default())?;
///     let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default())?;
///     for _ in 0..3 {
///         let x = Tensor::new(&device, &[1.0 + ranks.rank() as f32], [1, 1])?;
///         parallel.backward(&loss::mse(&net.forward(&x)?, &x, Reduction::Mean)?)?;
///         sgd.step()?;
///     }
///     net.state_dict()
/// })?;
/// assert_eq!(weights[0], weights[1]);
/// # Ok::<(), remat_types::Error>(())
/// ```
pub struct DataParallel {
    group: Communicator,
    options: DataParallelOptions,
    buffers: Vec<Parameter>,
    alone: Alone,
    pass: Arc<Mutex<Pass>>,
}

/// Parameters whose gradients go together, by their place in the list of all.
type Bucket = Vec<usize>;

/// A backward pass, or none.
struct Pass {
    group: Communicator,
    gradients: Gradients,
    names: Vec<String>,
    parameters: Vec<Parameter>,
    /// In the order in which they are reduced.
    buckets: Vec<Bucket>,
    is_active: bool,
    /// A pass of this rank alone, whose loss was divided, is under way.
    is_counted: bool,
    alone: Alone,
    /// The gradients accumulated before the pass.
    before: Vec<Option<Tensor>>,
    /// The reduced gradients of an earlier pass, which were there before this one.
    whole: Vec<Option<Tensor>>,
    /// Gradients that wait for their bucket.
    ready: Vec<Option<Tensor>>,
    /// Gradients that came in this pass.
    came: Vec<bool>,
    /// The gradients reduced so far.
    reduced: Vec<Option<Tensor>>,
    /// Buckets that were reduced.
    done: usize,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DataParallel {
    /// Copies parameters and buffers of rank 0 to every rank, and hooks the gradients of trained parameters. All ranks call this
    /// function, with modules of the same structure and with the same options. The ranks compare these first.
    ///
    /// Errors: Value for a bucket of 0 bytes, and for a device without ranks; Peer if ranks differ, naming what does: an option, or name,
    /// dtype, shape or place of a parameter, or whether it is frozen. Budget as a copy of the largest parameter.
    pub fn new(module: &impl Module, group: &Communicator, options: DataParallelOptions) -> Result<Self> {
        let (named, buffers) = (module.named_parameters(), module.named_buffers());
        Alike::default()
            .option("bucket_bytes", options.bucket_bytes)
            .option("find_unused", options.find_unused)
            .option("gradients", format_args!("{:?}", options.gradients))
            .parameters(named.iter().chain(&buffers).map(|(name, p)| (name, p)))
            .check("data_parallel", group, named.iter().map(|(_, p)| p.device()), check(&named, group, options))?;
        // `FullySharded` makes divided parameters equal on all ranks, and reduces their gradients
        let (divided, named): (Vec<_>, Vec<_>) = named.into_iter().partition(|(_, p)| p.division().is_some());
        let (names, parameters): (Vec<String>, Vec<Parameter>) = named.into_iter().unzip();
        let divided: Vec<Parameter> = divided.into_iter().map(|(_, p)| p).collect();
        let buffers: Vec<Parameter> = buffers.into_iter().map(|(_, p)| p).collect();
        let (n, alone) = (parameters.len(), Alone::default());
        let pass = Arc::new(Mutex::new(Pass {
            group: group.clone(),
            gradients: options.gradients,
            buckets: buckets(&parameters, options.bucket_bytes),
            names,
            parameters,
            is_active: false,
            is_counted: false,
            alone: alone.clone(),
            before: vec![None; n],
            whole: vec![None; n],
            ready: vec![None; n],
            came: vec![false; n],
            reduced: vec![None; n],
            done: 0,
        }));
        let this = DataParallel { group: group.clone(), options, buffers, alone, pass };
        if group.size() > 1 {
            this.broadcast_parameters()?;
            this.broadcast_buffers()?;
            this.listen(&divided)?;
        }
        Ok(this)
    }

    /// The ranks.
    pub fn group(&self) -> &Communicator {
        &self.group
    }

    /// How it works.
    pub fn options(&self) -> &DataParallelOptions {
        &self.options
    }

    /// How many buckets the gradients make.
    pub fn buckets(&self) -> usize {
        lock(&self.pass).buckets.len()
    }

    /// Makes every rank's parameters those of rank 0: after a checkpoint was loaded there. Errors: Peer.
    pub fn broadcast_parameters(&self) -> Result<()> {
        broadcast(&lock(&self.pass).parameters, &self.group)
    }

    /// Makes every rank's buffers those of rank 0: running statistics, before a test. Errors: Peer.
    pub fn broadcast_buffers(&self) -> Result<()> {
        broadcast(&self.buffers, &self.group)
    }

    /// Accumulates the gradient of the mean of all ranks' losses, and of what other passes have accumulated on each of them, into the
    /// parameters. Within [`DataParallel::no_sync`] the pass is of this rank alone.
    ///
    /// Errors: those of [`Tensor::backward`]; Value for [`Gradients::Divided`] without an optimiser that has parts of the parameters; on
    /// the device (Peer) if a rank failed, or does not come.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        if self.group.size() == 1 {
            return loss.backward();
        }
        let share = loss.div(self.group.size() as f64)?;
        if self.alone.is_on() {
            lock(&self.pass).is_counted = true;
            let passed = share.backward();
            lock(&self.pass).is_counted = false;
            return passed;
        }
        if self.options.gradients == Gradients::Divided {
            gradients::check_parts(&lock(&self.pass).parameters)?;
        }
        lock(&self.pass).begin();
        let passed = share.backward();
        let mut pass = lock(&self.pass);
        pass.is_active = false;
        let result = passed.and_then(|()| {
            let _quiet = no_grad();
            pass.finish(self.options.find_unused)
        });
        pass.clear();
        result
    }

    /// Until what this gives is dropped, backward passes of this rank add to its gradients without a word to the others, and the next
    /// [`DataParallel::backward`] after that reduces their sum with its own: for several batches a step. Each pass counts as one of all ranks
    /// does, whether it is `DataParallel::backward` or [`Tensor::backward`]; the bits of one process that accumulates the same batches are
    /// those of the former.
    ///
    /// A [`Tensor::backward`] outside of it counts as it is, once for each rank: for losses that are divided by their number already.
    ///
    /// ```
    /// # use remat_nn::distributed::{DataParallel, threads};
    /// # use remat_nn::{InitCx, Layer, Linear, Module};
    /// # use remat_runtime::{Device, DeviceOptions};
    /// # use remat_tensor::Tensor;
    /// threads::run(2, |ranks| {
    ///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
    ///     let net = Linear::new(&mut InitCx::new(&device, 1), 1, 1)?;
    ///     let parallel = DataParallel::new(&net, &ranks, Default::default())?;
    ///     let x = Tensor::ones(&device, [1, 1], remat_types::DType::F32)?;
    ///     {
    ///         let _alone = parallel.no_sync();
    ///         parallel.backward(&net.forward(&x)?.div(2.0)?.sum()?)?;
    ///     }
    ///     parallel.backward(&net.forward(&x)?.div(2.0)?.sum()?)?;
    ///     assert_eq!(net.parameters()[0].grad().expect("it was used").to_vec::<f32>()?, [1.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    pub fn no_sync(&self) -> NoSync {
        self.alone.begin()
    }

    fn listen(&self, divided: &[Parameter]) -> Result<()> {
        let hear = |p: &Parameter, f: fn(&mut Pass, usize, &Tensor) -> Result<Option<Tensor>>, i: usize| {
            let pass: Weak<Mutex<Pass>> = Arc::downgrade(&self.pass);
            p.map_accumulated_grad(move |g| pass.upgrade().map_or(Ok(None), |pass| f(&mut lock(&pass), i, g))).map(drop)
        };
        let pass = lock(&self.pass);
        pass.parameters.iter().enumerate().try_for_each(|(i, p)| hear(p, Pass::take, i))?;
        divided.iter().try_for_each(|p| hear(p, |pass, _, g| pass.share(g), 0))
    }
}

/// Errors (Value) for a bucket of 0 bytes, and for a device without ranks.
fn check(parameters: &[(String, Parameter)], group: &Communicator, options: DataParallelOptions) -> Result<()> {
    if options.bucket_bytes == 0 {
        return Err(Error::new(ErrorKind::Value, "bucket_bytes is 0, must be at least 1"));
    }
    if group.size() > 1 && parameters.iter().any(|(_, p)| p.device().options().ranks.is_none()) {
        let text =
            "the device was opened without `DeviceOptions::ranks`, so its updates could be made on some ranks only";
        return Err(Error::new(ErrorKind::Value, text));
    }
    Ok(())
}

/// Buckets that the gradients make at least, if they are large enough.
const LEAST_BUCKETS: usize = 8;

/// Smaller buckets cost more calls than they save.
const SMALL_BUCKET_BYTES: usize = 64 << 10;

/// Parameters in the order in which a backward pass likely comes to their gradients, the last first; of one dtype each.
fn buckets(parameters: &[Parameter], bytes: usize) -> Vec<Bucket> {
    let all: usize = parameters.iter().map(|p| p.elems() * p.dtype().size_bytes()).sum();
    let bytes = bytes.min((all / LEAST_BUCKETS).max(SMALL_BUCKET_BYTES));
    let mut all: Vec<Bucket> = Vec::new();
    let mut open: Vec<(DType, Bucket, usize)> = Vec::new();
    for (i, p) in parameters.iter().enumerate().rev() {
        let at = open.iter().position(|o| o.0 == p.dtype()).unwrap_or_else(|| {
            open.push((p.dtype(), Bucket::new(), 0));
            open.len() - 1
        });
        open[at].1.push(i);
        open[at].2 += p.elems() * p.dtype().size_bytes();
        if open[at].2 >= bytes {
            all.push(open.remove(at).1);
        }
    }
    all.extend(open.into_iter().map(|o| o.1));
    all
}

fn unasked(name: &str) -> Error {
    let text = format!(
        "the compiled step does not use `{name}` on this rank; whether another does is asked after each pass, which `find_unused` does \
         not do in a compiled step: leave `find_unused` out, and such a gradient is zeros, leave the parameter out of what is parallel, \
         or do not compile the step"
    );
    Error::new(ErrorKind::Value, text)
}

fn broadcast(parameters: &[Parameter], group: &Communicator) -> Result<()> {
    let _quiet = no_grad();
    parameters.iter().try_for_each(|p| p.set(&p.get()?.detach().broadcast_from(0, group)?))
}

impl Pass {
    fn begin(&mut self) {
        self.clear();
        self.is_active = true;
        for (i, p) in self.parameters.iter().enumerate() {
            match p.has_reduced_grad() {
                true => self.whole[i] = p.take_grad(),
                // the sum of the pass and the accumulated gradient is reduced
                false => self.before[i] = p.take_grad(),
            }
        }
    }

    fn clear(&mut self) {
        self.before.fill(None);
        self.whole.fill(None);
        self.ready.fill(None);
        self.came.fill(false);
        self.reduced.fill(None);
        self.done = 0;
    }

    /// The share of a gradient from a pass of this rank alone, if the pass is not known to be divided.
    fn share(&self, g: &Tensor) -> Result<Option<Tensor>> {
        let is_whole = !self.is_active && !self.is_counted && self.alone.is_on();
        let _quiet = no_grad();
        if is_whole { g.detach().div(self.group.size() as f64).map(Some) } else { Ok(None) }
    }

    /// The gradient of parameter `i` is complete.
    fn take(&mut self, i: usize, g: &Tensor) -> Result<Option<Tensor>> {
        if !self.is_active {
            let is_reduced = self.parameters[i].has_reduced_grad();
            let text = "this pass of one rank alone would add to a gradient that is all ranks' together; make such passes before \
                        `DataParallel::backward`, or take the step first";
            return if is_reduced { Err(Error::new(ErrorKind::Value, text)) } else { self.share(g) };
        }
        let _quiet = no_grad();
        let g = g.detach();
        self.came[i] = true;
        self.ready[i] = Some(match self.before[i].take() {
            Some(before) => before.add(&g)?,
            None => g,
        });
        while let Some(bucket) = self.buckets.get(self.done)
            && bucket.iter().all(|i| self.ready[*i].is_some())
        {
            self.reduce()?;
        }
        Ok(None)
    }

    /// Reduces the next bucket, whose gradients are all there.
    fn reduce(&mut self) -> Result<()> {
        let missing = || Error::new(ErrorKind::Internal, "a bucket without all of its gradients");
        let members = &self.buckets[self.done];
        let taken: Vec<Tensor> =
            members.iter().map(|i| self.ready[*i].take().ok_or_else(missing)).collect::<Result<_>>()?;
        let mut flat: Vec<Tensor> = taken.iter().map(|g| g.reshape(&[-1])).collect::<Result<_>>()?;
        drop(taken);
        // what the pass has accumulated of them is of no use; of the gradient that has just come it does so after this
        let last = self.done.checked_sub(1).map(|last| &self.buckets[last]);
        last.into_iter().chain([members]).flatten().for_each(|i| drop(self.parameters[*i].take_grad()));
        if self.gradients == Gradients::Divided {
            for (part, i) in gradients::reduce_parts(flat, &self.group)?.into_iter().zip(members) {
                self.reduced[*i] = Some(part);
            }
            self.done += 1;
            return Ok(());
        }
        let extents: Vec<usize> = flat.iter().map(Tensor::elems).collect();
        let whole = match flat.len() {
            1 => flat.swap_remove(0),
            _ => Tensor::concat(&flat.iter().collect::<Vec<_>>(), 0)?,
        };
        drop(flat);
        // in place: nobody else has the bucket
        let whole = Tensor::apply_owned(AllReduce { reduction: Reduction::Sum, group: self.group.clone() }, [whole])?;
        for (part, i) in whole.split(&extents, 0)?.into_iter().zip(members) {
            let dims: Vec<isize> = self.parameters[*i].shape().iter().map(|d| *d as isize).collect();
            self.reduced[*i] = Some(part.reshape(&dims)?);
        }
        self.done += 1;
        Ok(())
    }

    /// The rest of the buckets, with zeros for gradients that did not come, and all results to the parameters.
    fn finish(&mut self, find_unused: bool) -> Result<()> {
        let mut used: Vec<bool> = self.came.clone();
        for (i, used) in used.iter_mut().enumerate() {
            let is_waiting = self.reduced[i].is_none() && self.ready[i].is_none();
            if is_waiting {
                let before = self.before[i].take();
                *used |= before.is_some();
                let p = &self.parameters[i];
                self.ready[i] = Some(match before {
                    Some(g) => g,
                    None => Tensor::zeros(p.device(), p.shape().clone(), p.dtype())?,
                });
            }
        }
        while self.done < self.buckets.len() {
            self.reduce()?;
        }
        if tracing::is_tracing() {
            // a rank that has them all need not ask, and one that has not goes no further
            let is_unused = |i: &usize| find_unused && !used[*i] && !self.parameters[*i].is_frozen();
            let unused = (0..used.len()).find(is_unused);
            unused.map_or(Ok(()), |i| Err(unasked(&self.names[i])))?;
            used.fill(true);
        } else if find_unused && let Some(p) = self.parameters.first() {
            let mine: Vec<u8> = used.iter().map(|u| u8::from(*u)).collect();
            let any = Tensor::from_slice(p.device(), &mine, [mine.len()])?.all_reduce(Reduction::Max, &self.group)?;
            used = any.to_vec::<u8>()?.into_iter().map(|u| u > 0).collect();
        } else {
            used.fill(true);
        }
        for (i, p) in self.parameters.iter().enumerate() {
            let g = self.reduced[i].take().filter(|_| used[i]);
            if self.gradients == Gradients::Divided {
                gradients::give_part(p, g)?;
                continue;
            }
            let g = match (self.whole[i].take(), g) {
                (Some(whole), Some(g)) => Some(whole.add(&g)?),
                (whole, g) => g.or(whole),
            };
            if let Some(g) = &g {
                g.tag(Kind::Gradient)?;
            }
            let g = g.filter(|_| !p.is_frozen());
            let is_there = g.is_some();
            // what the pass itself accumulated is this rank's alone
            p.set_grad(g)?;
            if is_there {
                p.mark_grad_reduced();
            }
        }
        Ok(())
    }
}
