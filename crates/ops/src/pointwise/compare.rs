use bytemuck::cast_slice;
use remat_kernels::pointwise::{Map2, each2, map2};
use remat_kernels::scalar::Ordered;
use remat_types::{DType, Fact, Facts, Result, Storage, f16, for_storage, smallvec};
use serde::{Deserialize, Serialize};

use super::loops::{for_mixed, test_mixed};
use super::{Pointwise, broadcast, joint_dtype, operand};
use crate::host::arity;
use crate::sample::t;
use crate::schema::{Choice, Params};
use crate::{Class, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample};

/// A comparison. A NaN is unequal to everything, itself included, and neither less nor greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareFn {
    /// `a == b`.
    Eq,
    /// `a != b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a <= b`.
    Le,
    /// `a > b`.
    Gt,
    /// `a >= b`.
    Ge,
}

impl CompareFn {
    /// Every comparison.
    pub const ALL: &'static [CompareFn] =
        &[CompareFn::Eq, CompareFn::Ne, CompareFn::Lt, CompareFn::Le, CompareFn::Gt, CompareFn::Ge];

    /// `a f b`.
    #[inline(always)]
    pub(super) fn of<T: Ordered>(self, a: T, b: T) -> T::Mask {
        match self {
            CompareFn::Eq => a.eq(b),
            CompareFn::Ne => a.ne(b),
            CompareFn::Lt => a.lt(b),
            CompareFn::Le => a.le(b),
            CompareFn::Gt => a.gt(b),
            CompareFn::Ge => a.ge(b),
        }
    }

    pub(super) fn loops<T: Ordered<Mask = bool>>(self) -> Map2<T, u8> {
        macro_rules! of_each {
            ($($f:ident)*) => {
                match self { $( CompareFn::$f => |a, b, y| each2(a, b, y, |a, b| u8::from(CompareFn::$f.of(a, b))), )* }
            };
        }
        of_each! { Eq Ne Lt Le Gt Ge }
    }
}

/// `y = a f b` as Bool, element by element with broadcasting; both inputs have one dtype, or one is of f32 beside a 16-bit
/// float. False is below true.
///
/// Errors: DType for two other dtypes, Shape where shapes do not broadcast. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: any, b: any))]
pub struct Compare {
    /// The comparison.
    pub f: CompareFn,
}

impl Op for Compare {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        joint_dtype(x[0], x[1])?;
        Ok(smallvec![Fact::new(DType::Bool, broadcast(x)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage + Ordered<Mask = bool>>(f: CompareFn, cx: &mut EvalCx<'_>) -> Result<()> {
            let y = &mut cx.y[0];
            let (a, b) = (operand::<T>(&cx.x[0], y.shape())?, operand::<T>(&cx.x[1], y.shape())?);
            map2(cx.pool, &a, &b, y.slice_mut()?, &f.loops::<T>());
            Ok(())
        }
        let dtypes = [cx.x[0].dtype(), cx.x[1].dtype()];
        if dtypes[0] == dtypes[1] {
            return for_storage!(dtypes[0], T => go::<T>(self.f, cx));
        }
        let y = &mut cx.y[0];
        for_mixed!(dtypes, A, B => {
            let (a, b) = (operand::<A>(&cx.x[0], y.shape())?, operand::<B>(&cx.x[1], y.shape())?);
            map2(cx.pool, &a, &b, y.slice_mut()?, &|a: &[A], b: &[B], y: &mut [u8]| {
                test_mixed(self.f.loops::<f32>(), dtypes, cast_slice(a), cast_slice(b), y);
            });
            Ok(())
        })
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None, None])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn class(&self) -> Class {
        Class::Pointwise(Pointwise::Compare(self.clone()))
    }
}

impl OpDef for Compare {
    const NAME: &'static str = "compare";

    fn label(&self) -> &'static str {
        match self.f {
            CompareFn::Eq => "eq",
            CompareFn::Ne => "ne",
            CompareFn::Lt => "lt",
            CompareFn::Le => "le",
            CompareFn::Gt => "gt",
            CompareFn::Ge => "ge",
        }
    }

    fn samples() -> Vec<Sample<Self>> {
        let (a, b) = ([1.0f32, 2., 3., f32::NAN], [2.0f32, 2., 2., f32::NAN]);
        let truth = [
            (CompareFn::Eq, [false, true, false, false]),
            (CompareFn::Ne, [true, false, true, true]),
            (CompareFn::Lt, [true, false, false, false]),
            (CompareFn::Le, [true, true, false, false]),
            (CompareFn::Gt, [false, false, true, false]),
            (CompareFn::Ge, [false, true, true, false]),
        ];
        let mut out: Vec<Sample<Self>> = truth
            .iter()
            .map(|(f, y)| Sample::new(Compare { f: *f }, vec![t(&a, [4]), t(&b, [4])]).gives(vec![t(y, [4])]))
            .collect();
        let lt = Compare { f: CompareFn::Lt };
        out.push(
            Sample::new(lt.clone(), vec![t(&[i64::MIN, i64::MAX], [2, 1]), t(&[0i64, 1], [2])])
                .gives(vec![t(&[true, true, false, false], [2, 2])]),
        );
        out.push(Sample::new(lt.clone(), vec![t(&[u64::MAX], []), t(&[1u64], [])]).gives(vec![t(&[false], [])]));
        out.push(
            Sample::new(lt.clone(), vec![t(&[false, true], [2]), t(&[true], [])]).gives(vec![t(&[true, false], [2])]),
        );
        // neither bound is one that the 16-bit float can hold
        let half = t(&[f16::ZERO, f16::MAX], [2]);
        out.push(Sample::new(lt.clone(), vec![half.clone(), t(&[1e-8f32], [])]).gives(vec![t(&[true, false], [2])]));
        out.push(Sample::new(lt.clone(), vec![t(&[65_505.0f32], []), half]).gives(vec![t(&[false, false], [2])]));
        out.push(Sample::new(lt.clone(), vec![t::<u8>(&[], [0]), t(&[1u8], [])]).gives(vec![t::<bool>(&[], [0])]));
        out.push(Sample::new(lt, vec![t(&[1u8], []), t(&[1i8], [])]).fails(remat_types::ErrorKind::DType));
        out.into_iter().map(|s| s.no_grad("piecewise constant")).collect()
    }
}
