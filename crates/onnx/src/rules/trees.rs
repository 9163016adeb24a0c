//! Ensembles of decision trees, as tables of nodes. Trees whose nodes all compare in one way are an operator. In others every sample
//! has a node of every tree, and goes on to one of two as often as the deepest tree has levels; a leaf goes on to itself.

use std::collections::HashMap;

use remat_import::{Cx, shape_error, size, value_error};
use remat_ops::pointwise::CompareFn;
use remat_ops::trees::{TreeLeaf, TreeSum};
use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

/// Elements of a table for each node, and in any case: nodes times targets, or nodes times members of a set.
const MOST_TABLE: (usize, usize) = (1 << 10, 1 << 20);

/// Whether a table of `n` nodes is one that a file may ask for.
fn fits(n: usize, width: usize) -> bool {
    n.saturating_mul(width) <= n.saturating_mul(MOST_TABLE.0).max(MOST_TABLE.1)
}

/// How a node compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Leq,
    Lt,
    Gte,
    Gt,
    Eq,
    Neq,
    Member,
    Leaf,
}

const MODES: [Mode; 7] = [Mode::Leq, Mode::Lt, Mode::Gte, Mode::Gt, Mode::Eq, Mode::Neq, Mode::Member];

/// The nodes of all trees, leaves among them.
#[derive(Debug, Default)]
pub(super) struct Trees {
    roots: Vec<i64>,
    mode: Vec<Mode>,
    feature: Vec<i64>,
    value: Vec<f64>,
    yes: Vec<i64>,
    no: Vec<i64>,
    missing_yes: Vec<bool>,
    /// Of nodes that ask for members.
    sets: HashMap<usize, Vec<f64>>,
    /// (node, target, weight)
    weights: Vec<(usize, usize, f64)>,
    targets: usize,
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}

fn needed<'a>(c: &'a Cx<'_>, name: &str) -> Result<&'a [i64]> {
    c.ints(name)?.ok_or_else(|| c.missing(name))
}

/// Floats of a list, or of a tensor whose name ends in `_as_tensor`.
fn reals(c: &Cx<'_>, name: &str) -> Result<Vec<f64>> {
    if let Some(t) = c.tensor(&format!("{name}_as_tensor"))? {
        return Ok(t.to_f64_vec());
    }
    Ok(c.reals(name)?.unwrap_or(&[]).iter().map(|v| f64::from(*v)).collect())
}

impl Trees {
    fn push(&mut self, mode: Mode, feature: i64, value: f64, missing: bool) -> usize {
        let i = self.mode.len();
        self.mode.push(mode);
        self.feature.push(feature);
        self.value.push(value);
        self.missing_yes.push(missing);
        self.yes.push(i as i64);
        self.no.push(i as i64);
        i
    }

    /// The form of version 5: inner nodes and leaves apart.
    pub(super) fn of_tensors(c: &Cx<'_>) -> Result<Trees> {
        let tensor = |name: &str| c.tensor(name)?.ok_or_else(|| c.missing(name));
        let (modes, splits) = (tensor("nodes_modes")?.to_i64_vec(), tensor("nodes_splits")?.to_f64_vec());
        let (features, yes, no) =
            (needed(c, "nodes_featureids")?, needed(c, "nodes_truenodeids")?, needed(c, "nodes_falsenodeids")?);
        let (yes_leaf, no_leaf) = (needed(c, "nodes_trueleafs")?, needed(c, "nodes_falseleafs")?);
        let missing = c.ints("nodes_missing_value_tracks_true")?;
        let n = modes.len();
        if [splits.len(), features.len(), yes.len(), no.len(), yes_leaf.len(), no_leaf.len()] != [n; 6] {
            return Err(wrong("lists of nodes of several lengths"));
        }
        let mut members: Vec<Vec<f64>> = match c.tensor("membership_values")? {
            Some(t) => t.to_f64_vec().split(|v| v.is_nan()).map(<[f64]>::to_vec).collect(),
            None => Vec::new(),
        };
        members.reverse();
        let mut trees = Trees { roots: needed(c, "tree_roots")?.to_vec(), ..Trees::default() };
        for i in 0..n {
            let mode = usize::try_from(modes[i]).ok().and_then(|m| MODES.get(m)).copied();
            let mode = mode.ok_or_else(|| wrong(format!("{} is no mode of a node", modes[i])))?;
            let tracks = missing.and_then(|m| m.get(i)).is_some_and(|m| *m != 0);
            trees.push(mode, features[i], splits[i], tracks);
            if mode == Mode::Member {
                trees.sets.insert(i, members.pop().ok_or_else(|| wrong("a set is missing"))?);
            }
        }
        let (target, weight) = (needed(c, "leaf_targetids")?, tensor("leaf_weights")?.to_f64_vec());
        if target.len() != weight.len() {
            return Err(wrong("lists of leaves of several lengths"));
        }
        for (t, w) in target.iter().zip(weight) {
            let leaf = trees.push(Mode::Leaf, 0, 0.0, false);
            trees.weights.push((leaf, size(*t)?, w));
        }
        let place = |id: i64, leaf: i64| if leaf != 0 { id.saturating_add(n as i64) } else { id };
        for i in 0..n {
            (trees.yes[i], trees.no[i]) = (place(yes[i], yes_leaf[i]), place(no[i], no_leaf[i]));
        }
        // a tree of nothing but a leaf is a node both of whose ways lead there
        trees.targets = size(c.int("n_targets", 1)?)?;
        Ok(trees)
    }

    /// The form of version 1: lists of all nodes, by the number of their tree and in it; `of` names the lists of weights.
    pub(super) fn of_lists(c: &Cx<'_>, of: &str, targets: usize) -> Result<Trees> {
        let (tree, node) = (needed(c, "nodes_treeids")?, needed(c, "nodes_nodeids")?);
        let (features, yes, no) =
            (needed(c, "nodes_featureids")?, needed(c, "nodes_truenodeids")?, needed(c, "nodes_falsenodeids")?);
        let (modes, values) =
            (c.strings("nodes_modes")?.ok_or_else(|| c.missing("nodes_modes"))?, reals(c, "nodes_values")?);
        let missing = c.ints("nodes_missing_value_tracks_true")?;
        let n = node.len();
        if [tree.len(), features.len(), yes.len(), no.len(), modes.len(), values.len()] != [n; 6] {
            return Err(wrong("lists of nodes of several lengths"));
        }
        let mut trees = Trees { targets, ..Trees::default() };
        let mut by: HashMap<(i64, i64), usize> = HashMap::new();
        let mut seen = std::collections::HashSet::new();
        for i in 0..n {
            let mode = match modes[i].as_str() {
                "LEAF" => Mode::Leaf,
                "BRANCH_LEQ" => Mode::Leq,
                "BRANCH_LT" => Mode::Lt,
                "BRANCH_GTE" => Mode::Gte,
                "BRANCH_GT" => Mode::Gt,
                "BRANCH_EQ" => Mode::Eq,
                "BRANCH_NEQ" => Mode::Neq,
                other => return Err(c.unknown("nodes_modes", other)),
            };
            let tracks = missing.and_then(|m| m.get(i)).is_some_and(|m| *m != 0);
            // what a leaf is said to look at need not be there
            let feature = if mode == Mode::Leaf { 0 } else { features[i] };
            let at = trees.push(mode, feature, values[i], tracks);
            by.insert((tree[i], node[i]), at);
            if seen.insert(tree[i]) {
                trees.roots.push(at as i64);
            }
        }
        let find = |tree: i64, node: i64| {
            by.get(&(tree, node)).copied().ok_or_else(|| wrong(format!("tree {tree} has no node {node}")))
        };
        for i in 0..n {
            if trees.mode[i] != Mode::Leaf {
                trees.yes[i] = find(tree[i], yes[i])? as i64;
                trees.no[i] = find(tree[i], no[i])? as i64;
            }
        }
        let list = |what: &str| needed(c, &format!("{of}_{what}"));
        let (tree, node, id, weight) =
            (list("treeids")?, list("nodeids")?, list("ids")?, reals(c, &format!("{of}_weights"))?);
        if [node.len(), id.len(), weight.len()] != [tree.len(); 3] {
            return Err(wrong("lists of weights of several lengths"));
        }
        for i in 0..tree.len() {
            trees.weights.push((find(tree[i], node[i])?, size(id[i])?, weight[i]));
        }
        Ok(trees)
    }

    /// Targets that any leaf has a weight for, and whether no weight is negative.
    pub(super) fn targets_used(&self) -> (usize, bool) {
        let used: std::collections::HashSet<usize> = self.weights.iter().map(|w| w.1).collect();
        (used.len(), self.weights.iter().all(|w| w.2 >= 0.0))
    }

    /// Steps from a root to its farthest leaf. Errors: Format for a node that is not there, or a way that comes back.
    fn depth(&self) -> Result<usize> {
        let n = self.mode.len();
        let at =
            |i: i64| usize::try_from(i).ok().filter(|i| *i < n).ok_or_else(|| wrong(format!("there is no node {i}")));
        let mut level: Vec<usize> = self.roots.iter().map(|r| at(*r)).collect::<Result<_>>()?;
        let (mut depth, mut visited) = (0, level.len());
        while !level.is_empty() {
            let mut next = std::collections::BTreeSet::new();
            for i in level.into_iter().filter(|i| self.mode[*i] != Mode::Leaf) {
                next.insert(at(self.yes[i])?);
                next.insert(at(self.no[i])?);
            }
            // in a tree every node is met once
            visited += next.len();
            if visited > n + self.roots.len() {
                return Err(wrong("trees whose ways come back, or meet"));
            }
            level = next.into_iter().collect();
            depth += 1;
        }
        Ok(depth)
    }

    /// The results of the trees for each row of `x: [n, features]`, combined by `f`: `[n, targets]`.
    pub(super) fn apply(&self, c: &Cx<'_>, x: &Tensor, f: &str) -> Result<Tensor> {
        let [_, features] = x.dims_n()?;
        let dtype = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let x = x.cast(dtype)?;
        let depth = self.depth()?;
        let inner = |i: &usize| self.mode[*i] != Mode::Leaf;
        if (0..self.mode.len())
            .filter(inner)
            .any(|i| usize::try_from(self.feature[i]).is_ok_and(|f| f >= features) || self.feature[i] < 0)
        {
            return Err(shape_error(format!("trees ask for features beyond the {features} of x")));
        }
        let device = c.device();
        let ints = |v: &[i64]| Tensor::from_slice(device, v, [v.len()]);
        let (feature, yes, no) = (ints(&self.feature)?, ints(&self.yes)?, ints(&self.no)?);
        let value = Tensor::from_slice(device, &self.value, [self.value.len()])?.cast(dtype)?;
        let roots = ints(&self.roots)?;
        let table = Tensor::from_host(device, &self.weight_table(f)?)?.cast(dtype)?;
        let nodes = [&x, &value, &feature, &yes, &no, &roots];
        let one = self.one_comparison();
        let at = || match one {
            Some(f) => Tensor::apply1(TreeLeaf { f }, &nodes),
            None => self.levels(c, &x, [&value, &feature, &yes, &no, &roots], depth),
        };
        let sum = || match one {
            Some(f) => Tensor::apply1(TreeSum { f }, &[&nodes[..], &[&table]].concat()),
            None => table.take(0, &at()?)?.sum_over(&[1], false),
        };
        match f {
            "SUM" => sum(),
            "AVERAGE" => sum()?.div(self.roots.len().max(1) as f64),
            "MIN" | "MAX" => {
                let all = table.take(0, &at()?)?;
                let y = if f == "MIN" { all.min_over(&[1], false)? } else { all.max_over(&[1], false)? };
                // a target that no tree speaks of
                y.is_inf()?.where_cond(&y.zeros_like()?, &y)
            }
            other => Err(c.unknown("aggregate_function", other)),
        }
    }

    /// How all nodes compare, if they do so in one way and each leads onwards, as the operator has it.
    fn one_comparison(&self) -> Option<CompareFn> {
        let inner = || (0..self.mode.len()).filter(|i| self.mode[*i] != Mode::Leaf);
        let first = inner().next().map_or(Mode::Leq, |i| self.mode[i]);
        let same = inner().all(|i| {
            let onwards = |way: i64| usize::try_from(way).is_ok_and(|way| (i + 1..self.mode.len()).contains(&way));
            self.mode[i] == first && !self.missing_yes[i] && onwards(self.yes[i]) && onwards(self.no[i])
        });
        let f = match first {
            Mode::Leq => CompareFn::Le,
            Mode::Lt => CompareFn::Lt,
            Mode::Gte => CompareFn::Ge,
            Mode::Gt => CompareFn::Gt,
            Mode::Eq => CompareFn::Eq,
            Mode::Neq => CompareFn::Ne,
            Mode::Member | Mode::Leaf => return None,
        };
        same.then_some(f)
    }

    /// The leaf of every row in every tree, level by level.
    fn levels(&self, c: &Cx<'_>, x: &Tensor, tables: [&Tensor; 5], depth: usize) -> Result<Tensor> {
        let (device, [value, feature, yes, no, roots]) = (c.device(), tables);
        let tracks = self.missing_yes.contains(&true);
        let missing = Tensor::from_slice(device, &self.missing_yes, [self.missing_yes.len()])?;
        let mut used: Vec<Mode> = Vec::new();
        self.mode.iter().filter(|m| **m != Mode::Leaf).for_each(|m| {
            if !used.contains(m) {
                used.push(*m)
            }
        });
        let code: Vec<i64> = self.mode.iter().map(|m| *m as i64).collect();
        let code = Tensor::from_slice(device, &code, [code.len()])?;
        let sets = self.set_table(device, x.dtype())?;
        let mut at = roots.unsqueeze(0)?.broadcast_to([x.dims()[0], self.roots.len()])?;
        for _ in 0..depth {
            let seen = x.gather(1, &feature.take(0, &at)?)?;
            let split = value.take(0, &at)?;
            let mut goes: Option<Tensor> = None;
            for mode in &used {
                let this = match mode {
                    Mode::Leq => seen.le(&split)?,
                    Mode::Lt => seen.lt(&split)?,
                    Mode::Gte => seen.ge(&split)?,
                    Mode::Gt => seen.gt(&split)?,
                    Mode::Eq => seen.eq(&split)?,
                    Mode::Neq => seen.ne(&split)?,
                    Mode::Member => sets.take(0, &at)?.eq(&seen.unsqueeze(2)?)?.any_over(&[2], false)?,
                    Mode::Leaf => continue,
                };
                goes = Some(match goes {
                    None => this,
                    Some(before) => code.take(0, &at)?.eq(*mode as i64)?.where_cond(&this, &before)?,
                });
            }
            let Some(mut goes) = goes else { break };
            if tracks {
                goes = goes.logical_or(&seen.is_nan()?.logical_and(&missing.take(0, &at)?)?)?;
            }
            at = goes.where_cond(&yes.take(0, &at)?, &no.take(0, &at)?)?;
        }
        Ok(at)
    }

    /// `[nodes, members]`, filled up with NaN, which equals nothing.
    fn set_table(&self, device: &remat_runtime::Device, dtype: DType) -> Result<Tensor> {
        let width = self.sets.values().map(Vec::len).max().unwrap_or(0);
        let n = if self.sets.is_empty() { 0 } else { self.mode.len() };
        if !fits(n, width) {
            return Err(value_error("sets of more members than a table holds"));
        }
        let mut all = vec![f64::NAN; n * width];
        for (i, set) in &self.sets {
            all[i * width..i * width + set.len()].copy_from_slice(set);
        }
        Tensor::from_slice(device, &all, [n, width])?.cast(dtype)
    }

    /// `[nodes, targets]`: a missing weight changes nothing.
    fn weight_table(&self, f: &str) -> Result<HostTensor> {
        let (n, targets) = (self.mode.len(), self.targets);
        if !fits(n, targets) {
            return Err(value_error(format!("{n} nodes with {targets} targets")));
        }
        let nothing = match f {
            "MIN" => f64::INFINITY,
            "MAX" => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let mut all = vec![nothing; n * targets];
        for (node, target, weight) in &self.weights {
            if *target >= targets {
                return Err(wrong(format!("target {target} of {targets}")));
            }
            let at = &mut all[node * targets + target];
            *at = if at.is_infinite() { *weight } else { *at + weight };
        }
        HostTensor::from_slice(&all, [n, targets])
    }
}
