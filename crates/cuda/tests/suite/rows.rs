//! The pointwise functions as kernels.

use remat_cuda::source::PRELUDE;
use remat_cuda::source::expression::{c_type, statements};
use remat_kernels::scalar::Expression;
use remat_ops::pointwise::{Binary, BinaryFn, Cast, Clamp, Compare, CompareFn, Pointwise, Unary, UnaryFn, Where};
use remat_types::{DType, Scalar};

/// A function with a C form.
pub(crate) struct Row {
    /// The name of its kernel.
    pub(crate) name: String,
    pub(crate) op: Pointwise,
    pub(crate) expression: Expression,
}

/// Threads of a block of [`Row::kernel`].
pub(crate) const THREADS: u32 = 256;

impl Row {
    /// The function of inputs of these dtypes. `None` where it is not defined.
    fn new(name: String, op: Pointwise, dtypes: &[DType]) -> Option<Row> {
        let expression = op.expression(dtypes).ok()?;
        let of: String = dtypes.iter().map(|d| format!("_{d}")).collect();
        Some(Row { name: name + &of, op, expression })
    }

    /// The dtype of the result.
    pub(crate) fn result(&self) -> DType {
        self.expression.nodes[self.expression.results[0] as usize].dtype
    }

    /// A kernel that applies it to `n` elements of each input, which come before the output and `n` among the arguments. `None`
    /// for a function of a library, which has no form in C.
    pub(crate) fn kernel(&self) -> Option<String> {
        let e = &self.expression;
        let inputs: Vec<String> = (0..e.inputs.len()).map(|i| format!("x{i}[i]")).collect();
        let (body, results) = statements(e, &inputs, "v").ok()?;
        let x: String = e.inputs.iter().enumerate().map(|(i, d)| format!("const {} *x{i}, ", c_type(*d))).collect();
        let (name, y, result) = (&self.name, c_type(self.result()), &results[0]);
        Some(format!(
            "extern \"C\" __global__ void {name}({x}{y} *y, u64 n) {{\nu64 i = blockIdx.x * {THREADS}ull + threadIdx.x;\n\
             if (i >= n) return;\n{body}y[i] = {result};\n}}\n"
        ))
    }
}

/// The rows whose first input is of a dtype.
pub(crate) fn rows(dtype: DType) -> Vec<Row> {
    use DType::{BF16, F16, F32};
    let pairs: &[DType] = match dtype {
        F16 | BF16 => &[dtype, F32],
        F32 => &[F32, F16, BF16],
        _ => &[dtype],
    };
    let mut rows = Vec::new();
    let mut add = |name: String, op: Pointwise, dtypes: &[DType]| rows.extend(Row::new(name, op, dtypes));
    for &f in UnaryFn::ALL {
        add(format!("unary_{f:?}"), Pointwise::Unary(Unary { f }), &[dtype]);
    }
    for &second in pairs {
        for &f in BinaryFn::ALL {
            add(format!("binary_{f:?}"), Pointwise::Binary(Binary { f }), &[dtype, second]);
        }
        for &f in CompareFn::ALL {
            add(format!("compare_{f:?}"), Pointwise::Compare(Compare { f }), &[dtype, second]);
        }
    }
    for to in DType::ALL {
        add(format!("cast_{to}"), Pointwise::Cast(Cast { dtype: to }), &[dtype]);
    }
    let bounds: [[Scalar; 2]; 3] =
        [[(-1.5f64).into(), 2.7f64.into()], [(-300i64).into(), 5i64.into()], [7i64.into(), Scalar::Uint(u64::MAX - 1)]];
    for (i, [lo, hi]) in bounds.into_iter().enumerate() {
        add(format!("clamp_{i}"), Pointwise::Clamp(Clamp { lo, hi }), &[dtype]);
    }
    add("where".to_owned(), Pointwise::Where(Where), &[DType::Bool, dtype, dtype]);
    rows
}

/// One source of all rows that have a form in C, these rows, and the names of the others.
pub(crate) fn source(dtype: DType) -> (String, Vec<Row>, Vec<String>) {
    let (mut source, mut with_form, mut without) = (PRELUDE.to_owned(), Vec::new(), Vec::new());
    for row in rows(dtype) {
        match row.kernel() {
            Some(text) => {
                source += &text;
                with_form.push(row);
            }
            None => without.push(row.name),
        }
    }
    (source, with_form, without)
}
