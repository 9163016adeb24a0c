//! Reads capsules of other libraries, and makes capsules of tensors.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use remat::{DType, HostTensor, Shape, Tensor};

use super::abi::{
    CPU, DlDevice, DlTensor, IS_COPIED, MAJOR, MINOR, Managed, ManagedVersioned, PLAIN, USED_PLAIN, USED_VERSIONED,
    VERSIONED, Version, dtype_of, type_of,
};
use crate::call;
use crate::device::PyDevice;
use crate::error::or_raise;
use crate::tensor::PyTensor;

/// A tensor with a copy of the data of an object that has `__dlpack__`, or of a capsule. Errors: BufferError for data
/// that are not on the host, or of a type without a dtype here; TypeError for an object without `__dlpack__`.
#[pyfunction]
pub(crate) fn from_dlpack(x: &Bound<'_, PyAny>, device: &Bound<'_, PyDevice>) -> PyResult<PyTensor> {
    let py = x.py();
    let capsule = match x.cast::<PyCapsule>() {
        Ok(c) => c.clone(),
        Err(_) => ask(x)?,
    };
    let host = read(&capsule)?;
    let device = device.get().0.clone();
    call::run(py, move || Tensor::from_host(&device, &host)).map(PyTensor::plain)
}

/// The capsule of an object: a versioned one if the object supports that form.
fn ask<'py>(x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyCapsule>> {
    let py = x.py();
    if !x.hasattr("__dlpack__")? {
        return Err(PyTypeError::new_err(format!("{} has no `__dlpack__`", x.get_type().name()?)));
    }
    let keywords = PyDict::new(py);
    keywords.set_item("max_version", (MAJOR, MINOR))?;
    let capsule = match x.call_method("__dlpack__", (), Some(&keywords)) {
        Err(e) if e.is_instance_of::<PyTypeError>(py) => x.call_method0("__dlpack__")?,
        other => other?,
    };
    Ok(capsule.cast_into::<PyCapsule>()?)
}

/// The content of a capsule, which this owns: dropping it calls the deleter.
enum Taken {
    Plain(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

impl Drop for Taken {
    fn drop(&mut self) {
        match self {
            // SAFETY: the capsule was renamed, so that this is the only owner, and the deleter is called once.
            Taken::Plain(m) => unsafe {
                if let Some(f) = m.as_ref().deleter {
                    f(m.as_ptr());
                }
            },
            // SAFETY: as above.
            Taken::Versioned(m) => unsafe {
                if let Some(f) = m.as_ref().deleter {
                    f(m.as_ptr());
                }
            },
        }
    }
}

impl Taken {
    /// Takes the content of a capsule. Errors: BufferError if it was taken before, or has another major version.
    fn of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Taken> {
        if let Ok(p) = capsule.pointer_checked(Some(VERSIONED)) {
            let m = p.cast::<ManagedVersioned>();
            // SAFETY: by its name the capsule holds a `ManagedVersioned`, whose version lies at the same place in all versions.
            let major = unsafe { m.as_ref().version.major };
            if major != MAJOR {
                return Err(PyBufferError::new_err(format!(
                    "DLPack version {major} is not supported, version {MAJOR} is"
                )));
            }
            rename(capsule, USED_VERSIONED)?;
            return Ok(Taken::Versioned(m));
        }
        let p = capsule
            .pointer_checked(Some(PLAIN))
            .map_err(|_| PyBufferError::new_err("the capsule holds no DLPack tensor, or one that was taken before"))?;
        rename(capsule, USED_PLAIN)?;
        Ok(Taken::Plain(p.cast()))
    }

    fn tensor(&self) -> &DlTensor {
        match self {
            // SAFETY: the structure lives until the deleter is called, which is when `self` ends.
            Taken::Plain(m) => unsafe { &m.as_ref().tensor },
            // SAFETY: as above.
            Taken::Versioned(m) => unsafe { &m.as_ref().tensor },
        }
    }
}

fn rename(capsule: &Bound<'_, PyCapsule>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: the object is a capsule, and the name lives for ever.
    match unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(capsule.py())),
    }
}

/// A copy of a capsule's elements, in row-major order.
fn read(capsule: &Bound<'_, PyCapsule>) -> PyResult<HostTensor> {
    let taken = Taken::of(capsule)?;
    let t = taken.tensor();
    if t.device.kind != CPU {
        let text = format!("the data lie on a device of kind {}, not on the host: copy them first", t.device.kind);
        return Err(PyBufferError::new_err(text));
    }
    let ty = t.dtype;
    let dtype = dtype_of(ty).ok_or_else(|| {
        PyBufferError::new_err(format!(
            "there is no dtype for elements of code {}, {} bits and {} lanes",
            ty.code, ty.bits, ty.lanes
        ))
    })?;
    let ndim = usize::try_from(t.ndim).map_err(|_| PyBufferError::new_err("a negative number of axes"))?;
    let bad = |_| PyBufferError::new_err("a negative extent");
    let ints = |p: *const i64| match ndim {
        0 => &[][..],
        // SAFETY: DLPack has `ndim` integers there.
        _ => unsafe { std::slice::from_raw_parts(p, ndim) },
    };
    if ndim > 0 && t.shape.is_null() {
        return Err(PyBufferError::new_err("axes without extents"));
    }
    let shape = ints(t.shape).iter().map(|d| usize::try_from(*d)).collect::<Result<Vec<_>, _>>().map_err(bad)?;
    let strides: Vec<i64> = if t.strides.is_null() { row_major(&shape) } else { ints(t.strides).to_vec() };
    let mut host = or_raise(capsule.py(), HostTensor::zeros(dtype, Shape::from(shape.as_slice())))?;
    if host.elems() == 0 {
        return Ok(host);
    }
    if t.data.is_null() {
        return Err(PyBufferError::new_err("the elements have no address"));
    }
    // SAFETY: the offset is the producer's own, from the start of its data.
    let data = unsafe { t.data.cast::<u8>().add(t.byte_offset as usize) };
    // SAFETY: the producer says that elements lie at these strides from `data`, and keeps them until the deleter is called.
    unsafe { gather(data, &shape, &strides, dtype, host.bytes_mut()) };
    if dtype == DType::Bool {
        // other libraries may hold any byte for true
        host.bytes_mut().iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    Ok(host)
}

fn row_major(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for k in (1..shape.len()).rev() {
        strides[k - 1] = strides[k] * shape[k] as i64;
    }
    strides
}

/// Copies strided elements to `to`, row by row.
///
/// # Safety
/// `data` points to elements of `dtype` at every place that `shape` and `strides` (in elements) name. No extent is 0,
/// and `to` has room for all elements.
unsafe fn gather(data: *const u8, shape: &[usize], strides: &[i64], dtype: DType, to: &mut [u8]) {
    let size = dtype.size_bytes();
    // the longest tail of axes that is contiguous in row-major order is copied at once
    let whole = row_major(shape);
    let mut tail = shape.len();
    while tail > 0 && (strides[tail - 1] == whole[tail - 1] || shape[tail - 1] == 1) {
        tail -= 1;
    }
    let run = shape[tail..].iter().product::<usize>() * size;
    let mut at = vec![0usize; tail];
    for chunk in to.chunks_exact_mut(run) {
        let offset: i64 = at.iter().zip(strides).map(|(i, s)| *i as i64 * s).sum();
        // SAFETY: by the caller's promise; the run lies together.
        let from = unsafe { std::slice::from_raw_parts(data.offset(offset as isize * size as isize), run) };
        chunk.copy_from_slice(from);
        for k in (0..tail).rev() {
            at[k] += 1;
            if at[k] < shape[k] {
                break;
            }
            at[k] = 0;
        }
    }
}

/// The memory that a capsule made here owns.
struct Owned {
    host: HostTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Owned {
    fn of(host: HostTensor) -> Box<Owned> {
        let shape = host.shape().iter().map(|d| *d as i64).collect();
        let strides = row_major(host.shape().dims());
        Box::new(Owned { host, shape, strides })
    }

    fn tensor(&mut self) -> DlTensor {
        let dtype = type_of(self.host.dtype());
        DlTensor {
            data: self.host.bytes_mut().as_mut_ptr().cast(),
            device: DlDevice { kind: CPU, id: 0 },
            ndim: self.shape.len() as i32,
            dtype,
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        }
    }
}

unsafe extern "C" fn delete_plain(m: *mut Managed) {
    // SAFETY: made by `export` from two boxes, and called once by whoever owns the capsule's content.
    unsafe {
        let m = Box::from_raw(m);
        drop(Box::from_raw(m.context.cast::<Owned>()));
    }
}

unsafe extern "C" fn delete_versioned(m: *mut ManagedVersioned) {
    // SAFETY: as above.
    unsafe {
        let m = Box::from_raw(m);
        drop(Box::from_raw(m.context.cast::<Owned>()));
    }
}

/// Frees the content of a capsule that no consumer took.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule; one that was taken has another name, and is left alone. The checks of the
    // name set no exception.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete_plain(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        }
    }
}

fn export(py: Python<'_>, host: HostTensor, is_versioned: bool) -> PyResult<Bound<'_, PyAny>> {
    let mut owned = Owned::of(host);
    let tensor = owned.tensor();
    let context = Box::into_raw(owned).cast::<c_void>();
    let (pointer, name): (*mut c_void, &CStr) = if is_versioned {
        let version = Version { major: MAJOR, minor: MINOR };
        let m = ManagedVersioned { version, context, deleter: Some(delete_versioned), flags: IS_COPIED, tensor };
        (Box::into_raw(Box::new(m)).cast(), VERSIONED)
    } else {
        let m = Managed { tensor, context, deleter: Some(delete_plain) };
        (Box::into_raw(Box::new(m)).cast(), PLAIN)
    };
    // SAFETY: the pointer is not null, the name lives for ever, and the destructor fits both forms.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy))) }
}

#[pymethods]
impl PyTensor {
    /// A DLPack capsule with a copy of the value on the host. The copy belongs to the consumer. Waits.
    ///
    /// Errors: BufferError with `copy=False`, for another device than the host, or a tensor that requires a gradient.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some_and(|s| !s.is_none()) {
            return Err(PyBufferError::new_err("the host has no streams"));
        }
        if copy == Some(false) {
            let text = "the bytes lie in the arena of a device, which moves them: only a copy can be given";
            return Err(PyBufferError::new_err(text));
        }
        if dl_device.is_some_and(|(kind, _)| kind != CPU) {
            return Err(PyBufferError::new_err("a copy can be made on the host only"));
        }
        let t = self.tensor(py)?;
        if t.is_tracked() {
            return Err(PyBufferError::new_err("a tensor that requires a gradient is not exported; `detach` it first"));
        }
        let mut host = call::run(py, move || t.to_host())?;
        // a small constant is shared with the library, which must not see a consumer's writes
        or_raise(py, host.try_bytes_mut().map(drop))?;
        export(py, host, max_version.is_some_and(|(major, _)| major >= MAJOR))
    }

    /// The host: kind 1, device 0.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }
}
