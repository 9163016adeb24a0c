use remat_kernels::optim::{Adafactor, Matrices, adafactor, adafactor_vector, adafactor_workspace_items};
use remat_types::{Error, ErrorKind, Fact, Facts, HostTensor, Result, Scalar, Shape, for_float};

use super::rule::{NO_GRADIENT, many, not_negative, step, want_step};
use super::{rate, want_rate};
use crate::args::want_shape;
use crate::args::{items_of, not_differentiable, not_taken, number, outputs, want_dtype, want_float, want_like};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// One step of Adafactor (Shazeer and Stern, ICML 2018), as `torch.optim.Adafactor` computes it.
///
/// `(param, grad, lr, step, row, col) -> (param, row, col)` for a parameter of rank 2 or more, of whose last two axes the
/// second moment is a product of one number a row, `row: [.., r, 1]`, and one a column, `col: [.., 1, c]`; if it is not
/// `factored` `(param, grad, lr, step, v) -> (param, v)`. With `w = step^beta2_decay`: `row = (1 - w) row + w mean_c grad^2`,
/// `col = (1 - w) col + w mean_r grad^2`, `v = row col / max(mean row, eps1)`, or `v = (1 - w) v + w grad^2`;
/// `u = grad / sqrt(max(v, eps1^2))`;
/// `param = param (1 - lr weight_decay) - u max(eps2, rms param) min(lr, 1 / sqrt step) / max(1, rms u / d)`, with root mean
/// squares of the whole parameter before the step. `lr` is a rank-0 f32 (or f64, as the parameter), `step` a rank-0 i64 from 1 on; all others have the
/// parameter's float dtype.
///
/// Errors: DType or Shape for tensors that do not fit, Axis for a rank below 2 if `factored`, Value for a `beta2_decay` above 0, a `d` that is not above 0, a
/// negative or non-finite number, or a step below 1. Not differentiable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(param: float, grad: float, lr: float, step: i64, row_or_v: float, col?: float))]
pub struct AdafactorUpdate {
    /// Exponent of the step in the share of the new gradient in the second moment.
    #[param(default = (-0.8).into())]
    pub beta2_decay: Scalar,
    /// The root of what a second moment is at least; where it is not said, the parameter's distance from 1 to the next number.
    pub eps1: Option<Scalar>,
    /// The lower bound of the root mean square of the parameter.
    #[param(default = 1e-3.into())]
    pub eps2: Scalar,
    /// The largest root mean square of a step.
    #[param(default = 1.0.into())]
    pub d: Scalar,
    /// Weight decay, on the parameter.
    #[param(default = 0.0.into())]
    pub weight_decay: Scalar,
    /// The second moment is that of rows and columns; for a parameter of rank 2 or more.
    #[param(default = true)]
    pub factored: bool,
}

/// Shapes of the second moment of a parameter: of the rows and columns of one of rank 2 or more, else the whole.
pub fn adafactor_shapes(param: &Shape) -> Vec<Shape> {
    let rank = param.rank();
    if rank < 2 {
        return vec![param.clone()];
    }
    let with_one = |axis: usize| param.iter().enumerate().map(|(a, d)| if a == axis { 1 } else { *d }).collect();
    vec![with_one(rank - 1), with_one(rank - 2)]
}

/// The matrices of a parameter of rank 2 or more.
fn matrices(param: &Shape) -> Matrices {
    let [outer @ .., rows, columns] = param.dims() else { return Matrices { count: 0, rows: 0, columns: 0 } };
    Matrices { count: outer.iter().product(), rows: *rows, columns: *columns }
}

impl AdafactorUpdate {
    /// Errors: Value.
    fn numbers(&self, dtype: remat_types::DType) -> Result<Adafactor> {
        let eps1 = match self.eps1 {
            Some(eps1) => not_negative(eps1, "eps1")?,
            None => epsilon_of(dtype),
        };
        Ok(Adafactor {
            lr: 0.0,
            beta2_decay: number(self.beta2_decay, "the decay's exponent", "finite and not above 0", |v| {
                v <= 0.0 && v.is_finite()
            })?,
            eps1,
            eps2: not_negative(self.eps2, "eps2")?,
            d: number(self.d, "d", "finite and above 0", |v| v > 0.0 && v.is_finite())?,
            weight_decay: not_negative(self.weight_decay, "weight decay")?,
            step: 1.0,
        })
    }
}

/// The distance from 1 to the next number of a float dtype.
fn epsilon_of(dtype: remat_types::DType) -> f64 {
    use remat_types::DType::*;
    match dtype {
        F16 => 2f64.powi(-10),
        BF16 => 2f64.powi(-7),
        F32 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    }
}

impl Op for AdafactorUpdate {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let param = x.first().map(|f| f.shape.clone()).unwrap_or_default();
        arity(x, if self.factored { 6 } else { 5 })?;
        self.numbers(x[0].dtype)?;
        want_float(x[0], "the parameter")?;
        if self.factored && param.rank() < 2 {
            let text = format!("the parameter has shape {param}: rank {}, too few for rows and columns", param.rank());
            return Err(Error::new(ErrorKind::Axis, text));
        }
        let shapes = if self.factored { adafactor_shapes(&param) } else { vec![param.clone()] };
        want_like(x[1], x[0], "the gradient")?;
        want_rate(x[2], x[0])?;
        want_step(x[3])?;
        for (f, shape) in x[4..].iter().zip(&shapes) {
            want_dtype(f, x[0].dtype, "a second moment")?;
            want_shape(f, shape, "a second moment")?;
        }
        let y = std::iter::once(param).chain(shapes).map(|shape| Fact::new(x[0].dtype, shape));
        Ok(y.collect())
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, x, pool) = (cx.x[0].dtype(), cx.x, cx.pool);
        let numbers = Adafactor { lr: rate(&x[2])?, step: step(&x[3])?, ..self.numbers(dtype)? };
        let matrices = matrices(x[0].shape());
        for_float!(dtype, T => {
            cx.output_from::<T>(0, 0)?;
            for j in 1..cx.y.len() {
                cx.output_from::<T>(3 + j, j)?;
            }
            let grad = x[1].slice::<T>()?;
            if !self.factored {
                let [param, v] = outputs(cx.y)?;
                adafactor_vector(pool, numbers, param.slice_mut::<T>()?, v.slice_mut()?, grad);
                return Ok(());
            }
            let workspace = items_of::<f64>(cx.workspace, adafactor_workspace_items(matrices))?;
            let [param, row, col] = outputs(cx.y)?;
            let (row, col) = (row.slice_mut()?, col.slice_mut()?);
            adafactor(pool, numbers, matrices, param.slice_mut::<T>()?, row, col, grad, workspace);
            Ok(())
        }, else Err(not_taken(dtype)))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Err(not_differentiable("an optimiser step"))
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        if self.factored { &[(0, 0), (4, 1), (5, 2)] } else { &[(0, 0), (4, 1)] }
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        match self.factored {
            false => 0,
            true => adafactor_workspace_items(matrices(&x[0].shape)).saturating_mul(size_of::<f64>()),
        }
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(20 * x[0].elems() as u64)
    }
}

impl OpDef for AdafactorUpdate {
    const NAME: &'static str = "adafactor_update";

    fn samples() -> Vec<Sample<Self>> {
        let op = |eps1: Option<f64>, eps2: f64, d: f64, weight_decay: f64| AdafactorUpdate {
            beta2_decay: (-1.0).into(),
            eps1: eps1.map(Into::into),
            eps2: eps2.into(),
            d: d.into(),
            weight_decay: weight_decay.into(),
            factored: true,
        };
        let whole = |eps1| AdafactorUpdate { factored: false, ..op(eps1, 1e-3, 1.0, 0.0) };
        let of = |op, x| Sample::new(op, x).no_grad(NO_GRADIENT);
        let with = |param: HostTensor, grad: HostTensor, lr: f32, step: i64, state: Vec<HostTensor>| {
            let mut x = vec![param, grad, t(&[lr], []), t(&[step], [])];
            x.extend(state);
            x
        };
        let matrix = |v: [f32; 4]| t(&v, [2, 2]);
        let (rows, columns) = (|v: [f32; 2]| t(&v, [2, 1]), |v: [f32; 2]| t(&v, [1, 2]));
        let first = || {
            let (zero_rows, zero_columns) = (rows([0.0; 2]), columns([0.0; 2]));
            with(matrix([2.0; 4]), matrix([3.0, 3.0, 1.0, 1.0]), 0.5, 1, vec![zero_rows, zero_columns])
        };
        let vector = |v: f32| t(&[v, v], [2]);
        let big = |pace: f32, shape: &[usize]| t(&many(pace)[..shape.iter().product()], shape);
        let ones = |shape: &[usize]| t(&vec![0.5f32; shape.iter().product()], shape);
        vec![
            // rows 9 and 1, columns 5 and 5, mean 5: the second moment is that of the gradient, u is 1 everywhere
            of(op(None, 1e-3, 1.0, 0.0), first()).gives(vec![matrix([1.0; 4]), rows([9.0, 1.0]), columns([5.0; 2])]),
            of(op(None, 1e-3, 0.5, 0.5), first()).gives(vec![matrix([1.0; 4]), rows([9.0, 1.0]), columns([5.0; 2])]),
            of(op(None, 4.0, 1.0, 0.0), first()).gives(vec![matrix([0.0; 4]), rows([9.0, 1.0]), columns([5.0; 2])]),
            // a vector in the fourth step: v = 3/4 4 + 1/4 4, u = 1, a rate of at most 1/2
            of(whole(None), with(vector(2.0), vector(2.0), 3.0, 4, vec![vector(4.0)]))
                .gives(vec![vector(1.0), vector(4.0)]),
            // a second moment of at least 16
            of(whole(Some(4.0)), with(vector(2.0), vector(2.0), 1.0, 4, vec![vector(4.0)]))
                .gives(vec![vector(1.5), vector(4.0)]),
            of(
                AdafactorUpdate { beta2_decay: (-0.8).into(), ..op(None, 1e-3, 1.0, 0.1) },
                with(
                    big(0.1, &[3, 20, 300]),
                    big(0.2, &[3, 20, 300]),
                    0.01,
                    4,
                    vec![ones(&[3, 20, 1]), ones(&[3, 1, 300])],
                ),
            ),
            of(whole(None), with(vector(2.0), vector(2.0), 3.0, 0, vec![vector(4.0)])).fails(ErrorKind::Value),
            of(op(None, 1e-3, 1.0, 0.0), with(vector(2.0), vector(2.0), 3.0, 1, vec![vector(4.0), vector(4.0)]))
                .fails(ErrorKind::Axis),
            of(op(None, 1e-3, 0.0, 0.0), first()).fails(ErrorKind::Value),
            of(op(None, 1e-3, 1.0, 0.0), first()[..5].to_vec()).fails(ErrorKind::Arity),
            of(op(None, 1e-3, 1.0, 0.0), {
                let mut x = first();
                x[4] = columns([0.0; 2]);
                x
            })
            .fails(ErrorKind::Shape),
        ]
    }
}
