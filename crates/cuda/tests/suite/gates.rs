//! Failures on a device: what depends on them, who is told, and which states stay.

use remat_device::{Event, Progress};
use remat_types::ErrorKind;

use crate::stories::{BAD, GOOD, N, ONES, ROOM, STREAM, Story, ZEROS, mark, on_both};

#[test]
fn an_error_is_told_once_and_what_depends_on_it_is_poisoned() {
    on_both(|s| {
        let a = s.take(ONES, BAD, 4, &[]);
        let b = s.add(4, ONES, 5, &[a]);
        let apart = s.add(ONES, ONES, 6, &[]);
        s.passes(apart);
        s.fails(b, ErrorKind::Index);
        s.fails(a, ErrorKind::Poisoned);
        s.fails(b, ErrorKind::Poisoned);
        // known by now
        let late = s.add(5, ONES, 7, &[b]);
        s.fails(late, ErrorKind::Poisoned);
        assert_eq!(s.device.poll(late), Progress::Failed, "{}", s.name);
        assert_eq!(s.device.poll(apart), Progress::Reached, "{}", s.name);
        s.is_all_told();
        s.holds(6, [2; N]);
    });
}

#[test]
fn a_failure_that_is_seen_by_a_poll_still_has_to_be_told() {
    on_both(|s| {
        let a = s.divide(ONES, ZEROS, 4, &[]);
        s.device.wait_idle();
        assert_eq!(s.device.poll(a), Progress::Failed, "{}", s.name);
        let all = s.device.synchronize_all().err();
        s.is(all, Some(ErrorKind::Value));
        s.is_all_told();
    });
}

#[test]
fn what_a_kernel_makes_of_what_a_failed_one_left_is_no_failure_of_its_own() {
    on_both(|s| {
        // whatever is in the place of the first one's result are no indices
        s.put(4, [1000; N]);
        let a = s.take(ONES, BAD, 4, &[]);
        let b = s.take(ONES, 4, 5, &[a]);
        let c = s.divide(ONES, 5, 6, &[b]);
        s.fails(c, ErrorKind::Index);
        s.fails(b, ErrorKind::Poisoned);
        s.is_all_told();
    });
}

#[test]
fn a_state_stays_where_what_would_replace_it_failed() {
    on_both(|s| {
        let a = s.take(ONES, BAD, 4, &[]);
        // no gate: the launch takes the place of a value that is made of what failed
        let b = s.add(5, 4, 5, &[a]);
        let own = s.divide(6, ZEROS, 6, &[]);
        let fine = s.add(7, ONES, 7, &[]);
        s.holds(5, [5; N]);
        s.holds(6, [6; N]);
        s.holds(7, [8; N]);
        s.passes(fine);
        s.fails(b, ErrorKind::Index);
        s.fails(own, ErrorKind::Value);
        s.is_all_told();
    });
}

#[test]
fn updates_behind_a_gate_are_made_together_or_not_at_all() {
    for is_bad in [false, true] {
        on_both(|s| {
            let start = mark(s);
            let apart = s.take(ONES, if is_bad { BAD } else { GOOD }, 4, &[]);
            let gate = s.gate(&[], &start);
            let x = s.add(5, ONES, 5, &[gate]);
            let y = s.add(6, ONES, 6, &[gate]);
            let z = s.add(7, ONES, 8, &[gate]);
            s.device.restore(STREAM, z, 7 * ROOM, 8 * ROOM, 8 * N).expect("is queued");
            let after = s.add(5, 6, 9, &[x, y]);
            s.device.wait_idle();
            let is_reached = if is_bad { Progress::Failed } else { Progress::Reached };
            for event in [apart, gate, x, y, z, after] {
                assert_eq!(s.device.poll(event), is_reached, "{}", s.name);
            }
            let values = if is_bad { [5, 6, 7] } else { [6, 7, 8] };
            for (tensor, value) in [5, 6, 8].into_iter().zip(values) {
                s.holds(tensor, [value; N]);
            }
            let told = s.device.failed_after(&start);
            s.is(told, is_bad.then_some(ErrorKind::Index));
            s.is_all_told();
        });
    }
}

#[test]
fn a_value_is_restored_if_its_work_failed_whether_that_is_known_or_not() {
    for is_known in [false, true] {
        on_both(|s| {
            let a = s.take(ONES, BAD, 4, &[]);
            let b = s.add(ONES, ONES, 5, &[]);
            if is_known {
                s.device.wait_idle();
                s.device.poll(b);
            }
            // bytes that are no whole number of words
            s.device.restore(STREAM, a, 6 * ROOM, 7 * ROOM, 8 * N - 3).expect("is queued");
            s.device.restore(STREAM, b, 6 * ROOM, 8 * ROOM, 8 * N).expect("is queued");
            s.device.restore(STREAM, a, 6 * ROOM, 9 * ROOM + 1, 8).expect("is queued");
            s.holds(7, [6; N]);
            s.holds(8, [8; N]);
            s.holds(9, [9 | 6 << 8, 9 & !255, 9, 9].map(|v: i64| v));
            s.fails(a, ErrorKind::Index);
            s.passes(b);
        });
    }
}

#[test]
fn failures_before_a_mark_do_not_count_but_for_work_that_inherits_them() {
    on_both(|s| {
        let before = s.take(ONES, BAD, 4, &[]);
        let start = mark(s);
        let fine = s.add(ONES, ONES, 5, &[]);
        let gate = s.gate(&[fine], &start);
        let x = s.add(6, ONES, 6, &[gate]);
        s.passes(x);
        let none = s.device.failed_after(&start);
        s.is(none, None);
        // work of this step needs what failed in the step before
        let heir = s.add(4, ONES, 7, &[before]);
        let gate = s.gate(&[], &start);
        let y = s.add(8, ONES, 8, &[gate]);
        s.holds(8, [8; N]);
        assert_eq!(s.device.poll(y), Progress::Failed, "{}", s.name);
        let told = s.device.failed_after(&start);
        s.is(told, Some(ErrorKind::Index));
        s.fails(heir, ErrorKind::Poisoned);
        s.is_all_told();
    });
}

#[test]
fn work_of_a_step_that_inherits_a_failure_that_nobody_knows_closes_its_gate() {
    on_both(|s| {
        let before = s.take(ONES, BAD, 4, &[]);
        let start = mark(s);
        s.add(4, ONES, 7, &[before]);
        let gate = s.gate(&[], &start);
        let x = s.add(8, ONES, 8, &[gate]);
        s.holds(8, [8; N]);
        s.fails(x, ErrorKind::Index);
        s.is_all_told();
    });
}

#[test]
fn a_failure_that_was_told_closes_no_later_gate() {
    on_both(|s| {
        let a = s.take(ONES, BAD, 4, &[]);
        let first = s.gate(&[a], &[]);
        let x = s.add(5, ONES, 5, &[first]);
        // the host knows of the first event alone
        s.fails(a, ErrorKind::Index);
        let second = s.gate(&[], &[]);
        let y = s.add(6, ONES, 6, &[second]);
        let third = s.gate(&[x], &[]);
        let z = s.add(7, ONES, 7, &[third]);
        s.holds(5, [5; N]);
        s.holds(6, [7; N]);
        s.holds(7, [7; N]);
        s.passes(y);
        for event in [first, x, third, z] {
            s.fails(event, ErrorKind::Poisoned);
        }
        s.is_all_told();
    });
}

#[test]
fn a_gate_looks_at_more_roots_than_one_kernel_does() {
    for bad in [None, Some(0), Some(47), Some(48), Some(120)] {
        on_both(|s| {
            let takes: Vec<Event> =
                (0..121).map(|k| s.take(ONES, if bad == Some(k) { BAD } else { GOOD }, 10 + k % 50, &[])).collect();
            // a mark behind all of them: the gate has their events alone
            let start = mark(s);
            let gate = s.gate(&takes, &start);
            let x = s.add(5, ONES, 5, &[gate]);
            // and a launch that takes a place, without a gate
            let y = s.add(6, ONES, 6, &takes);
            // a value that has nothing left to restore unless it failed
            let z = s.add(7, ONES, 8, &takes);
            s.device.restore(STREAM, z, 7 * ROOM, 8 * ROOM, 8 * N).expect("is queued");
            let is_bad = bad.is_some();
            s.holds(5, [if is_bad { 5 } else { 6 }; N]);
            s.holds(6, [if is_bad { 6 } else { 7 }; N]);
            s.holds(8, [if is_bad { 7 } else { 8 }; N]);
            for (event, kind) in [(y, ErrorKind::Index), (x, ErrorKind::Poisoned), (z, ErrorKind::Poisoned)] {
                if is_bad { s.fails(event, kind) } else { s.passes(event) }
            }
            s.is_all_told();
        });
    }
}

/// The most launches and gates whose outcome is open.
const ROOM_FOR_WORDS: usize = 3072;

/// Launches that take two words each, one for a gate, until of so many words few are left.
fn fill(s: &mut Story, words: usize) {
    let mut last = s.take(ONES, GOOD, 20, &[]);
    for _ in 0..(words - 1) / 2 {
        last = s.divide(20, ONES, 20, &[last]);
    }
    if words.is_multiple_of(2) {
        s.take(ONES, GOOD, 21, &[]);
    }
}

#[test]
fn words_that_a_launch_must_see_are_not_given_to_others() {
    // the ring is full where the gate takes its words, where a launch behind it does, or behind both
    for left in 0..5 {
        for is_bad in [false, true] {
            on_both(|s| {
                let start = mark(s);
                let a = s.take(ONES, if is_bad { BAD } else { GOOD }, 4, &[]);
                let gate = s.gate(&[a], &start);
                fill(s, ROOM_FOR_WORDS - 2 - left);
                let x = s.divide(5, ONES, 6, &[gate]);
                let y = s.add(7, ONES, 7, &[gate]);
                let z = s.add(8, ONES, 8, &[a]);
                let w = s.divide(9, ONES, 9, &[a]);
                let other = s.gate(&[], &start);
                let v = s.add(10, ONES, 10, &[other]);
                s.holds(7, [if is_bad { 7 } else { 8 }; N]);
                s.holds(8, [if is_bad { 8 } else { 9 }; N]);
                s.holds(10, [if is_bad { 10 } else { 11 }; N]);
                for event in [gate, x, y, z, w, other, v] {
                    let want = if is_bad { Progress::Failed } else { Progress::Reached };
                    assert_eq!(s.device.poll(event), want, "{} with room for {left}", s.name);
                }
                let told = s.device.failed_after(&start);
                s.is(told, is_bad.then_some(ErrorKind::Index));
                s.is_all_told();
            });
        }
    }
}

#[test]
fn failures_are_found_after_the_ring_went_around() {
    on_both(|s| {
        for round in 0..9 {
            for _ in 0..1000 {
                s.take(ONES, GOOD, 20, &[]);
            }
            let start = mark(s);
            let a = s.take(ONES, BAD, 4, &[]);
            let gate = s.gate(&[], &start);
            let x = s.add(5, ONES, 5, &[gate]);
            s.holds(5, [5 + round; N]);
            let told = s.device.failed_after(&start);
            s.is(told, Some(ErrorKind::Index));
            s.fails(x, ErrorKind::Poisoned);
            s.fails(a, ErrorKind::Poisoned);
            let gate = s.gate(&[], &start);
            let y = s.add(5, ONES, 5, &[gate]);
            s.passes(y);
        }
        s.is_all_told();
    });
}
