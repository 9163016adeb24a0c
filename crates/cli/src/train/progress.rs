//! Progress of a run: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat::runtime::Device;

use crate::sizes::show;

/// Time between two plain lines within an epoch.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// What a step was like.
pub(super) struct Step {
    pub(super) epoch: u64,
    pub(super) step_in_epoch: u64,
    pub(super) loss: f32,
    /// Share of this epoch's predictions so far that were right.
    pub(super) accuracy: f64,
    pub(super) per_s: f64,
}

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    epochs: u64,
    steps: u64,
    /// What the speed counts.
    unit: &'static str,
    device: Device,
    last_line: std::cell::Cell<Instant>,
}

impl Progress {
    pub(super) fn new(epochs: u64, steps: u64, unit: &'static str, device: &Device) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress { bar, epochs, steps, unit, device: device.clone(), last_line: Instant::now().into() }
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

    pub(super) fn step(&self, s: &Step) {
        let line = || {
            format!(
                "loss {:.4} accuracy {:5.2} % {:.0} {}/s, {}",
                s.loss,
                100.0 * s.accuracy,
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
                println!("{head} step {}/{} {}", s.step_in_epoch + 1, self.steps, line());
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
            Some(bar) => bar.suspend(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
