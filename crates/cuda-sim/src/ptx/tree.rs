//! The parts of a module. Names borrow from the text.

/// A name. It borrows from the text.
pub type Name<'a> = &'a str;

/// A module as it was read.
#[derive(Clone, Debug, Default)]
pub struct Module<'a> {
    /// The version of PTX, such as (8, 8).
    pub version: (u32, u32),
    /// The architecture, such as `sm_80`.
    pub target: Name<'a>,
    /// Variables outside of functions.
    pub variables: Vec<Variable<'a>>,
    /// Kernels and functions in order.
    pub functions: Vec<Function<'a>>,
}

/// A state space (PTX ISA 8.7, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Memory of the device.
    Global,
    /// Memory of a block.
    Shared,
    /// Memory of a thread.
    Local,
    /// Memory of the device that kernels only read.
    Const,
    /// Parameters of kernels and functions.
    Param,
    /// An address that says in its bits which space it is in.
    Generic,
}

/// A type of operands (PTX ISA 8.7, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
}

impl Ty {
    /// The type that a modifier such as `u32` names.
    pub fn named(name: &str) -> Option<Ty> {
        Some(match name {
            "pred" => Ty::Pred,
            "b8" => Ty::B8,
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            "u8" => Ty::U8,
            "u16" => Ty::U16,
            "u32" => Ty::U32,
            "u64" => Ty::U64,
            "s8" => Ty::S8,
            "s16" => Ty::S16,
            "s32" => Ty::S32,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::Bf16,
            "bf16x2" => Ty::Bf16x2,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            _ => return None,
        })
    }

    /// Bytes in memory; 1 for predicates, which are never there.
    pub fn bytes(self) -> u32 {
        match self {
            Ty::Pred | Ty::B8 | Ty::U8 | Ty::S8 => 1,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 => 2,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 | Ty::F16x2 | Ty::Bf16x2 => 4,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 8,
        }
    }

    /// True for signed integers.
    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// True for floats, packed ones included.
    pub fn is_float(self) -> bool {
        matches!(self, Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2 | Ty::F32 | Ty::F64)
    }
}

/// A variable of memory, or a parameter.
#[derive(Clone, Debug)]
pub struct Variable<'a> {
    /// The space in which it lies.
    pub space: Space,
    /// Its alignment in bytes.
    pub align: u32,
    /// The type of an element.
    pub ty: Ty,
    /// Size in bytes; 0 for an array without a size.
    pub bytes: u64,
    /// Its name.
    pub name: Name<'a>,
    /// The first bytes that it has at load. The others are zeros.
    pub initial: Vec<u8>,
    /// True for `.extern`.
    pub is_extern: bool,
    /// The line of its name.
    pub line: u32,
}

/// A kernel or a function.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Its name.
    pub name: Name<'a>,
    /// True for a kernel.
    pub is_entry: bool,
    /// Parameters in order.
    pub params: Vec<Variable<'a>>,
    /// Results in order; none for a kernel.
    pub results: Vec<Variable<'a>>,
    /// `.maxntid`: the most threads of a block on each axis; missing axes are 1.
    pub most_threads: Option<[u32; 3]>,
    /// `.reqntid`: the threads of a block.
    pub required_threads: Option<[u32; 3]>,
    /// The statements; `None` for a declaration.
    pub body: Option<Vec<Statement<'a>>>,
    /// The line of its name.
    pub line: u32,
}

/// A statement of a body.
#[derive(Clone, Debug)]
pub enum Statement<'a> {
    /// A label and its line.
    Label(Name<'a>, u32),
    /// Registers: one, or `name<count>` for `name0` and so on.
    Registers {
        /// Their type.
        ty: Ty,
        /// The name, or the part before the number.
        name: Name<'a>,
        /// How many; `None` for one register with this name.
        count: Option<u32>,
        /// The line.
        line: u32,
    },
    /// A variable of the body.
    Variable(Variable<'a>),
    /// `{`.
    Open,
    /// `}`.
    Close,
    /// An instruction.
    Instruction(Instruction<'a>),
}

/// A guard: an instruction runs in lanes in which the predicate is true, or false if `is_negated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The predicate.
    pub predicate: Name<'a>,
    /// True for `@!p`.
    pub is_negated: bool,
}

/// An instruction.
#[derive(Clone, Debug)]
pub struct Instruction<'a> {
    /// The line of its opcode.
    pub line: u32,
    /// Its guard.
    pub guard: Option<Guard<'a>>,
    /// The opcode, split at its dots.
    pub opcode: Vec<&'a str>,
    /// The operands.
    pub operands: Vec<Operand<'a>>,
}

/// An operand (PTX ISA 8.7, section 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand<'a> {
    /// A register, a variable, a label, a function, or `_`.
    Name(Name<'a>),
    /// `!p`.
    Not(Name<'a>),
    /// An integer as 64 bits.
    Integer(u64),
    /// The bits of an f32.
    F32(u32),
    /// The bits of an f64.
    F64(u64),
    /// `{a, b}`.
    Vector(Vec<Operand<'a>>),
    /// `[base + offset]`; without a base the offset is the address.
    Address(Option<Name<'a>>, i64),
    /// `p|q`.
    Pair(Name<'a>, Name<'a>),
    /// `(a, b)` of a call.
    List(Vec<Operand<'a>>),
}
