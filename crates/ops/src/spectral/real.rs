use remat_linalg::Transform;
use remat_linalg::fft::workspace_bytes;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Scalar, Shape, smallvec};

use super::{flops, pairs, want_numbers};
use crate::args::{checked_fact, not_taken};
use crate::host::arity;
use crate::pointwise::{Arange, Compare, CompareFn, Where};
use crate::sample::t;
use crate::schema::Params;
use crate::shape::Reshape;
use crate::{Apply, Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample, Var};

/// The first `n / 2 + 1` numbers of the transform of `n` real ones, which tell the others: `x: [.., n]`,
/// `y: [.., n / 2 + 1, 2]`.
///
/// Errors: DType for other than f32 and f64; Axis; Shape for no numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct Rfft {}

/// `n` real numbers out of the first `n / 2 + 1` of their transform, times `n`: `x: [.., n / 2 + 1, 2]`, `y: [.., n]`.
///
/// The imaginary part of the first, and of the last if `n` is even, would not give real numbers and is not read. Errors: DType for
/// other than f32 and f64; Axis; Shape for a last axis that is no pair, no numbers, or another count of pairs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct Irfft {
    /// How many real numbers there are.
    pub n: usize,
}

/// `x: [.., n / 2 + 1, 2]` times `inner` where a number stands for itself and its conjugate, and unchanged at the ends that stand
/// alone.
fn weighted(cx: &GradCx<'_>, x: Var, n: usize, inner: f64) -> Result<Var> {
    let c = cx.build();
    let whole = |v: usize| cx.scalar(DType::I64, Scalar::Int(v as i64));
    let at = cx.apply(Arange { dtype: DType::I64, start: 0i64.into(), step: 1i64.into(), len: n / 2 + 1 }, &[])?;
    let twice = c.add(at, at)?;
    // 0 < 2 k < n: neither the first nor, of an even count, the last
    let behind = cx.apply(Compare { f: CompareFn::Gt }, &[twice, whole(0)?])?;
    let before = cx.apply(Compare { f: CompareFn::Lt }, &[twice, whole(n)?])?;
    let number = |v: f64| c.constant(v, &x);
    let inside = cx.apply(Where {}, &[before, number(inner)?, number(1.0)?])?;
    let factor = cx.apply(Where {}, &[behind, inside, number(1.0)?])?;
    let factor = cx.apply(Reshape { shape: [n / 2 + 1, 1].into() }, &[factor])?;
    c.mul(x, factor)
}

impl Op for Rfft {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_numbers(x[0], 1)?;
        let [batch @ .., n] = x[0].shape.dims() else { return Err(not_taken(x[0].dtype)) };
        if *n == 0 {
            return Err(Error::new(ErrorKind::Shape, format!("x has shape {}: no numbers to transform", x[0].shape)));
        }
        let shape: Shape = batch.iter().copied().chain([n / 2 + 1, 2]).collect();
        Ok(smallvec![checked_fact(x[0].dtype, shape)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Transform + remat_types::Storage>(cx: &mut EvalCx<'_>) -> Result<()> {
            let shape = cx.x[0].shape();
            T::rfft(shape[shape.rank() - 1], cx.x[0].slice()?, cx.y[0].slice_mut()?, cx.workspace);
            Ok(())
        }
        match cx.x[0].dtype() {
            DType::F32 => go::<f32>(cx),
            DType::F64 => go::<f64>(cx),
            other => Err(not_taken(other)),
        }
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let shape = cx.fact(cx.x(0)).shape;
        let n = shape[shape.rank() - 1];
        Ok(smallvec![Some(cx.apply(Irfft { n }, &[weighted(cx, dy, n, 0.5)?])?)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let n = x[0].shape.dims().last().copied().unwrap_or(0);
        if x[0].shape.contains(&0) {
            return 0;
        }
        if x[0].dtype == DType::F32 { workspace_bytes::<f32>(n) } else { workspace_bytes::<f64>(n) }
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let n = x[0].shape.dims().last().copied().unwrap_or(1).max(1);
        Cost::bytes(x, y).with_flops((x[0].shape.elems() / n) as u64 * flops(n) / 2)
    }
}

impl Op for Irfft {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let (batch, have) = pairs(x[0])?;
        if self.n == 0 || have != self.n / 2 + 1 {
            let text = format!("x has shape {}: {} real numbers need {} pairs", x[0].shape, self.n, self.n / 2 + 1);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let shape: Shape = batch.iter().copied().chain([self.n]).collect();
        Ok(smallvec![checked_fact(x[0].dtype, shape)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Transform + remat_types::Storage>(cx: &mut EvalCx<'_>, n: usize) -> Result<()> {
            T::irfft(n, cx.x[0].slice()?, cx.y[0].slice_mut()?, cx.workspace);
            Ok(())
        }
        match cx.x[0].dtype() {
            DType::F32 => go::<f32>(cx, self.n),
            DType::F64 => go::<f64>(cx, self.n),
            other => Err(not_taken(other)),
        }
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(weighted(cx, cx.apply(Rfft {}, &[dy])?, self.n, 2.0)?)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        if x[0].shape.contains(&0) {
            return 0;
        }
        if x[0].dtype == DType::F32 { workspace_bytes::<f32>(self.n) } else { workspace_bytes::<f64>(self.n) }
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let rows = y[0].shape.elems() / self.n.max(1);
        Cost::bytes(x, y).with_flops(rows as u64 * flops(self.n) / 2)
    }
}

fn wave(shape: &[usize]) -> remat_types::HostTensor {
    let n: usize = shape.iter().product();
    let data: Vec<f64> = (0..n).map(|i| (i as f64 * 1.7).sin() + 0.1 * (i % 3) as f64).collect();
    t(&data, shape)
}

impl OpDef for Rfft {
    const NAME: &'static str = "rfft";

    fn samples() -> Vec<Sample<Self>> {
        let op = Rfft {};
        vec![
            Sample::new(op.clone(), vec![t(&[1.0f32, 2., 3., 4.], [4])])
                .gives(vec![t(&[10.0f32, 0., -2., 2., -2., 0.], [3, 2])]),
            Sample::new(op.clone(), vec![t(&[1.0f64, 2., 4.], [3])])
                .gives(vec![t(&[7.0f64, 0., -2., 3f64.sqrt()], [2, 2])]),
            Sample::new(op.clone(), vec![t(&[5.0f32], [1])]).gives(vec![t(&[5.0f32, 0.], [1, 2])]),
            Sample::new(op.clone(), vec![wave(&[2, 6])]),
            Sample::new(op.clone(), vec![wave(&[2, 7])]),
            Sample::new(op.clone(), vec![wave(&[2])]),
            Sample::new(op.clone(), vec![wave(&[3, 50])]).no_grad("the smaller ones check it"),
            Sample::new(op.clone(), vec![t::<f32>(&[], [0, 4])]).gives(vec![t::<f32>(&[], [0, 3, 2])]),
            Sample::new(op.clone(), vec![t::<f32>(&[], [4, 0])]).fails(ErrorKind::Shape),
            Sample::new(op.clone(), vec![t(&[1.0f32], [])]).fails(ErrorKind::Axis),
            Sample::new(op, vec![t(&[1i64], [1])]).fails(ErrorKind::DType),
        ]
    }
}

impl OpDef for Irfft {
    const NAME: &'static str = "irfft";

    fn samples() -> Vec<Sample<Self>> {
        let op = |n| Irfft { n };
        vec![
            // imaginary parts that must be 0 are not read
            Sample::new(op(4), vec![t(&[10.0f32, 9., -2., 2., -2., 9.], [3, 2])])
                .gives(vec![t(&[4.0f32, 8., 12., 16.], [4])]),
            Sample::new(op(3), vec![t(&[7.0f64, 9., -2., 3f64.sqrt()], [2, 2])])
                .gives(vec![t(&[3.0f64, 6., 12.], [3])]),
            Sample::new(op(1), vec![t(&[5.0f32, 1.0], [1, 2])]).gives(vec![t(&[5.0f32], [1])]),
            Sample::new(op(6), vec![wave(&[2, 4, 2])]),
            Sample::new(op(7), vec![wave(&[2, 4, 2])]),
            Sample::new(op(4), vec![t::<f32>(&[], [0, 3, 2])]).gives(vec![t::<f32>(&[], [0, 4])]),
            Sample::new(op(0), vec![t::<f32>(&[1.0, 2.0], [1, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(4), vec![t(&[1.0f32; 4], [2, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(4), vec![t(&[1.0f32; 3], [1, 3])]).fails(ErrorKind::Shape),
            Sample::new(op(2), vec![t(&[1.0f32; 2], [2])]).fails(ErrorKind::Axis),
            Sample::new(op(2), vec![t(&[1u8; 4], [2, 2])]).fails(ErrorKind::DType),
        ]
    }
}
