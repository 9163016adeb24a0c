//! Element by element.

use remat_ops::OpDef;
use remat_ops::pointwise::{Binary, BinaryFn, Cast, Clamp, Compare, CompareFn, Unary, UnaryFn, Where};
use remat_types::{CallSite, DType, Error, ErrorKind, HostTensor, Result, Scalar, Shape, SmallVec, for_dtype, promote};

use crate::site::At;
use crate::{Tensor, tape};

/// The right side of a binary method: a tensor, or a number, which takes the tensor's dtype.
pub trait IntoOperand {
    /// A tensor for use beside `like`. Errors: Value for a number that `like`'s dtype cannot hold as what it is.
    fn operand(self, like: &Tensor) -> Result<Tensor>;
}

impl IntoOperand for &Tensor {
    fn operand(self, _like: &Tensor) -> Result<Tensor> {
        Ok(self.clone())
    }
}
impl IntoOperand for Tensor {
    fn operand(self, _like: &Tensor) -> Result<Tensor> {
        Ok(self)
    }
}
impl IntoOperand for f64 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        if !like.dtype().is_float() {
            let text = format!("the number {self} beside a tensor of {}; cast the tensor first", like.dtype());
            return Err(Error::new(ErrorKind::DType, text));
        }
        constant(like, Scalar::Float(self))
    }
}
impl IntoOperand for f32 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        f64::from(self).operand(like)
    }
}
impl IntoOperand for i64 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        let exact = for_dtype!(like.dtype(), T => {
            let v: T = Scalar::Int(self).cast();
            like.dtype().is_float() || (remat_types::Element::to_i64(v) == self && (self >= 0 || !is_unsigned(like.dtype())))
        });
        if !exact {
            return Err(Error::new(ErrorKind::Value, format!("{self} does not fit {}", like.dtype())));
        }
        constant(like, Scalar::Int(self))
    }
}
impl IntoOperand for i32 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        i64::from(self).operand(like)
    }
}
impl IntoOperand for bool {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        constant(like, Scalar::Bool(self))
    }
}

fn is_unsigned(d: DType) -> bool {
    d.is_int() && !d.is_signed_int()
}

fn constant(like: &Tensor, v: Scalar) -> Result<Tensor> {
    let host = for_dtype!(like.dtype(), T => HostTensor::from_slice(&[v.cast::<T>()], Shape::scalar()))?;
    Ok(Tensor::from_handle(like.channel().put(&host)?))
}

/// Both operands in their common dtype.
#[track_caller]
fn promoted(a: Tensor, b: Tensor) -> Result<SmallVec<[Tensor; 4]>> {
    let dtype = promote(a.dtype(), b.dtype());
    Ok(SmallVec::from_iter([cast_owned(a, dtype)?, cast_owned(b, dtype)?]))
}

#[track_caller]
fn cast_owned(t: Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype { Ok(t) } else { Tensor::apply_owned(Cast { dtype }, [t]) }
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident => $f:ident;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// Errors: DType outside the function's domain.
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                Tensor::apply1(Unary { f: UnaryFn::$f }, &[self])
            }
        )* }
    };
}

unary_methods! {
    /// `max(x, 0)`; the derivative at 0 is 0.
    relu => Relu;
    /// `min(max(x, 0), 6)`.
    relu6 => Relu6;
    /// `|x|`.
    abs => Abs;
    /// `-x`.
    neg => Neg;
    /// `e^x`.
    exp => Exp;
    /// `e^x - 1`, accurate near 0.
    expm1 => Expm1;
    /// `ln x`.
    log => Log;
    /// `ln(1 + x)`, accurate near 0.
    log1p => Log1p;
    /// `sqrt x`.
    sqrt => Sqrt;
    /// `1 / sqrt x`.
    rsqrt => Rsqrt;
    /// `x^2`.
    square => Square;
    /// `1 / x`.
    recip => Recip;
    /// `sin x`.
    sin => Sin;
    /// `cos x`.
    cos => Cos;
    /// `tan x`.
    tan => Tan;
    /// `arcsin x`.
    asin => Asin;
    /// `arccos x`.
    acos => Acos;
    /// `arctan x`.
    atan => Atan;
    /// `sinh x`.
    sinh => Sinh;
    /// `cosh x`.
    cosh => Cosh;
    /// `tanh x`.
    tanh => Tanh;
    /// `arsinh x`.
    asinh => Asinh;
    /// `arcosh x`.
    acosh => Acosh;
    /// `artanh x`.
    atanh => Atanh;
    /// `1 / (1 + e^-x)`.
    sigmoid => Sigmoid;
    /// `ln sigmoid(x)`.
    logsigmoid => Logsigmoid;
    /// `ln(1 + e^x)`.
    softplus => Softplus;
    /// `x sigmoid(x)`.
    silu => Silu;
    /// `x Phi(x)`, with the normal distribution function by erf.
    gelu => Gelu;
    /// The tanh approximation of GELU.
    gelu_tanh => GeluTanh;
    /// The error function.
    erf => Erf;
    /// `1 - erf x`.
    erfc => Erfc;
    /// The inverse of erf.
    erfinv => Erfinv;
    /// The inverse of erfc.
    erfcinv => Erfcinv;
    /// The largest whole number not above x.
    floor => Floor;
    /// The smallest whole number not below x.
    ceil => Ceil;
    /// The nearest whole number, halves away from zero.
    round => Round;
    /// x without its fraction.
    trunc => Trunc;
    /// -1, 0 or 1.
    sign => Sign;
    /// `min(max(x + 3, 0), 6) / 6`.
    hsigmoid => Hsigmoid;
    /// `x hsigmoid(x)`.
    hswish => Hswish;
    /// Whether x is no number.
    is_nan => IsNan;
    /// Whether x is infinite.
    is_inf => IsInf;
    /// Whether x is neither.
    is_finite => IsFinite;
    /// `!x` of bools.
    logical_not => LogicalNot;
    /// Every bit flipped.
    bit_not => BitNot;
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $f:ident;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// Shapes broadcast, dtypes are promoted. Errors: Shape, DType.
            #[track_caller]
            pub fn $name(&self, b: impl IntoOperand) -> Result<Tensor> {
                self.binary(BinaryFn::$f, b)
            }
        )* }
    };
}

binary_methods! {
    /// `a + b`.
    add => Add;
    /// `a - b`.
    sub => Sub;
    /// `a b`.
    mul => Mul;
    /// `a / b`; integers truncate, and division by zero is an error of kind Value at run time.
    div => Div;
    /// `floor(a / b)`.
    floor_div => FloorDiv;
    /// `a - b floor(a / b)`: the sign of b.
    rem => Rem;
    /// `a^b`.
    pow => Pow;
    /// The larger; NaN if either is. A tie shares the gradient.
    maximum => Max;
    /// The smaller; NaN if either is. A tie shares the gradient.
    minimum => Min;
    /// The angle of the point (b, a).
    atan2 => Atan2;
    /// `ln(e^a + e^b)`.
    log_add_exp => LogAddExp;
    /// `a & b`.
    bit_and => BitAnd;
    /// `a | b`.
    bit_or => BitOr;
    /// `a ^ b`.
    bit_xor => BitXor;
    /// `a << b`; 0 beyond the width.
    shl => Shl;
    /// `a >> b`; the sign's fill beyond the width.
    shr => Shr;
    /// Both, of bools.
    logical_and => LogicalAnd;
    /// Either, of bools.
    logical_or => LogicalOr;
    /// One of both, of bools.
    logical_xor => LogicalXor;
    /// `a > 0 ? a : a b`.
    prelu => Prelu;
}

macro_rules! compare_methods {
    ($($(#[$doc:meta])* $name:ident => $f:ident;)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// As bools; shapes broadcast, dtypes are promoted. Errors: Shape.
            #[track_caller]
            pub fn $name(&self, b: impl IntoOperand) -> Result<Tensor> {
                let op = Compare { f: CompareFn::$f };
                let x = promoted(self.clone(), b.operand(self).at(OpDef::label(&op))?)?;
                Tensor::apply_owned(op, x)
            }
        )* }
    };
}

compare_methods! {
    /// `a == b`.
    eq => Eq;
    /// `a != b`.
    ne => Ne;
    /// `a < b`.
    lt => Lt;
    /// `a <= b`.
    le => Le;
    /// `a > b`.
    gt => Gt;
    /// `a >= b`.
    ge => Ge;
}

impl Tensor {
    #[track_caller]
    pub(crate) fn binary(&self, f: BinaryFn, b: impl IntoOperand) -> Result<Tensor> {
        let op = Binary { f };
        let x = promoted(self.clone(), b.operand(self).at(OpDef::label(&op))?)?;
        let mut y = tape::apply(op.into(), x, CallSite::here())?;
        Ok(y.swap_remove(0))
    }

    /// The elements converted to `dtype`: floats round to nearest even, integers truncate and saturate from floats
    /// and wrap from integers.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        cast_owned(self.clone(), dtype)
    }

    /// `min(max(x, lo), hi)`. Errors: Value if `lo > hi`.
    #[track_caller]
    pub fn clamp(&self, lo: impl Into<Scalar>, hi: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::apply1(Clamp { lo: lo.into(), hi: hi.into() }, &[self])
    }

    /// `self ? a : b`, element by element, with broadcasting; `self` is of bools, `a` and `b` are promoted.
    #[track_caller]
    pub fn select(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let ab = promoted(a.clone(), b.clone())?;
        Tensor::apply_owned(Where, std::iter::once(self.clone()).chain(ab))
    }
}
