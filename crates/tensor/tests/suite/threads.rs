//! Tensors go between threads and are used by several at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use remat_runtime::DeviceOptions;
use remat_tensor::{Tensor, no_grad};

use crate::support::{assert_close, cpu, grad_of, leaf, plain, tensor, values, wave};

const THREADS: usize = 4;
const ROUNDS: usize = 25;

#[test]
fn tensors_may_be_sent_and_shared() {
    fn may<T: Send + Sync + 'static>() {}
    may::<Tensor>();
}

#[test]
fn passes_of_several_threads_accumulate_into_one_leaf() {
    for options in [DeviceOptions::default(), DeviceOptions::with_budget(64 << 10)] {
        let d = cpu(options);
        let x = leaf(&d, &wave(256));
        let calls = Arc::new(AtomicUsize::new(0));
        let count = calls.clone();
        x.on_grad(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .expect("a leaf");
        std::thread::scope(|s| {
            for t in 0..THREADS {
                let x = &x;
                s.spawn(move || {
                    for _ in 0..ROUNDS {
                        // a whole number, so that the sum does not depend on the order of the threads
                        let y = x.mul((t + 1) as f64).and_then(|y| y.sum()).expect("fits");
                        y.backward().expect("differentiable");
                    }
                });
            }
        });
        assert_eq!(calls.load(Ordering::Relaxed), THREADS * ROUNDS);
        assert_eq!(grad_of(&x), vec![(ROUNDS * (1 + 2 + 3 + 4)) as f64; 256], "no addition is lost");
    }
}

#[test]
fn several_threads_read_and_use_one_result() {
    let d = cpu(DeviceOptions::with_budget(48 << 10));
    let x = tensor(&d, &wave(1024), [1024]);
    let y = x.exp().and_then(|e| e.sin()).expect("a float");
    let want = values(&y);
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (y, want) = (&y, &want);
            s.spawn(move || {
                for _ in 0..ROUNDS {
                    assert_eq!(&values(y), want);
                    let z = y.mul(t as f64).expect("fits");
                    y.drop_value().expect("open");
                    assert_close(&values(&z)[..4], &want[..4].iter().map(|v| v * t as f64).collect::<Vec<_>>());
                }
            });
        }
    });
}

#[test]
fn one_graph_can_be_walked_by_several_threads() {
    let d = plain();
    let x = leaf(&d, &[2.0]);
    let y = x.square().and_then(|s| s.mul(&x)).expect("fits");
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| y.backward_with(None, true).expect("the graph is kept"));
        }
    });
    assert_close(&grad_of(&x), &[12.0 * THREADS as f64]);
    // of several passes that free the graph one gets through, and the others say that it is gone
    let done: usize = std::thread::scope(|s| {
        let all: Vec<_> = (0..THREADS).map(|_| s.spawn(|| usize::from(y.backward().is_ok()))).collect();
        all.into_iter().map(|t| t.join().expect("no panic")).sum()
    });
    assert_eq!(done, 1);
}

#[test]
fn threads_record_for_themselves() {
    let d = plain();
    let x = leaf(&d, &[2.0]);
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|s| {
        s.spawn(|| {
            let _quiet = no_grad();
            barrier.wait();
            assert!(!x.exp().expect("a float").is_tracked());
            barrier.wait();
        });
        s.spawn(|| {
            barrier.wait();
            assert!(x.exp().expect("a float").is_tracked());
            barrier.wait();
        });
    });
}
