//! One trace for inputs of many sizes: a graph over symbols, from which the graph of each size is filled in.

use remat_graph::ir::symbolic::{Dim, Symbolic};
use remat_types::{Error, ErrorKind, Fact, Result};

use super::{FunctionTrace, VersionedCell};
use crate::control_flow;

/// The named extents of the inputs; see [`CompileOptions::symbols`](super::CompileOptions::symbols).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    dims: Vec<Dim>,
    /// The symbol of each axis of each input, if it has one.
    inputs: Vec<Vec<Option<usize>>>,
    /// The number of symbols, the last ones, for sizes that only a run knows. They stand in the order in which the
    /// function asks.
    asked: usize,
}

impl Symbols {
    /// The symbols with their bounds, and the names of each input's axes: `["b _", "b"]`. `_` marks an axis without a
    /// symbol. Such an axis may have any extent, and each new extent there costs a trace.
    ///
    /// Errors: Value for a name that is no symbol's, and for a symbol that no input has.
    ///
    /// ```
    /// use remat_graph::ir::symbolic::Dim;
    /// use remat_runtime::compile::Symbols;
    /// assert!(Symbols::new(&[Dim::new("b", 1, 64)], &["b _", "b"]).is_ok());
    /// assert!(Symbols::new(&[Dim::new("b", 1, 64)], &["b t", "b"]).is_err());
    /// ```
    pub fn new(dims: &[Dim], inputs: &[&str]) -> Result<Symbols> {
        let symbol = |name: &str| match dims.iter().position(|d| &*d.name == name) {
            None if name != "_" => Err(wrong(format!("`{name}` is no symbol"))),
            found => Ok(found),
        };
        let axes = |text: &&str| text.split_whitespace().map(symbol).collect::<Result<Vec<_>>>();
        let inputs = inputs.iter().map(axes).collect::<Result<Vec<_>>>()?;
        match (0..dims.len()).find(|k| inputs.iter().flatten().all(|a| *a != Some(*k))) {
            Some(k) => Err(wrong(format!("no input has an axis `{}`", dims[k].name))),
            None => Ok(Symbols { dims: dims.to_vec(), inputs, asked: 0 }),
        }
    }

    /// Adds symbols for the sizes that only a run knows ([`tracing::size`](crate::tracing::size)), in the order in
    /// which the function asks for them; there are three symbols at most. A size within its bounds then needs no trace.
    /// A size beyond them, such as an empty choice, is traced by itself, as are sizes without a symbol.
    ///
    /// ```
    /// use remat_graph::ir::symbolic::Dim;
    /// use remat_runtime::compile::Symbols;
    /// let symbols = Symbols::new(&[Dim::new("b", 1, 64)], &["b _"])?.and_sizes(&[Dim::new("chosen", 2, 64)]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[must_use]
    pub fn and_sizes(mut self, dims: &[Dim]) -> Symbols {
        self.dims.truncate(self.dims.len() - self.asked);
        self.dims.extend_from_slice(dims);
        Symbols { asked: dims.len(), ..self }
    }

    /// The symbols of the inputs.
    fn of_inputs(&self) -> &[Dim] {
        &self.dims[..self.dims.len() - self.asked]
    }

    /// The symbols for these sizes of a run. `None` if there are too few symbols, or if a size is out of bounds.
    fn with_asked(&self, known: &[usize]) -> Option<&[Dim]> {
        let own = self.dims.len() - self.asked;
        let dims = self.dims.get(..own + known.len())?;
        dims[own..].iter().zip(known).all(|(d, n)| (d.least..=d.most).contains(n)).then_some(dims)
    }

    /// The size of each symbol in inputs of these facts. Errors: Arity or Shape for another number of inputs or axes;
    /// Shape for a symbol with two sizes.
    fn sizes(&self, facts: &[Fact]) -> Result<Vec<usize>> {
        if facts.len() != self.inputs.len() {
            let text = format!("{} inputs, and the symbols are of {}", facts.len(), self.inputs.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        let mut sizes: Vec<Option<usize>> = vec![None; self.of_inputs().len()];
        for (i, (axes, f)) in self.inputs.iter().zip(facts).enumerate() {
            if axes.len() != f.rank() {
                let text = format!("input {i} has shape {}, and the symbols name {} axes", f.shape, axes.len());
                return Err(Error::new(ErrorKind::Shape, text));
            }
            for (k, n) in axes.iter().zip(f.shape.iter()).filter_map(|(k, n)| Some(((*k)?, *n))) {
                if let Some(other) = sizes[k].replace(n).filter(|other| *other != n) {
                    let text = format!("`{}` is {other}, and {n} in input {i}", self.dims[k].name);
                    return Err(Error::new(ErrorKind::Shape, text));
                }
            }
        }
        // every symbol is an axis of some input
        Ok(sizes.into_iter().flatten().collect())
    }

    /// The facts with the symbols at other sizes.
    fn at(&self, facts: &[Fact], sizes: &[usize]) -> Vec<Fact> {
        let mut all = facts.to_vec();
        for (f, axes) in all.iter_mut().zip(&self.inputs) {
            f.value = None;
            f.shape = f.shape.iter().zip(axes).map(|(n, k)| k.map_or(*n, |k| sizes[k])).collect();
        }
        all
    }

    fn same_but_for_symbols(&self, a: &[Fact], b: &[Fact]) -> bool {
        let zeros = vec![0; self.of_inputs().len()];
        let (a, b) = (self.at(a, &zeros), self.at(b, &zeros));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.same_type(b))
    }
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Value, format!("symbols: {text}"))
}

/// A function over symbols.
struct Form<C> {
    /// The facts of the inputs for which it was made. Extents of symbols do not count.
    facts: Vec<Fact>,
    /// The number of its symbols for sizes that only a run knows.
    asked: usize,
    graph: Symbolic,
    /// The first of the traces. Its graph is the one at the lowest sizes.
    trace: FunctionTrace<C>,
}

/// Traces a function for inputs of these facts and with these known sizes.
type TraceFn<'t, C> = &'t mut dyn FnMut(&[Fact], &[usize]) -> Result<FunctionTrace<C>>;

/// A function's graphs over symbols. The one used last stands last.
pub(super) struct SymbolicForms<C> {
    forms: Vec<Form<C>>,
}

impl<C> Default for SymbolicForms<C> {
    fn default() -> Self {
        SymbolicForms { forms: Vec::new() }
    }
}

impl<C: VersionedCell> SymbolicForms<C> {
    /// The function for inputs of these facts and with the sizes that earlier segments found, filled in from a graph
    /// over symbols. At most `kept` of those graphs stay.
    pub(super) fn instance(
        &mut self,
        symbols: &Symbols,
        kept: usize,
        facts: &[Fact],
        known: &[usize],
        trace: TraceFn<'_, C>,
    ) -> Result<FunctionTrace<C>> {
        let mut sizes = symbols.sizes(facts)?;
        if let Some((d, n)) = symbols.dims.iter().zip(&sizes).find(|(d, n)| !(d.least..=d.most).contains(n)) {
            return Err(wrong(format!("`{}` is {n}, and its bounds are {} and {}", d.name, d.least, d.most)));
        }
        let Some(dims) = symbols.with_asked(known) else { return trace(facts, known) };
        sizes.extend_from_slice(known);
        let asked = known.len();
        let same = |f: &Form<C>| f.asked == asked && symbols.same_but_for_symbols(&f.facts, facts);
        let form = match self.forms.iter().rposition(|f| same(f) && f.trace.guards.iter().all(|g| g())) {
            Some(at) => self.forms.remove(at),
            None => form(symbols, dims, facts.to_vec(), asked, trace)?,
        };
        let instance = form.graph.instantiate(&sizes).map(|graph| FunctionTrace { graph, ..form.trace.clone() });
        self.forms.push(form);
        if self.forms.len() > kept.max(1) {
            self.forms.remove(0);
        }
        instance
    }
}

fn form<C: VersionedCell>(
    symbols: &Symbols,
    dims: &[Dim],
    facts: Vec<Fact>,
    asked: usize,
    trace: TraceFn<'_, C>,
) -> Result<Form<C>> {
    let mut first: Option<FunctionTrace<C>> = None;
    let graph = Symbolic::new(dims, &control_flow::registry(), |sizes| {
        let (own, known) = sizes.split_at(dims.len() - asked);
        let t = trace(&symbols.at(&facts, own), known)?;
        let graph = t.graph.clone();
        if first.get_or_insert_with(|| t.clone()).takes_the_same(&t) {
            return Ok(graph);
        }
        Err(wrong("at another size the function uses other tensors from outside, or asks for other sizes".to_owned()))
    })?;
    let trace = first.ok_or_else(|| Error::new(ErrorKind::Internal, "a graph over symbols without a trace"))?;
    Ok(Form { facts, asked, graph, trace })
}
