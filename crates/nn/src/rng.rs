//! Random keys: counter-based and explicit.

use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{HostTensor, Result};
use serde::{Deserialize, Serialize};

/// A source of keys for random ops: `(seed, 0), (seed, 1), ..`.
///
/// An op draws by Philox from its key alone, so its result does not depend on the time, the place or the number of its
/// runs. The generator is two numbers, is saved as such, and continues where it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rng {
    seed: u64,
    counter: u64,
}

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Rng { seed, counter: 0 }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many keys were drawn.
    pub fn counter(&self) -> u64 {
        self.counter
    }

    /// The next key on the host: `u64 [2]`.
    #[track_caller]
    pub fn next_host_key(&mut self) -> Result<HostTensor> {
        remat_runtime::tracing::refuse("drawing a key from an `Rng` (an `RngCell` draws one in every run)");
        HostTensor::from_slice(&self.draw(), [2])
    }

    /// The two words of the next key.
    pub(crate) fn draw(&mut self) -> [u64; 2] {
        let key = [self.seed, self.counter];
        self.counter = self.counter.wrapping_add(1);
        key
    }

    /// The next key on `device`: `u64 [2]`. Errors: Closed.
    pub fn next_key(&mut self, device: &Device) -> Result<Tensor> {
        Tensor::from_host(device, &self.next_host_key()?)
    }

    /// A generator of its own, whose seed is mixed from this one's state; this one moves on by one.
    ///
    /// The mixing is SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014) over seed and counter.
    #[must_use]
    pub fn split(&mut self) -> Rng {
        // SplitMix64's increment keeps (seed, 0) and (0, seed) apart
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let seed = mix(mix(self.seed.wrapping_add(GOLDEN)) ^ self.counter.wrapping_mul(GOLDEN));
        self.counter = self.counter.wrapping_add(1);
        Rng::new(seed)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_count_up_and_splits_differ() {
        let mut r = Rng::new(7);
        assert_eq!(r.next_host_key().expect("key").to_vec::<u64>().expect("u64"), [7, 0]);
        assert_eq!(r.next_host_key().expect("key").to_vec::<u64>().expect("u64"), [7, 1]);
        let (a, b) = (r.split(), r.split());
        assert!(a != b && a.seed() != 7);
        assert_eq!(r.counter(), 4);
    }

    #[test]
    fn a_saved_generator_continues() {
        let mut r = Rng::new(1);
        let _ = r.split();
        let text = serde_json::to_string(&r).expect("serialises");
        let mut s: Rng = serde_json::from_str(&text).expect("parses");
        assert_eq!(s.next_host_key().expect("key"), r.next_host_key().expect("key"));
    }
}
