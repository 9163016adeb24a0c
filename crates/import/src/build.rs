//! Graphs from a model by names: names resolved, rules found, functions written out.
//!
//! Nodes stand in an order in which they can run, and a cycle is therefore a name that is not there.

use std::collections::HashMap;

use remat_types::{Error, ErrorKind, Result};

use crate::foreign::{
    ForeignAttribute, ForeignFunction, ForeignGraph, ForeignModel, ForeignNode, FunctionName, Versions,
};
use crate::graph::{Attribute, Attributes, Constant, Entry, Graph, Kind, Node, Ref};
use crate::literal::Narrow;
use crate::table::Rules;
use crate::uses::find_last_uses;

/// Graphs within graphs and functions within functions, as deep as any exporter goes and shallow enough for any stack.
const MOST_DEPTH: usize = 32;

/// Bytes of a model's nodes in the file, those of its functions once a call: for each byte of the file, and in any case. A small file
/// could otherwise make any number of them.
const WRITTEN_OUT: (usize, usize) = (128, 4 << 20);

/// The bytes of a node beside its content in the file: the struct, and the parts of lists and maps that hold its names.
const NODE_BYTES: usize = 512;

/// Names of operators for which the nearest one that there is is looked for.
const MOST_NEAREST: usize = 1000;

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// Names of one graph, and the graph around it.
#[derive(Default)]
struct Names<'a> {
    slots: HashMap<String, usize>,
    /// Inputs and constants that are integers of less than a byte, by slot.
    narrow: HashMap<usize, Narrow>,
    outer: Option<&'a Names<'a>>,
}

impl Names<'_> {
    /// A value, and the integer of less than a byte that it is in the file.
    fn find(&self, name: &str) -> Option<(Ref, Option<Narrow>)> {
        let (mut names, mut out) = (self, 0);
        loop {
            if let Some(slot) = names.slots.get(name) {
                return Some((Ref { out, slot: *slot }, names.narrow.get(slot).copied()));
            }
            (names, out) = (names.outer?, out + 1);
        }
    }

    fn note(&mut self, slot: usize, narrow: Option<Narrow>) {
        if let Some(narrow) = narrow {
            self.narrow.insert(slot, narrow);
        }
    }

    /// A new slot. Errors: Format if the name has one already.
    fn define(&mut self, name: &str) -> Result<usize> {
        let slot = self.slots.len();
        match self.slots.insert(name.to_owned(), slot) {
            None => Ok(slot),
            Some(_) => Err(wrong(format!("`{name}` is computed twice"))),
        }
    }
}

/// Makes graphs of a model.
pub(crate) struct Builder<'a> {
    functions: &'a HashMap<FunctionName, Result<ForeignFunction>>,
    rules: &'a Rules,
    /// The bytes that nodes may still take.
    left_bytes: usize,
    /// The names most like those of operators without a rule.
    nearest: HashMap<(String, String), Option<&'static str>>,
    graphs: usize,
}

/// The surroundings of a graph that is being made.
struct Around<'n> {
    names: Option<&'n Names<'n>>,
    versions: Option<&'n Versions>,
    /// The attributes of the call, within a function.
    call: Option<&'n Attributes>,
    depth: usize,
}

impl Builder<'_> {
    /// The main graph, and the number of all graphs. Errors: Format, and the errors of functions and attributes.
    pub(crate) fn build(model: &ForeignModel, rules: &Rules) -> Result<(Graph, usize)> {
        let (multiple, constant) = WRITTEN_OUT;
        let left_bytes = model.file_bytes.saturating_mul(multiple).saturating_add(constant);
        let mut builder =
            Builder { functions: &model.functions, rules, left_bytes, nearest: HashMap::new(), graphs: 0 };
        let around = Around { names: None, versions: model.versions.as_ref(), call: None, depth: 0 };
        let graph = builder.graph(&model.graph, &around)?;
        Ok((graph, builder.graphs))
    }

    fn deeper(depth: usize) -> Result<usize> {
        if depth < MOST_DEPTH { Ok(depth + 1) } else { Err(wrong(format!("graphs nested deeper than {MOST_DEPTH}"))) }
    }

    /// Takes content of the file into account. Errors: Format.
    fn write_out(&mut self, bytes: usize) -> Result<()> {
        let left = self.left_bytes.checked_sub(bytes);
        let (multiple, constant) = WRITTEN_OUT;
        let text =
            || format!("functions written out, nodes take more than {multiple} times the file and {constant} bytes");
        self.left_bytes = left.ok_or_else(|| wrong(text()))?;
        Ok(())
    }

    fn nearest(&mut self, domain: &str, op: &str) -> Option<&'static str> {
        let key = (domain.to_owned(), op.to_owned());
        match self.nearest.get(&key) {
            Some(known) => *known,
            None if self.nearest.len() == MOST_NEAREST => None,
            None => *self.nearest.entry(key).or_insert_with(|| self.rules.nearest(domain, op)),
        }
    }

    /// A graph. Errors: Format, and those of its nodes.
    fn graph(&mut self, g: &ForeignGraph, around: &Around<'_>) -> Result<Graph> {
        let missing = |name: &str| wrong(format!("output `{name}` is not computed"));
        self.finished(g, around, missing)
    }

    /// A graph; `missing` is the error of an output that no node computes.
    fn finished(&mut self, g: &ForeignGraph, around: &Around<'_>, missing: impl Fn(&str) -> Error) -> Result<Graph> {
        self.graphs += 1;
        let mut graph = Graph { name: g.name.clone(), id: self.graphs - 1, ..Graph::default() };
        let mut names = Names { outer: around.names, ..Names::default() };
        for input in &g.inputs {
            let slot = names.define(&input.name)?;
            names.note(slot, input.narrow);
            graph.inputs.push(Entry { name: input.name.clone(), slot, ty: input.ty.clone(), default: None });
        }
        for constant in &g.constants {
            let name = &constant.name;
            // inputs have the first slots, in order
            let input = names.slots.get(name).and_then(|slot| graph.inputs.get_mut(*slot));
            let slot = match input {
                Some(input) if input.default.is_some() => return Err(wrong(format!("`{name}` is initialised twice"))),
                Some(input) => {
                    input.default = Some(graph.constants.len());
                    input.slot
                }
                None => names.define(name)?,
            };
            names.note(slot, constant.narrow);
            graph.constants.push(Constant { name: name.clone(), slot, value: constant.value.clone() });
        }
        for n in &g.nodes {
            let node = self.defined(n, &mut names, around).map_err(|e| n.context(e))?;
            graph.nodes.push(node);
        }
        for o in &g.outputs {
            let (at, _) = names.find(&o.name).ok_or_else(|| missing(&o.name))?;
            graph.outputs.push((o.name.clone(), at, o.ty.clone()));
        }
        graph.slots = names.slots.len();
        find_last_uses(&mut graph);
        Ok(graph)
    }

    /// A node whose outputs have slots.
    fn defined(&mut self, n: &ForeignNode, names: &mut Names<'_>, around: &Around<'_>) -> Result<Node> {
        let mut node = self.node(n, names, around)?;
        for name in &n.outputs {
            node.outputs.push(if name.is_empty() { None } else { Some(names.define(name)?) });
        }
        Ok(node)
    }

    fn node(&mut self, n: &ForeignNode, names: &Names<'_>, around: &Around<'_>) -> Result<Node> {
        self.write_out(n.file_bytes.saturating_add(NODE_BYTES))?;
        let (mut inputs, mut narrow) = (Vec::new(), Vec::new());
        for name in &n.inputs {
            let found = match name.as_str() {
                "" => None,
                name => {
                    let found = names.find(name);
                    Some(found.ok_or_else(|| wrong(format!("`{name}` is read before it is computed")))?)
                }
            };
            narrow.extend(found.and_then(|(_, narrow)| Some((inputs.len(), narrow?))));
            inputs.push(found.map(|(at, _)| at));
        }
        let mut attributes = Attributes::new();
        for (name, a) in &n.attributes {
            if let Some(value) = self.attribute(name, a, names, around)? {
                attributes.insert(name.clone(), value);
            }
        }
        let key = FunctionName { domain: n.domain.clone(), op: n.op.clone(), overload: n.overload.clone() };
        let (kind, version) = match self.functions.get(&key) {
            Some(f) => {
                let f = f.as_ref().map_err(Clone::clone)?;
                (Kind::Function(Box::new(self.function(f, &attributes, around.depth)?)), around.versions.map(|_| 0))
            }
            None => self.operator(n, around.versions)?,
        };
        let schema = match kind {
            Kind::Rule(_) => self.rules.schema(&n.domain, &n.op, version),
            _ => None,
        };
        if let Some(schema) = schema {
            let names: Vec<&str> = attributes.keys().map(String::as_str).collect();
            schema.check(version, &names, &n.inputs, &n.outputs)?;
        }
        Ok(Node {
            name: n.label().to_owned(),
            domain: key.domain,
            op: key.op,
            version,
            inputs,
            narrow,
            outputs: Vec::new(),
            attributes,
            kind,
            schema,
            frees: Vec::new(),
        })
    }

    /// The rule of an operator, and its version. Errors: Format for a domain whose version the model does not import.
    fn operator(&mut self, n: &ForeignNode, versions: Option<&Versions>) -> Result<(Kind, Option<i64>)> {
        let imported = |versions: &Versions| {
            let version = versions.get(&n.domain).copied();
            version.ok_or_else(|| wrong(format!("the model imports no version of the domain `{}`", n.domain)))
        };
        let version = versions.map(imported).transpose()?;
        let row = self.rules.find(&n.domain, &n.op, version);
        Ok((row.map_or_else(|| Kind::Unknown(self.nearest(&n.domain, &n.op)), Kind::Rule), version))
    }

    /// The body of a function, called with these attributes.
    fn function(&mut self, f: &ForeignFunction, given: &Attributes, depth: usize) -> Result<Graph> {
        let depth = Self::deeper(depth)?;
        self.write_out(f.default_bytes.saturating_add(f.defaults.len().saturating_mul(NODE_BYTES)))?;
        let versions = f.versions.as_ref();
        let mut call = given.clone();
        for (name, a) in &f.defaults {
            let around = Around { names: None, versions, call: None, depth };
            if let (false, Some(v)) = (call.contains_key(name), self.attribute(name, a, &Names::default(), &around)?) {
                call.insert(name.clone(), v);
            }
        }
        let around = Around { names: None, versions, call: Some(&call), depth };
        self.finished(&f.body, &around, |name| wrong(format!("output `{name}` of a function is not computed")))
    }

    /// The value of an attribute; `None` if it is that of a call which does not give it.
    fn attribute(
        &mut self,
        name: &str,
        a: &ForeignAttribute,
        names: &Names<'_>,
        around: &Around<'_>,
    ) -> Result<Option<Attribute<Graph>>> {
        match a {
            ForeignAttribute::Caller(of_call) => {
                let value = around.call.and_then(|call| call.get(of_call));
                if matches!(value, Some(Attribute::Graph(_))) {
                    // its names are those of the caller
                    return Err(wrong(format!("attribute `{name}` of a function is a graph, which is not supported")));
                }
                Ok(value.cloned())
            }
            ForeignAttribute::Value(value) => {
                let inner = |g: &ForeignGraph| {
                    let depth = Self::deeper(around.depth)?;
                    let (versions, call) = (around.versions, around.call);
                    self.graph(g, &Around { names: Some(names), versions, call, depth })
                };
                value.with_graph(inner).map(Some)
            }
        }
    }
}
