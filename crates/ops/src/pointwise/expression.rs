//! Pointwise ops as expressions, for what generates code from them.

use remat_kernels::scalar::{AnyExpr, Builder, Expression};
use remat_types::{DType, Fact, Result, Shape, SmallVec, for_dtype};

use super::unary_table::Form1;
use super::{Fused, Pointwise, binary_table, not_defined, unary_table};

impl Pointwise {
    /// The function of one element, given elements of `dtypes`: its value has the bits that the op has, but for which NaN
    /// one is.
    ///
    /// A divisor of integers that is 0, or an exponent or a shift below 0, is for the caller to refuse, as the op does.
    /// Errors: Arity, DType as the op has them.
    pub fn expression(&self, dtypes: &[DType]) -> Result<Expression> {
        let facts: SmallVec<[Fact; 3]> = dtypes.iter().map(|d| Fact::new(*d, Shape::scalar())).collect();
        self.op().infer(&facts.iter().collect::<SmallVec<[&Fact; 3]>>())?;
        let builder = Builder::default();
        let given: SmallVec<[AnyExpr<'_>; 3]> = dtypes.iter().map(|d| builder.input(*d)).collect();
        Ok(builder.finish(&[self.written(&given)?]))
    }

    /// The op of values that it takes.
    fn written<'b>(&self, x: &[AnyExpr<'b>]) -> Result<AnyExpr<'b>> {
        let given: SmallVec<[DType; 3]> = x.iter().map(|x| x.dtype()).collect();
        match self {
            Pointwise::Unary(op) => match &unary_table::row(op.f).form {
                Form1::Same(l) => (l.written)(given[0], x),
                Form1::Test(l) => (l.written)(given[0], x),
            },
            Pointwise::Binary(op) => (binary_table::row(op.f).loops.written)(self.dtype(&given), x),
            Pointwise::Compare(op) => {
                let joint = if given[0] == given[1] { given[0] } else { DType::F32 };
                Some(for_dtype!(joint, T => op.f.of(x[0].to::<T>(), x[1].to::<T>()).any()))
            }
            Pointwise::Where(_) => Some(x[0].choose(x[1], x[2])),
            Pointwise::Cast(op) => Some(x[0].convert(op.dtype)),
            Pointwise::Clamp(op) => Some(op.written(x[0])),
        }
        .ok_or_else(|| not_defined(given[0]))
    }
}

impl Fused {
    /// All steps as one expression of elements of `dtypes`, whose results are the outputs. What lies between two steps is
    /// rounded as the steps do it. Errors: those of the op.
    pub fn expression(&self, dtypes: &[DType]) -> Result<Expression> {
        let facts: SmallVec<[Fact; 8]> = dtypes.iter().map(|d| Fact::new(*d, Shape::scalar())).collect();
        self.facts(&facts.iter().collect::<SmallVec<[&Fact; 8]>>())?;
        let builder = Builder::default();
        let mut values: SmallVec<[AnyExpr<'_>; 8]> = dtypes.iter().map(|d| builder.input(*d)).collect();
        for s in &self.steps {
            let given: SmallVec<[AnyExpr<'_>; 3]> = s.x.iter().map(|i| values[usize::from(*i)]).collect();
            values.push(s.op.written(&given)?);
        }
        let results: SmallVec<[AnyExpr<'_>; 4]> =
            self.outputs.iter().map(|k| values[dtypes.len() + usize::from(*k)]).collect();
        Ok(builder.finish(&results))
    }
}
