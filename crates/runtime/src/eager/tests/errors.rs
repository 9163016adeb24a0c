//! Errors: each is reported once, with the op and the place, and nothing is lost.

use remat_emulated::EmulatedOptions;
use remat_types::{ErrorKind, SmallVec, smallvec};

use super::ops::{Mode, Probe, fail_from_now_on};
use super::{add, apply1, budget, cpu, exp, put, ramp, recording, tanh, value};
use crate::eager::{Channel, Device, Handle};
use crate::report::Kind;
use crate::{AsyncLevel, DeviceOptions};

fn devices() -> Vec<Channel> {
    let emulated = EmulatedOptions::default().open().and_then(|b| Device::with_backend(b, recording())).expect("opens");
    vec![cpu(recording()), cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }), emulated.channel()]
}

#[test]
fn an_error_is_reported_once_with_its_op_and_place_and_then_as_poisoned() {
    for c in devices() {
        let x = put(&c, &ramp(8));
        let line = line!() + 1;
        let bad = apply1(&c, Probe(Mode::Fail), [x.clone()]);
        let below = tanh(&c, &add(&c, &bad, &x));
        let fine = tanh(&c, &x);
        let e = c.value(&below).expect_err("an ancestor failed");
        assert_eq!((e.kind(), e.op()), (ErrorKind::Index, Some("probe")), "{e}");
        let site = e.call_site().expect("the place is known");
        assert!(site.file().ends_with("errors.rs") && site.line() == line, "{site}");
        for h in [&below, &bad] {
            let e = c.value(h).expect_err("still failed");
            assert_eq!(e.kind(), ErrorKind::Poisoned, "{c:?}");
            assert!(e.message().contains("planted failure"), "{e}");
        }
        assert_eq!(value(&c, &fine).len(), 8, "unrelated tensors are fine");
        c.sync().expect("it was reported");
        assert_eq!(value(&c, &add(&c, &fine, &x)).len(), 8, "and the channel goes on");
        c.verify().expect("consistent");
    }
}

#[test]
fn sync_reports_what_no_fetch_has() {
    for c in devices() {
        let x = put(&c, &ramp(8));
        let bad = apply1(&c, Probe(Mode::Fail), [x.clone()]);
        let e = c.sync().expect_err("it failed");
        assert_eq!((e.kind(), e.op()), (ErrorKind::Index, Some("probe")));
        assert!(e.call_site().is_some());
        c.sync().expect("once");
        assert_eq!(c.value(&bad).expect_err("still failed").kind(), ErrorKind::Poisoned);
    }
}

#[test]
fn inference_errors_are_the_callers_and_carry_its_line() {
    let c = cpu(recording());
    let (a, b) = (put(&c, &ramp(8)), put(&c, &ramp(9)));
    let line = line!() + 1;
    let e = super::try1(&c, remat_ops::pointwise::Binary { f: remat_ops::pointwise::BinaryFn::Add }, [a, b])
        .expect_err("8 and 9 do not broadcast");
    assert_eq!((e.kind(), e.op()), (ErrorKind::Shape, Some("add")));
    assert_eq!(e.call_site().expect("known").line(), line);
    c.sync().expect("nothing ran");
}

#[test]
fn a_panicking_kernel_answers_every_waiter() {
    let c = cpu(recording());
    let x = put(&c, &ramp(8));
    let bad = apply1(&c, Probe(Mode::Panic), [x.clone()]);
    let e = c.value(&bad).expect_err("the kernel panicked");
    assert_eq!(e.kind(), ErrorKind::Internal, "{e}");
    assert_eq!(value(&c, &x).len(), 8, "other tensors survive");
}

#[test]
fn an_op_without_outputs_leaves_nothing_behind() {
    let c = cpu(recording());
    let x = exp(&c, &put(&c, &ramp(8)));
    for _ in 0..3 {
        assert!(c.apply(Probe(Mode::Nothing), smallvec![x.clone()]).expect("queued").is_empty());
    }
    c.verify().expect("consistent");
    let recipes = c.stats().expect("open").recipes;
    assert_eq!(recipes, 1, "that of x");
    drop(x);
    c.verify().expect("consistent");
    assert_eq!(c.stats().expect("open").recipes, 0);
}

#[test]
fn a_failed_update_keeps_the_old_version() {
    for c in devices() {
        let w = put(&c, &ramp(64));
        c.commit(&w, Kind::Parameter).expect("open");
        let g = exp(&c, &w);
        let old = value(&c, &w);
        let new = c.update(Probe(Mode::FailInPlace), smallvec![w, g.clone()], &[Some(0)]).expect("queued").remove(0);
        assert_eq!(c.value(&new).expect_err("the failure is told").kind(), ErrorKind::Index);
        assert_eq!(value(&c, &new), old, "{c:?}: nothing is lost");
        c.sync().expect("and told once");
        let newer = c.update(Probe(Mode::Increment), smallvec![new], &[Some(0)]).expect("queued").remove(0);
        assert_eq!(value(&c, &newer)[0], old[0] + 1.0, "training goes on");
        drop((newer, g));
        c.verify().expect("consistent");
        assert_eq!(c.stats().expect("open").storages, 0);
    }
}

#[test]
fn an_update_that_fails_in_its_call_gives_the_old_version_back() {
    for async_level in [AsyncLevel::Sync, AsyncLevel::Launched] {
        let c = cpu(DeviceOptions { async_level, ..recording() });
        let (w, old) = (put(&c, &ramp(1024)), ramp(1024).to_vec::<f32>().expect("f32"));
        let refused = c.update(Probe(Mode::FailInPlace), smallvec![w], &[Some(0)]).expect_err("the call's own error");
        assert_eq!((refused.error.kind(), refused.error.op()), (ErrorKind::Index, Some("probe")), "{async_level:?}");
        let w = refused.old.into_iter().flatten().next().expect("the old version");
        assert_eq!(value(&c, &w), old);
        c.sync().expect("it was reported");
        c.step_mark().expect("open");
        let two = put(&c, &ramp(9));
        let add = remat_ops::pointwise::Binary { f: remat_ops::pointwise::BinaryFn::Add };
        let refused = c.update(add, smallvec![w, two], &[Some(0)]).expect_err("1024 and 9 do not broadcast");
        let w = refused.old.into_iter().flatten().next().expect("the old version");
        let new = c.update(Probe(Mode::Increment), smallvec![w], &[Some(0)]).expect("fine").remove(0);
        assert_eq!(value(&c, &new)[0], old[0] + 1.0, "{async_level:?}: training goes on");
        assert_eq!(c.stats().expect("open").peak_bytes, 4096 + 64, "{async_level:?}: in place, without a copy");
        drop(new);
        c.verify().expect("consistent");
    }
}

#[test]
fn a_version_that_a_broken_kernel_tore_is_lost_and_not_passed_off_as_the_old_one() {
    for c in devices() {
        let w = put(&c, &ramp(64));
        c.commit(&w, Kind::Parameter).expect("open");
        let torn = c.update(Probe(Mode::TearInPlace), smallvec![w], &[Some(0)]).expect("queued").remove(0);
        let e = c.value(&torn).expect_err("nobody knows what the kernel wrote");
        assert_eq!((e.kind(), e.op()), (ErrorKind::Internal, Some("probe")), "{c:?}: {e}");
        c.sync().expect("it was reported");
        c.step_mark().expect("open");
        // With another handle on the input the update is not in place, and the old version stays.
        let w = put(&c, &ramp(64));
        let kept = w.clone();
        let new = c.update(Probe(Mode::TearInPlace), smallvec![w], &[Some(0)]).expect("queued").remove(0);
        assert_eq!(c.value(&new).expect_err("the failure is told").kind(), ErrorKind::Internal);
        assert_eq!((value(&c, &new), value(&c, &kept)), (value(&c, &kept), ramp(64).to_vec::<f32>().expect("f32")));
        c.sync().expect("and told once");
        drop((torn, kept, new));
        c.verify().expect("consistent");
        assert_eq!(c.stats().expect("open").storages, 0);
    }
}

#[test]
fn a_recomputation_that_fails_is_reported_once() {
    let c = cpu(recording());
    let x = put(&c, &ramp(64));
    let line = line!() + 1;
    let a = apply1(&c, Probe(Mode::Until(0)), [x.clone()]);
    let b = tanh(&c, &a);
    c.sync().expect("at first it runs");
    c.evict_all().expect("open");
    fail_from_now_on(0);
    let below = [exp(&c, &a), tanh(&c, &b)];
    let e = c.value(&b).expect_err("what it is made of is gone");
    assert_eq!((e.kind(), e.op()), (ErrorKind::Index, Some("probe")), "{e}");
    assert_eq!(e.call_site().expect("that of the recipe").line(), line);
    for h in below.iter().chain([&a, &b]) {
        assert_eq!(c.value(h).expect_err("it was told already").kind(), ErrorKind::Poisoned);
    }
    c.sync().expect("it was reported");
    assert_eq!(value(&c, &tanh(&c, &x)).len(), 64, "and the channel goes on");
    drop((a, b, below));
    c.verify().expect("consistent");
    assert_eq!(c.stats().expect("open").storages, 1);
}

#[test]
fn updates_are_held_back_from_a_failure_until_somebody_is_told_of_it() {
    for c in devices() {
        let (w, v) = (put(&c, &ramp(64)), put(&c, &ramp(32)));
        let old = value(&c, &v);
        let bad = apply1(&c, Probe(Mode::Fail), [w.clone()]);
        let w1 = c
            .update(super::ops::Probe(Mode::Increment), SmallVec::from_iter([bad.clone()]), &[Some(0)])
            .expect("queued")
            .remove(0);
        let v1 = c.update(Probe(Mode::Increment), smallvec![v], &[Some(0)]).expect("queued").remove(0);
        let e = c.value(&v1).expect_err("an update that was not made");
        assert_eq!(e.kind(), ErrorKind::Index, "{c:?}: {e}");
        assert!(e.message().contains("an update of step 1 was not made"), "{c:?}: {e}");
        assert_eq!(value(&c, &v1), old, "{c:?}: half a step is no step");
        assert_eq!(c.value(&w1).expect_err("it replaced a tensor that had failed itself").kind(), ErrorKind::Poisoned);
        c.check().expect("it was told");
        c.sync().expect("once");
        let v2 = c.update(Probe(Mode::Increment), smallvec![v1], &[Some(0)]).expect("queued").remove(0);
        assert_eq!(value(&c, &v2)[0], old[0] + 1.0);
    }
}

#[test]
fn an_update_that_the_budget_refuses_keeps_the_old_version() {
    let c = cpu(budget(4 * 4096));
    let w = c.put_as(&ramp(1024), Kind::Parameter).expect("open");
    let kept = w.clone();
    let staged = c.charge(2 * 4096, "loader").expect("fits");
    // The update is not in place, since `kept` lives. The output takes the last page, and no room is left for the
    // workspace.
    let new = c.update(Probe(Mode::Workspace), smallvec![w], &[Some(0)]).expect("queued").remove(0);
    let e = c.value(&new).expect_err("the budget is too small");
    assert_eq!(e.kind(), ErrorKind::Budget);
    assert_eq!(value(&c, &new), value(&c, &kept));
    drop(staged);
    let new = c.update(Probe(Mode::Workspace), smallvec![new], &[Some(0)]).expect("queued").remove(0);
    assert_eq!(value(&c, &new)[0], value(&c, &kept)[0] + 1.0, "with another budget it goes on");
    c.verify().expect("consistent");
}

#[test]
fn a_failure_that_was_handled_holds_nothing_back() {
    for c in devices() {
        let (x, v) = (put(&c, &ramp(64)), put(&c, &ramp(32)));
        let old = value(&c, &v);
        let bad = apply1(&c, Probe(Mode::Fail), [x]);
        assert_eq!(c.value(&bad).expect_err("it failed").kind(), ErrorKind::Index);
        let v1 = c.update(Probe(Mode::Increment), smallvec![v], &[Some(0)]).expect("queued").remove(0);
        assert_eq!(value(&c, &v1)[0], old[0] + 1.0, "{c:?}: nothing depends on what failed");
    }
}

#[test]
fn what_another_thread_has_failed_at_holds_nothing_back_and_is_told_to_that_thread_or_by_a_sync() {
    for is_told in [true, false] {
        // On the CPU alone: the failures of an accelerator have no thread.
        let c = cpu(recording());
        let (x, v) = (put(&c, &ramp(64)), put(&c, &ramp(32)));
        let old = value(&c, &v);
        let other = c.clone();
        let fails = move || {
            let bad = apply1(&other, Probe(Mode::Fail), [x]);
            other.stats().expect("it has run");
            (bad, is_told.then(|| other.check()))
        };
        let (bad, told) = std::thread::spawn(fails).join().expect("no panic");
        c.check().expect("not this thread's");
        let v1 = c.update(Probe(Mode::Increment), smallvec![v], &[Some(0)]).expect("queued").remove(0);
        assert_eq!(value(&c, &v1)[0], old[0] + 1.0, "told: {is_told}");
        match told {
            Some(told) => assert_eq!(told.expect_err("its own failure").kind(), ErrorKind::Index),
            None => assert_eq!(c.sync().expect_err("nobody was told").kind(), ErrorKind::Index),
        }
        c.sync().expect("told once");
        assert_eq!(c.value(&bad).expect_err("still failed").kind(), ErrorKind::Poisoned);
    }
}

#[test]
fn what_nobody_read_is_told_by_check_by_the_next_mark_or_by_close_and_keeps_no_budget_from_being_set() {
    type Tells = fn(&Channel) -> remat_types::Result<()>;
    let tells: [(&str, Tells); 4] =
        [("check", |c| c.check()), ("mark", |c| c.step_mark()), ("sync", |c| c.sync()), ("close", |c| c.close())];
    for (name, tell) in tells {
        let c = cpu(budget(1 << 16));
        drop(apply1(&c, Probe(Mode::Fail), [put(&c, &ramp(64))]));
        c.stats().expect("it has run");
        c.set_budget(Some(1 << 20)).expect("a handler of an error gives more");
        let e = tell(&c).expect_err(name);
        assert_eq!((e.kind(), e.op()), (ErrorKind::Index, Some("probe")), "{name}: {e}");
        if name != "close" {
            tell(&c).expect("it was told once");
            c.sync().expect("and to one alone");
            c.close().expect("nothing is left to tell");
        }
    }
}

#[test]
fn a_step_that_was_not_taken_is_told_with_its_number_at_the_next_mark() {
    let c = cpu(budget(1 << 16));
    let mut w = put(&c, &ramp(64));
    let mut taken = 2.0;
    for step in 1..=4u64 {
        if step == 3 {
            drop(apply1(&c, Probe(Mode::Fail), [w.clone()]));
        }
        w = c.group(&[], || Ok(c.update(Probe(Mode::Increment), smallvec![w], &[Some(0)])?.remove(0))).expect("queued");
        // The mark of a step waits for the step if a failure is known by then. The mark of the next step always waits.
        let told = c.step_mark();
        match step {
            3 if told.is_ok() => continue,
            // Step 4 begins with the old version. Before the report it would build on a failure.
            3 => taken = 3.0,
            4 if told.is_ok() => continue,
            4 => {}
            _ => {
                told.expect("nothing failed");
                continue;
            }
        }
        let e = told.expect_err("step 3 failed");
        assert!(e.message().contains("step 3 was not taken"), "{e}");
    }
    c.sync().expect("it was told by then");
    assert_eq!(value(&c, &w)[0], value(&c, &put(&c, &ramp(64)))[0] + taken);
}

#[test]
fn a_mark_tells_of_a_failure_only_when_the_updates_of_its_step_were_held_back() {
    let c = cpu(budget(1 << 16));
    let (w, other) = (put(&c, &ramp(64)), put(&c, &ramp(64)));
    drop(apply1(&c, Probe(Mode::Fail), [w.clone()]));
    c.wait(&other).expect("queued before"); // the failure is known by now
    let hold = c.pause().expect("open");
    let w = c.group(&[], || Ok(c.update(Probe(Mode::Increment), smallvec![w], &[Some(0)])?.remove(0))).expect("queued");
    let go_on = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(hold);
    });
    let e = c.step_mark().expect_err("something failed");
    go_on.join().expect("ends");
    assert!(e.message().contains("step 1 was not taken"), "{e}");
    assert_eq!(value(&c, &w), value(&c, &other), "nothing was updated");
    c.sync().expect("it was told");
}

#[test]
fn a_group_happens_as_a_whole_or_not_at_all() {
    for (c, was_told) in devices().into_iter().flat_map(|c| [(c.clone(), false), (c, true)]) {
        let (u, v, bad) = (put(&c, &ramp(64)), put(&c, &ramp(32)), put(&c, &ramp(16)));
        let (old_u, old_v) = (value(&c, &u), value(&c, &v));
        let bad = apply1(&c, Probe(Mode::Fail), [bad]);
        if was_told {
            // a failed input holds the update back, although no call needs to report the failure any more
            c.value(&bad).expect_err("it failed");
        }
        let failed = c.group(&[(bad.id(), Kind::Gradient)], || {
            let update = |h| -> remat_types::Result<_> {
                Ok(c.update(Probe(Mode::Increment), smallvec![h], &[Some(0)])?.remove(0))
            };
            Ok((update(u)?, update(v)?))
        });
        let (u, v) = failed.expect("queued");
        let told = [&u, &v].into_iter().filter(|h| c.value(h).is_err()).count();
        assert_eq!(told, 1, "{c:?} {was_told}: once");
        assert_eq!((value(&c, &u), value(&c, &v)), (old_u.clone(), old_v.clone()), "{c:?}");
        // Updates of a function that fails fall back as well, and only its caller is told.
        let mut kept = None;
        let given_up = c.group(&[], || {
            kept = Some(c.update(Probe(Mode::Increment), smallvec![u], &[Some(0)])?.remove(0));
            Err::<(), _>(remat_types::Error::new(ErrorKind::Value, "given up"))
        });
        assert_eq!(given_up.expect_err("its own error").kind(), ErrorKind::Value);
        assert_eq!(value(&c, &kept.expect("made")), old_u, "{c:?}");
        c.sync().expect("nothing else is told");
        drop((v, bad));
        c.verify().expect("consistent");
    }
}

#[test]
fn what_reads_the_result_of_a_failed_step_is_told_before_the_program_goes_on_with_the_old_version() {
    for c in devices() {
        let (w, bad) = (put(&c, &ramp(64)), put(&c, &ramp(16)));
        let old = value(&c, &w);
        let bad = apply1(&c, Probe(Mode::Fail), [bad]);
        let step = |w: Handle| -> Handle {
            let update = || Ok(c.update(Probe(Mode::Increment), smallvec![w], &[Some(0)])?.remove(0));
            c.group(&[(bad.id(), Kind::Gradient)], update).expect("queued")
        };
        let w = step(w);
        // An op, a view of its result, and a second group, all before the failure is reported.
        let computed = exp(&c, &w);
        let seen = apply1(&c, remat_ops::shape::Reshape { shape: [8, 8].into() }, [w.clone()]);
        let w = step(w);
        let e = c.value(&computed).expect_err("the step before failed");
        assert_eq!(e.kind(), ErrorKind::Index, "{c:?}: {e}");
        assert!(e.message().contains("step 1 was not taken"), "{e}");
        assert_eq!(c.value(&seen).expect_err("made of what is not there").kind(), ErrorKind::Poisoned);
        assert_eq!(value(&c, &w), old, "{c:?}: the program goes on with the old version");
        assert_eq!(value(&c, &exp(&c, &w)).len(), 64);
        c.sync().expect("it was told once");
        drop((w, bad, computed, seen));
        c.verify().expect("consistent");
        assert_eq!(c.stats().expect("open").storages, 0);
    }
}

#[test]
fn what_a_step_updated_before_it_failed_late_is_told_as_part_of_it() {
    for c in devices() {
        let (u, v) = (put(&c, &ramp(64)), put(&c, &ramp(32)));
        let made = c.group(&[], || {
            let u = c.update(Probe(Mode::Increment), smallvec![u], &[Some(0)])?.remove(0);
            let v = c.update(Probe(Mode::FailInPlace), smallvec![v], &[Some(0)])?.remove(0);
            Ok((u, v))
        });
        let (u, v) = made.expect("queued");
        let computed = exp(&c, &u);
        let e = c.value(&computed).expect_err("the step failed in part");
        assert_eq!(e.kind(), ErrorKind::Index, "{c:?}: {e}");
        assert!(e.message().contains("in part"), "{e}");
        assert_eq!((value(&c, &u).len(), value(&c, &v).len()), (64, 32), "{c:?}: and after that it can be read");
        c.sync().expect("it was told once");
    }
}

#[test]
fn a_step_that_failed_on_a_device_of_its_own_pace_is_undone_however_late_the_host_hears_of_it() {
    for (streams, seed) in [(1, 0), (2, 1), (2, 2), (4, 3)] {
        let emulated = EmulatedOptions { streams, seed, ..EmulatedOptions::default() };
        let log = emulated.log.clone();
        let d = Device::with_backend(emulated.open().expect("opens"), DeviceOptions::default()).expect("opens");
        let c = d.channel();
        let (mut u, mut v) = (put(&c, &ramp(64)), put(&c, &ramp(32)));
        let old = [value(&c, &u), value(&c, &v)];
        let mut held = None;
        for step in 1..=8 {
            let x = exp(&c, &put(&c, &ramp(16)));
            if step == 4 {
                // no updated value depends on it
                drop(apply1(&c, Probe(Mode::Fail), [x.clone()]));
                // another handle on a version keeps it from being updated in place
                held = Some(v.clone());
            }
            (u, v) = c
                .group(&[(x.id(), Kind::Gradient)], || {
                    let update = |h| -> remat_types::Result<_> {
                        Ok(c.update(Probe(Mode::Increment), smallvec![h], &[Some(0)])?.remove(0))
                    };
                    Ok((update(u)?, update(v)?))
                })
                .expect("queued");
            // by now the host may know of the failure or not
            if let Err(e) = c.step_mark() {
                assert!(e.message().contains("step 4 was not taken"), "{e}");
            }
        }
        let told = [&u, &v].into_iter().filter_map(|h| c.value(h).err()).count();
        assert!(told <= 1, "once at most: {told}");
        let steps = value(&c, &u)[0] - old[0][0];
        for (h, old) in [&u, &v].into_iter().zip(&old) {
            let want: Vec<f32> = old.iter().map(|x| x + steps).collect();
            assert_eq!(value(&c, h), want, "streams {streams}, seed {seed}: both or none of each step");
        }
        assert!((3.0..8.0).contains(&steps), "streams {streams}, seed {seed}: {steps}");
        assert_eq!(value(&c, &held.expect("the third"))[0], old[1][0] + 3.0);
        assert_eq!(log.races(), Vec::<String>::new());
        c.verify().expect("consistent");
    }
}

#[test]
fn updates_and_their_steps_make_the_host_wait_for_nothing() {
    let emulated = EmulatedOptions { streams: 2, max_delay_us: 200, ..EmulatedOptions::default() };
    let options = DeviceOptions { budget_bytes: Some(1 << 16), ..DeviceOptions::default() };
    let d = Device::with_backend(emulated.open().expect("opens"), options).expect("opens");
    let c = d.channel();
    let mut w = put(&c, &ramp(64));
    for _ in 0..20 {
        let x = exp(&c, &put(&c, &ramp(64)));
        w = c
            .group(&[(x.id(), Kind::Gradient)], || {
                Ok(c.update(Probe(Mode::Increment), smallvec![w], &[Some(0)])?.remove(0))
            })
            .expect("queued");
        c.step_mark().expect("nothing failed");
    }
    assert_eq!(value(&c, &w)[0], value(&c, &put(&c, &ramp(64)))[0] + 20.0);
    assert_eq!(c.stats().expect("open").host_waits, Some(0));
}
