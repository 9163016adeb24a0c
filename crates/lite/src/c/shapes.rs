//! Shapes of a session's inputs.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use remat_types::Shape;

use super::border::{elements, reference, text};
use super::status::{Done, Failed, guard, guard_or, remat_status};
use crate::Shapes;

/// Shapes for inputs whose model leaves extents open.
pub struct remat_shapes(Mutex<Shapes>);

impl remat_shapes {
    pub(super) fn get(&self) -> Shapes {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn edit(&self, f: impl FnOnce(Shapes) -> Shapes) {
        let mut shapes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *shapes = f(std::mem::take(&mut *shapes));
    }
}

/// A number of elements from the caller. Errors (Value): negative.
pub(super) fn extent(n: i64, what: &str) -> Done<usize> {
    usize::try_from(n).map_err(|_| Failed::value(format!("{what} is {n}, which is no number of elements")))
}

/// Extents from the caller.
///
/// # Safety
///
/// `dims` is NULL or points to `rank` numbers.
pub(super) unsafe fn shape(dims: *const i64, rank: usize) -> Done<Shape> {
    // SAFETY: the caller's promise.
    let dims = unsafe { elements(dims, rank, "dims") }?;
    let dims: Vec<usize> =
        dims.iter().enumerate().map(|(axis, n)| extent(*n, &format!("`dims[{axis}]`"))).collect::<Done<_>>()?;
    Ok(Shape::from(dims))
}

/// Shapes without any, to be freed with remat_shapes_free. NULL without memory.
#[unsafe(no_mangle)]
pub extern "C" fn remat_shapes_new() -> *mut remat_shapes {
    guard_or(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(remat_shapes(Mutex::default())))))
}

/// Gives an extent that has a name in the model, as "batch".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_shapes_extent(shapes: *mut remat_shapes, name: *const c_char, n: i64) -> remat_status {
    guard(|| {
        // SAFETY: the caller's pointers are NULL or to what the header says.
        let (shapes, name) = unsafe { (reference(shapes, "shapes")?, text(name, "name")?) };
        let n = extent(n, &format!("extent `{name}`"))?;
        shapes.edit(|s| s.extent(name, n));
        Ok(())
    })
}

/// Gives the whole shape of an input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_shapes_input(
    shapes: *mut remat_shapes,
    input: *const c_char,
    dims: *const i64,
    rank: usize,
) -> remat_status {
    guard(|| {
        // SAFETY: the caller's pointers are NULL or to what the header says.
        let (shapes, name, shape) =
            unsafe { (reference(shapes, "shapes")?, text(input, "input")?, shape(dims, rank)?) };
        shapes.edit(|s| s.input(name, shape));
        Ok(())
    })
}

/// Frees shapes; sessions that were made for them stay. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_shapes_free(shapes: *mut remat_shapes) {
    if !shapes.is_null() {
        guard_or((), || {
            // SAFETY: of `remat_shapes_new`, and freed once, by the caller's promise.
            drop(unsafe { Box::from_raw(shapes) });
            Ok(())
        });
    }
}
