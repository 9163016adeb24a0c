//! A device as a value.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use remat_types::{Error, ErrorKind, Result};
use rustc_hash::FxHashMap;

use super::channel::Channel;
use super::command::Command;
use super::failure::{Caller, Failures};
use super::queue::{Answer, Queue, Reply};
use super::worker;
use crate::interrupt;
use crate::options::DeviceOptions;
use remat_cpu::Cpu;
use remat_device::{Backend, Dry, KernelSet, StreamId};

/// Devices of this process that were dropped with a failure that nobody read.
static UNREAD: AtomicUsize = AtomicUsize::new(0);

/// How many devices of this process were dropped with a failure that nobody read. A program may report this by its exit
/// code.
pub fn dropped_with_failures() -> usize {
    UNREAD.load(Ordering::Relaxed)
}

/// The step marks of a thread.
#[derive(Default)]
pub(super) struct Marks {
    /// The number of marks that it set.
    pub(super) count: u64,
    /// The answer to the last mark, unless it was waited for.
    pub(super) last: Option<Answer<()>>,
}

/// The parts of a device that its channels share.
pub(super) struct Shared {
    pub(super) queue: Arc<Queue>,
    pub(super) next_id: AtomicU64,
    pub(super) options: DeviceOptions,
    pub(super) name: String,
    pub(super) streams: usize,
    pub(super) kernels: Arc<dyn KernelSet>,
    pub(super) is_dry: bool,
    pub(super) constants: Mutex<super::queued::Constants>,
    pub(super) backward: Mutex<remat_ops::BackwardCache>,
    pub(super) residents: super::resident::Residents,
    /// The failures, shared with the worker.
    pub(super) failures: Arc<Failures>,
    /// The step marks of each thread.
    pub(super) marks: Mutex<FxHashMap<Caller, Marks>>,
    pub(super) tracing: std::sync::atomic::AtomicBool,
    pub(super) dispatch_trace: Mutex<crate::profile::Trace>,
    pub(super) opened: std::time::Instant,
    /// The budget in force; [`NO_BUDGET`] for none.
    pub(super) budget: AtomicUsize,
    worker: Mutex<Option<JoinHandle<()>>>,
}

/// The value of [`Shared::budget`] on a device without a limit.
const NO_BUDGET: usize = usize::MAX;

impl Shared {
    /// Notes a new budget.
    pub(super) fn note_budget(&self, bytes: Option<usize>) {
        self.budget.store(bytes.unwrap_or(NO_BUDGET), Ordering::Release);
    }

    /// Drains the queue, ends the worker and waits for it. The second call does nothing.
    pub(super) fn close(&self) -> Result<()> {
        let Some(thread) = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        interrupt::aside(|| self.end(thread))
    }

    fn end(&self, thread: JoinHandle<()>) -> Result<()> {
        let (reply, answer) = Reply::new();
        let result = match self.queue.push(Command::Close { reply }) {
            Ok(()) => answer.wait(),
            Err(e) => Err(e),
        };
        if self.queue.check_open().is_err_and(|e| e.message().contains("forked")) {
            // A forked child does not have the thread.
            std::mem::forget(thread);
            return result;
        }
        thread.join().map_err(|_| Error::new(ErrorKind::Internal, "the device's worker panicked"))?;
        result
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            // No caller is left to report to, and a failure must not end unseen.
            eprintln!("remat: device {} was dropped with a failure that nobody read: {e}", self.name);
            UNREAD.fetch_add(1, Ordering::Relaxed);
        }
    }
}

type OpenDevice = fn(DeviceOptions) -> Result<Device>;

/// The devices of this build that are no GPUs, by name.
static KINDS: &[(&str, OpenDevice)] = &[
    ("cpu", Device::cpu),
    ("dry", Device::dry),
    #[cfg(feature = "emulated")]
    ("emulated", |options| Device::with_backend(remat_emulated::EmulatedOptions::default().open()?, options)),
];

fn unknown(name: &str) -> Error {
    let all: Vec<&str> = Device::names().collect();
    Error::new(ErrorKind::Value, format!("there is no device `{name}`; this build has {}", all.join(", ")))
}

/// A device: an arena, ordered streams and the worker that runs them. Clones share it. When the last clone, channel and
/// handle is dropped, the device runs its queue to the end and joins its worker.
#[derive(Clone)]
pub struct Device(pub(super) Arc<Shared>);

impl Device {
    /// Opens a device by its name: `cpu`, `dry`, or, with the feature `cuda`, `cuda:0` for the first GPU, `cuda:1` for the
    /// second and so on. For tests there are, with features of these names, `cuda-sim`, a GPU in software, and `emulated`,
    /// a device that behaves like an accelerator, with its defaults.
    ///
    /// ```
    /// use remat_runtime::{Device, DeviceOptions};
    /// # fn main() -> remat_types::Result<()> {
    /// assert_eq!(Device::open("cpu", DeviceOptions::with_budget(1 << 20))?.name(), "cpu");
    /// assert!(Device::open("tpu", DeviceOptions::default()).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: Value for an unknown name; those of opening the device: Device where a GPU's driver is not found, with the
    /// places where it was looked for.
    pub fn open(name: &str, options: DeviceOptions) -> Result<Device> {
        if let Some((_, open)) = KINDS.iter().find(|kind| kind.0 == name) {
            return open(options);
        }
        #[cfg(feature = "cuda")]
        if let Some(gpu) = remat_cuda::device::Cuda::by_name(name)? {
            // operators without a kernel run on the host, and the report counts them
            let options = DeviceOptions { host_fallback: true, ..options };
            return Device::with_backend(Box::new(gpu), options);
        }
        Err(unknown(name))
    }

    /// Errors (Value) if [`Device::open`] knows no device of this name. One that it knows may still not be there.
    pub fn check_name(name: &str) -> Result<()> {
        if KINDS.iter().any(|kind| kind.0 == name) {
            return Ok(());
        }
        #[cfg(feature = "cuda")]
        if remat_cuda::device::Cuda::is_name(name)? {
            return Ok(());
        }
        Err(unknown(name))
    }

    /// Names that [`Device::open`] takes in this build. Of GPUs it has the first, whether there is one or not.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let gpus: &[&str] = match (cfg!(feature = "cuda"), cfg!(feature = "cuda-sim")) {
            (_, true) => &["cuda:0", "cuda-sim"],
            (true, false) => &["cuda:0"],
            (false, false) => &[],
        };
        KINDS.iter().map(|kind| kind.0).chain(gpus.iter().copied())
    }

    /// The CPU. Errors: Value for an option outside its domain, Io if the address range cannot be mapped.
    pub fn cpu(options: DeviceOptions) -> Result<Device> {
        options.check()?;
        let address_bytes = options.budget_bytes.unwrap_or(0).max(physical_bytes());
        // The system may refuse the whole memory as an address range. Without a budget, half of the process's limit
        // suffices.
        let least_bytes = options.budget_bytes.unwrap_or_else(|| address_limit_bytes() / 2);
        let backend = Cpu::new(address_bytes, least_bytes, options.threads, options.kernels.clone())?;
        Device::with_backend(Box::new(backend), options)
    }

    /// A device that computes nothing. Programs run on it over facts alone, and its figures show their memory: that of
    /// the CPU, or of the device that the option `dry_of` names, which need not be there.
    pub fn dry(options: DeviceOptions) -> Result<Device> {
        options.check()?;
        let threads = options.threads;
        #[cfg(feature = "cuda")]
        if let Some(name) = &options.dry_of
            && let Some(kernels) = remat_cuda::device::Cuda::kernels_of(name)?
        {
            return Device::with_backend(Box::new(Dry::with_kernels(threads, kernels)), options);
        }
        Device::with_backend(Box::new(Dry::new(threads)), options)
    }

    /// A device with a backend that the caller supplies.
    pub fn with_backend(backend: Box<dyn Backend>, options: DeviceOptions) -> Result<Device> {
        options.check()?;
        let queue = Queue::new(options.queue_capacity, most_put_bytes(options.budget_bytes));
        let (name, streams, is_dry) = (backend.name().to_owned(), backend.streams(), backend.is_dry());
        let kernels = backend.kernels();
        let budget = AtomicUsize::new(options.budget_bytes.unwrap_or(NO_BUDGET));
        let failures = Arc::new(Failures::default());
        let thread = worker::spawn(backend, options.clone(), queue.clone(), failures.clone())?;
        Ok(Device(Arc::new(Shared {
            queue,
            next_id: AtomicU64::new(1),
            options,
            name,
            streams,
            kernels,
            is_dry,
            constants: Mutex::default(),
            backward: Mutex::default(),
            residents: Default::default(),
            failures,
            marks: Mutex::default(),
            tracing: false.into(),
            dispatch_trace: Mutex::default(),
            opened: std::time::Instant::now(),
            budget,
            worker: Mutex::new(Some(thread)),
        })))
    }

    /// A channel to stream 0.
    pub fn channel(&self) -> Channel {
        Channel { shared: self.0.clone(), stream: StreamId(0) }
    }

    /// A channel to a stream. Errors (Device) if there is no such stream.
    pub fn stream(&self, stream: u16) -> Result<Channel> {
        if usize::from(stream) >= self.0.streams {
            let text = format!("stream {stream} of device {}, which has {}", self.0.name, self.0.streams);
            return Err(Error::new(ErrorKind::Device, text));
        }
        Ok(Channel { shared: self.0.clone(), stream: StreamId(stream) })
    }

    /// A handle that does not keep the device open.
    pub fn downgrade(&self) -> WeakDevice {
        WeakDevice(Arc::downgrade(&self.0))
    }

    /// The name for reports.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The device's kernels: the ops that they compute, and their needs.
    pub fn kernels(&self) -> &Arc<dyn KernelSet> {
        &self.0.kernels
    }

    /// The budget in force, in bytes; `None` for no limit. [`Channel::set_budget`] changes it.
    pub fn budget_bytes(&self) -> Option<usize> {
        Some(self.0.budget.load(Ordering::Acquire)).filter(|bytes| *bytes != NO_BUDGET)
    }

    /// The options with which it was opened.
    pub fn options(&self) -> &DeviceOptions {
        &self.0.options
    }

    /// True if values cannot be read from it.
    pub fn is_dry(&self) -> bool {
        self.0.is_dry
    }
}

/// A reference that does not keep the device open.
#[derive(Clone)]
pub struct WeakDevice(Weak<Shared>);

impl WeakDevice {
    /// The device, if another reference keeps it open.
    pub fn upgrade(&self) -> Option<Device> {
        self.0.upgrade().map(Device)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Device {}
impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.0.name)
    }
}

/// Called when a charge ends early; see [`Channel::charge_giving_way`].
pub type GiveWay = Arc<dyn Fn() + Send + Sync>;

/// Host bytes that count against a device's budget while this value lives, such as the staging buffers of a data
/// loader.
///
/// The arena sets the bytes aside without touching them, so the process's resident set counts only the host buffer.
pub struct HostReservation {
    pub(super) queue: Arc<Queue>,
    pub(super) charge: u32,
    pub(super) bytes: usize,
}

impl HostReservation {
    /// Bytes charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HostReservation {
    fn drop(&mut self) {
        self.queue.push_delete(Command::Uncharge { charge: self.charge });
    }
}

/// Queued data lies on the host, beside the budget. It may take this part of the budget, or of the machine's memory.
const PUT_SHARE: usize = 8;

fn most_put_bytes(budget_bytes: Option<usize>) -> usize {
    budget_bytes.unwrap_or_else(physical_bytes) / PUT_SHARE
}

/// The most address space that the process may have.
fn address_limit_bytes() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes `limit`, which lives here, and nothing else.
    match unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}

/// The machine's memory: the most a device without a budget can address.
fn physical_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    const FALLBACK_BYTES: usize = 8 << 30;
    match (usize::try_from(pages), usize::try_from(size)) {
        (Ok(p), Ok(s)) if p > 0 && s > 0 => p.saturating_mul(s),
        _ => FALLBACK_BYTES,
    }
}
