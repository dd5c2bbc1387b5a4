//! Dataclasses and integers through the C API (`unsafe`): what pyo3 has no safe function for, on the hot path.
//!
//! Every function here runs attached to the interpreter: a `Python` token or a `Bound` proves it.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};
use pyo3::{ffi, intern};

/// A frozen dataclass with slots, written and read through its slot descriptors: as fast as C, and past `__init__`
/// and the frozen `__setattr__`, which would only store the same values.
pub struct Record<const N: usize> {
    class: Py<PyType>,
    names: [Py<PyString>; N],
    members: [Py<PyAny>; N],
    get: ffi::descrgetfunc,
    set: ffi::descrsetfunc,
}

impl<const N: usize> Record<N> {
    /// The class `name` of `module`. Refuses a class whose fields are not exactly `fields`: a field that this binding
    /// does not know would stay unset.
    pub fn load(module: &Bound<'_, PyModule>, name: &str, fields: [&str; N]) -> PyResult<Self> {
        let py = module.py();
        let class = module.getattr(name)?.cast_into::<PyType>()?;
        let declared = class.getattr(intern!(py, "__dataclass_fields__"))?.cast_into::<PyDict>()?;
        let declared: Vec<String> = declared.keys().extract()?;
        if declared != fields {
            return Err(PyImportError::new_err(format!(
                "the native core knows {name} with the fields {fields:?}, not {declared:?}; build it again"
            )));
        }
        let mut members = Vec::with_capacity(N);
        for field in fields {
            members.push(class.getattr(field)?);
        }
        let kind = py.import("types")?.getattr("MemberDescriptorType")?.cast_into::<PyType>()?;
        if !members.iter().all(|member| member.get_type().is(&kind)) {
            return Err(PyImportError::new_err(format!("{name} is no dataclass with slots")));
        }
        let (get, set) = descriptor_functions(&kind)?;
        let members: [Py<PyAny>; N] = std::array::from_fn(|at| members[at].clone().unbind());
        let names = fields.map(|field| PyString::intern(py, field).unbind());
        Ok(Record { class: class.unbind(), names, members, get, set })
    }

    /// A new object with these values in the order of the fields.
    pub fn build<'py>(&self, py: Python<'py>, values: [Bound<'py, PyAny>; N]) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: `class` is a type made by a class statement, whose allocator this function is; it answers a new
        // reference to an object with empty slots, or null with an exception set.
        let object = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(self.class.as_ptr().cast(), 0))?
        };
        for (member, value) in self.members.iter().zip(values) {
            // SAFETY: `member` is a slot descriptor of the object's own class, `set` its type's setter, which takes
            // its own reference to the value.
            let status = unsafe { (self.set)(member.as_ptr(), object.as_ptr(), value.as_ptr()) };
            if status != 0 {
                return Err(PyErr::fetch(py));
            }
        }
        Ok(object)
    }

    /// One field of an object of this class, or the attribute of that name of anything else.
    pub fn field<'py>(&self, object: &Bound<'py, PyAny>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = object.py();
        if !self.is_class_of(object) {
            return object.getattr(self.names[at].bind(py));
        }
        // SAFETY: `member` is a slot descriptor of the object's own class, `get` its type's getter, which answers a
        // new reference, or null with an exception set.
        unsafe {
            let value = (self.get)(self.members[at].as_ptr(), object.as_ptr(), self.class.as_ptr());
            Bound::from_owned_ptr_or_err(py, value)
        }
    }

    /// All fields, in order.
    pub fn fields<'py>(&self, object: &Bound<'py, PyAny>) -> [PyResult<Bound<'py, PyAny>>; N] {
        std::array::from_fn(|at| self.field(object, at))
    }

    pub fn is_class_of(&self, object: &Bound<'_, PyAny>) -> bool {
        ptr::eq(object.get_type_ptr(), self.class.as_ptr().cast())
    }
}

fn descriptor_functions(kind: &Bound<'_, PyType>) -> PyResult<(ffi::descrgetfunc, ffi::descrsetfunc)> {
    // SAFETY: `kind` is a type, and the functions in these two slots have these two types (or are null).
    let (get, set) = unsafe {
        (
            std::mem::transmute::<*mut c_void, Option<ffi::descrgetfunc>>(ffi::PyType_GetSlot(
                kind.as_type_ptr(),
                ffi::Py_tp_descr_get,
            )),
            std::mem::transmute::<*mut c_void, Option<ffi::descrsetfunc>>(ffi::PyType_GetSlot(
                kind.as_type_ptr(),
                ffi::Py_tp_descr_set,
            )),
        )
    };
    get.zip(set).ok_or_else(|| PyImportError::new_err("slot descriptors cannot be read and written"))
}

/// An integer, and whether it is beyond 64 bits; the largest or smallest of these then stands for it.
pub fn integer(object: &Bound<'_, PyAny>) -> PyResult<(i64, bool)> {
    let mut overflow: c_int = 0;
    // SAFETY: a valid object and a place for the flag; answers -1 where an exception is set or the number too large.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object.as_ptr(), &raw mut overflow) };
    match (overflow, value) {
        (0, -1) => PyErr::take(object.py()).map_or(Ok((-1, false)), Err),
        (0, value) => Ok((value, false)),
        (1.., _) => Ok((i64::MAX, true)),
        (..0, _) => Ok((i64::MIN, true)),
    }
}
