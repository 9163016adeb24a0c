use remat_kernels::pointwise::map1;
use remat_types::{DType, Fact, Facts, Result, for_storage, smallvec};

use super::loops::Lane;
use super::unary_table::{Form1, Grad1, row};
use super::{Pointwise, UnaryFn, not_defined, operand};
use crate::host::arity;
use crate::schema::Params;
use crate::{Class, Cost, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample};

/// `y = f(x)`, element by element; `y` has the shape and dtype of `x`, or dtype Bool for a predicate (`is_nan`).
///
/// f16 and bf16 are computed in f32 and rounded once. Errors: DType outside the domain of `f`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Unary {
    /// The function.
    pub f: UnaryFn,
}

impl Op for Unary {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let (defined, dtype) = match &row(self.f).form {
            Form1::Same(l) => (l.has(x[0].dtype), x[0].dtype),
            Form1::Test(l) => (l.has(x[0].dtype), DType::Bool),
        };
        if !defined {
            return Err(not_defined(x[0].dtype));
        }
        Ok(smallvec![Fact::new(dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Lane>(f: UnaryFn, cx: &mut EvalCx<'_>) -> Result<()> {
            let (dtype, y) = (cx.x[0].dtype(), &mut cx.y[0]);
            let x = operand::<T>(&cx.x[0], y.shape())?;
            match &row(f).form {
                Form1::Same(l) if l.has(dtype) => map1(cx.pool, &x, y.slice_mut()?, &|x: &[T], y: &mut [T]| {
                    T::block1(l, dtype, x, y);
                }),
                Form1::Test(l) if l.has(dtype) => map1(cx.pool, &x, y.slice_mut()?, &|x: &[T], y: &mut [u8]| {
                    T::block_test(l, dtype, x, y);
                }),
                _ => return Err(not_defined(dtype)),
            }
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self.f, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0).filter(|_| cx.fact(cx.x(0)).dtype.is_float()) else { return Ok(smallvec![None]) };
        let c = cx.build();
        Ok(smallvec![match row(self.f).grad {
            Grad1::None => None,
            Grad1::FromX(f) => Some(c.bin(f, dy, cx.x(0))?),
            Grad1::FromY(f) => Some(c.bin(f, dy, cx.y(0))?),
            Grad1::ChainX(rule) => Some(rule(c, dy, cx.x(0))?),
            Grad1::ChainY(rule) => Some(rule(c, dy, cx.y(0))?),
        }])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        match row(self.f).form {
            Form1::Same(_) => &[(0, 0)],
            Form1::Test(_) => &[],
        }
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        // a transcendental function takes some twenty operations; those have no integer form
        let scale = match &row(self.f).form {
            Form1::Same(l) if l.i32.is_none() => 20,
            _ => 1,
        };
        let cost = Cost::bytes(x, y);
        cost.with_flops(cost.flops.saturating_mul(scale))
    }

    fn class(&self) -> Class {
        Class::Pointwise(Pointwise::Unary(self.clone()))
    }
}

impl OpDef for Unary {
    const NAME: &'static str = "unary";

    fn label(&self) -> &'static str {
        row(self.f).name
    }

    fn samples() -> Vec<Sample<Self>> {
        super::samples::unary()
    }
}
