use remat_linalg::Transform;
use remat_linalg::fft::workspace_bytes;
use remat_types::{DType, ErrorKind, Fact, Facts, Result, smallvec};

use super::{flops, pairs};
use crate::args::not_taken;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y_k = sum of x_j e^(-2 pi i j k / n)`, or of `e^(2 pi i j k / n)` if `inverse`: `x, y: [.., n, 2]`, pairs.
///
/// Errors: DType for other than f32 and f64; Axis; Shape for a last axis that is no pair.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct Fft {
    /// The other sign. The result is `n` times what inverts the transform.
    #[param(default = false)]
    pub inverse: bool,
}

impl Op for Fft {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        pairs(x[0])?;
        Ok(smallvec![x[0].clone()])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Transform + remat_types::Storage>(cx: &mut EvalCx<'_>, inverse: bool) -> Result<()> {
            let n = cx.x[0].shape()[cx.x[0].shape().rank() - 2];
            let y = cx.y[0].slice_mut::<T>()?;
            y.copy_from_slice(cx.x[0].slice::<T>()?);
            T::fft(n, y, inverse, cx.workspace);
            Ok(())
        }
        match cx.x[0].dtype() {
            DType::F32 => go::<f32>(cx, self.inverse),
            DType::F64 => go::<f64>(cx, self.inverse),
            other => Err(not_taken(other)),
        }
    }

    /// The matrix of the transform is symmetric: its adjoint is its conjugate.
    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(cx.apply(Fft { inverse: !self.inverse }, &[dy])?)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, n)) = pairs(x[0]) else { return 0 };
        if x[0].shape.contains(&0) {
            return 0;
        }
        if x[0].dtype == DType::F32 { workspace_bytes::<f32>(n) } else { workspace_bytes::<f64>(n) }
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let of = |(batch, n): (&[usize], usize)| batch.iter().product::<usize>() as u64 * flops(n);
        Cost::bytes(x, y).with_flops(pairs(x[0]).map_or(0, of))
    }
}

impl OpDef for Fft {
    const NAME: &'static str = "fft";

    fn samples() -> Vec<Sample<Self>> {
        let op = |inverse| Fft { inverse };
        let wave = |n: usize, rows: usize| {
            let data: Vec<f64> = (0..2 * n * rows).map(|i| (i as f64 * 1.7).sin() + 0.1 * (i % 3) as f64).collect();
            t(&data, [rows, n, 2])
        };
        // of 1, i, -1, -i the second coefficient is the sum, and of the inverse the fourth
        let turns = || t(&[1.0f32, 0., 0., 1., -1., 0., 0., -1.], [4, 2]);
        vec![
            Sample::new(op(false), vec![turns()]).gives(vec![t(&[0.0f32, 0., 4., 0., 0., 0., 0., 0.], [4, 2])]),
            Sample::new(op(true), vec![turns()]).gives(vec![t(&[0.0f32, 0., 0., 0., 0., 0., 4., 0.], [4, 2])]),
            Sample::new(op(false), vec![t(&[3.0f32, 4.0], [1, 2])]).gives(vec![t(&[3.0f32, 4.0], [1, 2])]),
            Sample::new(op(false), vec![wave(3, 2)]),
            Sample::new(op(true), vec![wave(7, 1)]),
            Sample::new(op(true), vec![wave(8, 2)]),
            Sample::new(op(false), vec![wave(34, 2)]).no_grad("the smaller ones check it"),
            Sample::new(op(false), vec![t::<f32>(&[], [3, 0, 2])]).gives(vec![t::<f32>(&[], [3, 0, 2])]),
            Sample::new(op(false), vec![t(&[1.0f32; 3], [1, 3])]).fails(ErrorKind::Shape),
            Sample::new(op(false), vec![t(&[1.0f32; 2], [2])]).fails(ErrorKind::Axis),
            Sample::new(op(false), vec![t(&[1i32; 2], [1, 2])]).fails(ErrorKind::DType),
        ]
    }
}
