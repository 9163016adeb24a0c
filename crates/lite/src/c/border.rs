//! Checks of arguments from C: pointers, text, structs of other versions.

use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;

use super::status::{Done, Failed};

/// The largest struct that is believed: a size above it is no size.
const MOST_STRUCT_BYTES: usize = 4096;

/// A struct whose first field is its size, as the program knows it that was compiled with some version of the header.
///
/// # Safety
///
/// `repr(C)` without padding; its first field is a `usize`.
pub(super) unsafe trait Versioned: Copy {
    const NAME: &str;
    /// Its size in the first version of the interface: to the end of the field that was the last then.
    const FIRST_BYTES: usize;
}

/// One that comes from the caller.
///
/// # Safety
///
/// Of numbers and pointers alone: any bytes are a value.
pub(super) unsafe trait Readable: Versioned {}

/// Errors (Value): NULL, or an address where no `T` may lie.
pub(super) fn checked<T>(p: *const T, what: &str) -> Done {
    if p.is_null() {
        return Err(Failed::value(format!("`{what}` is NULL")));
    }
    if !p.addr().is_multiple_of(align_of::<T>()) {
        return Err(Failed::value(format!("`{what}` is at {p:p}, which is not aligned to {} bytes", align_of::<T>())));
    }
    Ok(())
}

/// The target of `p`.
///
/// # Safety
///
/// `p` is NULL or points to a `T` that nobody writes while the result lives.
pub(super) unsafe fn reference<'a, T>(p: *const T, what: &str) -> Done<&'a T> {
    checked(p, what)?;
    // SAFETY: neither NULL nor misaligned; the rest is the caller's promise.
    Ok(unsafe { &*p })
}

/// Writes `value` to where `p` points.
///
/// # Safety
///
/// `p` is NULL or points to memory for a `T`.
pub(super) unsafe fn put<T>(p: *mut T, value: T, what: &str) -> Done {
    checked(p, what)?;
    // SAFETY: neither NULL nor misaligned; the rest is the caller's promise.
    unsafe { p.write(value) };
    Ok(())
}

/// Elements that the caller has; none may be at NULL.
///
/// # Safety
///
/// `p` is NULL or points to `n` elements that nobody writes while the result lives.
pub(super) unsafe fn elements<'a, T>(p: *const T, n: usize, what: &str) -> Done<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    checked(p, what)?;
    is_addressable::<T>(n, what)?;
    // SAFETY: neither NULL, misaligned nor too long; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(p, n) })
}

/// Errors (Value) for more elements than an address space has.
pub(super) fn is_addressable<T>(n: usize, what: &str) -> Done {
    match n.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(Failed::value(format!("`{what}` cannot have {n} elements of {} bytes", size_of::<T>()))),
    }
}

/// Text of the caller's. Errors (Value): NULL, not UTF-8.
///
/// # Safety
///
/// `p` is NULL or points to text that ends with a zero byte, which nobody writes while the result lives.
pub(super) unsafe fn text<'a>(p: *const c_char, what: &str) -> Done<&'a str> {
    checked(p, what)?;
    // SAFETY: not NULL; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(p) };
    text.to_str().map_err(|_| Failed::value(format!("`{what}` is \"{}\", which is not UTF-8", text.to_string_lossy())))
}

/// A path of the caller's, of any bytes where the system has such paths.
///
/// # Safety
///
/// As [`text`].
pub(super) unsafe fn path(p: *const c_char, what: &str) -> Done<PathBuf> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        checked(p, what)?;
        // SAFETY: not NULL; the rest is the caller's promise.
        let bytes = unsafe { CStr::from_ptr(p) }.to_bytes();
        Ok(std::ffi::OsStr::from_bytes(bytes).into())
    }
    #[cfg(not(unix))]
    {
        // SAFETY: the caller's promise.
        unsafe { text(p, what) }.map(PathBuf::from)
    }
}

/// Text for C, which ends at a zero byte: one within it becomes U+FFFD.
pub(super) fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_else(|_| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default())
}

/// The size that the caller gives a struct. Errors (Value): NULL, misaligned, smaller than it ever was or absurdly large.
///
/// # Safety
///
/// `p` is NULL or points to a `T` of some version.
unsafe fn struct_size<T: Versioned>(p: *const T) -> Done<usize> {
    checked(p, T::NAME)?;
    // SAFETY: neither NULL nor misaligned, and every version begins with its size.
    let size = unsafe { p.cast::<usize>().read() };
    is_struct_size::<T>(size)
}

/// Errors (Value) for what no version of the struct has as its size.
pub(super) fn is_struct_size<T: Versioned>(size: usize) -> Done<usize> {
    // fields are added whole, so a size ends where a struct may
    if (T::FIRST_BYTES..=MOST_STRUCT_BYTES).contains(&size) && size.is_multiple_of(align_of::<T>()) {
        return Ok(size);
    }
    let (name, least) = (T::NAME, T::FIRST_BYTES);
    Err(Failed::value(format!("`struct_size` is {size}: set it to sizeof({name}), which was never less than {least}")))
}

/// A struct of the caller's, with `defaults` for fields that a program of an older header does not have.
///
/// Errors (Value): a wrong size; fields that this version does not have and that are set.
///
/// # Safety
///
/// `p` is NULL or points to as many bytes as its first field says.
pub(super) unsafe fn read<T: Readable>(p: *const T, defaults: T) -> Done<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { struct_size(p) }?;
    let mut value = defaults;
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are there at both, by the caller's promise and by its bound; any bytes are a `T`.
    unsafe { p.cast::<u8>().copy_to_nonoverlapping((&raw mut value).cast(), known) };
    // SAFETY: the caller's struct has `size` bytes.
    let rest = unsafe { std::slice::from_raw_parts(p.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|b| *b != 0) {
        let text = format!("{} has fields set that this version of the library does not know", T::NAME);
        return Err(Failed::value(text));
    }
    Ok(value)
}

/// Writes a struct of the caller's: the fields that it has, zeros to those that this version does not know. Its size stays.
///
/// # Safety
///
/// `p` is NULL or points to as many writable bytes as its first field says.
pub(super) unsafe fn write<T: Versioned>(p: *mut T, value: T) -> Done {
    // SAFETY: the caller's promise.
    let size = unsafe { struct_size(p) }?;
    // SAFETY: the caller's struct has `size` bytes.
    unsafe { write_sized(p, value, size) };
    Ok(())
}

/// [`write`] for a struct that does not have its size yet.
///
/// # Safety
///
/// `p` is aligned and points to `size` writable bytes, at least those of a `usize`.
pub(super) unsafe fn write_sized<T: Versioned>(p: *mut T, value: T, size: usize) {
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are there at both; the rest of the caller's struct is `size - known` bytes.
    unsafe {
        (&raw const value).cast::<u8>().copy_to_nonoverlapping(p.cast(), known);
        p.cast::<u8>().add(known).write_bytes(0, size - known);
        p.cast::<usize>().write(size);
    }
}
