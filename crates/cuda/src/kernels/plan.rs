//! Launches of an operator as data: sources of kernels, their grids, and where each argument comes from.
//!
//! A plan follows from facts and layouts alone, so it answers all questions about an operator's kernels: whether there are any,
//! the workspace, the sources to compile, and the launches themselves once the addresses are known.

use std::hash::BuildHasher;
use std::sync::Arc;

use remat_types::{DType, Error, Fact, Facts, Layout, Shape, SmallVec};
use rustc_hash::FxBuildHasher;

use crate::driver::{Argument, Grid};
use crate::source::c_type;

/// An input of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Element type.
    pub dtype: DType,
    /// Layout within the storage. Its offset is in [`Value::X`] already.
    pub layout: &'a Layout,
}

/// The operands of a launch. Outputs are contiguous.
#[derive(Clone, Debug)]
pub struct Operands<'a> {
    /// Inputs, in order.
    pub x: SmallVec<[Input<'a>; 8]>,
    /// Dtype and extents of each output.
    pub y: SmallVec<[(DType, &'a Shape); 4]>,
}

impl<'a> Operands<'a> {
    /// Contiguous inputs with these facts. `layouts` are theirs.
    pub(crate) fn contiguous(x: &[&'a Fact], layouts: &'a [Layout], y: &'a Facts) -> Operands<'a> {
        Operands {
            x: x.iter().zip(layouts).map(|(x, layout)| Input { dtype: x.dtype, layout }).collect(),
            y: y.iter().map(|y| (y.dtype, &y.shape)).collect(),
        }
    }

    /// The dtypes of the inputs.
    pub fn dtypes(&self) -> SmallVec<[DType; 8]> {
        self.x.iter().map(|x| x.dtype).collect()
    }

    /// The extents of input `i`.
    pub fn shape(&self, i: usize) -> &'a Shape {
        self.x[i].layout.shape()
    }

    /// The elements of output `j`.
    pub fn elems(&self, j: usize) -> u64 {
        self.y[j].1.elems() as u64
    }
}

/// Where an argument of a kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The address of the first element of an input, its layout's offset included.
    X(usize),
    /// The address of an output.
    Y(usize),
    /// The address of a byte of the workspace.
    Workspace(usize),
    /// The address of a word that must be 0 for the kernel to write anything; 0 for none.
    Gate,
    /// The address of the launch's [`Failure`] words.
    Failure,
    /// A number.
    U64(u64),
    /// A float.
    F32(f32),
    /// A double.
    F64(f64),
}

/// The addresses of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addresses<'a> {
    /// First elements of inputs.
    pub x: &'a [u64],
    /// Outputs.
    pub y: &'a [u64],
    /// The workspace.
    pub workspace: u64,
    /// See [`Value::Gate`].
    pub gate: u64,
    /// See [`Value::Failure`].
    pub failure: u64,
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The name of the kernel: that of the family, and a hash of the source, so that one program can have many kernels.
    pub name: String,
    /// The source without the prelude. It also identifies the kernel. Sources can stand behind each other.
    pub source: String,
    /// Blocks and threads.
    pub grid: Grid,
    /// Its arguments, in order.
    pub values: Vec<Value>,
}

impl Call {
    /// The arguments at these addresses.
    pub fn arguments(&self, at: &Addresses<'_>) -> Vec<Argument> {
        let argument = |v: &Value| match *v {
            Value::X(i) => Argument::U64(at.x[i]),
            Value::Y(j) => Argument::U64(at.y[j]),
            Value::Workspace(byte) => Argument::U64(at.workspace + byte as u64),
            Value::Gate => Argument::U64(at.gate),
            Value::Failure => Argument::U64(at.failure),
            Value::U64(v) => Argument::U64(v),
            Value::F32(v) => Argument::F32(v),
            Value::F64(v) => Argument::F64(v),
        };
        self.values.iter().map(argument).collect()
    }
}

/// How a kernel says that it refuses an element.
///
/// A launch has words for the least position that it refuses, all ones where there is none, and for a value there. Kernels write
/// them with `refuse` of the prelude. This function makes the error that the CPU's kernel gives for that position
/// and value.
pub type Failure = Arc<dyn Fn(u64, i64) -> Error + Send + Sync>;

/// The launches that compute an operator.
#[derive(Clone, Default)]
pub struct Plan {
    /// In order. None where no output has elements.
    pub calls: SmallVec<[Call; 2]>,
    /// Bytes of the workspace. It depends on the facts of the operands and not on their layouts.
    pub workspace: usize,
    /// The error of an element that a call refused. `None` where none can be.
    pub failure: Option<Failure>,
}

impl From<Call> for Plan {
    fn from(call: Call) -> Plan {
        Plan { calls: SmallVec::from_iter([call]), ..Plan::default() }
    }
}

/// Threads of a block whose threads each have elements of their own.
pub const THREADS: u32 = 256;
/// The most blocks of such a launch; their threads go on to further elements.
const MOST_BLOCKS: u64 = 1 << 16;

/// A grid of one axis. More blocks than there can be are as many as a number holds, which a driver refuses.
pub fn grid(blocks: u64, threads: u32) -> Grid {
    Grid { blocks: [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1], threads: [threads, 1, 1], shared_bytes: 0 }
}

/// A kernel under construction: each parameter is declared together with the value that it gets.
pub struct Builder {
    name: &'static str,
    parameters: Vec<String>,
    values: Vec<Value>,
    /// Functions before the kernel.
    functions: String,
    /// Statements in front of the body.
    checks: &'static str,
    /// See [`Builder::resident`].
    resident: Option<u32>,
}

impl Builder {
    /// A kernel that does nothing behind a closed gate.
    pub fn new(name: &'static str) -> Builder {
        let (parameters, values, functions) = (Vec::new(), Vec::new(), String::new());
        let mut b = Builder { name, parameters, values, functions, checks: "", resident: None };
        b.parameter("const u32 *gate", Value::Gate);
        b
    }

    /// A parameter.
    pub fn parameter(&mut self, declaration: impl Into<String>, value: Value) {
        self.parameters.push(declaration.into());
        self.values.push(value);
    }

    /// Input `i` of a dtype as `x0`, `x1` and so on.
    pub fn x(&mut self, i: usize, dtype: DType) {
        self.parameter(format!("const {} *x{i}", c_type(dtype)), Value::X(i));
    }

    /// Output `j` of a dtype as `y0`, `y1` and so on.
    pub fn y(&mut self, j: usize, dtype: DType) {
        self.parameter(format!("{} *y{j}", c_type(dtype)), Value::Y(j));
    }

    /// All operands, as `x0` and so on and `y0` and so on.
    pub fn operands(&mut self, o: &Operands<'_>) {
        o.y.iter().enumerate().for_each(|(j, y)| self.y(j, y.0));
        o.x.iter().enumerate().for_each(|(i, x)| self.x(i, x.dtype));
    }

    /// An unsigned number.
    pub fn u64(&mut self, name: impl AsRef<str>, value: u64) {
        self.parameter(format!("u64 {}", name.as_ref()), Value::U64(value));
    }

    /// A signed number.
    pub fn i64(&mut self, name: impl AsRef<str>, value: i64) {
        self.parameter(format!("i64 {}", name.as_ref()), Value::U64(value as u64));
    }

    /// Lets the kernel do nothing where an earlier call of the launch has refused an element, so that a state that the outputs take
    /// over stays as it was.
    pub fn after_checks(&mut self) {
        self.parameter("const u64 *refused", Value::Failure);
        self.checks = "if (refused[3] != 0) return;\n";
    }

    /// Lets a thread have the registers with which so many blocks fit a processor. Without it the compiler spills some values to
    /// memory where that makes room for one more block. `cargo xtask ptxas` shows what spills.
    pub fn resident(&mut self, blocks: u32) {
        self.resident = Some(blocks);
    }

    /// The words to which `refuse(failure, position, value)` writes.
    pub fn failure(&mut self) {
        self.parameter("u64 *failure", Value::Failure);
    }

    /// Functions that stand before the kernel.
    pub fn functions(&mut self, text: &str) {
        self.functions += text;
    }

    /// The kernel whose body is `body`.
    pub fn build(self, grid: Grid, body: &str) -> Call {
        let Builder { name, parameters, values, functions, checks, resident } = self;
        let threads: u32 = grid.threads.iter().product();
        let bounds = resident.map_or(threads.to_string(), |blocks| format!("{threads}, {blocks}"));
        let parameters = parameters.join(", ");
        let body = format!("{{\nif (gate != 0 && *gate != 0) return;\n{checks}{body}}}\n");
        let name = format!("{name}_{:016x}", FxBuildHasher.hash_one((&functions, &parameters, &body)));
        let source = format!(
            "namespace {name}_parts {{\n{functions}extern \"C\" __global__ void __launch_bounds__({bounds}) \
             {name}({parameters}) {body}}}\n"
        );
        Call { name, source, grid, values }
    }

    /// The kernel that runs `body` for each `i` below `n`. A thread has several of them where there are many. `None` for none.
    pub fn each(mut self, n: u64, body: &str) -> Option<Call> {
        let blocks = n.div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
        if blocks == 0 {
            return None;
        }
        self.u64("n", n);
        let text = format!(
            "const u64 step = (u64)gridDim.x * blockDim.x;\n\
             for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {{\n{body}}}\n"
        );
        Some(self.build(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &text))
    }
}
