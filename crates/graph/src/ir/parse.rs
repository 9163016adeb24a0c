//! Reading the text form. The text comes from outside: every fault is an error that names the line.

use std::sync::Arc;

use remat_ops::{OpRef, Registry};
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result, Shape, SmallVec};
use rustc_hash::FxHashMap;

use super::text::{HEADER, VERSION, is_plain};
use super::{Builder, Graph, Node, NodeId, Origin, Output, Parts, State, Value, ValueId};

/// Gives the constant of that name and type, for `const .. = tensor "NAME"`.
pub(crate) type Tensors<'a> = dyn FnMut(&str, &Fact) -> Result<Arc<HostTensor>> + 'a;

impl Graph {
    /// Reads the text form, with the ops of `registry`.
    ///
    /// Errors (Format), with the line: another version, an unknown op or parameter, a value that is not defined, a type
    /// that is not what the op gives.
    pub fn parse(text: &str, registry: &Registry) -> Result<Graph> {
        Graph::parse_with(text, registry, &mut |name, _| Err(fault(format!("no tensor `{name}` beside a text alone"))))
    }

    pub(crate) fn parse_with(text: &str, registry: &Registry, tensors: &mut Tensors<'_>) -> Result<Graph> {
        let mut p = Parser { registry, tensors, parts: Parts::default(), ids: FxHashMap::default() };
        let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.trim().starts_with('#'));
        let (_, first) = lines.next().ok_or_else(|| fault("the text is empty"))?;
        let version = first.trim().strip_prefix(HEADER).map(str::trim);
        if version.and_then(|v| v.parse::<u32>().ok()) != Some(VERSION) {
            return Err(fault(format!("line 1 is not `{HEADER} {VERSION}`: `{}`", short(first))));
        }
        for (i, line) in lines {
            p.line(line.trim()).map_err(|e| e.context(format!("line {}", i + 1)))?;
        }
        Builder::from_parts(p.parts)
    }
}

fn fault(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text.into())
}

/// The beginning of the unexpected text.
fn short(s: &str) -> String {
    const SHOWN: usize = 40;
    s.chars().take(SHOWN).collect()
}

struct Parser<'a> {
    registry: &'a Registry,
    tensors: &'a mut Tensors<'a>,
    parts: Parts,
    ids: FxHashMap<String, ValueId>,
}

/// The unread rest of a line.
struct Rest<'t>(&'t str);

impl<'t> Rest<'t> {
    fn eat(&mut self, what: &str) -> bool {
        let t = self.0.trim_start();
        match t.strip_prefix(what) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, what: &str) -> Result<()> {
        if self.eat(what) { Ok(()) } else { Err(fault(format!("expected `{what}` at `{}`", short(self.0)))) }
    }

    fn word(&mut self) -> Result<&'t str> {
        let t = self.0.trim_start();
        let end = t.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '%')).unwrap_or(t.len());
        if end == 0 {
            return Err(fault(format!("expected a word at `{}`", short(t))));
        }
        self.0 = &t[end..];
        Ok(&t[..end])
    }

    fn number(&mut self) -> Result<usize> {
        let w = self.word()?;
        w.parse().map_err(|_| fault(format!("`{}` is not a number", short(w))))
    }

    fn json(&mut self) -> Result<serde_json::Value> {
        let mut s = serde_json::Deserializer::from_str(self.0).into_iter();
        let v = s.next().ok_or_else(|| fault("expected JSON at the end of the line"))?;
        let v = v.map_err(|e| fault(format!("JSON at `{}`: {e}", short(self.0))))?;
        self.0 = &self.0[s.byte_offset()..];
        Ok(v)
    }

    /// A value's or an output's name: `%7`, `fc.weight`, `"a name"`.
    fn name(&mut self) -> Result<String> {
        if self.0.trim_start().starts_with('"') {
            let v = self.json()?;
            return v.as_str().map(str::to_owned).ok_or_else(|| fault("expected a name"));
        }
        let w = self.word()?;
        let id = w.strip_prefix('%').is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()));
        if id || is_plain(w) { Ok(w.to_owned()) } else { Err(fault(format!("`{}` is not a name", short(w)))) }
    }

    fn fact(&mut self) -> Result<Fact> {
        let w = self.word()?;
        let dtype = DType::ALL.into_iter().find(|d| d.name() == w);
        let dtype = dtype.ok_or_else(|| fault(format!("`{}` is not a dtype", short(w))))?;
        self.expect("[")?;
        let mut shape = Shape::scalar();
        while !self.eat("]") {
            if shape.rank() > 0 {
                self.expect(",")?;
            }
            shape.push(self.number()?);
        }
        shape.checked_elems()?;
        Ok(Fact::new(dtype, shape))
    }

    fn end(&self) -> Result<()> {
        if self.0.trim().is_empty() { Ok(()) } else { Err(fault(format!("`{}` at the end", short(self.0.trim())))) }
    }
}

impl Parser<'_> {
    fn line(&mut self, line: &str) -> Result<()> {
        let mut r = Rest(line);
        let keyword = line.split([' ', '\t']).next().unwrap_or("");
        match keyword {
            "input" | "state" | "const" | "next" | "output" => r.expect(keyword)?,
            _ => return self.node(&mut r),
        }
        match keyword {
            "input" => {
                let at = self.parts.inputs.len();
                let v = self.define(&mut r, Origin::Input(at))?;
                self.parts.inputs.push(v);
            }
            "state" => {
                let at = self.parts.states.len();
                let value = self.define(&mut r, Origin::State(at))?;
                self.parts.states.push(State { value, next: None });
            }
            "const" => self.constant(&mut r)?,
            "next" => {
                let state = self.read(&mut r)?;
                r.expect("=")?;
                let next = self.read(&mut r)?;
                let state = self.parts.states.iter_mut().find(|s| s.value == state);
                let state = state.ok_or_else(|| fault("only a state has a next version"))?;
                if state.next.replace(next).is_some() {
                    return Err(fault("the state has two next versions"));
                }
            }
            _ => {
                let name = r.name()?;
                r.expect("=")?;
                let value = self.read(&mut r)?;
                self.parts.outputs.push(Output { name: name.into(), value });
            }
        }
        r.end()
    }

    /// `NAME: TYPE`
    fn define(&mut self, r: &mut Rest<'_>, origin: Origin) -> Result<ValueId> {
        let name = r.name()?;
        r.expect(":")?;
        let fact = r.fact()?;
        let id = ValueId(self.parts.values.len() as u32);
        if self.ids.insert(name.clone(), id).is_some() {
            return Err(fault(format!("`{name}` is defined twice")));
        }
        let name = if name.starts_with('%') { None } else { Some(Arc::from(name)) };
        self.parts.values.push(Value { origin, fact, name });
        Ok(id)
    }

    fn read(&self, r: &mut Rest<'_>) -> Result<ValueId> {
        let name = r.name()?;
        self.ids.get(&name).copied().ok_or_else(|| fault(format!("`{name}` is not defined above")))
    }

    fn constant(&mut self, r: &mut Rest<'_>) -> Result<()> {
        // The place of the definition; the data come after it.
        let v = self.define(r, Origin::Constant(Arc::new(HostTensor::scalar(0u8))))?;
        r.expect("=")?;
        let fact = self.parts.values[v.index()].fact.clone();
        let data = if r.eat("hex") {
            let w = r.word()?;
            HostTensor::from_bytes(fact.dtype, fact.shape.clone(), &unhex(w)?)?.into()
        } else if r.eat("tensor") {
            (self.tensors)(&r.name()?, &fact)?
        } else {
            numbers(&r.json()?, &fact)?.into()
        };
        if data.dtype() != fact.dtype || *data.shape() != fact.shape {
            let text = format!("the constant is {}{}, not {}{}", data.dtype(), data.shape(), fact.dtype, fact.shape);
            return Err(fault(text));
        }
        let value = &mut self.parts.values[v.index()];
        value.fact = Fact::of(&data);
        value.origin = Origin::Constant(data);
        Ok(())
    }

    /// `%3: TYPE, %4: TYPE = op VERSION {..} (x, w) in "scope" after %2`
    fn node(&mut self, r: &mut Rest<'_>) -> Result<()> {
        let node = NodeId(self.parts.nodes.len() as u32);
        let mut y: SmallVec<[ValueId; 2]> = SmallVec::new();
        loop {
            let output = y.len();
            y.push(self.define(r, Origin::Node { node, output })?);
            if !r.eat(",") {
                break;
            }
        }
        r.expect("=")?;
        let name = r.word()?;
        let entry = self.registry.entry(name).ok_or_else(|| fault(format!("no op is called `{}`", short(name))))?;
        let version = r.number()?;
        let params = r.json()?;
        let op: OpRef = entry.load(&serde_json::json!({ "op": name, "v": version, "params": params }))?;
        r.expect("(")?;
        let mut x: SmallVec<[ValueId; 4]> = SmallVec::new();
        while !r.eat(")") {
            if !x.is_empty() {
                r.expect(",")?;
            }
            let v = self.read(r)?;
            if y.contains(&v) {
                return Err(fault("the node reads its own output"));
            }
            x.push(v);
        }
        let scope = if r.eat("in ") { Some(Arc::from(r.name()?)) } else { None };
        let mut after = SmallVec::new();
        if r.eat("after ") {
            loop {
                match self.parts.values[self.read(r)?.index()].origin {
                    Origin::Node { node: on, .. } if on < node => after.push(on),
                    _ => return Err(fault("`after` needs the output of an earlier node")),
                }
                if !r.eat(",") {
                    break;
                }
            }
        }
        self.infer_values(&op, &x, &y)?;
        self.parts.nodes.push(Node { op, x, y, after, site: None, scope });
        r.end()
    }

    /// Host values that inference knows; the types are checked when the graph is put together.
    fn infer_values(&mut self, op: &OpRef, x: &[ValueId], y: &[ValueId]) -> Result<()> {
        let values = &mut self.parts.values;
        let refs: SmallVec<[&Fact; 4]> = x.iter().map(|v| &values[v.index()].fact).collect();
        let facts = op.infer(&refs)?;
        drop(refs);
        for (v, f) in y.iter().zip(facts) {
            let own = &mut values[v.index()].fact;
            if own.same_type(&f) {
                own.value = f.value;
            }
        }
        Ok(())
    }
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
    let byte = |p: &[u8]| Some(digit(p[0])? << 4 | digit(*p.get(1)?)?);
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    bytes.ok_or_else(|| fault("`hex` is followed by pairs of hexadecimal digits"))
}

/// A flat list of numbers as a tensor of this fact.
fn numbers(v: &serde_json::Value, fact: &Fact) -> Result<HostTensor> {
    let all = v.as_array().ok_or_else(|| fault("expected a list of numbers"))?;
    if all.len() != fact.elems() {
        return Err(fault(format!("{} numbers for the shape {}", all.len(), fact.shape)));
    }
    let no = || fault(format!("a number that is no {}", fact.dtype));
    let floats: Vec<f64> = all.iter().map(|v| v.as_f64().ok_or_else(no)).collect::<Result<_>>()?;
    let data = HostTensor::from_f64_slice(&floats, fact.dtype, fact.shape.clone())?;
    if fact.dtype == DType::I64 || fact.dtype == DType::U64 {
        let ints: Vec<i64> = all.iter().map(|v| v.as_i64().ok_or_else(no)).collect::<Result<_>>()?;
        let bytes: Vec<u8> = ints.iter().flat_map(|v| v.to_le_bytes()).collect();
        return HostTensor::from_bytes(fact.dtype, fact.shape.clone(), &bytes);
    }
    // A number that was rounded or cut differs from the number in the text.
    let back = data.to_f64_vec();
    let exact = |a: f64, b: f64| a == b || fact.dtype.is_float() && (a as f32) == (b as f32);
    if back.iter().zip(&floats).all(|(a, b)| exact(*a, *b)) { Ok(data) } else { Err(no()) }
}
