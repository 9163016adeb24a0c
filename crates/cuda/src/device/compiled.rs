//! Plans that were made, with their kernels compiled and loaded.

use std::num::NonZero;
use std::sync::Arc;

use remat_device::Launch;
use remat_ops::{Op, OpRef};
use remat_types::{DType, Error, ErrorKind, Layout, Result, Shape, SmallVec};
use rustc_hash::FxHashMap;

use super::cache::{self, Cache};
use crate::driver::{Architecture, Code, Compiler, Context, Kernel, Module};
use crate::kernels::plan;
use crate::kernels::plan::{Call, Input, Operands, Plan};
use crate::source::PRELUDE;

/// Kernels that are worth a thread of their own.
const PART: usize = 8;
/// Plans that are kept. When there are more, all are forgotten; their kernels are not.
const MOST_PLANS: usize = 16_384;

/// A plan whose kernels are loaded.
pub(super) struct Prepared {
    pub(super) plan: Plan,
    /// By call.
    pub(super) kernels: SmallVec<[Kernel; 2]>,
}

/// Dtype, extents and strides of an input.
type InputKey = (DType, Shape, SmallVec<[isize; 4]>);

/// An operator and what its plan depends on.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: OpRef,
    x: SmallVec<[InputKey; 4]>,
    y: SmallVec<[(DType, Shape); 2]>,
}

impl Key {
    fn new(op: &OpRef, o: &Operands<'_>) -> Key {
        let strides = |l: &Layout| SmallVec::from_slice(l.strides());
        Key {
            op: op.clone(),
            x: o.x.iter().map(|x| (x.dtype, x.layout.shape().clone(), strides(x.layout))).collect(),
            y: o.y.iter().map(|y| (y.0, y.1.clone())).collect(),
        }
    }
}

/// See the module's note.
pub(super) struct Compiled {
    compiler: Compiler,
    context: Context,
    /// By source.
    kernels: FxHashMap<String, Kernel>,
    cache: Option<Cache>,
    plans: FxHashMap<Key, Arc<Prepared>>,
}

/// The operands of a launch.
pub(super) fn operands_of<'l>(l: &'l Launch<'_>) -> Operands<'l> {
    Operands {
        x: l.x.iter().map(|x| Input { dtype: x.dtype, layout: x.layout }).collect(),
        y: l.y.iter().map(|y| (y.dtype, y.shape)).collect(),
    }
}

/// The plan of an operator. Errors (Device): there is no kernel for it.
pub(super) fn plan_of(op: &dyn Op, operands: &Operands<'_>) -> Result<Plan> {
    let lacking = || Error::new(ErrorKind::Device, "the device has no kernel for it");
    plan(op, operands)?.ok_or_else(lacking)
}

/// The code of the kernels of calls. Errors: those of the compiler.
fn compile(compiler: &Compiler, context: &Context, calls: &[&Call]) -> Result<Code> {
    let source: String = std::iter::once(PRELUDE).chain(calls.iter().map(|c| c.source.as_str())).collect();
    let name = format!("{}.cu", calls.first().map_or("kernels", |c| c.name.as_str()));
    let architecture = context.architecture();
    if !context.driver().loads_machine_code() {
        return compiler.ptx(&name, &source, architecture);
    }
    match compiler.machine_code(&name, &source, architecture) {
        // a device that is newer than the compiler: its driver compiles PTX of an older one
        Err(e) if e.kind() == ErrorKind::Device => compiler.ptx(&name, &source, Architecture::OLDEST),
        done => done,
    }
}

impl Compiled {
    pub(super) fn new(compiler: Compiler, context: &Context) -> Compiled {
        Compiled {
            compiler,
            context: context.clone(),
            kernels: FxHashMap::default(),
            cache: None,
            plans: FxHashMap::default(),
        }
    }

    /// Keeps compiled kernels in a folder.
    pub(super) fn set_cache(&mut self, cache: Option<Cache>) {
        let (major, minor) = self.compiler.version();
        let form = if self.context.driver().loads_machine_code() { "code" } else { "ptx" };
        let part = format!("nvrtc-{major}.{minor}-{}-{form}", self.context.architecture().name());
        self.cache = cache.map(|c| c.within(&part));
    }

    /// Compiles the kernels of calls that are not known yet, in one go. Errors: those of the compiler and of the driver.
    pub(super) fn prepare<'c>(&mut self, calls: impl IntoIterator<Item = &'c Call>) -> Result<()> {
        let mut missing: Vec<&Call> = calls.into_iter().filter(|c| !self.kernels.contains_key(&c.source)).collect();
        missing.sort_unstable_by(|a, b| a.source.cmp(&b.source));
        missing.dedup_by(|a, b| a.source == b.source);
        self.load_kept(&mut missing)?;
        if missing.is_empty() {
            return Ok(());
        }
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let count = threads.min(missing.len() / PART).max(1);
        // kernels that are alike take as long, and are in different parts
        let parts: Vec<Vec<&Call>> =
            (0..count).map(|k| missing.iter().skip(k).step_by(count).copied().collect()).collect();
        for (part, code) in parts.iter().zip(self.compile_parts(&parts)) {
            let code = code?;
            self.load(&code, part)?;
            self.keep(&code, part);
        }
        Ok(())
    }

    /// Keeps code on disk. A folder that cannot be written to is told of once.
    fn keep(&mut self, code: &Code, calls: &[&Call]) {
        let kept = |c: &&Call| (cache::hash_of(&c.source), c.name.clone());
        if let Some(cache) = &mut self.cache
            && let Err(e) = cache.keep(code, &calls.iter().map(kept).collect::<Vec<_>>())
        {
            eprintln!("remat: compiled kernels are not kept: {e}");
            self.cache = None;
        }
    }

    /// The code of each part, each compiled on a thread.
    fn compile_parts(&self, parts: &[Vec<&Call>]) -> Vec<Result<Code>> {
        let Some((first, others)) = parts.split_first() else { return Vec::new() };
        let panicked = |_| Err(Error::new(ErrorKind::Internal, "a thread that compiled kernels has panicked"));
        let (compiler, context) = (&self.compiler, &self.context);
        std::thread::scope(|scope| {
            let others: Vec<_> =
                others.iter().map(|part| scope.spawn(move || compile(compiler, context, part))).collect();
            let first = compile(compiler, context, first);
            std::iter::once(first).chain(others.into_iter().map(|t| t.join().unwrap_or_else(panicked))).collect()
        })
    }

    /// Loads what was compiled before, and leaves the rest.
    fn load_kept(&mut self, missing: &mut Vec<&Call>) -> Result<()> {
        let Some(mut cache) = self.cache.take() else { return Ok(()) };
        let hashes: Vec<(String, &Call)> = missing.iter().map(|c| (cache::hash_of(&c.source), *c)).collect();
        for (hash, call) in &hashes {
            if self.kernels.contains_key(&call.source) {
                continue;
            }
            let Some((code, has)) = cache.find(hash) else { continue };
            let here: Vec<&Call> = hashes.iter().filter(|h| has.contains(&h.0)).map(|h| h.1).collect();
            self.load(&code, &here)?;
        }
        self.cache = Some(cache);
        missing.retain(|c| !self.kernels.contains_key(&c.source));
        Ok(())
    }

    fn load(&mut self, code: &Code, calls: &[&Call]) -> Result<()> {
        let module = Module::load(&self.context, code)?;
        for call in calls {
            self.kernels.insert(call.source.clone(), module.kernel(&call.name)?);
        }
        Ok(())
    }

    /// The kernel of a call, which is compiled at its first use. Errors: as [`Compiled::prepare`].
    pub(super) fn kernel(&mut self, call: &Call) -> Result<Kernel> {
        if let Some(known) = self.kernels.get(&call.source) {
            return Ok(known.clone());
        }
        self.prepare([call])?;
        let lacking = || Error::new(ErrorKind::Internal, format!("kernel `{}` was not compiled", call.name));
        self.kernels.get(&call.source).cloned().ok_or_else(lacking)
    }

    /// The plan of an operator for these operands, made at its first use. Errors: those of [`plan_of`] and of
    /// [`Compiled::prepare`].
    pub(super) fn planned(&mut self, op: &OpRef, operands: &Operands<'_>) -> Result<Arc<Prepared>> {
        let key = Key::new(op, operands);
        if let Some(known) = self.plans.get(&key) {
            return Ok(known.clone());
        }
        let plan = plan_of(&**op, operands)?;
        let kernels = plan.calls.iter().map(|call| self.kernel(call)).collect::<Result<_>>()?;
        if self.plans.len() >= MOST_PLANS {
            self.plans.clear();
        }
        let made = Arc::new(Prepared { plan, kernels });
        self.plans.insert(key, made.clone());
        Ok(made)
    }

    /// True if the plan of an operator for these operands was made.
    pub(super) fn is_planned(&self, op: &OpRef, operands: &Operands<'_>) -> bool {
        self.plans.contains_key(&Key::new(op, operands))
    }
}
