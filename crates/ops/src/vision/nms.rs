use remat_kernels::vision::keep_boxes;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Scalar, smallvec};

use crate::args::{not_taken, number, want_dtype, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// Non-maximum suppression: marks the boxes that stay. From the first on, a box stays if its intersection over union with
/// every box of its group that stays before it is at most `most`.
///
/// `boxes: [n, 4]` of f32 or f64, left, top, right, bottom; `groups: [n]` of I64; bools `[n]`. Errors: DType; Shape;
/// Value for a NaN.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(boxes: float, groups: int))]
pub struct Nms {
    /// The overlap that is allowed.
    pub most: Scalar,
}

impl Op for Nms {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        number(self.most, "the overlap", "a number", |v| !v.is_nan())?;
        if !matches!(x[0].dtype, DType::F32 | DType::F64) {
            return Err(not_taken(x[0].dtype));
        }
        if x[0].rank() != 2 || x[0].shape[1] != 4 {
            return Err(Error::new(ErrorKind::Shape, format!("boxes have shape {}, not [n, 4]", x[0].shape)));
        }
        want_dtype(x[1], DType::I64, "groups")?;
        want_shape(x[1], &x[0].shape[..1], "groups")?;
        Ok(smallvec![Fact::new(DType::Bool, [x[0].shape[0]])])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (groups, most) = (cx.x[1].slice::<i64>()?, self.most.to_f64());
        let keep = cx.y[0].slice_mut::<u8>()?;
        match cx.x[0].dtype() {
            DType::F64 => keep_boxes(cx.x[0].slice::<f64>()?, groups, most, keep),
            _ => keep_boxes(cx.x[0].slice::<f32>()?, groups, most, keep),
        }
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None, None])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let n = y[0].elems() as u64;
        Cost::bytes(x, y).with_flops(n.saturating_mul(n).saturating_mul(8))
    }
}

impl OpDef for Nms {
    const NAME: &'static str = "nms";

    fn samples() -> Vec<Sample<Self>> {
        let op = |most: f64| Nms { most: most.into() };
        let boxes = || t(&[0.0f32, 0., 2., 2., 0., 0., 2., 1.5, 3., 3., 4., 4., 0., 0., 2., 2.], [4, 4]);
        let one = || t(&[0i64; 4], [4]);
        let samples = vec![
            Sample::new(op(0.5), vec![boxes(), one()]).gives(vec![t(&[true, false, true, false], [4])]),
            Sample::new(op(0.8), vec![boxes(), one()]).gives(vec![t(&[true, true, true, false], [4])]),
            Sample::new(op(0.5), vec![boxes(), t(&[0i64, 0, 0, 1], [4])])
                .gives(vec![t(&[true, false, true, true], [4])]),
            Sample::new(op(0.5), vec![t::<f64>(&[], [0, 4]), t::<i64>(&[], [0])]).gives(vec![t::<bool>(&[], [0])]),
            Sample::new(op(0.5), vec![t(&[0.0f32; 6], [2, 3]), t(&[0i64; 2], [2])]).fails(ErrorKind::Shape),
            Sample::new(op(0.5), vec![boxes(), t(&[0i64; 3], [3])]).fails(ErrorKind::Shape),
            Sample::new(op(0.5), vec![boxes(), t(&[0.0f32; 4], [4])]).fails(ErrorKind::DType),
            Sample::new(op(f64::NAN), vec![boxes(), one()]).fails(ErrorKind::Value),
        ];
        samples.into_iter().map(|s| s.no_grad("a choice")).collect()
    }
}
