//! Sorting of keys in the workspace: a part of plans that put elements together by target, or in order.

use super::plan::{Builder, Call, Value, grid};

/// Elements of a lane that one block sorts in its own memory.
const SHORT: u64 = 2048;
/// Elements of a tile of longer lanes, as in the source.
const TILE: u64 = 2048;

/// The next multiple of 8. What is too large for any workspace stays so.
pub(super) fn aligned(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(8).unwrap_or(usize::MAX)
}

/// Lanes of keys, and where all that belongs to them lies in the workspace.
///
/// The caller writes keys to [`Sorting::keys`]. After the calls [`Sorting::sorted`] and [`Sorting::order`] have them
/// in ascending order with their places, equal ones in the order of their places.
pub(super) struct Sorting {
    lanes: u64,
    n: u64,
    bits: u32,
    /// Where the workspace begins.
    at: usize,
}

impl Sorting {
    /// `lanes` of `n` keys that have so many bits at most, in the workspace from `at` on.
    pub(super) fn new(lanes: u64, n: u64, bits: u32, at: usize) -> Sorting {
        Sorting { lanes, n, bits: bits.max(1), at }
    }

    /// The bits of the numbers up to `greatest`.
    pub(super) fn bits_of(greatest: u64) -> u32 {
        64 - greatest.leading_zeros()
    }

    fn key_bytes(&self) -> usize {
        if self.bits <= 32 { 4 } else { 8 }
    }

    fn place_bytes(&self) -> usize {
        if self.n <= u64::from(u32::MAX) { 4 } else { 8 }
    }

    /// The unsigned type of keys.
    pub(super) fn key(&self) -> &'static str {
        if self.key_bytes() == 4 { "u32" } else { "u64" }
    }

    /// The unsigned type of places.
    pub(super) fn place(&self) -> &'static str {
        if self.place_bytes() == 4 { "u32" } else { "u64" }
    }

    fn is_short(&self) -> bool {
        self.n <= SHORT
    }

    fn passes(&self) -> u32 {
        self.bits.div_ceil(8)
    }

    fn tiles(&self) -> u64 {
        self.n.div_ceil(TILE)
    }

    fn elems(&self) -> usize {
        self.lanes.saturating_mul(self.n) as usize
    }

    /// Bytes from the beginning: keys, places, then those again for longer lanes, counts and totals.
    fn offsets(&self) -> [usize; 7] {
        let [keys, places] = [self.key_bytes(), self.place_bytes()].map(|size| self.elems().saturating_mul(size));
        let more = usize::from(!self.is_short());
        let totals = (more * 256 * self.place_bytes()).saturating_mul(self.lanes as usize);
        let counts = totals.saturating_mul(self.tiles() as usize);
        let mut offsets = [aligned(self.at); 7];
        for (k, size) in [keys, places, more * keys, more * places, counts, totals].into_iter().enumerate() {
            offsets[k + 1] = aligned(offsets[k].saturating_add(size));
        }
        offsets
    }

    /// Where the workspace ends.
    pub(super) fn end(&self) -> usize {
        self.offsets()[6]
    }

    /// Where the caller writes the keys.
    pub(super) fn keys(&self) -> Value {
        Value::Workspace(self.offsets()[0])
    }

    fn result(&self, first: usize) -> Value {
        let is_other = !self.is_short() && self.passes() % 2 == 1;
        Value::Workspace(self.offsets()[first + if is_other { 2 } else { 0 }])
    }

    /// The keys in order.
    pub(super) fn sorted(&self) -> Value {
        self.result(0)
    }

    /// Their places.
    pub(super) fn order(&self) -> Value {
        self.result(1)
    }

    fn builder(&self, name: &'static str) -> Builder {
        let mut b = Builder::new(name);
        b.functions(&format!("typedef {} key;\ntypedef {} place;\n", self.key(), self.place()));
        b.functions(include_str!("sort.cuh"));
        b.u64("n", self.n);
        b
    }

    /// The launches. None for no keys.
    pub(super) fn calls(&self) -> Vec<Call> {
        if self.elems() == 0 {
            return Vec::new();
        }
        if self.is_short() {
            return vec![self.short()];
        }
        (0..self.passes()).flat_map(|pass| self.pass(pass)).collect()
    }

    fn short(&self) -> Call {
        let size = self.n.next_power_of_two().max(32);
        let mut b = self.builder("sort_short");
        b.parameter("key *keys", self.keys());
        b.parameter("place *order", self.order());
        let threads = (size / 2).clamp(32, 1024) as u32;
        let grid = grid(self.lanes, threads);
        b.build(grid, &format!("sort_short<{size}>(n, keys, order);\n"))
    }

    /// A pass over a digit: the counts of tiles, their sums, and the moves.
    fn pass(&self, pass: u32) -> [Call; 3] {
        let offsets = self.offsets();
        let here = (pass % 2) as usize * 2;
        let (from, to) = (offsets[here], offsets[2 - here]);
        let grid = |blocks: u64| grid(blocks, 256);
        let (counts, totals) = (Value::Workspace(offsets[4]), Value::Workspace(offsets[5]));
        let mut b = self.builder("sort_count");
        b.u64("tiles", self.tiles());
        b.u64("shift", u64::from(8 * pass));
        b.parameter("const key *keys", Value::Workspace(from));
        b.parameter("place *counts", counts);
        let count = b.build(grid(self.lanes * self.tiles()), "count_digits(n, tiles, keys, (int)shift, counts);\n");
        let mut b = self.builder("sort_scan");
        b.u64("tiles", self.tiles());
        b.parameter("place *counts", counts);
        b.parameter("place *totals", totals);
        let scan = b.build(grid(self.lanes.saturating_mul(256)), "scan_digit(tiles, counts, totals);\n");
        let mut b = self.builder("sort_move");
        b.u64("tiles", self.tiles());
        b.u64("shift", u64::from(8 * pass));
        b.parameter("const key *from", Value::Workspace(from));
        b.parameter("const place *order", if pass == 0 { Value::U64(0) } else { Value::Workspace(offsets[here + 1]) });
        b.parameter("const place *counts", counts);
        b.parameter("const place *totals", totals);
        b.parameter("key *to", Value::Workspace(to));
        b.parameter("place *to_order", Value::Workspace(offsets[3 - here]));
        let body = "move_by_digit(n, tiles, from, order, (int)shift, counts, totals, to, to_order);\n";
        [count, scan, b.build(grid(self.lanes * self.tiles()), body)]
    }
}
