//! The one traversal of a Python module's state. Lists of parameters, saving, loading and averaging use it.

use std::collections::{BTreeMap, HashMap, HashSet};

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use remat::HostTensor;
use remat::nn::{LoadReport, Module, Parameter, Visit, Walk};

use super::NativeLayer;
use crate::call;
use crate::tensor::host_of;
use crate::tensor::parameter;

/// A module and all modules within it, each once, by name, outermost first.
#[pyfunction]
pub(crate) fn module_tree<'py>(root: &Bound<'py, PyAny>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut ahead = vec![(String::new(), root.clone())];
    while let Some((path, module)) = ahead.pop() {
        if !seen.insert(module.as_ptr()) {
            continue;
        }
        let mut parts = Vec::new();
        each_of(&module, "_modules", |name, part| {
            parts.push((join(&path, &name), part));
            Ok(())
        })?;
        ahead.extend(parts.into_iter().rev());
        found.push((path, module));
    }
    Ok(found)
}

/// An attribute that every module sets on itself. Errors: AttributeError before the `__init__` of `Module`.
fn own<'py>(module: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    let not = || PyAttributeError::new_err(format!("{} has no `{name}`: call super().__init__()", module.get_type()));
    own_dict(module)?.get_item(name)?.ok_or_else(not)
}

/// The attributes of the module itself, without the attribute lookup that its class defines.
fn own_dict<'py>(module: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    Ok(module.getattr("__dict__")?.cast_into()?)
}

/// Calls `f` with each entry of a module's dictionary that is not None.
fn each_of<'py>(
    module: &Bound<'py, PyAny>,
    store: &str,
    mut f: impl FnMut(String, Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    own(module, store)?.call_method0("items")?.try_iter()?.try_for_each(|entry| {
        let (name, v): (String, Bound<'py, PyAny>) = entry?.extract()?;
        if v.is_none() { Ok(()) } else { f(name, v) }
    })
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The state of a Python module as a module of the library. It has parameters and buffers by name, and the compiled
/// layers that they belong to: these have modes and sources of random keys.
#[pyclass(name = "_State", module = "remat._remat", frozen)]
pub(crate) struct State {
    parameters: Vec<(String, Parameter)>,
    layers: Vec<(String, Py<NativeLayer>)>,
    /// The Python objects of the parameters, by address.
    objects: HashMap<usize, Py<PyAny>>,
}

impl Visit for State {
    fn visit(&self, at: &mut Walk<'_>) {
        self.parameters.iter().for_each(|(name, p)| at.field(name, p));
        // parameters that layers share with the list above have the same names, and are listed once
        self.layers.iter().for_each(|(name, layer)| at.field(name, layer.get()));
    }
}
impl Module for State {}

/// Parameters and buffers alone: all that Python's lists of them need.
struct Listed<'s>(&'s State);

impl Visit for Listed<'_> {
    fn visit(&self, at: &mut Walk<'_>) {
        self.0.parameters.iter().for_each(|(name, p)| at.field(name, p));
    }
}
impl Module for Listed<'_> {}

impl State {
    fn add(&mut self, name: String, object: Bound<'_, PyAny>) -> PyResult<()> {
        let p = parameter::extract(&object)?;
        self.objects.entry(p.address()).or_insert_with(|| object.unbind());
        self.parameters.push((name, p));
        Ok(())
    }

    /// The parameters as the objects that the module has.
    fn named_objects(&self, py: Python<'_>, all: Vec<(String, Parameter)>) -> Vec<(String, Py<PyAny>)> {
        let object = |(name, p): (String, Parameter)| Some((name, self.objects.get(&p.address())?.clone_ref(py)));
        all.into_iter().filter_map(object).collect()
    }
}

#[pymethods]
impl State {
    /// The state of a module as it is now. With `is_saved` it leaves out buffers that are not saved.
    #[new]
    fn new(module: &Bound<'_, PyAny>, is_saved: bool) -> PyResult<Self> {
        let mut made = State { parameters: Vec::new(), layers: Vec::new(), objects: HashMap::new() };
        for (path, module) in module_tree(module)? {
            let left_out = own(&module, "_not_saved")?;
            for store in ["_parameters", "_buffers"] {
                each_of(&module, store, |name, p| {
                    if is_saved && left_out.contains(&name)? { Ok(()) } else { made.add(join(&path, &name), p) }
                })?;
            }
            if let Some(core) = own_dict(&module)?.get_item("_core")? {
                let layer: Bound<'_, NativeLayer> = core.getattr("native")?.cast_into()?;
                made.layers.push((path, layer.unbind()));
            }
        }
        Ok(made)
    }

    /// A state of named parameters, such as an optimiser's.
    #[staticmethod]
    fn of_parameters(parameters: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let mut made = State { parameters: Vec::new(), layers: Vec::new(), objects: HashMap::new() };
        parameters.into_iter().try_for_each(|(name, p)| made.add(name, p))?;
        Ok(made)
    }

    /// Trained parameters by name, each once.
    fn trained(&self, py: Python<'_>) -> Vec<(String, Py<PyAny>)> {
        self.named_objects(py, Listed(self).named_parameters())
    }

    /// State without a gradient by name, each once.
    fn buffers(&self, py: Python<'_>) -> Vec<(String, Py<PyAny>)> {
        self.named_objects(py, Listed(self).named_buffers())
    }

    /// Parameters and buffers, in the order of the traversal.
    fn all(&self, py: Python<'_>) -> Vec<(String, Py<PyAny>)> {
        self.named_objects(py, Listed(self).named_state())
    }

    /// Replaces the values, all or none of them. Errors: ValueError, which names every value that does not fit.
    fn load(&self, py: Python<'_>, values: Vec<(String, Bound<'_, PyAny>)>, strict: bool) -> PyResult<Report> {
        let given = values.into_iter().map(|(name, v)| Ok((name, host_of(&v)?)));
        let given: BTreeMap<String, HostTensor> = given.collect::<PyResult<_>>()?;
        call::run(py, || self.load_state_dict(&given, strict)).map(named_report)
    }
}

/// Names that both sides had, that the loaded state lacked, and that the module lacked.
pub(crate) type Report = (Vec<String>, Vec<String>, Vec<String>);

pub(crate) fn named_report(r: LoadReport) -> Report {
    (r.matched, r.missing, r.unexpected)
}
