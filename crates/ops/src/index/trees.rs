use remat_kernels::index::{BadTree, TreeNodes, tree_leaf};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, Storage, for_storage, smallvec};

use crate::args::{want_dtype, want_rank, want_shape};
use crate::host::arity;
use crate::pointwise::CompareFn;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

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

impl Op for TreeLeaf {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 6)?;
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
        let shape: Shape = [x[0].shape[0], x[5].shape[0]].into();
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(DType::I64, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(f: CompareFn, cx: &mut EvalCx<'_>) -> Result<()> {
            let (features, pool) = (cx.x[0].shape()[1], cx.pool);
            let (feature, yes, no) = (cx.x[2].slice()?, cx.x[3].slice()?, cx.x[4].slice()?);
            let nodes = TreeNodes { feature, split: cx.x[1].slice::<T>()?, yes, no };
            let (x, root, y) = (cx.x[0].slice::<T>()?, cx.x[5].slice()?, cx.y[0].slice_mut()?);
            let done = match f {
                CompareFn::Eq => tree_leaf(pool, |a, b| a == b, x, features, nodes, root, y),
                CompareFn::Ne => tree_leaf(pool, |a, b| a != b, x, features, nodes, root, y),
                CompareFn::Lt => tree_leaf(pool, |a, b| a < b, x, features, nodes, root, y),
                CompareFn::Le => tree_leaf(pool, |a, b| a <= b, x, features, nodes, root, y),
                CompareFn::Gt => tree_leaf(pool, |a, b| a > b, x, features, nodes, root, y),
                CompareFn::Ge => tree_leaf(pool, |a, b| a >= b, x, features, nodes, root, y),
            };
            done.map_err(|bad| match bad {
                BadTree::Feature(k) => at(k, format!("feature {} is not in 0..{features}", feature[k])),
                BadTree::Way(k) => {
                    let text = format!("leads to {} and {}, of which one is not in {k}..{}", yes[k], no[k], yes.len());
                    at(k, text)
                }
                BadTree::Root(t) => {
                    let text = format!("root {} at position {t} is not in 0..{}", root[t], yes.len());
                    Error::new(ErrorKind::Index, text)
                }
            })
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

fn at(node: usize, text: String) -> Error {
    Error::new(ErrorKind::Index, format!("node {node}: {text}"))
}

impl OpDef for TreeLeaf {
    const NAME: &'static str = "tree_leaf";

    fn samples() -> Vec<Sample<Self>> {
        // node 0 asks feature 0, node 1 feature 1; 2 to 5 are leaves, and 5 is a tree of its own
        let tables = || {
            vec![
                t(&[0i64, 1, 0, 0, 0, 0], [6]),
                t(&[1i64, 2, 2, 3, 4, 5], [6]),
                t(&[4i64, 3, 2, 3, 4, 5], [6]),
                t(&[0i64, 5], [2]),
            ]
        };
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
