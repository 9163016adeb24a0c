//! The table of operators: a row for each tensor method, by its Rust name, with arguments in Rust's order.
//!
//! `remat._functions` calls the rows. It has the names, defaults and texts that Python's users see. Most rows are made
//! from the catalogue of methods; those that take a structure of options are written beside it.

mod args;
pub(crate) mod choices;
mod options;
mod spectral;
mod table;
mod vision;

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

pub(crate) use args::Args;

/// A method: its name, and the function that calls it.
pub(crate) type Row = (&'static str, fn(&Args<'_, '_>) -> PyResult<Py<PyAny>>);

/// Adds the table as a dictionary of functions.
pub(crate) fn add_to(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let all = PyDict::new(m.py());
    let by_hand = [options::METHODS, spectral::METHODS, vision::METHODS].into_iter().flatten();
    for &(name, row) in table::METHODS.iter().chain(by_hand) {
        let call = move |x: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| row(&Args(x));
        all.set_item(name, PyCFunction::new_closure(m.py(), None, None, call)?)?;
    }
    m.add("_operators", all)
}
