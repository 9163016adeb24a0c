//! The classes of compiled layers, each with the only declaration of its arguments.
//!
//! A struct of options is the list of a class's arguments, in order, with types and defaults. Where the library has a
//! struct of the same options, it is one field of that struct. `#[derive(Params)]` reads the list, as it does for ops.
//! Four things come from the list and the class's text: the Python class with its signature
//! (`scripts/make_python_layers.py`), the reading of options, their display, and the making of an equal layer. A field
//! has the name of Python's argument; `as` gives the name that a layer shows, where that is an older one.
//!
//! A new layer is an entry of `options!` and one of `classes!` in the file of its family; then the script is run.

mod activation;
mod arguments;
mod attention;
mod convolution;
mod dropout;
mod embedding;
mod linear;
mod normalization;
mod padding;
mod pooling;
mod recurrent;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use remat::Result;
use remat::nn::InitCx;
use remat::ops::schema::{Param, ParamType, Params};
use serde_json::{Map, Value};

use super::compiled::Built;
use crate::value;

/// The options of a class of layers.
trait LayerOptions: Params + Send + 'static {
    /// The options as they are kept and shown, with defaults filled in that depend on other options.
    fn kept(self) -> Self {
        self
    }

    /// The layer. Errors: those of making it.
    fn build(self, cx: &mut InitCx) -> Result<Built>;
}

/// A class of layers.
pub(super) struct LayerClass {
    name: &'static str,
    /// The Python base class, which has the `forward`.
    base: &'static str,
    /// Its text. Each line begins with a space.
    text: &'static str,
    params: fn() -> Vec<Param>,
    prepare: fn(Value) -> serde_json::Result<(Value, Make)>,
}

/// Makes a layer, once its options are read.
pub(super) type Make = Box<dyn FnOnce(&mut InitCx) -> Result<Built> + Send>;

/// Options as they are kept, in the order in which they are shown, and the function that makes the layer of them.
pub(super) type Prepared = (Vec<(String, Value)>, Make);

impl LayerClass {
    const fn new<O: LayerOptions>(name: &'static str, base: &'static str, text: &'static str) -> LayerClass {
        LayerClass { name, base, text, params: O::params, prepare: prepare::<O> }
    }
}

fn prepare<O: LayerOptions>(given: Value) -> serde_json::Result<(Value, Make)> {
    let options = serde_json::from_value::<O>(given)?.kept();
    Ok((serde_json::to_value(&options)?, Box::new(move |cx| options.build(cx))))
}

/// Structs of options, each with the expression that makes the layer. A field is `name: type`, optionally with the name
/// that the layer shows (`as "name"`) and a default. `[flatten]` marks a struct whose fields stand among the others.
/// `kept` says how the options are kept.
macro_rules! options {
    ($(
        $(#[$doc:meta])* $name:ident $(<$d:ident>)? { $(
            $([$flatten:ident])? $field:ident $(as $shown:literal)?: $ty:ty $(= $default:expr)?
        ),+ $(,)? }
        $(where $layer:ty: $bound:ident)? $(kept |$now:ident| $kept:expr)? $(=> $form:ident |$o:ident, $cx:ident| $make:expr)?;
    )+) => { $(
        $(#[$doc])*
        #[derive(remat::ops::schema::Params)]
        #[op(crate = remat::ops)]
        struct $name $(<const $d: usize>)? { $(
            $(#[param($flatten)])? $(#[param(rename = $shown)])? $(#[param(default = $default)])? $field: $ty
        ),+ }

        options! { @layer $name [$(<const $d: usize>)?] [$(<$d>)?] [$(where $layer: $bound + 'static)?]
            [$(fn kept(self) -> Self { let $now = self; $kept })?] [$($form |$o, $cx| $make)?] }
    )+ };
    // structs that are only flattened into others
    (@layer $name:ident $generics:tt $d:tt $bounds:tt $kept:tt []) => {};
    (@layer $name:ident [$($generics:tt)*] [$($d:tt)*] [$($bounds:tt)*] [$($kept:tt)*] [$form:ident |$o:ident, $cx:ident| $make:expr]) => {
        impl $($generics)* $crate::nn::layers::LayerOptions for $name $($d)* $($bounds)* {
            $($kept)*

            fn build(self, $cx: &mut remat::nn::InitCx) -> remat::Result<$crate::nn::compiled::Built> {
                let $o = self;
                let made: remat::Result<_> = $make;
                made.map($crate::nn::compiled::Built::$form)
            }
        }
    };
}
use options;

/// The list of a file's classes: the text, the name, the Python base class, and the options.
macro_rules! classes {
    ($($(#[doc = $text:literal])+ $name:ident: $base:ident = $options:ty;)+) => {
        pub(super) const CLASSES: &[$crate::nn::layers::LayerClass] = &[$(
            $crate::nn::layers::LayerClass::new::<$options>(
                stringify!($name), stringify!($base), concat!($($text, "\n"),+),
            )
        ),+];
    };
}
use classes;

const FILES: &[&[LayerClass]] = &[
    linear::CLASSES,
    convolution::CLASSES,
    normalization::CLASSES,
    embedding::CLASSES,
    dropout::CLASSES,
    activation::CLASSES,
    pooling::CLASSES,
    padding::CLASSES,
    recurrent::CLASSES,
    attention::CLASSES,
];

/// Reads the options of a layer of the class; `None` for an unknown class. Options have the names of Python's
/// arguments, or those that the layer shows. Errors: TypeError, ValueError for options that do not fit.
pub(super) fn make(class: &str, given: &Map<String, Value>) -> PyResult<Option<Prepared>> {
    let Some(class) = FILES.iter().copied().flatten().find(|c| c.name == class) else { return Ok(None) };
    let params = (class.params)();
    let shown = |name: &String| params.iter().find(|p| p.field == name).map_or(name.clone(), |p| p.name.to_owned());
    let given: Map<String, Value> = given.iter().map(|(name, v)| (shown(name), v.clone())).collect();
    let prepared = (class.prepare)(Value::Object(given.clone()));
    let (mut kept, make) = prepared.map_err(|e| wrong_option(&params, &given, &e))?;
    let in_order = params.iter().filter_map(|p| Some((p.name.to_owned(), kept.get_mut(p.name)?.take())));
    Ok(Some((in_order.collect(), make)))
}

/// The error for wrong options: it names the option and says what is wrong.
fn wrong_option(params: &[Param], given: &Map<String, Value>, e: &serde_json::Error) -> PyErr {
    let said = e.to_string();
    let Some((name, said)) = said.strip_prefix("parameter `").and_then(|rest| rest.split_once("`: ")) else {
        return super::wrong_option(None, &said);
    };
    // the option is one of several names, and this name is unknown
    let found = params.iter().find(|p| p.name == name);
    if let (Some(ParamType::OneOf(all)), Some(Value::String(given))) = (found.map(|p| &p.ty), given.get(name)) {
        let mut names: Vec<String> = all.iter().map(|v| format!("`{}`", v.name)).collect();
        let last = names.pop().unwrap_or_default();
        return PyValueError::new_err(format!("{name} is {} or {last}, not `{given}`", names.join(", ")));
    }
    if said.starts_with(name) { PyValueError::new_err(said.to_owned()) } else { super::wrong_option(Some(name), said) }
}

/// The classes of layers, each a dictionary: its name, the class that has its call, its text, and its arguments with their types as
/// Python writes them, and defaults.
#[pyfunction]
pub(crate) fn layer_classes(py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
    FILES.iter().copied().flatten().map(|class| described(py, class)).collect()
}

fn described(py: Python<'_>, class: &LayerClass) -> PyResult<Py<PyDict>> {
    let arguments = (class.params)().into_iter().map(|p| {
        let default = p.default.as_ref().map(|v| value::to_python(py, v)).transpose()?;
        Ok((p.field, hint(&p), default.is_some(), default))
    });
    let arguments: Vec<(&str, String, bool, Option<Py<PyAny>>)> = arguments.collect::<PyResult<_>>()?;
    let lines = class.text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
    let all = PyDict::new(py);
    all.set_item("name", class.name)?;
    all.set_item("base", class.base)?;
    all.set_item("text", lines.collect::<Vec<_>>().join("\n").trim())?;
    all.set_item("arguments", arguments)?;
    Ok(all.unbind())
}

/// The type of an argument as Python's hints write it.
fn hint(p: &Param) -> String {
    match p.field {
        "device" => "Optional[Device]".to_owned(),
        "dtype" => "DTypeLike".to_owned(),
        "generator" => "Optional[Generator]".to_owned(),
        _ => type_hint(&p.ty),
    }
}

fn type_hint(ty: &ParamType) -> String {
    match ty {
        ParamType::Bool => "bool".to_owned(),
        ParamType::Int | ParamType::Size => "int".to_owned(),
        ParamType::Float => "float".to_owned(),
        ParamType::OneOf(_) => "str".to_owned(),
        ParamType::Optional(of) => format!("Optional[{}]", type_hint(of)),
        ParamType::List(of) | ParamType::Array(of, _) => format!("Sequence[{}]", type_hint(of)),
        ParamType::AnyOf(types) => match &types[..] {
            [ParamType::Size, ParamType::Array(of, _) | ParamType::List(of)] if **of == ParamType::Size => {
                "Extents".to_owned()
            }
            [ParamType::Float, ParamType::List(..)] => "Union[float, Sequence[float]]".to_owned(),
            _ => "Any".to_owned(),
        },
        _ => "Any".to_owned(),
    }
}

/// The error (TypeError) for an unknown class.
pub(super) fn no_such_layer(class: &str) -> PyErr {
    PyTypeError::new_err(format!("there is no layer `{class}`"))
}
