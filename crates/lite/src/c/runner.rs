//! The thread on which a session runs in the background.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use remat_types::{Error, ErrorKind};

use super::calls::remat_done;
use super::hooks::hooked;
use super::session::{Inner, remat_session};
use super::status::{Done, Failed, caught, keep, remat_status};

/// A run to do, and who is told.
pub(super) struct Job {
    pub(super) session: Arc<remat_session>,
    pub(super) done: remat_done,
    pub(super) user: User,
}

/// The caller's pointer.
pub(super) struct User(pub(super) *mut c_void);

// SAFETY: it is never followed here, only given back to the caller's function, which the header says is called on another thread.
unsafe impl Send for User {}

pub(super) struct Runner {
    jobs: SyncSender<Job>,
    thread: JoinHandle<()>,
}

impl Runner {
    /// Errors: Io without a thread.
    pub(super) fn new() -> Done<Runner> {
        // room for the run that a callback begins
        let (jobs, work) = sync_channel(1);
        let thread = thread::Builder::new().name("remat-run".into()).spawn(move || serve(&work));
        let none = |e| Error::new(ErrorKind::Io, format!("no thread for the session: {e}"));
        Ok(Runner { jobs, thread: thread.map_err(none)? })
    }

    pub(super) fn begin(&self, job: Job) -> Done {
        self.jobs.send(job).map_err(|_| Failed::new(remat_status::REMAT_CLOSED, "the session's thread has ended"))
    }

    /// Ends the thread after its present work; waits for it unless this is that thread.
    pub(super) fn end(self) {
        drop(self.jobs);
        if self.thread.thread().id() != thread::current().id() {
            // it catches panics
            let _ = self.thread.join();
        }
    }
}

fn serve(work: &Receiver<Job>) {
    while let Ok(Job { session, done, user }) = work.recv() {
        if !session.gate.run_begins() {
            continue;
        }
        let ended = caught(|| hooked(&session, &mut session.inner(), Inner::run));
        let status = match &ended {
            Ok(()) => remat_status::REMAT_OK,
            Err(failed) => {
                // for remat_last_error in the callback
                keep(failed);
                failed.status
            }
        };
        let is_told = session.gate.run_ended(ended);
        if let Some(done) = done.filter(|_| is_told) {
            // SAFETY: the caller's function with its own `user`; it may free the session, which this job keeps until it returns.
            unsafe { done(user.0, status) };
        }
        session.gate.told();
    }
}
