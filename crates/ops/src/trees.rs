//! Decision trees: the leaves that rows come to, and sums of what lies there.

use remat_kernels::index::{BadTree, TreeNodes, tree_leaf, tree_sum};
use remat_kernels::reduce::Arith;
use remat_types::{
    DType, Element, Error, ErrorKind, Fact, Facts, HostTensor, Result, Shape, SmallVec, Storage, for_storage, smallvec,
};

use crate::args::{want_dtype, want_rank, want_shape};
use crate::host::arity;
use crate::index::{TakeGrad, scatter_add};
use crate::op::{Entry, entries};
use crate::pointwise::CompareFn;
use crate::sample::t;
use crate::schema::Params;
use crate::shape::BroadcastTo;
use crate::{Cost, EvalCx, GradCx, Grads, In, Op, OpDef, Sample, Var};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![TreeLeaf, TreeSum];

/// The leaves of decision trees: `y[i, t]` is the node, as I64, at which the way of row `x[i, :]` from `root[t]` ends. At node `k` it
/// goes on to `yes[k]` where `x[i, feature[k]]` compares with `split[k]`, else to `no[k]`; a node that leads to itself keeps it.
///
/// `x: [n, features]`, `split: [nodes]` of its dtype; `feature`, `yes`, `no: [nodes]` and `root: [trees]` of I64. Not
/// differentiable. Errors: DType, Axis, Shape where they do not fit; Index for a feature or root that is not there, and for a way
/// that leads to an earlier node or to none, so that every way ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any, split: any, feature: i64, yes: i64, no: i64, root: i64))]
pub struct TreeLeaf {
    /// How an element of `x`, left, compares with a split, right.
    pub f: CompareFn,
}

/// Levels of a tree whose nodes are not looked at, for the cost.
const USUAL_DEPTH: u64 = 6;

/// Errors unless the first six inputs are rows and the tables of trees.
fn want_trees(x: &[&Fact]) -> Result<()> {
    want_rank(x[0], 2, "x")?;
    want_dtype(x[1], x[0].dtype, "split")?;
    want_rank(x[1], 1, "split")?;
    for (fact, name) in x[2..].iter().zip(["feature", "yes", "no", "root"]) {
        want_dtype(fact, DType::I64, name)?;
        match name {
            "root" => want_rank(fact, 1, name)?,
            _ => want_shape(fact, &x[1].shape, name)?,
        }
    }
    Ok(())
}

/// The tables of trees.
fn nodes_of<'a, T: Storage>(x: &[In<'a>]) -> Result<TreeNodes<'a, T>> {
    Ok(TreeNodes { feature: x[2].slice()?, split: x[1].slice()?, yes: x[3].slice()?, no: x[4].slice()? })
}

/// `$body` with the comparison of an element of `x` with a split as `$goes`.
macro_rules! compared {
    (@ $way:expr, $goes:ident => $body:expr) => {{
        let $goes = $way;
        $body
    }};
    ($f:expr, $T:ty, $goes:ident => $body:expr) => {
        match $f {
            CompareFn::Eq => compared!(@ |a: $T, b: $T| a == b, $goes => $body),
            CompareFn::Ne => compared!(@ |a: $T, b: $T| a != b, $goes => $body),
            CompareFn::Lt => compared!(@ |a: $T, b: $T| a < b, $goes => $body),
            CompareFn::Le => compared!(@ |a: $T, b: $T| a <= b, $goes => $body),
            CompareFn::Gt => compared!(@ |a: $T, b: $T| a > b, $goes => $body),
            CompareFn::Ge => compared!(@ |a: $T, b: $T| a >= b, $goes => $body),
        }
    };
}

impl Op for TreeLeaf {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 6)?;
        want_trees(x)?;
        let shape: Shape = [x[0].shape[0], x[5].shape[0]].into();
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(DType::I64, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(f: CompareFn, cx: &mut EvalCx<'_>) -> Result<()> {
            let (features, nodes, pool) = (cx.x[0].shape()[1], nodes_of::<T>(cx.x)?, cx.pool);
            let (x, root, y) = (cx.x[0].slice::<T>()?, cx.x[5].slice()?, cx.y[0].slice_mut()?);
            compared!(f, T, goes => tree_leaf(pool, goes, x, features, nodes, root, y))
                .map_err(|bad| wrong(bad, features, nodes, root))
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self.f, cx))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None, None, None, None, None, None])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        Cost::bytes(x, y).with_flops(4 * USUAL_DEPTH * y[0].elems() as u64)
    }
}

/// The error that describes a fault in the tables of trees.
fn wrong<T>(bad: BadTree, features: usize, nodes: TreeNodes<'_, T>, root: &[i64]) -> Error {
    let text = match bad {
        BadTree::Feature(k) => format!("node {k}: feature {} is not in 0..{features}", nodes.feature[k]),
        BadTree::Way(k) => {
            let (yes, no, end) = (nodes.yes[k], nodes.no[k], nodes.yes.len());
            format!("node {k}: leads to {yes} and {no}, of which one is not in {k}..{end}")
        }
        BadTree::Root(t) => format!("root {} at position {t} is not in 0..{}", root[t], nodes.yes.len()),
    };
    Error::new(ErrorKind::Index, text)
}

/// Sums over the leaves of decision trees: `y[i, k]` is the sum of `weight[l, k]` over the leaves `l` to which row `x[i, :]` comes, as
/// [`TreeLeaf`] finds them, from the first tree to the last.
///
/// Inputs as there, and `weight: [nodes, targets]`; `x`, `split` and `weight` of F32 or F64, all of one dtype. Differentiable in
/// `weight`. Errors: as there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, split: float, feature: i64, yes: i64, no: i64, root: i64, weight: float), gradient(weight))]
pub struct TreeSum {
    /// How an element of `x`, left, compares with a split, right.
    pub f: CompareFn,
}

impl Op for TreeSum {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 7)?;
        want_trees(x)?;
        if !matches!(x[0].dtype, DType::F32 | DType::F64) {
            return Err(Error::new(ErrorKind::DType, format!("trees of {}, not of f32 or f64", x[0].dtype)));
        }
        want_dtype(x[6], x[0].dtype, "weight")?;
        want_rank(x[6], 2, "weight")?;
        let targets = x[6].shape[1];
        want_shape(x[6], &[x[1].shape[0], targets], "weight")?;
        let shape: Shape = [x[0].shape[0], targets].into();
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(x[0].dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage + Arith>(f: CompareFn, cx: &mut EvalCx<'_>) -> Result<()> {
            let (features, nodes, pool) = (cx.x[0].shape()[1], nodes_of::<T>(cx.x)?, cx.pool);
            let weight = (cx.x[6].slice()?, cx.x[6].shape()[1]);
            let (x, root, y) = (cx.x[0].slice::<T>()?, cx.x[5].slice()?, cx.y[0].slice_mut()?);
            compared!(f, T, goes => tree_sum(pool, goes, x, features, nodes, root, weight, y))
                .map_err(|bad| wrong(bad, features, nodes, root))
        }
        match cx.x[0].dtype() {
            DType::F64 => go::<f64>(self.f, cx),
            _ => go::<f32>(self.f, cx),
        }
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None, None, None, None, None, None, None];
        let Some(dy) = cx.dy(0) else { return Ok(grads) };
        let weight = cx.fact(cx.x(6));
        let x: SmallVec<[Var; 6]> = (0..6).map(|i| cx.x(i)).collect();
        let leaf = cx.apply(TreeLeaf { f: self.f }, &x)?;
        let [rows, trees] = [cx.fact(leaf).shape[0], cx.fact(leaf).shape[1]];
        let targets = weight.shape[1];
        let each = cx.build().reshape(dy, &[rows, 1, targets].into())?;
        let each = cx.apply(BroadcastTo { shape: [rows, trees, targets].into() }, &[each])?;
        grads[6] = Some(scatter_add(cx, TakeGrad { axis: 0, extent: weight.shape[0] }, each, leaf)?);
        Ok(grads)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let leaves = x[0].shape[0].saturating_mul(x[5].shape[0]) as u64;
        let targets = x[6].shape[1] as u64;
        Cost::bytes(x, y).with_flops(leaves.saturating_mul(4 * USUAL_DEPTH + targets))
    }
}

/// Features, ways, and roots: node 0 asks feature 0, node 1 feature 1; 2 to 5 are leaves, and 5 is a tree of its own.
fn tables() -> Vec<HostTensor> {
    vec![
        t(&[0i64, 1, 0, 0, 0, 0], [6]),
        t(&[1i64, 2, 2, 3, 4, 5], [6]),
        t(&[4i64, 3, 2, 3, 4, 5], [6]),
        t(&[0i64, 5], [2]),
    ]
}

impl OpDef for TreeSum {
    const NAME: &'static str = "tree_sum";

    fn samples() -> Vec<Sample<Self>> {
        fn of<T: Element>(f: CompareFn, x: HostTensor, split: &[T], weight: HostTensor) -> Sample<TreeSum> {
            let inputs = [x, t(split, [split.len()])].into_iter().chain(tables()).chain([weight]);
            Sample::new(TreeSum { f }, inputs.collect()).grad_of(&[6])
        }
        let x = || t(&[0.0f32, 5., 0., 6., 1., 0., f32::NAN, 0.], [4, 2]);
        let split = [0.0f32, 5., 0., 0., 0., 0.];
        // nothing lies at nodes that are no leaves
        let weight = || t(&[9.0f32, 9., 9., 9., 1., 2., 3., 4., 5., 6., 10., 20.], [6, 2]);
        let sums = |y: [f32; 8]| t(&y, [4, 2]);
        let le = CompareFn::Le;
        let mut samples = vec![
            of(le, x(), &split, weight()).gives(vec![sums([11., 22., 13., 24., 15., 26., 15., 26.])]),
            of(CompareFn::Lt, x(), &split, weight()).gives(vec![sums([15., 26., 15., 26., 15., 26., 15., 26.])]),
            of(CompareFn::Ge, x(), &split, weight()).gives(vec![sums([11., 22., 11., 22., 13., 24., 15., 26.])]),
            of(CompareFn::Gt, x(), &split, weight()).gives(vec![sums([15., 26., 15., 26., 13., 24., 15., 26.])]),
            of(CompareFn::Eq, x(), &split, weight()).gives(vec![sums([11., 22., 13., 24., 15., 26., 15., 26.])]),
            of(CompareFn::Ne, x(), &split, weight()).gives(vec![sums([15., 26., 15., 26., 11., 22., 11., 22.])]),
            of(
                le,
                t(&[7.0f64, 0., -1., 5.], [2, 2]),
                &[0.0f64, 5., 0., 0., 0., 0.],
                t(&[0.0f64, 0., 1., 2., 4., 8.], [6, 1]),
            )
            .gives(vec![t(&[12.0f64, 9.], [2, 1])]),
            of(le, t::<f32>(&[], [0, 2]), &split, weight()).gives(vec![t::<f32>(&[], [0, 2])]).no_grad("empty"),
            of(le, x(), &split, t::<f32>(&[], [6, 0])).gives(vec![t::<f32>(&[], [4, 0])]).no_grad("empty"),
            of(le, x(), &split, t(&[0.0f64; 12], [6, 2])).fails(ErrorKind::DType),
            of(le, x(), &split, t(&[0.0f32; 10], [5, 2])).fails(ErrorKind::Shape),
            of(le, x(), &split, t(&[0.0f32; 6], [6])).fails(ErrorKind::Axis),
            of(le, t(&[0i32, 5], [1, 2]), &[0i32; 6], t(&[0i32; 6], [6, 1])).fails(ErrorKind::DType),
        ];
        for (input, bad) in [(2, [0i64, 2, 0, 0, 0, 0]), (3, [1, 0, 2, 3, 4, 5]), (4, [6, 3, 2, 3, 4, 5])] {
            let mut s = of(le, x(), &split, weight());
            s.x[input] = t(&bad, [6]);
            samples.push(s.fails(ErrorKind::Index));
        }
        samples
    }
}

impl OpDef for TreeLeaf {
    const NAME: &'static str = "tree_leaf";

    fn samples() -> Vec<Sample<Self>> {
        let with = |x, split, change: &dyn Fn(&mut Vec<_>)| {
            let mut all = vec![x, split];
            all.append(&mut tables());
            change(&mut all);
            all
        };
        let x = || t(&[0.0f32, 5., 0., 6., 1., 0., f32::NAN, 0.], [4, 2]);
        let split = || t(&[0.0f32, 5., 0., 0., 0., 0.], [6]);
        let op = |f| TreeLeaf { f };
        let le = || op(CompareFn::Le);
        let whole = |_: &mut Vec<_>| {};
        let leaves = |first: [i64; 4]| t(&first.iter().flat_map(|l| [*l, 5]).collect::<Vec<i64>>(), [4, 2]);
        let samples = vec![
            Sample::new(le(), with(x(), split(), &whole)).gives(vec![leaves([2, 3, 4, 4])]),
            Sample::new(op(CompareFn::Lt), with(x(), split(), &whole)).gives(vec![leaves([4, 4, 4, 4])]),
            Sample::new(op(CompareFn::Ge), with(x(), split(), &whole)).gives(vec![leaves([2, 2, 3, 4])]),
            Sample::new(op(CompareFn::Gt), with(x(), split(), &whole)).gives(vec![leaves([4, 4, 3, 4])]),
            Sample::new(op(CompareFn::Eq), with(x(), split(), &whole)).gives(vec![leaves([2, 3, 4, 4])]),
            Sample::new(op(CompareFn::Ne), with(x(), split(), &whole)).gives(vec![leaves([4, 4, 2, 2])]),
            Sample::new(le(), with(t(&[7i32, 0, -1, 5], [2, 2]), t(&[0i32, 5, 0, 0, 0, 0], [6]), &whole))
                .gives(vec![t(&[4i64, 5, 2, 5], [2, 2])]),
            Sample::new(le(), with(t::<f64>(&[], [0, 2]), t(&[0.0f64; 6], [6]), &whole))
                .gives(vec![t::<i64>(&[], [0, 2])]),
            Sample::new(le(), with(x(), split(), &|all| all[5] = t(&[0i64; 0], [0])))
                .gives(vec![t::<i64>(&[], [4, 0])]),
            Sample::new(le(), with(x(), split(), &|all| all[2] = t(&[0i64, 2, 0, 0, 0, 0], [6])))
                .fails(ErrorKind::Index),
            Sample::new(le(), with(x(), split(), &|all| all[3] = t(&[1i64, 0, 2, 3, 4, 5], [6])))
                .fails(ErrorKind::Index),
            Sample::new(le(), with(x(), split(), &|all| all[4] = t(&[6i64, 3, 2, 3, 4, 5], [6])))
                .fails(ErrorKind::Index),
            Sample::new(le(), with(x(), split(), &|all| all[5] = t(&[-1i64], [1]))).fails(ErrorKind::Index),
            Sample::new(le(), with(x(), t(&[0.0f64; 6], [6]), &whole)).fails(ErrorKind::DType),
            Sample::new(le(), with(x(), split(), &|all| all[3] = t(&[0i32; 6], [6]))).fails(ErrorKind::DType),
            Sample::new(le(), with(x(), split(), &|all| all[4] = t(&[0i64; 5], [5]))).fails(ErrorKind::Shape),
            Sample::new(le(), with(t(&[1.0f32], [1]), split(), &whole)).fails(ErrorKind::Axis),
        ];
        samples.into_iter().map(|s| s.no_grad("a position")).collect()
    }
}
