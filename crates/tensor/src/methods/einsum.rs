//! Einstein's sums, as products of matrices in an order that is searched for.

use std::collections::BTreeMap;

use remat_types::{Error, ErrorKind, Result, Shape};

use crate::Tensor;
use crate::site::InOp;

/// The name of an axis: a letter, or a number above all letters for an axis of an ellipsis.
type Label = u32;

/// The first name of an axis of an ellipsis, counted from the last axis of it.
const ELLIPSIS: Label = 0x11_0000;

/// As many factors are put in the best order; the order of more is that of the smallest results.
const EXHAUSTIVE: usize = 8;

impl Tensor {
    /// Einstein's sum: the axes of each factor are named by letters, products are summed over the letters that the result does
    /// not name. `...` stands for any number of axes, which broadcast; a letter twice in one factor is its diagonal. Without `->`
    /// the result has the letters that occur once, in the order of the alphabet. As NumPy's and PyTorch's `einsum`.
    ///
    /// Three factors and more are contracted in pairs: in the order with the fewest multiplications if there are at most eight.
    ///
    /// Errors: Value for an equation that does not parse; Arity for another number of factors; Axis, Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [2, 2])?;
    /// assert_eq!(Tensor::einsum("ij,jk->ik", &[&a, &a])?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// assert_eq!(Tensor::einsum("ii", &[&a])?.item::<f32>()?, 5.0);
    /// assert_eq!(Tensor::einsum("...i->...", &[&a])?.to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn einsum(equation: &str, x: &[&Tensor]) -> Result<Tensor> {
        let ranks: Vec<usize> = x.iter().map(|t| t.rank()).collect();
        let (inputs, output) = parse(equation, &ranks).in_op("einsum")?;
        contract_all(x.iter().map(|t| (*t).clone()).zip(inputs).collect(), &output).called("einsum")
    }
}

fn bad(equation: &str, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Value, format!("in `{equation}`: {why}"))
}

/// The labels of a part without an arrow or commas; `dots` axes in an ellipsis.
fn labels(equation: &str, part: &str, dots: usize) -> Result<Vec<Label>> {
    let mut out = Vec::new();
    let mut rest = part;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if out.iter().any(|l| *l >= ELLIPSIS) || after.contains("...") {
                return Err(bad(equation, "a factor has two ellipses"));
            }
            out.extend((0..dots as Label).rev().map(|i| ELLIPSIS + i));
            rest = after;
            continue;
        }
        if !c.is_alphabetic() {
            return Err(bad(equation, format!("`{c}` names no axis; letters and `...` do")));
        }
        out.push(c.into());
        rest = &rest[c.len_utf8()..];
    }
    Ok(out)
}

/// The labels of the factors and of the result.
fn parse(equation: &str, ranks: &[usize]) -> Result<(Vec<Vec<Label>>, Vec<Label>)> {
    let compact: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = match compact.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (compact.as_str(), None),
    };
    let parts: Vec<&str> = left.split(',').collect();
    if parts.len() != ranks.len() {
        let text = format!("`{equation}` names {} factors, {} are given", parts.len(), ranks.len());
        return Err(Error::new(ErrorKind::Arity, text));
    }
    let (mut inputs, mut widest) = (Vec::new(), 0);
    for (i, (part, rank)) in parts.iter().zip(ranks).enumerate() {
        let named = part.replace("...", "").chars().count();
        let dots = if part.contains("...") { rank.checked_sub(named) } else { Some(0) };
        let fits = dots.filter(|d| named + d == *rank);
        let Some(dots) = fits else {
            let text = format!("`{part}` of `{equation}` names {named} axes, factor {i} has {rank}");
            return Err(Error::new(ErrorKind::Axis, text));
        };
        widest = widest.max(dots);
        inputs.push(labels(equation, part, dots)?);
    }
    let mut count: BTreeMap<Label, usize> = BTreeMap::new();
    inputs.iter().flatten().for_each(|l| *count.entry(*l).or_default() += 1);
    let output = match right {
        Some(right) => labels(equation, right, widest)?,
        None => {
            let dots = (0..widest as Label).rev().map(|i| ELLIPSIS + i);
            let once = count.iter().filter(|(l, n)| **l < ELLIPSIS && **n == 1).map(|(l, _)| *l);
            dots.chain(once).collect()
        }
    };
    for (i, l) in output.iter().enumerate() {
        let name = char::from_u32(*l).map_or("...".into(), |c| c.to_string());
        if !count.contains_key(l) {
            return Err(bad(equation, format!("the result names `{name}`, which no factor does")));
        }
        if output[..i].contains(l) {
            return Err(bad(equation, format!("the result names `{name}` twice")));
        }
    }
    Ok((inputs, output))
}

/// The sum over all labels that are not in `output` of the products of the factors.
#[track_caller]
pub(super) fn contract_all(factors: Vec<(Tensor, Vec<Label>)>, output: &[Label]) -> Result<Tensor> {
    let mut extents: BTreeMap<Label, usize> = BTreeMap::new();
    for (t, labels) in &factors {
        for (l, n) in labels.iter().zip(t.dims()) {
            let have = extents.entry(*l).or_insert(*n);
            if *have == 1 {
                *have = *n;
            } else if *n != 1 && n != have {
                let name = char::from_u32(*l).map_or("an axis of `...`".into(), |c| format!("axis `{c}`"));
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("{name} has {have} elements in one factor and {n} in another"),
                ));
            }
        }
    }
    let mut terms = Vec::new();
    for (t, labels) in factors {
        let shape: Shape = labels.iter().map(|l| extents[l]).collect();
        terms.push(Term { x: t.broadcast_to(shape)?, labels }.without_repeats()?);
    }
    for step in order(&terms, output, &extents) {
        // the later one first, so that the place of the earlier one stays
        let (i, j) = (step.0.min(step.1), step.0.max(step.1));
        let (b, a) = (terms.remove(j), terms.remove(i));
        let needed = |l: &Label| output.contains(l) || terms.iter().any(|t| t.labels.contains(l));
        let joined = a.times(b, &needed)?;
        terms.push(joined);
    }
    let Some(last) = terms.pop() else {
        return Err(Error::new(ErrorKind::Arity, "takes one factor or more"));
    };
    let last = last.summed(&|l| output.contains(l))?;
    let order: Vec<isize> = output.iter().map(|l| last.axis(*l)).collect();
    if order.iter().enumerate().all(|(i, a)| *a == i as isize) { Ok(last.x) } else { last.x.permute(&order) }
}

/// A factor, each label once.
struct Term {
    x: Tensor,
    labels: Vec<Label>,
}

impl Term {
    fn axis(&self, l: Label) -> isize {
        self.labels.iter().position(|m| *m == l).unwrap_or(0) as isize
    }

    /// Diagonals in the place of axes of one label.
    #[track_caller]
    fn without_repeats(mut self) -> Result<Term> {
        while let Some((i, j)) = twice(&self.labels) {
            let l = self.labels[i];
            self.x = self.x.diagonal(0, i as isize, j as isize)?;
            self.labels.retain(|m| *m != l);
            self.labels.push(l);
        }
        Ok(self)
    }

    /// Summed over the letters that are not needed.
    #[track_caller]
    fn summed(self, needed: &dyn Fn(&Label) -> bool) -> Result<Term> {
        let gone: Vec<isize> =
            (0..self.labels.len()).filter(|i| !needed(&self.labels[*i])).map(|i| i as isize).collect();
        if gone.is_empty() {
            return Ok(self);
        }
        let x = self.x.sum_over(&gone, false)?;
        Ok(Term { x, labels: self.labels.into_iter().filter(|l| needed(l)).collect() })
    }

    /// With the axes in the order of `groups`, one axis of the result for each group.
    #[track_caller]
    fn grouped(&self, groups: &[&[Label]]) -> Result<Tensor> {
        let order: Vec<isize> = groups.iter().flat_map(|g| g.iter()).map(|l| self.axis(*l)).collect();
        let x = self.x.permute(&order)?;
        let mut at = 0;
        let shape: Vec<usize> = groups
            .iter()
            .map(|g| {
                at += g.len();
                x.dims()[at - g.len()..at].iter().product()
            })
            .collect();
        x.reshape(&shape.iter().map(|n| *n as isize).collect::<Vec<_>>())
    }

    /// The product, summed over what neither the result nor another factor needs: a product of matrices over a batch.
    #[track_caller]
    fn times(self, b: Term, needed: &dyn Fn(&Label) -> bool) -> Result<Term> {
        let a_has = self.labels.clone();
        let b_has = b.labels.clone();
        let a = self.summed(&|l| needed(l) || b_has.contains(l))?;
        let b = b.summed(&|l| needed(l) || a_has.contains(l))?;
        let of = |from: &[Label], keep: &dyn Fn(&Label) -> bool| -> Vec<Label> {
            from.iter().copied().filter(keep).collect()
        };
        let batch = of(&a.labels, &|l| b.labels.contains(l) && needed(l));
        let inner = of(&a.labels, &|l| b.labels.contains(l) && !needed(l));
        let left = of(&a.labels, &|l| !b.labels.contains(l));
        let right = of(&b.labels, &|l| !a.labels.contains(l));
        let labels = [batch.clone(), left.clone(), right.clone()].concat();
        let extent = |l: &Label| {
            let from = if a.labels.contains(l) { &a } else { &b };
            from.x.dims()[from.axis(*l) as usize] as isize
        };
        let shape: Vec<isize> = labels.iter().map(extent).collect();
        let y = if inner.is_empty() {
            a.grouped(&[&batch, &left, &[]])?.mul(b.grouped(&[&batch, &[], &right])?)?
        } else {
            a.grouped(&[&batch, &left, &inner])?.matmul(&b.grouped(&[&batch, &inner, &right])?)?
        };
        Ok(Term { x: y.reshape(&shape)?, labels })
    }
}

/// The places of a label that is there twice.
fn twice(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|i| labels[i + 1..].iter().position(|l| *l == labels[i]).map(|j| (i, i + 1 + j)))
}

/// Pairs of places among the terms that are left, whose product goes to the end of them.
fn order(terms: &[Term], output: &[Label], extents: &BTreeMap<Label, usize>) -> Vec<(usize, usize)> {
    let sets: Vec<Vec<Label>> = terms.iter().map(|t| t.labels.clone()).collect();
    let search = Search { sets: &sets, output, extents };
    if sets.len() <= 2 {
        return (1..sets.len()).map(|_| (0, 1)).collect();
    }
    let tree = if sets.len() <= EXHAUSTIVE { search.best() } else { search.greedy() };
    // from sets of factors to places among the remaining ones
    let mut left: Vec<usize> = (0..sets.len()).map(|i| 1 << i).collect();
    let place = |left: &[usize], set: usize| left.iter().position(|s| *s == set).unwrap_or(0);
    tree.into_iter()
        .map(|(a, b)| {
            let at = (place(&left, a), place(&left, b));
            left.retain(|s| *s != a && *s != b);
            left.push(a | b);
            at
        })
        .collect()
}

struct Search<'a> {
    sets: &'a [Vec<Label>],
    output: &'a [Label],
    extents: &'a BTreeMap<Label, usize>,
}

impl Search<'_> {
    /// The labels that the product of a set of factors keeps.
    fn kept(&self, set: usize) -> Vec<Label> {
        let within = |i: usize| set >> i & 1 == 1;
        let mut all: Vec<Label> =
            (0..self.sets.len()).filter(|i| within(*i)).flat_map(|i| self.sets[i].iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        let outside = |l: &Label| (0..self.sets.len()).any(|i| !within(i) && self.sets[i].contains(l));
        all.retain(|l| self.output.contains(l) || outside(l));
        all
    }

    fn elems(&self, labels: impl IntoIterator<Item = Label>) -> f64 {
        labels.into_iter().map(|l| self.extents[&l] as f64).product()
    }

    /// The multiplications of joining two sets.
    fn cost(&self, a: usize, b: usize) -> f64 {
        let (mut all, other) = (self.kept(a), self.kept(b));
        all.extend(other.into_iter().filter(|l| !all.contains(l)).collect::<Vec<_>>());
        self.elems(all)
    }

    /// The joins of the cheapest tree, inner ones first: over all subsets.
    fn best(&self) -> Vec<(usize, usize)> {
        let n = self.sets.len();
        // at first the lowest factor apart, which stays where no cost can be told
        let mut table: Vec<(f64, usize)> = (0..1usize << n).map(|s| (f64::INFINITY, s & s.wrapping_neg())).collect();
        (0..n).for_each(|i| table[1 << i] = (0.0, 0));
        for set in 1..1usize << n {
            let mut part = (set - 1) & set;
            while part > set - part {
                let cost = table[part].0 + table[set - part].0 + self.cost(part, set - part);
                if cost < table[set].0 {
                    table[set] = (cost, part);
                }
                part = (part - 1) & set;
            }
        }
        let mut joins = Vec::new();
        let mut open = vec![(1 << n) - 1];
        while let Some(set) = open.pop() {
            if usize::count_ones(set) > 1 {
                let part = table[set].1;
                joins.push((part, set - part));
                open.extend([part, set - part]);
            }
        }
        joins.reverse();
        joins
    }

    /// The joins in the order in which they shrink the remaining factors most.
    fn greedy(&self) -> Vec<(usize, usize)> {
        let mut left: Vec<usize> = (0..self.sets.len()).map(|i| 1 << i).collect();
        let mut joins = Vec::new();
        while left.len() > 1 {
            let size = |s: usize| self.elems(self.kept(s));
            let pairs = (0..left.len()).flat_map(|i| (i + 1..left.len()).map(move |j| (i, j)));
            let growth = |(i, j): &(usize, usize)| size(left[*i] | left[*j]) - size(left[*i]) - size(left[*j]);
            let Some((i, j)) = pairs.min_by(|a, b| growth(a).total_cmp(&growth(b))) else { break };
            let (a, b) = (left[i], left[j]);
            joins.push((a, b));
            left.retain(|s| *s != a && *s != b);
            left.push(a | b);
        }
        joins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search_of(equation: &str, extents: &[(char, usize)]) -> Vec<(usize, usize)> {
        let parts: Vec<Vec<Label>> = equation.split(',').map(|p| p.chars().map(Label::from).collect()).collect();
        let extents = extents.iter().map(|(c, n)| (Label::from(*c), *n)).collect();
        let search = Search { sets: &parts, output: &[Label::from('a'), Label::from('d')], extents: &extents };
        assert_eq!(search.best().len(), search.greedy().len());
        search.best()
    }

    #[test]
    fn a_chain_is_multiplied_from_its_narrow_end() {
        // (a b)(b c)(c d) with a narrow a: from the left; with a narrow d: from the right
        assert_eq!(search_of("ab,bc,cd", &[('a', 2), ('b', 50), ('c', 50), ('d', 50)])[0], (2, 1));
        assert_eq!(search_of("ab,bc,cd", &[('a', 50), ('b', 50), ('c', 50), ('d', 2)])[0], (4, 2));
    }

    #[test]
    fn an_equation_that_does_not_parse_says_what_is_wrong() {
        for (equation, ranks, what) in [
            ("ij->ik", &[2][..], "names `k`"),
            ("ij->ii", &[2], "names `i` twice"),
            ("i1", &[2], "`1` names no axis"),
            ("......i", &[3], "two ellipses"),
            ("...i...", &[3], "two ellipses"),
            ("ij,jk", &[2], "names 2 factors, 1 are given"),
            ("ijk", &[2], "names 3 axes, factor 0 has 2"),
            ("...ijk", &[2], "names 3 axes, factor 0 has 2"),
            ("ij->i>j", &[2], "`>` names no axis"),
        ] {
            let e = parse(equation, ranks).expect_err(equation).to_string();
            assert!(e.contains(what), "{equation}: {e}");
        }
    }
}
