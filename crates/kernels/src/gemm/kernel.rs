//! Micro-kernels: one `mr x nr` tile of C in registers, and the tables that name them per instruction set.
#![allow(clippy::needless_range_loop, reason = "iterator closures do not inherit target features")]

use super::GemmElement;
use crate::prefetch::{PrefetchColumns, PrefetchLines, PrefetchRound, prefetch};
use crate::simd::{Isa, LoadAs, MulAdd, Wide};

/// Rows of the largest tile of any table.
pub(crate) const MAX_MR: usize = 14;
/// Elements of the largest tile of any table: 14 x 32 floats (AVX-512).
pub(crate) const MAX_TILE: usize = MAX_MR * 32;

/// `c[i, j] = (accumulate ? c[i, j] : 0) + sum over p < kc of a[p * mr + i] * b[p * nr + j]` for one tile.
///
/// The products are added in the order of `p` to a register that starts at zero, and `c` is added last: the result of an
/// element depends neither on the tile's size nor on the element's place in it. What `ahead` names is prefetched meanwhile.
///
/// # Safety
/// The processor has the table's instruction set. Readable: `kc * mr` elements at `a`, `kc * nr` at `b`. Writable (and
/// readable): `nr` elements at `c + i * ldc` for each row `i`.
pub(crate) type Tile<T> =
    unsafe fn(kc: usize, a: *const T, b: *const T, c: *mut T, ldc: usize, accumulate: bool, ahead: PrefetchLines<T>);

/// As [`Tile`], with `a[i * a_step[0] + p * a_step[1]]` in place of `a[p * mr + i]`, and `b[p * ldb + j]`: operands that
/// are not packed.
///
/// # Safety
/// As [`Tile`]; readable are those elements.
pub(crate) type TileInPlace<T> = unsafe fn(
    kc: usize,
    a: *const T,
    a_step: [isize; 2],
    b: *const T,
    ldb: usize,
    c: *mut T,
    ldc: usize,
    accumulate: bool,
);

/// As [`Tile`] of the most columns, with `b[p * ldb + j]` in place of `b[p * nr + j]`: a B that is not packed.
///
/// # Safety
/// As [`Tile`]; readable are those elements.
pub(crate) type TileOfColumns<T> = unsafe fn(
    kc: usize,
    a: *const T,
    b: *const T,
    ldb: usize,
    c: *mut T,
    ldc: usize,
    accumulate: bool,
    ahead: PrefetchColumns<T>,
);

/// `y[i, j] = (accumulate ? y[i, j] : 0) + sum over p < k of x[i, p] * b[p * ldb + j]`, for `i < m`, `j < n` and at
/// most [`FEW_ROWS`] rows: those of `b` are added up, whose elements may be of a narrower type. Element `(i, p)` of x is
/// `x[i * x_step[0] + p * x_step[1]]`, rows of `y` are `ldy` apart.
///
/// The products are added to `y` one after the other, in the order of `p`: it does not matter in how many calls.
///
/// # Safety
/// The processor has the table's instruction set. Readable: those elements of `x` and `b`. Writable: `n` of each row of `y`.
pub(crate) type AddRows<T, B> = unsafe fn(
    sizes: [usize; 3],
    x: *const T,
    x_step: [isize; 2],
    b: *const B,
    ldb: isize,
    y: *mut T,
    ldy: usize,
    accumulate: bool,
);

/// `sum over p < k of x[p] * b[p]`, in a fixed order.
///
/// # Safety
/// The processor has the table's instruction set. Readable: `k` elements at `x` and at `b`.
pub(crate) type Dot<T, B> = unsafe fn(k: usize, x: *const T, b: *const B) -> T;

/// The kernels of one element type for one instruction set.
pub struct Kernels<T: 'static> {
    /// Elements in a vector.
    pub(crate) lanes: usize,
    /// Most steps of `k` of a packed block: a panel of B may be larger than an L1 cache, for it comes from the next one fast
    /// enough, and C is read and written less often.
    pub(crate) depth: usize,
    /// `tiles[mr - 1][nv - 1]` makes a tile of `mr` rows and `nv * lanes` columns.
    pub(crate) tiles: &'static [&'static [Tile<T>]],
    /// The same tiles of an A that is not packed.
    pub(crate) tiles_in_place: &'static [&'static [TileInPlace<T>]],
    /// `tiles_of_columns[mr - 1]` makes a tile of `mr` rows and `nr` columns of a B that is not packed.
    pub(crate) tiles_of_columns: &'static [TileOfColumns<T>],
    pub(crate) add_rows: AddRows<T, T>,
    pub(crate) dot: Dot<T, T>,
    /// The kernels of tall tiles, where these are wide.
    tall: Option<&'static Kernels<T>>,
}

impl<T> Kernels<T> {
    /// Rows of the full tile.
    pub(crate) fn mr(&self) -> usize {
        self.tiles.len()
    }
    /// The kernels for a C of `n` columns: those of tall tiles, if that is all.
    pub(crate) fn for_columns(&'static self, n: usize) -> &'static Kernels<T> {
        if n <= self.tall().nr() { self.tall() } else { self }
    }
    /// Those of tiles with as many rows as registers hold of two vectors.
    pub(crate) fn tall(&'static self) -> &'static Kernels<T> {
        self.tall.unwrap_or(self)
    }
    /// True if tiles are wider than two vectors.
    pub(crate) fn is_wide(&self) -> bool {
        self.tiles[0].len() > 2
    }
    /// Columns of the full tile.
    pub(crate) fn nr(&self) -> usize {
        self.tiles[0].len() * self.lanes
    }
}

/// `acc[i][j] += a[i * a_row] * b[j]`, in vectors of `b`.
///
/// # Safety
/// The processor has the instruction set of `V`; those elements of `a` and `NV` vectors at `b` are readable.
#[inline(always)]
unsafe fn step<V: MulAdd, const MR: usize, const NV: usize>(
    a: *const V::Elem,
    a_row: isize,
    b: *const V::Elem,
    acc: &mut [[V; NV]; MR],
) {
    // SAFETY: as the caller says.
    unsafe {
        let mut row = [V::splat(V::Elem::default()); NV];
        for j in 0..NV {
            row[j] = V::load(b.add(j * V::LANES));
        }
        for i in 0..MR {
            let x = V::splat(*a.offset(i as isize * a_row));
            for j in 0..NV {
                acc[i][j] = x.mul_add(row[j], acc[i][j]);
            }
        }
    }
}

#[inline(always)]
unsafe fn tile<V: MulAdd, const MR: usize, const NV: usize>(
    kc: usize,
    mut a: *const V::Elem,
    a_step: [isize; 2],
    mut b: *const V::Elem,
    ldb: usize,
    c: *mut V::Elem,
    ldc: usize,
    accumulate: bool,
    mut ahead: impl PrefetchRound,
) {
    // SAFETY: the caller keeps the contract of `TileInPlace`: all offsets below stay in the elements it lists.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let mut acc = [[zero; NV]; MR];
        // C is needed at the end, and comes from far away: a miss there would cost as much as a fifth of the loop. A row is
        // prefetched in each round: all at once would hold up the operands' loads, as a core waits for so many lines only.
        let prefetch_row_of_c = |i: usize| {
            for j in (0..NV).step_by(2) {
                prefetch(c.wrapping_add(i * ldc + j * V::LANES));
                prefetch(c.wrapping_add(i * ldc + (j + 2).min(NV) * V::LANES - 1));
            }
        };
        let rounds = kc / V::UNROLLED;
        (rounds..MR).for_each(prefetch_row_of_c);
        for round in 0..rounds {
            if round < MR {
                prefetch_row_of_c(round);
            }
            ahead.round(V::UNROLLED);
            for u in 0..V::UNROLLED {
                step(a.wrapping_offset(u as isize * a_step[1]), a_step[0], b.wrapping_add(u * ldb), &mut acc);
            }
            // The last step may lead out of the allocation of what is not packed; it is never read from there.
            a = a.wrapping_offset(V::UNROLLED as isize * a_step[1]);
            b = b.wrapping_add(V::UNROLLED * ldb);
        }
        for _ in rounds * V::UNROLLED..kc {
            step(a, a_step[0], b, &mut acc);
            a = a.wrapping_offset(a_step[1]);
            b = b.wrapping_add(ldb);
        }
        for i in 0..MR {
            for j in 0..NV {
                let p = c.add(i * ldc + j * V::LANES);
                (if accumulate { V::load(p).add(acc[i][j]) } else { acc[i][j] }).store(p);
            }
        }
    }
}

/// Columns that `add_rows` keeps in registers at a time, in vectors: enough independent chains for the speed of memory.
const ADD_ROWS_VECTORS: usize = 4;
/// Rows of `b` that it adds at a time: so many streams a processor follows ahead, and `y` is read and written once for all.
const ADD_ROWS: usize = 8;
/// Most rows of `y` that it makes: the places of more take more registers than there are.
pub(crate) const FEW_ROWS: usize = 4;
/// Bytes of `y` that stay in a first cache from some rows to the next.
const ADD_ROWS_BYTES: usize = 16 << 10;

/// `add_rows` for `M` rows of columns `from .. end`, as far as these fill `NV` vectors; the first column that is left.
#[inline(always)]
unsafe fn add_rows_blocks<V: LoadAs<B>, B, const M: usize, const NV: usize>(
    [from, end]: [usize; 2],
    k: usize,
    x: *const V::Elem,
    x_step: [isize; 2],
    b: *const B,
    ldb: isize,
    y: *mut V::Elem,
    ldy: usize,
    accumulate: bool,
) -> usize {
    let blocks = end.saturating_sub(from) / (NV * V::LANES);
    for at in (0..blocks).map(|block| from + block * NV * V::LANES) {
        // SAFETY: the caller keeps the contract of `AddRows` for these columns.
        unsafe {
            let (b, y) = (b.add(at), y.add(at));
            let mut acc = [[V::splat(V::Elem::default()); NV]; M];
            if accumulate {
                for i in 0..M {
                    for j in 0..NV {
                        acc[i][j] = V::load(y.add(i * ldy + j * V::LANES));
                    }
                }
            }
            for p in 0..k as isize {
                let mut row = [V::splat(V::Elem::default()); NV];
                for j in 0..NV {
                    row[j] = V::load_as(b.offset(p * ldb).add(j * V::LANES));
                }
                for i in 0..M {
                    let x = V::splat(*x.offset(i as isize * x_step[0] + p * x_step[1]));
                    for j in 0..NV {
                        acc[i][j] = x.mul_add(row[j], acc[i][j]);
                    }
                }
            }
            for i in 0..M {
                for j in 0..NV {
                    acc[i][j].store(y.add(i * ldy + j * V::LANES));
                }
            }
        }
    }
    from + blocks * NV * V::LANES
}

/// `add_rows` for `M` rows, without its cuts.
#[inline(always)]
unsafe fn add_rows_to<V: LoadAs<B>, B: GemmElement<Sum = V::Elem>, const M: usize>(
    n: usize,
    k: usize,
    x: *const V::Elem,
    x_step: [isize; 2],
    b: *const B,
    ldb: isize,
    y: *mut V::Elem,
    ldy: usize,
    accumulate: bool,
) {
    // SAFETY: the caller keeps the contract of `AddRows`; each block stays within the first `n` columns.
    unsafe {
        let mut j = 0;
        // as many vectors as there are registers for beside the row of `b`
        if (M + 1) * ADD_ROWS_VECTORS < V::REGISTERS {
            j = add_rows_blocks::<V, B, M, ADD_ROWS_VECTORS>([j, n], k, x, x_step, b, ldb, y, ldy, accumulate);
        }
        j = add_rows_blocks::<V, B, M, 2>([j, n], k, x, x_step, b, ldb, y, ldy, accumulate);
        j = add_rows_blocks::<V, B, M, 1>([j, n], k, x, x_step, b, ldb, y, ldy, accumulate);
        for (i, j) in (0..M).flat_map(|i| (j..n).map(move |j| (i, j))) {
            // One lane of a splat, so that a tail column rounds as the others do.
            let y = y.add(i * ldy + j);
            let mut acc = V::splat(if accumulate { *y } else { V::Elem::default() });
            for p in 0..k as isize {
                let b = V::splat((*b.offset(p * ldb + j as isize)).widen());
                acc = V::splat(*x.offset(i as isize * x_step[0] + p * x_step[1])).mul_add(b, acc);
            }
            *y = first_lane(acc);
        }
    }
}

#[inline(always)]
unsafe fn add_rows<V: LoadAs<B>, B: GemmElement<Sum = V::Elem>>(
    [m, n, k]: [usize; 3],
    x: *const V::Elem,
    x_step: [isize; 2],
    b: *const B,
    ldb: isize,
    y: *mut V::Elem,
    ldy: usize,
    accumulate: bool,
) {
    // of whole vectors, whatever `m`
    let block = ADD_ROWS_VECTORS * V::LANES;
    let strip = ADD_ROWS_BYTES / size_of::<V::Elem>() / m / block * block;
    // columns that one block makes are not written in between
    let deep = if n <= 2 * V::LANES { k.max(1) } else { ADD_ROWS };
    // SAFETY: the caller keeps the contract of `AddRows`; each part stays within `m`, `n` and `k`.
    unsafe {
        for j in (0..n).step_by(strip) {
            let n = strip.min(n - j);
            for p in (0..k).step_by(deep) {
                let (k, accumulate) = (deep.min(k - p), accumulate || p > 0);
                let b = b.offset(p as isize * ldb).add(j);
                let (x, y) = (x.offset(p as isize * x_step[1]), y.add(j));
                match m {
                    1 => add_rows_to::<V, B, 1>(n, k, x, x_step, b, ldb, y, ldy, accumulate),
                    2 => add_rows_to::<V, B, 2>(n, k, x, x_step, b, ldb, y, ldy, accumulate),
                    3 => add_rows_to::<V, B, 3>(n, k, x, x_step, b, ldb, y, ldy, accumulate),
                    FEW_ROWS => add_rows_to::<V, B, FEW_ROWS>(n, k, x, x_step, b, ldb, y, ldy, accumulate),
                    _ => unreachable!("{m} rows are not few"),
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn first_lane<V: MulAdd>(v: V) -> V::Elem {
    // SAFETY: same contract.
    unsafe { lanes_of(v)[0] }
}

/// The lanes of `v`, then defaults.
#[inline(always)]
unsafe fn lanes_of<V: MulAdd>(v: V) -> [V::Elem; MAX_LANES] {
    let mut out = [V::Elem::default(); MAX_LANES];
    // SAFETY: no vector has more than `MAX_LANES` lanes; the caller says that the instruction set is there.
    unsafe { v.store(out.as_mut_ptr()) };
    out
}

/// Lanes of the widest vector (f32 in AVX-512).
const MAX_LANES: usize = 16;

#[inline(always)]
unsafe fn dot<V: LoadAs<B>, B: GemmElement<Sum = V::Elem>>(k: usize, x: *const V::Elem, b: *const B) -> V::Elem {
    const CHAINS: usize = 8;
    // SAFETY: the caller says that `k` elements are readable at `x` and `b`; every offset is below `k`.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let mut acc = [zero; CHAINS];
        let mut p = 0;
        while p + CHAINS * V::LANES <= k {
            for c in 0..CHAINS {
                let at = p + c * V::LANES;
                acc[c] = V::load(x.add(at)).mul_add(V::load_as(b.add(at)), acc[c]);
            }
            p += CHAINS * V::LANES;
        }
        while p + V::LANES <= k {
            acc[0] = V::load(x.add(p)).mul_add(V::load_as(b.add(p)), acc[0]);
            p += V::LANES;
        }
        let mut all = zero;
        for c in 0..CHAINS {
            all = all.add(acc[c]);
        }
        let lanes = lanes_of(all);
        let mut sum = V::Elem::default();
        for lane in &lanes[..V::LANES] {
            sum = B::add(sum, *lane);
        }
        while p < k {
            sum = B::mul_add(*x.add(p), (*b.add(p)).widen(), sum);
            p += 1;
        }
        sum
    }
}

/// A kernel as a function of its own, with attributes.
macro_rules! kernel {
    (tile $(#[$attribute:meta])?) => {
        $(#[$attribute])?
        pub(crate) unsafe fn tile<V: super::MulAdd, const MR: usize, const NV: usize>(
            kc: usize,
            a: *const V::Elem,
            b: *const V::Elem,
            c: *mut V::Elem,
            ldc: usize,
            accumulate: bool,
            ahead: super::PrefetchLines<V::Elem>,
        ) {
            // SAFETY: same contract.
            unsafe { super::tile::<V, MR, NV>(kc, a, [1, MR as isize], b, NV * V::LANES, c, ldc, accumulate, ahead) }
        }
    };
    (tile_in_place $(#[$attribute:meta])?) => {
        $(#[$attribute])?
        pub(crate) unsafe fn tile_in_place<V: super::MulAdd, const MR: usize, const NV: usize>(
            kc: usize,
            a: *const V::Elem,
            a_step: [isize; 2],
            b: *const V::Elem,
            ldb: usize,
            c: *mut V::Elem,
            ldc: usize,
            accumulate: bool,
        ) {
            // SAFETY: same contract.
            unsafe { super::tile::<V, MR, NV>(kc, a, a_step, b, ldb, c, ldc, accumulate, super::PrefetchLines::<V::Elem>::NONE) }
        }
    };
    (tile_of_columns $(#[$attribute:meta])?) => {
        $(#[$attribute])?
        pub(crate) unsafe fn tile_of_columns<V: super::MulAdd, const MR: usize, const NV: usize>(
            kc: usize,
            a: *const V::Elem,
            b: *const V::Elem,
            ldb: usize,
            c: *mut V::Elem,
            ldc: usize,
            accumulate: bool,
            ahead: super::PrefetchColumns<V::Elem>,
        ) {
            // SAFETY: same contract.
            unsafe { super::tile::<V, MR, NV>(kc, a, [1, MR as isize], b, ldb, c, ldc, accumulate, ahead) }
        }
    };
    (add_rows $(#[$attribute:meta])?) => {
        $(#[$attribute])?
        pub(crate) unsafe fn add_rows<V: super::LoadAs<B>, B: super::GemmElement<Sum = V::Elem>>(
            sizes: [usize; 3],
            x: *const V::Elem,
            x_step: [isize; 2],
            b: *const B,
            ldb: isize,
            y: *mut V::Elem,
            ldy: usize,
            accumulate: bool,
        ) {
            // SAFETY: same contract.
            unsafe { super::add_rows::<V, B>(sizes, x, x_step, b, ldb, y, ldy, accumulate) }
        }
    };
    (dot $(#[$attribute:meta])?) => {
        $(#[$attribute])?
        pub(crate) unsafe fn dot<V: super::LoadAs<B>, B: super::GemmElement<Sum = V::Elem>>(
            k: usize,
            x: *const V::Elem,
            b: *const B,
        ) -> V::Elem {
            // SAFETY: same contract.
            unsafe { super::dot::<V, B>(k, x, b) }
        }
    };
}

/// Wraps kernels in functions compiled for an instruction set.
macro_rules! compiled_for {
    ($module:ident, [$($kernel:ident)*]) => {
        pub(super) mod $module {
            $(kernel!($kernel);)*
        }
    };
    ($module:ident, $features:literal, [$($kernel:ident)*]) => {
        pub(super) mod $module {
            $(kernel!($kernel #[target_feature(enable = $features)]);)*
        }
    };
}

compiled_for!(portable, [tile tile_in_place tile_of_columns add_rows dot]);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx2, "avx2,fma", [tile tile_in_place tile_of_columns add_rows dot]);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx512, "avx512f", [tile tile_in_place tile_of_columns add_rows dot]);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx2_f16c, "avx2,fma,f16c", [add_rows dot]);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx512_vnni, "avx512f,avx512vnni", [tile]);

/// The tiles of a table: the kernel, the vector type, the row counts from 1 to the full tile's, and the most vectors of a row.
macro_rules! tiles {
    ($module:ident :: $kernel:ident, $vector:ty, [$($mr:literal)*], full $vectors:literal) => {
        &[$($module::$kernel::<$vector, $mr, $vectors>),*]
    };
    ($module:ident :: $kernel:ident, $vector:ty, [$($mr:literal)*], 2) => {
        &[$(&[$module::$kernel::<$vector, $mr, 1>, $module::$kernel::<$vector, $mr, 2>]),*]
    };
    ($module:ident :: $kernel:ident, $vector:ty, [$($mr:literal)*], 4) => {
        &[$(&[
            $module::$kernel::<$vector, $mr, 1>,
            $module::$kernel::<$vector, $mr, 2>,
            $module::$kernel::<$vector, $mr, 3>,
            $module::$kernel::<$vector, $mr, 4>,
        ]),*]
    };
}
pub(super) use tiles;

/// Steps of a packed block of narrow elements: a B panel of 16 of their sums takes 16 KiB, half of a small L1 cache.
pub(super) const KC: usize = 256;
/// Steps of a packed block for vectors of up to 32 bytes: 256 took 2 to 3 % longer.
const DEPTH: usize = 512;
/// The same for vectors of 64 bytes, whose tiles are wider. Half as many took 2 to 9 % longer in f64.
const WIDE_DEPTH: usize = 384;

/// A table of kernels: the module, the vector type, the row counts of its tiles, and the most vectors of a row of one.
macro_rules! table {
    ($module:ident, $vector:ty, $rows:tt, 2) => {
        table!($module, $vector, $rows, 2, None)
    };
    ($module:ident, $vector:ty, $rows:tt, 4) => {
        table!($module, $vector, $rows, 4, Some(table!($module, $vector, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], 2)))
    };
    ($module:ident, $vector:ty, $rows:tt, $vectors:tt, $tall:expr) => {
        &Kernels {
            lanes: <$vector as MulAdd>::LANES,
            depth: const { if size_of::<$vector>() < 64 { DEPTH } else { WIDE_DEPTH } },
            tiles: tiles!($module::tile, $vector, $rows, $vectors),
            tiles_in_place: tiles!($module::tile_in_place, $vector, $rows, $vectors),
            tiles_of_columns: tiles!($module::tile_of_columns, $vector, $rows, full $vectors),
            add_rows: $module::add_rows::<$vector, _>,
            dot: $module::dot::<$vector, _>,
            tall: $tall,
        }
    };
}

/// Those kernels, or the ones of tall tiles where the processor makes them faster.
#[cfg(target_arch = "x86_64")]
fn preferred<T>(wide: &'static Kernels<T>) -> &'static Kernels<T> {
    if crate::simd::prefers_wide_tiles() { wide } else { wide.tall() }
}

/// The f32 kernels for `isa`.
pub(crate) fn f32_kernels(isa: Isa) -> &'static Kernels<f32> {
    match isa {
        Isa::Portable => table!(portable, Wide<f32, 4>, [1 2 3 4 5 6], 2),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => table!(avx2, std::arch::x86_64::__m256, [1 2 3 4 5 6], 2),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => preferred(table!(avx512, std::arch::x86_64::__m512, [1 2 3 4 5 6], 4)),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon => table!(portable, crate::simd::neon::F32, [1 2 3 4 5 6], 2),
    }
}

/// The f64 kernels for `isa`.
pub(crate) fn f64_kernels(isa: Isa) -> &'static Kernels<f64> {
    match isa {
        Isa::Portable => table!(portable, Wide<f64, 2>, [1 2 3 4 5 6], 2),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => table!(avx2, std::arch::x86_64::__m256d, [1 2 3 4 5 6], 2),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => preferred(table!(avx512, std::arch::x86_64::__m512d, [1 2 3 4 5 6], 4)),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon => table!(portable, crate::simd::neon::F64, [1 2 3 4 5 6], 2),
    }
}

/// The f32 kernels with vectors of `lanes` elements: 8 or 16, which every machine has.
pub(crate) fn f32_kernels_of(lanes: usize) -> Option<&'static Kernels<f32>> {
    match (lanes, Isa::best()) {
        #[cfg(target_arch = "x86_64")]
        (8, Isa::Avx2 | Isa::Avx512) => Some(f32_kernels(Isa::Avx2)),
        #[cfg(target_arch = "x86_64")]
        (16, Isa::Avx512) => Some(f32_kernels(Isa::Avx512)),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        (8, Isa::Neon) => Some(f32_kernels(Isa::Neon)),
        (8, _) => Some(table!(portable, Wide<f32, 8>, [1 2 3 4 5 6], 2)),
        (16, _) => Some(f32_kernels_as_wide_as_avx512().tall()),
        _ => None,
    }
}

/// The portable kernels with the tiles of AVX-512, wide and tall.
pub(crate) fn f32_kernels_as_wide_as_avx512() -> &'static Kernels<f32> {
    table!(portable, Wide<f32, 16>, [1 2 3 4 5 6], 4)
}

/// A table for each shape of tiles that this processor can run.
#[cfg(test)]
pub(crate) fn f32_tables() -> Vec<&'static Kernels<f32>> {
    let mut tables: Vec<_> = Isa::all().into_iter().map(f32_kernels).collect();
    let mut shapes = vec![f32_kernels_as_wide_as_avx512()];
    #[cfg(target_arch = "x86_64")]
    if Isa::best() == Isa::Avx512 {
        tables.pop();
        shapes.push(table!(avx512, std::arch::x86_64::__m512, [1 2 3 4 5 6], 4));
    }
    tables.extend(shapes.into_iter().flat_map(|wide| [wide, wide.tall()]));
    tables
}
