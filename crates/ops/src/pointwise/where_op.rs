use remat_kernels::pointwise::select;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Storage, for_storage, smallvec};

use super::{Pointwise, broadcast, operand, same_dtype};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Class, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample};

/// `y = cond ? a : b`, element by element; the inputs `cond` (Bool), `a`, `b` broadcast together.
///
/// The value not taken does not matter, NaN included, neither forward nor in the gradient. Errors: DType if `cond` is
/// not Bool or `a` and `b` differ, Shape where shapes do not broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(cond: bool, a: any, b: any), gradient(a, b))]
pub struct Where;

impl Op for Where {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        if x[0].dtype != DType::Bool {
            return Err(Error::new(ErrorKind::DType, format!("the condition is {}, not bool", x[0].dtype)));
        }
        same_dtype(x[1], x[2])?;
        Ok(smallvec![Fact::new(x[1].dtype, broadcast(x)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(cx: &mut EvalCx<'_>) -> Result<()> {
            let y = &mut cx.y[0];
            let cond = operand::<u8>(&cx.x[0], y.shape())?;
            let (a, b) = (operand::<T>(&cx.x[1], y.shape())?, operand::<T>(&cx.x[2], y.shape())?);
            select(cx.pool, &cond, &a, &b, y.slice_mut()?);
            Ok(())
        }
        for_storage!(cx.x[1].dtype(), T => go::<T>(cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let (c, a, b) = (cx.build(), cx.x(1), cx.x(2));
        let Some(dy) = cx.dy(0).filter(|_| cx.fact(a).dtype.is_float()) else {
            return Ok(smallvec![None, None, None]);
        };
        let cond = cx.x(0);
        let da = if cx.needs(1) { Some(c.sum_to(c.keep_where(cond, dy)?, &cx.fact(a).shape)?) } else { None };
        let db = if cx.needs(2) { Some(c.sum_to(c.drop_where(cond, dy)?, &cx.fact(b).shape)?) } else { None };
        Ok(smallvec![None, da, db])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(1, 0), (2, 0)]
    }

    fn class(&self) -> Class {
        Class::Pointwise(Pointwise::Where(self.clone()))
    }
}

impl OpDef for Where {
    const NAME: &'static str = "where";

    fn samples() -> Vec<Sample<Self>> {
        let cond = t(&[true, false, false, true], [2, 2]);
        vec![
            Sample::new(Where, vec![cond.clone(), t(&[1.0f32, 2., 3., 4.], [2, 2]), t(&[-1.0f32, -2.], [2])])
                .gives(vec![t(&[1.0f32, -2., -1., 4.], [2, 2])]),
            Sample::new(Where, vec![t(&[true, false], [2, 1]), t(&[1.5f64], []), t(&[7.0f64, 8., 9.], [3])])
                .gives(vec![t(&[1.5f64, 1.5, 1.5, 7., 8., 9.], [2, 3])]),
            Sample::new(Where, vec![t(&[true], [1]), t(&[5u16], [1]), t(&[6u16], [1])]).gives(vec![t(&[5u16], [1])]),
            Sample::new(Where, vec![cond.clone(), t(&[true], []), t(&[false], [])]).gives(vec![cond.clone()]),
            Sample::new(Where, vec![t::<bool>(&[], [0]), t(&[1.0f32], []), t(&[2.0f32], [1])])
                .gives(vec![t::<f32>(&[], [0])])
                .no_grad("empty"),
            Sample::new(Where, vec![t(&[1u8], [1]), t(&[5u16], [1]), t(&[6u16], [1])]).fails(ErrorKind::DType),
            Sample::new(Where, vec![cond.clone(), t(&[5u8], [1]), t(&[6i8], [1])]).fails(ErrorKind::DType),
            Sample::new(Where, vec![cond, t(&[5u8; 3], [3]), t(&[6u8], [1])]).fails(ErrorKind::Shape),
        ]
    }
}
