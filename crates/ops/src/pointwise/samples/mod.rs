//! Samples of the unary and binary tables: values of every row, then kinks, ties, NaN, infinities, dtypes and errors.

mod table;

use remat_types::{Element, ErrorKind, HostTensor, bf16, f16};

use super::{Binary, BinaryFn, Unary, UnaryFn};
use crate::sample::t;
use crate::{Sample, Tolerance};

/// Where libm and std round differently from the exact value.
const FEW_ULP: Tolerance = Tolerance::Ulp(8);
const FLAT: &str = "piecewise constant, or of no float";
const EDGE: &str = "at a kink, or not finite";

fn un<T: Element, U: Element>(f: UnaryFn, x: &[T], y: &[U]) -> Sample<Unary> {
    Sample::new(Unary { f }, vec![t(x, [x.len()])]).gives(vec![t(y, [y.len()])]).no_grad(FLAT).within(Tolerance::Exact)
}

fn bin<T: Element>(f: BinaryFn, a: &[T], b: &[T], y: &[T]) -> Sample<Binary> {
    Sample::new(Binary { f }, vec![t(a, [a.len()]), t(b, [b.len()])])
        .gives(vec![t(y, [y.len()])])
        .no_grad(FLAT)
        .within(Tolerance::Exact)
}

/// Functions whose gradient is zero by definition, so that there is nothing to compare.
fn unary_edges() -> Vec<Sample<Unary>> {
    use UnaryFn::*;
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    vec![
        un(Relu, &[-0.0f32, nan, inf, -inf], &[0.0f32, nan, inf, 0.0]),
        un(Relu, &[-3i8, 4], &[0i8, 4]),
        un(Relu6, &[0.0f32, 6.0, nan, inf], &[0.0f32, 6.0, nan, 6.0]),
        un(Hsigmoid, &[-3.0f32, 3.0, nan], &[0.0f32, 1.0, nan]),
        un(Hswish, &[-3.0f32, 3.0, nan, inf], &[0.0f32, 3.0, nan, inf]),
        un(Mish, &[0.0f32, 100.0, nan, inf], &[0.0f32, 100.0, nan, inf]),
        un(Softsign, &[0.0f32, -1.0, nan], &[0.0f32, -0.5, nan]),
        un(Abs, &[-0.0f32, nan, -inf], &[0.0f32, nan, inf]),
        un(Abs, &[i8::MIN, -1, 5], &[i8::MIN, 1, 5]),
        un(Abs, &[7u32], &[7u32]),
        un(Neg, &[i32::MIN, 1], &[i32::MIN, -1]),
        un(Neg, &[1u8], &[255u8]),
        un(Square, &[46341i32, -3], &[-2147479015i32, 9]),
        un(Exp, &[-inf, inf, nan, 1000.0f32], &[0.0f32, inf, nan, inf]),
        un(Log, &[0.0f32, -1.0, inf], &[-inf, nan, inf]),
        un(Sqrt, &[-1.0f64, 0.0, 4.0], &[f64::NAN, 0.0, 2.0]),
        un(Rsqrt, &[0.0f64, 0.25], &[f64::INFINITY, 2.0]),
        un(Recip, &[0.0f32, -0.0, inf], &[inf, -inf, 0.0f32]),
        un(Sigmoid, &[-inf, inf, nan, 0.0f32], &[0.0f32, 1.0, nan, 0.5]),
        un(Softplus, &[1000.0f32, -1000.0, nan], &[1000.0f32, 0.0, nan]),
        un(Logsigmoid, &[1000.0f32, -1000.0], &[-0.0f32, -1000.0]),
        un(Tanh, &[-inf, inf, nan], &[-1.0f32, 1.0, nan]),
        un(Erf, &[-inf, inf, nan, 0.0f32], &[-1.0f32, 1.0, nan, 0.0]),
        un(Erfinv, &[-1.0f32, 1.0, 1.5, 0.0], &[-inf, inf, nan, 0.0f32]),
        un(Erfcinv, &[0.0f64, 2.0, 1.0], &[f64::INFINITY, f64::NEG_INFINITY, 0.0]),
        un(Floor, &[-1.5f32, -0.5, 2.0, nan], &[-2.0f32, -1.0, 2.0, nan]),
        un(Ceil, &[-1.5f32, 0.5, 2.0], &[-1.0f32, 1.0, 2.0]),
        un(Round, &[-2.5f32, -0.5, 0.5, 1.5, 2.4], &[-3.0f32, -1.0, 1.0, 2.0, 2.0]),
        un(Trunc, &[-1.5f32, 1.5, inf], &[-1.0f32, 1.0, inf]),
        un(RoundEven, &[-2.5f32, -1.5, -0.5, 0.5, 1.5, 2.6, nan], &[-2.0f32, -2.0, -0.0, 0.0, 2.0, 3.0, nan]),
        un(RoundEven, &[5i16], &[5i16]),
        un(ZeroTest, &[0.0f32, -0.0, 1e-30, nan], &[1.0f32, 1.0, 0.0, 0.0]),
        un(Log2, &[0.0f32, -1.0, inf, 8.0], &[-inf, nan, inf, 3.0]),
        un(Log10, &[0.0f64, -1.0, 1000.0], &[f64::NEG_INFINITY, f64::NAN, 3.0]),
        un(Exp2, &[-inf, inf, nan, 10.0], &[0.0f32, inf, nan, 1024.0]),
        un(Lgamma, &[1.0f64, 0.0, -2.0, f64::INFINITY], &[0.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]),
        un(Digamma, &[0.0f32, -0.0, -3.0, inf, -inf, nan], &[-inf, inf, nan, inf, nan, nan]),
        un(I0, &[0.0f32, inf, -inf, nan], &[1.0f32, inf, inf, nan]),
        un(I0e, &[0.0f32, inf, -inf, nan], &[1.0f32, 0.0, 0.0, nan]),
        un(I1, &[0.0f32, inf, -inf, nan], &[0.0f32, inf, -inf, nan]),
        un(I1e, &[0.0f32, inf, -inf, nan], &[0.0f32, 0.0, -0.0, nan]),
        un(J0, &[0.0f32, inf, nan], &[1.0f32, 0.0, nan]),
        un(J1, &[0.0f32, inf, nan], &[0.0f32, 0.0, nan]),
        un(Floor, &[5i64, -5], &[5i64, -5]),
        un(Ceil, &[5u8], &[5u8]),
        un(Round, &[5i16], &[5i16]),
        un(Trunc, &[5u64], &[5u64]),
        un(Sign, &[-2.5f32, 0.0, 3.0, nan], &[-1.0f32, 0.0, 1.0, nan]),
        un(Sign, &[-7i64, 0, 9], &[-1i64, 0, 1]),
        un(Sign, &[0u8, 9], &[0u8, 1]),
        un(IsNan, &[nan, inf, 1.0f32], &[true, false, false]),
        un(IsInf, &[nan, -inf, 1.0f32], &[false, true, false]),
        un(IsFinite, &[nan, inf, 1.0f64 as f32], &[false, false, true]),
        un(IsNan, &[f16::NAN, f16::ONE], &[true, false]),
        un(LogicalNot, &[true, false], &[false, true]),
        un(BitNot, &[0u8, 0xF0], &[255u8, 15]),
        un(BitNot, &[0i32, -1], &[-1i32, 0]),
    ]
}

pub(super) fn unary() -> Vec<Sample<Unary>> {
    let mut out: Vec<Sample<Unary>> = table::UNARY
        .iter()
        .map(|(f, x, y)| {
            Sample::new(Unary { f: *f }, vec![t(x, [x.len()])]).gives(vec![t(y, [y.len()])]).within(FEW_ULP)
        })
        .collect();
    out.extend(unary_edges());
    let half = |v: &[f32]| -> Vec<f16> { v.iter().map(|&v| f16::from_f32(v)).collect() };
    let brain = |v: &[f32]| -> Vec<bf16> { v.iter().map(|&v| bf16::from_f32(v)).collect() };
    let exp: Vec<f32> = [0.5f32, -1.25, 3.0].iter().map(|v| v.exp()).collect();
    out.push(un(UnaryFn::Exp, &half(&[0.5, -1.25, 3.0]), &half(&exp)).within(Tolerance::Ulp(1)));
    out.push(un(UnaryFn::Exp, &brain(&[0.5, -1.25, 3.0]), &brain(&exp)).within(Tolerance::Ulp(1)));
    // a rank-0 tensor, an empty one, one of several axes, and one above the size from which threads share the work
    out.push(un(UnaryFn::Exp, &[0.0f32], &[1.0f32]).map_x(|x| x.reshape([])));
    out.push(un::<f32, f32>(UnaryFn::Exp, &[], &[]).map_x(|x| x.reshape([2, 0])));
    out.push(Sample::new(Unary { f: UnaryFn::Tanh }, vec![t(&[0.1f32, 0.2, -0.3, 0.4, 1.5, -0.6], [2, 3])]));
    let big: Vec<f32> = (0..70_000).map(|i| (i % 97) as f32 * 0.25 - 12.0).collect();
    let relu: Vec<f32> = big.iter().map(|v| v.max(0.0)).collect();
    out.push(un(UnaryFn::Relu, &big, &relu));
    for f in [UnaryFn::Exp, UnaryFn::Sigmoid, UnaryFn::IsNan] {
        out.push(Sample::new(Unary { f }, vec![t(&[1i32], [1])]).fails(ErrorKind::DType));
    }
    out.push(Sample::new(Unary { f: UnaryFn::Relu }, vec![t(&[true], [1])]).fails(ErrorKind::DType));
    out.push(Sample::new(Unary { f: UnaryFn::LogicalNot }, vec![t(&[1u8], [1])]).fails(ErrorKind::DType));
    out.push(Sample::new(Unary { f: UnaryFn::BitNot }, vec![t(&[1.0f32], [1])]).fails(ErrorKind::DType));
    out.push(Sample::new(Unary { f: UnaryFn::Exp }, vec![]).fails(ErrorKind::Arity));
    out
}

impl Sample<Unary> {
    /// Input and expected output under another shape.
    fn map_x(mut self, f: impl Fn(&HostTensor) -> remat_types::Result<HostTensor>) -> Self {
        let change = |t: &mut HostTensor| *t = f(t).expect("a sample's data fills its shape");
        self.x.iter_mut().for_each(change);
        if let crate::Expect::Values(y) = &mut self.expect {
            y.iter_mut().for_each(change);
        }
        self
    }
}

fn binary_edges() -> Vec<Sample<Binary>> {
    use BinaryFn::*;
    let (inf, nan, inf64) = (f32::INFINITY, f32::NAN, f64::INFINITY);
    vec![
        bin(Add, &[i32::MAX, 1], &[1, 2], &[i32::MIN, 3]),
        bin(Sub, &[0u8, 5], &[1, 2], &[255, 3]),
        bin(Mul, &[i64::MAX, 3], &[2, -3], &[-2, -9]),
        bin(Div, &[7i32, -7, i32::MIN], &[2, 2, -1], &[3, -3, i32::MIN]),
        bin(Div, &[1.0f32, 0.0, -1.0], &[0.0, 0.0, inf], &[inf, nan, -0.0]),
        bin(FloorDiv, &[7i32, -7, 7, -7, i32::MIN], &[2, 2, -2, -2, -1], &[3, -4, -4, 3, i32::MIN]),
        bin(FloorDiv, &[7u8, 255], &[2, 16], &[3, 15]),
        bin(FloorDiv, &[7.0f32, -7.0, 1.0], &[2.0, 2.0, 0.0], &[3.0, -4.0, inf]),
        // an infinite divisor and a quotient that rounds up to a whole number, with the remainder that fits
        bin(
            FloorDiv,
            &[-5.0f64, 5.0, 5.0, -5.0, 1.0],
            &[inf64, inf64, -inf64, -inf64, 0.1],
            &[-1.0, 0.0, -1.0, 0.0, 9.0],
        ),
        bin(
            Rem,
            &[-5.0f64, 5.0, 5.0, -5.0, 1.0],
            &[inf64, inf64, -inf64, -inf64, 0.1],
            &[inf64, 5.0, -inf64, -5.0, 0.09999999999999995],
        ),
        bin(FloorDiv, &[inf, -0.0, 1.0], &[2.0, 2.0, inf], &[nan, -0.0, 0.0]),
        bin(DivOrZero, &[1.0f32, 0.0, nan, 3.0], &[0.0, -0.0, 0.0, 2.0], &[0.0, 0.0, 0.0, 1.5]),
        // both ends, where log(1 + e^x) - x y and sigmoid(x) - y cancel
        bin(
            BceWithLogits,
            &[17.0f32, -17.0, 17.0, inf, -inf, nan],
            &[1.0, 0.0, 0.0, 1.0, 0.0, 1.0],
            &[4.139_937_5e-8, 4.139_937_5e-8, 17.0, 0.0, 0.0, nan],
        )
        .within(Tolerance::Ulp(2)),
        bin(
            BceSlope,
            &[17.0f32, -17.0, 17.0, -17.0],
            &[1.0, 0.0, 0.0, 1.0],
            &[-4.139_937_3e-8, 4.139_937_3e-8, 1.0, -1.0],
        )
        .within(Tolerance::Ulp(2)),
        bin(Rem, &[7i32, -7, 7, -7, i32::MIN], &[2, 2, -2, -2, -1], &[1, 1, -1, -1, 0]),
        bin(Rem, &[7u64, 255], &[4, 16], &[3, 15]),
        bin(Rem, &[7.5f64, -7.5, 7.5, -7.5, 1.0], &[2.0, 2.0, -2.0, -2.0, 0.0], &[1.5, 0.5, -0.5, -1.5, f64::NAN]),
        bin(Pow, &[3i32, -2, 7, 2], &[4, 3, 0, 32], &[81, -8, 1, 0]),
        bin(Pow, &[0.0f32, nan, 4.0, -8.0], &[0.0, 0.0, 0.5, 0.5], &[1.0, 1.0, 2.0, nan]),
        bin(Max, &[nan, 1.0f32, 2.0, -inf], &[1.0, nan, 2.0, inf], &[nan, nan, 2.0, inf]),
        bin(Min, &[nan, 1.0f32, 2.0, -inf], &[1.0, nan, 2.0, inf], &[nan, nan, 2.0, -inf]),
        bin(Max, &[-3i8, 4], &[2, -9], &[2, 4]),
        bin(Min, &[3u16, 4], &[2, 9], &[2, 4]),
        bin(Max, &[false, true], &[false, false], &[false, true]),
        bin(Min, &[true, true], &[false, true], &[false, true]),
        bin(Atan2, &[0.0f32, 0.0, 1.0], &[1.0, 0.0, inf], &[0.0, 0.0, 0.0]),
        bin(Hypot, &[3e30f32, 0.0, inf, nan], &[4e30, 0.0, nan, 1.0], &[5e30, 0.0, inf, nan]),
        bin(Fmod, &[-7.5f32, 7.5, 1.0, inf], &[2.0, -2.0, 0.0, 2.0], &[-1.5, 1.5, nan, nan]),
        bin(Fmod, &[-7i32, 7, i32::MIN], &[2, -2, -1], &[-1, 1, 0]),
        bin(Copysign, &[1.0f32, -0.0, nan], &[-0.0, 1.0, 1.0], &[-1.0, 0.0, nan]),
        bin(Zeta, &[1.0f32, 2.0, 0.5, 2.0, 2.5], &[2.0, -1.0, 1.0, inf, -0.5], &[inf, inf, nan, 0.0, nan]),
        bin(GammaInc, &[0.0f32, 1.0, 1.0, -1.0, inf], &[1.0, 0.0, inf, 1.0, 2.0], &[1.0, 0.0, 1.0, nan, 0.0]),
        bin(GammaIncc, &[0.0f32, 1.0, 1.0, -1.0, inf], &[1.0, 0.0, inf, 1.0, 2.0], &[0.0, 1.0, 0.0, nan, 1.0]),
        bin(LogAddExp, &[-inf, inf, nan], &[-inf, 1.0f32, 0.0], &[-inf, inf, nan]),
        bin(BitAnd, &[12u8], &[10], &[8]),
        bin(BitOr, &[12i32], &[10], &[14]),
        bin(BitXor, &[12i64], &[10], &[6]),
        bin(Shl, &[1i8, 1, -1, 3], &[3, 7, 1, 8], &[8, -128, -2, 0]),
        bin(Shl, &[1u64, 1], &[63, 64], &[1 << 63, 0]),
        bin(Shr, &[-8i32, -8, 8, 8], &[1, 40, 2, 32], &[-4, -1, 2, 0]),
        bin(Shr, &[0x80u8, 0x80], &[7, 8], &[1, 0]),
        bin(LogicalAnd, &[true, true, false], &[true, false, false], &[true, false, false]),
        bin(LogicalOr, &[true, true, false], &[true, false, false], &[true, true, false]),
        bin(LogicalXor, &[true, true, false], &[true, false, false], &[false, true, false]),
        bin(Bce, &[0.0f32, 1.0, 0.0, 1.0, nan], &[0.0, 1.0, 1.0, 0.0, 1.0], &[0.0, 0.0, 100.0, 100.0, nan]),
        bin(BceProbSlope, &[0.0f64, 0.0, 1.0], &[0.0, 1.0, 1.0], &[0.0, -1.0 / 1e-12, 0.0]),
        bin(Huber, &[2.0f32, -2.0, nan, inf], &[2.0, 1.0, 1.0, 1.0], &[2.0, 1.5, nan, inf]),
        bin(HuberSlope, &[2.0f32, -3.0, nan], &[2.0, 1.0, 1.0], &[2.0, -1.0, nan]),
        bin(Elu, &[0.0f32, -inf, nan, inf], &[1.0, 2.0, 1.0, 1.0], &[0.0, -2.0, nan, inf]),
        bin(EluSlope, &[0.0f32, 3.0, -inf], &[2.0, 2.0, 2.0], &[2.0, 1.0, 0.0]),
        bin(Prelu, &[0.0f32, -2.0, nan], &[0.25, 0.25, 1.0], &[0.0, -0.5, nan]),
        bin(MaxShare, &[1.0f32, 2.0, 2.0, nan], &[2.0, 1.0, 2.0, 0.0], &[0.0, 1.0, 0.5, 1.0]),
        bin(MinShare, &[1.0f32, 2.0, 2.0, 0.0], &[2.0, 1.0, 2.0, nan], &[1.0, 0.0, 0.5, 0.0]),
        bin(PowSlopeA, &[0.0f32, 2.0], &[0.0, 3.0], &[0.0, 12.0]),
        bin(PowSlopeB, &[0.0f32, 1.0], &[2.0, 3.0], &[0.0, 0.0]),
        bin(ReluGrad, &[3.0f32, 3.0, 3.0], &[0.0, 1.0, -0.0], &[0.0, 3.0, 0.0]),
        bin(AbsGrad, &[3.0f32, 3.0, 3.0], &[0.0, nan, -2.0], &[0.0, nan, -3.0]),
        bin(Relu6Grad, &[3.0f32, 3.0, 3.0], &[0.0, 6.0, 2.0], &[0.0, 0.0, 3.0]),
        bin(HsigmoidGrad, &[6.0f32, 6.0, 6.0], &[-3.0, 3.0, 2.0], &[0.0, 0.0, 1.0]),
        bin(HswishGrad, &[6.0f32, 6.0, 6.0], &[-3.0, 3.0, 0.0], &[0.0, 6.0, 3.0]),
    ]
}

/// Shapes that broadcast, in the ways that kernels treat apart.
fn broadcasts() -> Vec<Sample<Binary>> {
    let ramp = |n: usize| -> Vec<f32> { (0..n).map(|i| i as f32 * 0.375 - 2.0).collect() };
    let of = |f, a: &[usize], b: &[usize]| {
        let tensor = |s: &[usize]| t(&ramp(s.iter().product()), s);
        Sample::new(Binary { f }, vec![tensor(a), tensor(b)])
    };
    vec![
        Sample::new(Binary { f: BinaryFn::Add }, vec![t(&[1.0f32, 2., 3., 4.], [2, 2]), t(&[10.0f32, 20.], [2])])
            .gives(vec![t(&[11.0f32, 22., 13., 24.], [2, 2])]),
        Sample::new(Binary { f: BinaryFn::Sub }, vec![t(&[1.0f32], []), t(&[1.0f32, 2., 3.], [3, 1])])
            .gives(vec![t(&[0.0f32, -1., -2.], [3, 1])]),
        Sample::new(Binary { f: BinaryFn::Mul }, vec![t(&[1i32, 2], [2, 1]), t(&[3i32, 4], [1, 2])])
            .gives(vec![t(&[3i32, 4, 6, 8], [2, 2])]),
        of(BinaryFn::Mul, &[2, 3, 2, 2], &[3, 1, 1]),
        of(BinaryFn::Mul, &[2, 1, 3], &[2, 1]),
        of(BinaryFn::Div, &[2, 3], &[]),
        of(BinaryFn::SigmoidGrad, &[3], &[2, 3]),
        Sample::new(Binary { f: BinaryFn::Add }, vec![t::<f32>(&[], [0, 2]), t(&[1.0f32, 2.], [2])])
            .gives(vec![t::<f32>(&[], [0, 2])])
            .no_grad("empty"),
    ]
}

pub(super) fn binary() -> Vec<Sample<Binary>> {
    let mut out: Vec<Sample<Binary>> = table::BINARY
        .iter()
        .map(|(f, i, y)| {
            let (a, b) = table::OPERANDS[*i];
            let sample = Sample::new(Binary { f: *f }, vec![t(&a, [3]), t(&b, [3])]).gives(vec![t(y, [3])]);
            // four times the errors seen
            let slope = |relative: f64| {
                let tolerance = Tolerance::Loose(relative, "a difference of distribution functions over a thousandth");
                sample.clone().within(tolerance).no_grad("of first order")
            };
            match f {
                BinaryFn::GammaSlope => return slope(8e-13),
                BinaryFn::GammaLogSlope => return slope(9e-12),
                _ => {}
            }
            let sample = sample.within(FEW_ULP);
            match f {
                BinaryFn::Zeta | BinaryFn::GammaInc | BinaryFn::GammaIncc => sample.grad_of(&[1]),
                BinaryFn::Copysign => sample.grad_of(&[0]),
                BinaryFn::PreluSlope => sample.grad_of(&[1]),
                BinaryFn::ReluGrad | BinaryFn::AbsGrad | BinaryFn::Relu6Grad | BinaryFn::HsigmoidGrad => {
                    sample.grad_of(&[0])
                }
                _ => sample,
            }
        })
        .collect();
    out.extend(binary_edges());
    out.extend(broadcasts());
    let halves = |v: [f32; 2]| t(&v.map(f16::from_f32), [2]);
    out.push(
        Sample::new(Binary { f: BinaryFn::Add }, vec![halves([1.0, 60000.0]), halves([0.0004883, 60000.0])])
            .gives(vec![halves([1.0, f32::INFINITY])])
            .within(Tolerance::Exact)
            .no_grad(EDGE),
    );
    // an f32 beside halves enters as it is, on either side and of any shape that broadcasts
    let brain = |v: [f32; 2]| t(&v.map(bf16::from_f32), [2]);
    let mixed = |f, a: HostTensor, b: HostTensor, y: HostTensor| {
        Sample::new(Binary { f }, vec![a, b]).gives(vec![y]).within(Tolerance::Exact)
    };
    out.extend([
        mixed(BinaryFn::Mul, halves([1000.0, -3.0]), t(&[1e-8f32], []), halves([1e-5, -3e-8])).no_grad(EDGE),
        mixed(BinaryFn::Div, t(&[70000.0f32], []), halves([1000.0, 2.0]), halves([70.0, 35000.0])).no_grad(EDGE),
        mixed(BinaryFn::Sub, brain([257.0, 1.0]), t(&[1.0f32, 255.5], [2]), brain([255.0, -254.5])),
        mixed(
            BinaryFn::Pow,
            halves([2.0, 3.0]),
            t(&[1.5f32, 2.0], [2, 1]),
            t(&[2.0f32.powf(1.5), 3.0f32.powf(1.5), 4.0, 9.0].map(f16::from_f32), [2, 2]),
        ),
    ]);
    let fails = |f, a: HostTensor, b: HostTensor, kind| Sample::new(Binary { f }, vec![a, b]).fails(kind);
    let int = |v: i32| t(&[1, v], [2]);
    out.extend([
        fails(BinaryFn::Add, t(&[1.0f32], [1]), t(&[1.0f64], [1]), ErrorKind::DType),
        fails(BinaryFn::Add, halves([1.0; 2]), brain([1.0; 2]), ErrorKind::DType),
        fails(BinaryFn::LogicalAnd, halves([1.0; 2]), t(&[1.0f32], [1]), ErrorKind::DType),
        fails(BinaryFn::Add, t(&[true], [1]), t(&[true], [1]), ErrorKind::DType),
        fails(BinaryFn::LogicalAnd, t(&[1u8], [1]), t(&[1u8], [1]), ErrorKind::DType),
        fails(BinaryFn::Atan2, int(1), int(1), ErrorKind::DType),
        fails(BinaryFn::Add, t(&[1.0f32; 2], [2]), t(&[1.0f32; 3], [3]), ErrorKind::Shape),
        fails(BinaryFn::Div, int(1), int(0), ErrorKind::Value),
        fails(BinaryFn::FloorDiv, int(1), int(0), ErrorKind::Value),
        fails(BinaryFn::Rem, int(1), int(0), ErrorKind::Value),
        fails(BinaryFn::Pow, int(1), int(-1), ErrorKind::Value),
        fails(BinaryFn::Shl, int(1), int(-1), ErrorKind::Value),
        fails(BinaryFn::Shr, int(1), int(-1), ErrorKind::Value),
    ]);
    out
}
