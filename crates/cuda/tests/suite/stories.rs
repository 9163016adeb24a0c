//! Stories of failures, told of the software device and of the emulated one, which makes the same promises.

use remat_cuda::device::Cuda;
use remat_cuda::driver::{SoftwareOptions, software};
use remat_device::{Backend, Buffer, Event, Launch, OutBuffer, StreamId};
use remat_emulated::EmulatedOptions;
use remat_ops::OpRef;
use remat_ops::index::Take;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_types::{CallSite, DType, Error, ErrorKind, HostTensor, Layout, Result, Shape, SmallVec};

use crate::rig::compiler;

/// Integers of a tensor, and bytes between the beginnings of two.
pub(crate) const N: usize = 4;
pub(crate) const ROOM: usize = 256;
pub(crate) const TENSORS: usize = 64;
/// Tensors that are not written after the beginning: ones, indices that are there, one that is not, and zeros.
pub(crate) const ONES: usize = 0;
pub(crate) const GOOD: usize = 1;
pub(crate) const BAD: usize = 2;
pub(crate) const ZEROS: usize = 3;
/// The first of the others.
pub(crate) const FREE: usize = 4;
pub(crate) const STREAM: StreamId = StreamId(0);

/// A device with tensors of integers.
pub(crate) struct Story {
    pub(crate) device: Box<dyn Backend>,
    pub(crate) name: &'static str,
}

impl Story {
    pub(crate) fn put(&mut self, tensor: usize, values: [i64; N]) -> Event {
        let t = HostTensor::from_slice(&values, [N]).expect("four");
        self.device.upload(STREAM, tensor * ROOM, &t).expect("is queued")
    }

    /// Queues `y = f(a, b)`, in the place of `a` if that is `y`.
    pub(crate) fn launch(&mut self, op: &OpRef, a: usize, b: usize, y: usize, after: &[Event]) -> Event {
        let (layout, shape) = (Layout::contiguous(Shape::from(&[N][..])), Shape::from(&[N][..]));
        let buffer = |t: usize| Buffer { dtype: DType::I64, layout: &layout, at: t * ROOM, bytes: 8 * N };
        let donated_from = (a == y).then_some(0);
        let launch = Launch {
            op,
            stream: STREAM,
            x: SmallVec::from_iter([buffer(a), buffer(b)]),
            y: SmallVec::from_iter([OutBuffer {
                dtype: DType::I64,
                shape: &shape,
                at: y * ROOM,
                bytes: 8 * N,
                donated_from,
            }]),
            workspace: (TENSORS * ROOM, 0),
            after: after.into(),
            site: CallSite::here(),
        };
        self.device.launch(&launch).expect("is queued")
    }

    /// `y[i] = x[index[i]]`, which fails for [`BAD`] indices.
    pub(crate) fn take(&mut self, x: usize, index: usize, y: usize, after: &[Event]) -> Event {
        self.launch(&Take { axis: 0 }.into(), x, index, y, after)
    }

    /// `y = a + b`, which cannot fail.
    pub(crate) fn add(&mut self, a: usize, b: usize, y: usize, after: &[Event]) -> Event {
        self.launch(&Binary { f: BinaryFn::Add }.into(), a, b, y, after)
    }

    /// `y = a / b`, which fails for [`ZEROS`].
    pub(crate) fn divide(&mut self, a: usize, b: usize, y: usize, after: &[Event]) -> Event {
        self.launch(&Binary { f: BinaryFn::Div }.into(), a, b, y, after)
    }

    pub(crate) fn gate(&mut self, after: &[Event], marks: &[Event]) -> Event {
        self.device.gate(STREAM, after, marks).expect("is queued")
    }

    pub(crate) fn get(&mut self, tensor: usize, after: &[Event]) -> Result<Vec<i64>> {
        let layout = Layout::contiguous(Shape::from(&[N][..]));
        let buffer = Buffer { dtype: DType::I64, layout: &layout, at: tensor * ROOM, bytes: 8 * N };
        let t = self.device.download(&buffer, after)?;
        Ok(t.bytes().as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect())
    }

    #[track_caller]
    pub(crate) fn holds(&mut self, tensor: usize, values: [i64; N]) {
        self.device.wait_idle();
        assert_eq!(self.get(tensor, &[]).expect("the device is well"), values, "{}", self.name);
    }

    /// Fails unless an event failed with an error of this kind.
    #[track_caller]
    pub(crate) fn fails(&mut self, event: Event, kind: ErrorKind) {
        let found = self.device.synchronize(event);
        self.is(found.err(), Some(kind));
    }

    #[track_caller]
    pub(crate) fn passes(&mut self, event: Event) {
        let found = self.device.synchronize(event);
        self.is(found.err(), None);
    }

    #[track_caller]
    pub(crate) fn is(&self, found: Option<Error>, kind: Option<ErrorKind>) {
        assert_eq!(found.as_ref().map(Error::kind), kind, "{}: {found:?}", self.name);
    }

    /// Nobody is told of anything any more.
    #[track_caller]
    pub(crate) fn is_all_told(&mut self) {
        let (all, since) = (self.device.synchronize_all().err(), self.device.failed_after(&[]));
        self.is(all, None);
        self.is(since, None);
    }
}

fn cuda() -> Option<Box<dyn Backend>> {
    let driver = software(SoftwareOptions { threads: 2, ..SoftwareOptions::default() }).expect("a driver");
    Some(Box::new(Cuda::open(&driver, compiler()?, 0).expect("opens")))
}

fn emulated() -> Box<dyn Backend> {
    EmulatedOptions { streams: 1, max_delay_us: 0, ..EmulatedOptions::default() }.open().expect("opens")
}

/// Tells a story on both devices. Without the compiler on one.
pub(crate) fn on_both(story: impl Fn(&mut Story)) {
    for (name, device) in [("emulated", Some(emulated())), ("cuda", cuda())] {
        let Some(mut device) = device else { continue };
        device.reserve((TENSORS + 1) * ROOM).expect("there is memory");
        let mut s = Story { device, name };
        for (tensor, values) in [(ONES, [1; N]), (GOOD, [3, 2, 1, 0]), (BAD, [0, 9, 1, 7]), (ZEROS, [0; N])] {
            s.put(tensor, values);
        }
        for t in FREE..TENSORS {
            s.put(t, [t as i64; N]);
        }
        story(&mut s);
    }
}

/// The last event of a stream so far, as a mark.
pub(crate) fn mark(s: &mut Story) -> [Event; 1] {
    [s.put(TENSORS - 1, [0; N])]
}
