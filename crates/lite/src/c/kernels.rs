//! Kernels of the caller's.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use remat_ops::{EvalCx, Op};
use remat_runtime::device::check_written_bools;
use remat_runtime::{HostKernel, KernelRegistry};
use remat_types::{DType, Error, ErrorKind, Result};

use super::border::{elements, text};
use super::dtype::remat_dtype;
use super::ports::as_i64;
use super::status::{Done, Failed};

/// A tensor that a kernel reads or writes, row-major.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct remat_operand {
    /// Its elements. Those of an input must not be written.
    pub data: *mut c_void,
    /// Bytes of all elements.
    pub bytes: usize,
    /// Its extents.
    pub dims: *const i64,
    /// How many extents it has.
    pub rank: usize,
    /// The type of its elements.
    pub dtype: remat_dtype,
    /// 0.
    pub reserved: i32,
}

/// Computes an operator: writes all elements of the outputs, and gives 0, or another number that its error tells. `op` is the operator with
/// its parameters as JSON. It is called on whatever thread runs, for several sessions at once if they run at once. What it is given ends
/// with the call. It must return: no exception and no longjmp may leave it.
pub type remat_kernel_run = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        op: *const c_char,
        inputs: *const remat_operand,
        input_count: usize,
        outputs: *const remat_operand,
        output_count: usize,
    ) -> i32,
>;

/// A kernel of the caller's for one operator, in place of the one that is there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct remat_kernel {
    /// The operator's name, as `remat ops` has it.
    pub op: *const c_char,
    /// The kernel. It is called until the last network and session with these options are freed.
    pub run: remat_kernel_run,
    /// Passed to run.
    pub user: *mut c_void,
}

#[derive(Debug)]
struct CallersKernel(remat_kernel);

// SAFETY: the name is not read again, and `user` is only given back to the caller's function, which the header says is called on any thread.
unsafe impl Send for CallersKernel {}
// SAFETY: as for `Send`.
unsafe impl Sync for CallersKernel {}

impl HostKernel for CallersKernel {
    fn run(&self, op: &dyn Op, cx: &mut EvalCx<'_>) -> Result<()> {
        let no_function = || Error::new(ErrorKind::Internal, "a kernel without a function");
        let (run, user) = (self.0.run.ok_or_else(no_function)?, self.0.user);
        let description = CString::new(op.to_json()?.to_string())
            .map_err(|e| Error::new(ErrorKind::Internal, "a description with a zero byte").with_source(e))?;
        let dims: Vec<Vec<i64>> = (cx.x.iter().map(|x| x.shape()))
            .chain(cx.y.iter().map(|y| y.shape()))
            .map(|s| s.dims().iter().map(|d| as_i64(*d)).collect())
            .collect();
        let (x_dims, y_dims) = dims.split_at(cx.x.len());
        let operand = |dtype: DType, dims: &[i64], data: *mut u8, bytes: usize| remat_operand {
            data: data.cast(),
            bytes,
            dims: dims.as_ptr(),
            rank: dims.len(),
            dtype: remat_dtype::from(Some(dtype)),
            reserved: 0,
        };
        let mut x = Vec::with_capacity(cx.x.len());
        for (input, dims) in cx.x.iter().zip(x_dims) {
            let bytes = input.element_bytes()?;
            x.push(operand(input.dtype(), dims, bytes.as_ptr().cast_mut(), bytes.len()));
        }
        let mut y = Vec::with_capacity(cx.y.len());
        for (out, dims) in cx.y.iter_mut().zip(y_dims) {
            let dtype = out.dtype();
            let bytes = out.bytes_mut();
            // a kernel that leaves bytes out must not give another run's
            bytes.fill(0);
            y.push(operand(dtype, dims, bytes.as_mut_ptr(), bytes.len()));
        }
        // SAFETY: the caller's function with its own `user`; all that it is pointed to outlives the call, and it writes to outputs alone.
        let code = unsafe { run(user, description.as_ptr(), x.as_ptr(), x.len(), y.as_ptr(), y.len()) };
        if code != 0 {
            return Err(Error::new(ErrorKind::Value, format!("the caller's kernel gave {code}")));
        }
        check_written_bools(cx)
    }
}

/// Kernels of the caller's. Errors (Value): one without a name or a function; a name that no operator has, or that comes twice.
///
/// # Safety
///
/// `kernels` is NULL or points to `n` of them, whose names are text.
pub(super) unsafe fn registry(kernels: *const remat_kernel, n: usize) -> Done<KernelRegistry> {
    let mut all = KernelRegistry::default();
    if kernels.is_null() && n > 0 {
        return Err(Failed::value(format!("`kernels` is NULL, and `kernel_count` is {n}")));
    }
    if kernels.is_null() {
        return Ok(all);
    }
    // SAFETY: the caller's promise.
    for k in unsafe { elements(kernels, n, "kernels") }? {
        // SAFETY: the caller's promise.
        let name = unsafe { text(k.op, "op of a kernel") }?;
        if k.run.is_none() {
            return Err(Failed::value(format!("the kernel of `{name}` has no function")));
        }
        all = all.with_foreign(name, Arc::new(CallersKernel(*k)))?;
    }
    Ok(all)
}
