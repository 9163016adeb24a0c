//! A network, and the facts about it that need no weights.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Arc;

use super::border::{c_text, put, reference, text, write};
use super::hooks::Hooks;
use super::ports::{CPort, remat_port};
use super::status::{Done, Failed, guard, guard_or, remat_status};
use crate::Network;

/// A model that was read. Any number of threads may use a network at once.
pub struct remat_network {
    pub(super) network: Network,
    pub(super) hooks: Hooks,
    pub(super) inputs: Arc<[CPort]>,
    pub(super) outputs: Arc<[CPort]>,
    unsupported: Vec<CString>,
    name: CString,
    producer: CString,
    metadata: Vec<(String, CString)>,
}

impl remat_network {
    fn new(network: Network, hooks: Hooks) -> remat_network {
        let ports = |all: &[crate::Port]| all.iter().map(CPort::new).collect();
        let about = network.about();
        remat_network {
            inputs: ports(network.inputs()),
            outputs: ports(network.outputs()),
            unsupported: network.unsupported().iter().map(|u| c_text(&u.to_string())).collect(),
            name: c_text(&about.name),
            producer: c_text(&about.producer),
            metadata: about.metadata.iter().map(|(k, v)| (k.clone(), c_text(v))).collect(),
            network,
            hooks,
        }
    }
}

/// Gives the caller a network in `*out`, which is NULL after an error.
///
/// # Safety
///
/// `out` is NULL or points to memory for a pointer.
pub(super) unsafe fn give(out: *mut *mut remat_network, load: impl FnOnce() -> Done<(Network, Hooks)>) -> Done {
    // SAFETY: the caller's promise.
    unsafe { put(out, ptr::null_mut(), "network") }?;
    let (network, hooks) = load()?;
    let network = remat_network::new(network, hooks);
    // SAFETY: the caller's promise.
    unsafe { put(out, Arc::into_raw(Arc::new(network)).cast_mut(), "network") }
}

/// A number of ports, 0 for NULL.
///
/// # Safety
///
/// `network` is NULL or one that was not freed.
unsafe fn count(network: *const remat_network, of: impl FnOnce(&remat_network) -> usize) -> usize {
    // SAFETY: the caller's promise; networks never change.
    guard_or(0, || Ok(of(unsafe { reference(network, "network") }?)))
}

/// # Safety
///
/// `network` is NULL or one that was not freed, `port` NULL or a struct of the size that it says.
unsafe fn port(
    network: *const remat_network,
    i: usize,
    port: *mut remat_port,
    what: &str,
    of: impl FnOnce(&remat_network) -> &[CPort],
) -> remat_status {
    guard(|| {
        // SAFETY: the caller's promise; networks never change.
        let all = of(unsafe { reference(network, "network") }?);
        let found = all.get(i).ok_or_else(|| {
            Failed::new(remat_status::REMAT_INDEX, format!("{what} {i} of a network that has {}", all.len()))
        })?;
        // SAFETY: the caller's promise.
        unsafe { write(port, found.seen()) }
    })
}

/// How many inputs there are; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_input_count(network: *const remat_network) -> usize {
    // SAFETY: what the header asks for.
    unsafe { count(network, |n| n.inputs.len()) }
}

/// Describes an input. The port's struct_size is set before. Errors: REMAT_INDEX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_input(
    network: *const remat_network,
    index: usize,
    port: *mut remat_port,
) -> remat_status {
    // SAFETY: what the header asks for.
    unsafe { self::port(network, index, port, "input", |n| &n.inputs) }
}

/// How many outputs sessions compute; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_output_count(network: *const remat_network) -> usize {
    // SAFETY: what the header asks for.
    unsafe { count(network, |n| n.outputs.len()) }
}

/// Describes an output. The port's struct_size is set before. Errors: REMAT_INDEX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_output(
    network: *const remat_network,
    index: usize,
    port: *mut remat_port,
) -> remat_status {
    // SAFETY: what the header asks for.
    unsafe { self::port(network, index, port, "output", |n| &n.outputs) }
}

/// How many nodes cannot run; 0 for NULL. A network that has one has no sessions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_unsupported_count(network: *const remat_network) -> usize {
    // SAFETY: what the header asks for.
    unsafe { count(network, |n| n.unsupported.len()) }
}

/// Text that belongs to the network, NULL if it has none.
///
/// # Safety
///
/// `network` is NULL or one that was not freed.
unsafe fn words(
    network: *const remat_network,
    of: impl FnOnce(&remat_network) -> Done<*const c_char>,
) -> *const c_char {
    // SAFETY: the caller's promise; networks never change.
    guard_or(ptr::null(), || of(unsafe { reference(network, "network") }?))
}

/// Names a node that cannot run, its operator, and the most similar operator that can. NULL if there is none of that index. The text
/// stays until the network is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_unsupported(network: *const remat_network, index: usize) -> *const c_char {
    // SAFETY: what the header asks for.
    unsafe { words(network, |n| Ok(n.unsupported.get(index).map_or(ptr::null(), |t| t.as_ptr()))) }
}

/// The name of the model's graph. NULL for NULL; the text stays until the network is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_name(network: *const remat_network) -> *const c_char {
    // SAFETY: what the header asks for.
    unsafe { words(network, |n| Ok(n.name.as_ptr())) }
}

/// The program that wrote the file, and its version. NULL for NULL; the text stays until the network is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_producer(network: *const remat_network) -> *const c_char {
    // SAFETY: what the header asks for.
    unsafe { words(network, |n| Ok(n.producer.as_ptr())) }
}

/// The file's metadata under a key. NULL if there are none; the text stays until the network is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_metadata(network: *const remat_network, key: *const c_char) -> *const c_char {
    let find = |n: &remat_network| {
        // SAFETY: what the header asks for.
        let key = unsafe { text(key, "key") }?;
        Ok(n.metadata.iter().find(|(k, _)| k == key).map_or(ptr::null(), |(_, v)| v.as_ptr()))
    };
    // SAFETY: what the header asks for.
    unsafe { words(network, find) }
}

/// Frees a network; its sessions stay and run. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_network_free(network: *mut remat_network) {
    if !network.is_null() {
        guard_or((), || {
            // SAFETY: of `give`, and freed once, by the caller's promise.
            drop(unsafe { Arc::from_raw(network) });
            Ok(())
        });
    }
}
