//! Models with named extents.
//!
//! A function is written at a few sizes of each symbol. The models have the same nodes, and where their constants differ, the
//! numbers are polynomials in the symbols, linear in each: the model that is given computes them from the shapes of its inputs.
//! No rule has to know of symbols. What differs otherwise, a kernel that is as wide as the image say, is an error. Another size
//! checks what the first ones say; as for [`Symbolic`](remat_graph::ir::symbolic::Symbolic), bounds are the caller's promise
//! that the function does nothing else between them.

use std::collections::HashMap;
use std::sync::Arc;

use remat_graph::ir::Graph;
use remat_graph::ir::symbolic::Dim;
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

use super::emit::{Emit, Name};
use super::{ExportOptions, Exported, attribute as attr, failed, written};
use crate::proto::tensor_shape_proto::dimension;
use crate::proto::{GraphProto, NodeProto, TensorShapeProto, ValueInfoProto, type_proto};

/// As many symbols as models at all combinations of two sizes stay few.
const MOST_SYMBOLS: usize = 3;

/// How far the size that checks lies above the least one of comparison.
const CHECKED: usize = 3;

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Value, text)
}

/// A function whose inputs have extents that a user of the model may choose.
///
/// `make` gives the graph for a size of each symbol; it is called for a few sizes within the bounds. It should come from a
/// function that was compiled with passes of level 1 at most: the model cannot recompute a constant that a pass computed from
/// sizes.
///
/// ```
/// use remat_graph::ir::symbolic::Dim;
/// use remat_graph::passes::PassOptions;
/// use remat_onnx::{Model, export};
/// use remat_runtime::{Device, DeviceOptions};
/// use remat_tensor::{CompileOptions, Tensor, compile_with};
/// use remat_types::DType;
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::cpu(DeviceOptions::default())?;
/// let passes = PassOptions { level: 1, ..Default::default() };
/// let options = CompileOptions { freeze: true, passes, ..Default::default() };
/// let mut f = compile_with(&device, options, |x: &[Tensor]| Ok(vec![x[0].reshape(&[-1])?.relu()?]));
/// let model = export::export_symbolic(
///     &[Dim::new("batch", 1, 64)],
///     |n| Ok((*f.graph(&[&Tensor::zeros(&device, [n[0], 3], DType::F32)?])?).clone()),
///     &export::ExportOptions::default(),
/// )?;
/// let network = Model::from_bytes(model.to_bytes()?)?.on(&device)?;
/// let x = Tensor::new(&device, &[1f32, -1.0, 2.0, 3.0, -4.0, 5.0], [2, 3])?;
/// assert_eq!(network.call(&[x])?[0].to_vec::<f32>()?, [1.0, 0.0, 2.0, 3.0, 0.0, 5.0]);
/// # Ok(())
/// # }
/// ```
///
/// Errors: those of [`export`](super::export) and of `make`; Value for more than three symbols, bounds without room, a symbol
/// that is no extent of an input, and for what does not follow from the sizes, with the node or the constant.
pub fn export_symbolic(
    dims: &[Dim],
    mut make: impl FnMut(&[usize]) -> Result<Graph>,
    options: &ExportOptions,
) -> Result<Exported> {
    if dims.is_empty() || dims.len() > MOST_SYMBOLS {
        return Err(wrong(format!("{} symbols; from 1 to {MOST_SYMBOLS} can be written", dims.len())));
    }
    let low: Vec<usize> = dims.iter().map(|d| d.least.max(2)).collect();
    if let Some((d, _)) = dims.iter().zip(&low).find(|(d, low)| d.most < **low + CHECKED) {
        return Err(wrong(format!("`{}` from {} to {} leaves no room to compare", d.name, d.least, d.most)));
    }
    let mut at = |sizes: &[usize]| -> Result<Exported> {
        let (model, failures) =
            written(&make(sizes)?, &ExportOptions { extents: Vec::new(), ..options.clone() }, true)?;
        failed(&failures)?;
        Ok(model)
    };
    let mut base = at(&low)?;
    let corner = |bits: usize| low.iter().enumerate().map(|(i, n)| n + (bits >> i & 1)).collect::<Vec<usize>>();
    let mut others = Vec::new();
    for bits in 1..1usize << dims.len() {
        others.push(Instance::of(&mut base, at(&corner(bits))?)?);
    }
    let checked: Vec<usize> = low.iter().map(|n| n + CHECKED).collect();
    let check = Instance::of(&mut base, at(&checked)?)?;
    let fit = Fit { dims, low: &low, checked: &checked };
    let extents = fit.extents(&base, &others, &check)?;
    fit.finish(base, &others, &check, &extents)
}

/// The differences between a model at other sizes and the first one.
struct Instance {
    /// Constants that differ.
    constants: HashMap<usize, Arc<HostTensor>>,
    /// Extents of the inputs and the outputs.
    extents: Vec<Vec<i64>>,
}

impl Instance {
    fn of(base: &mut Exported, other: Exported) -> Result<Instance> {
        same_graph(&mut base.graph, &other.graph, true)?;
        if base.constants.len() != other.constants.len() {
            return Err(wrong("the number of constants follows from the sizes"));
        }
        let extents = ports(&other.graph).map(extents_of).collect();
        let differ =
            |(i, data): (usize, (Name, Arc<HostTensor>))| (data.1 != base.constants[i].1).then_some((i, data.1));
        let constants = other.constants.into_iter().enumerate().filter_map(differ).collect();
        Ok(Instance { constants, extents })
    }
}

fn ports(g: &GraphProto) -> impl Iterator<Item = &ValueInfoProto> {
    g.input.iter().chain(&g.output)
}

/// Takes all names of a graph, those of inner graphs too, so that nothing that is written later has one of them.
fn reserve(e: &mut Emit, g: &GraphProto) {
    for n in &g.node {
        e.take_node_name(n.name());
        n.output.iter().for_each(|y| drop(e.unique(y)));
        n.attribute.iter().filter_map(|a| a.g.as_ref()).for_each(|g| reserve(e, g));
    }
    ports(g).filter_map(|p| p.name.as_ref()).for_each(|name| drop(e.unique(name)));
}

fn shape_of(v: &mut ValueInfoProto) -> Option<&mut TensorShapeProto> {
    match v.r#type.as_mut()?.value.as_mut()? {
        type_proto::Value::TensorType(t) => t.shape.as_mut(),
        _ => None,
    }
}

fn extents_of(v: &ValueInfoProto) -> Vec<i64> {
    let value = v.r#type.as_ref().and_then(|t| t.value.as_ref());
    let Some(type_proto::Value::TensorType(type_proto::Tensor { shape: Some(shape), .. })) = value else {
        return Vec::new();
    };
    let number = |d: &crate::proto::tensor_shape_proto::Dimension| match d.value {
        Some(dimension::Value::DimValue(n)) => n,
        _ => -1,
    };
    shape.dim.iter().map(number).collect()
}

/// Errors with the first node that differs. Extents within inner graphs that differ are taken out of `a`.
fn same_graph(a: &mut GraphProto, b: &GraphProto, main: bool) -> Result<()> {
    if a.node.len() != b.node.len() {
        return Err(wrong("the number of nodes follows from the sizes"));
    }
    for (a, b) in a.node.iter_mut().zip(&b.node) {
        same_node(a, b)?;
    }
    if main {
        return Ok(());
    }
    for (a, b) in a.input.iter_mut().chain(&mut a.output).zip(ports(b)) {
        let other = extents_of(b);
        let Some(shape) = shape_of(a) else { continue };
        for (d, n) in shape.dim.iter_mut().zip(other) {
            if d.value != Some(dimension::Value::DimValue(n)) {
                d.value = None;
            }
        }
    }
    Ok(())
}

fn same_node(a: &mut NodeProto, b: &NodeProto) -> Result<()> {
    let differs = || wrong(format!("node `{}`, {}, is another one at other sizes", b.name(), b.op_type()));
    if a.op_type != b.op_type || a.input != b.input || a.output != b.output || a.attribute.len() != b.attribute.len() {
        return Err(differs());
    }
    for (x, y) in a.attribute.iter_mut().zip(&b.attribute) {
        if let (Some(x), Some(y)) = (&mut x.g, &y.g) {
            same_graph(x, y, false)?;
        } else if x != y {
            let text =
                format!("attribute `{}` of node `{}`, {}, follows from the sizes", y.name(), b.name(), b.op_type());
            return Err(wrong(text));
        }
    }
    Ok(())
}

/// A polynomial: the coefficient of each product of symbols, whose bits say which they are.
#[derive(Clone, Debug, PartialEq)]
struct Terms(Vec<(usize, i64)>);

struct Fit<'a> {
    dims: &'a [Dim],
    low: &'a [usize],
    checked: &'a [usize],
}

impl Fit<'_> {
    /// The polynomial that has these values at the corners, the lowest first; `None` if it has another one where that is checked.
    fn terms(&self, corners: &[i64], checked: i64) -> Option<Terms> {
        let k = self.dims.len();
        // differences along each symbol: coefficients of products of what each is above its lowest size
        let mut c: Vec<i128> = corners.iter().map(|v| i128::from(*v)).collect();
        for i in 0..k {
            for at in (0..1 << k).filter(|at| at >> i & 1 == 1) {
                c[at] -= c[at ^ (1 << i)];
            }
        }
        for i in 0..k {
            for at in (0..1 << k).filter(|at| at >> i & 1 == 1) {
                c[at ^ (1 << i)] -= c[at] * self.low[i] as i128;
            }
        }
        let product =
            |bits: usize| (0..k).filter(|i| bits >> i & 1 == 1).map(|i| self.checked[i] as i128).product::<i128>();
        let sum: i128 = c.iter().enumerate().map(|(bits, c)| c * product(bits)).sum();
        if sum != i128::from(checked) {
            return None;
        }
        let some = c.into_iter().enumerate().filter(|(_, c)| *c != 0);
        some.map(|(bits, c)| Some((bits, i64::try_from(c).ok()?))).collect::<Option<Vec<_>>>().map(Terms)
    }

    fn text(&self, terms: &Terms) -> String {
        let one = |(bits, c): &(usize, i64)| {
            let names: Vec<&str> =
                (0..self.dims.len()).filter(|i| bits >> i & 1 == 1).map(|i| &*self.dims[i].name).collect();
            match (c, names.is_empty()) {
                (c, true) => c.to_string(),
                (1, false) => names.join("*"),
                (c, false) => format!("{c}*{}", names.join("*")),
            }
        };
        let parts: Vec<String> = terms.0.iter().rev().map(one).collect();
        if parts.is_empty() { "0".into() } else { parts.join(" + ") }
    }

    /// The extents of all inputs and outputs.
    fn extents(&self, base: &Exported, others: &[Instance], check: &Instance) -> Result<Vec<Vec<Terms>>> {
        let mut all = Vec::new();
        for (p, port) in ports(&base.graph).enumerate() {
            let mut of = Vec::new();
            for (a, first) in extents_of(port).into_iter().enumerate() {
                let at = |i: &Instance| i.extents.get(p).and_then(|e| e.get(a)).copied();
                let corners: Option<Vec<i64>> = std::iter::once(Some(first)).chain(others.iter().map(at)).collect();
                let terms = corners.zip(at(check)).and_then(|(c, n)| self.terms(&c, n));
                let name = port.name();
                of.push(terms.ok_or_else(|| wrong(format!("axis {a} of `{name}` does not follow from the sizes")))?);
            }
            all.push(of);
        }
        Ok(all)
    }

    /// The first model with the constants that differ computed, and extents named.
    fn finish(
        &self,
        mut base: Exported,
        others: &[Instance],
        check: &Instance,
        extents: &[Vec<Terms>],
    ) -> Result<Exported> {
        let mut e = Emit::new(base.opset);
        reserve(&mut e, &base.graph);
        base.constants.iter().for_each(|(name, _)| drop(e.unique(name)));
        let mut symbols = Vec::with_capacity(self.dims.len());
        for (i, d) in self.dims.iter().enumerate() {
            let own = Terms(vec![(1 << i, 1)]);
            let found = extents[..base.graph.input.len()].iter().enumerate();
            let found =
                found.flat_map(|(p, of)| of.iter().enumerate().map(move |(a, t)| (p, a, t))).find(|f| *f.2 == own);
            let (p, a, _) = found.ok_or_else(|| wrong(format!("`{}` is no extent of an input", d.name)))?;
            let x: Name = base.graph.input[p].name().into();
            let ends = vec![attr::size("start", a), attr::size("end", a + 1)];
            symbols.push(e.with("Shape", &[&x], ends));
        }
        let mut computed: Vec<usize> = others.iter().chain([check]).flat_map(|i| i.constants.keys().copied()).collect();
        computed.sort_unstable();
        computed.dedup();
        for at in &computed {
            let (name, first) = base.constants[*at].clone();
            let of = |i: &Instance| i.constants.get(at).unwrap_or(&first).clone();
            let corners: Vec<Arc<HostTensor>> = std::iter::once(first.clone()).chain(others.iter().map(of)).collect();
            let value = self.constant(&mut e, &symbols, &corners, &of(check));
            let value = value.map_err(|x| x.context(format!("constant `{name}`{}", readers(&base.graph, &name))))?;
            e.alias(&value, &name);
        }
        let mut at = 0;
        base.constants.retain(|_| {
            at += 1;
            computed.binary_search(&(at - 1)).is_err()
        });
        base.constants.append(&mut e.constants);
        let mut nodes = e.end("", Vec::new(), Vec::new()).node;
        nodes.append(&mut base.graph.node);
        base.graph.node = nodes;
        let (inputs, outputs) = (&mut base.graph.input, &mut base.graph.output);
        for (port, of) in inputs.iter_mut().chain(outputs).zip(extents) {
            let Some(shape) = shape_of(port) else { continue };
            for (d, terms) in shape.dim.iter_mut().zip(of) {
                if terms.0.iter().any(|(bits, _)| *bits != 0) {
                    d.value = Some(dimension::Value::DimParam(self.text(terms)));
                }
            }
        }
        Ok(base)
    }

    /// A constant as nodes: sizes as they are, floats as sizes or one over a size.
    fn constant(
        &self,
        e: &mut Emit,
        symbols: &[Name],
        corners: &[Arc<HostTensor>],
        check: &HostTensor,
    ) -> Result<Name> {
        let (first, dtype) = (&corners[0], corners[0].dtype());
        let fixed = corners.iter().all(|c| c.shape() == first.shape()) && check.shape() == first.shape();
        if !fixed && let Some(y) = self.filled(e, symbols, corners, check)? {
            return Ok(y);
        }
        if !fixed || first.shape().rank() > 1 || !(dtype == DType::I64 || dtype.is_float()) {
            return Err(wrong("its elements, or how many there are, follow from the sizes"));
        }
        let not = || wrong("its elements do not follow from the sizes");
        let of = |t: &HostTensor, inverse: bool| -> Option<Vec<i64>> {
            match dtype.is_float() {
                false => Some(t.to_i64_vec()),
                true => t.to_f64_vec().into_iter().map(|v| whole(if inverse { v.recip() } else { v })).collect(),
            }
        };
        let tries = if dtype.is_float() { &[false, true][..] } else { &[false][..] };
        for inverse in tries {
            let all: Option<Vec<Vec<i64>>> = corners.iter().map(|t| of(t, *inverse)).collect();
            let Some((all, last)) = all.zip(of(check, *inverse)) else { continue };
            let terms: Option<Vec<Terms>> = (0..first.elems())
                .map(|i| self.terms(&all.iter().map(|v| v[i]).collect::<Vec<_>>(), last[i]))
                .collect();
            let Some(terms) = terms else { continue };
            let parts = terms.iter().map(|t| self.computed(e, symbols, t)).collect::<Result<Vec<_>>>()?;
            let refs: Vec<&Name> = parts.iter().collect();
            let mut y = match refs[..] {
                [one] => one.clone(),
                _ => e.with("Concat", &refs, vec![attr::int("axis", 0)]),
            };
            y = e.cast_from(&y, DType::I64, dtype);
            if *inverse {
                y = e.op("Reciprocal", &[&y]);
            }
            return if first.shape().rank() == 0 { e.squeeze(&y, 0) } else { Ok(e.op("Identity", &[&y])) };
        }
        Err(not())
    }

    /// A constant whose elements are all one number and whose extents follow from the sizes; `None` if it is another.
    fn filled(
        &self,
        e: &mut Emit,
        symbols: &[Name],
        corners: &[Arc<HostTensor>],
        check: &HostTensor,
    ) -> Result<Option<Name>> {
        let (dtype, rank) = (corners[0].dtype(), corners[0].shape().rank());
        let Some(number) = corners[0].bytes().get(..dtype.size_bytes()) else { return Ok(None) };
        let is_like = |t: &HostTensor| {
            let same = t.dtype() == dtype && t.shape().rank() == rank && t.elems() > 0;
            same && t.bytes().chunks_exact(number.len()).all(|v| v == number)
        };
        if !corners.iter().all(|c| is_like(c)) || !is_like(check) {
            return Ok(None);
        }
        let extent = |t: &HostTensor, axis: usize| t.shape().dims()[axis] as i64;
        let along = |axis: usize| {
            let all: Vec<i64> = corners.iter().map(|c| extent(c, axis)).collect();
            self.terms(&all, extent(check, axis))
        };
        let Some(terms) = (0..rank).map(along).collect::<Option<Vec<Terms>>>() else { return Ok(None) };
        let parts = terms.iter().map(|t| self.computed(e, symbols, t)).collect::<Result<Vec<_>>>()?;
        let shape = match &parts[..] {
            [one] => one.clone(),
            _ => e.with("Concat", &parts.iter().collect::<Vec<_>>(), vec![attr::int("axis", 0)]),
        };
        let number = e.tensor(HostTensor::from_bytes(dtype, [0usize; 0], number)?);
        Ok(Some(e.op("Expand", &[&number, &shape])))
    }

    /// A polynomial of the symbols, of shape `[1]`.
    fn computed(&self, e: &mut Emit, symbols: &[Name], terms: &Terms) -> Result<Name> {
        let mut sum: Option<Name> = None;
        for (bits, c) in &terms.0 {
            let mut product: Option<Name> = None;
            for s in symbols.iter().enumerate().filter(|(i, _)| bits >> i & 1 == 1).map(|(_, s)| s) {
                product = Some(product.map_or(s.clone(), |p| e.op("Mul", &[&p, s])));
            }
            let term = match product {
                None => e.ints(&[*c])?,
                Some(p) if *c == 1 => p,
                Some(p) => {
                    let c = e.ints(&[*c])?;
                    e.op("Mul", &[&p, &c])
                }
            };
            sum = Some(sum.map_or(term.clone(), |s| e.op("Add", &[&s, &term])));
        }
        sum.map_or_else(|| e.ints(&[0]), Ok)
    }
}

/// A float that is a whole number to the last digits of f32.
fn whole(v: f64) -> Option<i64> {
    let n = v.round();
    (n.abs() < 1e15 && (v - n).abs() <= n.abs() * 1e-6).then_some(n as i64)
}

/// The first node that reads a value, for messages.
fn readers(g: &GraphProto, name: &str) -> String {
    let first = g.node.iter().find(|n| n.input.iter().any(|x| x == name));
    first.map_or(String::new(), |n| format!(" of node `{}`", n.name()))
}
