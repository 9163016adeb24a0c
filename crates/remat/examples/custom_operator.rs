//! An operator outside of this repository, checked as those within it.

use remat::ops::pointwise::{Binary, BinaryFn, Fill, Unary, UnaryFn};
use remat::ops::schema::Params;
use remat::ops::{EvalCx, GradCx, Grads, Op, OpDef, Sample};
use remat::prelude::*;
use remat::types::{Element, Fact, Facts, for_float, smallvec};

/// `y = x^3`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(crate = remat::ops, inputs(x: float), gradient(x))]
struct Cube {}

impl Op for Cube {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let [x] = x else { return Err(Error::new(ErrorKind::Arity, format!("takes 1 input, got {}", x.len()))) };
        if !x.dtype.is_float() {
            return Err(Error::new(ErrorKind::DType, format!("is not defined for {}", x.dtype)));
        }
        Ok(smallvec![Fact::new(x.dtype, x.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        for_float!(cx.x[0].dtype(), T => {
            let x = cx.x[0].slice::<T>()?;
            for (y, x) in cx.y[0].slice_mut::<T>()?.iter_mut().zip(x) {
                *y = T::from_f64(x.to_f64().powi(3));
            }
            Ok(())
        }, else Err(Error::new(ErrorKind::DType, "checked by infer")))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let (x, Some(dy)) = (cx.x(0), cx.dy(0)) else { return Ok(smallvec![None]) };
        let (mul, dtype) = (Binary { f: BinaryFn::Mul }, cx.fact(x).dtype);
        let three = cx.apply(Fill { dtype, shape: Shape::scalar(), value: 3.0.into() }, &[])?;
        let square = cx.apply(Unary { f: UnaryFn::Square }, &[x])?;
        let slope = cx.apply(mul.clone(), &[square, three])?;
        Ok(smallvec![Some(cx.apply(mul, &[dy, slope])?)])
    }
}

impl OpDef for Cube {
    const NAME: &'static str = "cube";

    fn samples() -> Vec<Sample<Self>> {
        let of = |x: HostTensor| Sample::new(Cube {}, vec![x]);
        let floats = |v: [f32; 2]| HostTensor::from_slice(&v, [2]).expect("two elements");
        vec![
            of(floats([1.0, -2.0])).gives(vec![floats([1.0, -8.0])]),
            of(HostTensor::scalar(1i32)).fails(ErrorKind::DType),
        ]
    }
}

fn main() -> Result<()> {
    let failures = remat::ops::testing::check_entry(&remat::ops::Entry::for_op::<Cube>());
    assert!(failures.is_empty(), "{failures:?}");

    let device = Device::cpu(DeviceOptions::default())?;
    let x = Tensor::new(&device, &[2.0f32], [1])?.requires_grad()?;
    let y = Tensor::apply1(Cube {}, &[&x])?;
    y.backward()?;
    assert_eq!(x.grad().expect("y depends on x").to_vec::<f32>()?, [12.0]);
    Ok(())
}
