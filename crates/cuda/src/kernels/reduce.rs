//! Reductions over any set of axes, fused or not, and whether all elements are finite.

use remat_kernels::scalar::Expression;
use remat_ops::Op;
use remat_ops::pointwise::{FusedReduce, UnaryFn};
use remat_ops::reduce::{AllFinite, ArgReduce, ArgReduceFn, LogSumExp, Reduce, ReduceFn, Std, Var};
use remat_types::{DType, ErrorKind, Fact, Layout, Result, Shape, SmallVec};

use super::fold::{Elements, Fold, Reducer};
use super::functions::unary;
use super::plan::{Builder, Operands, Plan};
use super::walk::Walk;
use crate::source::cast;
use crate::source::expression::statements;

/// Inputs that one launch looks through.
const INPUTS: usize = 16;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if any.is::<AllFinite>() {
        return Ok(Some(all_finite(o)));
    }
    let Some(dtype) = o.x.first().map(|x| x.dtype) else { return Ok(None) };
    if let Some(fused) = any.downcast_ref::<FusedReduce>() {
        return match fused_reduce(fused, o) {
            Ok(plan) => Ok(Some(plan)),
            // a function of a library has no form in C
            Err(e) if e.kind() == ErrorKind::Device => Ok(None),
            Err(e) => Err(e),
        };
    }
    let result = o.y[0].0;
    let (axes, passes): (SmallVec<[usize; 4]>, Vec<Reducer>) = if let Some(op) = any.downcast_ref::<Reduce>() {
        (op.axes.clone(), vec![reducer(op.f, dtype, result)])
    } else if let Some(op) = any.downcast_ref::<ArgReduce>() {
        (SmallVec::from_slice(&[op.axis]), vec![place_of(op.f, dtype)])
    } else if let Some(op) = any.downcast_ref::<LogSumExp>() {
        (op.axes.clone(), vec![reducer(ReduceFn::Max, dtype, dtype), shifted_exp(dtype)?])
    } else if let Some(op) = any.downcast_ref::<Var>() {
        let second = deviation("Deviation<Squares>", 16, dtype, divisor(o.shape(0), &op.axes, op.correction));
        (op.axes.clone(), vec![reducer(ReduceFn::Mean, dtype, dtype), second])
    } else if let Some(op) = any.downcast_ref::<Std>() {
        let divisor = divisor(o.shape(0), &op.axes, op.correction);
        let second = match dtype {
            DType::F64 => deviation("RootDeviation<BySize>", 32, dtype, divisor),
            _ => deviation("RootDeviation<Squares>", 16, dtype, divisor),
        };
        let first = Reducer {
            name: "Mean<double, double>".to_owned(),
            number: DType::F64,
            lane_bytes: 8,
            ..reducer(ReduceFn::Mean, dtype, dtype)
        };
        (op.axes.clone(), vec![first, second])
    } else {
        return Ok(None);
    };
    let fold = Fold::new(o.shape(0), &axes);
    let mut plan = Plan::default();
    passes.iter().for_each(|r| fold.plan(&mut plan, r, &Input(dtype)));
    Ok(Some(plan))
}

/// A dense input.
struct Input(DType);

impl Elements for Input {
    fn declare(&self, b: &mut Builder) {
        b.x(0, self.0);
    }

    fn load(&self) -> String {
        "return x0[i];\n".to_owned()
    }

    fn unroll(&self) -> u64 {
        16
    }
}

/// The elements that an expression gives of inputs.
struct Computed<'a> {
    dtypes: &'a [DType],
    walk: Walk,
    text: String,
}

impl<'a> Computed<'a> {
    fn new(e: &Expression, dtypes: &'a [DType], walk: Walk) -> Result<Computed<'a>> {
        let (places, at) = walk.places();
        let inputs: Vec<String> = at.iter().enumerate().map(|(k, at)| format!("x{k}[{at}]")).collect();
        let (text, results) = statements(e, &inputs, "v")?;
        let result = results.first().map_or("", String::as_str);
        Ok(Computed { dtypes, walk, text: format!("{places}{text}return {result};\n") })
    }
}

impl Elements for Computed<'_> {
    fn declare(&self, b: &mut Builder) {
        self.dtypes.iter().enumerate().for_each(|(i, dtype)| b.x(i, *dtype));
        self.walk.declare(b);
    }

    fn load(&self) -> String {
        self.text.clone()
    }

    fn unroll(&self) -> u64 {
        // the statements stand there as often
        4
    }
}

fn fused_reduce(op: &FusedReduce, o: &Operands<'_>) -> Result<Plan> {
    let dtypes = o.dtypes();
    let e = op.steps.expression(&dtypes)?;
    let facts: SmallVec<[Fact; 8]> = o.x.iter().map(|x| Fact::new(x.dtype, x.layout.shape().clone())).collect();
    let between = op.steps.infer(&facts.iter().collect::<SmallVec<[&Fact; 8]>>())?;
    let layouts: SmallVec<[&Layout; 8]> = o.x.iter().map(|x| x.layout).collect();
    let shape = &between[0].shape;
    let x = Computed::new(&e, &dtypes, Walk::new(shape, &layouts)?)?;
    let mut plan = Plan::default();
    Fold::new(shape, &op.reduce.axes).plan(&mut plan, &reducer(op.reduce.f, between[0].dtype, o.y[0].0), &x);
    Ok(plan)
}

/// The reducer of a function of elements of a dtype.
fn reducer(f: ReduceFn, dtype: DType, result: DType) -> Reducer {
    use ReduceFn::*;
    let (plain, wide) = match dtype {
        DType::F64 => (DType::F64, DType::F64),
        d if d.is_float() => (DType::F32, DType::F64),
        // integers wrap, so they are summed as unsigned ones
        DType::I64 | DType::U64 => (DType::U64, DType::U64),
        _ if matches!(result, DType::I64 | DType::U64) => (DType::U64, DType::U64),
        _ => (DType::U32, DType::U32),
    };
    let sums = |name: &str, number: DType, total: DType| Reducer {
        name: format!("{name}<{}, {}>", crate::source::c_type(number), crate::source::c_type(total)),
        element: dtype,
        number,
        total,
        result,
        lane_bytes: number.size_bytes() as u64,
        first: "0".to_owned(),
        functions: String::new(),
        divisor: 1.0,
    };
    match f {
        Sum | SumWide => sums("Sum", plain, wide),
        Mean => sums("Mean", plain, wide),
        SumSqr => sums("SumSqr", plain, wide),
        Prod | ProdWide => sums("Prod", wide, wide),
        Max | Any => pick(true, dtype),
        Min | All => pick(false, dtype),
        Norm if dtype == DType::F64 => {
            Reducer { name: "Norm<BySize>".to_owned(), lane_bytes: 24, ..sums("", plain, wide) }
        }
        Norm => Reducer { name: "Norm<Squares>".to_owned(), lane_bytes: 8, ..sums("", plain, wide) },
    }
}

/// The dtype in which elements are compared.
fn compared(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    }
}

fn pick(is_max: bool, dtype: DType) -> Reducer {
    let worst = if is_max { "f64_of_bits(0xfff0000000000000ull)" } else { "f64_of_bits(0x7ff0000000000000ull)" };
    Reducer {
        name: format!("Pick<{is_max}>"),
        element: dtype,
        number: compared(dtype),
        total: compared(dtype),
        result: dtype,
        lane_bytes: dtype.size_bytes() as u64,
        first: match dtype {
            DType::Bool => u8::from(!is_max).to_string(),
            // an integer is the least or the greatest
            _ => cast(DType::F64, dtype, worst),
        },
        functions: String::new(),
        divisor: 1.0,
    }
}

fn place_of(f: ArgReduceFn, dtype: DType) -> Reducer {
    let is_max = f == ArgReduceFn::Argmax;
    Reducer { name: format!("Arg<{is_max}>"), result: DType::I64, lane_bytes: 16, ..pick(is_max, dtype) }
}

fn shifted_exp(dtype: DType) -> Result<Reducer> {
    let mean = reducer(ReduceFn::Mean, dtype, dtype);
    let (name, lane_bytes) = if dtype == DType::F64 { ("ShiftedExp64", 16) } else { ("ShiftedExp", 4) };
    let functions = unary("exponential", UnaryFn::Exp)? + include_str!("doubles.cuh") + include_str!("shifted_exp.cuh");
    Ok(Reducer { name: name.to_owned(), lane_bytes, functions, ..mean })
}

fn deviation(name: &str, lane_bytes: u64, dtype: DType, divisor: f64) -> Reducer {
    Reducer { name: name.to_owned(), lane_bytes, divisor, ..reducer(ReduceFn::Mean, dtype, dtype) }
}

/// The elements of an output less a correction, or NaN where that is not positive.
fn divisor(shape: &Shape, axes: &[usize], correction: usize) -> f64 {
    let n: usize = axes.iter().map(|a| shape[*a]).product();
    if n > correction { (n - correction) as f64 } else { f64::NAN }
}

/// A launch that says true, and some that take it back.
fn all_finite(o: &Operands<'_>) -> Plan {
    let mut b = Builder::new("all_finite");
    b.y(0, DType::Bool);
    let mut plan = Plan::default();
    plan.calls.extend(b.each(1, "y0[0] = 1;\n"));
    for (k, inputs) in o.x.chunks(INPUTS).enumerate() {
        let mut b = Builder::new("any_not_finite");
        b.y(0, DType::Bool);
        let (mut most, mut body) = (0, String::new());
        for (i, x) in inputs.iter().enumerate() {
            let elems = x.layout.elems() as u64;
            b.parameter(format!("const {} *x{i}", crate::source::c_type(x.dtype)), super::Value::X(k * INPUTS + i));
            b.u64(format!("n{i}"), elems);
            most = most.max(elems);
            let number = compared(x.dtype);
            // of numbers that are not finite alone a difference from itself is no 0
            body += &format!(
                "if (i < n{i}) {{\nconst {} v = {};\nif (v - v != 0) y0[0] = 0;\n}}\n",
                crate::source::c_type(number),
                cast(x.dtype, number, &format!("x{i}[i]"))
            );
        }
        plan.calls.extend(b.each(most, &body));
    }
    plan
}
