use remat_kernels::gemm::{
    BatchRef, GemmElement, GemmOutput, MatRef, batched, batched_workspace_bytes, gemm_with_workspace_bytes,
};
use remat_kernels::pool::Pool;
use remat_types::{
    DType, Error, ErrorKind, Fact, Facts, Layout, Result, Shape, SmallVec, Storage, bf16, f16, smallvec,
};

use crate::args::{checked_fact, not_taken, want_dtype};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::shape::{Permute, Reshape};
use crate::{Cost, EvalCx, GradCx, Grads, In, LayoutReq, Op, OpDef, Sample, Tolerance, Var, WeightChannels};

/// `y[.., i, j] = sum over p of a[.., i, p] b[.., p, j]`: the product of matrices, batched.
///
/// `a: [.., m, k]`, `b: [.., k, n]`, `y: [.., m, n]`; the leading axes broadcast. Any strides: a transposed view reaches
/// the kernel without a copy, and where `m` or `n` is 1 the order of the sum may follow the strides. Floats of 16 bits sum in f32 and
/// round once, integers wrap ([`MatMulWide`](super::MatMulWide) keeps the sums), `k = 0` gives zeros. One row or column
/// times many is for the layer above to reshape: both inputs have rank 2 or more.
///
/// Errors: Axis for a rank below 2, DType for two dtypes or bool, Shape if `k` differs or batches do not broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: number, b: number), gradient(a, b))]
pub struct MatMul {}

/// Multiply-adds of one product above which it surely takes the blocked kernel, whose bits do not depend on `m`; so
/// products with one `b` may be joined into one taller product.
const JOIN_MIN_MULS: usize = 4096;

/// The sizes of a batched product.
pub(crate) struct Sizes {
    batch: Shape,
    m: usize,
    n: usize,
    k: usize,
    /// All products share one `b`: they are rows of one product.
    joined: bool,
}

impl Sizes {
    pub(crate) fn of(a: &Shape, b: &Shape) -> Result<Sizes> {
        if let Some(s) = [a, b].into_iter().find(|s| s.rank() < 2) {
            return Err(Error::new(ErrorKind::Axis, format!("an input has shape {s}; it must have two axes or more")));
        }
        let (ra, rb) = (a.rank(), b.rank());
        let (m, k, n) = (a[ra - 2], a[ra - 1], b[rb - 1]);
        if b[rb - 2] != k {
            let text = format!("shapes {a} and {b} do not multiply: {k} columns, {} rows", b[rb - 2]);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let batch = Shape::from(&a[..ra - 2]).broadcast(&Shape::from(&b[..rb - 2]))?;
        let one_b = b[..rb - 2].iter().product::<usize>() == 1;
        let muls = m.saturating_mul(n).saturating_mul(k);
        let joined = one_b && m > 1 && n > 1 && muls > JOIN_MIN_MULS && a[..ra - 2] == *batch;
        Ok(Sizes { batch, m, n, k, joined })
    }

    /// The shape of the result.
    pub(crate) fn shape(&self) -> Shape {
        let mut shape = self.batch.clone();
        shape.push(self.m);
        shape.push(self.n);
        shape
    }

    pub(super) fn workspace<T: GemmElement>(&self, threads: usize) -> usize {
        let batch = self.batch.elems();
        let apart = batched_workspace_bytes::<T>(batch, self.m, self.n, self.k, threads);
        if !self.joined {
            return apart;
        }
        // which of the two is used depends on strides, which facts do not tell
        apart.max(batched_workspace_bytes::<T>(1, batch * self.m, self.n, self.k, threads))
    }

    /// Bytes for a product whose elements go through work with scratch memory, which one product has beside its own.
    pub(crate) fn workspace_with<T: GemmElement>(&self, threads: usize, scratch_bytes: usize) -> usize {
        let m = if self.joined { self.batch.elems() * self.m } else { self.m };
        let one = gemm_with_workspace_bytes::<T>(m, self.n, self.k, threads, scratch_bytes);
        one.max(self.workspace::<T>(threads))
    }
}

/// Calls `$go::<T>($args)` for the element type of `$dtype`, if matrices of it multiply.
macro_rules! for_gemm {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        match $dtype {
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::I16 => {
                type $T = i16;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::U8 => {
                type $T = u8;
                $body
            }
            DType::U16 => {
                type $T = u16;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
            DType::U64 => {
                type $T = u64;
                $body
            }
            DType::Bool => $other,
        }
    };
}

pub(crate) use for_gemm;

/// A matrix of a batch, its batch axes (extent, stride of a, stride of b) merged as far as both step uniformly.
fn merged_axes(batch: &Shape, a: &Layout, b: &Layout) -> SmallVec<[(usize, isize, isize); 4]> {
    let mut axes: SmallVec<[(usize, isize, isize); 4]> = SmallVec::new();
    for i in 0..batch.rank() {
        let (d, sa, sb) = (batch[i], a.strides()[i], b.strides()[i]);
        if d == 1 {
            continue;
        }
        match axes.last_mut() {
            Some(l) if l.1 == sa * d as isize && l.2 == sb * d as isize => *l = (l.0 * d, sa, sb),
            _ => axes.push((d, sa, sb)),
        }
    }
    axes
}

/// The matrices of a batched product, in storages of `T`: how they lie, and which are rows of one product.
pub(crate) struct Matrices<'a, T> {
    n: usize,
    k: usize,
    /// Rows of one product, products in a batch, and elements from one to the next in a and b.
    m: usize,
    batch: usize,
    strides: [isize; 2],
    /// Axes of batches; usually there are none.
    outer: SmallVec<[(usize, isize, isize); 4]>,
    layouts: [Layout; 2],
    data: [&'a [T]; 2],
}

impl<'a, T: Storage + GemmElement> Matrices<'a, T> {
    pub(crate) fn of(a: &In<'a>, b: &In<'a>) -> Result<Self> {
        let s = Sizes::of(a.shape(), b.shape())?;
        let spread = |l: &Layout| {
            let mut shape = s.batch.clone();
            shape.push(l.shape()[l.rank() - 2]);
            shape.push(l.shape()[l.rank() - 1]);
            l.broadcast_to(&shape)
        };
        let (la, lb) = (spread(a.layout())?, spread(b.layout())?);
        let mut outer = merged_axes(&s.batch, &la, &lb);
        let (inner, sa, sb) = outer.pop().unwrap_or((1, 0, 0));
        let (mut m, mut batch) = (s.m, inner);
        if s.joined && sb == 0 && sa == la.strides()[s.batch.rank()] * s.m as isize {
            (m, batch) = (inner * s.m, 1);
        }
        let data = [a.storage::<T>()?, b.storage::<T>()?];
        Ok(Matrices { n: s.n, k: s.k, m, batch, strides: [sa, sb], outer, layouts: [la, lb], data })
    }

    /// The first matrix of operand `i`, or one `at` elements after it.
    fn matrix(&self, i: usize, at: isize) -> MatRef<'a, T> {
        let (l, r) = (&self.layouts[i], self.layouts[i].rank() - 2);
        MatRef {
            data: self.data[i],
            offset: (l.offset() as isize + at) as usize,
            row_stride: l.strides()[r],
            col_stride: l.strides()[r + 1],
        }
    }

    /// Rows, columns, and the summed extent, with the operands, if all of it is one product.
    pub(crate) fn single(&self) -> Option<([usize; 3], [MatRef<'a, T>; 2])> {
        let one = self.batch == 1 && self.outer.is_empty();
        one.then(|| ([self.m, self.n, self.k], [self.matrix(0, 0), self.matrix(1, 0)]))
    }

    /// All products, written to `y`, which has elements.
    pub(crate) fn multiply<O: GemmOutput<T>>(&self, pool: &Pool, y: &mut [O], workspace: &mut [u8]) -> Result<()> {
        // the outer axes have few elements
        let (outer_a, outer_b) = outer(&self.outer)?;
        let blocks = y.chunks_exact_mut(self.m * self.batch * self.n);
        for ((block, at_a), at_b) in blocks.zip(outer_a.indices()).zip(outer_b.indices()) {
            let at = |i: usize, base: &Layout| i as isize - base.offset() as isize;
            batched(
                pool,
                self.batch,
                self.m,
                self.n,
                self.k,
                BatchRef { matrix: self.matrix(0, at(at_a, &outer_a)), batch_stride: self.strides[0] },
                BatchRef { matrix: self.matrix(1, at(at_b, &outer_b)), batch_stride: self.strides[1] },
                block,
                self.m * self.n,
                self.n,
                false,
                workspace,
            );
        }
        Ok(())
    }
}

/// The product of matrices of `T`, written as `O`.
pub(super) fn product<T: Storage + GemmElement, O: Storage + GemmOutput<T>>(cx: &mut EvalCx<'_>) -> Result<()> {
    let all = Matrices::<T>::of(&cx.x[0], &cx.x[1])?;
    let y = cx.y[0].slice_mut::<O>()?;
    if y.is_empty() {
        return Ok(());
    }
    all.multiply(cx.pool, y, cx.workspace)
}

/// Layouts whose indices, less their offset, are where each outer step begins in a and b.
fn outer(axes: &[(usize, isize, isize)]) -> Result<(Layout, Layout)> {
    let shape: Shape = axes.iter().map(|a| a.0).collect();
    let layout = |strides: SmallVec<[isize; 4]>| {
        let back: isize = axes.iter().zip(&strides).map(|(a, s)| (-s).max(0) * (a.0 as isize - 1)).sum();
        Layout::new(shape.clone(), &strides, back as usize)
    };
    Ok((layout(axes.iter().map(|a| a.1).collect())?, layout(axes.iter().map(|a| a.2).collect())?))
}

/// `v` with its last two axes exchanged: a view.
pub(super) fn transposed(cx: &GradCx<'_>, v: Var) -> Result<Var> {
    let rank = cx.fact(v).rank();
    let mut order: SmallVec<[usize; 4]> = (0..rank).collect();
    order.swap(rank - 2, rank - 1);
    cx.apply(Permute { order }, &[v])
}

/// The gradient of `b`: `a^T dy`, summed over the batch axes along which `b` was broadcast. When there is one `b`, the
/// batch joins the summed axis of one product, so that no product per batch is kept.
///
/// A single matrix is most often the transposed weight of a linear layer, whose gradient is transposed once more: there
/// `(dy^T a)^T` has the same bits, and the weight's gradient is in order without a copy.
fn grad_b(cx: &GradCx<'_>, dy: Var) -> Result<Var> {
    let (mut a, mut dy) = (cx.x(0), dy);
    let shape = cx.fact(cx.x(1)).shape;
    let (fa, fy) = (cx.fact(a), cx.fact(dy));
    let rank = shape.rank();
    let one_b = shape[..rank - 2].iter().all(|&d| d == 1);
    if one_b && fy.rank() > 2 && fa.shape[..fa.rank() - 2] == fy.shape[..fy.rank() - 2] {
        let flat = |f: &Fact| {
            let cols = f.shape[f.rank() - 1];
            Reshape { shape: [f.shape[..f.rank() - 1].iter().product(), cols].into() }
        };
        (a, dy) = (cx.apply(flat(&fa), &[a])?, cx.apply(flat(&fy), &[dy])?);
        if rank == 2 {
            return grad_of_matrix(cx, a, dy);
        }
        let db = cx.apply(MatMul {}, &[transposed(cx, a)?, dy])?;
        return cx.build().reshape(db, &shape);
    }
    if rank == 2 && fa.rank() == 2 {
        return grad_of_matrix(cx, a, dy);
    }
    let db = cx.apply(MatMul {}, &[transposed(cx, a)?, dy])?;
    cx.build().sum_to(db, &shape)
}

/// `(dy^T a)^T`
fn grad_of_matrix(cx: &GradCx<'_>, a: Var, dy: Var) -> Result<Var> {
    let db = cx.apply(MatMul {}, &[transposed(cx, dy)?, a])?;
    transposed(cx, db)
}

impl Op for MatMul {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        if x[0].dtype == DType::Bool {
            return Err(not_taken(DType::Bool));
        }
        want_dtype(x[1], x[0].dtype, "the second input")?;
        Ok(smallvec![checked_fact(x[0].dtype, Sizes::of(&x[0].shape, &x[1].shape)?.shape())?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        for_gemm!(dtype, T => product::<T, T>(cx), else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let mut grads: Grads = smallvec![None, None];
        if cx.needs(0) {
            let da = cx.apply(MatMul {}, &[dy, transposed(cx, cx.x(1))?])?;
            grads[0] = Some(cx.build().sum_to(da, &cx.fact(cx.x(0)).shape)?);
        }
        if cx.needs(1) {
            grads[1] = Some(grad_b(cx, dy)?);
        }
        Ok(grads)
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(s) = Sizes::of(&x[0].shape, &x[1].shape) else { return 0 };
        for_gemm!(x[0].dtype, T => s.workspace::<T>(threads), else 0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let k = x[0].shape.last().copied().unwrap_or(0);
        Cost::bytes(x, y).with_flops(2 * (y[0].elems() * k) as u64)
    }

    fn weight_channels(&self, x: &[&Fact]) -> Option<WeightChannels> {
        let ranks = [x.first()?.rank(), x.get(1)?.rank()];
        let last = |rank: usize| rank.checked_sub(1);
        Some(WeightChannels { input: 1, weight_axis: last(ranks[1])?, output_axis: last(ranks[0].max(ranks[1]))? })
    }
}

impl OpDef for MatMul {
    const NAME: &'static str = "matmul";

    fn samples() -> Vec<Sample<Self>> {
        let op = || MatMul {};
        let wave = |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32 * 0.37).sin() + 0.1).collect() };
        let w = |shape: &[usize]| t(&wave(shape.iter().product()), shape);
        let (a, b) = (t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3]), t(&[1.0f32, 0., -1., 2., 0.5, 1.], [3, 2]));
        let half = |v: &[f32]| v.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>();
        let brain = |v: &[f32]| v.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>();
        vec![
            Sample::new(op(), vec![a.clone(), b]).gives(vec![t(&[0.5f32, 7., 2., 16.], [2, 2])]),
            // a batch of two with one matrix, and with a batch of its own
            Sample::new(op(), vec![t(&[1.0f64, 2., 3., 4.], [2, 1, 2]), t(&[1.0f64, 1., 2., 0.], [2, 2])])
                .gives(vec![t(&[5.0f64, 1., 11., 3.], [2, 1, 2])]),
            Sample::new(op(), vec![t(&[1.0f64, 2., 3., 4.], [2, 1, 2]), t(&[1.0f64, 1., 2., 0.], [2, 2, 1])])
                .gives(vec![t(&[3.0f64, 6.], [2, 1, 1])]),
            // broadcasting on both sides, more than one batch axis
            Sample::new(op(), vec![w(&[2, 1, 2, 3]), w(&[4, 3, 2])]),
            // the blocked kernel, joined rows, and one row
            Sample::new(op(), vec![w(&[2, 17, 19]), w(&[19, 18])]),
            Sample::new(op(), vec![w(&[1, 40]), w(&[40, 30])])
                .within(Tolerance::Loose(1e-6, "one row reads the matrix once, in the order of its strides")),
            Sample::new(op(), vec![w(&[3, 33, 24]), w(&[3, 24, 20])]).no_grad("the smaller products check it"),
            Sample::new(op(), vec![t(&[3i8, -100], [1, 2]), t(&[2i8, 2], [2, 1])])
                .gives(vec![t(&[62i8], [1, 1])])
                .no_grad("integers"),
            Sample::new(op(), vec![t(&[3u64, 4], [2, 1]), t(&[5u64], [1, 1])]).gives(vec![t(&[15u64, 20], [2, 1])]),
            Sample::new(op(), vec![t(&half(&[1.0, 2048.0]), [1, 2]), t(&half(&[1.0, 1.0]), [2, 1])])
                .gives(vec![t(&half(&[2048.0]), [1, 1])]),
            Sample::new(op(), vec![t(&brain(&[1.5, 2.0]), [1, 2]), t(&brain(&[2.0, 0.5]), [2, 1])])
                .gives(vec![t(&brain(&[4.0]), [1, 1])]),
            // nothing to sum gives zeros, nothing to compute gives nothing
            Sample::new(op(), vec![t::<f32>(&[], [2, 0]), t::<f32>(&[], [0, 3])]).gives(vec![t(&[0.0f32; 6], [2, 3])]),
            Sample::new(op(), vec![t::<f32>(&[], [0, 2, 3]), w(&[3, 2])]).gives(vec![t::<f32>(&[], [0, 2, 2])]),
            Sample::new(op(), vec![a.clone(), w(&[2, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(), vec![w(&[2, 2, 3]), w(&[3, 3, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(), vec![a.clone(), w(&[3])]).fails(ErrorKind::Axis),
            Sample::new(op(), vec![a.clone(), t(&[1.0f64; 3], [3, 1])]).fails(ErrorKind::DType),
            Sample::new(op(), vec![t(&[true], [1, 1]), t(&[true], [1, 1])]).fails(ErrorKind::DType),
            Sample::new(op(), vec![a]).fails(ErrorKind::Arity),
        ]
    }
}
