//! Samples of both ops.

use remat_types::{ErrorKind, HostTensor, f16};

use super::{Attention, AttentionGrad};
use crate::sample::t;
use crate::{OpDef, Sample};

fn op(scale: f64, causal: bool, packed_qkv: bool) -> Attention {
    Attention { causal, packed_qkv, ..Attention::plain(scale) }
}

/// With everything that is not said otherwise as in [`Attention::plain`].
fn spanned(offset: isize, left: Option<usize>, right: Option<usize>) -> Attention {
    Attention { offset, left, right, ..Attention::plain(0.7) }
}

fn capped(cap: f64) -> Attention {
    Attention { cap: cap.into(), ..Attention::plain(0.7) }
}

fn dropping(p: f64) -> Attention {
    Attention { dropout: p.into(), ..Attention::plain(0.7) }
}

/// `q, k, v` of `[n, t, heads, d]`, where `group` heads of `q` share one of `k` and `v`.
fn shared([n, h, group]: [usize; 3], [tq, tk]: [usize; 2], [d, dv]: [usize; 2]) -> Vec<HostTensor> {
    vec![wave(&[n, tq, h * group, d], 0), wave(&[n, tk, h, d], 5), wave(&[n, tk, h, dv], 11)]
}

fn with(mut x: Vec<HostTensor>, more: Vec<HostTensor>) -> Vec<HostTensor> {
    x.extend(more);
    x
}

fn key() -> HostTensor {
    t(&[7u64, 3], [2])
}

/// Samples of all that is not in the paper: operator, and its inputs.
fn forms() -> Vec<(Attention, Vec<HostTensor>)> {
    let mask = || t(&[true, false, true, true], [4]);
    vec![
        (Attention::plain(0.7), shared([2, 1, 3], [3, 4], [2, 3])),
        (Attention::plain(0.7), shared([1, 2, 2], [10, 4], [2, 3])),
        (spanned(0, Some(1), Some(0)), heads([1, 2], [4, 4], [3, 2])),
        (spanned(1, Some(2), Some(1)), heads([1, 1], [5, 6], [3, 2])),
        (spanned(0, Some(2), Some(1)), heads([1, 1], [10, 12], [2, 2])),
        (spanned(2, None, Some(0)), heads([1, 1], [2, 4], [3, 2])),
        (spanned(-1, Some(0), None), heads([1, 1], [3, 3], [2, 2])),
        (capped(1.5), heads([1, 2], [3, 4], [2, 3])),
        (capped(0.5), with(heads([1, 1], [9, 4], [2, 3]), vec![mask(), wave(&[9, 1], 2)])),
        (Attention::plain(0.7), with(heads([2, 2], [3, 4], [2, 3]), vec![wave(&[2, 1, 4], 1)])),
        (
            Attention { causal: true, ..capped(2.0) },
            with(shared([1, 1, 2], [4, 4], [2, 2]), vec![mask(), wave(&[2, 4, 4], 1)]),
        ),
        (dropping(0.4), with(heads([2, 2], [3, 4], [2, 3]), vec![key()])),
        (dropping(0.4), with(shared([1, 1, 2], [4, 4], [2, 2]), vec![mask(), wave(&[4, 4], 1), key()])),
    ]
}

fn wave(shape: &[usize], from: usize) -> HostTensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (from..from + n).map(|i| (i as f32 * 1.7).sin() + 0.1 * (i % 3) as f32).collect();
    t(&data, shape)
}

/// `q, k, v` of `[n, t, heads, d]` each.
fn heads([n, h]: [usize; 2], [tq, tk]: [usize; 2], [d, dv]: [usize; 2]) -> Vec<HostTensor> {
    vec![wave(&[n, tq, h, d], 0), wave(&[n, tk, h, d], 5), wave(&[n, tk, h, dv], 11)]
}

/// As [`heads`] with the mask behind.
fn masked(mut x: Vec<HostTensor>, mask: &[bool], shape: &[usize]) -> Vec<HostTensor> {
    x.push(t(mask, shape));
    x
}

/// One query `1` and keys `0, ln 3`, which get a quarter and three quarters of its attention; values 4 and 8.
fn quarters() -> Vec<HostTensor> {
    let ln3 = 3.0f32.ln();
    vec![t(&[1.0f32], [1, 1, 1, 1]), t(&[0.0f32, ln3], [1, 2, 1, 1]), t(&[4.0f32, 8.0], [1, 2, 1, 1])]
}

/// Half floats for which every step is exact: equal scores, values 2 and 4.
fn halves() -> Vec<HostTensor> {
    let h = |v: &[f32], t_: usize| {
        let v: Vec<f16> = v.iter().map(|v| f16::from_f32(*v)).collect();
        t(&v, [1, t_, 1, 1])
    };
    vec![h(&[0.0], 1), h(&[1.0, 1.0], 2), h(&[2.0, 4.0], 2)]
}

impl OpDef for Attention {
    const NAME: &'static str = "attention";
    const VERSION: u32 = 2;

    fn samples() -> Vec<Sample<Self>> {
        let (ln, none) = (f32::ln, f32::NEG_INFINITY);
        let y = |v: &[f32], lse: &[f32]| vec![t(v, [1, v.len(), 1, 1]), t(lse, [1, 1, lse.len()])];
        let zeros = || vec![t(&[0.0f32; 2], [1, 2, 1, 1]), t(&[1.0f32, 5.0], [1, 2, 1, 1]), quarters().remove(2)];
        vec![
            Sample::new(op(1.0, false, false), quarters()).gives(y(&[7.0], &[ln(4.0)])),
            // the scale, and the keys that each of two queries sees
            Sample::new(op(2.0, false, false), quarters()).gives(y(&[7.6], &[ln(10.0)])),
            Sample::new(op(1.0, true, false), zeros()).gives(y(&[4.0, 6.0], &[0.0, ln(2.0)])).grad_of(&[0, 2]),
            Sample::new(op(1.0, false, false), masked(zeros(), &[false, true], &[2]))
                .gives(y(&[8.0, 8.0], &[0.0, 0.0]))
                .grad_of(&[2]),
            Sample::new(op(1.0, false, false), masked(zeros(), &[false, false, true, true], &[2, 2]))
                .gives(y(&[0.0, 6.0], &[none, ln(2.0)]))
                .no_grad("infinite"),
            // packed_qkv, with several images and heads
            Sample::new(op(0.6, false, true), vec![wave(&[2, 3, 3, 2, 2], 0)]),
            Sample::new(op(0.6, true, true), vec![wave(&[1, 5, 3, 1, 3], 4)]),
            Sample::new(
                op(0.6, false, true),
                masked(vec![wave(&[2, 2, 3, 2, 2], 3)], &[true, true, false, true], &[2, 1, 1, 2]),
            ),
            Sample::new(op(0.7, false, false), heads([2, 2], [3, 4], [2, 3])),
            Sample::new(op(0.7, true, false), heads([1, 2], [4, 3], [3, 2])),
            Sample::new(op(0.7, true, false), heads([1, 1], [2, 4], [3, 2])),
            Sample::new(op(-0.7, true, false), masked(heads([1, 2], [3, 3], [2, 2]), &[true, false, true], &[3, 1]))
                .no_grad("the second query sees nothing"),
            // more than a tile, and no whole vectors
            Sample::new(op(0.3, true, false), heads([1, 2], [70, 75], [9, 17])).no_grad("the smaller ones check it"),
            Sample::new(op(0.3, false, true), vec![wave(&[2, 37, 3, 1, 5], 0)]).no_grad("the smaller ones check it"),
            Sample::new(op(1.0, false, false), halves())
                .gives(vec![t(&[f16::from_f32(3.0)], [1, 1, 1, 1]), t(&[ln(2.0)], [1, 1, 1])])
                .grad_of(&[2]),
            // no key, no number, no query
            Sample::new(op(1.0, false, false), heads([1, 1], [2, 0], [1, 1]))
                .gives(y(&[0.0; 2], &[none; 2]))
                .no_grad("no key"),
            Sample::new(op(1.0, false, false), heads([1, 1], [2, 3], [0, 1])).grad_of(&[2]),
            Sample::new(op(1.0, false, false), heads([1, 1], [0, 3], [2, 1])).no_grad("empty"),
            Sample::new(op(1.0, false, false), heads([1, 1], [2, 3], [2, 1])[..2].to_vec()).fails(ErrorKind::Arity),
            Sample::new(op(1.0, false, true), heads([1, 1], [2, 3], [2, 1])).fails(ErrorKind::Arity),
            Sample::new(op(f64::NAN, false, false), quarters()).fails(ErrorKind::Value),
            Sample::new(op(1.0, false, false), vec![wave(&[2], 0); 3]).fails(ErrorKind::Axis),
            Sample::new(op(1.0, false, true), vec![wave(&[1, 2, 2, 1, 1], 0)]).fails(ErrorKind::Shape),
            Sample::new(
                op(1.0, false, false),
                vec![wave(&[1, 2, 1, 2], 0), wave(&[1, 2, 1, 1], 0), wave(&[1, 2, 1, 1], 0)],
            )
            .fails(ErrorKind::Shape),
            Sample::new(op(1.0, false, false), masked(zeros(), &[true; 3], &[3])).fails(ErrorKind::Shape),
            Sample::new(op(1.0, false, false), masked(zeros(), &[true; 2], &[1, 1, 1, 1, 2])).fails(ErrorKind::Shape),
            Sample::new(op(1.0, false, false), with(zeros(), vec![t(&[1i32, 2], [2])])).fails(ErrorKind::DType),
            Sample::new(op(1.0, false, true), vec![t(&[1i32; 3], [1, 1, 3, 1, 1])]).fails(ErrorKind::DType),
            // a bias of ln 3 on the second key, which gets three quarters
            Sample::new(
                op(1.0, false, false),
                with(zeros()[..2].to_vec(), vec![quarters().remove(2), t(&[0.0, ln(3.0)], [2])]),
            )
            .gives(y(&[7.0, 7.0], &[ln(4.0), ln(4.0)]))
            .grad_of(&[2, 3]),
            // a window that sees nothing
            Sample::new(spanned(9, Some(0), Some(0)), zeros()).gives(y(&[0.0, 0.0], &[none, none])).no_grad("infinite"),
            // all are dropped, and the sums stay
            Sample::new(Attention { dropout: 1.0.into(), ..op(1.0, false, false) }, with(zeros(), vec![key()]))
                .gives(y(&[0.0, 0.0], &[ln(2.0), ln(2.0)]))
                .no_grad("nothing moves"),
            Sample::new(spanned(0, Some(3), Some(70)), shared([1, 2, 2], [150, 140], [5, 3]))
                .no_grad("the smaller ones check it"),
            Sample::new(dropping(0.3), with(shared([1, 2, 2], [70, 80], [5, 3]), vec![key()]))
                .no_grad("the smaller ones check it"),
            Sample::new(dropping(0.3), zeros()).fails(ErrorKind::Arity),
            Sample::new(op(1.0, false, false), with(zeros(), vec![key()])).fails(ErrorKind::Arity),
            Sample::new(dropping(1.5), with(zeros(), vec![key()])).fails(ErrorKind::Value),
            Sample::new(capped(-1.0), zeros()).fails(ErrorKind::Value),
            Sample::new(op(1.0, false, false), with(zeros(), vec![wave(&[3], 0)])).fails(ErrorKind::Shape),
            Sample::new(dropping(0.3), with(zeros(), vec![t(&[1u64], [1])])).fails(ErrorKind::Shape),
            Sample::new(
                op(1.0, false, false),
                shared([1, 2, 1], [3, 3], [2, 2])[..2].iter().cloned().chain([wave(&[1, 3, 3, 2], 0)]).collect(),
            )
            .fails(ErrorKind::Shape),
        ]
        .into_iter()
        .chain(forms().into_iter().map(|(op, x)| Sample::new(op, x)))
        .collect()
    }
}

impl OpDef for AttentionGrad {
    const NAME: &'static str = "attention_grad";

    fn samples() -> Vec<Sample<Self>> {
        let grad = |scale, causal, packed_qkv| AttentionGrad { of: op(scale, causal, packed_qkv) };
        // any `lse` has gradients; those of the forward op are about logarithms of the number of keys
        let given = |x: Vec<HostTensor>| {
            let (q, v) = (x[0].shape().clone(), x[if x[0].shape().rank() == 5 { 0 } else { 2 }].shape().clone());
            let (h, dv) = (q[q.rank() - 2], v[v.rank() - 1]);
            let mut lse = wave(&[q[0], h, q[1]], 2).to_f64_vec();
            lse.iter_mut()
                .for_each(|l| *l += 0.5 + (x[if x[0].shape().rank() == 5 { 0 } else { 1 }].shape()[1] as f64).ln_1p());
            let lse = HostTensor::from_f64_slice(&lse, remat_types::DType::F32, [q[0], h, q[1]]).expect("fits");
            [vec![lse, wave(&[q[0], q[1], h, dv], 9)], x].concat()
        };
        let exact = |lse: f32, dy: HostTensor, x: Vec<HostTensor>| [vec![t(&[lse], [1, 1, 1]), dy], x].concat();
        let ln3 = 3.0f32.ln();
        let of = |v: &[f32]| t(v, [1, v.len(), 1, 1]);
        let half = |v: &[f32]| {
            let v: Vec<f16> = v.iter().map(|v| f16::from_f32(*v)).collect();
            t(&v, [1, v.len(), 1, 1])
        };
        vec![
            Sample::new(grad(1.0, false, false), exact(4.0f32.ln(), of(&[1.0]), quarters())).gives(vec![
                of(&[0.75 * ln3]),
                of(&[-0.75, 0.75]),
                of(&[0.25, 0.75]),
            ]),
            Sample::new(grad(2.0, false, false), exact(10.0f32.ln(), of(&[1.0]), quarters())).gives(vec![
                of(&[0.72 * ln3]),
                of(&[-0.72, 0.72]),
                of(&[0.1, 0.9]),
            ]),
            // a query that sees nothing
            Sample::new(
                grad(1.0, false, false),
                exact(f32::NEG_INFINITY, of(&[1.0]), masked(quarters(), &[false; 2], &[2])),
            )
            .gives(vec![of(&[0.0]), of(&[0.0; 2]), of(&[0.0; 2])])
            .no_grad("nothing moves"),
            Sample::new(grad(1.0, false, false), exact(2.0f32.ln(), half(&[1.0]), halves()))
                .gives(vec![half(&[0.0]), half(&[0.0, 0.0]), half(&[0.5, 0.5])])
                .no_grad("f16"),
            Sample::new(grad(0.6, false, true), given(vec![wave(&[2, 3, 3, 2, 2], 0)])),
            Sample::new(grad(0.6, true, true), given(vec![wave(&[1, 4, 3, 1, 3], 4)])),
            Sample::new(
                grad(0.6, false, true),
                given(vec![wave(&[2, 2, 3, 2, 2], 3)])
                    .into_iter()
                    .chain([t(&[true, true, false, true], [2, 1, 1, 2])])
                    .collect(),
            ),
            Sample::new(grad(0.7, false, false), given(heads([1, 2], [3, 4], [2, 3]))),
            Sample::new(grad(0.7, true, false), given(heads([1, 1], [4, 3], [3, 2]))),
            Sample::new(grad(0.7, true, false), given(heads([1, 1], [2, 4], [3, 2]))),
            Sample::new(grad(0.3, true, false), given(heads([1, 2], [70, 75], [9, 17])))
                .no_grad("the smaller ones check it"),
            Sample::new(grad(0.3, false, true), given(vec![wave(&[2, 37, 3, 1, 5], 0)]))
                .no_grad("the smaller ones check it"),
            Sample::new(grad(1.0, false, false), given(heads([1, 1], [2, 0], [1, 1]))).no_grad("empty"),
            Sample::new(grad(1.0, false, false), given(heads([1, 1], [0, 2], [1, 1])))
                .gives(vec![t::<f32>(&[], [1, 0, 1, 1]), of(&[0.0; 2]), of(&[0.0; 2])])
                .no_grad("empty"),
            Sample::new(grad(1.0, false, false), quarters()[..1].to_vec()).fails(ErrorKind::Arity),
            Sample::new(grad(1.0, false, false), exact(0.0, of(&[1.0, 2.0]), quarters())).fails(ErrorKind::Shape),
            Sample::new(grad(1.0, false, false), exact(0.0, t(&[1.0f64], [1, 1, 1, 1]), quarters()))
                .fails(ErrorKind::DType),
            Sample::new(grad(1.0, false, false), [vec![of(&[1.0]), of(&[1.0])], quarters()].concat())
                .fails(ErrorKind::Shape),
        ]
        .into_iter()
        .chain(forms().into_iter().map(|(of, x)| Sample::new(AttentionGrad { of }, given(x))))
        .collect()
    }
}
