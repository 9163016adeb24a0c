//! Decision trees whose nodes lie in tables.

use crate::copy::{PARALLEL_MIN_ELEMS, chunks};
use crate::pool::Pool;
use crate::reduce::Arith;

/// The nodes of all trees, as a table a property. A node both of whose ways lead to itself is a leaf.
#[derive(Clone, Copy, Debug)]
pub struct TreeNodes<'a, T> {
    /// The feature that a node looks at.
    pub feature: &'a [i64],
    /// The value with which it is compared.
    pub split: &'a [T],
    /// Where the way leads if the comparison holds.
    pub yes: &'a [i64],
    /// Where it leads if not.
    pub no: &'a [i64],
}

/// A fault in tables of trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTree {
    /// A node looks at a feature that is not there.
    Feature(usize),
    /// A way of a node leads back, or out of the table.
    Way(usize),
    /// A tree begins outside the table.
    Root(usize),
}

impl<T> TreeNodes<'_, T> {
    /// Errors: the first node whose feature is not one of `features`, or whose way leads neither to itself nor onwards; the first
    /// root that is no node.
    pub fn check(&self, features: usize, roots: &[i64]) -> Result<(), BadTree> {
        let n = self.split.len();
        let is_in = |v: i64, from: usize, to: usize| usize::try_from(v).is_ok_and(|v| (from..to).contains(&v));
        for i in 0..n {
            if !is_in(self.feature[i], 0, features) {
                return Err(BadTree::Feature(i));
            }
            if !is_in(self.yes[i], i, n) || !is_in(self.no[i], i, n) {
                return Err(BadTree::Way(i));
            }
        }
        match roots.iter().position(|r| !is_in(*r, 0, n)) {
            Some(t) => Err(BadTree::Root(t)),
            None => Ok(()),
        }
    }
}

/// Rows that go down a tree side by side: while one waits for its node's table, others are compared.
const LANES: usize = 8;

/// Rows of a part of a parallel loop.
const PART_ROWS: usize = 8 * LANES;

/// `y[i, t]`: the leaf to which row `i` of `x: [rows, features]` comes from `roots[t]`, where `goes(x, split)` says which way. Errors:
/// as [`TreeNodes::check`].
///
/// # Panics
/// If a table is shorter than that of splits, or `x` than `y` has rows.
pub fn tree_leaf<T: Copy + Sync>(
    pool: &Pool,
    goes: impl Fn(T, T) -> bool + Copy + Sync,
    x: &[T],
    features: usize,
    nodes: TreeNodes<'_, T>,
    roots: &[i64],
    y: &mut [i64],
) -> Result<(), BadTree> {
    nodes.check(features, roots)?;
    let trees = roots.len();
    rows(pool, goes, x, features, nodes, roots, y, trees, |y, tree, row, leaf| y[row * trees + tree] = leaf as i64);
    Ok(())
}

/// `y[i, k]`: the sum, from the first tree to the last, of `weight[l, k]` for `weight: [nodes, targets]` over the leaves `l` of row `i`,
/// as [`tree_leaf`] finds them. Errors: as [`TreeNodes::check`].
///
/// # Panics
/// If a table is shorter than that of splits, or `x` than `y` has rows.
#[allow(clippy::too_many_arguments, reason = "those of `tree_leaf`, and what is added up")]
pub fn tree_sum<T: Arith>(
    pool: &Pool,
    goes: impl Fn(T, T) -> bool + Copy + Sync,
    x: &[T],
    features: usize,
    nodes: TreeNodes<'_, T>,
    roots: &[i64],
    (weight, targets): (&[T], usize),
    y: &mut [T],
) -> Result<(), BadTree> {
    nodes.check(features, roots)?;
    y.fill(T::ZERO);
    rows(pool, goes, x, features, nodes, roots, y, targets, |y, _, row, leaf| {
        let weight = &weight[leaf * targets..(leaf + 1) * targets];
        y[row * targets..(row + 1) * targets].iter_mut().zip(weight).for_each(|(y, w)| *y = y.plus(*w));
    });
    Ok(())
}

/// Calls `found(results, tree, row, leaf)` for every row and tree, those of a row in the order of the trees: `results` are some rows of
/// `y: [rows, width]`, and `row` counts from their first.
#[allow(clippy::too_many_arguments, reason = "those of `tree_leaf`, and what is done with a leaf")]
fn rows<T: Copy + Sync, U: Copy + Send + Sync>(
    pool: &Pool,
    goes: impl Fn(T, T) -> bool + Copy + Sync,
    x: &[T],
    features: usize,
    nodes: TreeNodes<'_, T>,
    roots: &[i64],
    y: &mut [U],
    width: usize,
    found: impl Fn(&mut [U], usize, usize, usize) + Copy + Sync,
) {
    if y.is_empty() {
        return;
    }
    // a leaf is some five comparisons
    let parallel = y.len() / width * roots.len() >= PARALLEL_MIN_ELEMS / 8;
    chunks(pool, parallel, y, PART_ROWS * width, |part, y| {
        for (b, y) in y.chunks_mut(LANES * width).enumerate() {
            let x = &x[(part * PART_ROWS + b * LANES) * features..];
            if y.len() == LANES * width {
                block::<T, LANES>(goes, x, features, nodes, roots, |tree, row, leaf| found(y, tree, row, leaf));
            } else {
                for (row, y) in y.chunks_mut(width).enumerate() {
                    let x = &x[row * features..];
                    block::<T, 1>(goes, x, features, nodes, roots, |tree, row, leaf| found(y, tree, row, leaf));
                }
            }
        }
    });
}

/// `N` rows, through one tree after the other: its tables stay in the cache. Every way leads onwards, so that each comes to a leaf.
#[inline(always)]
fn block<T: Copy, const N: usize>(
    goes: impl Fn(T, T) -> bool + Copy,
    x: &[T],
    features: usize,
    nodes: TreeNodes<'_, T>,
    roots: &[i64],
    mut found: impl FnMut(usize, usize, usize),
) {
    let rows: [&[T]; N] = std::array::from_fn(|k| &x[k * features..(k + 1) * features]);
    for (t, root) in roots.iter().enumerate() {
        let mut at = [*root as usize; N];
        loop {
            let mut moved = false;
            for (row, at) in rows.iter().zip(&mut at) {
                let v = row[nodes.feature[*at] as usize];
                let next = if goes(v, nodes.split[*at]) { nodes.yes[*at] } else { nodes.no[*at] } as usize;
                moved |= next != *at;
                *at = next;
            }
            if !moved {
                break;
            }
        }
        at.iter().enumerate().for_each(|(k, at)| found(t, k, *at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x0 <= 0 ? (x1 <= 5 ? 2 : 3) : 4`, and a leaf alone.
    const FEATURE: [i64; 6] = [0, 1, 0, 0, 0, 0];
    const SPLIT: [f32; 6] = [0.0, 5.0, 0.0, 0.0, 0.0, 0.0];
    const YES: [i64; 6] = [1, 2, 2, 3, 4, 5];
    const NO: [i64; 6] = [4, 3, 2, 3, 4, 5];

    fn nodes() -> TreeNodes<'static, f32> {
        TreeNodes { feature: &FEATURE, split: &SPLIT, yes: &YES, no: &NO }
    }

    #[test]
    fn rows_come_to_their_leaves_on_any_number_of_threads() {
        let want = |x: &[f32]| if x[0] > 0.0 || x[0].is_nan() { 4 } else { 2 + i64::from(x[1] > 5.0) };
        for rows in [0, 1, 7, 8, 9, 70, 9000] {
            let x: Vec<f32> = (0..2 * rows).map(|i| (i * 7 % 13) as f32 - 4.0).collect();
            let wanted: Vec<i64> = x.chunks(2).flat_map(|x| [want(x), 5]).collect();
            for threads in [1, 2] {
                let mut y = vec![-1; 2 * rows];
                tree_leaf(&Pool::new(threads), |a, b| a <= b, &x, 2, nodes(), &[0, 5], &mut y).expect("well formed");
                assert_eq!(y, wanted, "{rows} rows");
                // what lies at a leaf is its number and the number's square, which are whole in f32
                let weight: Vec<f32> = (0..6).flat_map(|l| [l as f32, (l * l) as f32]).collect();
                let sums: Vec<f32> =
                    wanted.chunks(2).flat_map(|l| [l[0] + 5, l[0] * l[0] + 25].map(|v| v as f32)).collect();
                let mut y = vec![-1.0; 2 * rows];
                let (pool, roots) = (Pool::new(threads), [0, 5]);
                tree_sum(&pool, |a, b| a <= b, &x, 2, nodes(), &roots, (&weight, 2), &mut y).expect("well formed");
                assert_eq!(y, sums, "{rows} rows");
            }
        }
        let mut y = [0; 1];
        tree_leaf(&Pool::new(1), |a, b| a <= b, &[f32::NAN, 0.0], 2, nodes(), &[0], &mut y).expect("well formed");
        assert_eq!(y, [4]);
    }

    #[test]
    fn tables_that_lead_nowhere_are_told() {
        let bad = |nodes: TreeNodes<'_, f32>, features, roots: &[i64]| nodes.check(features, roots).expect_err("bad");
        assert_eq!(bad(nodes(), 1, &[0]), BadTree::Feature(1));
        assert_eq!(bad(nodes(), 2, &[0, 6]), BadTree::Root(1));
        assert_eq!(bad(nodes(), 2, &[-1]), BadTree::Root(0));
        for way in [0, 6, -1] {
            assert_eq!(bad(TreeNodes { yes: &[1, way, 2, 3, 4, 5], ..nodes() }, 2, &[0]), BadTree::Way(1));
            assert_eq!(bad(TreeNodes { no: &[4, way, 2, 3, 4, 5], ..nodes() }, 2, &[0]), BadTree::Way(1));
        }
    }
}
