use remat_kernels::copy::scatter;
use remat_types::{Error, ErrorKind, Fact, Facts, Layout, Result, for_storage, smallvec};

use super::Slice;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// The inputs one after the other along `axis`; at least one. They have one dtype, and equal extents on other axes.
///
/// Errors: Arity for no input, Axis if out of range, DType or Shape (both sides are said) where inputs disagree.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x..: any), gradient(x))]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Op for Concat {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let Some((first, rest)) = x.split_first() else {
            return Err(Error::new(ErrorKind::Arity, "takes at least one input"));
        };
        if self.axis >= first.rank() {
            let text = format!("axis {} is out of range for rank {}", self.axis, first.rank());
            return Err(Error::new(ErrorKind::Axis, text));
        }
        let mut shape = first.shape.clone();
        for (i, x) in rest.iter().enumerate() {
            if x.dtype != first.dtype {
                let text = format!("input 0 is {}, input {} is {}", first.dtype, i + 1, x.dtype);
                return Err(Error::new(ErrorKind::DType, text));
            }
            let fits = x.rank() == shape.rank() && (0..x.rank()).all(|a| a == self.axis || x.shape[a] == shape[a]);
            let sum = if fits { shape[self.axis].checked_add(x.shape[self.axis]) } else { None };
            let Some(sum) = sum else {
                let text =
                    format!("shape {} of input {} does not follow {shape} on axis {}", x.shape, i + 1, self.axis);
                return Err(Error::new(ErrorKind::Shape, text));
            };
            shape.dims_mut()[self.axis] = sum;
        }
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(first.dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let whole = Layout::contiguous(cx.y[0].shape().clone());
        let mut start = 0;
        for x in cx.x {
            let len = x.shape()[self.axis];
            let part = whole.slice(self.axis, start, len, 1)?;
            for_storage!(x.dtype(), T => scatter(x.slice::<T>()?, &part, cx.y[0].slice_mut()?));
            start += len;
        }
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok((0..cx.x_count()).map(|_| None).collect()) };
        let mut start = 0;
        (0..cx.x_count())
            .map(|i| {
                let len = cx.fact(cx.x(i)).shape[self.axis];
                let part = Slice { axis: self.axis, start, len, step: 1 };
                start += len;
                if cx.needs(i) { cx.apply(part, &[dy]).map(Some) } else { Ok(None) }
            })
            .collect()
    }
}

impl OpDef for Concat {
    const NAME: &'static str = "concat";

    fn samples() -> Vec<Sample<Self>> {
        let (a, b) = (|| t(&[1.0f32, 2., 3., 4.], [2, 2]), || t(&[5.0f32, 6.], [2, 1]));
        let op = |axis| Concat { axis };
        vec![
            Sample::new(op(1), vec![a(), b()]).gives(vec![t(&[1.0f32, 2., 5., 3., 4., 6.], [2, 3])]),
            Sample::new(op(0), vec![b(), b(), b()]).gives(vec![t(&[5.0f32, 6., 5., 6., 5., 6.], [6, 1])]),
            Sample::new(op(0), vec![a()]).gives(vec![a()]),
            Sample::new(op(0), vec![t(&[true], [1]), t::<bool>(&[], [0])]).gives(vec![t(&[true], [1])]),
            Sample::new(op(0), vec![t::<u8>(&[], [0]), t::<u8>(&[], [0])]).gives(vec![t::<u8>(&[], [0])]),
            Sample::new(op(0), vec![]).fails(ErrorKind::Arity),
            Sample::new(op(2), vec![a()]).fails(ErrorKind::Axis),
            Sample::new(op(0), vec![a(), b()]).fails(ErrorKind::Shape),
            Sample::new(op(0), vec![a(), t(&[1.0f32, 2.], [2])]).fails(ErrorKind::Shape),
            Sample::new(op(0), vec![a(), t(&[1.0f64, 2.], [1, 2])]).fails(ErrorKind::DType),
        ]
    }
}
