//! Random numbers within loops and choices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remat_runtime::{Device, tracing};
use remat_tensor::{Collect, ScanOptions, Tensor, call, compile, cond, fori_loop, scan};
use remat_types::{DType, Result};

use crate::support::{grad_of, plain, tensor, values, wave};

/// Keys `(7, 0), (7, 1), ..`, as modules draw them.
#[derive(Clone, Default)]
struct Keys(Arc<AtomicU64>);

impl Keys {
    fn next(&self, d: &Device) -> Result<Tensor> {
        let own = self.0.clone();
        let next = move |to: &mut [u8]| {
            to[..8].copy_from_slice(&7u64.to_ne_bytes());
            to[8..].copy_from_slice(&own.fetch_add(1, Ordering::Relaxed).to_ne_bytes());
            Ok(())
        };
        Ok(Tensor::from_handle(tracing::random_key(&d.channel(), Arc::new(next))?))
    }

    fn drawn(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn numbers(key: &Tensor) -> Result<Tensor> {
    Tensor::uniform(key, [3], DType::F64, 0.0, 1.0)
}

/// Rows that each step of a loop draws, in a loop of two steps within it, and in a branch.
fn rows(d: &Device, keys: &Keys, x: &Tensor) -> Result<Vec<Tensor>> {
    let options = ScanOptions { trips: Some(4), ..Default::default() };
    let (_, y) = scan(&options, &[x], &[], |k, c, _| {
        let own = numbers(&keys.next(d)?)?;
        let inner = ScanOptions { trips: Some(2), ..Default::default() };
        let (_, within) =
            scan(&inner, &[&own], &[], |_, c, _| Ok((c.to_vec(), vec![Collect::All(numbers(&keys.next(d)?)?)])))?;
        let even = k.lt(2)?;
        let branch = |_: &[Tensor]| Ok(vec![numbers(&keys.next(d)?)?]);
        let chosen = cond(&even, &[&own], branch, branch)?;
        Ok((c.to_vec(), vec![Collect::All(own), Collect::All(within[0].clone()), Collect::All(chosen[0].clone())]))
    })?;
    Ok(y)
}

#[test]
fn every_step_of_a_loop_draws_its_own_numbers_compiled_as_eager() {
    let d = plain();
    let x = tensor(&d, &wave(2), [2]);
    let (eager, own) = (Keys::default(), Keys::default());
    let mut f = compile(&d, {
        let (d, keys) = (d.clone(), own.clone());
        move |x: &[Tensor]| rows(&d, &keys, &x[0])
    });
    let mut seen: Vec<Vec<f64>> = Vec::new();
    for run in 1..=3 {
        let y = rows(&d, &eager, &x).expect("runs");
        let all: Vec<Vec<f64>> = y.iter().map(values).collect();
        let compiled: Vec<Vec<f64>> = f.call(&[&x]).expect("runs").iter().map(values).collect();
        assert_eq!(compiled, all, "run {run}");
        // one key for the loop, one for the loop in it, one for each branch, however many steps there are
        assert_eq!((eager.drawn(), own.drawn()), (4 * run, 4 * run));
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [12, 24, 12]);
        seen.extend(all.concat().chunks(3).map(<[f64]>::to_vec));
    }
    assert_eq!((f.traces(), seen.len()), (1, 48));
    let total = seen.len();
    seen.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    seen.dedup();
    assert_eq!(seen.len(), total, "no two draws are the same");
}

#[test]
fn the_numbers_of_a_step_follow_from_the_key_and_the_step_alone() {
    let d = plain();
    let (keys, key) = (Keys::default(), Tensor::new(&d, &[7u64, 0], [2]).expect("fits"));
    for reverse in [false, true] {
        let keys = if reverse { Keys::default() } else { keys.clone() };
        let xs = tensor(&d, &wave(5), [5, 1]);
        let options = ScanOptions { reverse, ..Default::default() };
        let drawn =
            |_: &Tensor, _: &[Tensor], _: &[Tensor]| Ok((vec![], vec![Collect::All(numbers(&keys.next(&d)?)?)]));
        let (_, y) = scan(&options, &[], &[&xs], drawn).expect("runs");
        let expected: Vec<f64> = (0..5i64)
            .flat_map(|k| {
                let k = Tensor::scalar(&d, k).expect("fits");
                values(&key.fold_in(&k).and_then(|key| numbers(&key)).expect("draws"))
            })
            .collect();
        assert_eq!(values(&y[0]), expected, "reverse: {reverse}");
    }
    // what runs once draws the key itself
    let once = call(&[&key], |_| Ok(vec![numbers(&keys.next(&d)?)?])).expect("runs");
    let second = Tensor::new(&d, &[7u64, 1], [2]).expect("fits");
    assert_eq!(values(&once[0]), values(&numbers(&second).expect("draws")));
}

#[test]
fn the_gradient_of_a_loop_sees_the_numbers_of_its_steps() {
    let d = plain();
    let keys = Keys::default();
    let x = tensor(&d, &wave(3), [3]).requires_grad().expect("a float");
    let y = fori_loop(4, &[&x], |_, c| Ok(vec![(&c[0] * numbers(&keys.next(&d)?)?)?])).expect("runs");
    y[0].sum().and_then(|y| y.backward()).expect("differentiates");
    let factors: Vec<f64> = values(&y[0]).iter().zip(values(&x)).map(|(y, x)| y / x).collect();
    crate::support::assert_close(&grad_of(&x), &factors);
    assert!(factors.iter().all(|f| *f > 0.0) && factors[0] != factors[1], "{factors:?}");
}
