//! Networks from files, memory, and what the caller reads.

use std::ffi::{c_char, c_void};
use std::io::{Error, ErrorKind, Read, Result};

use super::border::{elements, path};
use super::network::{give, remat_network};
use super::options::{options, remat_options};
use super::status::{Failed, guard, remat_status};
use crate::Network;

/// Reads at most so many bytes into a buffer: gives how many it read, 0 at the end, a negative number if it failed. It is called on
/// the thread that loads, and must return: no exception and no longjmp may leave it.
pub type remat_read = Option<unsafe extern "C" fn(user: *mut c_void, buffer: *mut c_void, bytes: usize) -> i64>;

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
        let (path, options) = unsafe { (self::path(path, "path")?, self::options(options)?) };
        Ok(Network::open(path, options)?)
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
        let (bytes, options) = unsafe { (elements(data.cast::<u8>(), bytes, "data")?, self::options(options)?) };
        Ok(Network::from_bytes(bytes, options)?)
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
        let options = unsafe { self::options(options) }?;
        Ok(Network::from_reader(Reader { read, user }, options)?)
    };
    // SAFETY: what the header asks for.
    guard(|| unsafe { give(network, load) })
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
