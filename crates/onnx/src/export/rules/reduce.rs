//! Over axes.

use remat_ops::reduce::{AllFinite, ArgReduce, ArgReduceFn, LogSumExp, Reduce, ReduceFn, Std, Var};
use remat_types::{DType, Result};

use super::{Row, Rule, pointwise, row};
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::Cx;

pub(super) const ROWS: &[Row] =
    &[row::<Reduce>(), row::<ArgReduce>(), row::<LogSumExp>(), row::<Var>(), row::<Std>(), row::<AllFinite>()];

impl Rule for Reduce {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (mut x, from, to) = (c.x(0)?, c.dtype(0)?, c.result(0)?.dtype);
        let op = match self.f {
            ReduceFn::Sum | ReduceFn::SumWide => "ReduceSum",
            ReduceFn::Mean => "ReduceMean",
            ReduceFn::Prod | ReduceFn::ProdWide => "ReduceProd",
            ReduceFn::Max | ReduceFn::Any => "ReduceMax",
            ReduceFn::Min | ReduceFn::All => "ReduceMin",
            ReduceFn::SumSqr => "ReduceSumSquare",
            ReduceFn::Norm => "ReduceL2",
        };
        // truth values are 1 or 0
        let logic = matches!(self.f, ReduceFn::Any | ReduceFn::All);
        let least = matches!(op, "ReduceMax" | "ReduceMin");
        let own = if logic { DType::U8 } else { whole(to, least) };
        x = c.cast_from(&x, from, own);
        let y = match (self.axes.is_empty(), self.f) {
            (false, _) => c.reduce(op, &x, &self.axes, self.keepdims)?,
            // of single elements
            (true, ReduceFn::SumSqr) => c.op("Mul", &[&x, &x]),
            (true, ReduceFn::Norm) => c.op("Abs", &[&x]),
            (true, _) => c.op("Identity", &[&x]),
        };
        Ok(vec![c.cast_from(&y, own, to)])
    }
}

/// The dtype in which the standard adds up numbers: it has no sums of small integers, and the largest of those of 8 bits at the
/// least. What wraps is the same of the low bits.
pub(super) fn whole(dtype: DType, bytes_too: bool) -> DType {
    match dtype {
        DType::I8 | DType::U8 if bytes_too => dtype,
        DType::I8 | DType::U8 | DType::I16 | DType::U16 => DType::I32,
        other => other,
    }
}

impl Rule for ArgReduce {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (x, from) = (c.x(0)?, c.dtype(0)?);
        let x = c.cast_from(&x, from, if from == DType::Bool { DType::U8 } else { from });
        let op = match self.f {
            ArgReduceFn::Argmax => "ArgMax",
            ArgReduceFn::Argmin => "ArgMin",
        };
        let attributes = vec![attr::size("axis", self.axis), attr::flag("keepdims", self.keepdims)];
        Ok(vec![c.with(op, &[&x], attributes)])
    }
}

impl Rule for LogSumExp {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.x(0)?;
        if self.axes.is_empty() {
            return Ok(vec![c.op("Identity", &[&x])]);
        }
        Ok(vec![c.reduce("ReduceLogSumExp", &x, &self.axes, self.keepdims)?])
    }
}

/// The variance, in f64 as the op has it, and its dtype.
fn variance(c: &mut Cx<'_>, axes: &[usize], keepdims: bool, correction: usize) -> Result<(Name, DType)> {
    let (x, from, shape) = (c.x(0)?, c.dtype(0)?, c.dims(0)?);
    let wide = DType::F64;
    let x = c.cast_from(&x, from, wide);
    let count: usize = axes.iter().filter_map(|a| shape.get(*a)).product();
    let squares = match axes.is_empty() {
        true => c.op("Sub", &[&x, &x]),
        false => {
            let mean = c.reduce("ReduceMean", &x, axes, true)?;
            let apart = c.op("Sub", &[&x, &mean]);
            c.reduce("ReduceSumSquare", &apart, axes, keepdims)?
        }
    };
    let left = if count > correction { (count - correction) as f64 } else { f64::NAN };
    let left = c.number(wide, left);
    Ok((c.op("Div", &[&squares, &left]), wide))
}

impl Rule for Var {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (y, dtype) = variance(c, &self.axes, self.keepdims, self.correction)?;
        let to = c.result(0)?.dtype;
        Ok(vec![c.cast_from(&y, dtype, to)])
    }
}

impl Rule for Std {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (y, dtype) = variance(c, &self.axes, self.keepdims, self.correction)?;
        let (y, to) = (c.op("Sqrt", &[&y]), c.result(0)?.dtype);
        Ok(vec![c.cast_from(&y, dtype, to)])
    }
}

impl Rule for AllFinite {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let mut all: Option<Name> = None;
        for (i, x) in c.all().into_iter().enumerate() {
            let (dtype, elems) = (c.dtype(i)?, c.fact(i)?.elems());
            let finite = pointwise::unary(c, remat_ops::pointwise::UnaryFn::IsFinite, &x, dtype)?;
            let flat = c.reshape(&finite, &[elems])?;
            let numbers = c.cast(&flat, DType::U8);
            let least = c.reduce("ReduceMin", &numbers, &[0], false)?;
            let own = c.cast(&least, DType::Bool);
            all = Some(match all {
                Some(all) => c.op("And", &[&all, &own]),
                None => own,
            });
        }
        Ok(all.into_iter().collect())
    }
}
