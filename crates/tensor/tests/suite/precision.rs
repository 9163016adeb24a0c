//! Values and gradients that a narrow dtype must not lose on the way: numbers beside halves, norms, extremes, hidden rows.

use remat_runtime::Device;
use remat_tensor::{Attend, CompileOptions, Tensor, compile_with};
use remat_types::{DType, Result, Shape};

use crate::support::{plain, values};

const HALVES: [DType; 2] = [DType::F16, DType::BF16];

/// A leaf of `dtype`.
fn leaf_of(d: &Device, v: &[f64], shape: impl Into<Shape>, dtype: DType) -> Tensor {
    let x = Tensor::from_slice(d, v, shape).and_then(|x| x.cast(dtype)).expect("fits");
    x.requires_grad().expect("a float")
}

/// The values in f64.
fn wide(t: &Tensor) -> Vec<f64> {
    values(&t.cast(DType::F64).expect("a cast"))
}

/// The gradient of the sum of `y` by `x`, in f64.
fn grad_of_sum(y: &Tensor, x: &Tensor) -> Vec<f64> {
    y.sum().and_then(|y| y.backward()).expect("differentiable");
    let g = x.take_grad().expect("a gradient");
    assert_eq!(g.dtype(), x.dtype());
    wide(&g)
}

/// Equal to what `dtype` makes of `want`.
#[track_caller]
fn assert_rounded(got: &[f64], want: &[f64], dtype: DType) {
    let d = plain();
    let want = wide(&Tensor::from_slice(&d, want, [want.len()]).and_then(|w| w.cast(dtype)).expect("fits"));
    assert_eq!(got, want);
}

#[test]
fn numbers_enter_unrounded_beside_halves() -> Result<()> {
    let d = plain();
    for dtype in HALVES {
        let x = leaf_of(&d, &[1000.0, 3.0], [2], dtype);
        let small = f64::from(1e-8f32);
        let (third, big) = (f64::from(1.0f32 / 3.0), 70_001.0);
        let cases: [(Tensor, [f64; 2]); 9] = [
            (x.mul(1e-8)?, [1000.0 * small, 3.0 * small]),
            ((1e-8 * &x)?, [1000.0 * small, 3.0 * small]),
            ((1e-8 * x.clone())?, [1000.0 * small, 3.0 * small]),
            (x.div(big)?, [1000.0 / big, 3.0 / big]),
            ((big / &x)?, [big / 1000.0, big / 3.0]),
            (x.mul(70_001i64)?.div(70_001)?, [f64::NAN; 2]),
            ((&x - third)?, [1000.0 - third, 3.0 - third]),
            (x.pow(third)?, [1000f64.powf(third), 3f64.powf(third)]),
            (x.maximum(1000.0 + 1e-3)?, [1000.0 + 1e-3; 2]),
        ];
        for (i, (y, want)) in cases.iter().enumerate() {
            assert_eq!(y.dtype(), dtype, "case {i}");
            if !want[0].is_nan() {
                assert_rounded(&wide(y), want, dtype);
            }
        }
        let below = |v: f64| x.sub(&x).and_then(|zero| zero.lt(v)).and_then(|b| b.to_vec::<bool>());
        assert_eq!((below(1e-12)?, below(-1e-12)?), (vec![true; 2], vec![false; 2]));
        assert_rounded(&grad_of_sum(&x.mul(1e-8)?, &x), &[small; 2], dtype);
        assert_rounded(&grad_of_sum(&(big / &x)?, &x), &[-big / 1e6, -big / 9.0], dtype);
        // the same elements, fused
        let mut f = compile_with(&d, CompileOptions::default(), |x: &[Tensor]| {
            Ok(vec![((&x[0] * 1e-8)? + 1e-6)?.div(1e-3)?, x[0].gt(1000.0 - 1e-3)?])
        });
        let x = x.detach();
        let (y, apart) = (f.call(&[&x])?, x.mul(1e-8)?.add(1e-6)?.div(1e-3)?);
        assert_eq!(wide(&y[0]), wide(&apart));
        assert_eq!(y[1].to_vec::<bool>()?, [true, false]);
    }
    // tensors are promoted as ever
    let x = leaf_of(&d, &[1000.0], [1], DType::F16);
    assert_eq!(x.mul(&Tensor::new(&d, &[1e-8f32], [])?)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn norms_and_deviations_leave_no_dtype_on_the_way() -> Result<()> {
    let d = plain();
    // elements, their norm, their deviation
    let far = |dtype: DType| match dtype {
        DType::F16 => vec![1.0, 100.0, 1e-4],
        DType::F64 => vec![1.0, 1e150, 1e300, 1e-160, 1e-300],
        _ => vec![1.0, 1e18, 1e35, 1e-18, 1e-30],
    };
    // The inputs and the result are rounded once each: some units of 2^-11 (f16), 2^-8, 2^-24 and 2^-53.
    for (dtype, bound) in [(DType::F16, 2e-3), (DType::BF16, 1e-2), (DType::F32, 3e-7), (DType::F64, 1e-15)] {
        for unit in far(dtype) {
            let x = leaf_of(&d, &[300.0 * unit, -400.0 * unit], [2], dtype);
            let near = |got: &[f64], want: &[f64]| {
                let fits = got.iter().zip(want).all(|(g, w)| (g - w).abs() <= bound * w.abs());
                assert!(fits && got.len() == want.len(), "{dtype}, {unit}: {got:?}, not {want:?}");
            };
            let (norm, std) = (x.norm()?, x.std(0)?);
            assert_eq!([norm.dtype(), std.dtype()], [dtype; 2]);
            near(&wide(&norm), &[500.0 * unit]);
            near(&wide(&std), &[350.0 * unit]);
            near(&grad_of_sum(&norm, &x), &[0.6, -0.8]);
            near(&grad_of_sum(&std, &x), &[0.5, -0.5]);
        }
        // where they are 0 nothing is steepest, beside a row where something is
        let x = leaf_of(&d, &[0.0, 0.0, 3.0, 4.0], [2, 2], dtype);
        assert_rounded(&grad_of_sum(&x.norm_over(&[1], true)?, &x), &[0.0, 0.0, 0.6, 0.8], dtype);
        for c in [0.1, 1.0 / 3.0, 12.7, -3e-5] {
            let x = leaf_of(&d, &[c; 7], [7], dtype);
            let std = x.std_over(&[], false, 1)?;
            assert_eq!(wide(&std), [0.0]);
            assert_eq!(grad_of_sum(&std, &x), [0.0; 7]);
        }
    }
    Ok(())
}

#[test]
fn many_equal_extremes_share_the_gradient() -> Result<()> {
    let d = plain();
    let n = 70_000;
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = leaf_of(&d, &vec![2.5; n], [n], dtype);
        for y in [x.max()?, x.min()?] {
            let g = grad_of_sum(&y, &x);
            assert_rounded(&g[..1], &[1.0 / n as f64], dtype);
            assert!(g.iter().all(|v| *v == g[0]), "{dtype}");
        }
    }
    Ok(())
}

#[test]
fn the_gradient_of_an_extreme_goes_to_nan() -> Result<()> {
    let d = plain();
    let nan = f64::NAN;
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let x = leaf_of(&d, &[1.0, nan, 7.0, nan, 1.0, 7.0, 7.0, 0.0], [2, 4], dtype);
        assert_eq!(grad_of_sum(&x.max_over(&[1], false)?, &x), [0.0, 0.5, 0.0, 0.5, 0.0, 0.5, 0.5, 0.0]);
        assert_eq!(grad_of_sum(&x.min_over(&[1], false)?, &x), [0.0, 0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0]);
    }
    Ok(())
}

#[test]
fn a_row_that_sees_nothing_leaves_every_gradient_clean() -> Result<()> {
    let d = plain();
    let mask = Tensor::new(&d, &[true, true, false, false, true, false], [3, 2])?;
    let wave = |n: usize, from: f64| (0..n).map(|i| (i as f64 * 1.3 + from).sin()).collect::<Vec<_>>();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let of = |t, from| leaf_of(&d, &wave(2 * t, from), [1, t, 1, 2], dtype);
        let [q, k, v] = [of(3, 0.1), of(2, 1.2), of(2, 2.3)];
        let y = q.attention(&k, &v, Attend::masked(&mask))?;
        assert_eq!(wide(&y)[2..4], [0.0; 2]);
        y.square()?.sum()?.backward()?;
        for x in [&q, &k, &v] {
            let g = wide(&x.grad().expect("a gradient"));
            assert!(g.iter().all(|g| g.is_finite()) && g.iter().any(|g| *g != 0.0), "{dtype}: {g:?}");
        }
        assert_eq!(wide(&q.grad().expect("a gradient"))[2..4], [0.0; 2]);
    }
    // and second gradients, which take attention apart
    let of = |t, from| leaf_of(&d, &wave(2 * t, from), [1, t, 1, 2], DType::F64);
    let [q, k, v] = [of(3, 0.1), of(2, 1.2), of(2, 2.3)];
    let y = q.attention(&k, &v, Attend::masked(&mask))?.square()?.sum()?;
    let first = remat_tensor::grad(&y, &[&q], true)?.remove(0).expect("it depends on q");
    first.square()?.sum()?.backward()?;
    for x in [&q, &k, &v] {
        assert!(wide(&x.grad().expect("a gradient")).iter().all(|g| g.is_finite()));
    }
    Ok(())
}

#[test]
fn log_sum_exp_of_nothing_is_minus_infinity_and_moves_nothing() -> Result<()> {
    let d = plain();
    let none = leaf_of(&d, &[], [2, 0], DType::F32);
    assert_eq!(wide(&none.log_sum_exp_over(&[1], false)?), [f64::NEG_INFINITY; 2]);
    let x = leaf_of(&d, &[f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0, 0.0], [2, 2], DType::F64);
    assert_eq!(grad_of_sum(&x.log_sum_exp_over(&[1], false)?, &x), [0.0, 0.0, 0.5, 0.5]);
    Ok(())
}

#[test]
fn a_quotient_rounded_down_fits_its_remainder() -> Result<()> {
    let d = plain();
    let all = [0.1, 0.3, 1.0, 5.0, 7.5, 1e10, 1e-10, f64::INFINITY, 0.0];
    let signs: Vec<f64> = all.iter().flat_map(|v| [*v, -*v]).collect();
    for a in signs.iter().filter(|a| a.is_finite()) {
        for b in signs.iter().filter(|b| **b != 0.0) {
            let (x, y) = (Tensor::from_slice(&d, &[*a], [1])?, Tensor::from_slice(&d, &[*b], [1])?);
            let (q, r) = (x.floor_div(&y)?.item::<f64>()?, x.rem(&y)?.item::<f64>()?);
            assert!(r == 0.0 || (r < 0.0) == (*b < 0.0), "{a} rem {b} is {r}");
            if b.is_infinite() {
                let apart = *a != 0.0 && (*a < 0.0) != (*b < 0.0);
                assert_eq!((q, r), if apart { (-1.0, *b) } else { (0.0, *a) }, "{a} over {b}");
            } else {
                let whole = q * b;
                assert!(
                    (whole + r - a).abs() <= 4.0 * f64::EPSILON * whole.abs().max(a.abs()),
                    "{a} over {b}: {q}, {r}"
                );
                assert!(r.abs() <= b.abs(), "{a} over {b}: {q}, {r}");
            }
        }
    }
    Ok(())
}
