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
//! * A [`Span`] says which keys around its own place a query sees; what no query of a tile sees is not read.
//! * Heads of queries may share a head of keys and values (Ainslie et al., 2023), which is read where it is. In the backward pass
//!   a task owns a head of keys, and goes through the heads of queries in order.
//! * Few queries over many keys, as a model that continues a text has them, take rows of keys as they pass by: a tile would be
//!   mostly empty.
//! * Of the forward pass only the logarithm of each row's sum is kept; the backward pass makes the probabilities again.
//! * The forward pass is cut into runs of tiles, the backward pass into heads: sums over queries go in one order. So bits
//!   depend neither on threads nor on how tiles are shared out.
//!
//! Products are those of `gemm`'s register tiles in f32 or f64; f16 and bf16 are widened before and rounded once behind.

use crate::float::{FloatElement, Real};
use crate::gemm::{GemmElement, aligned, check_bounds};
use crate::philox::Stream;
use crate::pool::Pool;
use crate::prefetch::PrefetchRows;

mod backward;
mod few;
mod forward;
mod tile;

#[cfg(test)]
mod tests;

/// Queries of a tile: whole vectors of every instruction set, and few enough that a row of keys fits the first caches. 32
/// made register tiles of two vectors, and read and wrote the sums of `dk` and `dv` twice as often: the backward pass took
/// 1.25 of the time.
const QUERIES: usize = 64;

/// Queries that do not see the last keys of a tile, if `causal`. They are whole vectors, too.
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

/// Which keys a query sees: query `i` those from `i + offset - left` to `i + offset + right`, where `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The key at the place of the first query.
    pub offset: isize,
    /// Keys before its own that a query sees.
    pub left: Option<usize>,
    /// Keys behind its own that a query sees.
    pub right: Option<usize>,
}

impl Span {
    /// Every key.
    pub const ALL: Span = Span { offset: 0, left: None, right: None };
    /// Keys `j <= i`.
    pub const CAUSAL: Span = Span { offset: 0, left: None, right: Some(0) };

    /// How far the first key that query 0 sees lies behind key 0, if there is a bound.
    fn low(self) -> Option<isize> {
        Some(self.offset.saturating_sub_unsigned(self.left?))
    }

    /// As [`Span::low`] of the first key that it sees no more.
    fn high(self) -> Option<isize> {
        Some(self.offset.saturating_add_unsigned(self.right?).saturating_add(1))
    }
}

/// Probabilities that are dropped in training: each with probability `p`, and the others over `1 - p`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drops {
    /// The share.
    pub p: f64,
    /// The pair of head `h` of all images, query `i` and key `j` has word `((h tk + j) 64 ceil(tq / 64)) + i` of it.
    pub stream: Stream,
}

/// Sizes and options: `q: [n, tq, heads, d]`, `k: [n, tk, heads_kv, d]`, `v: [n, tk, heads_kv, dv]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Images.
    pub n: usize,
    /// Heads of the queries of each.
    pub heads: usize,
    /// Heads of keys and values, each for `heads / heads_kv` heads of queries in their order.
    pub heads_kv: usize,
    /// Queries of a head.
    pub tq: usize,
    /// Keys and values of a head.
    pub tk: usize,
    /// Numbers of a query and of a key.
    pub d: usize,
    /// Numbers of a value.
    pub dv: usize,
    /// Which keys a query sees.
    pub span: Span,
    /// Factor of the scores.
    pub scale: f64,
    /// Scores become `cap tanh(score / cap)`, if not 0.
    pub cap: f64,
    /// Probabilities that are dropped.
    pub drops: Option<Drops>,
}

/// The operands of attention. `mask: [n, heads, tq, tk]` hides a key from a query where it is 0; `bias`, of the same extents, is
/// added to the scores.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a, T> {
    /// Queries.
    pub q: Strided<'a, T>,
    /// Keys.
    pub k: Strided<'a, T>,
    /// Values.
    pub v: Strided<'a, T>,
    /// The visible keys, if not all.
    pub mask: Option<Strided<'a, u8>>,
    /// The term added to the scores.
    pub bias: Option<Strided<'a, T>>,
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
    /// The first key that query `i` may see.
    fn begin(&self, i: usize) -> usize {
        self.span.low().map_or(0, |low| self.place(i, low))
    }

    /// Behind the last key that query `i` may see.
    fn end(&self, i: usize) -> usize {
        self.span.high().map_or(self.tk, |high| self.place(i, high))
    }

    fn place(&self, i: usize, by: isize) -> usize {
        (i as isize).saturating_add(by).clamp(0, self.tk as isize) as usize
    }

    /// Behind the last key that some query sees.
    fn seen(&self) -> usize {
        self.seen_below(self.tq)
    }

    /// Behind the last key that some query below `end` sees.
    fn seen_below(&self, end: usize) -> usize {
        if end == 0 { 0 } else { self.end(end - 1) }
    }

    /// Keys of a tile with the most: those that one of its queries sees, from a whole block of keys on.
    fn tile_keys(&self) -> usize {
        let seen = self.seen();
        match (self.span.left, self.span.right) {
            (Some(left), Some(right)) => seen.min(left.saturating_add(right).saturating_add(QUERIES + KEYS)),
            _ => seen,
        }
    }

    /// Heads of queries that share a head of keys.
    fn group(&self) -> usize {
        self.heads / self.heads_kv.max(1)
    }

    /// Pairs of a query and a key that it may see, in all heads.
    #[must_use]
    pub fn pairs(&self) -> usize {
        // the sum over queries of a place that grows by one and is held between 0 and tk
        let sum = |by: isize| {
            let (tq, tk, by) = (self.tq as i128, self.tk as i128, by as i128);
            let (low, high) = ((-by).clamp(0, tq), (tk - by).clamp(0, tq));
            (high - low) * (low + high - 1 + 2 * by) / 2 + (tq - high) * tk
        };
        let ends = self.span.high().map_or(self.tq as i128 * self.tk as i128, sum);
        let one = ends - self.span.low().map_or(0, sum);
        usize::try_from(one).unwrap_or(usize::MAX).saturating_mul(self.n * self.heads)
    }

    /// Image and head of queries of a pair, counted from 0 over both.
    fn pair(&self, index: usize) -> [usize; 2] {
        [index / self.heads, index % self.heads]
    }

    /// Image and head of keys of a pair, counted from 0 over both.
    fn pair_kv(&self, index: usize) -> [usize; 2] {
        [index / self.heads_kv, index % self.heads_kv]
    }

    /// The head of keys for image and head of queries.
    fn kv_of(&self, [n, h]: [usize; 2]) -> [usize; 2] {
        [n, h / self.group().max(1)]
    }

    fn tiles(&self) -> usize {
        self.tq.div_ceil(QUERIES)
    }

    /// # Panics
    /// If an element lies outside its slice, or the heads of keys do not divide those of queries.
    fn check<T>(&self, x: &Inputs<'_, T>) {
        let Attention { n, heads, heads_kv, tq, tk, d, dv, .. } = *self;
        assert!(heads == self.group() * heads_kv, "{heads_kv} heads of keys for {heads} of queries");
        x.q.check([n, tq, heads, d], "q");
        x.k.check([n, tk, heads_kv, d], "k");
        x.v.check([n, tk, heads_kv, dv], "v");
        if let Some(mask) = &x.mask {
            mask.check([n, heads, tq, tk], "the mask");
        }
        if let Some(bias) = &x.bias {
            bias.check([n, heads, tq, tk], "the bias");
        }
    }
}

/// Bytes of workspace for [`forward`]: per thread about as many as `v` of one head has, and 32 numbers a key.
#[must_use]
pub fn forward_workspace_bytes<T: FloatElement<Real: GemmElement>>(a: &Attention, threads: usize) -> usize {
    if few::suits(a) {
        return bytes::<T::Real>(few::lens(a).iter().sum(), (a.n * a.heads_kv).min(threads.max(1)));
    }
    let slot_len: usize = forward::lens::<T>(a).iter().sum();
    bytes::<T::Real>(slot_len, forward::tasks(a, threads).min(threads.max(1)))
}

/// Bytes of workspace for [`backward`]: per thread about three times what `k` of one head has.
#[must_use]
pub fn backward_workspace_bytes<T: FloatElement<Real: GemmElement>>(a: &Attention, threads: usize) -> usize {
    let slot_len: usize = backward::lens::<T>(a).iter().sum();
    bytes::<T::Real>(slot_len, (a.n * a.heads_kv).min(threads.max(1)))
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
    } else if few::suits(a) {
        few::run(pool, a, x, y, lse, aligned(workspace));
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
