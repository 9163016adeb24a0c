//! Samples of both ops.

use remat_types::{ErrorKind, HostTensor};

use super::{CellKind, Recurrent, RecurrentGrad};
use crate::sample::t;
use crate::{OpDef, Sample};
use CellKind::{Gru, Lstm, RnnRelu, RnnTanh};

fn wave(shape: &[usize], from: usize) -> HostTensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (from..from + n).map(|i| 0.8 * (i as f32 * 1.7).sin() + 0.05 * (i % 3) as f32).collect();
    t(&data, shape)
}

fn plain(cell: CellKind) -> Recurrent {
    Recurrent { bias: false, ..Recurrent::new(cell) }
}

/// Everything but a projection.
fn full(cell: CellKind) -> Recurrent {
    Recurrent { initial: true, lengths: true, keep: true, ..Recurrent::new(cell) }
}

/// Inputs of `op`: `i` numbers, `n` states, `p` outputs, and these lengths.
fn inputs(op: &Recurrent, [steps, batch, i, n, p]: [usize; 5], lengths: &[i64]) -> Vec<HostTensor> {
    let rows = op.cell.gates() * n;
    let mut x = vec![wave(&[steps, batch, i], 0), wave(&[rows, i], 3), wave(&[rows, p], 8)];
    if op.initial {
        x.push(wave(&[batch, p], 13));
        if op.cell == Lstm {
            x.push(wave(&[batch, n], 21));
        }
    }
    if op.bias {
        x.extend([wave(&[rows], 30), wave(&[rows], 41)]);
    }
    if op.project {
        x.push(wave(&[p, n], 50));
    }
    if op.lengths {
        x.push(t(lengths, [batch]));
    }
    x
}

fn sample(op: Recurrent, sizes: [usize; 5], lengths: &[i64]) -> Sample<Recurrent> {
    let x = inputs(&op, sizes, lengths);
    Sample::new(op, x)
}

/// As [`sample`], without a check of the gradient.
fn wide(op: Recurrent, sizes: [usize; 5], lengths: &[i64]) -> Sample<Recurrent> {
    sample(op, sizes, lengths).no_grad("the smaller ones check it")
}

impl OpDef for Recurrent {
    const NAME: &'static str = "recurrent";

    fn samples() -> Vec<Sample<Self>> {
        let x = |v: &[f32]| t(v, [v.len(), 1, 1]);
        let w = |v: &[f32]| t(v, [v.len(), 1]);
        let (ln3, zeros) = (3.0f32.ln(), [0.0f32; 4]);
        // gates of one half, one quarter or three quarters; tanh(ln 3) is 4/5, that of half of it 1/2
        let half = ln3 / 2.0;
        let with =
            |cell: CellKind, sizes: [usize; 5]| sample(Recurrent { initial: true, ..Recurrent::new(cell) }, sizes, &[]);
        let reversed = |op: Recurrent| Recurrent { reverse: true, ..op };
        let projected = |op: Recurrent| Recurrent { project: true, ..op };
        let mut all = vec![
            Sample::new(plain(RnnTanh), vec![x(&[ln3, 0.0]), w(&[1.0]), w(&[0.0])])
                .gives(vec![x(&[0.8, 0.0]), t(&[0.0f32], [1, 1])])
                .grad_of(&[0, 1]),
            // a kink: the slope at 0 is 0
            Sample::new(plain(RnnRelu), vec![x(&[1.0, -2.0, 0.0]), w(&[1.0]), w(&[2.0])])
                .gives(vec![x(&[1.0, 0.0, 0.0]), t(&[0.0f32], [1, 1])])
                .no_grad("a kink"),
            Sample::new(reversed(plain(RnnRelu)), vec![x(&[1.0, -2.0, 3.0]), w(&[1.0]), w(&[2.0])])
                .gives(vec![x(&[9.0, 4.0, 3.0]), t(&[9.0f32], [1, 1])]),
            // o, i and f are one half; g is 4/5 and then 0
            Sample::new(
                Recurrent { keep: true, ..plain(Lstm) },
                vec![x(&[ln3, 0.0]), w(&[0.0, 0.0, 1.0, 0.0]), w(&zeros)],
            )
            .gives(vec![
                x(&[0.5 * 0.4f32.tanh(), 0.5 * 0.2f32.tanh()]),
                t(&[0.5 * 0.2f32.tanh()], [1, 1]),
                t(&[0.2f32], [1, 1]),
                t(&[0.5f32, 0.5, 0.8, 0.5, 0.5, 0.5, 0.0, 0.5], [2, 1, 4]),
                t(&[0.4f32, 0.2], [2, 1, 1]),
            ])
            .grad_of(&[0]),
            // z is one quarter, r one half of what the state adds; n = tanh(ln 3 / 2)
            Sample::new(
                Recurrent { initial: true, keep: true, ..Recurrent::new(Gru) },
                vec![
                    x(&[0.0]),
                    w(&[0.0; 3]),
                    w(&[0.0; 3]),
                    t(&[2.0f32], [1, 1]),
                    t(&[0.0f32, -ln3, 0.0], [3]),
                    t(&[0.0f32, 0.0, ln3], [3]),
                ],
            )
            .gives(vec![x(&[0.875]), t(&[0.875f32], [1, 1]), t(&[half.tanh(), 0.5, 0.25, ln3], [1, 1, 4])])
            .grad_of(&[3, 4, 5]),
            // a row without a step keeps its state
            Sample::new(
                Recurrent { initial: true, lengths: true, ..plain(RnnRelu) },
                vec![t(&[1.0f32; 6], [3, 2, 1]), w(&[1.0]), w(&[1.0]), t(&[7.0f32, 1.0], [2, 1]), t(&[0i64, 2], [2])],
            )
            .gives(vec![t(&[0.0f32, 2.0, 0.0, 3.0, 0.0, 0.0], [3, 2, 1]), t(&[7.0f32, 3.0], [2, 1])]),
            // backwards it begins at its own last step
            Sample::new(
                Recurrent { reverse: true, initial: true, lengths: true, ..plain(RnnRelu) },
                vec![t(&[1.0f32; 6], [3, 2, 1]), w(&[1.0]), w(&[1.0]), t(&[7.0f32, 1.0], [2, 1]), t(&[1i64, 3], [2])],
            )
            .gives(vec![t(&[8.0f32, 4.0, 0.0, 3.0, 0.0, 2.0], [3, 2, 1]), t(&[8.0f32, 4.0], [2, 1])]),
        ];
        for cell in [RnnTanh, RnnRelu, Lstm, Gru] {
            all.extend([
                with(cell, [2, 1, 2, 2, 2]),
                sample(full(cell), [3, 2, 1, 2, 2], &[1, 3]),
                sample(reversed(full(cell)), [3, 2, 1, 2, 2], &[3, 2]),
                sample(reversed(plain(cell)), [2, 2, 1, 2, 2], &[]),
                // more rows than a tile, no whole vectors; two parts
                wide(full(cell), [4, 19, 5, 21, 21], &[4, 0, 1, 2, 4, 3, 2, 1, 4, 4, 3, 1, 2, 0, 4, 2, 3, 1, 4]),
            ]);
        }
        all.extend([
            sample(projected(full(Lstm)), [3, 2, 1, 2, 1], &[3, 2]),
            sample(reversed(projected(plain(Lstm))), [2, 1, 2, 3, 2], &[]),
            wide(projected(full(Lstm)), [2, 9, 3, 17, 5], &[2, 1, 0, 2, 2, 1, 0, 2, 1]),
        ]);
        let x = || inputs(&full(Lstm), [3, 2, 1, 2, 2], &[1, 3]);
        let changed = |at: usize, to: HostTensor| {
            let mut x = x();
            x[at] = to;
            Sample::new(full(Lstm), x)
        };
        all.extend([
            changed(7, t(&[1i64, 4], [2])).fails(ErrorKind::Index),
            changed(7, t(&[-1i64, 1], [2])).fails(ErrorKind::Index),
            changed(7, t(&[1i32, 1], [2])).fails(ErrorKind::DType),
            changed(7, t(&[1i64], [1])).fails(ErrorKind::Shape),
            changed(1, wave(&[8, 2], 0)).fails(ErrorKind::Shape),
            changed(2, wave(&[8, 1], 0)).fails(ErrorKind::Shape),
            changed(2, wave(&[7, 2], 0)).fails(ErrorKind::Shape),
            changed(3, wave(&[2], 0)).fails(ErrorKind::Axis),
            changed(5, t(&[0.0f64; 8], [8])).fails(ErrorKind::DType),
            Sample::new(full(Lstm), x()[..7].to_vec()).fails(ErrorKind::Arity),
            Sample::new(plain(RnnTanh), vec![t(&[1i32], [1, 1, 1]); 3]).fails(ErrorKind::DType),
            Sample::new(projected(plain(Gru)), inputs(&projected(plain(Gru)), [1, 1, 1, 2, 1], &[]))
                .fails(ErrorKind::Value),
        ]);
        all
    }
}

/// Inputs of the gradient of `op`.
fn of_gradient(op: &Recurrent, [steps, batch, n, p]: [usize; 4], lengths: &[i64]) -> Vec<HostTensor> {
    let is_lstm = op.cell == Lstm;
    let mut x = vec![wave(&[steps, batch, p], 2), wave(&[batch, p], 9)];
    if is_lstm {
        x.push(wave(&[batch, n], 17));
    }
    x.push(wave(&[op.cell.gates() * n, p], 8));
    if op.cell.kept() > 0 {
        x.push(wave(&[steps, batch, 4 * n], 33));
    }
    x.push(wave(&[steps, batch, if is_lstm { n } else { p }], 70));
    if op.initial && op.cell.kept() > 0 {
        x.push(wave(&[batch, if is_lstm { n } else { p }], 91));
    }
    if op.project {
        x.push(wave(&[p, n], 50));
    }
    if op.lengths {
        x.push(t(lengths, [batch]));
    }
    x
}

impl OpDef for RecurrentGrad {
    const NAME: &'static str = "recurrent_grad";

    fn samples() -> Vec<Sample<Self>> {
        let sample = |of: Recurrent, sizes: [usize; 4], lengths: &[i64]| {
            let x = of_gradient(&of, sizes, lengths);
            Sample::new(RecurrentGrad { of }, x)
        };
        let one = |v: f32| t(&[v], [1, 1]);
        let reversed = |op: Recurrent| Recurrent { reverse: true, ..op };
        let all_of = |cell: CellKind| Recurrent { keep: false, ..full(cell) };
        let mut all = vec![
            // through two steps of slope 3/4 and weight 2
            Sample::new(
                RecurrentGrad { of: plain(RnnTanh) },
                vec![t(&[1.0f32, 1.0], [2, 1, 1]), one(3.0), one(2.0), t(&[0.5f32, 0.5], [2, 1, 1])],
            )
            .gives(vec![t(&[5.25f32, 3.0], [2, 1, 1]), one(10.5)]),
            // the kink has slope 0
            Sample::new(
                RecurrentGrad { of: plain(RnnRelu) },
                vec![t(&[1.0f32, 1.0], [2, 1, 1]), one(3.0), one(2.0), t(&[0.0f32, 0.5], [2, 1, 1])],
            )
            .gives(vec![t(&[0.0f32, 4.0], [2, 1, 1]), one(0.0)])
            .no_grad("a kink"),
        ];
        for cell in [RnnTanh, Lstm, Gru] {
            all.extend([
                sample(plain(cell), [2, 1, 2, 2], &[]),
                sample(all_of(cell), [3, 2, 2, 2], &[1, 3]),
                sample(reversed(all_of(cell)), [3, 2, 1, 1], &[3, 2]),
                sample(all_of(cell), [3, 9, 17, 17], &[3, 0, 1, 2, 3, 3, 2, 1, 3]).no_grad("the smaller ones check it"),
            ]);
        }
        let projected = Recurrent { project: true, ..all_of(Lstm) };
        all.extend([sample(projected.clone(), [2, 2, 2, 1], &[2, 1]), sample(reversed(projected), [2, 1, 3, 2], &[2])]);
        let changed = |at: usize, to: HostTensor| {
            let mut x = of_gradient(&all_of(Lstm), [3, 2, 2, 2], &[1, 3]);
            x[at] = to;
            Sample::new(RecurrentGrad { of: all_of(Lstm) }, x)
        };
        all.extend([
            changed(7, t(&[1i64, 4], [2])).fails(ErrorKind::Index),
            changed(7, t(&[1i32, 1], [2])).fails(ErrorKind::DType),
            changed(4, wave(&[3, 2, 6], 0)).fails(ErrorKind::Shape),
            changed(3, wave(&[8, 1], 0)).fails(ErrorKind::Shape),
            changed(1, t(&[0.0f64; 4], [2, 2])).fails(ErrorKind::DType),
            Sample::new(RecurrentGrad { of: plain(RnnTanh) }, vec![one(1.0); 3]).fails(ErrorKind::Arity),
        ]);
        all
    }
}
