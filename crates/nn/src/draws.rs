//! The draws of a generator as a part of steps: one that failed has drawn nothing.

use std::cell::RefCell;

use remat_runtime::{Device, Moment, WeakDevice};

use crate::Rng;

thread_local! {
    /// Where this thread drew last: whose steps count for a generator that is split or read outside of an operator.
    static DEVICE: RefCell<Option<WeakDevice>> = const { RefCell::new(None) };
}

/// This thread draws on a device.
pub(crate) fn note_device(device: &Device) {
    DEVICE.replace(Some(device.downgrade()));
}

/// A generator, and where it was when the last steps began.
#[derive(Debug)]
pub(crate) struct Draws {
    rng: Rng,
    /// When the first key of a step was drawn, and the generator before it. A failure is told in its step or in the next one.
    begun: [Option<(Moment, Rng)>; 2],
}

impl Draws {
    pub(crate) fn of(rng: Rng) -> Draws {
        Draws { rng, begun: [None, None] }
    }

    /// `f` of the generator. Draws and splits by `f` are part of the thread's step. If `f` seeds or replaces the generator, the
    /// change stays.
    pub(crate) fn with<T>(&mut self, f: impl FnOnce(&mut Rng) -> T) -> T {
        let device = DEVICE.with_borrow(|d| d.as_ref().and_then(WeakDevice::upgrade));
        self.begin(device.map(|d| d.channel().moment()));
        let (seed, counter) = (self.rng.seed(), self.rng.counter());
        let y = f(&mut self.rng);
        if self.rng.seed() != seed || self.rng.counter() < counter {
            self.begun = [None, None];
        }
        y
    }

    /// As [`Draws::with`], for what a layer begins from. Layers that are made before the first step has ended come before it: a
    /// program that repeats its first step does not make them anew.
    pub(crate) fn making<T>(&mut self, f: impl FnOnce(&mut Rng) -> T) -> T {
        let y = self.with(f);
        if self.begun[1].as_ref().is_some_and(|(m, _)| m.step() == 1) {
            self.begun = [None, None];
        }
        y
    }

    /// The words of the next key, drawn at a moment of the steps of a device, if that is still open.
    pub(crate) fn draw(&mut self, now: Option<Moment>) -> [u64; 2] {
        self.begin(now);
        self.rng.draw()
    }

    /// Something is about to be drawn.
    fn begin(&mut self, now: Option<Moment>) {
        self.take_back();
        if let Some(now) = now {
            let last = self.begun[1].as_ref().map(|(m, _)| m);
            if !last.is_some_and(|m| m.is_in_step_of(&now)) {
                let before = self.begun[1].take().filter(|(m, _)| m.is_of_same_steps(&now));
                self.begun = [before, Some((now, self.rng.clone()))];
            }
        }
    }

    /// If the thread was told of a step that failed, the generator is as it was when the first such step began.
    fn take_back(&mut self) {
        let Some((last, _)) = &self.begun[1] else { return };
        let oldest = self.begun[0].as_ref().map_or(last, |(m, _)| m);
        let Some(failed) = oldest.failed_since() else { return };
        // Told before the last step began, it has no part in that.
        if last.failed_since().is_none() {
            return;
        }
        let first = self.begun.iter().flatten().find(|(m, _)| m.step() >= failed);
        if let Some((_, rng)) = first {
            self.rng = rng.clone();
        }
        self.begun = [None, None];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_runtime::Device;
    use remat_tensor::Tensor;

    fn small_device() -> Device {
        let options = remat_runtime::DeviceOptions { budget_bytes: Some(1 << 16), threads: 1, ..Default::default() };
        Device::cpu(options).expect("opens")
    }

    /// A failure of the thread's present step, told.
    fn fail(d: &Device) {
        let x = Tensor::zeros(d, [4], remat_types::DType::F32).expect("made");
        let wide = x.broadcast_to([1 << 20, 4]).and_then(|x| x.mul(2.0)).expect("queued");
        wide.to_host().expect_err("above the budget");
    }

    #[test]
    fn a_step_that_failed_has_drawn_nothing() {
        let d = small_device();
        let (c, mut draws) = (d.channel(), Draws::of(Rng::new(3)));
        let mut key = |draws: &mut Draws| draws.draw(Some(c.moment()))[1];
        let draw: &mut dyn FnMut(&mut Draws) -> u64 = &mut key;
        assert_eq!([draw(&mut draws), draw(&mut draws)], [0, 1]);
        c.step_mark().expect("taken");
        assert_eq!([draw(&mut draws), draw(&mut draws)], [2, 3]);
        fail(&d);
        // again, without a mark between
        assert_eq!([draw(&mut draws), draw(&mut draws)], [2, 3], "the step is repeated");
        c.step_mark().expect("taken");
        assert_eq!(draw(&mut draws), 4);
        fail(&d);
        c.step_mark().expect("told before");
        assert_eq!([draw(&mut draws), draw(&mut draws)], [4, 5], "repeated after the mark of the one that failed");
        // what another thread is told is nothing to this one
        std::thread::scope(|s| s.spawn(|| fail(&d)).join()).expect("joins");
        assert_eq!(draw(&mut draws), 6);
        // nor is what failed and was told before a later step
        c.step_mark().expect("taken");
        fail(&d);
        c.step_mark().expect("told before");
        let mut other = Draws::of(Rng::new(4));
        assert_eq!([draw(&mut other), draw(&mut other)], [0, 1]);
        // the state that is saved is the one from which the step is repeated
        fail(&d);
        assert_eq!(other.with(|rng| rng.counter()), 0);
        // what was split off is drawn as well, and what was seeded is not taken back
        note_device(&d);
        other.with(|rng| rng.split());
        assert_eq!(draw(&mut other), 1);
        fail(&d);
        assert_eq!(draw(&mut other), 0);
        other.with(|rng| *rng = Rng::new(8));
        fail(&d);
        assert_eq!(other.with(|rng| rng.seed()), 8);
    }

    #[test]
    fn what_layers_begin_from_is_no_part_of_the_first_step_and_one_of_later_steps() {
        let d = small_device();
        let (c, mut draws) = (d.channel(), Draws::of(Rng::new(3)));
        let key = |draws: &mut Draws| draws.draw(Some(c.moment()))[1];
        note_device(&d);
        assert_eq!(key(&mut draws), 0, "data before the network");
        draws.making(|rng| [rng.draw(), rng.draw()]);
        assert_eq!(key(&mut draws), 3);
        fail(&d);
        assert_eq!(key(&mut draws), 3, "the step is repeated with the same layers");
        c.step_mark().expect("taken");
        draws.making(|rng| rng.draw());
        assert_eq!(key(&mut draws), 5);
        fail(&d);
        assert_eq!(key(&mut draws), 4, "the step that made the layer is repeated");
    }
}
