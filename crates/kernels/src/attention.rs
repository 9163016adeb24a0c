//! Attention: `y = softmax(scale q k^T) v` for each image and head, and its gradients, without the matrix of scores.
//!
//! Work goes in tiles of `QUERIES` queries and all keys that they see. A tile lies in the workspace of a thread,
//! *transposed*: a row a key, a column a query. So each product of a tile reads one operand where it is and one small
//! operand that is packed for the tile, or one that is packed once for all queries of a head; and the maximum and the
//! sums of a softmax run down the columns, whole vectors at a time.
//!
//! * A tile has whole rows of scores, so its softmax is the plain one and the sum of `p dp` needs no second look at `y`.
//!   Rejected: a running maximum over blocks of keys (Milakov and Gimelshein, 2018; Dao et al., 2022), which bounds the
//!   tile for rows of any length and costs a correction for each block: here a tile is `QUERIES / d` of the keys' own
//!   bytes.
//! * With `causal`, query `i` sees keys `j <= i`, and what no query of a tile sees is not read.
//! * Of the forward pass only the logarithm of each row's sum is kept; the backward pass makes the probabilities again.
//! * The forward pass is cut into runs of tiles, the backward pass into heads: sums over queries go in one order. So bits
//!   depend neither on threads nor on how tiles are shared out.
//!
//! Products are those of `gemm`'s register tiles in f32 or f64; f16 and bf16 are widened before and rounded once behind.

use crate::float::{FloatElement, Real};
use crate::gemm::{GemmElement, aligned, check_bounds};
use crate::pool::Pool;
use crate::prefetch::PrefetchRows;

mod backward;
mod forward;
mod tile;

#[cfg(test)]
mod tests;

/// Queries of a tile: whole vectors of every instruction set, and few enough that a row of keys fits the first caches. 32
/// made register tiles of two vectors, and read and wrote the sums of `dk` and `dv` twice as often: the backward pass took
/// 1.25 of the time.
const QUERIES: usize = 64;

/// Queries of which none sees the last keys of a tile, if `causal`: whole vectors, too.
const HALF: usize = QUERIES / 2;

/// Keys that a sum runs over before it is added up, which is also how far packed rows of `v` and `k` stay in the cache.
const KEYS: usize = 256;

/// Alignment of what lies in the workspace.
const ALIGN_BYTES: usize = 64;

/// Most rows of the next head that are prefetched: more would push out what the present head works with.
const PREFETCH_BYTES: usize = 1 << 20;

/// Four axes of elements anywhere in `data`; strides may be zero or negative.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a, T> {
    /// The elements that may be read.
    pub data: &'a [T],
    /// Index of the first element.
    pub offset: usize,
    /// Elements from one to the next along each axis.
    pub strides: [isize; 4],
}

impl<T> Strided<'_, T> {
    /// # Panics
    /// If an element lies outside `data`.
    fn check(&self, extents: [usize; 4], name: &str) {
        let axes: [(usize, isize); 4] = std::array::from_fn(|i| (extents[i], self.strides[i]));
        check_bounds(self.data.len(), self.offset, &axes, name);
    }

    /// Adds rows `0..rows` of image `n` and head `h`, `cols` elements each, to what is prefetched; not elements that lie apart.
    fn prefetch(&self, to: &mut PrefetchRows, [n, h]: [usize; 2], rows: usize, cols: usize) {
        let [sn, st, sh, sd] = self.strides;
        if sd == 1 {
            let first = n as isize * sn + h as isize * sh;
            to.push(self.data.as_ptr().wrapping_add(self.offset).wrapping_offset(first), st, rows, cols);
        }
    }
}

/// Sizes and options: `q: [n, tq, heads, d]`, `k: [n, tk, heads, d]`, `v: [n, tk, heads, dv]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Images.
    pub n: usize,
    /// Heads of each.
    pub heads: usize,
    /// Queries of a head.
    pub tq: usize,
    /// Keys and values of a head.
    pub tk: usize,
    /// Numbers of a query and of a key.
    pub d: usize,
    /// Numbers of a value.
    pub dv: usize,
    /// Query `i` sees keys `j <= i` only.
    pub causal: bool,
    /// Factor of the scores.
    pub scale: f64,
}

/// What is attended to. `mask: [n, heads, tq, tk]` hides a key from a query where it is 0.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T> {
    /// Queries.
    pub q: Strided<'a, T>,
    /// Keys.
    pub k: Strided<'a, T>,
    /// Values.
    pub v: Strided<'a, T>,
    /// What is seen, if not everything.
    pub mask: Option<Strided<'a, u8>>,
}

/// Where the gradients of `q`, `k` and `v` go.
#[derive(Debug)]
pub enum Gradients<'a, T> {
    /// Each in row-major order.
    Apart([&'a mut [T]; 3]),
    /// Into one `[n, t, 3, heads, d]`, where `tq = tk = t` and `dv = d`.
    Joined(&'a mut [T]),
}

impl Attention {
    /// Keys that some query sees.
    fn seen(&self) -> usize {
        if self.causal { self.tk.min(self.tq) } else { self.tk }
    }

    /// Keys that some query below `end` sees.
    fn seen_below(&self, end: usize) -> usize {
        if self.causal { self.tk.min(end) } else { self.tk }
    }

    /// Pairs of a query and a key that it may see, in all heads.
    #[must_use]
    pub fn pairs(&self) -> usize {
        let m = self.seen();
        let one = if self.causal { m * (m + 1) / 2 + (self.tq - m) * m } else { self.tq * m };
        self.n * self.heads * one
    }

    /// Image and head of a pair, counted from 0 over both.
    fn pair(&self, index: usize) -> [usize; 2] {
        [index / self.heads, index % self.heads]
    }

    fn tiles(&self) -> usize {
        self.tq.div_ceil(QUERIES)
    }

    /// # Panics
    /// If an element lies outside its slice.
    fn check<T>(&self, x: &Inputs<'_, T>) {
        let Attention { n, heads, tq, tk, d, dv, .. } = *self;
        x.q.check([n, tq, heads, d], "q");
        x.k.check([n, tk, heads, d], "k");
        x.v.check([n, tk, heads, dv], "v");
        if let Some(mask) = &x.mask {
            mask.check([n, heads, tq, tk], "the mask");
        }
    }
}

/// Bytes of workspace for [`forward`]: per thread about as many as `v` of one head has, and 32 numbers a key.
#[must_use]
pub fn forward_workspace_bytes<T: FloatElement<Real: GemmElement>>(a: &Attention, threads: usize) -> usize {
    let slot_len: usize = forward::lens::<T>(a).iter().sum();
    bytes::<T::Real>(slot_len, forward::tasks(a, threads).min(threads.max(1)))
}

/// Bytes of workspace for [`backward`]: per thread about three times what `k` of one head has.
#[must_use]
pub fn backward_workspace_bytes<T: FloatElement<Real: GemmElement>>(a: &Attention, threads: usize) -> usize {
    let slot_len: usize = backward::lens::<T>(a).iter().sum();
    bytes::<T::Real>(slot_len, (a.n * a.heads).min(threads.max(1)))
}

fn bytes<R>(slot_len: usize, slots: usize) -> usize {
    slot_len * slots * size_of::<R>() + ALIGN_BYTES
}

/// `y = softmax(scale q k^T) v`, row-major `[n, tq, heads, dv]`, and `lse = ln sum exp(scale q k^T)`, `[n, heads, tq]`.
///
/// A query that sees nothing gives 0, and an `lse` of minus infinity; no gradient flows from it.
///
/// # Panics
/// If an element would lie outside its slice, or the workspace is too small.
pub fn forward<T: FloatElement<Real: GemmElement>>(
    pool: &Pool,
    a: &Attention,
    x: &Inputs<'_, T>,
    y: &mut [T],
    lse: &mut [T::Real],
    workspace: &mut [u8],
) {
    a.check(x);
    assert!(y.len() == a.n * a.tq * a.heads * a.dv && lse.len() == a.n * a.heads * a.tq);
    if a.tk == 0 {
        y.fill(T::default());
        lse.fill(T::Real::NEG_INFINITY);
    } else {
        forward::run(pool, a, x, y, lse, aligned(workspace));
    }
}

/// The gradients of [`forward`] from its `lse` and `dy: [n, tq, heads, dv]`: with `p = exp(scale q k^T - lse)` and
/// `ds = p (dy v^T - sum p dy v^T)`, they are `dq = scale ds k`, `dk = scale ds^T q`, `dv = p^T dy`.
///
/// # Panics
/// As [`forward`], and if joined gradients have not equal sizes.
pub fn backward<T: FloatElement<Real: GemmElement>>(
    pool: &Pool,
    a: &Attention,
    x: &Inputs<'_, T>,
    lse: &[T::Real],
    dy: &Strided<'_, T>,
    gradients: Gradients<'_, T>,
    workspace: &mut [u8],
) {
    a.check(x);
    dy.check([a.n, a.tq, a.heads, a.dv], "dy");
    assert!(lse.len() == a.n * a.heads * a.tq);
    backward::run(pool, a, x, lse, dy, gradients, aligned(workspace));
}

/// Cuts a slot into pieces of these lengths.
fn cut<R, const N: usize>(mut slot: &mut [R], lens: [usize; N]) -> [&mut [R]; N] {
    lens.map(|len| {
        let (piece, rest) = std::mem::take(&mut slot).split_at_mut(len);
        slot = rest;
        piece
    })
}
