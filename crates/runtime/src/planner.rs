//! Planning beside the runs: one thread for one plan, and the rules for when to plan, for how long, and which plan
//! stays.
//!
//! Repeated work first runs without a plan, or under a plan for estimated times. Once it has been timed, a thread plans
//! it beside its runs, and the better of two plans stays. That holds for steps of eager programs
//! (`eager/step_planner/cache.rs`) and for compiled graphs (`compile/graph.rs`). Their difference is data, a [`Rule`].
//!
//! The thread uses no part of a device and ends by its time limit, so no other thread waits for it. A planner that is
//! dropped or stopped abandons the plan in progress. If no thread can be started, the present plan stays, which is as
//! correct.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// The share of the time of some work that planning beside it may take. The planner's thread shares the cores with the
/// work, which meanwhile is slower by up to this share.
pub(crate) const SHARE: f64 = 0.1;

/// When work is planned, for how long, and which of two plans stays.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The number of runs before the first planning.
    pub(crate) first: u32,
    /// Plans again whenever the number of runs has doubled; otherwise plans once.
    pub(crate) repeats: bool,
    /// The part of the time of the runs since the last plan that a plan may take. A plan never takes more than the
    /// planner's default. `None` for that default.
    pub(crate) share: Option<f64>,
    /// Of two plans that promise the same, the newer one stays.
    pub(crate) prefers_newer: bool,
    /// The name of the thread.
    pub(crate) thread: &'static str,
}

impl Rule {
    /// True if a plan of cost `new` takes the place of one of cost `old`.
    pub(crate) fn replaces<C: PartialOrd>(&self, old: C, new: C) -> bool {
        if self.prefers_newer { new <= old } else { new < old }
    }
}

/// The state of a plan in progress.
#[derive(Debug)]
pub(crate) enum Progress<P> {
    /// No plan is in progress.
    Idle,
    /// The plan is not finished.
    Running,
    /// The finished plan. It is given once.
    Made(P),
}

/// The plans for some work that repeats.
#[derive(Debug)]
pub(crate) struct Planner<P> {
    rule: &'static Rule,
    runs: u32,
    /// The number of runs at which the next planning is due; `None` for never.
    due: Option<u32>,
    /// Time of the runs since the last planning.
    since_ns: u64,
    job: Option<Receiver<P>>,
}

impl<P: Send + 'static> Planner<P> {
    pub(crate) fn new(rule: &'static Rule) -> Self {
        Planner { rule, runs: 0, due: Some(rule.first), since_ns: 0, job: None }
    }

    /// Notes a run that took so long.
    pub(crate) fn ran(&mut self, ns: u64) {
        self.runs = self.runs.saturating_add(1);
        self.since_ns = self.since_ns.saturating_add(ns);
    }

    /// Takes the plan in progress, if it is finished.
    pub(crate) fn poll(&mut self) -> Progress<P> {
        let progress = match self.job.as_ref().map(Receiver::try_recv) {
            Some(Ok(made)) => Progress::Made(made),
            Some(Err(TryRecvError::Empty)) => return Progress::Running,
            None | Some(Err(TryRecvError::Disconnected)) => Progress::Idle,
        };
        self.job = None;
        progress
    }

    /// True if planning is due.
    pub(crate) fn is_due(&self) -> bool {
        self.job.is_none() && self.due.is_some_and(|due| self.runs >= due)
    }

    /// True if no plan is in progress or will follow.
    pub(crate) fn is_done(&self) -> bool {
        self.job.is_none() && self.due.is_none()
    }

    /// Abandons the plan in progress, and makes no other.
    pub(crate) fn stop(&mut self) {
        (self.job, self.due) = (None, None);
    }

    /// Counts a plan as begun. Gives its time limit, beside the planner's own.
    fn next(&mut self) -> Option<Duration> {
        let limit = self.rule.share.map(|share| Duration::from_nanos(self.since_ns).mul_f64(share));
        self.due = self.rule.repeats.then(|| self.runs.saturating_mul(2));
        self.since_ns = 0;
        limit
    }

    /// Begins `make` on a thread, with its limit of time.
    pub(crate) fn begin(&mut self, make: impl FnOnce(Option<Duration>) -> P + Send + 'static) {
        let limit = self.next();
        let (send, receive) = channel();
        let job = move || {
            // The plan may have been abandoned meanwhile.
            let _ = send.send(make(limit));
        };
        self.job = std::thread::Builder::new().name(self.rule.thread.to_owned()).spawn(job).is_ok().then_some(receive);
    }

    /// Makes the plan that is due on this thread, where it must not depend on the clock.
    pub(crate) fn make_now(&mut self, make: impl FnOnce() -> P) -> P {
        self.next();
        make()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TWICE: Rule = Rule { first: 2, repeats: true, share: Some(SHARE), prefers_newer: true, thread: "test" };
    static ONCE: Rule = Rule { first: 1, repeats: false, share: None, prefers_newer: false, thread: "test" };

    fn wait<P: Send + 'static>(p: &mut Planner<P>) -> P {
        loop {
            match p.poll() {
                Progress::Made(made) => return made,
                Progress::Running => std::thread::yield_now(),
                Progress::Idle => panic!("a plan is under way"),
            }
        }
    }

    #[test]
    fn plans_come_at_every_doubling_and_take_a_share_of_the_runs_since() {
        let mut p: Planner<Option<Duration>> = Planner::new(&TWICE);
        let mut given = Vec::new();
        for run in 1..=9u32 {
            p.ran(1000);
            if p.is_due() {
                p.begin(|limit| limit);
                given.push((run, wait(&mut p).map(|d| d.as_nanos())));
            }
        }
        assert_eq!(given, [(2, Some(200)), (4, Some(200)), (8, Some(400))]);
        assert!(!p.is_done());
    }

    #[test]
    fn a_plan_that_comes_once_is_the_last() {
        let mut p: Planner<Option<Duration>> = Planner::new(&ONCE);
        assert!(!p.is_due() && !p.is_done());
        p.ran(1000);
        p.begin(|limit| limit);
        assert_eq!(wait(&mut p), None);
        p.ran(1000);
        assert!(p.is_done() && !p.is_due() && matches!(p.poll(), Progress::Idle));
    }

    #[test]
    fn a_plan_that_is_abandoned_or_fails_never_comes() {
        let mut p: Planner<u8> = Planner::new(&ONCE);
        p.ran(0);
        p.begin(|_| 1);
        p.stop();
        assert!(p.is_done() && matches!(p.poll(), Progress::Idle));
        let mut p: Planner<u8> = Planner::new(&ONCE);
        p.begin(|_| std::panic::resume_unwind(Box::new("a planner that panics")));
        while matches!(p.poll(), Progress::Running) {
            std::thread::yield_now();
        }
        assert!(p.is_done());
    }

    #[test]
    fn of_equal_plans_the_rule_says_which_stays() {
        assert!(TWICE.replaces(5, 5) && !ONCE.replaces(5, 5));
        assert!(TWICE.replaces(5, 4) && ONCE.replaces(5, 4) && !TWICE.replaces(5, 6));
    }
}
