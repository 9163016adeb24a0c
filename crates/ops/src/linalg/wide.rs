use remat_types::{DType, ErrorKind, Fact, Facts, Result, bf16, f16, smallvec};

use super::MatMul;
use super::matmul::{Sizes, product, transposed};
use crate::args::{checked_fact, not_taken, want_dtype};
use crate::host::arity;
use crate::pointwise::Cast;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample, Var};

/// [`MatMul`] with a result of the type that it is summed in: f32 for f16 and bf16, i32 for i8, u8 and i16, and the type
/// itself for f32, f64, i32 and i64.
///
/// `a: [.., m, k]`, `b: [.., k, n]`, `y: [.., m, n]`; the leading axes broadcast. Sums of integers wrap around. Gradients
/// are computed in the type of `y` and rounded to that of the inputs.
///
/// Errors: those of [`MatMul`]; DType also for u16, u32 and u64.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: number, b: number), gradient(a, b))]
pub struct MatMulWide {}

/// The type of the sums. Errors: DType.
fn sum_type(dtype: DType) -> Result<DType> {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => Ok(DType::F32),
        DType::I8 | DType::U8 | DType::I16 | DType::I32 => Ok(DType::I32),
        DType::F64 | DType::I64 => Ok(dtype),
        _ => Err(not_taken(dtype)),
    }
}

/// The gradient of one input: `product` of `dy` and the other one, which is widened, summed and rounded to this one's type.
fn grad_of(cx: &GradCx<'_>, input: usize, dy: Var) -> Result<Var> {
    let (fact, wide) = (cx.fact(cx.x(input)), cx.fact(dy).dtype);
    let other = cx.apply(Cast { dtype: wide }, &[cx.x(1 - input)])?;
    let other = transposed(cx, other)?;
    let pair = if input == 0 { [dy, other] } else { [other, dy] };
    let dx = cx.build().sum_to(cx.apply(MatMul {}, &pair)?, &fact.shape)?;
    cx.apply(Cast { dtype: fact.dtype }, &[dx])
}

impl Op for MatMulWide {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let dtype = sum_type(x[0].dtype)?;
        want_dtype(x[1], x[0].dtype, "the second input")?;
        Ok(smallvec![checked_fact(dtype, Sizes::of(&x[0].shape, &x[1].shape)?.shape())?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        match dtype {
            DType::F16 => product::<f16, f32>(cx),
            DType::BF16 => product::<bf16, f32>(cx),
            DType::F32 => product::<f32, f32>(cx),
            DType::F64 => product::<f64, f64>(cx),
            DType::I8 => product::<i8, i32>(cx),
            DType::U8 => product::<u8, i32>(cx),
            DType::I16 => product::<i16, i32>(cx),
            DType::I32 => product::<i32, i32>(cx),
            DType::I64 => product::<i64, i64>(cx),
            _ => Err(not_taken(dtype)),
        }
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let grad = |input| cx.needs(input).then(|| grad_of(cx, input, dy)).transpose();
        Ok(smallvec![grad(0)?, grad(1)?])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        // the workspace of a product does not depend on the dtype of its result
        MatMul {}.workspace(x, threads)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        MatMul {}.cost(x, y)
    }
}

impl OpDef for MatMulWide {
    const NAME: &'static str = "matmul_wide";

    fn samples() -> Vec<Sample<Self>> {
        let op = || MatMulWide {};
        let wave = |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32 * 0.37).sin() + 0.1).collect() };
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let half = |v: &[f32]| v.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>();
        let brain = |v: &[f32]| v.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>();
        let small = |n: usize| (0..n).map(|i| (i * 89 % 256) as u8 as i8).collect::<Vec<i8>>();
        vec![
            // what f16 and i8 cannot hold
            Sample::new(op(), vec![t(&half(&[1.0, 2048.0]), [1, 2]), t(&half(&[1.0, 1.0]), [2, 1])])
                .gives(vec![t(&[2049.0f32], [1, 1])])
                .no_grad("halves are no f64; the wider types check it"),
            Sample::new(op(), vec![t(&brain(&[256.0, 1.0]), [1, 2]), t(&brain(&[1.0, 1.0]), [2, 1])])
                .gives(vec![t(&[257.0f32], [1, 1])])
                .no_grad("halves are no f64; the wider types check it"),
            Sample::new(op(), vec![t(&[-128i8, 100], [1, 2]), t(&[-128i8, 2], [2, 1])])
                .gives(vec![t(&[16_584i32], [1, 1])])
                .no_grad("integers"),
            Sample::new(op(), vec![t(&[255u8, 200], [1, 2]), t(&[255u8, 0, 1, 2], [2, 2])])
                .gives(vec![t(&[65_225i32, 400], [1, 2])])
                .no_grad("integers"),
            Sample::new(op(), vec![t(&[-32_768i16], [1, 1]), t(&[2i16], [1, 1])])
                .gives(vec![t(&[-65_536i32], [1, 1])])
                .no_grad("integers"),
            // the blocked kernel
            Sample::new(op(), vec![t(&small(2 * 17 * 19), [2, 17, 19]), t(&small(19 * 18), [19, 18])])
                .no_grad("integers"),
            Sample::new(op(), vec![t(&half(&wave(2 * 9 * 33)), [2, 9, 33]), t(&half(&wave(33 * 20)), [33, 20])])
                .no_grad("halves are no f64; the wider types check it"),
            Sample::new(op(), vec![w(&[2, 1, 2, 3]), w(&[4, 3, 2])]),
            Sample::new(op(), vec![w(&[2, 3]), w(&[3, 1])]),
            Sample::new(op(), vec![t::<i8>(&[], [2, 0]), t::<i8>(&[], [0, 1])])
                .gives(vec![t(&[0i32; 2], [2, 1])])
                .no_grad("integers"),
            Sample::new(op(), vec![t(&[1u16], [1, 1]), t(&[1u16], [1, 1])]).fails(ErrorKind::DType),
            Sample::new(op(), vec![t(&[true], [1, 1]), t(&[true], [1, 1])]).fails(ErrorKind::DType),
            Sample::new(op(), vec![t(&[1i8], [1, 1]), t(&[1i32], [1, 1])]).fails(ErrorKind::DType),
            Sample::new(op(), vec![w(&[2, 3]), w(&[2, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(), vec![w(&[3]), w(&[3, 1])]).fails(ErrorKind::Axis),
            Sample::new(op(), vec![w(&[2, 3])]).fails(ErrorKind::Arity),
        ]
    }
}
