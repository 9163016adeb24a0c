//! Networks from files, from memory, and from a reader of the caller.

use std::ffi::{c_char, c_void};
use std::io::{Error, ErrorKind, Read, Result};

use bytes::Bytes;

use super::border::{elements, path};
use super::network::{give, remat_network};
use super::options::{options, remat_options};
use super::status::{Failed, guard, guard_or, remat_status};
use crate::Network;

/// Reads at most so many bytes into a buffer: gives how many it read, 0 at the end, a negative number if it failed. It is called on
/// the thread that loads, and must return: no exception and no longjmp may leave it.
pub type remat_read = Option<unsafe extern "C" fn(user: *mut c_void, buffer: *mut c_void, bytes: usize) -> i64>;

/// Told that bytes which were lent are used no more, on whatever thread lets them go. It must return: no exception and no longjmp may leave
/// it.
pub type remat_release = Option<unsafe extern "C" fn(user: *mut c_void, data: *const c_void, bytes: usize)>;

/// Reads a model from a file: ONNX, or .remat, which the first bytes tell. Weights of an ONNX model in files beside it are read from its
/// folder and below.
///
/// options may be NULL, for those unless set. *network is to be freed with remat_network_free; after an error it is NULL.
///
/// Errors: REMAT_IO, REMAT_FORMAT; REMAT_VALUE for options that nothing can have, and for an output that the model does not have.
/// Operators that Remat does not have are errors of remat_session_new; remat_network_unsupported lists them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_open(
    path: *const c_char,
    options: *const remat_options,
    network: *mut *mut remat_network,
) -> remat_status {
    let load = || {
        // SAFETY: what the header asks for.
        let (path, (options, hooks)) = unsafe { (self::path(path, "path")?, self::options(options)?) };
        Ok((Network::open(path, options)?, hooks))
    };
    // SAFETY: what the header asks for.
    guard(|| unsafe { give(network, load) })
}

/// remat_network_open for the bytes of a file, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_from_bytes(
    data: *const c_void,
    bytes: usize,
    options: *const remat_options,
    network: *mut *mut remat_network,
) -> remat_status {
    let load = || {
        // SAFETY: what the header asks for.
        let (bytes, (options, hooks)) =
            unsafe { (elements(data.cast::<u8>(), bytes, "data")?, self::options(options)?) };
        Ok((Network::from_bytes(bytes, options)?, hooks))
    };
    // SAFETY: what the header asks for.
    guard(|| unsafe { give(network, load) })
}

/// remat_network_from_bytes without a copy: the bytes stay as they are until release is called with user, once, on whatever thread; after
/// an error before this returns. Otherwise that is when nothing can need them any more: with the first session of a model that is one
/// graph and leaves no extent open, and at the latest when the network and its sessions are freed. Weights are read from them into memory
/// of their own. release may be NULL, for bytes that stay as long as the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_from_borrowed(
    data: *const c_void,
    bytes: usize,
    release: remat_release,
    user: *mut c_void,
    options: *const remat_options,
    network: *mut *mut remat_network,
) -> remat_status {
    // what goes wrong, NULL for `network` too, releases it
    let lent = Lent { data: data.cast(), bytes, release, user };
    let load = || {
        // SAFETY: what the header asks for.
        let (_, (options, hooks)) = unsafe { (elements(lent.data, bytes, "data")?, self::options(options)?) };
        Ok((Network::from_shared(Bytes::from_owner(lent), options)?, hooks))
    };
    // SAFETY: what the header asks for.
    guard(|| unsafe { give(network, load) })
}

/// remat_network_open for what read gives until it ends, at most 2 GiB. user is passed to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_from_reader(
    read: remat_read,
    user: *mut c_void,
    options: *const remat_options,
    network: *mut *mut remat_network,
) -> remat_status {
    let load = || {
        let read = read.ok_or_else(|| Failed::value("`read` is NULL"))?;
        // SAFETY: what the header asks for.
        let (options, hooks) = unsafe { self::options(options) }?;
        Ok((Network::from_reader(Reader { read, user }, options)?, hooks))
    };
    // SAFETY: what the header asks for.
    guard(|| unsafe { give(network, load) })
}

/// Bytes of the caller's, which go back when this goes.
struct Lent {
    data: *const u8,
    bytes: usize,
    release: remat_release,
    user: *mut c_void,
}

// SAFETY: the bytes do not change while this lives, and `user` is only given back to the caller's function, which the header says is
// called on any thread.
unsafe impl Send for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: seen before anything is read; so many bytes that nobody writes, by the caller's promise.
        unsafe { elements(self.data, self.bytes, "data") }.unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(release) = self.release else { return };
        guard_or((), || {
            // SAFETY: the caller's function, with what it gave.
            unsafe { release(self.user, self.data.cast(), self.bytes) };
            Ok(())
        });
    }
}

/// The caller's function as a reader.
struct Reader {
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> i64,
    user: *mut c_void,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        // SAFETY: a function of the caller's for its own `user`; the buffer has so many bytes.
        let n = unsafe { (self.read)(self.user, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(n) {
            Ok(n) if n <= buffer.len() => Ok(n),
            Ok(n) => {
                let text = format!("the read callback gave {n} bytes where there was room for {}", buffer.len());
                Err(Error::new(ErrorKind::InvalidData, text))
            }
            Err(_) => Err(Error::other(format!("the read callback gave {n}"))),
        }
    }
}
