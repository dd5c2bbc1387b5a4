//! Arrays of int32 through the C API (`unsafe`): borrowed from any buffer, and handed over as arrays of `numpy`.
//!
//! Every function here runs attached to the interpreter: a `Python` token or a `Bound` proves it.

use std::ffi::{CStr, c_int, c_void};
use std::{ptr, slice};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The view of one borrowed buffer, given back when it goes.
pub struct View(ffi::Py_buffer);

impl View {
    pub fn empty() -> Self {
        View(ffi::Py_buffer::new())
    }

    /// Take the view of a one-dimensional, C-contiguous int32 buffer in native order; false where it is none.
    pub fn take(&mut self, object: &Bound<'_, PyAny>) -> bool {
        self.give_back();
        // SAFETY: the view is empty and is filled in its place; on failure it stays empty.
        let status = unsafe {
            ffi::PyObject_GetBuffer(
                object.as_ptr(),
                &raw mut self.0,
                ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_FORMAT,
            )
        };
        if status != 0 {
            PyErr::take(object.py());
            return false;
        }
        let view = &self.0;
        view.ndim == 1 && view.itemsize == 4 && self.is_int32() && view.buf.cast::<i32>().is_aligned()
    }

    /// The numbers of the view that was taken. Take all that a call needs first, and read every other argument: no
    /// Python code runs between this and the end of the call.
    pub fn numbers(&self) -> &[i32] {
        if self.0.len == 0 {
            return &[];
        }
        // SAFETY: `take` saw aligned, contiguous 4-byte integers, `len` bytes of them, which the exporter keeps while
        // the view lives; nobody writes them while the interpreter is ours.
        unsafe { slice::from_raw_parts(self.0.buf.cast::<i32>(), self.0.len as usize / 4) }
    }

    fn give_back(&mut self) {
        if !self.0.obj.is_null() {
            // SAFETY: the view was filled by `PyObject_GetBuffer`; releasing it empties it, so that this happens once.
            unsafe { ffi::PyBuffer_Release(&raw mut self.0) }
        }
    }

    fn is_int32(&self) -> bool {
        if self.0.format.is_null() {
            return false;
        }
        // SAFETY: the format of a filled view is a text that ends in a null byte and lives as long as the view.
        let format = unsafe { CStr::from_ptr(self.0.format) }.to_bytes();
        let little = cfg!(target_endian = "little");
        match format {
            [b'i' | b'l'] | [b'@' | b'=', b'i' | b'l'] => true,
            [b'<', b'i' | b'l'] => little,
            [b'>' | b'!', b'i' | b'l'] => !little,
            _ => false,
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.give_back();
    }
}

type NewArray = unsafe extern "C" fn(
    *mut ffi::PyTypeObject,
    c_int,
    *const isize,
    c_int,
    *const isize,
    *mut c_void,
    c_int,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;
type PointerTo = unsafe extern "C" fn(*mut ffi::PyObject, *const isize) -> *mut c_void;
type SetBase = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

/// Makes int32 arrays of numbers that we have, by three functions of the C API of `numpy`.
pub struct Numpy {
    array: Py<PyType>,
    new: NewArray,
    pointer_to: PointerTo,
    set_base: SetBase,
}

/// The binary interface of `numpy` 2: functions keep their places in the table while it stays the same.
const NUMPY_ABI: u32 = 0x0200_0000;
const NPY_INT: c_int = 5;
const NPY_ARRAY_CARRAY: c_int = 0x0001 | 0x0100 | 0x0400;
/// From this many numbers on, an array takes over the vector instead of a copy.
const OWNED_FROM: usize = 1024;

impl Numpy {
    pub fn load(py: Python<'_>) -> PyResult<Self> {
        let numpy = py.import("numpy._core.multiarray")?;
        let capsule = numpy.getattr("_ARRAY_API")?;
        // SAFETY: NumPy puts its table of functions into this capsule, which has no name; the first answers the version
        // of the table's layout, and with this version the others are what their types here say.
        unsafe {
            let table = ffi::PyCapsule_GetPointer(capsule.as_ptr(), ptr::null()).cast::<*mut c_void>();
            if table.is_null() {
                return Err(PyErr::fetch(py));
            }
            let version = std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(*table)();
            if version != NUMPY_ABI {
                return Err(PyImportError::new_err(format!(
                    "the native core knows NumPy's binary interface {NUMPY_ABI:#x}, not {version:#x}"
                )));
            }
            Ok(Numpy {
                array: numpy.getattr("ndarray")?.cast_into::<PyType>()?.unbind(),
                new: std::mem::transmute::<*mut c_void, NewArray>(*table.add(93)),
                pointer_to: std::mem::transmute::<*mut c_void, PointerTo>(*table.add(160)),
                set_base: std::mem::transmute::<*mut c_void, SetBase>(*table.add(282)),
            })
        }
    }

    /// A new writable array of these numbers.
    pub fn array<'py>(&self, py: Python<'py>, numbers: Vec<i32>) -> PyResult<Bound<'py, PyAny>> {
        if numbers.len() >= OWNED_FROM {
            return self.array_over(py, numbers);
        }
        let (array, first) = (self.new_array(py, numbers.len(), ptr::null_mut())?, 0);
        // SAFETY: the array is new, contiguous, and holds exactly as many 4-byte numbers as the vector.
        unsafe {
            let start = (self.pointer_to)(array.as_ptr(), &raw const first).cast::<i32>();
            ptr::copy_nonoverlapping(numbers.as_ptr(), start, numbers.len());
        }
        Ok(array)
    }

    /// An array over the vector's own memory, which a capsule keeps until the last array over it is gone.
    fn array_over<'py>(&self, py: Python<'py>, numbers: Vec<i32>) -> PyResult<Bound<'py, PyAny>> {
        let kept = Box::into_raw(Box::new(numbers));
        // SAFETY: `kept` is a live box. From the capsule's birth on its destructor frees it; before, this function does.
        unsafe {
            let capsule = ffi::PyCapsule_New(kept.cast(), ptr::null(), Some(free_numbers));
            if capsule.is_null() {
                drop(Box::from_raw(kept));
                return Err(PyErr::fetch(py));
            }
            let capsule = Bound::from_owned_ptr(py, capsule);
            let array = self.new_array(py, (*kept).len(), (*kept).as_mut_ptr().cast())?;
            // `set_base` takes over the reference that `into_ptr` gives up, also where it fails.
            if (self.set_base)(array.as_ptr(), capsule.into_ptr()) != 0 {
                return Err(PyErr::fetch(py));
            }
            Ok(array)
        }
    }

    /// A new array with memory of its own, or over `data`.
    fn new_array<'py>(
        &self,
        py: Python<'py>,
        count: usize,
        data: *mut c_void,
    ) -> PyResult<Bound<'py, PyAny>> {
        let count = count as isize;
        let class = self.array.as_ptr().cast();
        // SAFETY: one dimension of `count` C ints, no strides, no prototype; answers a new reference, or null with an
        // exception set. `data` is null or holds `count` numbers for as long as the caller sees to it.
        unsafe {
            let array = (self.new)(
                class,
                1,
                &raw const count,
                NPY_INT,
                ptr::null(),
                data,
                0,
                if data.is_null() { 0 } else { NPY_ARRAY_CARRAY },
                ptr::null_mut(),
            );
            Bound::from_owned_ptr_or_err(py, array)
        }
    }
}

unsafe extern "C" fn free_numbers(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule was made over a box of this type by `array_over`, and dies once.
    unsafe {
        let kept = ffi::PyCapsule_GetPointer(capsule, ptr::null()).cast::<Vec<i32>>();
        if !kept.is_null() {
            drop(Box::from_raw(kept));
        }
    }
}
