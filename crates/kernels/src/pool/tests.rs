use super::*;
use std::sync::atomic::AtomicU32;

#[test]
fn every_part_runs_once_for_any_thread_count() {
    for threads in 1..=4 {
        let pool = Pool::new(threads);
        for parts in [0, 1, 2, 3, 7, 64, 1000] {
            let hits: Vec<AtomicU32> = (0..parts).map(|_| AtomicU32::new(0)).collect();
            pool.run(parts, &|i| {
                hits[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1), "{threads} threads, {parts} parts");
        }
    }
}

#[test]
fn many_small_jobs_with_pauses_lose_no_part() {
    let pool = Pool::new(3);
    let sum = AtomicUsize::new(0);
    for round in 0..2000 {
        pool.run(5, &|i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        if round % 400 == 0 {
            // long enough for the workers to fall asleep
            std::thread::sleep(SPIN * 4);
        }
    }
    assert_eq!(sum.load(Ordering::Relaxed), 2000 * 10);
}

#[test]
fn nested_run_is_inline() {
    let pool = Pool::new(2);
    let sum = AtomicUsize::new(0);
    pool.run(4, &|_| {
        let me = std::thread::current().id();
        pool.run(4, &|_| {
            assert_eq!(std::thread::current().id(), me);
            sum.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(sum.load(Ordering::Relaxed), 16);
}

#[test]
fn panic_reaches_the_caller_and_the_pool_survives() {
    for threads in [1, 2, 3] {
        let pool = Pool::new(threads);
        for bad in [0, 3, 49] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(50, &|i| {
                    if i == bad {
                        // resume_unwind does not print, so the test's output stays clean
                        resume_unwind(Box::new(format!("part {i}")));
                    }
                    std::thread::sleep(Duration::from_micros(20));
                });
            }));
            let payload = caught.expect_err("the panic is carried on");
            assert_eq!(payload.downcast_ref::<String>(), Some(&format!("part {bad}")));
            let count = AtomicUsize::new(0);
            pool.run(10, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 10);
        }
    }
}

#[test]
fn concurrent_callers_take_turns() {
    let pool = Pool::new(2);
    let total = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(8, &|_| {
                        total.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 3 * 200 * 8);
}

#[test]
fn chunks_cover_the_slices() {
    let pool = Pool::new(2);
    let mut a = vec![0usize; 103];
    pool.chunks_mut(&mut a, 10, |i, chunk| chunk.fill(i));
    assert!(a.iter().enumerate().all(|(j, &v)| v == j / 10));
    let mut b = vec![0usize; 11];
    pool.chunks2_mut(&mut a, 10, &mut b, 1, |i, x, y| y[0] = i + x.len());
    assert_eq!(b, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 13]);
}

#[test]
fn lanes_are_never_shared() {
    let pool = Pool::new(3);
    let mut ws = vec![0u32; 2 * 8 + 3];
    let done = AtomicUsize::new(0);
    pool.with_slots(200, &mut ws, 8, |task, slot| {
        slot.fill(task as u32);
        std::thread::yield_now();
        assert!(slot.iter().all(|&v| v == task as u32));
        done.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(done.load(Ordering::Relaxed), 200);
}

#[test]
fn part_ranges_cover_everything() {
    for n in [0, 1, 5, 16, 97] {
        for parts in [1, 2, 3, 8] {
            let mut end = 0;
            for i in 0..parts {
                let range = part_range(n, parts, i);
                assert_eq!(range.start, end);
                end = range.end;
            }
            assert_eq!(end, n);
        }
    }
}

#[test]
fn pools_that_end_right_after_a_job_do_end() {
    for _ in 0..3000 {
        let (pool, ran) = (Pool::new(2), AtomicUsize::new(0));
        pool.run(2, &|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        drop(pool);
        assert_eq!(ran.into_inner(), 2);
    }
}
