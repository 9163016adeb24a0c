//! Gamma and Poisson numbers. Those of f64 are left to the host, of whose library they take functions.

use remat_ops::Op;
use remat_ops::random::{GammaSample, PoissonSample};
use remat_types::{DType, Result};

use super::plan::{Builder, Operands, Plan};
use crate::source::cast;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let number = if let Some(op) = any.downcast_ref::<GammaSample>() {
        format!("gamma_number<{}>", op.log)
    } else if any.is::<PoissonSample>() {
        "poisson_number".to_owned()
    } else {
        return Ok(None);
    };
    let dtype = o.y[0].0;
    if dtype == DType::F64 {
        return Ok(None);
    }
    let mut b = Builder::new("shaped");
    b.functions(include_str!("power.cuh"));
    b.functions(include_str!("random.cuh"));
    b.functions(include_str!("shaped.cuh"));
    b.operands(o);
    let (x, y) = (cast(dtype, DType::F64, "x1[i]"), cast(DType::F64, dtype, "y"));
    let body = format!("const double y = {number}(Draws{{x0, i << 32}}, {x});\ny0[i] = {y};\n");
    Ok(Some(b.each(o.elems(0), &body).map_or_else(Plan::default, Plan::from)))
}
