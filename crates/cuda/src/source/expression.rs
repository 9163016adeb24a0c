//! Scalar functions as statements of C.
//!
//! An [`Expression`] is the one definition of a pointwise function. The CPU's loop comes from the same Rust function, so a
//! statement for each node, rounded as the node says, has the CPU's bits.

use std::fmt::Write;

use remat_kernels::scalar::{Expression, Node, Op};
use remat_types::{DType, Error, ErrorKind, Result};

/// The type in C that holds a number of a dtype. 16-bit floats are held as their bits.
pub fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 | DType::Bool => "u8",
        DType::U16 | DType::F16 | DType::BF16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
    }
}

/// Statements that compute an expression, and the variables that have its results. `inputs` are C expressions for the inputs, each
/// of its type; `prefix` begins the names of the variables, so that several expressions can stand in one block.
///
/// Errors: Device for a function of a library of the CPU's, since there is no transcription of it.
pub fn statements(e: &Expression, inputs: &[String], prefix: &str) -> Result<(String, Vec<String>)> {
    let mut text = String::new();
    for (i, node) in e.nodes.iter().enumerate() {
        let args: Vec<Arg<'_>> = node.args.iter().map(|a| Arg::new(e, prefix, *a)).collect();
        let value = value(node, &args, inputs)?;
        // writing to a String cannot fail
        let _ = writeln!(text, "const {} {prefix}{i} = {value};", c_type(node.dtype));
    }
    Ok((text, e.results.iter().map(|r| format!("{prefix}{r}")).collect()))
}

/// An argument of a node: a variable and its dtype.
struct Arg<'e> {
    name: String,
    node: &'e Node,
}

impl<'e> Arg<'e> {
    fn new(e: &'e Expression, prefix: &str, at: u32) -> Self {
        Arg { name: format!("{prefix}{at}"), node: &e.nodes[at as usize] }
    }

    fn dtype(&self) -> DType {
        self.node.dtype
    }
}

fn value(node: &Node, args: &[Arg<'_>], inputs: &[String]) -> Result<String> {
    let x = |i: usize| args.get(i).map_or("", |a| a.name.as_str());
    let of = args.first().map_or(node.dtype, Arg::dtype);
    Ok(match node.op {
        Op::Input(i) => inputs.get(usize::from(i)).cloned().ok_or_else(|| internal("an input that was not given"))?,
        Op::Constant(bits) => constant(node.dtype, bits),
        Op::Select => format!("{} ? {} : {}", x(0), x(1), x(2)),
        Op::Convert => cast(of, node.dtype, x(0)),
        Op::Bits => reinterpreted(of, node.dtype, x(0)),
        Op::Call32(f) => return Err(unsupported(&format!("{f:?}"))),
        Op::Call64(f) => return Err(unsupported(&format!("{f:?}"))),
        Op::Call64x2(f) => return Err(unsupported(&format!("{f:?}"))),
        Op::Eq | Op::Ne | Op::Lt | Op::Le => format!("(u8)({} {} {})", x(0), operator(node.op), x(1)),
        op => match of {
            DType::F32 | DType::F64 => float(op, of, x)?,
            DType::Bool => flag(op, x)?,
            _ => integer(op, of, x)?,
        },
    })
}

fn internal(text: &str) -> Error {
    Error::new(ErrorKind::Internal, text)
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Device, format!("{what} has no form in C"))
}

fn constant(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::F32 => format!("f32_of_bits({bits:#x}u)"),
        DType::F64 => format!("f64_of_bits({bits:#x}ull)"),
        _ => format!("({}){bits:#x}ull", c_type(dtype)),
    }
}

fn operator(op: Op) -> &'static str {
    match op {
        Op::Eq => "==",
        Op::Ne => "!=",
        Op::Lt => "<",
        Op::Le => "<=",
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::Div => "/",
        Op::BitAnd => "&",
        Op::BitOr => "|",
        _ => "^",
    }
}

/// Arithmetic of floats. The compiler contracts nothing, and divides and takes roots as IEEE 754 has it.
fn float<'a>(op: Op, dtype: DType, x: impl Fn(usize) -> &'a str) -> Result<String> {
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    let call = |name: &str| format!("{name}{suffix}({})", x(0));
    Ok(match op {
        Op::Neg => format!("-{}", x(0)),
        Op::Abs => call("fabs"),
        Op::Sqrt if dtype == DType::F32 => format!("__fsqrt_rn({})", x(0)),
        Op::Sqrt => format!("__dsqrt_rn({})", x(0)),
        Op::Floor => call("floor"),
        Op::Ceil => call("ceil"),
        Op::Trunc => call("trunc"),
        Op::Round => call("round"),
        Op::RoundTiesEven => call("rint"),
        Op::Add | Op::Sub | Op::Mul | Op::Div => format!("{} {} {}", x(0), operator(op), x(1)),
        Op::Rem => format!("fmod_{}({}, {})", if dtype == DType::F32 { "f32" } else { "f64" }, x(0), x(1)),
        Op::Copysign => format!("copysign{suffix}({}, {})", x(0), x(1)),
        Op::MulAdd => format!("fma{suffix}({}, {}, {})", x(0), x(1), x(2)),
        op => return Err(internal(&format!("{op:?} of {dtype}"))),
    })
}

/// Arithmetic of integers, modulo a power of two: in 64 unsigned bits, which C defines for every value.
fn integer<'a>(op: Op, dtype: DType, x: impl Fn(usize) -> &'a str) -> Result<String> {
    let t = c_type(dtype);
    let shift = format!("({} & {})", x(1), 8 * dtype.size_bytes() - 1);
    Ok(match op {
        Op::Neg => format!("({t})(0ull - (u64){})", x(0)),
        Op::Not => format!("({t})~{}", x(0)),
        Op::Add | Op::Sub | Op::Mul => format!("({t})((u64){} {} (u64){})", x(0), operator(op), x(1)),
        Op::Div => format!("quotient<{t}>({}, {})", x(0), x(1)),
        Op::Rem => format!("remainder_of<{t}>({}, {})", x(0), x(1)),
        Op::Pow => format!("power<{t}>({}, {})", x(0), x(1)),
        Op::BitAnd | Op::BitOr | Op::BitXor => format!("({t})({} {} {})", x(0), operator(op), x(1)),
        Op::Shl => format!("({t})((u64){} << {shift})", x(0)),
        Op::Shr => format!("({t})({} >> {shift})", x(0)),
        op => return Err(internal(&format!("{op:?} of {dtype}"))),
    })
}

fn flag<'a>(op: Op, x: impl Fn(usize) -> &'a str) -> Result<String> {
    Ok(match op {
        Op::Not => format!("(u8)({} ^ 1)", x(0)),
        Op::BitAnd | Op::BitOr | Op::BitXor => format!("(u8)({} {} {})", x(0), operator(op), x(1)),
        op => return Err(internal(&format!("{op:?} of bool"))),
    })
}

/// The C expression `x` of one dtype in another: to a float the nearest, ties to even, rounded once; from a float to an integer towards zero, saturated, with
/// 0 for NaN; between integers modulo a power of two; to a Bool `x != 0`.
pub fn cast(from: DType, to: DType, x: &str) -> String {
    let t = c_type(to);
    if from == to {
        return x.to_owned();
    }
    // 16-bit floats are exact in f32
    match from {
        DType::F16 => return cast(DType::F32, to, &format!("f32_of_f16({x})")),
        DType::BF16 => return cast(DType::F32, to, &format!("f32_of_bf16({x})")),
        _ => {}
    }
    let is_wide = matches!(from, DType::I32 | DType::I64 | DType::U32 | DType::U64);
    let wide = if matches!(from, DType::U64) { "u64" } else { "i64" };
    match to {
        DType::Bool => format!("(u8)({x} != 0)"),
        DType::F32 | DType::F64 => format!("({t}){x}"),
        DType::F16 if from == DType::F64 => format!("f16_of_f64({x})"),
        DType::BF16 if from == DType::F64 => format!("bf16_of_f64({x})"),
        DType::F16 if is_wide => format!("f16_of_{wide}(({wide}){x})"),
        DType::BF16 if is_wide => format!("bf16_of_{wide}(({wide}){x})"),
        // narrower integers are exact in f32
        DType::F16 => format!("f16_of_f32((float){x})"),
        DType::BF16 => format!("bf16_of_f32((float){x})"),
        DType::U64 if from.is_float() => format!("u64_of_f64((double){x})"),
        DType::I64 if from.is_float() => format!("i64_of_f64((double){x})"),
        _ if from.is_float() => {
            let (lo, hi) = range(to);
            format!("({t})clamp_i64(i64_of_f64((double){x}), {lo}ll, {hi}ll)")
        }
        _ => format!("({t}){x}"),
    }
}

/// The least and the greatest number of an integer type of at most 32 bits.
fn range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::I16 => (i16::MIN.into(), i16::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        DType::U16 => (0, u16::MAX.into()),
        _ => (0, u32::MAX.into()),
    }
}

/// The bits of `x` in a type that is as wide.
fn reinterpreted(from: DType, to: DType, x: &str) -> String {
    let t = c_type(to);
    match (from, to) {
        (DType::F32, DType::F32) | (DType::F64, DType::F64) => x.to_owned(),
        (DType::F32, _) => format!("({t})bits_of_f32({x})"),
        (DType::F64, _) => format!("({t})bits_of_f64({x})"),
        (_, DType::F32) => format!("f32_of_bits((u32){x})"),
        (_, DType::F64) => format!("f64_of_bits((u64){x})"),
        _ => format!("({t}){x}"),
    }
}
