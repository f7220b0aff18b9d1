//! Chance that can be repeated: a xorshift generator with a known seed.

use std::time::Duration;

/// A stream of numbers that its seed decides.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give similar streams, and zero gives none.
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from `from` to below `to`.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.range(0, times) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let at = self.range(0, items.len() as u64);
        &items[usize::try_from(at).expect("below a length")]
    }

    /// A time from `from` to below `to` milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.range(from * 1000, to * 1000))
    }
}
