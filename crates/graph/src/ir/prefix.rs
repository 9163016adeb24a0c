//! Pieces of a graph that run one after another.

use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::{Builder, Graph, NodeId, Origin, ValueId};

/// The size of a graph at some moment. The nodes that it had then are its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphPrefix {
    /// Values.
    pub values: usize,
    /// Nodes.
    pub nodes: usize,
    /// States.
    pub states: usize,
    /// Inputs.
    pub inputs: usize,
}

impl Graph {
    /// How far it has grown.
    pub fn prefix(&self) -> GraphPrefix {
        let (values, nodes) = (self.values().len(), self.nodes().len());
        GraphPrefix { values, nodes, states: self.states().len(), inputs: self.inputs().len() }
    }

    /// Errors (Value), with the first difference, unless this graph begins with all of `first`: the same inputs, states,
    /// constants and nodes under the same ids. What `first` gives back does not count.
    pub fn begins_with(&self, first: &Graph) -> Result<()> {
        let (own, other) = (self.prefix(), first.prefix());
        if own.values < other.values || own.nodes < other.nodes {
            return Err(differs(format!("{} nodes, and there were {}", own.nodes, other.nodes)));
        }
        for (i, (a, b)) in self.nodes().iter().zip(first.nodes()).enumerate() {
            if a.op != b.op || a.x != b.x || a.y != b.y || a.after != b.after {
                return Err(differs(format!("node {i} is `{}`, and was `{}`", a.op.label(), b.op.label())));
            }
        }
        for v in first.value_ids() {
            let (a, b) = (self.value(v), first.value(v));
            let same = match (&a.origin, &b.origin) {
                (Origin::Input(a), Origin::Input(b)) | (Origin::State(a), Origin::State(b)) => a == b,
                (Origin::Constant(a), Origin::Constant(b)) => a == b,
                // the nodes were compared
                (Origin::Node { .. }, Origin::Node { .. }) => true,
                _ => false,
            };
            if !same || !a.fact.same_type(&b.fact) {
                return Err(differs(format!("{} has another value or type", first.label(v))));
            }
        }
        Ok(())
    }

    /// Of the beginning of this graph, the values that the rest of it needs for `results` and for updates of states: these values
    /// must be handed over if the two parts run separately. The source of a view is handed over instead of the view, unless it is
    /// larger. Small integers that inference knows are recomputed. In order of definition.
    pub fn handed_over(&self, beginning: &GraphPrefix, results: &[ValueId]) -> Vec<ValueId> {
        let mut asked = vec![false; self.values().len()];
        let mut found = Vec::new();
        let next = self.states().iter().filter_map(|s| s.next);
        let mut list: Vec<ValueId> = results.iter().copied().chain(next).collect();
        while let Some(v) = list.pop() {
            let Some(id) = self.producer(v).filter(|_| !std::mem::replace(&mut asked[v.index()], true)) else {
                continue;
            };
            let source = self.viewed(v);
            if id.index() >= beginning.nodes || self.fact(v).value.is_some() {
                list.extend(&self.node(id).x);
            } else if self.producer(source).is_some() {
                let larger = self.fact(source).bytes() > self.fact(v).bytes();
                found.push(if larger { v } else { source });
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The value that `v` is a view of; `v` itself if it is no view.
    fn viewed(&self, mut v: ValueId) -> ValueId {
        let of = |v: ValueId| -> Option<ValueId> {
            let n = self.node(self.producer(v)?);
            let x = *n.x.first()?;
            n.op.view(&self.fact(x).layout()).map(|_| x)
        };
        while let Some(x) = of(v) {
            v = x;
        }
        v
    }

    /// The graph that gives back `results` under their names and updates the states, with the values `given` as further
    /// inputs instead of being computed. All inputs and states stay.
    ///
    /// Errors: Format for two results of one name.
    pub fn piece(&self, given: &[ValueId], results: &[(&str, ValueId)]) -> Result<Graph> {
        let b = Builder::raw();
        let mut at: Vec<Option<ValueId>> = vec![None; self.values().len()];
        let name = |v: ValueId| self.value(v).name.as_deref();
        for v in self.inputs() {
            at[v.index()] = Some(b.input(self.fact(*v).clone(), name(*v)));
        }
        for v in given {
            at[v.index()] = Some(b.input(self.fact(*v).clone(), name(*v)));
        }
        for s in self.states() {
            at[s.value.index()] = Some(b.state(self.fact(s.value).clone(), name(s.value)));
        }
        let next: Vec<(ValueId, ValueId)> = self.states().iter().filter_map(|s| Some((s.value, s.next?))).collect();
        let roots = results.iter().map(|r| r.1).chain(next.iter().map(|n| n.1));
        let needed = self.needed(roots, &at);
        for (n, _) in self.nodes().iter().zip(&needed).filter(|n| *n.1) {
            let x = n.x.iter().map(|v| self.placed(&b, *v, &mut at)).collect::<Result<SmallVec<[ValueId; 4]>>>()?;
            b.set_scope(n.scope.clone());
            let y = b.node(n.op.clone(), &x, n.site)?;
            // an output that is given stays the given one
            n.y.iter().zip(&y).for_each(|(v, y)| at[v.index()] = at[v.index()].or(Some(*y)));
            for on in n.after.iter().filter(|on| needed[on.index()]) {
                let on = self.node(*on).y.first().and_then(|v| at[v.index()]);
                if let (Some(y), Some(on)) = (y.first(), on) {
                    b.run_after(*y, on)?;
                }
            }
        }
        for (name, v) in results {
            b.output(self.placed(&b, *v, &mut at)?, name);
        }
        for (state, next) in next {
            b.set_state(self.placed(&b, state, &mut at)?, self.placed(&b, next, &mut at)?)?;
        }
        b.finish()
    }

    /// The nodes that have to run for these values, those before what has its place not counted.
    fn needed(&self, roots: impl Iterator<Item = ValueId>, at: &[Option<ValueId>]) -> Vec<bool> {
        let mut needed = vec![false; self.nodes().len()];
        let producer = |v: ValueId| self.producer(v).filter(|_| at[v.index()].is_none());
        let mut list: Vec<NodeId> = roots.filter_map(producer).collect();
        while let Some(id) = list.pop() {
            if !std::mem::replace(&mut needed[id.index()], true) {
                let n = self.node(id);
                list.extend(n.x.iter().filter_map(|v| producer(*v)));
                // the nodes ordered before it, unless they have run in an earlier piece
                let given = |n: &&NodeId| self.node(**n).y.iter().any(|v| at[v.index()].is_some());
                list.extend(n.after.iter().filter(|n| !given(n)));
            }
        }
        needed
    }

    /// Where a value is in the new graph; a constant comes there with its first reader.
    fn placed(&self, b: &Builder, v: ValueId, at: &mut [Option<ValueId>]) -> Result<ValueId> {
        if let (None, Origin::Constant(data)) = (at[v.index()], &self.value(v).origin) {
            at[v.index()] = Some(b.constant(data));
        }
        at[v.index()].ok_or_else(|| Error::new(ErrorKind::Internal, "a piece reads what it has not computed"))
    }
}

fn differs(text: String) -> Error {
    Error::new(ErrorKind::Value, text)
}

#[cfg(test)]
mod tests {
    use remat_kernels::pool::Pool;
    use remat_ops::OpRef;
    use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn};
    use remat_ops::shape::{BroadcastTo, Reshape, Slice};
    use remat_types::{DType, Fact, HostTensor};

    use super::*;

    struct Made {
        graph: Graph,
        /// How far it had grown where it is cut.
        beginning: GraphPrefix,
        /// The exponential, its first two elements, its rows one after another, and a row twice.
        early: [ValueId; 4],
    }

    /// Values of the beginning that the rest reads: as they are, through views, and through small integers.
    fn made() -> Made {
        let b = Builder::raw();
        let op = |op: OpRef, x: &[ValueId]| b.node(op, x, None).expect("fits")[0];
        let (x, w) = (b.input(Fact::new(DType::F32, [2, 3]), None), b.state(Fact::new(DType::F32, [6]), None));
        let exp = op(Unary { f: UnaryFn::Exp }.into(), &[x]);
        let flat = op(Reshape { shape: [6].into() }.into(), &[exp]);
        let sin = op(Unary { f: UnaryFn::Sin }.into(), &[flat]);
        let head = op(Slice { axis: 0, start: 0, len: 2, step: 1 }.into(), &[sin]);
        let rows = op(Reshape { shape: [6].into() }.into(), &[x]);
        let row = op(Unary { f: UnaryFn::Cos }.into(), &[head]);
        let wide = op(BroadcastTo { shape: [3, 2].into() }.into(), &[row]);
        let beginning = b.prefix();
        let scaled = op(Binary { f: BinaryFn::Mul }.into(), &[flat, rows]);
        let wider = op(Binary { f: BinaryFn::Add }.into(), &[wide, head]);
        b.output(wider, "y");
        b.set_state(w, op(Binary { f: BinaryFn::Add }.into(), &[scaled, w])).expect("same type");
        Made { graph: b.finish().expect("valid"), beginning, early: [exp, head, rows, row] }
    }

    #[test]
    fn what_is_handed_over_is_the_smaller_of_a_view_and_its_source() {
        let Made { graph: g, beginning, early: [exp, head, _, row] } = made();
        let results: Vec<ValueId> = g.outputs().iter().map(|o| o.value).collect();
        // not the rows, which are a view of an input, nor the sine, since a part of it is enough
        assert_eq!(g.handed_over(&beginning, &results), [exp, head, row]);
    }

    #[test]
    fn pieces_one_after_another_give_what_the_whole_gives() {
        let Made { graph: g, early: [exp, head, rows, row], .. } = made();
        let wave = |n: usize| (0..n).map(|i| (i as f32 * 1.3).sin()).collect::<Vec<f32>>();
        let x = HostTensor::from_slice(&wave(6), [2, 3]).expect("fits");
        let w = [HostTensor::from_slice(&wave(6), [6]).expect("fits")];
        let pool = Pool::new(1);
        let whole = g.evaluate(std::slice::from_ref(&x), &w, &pool).expect("computes");
        for given in [vec![], vec![exp, head, row], vec![rows, row]] {
            let inputs = std::iter::once(x.clone()).chain(given.iter().map(|v| whole.get(*v).expect("made").clone()));
            let all: Vec<(&str, ValueId)> =
                g.outputs().iter().map(|o| (&*o.name, o.value)).chain([("e", exp)]).collect();
            let piece = g.piece(&given, &all).expect("valid");
            assert_eq!((piece.inputs().len(), piece.states().len()), (1 + given.len(), 1));
            assert_eq!(piece.nodes().len() == g.nodes().len(), given.is_empty(), "what is given is not computed");
            let values = piece.evaluate(&inputs.collect::<Vec<_>>(), &w, &pool).expect("computes");
            for (o, (name, v)) in piece.outputs().iter().zip(&all) {
                assert_eq!((&*o.name, values.get(o.value)), (*name, whole.get(*v)));
            }
            let next = |g: &Graph| g.states()[0].next.expect("updated");
            assert_eq!(values.get(next(&piece)), whole.get(next(&g)));
        }
    }

    #[test]
    fn a_beginning_is_told_from_another_one() {
        let make = |f: UnaryFn, shape: [usize; 1], c: f32, longer: bool| {
            let b = Builder::raw();
            let x = b.input(Fact::new(DType::F32, shape), None);
            let y = b.node(Unary { f }.into(), &[x], None).expect("fits")[0];
            let y = b.node(Binary { f: BinaryFn::Add }.into(), &[y, b.constant(&HostTensor::scalar(c))], None);
            let mut y = y.expect("fits")[0];
            if longer {
                y = b.node(Unary { f: UnaryFn::Neg }.into(), &[y], None).expect("fits")[0];
            }
            b.output(y, "y");
            b.finish().expect("valid")
        };
        let first = make(UnaryFn::Exp, [3], 1.0, false);
        assert!(make(UnaryFn::Exp, [3], 1.0, true).begins_with(&first).is_ok());
        let others = [
            make(UnaryFn::Sin, [3], 1.0, true),
            make(UnaryFn::Exp, [4], 1.0, true),
            make(UnaryFn::Exp, [3], 2.0, true),
        ];
        for other in others {
            assert_eq!(other.begins_with(&first).expect_err("another").kind(), ErrorKind::Value);
        }
        assert!(first.begins_with(&make(UnaryFn::Exp, [3], 1.0, true)).is_err(), "shorter");
    }
}
