//! Draws by weights, and gradients of what is ordered.

use remat_ops::compose::ScatterReduce;
use remat_tensor::Tensor;
use remat_types::Result;

use crate::support::plain;

fn key(of: &Tensor, n: u64) -> Result<Tensor> {
    Tensor::new(&of.device(), &[n, 5], [2])
}

#[test]
fn draws_follow_their_weights_and_nothing_of_weight_zero_is_drawn() -> Result<()> {
    let p = Tensor::new(&plain(), &[0.0, 1.0, 3.0, 0.0, 6.0, 0.0, 5.0, 5.0, 0.0, 0.0, 0.0, 0.0], [2, 6])?;
    let y = p.multinomial(&key(&p, 1)?, 20_000, true)?;
    assert_eq!(y.dims(), [2, 20_000]);
    for (row, want) in [[0.0, 0.1, 0.3, 0.0, 0.6, 0.0], [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]].iter().enumerate() {
        let counts = y.select(0, row as isize)?.bincount(None, 6)?.to_vec::<i64>()?;
        for (n, want) in counts.iter().zip(want) {
            let share = *n as f64 / 20_000.0;
            assert!((share - want).abs() < 0.015 && (*want > 0.0 || *n == 0), "{counts:?}");
        }
    }
    assert_eq!(y.to_vec::<i64>()?, p.multinomial(&key(&p, 1)?, 20_000, true)?.to_vec::<i64>()?);
    Ok(())
}

#[test]
fn draws_without_replacement_are_all_different_and_begin_by_weight() -> Result<()> {
    let p = Tensor::new(&plain(), &[1.0, 0.0, 3.0, 6.0], [4])?;
    let mut first = [0; 4];
    for n in 0..2000 {
        let mut y = p.multinomial(&key(&p, n)?, 3, false)?.to_vec::<i64>()?;
        first[y[0] as usize] += 1;
        y.sort_unstable();
        assert_eq!(y, [0, 2, 3], "what has a weight comes first");
    }
    let near = |n: i32, want: f64| (f64::from(n) / 2000.0 - want).abs() < 0.04;
    assert!(near(first[0], 0.1) && first[1] == 0 && near(first[2], 0.3) && near(first[3], 0.6), "{first:?}");
    Ok(())
}

#[test]
fn a_shuffle_moves_whole_slices() -> Result<()> {
    let x = Tensor::arange(&plain(), 0, 12, 1, remat_types::DType::I32)?.reshape(&[6, 2])?;
    let y = x.shuffle(&key(&x, 3)?, 0)?;
    assert_ne!(y.to_vec::<i32>()?, x.to_vec::<i32>()?);
    assert!(y.to_vec::<i32>()?.chunks(2).all(|row| row[0] + 1 == row[1] && row[0] % 2 == 0));
    assert_eq!(y.sort(0, false)?.0.to_vec::<i32>()?, x.to_vec::<i32>()?);
    Ok(())
}

#[test]
fn the_gradient_of_halves_is_added_up_in_f32() -> Result<()> {
    let x = Tensor::new(&plain(), &[1.0, 2.0], [2])?.cast(remat_types::DType::F16)?.requires_grad()?;
    let index = x.zeros_like()?.cast(remat_types::DType::I64)?.slice(0, ..1)?.broadcast_to([4096])?;
    x.gather(0, &index)?.sum()?.backward()?;
    let g = x.grad().expect("x is read").cast(remat_types::DType::F32)?;
    assert_eq!(g.to_vec::<f32>()?, [4096.0, 0.0], "in f16 a sum of ones ends at 2048");
    Ok(())
}

#[test]
fn a_scatter_takes_index_and_source_that_are_repeated() -> Result<()> {
    let d = plain();
    let x = Tensor::new(&d, &[0.0; 6], [2, 3])?;
    let index = Tensor::new(&d, &[2, 0], [2, 1])?.broadcast_to([2, 3])?;
    let src = Tensor::new(&d, &[1.0, 2.0, 3.0], [3])?.broadcast_to([2, 3])?;
    assert_eq!(x.scatter_add(1, &index, &src)?.to_vec::<f32>()?, [0.0, 0.0, 6.0, 6.0, 0.0, 0.0]);
    let most = x.scatter_reduce(1, &index, &src, ScatterReduce::Amax, false)?;
    assert_eq!(most.to_vec::<f32>()?, [0.0, 0.0, 3.0, 3.0, 0.0, 0.0]);
    Ok(())
}
