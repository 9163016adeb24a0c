//! Both passes beside plain loops, and central differences.

use super::{
    Backward, Cell, Forward, Lengths, Sequence, backward, backward_workspace_bytes, forward, forward_workspace_bytes,
};
use crate::pool::Pool;

/// Numbers within -1 ..= 1.
fn wave(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f64 / 504.0 - 1.0).collect()
}

#[derive(Clone)]
struct Layer {
    s: Sequence,
    x: Vec<f64>,
    w_ih: Vec<f64>,
    w_hh: Vec<f64>,
    bias: [Vec<f64>; 2],
    w_hr: Option<Vec<f64>>,
    lengths: Option<Vec<i64>>,
    h0: Vec<f64>,
    c0: Vec<f64>,
}

/// The outputs of the forward pass.
#[derive(PartialEq, Debug, Clone)]
struct Outputs {
    y: Vec<f64>,
    h: Vec<f64>,
    c: Vec<f64>,
    gates: Vec<f64>,
    cells: Vec<f64>,
}

impl Layer {
    fn new(cell: Cell, [steps, batch, inputs, hidden]: [usize; 4], width: Option<usize>, reverse: bool) -> Layer {
        let projects = width.is_some();
        let width = width.unwrap_or(hidden);
        let rows = cell.gates() * hidden;
        let small = |len: usize, seed: usize| wave(len, seed).iter().map(|v| v * 0.7).collect::<Vec<_>>();
        Layer {
            s: Sequence { cell, steps, batch, inputs, hidden, width, reverse },
            x: wave(steps * batch * inputs, 1),
            w_ih: small(rows * inputs, 2),
            w_hh: small(rows * width, 3),
            bias: [small(rows, 4), small(rows, 5)],
            w_hr: projects.then(|| small(width * hidden, 6)),
            lengths: None,
            h0: wave(batch * width, 7),
            c0: wave(if cell == Cell::Lstm { batch * hidden } else { 0 }, 8),
        }
    }

    fn run(&self, threads: usize, keeps: bool) -> Outputs {
        let s = &self.s;
        let rows = s.steps * s.batch;
        let x = Forward {
            x: &self.x,
            w_ih: &self.w_ih,
            w_hh: &self.w_hh,
            bias: Some([&self.bias[0], &self.bias[1]]),
            w_hr: self.w_hr.as_deref(),
            lengths: Lengths(self.lengths.as_deref()),
        };
        let cells = if s.cell == Cell::Lstm { rows * s.hidden } else { 0 };
        let mut o = Outputs {
            y: vec![f64::NAN; rows * s.width],
            h: self.h0.clone(),
            c: self.c0.clone(),
            gates: vec![f64::NAN; rows * s.columns()],
            cells: vec![f64::NAN; cells],
        };
        let mut workspace = vec![0xa5; forward_workspace_bytes::<f64>(s, keeps, self.w_hr.is_some(), threads)];
        let kept = keeps.then_some([&mut o.gates[..], &mut o.cells[..]]);
        forward(&Pool::new(threads), s, &x, [&mut o.h, &mut o.c], &mut o.y, kept, &mut workspace);
        o
    }

    /// As PyTorch's documentation writes the cells.
    fn plain(&self) -> Outputs {
        let Sequence { cell, steps, batch, inputs, hidden: n, width, .. } = self.s;
        let mut o = Outputs {
            y: vec![0.0; steps * batch * width],
            h: self.h0.clone(),
            c: self.c0.clone(),
            gates: Vec::new(),
            cells: Vec::new(),
        };
        let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
        for (t, b) in (0..steps).map(|i| self.s.step(i)).flat_map(|t| (0..batch).map(move |b| (t, b))) {
            if self.lengths.as_ref().is_some_and(|l| t as i64 >= l[b]) {
                continue;
            }
            let h = o.h[b * width..][..width].to_vec();
            let x = &self.x[(t * batch + b) * inputs..][..inputs];
            let dot = |w: &[f64], r: usize, v: &[f64]| -> f64 {
                w[r * v.len()..][..v.len()].iter().zip(v).map(|(a, b)| a * b).sum()
            };
            let of_x = |r: usize| dot(&self.w_ih, r, x) + self.bias[0][r];
            let of_h = |r: usize| dot(&self.w_hh, r, &h) + self.bias[1][r];
            let mut m = vec![0.0; n];
            for (j, m) in m.iter_mut().enumerate() {
                let sum = |k: usize| of_x(k * n + j) + of_h(k * n + j);
                *m = match cell {
                    Cell::Tanh => sum(0).tanh(),
                    Cell::Relu => sum(0).max(0.0),
                    Cell::Lstm => {
                        let c = &mut o.c[b * n + j];
                        *c = sigmoid(sum(1)) * *c + sigmoid(sum(0)) * sum(2).tanh();
                        sigmoid(sum(3)) * c.tanh()
                    }
                    Cell::Gru => {
                        let (r, z) = (sigmoid(sum(0)), sigmoid(sum(1)));
                        let new = (of_x(2 * n + j) + r * of_h(2 * n + j)).tanh();
                        (1.0 - z) * new + z * h[j]
                    }
                };
            }
            let out: Vec<f64> = match &self.w_hr {
                Some(w) => (0..width).map(|p| dot(w, p, &m)).collect(),
                None => m,
            };
            o.h[b * width..][..width].copy_from_slice(&out);
            o.y[(t * batch + b) * width..][..width].copy_from_slice(&out);
        }
        o
    }

    /// The gradients of the sums, `dh`, `dc` and `douts`, from cotangents of `y`, `h` and `c`.
    fn back(&self, o: &Outputs, [dy, dh, dc]: [&[f64]; 3], threads: usize) -> [Vec<f64>; 4] {
        let s = &self.s;
        let x = Backward {
            cells: &o.cells,
            y: &o.y,
            h0: Some(&self.h0),
            c0: Some(&self.c0),
            w_hh: &self.w_hh,
            w_hr: self.w_hr.as_deref(),
            lengths: Lengths(self.lengths.as_deref()),
            dy,
            dy_offset: 0,
            dy_strides: [(s.batch * s.width) as isize, s.width as isize, 1],
        };
        let rows = s.steps * s.batch;
        let mut dgates = if s.cell.keeps_gates() { o.gates.clone() } else { vec![f64::NAN; rows * s.columns()] };
        let (mut dh, mut dc) = (dh.to_vec(), dc.to_vec());
        let mut douts = vec![f64::NAN; if self.w_hr.is_some() { rows * s.width } else { 0 }];
        let mut workspace = vec![0xa5; backward_workspace_bytes::<f64>(s, self.w_hr.is_some(), threads)];
        backward(&Pool::new(threads), s, &x, &mut dgates, [&mut dh, &mut dc], &mut douts, &mut workspace);
        [dgates, dh, dc, douts]
    }
}

fn layers() -> Vec<Layer> {
    let mut all = Vec::new();
    for cell in [Cell::Tanh, Cell::Relu, Cell::Lstm, Cell::Gru] {
        for reverse in [false, true] {
            for sizes in
                [[3, 2, 2, 3], [5, 9, 3, 17], [1, 1, 4, 21], [2, 2, 3, 5], [2, 13, 5, 40], [1, 1, 1, 1], [3, 700, 2, 3]]
            {
                let layer = Layer::new(cell, sizes, None, reverse);
                let [steps, batch, ..] = sizes;
                let lengths = (0..batch).map(|b| ((b * 7 + 2) % (steps + 1)) as i64).collect();
                all.push(Layer { lengths: Some(lengths), ..layer.clone() });
                all.push(layer);
            }
        }
    }
    for reverse in [false, true] {
        let layer = Layer::new(Cell::Lstm, [4, 9, 3, 7], Some(3), reverse);
        all.push(Layer { lengths: Some((0..9).map(|b| (b * 3 + 1) % 5).collect()), ..layer.clone() });
        all.push(layer);
    }
    all.push(Layer::new(Cell::Lstm, [1, 2, 3, 7], Some(3), false));
    // more steps of `k` than a block has
    all.push(Layer::new(Cell::Gru, [2, 5, 3, 530], None, false));
    all
}

fn near(a: &[f64], b: &[f64], bound: f64) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= bound * a.abs().max(1.0))
}

#[test]
fn the_forward_pass_is_that_of_plain_loops() {
    for layer in layers() {
        let (got, want) = (layer.run(1, false), layer.plain());
        assert!(near(&got.y, &want.y, 1e-12), "{:?}", layer.s);
        assert!(near(&got.h, &want.h, 1e-12) && near(&got.c, &want.c, 1e-12), "{:?}", layer.s);
    }
}

#[test]
fn threads_and_what_is_kept_change_no_bit() {
    let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    for layer in layers() {
        let one = layer.run(1, true);
        for threads in [1, 2, 3] {
            let (all, some) = (layer.run(threads, true), layer.run(threads, false));
            assert!(bits(&all.gates) == bits(&one.gates) && bits(&all.cells) == bits(&one.cells), "{:?}", layer.s);
            for o in [&all, &some] {
                assert!(bits(&o.y) == bits(&one.y) && bits(&o.h) == bits(&one.h) && bits(&o.c) == bits(&one.c));
            }
        }
        let (dy, dh, dc) = (wave(one.y.len(), 9), wave(one.h.len(), 10), wave(one.c.len(), 11));
        let first = layer.back(&one, [&dy, &dh, &dc], 1);
        for threads in [2, 3] {
            let other = layer.back(&one, [&dy, &dh, &dc], threads);
            assert!(first.iter().zip(&other).all(|(a, b)| bits(a) == bits(b)), "{:?}", layer.s);
        }
    }
}

/// The gradients of inputs, initial states and recurrent weights, which follow from what the backward pass gives.
#[test]
fn the_backward_pass_agrees_with_central_differences() {
    const STEP: f64 = 1e-5;
    for layer in layers().into_iter().filter(|l| l.s.batch < 14 && l.s.hidden < 20) {
        let s = layer.s;
        let o = layer.run(1, true);
        let (dy, dh, dc) = (wave(o.y.len(), 9), wave(o.h.len(), 10), wave(o.c.len(), 11));
        let [dgates, dh0, dc0, _] = layer.back(&o, [&dy, &dh, &dc], 1);
        let loss = |l: &Layer| -> f64 {
            let o = l.run(1, false);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            dot(&o.y, &dy) + dot(&o.h, &dh) + dot(&o.c, &dc)
        };
        let check = |want: f64, change: &dyn Fn(&mut Layer, f64)| {
            let at = |step: f64| {
                let mut l = layer.clone();
                change(&mut l, step);
                loss(&l)
            };
            let got = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            assert!((got - want).abs() < 1e-6 * want.abs().max(1.0), "{got} for {want}, {s:?}");
        };
        (0..o.h.len().min(5)).for_each(|i| check(dh0[i], &|l, d| l.h0[i] += d));
        (0..o.c.len().min(5)).for_each(|i| check(dc0[i], &|l, d| l.c0[i] += d));
        // the gradient of an input: that of the gates times the weights
        for (row, j) in (0..s.steps * s.batch).step_by(3).map(|row| (row, row % s.inputs)) {
            let mut want = 0.0;
            for (rows, column) in super::forward::input_products(&s) {
                for (k, r) in rows.enumerate() {
                    want += dgates[row * s.columns() + column + k] * layer.w_ih[r * s.inputs + j];
                }
            }
            check(want, &|l, d| l.x[row * s.inputs + j] += d);
        }
        // that of a bias of the state: the sum over all rows
        for r in (0..s.gate_rows()).step_by(5) {
            let want = (0..s.steps * s.batch).map(|row| dgates[row * s.columns() + s.first_of_state() + r]).sum();
            check(want, &|l, d| l.bias[1][r] += d);
        }
    }
}

#[test]
fn functions_of_cells_are_within_three_units_in_the_last_place() {
    use super::Unit;
    let ulps = |got: f32, want: f64| (i64::from(got.to_bits()) - i64::from((want as f32).to_bits())).abs();
    let mut worst = [0; 2];
    for i in 0..400_000 {
        // down to numbers whose functions are themselves, up to where they are flat
        let x = (i as f32 * 1e-3 - 200.0) * if i % 3 == 0 { 1e-4 } else { 0.2 };
        let wide = f64::from(x);
        worst[0] = worst[0].max(ulps(x.hyperbolic_tangent(), wide.tanh()));
        worst[1] = worst[1].max(ulps(x.logistic(), 1.0 / (1.0 + (-wide).exp())));
    }
    assert!(worst.into_iter().all(|w| w <= 3), "{worst:?} units");
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    assert_eq!([inf, -inf, 0.0].map(Unit::hyperbolic_tangent), [1.0, -1.0, 0.0]);
    assert_eq!([inf, -inf, 0.0].map(Unit::logistic), [1.0, 0.0, 0.5]);
    assert!(nan.hyperbolic_tangent().is_nan() && nan.logistic().is_nan());
    assert!((-0.0f32).hyperbolic_tangent().is_sign_negative());
}
