//! Each collective against what one process computes, on any ranks.

use bytemuck::{cast_slice, cast_slice_mut};
use remat_comm::{Call, Communicator, Reduction};
use remat_types::{DType, Result, f16};

/// The value of element `i` of rank `rank`: its sum depends on the order of ranks.
fn value(rank: usize, i: usize) -> f32 {
    let big = if (rank + i).is_multiple_of(2) { 1e7 } else { -1e7 };
    big + ((rank * 31 + i * 7) % 13) as f32 * 0.37
}

fn values(rank: usize, elems: usize) -> Vec<f32> {
    (0..elems).map(|i| value(rank, i)).collect()
}

/// Values of all ranks, reduced in their order.
fn folded(size: usize, elems: usize, f: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    (0..elems).map(|i| (1..size).fold(value(0, i), |y, r| f(y, value(r, i)))).collect()
}

fn call(name: &str) -> Call {
    Call::named(name)
}

/// Sizes below, at and above what one exchange takes, that no number of ranks divides.
const ELEMS: [usize; 6] = [0, 1, 7, 8191, 40_000, 1_100_001];

fn reductions(c: &Communicator) -> Result<()> {
    let (size, dtype) = (c.size(), DType::F32);
    for elems in ELEMS {
        let x = values(c.rank(), elems);
        let bytes = elems * 4;
        let mut work = vec![0f32; c.reduce_workspace(dtype, bytes).div_ceil(4)];
        let sum = folded(size, elems, |a, b| a + b);
        let mean: Vec<f32> = sum.iter().map(|s| s / size as f32).collect();
        let want = [
            (Reduction::Sum, sum),
            (Reduction::Mean, mean),
            (Reduction::Max, folded(size, elems, f32::max)),
            (Reduction::Min, folded(size, elems, f32::min)),
            (Reduction::Product, folded(size, elems, |a, b| a * b)),
        ];
        for (reduction, want) in want {
            let what = format!("{} of {elems} on {c:?}", reduction.name());
            let mut y = vec![0f32; elems];
            let (xb, work) = (cast_slice(&x), cast_slice_mut(&mut work));
            c.all_reduce(&call("all"), reduction, dtype, Some(xb), cast_slice_mut(&mut y), work)?;
            assert_eq!(y, want, "{what}");
            let root = elems % size;
            let mut y = vec![0f32; if c.rank() == root { elems } else { 0 }];
            c.reduce(&call("one"), (reduction, dtype), root, xb, cast_slice_mut(&mut y), work)?;
            assert_eq!(y, if c.rank() == root { want } else { Vec::new() }, "{what}, at {root}");
        }
        scattered(c, elems)?;
    }
    let x = vec![f16::from_f32(0.1 + c.rank() as f32); 9];
    let mut y = vec![f16::ZERO; 9];
    let mut work = vec![f16::ZERO; c.reduce_workspace(DType::F16, 18) / 2];
    let work = cast_slice_mut(&mut work);
    c.all_reduce(&call("half"), Reduction::Sum, DType::F16, Some(cast_slice(&x)), cast_slice_mut(&mut y), work)?;
    let want = (1..size).fold(f16::from_f32(0.1), |y, r| y + f16::from_f32(0.1 + r as f32));
    assert_eq!(y, [want; 9]);
    Ok(())
}

fn scattered(c: &Communicator, elems: usize) -> Result<()> {
    let size = c.size();
    let x = values(c.rank(), elems * size);
    let mut y = vec![0f32; elems];
    let mut work = vec![0f32; c.reduce_scatter_workspace(DType::F32, elems * 4).div_ceil(4)];
    let work = cast_slice_mut(&mut work);
    c.reduce_scatter(&call("parts"), Reduction::Sum, DType::F32, cast_slice(&x), cast_slice_mut(&mut y), work)?;
    let want = folded(size, elems * size, |a, b| a + b);
    assert_eq!(y, want[c.rank() * elems..][..elems], "part of {elems} on {c:?}");
    Ok(())
}

fn moves(c: &Communicator) -> Result<()> {
    let (size, rank) = (c.size(), c.rank());
    for elems in ELEMS {
        let all: Vec<f32> = (0..size).flat_map(|r| values(r, elems)).collect();
        let x = values(rank, elems);
        let mut y = vec![0f32; elems * size];
        c.all_gather(&call("all_gather"), cast_slice(&x), cast_slice_mut(&mut y))?;
        assert_eq!(y, all, "{elems} on {c:?}");

        let root = (elems + 1) % size;
        let mut y = x.clone();
        c.broadcast(&call("broadcast"), root, cast_slice_mut(&mut y))?;
        assert_eq!(y, values(root, elems), "{elems} on {c:?}");

        let mut y = vec![0f32; if rank == root { elems * size } else { 0 }];
        c.gather(&call("gather"), root, cast_slice(&x), cast_slice_mut(&mut y))?;
        assert_eq!(y, if rank == root { all.clone() } else { Vec::new() }, "{elems} on {c:?}");

        let mut y = vec![0f32; elems];
        c.scatter(&call("scatter"), root, cast_slice(&all), cast_slice_mut(&mut y))?;
        assert_eq!(y, x, "{elems} on {c:?}");

        let x = values(rank, elems * size);
        let mut y = vec![0f32; elems * size];
        c.all_to_all(&call("all_to_all"), cast_slice(&x), cast_slice_mut(&mut y))?;
        let want: Vec<f32> =
            (0..size).flat_map(|q| values(q, elems * size)[rank * elems..][..elems].to_vec()).collect();
        assert_eq!(y, want, "{elems} on {c:?}");
    }
    Ok(())
}

fn messages(c: &Communicator) -> Result<()> {
    let (size, rank) = (c.size(), c.rank());
    for elems in ELEMS {
        // round the ring: every rank but the last sends first
        let x = values(rank, elems);
        let mut y = vec![0f32; elems];
        let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
        let send = || c.send(&call("round"), next, cast_slice(&x));
        if rank + 1 < size {
            send()?;
        }
        c.receive(&call("round"), last, cast_slice_mut(&mut y))?;
        if rank + 1 == size {
            send()?;
        }
        assert_eq!(y, values(last, elems), "{elems} on {c:?}");
    }
    Ok(())
}

/// Everything, on any ranks.
pub(crate) fn check_all(c: &Communicator) -> Result<()> {
    reductions(c)?;
    moves(c)?;
    if c.size() > 1 {
        messages(c)?;
    }
    c.barrier()?;
    let seen = c.statistics();
    assert!(seen.calls > 50 && seen.bytes > 10_000_000, "{seen:?}");
    Ok(())
}
