use remat_types::{Error, ErrorKind, Fact, Facts, Result, for_float, smallvec};

use crate::args::{not_taken, want_float};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y = w`, where every row of the last axis can be drawn from: numbers that are finite and not negative, and at least `least` of
/// them above 0.
///
/// No gradient. Errors: Axis for rank 0; DType for other than floats; at run time Value, which names the row and its fault.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(w: float))]
pub struct Weights {
    /// How many numbers of a row must be above 0.
    #[param(default = 1)]
    pub least: usize,
}

impl Weights {
    /// Errors: Value.
    fn check(&self, row: usize, w: impl Iterator<Item = f64>) -> Result<()> {
        let mut above = 0;
        for (i, w) in w.enumerate() {
            if !(w >= 0.0 && w.is_finite()) {
                let text = format!("weight {i} of row {row} is {w}: weights are finite and not negative");
                return Err(Error::new(ErrorKind::Value, text));
            }
            above += usize::from(w > 0.0);
        }
        if above < self.least {
            let text = format!("row {row} has {above} weights above 0, and {} are needed", self.least);
            return Err(Error::new(ErrorKind::Value, text));
        }
        Ok(())
    }
}

impl Op for Weights {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_float(x[0], "the weights")?;
        if x[0].shape.rank() == 0 {
            return Err(Error::new(ErrorKind::Axis, "the weights have rank 0, and no last axis"));
        }
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, shape) = (cx.x[0].dtype(), cx.x[0].shape().clone());
        let n = shape[shape.rank() - 1];
        for_float!(dtype, T => {
            let y = cx.output_from::<T>(0, 0)?;
            for row in 0..shape.elems().checked_div(n).unwrap_or(0) {
                self.check(row, y[row * n..][..n].iter().map(|w| remat_types::Element::to_f64(*w)))?;
            }
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

impl OpDef for Weights {
    const NAME: &'static str = "weights";

    fn samples() -> Vec<Sample<Self>> {
        const WHY: &str = "for draws, which have no gradient";
        let op = |least| Weights { least };
        let fails = |least, w: &[f32]| Sample::new(op(least), vec![t(w, [1, w.len()])]).fails(ErrorKind::Value);
        let w = || t(&[0.0f64, 1.0, 0.5, 2.0, 0.0, 1e-300], [2, 3]);
        vec![
            Sample::new(op(2), vec![w()]).gives(vec![w()]).no_grad(WHY),
            Sample::new(op(1), vec![t(&[0.0f32, 1e-45], [2])]).gives(vec![t(&[0.0f32, 1e-45], [2])]).no_grad(WHY),
            Sample::new(op(1), vec![t::<f32>(&[], [0, 3])]).gives(vec![t::<f32>(&[], [0, 3])]).no_grad(WHY),
            Sample::new(op(0), vec![t(&[0.0f32, 0.0], [2])]).gives(vec![t(&[0.0f32, 0.0], [2])]).no_grad(WHY),
            Sample::new(op(3), vec![w()]).fails(ErrorKind::Value),
            fails(1, &[0.0, 0.0]),
            fails(1, &[1.0, -1.0]),
            fails(1, &[1.0, f32::NAN]),
            fails(1, &[f32::INFINITY, 1.0]),
            Sample::new(op(1), vec![t(&[1.0f32], [])]).fails(ErrorKind::Axis),
            Sample::new(op(1), vec![t(&[1i32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(1), vec![]).fails(ErrorKind::Arity),
        ]
    }
}
