use remat_kernels::philox::{bernoulli, normal, permutation, uniform};
use remat_types::{DType, ErrorKind, Fact, Facts, Result, Scalar, Shape, for_float, smallvec};

use super::{stream, want_key};
use crate::args::{checked_fact, not_taken, number, probability, want_float};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample, Tolerance};

/// `key -> y`: independent numbers uniform in `[lo, hi)`, rounded to `dtype`, but none to `hi`.
///
/// `key: u64 [2]`; `y` has the given dtype and shape. 24 random bits an element, 53 for f64.
///
/// Errors: DType for a dtype that is no float, DType or Shape for a wrong key, Value for bounds that are not finite
/// or `lo > hi`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(key: key))]
pub struct Uniform {
    /// The dtype.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
    /// The least number.
    #[param(default = 0.0.into())]
    pub lo: Scalar,
    /// The upper bound; every number is below it.
    #[param(default = 1.0.into())]
    pub hi: Scalar,
}

impl Uniform {
    fn bounds(&self) -> Result<(f64, f64)> {
        let lo = number(self.lo, "lo", "finite", f64::is_finite)?;
        Ok((lo, number(self.hi, "hi", "finite and at least lo", |hi| hi.is_finite() && hi >= lo)?))
    }
}

/// The fact of a random tensor; the key is checked.
fn drawn(x: &[&Fact], dtype: DType, shape: &Shape) -> Result<Facts> {
    arity(x, 1)?;
    want_key(x[0])?;
    Ok(smallvec![checked_fact(dtype, shape.clone())?])
}

impl Op for Uniform {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.bounds()?;
        let y = drawn(x, self.dtype, &self.shape)?;
        want_float(&y[0], "the result")?;
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let ((lo, hi), s) = (self.bounds()?, stream(&cx.x[0])?);
        for_float!(self.dtype, T => {
            uniform(cx.pool, s, lo, hi, cx.y[0].slice_mut::<T>()?);
            Ok(())
        }, else Err(not_taken(self.dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

/// `key -> y`: independent normal numbers of the given mean and standard deviation (Box and Muller).
///
/// `key: u64 [2]`; `y` has the given dtype and shape. Errors: as [`Uniform`]; Value for a mean or deviation that is not
/// finite, or a negative deviation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(key: key))]
pub struct Normal {
    /// The dtype.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
    /// The mean.
    #[param(default = 0.0.into())]
    pub mean: Scalar,
    /// The standard deviation.
    #[param(default = 1.0.into())]
    pub std: Scalar,
}

impl Normal {
    fn moments(&self) -> Result<(f64, f64)> {
        let mean = number(self.mean, "mean", "finite", f64::is_finite)?;
        Ok((mean, number(self.std, "std", "finite and not negative", |s| s.is_finite() && s >= 0.0)?))
    }
}

impl Op for Normal {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        self.moments()?;
        let y = drawn(x, self.dtype, &self.shape)?;
        want_float(&y[0], "the result")?;
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let ((mean, std), s) = (self.moments()?, stream(&cx.x[0])?);
        for_float!(self.dtype, T => {
            normal(cx.pool, s, mean, std, cx.y[0].slice_mut::<T>()?);
            Ok(())
        }, else Err(not_taken(self.dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

/// `key -> y`: independent ones with probability `p`, else zeros, in any dtype.
///
/// `key: u64 [2]`; `y` has the given dtype and shape. Errors: DType or Shape for a wrong key, Value for a `p`
/// outside 0 ..= 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(key: key))]
pub struct Bernoulli {
    /// The dtype.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
    /// The probability of a one.
    pub p: Scalar,
}

impl Op for Bernoulli {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        probability(self.p, "p")?;
        drawn(x, self.dtype, &self.shape)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (p, s) = (probability(self.p, "p")?, stream(&cx.x[0])?);
        if self.dtype == DType::Bool {
            bernoulli::<u8>(cx.pool, s, p, cx.y[0].slice_mut()?);
            return Ok(());
        }
        macro_rules! go {
            ($($d:ident $t:ty),*) => {
                match self.dtype {
                    $( DType::$d => bernoulli::<$t>(cx.pool, s, p, cx.y[0].slice_mut()?), )*
                    DType::Bool => return Err(not_taken(DType::Bool)),
                }
            };
        }
        go!(F16 remat_types::f16, BF16 remat_types::bf16, F32 f32, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8,
            U16 u16, U32 u32, U64 u64);
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

/// `key -> y`: a random order of `0 .. n`, `y: i64 [n]` (Fisher and Yates). On one thread.
///
/// Errors: DType or Shape for a wrong key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(key: key))]
pub struct RandomPermutation {
    /// The number of elements.
    pub n: usize,
}

impl Op for RandomPermutation {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        drawn(x, DType::I64, &[self.n].into())
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        permutation(stream(&cx.x[0])?, cx.y[0].slice_mut()?);
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

const WHY: &str = "a function of an integer key";

/// The key of zeros: its first block is the first known answer of Random123.
fn zero_key() -> remat_types::HostTensor {
    t(&[0u64, 0], [2])
}

/// That block: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
const FIRST: [u32; 4] = [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8];

/// The first five words of key `0x5_0000_0007`, stream `0xb_0000_0003`.
const OTHER: [u32; 5] = [0xe24d_4adf, 0x1ab1_cbce, 0x0a06_14d0, 0x9e17_1138, 0xe2fa_3239];

impl OpDef for Uniform {
    const NAME: &'static str = "uniform";

    fn samples() -> Vec<Sample<Self>> {
        let op = |dtype, shape: &[usize], lo: f64, hi: f64| Uniform {
            dtype,
            shape: shape.into(),
            lo: lo.into(),
            hi: hi.into(),
        };
        let unit = FIRST.map(|w| (w >> 8) as f32 / 16_777_216.0);
        let wide = ((u64::from(FIRST[0]) << 32 | u64::from(FIRST[1])) >> 11) as f64 / 9_007_199_254_740_992.0;
        let key = t(&[7u64, u64::MAX], [2]);
        vec![
            Sample::new(op(DType::F32, &[2, 2], 0.0, 1.0), vec![zero_key()])
                .gives(vec![t(&unit, [2, 2])])
                .within(Tolerance::Exact)
                .no_grad(WHY),
            Sample::new(op(DType::F32, &[3], -2.0, 2.0), vec![zero_key()])
                .gives(vec![t(&[4.0 * unit[0] - 2.0, 4.0 * unit[1] - 2.0, 4.0 * unit[2] - 2.0], [3])])
                .no_grad(WHY),
            Sample::new(op(DType::F64, &[1], 0.0, 1.0), vec![zero_key()]).gives(vec![t(&[wide], [1])]).no_grad(WHY),
            // another key and stream, two blocks: by an independent implementation
            Sample::new(op(DType::F32, &[5], 0.0, 1.0), vec![t(&[0x5_0000_0007u64, 0xb_0000_0003], [2])])
                .gives(vec![t(&OTHER.map(|w| (w >> 8) as f32 / 16_777_216.0), [5])])
                .within(Tolerance::Exact)
                .no_grad(WHY),
            Sample::new(op(DType::F32, &[3, 5000], 0.0, 1.0), vec![key.clone()]).no_grad(WHY),
            Sample::new(op(DType::F16, &[5], 0.0, 1.0), vec![key.clone()]).no_grad(WHY),
            Sample::new(op(DType::F32, &[0], 0.0, 1.0), vec![key.clone()]).gives(vec![t::<f32>(&[], [0])]).no_grad(WHY),
            Sample::new(op(DType::I32, &[1], 0.0, 1.0), vec![key.clone()]).fails(ErrorKind::DType),
            Sample::new(op(DType::F32, &[1], 1.0, 0.0), vec![key.clone()]).fails(ErrorKind::Value),
            Sample::new(op(DType::F32, &[1], 0.0, f64::INFINITY), vec![key.clone()]).fails(ErrorKind::Value),
            Sample::new(op(DType::F32, &[usize::MAX, 2], 0.0, 1.0), vec![key]).fails(ErrorKind::Shape),
            Sample::new(op(DType::F32, &[1], 0.0, 1.0), vec![t(&[1u64], [1])]).fails(ErrorKind::Shape),
            Sample::new(op(DType::F32, &[1], 0.0, 1.0), vec![t(&[1i64, 2], [2])]).fails(ErrorKind::DType),
        ]
    }
}

impl OpDef for Normal {
    const NAME: &'static str = "normal";

    fn samples() -> Vec<Sample<Self>> {
        let op = |dtype, shape: &[usize], mean: f64, std: f64| Normal {
            dtype,
            shape: shape.into(),
            mean: mean.into(),
            std: std.into(),
        };
        let key = t(&[7u64, 3], [2]);
        // Box and Muller on the first two words
        let u = |w: u32| (f64::from(w) + 1.0) / 4_294_967_296.0;
        let (r, angle) = ((-2.0 * u(FIRST[0]).ln()).sqrt(), std::f64::consts::TAU * u(FIRST[1]));
        let first = [1.0 + 0.5 * r * angle.cos(), 1.0 + 0.5 * r * angle.sin()].map(|v| v as f32);
        vec![
            Sample::new(op(DType::F32, &[2], 1.0, 0.5), vec![zero_key()]).gives(vec![t(&first, [2])]).no_grad(WHY),
            Sample::new(op(DType::F64, &[3], 4.0, 0.0), vec![key.clone()])
                .gives(vec![t(&[4.0f64; 3], [3])])
                .no_grad(WHY),
            Sample::new(op(DType::F64, &[101, 100], 0.0, 1.0), vec![key.clone()]).no_grad(WHY),
            Sample::new(op(DType::BF16, &[7], 0.0, 1.0), vec![key.clone()]).no_grad(WHY),
            Sample::new(op(DType::U8, &[7], 0.0, 1.0), vec![key.clone()]).fails(ErrorKind::DType),
            Sample::new(op(DType::F32, &[7], 0.0, -1.0), vec![key.clone()]).fails(ErrorKind::Value),
            Sample::new(op(DType::F32, &[7], f64::NAN, 1.0), vec![key]).fails(ErrorKind::Value),
        ]
    }
}

impl OpDef for Bernoulli {
    const NAME: &'static str = "bernoulli";

    fn samples() -> Vec<Sample<Self>> {
        let op = |dtype, shape: &[usize], p: f64| Bernoulli { dtype, shape: shape.into(), p: p.into() };
        let key = t(&[1u64, 2], [2]);
        vec![
            // the words are 0.40, 0.88, 0.74 and 0.61 of 2^32
            Sample::new(op(DType::Bool, &[4], 0.7), vec![zero_key()])
                .gives(vec![t(&[true, false, false, true], [4])])
                .no_grad(WHY),
            Sample::new(op(DType::F32, &[4], 0.5), vec![zero_key()])
                .gives(vec![t(&[1.0f32, 0., 0., 0.], [4])])
                .no_grad(WHY),
            Sample::new(op(DType::I64, &[2], 1.0), vec![key.clone()]).gives(vec![t(&[1i64, 1], [2])]).no_grad(WHY),
            Sample::new(op(DType::U8, &[2], 0.0), vec![key.clone()]).gives(vec![t(&[0u8, 0], [2])]).no_grad(WHY),
            Sample::new(op(DType::F16, &[9000], 0.3), vec![key.clone()]).no_grad(WHY),
            Sample::new(op(DType::F32, &[1], 1.1), vec![key.clone()]).fails(ErrorKind::Value),
            Sample::new(op(DType::F32, &[1], 0.5), vec![key.clone(), key]).fails(ErrorKind::Arity),
        ]
    }
}

impl OpDef for RandomPermutation {
    const NAME: &'static str = "random_permutation";

    fn samples() -> Vec<Sample<Self>> {
        let op = |n| RandomPermutation { n };
        let key = t(&[5u64, 6], [2]);
        vec![
            Sample::new(op(1), vec![key.clone()]).gives(vec![t(&[0i64], [1])]).no_grad(WHY),
            Sample::new(op(0), vec![key.clone()]).gives(vec![t::<i64>(&[], [0])]).no_grad(WHY),
            Sample::new(op(1000), vec![key]).no_grad(WHY),
            Sample::new(op(3), vec![t(&[1u64; 3], [3])]).fails(ErrorKind::Shape),
            Sample::new(op(usize::MAX), vec![t(&[1u64; 2], [2])]).fails(ErrorKind::Shape),
        ]
    }
}
