//! A network for one set of input shapes, with memory of its own.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use remat_types::{DType, ErrorKind, Fact, HostTensor};

use super::border::{checked, put, reference, text};
use super::dtype::dtype_of;
use super::gate::{Entered, Gate};
use super::hooks::Hooks;
use super::network::remat_network;
use super::ports::CPort;
use super::runner::Runner;
use super::shapes::{remat_shapes, shape};
use super::status::{Done, Failed, guard, guard_or, remat_status};
use crate::{Session, Shapes};

/// A network for one set of input shapes. One thread at a time may use a session: a call while another thread is in one, or while it
/// runs in the background, is REMAT_BUSY.
pub struct remat_session {
    pub(super) gate: Gate,
    pub(super) is_planned: bool,
    pub(super) runner: Mutex<Option<Runner>>,
    /// The gate lets one in: nobody waits here.
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) session: Session,
    pub(super) hooks: Hooks,
    inputs: Arc<[CPort]>,
    pub(super) outputs: Arc<[CPort]>,
    /// Of a model that is no single graph: what the caller writes to, by input. A run takes copies.
    own: Vec<Option<Own>>,
    /// The state of each output.
    pub(super) values: Vec<OutputState>,
    /// Extents of outputs that were asked for, until the next run.
    pub(super) dims: Vec<Option<Vec<i64>>>,
}

/// Where the value of an output is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputState {
    /// No run has succeeded.
    None,
    Session,
    /// The last run wrote it to the caller's memory.
    Caller,
}

/// Memory of an input, aligned for all element types.
struct Own {
    fact: Fact,
    words: Vec<u64>,
}

impl Own {
    fn new(fact: Fact) -> Done<Own> {
        // checks the size, and is zeros
        let zeros = HostTensor::zeros(fact.dtype, fact.shape.clone())?;
        let words = remat_types::vec_for::<u64>(zeros.bytes().len().div_ceil(8))?;
        let mut own = Own { fact, words };
        own.words.resize(zeros.bytes().len().div_ceil(8), 0);
        Ok(own)
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.fact.bytes()]
    }
}

impl Inner {
    fn new(network: &remat_network, session: Session) -> Done<Inner> {
        let facts = (0..network.inputs.len()).map(|i| session.fact(i));
        let own = |f: Option<Fact>| f.filter(|_| !session.is_planned()).map(Own::new).transpose();
        let n = session.outputs().len();
        Ok(Inner {
            inputs: network.inputs.clone(),
            outputs: network.outputs.clone(),
            hooks: network.hooks,
            own: facts.map(own).collect::<Done<_>>()?,
            values: vec![OutputState::None; n],
            dims: vec![None; n],
            session,
        })
    }

    fn input(&self, name: &str) -> Done<usize> {
        find(&self.inputs, name, "input")
    }

    pub(super) fn output(&self, name: &str) -> Done<usize> {
        find(&self.outputs, name, "output")
    }

    /// The fact of an input that the caller takes to be of some type. Errors: Value if it is no tensor; DType.
    fn fact(&self, i: usize, name: &str, dtype: i32) -> Done<Fact> {
        let none = || Failed::value(format!("input `{name}` is no tensor, and only tensors can be set"));
        let fact = self.session.fact(i).ok_or_else(none)?;
        is_of(dtype, fact.dtype, &format!("input `{name}`"))?;
        Ok(fact)
    }

    /// The bytes of an input that is a tensor: they stay where they are.
    pub(super) fn bytes(&mut self, i: usize) -> Done<&mut [u8]> {
        match self.session.runtime() {
            Some(run) => Ok(run.input_mut(i)?),
            None => {
                let own = self.own.get_mut(i).and_then(Option::as_mut);
                own.map(Own::bytes).ok_or_else(|| Failed::value("an input that is no tensor"))
            }
        }
    }

    /// Before a run: ends the loans of outputs, also if the run then fails.
    pub(super) fn begin(&mut self) -> Done {
        self.values.fill(OutputState::None);
        self.dims.fill(None);
        for i in 0..self.own.len() {
            let Some(own) = &mut self.own[i] else { continue };
            let (dtype, shape) = (own.fact.dtype, own.fact.shape.clone());
            let name = &self.session.inputs()[i].name.clone();
            let host = HostTensor::from_bytes(dtype, shape, own.bytes()).map_err(|e| match e.kind() {
                // a bool of another byte, which is an argument of the caller's
                ErrorKind::Format => Failed::value(format!("input `{name}`: {e}")),
                _ => e.context(format!("input `{name}`")).into(),
            })?;
            self.session.set_input(name, &host)?;
        }
        Ok(())
    }

    pub(super) fn run(&mut self) -> Done {
        self.begin()?;
        self.session.run()?;
        self.values.fill(OutputState::Session);
        Ok(())
    }
}

fn find(ports: &[CPort], name: &str, what: &str) -> Done<usize> {
    let found = ports.iter().position(|p| p.name.to_bytes() == name.as_bytes());
    found.ok_or_else(|| {
        let names: Vec<_> = ports.iter().map(|p| p.name.to_string_lossy()).collect();
        crate::shapes::unknown(what, name, names.iter().map(|n| &**n)).into()
    })
}

/// Errors (DType) if the caller takes `what` to be of another type than it is.
pub(super) fn is_of(claimed: i32, dtype: DType, what: &str) -> Done {
    if dtype_of(claimed)? == Some(dtype) {
        return Ok(());
    }
    let claimed = dtype_of(claimed)?.map_or("none", DType::name);
    Err(Failed::new(remat_status::REMAT_DTYPE, format!("{what} is of {dtype}, not of {claimed}")))
}

impl remat_session {
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session in a call of this thread. It lives until the call ends even if another thread frees it by mistake.
pub(super) fn entered(session: &remat_session) -> Done<(Entered<'_>, MutexGuard<'_, Inner>)> {
    let entered = session.gate.enter()?;
    Ok((entered, session.inner()))
}

/// A handle of the caller's, kept alive.
///
/// # Safety
///
/// `session` is NULL or was given by `remat_session_new` and not freed.
pub(super) unsafe fn kept(session: *const remat_session) -> Done<Arc<remat_session>> {
    // SAFETY: the caller's promise.
    unsafe { reference(session, "session") }?;
    // SAFETY: of `Arc::into_raw`, and alive, by the caller's promise.
    unsafe {
        Arc::increment_strong_count(session);
        Ok(Arc::from_raw(session))
    }
}

/// A session of a network for inputs of these shapes. shapes may be NULL if the model leaves no extent open.
///
/// The first session of a set of shapes plans it; further ones share plan and weights. *session is to be freed with
/// remat_session_free; after an error it is NULL. The network may be freed before.
///
/// Errors: REMAT_VALUE for extents that are open, unknown names, and operators that Remat does not have; REMAT_SHAPE, REMAT_DTYPE for
/// what the model does not take; REMAT_BUDGET if no order of calls keeps to the budget; REMAT_IO without memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_new(
    network: *const remat_network,
    shapes: *const remat_shapes,
    session: *mut *mut remat_session,
) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        unsafe { put(session, ptr::null_mut(), "session") }?;
        // SAFETY: what the header asks for; networks never change, and shapes are behind a lock.
        let network = unsafe { reference(network, "network") }?;
        let shapes = if shapes.is_null() {
            Shapes::new()
        } else {
            // SAFETY: as before.
            unsafe { reference(shapes, "shapes") }?.get()
        };
        let inner = Inner::new(network, network.network.session(&shapes)?)?;
        let made = remat_session {
            gate: Gate::default(),
            is_planned: inner.session.is_planned(),
            runner: Mutex::default(),
            inner: Mutex::new(inner),
        };
        // SAFETY: what the header asks for.
        unsafe { put(session, Arc::into_raw(Arc::new(made)).cast_mut(), "session") }
    })
}

/// Frees a session. A run in the background, its callback and a call of another thread are waited for; what this is called in, as the
/// session's own callback, goes on and keeps the memory until it returns. done is not called afterwards. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_free(session: *mut remat_session) {
    if session.is_null() {
        return;
    }
    guard_or((), || {
        // SAFETY: of `remat_session_new`, and freed once, by the caller's promise.
        let session = unsafe { Arc::from_raw(session) };
        session.gate.close();
        let runner = session.runner.lock().unwrap_or_else(PoisonError::into_inner).take();
        runner.into_iter().for_each(Runner::end);
        Ok(())
    });
}

/// The memory of an input, to be written before a run, as the type that the caller takes it to be of. It is zeros at first, stays where
/// it is until the session is freed, and keeps what was written. It must not be touched while the session runs.
///
/// bytes may be NULL. Errors: REMAT_VALUE for an unknown name, and an input that is no tensor; REMAT_DTYPE for another type; REMAT_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_input_data(
    session: *mut remat_session,
    name: *const c_char,
    dtype: i32,
    data: *mut *mut c_void,
    bytes: *mut usize,
) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        unsafe { put(data, ptr::null_mut(), "data") }?;
        // SAFETY: what the header asks for.
        let (session, name) = unsafe { (kept(session)?, text(name, "name")?) };
        let (_entered, mut inner) = entered(&session)?;
        let i = inner.input(name)?;
        inner.fact(i, name, dtype)?;
        let all = inner.bytes(i)?;
        // SAFETY: what the header asks for.
        unsafe {
            if !bytes.is_null() {
                put(bytes, all.len(), "bytes")?;
            }
            put(data, all.as_mut_ptr().cast(), "data")
        }
    })
}

/// Copies a tensor to an input. Its type and shape must be those of the input, and `bytes` its size.
///
/// Errors: REMAT_VALUE for an unknown name, another number of bytes, and an input that is no tensor; REMAT_DTYPE, REMAT_SHAPE for another
/// type or shape; REMAT_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_set_input(
    session: *mut remat_session,
    name: *const c_char,
    dtype: i32,
    dims: *const i64,
    rank: usize,
    data: *const c_void,
    bytes: usize,
) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        let (session, name, dims) = unsafe { (kept(session)?, text(name, "name")?, shape(dims, rank)?) };
        let (_entered, mut inner) = entered(&session)?;
        let i = inner.input(name)?;
        let fact = inner.fact(i, name, dtype)?;
        if dims != fact.shape {
            let text = format!("input `{name}` is {}{}, and {dims} was given", fact.dtype, fact.shape);
            return Err(Failed::new(remat_status::REMAT_SHAPE, text));
        }
        if bytes != fact.bytes() {
            let text = format!("input `{name}` takes {} bytes, and {bytes} were given", fact.bytes());
            return Err(Failed::value(text));
        }
        if bytes == 0 {
            return Ok(());
        }
        // bytes need no alignment
        checked(data.cast::<u8>(), "data")?;
        let to = inner.bytes(i)?;
        // no slice is made of `data`, which is the same memory if the caller gives what `remat_session_input_data` gave
        // SAFETY: both have so many bytes: the caller's by what the header asks for, the session's by its fact.
        unsafe { ptr::copy(data.cast(), to.as_mut_ptr(), bytes) };
        Ok(())
    })
}
