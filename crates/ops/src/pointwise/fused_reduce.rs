use std::ops::Range;

use remat_kernels::pool::{Pool, part_range};
use remat_kernels::reduce::{Plan, Reducer, TILE, Tiles, reduce_tiles};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Layout, Result, Shape, SmallVec, Storage, smallvec};

use super::fused::{Fused, FusedStep, Pointwise};
use super::tile::{self, Part, Run};
use super::{Binary, BinaryFn, Unary, UnaryFn};
use crate::reduce::{Reduce, ReduceFn, WithReducer, reduced_elems};
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, In, LayoutReq, Op, OpDef, OpRef, Out, Sample, Var};

/// The reduction of a [`Fused`]'s one output, some tiles at a time: what the steps give is never written to memory as a
/// whole.
///
/// Results are bit for bit those of the two ops one after the other. Rows, where the last axes are reduced, are folded by
/// the loops of [`Reduce`], and how a row is folded depends on its length alone. Columns, where the leading axes are, and
/// long runs, as the channels of images have, go through [`reduce_tiles`], which cuts as [`Reduce`] does. Errors: Value for
/// steps with several outputs, and for axes that [`FusedReduce::fits`] refuses; those of the two ops.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x..: any), gradient(x))]
pub struct FusedReduce {
    /// The steps whose result is reduced.
    pub steps: Fused,
    /// How.
    pub reduce: Reduce,
}

impl FusedReduce {
    /// Most elements that fall on one output: a row lies in a core's cache, and is folded by one thread.
    pub const MAX_ROW_ELEMS: usize = 16 * 1024;

    /// Least elements of a run that is computed by itself.
    const MIN_RUN_ELEMS: usize = 64;
    /// Least outputs of runs: fewer would not occupy the threads that the two ops occupy.
    const MIN_RUNS: usize = 8;

    /// True if a reduction of a tensor of this shape over `axes` goes tile by tile.
    pub fn fits(x: &Shape, axes: &[usize]) -> bool {
        Self::row_elems(x, axes).is_some() || Self::tiled(x, axes).is_some()
    }

    /// The plan of columns or runs.
    fn tiled(x: &Shape, axes: &[usize]) -> Option<Plan> {
        let axes = Some(axes).filter(|all| all.iter().all(|a| *a < x.rank()) && x.elems() > 0)?;
        Some(Plan::new(x, axes)).filter(|p| p.is_tiled(Self::MIN_RUN_ELEMS, Self::MIN_RUNS))
    }

    /// Elements of a row of `x`, if `axes` are its last ones and the row is short enough.
    fn row_elems(x: &Shape, axes: &[usize]) -> Option<usize> {
        let first = x.rank().checked_sub(axes.len())?;
        let last = !axes.is_empty() && (first..x.rank()).all(|a| axes.contains(&a));
        let elems: usize = x[first..].iter().product();
        (last && (1..=Self::MAX_ROW_ELEMS).contains(&elems)).then_some(elems)
    }

    /// The fact between the two ops.
    fn between(&self, x: &[&Fact]) -> Result<Fact> {
        match &self.steps.infer(x)?[..] {
            [y] => Ok(y.clone()),
            all => Err(Error::new(ErrorKind::Value, format!("{} values to reduce, not one", all.len()))),
        }
    }

    /// How `x` is reduced.
    fn way(&self, x: &Fact) -> Result<Way> {
        if let Some(row) = Self::row_elems(&x.shape, &self.reduce.axes) {
            // no more than there are: small tensors need little workspace
            return Ok(Way::Rows(row, (Self::MAX_ROW_ELEMS / row).min(x.elems() / row).max(1)));
        }
        Self::tiled(&x.shape, &self.reduce.axes).map(Way::Tiles).ok_or_else(|| {
            let text = format!("axes {:?} of {} are not reduced tile by tile", self.reduce.axes, x.shape);
            Error::new(ErrorKind::Value, text)
        })
    }

    /// Computes a share, some rows at a time.
    fn share(&self, run: &Run<'_>, s: &mut Share<'_>, of: &Rows<'_>) -> Result<()> {
        let (size, size_y) = (of.between.size_bytes(), of.y.size_bytes());
        for from in s.rows.clone().step_by(of.together) {
            let rows = of.together.min(s.rows.end - from);
            s.part.range = from * of.row..(from + rows) * of.row;
            run.part(&mut s.part);
            let data = s.part.y.first().and_then(Option::as_deref).map(|y| &y[..rows * of.row * size]);
            let at = (from - s.rows.start) * size_y;
            of.fold(self.reduce.f, rows, data.unwrap_or_default(), &mut s.y[at..at + rows * size_y])?;
        }
        Ok(())
    }
}

/// How a tensor is reduced.
enum Way {
    /// Elements of a row, and rows at a time.
    Rows(usize, usize),
    /// By [`reduce_tiles`].
    Tiles(Plan),
}

impl Way {
    /// Bytes of what a thread computes at a time.
    fn scratch_bytes(&self, between: &Fact) -> usize {
        let elems = match self {
            Way::Rows(row, together) => row * together,
            Way::Tiles(_) => TILE.min(between.elems()),
        };
        (elems * between.dtype.size_bytes()).next_multiple_of(tile::ALIGN)
    }
}

/// Computes tiles for [`reduce_tiles`].
struct Maker<'c, 'r> {
    run: &'c Run<'r>,
    part: Part<'c>,
    size: usize,
}

impl<T: Storage> Tiles<T> for Maker<'_, '_> {
    fn tile(&mut self, at: usize, n: usize, rows: usize, stride: usize) -> &[T] {
        // rows without gaps are one
        let (n, rows) = if n == stride { (n * rows, 1) } else { (n, rows) };
        for i in 0..rows {
            self.part.at = i * n;
            self.part.range = at + i * stride..at + i * stride + n;
            self.run.tiles(&mut self.part);
        }
        let y = self.part.y.first().and_then(Option::as_deref).unwrap_or_default();
        bytemuck::cast_slice(&y[..n * rows * self.size])
    }
}

/// The shares of a run by [`reduce_tiles`].
struct InTiles<'a, 'c, 'r, 'y> {
    pool: &'a Pool,
    plan: &'a Plan,
    makers: &'a mut [Maker<'c, 'r>],
    y: &'a mut Out<'y>,
}

impl WithReducer for InTiles<'_, '_, '_, '_> {
    fn with<T: Storage, U: Storage>(self, r: impl Reducer<T, U>) -> Result<()> {
        reduce_tiles(self.pool, r, self.plan, self.makers, self.y.slice_mut::<U>()?);
        Ok(())
    }
}

/// The data that all shares of a run use.
struct Rows<'p> {
    /// Elements of a row.
    row: usize,
    /// Rows at a time.
    together: usize,
    between: DType,
    y: DType,
    pool: &'p Pool,
}

impl Rows<'_> {
    /// Folds rows that the steps gave; they are too few for more than one thread.
    fn fold(&self, f: ReduceFn, rows: usize, data: &[u8], y: &mut [u8]) -> Result<()> {
        let (from, to) = (Layout::contiguous([rows, self.row]), Shape::from([rows]));
        let x = [In::new(self.between, &from, data)];
        let mut y = [Out::new(self.y, &to, y, None)];
        let op = Reduce { f, axes: smallvec![1], keepdims: false };
        op.eval(&mut EvalCx { x: &x, y: &mut y, workspace: &mut [], pool: self.pool })
    }
}

/// A thread's share: its rows, and where their results go.
struct Share<'c> {
    rows: Range<usize>,
    part: Part<'c>,
    y: &'c mut [u8],
    failed: Option<Error>,
}

impl Op for FusedReduce {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let between = self.between(x)?;
        let y = self.reduce.infer(&[&between])?;
        if between.elems() > 0 {
            self.way(&between)?;
        }
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let EvalCx { x, y, workspace, pool } = cx;
        // from the first step alone: inference of all may take memory
        let first = self.steps.steps.first().map_or(&[][..], |s| &s.x);
        let shape = first.iter().try_fold(Shape::scalar(), |s, i| s.broadcast(x[usize::from(*i)].shape()))?;
        let run = Run::new(&self.steps, x, &shape, |_| None)?;
        let between = Fact::new(run.dtype_of(0), shape);
        if between.elems() == 0 {
            let from = between.layout();
            // nothing, but aligned as an element
            let x = [In::new(between.dtype, &from, bytemuck::cast_slice::<u64, u8>(&[]))];
            let shape = y[0].shape().clone();
            let mut y = [Out::new(y[0].dtype(), &shape, y[0].bytes_mut(), None)];
            return self.reduce.eval(&mut EvalCx { x: &x, y: &mut y, workspace: &mut [], pool });
        }
        let way = self.way(&between)?;
        let scratch_bytes = way.scratch_bytes(&between);
        let (row, together) = match &way {
            Way::Rows(row, together) => (*row, *together),
            Way::Tiles(plan) => {
                let mut memory: &mut [u8] = workspace;
                let mut makers: SmallVec<[Maker<'_, '_>; 4]> = SmallVec::new();
                for _ in 0..tile::parts(between.elems(), pool.threads()) {
                    let scratch = tile::take(&mut memory, scratch_bytes)?;
                    let registers = run.registers(&mut memory)?;
                    let mut part = Part { range: 0..0, at: 0, y: smallvec![Some(scratch)], registers };
                    run.begin(&mut part.registers);
                    makers.push(Maker { run: &run, part, size: between.dtype.size_bytes() });
                }
                let n = reduced_elems(&between.shape, &self.reduce.axes);
                let tiles = InTiles { pool, plan, makers: &mut makers, y: &mut y[0] };
                return self.reduce.f.reducer(between.dtype, n, tiles);
            }
        };
        let of = Rows { row, together, between: between.dtype, y: y[0].dtype(), pool };
        let parts = tile::parts(between.elems(), pool.threads());
        let mut memory: &mut [u8] = workspace;
        let mut results: &mut [u8] = y[0].bytes_mut();
        let mut shares: SmallVec<[Share<'_>; 4]> = SmallVec::new();
        for p in 0..parts {
            let rows = part_range(between.elems() / row, parts, p);
            let y = tile::take(&mut results, rows.len() * of.y.size_bytes())?;
            let scratch = tile::take(&mut memory, scratch_bytes)?;
            let registers = run.registers(&mut memory)?;
            let part = Part { range: 0..0, at: 0, y: smallvec![Some(scratch)], registers };
            shares.push(Share { rows, part, y, failed: None });
        }
        pool.chunks_mut(&mut shares, 1, |_, s| s.iter_mut().for_each(|s| s.failed = self.share(&run, s, &of).err()));
        shares.into_iter().find_map(|s| s.failed).map_or(Ok(()), Err)
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(between) = self.between(x) else { return 0 };
        let Ok(way) = self.way(&between) else { return 0 };
        self.steps.workspace(x, threads) + way.scratch_bytes(&between) * tile::parts(between.elems(), threads)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        cx.grad_via_composite(|cx, x| {
            let between: Var = cx.apply(OpRef::new(self.steps.clone()), x)?;
            cx.apply_all(self.reduce.clone(), &[between])
        })
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let Ok(between) = self.between(x) else { return Cost::default() };
        let steps = self.steps.cost(x, std::slice::from_ref(&between)).flops;
        Cost::bytes(x, y).with_flops(steps.saturating_add(between.elems() as u64))
    }
}

impl OpDef for FusedReduce {
    const NAME: &'static str = "fused_reduce";

    fn samples() -> Vec<Sample<Self>> {
        let step = |op: Pointwise, x: &[u16]| FusedStep { op, x: SmallVec::from_slice(x) };
        let bin = |f: BinaryFn| Pointwise::Binary(Binary { f });
        // tanh(x + b), summed up
        let op = |f: ReduceFn, axes: &[usize], keepdims: bool| FusedReduce {
            steps: Fused {
                inputs: 2,
                steps: vec![
                    step(bin(BinaryFn::Add), &[0, 1]),
                    step(Pointwise::Unary(Unary { f: UnaryFn::Tanh }), &[2]),
                ],
                outputs: smallvec![1],
            },
            reduce: Reduce { f, axes: SmallVec::from_slice(axes), keepdims },
        };
        let x = || vec![t(&[0.5f64, -1.0, 0.25, 2.0, -0.5, 1.0], [2, 3]), t(&[1.0f64, 0.5, -0.25], [3])];
        let y = [1.5f64, -0.5, 0.0, 3.0, 0.0, 0.75].map(f64::tanh);
        let rows = [y[0] + y[1] + y[2], y[3] + y[4] + y[5]];
        let many = || {
            let v: Vec<f32> = (0..70 * 1100).map(|i| (i % 37) as f32 * 0.125 - 2.0).collect();
            vec![t(&v, [70, 11, 100]), t(&[0.25f32], [])]
        };
        let images = || {
            let v: Vec<f32> = (0..5 * 9 * 12 * 11).map(|i| (i % 41) as f32 * 0.0625 - 1.0).collect();
            vec![t(&v, [5, 9, 12, 11]), t(&[-0.5f32], [])]
        };
        let x3 = || vec![t(&[0.5f32; 8], [2, 2, 2]), t(&[0.5f32], [])];
        let mut two = op(ReduceFn::Sum, &[1], false);
        two.steps.outputs = smallvec![0, 1];
        use ReduceFn::{Max, Mean, Sum, SumSqr};
        vec![
            Sample::new(op(Sum, &[1], false), x()).gives(vec![t(&rows, [2])]),
            Sample::new(op(Mean, &[1], true), x()).gives(vec![t(&rows.map(|v| v / 3.0), [2, 1])]),
            Sample::new(op(Sum, &[1, 0], false), x()).gives(vec![t(&[rows[0] + rows[1]], [])]),
            Sample::new(op(Max, &[1], false), x()).gives(vec![t(&[y[0], y[3]], [2])]),
            Sample::new(op(SumSqr, &[2], false), many()).no_grad("long"),
            Sample::new(op(Mean, &[1, 2], false), many()).no_grad("long"),
            Sample::new(op(Sum, &[1], false), vec![t::<f32>(&[], [2, 0]), t(&[1.0f32], [])])
                .gives(vec![t(&[0.0f32, 0.0], [2])])
                .no_grad("empty"),
            // columns with a narrower last chunk; rows that do not fill the last block
            Sample::new(op(Sum, &[0], false), x()).gives(vec![t(&[y[0] + y[3], y[1] + y[4], y[2] + y[5]], [3])]),
            Sample::new(op(Max, &[0], true), x()).gives(vec![t(&[y[3], y[4], y[5]], [1, 3])]),
            Sample::new(op(Mean, &[0, 1], false), many()).no_grad("long"),
            Sample::new(op(Sum, &[0], false), many()).no_grad("long"),
            // channels of images
            Sample::new(op(Sum, &[0, 2, 3], true), images()).no_grad("long"),
            Sample::new(op(SumSqr, &[0, 2, 3], false), images()).no_grad("long"),
            // neither: few runs, short runs, rows between kept axes
            Sample::new(op(Sum, &[0, 2], false), x3()).fails(ErrorKind::Value),
            Sample::new(op(Sum, &[1], false), x3()).fails(ErrorKind::Value),
            Sample::new(op(Sum, &[], false), x()).fails(ErrorKind::Value),
            Sample::new(two, x()).fails(ErrorKind::Value),
            Sample::new(op(Sum, &[2], false), x()).fails(ErrorKind::Axis),
            Sample::new(op(Sum, &[0], false), vec![t(&[0.0f32; 16385], [16385]), t(&[1.0f32], [])])
                .fails(ErrorKind::Value),
        ]
    }
}
