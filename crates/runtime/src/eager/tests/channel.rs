//! The behaviour of an asynchronous channel as a caller sees it.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use remat_ops::pointwise::{Binary, BinaryFn};
use remat_ops::shape::Permute;
use remat_types::{DType, Error, ErrorKind, HostTensor, Scope, SmallVec, smallvec};

use super::ops::{Mode, Probe};
use super::{add, apply1, cpu, exp, host, put, ramp, recording, tanh, value};
use crate::Channel;
use crate::interrupt;
use crate::options::{AsyncLevel, DeviceOptions};

#[test]
fn evicted_tensors_answer_facts_with_the_worker_stopped() {
    let c = cpu(recording());
    let x = put(&c, &HostTensor::from_slice(&[1f32, 2., 3., 4., 5., 6.], [2, 3]).expect("fits"));
    let y = exp(&c, &x);
    let z = apply1(&c, Permute { order: smallvec![1, 0] }, [tanh(&c, &y)]);
    assert_eq!(c.evict_all().expect("open"), 2);
    let hold = c.pause().expect("open");
    assert_eq!((c.shape(&y).dims(), c.dtype(&y)), (&[2, 3][..], DType::F32));
    assert_eq!(c.shape(&z).dims(), [3, 2]);
    let w = add(&c, &z, &z);
    assert_eq!(c.shape(&w).dims(), [3, 2], "facts of an op that has not run");
    drop(hold);
    let stats = c.stats().expect("open");
    assert!(stats.recomputed_ops > 0, "the add needed its input back");
    c.verify().expect("consistent");
}

#[test]
fn views_share_their_storage_and_read_the_right_elements() {
    let c = cpu(recording());
    let x = put(&c, &HostTensor::from_slice(&[1f32, 2., 3., 4., 5., 6.], [2, 3]).expect("fits"));
    let t = apply1(&c, Permute { order: smallvec![1, 0] }, [x.clone()]);
    assert_eq!(c.stats().expect("open").storages, 1);
    drop(x);
    assert_eq!(value(&c, &t), [1., 4., 2., 5., 3., 6.]);
    // Increment requires contiguous inputs.
    let y = apply1(&c, Probe(Mode::Increment), [t.clone()]);
    assert_eq!(value(&c, &y), [2., 5., 3., 6., 4., 7.]);
    assert_eq!(value(&c, &t), [1., 4., 2., 5., 3., 6.]);
    drop((t, y));
    assert_eq!(c.stats().expect("open").storages, 0);
}

#[test]
fn a_full_queue_holds_its_producer_back_but_never_a_drop() {
    let c = cpu(DeviceOptions { queue_capacity: 4, ..recording() });
    let x = put(&c, &ramp(4));
    let hold = c.pause().expect("open");
    // The worker waits in Pause, so later commands stay in the queue.
    let started = Instant::now();
    std::thread::scope(|s| {
        let handles = s.spawn(|| (0..50).map(|_| tanh(&c, &x)).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!handles.is_finished(), "50 commands passed through a queue of 4");
        let many: Vec<_> = (0..100).map(|_| x.clone()).collect();
        drop(many);
        drop(hold);
        let y = handles.join().expect("no panic");
        assert_eq!(y.len(), 50);
    });
    assert!(started.elapsed() >= Duration::from_millis(30));
    assert_eq!(c.stats().expect("open").executed_ops, 50);
}

#[test]
fn a_watched_wait_ends_with_the_error_of_its_check_and_leaves_all_as_it_was() {
    let c = cpu(recording());
    let x = put(&c, &ramp(4));
    let hold = c.pause().expect("open");
    let y = tanh(&c, &x);
    let stop = || Some(Error::new(ErrorKind::NoValue, "enough"));
    let e = interrupt::watched(stop, || c.value(&y)).expect_err("the worker sits in Pause");
    assert_eq!(e.message(), "enough");
    assert!(interrupt::watched(stop, || c.sync()).is_err(), "other waits too");
    drop(hold);
    assert_eq!(interrupt::watched(|| None, || c.value(&y)).expect("is there").elems(), 4);
    assert_eq!(value(&c, &y).len(), 4, "and nothing is watched any more");
    c.verify().expect("consistent");
}

#[test]
fn several_threads_wait_for_one_tensor_and_for_different_ones() {
    let c = cpu(recording());
    let x = put(&c, &ramp(16));
    let hold = c.pause().expect("open");
    let ys: Vec<_> = (0..4).map(|_| exp(&c, &x)).collect();
    let start = Barrier::new(9);
    std::thread::scope(|s| {
        let waiters: Vec<_> = (0..8)
            .map(|i| {
                let (c, y, start) = (&c, if i < 4 { &ys[0] } else { &ys[i - 4] }, &start);
                s.spawn(move || {
                    start.wait();
                    value(c, y)
                })
            })
            .collect();
        start.wait();
        drop(hold);
        let want: Vec<f32> = waiters.into_iter().map(|w| w.join().expect("no panic")).collect::<Vec<_>>().concat();
        assert_eq!(want.len(), 8 * 16);
        assert!(want.chunks(16).all(|v| v == &want[..16]));
    });
}

#[test]
fn async_levels_differ_in_when_the_error_comes() {
    for level in [AsyncLevel::Sync, AsyncLevel::Launched] {
        let c = cpu(DeviceOptions { async_level: level, ..recording() });
        let x = put(&c, &ramp(4));
        let e = c.apply(Probe(Mode::Fail), smallvec![x.clone()]).expect_err("the call's own error");
        assert_eq!((e.kind(), e.op()), (ErrorKind::Index, Some("probe")));
        assert_eq!(value(&c, &add(&c, &x, &x)).len(), 4);
        c.sync().expect("it was reported");
    }
    let c = cpu(recording());
    let x = put(&c, &ramp(4));
    let y = c.apply(Probe(Mode::Fail), smallvec![x]).expect("asynchronous").remove(0);
    assert_eq!(c.value(&y).expect_err("at the fetch").kind(), ErrorKind::Index);
}

#[test]
fn after_close_everything_is_an_error_of_kind_closed() {
    let c = cpu(recording());
    let x = put(&c, &ramp(4));
    c.close().expect("nothing failed");
    assert_eq!(c.value(&x).expect_err("closed").kind(), ErrorKind::Closed);
    assert_eq!(c.put(&ramp(4)).expect_err("closed").kind(), ErrorKind::Closed);
    let e = c.apply(Probe(Mode::Increment), smallvec![x.clone()]).expect_err("closed");
    assert_eq!(e.kind(), ErrorKind::Closed);
    assert_eq!(c.sync().expect_err("closed").kind(), ErrorKind::Closed);
    assert_eq!(c.stats().expect_err("closed").kind(), ErrorKind::Closed);
    c.close().expect("the second close does nothing");
    assert_eq!(c.shape(&x).dims(), [4], "facts need no device");
}

#[test]
fn a_forked_child_gets_errors_of_kind_closed_and_the_parent_goes_on() {
    let c = cpu(recording());
    let x = put(&c, &ramp(4));
    c.sync().expect("fine");
    // SAFETY: the child only calls into the channel, which must refuse before it takes any lock, and exits at once.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let refused = c.value(&x).is_err_and(|e| e.kind() == ErrorKind::Closed)
            && c.apply(Probe(Mode::Increment), smallvec![x.clone()]).is_err_and(|e| e.kind() == ErrorKind::Closed)
            && c.sync().is_err_and(|e| e.message().contains("forked"));
        drop(x.clone());
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(if refused { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `child` is a child of this process and `status` is valid.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "child's status {status}");
    assert_eq!(value(&c, &x), ramp(4).to_vec::<f32>().expect("f32"));
}

#[test]
fn small_constants_are_put_once_while_they_live() {
    let c = cpu(recording());
    let (a, b) = (c.put(&host(&[1.5])).expect("open"), c.put(&host(&[1.5])).expect("open"));
    assert_eq!(a.id(), b.id());
    assert_eq!(c.stats().expect("open").storages, 1);
    let own = put(&c, &host(&[1.5]));
    assert_ne!(own.id(), a.id(), "put_as never shares");
    let old = a.id();
    drop((a, b));
    let again = c.put(&host(&[1.5])).expect("open");
    assert_ne!(again.id(), old, "nothing keeps a constant that nobody holds");
    assert_eq!(value(&c, &again), [1.5]);
}

#[test]
fn small_integers_are_computed_on_the_host_and_serve_as_shapes() {
    let c = cpu(recording());
    let hold = c.pause().expect("open");
    let a = c.put(&HostTensor::from_slice(&[2i64, 3], [2]).expect("fits")).expect("open");
    let b = c.put(&HostTensor::from_slice(&[4i64, 5], [2]).expect("fits")).expect("open");
    let s = add(&c, &a, &b);
    let dims = c.value(&s).expect("known with the worker stopped").to_vec::<i64>().expect("i64");
    assert_eq!(dims, [6, 8]);
    drop(hold);
    assert_eq!(c.stats().expect("open").executed_ops, 0, "no kernel ran");
    let off = cpu(DeviceOptions { host_compute: false, ..recording() });
    let a = off.put(&HostTensor::from_slice(&[2i64, 3], [2]).expect("fits")).expect("open");
    assert_eq!(off.value(&add(&off, &a, &a)).expect("computed").to_vec::<i64>().expect("i64"), [4, 6]);
    assert_eq!(off.stats().expect("open").executed_ops, 1);
}

#[test]
fn scopes_nest_and_show_in_traces() {
    let c = cpu(recording());
    let x = put(&c, &ramp(4));
    c.start_trace().expect("open");
    {
        let _outer = Scope::enter("block1");
        let _inner = Scope::enter("conv");
        assert_eq!(Scope::current().as_deref(), Some("block1.conv"));
        let _ = tanh(&c, &x);
    }
    assert_eq!(Scope::current(), None);
    let json = c.stop_trace().expect("open").to_chrome_json().to_string();
    assert!(json.contains("block1.conv") && json.contains("tanh"), "{json}");
}

#[test]
fn a_dropped_value_is_made_again_when_it_is_read() {
    let c = cpu(recording());
    let x = put(&c, &ramp(64));
    let y = exp(&c, &x);
    let before = value(&c, &y);
    c.drop_value(&y).expect("open");
    assert_eq!(c.stats().expect("open").in_use_bytes, 256);
    assert_eq!(value(&c, &y), before);
    assert_eq!(c.stats().expect("open").recomputed_ops, 1);
    c.drop_value(&x).expect("open");
    assert_eq!(value(&c, &x).len(), 64, "data has no recipe: it stays");
    let once = apply1(&c, Probe(Mode::Once), [x.clone()]);
    c.drop_value(&once).expect("open");
    assert_eq!(value(&c, &once).len(), 64);
    assert_eq!(c.stats().expect("open").recomputed_ops, 1, "an op that must not repeat is kept");
}

#[test]
fn the_last_handle_on_an_input_gives_its_storage_away() {
    let c = cpu(recording());
    let mut x = put(&c, &ramp(1024));
    for i in 0..5 {
        x = apply1(&c, Probe(Mode::Increment), [x]);
        let first = value(&c, &x)[0];
        assert_eq!(first, -3.0 + (i + 1) as f32);
    }
    assert_eq!(c.stats().expect("open").peak_bytes, 4096, "one storage all the way");
    let kept = x.clone();
    let y = apply1(&c, Probe(Mode::Increment), [x]);
    assert_eq!(value(&c, &y)[0], value(&c, &kept)[0] + 1.0);
    assert_eq!(c.stats().expect("open").peak_bytes, 8192, "another handle forbids it");
    c.verify().expect("consistent");
}

#[test]
fn a_donation_of_data_rescues_what_was_made_from_it() {
    let c = cpu(recording());
    let x = put(&c, &ramp(64));
    let (y, z) = (exp(&c, &x), tanh(&c, &x));
    let (y0, z0, x0) = (value(&c, &y), value(&c, &z), value(&c, &x));
    c.drop_value(&y).expect("open");
    let x1 = apply1(&c, Probe(Mode::Increment), [x]);
    assert_eq!(value(&c, &x1)[5], x0[5] + 1.0);
    c.evict_all().expect("open");
    assert_eq!(value(&c, &y), y0);
    assert_eq!(value(&c, &z), z0);
    c.verify().expect("consistent");
}

#[test]
fn multi_output_ops_come_back_output_by_output() {
    let c = cpu(recording());
    let x = put(&c, &ramp(64));
    let y = c.apply(Probe(Mode::Two), smallvec![x.clone()]).expect("fine");
    let want: Vec<_> = y.iter().map(|h| value(&c, h)).collect();
    c.drop_value(&y[0]).expect("open");
    assert_eq!(value(&c, &y[0]), want[0]);
    let second = y[1].clone();
    drop(y);
    c.drop_value(&second).expect("open");
    assert_eq!(value(&c, &second), want[1]);
    assert_eq!(c.stats().expect("open").in_use_bytes, 512, "the dead sibling is not kept");
    let w = apply1(&c, Probe(Mode::Workspace), [second]);
    assert_eq!(value(&c, &w)[0], want[1][0] + 1.0);
    c.verify().expect("consistent");
}

#[test]
fn an_empty_tensor_needs_no_bytes() {
    let c = cpu(recording());
    let x = put(&c, &HostTensor::zeros(DType::F32, [0, 3]).expect("empty"));
    let y = c.apply(Binary { f: BinaryFn::Add }, SmallVec::from_iter([x.clone(), x])).expect("fine").remove(0);
    c.evict_all().expect("open");
    assert_eq!(value(&c, &y).len(), 0);
    c.verify().expect("consistent");
}

/// Bytes that others can read while they are written.
#[derive(Clone, Default)]
struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("whole").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A full disk.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_that_is_written_while_it_is_recorded_has_the_events_of_one_that_is_kept() {
    const OPS: usize = 10_000;
    let run = |c: &Channel| {
        let x = put(c, &ramp(4));
        (0..OPS).for_each(|_| drop(exp(c, &x)));
        c.sync().expect("runs");
    };
    let c = cpu(recording());
    c.start_trace().expect("open");
    run(&c);
    let kept = c.stop_trace().expect("open").to_chrome_json();
    let out = Shared::default();
    c.start_trace_to(Box::new(out.clone())).expect("open");
    run(&c);
    let until_now = out.0.lock().expect("whole").len();
    assert!(until_now > OPS * 20, "{until_now} bytes are written before the end");
    assert!(c.stop_trace().expect("open").is_empty());
    let written: serde_json::Value = serde_json::from_slice(&out.0.lock().expect("whole")).expect("JSON");
    let count = |json: &serde_json::Value, ph: &str| {
        json["traceEvents"].as_array().expect("a list").iter().filter(|e| e["ph"] == ph).count()
    };
    for ph in ["M", "X"] {
        assert_eq!(count(&written, ph), count(&kept, ph), "events of {ph}");
    }
    assert_eq!(written["otherData"], kept["otherData"]);
    // a failed write is reported at the end
    c.start_trace_to(Box::new(Full)).expect("open");
    run(&c);
    assert_eq!(c.stop_trace().expect_err("a full disk").kind(), ErrorKind::Io);
}
