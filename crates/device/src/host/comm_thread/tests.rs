use std::sync::{Condvar, Mutex};
use std::thread::{scope, sleep};
use std::time::Duration;

use remat_ops::schema::Params;
use remat_ops::{EvalCx, GradCx, Grads, Op, OpDef, Sample};
use remat_types::{Fact, Facts, smallvec};
use serde::{Deserialize, Serialize};

use super::*;
use crate::program::Span;

/// Longer than any test waits.
const LIMIT: Duration = Duration::from_secs(60);

/// Long enough to notice a caller that does not wait.
const MOMENT: Duration = Duration::from_millis(30);

/// Gates: a collective waits until the gate of its number is open.
static OPEN: [(Mutex<bool>, Condvar); 3] = [const { (Mutex::new(false), Condvar::new()) }; 3];

fn open(gate: usize) {
    *OPEN[gate].0.lock().expect("no panic") = true;
    OPEN[gate].1.notify_all();
}

/// `y = x + 1` as soon as its gate is open, or a failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Held {
    Behind(usize),
    Free,
    Fails,
}

impl Op for Held {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        Ok(smallvec![x[0].clone()])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        match self {
            Held::Fails => return Err(Error::new(ErrorKind::Peer, "planted failure")),
            Held::Behind(gate) => {
                let (is_open, opened) = &OPEN[*gate];
                let wait = opened.wait_timeout_while(is_open.lock().expect("no panic"), LIMIT, |open| !*open);
                assert!(*wait.expect("no panic").0, "nobody opens");
            }
            Held::Free => {}
        }
        cx.output_from::<f32>(0, 0)?.iter_mut().for_each(|v| *v += 1.0);
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

impl Params for Held {}

impl OpDef for Held {
    const NAME: &'static str = "held";

    fn samples() -> Vec<Sample<Self>> {
        Vec::new()
    }
}

const N: usize = 4;

/// Four places of the same number of elements. Collectives read and write some of them.
struct Memory {
    /// The first element. The memory is never freed.
    first: *mut f32,
    layout: Layout,
    shape: Shape,
}

impl Memory {
    fn new() -> Memory {
        let data: Vec<f32> = (0..4 * N).map(|i| i as f32).collect();
        Memory { first: data.leak().as_mut_ptr(), layout: Layout::contiguous([N]), shape: [N].into() }
    }

    fn place(&self, i: usize) -> Range {
        assert!(i < 4);
        // SAFETY: within the four places.
        Range::new(unsafe { self.first.add(i * N) }.cast(), N * size_of::<f32>())
    }

    fn start(&self, comm: &CommThread, op: Held, from: usize, to: usize) -> Result<()> {
        // SAFETY: the memory outlives the thread in every test, and tests read it only after `before`.
        unsafe { comm.start(&OpRef::new(op), None, &Places { memory: self, from, to }) }
    }

    fn read(&self, comm: &CommThread, i: usize) -> Result<Vec<f32>> {
        comm.before(self.place(i), false)?;
        // SAFETY: alive, and nobody writes it now.
        Ok(bytemuck::cast_slice(unsafe { self.place(i).bytes() }).to_vec())
    }
}

struct Places<'m> {
    memory: &'m Memory,
    from: usize,
    to: usize,
}

impl<'m> Operands<'m> for Places<'m> {
    fn counts(&self) -> (usize, usize) {
        (1, 1)
    }

    fn input(&self, _i: usize) -> Result<Input<'m>> {
        Ok((DType::F32, &self.memory.layout, Some(self.memory.place(self.from))))
    }

    fn output(&self, _j: usize) -> Result<Output<'m>> {
        Ok((DType::F32, &self.memory.shape, self.memory.place(self.to), None))
    }

    fn workspace(&self) -> Result<Range> {
        self.memory.place(0).part(0, 0)
    }
}

fn thread() -> CommThread {
    CommThread::new(Instant::now()).expect("a thread")
}

fn is_done(comm: &CommThread) -> bool {
    comm.state.borrow().in_flight.is_empty()
}

#[test]
fn whoever_writes_what_is_read_waits_and_whoever_reads_it_does_not() {
    let (memory, comm) = (Memory::new(), thread());
    memory.start(&comm, Held::Behind(0), 0, 1).expect("starts");
    comm.before(memory.place(0), false).expect("reads beside");
    comm.before(memory.place(2), true).expect("elsewhere");
    assert!(!is_done(&comm));
    scope(|s| {
        s.spawn(|| {
            sleep(MOMENT);
            open(0);
        });
        comm.before(memory.place(0), true).expect("no failure");
    });
    assert!(is_done(&comm), "what it reads is written when it has ended");
    assert_eq!(memory.read(&comm, 1).expect("made"), [1.0, 2.0, 3.0, 4.0]);
    let figures = comm.figures();
    assert!(figures.busy_ns > 0 && figures.exposed_ns > 0, "{figures:?}");
}

#[test]
fn whoever_reads_what_is_written_waits_and_gets_it() {
    let (memory, comm) = (Memory::new(), thread());
    memory.start(&comm, Held::Behind(1), 0, 1).expect("starts");
    // this one runs behind the first, which writes its input
    scope(|s| {
        s.spawn(|| {
            sleep(MOMENT);
            open(1);
        });
        memory.start(&comm, Held::Free, 1, 2).expect("starts");
    });
    assert_eq!(memory.read(&comm, 2).expect("made"), [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(memory.read(&comm, 3).expect("nobody's"), [12.0, 13.0, 14.0, 15.0]);
}

#[test]
fn a_failure_stays_where_it_is_until_something_else_is_written_there() {
    let (memory, comm) = (Memory::new(), thread());
    memory.start(&comm, Held::Fails, 0, 1).expect("starts");
    for _ in 0..2 {
        let e = memory.read(&comm, 1).expect_err("it was not made");
        assert_eq!((e.kind(), e.op()), (ErrorKind::Peer, Some("held")));
    }
    assert!(comm.take_failure().is_none(), "somebody was told");
    let e = memory.start(&comm, Held::Free, 1, 2).expect_err("its input was not made");
    assert_eq!(e.kind(), ErrorKind::Peer);
    // the failure moves with its bytes, and the one at the target is forgotten
    comm.moved(memory.place(1), memory.place(3));
    memory.read(&comm, 1).expect("another's now");
    memory.read(&comm, 3).expect_err("here it is");
    comm.before(memory.place(3), true).expect("is written");
    memory.read(&comm, 3).expect("something else");
    // a collective that succeeds clears it too
    memory.start(&comm, Held::Fails, 0, 1).expect("starts");
    memory.start(&comm, Held::Free, 0, 1).expect("starts");
    assert_eq!(memory.read(&comm, 1).expect("made"), [1.0, 2.0, 3.0, 4.0]);
    assert!(comm.take_failure().is_some(), "nobody was told");
    assert!(comm.take_failure().is_none());
}

#[test]
fn a_thread_that_ends_has_made_what_was_started() {
    let (memory, comm) = (Memory::new(), thread());
    comm.record();
    memory.start(&comm, Held::Behind(2), 0, 1).expect("starts");
    open(2);
    let spans = comm.take_record();
    assert_eq!(spans.iter().map(|s| (s.label, s.bytes)).collect::<Vec<_>>(), [("held", 16)]);
    memory.start(&comm, Held::Free, 1, 2).expect("starts");
    drop(comm);
    assert_eq!(memory.read(&thread(), 2).expect("another thread knows nothing of it"), [2.0, 3.0, 4.0, 5.0]);
}
