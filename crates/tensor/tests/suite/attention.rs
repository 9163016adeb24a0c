//! Attention in tiles against the same written with `matmul`, `where_cond` and `softmax`.

use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Attend, Tensor, compile, gradcheck};
use remat_types::{DType, HostTensor, Result};

use crate::support::{cpu, plain, values, wave};

/// `softmax(scale q k^T) v` of `[n, t, heads, d]` with its scores in memory; what is hidden is -inf before the softmax.
fn composed(q: &Tensor, k: &Tensor, v: &Tensor, attend: Attend<'_>) -> Result<Tensor> {
    let by_head = |x: &Tensor| x.permute(&[0, 2, 1, 3]);
    let [_, tq, _, d] = q.dims_n()?;
    let scale = attend.scale.unwrap_or((d as f64).sqrt().recip());
    let mut scores = by_head(&q.mul(scale)?)?.matmul(&by_head(k)?.transpose(-1, -2)?)?;
    if attend.causal {
        let places = |t: usize| Tensor::arange(&q.device(), 0, t as i64, 1, DType::I64);
        let seen = places(k.dims()[1])?.le(&places(tq)?.unsqueeze(1)?)?;
        scores = seen.where_cond(&scores, f64::NEG_INFINITY)?;
    }
    if let Some(mask) = attend.mask {
        scores = mask.where_cond(&scores, f64::NEG_INFINITY)?;
    }
    by_head(&scores.softmax(-1)?.matmul(&by_head(v)?)?)
}

fn thirds(qkv: &Tensor) -> Result<[Tensor; 3]> {
    Ok([qkv.select(2, 0)?, qkv.select(2, 1)?, qkv.select(2, 2)?])
}

fn random(d: &Device, shape: &[usize], from: usize) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    Tensor::from_slice(d, &wave(from + n)[from..], shape)?.requires_grad()
}

/// Values and the gradients of `x`, for a loss that weighs each element differently, by numbers of eight bits that every float
/// has.
fn both(y: &Tensor, x: &[Tensor]) -> Result<Vec<Vec<f64>>> {
    let weights = Tensor::from_slice(&y.device(), &wave(y.elems() + 17)[17..], y.shape().clone())?;
    let weights = weights.cast(DType::BF16)?.cast(y.dtype())?;
    let loss = y.mul(&weights)?.sum()?;
    let mut all = vec![values(&y.cast(DType::F64)?)];
    for g in remat_tensor::grad(&loss, &x.iter().collect::<Vec<_>>(), false)? {
        all.push(values(&g.expect("a gradient").cast(DType::F64)?));
    }
    Ok(all)
}

/// In f64 both ways differ in the order of sums alone: four times the largest difference seen.
const SAME: f64 = 1.5e-14;

#[track_caller]
fn close(got: &[Vec<f64>], want: &[Vec<f64>], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (part, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.len(), want.len());
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            assert!((g - w).abs() <= tolerance * w.abs().max(1.0), "{part}: element {i} is {g}, not {w}");
        }
    }
}

#[test]
fn it_is_what_its_parts_give() -> Result<()> {
    let d = plain();
    for (n, h, tq, tk, dq, dv) in
        [(2, 3, 5, 7, 4, 3), (1, 2, 40, 70, 9, 17), (2, 1, 65, 33, 8, 8), (1, 1, 1, 300, 16, 2)]
    {
        let x = [random(&d, &[n, tq, h, dq], 0)?, random(&d, &[n, tk, h, dq], 3)?, random(&d, &[n, tk, h, dv], 8)?];
        // every query sees the first key
        let bits = |len: usize, row: usize| -> Vec<bool> { (0..len).map(|i| i % row == 0 || i % 3 != 1).collect() };
        let masks = [
            Tensor::new(&d, &bits(tk, tk), [tk])?,
            Tensor::new(&d, &bits(n * tk, tk), [n, 1, 1, tk])?,
            Tensor::new(&d, &bits(n * h * tq * tk, tk), [n, h, tq, tk])?,
            Tensor::new(&d, &bits(tk * tq, 1), [tk, tq])?.t()?,
        ];
        for causal in [false, true] {
            for mask in [None].into_iter().chain(masks.iter().map(Some)) {
                let attend = Attend { causal, mask, scale: mask.map(|_| 0.3), ..Attend::ALL };
                let (got, want) = (x[0].attention(&x[1], &x[2], attend)?, composed(&x[0], &x[1], &x[2], attend)?);
                close(&both(&got, &x)?, &both(&want, &x)?, SAME);
            }
        }
    }
    Ok(())
}

#[test]
fn any_strides_and_a_tensor_of_all_three() -> Result<()> {
    let d = plain();
    let whole = random(&d, &[2, 37, 3, 2, 8], 0)?;
    let [q, k, v] = thirds(&whole)?;
    for attend in [Attend::default(), Attend::CAUSAL] {
        let x = std::slice::from_ref(&whole);
        let want = both(&composed(&q, &k, &v, attend)?, x)?;
        close(&both(&whole.self_attention(attend)?, x)?, &want, SAME);
        close(&both(&q.attention(&k, &v, attend)?, x)?, &want, SAME);
        // from heads outside, and backwards twice
        let turned = |x: &Tensor| x.permute(&[2, 0, 1, 3])?.contiguous()?.permute(&[1, 2, 0, 3]);
        let flipped = |x: &Tensor| x.flip(&[1, 3])?.contiguous()?.flip(&[1, 3]);
        let y = turned(&q)?.attention(&flipped(&k)?, &turned(&v)?, attend)?;
        close(&both(&y, x)?, &want, SAME);
    }
    Ok(())
}

#[test]
fn narrow_floats_are_summed_in_wide_ones() -> Result<()> {
    let d = plain();
    let wide = random(&d, &[1, 40, 3, 2, 8], 0)?.detach();
    // Sums over 40 places in f32 round 40 times (twice and a half of what is seen); each result and each gradient is rounded to
    // its dtype once, by half a unit.
    let f32_sums = 40.0 * 2f64.powi(-24);
    for (dtype, half_unit) in [(DType::F32, 0.0), (DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
        let tolerance = f32_sums + half_unit;
        let x = wide.cast(dtype)?.requires_grad()?;
        let exact = x.detach().cast(DType::F64)?.requires_grad()?;
        let [q, k, v] = thirds(&exact)?;
        let want = both(&composed(&q, &k, &v, Attend::CAUSAL)?, std::slice::from_ref(&exact))?;
        close(&both(&x.self_attention(Attend::CAUSAL)?, std::slice::from_ref(&x))?, &want, tolerance);
    }
    Ok(())
}

#[test]
fn gradients_agree_with_differences() -> Result<()> {
    let d = plain();
    let host = |shape: &[usize]| HostTensor::from_slice(&wave(shape.iter().product()), shape);
    let mask = Tensor::new(&d, &[true, false, true], [3])?;
    let attend = Attend { causal: true, mask: Some(&mask), scale: Some(0.8), ..Attend::ALL };
    let x = [host(&[1, 4, 2, 2])?, host(&[1, 3, 2, 2])?, host(&[1, 3, 2, 3])?];
    let r = gradcheck(&d, &x, |x| x[0].attention(&x[1], &x[2], attend))?;
    // the differences' own error: ten times what was seen
    assert!(r.max_error < 1e-9 && r.max_gradient > 0.05, "{r:?}");
    Ok(())
}

/// Sum of squares of an attention and its gradient, as bits.
fn step(d: &Device, x: &Tensor) -> Result<Vec<u32>> {
    let x = Tensor::from_host(d, &x.to_host()?)?.requires_grad()?;
    let y = x.mul(2.0)?.self_attention(Attend::CAUSAL)?;
    let again = y.reshape(&[2, 48, 1, 1, 32])?.broadcast_to([2, 48, 3, 1, 32])?.self_attention(Attend::default())?;
    let loss = again.square()?.sum()?;
    loss.backward()?;
    let g = x.grad().expect("a gradient").to_vec::<f32>()?;
    Ok(again.to_vec::<f32>()?.iter().chain(&g).map(|v| v.to_bits()).collect())
}

#[test]
fn bits_depend_on_neither_budget_nor_threads() -> Result<()> {
    let d = plain();
    let x = random(&d, &[2, 48, 3, 2, 16], 0)?.detach().cast(DType::F32)?;
    let want = step(&d, &x)?;
    for threads in [2, 3] {
        let d = Device::cpu(DeviceOptions { threads, ..DeviceOptions::default() })?;
        assert_eq!(step(&d, &x)?, want, "{threads} threads");
    }
    let tight = cpu(DeviceOptions::with_budget(200 << 10));
    assert_eq!(step(&tight, &x)?, want);
    let stats = tight.channel().stats()?;
    assert!(stats.recomputed_ops > 0, "the budget binds: {stats:?}");
    Ok(())
}

#[test]
fn a_compiled_attention_has_the_same_bits() -> Result<()> {
    let d = plain();
    let x = random(&d, &[2, 20, 3, 2, 8], 0)?.detach().cast(DType::F32)?;
    let mut f = compile(&d, |x: &[Tensor]| Ok(vec![x[0].self_attention(Attend::CAUSAL)?]));
    let want = x.self_attention(Attend::CAUSAL)?.to_vec::<f32>()?;
    assert_eq!(f.call(&[&x])?[0].to_vec::<f32>()?, want);
    Ok(())
}
