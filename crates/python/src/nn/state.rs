//! A Python module's state as a module of the library: what saving, loading and averaging take.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use remat::HostTensor;
use remat::nn::{LoadReport, Module, Parameter, Visit, Walk};

use super::{NativeLayer, named};
use crate::call;
use crate::tensor::host_of;

/// Parameters and buffers by name, and the compiled layers that they lie in, which have sources of random keys and modes of their own.
#[pyclass(name = "_State", module = "remat._remat", frozen)]
pub(crate) struct State {
    parameters: Vec<(String, Parameter)>,
    layers: Vec<(String, Py<NativeLayer>)>,
}

impl Visit for State {
    fn visit(&self, at: &mut Walk<'_>) {
        self.parameters.iter().for_each(|(name, p)| at.field(name, p));
        // what they share with the parameters above is listed once, under the same names
        self.layers.iter().for_each(|(name, layer)| at.field(name, layer.get()));
    }
}
impl Module for State {}

#[pymethods]
impl State {
    #[new]
    fn new(parameters: Vec<(String, Bound<'_, PyAny>)>, layers: Vec<(String, Py<NativeLayer>)>) -> PyResult<Self> {
        Ok(State { parameters: named(parameters)?, layers })
    }

    /// Replaces the values, all or none of them. Errors: ValueError naming all that does not fit.
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
