//! Products of matrices, with the steps of a fused product on each element.

use remat_kernels::scalar::Expression;
use remat_ops::Op;
use remat_ops::linalg::{MatMul, MatMulWide};
use remat_ops::pointwise::FusedMatMul;
use remat_types::{DType, ErrorKind, Layout, Result, Shape, SmallVec};

use super::elementwise::statements_of;
use super::plan::{Builder, Input, Operands, Plan};
use super::walk::Walk;
use crate::driver::Grid;
use crate::source::{c_type, cast};

/// Threads of a block, 16 along each side of its tile.
const THREADS: u32 = 256;
/// The most blocks along the axis of the batch, and along that of rows.
const MOST_BLOCKS: u64 = 65_535;

/// The dtype in which products of a dtype are summed, and the type in C: integers wrap, so they are summed as unsigned ones.
pub(super) fn total(dtype: DType) -> (DType, &'static str) {
    match dtype {
        DType::F64 => (DType::F64, "double"),
        DType::I64 | DType::U64 => (DType::U64, "u64"),
        d if d.is_float() => (DType::F32, "float"),
        _ => (DType::U32, "u32"),
    }
}

/// The extent of a block's tile along an axis of the matrix, over 16: no more than the matrix has, so that few threads are idle.
pub(super) fn side(extent: u64) -> u64 {
    match extent {
        0..=16 => 1,
        17..=32 => 2,
        _ => 4,
    }
}

/// The types and functions that the sources of products use.
pub(super) fn vocabulary(dtype: DType) -> String {
    let (sum, total) = total(dtype);
    let element = c_type(dtype);
    let wide = cast(dtype, sum, "x");
    format!(
        "typedef {element} element;\ntypedef {total} total;\n\
         __device__ __forceinline__ total wide(element x) {{ return {wide}; }}\n"
    )
}

/// A matrix of the last two axes of an input.
struct Matrix {
    batch: Layout,
    strides: [i64; 2],
}

impl Matrix {
    fn of(x: &Input<'_>) -> Result<Matrix> {
        let axes = x.layout.rank() - 2;
        let s = x.layout.strides();
        let batch = Layout::new(Shape::from(&x.layout.shape()[..axes]), &s[..axes], 0)?;
        Ok(Matrix { batch, strides: [s[axes] as i64, s[axes + 1] as i64] })
    }
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let dtype = match o.x.first() {
        Some(x) => x.dtype,
        None => return Ok(None),
    };
    if any.is::<MatMul>() {
        return product(o, dtype, None).map(Some);
    }
    if any.is::<MatMulWide>() {
        return product(o, o.y[0].0, None).map(Some);
    }
    let Some(fused) = any.downcast_ref::<FusedMatMul>() else { return Ok(None) };
    let dtypes: SmallVec<[DType; 8]> = std::iter::once(dtype).chain(o.x[2..].iter().map(|x| x.dtype)).collect();
    match fused.steps.expression(&dtypes).and_then(|e| product(o, dtype, Some(&e))) {
        Ok(plan) => Ok(Some(plan)),
        // a function of a library has no form in C
        Err(e) if e.kind() == ErrorKind::Device => Ok(None),
        Err(e) => Err(e),
    }
}

/// The product of the first two inputs, rounded to `result`; then the steps, whose first input it is.
fn product(o: &Operands<'_>, result: DType, steps: Option<&Expression>) -> Result<Plan> {
    let [a, b] = [Matrix::of(&o.x[0])?, Matrix::of(&o.x[1])?];
    let shape = o.y[0].1;
    let axes = shape.rank() - 2;
    let (m, n, k) = (shape[axes] as u64, shape[axes + 1] as u64, o.shape(0)[o.shape(0).rank() - 1] as u64);
    let batches = Shape::from(&shape[..axes]);
    let batch = Walk::new(&batches, &[&a.batch, &b.batch])?;
    if o.elems(0) == 0 {
        return Ok(Plan::default());
    }
    let [rows, columns] = [side(m), side(n)];
    let [down, across] = [m.div_ceil(16 * rows), n.div_ceil(16 * columns)];
    let dtype = o.x[0].dtype;
    let (sum, _) = total(dtype);
    let mut builder = Builder::new("matmul");
    builder.functions(&vocabulary(dtype));
    builder.functions(include_str!("matmul.cuh"));
    builder.operands(o);
    for (name, value) in [("m", m), ("n", n), ("k", k), ("batches", batch.elems())] {
        builder.u64(name, value);
    }
    for (name, value) in ["am", "ak", "bk", "bn"].into_iter().zip(a.strides.iter().chain(&b.strides)) {
        builder.i64(name, *value);
    }
    batch.declare(&mut builder);
    let (places, at) = batch.places();
    let rounded = cast(sum, result, "sum");
    let p = c_type(result);
    let finish = match steps {
        None => format!("y0[at] = {rounded};\n"),
        Some(e) => {
            let others: SmallVec<[&Layout; 8]> = o.x[2..].iter().map(|x| x.layout).collect();
            let walk = Walk::named("t", shape, &others)?;
            walk.declare(&mut builder);
            let (places, at) = walk.places();
            let inputs: Vec<String> = std::iter::once("p".to_owned())
                .chain(at.iter().enumerate().map(|(j, at)| format!("x{}[{at}]", j + 2)))
                .collect();
            let (statements, _) = statements_of(e, &inputs)?;
            format!("const u64 i = at;\n{places}const {p} p = {rounded};\n{statements}")
        }
    };
    let body = format!(
        "for (u64 i = blockIdx.z; i < batches; i += gridDim.z) {{\n{places}\
         const StridedFactor a = {{x0 + {}, am, ak}}, b = {{x1 + {}, bn, bk}};\n\
         for (u64 tile = blockIdx.y; tile < (m + {height} - 1) / {height}; tile += gridDim.y)\n\
         product<{rows}, {columns}>(a, b, m, n, 0, k, [&](u64 row, u64 column, total sum) {{\n\
         const u64 at = (i * m + row) * n + column;\n{{\n{finish}}}\n}}, tile);\n}}\n",
        at[0],
        at[1],
        height = 16 * rows,
    );
    let blocks = [across as u32, down.min(MOST_BLOCKS) as u32, batch.elems().min(MOST_BLOCKS) as u32];
    Ok(builder.build(Grid { blocks, threads: [THREADS, 1, 1], shared_bytes: 0 }, &body).into())
}
