//! `ldmatrix` and `mma.sync` (PTX ISA 8.7, sections 9.7.14.5.8 and 9.7.14.5.15).

use super::access::is_aligned;
use super::block::Block;
use super::cells::Use;
use super::fault::Tried;
use crate::code::{Address, Matrix};
use crate::lanes::{LANES, Slot};
use crate::number::{Bf16, F16, Half, canonical};

type Fragments<'s> = (&'s [Slot; 4], &'s [Slot], &'s [Slot], &'s [Slot; 4]);

impl Block<'_> {
    /// Loads 8 x 8 matrices of 16-bit elements: lane `8 q + r` gives the address of row `r` of matrix `q`.
    pub(super) fn load_matrix(
        &mut self,
        to: &[Slot],
        address: &Address,
        is_transposed: bool,
        warp: usize,
        mask: u32,
    ) -> Tried<()> {
        self.check_whole(warp, mask)?;
        let rows: Vec<u64> = (0..LANES).map(|lane| self.address(address, warp, lane)).collect();
        for (q, &to) in to.iter().enumerate() {
            let mut words = [0u32; LANES];
            for (lane, word) in words.iter_mut().enumerate() {
                let (giver, thread) = (8 * q + lane / 4, warp * LANES + lane);
                is_aligned(rows[giver], 16).map_err(|t| t.by(warp * LANES + giver))?;
                let at = rows[giver] + 4 * (lane as u64 % 4);
                *word = self.shared.read(at, 4, thread, Use::Read).map_err(|t| t.by(thread))? as u32;
            }
            let row = self.regs.row(to, warp);
            self.regs.words[row] = if is_transposed { transposed(&words) } else { words };
        }
        Ok(())
    }

    /// `d = a b + c` for 16 x k, k x 8 and 16 x 8. The order of the sum is open in PTX; here it is exact products in f64 in the
    /// order of k, then c, rounded once.
    pub(super) fn multiply(&mut self, kind: Matrix, k: usize, (d, a, b, c): Fragments<'_>, warp: usize) {
        let row = |slot: Slot| self.regs.words[self.regs.row(slot, warp)];
        let (mut left, mut right) = ([[0f64; 16]; 16], [[0f64; 16]; 8]);
        for (j, &slot) in a.iter().enumerate() {
            for (lane, &word) in row(slot).iter().enumerate() {
                for (at, value) in elements(kind, word, lane % 4, j / 2) {
                    left[lane / 4 + 8 * (j % 2)][at] = value;
                }
            }
        }
        for (j, &slot) in b.iter().enumerate() {
            for (lane, &word) in row(slot).iter().enumerate() {
                for (at, value) in elements(kind, word, lane % 4, j) {
                    right[lane / 4][at] = value;
                }
            }
        }
        let mut out = [[0u32; LANES]; 4];
        for (j, &slot) in c.iter().enumerate() {
            for (lane, &word) in row(slot).iter().enumerate() {
                let (m, n) = (lane / 4 + 8 * (j / 2), 2 * (lane % 4) + j % 2);
                let products = (0..k).map(|at| left[m][at] * right[n][at]);
                let sum = products.fold(0.0, |sum, p| sum + p) + f64::from(f32::from_bits(word));
                out[j][lane] = canonical(sum as f32).to_bits();
            }
        }
        for (j, &slot) in d.iter().enumerate() {
            let row = self.regs.row(slot, warp);
            self.regs.words[row] = out[j];
        }
    }
}

/// Each lane's pair of a column instead of a row.
fn transposed(words: &[u32; LANES]) -> [u32; LANES] {
    let element = |row: usize, column: usize| words[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
    std::array::from_fn(|lane| {
        let (row, column) = (2 * (lane % 4), lane / 4);
        element(row, column) | element(row + 1, column) << 16
    })
}

/// The elements of a word of a fragment, with their places along k. `part` counts the words along k.
fn elements(kind: Matrix, word: u32, quarter: usize, part: usize) -> impl Iterator<Item = (usize, f64)> {
    let (low, high) = (word as u16, (word >> 16) as u16);
    let pair = |low: f64, high: f64| [(2 * quarter + 8 * part, low), (2 * quarter + 8 * part + 1, high)];
    let (found, count) = match kind {
        Matrix::F16 => (pair(F16(low).value(), F16(high).value()), 2),
        Matrix::Bf16 => (pair(Bf16(low).value(), Bf16(high).value()), 2),
        // the lowest 13 bits take no part
        Matrix::Tf32 => ([(quarter + 4 * part, f64::from(f32::from_bits(word & !0x1fff))), (0, 0.0)], 1),
    };
    found.into_iter().take(count)
}
