//! Recurrent layers and cells: names, shapes and numbers of parameters, shapes of what comes out, layers beside cells.

use remat_nn::*;
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{DType, ErrorKind};

use crate::support::{assert_close, cpu, tensor, values, wave32};

fn input(d: &Device, shape: &[usize]) -> Tensor {
    tensor(d, &wave32(shape.iter().product(), 0.4), shape)
}

fn names(m: &dyn Module) -> Vec<(String, Vec<usize>)> {
    m.named_parameters().into_iter().map(|(name, p)| (name, p.shape().dims().to_vec())).collect()
}

#[test]
fn parameters_have_the_names_and_shapes_of_pytorch() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    let o = LstmOptions { num_layers: 2, bidirectional: true, proj_size: Some(3), ..LstmOptions::default() };
    let lstm = Lstm::with(cx, 5, 4, o).expect("fits");
    let mut want = Vec::new();
    for (layer, inputs) in [(0, 5), (1, 6)] {
        for side in ["", "_reverse"] {
            want.extend([
                (format!("weight_ih_l{layer}{side}"), vec![16, inputs]),
                (format!("weight_hh_l{layer}{side}"), vec![16, 3]),
                (format!("bias_ih_l{layer}{side}"), vec![16]),
                (format!("bias_hh_l{layer}{side}"), vec![16]),
                (format!("weight_hr_l{layer}{side}"), vec![3, 4]),
            ]);
        }
    }
    assert_eq!(names(&lstm), want);
    let gru = Gru::new(cx, 5, 4).expect("fits");
    assert_eq!(gru.parameter_count(), 12 * (5 + 4 + 2));
    let rnn = Rnn::with(cx, 5, 4, RnnOptions { bias: false, num_layers: 3, ..RnnOptions::default() }).expect("fits");
    assert_eq!(rnn.parameter_count(), 4 * (5 + 4 + 2 * (4 + 4)));
    let cell = LstmCell::new(cx, 5, 4).expect("fits");
    let want = [("weight_ih", vec![16, 5]), ("weight_hh", vec![16, 4]), ("bias_ih", vec![16]), ("bias_hh", vec![16])];
    assert_eq!(names(&cell), want.map(|(name, shape)| (name.to_string(), shape)));
    let bound = 1.0 / 4f64.sqrt();
    let all: Vec<f64> = lstm.parameters().iter().flat_map(|p| values(&p.get().expect("a value"))).collect();
    assert!(all.iter().all(|v| v.abs() <= bound), "uniform within 1 / sqrt hidden");
    assert!(all.iter().any(|v| *v > 0.9 * bound) && all.iter().any(|v| *v < -0.9 * bound));
}

#[test]
fn outputs_and_states_have_their_shapes() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    let o = LstmOptions { num_layers: 2, bidirectional: true, proj_size: Some(3), ..LstmOptions::default() };
    let lstm = Lstm::with(cx, 5, 4, o).expect("fits");
    let (y, [h, c]) = lstm.forward_with(&input(&d, &[7, 2, 5]), None, None).expect("fits");
    assert_eq!((y.dims(), h.dims(), c.dims()), (&[7, 2, 6][..], &[4, 2, 3][..], &[4, 2, 4][..]));
    let (y, [h, c]) = lstm.forward_with(&input(&d, &[7, 5]), None, None).expect("no batch");
    assert_eq!((y.dims(), h.dims(), c.dims()), (&[7, 6][..], &[4, 3][..], &[4, 4][..]));
    let (_, [again, _]) = lstm.forward_with(&input(&d, &[7, 5]), Some([&h, &c]), None).expect("no batch");
    assert_eq!(again.dims(), [4, 3]);
    let o = GruOptions { batch_first: true, ..GruOptions::default() };
    let gru = Gru::with(cx, 5, 4, o).expect("fits");
    let (y, h) = gru.forward_with(&input(&d, &[2, 7, 5]), None, None).expect("fits");
    assert_eq!((y.dims(), h.dims()), (&[2, 7, 4][..], &[1, 2, 4][..]));
    assert_eq!(values(&y.select(1, -1).expect("a step")), values(&h.select(0, 0).expect("a layer")));
    assert_eq!(gru.forward(&input(&d, &[0, 7, 5])).expect("no rows").dims(), [0, 7, 4]);
    let half = Gru::new(&mut InitCx::new(&d, 1).with_dtype(DType::F16), 5, 4).expect("fits");
    let x = input(&d, &[3, 2, 5]).cast(DType::F16).expect("a float");
    assert_eq!(half.forward(&x).expect("computed in f32").dtype(), DType::F16);
}

#[test]
fn cells_give_what_layers_give_step_by_step() {
    let d = cpu();
    let (lstm, cell) = (
        Lstm::new(&mut InitCx::new(&d, 3), 5, 4).expect("fits"),
        LstmCell::new(&mut InitCx::new(&d, 3), 5, 4).expect("fits"),
    );
    let x = input(&d, &[6, 3, 5]);
    let (y, [h, c]) = lstm.forward_with(&x, None, None).expect("fits");
    let mut state: Option<[Tensor; 2]> = None;
    for t in 0..6 {
        let first = state.as_ref().map(|[h, c]| [h, c]);
        let next = cell.forward(&x.select(0, t).expect("a step"), first).expect("fits");
        assert_close(&values(&next[0]), &values(&y.select(0, t).expect("a step")), 1e-6);
        state = Some(next);
    }
    let [last_h, last_c] = state.expect("six steps");
    assert_close(&values(&last_h), &values(&h), 1e-6);
    assert_close(&values(&last_c), &values(&c), 1e-6);
}

#[test]
fn a_short_row_is_as_if_it_were_alone() {
    let d = cpu();
    let o = GruOptions { num_layers: 2, bidirectional: true, ..GruOptions::default() };
    let gru = Gru::with(&mut InitCx::new(&d, 5), 3, 4, o).expect("fits");
    let x = input(&d, &[5, 2, 3]);
    let lengths = Tensor::new(&d, &[5i64, 2], [2]).expect("fits");
    let (y, h) = gru.forward_with(&x, None, Some(&lengths)).expect("fits");
    let row = |t: &Tensor, row: isize| t.select(1, row).expect("a row");
    let short = row(&x, 1).split(&[2, 3], 0).expect("five steps").remove(0);
    let (alone, last) = gru.forward_with(&short, None, None).expect("fits");
    let parts = row(&y, 1).split(&[2, 3], 0).expect("five steps");
    assert_close(&values(&parts[0]), &values(&alone), 1e-6);
    assert!(values(&parts[1]).iter().all(|v| *v == 0.0));
    assert_close(&values(&row(&h, 1)), &values(&last), 1e-6);
    let bad = Tensor::new(&d, &[5i64, 6], [2]).expect("fits");
    let e = gru.forward_with(&x, None, Some(&bad)).and_then(|(y, _)| y.to_host()).expect_err("beyond the last step");
    assert_eq!(e.kind(), ErrorKind::Index);
}

#[test]
fn what_does_not_fit_is_refused() {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 1);
    let refused = |o: LstmOptions| Lstm::with(&mut InitCx::new(&d, 1), 3, 4, o).err().expect("refused").kind();
    assert_eq!(refused(LstmOptions { num_layers: 0, ..LstmOptions::default() }), ErrorKind::Value);
    assert_eq!(refused(LstmOptions { proj_size: Some(4), ..LstmOptions::default() }), ErrorKind::Value);
    assert_eq!(refused(LstmOptions { dropout: 1.5, ..LstmOptions::default() }), ErrorKind::Value);
    assert_eq!(Gru::new(cx, 3, 0).err().expect("refused").kind(), ErrorKind::Value);
    let lstm = Lstm::new(cx, 3, 4).expect("fits");
    assert_eq!(lstm.forward(&input(&d, &[5, 2, 2])).expect_err("two inputs").kind(), ErrorKind::Shape);
    assert_eq!(lstm.forward(&input(&d, &[3])).expect_err("rank 1").kind(), ErrorKind::Axis);
    let h = input(&d, &[2, 2, 4]);
    let e = lstm.forward_with(&input(&d, &[5, 2, 3]), Some([&h, &h]), None).expect_err("states of two layers");
    assert_eq!(e.kind(), ErrorKind::Shape);
    let cell = RnnCell::new(cx, 3, 4).expect("fits");
    assert_eq!(cell.forward(&input(&d, &[5, 2, 3]), None).expect_err("rank 3").kind(), ErrorKind::Axis);
}

#[test]
fn dropout_is_between_layers_and_only_while_training() {
    let d = cpu();
    let of = |layers: usize| {
        let o = RnnOptions { num_layers: layers, dropout: 0.5, ..RnnOptions::default() };
        Rnn::with(&mut InitCx::new(&d, 1), 3, 16, o).expect("fits")
    };
    let x = input(&d, &[4, 2, 3]);
    let twice = |rnn: &Rnn| [0, 1].map(|_| values(&rnn.forward(&x).expect("fits")));
    let [a, b] = twice(&of(1));
    assert_eq!(a, b, "behind the last layer nothing is dropped");
    let two = of(2);
    let [a, b] = twice(&two);
    assert_ne!(a, b);
    two.eval();
    let [a, b] = twice(&two);
    assert_eq!(a, b);
}
