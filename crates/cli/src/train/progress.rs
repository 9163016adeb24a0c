//! Progress of a run: a bar on a terminal, as wide as that, and plain lines elsewhere.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat::runtime::Device;

use crate::output::{is_silent, note, say};
use crate::sizes::show;

/// Time between two plain lines within an epoch.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The figures of a step.
pub(super) struct Step {
    pub(super) epoch: u64,
    pub(super) step_in_epoch: u64,
    pub(super) loss: f32,
    /// Share of this epoch's predictions so far that were right.
    pub(super) accuracy: f64,
    pub(super) per_s: f64,
    /// Steps until the run ends.
    pub(super) left: u64,
}

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    epochs: u64,
    steps: u64,
    /// The unit that the speed counts.
    unit: &'static str,
    device: Device,
    last_line: Cell<Instant>,
    started: Instant,
    /// Steps of this run so far.
    done: Cell<u64>,
}

impl Progress {
    pub(super) fn new(epochs: u64, steps: u64, unit: &'static str, device: &Device) -> Self {
        let bar = (std::io::stderr().is_terminal() && !is_silent()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
            // the most important part comes first: a narrow terminal cuts the message
            let style = ProgressStyle::with_template("{prefix} {bar:10} {pos}/{len} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let now = Instant::now();
        let (last_line, done) = (Cell::new(now), Cell::new(0));
        Progress { bar, epochs, steps, unit, device: device.clone(), last_line, started: now, done }
    }

    /// Bytes in use against the budget.
    fn memory(&self) -> String {
        match self.device.channel().stats() {
            Ok(s) => {
                let of = s.budget_bytes.map_or_else(|| "unlimited".to_owned(), show);
                format!("memory {} (peak {}) of {of}", show(s.in_use_bytes), show(s.peak_bytes))
            }
            Err(e) => format!("memory unknown: {e}"),
        }
    }

    /// The time that so many steps will take, if they take as long as those so far.
    fn left(&self, steps: u64) -> String {
        let per_step = self.started.elapsed().as_secs_f64() / self.done.get().max(1) as f64;
        duration(per_step * steps as f64)
    }

    pub(super) fn step(&self, s: &Step) {
        self.done.set(self.done.get() + 1);
        let line = || {
            format!(
                "loss {:.4} {:.2} % {} left, {:.0} {}/s, {}",
                s.loss,
                100.0 * s.accuracy,
                self.left(s.left),
                s.per_s,
                self.unit,
                self.memory()
            )
        };
        let head = format!("epoch {}/{}", s.epoch + 1, self.epochs);
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(head);
                bar.set_position(s.step_in_epoch + 1);
                bar.set_message(line());
            }
            None if self.last_line.get().elapsed() >= LINE_EVERY => {
                self.last_line.set(Instant::now());
                say!("{head} step {}/{} {}", s.step_in_epoch + 1, self.steps, line());
            }
            None => {}
        }
    }

    pub(super) fn epoch(&self, epoch: u64, loss: f64, accuracy: f64, tested: &str, per_s: f64) {
        self.say(&format!(
            "epoch {}/{} loss {loss:.4} accuracy {:.2} % {tested} {per_s:.0} {}/s, {}",
            epoch + 1,
            self.epochs,
            100.0 * accuracy,
            self.unit,
            self.memory()
        ));
    }

    /// Prints a line, above the bar if there is one.
    pub(super) fn say(&self, text: &str) {
        self.last_line.set(Instant::now());
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{text}")),
            None => say!("{text}"),
        }
    }

    /// As [`Progress::say`], to standard error.
    pub(super) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| note!("{text}")),
            None => note!("{text}"),
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Seconds for people: `1h05m`, `2m03s`, `45s`.
fn duration(seconds: f64) -> String {
    // whole seconds, and no clock that overflows
    let s = seconds.round().clamp(0.0, 1e9) as u64;
    match (s / 3600, s / 60 % 60, s % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_read_well() {
        assert_eq!([0.4, 59.6, 123.0, 3900.0].map(super::duration), ["0s", "1m00s", "2m03s", "1h05m"]);
        assert_eq!(super::duration(f64::NAN), "0s");
    }
}
