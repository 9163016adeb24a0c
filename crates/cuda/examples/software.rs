//! Speed of kernels on the software device: seconds of a launch, instructions and multiply-adds in a second, and what it
//! takes to compile and to load many kernels.
//!
//! `cargo run -p remat-cuda --features cuda-sim --example software [CASE [THREADS]]`; CASE is a part of a name, or `all`.
//! `REMAT_CUDA_LIBRARIES` names the folder of NVRTC's library.

use std::sync::LazyLock;
use std::time::Instant;

use remat_cuda::driver::{Architecture, Argument, Compiler, Search};
use remat_cuda::kernels::{Addresses, Input, Operands, Plan, plan};
use remat_cuda::source::PRELUDE;
use remat_cuda_sim::{Checks, ExecOptions, Kernel, LaunchShape, Memory, Program, launch};
use remat_ops::activation::Softmax;
use remat_ops::conv::{Conv2d, Conv2dInputGrad, Conv2dWeightGrad, ConvParams};
use remat_ops::linalg::MatMul;
use remat_ops::norm::{BatchNorm, BatchNormGrad};
use remat_ops::pointwise::{Binary, BinaryFn, Fused, FusedStep, Pointwise, Unary, UnaryFn};
use remat_ops::pooling::{MaxPool2d, MaxPool2dGrad, Windows};
use remat_ops::{OpRef, Registry};
use remat_types::{DType, Fact, Layout, Padding, SmallVec};

/// How often a case runs. The least time is shown.
const TURNS: usize = 3;
/// Kernels that are compiled and loaded together.
const KERNELS: usize = 100;

/// An operator on inputs of f32, and its multiply-adds.
struct Case {
    name: &'static str,
    op: OpRef,
    x: Vec<Vec<usize>>,
    products: usize,
}

fn case(name: &'static str, op: impl Into<OpRef>, x: &[&[usize]], products: usize) -> Case {
    Case { name, op: op.into(), x: x.iter().map(|x| x.to_vec()).collect(), products }
}

fn convolutions(n: usize, c: usize, k: usize, size: usize) -> Vec<Case> {
    let taps = ConvParams { stride: [1, 1], padding: Padding::from([1, 1]), dilation: [1, 1], groups: 1 };
    let (x, weight, dy) = ([n, c, size, size], [k, c, 3, 3], [n, k, size, size]);
    let products = n * k * size * size * c * 9;
    vec![
        case("conv", Conv2d { taps }, &[&x, &weight], products),
        case("conv input grad", Conv2dInputGrad { taps, size: [size, size] }, &[&dy, &weight], products),
        case("conv weight grad", Conv2dWeightGrad { taps, kernel: [3, 3] }, &[&x, &dy], products),
    ]
}

/// `tanh(max(x * y + z, x)) * y`.
fn chain() -> Fused {
    let binary = |f, x: [u16; 2]| FusedStep { op: Pointwise::Binary(Binary { f }), x: SmallVec::from_slice(&x) };
    let unary = |f, x: u16| FusedStep { op: Pointwise::Unary(Unary { f }), x: SmallVec::from_slice(&[x]) };
    let steps = vec![
        binary(BinaryFn::Mul, [0, 1]),
        binary(BinaryFn::Add, [3, 2]),
        binary(BinaryFn::Max, [4, 0]),
        unary(UnaryFn::Tanh, 5),
        binary(BinaryFn::Mul, [6, 1]),
    ];
    Fused { inputs: 3, steps, outputs: SmallVec::from_slice(&[4]) }
}

fn cases() -> Vec<Case> {
    let (image, eps) = ([32, 32, 28, 28], 1e-5f64.into());
    let windows = Windows::sliding([2, 2], [2, 2], Padding { begin: [0, 0], end: [0, 0] });
    let mut all = vec![
        case("product 256", MatMul {}, &[&[256, 256], &[256, 256]], 256 * 256 * 256),
        case("product 512", MatMul {}, &[&[512, 512], &[512, 512]], 512 * 512 * 512),
    ];
    all.extend(convolutions(32, 16, 32, 28));
    all.extend(convolutions(32, 16, 16, 14));
    all.extend([
        case("batch norm", BatchNorm { eps }, &[&image, &[32], &[32]], 0),
        case("batch norm grad", BatchNormGrad { eps }, &[&image, &[32], &[32], &[32], &image], 0),
        case("chain", chain(), &[&image, &image, &image], 0),
        case("max pool", MaxPool2d { windows }, &[&image], 0),
        case("max pool grad", MaxPool2dGrad { windows }, &[&image, &[32, 32, 14, 14]], 0),
        case("softmax", Softmax { axis: 1, log: false }, &[&[64, 1000]], 0),
    ]);
    all
}

/// A case's plan and kernels, and its tensors on a device.
struct Ready {
    plan: Plan,
    kernels: Vec<std::sync::Arc<Kernel>>,
    memory: Memory,
    x: Vec<u64>,
    y: Vec<u64>,
    workspace: u64,
}

fn plan_of(op: &OpRef, x: &[Fact]) -> Option<Plan> {
    let y = op.infer(&x.iter().collect::<Vec<_>>()).ok()?;
    let layouts: Vec<Layout> = x.iter().map(|x| Layout::contiguous(x.shape.clone())).collect();
    let operands = Operands {
        x: x.iter().zip(&layouts).map(|(x, layout)| Input { dtype: x.dtype, layout }).collect(),
        y: y.iter().map(|y| (y.dtype, &y.shape)).collect(),
    };
    plan(&**op, &operands).expect("a plan")
}

/// The PTX of sources.
fn ptx<'s>(compiler: &Compiler, sources: impl IntoIterator<Item = &'s str>) -> String {
    let source: String = std::iter::once(PRELUDE).chain(sources).collect();
    let code = compiler.ptx("software.cu", &source, Architecture::OLDEST).expect("compiles");
    String::from_utf8_lossy(code.image()).trim_end_matches('\0').to_owned()
}

fn ready(compiler: &Compiler, case: &Case, checks: Checks) -> Ready {
    let x: Vec<Fact> = case.x.iter().map(|x| Fact::new(DType::F32, x.as_slice())).collect();
    let plan = plan_of(&case.op, &x).expect("has a kernel");
    let program = Program::load(&ptx(compiler, plan.calls.iter().map(|c| c.source.as_str()))).expect("loads");
    let kernels = plan.calls.iter().map(|c| program.kernel(&c.name).expect("was compiled").clone()).collect();
    let mut memory = if checks == Checks::All { Memory::new() } else { Memory::unchecked() };
    let put = |memory: &mut Memory, f: &Fact, seed: usize| {
        let at = memory.allocate(f.bytes().max(1) as u64);
        let value = |i: usize| ((i * seed % 31) as f32 / 31.0 + 0.1).to_le_bytes();
        let bytes: Vec<u8> = (0..f.bytes() / 4).flat_map(value).collect();
        memory.write(at, &bytes).expect("allocated");
        at
    };
    let y = case.op.infer(&x.iter().collect::<Vec<_>>()).expect("is valid");
    let x = x.iter().map(|f| put(&mut memory, f, 7)).collect();
    let y = y.iter().map(|f| put(&mut memory, f, 5)).collect();
    let workspace = memory.allocate(plan.workspace.max(1) as u64);
    Ready { plan, kernels, memory, x, y, workspace }
}

impl Ready {
    /// Runs all launches. Returns their instructions.
    fn run(&mut self, options: &ExecOptions) -> u64 {
        let Ready { plan, kernels, memory, x, y, workspace } = self;
        let at = Addresses { x, y, workspace: *workspace, gate: 0, failure: 0 };
        let mut instructions = 0;
        for (call, kernel) in plan.calls.iter().zip(kernels) {
            let mut params = vec![0; kernel.param_bytes() as usize];
            for (argument, p) in call.arguments(&at).iter().zip(kernel.params()) {
                let bytes = match *argument {
                    Argument::U64(v) => v.to_le_bytes().to_vec(),
                    Argument::U32(v) => v.to_le_bytes().to_vec(),
                    Argument::F32(v) => v.to_le_bytes().to_vec(),
                    Argument::F64(v) => v.to_le_bytes().to_vec(),
                };
                params[p.offset as usize..][..p.bytes as usize].copy_from_slice(&bytes);
            }
            let dynamic_shared_bytes = call.grid.shared_bytes;
            let shape = LaunchShape { grid: call.grid.blocks, block: call.grid.threads, dynamic_shared_bytes };
            let stats = launch(memory, kernel, &[], shape, &params, options).unwrap_or_else(|e| panic!("{e}"));
            instructions += stats.instructions;
        }
        instructions
    }
}

/// Seconds since some moment. With one thread they are the processor's, where the system tells them (Linux): other programs
/// take part of the time of the clock.
fn seconds(threads: usize) -> f64 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let told = std::fs::read_to_string("/proc/self/schedstat").ok().filter(|_| threads == 1);
    let running = told.and_then(|t| t.split_whitespace().next()?.parse::<f64>().ok());
    running.map_or_else(|| BEGIN.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

fn show(compiler: &Compiler, case: &Case, checks: Checks, threads: usize) {
    let mut ready = ready(compiler, case, checks);
    let options = ExecOptions { threads, checks, ..ExecOptions::default() };
    let (mut least, mut instructions) = (f64::INFINITY, 0);
    for _ in 0..TURNS {
        let begin = seconds(threads);
        instructions = ready.run(&options);
        least = least.min(seconds(threads) - begin);
    }
    let shape = case.x.iter().map(|x| format!("{x:?}")).collect::<Vec<_>>().join(" ");
    let rate = match case.products {
        0 => "     -".to_owned(),
        n => format!("{:6.3}", 2e-9 * n as f64 / least),
    };
    let millions = instructions as f64 / 1e6;
    println!(
        "{:<17} {checks:<7?} {least:8.4} s {rate} GFLOP/s {millions:8.3} M instructions {:6.2} M/s  {shape}",
        case.name,
        millions / least
    );
}

/// The sources of so many kernels, of samples of all operators.
fn sources() -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for entry in Registry::portable().entries() {
        for sample in entry.samples().iter().take(2) {
            let facts: Vec<Fact> = sample.x.iter().map(Fact::of).collect();
            let calls = plan_of(&sample.op, &facts).into_iter().flat_map(|p| p.calls);
            for call in calls {
                if !found.contains(&call.source) {
                    found.push(call.source);
                }
            }
        }
    }
    // from all families
    let step = (found.len() / KERNELS).max(1);
    found.into_iter().step_by(step).take(KERNELS).collect()
}

fn show_loading(compiler: &Compiler) {
    let sources = sources();
    let begin = Instant::now();
    let text = ptx(compiler, sources.iter().map(String::as_str));
    let compiling = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for part in sources.chunks(KERNELS / 2) {
            scope.spawn(move || ptx(compiler, part.iter().map(String::as_str)));
        }
    });
    let apart = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let program = Program::load(&text).expect("loads");
    let loading = begin.elapsed().as_secs_f64();
    let (count, lines) = (program.kernel_names().count(), text.lines().count());
    println!(
        "{count} kernels of {lines} lines of PTX: NVRTC {compiling:.3} s, on two threads {apart:.3} s, loading {loading:.4} s"
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let only = args.next().filter(|only| only != "all").unwrap_or_default();
    let threads = args.next().map_or(2, |n| n.parse().expect("a number of threads"));
    let compiler = Compiler::open(&Search::default().first(
        std::env::var_os("REMAT_CUDA_LIBRARIES").expect("REMAT_CUDA_LIBRARIES names the folder of the compiler"),
    ))
    .expect("the folder has the compiler");
    for case in cases().iter().filter(|c| c.name.contains(&only)) {
        for checks in [Checks::Bounds, Checks::All] {
            show(&compiler, case, checks, threads);
        }
    }
    if "loading".contains(&only) {
        show_loading(&compiler);
    }
}
