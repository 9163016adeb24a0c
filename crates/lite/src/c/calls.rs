//! Runs.

use std::ffi::c_void;
use std::sync::PoisonError;

use remat_runtime::ValueView;

use super::border::{elements, is_addressable};
use super::hooks::hooked;
use super::runner::{Job, Runner, User};
use super::session::{Inner, OutputState, entered, kept, remat_session};
use super::status::{Done, Failed, guard, guard_or, remat_status};

/// Told how a run in the background ended, on a thread of the session. It may use the session, begin the next run and free the
/// session; remat_last_error has the text of an error there. It must return: no exception and no longjmp may leave it.
pub type remat_done = Option<unsafe extern "C" fn(user: *mut c_void, status: remat_status)>;

/// Runs the network, and returns when it is done.
///
/// Errors: those of its operators, which name node and operator; REMAT_BUDGET; REMAT_VALUE for a bool that is neither 0 nor 1;
/// REMAT_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_run(session: *mut remat_session) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        let session = unsafe { kept(session) }?;
        let (_entered, mut inner) = entered(&session)?;
        hooked(&session, &mut inner, Inner::run)
    })
}

/// remat_session_run with outputs in the caller's memory: data has count pointers, one for each output in order, and bytes the sizes
/// of what they point to; the run writes there. A NULL leaves an output in the session, as do those after the last pointer.
///
/// Errors: also REMAT_VALUE for memory of another size than the output's, or not aligned to its element type, for memory that
/// overlaps other outputs or what the session gave out, and for more outputs than there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_run_into(
    session: *mut remat_session,
    data: *const *mut c_void,
    bytes: *const usize,
    count: usize,
) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        let (session, data, bytes) =
            unsafe { (kept(session)?, elements(data, count, "data")?, elements(bytes, count, "bytes")?) };
        let (_entered, mut inner) = entered(&session)?;
        let places: Vec<Place> = data.iter().zip(bytes).map(|(p, n)| Place { at: p.cast(), bytes: *n }).collect();
        check(&mut inner, &places)?;
        // SAFETY: the caller's promise: memory of so many bytes that nobody else uses during the call; `check` has seen the rest.
        hooked(&session, &mut inner, |inner| unsafe { run_into(inner, &places) })
    })
}

/// Memory of the caller's.
#[derive(Clone, Copy)]
struct Place {
    at: *mut u8,
    bytes: usize,
}

impl Place {
    fn of(bytes: &[u8]) -> Place {
        Place { at: bytes.as_ptr().cast_mut(), bytes: bytes.len() }
    }

    fn overlaps(&self, other: &Place) -> bool {
        let (a, b) = (self.at.addr(), other.at.addr());
        self.bytes > 0 && other.bytes > 0 && a < b.saturating_add(other.bytes) && b < a.saturating_add(self.bytes)
    }
}

/// # Safety
///
/// Each place is at NULL, or of so many bytes that nobody else uses until this returns; [`check`] has seen that none overlaps another,
/// or what the session holds.
unsafe fn run_into(inner: &mut Inner, places: &[Place]) -> Done {
    // SAFETY: the caller's promise.
    let slice = |p: &Place| (!p.at.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(p.at, p.bytes) });
    let mut outputs: Vec<Option<&mut [u8]>> = places.iter().map(slice).collect();
    if inner.session.is_planned() {
        inner.begin()?;
        inner.session.run_into(&mut outputs)?;
        inner.values.fill(OutputState::Session);
    } else {
        inner.run()?;
        copy_out(inner, &mut outputs)?;
    }
    for (state, _) in inner.values.iter_mut().zip(&outputs).filter(|(_, o)| o.is_some()) {
        *state = OutputState::Caller;
    }
    Ok(())
}

/// Errors (Value) for more places than outputs, memory of another size or alignment, and memory that is in use already.
fn check(inner: &mut Inner, places: &[Place]) -> Done {
    let n = inner.values.len();
    if places.len() > n {
        return Err(Failed::value(format!("memory for {} outputs of {n}", places.len())));
    }
    let mut used = Vec::new();
    for i in 0..inner.session.inputs().len() {
        if inner.session.fact(i).is_some() {
            used.push((Place::of(inner.bytes(i)?), "an input".to_owned()));
        }
    }
    if let Some(run) = inner.session.runtime() {
        for j in 0..n {
            let own = run.output(j)?;
            if let Some(place) = places.get(j).filter(|p| !p.at.is_null()) {
                fits(place, &own).map_err(|text| Failed::value(format!("output {j} {text}")))?;
            }
            used.push((Place::of(own.bytes), "an output that the session holds".to_owned()));
        }
    }
    for (j, place) in places.iter().enumerate().filter(|(_, p)| !p.at.is_null()) {
        is_addressable::<u8>(place.bytes, "bytes")?;
        if let Some((_, what)) = used.iter().find(|(p, _)| p.overlaps(place)) {
            return Err(Failed::value(format!("the memory for output {j} overlaps that of {what}")));
        }
        used.push((*place, format!("output {j}")));
    }
    Ok(())
}

/// Checks the memory for an output, before a run has begun. The error describes the fault.
fn fits(place: &Place, output: &ValueView<'_>) -> Result<(), String> {
    let (bytes, align) = (output.bytes.len(), output.dtype.size_bytes());
    if place.bytes == bytes && (bytes == 0 || place.at.addr().is_multiple_of(align)) {
        return Ok(());
    }
    let (dtype, shape, has) = (output.dtype, output.shape, place.bytes);
    Err(format!("is {dtype}{shape} and needs {bytes} bytes aligned to {align}; there are {has} at {:p}", place.at))
}

/// Copies the outputs of a model that is no single graph. Errors (Value): memory of another size.
fn copy_out(inner: &mut Inner, outputs: &mut [Option<&mut [u8]>]) -> Done {
    let names = inner.session.outputs().to_vec();
    for (name, to) in names.iter().zip(outputs) {
        let Some(to) = to else { continue };
        let from = inner.session.output(name)?.bytes;
        if from.len() != to.len() {
            let text = format!("output `{name}` has {} bytes, and there is memory for {}", from.len(), to.len());
            return Err(Failed::value(text));
        }
        to.copy_from_slice(from);
    }
    Ok(())
}

/// Begins a run on a thread of the session and returns. done, which may be NULL, is called once when it has ended, with user. Until
/// then calls on this session are REMAT_BUSY, but for remat_session_wait and remat_session_free.
///
/// Errors, after which done is not called: REMAT_BUSY; REMAT_IO without a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_run_async(
    session: *mut remat_session,
    done: remat_done,
    user: *mut c_void,
) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        let session = unsafe { kept(session) }?;
        let entered = session.gate.enter()?;
        let mut runner = session.runner.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = match runner.take() {
            Some(thread) => thread,
            None => Runner::new()?,
        };
        let thread = runner.insert(thread);
        // before the job is there: it may end before this call does
        entered.into_run();
        let begun = thread.begin(Job { session: session.clone(), done, user: User(user) });
        if begun.is_err() {
            session.gate.cancel();
        }
        begun
    })
}

/// Waits until a run in the background and its callback have ended, and gives how the run ended, once; REMAT_OK if there was none.
/// It waits for whatever other thread began the run. In the callback it does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_wait(session: *mut remat_session) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        let session = unsafe { kept(session) }?;
        session.gate.wait()
    })
}

/// 1 if one graph runs under one plan; 0 if sizes follow from values, so that operators run one by one with the same budget, and
/// for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_is_planned(session: *const remat_session) -> i32 {
    // SAFETY: what the header asks for.
    guard_or(0, || Ok(i32::from(unsafe { kept(session) }?.is_planned)))
}

/// Gives the workspace's memory back until the next run. Errors: REMAT_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_release_workspace(session: *mut remat_session) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        let session = unsafe { kept(session) }?;
        let (_entered, mut inner) = entered(&session)?;
        Ok(inner.session.release_workspace()?)
    })
}
