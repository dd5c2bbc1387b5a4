//! What a call can end with instead of a result, and the Python exception that says so.

use agentcache_core::{Error, Kind};
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::classes::Classes;
use crate::names::Names;

pub enum Fault {
    /// The core refused, or the binding in its name.
    Refused(Error),
    /// `CacheError(BAD_REQUEST)`: an argument is of the wrong form.
    BadRequest(&'static str),
    /// An argument's own code raised, or it lacks an attribute.
    Raised(PyErr),
    /// A bug of the core, with the words of its panic; in this call or an earlier one.
    Broken(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(error)
    }
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Fault::Raised(error)
    }
}

impl Fault {
    pub fn refused(kind: Kind, message: &'static str) -> Self {
        Fault::Refused(Error::new(kind, message))
    }

    /// The exception; `names` has what the error's component is called, `unknown` is a name that none has.
    pub fn raise(self, py: Python<'_>, names: &Names, unknown: Option<Py<PyAny>>) -> PyErr {
        match self {
            Fault::Refused(error) => refusal(py, &error, names, unknown).unwrap_or_else(|failed| failed),
            Fault::BadRequest(message) => bad_request(py, message).unwrap_or_else(|failed| failed),
            Fault::Raised(error) => error,
            Fault::Broken(panic) => PyAssertionError::new_err(format!(
                "a bug of the native core, which serves no more calls; core=\"reference\" does: {panic}"
            )),
        }
    }
}

fn refusal(py: Python<'_>, error: &Error, names: &Names, unknown: Option<Py<PyAny>>) -> PyResult<PyErr> {
    let classes = Classes::get(py)?;
    let facts = PyDict::new(py);
    for (name, value) in &error.facts {
        facts.set_item(name, value)?;
    }
    if let Some(name) = error.component.and_then(|component| names.name(py, component)) {
        facts.set_item("component", name)?;
    }
    if let (Kind::UnknownComponent, Some(asked)) = (error.kind, unknown) {
        facts.set_item("asked", asked)?;
        facts.set_item("known", names.all())?;
    }
    let kind = classes.enums.kinds.object(py, error.kind);
    let raised = classes.error.bind(py).call((kind, error.message), Some(&facts))?;
    Ok(PyErr::from_value(raised))
}

fn bad_request(py: Python<'_>, message: &str) -> PyResult<PyErr> {
    let classes = Classes::get(py)?;
    Ok(PyErr::from_value(classes.error.bind(py).call1((classes.bad_request.bind(py), message))?))
}
