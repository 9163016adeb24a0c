//! The draws of a generator as a part of steps: one that failed has drawn nothing.

use remat_runtime::Moment;

use crate::Rng;

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

    /// The generator, outside of any step.
    pub(crate) fn rng(&mut self) -> &mut Rng {
        self.take_back();
        self.begun = [None, None];
        &mut self.rng
    }

    /// The words of the next key, drawn at a moment of the steps of a device, if that is still open.
    pub(crate) fn draw(&mut self, now: Option<Moment>) -> [u64; 2] {
        self.take_back();
        if let Some(now) = now {
            let last = self.begun[1].as_ref().map(|(m, _)| m);
            if !last.is_some_and(|m| m.is_in_step_of(&now)) {
                let before = self.begun[1].take().filter(|(m, _)| m.is_of_same_steps(&now));
                self.begun = [before, Some((now, self.rng.clone()))];
            }
        }
        self.rng.draw()
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

    /// A failure of the thread's present step, told.
    fn fail(d: &Device) {
        let x = Tensor::zeros(d, [4], remat_types::DType::F32).expect("made");
        let wide = x.broadcast_to([1 << 20, 4]).and_then(|x| x.mul(2.0)).expect("queued");
        wide.to_host().expect_err("above the budget");
    }

    #[test]
    fn a_step_that_failed_has_drawn_nothing() {
        let d =
            Device::cpu(remat_runtime::DeviceOptions { budget_bytes: Some(1 << 16), threads: 1, ..Default::default() })
                .expect("opens");
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
        assert_eq!(other.rng().counter(), 0);
    }
}
