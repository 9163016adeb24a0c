//! Finished expressions and their interpreter.

use remat_types::{DType, SmallVec, bf16, f16, for_dtype};

use super::{Flag, Float, Fn32, Fn64, Fn64x2, Int, Ordered, Plain, convert};

/// The function of a node. Its arguments have one type unless stated otherwise, and arithmetic is in this type.
/// Floats follow IEEE 754, rounded once to nearest even. Integers are modulo a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// This input.
    Input(u16),
    /// The value of these bits, which are the low ones.
    Constant(u64),
    /// `-a`: the other sign, of zeros and NaN too.
    Neg,
    /// `a` without its sign.
    Abs,
    /// The square root.
    Sqrt,
    /// The largest integer not above `a`.
    Floor,
    /// The smallest integer not below `a`.
    Ceil,
    /// The integer part of `a`.
    Trunc,
    /// The nearest integer; halves go away from zero.
    Round,
    /// The nearest integer; halves go to the even one.
    RoundTiesEven,
    /// The complement of each bit, or of a Bool.
    Not,
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`; of integers towards zero, where `b` is not 0, and the least number over -1 is itself.
    Div,
    /// `a - b trunc(a / b)`, exactly; of integers where `b` is not 0.
    Rem,
    /// `|a|` with the sign of `b`.
    Copysign,
    /// `a^b` of integers, for a `b` not below 0: by squaring, which takes as many steps as `b` has bits.
    Pow,
    /// And, of each bit or of Bools.
    BitAnd,
    /// Or.
    BitOr,
    /// Exclusive or.
    BitXor,
    /// `a` shifted left by the low bits of `b`: as many bits as it takes to write the width less one.
    Shl,
    /// `a` shifted right by such, filled with the sign.
    Shr,
    /// `a == b`, a Bool. NaN is unequal to all, and neither less nor greater.
    Eq,
    /// `a != b`, a Bool.
    Ne,
    /// `a < b`, a Bool.
    Lt,
    /// `a <= b`, a Bool.
    Le,
    /// `a * b + c`, rounded once.
    MulAdd,
    /// `b` where `a`, a Bool, holds, else `c`.
    Select,
    /// `a` in the node's type; see [`convert`].
    Convert,
    /// The bits of `a` in the node's type, which is as wide.
    Bits,
    /// A function of f32 of a library.
    Call32(Fn32),
    /// A function of f64 of a library.
    Call64(Fn64),
    /// A function of two numbers of f64 of a library.
    Call64x2(Fn64x2),
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The function.
    pub op: Op,
    /// The type of the value. F16 and BF16 are converted and selected, never computed with.
    pub dtype: DType,
    /// The argument nodes, all of them earlier ones.
    pub args: SmallVec<[u32; 3]>,
}

/// A scalar function as data: every node comes after those that it needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    /// The types of the inputs.
    pub inputs: Vec<DType>,
    /// The operations, inputs and constants among them.
    pub nodes: Vec<Node>,
    /// The nodes whose values are the results.
    pub results: Vec<u32>,
}

/// Elements that go through a node together.
const BLOCK: usize = 128;

impl Expression {
    /// The value of each result for each element. An element is the bits of a number in the low end of a word, and the
    /// rest of the word is 0. A Bool is 0 or 1. Inputs and results are of one length.
    pub fn eval(&self, x: &[&[u64]], y: &mut [&mut [u64]]) {
        let elems = y.first().map_or(0, |y| y.len());
        let mut values = vec![[0; BLOCK]; self.nodes.len()];
        for from in (0..elems).step_by(BLOCK) {
            let n = BLOCK.min(elems - from);
            for (at, node) in self.nodes.iter().enumerate() {
                let (earlier, rest) = values.split_at_mut(at);
                let value = &mut rest[0][..n];
                match node.op {
                    Op::Input(i) => value.copy_from_slice(&x[usize::from(i)][from..from + n]),
                    Op::Constant(word) if from == 0 => value.fill(word),
                    Op::Constant(_) => {}
                    op => {
                        let given: SmallVec<[&[u64]; 3]> =
                            node.args.iter().map(|x| &earlier[*x as usize][..n]).collect();
                        compute(op, self.nodes[node.args[0] as usize].dtype, node.dtype, &given, value);
                    }
                }
            }
            for (y, at) in y.iter_mut().zip(&self.results) {
                y[from..from + n].copy_from_slice(&values[*at as usize][..n]);
            }
        }
    }
}

fn one<A: Plain, Y: Plain>(x: &[&[u64]], y: &mut [u64], f: impl Fn(A) -> Y) {
    y.iter_mut().zip(x[0]).for_each(|(y, a)| *y = f(A::of_word(*a)).to_word());
}

fn two<A: Plain, Y: Plain>(x: &[&[u64]], y: &mut [u64], f: impl Fn(A, A) -> Y) {
    y.iter_mut().zip(x[0]).zip(x[1]).for_each(|((y, a), b)| *y = f(A::of_word(*a), A::of_word(*b)).to_word());
}

/// `y = op(x)` of values in words; `from` is the type of the first argument, `to` that of the value.
pub(super) fn compute(op: Op, from: DType, to: DType, x: &[&[u64]], y: &mut [u64]) {
    match op {
        Op::Bits => y.copy_from_slice(x[0]),
        Op::Select => {
            let both = x[1].iter().zip(x[2]);
            y.iter_mut().zip(x[0]).zip(both).for_each(|((y, m), (a, b))| *y = if *m != 0 { *a } else { *b });
        }
        Op::Convert => match (from, to) {
            (DType::F32, DType::F64) => one(x, y, convert::<f32, f64>),
            (DType::F64, DType::F32) => one(x, y, convert::<f64, f32>),
            (DType::F32, DType::F16) => one(x, y, f16::from_f32),
            (DType::F32, DType::BF16) => one(x, y, bf16::from_f32),
            _ => {
                let f = converter(from, to);
                y.iter_mut().zip(x[0]).for_each(|(y, a)| *y = f(*a));
            }
        },
        Op::Call32(f) => one(x, y, |a| f.call(a)),
        Op::Call64(f) => one(x, y, |a| f.call(a)),
        Op::Call64x2(f) => two(x, y, |a, b| f.call(a, b)),
        _ => match from {
            DType::F32 => floats::<f32>(op, x, y),
            DType::F64 => floats::<f64>(op, x, y),
            DType::I8 => ints::<i8>(op, x, y),
            DType::I16 => ints::<i16>(op, x, y),
            DType::I32 => ints::<i32>(op, x, y),
            DType::I64 => ints::<i64>(op, x, y),
            DType::U8 => ints::<u8>(op, x, y),
            DType::U16 => ints::<u16>(op, x, y),
            DType::U32 => ints::<u32>(op, x, y),
            DType::U64 => ints::<u64>(op, x, y),
            DType::Bool => flags(op, x, y),
            DType::F16 | DType::BF16 => unreachable!("{from} is not computed with: {op:?}"),
        },
    }
}

/// The conversion of words.
fn converter(from: DType, to: DType) -> fn(u64) -> u64 {
    for_dtype!(from, A => for_dtype!(to, B => |word| convert::<A, B>(A::of_word(word)).to_word()))
}

fn floats<T: Plain + Float<Mask = bool>>(op: Op, x: &[&[u64]], y: &mut [u64]) {
    match op {
        Op::Neg => one(x, y, |a: T| -a),
        Op::Abs => one(x, y, T::abs),
        Op::Sqrt => one(x, y, T::sqrt),
        Op::Floor => one(x, y, T::floor),
        Op::Ceil => one(x, y, T::ceil),
        Op::Trunc => one(x, y, T::trunc),
        Op::Round => one(x, y, T::round),
        Op::RoundTiesEven => one(x, y, T::round_ties_even),
        Op::Add => two(x, y, |a: T, b| a + b),
        Op::Sub => two(x, y, |a: T, b| a - b),
        Op::Mul => two(x, y, |a: T, b| a * b),
        Op::Div => two(x, y, |a: T, b| a / b),
        Op::Rem => two(x, y, |a: T, b| a % b),
        Op::Copysign => two(x, y, T::copysign),
        Op::MulAdd => {
            let factors = x[0].iter().zip(x[1]).zip(x[2]);
            y.iter_mut().zip(factors).for_each(|(y, ((a, b), c))| {
                *y = T::of_word(*a).mul_add(T::of_word(*b), T::of_word(*c)).to_word();
            });
        }
        _ => comparisons::<T>(op, x, y),
    }
}

fn ints<T: Plain + Int<Mask = bool>>(op: Op, x: &[&[u64]], y: &mut [u64]) {
    // a divisor of 0 may come of the value that a select leaves
    let safe = |b: T| if b.eq(T::lit(0)) { T::lit(1) } else { b };
    match op {
        Op::Neg => one(x, y, |a: T| T::lit(0).wrapping_sub(a)),
        Op::Not => one(x, y, |a: T| !a),
        Op::Add => two(x, y, T::wrapping_add),
        Op::Sub => two(x, y, T::wrapping_sub),
        Op::Mul => two(x, y, T::wrapping_mul),
        Op::Div => two(x, y, |a: T, b| a.wrapping_div(safe(b))),
        Op::Rem => two(x, y, |a: T, b| a.wrapping_rem(safe(b))),
        Op::Pow => two(x, y, T::wrapping_pow),
        Op::BitAnd => two(x, y, |a: T, b| a & b),
        Op::BitOr => two(x, y, |a: T, b| a | b),
        Op::BitXor => two(x, y, |a: T, b| a ^ b),
        Op::Shl => two(x, y, T::shl),
        Op::Shr => two(x, y, T::shr),
        _ => comparisons::<T>(op, x, y),
    }
}

fn comparisons<T: Plain + Ordered<Mask = bool>>(op: Op, x: &[&[u64]], y: &mut [u64]) {
    match op {
        Op::Eq => two(x, y, <T as Ordered>::eq),
        Op::Ne => two(x, y, <T as Ordered>::ne),
        Op::Lt => two(x, y, <T as Ordered>::lt),
        Op::Le => two(x, y, <T as Ordered>::le),
        _ => unreachable!("{op:?} is not defined for {}", T::DTYPE),
    }
}

fn flags(op: Op, x: &[&[u64]], y: &mut [u64]) {
    match op {
        Op::Not => one(x, y, bool::negated),
        Op::BitAnd => two(x, y, |a: bool, b| a & b),
        Op::BitOr => two(x, y, |a: bool, b| a | b),
        Op::BitXor => two(x, y, |a: bool, b| a ^ b),
        _ => unreachable!("{op:?} is not defined for Bool"),
    }
}
