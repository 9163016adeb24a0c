//! A node that runs, as its rule sees it.

use remat_runtime::{Device, tracing};
use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, HostTensor, Result, Scalar};

use super::run::{Frame, Shared};
use super::{Graph, Node, Parameter, attribute};
use crate::literal::{Literal, Narrow};
use crate::value::{Text, Value};

/// Numbers that are asked for one by one of a trace, each a piece of its own.
const MOST_TRACED_SIZES: usize = 16;

/// A node, its inputs, and its surroundings.
pub struct Cx<'a> {
    pub(crate) node: &'a Node,
    pub(crate) inputs: Vec<Option<Value>>,
    pub(crate) shared: &'a Shared,
    /// Where the rule computes.
    pub(crate) device: &'a Device,
    pub(crate) frame: Option<&'a Frame<'a>>,
}

/// The one output of most rules.
pub fn one(t: Tensor) -> Result<Vec<Value>> {
    Ok(vec![Value::Tensor(t)])
}

/// An error of kind Value.
pub fn value_error(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Value, text)
}

/// An error of kind Shape.
pub fn shape_error(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Shape, text)
}

impl Cx<'_> {
    /// The device on which the rule computes.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// True if the rule's calls become nodes of a graph, so that a value which is not known cannot be had. Not so of a rule that is
    /// folded while the model is traced.
    pub fn is_tracing(&self) -> bool {
        tracing::is_tracing()
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// The domain of its operator.
    pub fn domain(&self) -> &str {
        &self.node.domain
    }

    /// The version of its operator; 0 in a format without versions.
    pub fn version(&self) -> i64 {
        self.node.version.unwrap_or(0)
    }

    /// Number of inputs, absent ones in between included.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// An optional input.
    pub fn value(&self, i: usize) -> Option<&Value> {
        match self.inputs.get(i)? {
            Some(Value::Optional(None)) => None,
            v => v.as_ref(),
        }
    }

    /// An input. Errors: Arity if it is absent.
    pub fn needed(&self, i: usize) -> Result<&Value> {
        self.value(i).ok_or_else(|| Error::new(ErrorKind::Arity, format!("input {i} is missing")))
    }

    /// A tensor. Errors: Arity, Value.
    pub fn x(&self, i: usize) -> Result<&Tensor> {
        self.needed(i)?.tensor().map_err(|e| e.context(format!("input {i}")))
    }

    /// A tensor that may be absent. Errors: Value.
    pub fn opt(&self, i: usize) -> Result<Option<&Tensor>> {
        self.value(i).map(|v| v.tensor().map_err(|e| e.context(format!("input {i}")))).transpose()
    }

    /// All inputs as tensors. Errors: Arity, Value.
    pub fn all(&self) -> Result<Vec<&Tensor>> {
        (0..self.input_count()).map(|i| self.x(i)).collect()
    }

    /// The strings of an input. Errors: Arity, Value.
    pub fn text(&self, i: usize) -> Result<&Text> {
        self.needed(i)?.text()
    }

    /// The integer of less than a byte that an input is in the file: a constant, or an input of a graph that declares it so.
    pub fn narrow(&self, i: usize) -> Option<Narrow> {
        self.node.narrow.iter().find(|n| n.0 == i).map(|n| n.1)
    }

    /// Number of outputs, those that nothing reads included.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether the graph uses an output.
    pub fn wants(&self, output: usize) -> bool {
        self.node.outputs.get(output).is_some_and(|o| o.is_some())
    }

    /// The value of an input on the host; waits for it if it is not known. Errors: NoValue in a trace.
    pub fn host(&self, i: usize) -> Result<HostTensor> {
        let v = self.needed(i)?;
        match v.known() {
            Some(host) => Ok(host),
            None => v.tensor()?.to_host().map_err(|e| e.context(format!("input {i}, which decides shapes"))),
        }
    }

    /// The integers of an input: sizes, axes, places. In a trace each that is not known ends a piece of the compiled function.
    /// Errors: DType for other than integers; NoValue.
    pub fn numbers(&self, i: usize) -> Result<Vec<i64>> {
        let t = self.x(i)?;
        if t.dtype().is_float() {
            return Err(Error::new(ErrorKind::DType, format!("input {i} is {}, must be integers", t.dtype())));
        }
        let unknown = self.needed(i)?.known().is_none();
        if unknown && self.is_tracing() && t.elems() <= MOST_TRACED_SIZES {
            return traced_numbers(t);
        }
        Ok(self.host(i)?.to_i64_vec())
    }

    /// [`Cx::numbers`] of an input that may be absent.
    pub fn opt_numbers(&self, i: usize) -> Result<Option<Vec<i64>>> {
        if self.value(i).is_none() { Ok(None) } else { self.numbers(i).map(Some) }
    }

    /// The one integer of an input. Errors: Shape; as [`Cx::numbers`].
    pub fn number(&self, i: usize) -> Result<i64> {
        match self.numbers(i)?[..] {
            [n] => Ok(n),
            _ => Err(shape_error(format!("input {i} has shape {}, must be one number", self.x(i)?.shape()))),
        }
    }

    /// The numbers of an input as f64. Errors: NoValue in a trace.
    pub fn floats(&self, i: usize) -> Result<Vec<f64>> {
        Ok(self.host(i)?.to_f64_vec())
    }

    /// The one number of an input. Errors: Shape, NoValue.
    pub fn float(&self, i: usize) -> Result<f64> {
        match self.floats(i)?[..] {
            [n] => Ok(n),
            _ => Err(shape_error(format!("input {i} has shape {}, must be one number", self.x(i)?.shape()))),
        }
    }

    /// The one element of an input, whatever its dtype. Errors: Shape, NoValue.
    pub fn scalar(&self, i: usize) -> Result<Scalar> {
        let t = self.x(i)?;
        if !t.dtype().is_float() && self.is_tracing() && t.elems() == 1 {
            let n = if t.dtype() == DType::Bool { self.size_of_bool(i)? } else { self.number(i)? };
            return Ok(if t.dtype() == DType::Bool { Scalar::Bool(n != 0) } else { Scalar::Int(n) });
        }
        let host = self.host(i)?;
        scalar(&host).map_err(|e| e.context(format!("input {i}")))
    }

    /// A truth value as 0 or 1.
    fn size_of_bool(&self, i: usize) -> Result<i64> {
        match self.needed(i)?.known() {
            Some(host) => Ok(host.to_i64_vec().first().copied().unwrap_or(0)),
            None => Ok(self.x(i)?.cast(DType::I64)?.as_size()? as i64),
        }
    }

    /// An attribute. Errors: Format if it is something else.
    pub fn int(&self, name: &str, default: i64) -> Result<i64> {
        Ok(attribute::int(&self.node.attributes, name)?.copied().unwrap_or(default))
    }

    /// An integer, if there is one. Errors: Format.
    pub fn opt_int(&self, name: &str) -> Result<Option<i64>> {
        Ok(attribute::int(&self.node.attributes, name)?.copied())
    }

    /// An attribute that is 0 or 1.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    /// An attribute that must be there. Errors: Format.
    pub fn int_of(&self, name: &str) -> Result<i64> {
        self.opt_int(name)?.ok_or_else(|| self.missing(name))
    }

    /// An attribute that is an axis.
    pub fn axis(&self, name: &str, default: i64) -> Result<isize> {
        Ok(self.int(name, default)? as isize)
    }

    /// A float; f32 as the file has it.
    pub fn real(&self, name: &str, default: f32) -> Result<f64> {
        Ok(f64::from(attribute::float(&self.node.attributes, name)?.copied().unwrap_or(default)))
    }

    /// A float, if there is one. Errors: Format.
    pub fn opt_real(&self, name: &str) -> Result<Option<f64>> {
        Ok(attribute::float(&self.node.attributes, name)?.copied().map(f64::from))
    }

    /// Floats. Errors: Format.
    pub fn reals(&self, name: &str) -> Result<Option<&[f32]>> {
        attribute::floats(&self.node.attributes, name)
    }

    /// Integers. Errors: Format.
    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>> {
        attribute::ints(&self.node.attributes, name)
    }

    /// Integers that are sizes. Errors: Value for those below 0 or above 2^31, so that sums of products of two of them can be had;
    /// Format.
    pub fn sizes(&self, name: &str) -> Result<Option<Vec<usize>>> {
        const MOST: usize = 1 << 31;
        let size = |n: &i64| {
            let size = usize::try_from(*n).ok().filter(|n| *n <= MOST);
            size.ok_or_else(|| value_error(format!("attribute `{name}` has {n}, must be within 0 and {MOST}")))
        };
        self.ints(name)?.map(|all| all.iter().map(size).collect()).transpose()
    }

    /// [`Cx::sizes`], as many as `count`; each is `default` if the attribute is not there. Errors: also Shape for another number.
    pub fn sizes_for(&self, name: &str, count: usize, default: usize) -> Result<Vec<usize>> {
        let all = self.sizes(name)?.unwrap_or_else(|| vec![default; count]);
        if all.len() == count {
            return Ok(all);
        }
        Err(shape_error(format!("attribute `{name}` has {} numbers, must be {count}", all.len())))
    }

    /// A string. Errors: Format if it is something else, or not UTF-8.
    pub fn string<'s>(&'s self, name: &str, default: &'s str) -> Result<&'s str> {
        match attribute::string(&self.node.attributes, name)? {
            None => Ok(default),
            Some(s) => std::str::from_utf8(s)
                .map_err(|_| Error::new(ErrorKind::Format, format!("attribute `{name}` is not UTF-8"))),
        }
    }

    /// Strings. Errors: Format if they are something else, or not UTF-8.
    pub fn strings(&self, name: &str) -> Result<Option<Vec<String>>> {
        let text = |s: &Vec<u8>| {
            String::from_utf8(s.clone())
                .map_err(|_| Error::new(ErrorKind::Format, format!("attribute `{name}` is not UTF-8")))
        };
        attribute::strings(&self.node.attributes, name)?.map(|all| all.iter().map(text).collect()).transpose()
    }

    /// True if there is such an attribute.
    pub fn has(&self, name: &str) -> bool {
        self.node.attributes.contains_key(name)
    }

    /// A tensor of numbers. Errors: Format; DType for strings.
    pub fn tensor(&self, name: &str) -> Result<Option<&HostTensor>> {
        match attribute::tensor(&self.node.attributes, name)? {
            None => Ok(None),
            Some(Literal::Tensor(t)) => Ok(Some(t)),
            Some(Literal::Text(_)) => Err(Error::new(ErrorKind::DType, format!("attribute `{name}` has strings"))),
        }
    }

    /// A tensor of numbers or of strings. Errors: Format.
    pub fn literal(&self, name: &str) -> Result<Option<&Literal>> {
        attribute::tensor(&self.node.attributes, name)
    }

    /// A parameter of the format's own type. Errors: Format if it is missing or of another type.
    pub fn parameter<T: Parameter>(&self, name: &str) -> Result<&T> {
        attribute::parameter(&self.node.attributes, name)?.ok_or_else(|| self.missing(name))
    }

    /// An inner graph. Errors: Format if it is missing.
    pub fn graph(&self, name: &str) -> Result<&Graph> {
        attribute::graph(&self.node.attributes, name)?.ok_or_else(|| self.missing(name))
    }

    /// The error of an attribute that the rule needs.
    pub fn missing(&self, name: &str) -> Error {
        Error::new(ErrorKind::Format, format!("attribute `{name}` is missing"))
    }

    /// The error of an attribute whose value there is no rule for.
    pub fn unknown(&self, name: &str, value: impl std::fmt::Display) -> Error {
        value_error(format!("attribute `{name}` is `{value}`, which is not supported"))
    }

    /// Runs an inner graph. Errors: Arity; those of its nodes.
    pub fn run(&self, graph: &Graph, inputs: Vec<Value>) -> Result<Vec<Value>> {
        if inputs.len() != graph.inputs.len() {
            let text = format!("{} inputs for an inner graph of {}", inputs.len(), graph.inputs.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        self.shared.run(graph, inputs.into_iter().map(Some).collect(), self.frame)
    }

    /// A constant. Errors: Closed.
    pub fn constant(&self, host: &HostTensor) -> Result<Value> {
        Value::from_host(self.device(), host)
    }

    /// A vector of integers, known on the host.
    pub fn shape_value(&self, dims: &[i64]) -> Result<Value> {
        self.constant(&HostTensor::from_slice(dims, [dims.len()])?)
    }

    /// A function of the first input.
    pub fn unary(&self, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
        one(f(self.x(0)?)?)
    }
}

/// Integers that a trace does not know, each a size at which the compiled function is cut: those that are negative are found first,
/// by one size for them all.
fn traced_numbers(t: &Tensor) -> Result<Vec<i64>> {
    let flat = t.cast(DType::I64)?.reshape(&[-1])?;
    let n = t.elems();
    let bits: Vec<i64> = (0..n).map(|j| 1 << j).collect();
    let negative = flat.lt(0)?.cast(DType::I64)?.mul(&Tensor::new(&t.device(), &bits, [n])?)?.sum()?.as_size()?;
    let sizes = flat.abs()?;
    let number = |j: usize| {
        let size = sizes.narrow(0, j as isize, 1)?.as_size()? as i64;
        Ok(if negative >> j & 1 == 1 { -size } else { size })
    };
    (0..n).map(number).collect()
}

/// The one element of a tensor. Errors: Shape.
pub fn scalar(host: &HostTensor) -> Result<Scalar> {
    if host.elems() != 1 {
        return Err(shape_error(format!("shape {}, must be one element", host.shape())));
    }
    Ok(match host.dtype() {
        DType::Bool => Scalar::Bool(host.to_i64_vec()[0] != 0),
        DType::U64 => {
            let v = host.to_vec::<u64>()?[0];
            i64::try_from(v).map_or(Scalar::Uint(v), Scalar::Int)
        }
        d if d.is_float() => Scalar::Float(host.to_f64_vec()[0]),
        _ => Scalar::Int(host.to_i64_vec()[0]),
    })
}

/// Axes as the methods of tensors take them.
pub fn axes(numbers: &[i64]) -> Vec<isize> {
    numbers.iter().map(|n| *n as isize).collect()
}

/// A size from a number. Errors: Value for a negative one.
pub fn size(n: i64) -> Result<usize> {
    usize::try_from(n).map_err(|_| value_error(format!("{n} is no size")))
}
