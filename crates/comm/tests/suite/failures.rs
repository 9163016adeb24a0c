//! A failure on one rank is soon an error on all of them.

use std::time::{Duration, Instant};

use remat_comm::{Call, Communicator, threads};
use remat_types::{DType, Error, ErrorKind, Result, Shape};

const SHORT: Duration = Duration::from_millis(300);

fn gather(c: &Communicator, call: &Call) -> Result<()> {
    c.all_gather(call, &[c.rank() as u8], &mut vec![0; c.size()])
}

/// The error of `f` on each of `size` ranks.
fn errors(size: usize, f: impl Fn(&Communicator) -> Result<()> + Sync) -> Vec<Option<Error>> {
    threads::run_within(size, SHORT, |c| Ok(f(&c).err())).expect("errors are values here")
}

#[test]
fn a_rank_that_cannot_take_part_tells_the_others_why_and_goes_on() {
    let call = Call::new("all_gather", 0, DType::U8, &Shape::from([1]));
    let seen = errors(3, |c| {
        let first = match c.rank() {
            1 => c.fail(&call, &Error::new(ErrorKind::Budget, "one byte too many")),
            _ => gather(c, &call),
        };
        // the next call is whole
        gather(c, &call)?;
        first
    });
    assert!(seen[1].is_none());
    for rank in [0, 2] {
        let e = seen[rank].as_ref().expect("told");
        assert_eq!(e.kind(), ErrorKind::Peer);
        for part in ["rank 1", "all_gather", "u8", "one byte too many"] {
            assert!(e.message().contains(part), "{e} without {part}");
        }
    }
}

#[test]
fn of_several_failures_the_first_ranks_is_told() {
    let call = Call::named("step");
    let seen = errors(5, |c| match c.rank() {
        r @ (1 | 2) => c.agree(&call, Err(Error::new(ErrorKind::Value, format!("mine is {r}")))),
        _ => c.agree(&call, Ok(())),
    });
    let text = |r: usize| seen[r].as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(text(0).contains("rank 1") && text(0).contains("mine is 1") && text(3).contains("mine is 1"), "{seen:?}");
    assert!(text(1) == "mine is 1" && text(2) == "mine is 2", "{seen:?}");
}

#[test]
fn other_calls_are_named_on_both_sides() {
    let of = |r| Call::new("all_gather", 0, DType::U8, &Shape::from([r + 1]));
    let seen = errors(2, |c| gather(c, &of(c.rank())));
    for (rank, other) in [(0, 1), (1, 0)] {
        let e = seen[rank].as_ref().expect("they differ");
        assert_eq!(e.kind(), ErrorKind::Peer);
        assert!(e.message().contains(&format!("rank {rank} calls {}", of(rank))), "{e}");
        assert!(e.message().contains(&format!("rank {other} calls {}", of(other))), "{e}");
    }
}

#[test]
fn messages_that_do_not_fit_are_named_on_both_sides() {
    let of = |r: usize| Call::named(format!("message {r}"));
    let seen = errors(2, |c| match c.rank() {
        0 => c.send(&of(0), 1, &[1, 2]),
        _ => c.receive(&of(1), 0, &mut [0; 2]),
    });
    for e in seen.iter().map(|e| e.as_ref().expect("they differ")) {
        assert!(
            e.kind() == ErrorKind::Peer && ["message 0", "message 1"].iter().all(|m| e.message().contains(m)),
            "{e}"
        );
    }
    let why = Error::new(ErrorKind::Budget, "no room");
    for failing in [0, 1] {
        let seen = errors(2, |c| match c.rank() {
            r if r == failing => c.fail_message(&of(0), 1 - r, &why),
            0 => c.send(&of(0), 1, &[7]),
            _ => c.receive(&of(0), 0, &mut [0]),
        });
        assert!(seen[failing].is_none());
        let e = seen[1 - failing].as_ref().expect("told");
        assert!(e.message().contains("no room") && e.message().contains(&format!("rank {failing}")), "{e}");
    }
}

#[test]
fn two_ranks_that_both_send_or_both_receive_are_told_so_at_once() {
    let start = Instant::now();
    let call = Call::named("message");
    let run = |f: fn(&Communicator, &Call) -> Result<()>| {
        let seen = threads::run_within(2, Duration::from_secs(600), |c| {
            let met = f(&c, &call).err();
            // what follows is whole
            c.barrier()?;
            match c.rank() {
                0 => c.send(&call, 1, &[7])?,
                _ => c.receive(&call, 0, &mut [0])?,
            }
            Ok(met)
        });
        seen.expect("errors are values here")
    };
    let all = [
        (run(|c, call| c.send(call, 1 - c.rank(), &[1])), "sends to", "must receive first"),
        (run(|c, call| c.receive(call, 1 - c.rank(), &mut [0])), "receives from", "must send first"),
    ];
    for (seen, does, instead) in all {
        for (rank, e) in seen.iter().enumerate() {
            let e = e.as_ref().expect("nothing has arrived");
            let text = format!("rank {rank} {does} rank {}", 1 - rank);
            assert!(e.kind() == ErrorKind::Peer && e.message().contains(&text) && e.message().contains(instead), "{e}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_rank_that_ends_fails_or_panics_ends_the_others_at_once() {
    let start = Instant::now();
    let long = Duration::from_secs(600);
    let run = |f: fn() -> Result<()>| {
        threads::run_within(3, long, |c| match c.rank() {
            2 => f(),
            _ => c.barrier().and_then(|()| c.barrier()),
        })
    };
    let ended = run(|| Ok(())).expect_err("two wait for one that is no more");
    assert!(ended.kind() == ErrorKind::Peer && ended.message().contains("rank 2 has ended"), "{ended}");
    let failed = run(|| Err(Error::new(ErrorKind::Format, "no such file"))).expect_err("it failed");
    assert!(failed.kind() == ErrorKind::Format && failed.message().contains("rank 2: no such file"), "{failed}");
    let panicked = run(|| panic!("at the disco")).expect_err("it panicked");
    assert!(panicked.kind() == ErrorKind::Internal && panicked.message().contains("at the disco"), "{panicked}");
    assert!(start.elapsed() < long / 10);
}

#[test]
fn a_rank_whose_program_has_ended_says_so_to_those_that_go_on() {
    let seen = errors(3, |c| {
        let early = c.rank() == 1;
        let told = if early { Ok(()) } else { c.barrier() };
        if !early {
            // longer than the limit: nobody waits for anybody
            std::thread::sleep(SHORT * 2);
        }
        c.end()?;
        told
    });
    assert!(seen[1].is_none(), "{seen:?}");
    for rank in [0, 2] {
        let e = seen[rank].as_ref().expect("rank 1 does not come");
        let text = "rank 1 calls nothing any more, as its program has ended";
        assert!(e.kind() == ErrorKind::Peer && e.message().contains(text), "{e}");
    }
}

#[test]
fn a_rank_that_hangs_is_named_when_the_limit_is_over() {
    let seen = errors(3, |c| {
        if c.rank() == 1 {
            std::thread::sleep(SHORT * 3);
        }
        c.barrier()
    });
    for e in seen.iter().map(|e| e.as_ref().expect("nobody goes on without it")) {
        assert!(e.kind() == ErrorKind::Peer && e.message().contains("rank 1 has not come"), "{e}");
    }
    // in a message between two of them as well
    let seen = errors(2, |c| match c.rank() {
        0 => c.receive(&Call::named("never"), 1, &mut [0]),
        _ => {
            std::thread::sleep(SHORT * 3);
            Ok(())
        }
    });
    let e = seen[0].as_ref().expect("nothing came");
    assert!(e.message().contains("rank 1") && e.message().contains("never"), "{e}");
}

#[test]
fn ranks_that_do_not_exist_are_errors_without_a_call() {
    let seen = errors(2, |c| {
        let call = Call::named("x");
        for e in [
            c.broadcast(&call, 2, &mut []),
            c.gather(&call, 9, &[], &mut []),
            c.scatter(&call, 2, &[], &mut []),
            c.send(&call, c.rank(), &[]),
            c.receive(&call, 5, &mut []),
        ] {
            assert_eq!(e.expect_err("no such rank").kind(), ErrorKind::Value);
        }
        c.barrier()
    });
    assert!(seen.iter().all(Option::is_none), "{seen:?}");
    assert_eq!(threads::run(0, |_| Ok(())).expect_err("none").kind(), ErrorKind::Value);
}

#[test]
fn ranks_that_left_out_calls_meet_again() {
    let seen = errors(3, |c| {
        let call = |i: usize| Call::named(format!("call {i}"));
        // rank 0 makes three calls before it hears of an error, rank 1 one, and rank 2 says that it failed in two
        let failed = match c.rank() {
            0 => (0..3).filter(|i| gather(c, &call(*i)).is_err()).count(),
            1 => usize::from(gather(c, &call(0)).is_err()),
            _ => {
                let why = Error::new(ErrorKind::Budget, "no room");
                (0..2).for_each(|i| c.fail(&call(i), &why).expect("the others come"));
                0
            }
        };
        assert_eq!(failed, [3, 1, 0][c.rank()]);
        c.meet_again()?;
        gather(c, &call(9))
    });
    assert!(seen.iter().all(Option::is_none), "{seen:?}");
    let gone = threads::run_within(2, SHORT, |c| if c.rank() == 0 { c.meet_again() } else { Ok(()) });
    assert_eq!(gone.expect_err("one has ended").kind(), ErrorKind::Peer);
}
