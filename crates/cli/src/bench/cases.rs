//! Works made ready to run: operands filled, workspace laid out.

use std::ops::{Deref, DerefMut};

use clap::ValueEnum;
use remat::runtime::PlanTimes;
use remat::types::{Error, ErrorKind, Result, bf16, f16};
use remat_kernels::conv::{self, Conv2d};
use remat_kernels::gemm::{BatchRef, GemmElement, GemmOutput, MatRef, batched, batched_workspace_bytes};
use remat_kernels::pool::Pool;
use serde::Serialize;

use super::work::{Conv, MatMul, Pass};
use crate::sizes::show;
use crate::timing::operators::Operator;

/// Something that can be timed.
pub(super) trait Case {
    /// Does the work once.
    fn run(&mut self) -> Result<()>;
    /// Floating-point operations of one run.
    fn flops(&self) -> u64;
    /// Bytes that one run has to move: every operand once.
    fn moved_bytes(&self) -> u64;
    /// Most bytes held at the same time: operands, results and workspace.
    fn peak_bytes(&self) -> usize;
    /// Of those, the workspace.
    fn workspace_bytes(&self) -> usize;
    /// Other figures of a network.
    fn metrics(&self) -> Metrics {
        Metrics::default()
    }
    /// The operators of a compiled network, after its runs. Errors: those of finding its executable.
    fn operators(&mut self) -> Result<Vec<Operator>> {
        Ok(Vec::new())
    }
}

/// The figures of a network beside its time.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Metrics {
    /// Of the first runs.
    pub losses: Vec<f32>,
    pub budget_bytes: Option<usize>,
    /// The plan that the last runs followed.
    pub plan: Option<PlanTimes>,
    /// The time of the operators of the last of them.
    pub ops_ns: u64,
}

/// More than that is a slip of the keyboard, and would only make the machine swap.
const MAX_BYTES: usize = 16 << 30;

/// A buffer of `len` values without a pattern that any blocking is in step with. Errors: Value.
fn filled(len: usize) -> Result<Lines<f32>> {
    filled_as(len, |x| x)
}

/// As [`filled`], of the values of another type.
fn filled_as<T: Copy>(len: usize, of: impl Fn(f32) -> T) -> Result<Lines<T>> {
    let mut memory: Vec<T> = empty(len.saturating_add(LINE_BYTES / size_of::<T>()))?;
    let start = memory.as_ptr().addr();
    let before = (start.next_multiple_of(LINE_BYTES) - start) / size_of::<T>();
    memory.resize(before, of(0.0));
    memory.extend((0..len).map(|i| of((i % 8009 * 7919 % 1009) as f32 / 1009.0 - 0.5)));
    Ok(Lines { memory, before })
}

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// An operand that begins at a cache line, as tensors do in the arena and in PyTorch. On the heap one begins 16 bytes behind, and
/// each vector of 64 bytes would be read and written in two lines.
struct Lines<T> {
    memory: Vec<T>,
    before: usize,
}

impl<T> Deref for Lines<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.memory[self.before..]
    }
}

impl<T> DerefMut for Lines<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory[self.before..]
    }
}

fn empty<T>(len: usize) -> Result<Vec<T>> {
    let mut v = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    match v.try_reserve_exact(len) {
        Ok(()) if bytes <= MAX_BYTES => Ok(v),
        _ => Err(Error::new(ErrorKind::Value, format!("an operand would take {}; at most 16 GiB", show(bytes)))),
    }
}

fn workspace(bytes: usize) -> Result<Vec<u8>> {
    let mut v = empty(bytes)?;
    v.resize(bytes, 0);
    Ok(v)
}

/// Products of matrices of `T`, written as `O`.
struct Product<T, O> {
    pool: Pool,
    work: MatMul,
    batch: usize,
    a: Lines<T>,
    b: Lines<T>,
    c: Lines<O>,
    workspace: Vec<u8>,
}

/// The element type of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(super) enum Elements {
    #[default]
    F32,
    F64,
    /// summed in f32
    F16,
    /// summed in f32
    Bf16,
    /// summed and written as i32
    I8,
}

/// A batch of products. Errors: Value for sizes too large.
pub(super) fn matmul(work: MatMul, elements: Elements, batch: usize, threads: usize) -> Result<Box<dyn Case>> {
    match elements {
        Elements::F32 => product::<f32, f32>(work, batch, threads, |x| x),
        Elements::F64 => product::<f64, f64>(work, batch, threads, f64::from),
        Elements::F16 => product::<f16, f16>(work, batch, threads, f16::from_f32),
        Elements::Bf16 => product::<bf16, bf16>(work, batch, threads, bf16::from_f32),
        Elements::I8 => product::<i8, i32>(work, batch, threads, |x| (x * 255.0) as i8),
    }
}

fn product<T: GemmElement, O: GemmOutput<T> + Default>(
    work: MatMul,
    batch: usize,
    threads: usize,
    of: impl Fn(f32) -> T,
) -> Result<Box<dyn Case>> {
    let MatMul { m, k, n, .. } = work;
    let elems = |rows: usize, cols: usize| rows.saturating_mul(cols).saturating_mul(batch);
    let (a, b) = (filled_as(elems(m, k), &of)?, filled_as(elems(k, n), &of)?);
    let c = filled_as(elems(m, n), |_| O::default())?;
    let workspace = workspace(batched_workspace_bytes::<T>(batch, m, n, k, threads))?;
    Ok(Box::new(Product { pool: Pool::new(threads), work, batch, a, b, c, workspace }))
}

impl<T: GemmElement, O: GemmOutput<T>> Case for Product<T, O> {
    fn run(&mut self) -> Result<()> {
        let MatMul { m, k, n, transposed } = self.work;
        let side = |data, rows: usize, cols: usize, transposed: bool| BatchRef {
            matrix: if transposed { MatRef::row_major(data, rows).t() } else { MatRef::row_major(data, cols) },
            batch_stride: (rows * cols) as isize,
        };
        let (a, b) = (side(&self.a, m, k, transposed[0]), side(&self.b, k, n, transposed[1]));
        let c = &mut self.c;
        batched(&self.pool, self.batch, m, n, k, a, b, c, m * n, n, false, &mut self.workspace);
        Ok(())
    }
    fn flops(&self) -> u64 {
        2 * (self.c.len() * self.work.k) as u64
    }
    fn moved_bytes(&self) -> u64 {
        (size_of_val(&self.a[..]) + size_of_val(&self.b[..]) + size_of_val(&self.c[..])) as u64
    }
    fn peak_bytes(&self) -> usize {
        self.moved_bytes() as usize + self.workspace.len()
    }
    fn workspace_bytes(&self) -> usize {
        self.workspace.len()
    }
}

struct Convolution {
    pool: Pool,
    geom: Conv2d,
    pass: Pass,
    x: Lines<f32>,
    weight: Lines<f32>,
    y: Lines<f32>,
    workspace: Vec<u8>,
}

/// One of the three products of a convolution. Errors: those of the geometry; Value for sizes too large.
pub(super) fn conv(work: &Conv, batch: usize, threads: usize) -> Result<Box<dyn Case>> {
    let geom = work.geometry(batch)?;
    let [x, weight, y] = [filled(geom.x_len())?, filled(geom.weight_len())?, filled(geom.y_len())?];
    let bytes = match work.pass {
        Pass::Forward => conv::forward_workspace_bytes::<f32>(&geom, threads),
        Pass::InputGrad => conv::input_grad_workspace_bytes::<f32>(&geom, threads),
        Pass::WeightGrad => conv::weight_grad_workspace_bytes::<f32>(&geom, threads),
    };
    let workspace = workspace(bytes)?;
    Ok(Box::new(Convolution { pool: Pool::new(threads), geom, pass: work.pass, x, weight, y, workspace }))
}

impl Case for Convolution {
    fn run(&mut self) -> Result<()> {
        let (pool, geom, ws) = (&self.pool, &self.geom, &mut self.workspace[..]);
        let (x, weight, y) = (&mut self.x, &mut self.weight, &mut self.y);
        match self.pass {
            Pass::Forward => conv::forward(pool, geom, x, weight, y, ws),
            Pass::InputGrad => conv::input_grad(pool, geom, y, weight, x, ws),
            Pass::WeightGrad => conv::weight_grad(pool, geom, x, y, weight, ws),
        }
        Ok(())
    }
    fn flops(&self) -> u64 {
        self.geom.flops()
    }
    fn moved_bytes(&self) -> u64 {
        4 * (self.x.len() + self.weight.len() + self.y.len()) as u64
    }
    fn peak_bytes(&self) -> usize {
        self.moved_bytes() as usize + self.workspace.len()
    }
    fn workspace_bytes(&self) -> usize {
        self.workspace.len()
    }
}
