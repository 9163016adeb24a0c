use remat_kernels::cumulate::recurrence;
use remat_types::{ErrorKind, Fact, Facts, Result, for_float, smallvec};

use super::{along, axis_in, neighbour};
use crate::args::{not_taken, want_float, want_like};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[i] = a[i] y[i - 1] + b[i]` along `axis`, and `y[0] = b[0]`; from the last element to the first if `reverse`.
///
/// `a, b, y` of one shape and float dtype; sums are f64, rounded for each element. Errors: Axis if out of range, DType for other
/// dtypes, DType or Shape where `a` and `b` differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float, b: float), gradient(a, b))]
pub struct Recurrence {
    /// The axis.
    pub axis: usize,
    /// Whether it is walked from its end.
    #[param(default = false)]
    pub reverse: bool,
}

impl Op for Recurrence {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        want_float(x[0], "a")?;
        want_like(x[1], x[0], "b")?;
        axis_in(self.axis, &x[0].shape)?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, along) = (cx.x[0].dtype(), along(cx.x[0].shape(), self.axis, self.reverse, false));
        for_float!(dtype, T => {
            recurrence::<T>(cx.pool, along, cx.x[0].slice()?, cx.x[1].slice()?, cx.y[0].slice_mut()?);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        // what goes to b[i] is dy[i], and what went to b[i + 1] times a[i + 1]
        let next = neighbour(cx, cx.x(0), self.axis, !self.reverse, 0.0)?;
        let back = Recurrence { axis: self.axis, reverse: !self.reverse };
        let db = cx.apply(back, &[next, dy])?;
        if !cx.needs(0) {
            return Ok(smallvec![None, Some(db)]);
        }
        let before = neighbour(cx, cx.y(0), self.axis, self.reverse, 0.0)?;
        Ok(smallvec![Some(cx.build().mul(db, before)?), Some(db)])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = 4 * y.iter().map(|f| f.elems() as u64).sum::<u64>();
        Cost::bytes(x, y).with_flops(flops)
    }
}

impl OpDef for Recurrence {
    const NAME: &'static str = "recurrence";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, reverse| Recurrence { axis, reverse };
        let a = || t(&[9.0f32, 2., -1., 9., 0., 0.5], [2, 3]);
        let b = || t(&[1.0f32, 1., 3., 4., 5., 6.], [2, 3]);
        vec![
            Sample::new(op(1, false), vec![a(), b()]).gives(vec![t(&[1.0f32, 3., 0., 4., 5., 8.5], [2, 3])]),
            Sample::new(op(1, true), vec![a(), b()]).gives(vec![t(&[64.0f32, 7., 3., 49., 5., 6.], [2, 3])]),
            Sample::new(op(0, false), vec![a(), b()]).gives(vec![t(&[1.0f32, 1., 3., 13., 5., 7.5], [2, 3])]),
            Sample::new(op(0, true), vec![a(), b()]),
            Sample::new(op(0, false), vec![t(&[f32::NAN], [1]), t(&[2.0f32], [1])])
                .gives(vec![t(&[2.0f32], [1])])
                .no_grad("the first factor does not count"),
            Sample::new(op(1, false), vec![t::<f64>(&[], [2, 0]), t::<f64>(&[], [2, 0])])
                .gives(vec![t::<f64>(&[], [2, 0])]),
            Sample::new(op(2, false), vec![a(), b()]).fails(ErrorKind::Axis),
            Sample::new(op(0, false), vec![a(), t(&[1.0f32], [1])]).fails(ErrorKind::Shape),
            Sample::new(op(0, false), vec![t(&[1i32], [1]), t(&[1i32], [1])]).fails(ErrorKind::DType),
        ]
    }
}
