use bytemuck::{cast_slice, cast_slice_mut};
use remat_kernels::pointwise::map2;
use remat_types::{Error, ErrorKind, Fact, Facts, Layout, Result, for_storage, smallvec};

use super::binary_table::{Grad2, Reject, row};
use super::loops::{Lane, block_mixed, for_mixed};
use super::{BinaryFn, Cast, Pointwise, broadcast, joint_dtype, not_defined, operand};
use crate::host::arity;
use crate::schema::Params;
use crate::{Class, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample, Var};

/// `y = f(a, b)`, element by element with broadcasting; both inputs and `y` have one dtype.
///
/// f16 and bf16 are computed in f32 and rounded once; beside one of them the other input may be of f32, and enters as it
/// is. Errors: DType for two other dtypes or outside the domain of `f`, Shape where shapes do not broadcast, Value where an
/// integer function has no value (see [`BinaryFn`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: any, b: any), gradient(a, b))]
pub struct Binary {
    /// The function.
    pub f: BinaryFn,
}

impl Op for Binary {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let dtype = joint_dtype(x[0], x[1])?;
        if !row(self.f).loops.has(dtype) {
            return Err(not_defined(dtype));
        }
        Ok(smallvec![Fact::new(dtype, broadcast(x)?)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Lane>(f: BinaryFn, cx: &mut EvalCx<'_>) -> Result<()> {
            let (dtype, row, y) = (cx.x[0].dtype(), row(f), &mut cx.y[0]);
            let (a, b) = (operand::<T>(&cx.x[0], y.shape())?, operand::<T>(&cx.x[1], y.shape())?);
            if dtype.is_int() && row.reject != Reject::Nothing {
                let b = &cx.x[1];
                let whole = Layout::contiguous(b.shape().clone());
                let (data, layout) = match b.is_donated() {
                    true => (&*y.slice_mut::<T>()?, &whole),
                    false => (b.storage::<T>()?, b.layout()),
                };
                accepted(row.reject, data, layout)?;
            }
            if !row.loops.has(dtype) {
                return Err(not_defined(dtype));
            }
            map2(cx.pool, &a, &b, y.slice_mut()?, &|a: &[T], b: &[T], y: &mut [T]| {
                T::block2(&row.loops, dtype, a, b, y);
            });
            Ok(())
        }
        let dtypes = [cx.x[0].dtype(), cx.x[1].dtype()];
        if dtypes[0] != dtypes[1] {
            let f = row(self.f).loops.f32.ok_or_else(|| not_defined(dtypes[0]))?;
            let y = &mut cx.y[0];
            return for_mixed!(dtypes, A, B => {
                let (a, b) = (operand::<A>(&cx.x[0], y.shape())?, operand::<B>(&cx.x[1], y.shape())?);
                // that both 16-bit floats have two bytes is all that is known of the output here
                map2(cx.pool, &a, &b, cast_slice_mut::<u8, u16>(y.bytes_mut()), &|a: &[A], b: &[B], y: &mut [u16]| {
                    block_mixed(f, dtypes, cast_slice(a), cast_slice(b), cast_slice_mut(y));
                });
                Ok(())
            });
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self.f, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0).filter(|_| cx.fact(cx.x(0)).dtype.is_float()) else {
            return Ok(smallvec![None, None]);
        };
        let c = cx.build();
        let (a, b) = (cx.x(0), cx.x(1));
        let grads: [Option<Var>; 2] = match row(self.f).grad {
            Grad2::None => [None, None],
            Grad2::Chain { a: rule_a, b: rule_b } => {
                let vars = [a, b, cx.y(0), dy];
                let run = |i: usize, rule: super::binary_table::Rule| match rule {
                    Some(rule) if cx.needs(i) => rule(c, vars).map(Some),
                    _ => Ok(None),
                };
                [run(0, rule_a)?, run(1, rule_b)?]
            }
            Grad2::Linear(slope) => {
                let da = if cx.needs(0) { Some(c.bin(self.f, dy, b)?) } else { None };
                let db = match slope {
                    Some(slope) if cx.needs(1) => Some(c.mul(c.mul(dy, a)?, slope(c, b)?)?),
                    _ => None,
                };
                [da, db]
            }
            Grad2::Through(build) => {
                return cx.grad_via_composite(|cx, x| Ok(smallvec![build(cx.build(), x[0], x[1])?]));
            }
        };
        let mut out = Grads::new();
        for (g, x) in grads.into_iter().zip([a, b]) {
            let fact = cx.fact(x);
            let widened = |g: Var| match cx.fact(g).dtype == fact.dtype {
                true => Ok(g),
                false => cx.apply(Cast { dtype: fact.dtype }, &[g]),
            };
            out.push(g.map(|g| c.sum_to(widened(g)?, &fact.shape)).transpose()?);
        }
        Ok(out)
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0), (1, 0)]
    }

    fn class(&self) -> Class {
        Class::Pointwise(Pointwise::Binary(self.clone()))
    }
}

/// Errors (Value) if an integer of `b` is one that the function rejects.
fn accepted<T: Lane>(reject: Reject, b: &[T], layout: &Layout) -> Result<()> {
    let zero = T::default();
    let bad = |v: T| if reject == Reject::Zero { v == zero } else { v < zero };
    let at = match layout.is_contiguous() {
        true => b[layout.offset()..layout.offset() + layout.elems()].iter().position(|&v| bad(v)),
        false => layout.indices().position(|i| bad(b[i])),
    };
    at.map_or(Ok(()), |at| {
        let what = if reject == Reject::Zero { "zero" } else { "negative" };
        Err(Error::new(ErrorKind::Value, format!("element {at} of the second input is {what}")))
    })
}

impl OpDef for Binary {
    const NAME: &'static str = "binary";

    fn label(&self) -> &'static str {
        row(self.f).name
    }

    fn samples() -> Vec<Sample<Self>> {
        super::samples::binary()
    }
}
