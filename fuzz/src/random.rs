/// Marsaglia's xorshift with 64 bits.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u32) -> Random {
        Random((u64::from(seed) << 1 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() { None } else { all.get(self.below(all.len())) }
    }
}
