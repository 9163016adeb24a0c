//! Places of the largest elements of windows and regions, and boxes that stay beside others.

use remat_ops::Op;
use remat_ops::vision::{Nms, PoolIndices, RoiPoolIndices};
use remat_types::{DType, Result};

use super::plan::{Builder, Call, Operands, Plan, Value, grid};
use crate::source::{c_type, cast};

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let call = if let Some(op) = any.downcast_ref::<PoolIndices>() {
        windows(op, o)
    } else if let Some(op) = any.downcast_ref::<RoiPoolIndices>() {
        regions(op, o)
    } else if let Some(op) = any.downcast_ref::<Nms>() {
        Some(nms(op, o)).filter(|_| o.elems(0) > 0)
    } else {
        return Ok(None);
    };
    Ok(Some(call.map_or_else(Plan::default, Plan::from)))
}

/// The function by which an element takes the place of the largest so far; NaN is the largest, and the first one stays.
fn beats(dtype: DType) -> String {
    let wide = match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    };
    let t = c_type(wide);
    format!(
        "typedef {t} number;\n__device__ __forceinline__ number number_of({} x) {{ return {}; }}\n\
         __device__ __forceinline__ bool beats(number a, number b) {{ return a > b || (a != a && b == b); }}\n",
        c_type(dtype),
        cast(dtype, wide, "x")
    )
}

/// A window of each output: statements that find where it begins and ends along an axis, as `from{a}`, `end{a}`,
/// `by{a}`.
fn window(op: &PoolIndices, b: &mut Builder, a: usize, size: usize) -> String {
    b.u64(format!("size{a}"), size as u64);
    b.u64(format!("out{a}"), op.out[a] as u64);
    let begin = format!("const u64 o{a} = rest % out{a};\nrest /= out{a};\n");
    if op.kernel.is_empty() {
        return begin
            + &format!(
                "const u64 from{a} = o{a} * size{a} / out{a}, by{a} = 1;\n\
                 const u64 end{a} = ((o{a} + 1) * size{a} + out{a} - 1) / out{a};\n"
            );
    }
    b.u64(format!("reach{a}"), ((op.kernel[a] - 1) * op.dilation[a] + 1) as u64);
    b.u64(format!("stride{a}"), op.stride[a] as u64);
    b.u64(format!("by{a}"), op.dilation[a] as u64);
    b.u64(format!("before{a}"), op.before[a] as u64);
    begin
        + &format!(
            "const u64 at{a} = o{a} * stride{a};\n\
             const u64 skipped{a} = at{a} < before{a} ? (before{a} - at{a} + by{a} - 1) / by{a} : 0;\n\
             const u64 last{a} = at{a} + reach{a} > before{a} ? at{a} + reach{a} - before{a} : 0;\n\
             const u64 end{a} = last{a} < size{a} ? last{a} : size{a};\n\
             const u64 from{a} = at{a} + skipped{a} * by{a} - before{a};\n"
        )
}

fn windows(op: &PoolIndices, o: &Operands<'_>) -> Option<Call> {
    let sizes = &o.shape(0)[2..];
    let mut b = Builder::new("pool_indices");
    b.functions(&beats(o.x[0].dtype));
    b.operands(o);
    b.u64("plane", sizes.iter().product::<usize>() as u64);
    let mut body = "u64 rest = i;\n".to_owned();
    for a in (0..sizes.len()).rev() {
        body += &window(op, &mut b, a, sizes[a]);
    }
    body += "const auto *x = x0 + rest * plane;\nbool is_first = true;\nnumber most = 0;\nu64 place = 0;\n";
    let mut at = "0".to_owned();
    for a in 0..sizes.len() {
        body += &format!("for (u64 c{a} = from{a}; c{a} < end{a}; c{a} += by{a}) {{\n");
        at = if a == 0 { "c0".to_owned() } else { format!("({at}) * size{a} + c{a}") };
    }
    body += &format!(
        "const u64 at = {at};\nconst number v = number_of(x[at]);\n\
         if (is_first || beats(v, most)) {{\nmost = v;\nplace = at;\nis_first = false;\n}}\n{}\ny0[i] = (i64)place;\n",
        "}".repeat(sizes.len())
    );
    b.each(o.elems(0), &body)
}

/// Parts of regions, whose corners are rounded in f64.
fn regions(op: &RoiPoolIndices, o: &Operands<'_>) -> Option<Call> {
    let s = o.shape(0);
    let mut b = Builder::new("roi_pool_indices");
    b.functions(&beats(o.x[0].dtype));
    b.functions(
        "__device__ __forceinline__ u64 cut(double v, double from, u64 size) {\nconst double at = v + from;\n\
         return u64_of_f64(at < 0.0 ? 0.0 : at > (double)size ? (double)size : at);\n}\n",
    );
    b.operands(o);
    let extents =
        [("images", s[0]), ("channels", s[1]), ("h", s[2]), ("w", s[3]), ("oh", op.size[0]), ("ow", op.size[1])];
    extents.into_iter().for_each(|(name, v)| b.u64(name, v as u64));
    b.parameter("double scale", Value::F64(op.scale.to_f64()));
    let body = "u64 rest = i;\nconst u64 column = rest % ow;\nrest /= ow;\nconst u64 row = rest % oh;\nrest /= oh;\n\
        const u64 channel = rest % channels, region = rest / channels;\nconst double *corner = x1 + region * 5;\n\
        const double image = corner[0], left = round(corner[1] * scale), top = round(corner[2] * scale);\n\
        const double width = fmax(round(corner[3] * scale) - left + 1.0, 1.0) / (double)ow;\n\
        const double height = fmax(round(corner[4] * scale) - top + 1.0, 1.0) / (double)oh;\n\
        bool is_first = true;\nnumber most = 0;\ni64 place = -1;\n\
        if (image >= 0.0 && image < (double)images) {\n\
        const u64 plane = (u64_of_f64(image) * channels + channel) * h * w;\n\
        const u64 bottom = cut(ceil((double)(row + 1) * height), top, h);\n\
        const u64 right = cut(ceil((double)(column + 1) * width), left, w);\n\
        for (u64 r = cut(floor((double)row * height), top, h); r < bottom; ++r) {\n\
        for (u64 c = cut(floor((double)column * width), left, w); c < right; ++c) {\n\
        const u64 at = plane + r * w + c;\nconst number v = number_of(x0[at]);\n\
        if (is_first || beats(v, most)) {\nmost = v;\nplace = (i64)at;\nis_first = false;\n}\n}\n}\n}\n\
        y0[i] = place;\n";
    b.each(o.elems(0), body)
}

/// Boxes one after the other by one block, whose threads compare each that stays with those behind it.
fn nms(op: &Nms, o: &Operands<'_>) -> Call {
    let real = c_type(o.x[0].dtype);
    let mut b = Builder::new("nms");
    b.functions(&format!(
        "typedef {real} real;\n\
         __device__ __forceinline__ real most_of(real a, real b) {{ return a > b ? a : b; }}\n\
         __device__ __forceinline__ real least_of(real a, real b) {{ return a < b ? a : b; }}\n\
         __device__ __forceinline__ real overlap(const real *a, const real *b) {{\n\
         const real width = most_of(least_of(a[2], b[2]) - most_of(a[0], b[0]), (real)0);\n\
         const real height = most_of(least_of(a[3], b[3]) - most_of(a[1], b[1]), (real)0);\n\
         const real both = width * height;\n\
         return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both);\n}}\n"
    ));
    b.operands(o);
    b.u64("n", o.elems(0));
    b.parameter("double allowed", Value::F64(op.most.to_f64()));
    let body = "for (u64 j = threadIdx.x; j < n; j += blockDim.x) y0[j] = 1;\n__syncthreads();\n\
                for (u64 k = 0; k < n; ++k) {\nif (y0[k] == 0) continue;\n\
                for (u64 j = k + 1 + threadIdx.x; j < n; j += blockDim.x) {\n\
                if (y0[j] == 1 && x1[k] == x1[j] && (double)overlap(x0 + 4 * k, x0 + 4 * j) > allowed) y0[j] = 0;\n}\n\
                __syncthreads();\n}\n";
    b.resident(1);
    b.build(grid(1, 1024), body)
}
