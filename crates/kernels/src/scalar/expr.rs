//! Expressions while they are written: handles that scalar functions compute with.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

use remat_types::{DType, SmallVec};

use super::eval::{Expression, Node, Op, compute};
use super::{Double, Flag, Float, Fn32, Fn64, Fn64x2, Int, Mask, Ordered, Plain, Single};

/// Where expressions are written: equal nodes are one.
#[derive(Default)]
pub struct Builder {
    inputs: RefCell<Vec<DType>>,
    nodes: RefCell<Vec<Node>>,
    known: RefCell<HashMap<Node, u32>>,
}

/// A constant, which needs no builder, or a node of one.
#[derive(Clone, Copy)]
enum Place<'b> {
    Constant(u64),
    Node(&'b Builder, u32),
}

/// An expression whose type is told at run time.
#[derive(Clone, Copy)]
pub struct AnyExpr<'b> {
    dtype: DType,
    place: Place<'b>,
}

/// An expression of type `T`.
#[derive(Clone, Copy)]
pub struct Expr<'b, T> {
    any: AnyExpr<'b>,
    of: PhantomData<T>,
}

impl Builder {
    /// The next input.
    pub fn input(&self, dtype: DType) -> AnyExpr<'_> {
        let mut inputs = self.inputs.borrow_mut();
        let op = Op::Input(inputs.len() as u16);
        inputs.push(dtype);
        self.node(op, dtype, SmallVec::new())
    }

    fn node(&self, op: Op, dtype: DType, args: SmallVec<[u32; 3]>) -> AnyExpr<'_> {
        let node = Node { op, dtype, args };
        let mut nodes = self.nodes.borrow_mut();
        let at = *self.known.borrow_mut().entry(node.clone()).or_insert_with(|| {
            nodes.push(node);
            nodes.len() as u32 - 1
        });
        AnyExpr { dtype, place: Place::Node(self, at) }
    }

    /// The node of `x`.
    fn place(&self, x: AnyExpr<'_>) -> u32 {
        let found = match x.place {
            Place::Node(_, at) => return at,
            Place::Constant(word) => self.node(Op::Constant(word), x.dtype, SmallVec::new()),
        };
        self.place(found)
    }

    /// The expression of `results`, without the nodes that none of them needs.
    pub fn finish(&self, results: &[AnyExpr<'_>]) -> Expression {
        let results: Vec<u32> = results.iter().map(|x| self.place(*x)).collect();
        let nodes = self.nodes.borrow();
        let mut needed = vec![false; nodes.len()];
        results.iter().for_each(|at| needed[*at as usize] = true);
        for (at, node) in nodes.iter().enumerate().rev() {
            if needed[at] {
                node.args.iter().for_each(|x| needed[*x as usize] = true);
            }
        }
        let mut moved = vec![0; nodes.len()];
        let mut kept: Vec<Node> = Vec::new();
        for (at, node) in nodes.iter().enumerate().filter(|(at, _)| needed[*at]) {
            moved[at] = kept.len() as u32;
            let args = node.args.iter().map(|x| moved[*x as usize]).collect();
            kept.push(Node { args, ..node.clone() });
        }
        let results = results.iter().map(|at| moved[*at as usize]).collect();
        Expression { inputs: self.inputs.borrow().clone(), nodes: kept, results }
    }
}

/// `op` of `x`: a node, or a constant if all of `x` are.
fn apply<'b>(op: Op, dtype: DType, x: &[AnyExpr<'b>]) -> AnyExpr<'b> {
    let builder = x.iter().find_map(|x| match x.place {
        Place::Node(builder, _) => Some(builder),
        Place::Constant(_) => None,
    });
    if let Some(builder) = builder {
        return builder.node(op, dtype, x.iter().map(|x| builder.place(*x)).collect());
    }
    let words: SmallVec<[[u64; 1]; 3]> = x.iter().filter_map(|x| x.word()).map(|word| [word]).collect();
    let given: SmallVec<[&[u64]; 3]> = words.iter().map(|x| &x[..]).collect();
    let mut y = [0];
    compute(op, x[0].dtype, dtype, &given, &mut y);
    AnyExpr { dtype, place: Place::Constant(y[0]) }
}

impl<'b> AnyExpr<'b> {
    /// The type.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    fn word(self) -> Option<u64> {
        match self.place {
            Place::Constant(word) => Some(word),
            Place::Node(..) => None,
        }
    }

    /// Converted to another type; see [`super::convert`].
    pub fn convert(self, dtype: DType) -> AnyExpr<'b> {
        if self.dtype == dtype { self } else { apply(Op::Convert, dtype, &[self]) }
    }

    /// As an expression of `T`, converted if it is not.
    pub fn to<T: Plain>(self) -> Expr<'b, T> {
        Expr { any: self.convert(T::DTYPE), of: PhantomData }
    }

    /// `a` where `self`, a Bool, holds, else `b`, whose type may be any.
    pub fn choose(self, a: AnyExpr<'b>, b: AnyExpr<'b>) -> AnyExpr<'b> {
        match self.word() {
            Some(0) => b,
            Some(_) => a,
            None => apply(Op::Select, a.dtype, &[self, a, b]),
        }
    }
}

impl<'b, T: Plain> Expr<'b, T> {
    /// A constant.
    pub fn constant(v: T) -> Self {
        AnyExpr { dtype: T::DTYPE, place: Place::Constant(v.to_word()) }.to()
    }

    /// Without the type.
    pub fn any(self) -> AnyExpr<'b> {
        self.any
    }

    fn one<U: Plain>(self, op: Op) -> Expr<'b, U> {
        apply(op, U::DTYPE, &[self.any]).to()
    }

    /// A comparison, in a type that is computed with.
    fn compared(self, op: Op, b: Self) -> Expr<'b, bool> {
        let dtype = match T::DTYPE {
            DType::F16 | DType::BF16 => DType::F32,
            DType::Bool => DType::U8,
            dtype => dtype,
        };
        apply(op, DType::Bool, &[self.any.convert(dtype), b.any.convert(dtype)]).to()
    }

    fn two<U: Plain>(self, op: Op, b: Self) -> Expr<'b, U> {
        apply(op, U::DTYPE, &[self.any, b.any]).to()
    }
}

macro_rules! operators {
    ($($name:ident $f:ident)*) => { $(
        impl<T: Plain> $name for Expr<'_, T> {
            type Output = Self;
            fn $f(self, b: Self) -> Self { self.two(Op::$name, b) }
        }
    )* };
}
operators! { Add add Sub sub Mul mul Div div Rem rem BitAnd bitand BitOr bitor BitXor bitxor }

impl<T: Plain> Neg for Expr<'_, T> {
    type Output = Self;
    fn neg(self) -> Self {
        self.one(Op::Neg)
    }
}

impl<T: Plain> Not for Expr<'_, T> {
    type Output = Self;
    fn not(self) -> Self {
        self.one(Op::Not)
    }
}

impl Flag for Expr<'_, bool> {
    fn negated(self) -> Self {
        !self
    }
}

impl<'b> Mask for Expr<'b, bool> {
    fn pick<T: Ordered<Mask = Self>>(self, a: impl FnOnce() -> T, b: impl FnOnce() -> T) -> T {
        self.select(a(), b())
    }
}

impl<'b, T: Plain> Ordered for Expr<'b, T> {
    type Mask = Expr<'b, bool>;
    fn eq(self, b: Self) -> Self::Mask {
        self.compared(Op::Eq, b)
    }
    fn ne(self, b: Self) -> Self::Mask {
        self.compared(Op::Ne, b)
    }
    fn lt(self, b: Self) -> Self::Mask {
        self.compared(Op::Lt, b)
    }
    fn le(self, b: Self) -> Self::Mask {
        self.compared(Op::Le, b)
    }
    fn chosen(mask: Self::Mask, a: Self, b: Self) -> Self {
        mask.any.choose(a.any, b.any).to()
    }
}

/// Methods that are a node of that name.
macro_rules! nodes {
    ($($f:ident $op:ident)*) => { $( fn $f(self) -> Self { self.one(Op::$op) } )* };
    (two $($f:ident $op:ident)*) => { $( fn $f(self, b: Self) -> Self { self.two(Op::$op, b) } )* };
}

impl<'b, T: Plain + Float<Bits: Plain>> Float for Expr<'b, T> {
    type Bits = Expr<'b, <T as Float>::Bits>;
    fn lit(v: f64) -> Self {
        Expr::constant(T::lit(v))
    }
    fn mul_add(self, a: Self, b: Self) -> Self {
        apply(Op::MulAdd, T::DTYPE, &[self.any, a.any, b.any]).to()
    }
    nodes! { sqrt Sqrt abs Abs floor Floor ceil Ceil trunc Trunc round Round round_ties_even RoundTiesEven }
    nodes! { two copysign Copysign }
    fn to_bits(self) -> Self::Bits {
        self.one(Op::Bits)
    }
    fn from_bits(bits: Self::Bits) -> Self {
        bits.one(Op::Bits)
    }
}

impl<'b> Single for Expr<'b, f32> {
    type Wide = Expr<'b, f64>;
    fn wide(self) -> Expr<'b, f64> {
        self.any.to()
    }
    fn nearest(v: Expr<'b, f64>) -> Self {
        v.any.to()
    }
    fn call(self, f: Fn32) -> Self {
        self.one(Op::Call32(f))
    }
}

impl Double for Expr<'_, f64> {
    fn call(self, f: Fn64) -> Self {
        self.one(Op::Call64(f))
    }
    fn call2(self, b: Self, f: Fn64x2) -> Self {
        self.two(Op::Call64x2(f), b)
    }
}

impl<T: Plain + Int> Int for Expr<'_, T> {
    const BITS: u32 = T::BITS;
    fn lit(v: i64) -> Self {
        Expr::constant(T::lit(v))
    }
    nodes! { two wrapping_add Add wrapping_sub Sub wrapping_mul Mul wrapping_div Div wrapping_rem Rem }
    nodes! { two shl Shl shr Shr wrapping_pow Pow }
}
