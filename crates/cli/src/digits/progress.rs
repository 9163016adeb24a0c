//! Progress of a run: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use remat::runtime::Device;

use crate::sizes::show;

/// Time between two plain lines within an epoch.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// What a step was like.
pub(crate) struct Step {
    pub(crate) epoch: u64,
    pub(crate) step_in_epoch: u64,
    pub(crate) loss: f32,
    /// Share of this epoch's examples so far that were classified right.
    pub(crate) accuracy: f64,
    pub(crate) images_per_s: f64,
}

pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    epochs: u64,
    steps: u64,
    device: Device,
    last_line: std::cell::Cell<Instant>,
}

impl Progress {
    pub(crate) fn new(epochs: u64, steps: u64, device: &Device) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress { bar, epochs, steps, device: device.clone(), last_line: Instant::now().into() }
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

    pub(crate) fn step(&self, s: &Step) {
        let line = || {
            format!(
                "loss {:.4} accuracy {:5.2} % {:.0} images/s, {}",
                s.loss,
                100.0 * s.accuracy,
                s.images_per_s,
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

    pub(crate) fn epoch(&self, epoch: u64, loss: f64, accuracy: f64, test_accuracy: f64, images_per_s: f64) {
        self.last_line.set(Instant::now());
        let text = format!(
            "epoch {}/{} loss {loss:.4} accuracy {:.2} % test {:.2} % {images_per_s:.0} images/s, {}",
            epoch + 1,
            self.epochs,
            100.0 * accuracy,
            100.0 * test_accuracy,
            self.memory()
        );
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    pub(crate) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
