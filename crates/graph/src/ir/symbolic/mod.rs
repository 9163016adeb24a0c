//! Graphs with named extents.
//!
//! A graph is made at some sizes of each symbol, which costs what tracing costs; where the graphs differ, in a shape or in
//! a number among an op's parameters, the difference is a polynomial in the symbols. So no op has to know of symbols, and
//! [`Symbolic::instantiate`] gives the graph for any sizes without the function that made it. Every op infers anew then,
//! as for any graph.
//!
//! Polynomials are linear in each symbol: `b`, `2 t + 1`, `b t`, and their reciprocals, as means have them. They come from
//! neighbouring sizes and are checked at the least, the largest and a middle size; what differs otherwise is an error. A
//! function that does something else between those is not found out: bounds are the caller's promise that it does not.
//! Rejected: shapes of symbols in every `infer`, for there would be two sets of shape rules.

mod polynomial;
mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use remat_ops::Registry;
use remat_types::{Error, ErrorKind, Result};

use super::{Graph, Origin, ValueId};
pub use polynomial::Polynomial;
use template::Template;

/// A named extent with bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Its name in errors and in the text of polynomials.
    pub name: Arc<str>,
    /// The least size.
    pub least: usize,
    /// The largest size, at least 4 more than the larger of 2 and `least`: sizes are told apart from each other and from 1.
    pub most: usize,
}

impl Dim {
    /// A symbol of that name and bounds, both included.
    pub fn new(name: &str, least: usize, most: usize) -> Dim {
        Dim { name: name.into(), least, most }
    }

    /// The smaller of the neighbouring sizes at which graphs are compared: 1 broadcasts, and 0 is empty.
    fn low(&self) -> usize {
        self.least.max(2)
    }
}

/// Symbols of one graph at most: as many as corners stay few.
const MOST_SYMBOLS: usize = 3;
/// Room that a symbol needs above its lower size.
const ROOM: usize = 4;

/// A graph over symbols.
#[derive(Clone)]
pub struct Symbolic {
    dims: Vec<Dim>,
    template: Template,
}

impl Symbolic {
    /// The graph that `make` gives for sizes of the symbols, at all sizes within their bounds. `make` is called a few
    /// times.
    ///
    /// Errors: Value for more than three symbols, bounds without room, two symbols of one name, and where the graphs
    /// differ in more than numbers that follow from the sizes; those of `make`.
    pub fn new(dims: &[Dim], registry: &Registry, mut make: impl FnMut(&[usize]) -> Result<Graph>) -> Result<Symbolic> {
        let corners = Symbolic::corners(dims)?.iter().map(|sizes| make(sizes)).collect::<Result<Vec<Graph>>>()?;
        let s = Symbolic::of_corners(dims, &corners, registry)?;
        let checks: [fn(&Dim) -> usize; 3] = [|d| d.least, |d| d.most, |d| d.low() + ROOM - 1];
        for sizes in checks.map(|at| dims.iter().map(at).collect::<Vec<usize>>()) {
            let made = make(&sizes)?;
            let own = s.instantiate(&sizes).map_err(|e| wrong(format!("for {}: {e}", s.list(&sizes))))?;
            if !is_same(&own, &made)? {
                return Err(wrong(format!("for {} the function does something else", s.list(&sizes))));
            }
        }
        Ok(s)
    }

    /// The neighbouring sizes at which graphs are compared, the lowest first.
    ///
    /// Errors: Value for more than three symbols, bounds without room, two symbols of one name.
    pub fn corners(dims: &[Dim]) -> Result<Vec<Vec<usize>>> {
        if dims.len() > MOST_SYMBOLS {
            return Err(wrong(format!("{} symbols; a graph has {MOST_SYMBOLS} at most", dims.len())));
        }
        for (i, d) in dims.iter().enumerate() {
            if d.low().checked_add(ROOM).is_none_or(|least| d.most < least) {
                return Err(wrong(format!("`{}` from {} to {} leaves no room to compare", d.name, d.least, d.most)));
            }
            if dims[..i].iter().any(|o| o.name == d.name) {
                return Err(wrong(format!("two symbols are called `{}`", d.name)));
            }
        }
        let corner = |bits: usize| dims.iter().enumerate().map(|(i, d)| d.low() + (bits >> i & 1)).collect();
        Ok((0..1 << dims.len()).map(corner).collect())
    }

    /// The graph over symbols that is these graphs at [`Symbolic::corners`]; the caller has compared it at other sizes and kept
    /// these graphs.
    ///
    /// Errors: as [`Symbolic::new`]; Arity for another number of graphs.
    pub fn of_corners(dims: &[Dim], corners: &[Graph], registry: &Registry) -> Result<Symbolic> {
        let count = Symbolic::corners(dims)?.len();
        if corners.len() != count {
            let text = format!("{} graphs at the corners of {} symbols, which are {count}", corners.len(), dims.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        let low: Vec<usize> = dims.iter().map(Dim::low).collect();
        Ok(Symbolic { dims: dims.to_vec(), template: Template::of(corners, &low, registry)? })
    }

    /// The symbols.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// The graph at the lowest sizes of comparison, whose value ids [`Symbolic::extents`] takes.
    pub fn example(&self) -> &Graph {
        self.template.base()
    }

    /// The extents of a value of [`Symbolic::example`] as polynomials.
    pub fn extents(&self, v: ValueId) -> &[Polynomial] {
        self.template.extents(v)
    }

    /// Extents as text: `[b, 2 t + 1]`.
    pub fn shape_text(&self, v: ValueId) -> String {
        let names: Vec<&str> = self.dims.iter().map(|d| &*d.name).collect();
        let all: Vec<String> = self.extents(v).iter().map(|p| p.text(&names)).collect();
        format!("[{}]", all.join(", "))
    }

    /// The graph for these sizes, one a symbol.
    ///
    /// Errors: Arity for another number of sizes; Value for one out of bounds; those of inference.
    pub fn instantiate(&self, sizes: &[usize]) -> Result<Graph> {
        if sizes.len() != self.dims.len() {
            let text = format!("{} sizes for {} symbols", sizes.len(), self.dims.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        if let Some((d, s)) = self.dims.iter().zip(sizes).find(|(d, s)| **s < d.least || **s > d.most) {
            return Err(wrong(format!("`{}` is {s}, and from {} to {}", d.name, d.least, d.most)));
        }
        self.template.fill(sizes)
    }

    fn list(&self, sizes: &[usize]) -> String {
        let all: Vec<String> = self.dims.iter().zip(sizes).map(|(d, s)| format!("{} = {s}", d.name)).collect();
        all.join(", ")
    }
}

/// Whether two graphs are the same, to the names and the bits of constants.
fn is_same(a: &Graph, b: &Graph) -> Result<bool> {
    // constants are compared as they are: as text those of a network are hundreds of megabytes
    let text = |g: &Graph| g.print(&|_, _| String::new());
    let constant = |g: &Graph, v: ValueId| match &g.value(v).origin {
        Origin::Constant(data) => Some(data.clone()),
        _ => None,
    };
    Ok(text(a)? == text(b)? && a.value_ids().all(|v| constant(a, v) == constant(b, v)))
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Value, format!("symbolic graph: {}", text.into()))
}
