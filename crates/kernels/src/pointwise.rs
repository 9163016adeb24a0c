//! Pointwise kernels: one function on one, two or three operands, element by element.
//!
//! A function comes as a loop on plain slices ([`Map1`], [`Map2`]), in which the compiler has inlined and vectorised the
//! scalar form. The drivers here cut the output into blocks that stay in the L1 cache and bring each operand of a block
//! into a plain slice: a contiguous one is borrowed, a strided or broadcast one is gathered into a stack buffer, and one
//! that lies in the output already (its storage was donated) is moved to a buffer first. So there is one loop per
//! function and type, whatever the layouts, and in-place results equal out-of-place results by construction.
//!
//! Rejected: a loop per layout case, monomorphised per function (sixteen times the code for what L1 hides).

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use remat_types::{Layout, bf16, f16};

use crate::copy::{PARALLEL_MIN_ELEMS, PART_ELEMS, Walk};
use crate::pool::Pool;
use crate::prefetch::{AHEAD_BYTES, prefetch_beyond};
use crate::simd::widest;

/// Elements of a block: three f32 operands of 12 KiB lie in an L1 cache of 32 KiB.
pub const BLOCK: usize = 1024;

/// Arrays of at most this many elements use small buffers, whose clearing would otherwise cost more than the work.
const SMALL: usize = 32;

/// `y[i] = f(x[i])` on slices of equal length.
pub type Map1<T, U> = fn(&[T], &mut [U]);
/// `y[i] = f(a[i], b[i])` on slices of equal length.
pub type Map2<T, U> = fn(&[T], &[T], &mut [U]);

/// A binary function on a block, which may have captured something.
type Block2<'f, A, B, U> = dyn Fn(&[A], &[B], &mut [U]) + Sync + 'f;

/// The loop of a unary scalar function; to be wrapped in a [`Map1`].
#[inline(always)]
pub fn each1<T: Copy, U>(x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    widest(
        #[inline(always)]
        move || {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = f(x);
            }
        },
    );
}

/// The loop of a binary scalar function; to be wrapped in a [`Map2`].
#[inline(always)]
pub fn each2<T: Copy, U>(a: &[T], b: &[T], y: &mut [U], f: impl Fn(T, T) -> U) {
    widest(
        #[inline(always)]
        move || {
            for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                *y = f(a, b);
            }
        },
    );
}

/// Elements of a vector of f32, and of a cache line of them.
const VECTOR: usize = 16;

/// As [`each1`], of a function that computes as long as the memory fetches, or longer: such loops see too few lines ahead for
/// both at once, so this one prefetches them. Cheap functions lose by it.
#[inline(always)]
pub fn each1_ahead<T: Copy, U>(x: &[T], y: &mut [U], f: impl Fn(T) -> U) {
    widest(
        #[inline(always)]
        move || {
            let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<VECTOR>(), y.as_chunks_mut::<VECTOR>());
            for (y, x) in y.iter_mut().zip(x) {
                prefetch_beyond::<AHEAD_BYTES, T>(x.as_ptr());
                for i in 0..VECTOR {
                    y[i] = f(x[i]);
                }
            }
            for (y, &x) in y_rest.iter_mut().zip(x_rest) {
                *y = f(x);
            }
        },
    );
}

/// As [`each2`]; see [`each1_ahead`].
#[inline(always)]
pub fn each2_ahead<T: Copy, U>(a: &[T], b: &[T], y: &mut [U], f: impl Fn(T, T) -> U) {
    widest(
        #[inline(always)]
        move || {
            let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<VECTOR>(), b.as_chunks::<VECTOR>());
            let (y, y_rest) = y.as_chunks_mut::<VECTOR>();
            for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
                prefetch_beyond::<AHEAD_BYTES, T>(a.as_ptr());
                prefetch_beyond::<AHEAD_BYTES, T>(b.as_ptr());
                for i in 0..VECTOR {
                    y[i] = f(a[i], b[i]);
                }
            }
            for ((y, &a), &b) in y_rest.iter_mut().zip(a_rest).zip(b_rest) {
                *y = f(a, b);
            }
        },
    );
}

/// Where the elements of an operand are.
#[derive(Clone, Debug)]
pub enum Operand<'a, T> {
    /// In the output, which took the operand's storage.
    Held,
    /// In row-major order, as many as the output has.
    Slice(&'a [T]),
    /// Selected of these elements by a walk of the output's shape.
    Walk(&'a [T], Walk),
}

impl<'a, T: Copy> Operand<'a, T> {
    /// The elements of `data` that `layout` selects; it has the output's shape and lies in `data`.
    pub fn new(data: &'a [T], layout: &Layout) -> Self {
        let at = layout.offset();
        match data.get(at..at + layout.elems()) {
            Some(run) if layout.is_contiguous() => Operand::Slice(run),
            _ => Operand::Walk(data, Walk::new(layout)),
        }
    }
}

/// Fills blocks of one operand.
struct Reader<'o, 'a, T, const B: usize> {
    from: &'o Operand<'a, T>,
    buffer: [T; B],
    /// A uniform operand fills its buffer once.
    filled: bool,
}

impl<'o, 'a, T: Pod, const B: usize> Reader<'o, 'a, T, B> {
    fn new(from: &'o Operand<'a, T>) -> Self {
        Reader { from, buffer: [T::zeroed(); B], filled: false }
    }

    /// The operand's elements at `at .. at + y.len()`; `y` is that block of the output.
    fn block<U: Pod>(&mut self, at: usize, y: &[U]) -> &[T] {
        let n = y.len();
        match self.from {
            Operand::Slice(x) => return &x[at..at + n],
            Operand::Held => self.buffer[..n].copy_from_slice(bytemuck::cast_slice(y)),
            Operand::Walk(..) if self.filled => {}
            Operand::Walk(x, walk) if walk.is_uniform() => {
                walk.read(x, 0, &mut self.buffer[..1]);
                let v = self.buffer[0];
                self.buffer.fill(v);
                self.filled = true;
            }
            Operand::Walk(x, walk) => walk.read(x, at, &mut self.buffer[..n]),
        }
        &self.buffer[..n]
    }
}

/// Calls `part(start, part of y)` for parts of `y`: all of it when small, else in parallel.
fn parts<U: Send>(pool: &Pool, y: &mut [U], part: &(dyn Fn(usize, &mut [U]) + Sync)) {
    if y.len() < PARALLEL_MIN_ELEMS {
        return part(0, y);
    }
    pool.chunks_mut(y, PART_ELEMS, |i, y| part(i * PART_ELEMS, y));
}

/// `y[i] = f(x[i])`. `f` gets at most [`BLOCK`] elements at a time. A held operand has the output's type.
pub fn map1<T: Pod + Sync, U: Pod + Send>(
    pool: &Pool,
    x: &Operand<'_, T>,
    y: &mut [U],
    f: &(dyn Fn(&[T], &mut [U]) + Sync),
) {
    fn run<T: Pod, U: Pod, const B: usize>(
        start: usize,
        x: &Operand<'_, T>,
        y: &mut [U],
        f: &(dyn Fn(&[T], &mut [U]) + Sync),
    ) {
        let mut x = Reader::<T, B>::new(x);
        for (i, y) in y.chunks_mut(B).enumerate() {
            f(x.block(start + i * B, y), y);
        }
    }
    parts(pool, y, &|start, y| match x {
        Operand::Slice(x) => {
            let x = &x[start..start + y.len()];
            x.chunks(BLOCK).zip(y.chunks_mut(BLOCK)).for_each(|(x, y)| f(x, y));
        }
        _ if y.len() <= SMALL => run::<T, U, SMALL>(start, x, y, f),
        _ => run::<T, U, BLOCK>(start, x, y, f),
    });
}

/// `y[i] = f(a[i], b[i])`. `f` gets at most [`BLOCK`] elements at a time. A held operand has the output's type.
pub fn map2<A: Pod + Sync, B: Pod + Sync, U: Pod + Send>(
    pool: &Pool,
    a: &Operand<'_, A>,
    b: &Operand<'_, B>,
    y: &mut [U],
    f: &Block2<'_, A, B, U>,
) {
    fn run<A: Pod, B: Pod, U: Pod, const N: usize>(
        start: usize,
        a: &Operand<'_, A>,
        b: &Operand<'_, B>,
        y: &mut [U],
        f: &Block2<'_, A, B, U>,
    ) {
        let (mut a, mut b) = (Reader::<A, N>::new(a), Reader::<B, N>::new(b));
        for (i, y) in y.chunks_mut(N).enumerate() {
            f(a.block(start + i * N, y), b.block(start + i * N, y), y);
        }
    }
    parts(pool, y, &|start, y| match (a, b) {
        (Operand::Slice(a), Operand::Slice(b)) => {
            let (a, b) = (&a[start..start + y.len()], &b[start..start + y.len()]);
            let blocks = a.chunks(BLOCK).zip(b.chunks(BLOCK)).zip(y.chunks_mut(BLOCK));
            blocks.for_each(|((a, b), y)| f(a, b, y));
        }
        _ if y.len() <= SMALL => run::<A, B, U, SMALL>(start, a, b, y, f),
        _ => run::<A, B, U, BLOCK>(start, a, b, y, f),
    });
}

/// `y[i] = a[i]` where `cond[i]` is not 0, else `b[i]`. `cond` is not held.
pub fn select<T: Pod + Send + Sync>(
    pool: &Pool,
    cond: &Operand<'_, u8>,
    a: &Operand<'_, T>,
    b: &Operand<'_, T>,
    y: &mut [T],
) {
    fn run<T: Pod, const B: usize>(
        start: usize,
        cond: &Operand<'_, u8>,
        a: &Operand<'_, T>,
        b: &Operand<'_, T>,
        y: &mut [T],
    ) {
        let mut cond = Reader::<u8, B>::new(cond);
        let (mut a, mut b) = (Reader::<T, B>::new(a), Reader::<T, B>::new(b));
        for (i, y) in y.chunks_mut(B).enumerate() {
            let at = start + i * B;
            let (a, b) = (a.block(at, y), b.block(at, y));
            // the condition never lies in the output, so only its length is taken of `y`
            let c = cond.block(at, y);
            widest(
                #[inline(always)]
                || {
                    for (((y, &a), &b), &c) in y.iter_mut().zip(a).zip(b).zip(c) {
                        *y = if c != 0 { a } else { b };
                    }
                },
            );
        }
    }
    parts(pool, y, &|start, y| {
        if y.len() <= SMALL {
            run::<T, SMALL>(start, cond, a, b, y);
        } else {
            run::<T, BLOCK>(start, cond, a, b, y);
        }
    });
}

/// A 16-bit float that is computed with in f32.
pub trait Half: Pod + Send + Sync {
    /// Converts `x` to f32.
    fn widen(x: &[Self], y: &mut [f32]);
    /// Rounds `x` to nearest even.
    fn narrow(x: &[f32], y: &mut [Self]);
}

macro_rules! half {
    ($($t:ty)*) => { $(
        impl Half for $t {
            fn widen(x: &[Self], y: &mut [f32]) { x.convert_to_f32_slice(y); }
            fn narrow(x: &[f32], y: &mut [Self]) { y.convert_from_f32_slice(x); }
        }
    )* };
}
half! { f16 bf16 }

/// Calls `f` with a block of 16-bit floats in f32.
pub fn widened<T: Half>(x: &[T], f: impl FnOnce(&[f32])) {
    let mut wide = [0.0; BLOCK];
    let wide = &mut wide[..x.len()];
    T::widen(x, wide);
    f(wide);
}

/// Rounds what `f` writes to a block of 16-bit floats.
pub fn narrowed<T: Half>(y: &mut [T], f: impl FnOnce(&mut [f32])) {
    let mut wide = [0.0; BLOCK];
    let wide = &mut wide[..y.len()];
    f(wide);
    T::narrow(wide, y);
}

/// `f` in f32 on a block of 16-bit floats.
pub fn half1<T: Half>(x: &[T], y: &mut [T], f: Map1<f32, f32>) {
    widened(x, |x| narrowed(y, |y| f(x, y)));
}

/// A predicate in f32 on a block of 16-bit floats.
pub fn half_test<T: Half>(x: &[T], y: &mut [u8], f: Map1<f32, u8>) {
    widened(x, |x| f(x, y));
}

/// `f` in f32 on blocks of 16-bit floats.
pub fn half2<T: Half>(a: &[T], b: &[T], y: &mut [T], f: Map2<f32, f32>) {
    widened(a, |a| widened(b, |b| narrowed(y, |y| f(a, b, y))));
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: Map2<f32, f32> = |a, b, y| each2(a, b, y, |a, b| a + b);

    fn ramp(n: usize) -> Vec<f32> {
        (0..n).map(|i| i as f32 * 0.5 - 7.0).collect()
    }

    #[test]
    fn operands_of_every_kind_give_the_same_sum() {
        for n in [0, 1, 31, 33, BLOCK, BLOCK + 1, PARALLEL_MIN_ELEMS + 3] {
            let (a, b) = (ramp(n), ramp(n + 1));
            let want: Vec<f32> = a.iter().zip(&b[1..]).map(|(a, b)| a + b).collect();
            let walk = Walk::new(&Layout::new([n], &[1], 1).expect("rank 1"));
            for pool in [Pool::new(1), Pool::new(3)] {
                let mut y = vec![0.0; n];
                map2(&pool, &Operand::Slice(&a), &Operand::Walk(&b, walk.clone()), &mut y, &ADD);
                assert_eq!(y, want);
                let mut y = a.clone();
                map2(&pool, &Operand::Held, &Operand::Slice(&b[1..]), &mut y, &ADD);
                assert_eq!(y, want);
                let mut y = b[1..].to_vec();
                map2(&pool, &Operand::Slice(&a), &Operand::Held, &mut y, &ADD);
                assert_eq!(y, want);
            }
        }
    }

    #[test]
    fn loops_that_prefetch_give_what_the_others_give() {
        for n in [0, 1, VECTOR - 1, VECTOR, VECTOR + 1, 5 * VECTOR + 3, BLOCK] {
            let (a, b) = (ramp(n), ramp(n + 1));
            let mut y = vec![f32::NAN; n];
            each1_ahead(&a, &mut y, |x| x * x);
            assert!(y.iter().zip(&a).all(|(y, a)| *y == a * a), "{n} elements");
            let mut y = vec![f32::NAN; n];
            each2_ahead(&a, &b[1..], &mut y, |a, b| a - 2.0 * b);
            assert!(y.iter().zip(a.iter().zip(&b[1..])).all(|(y, (a, b))| *y == a - 2.0 * b), "{n} elements");
        }
    }

    #[test]
    fn a_uniform_operand_is_read_for_every_block() {
        let n = 3 * BLOCK + 5;
        let walk = Walk::new(&Layout::new([n], &[0], 2).expect("rank 1"));
        let mut y = vec![0.0; n];
        map2(&Pool::new(1), &Operand::Slice(&ramp(n)), &Operand::Walk(&[0.0, 0.0, 9.0], walk), &mut y, &ADD);
        assert!(y.iter().zip(ramp(n)).all(|(y, x)| *y == x + 9.0));
    }

    #[test]
    fn select_takes_a_where_the_condition_holds() {
        let mut y = [10i8, 20, 30];
        select(&Pool::new(1), &Operand::Slice(&[1, 0, 1]), &Operand::Slice(&[1, 2, 3]), &Operand::Held, &mut y);
        assert_eq!(y, [1, 20, 3]);
    }
}
