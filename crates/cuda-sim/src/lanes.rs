//! Register files, and scalar functions lifted to all lanes of a block.
//!
//! A register is one row of 32 lanes for each warp: 32-bit values and smaller ones in `words`, 64-bit values in `doubles`, and
//! predicates as bit masks. An instruction reads whole rows and writes the lanes of its mask, so the loop over a row has a
//! fixed length and becomes vector code. Results of lanes outside the mask are computed and thrown away: no function that is
//! lifted can fail.

use std::marker::PhantomData;

use pulp::{Arch, Simd, WithSimd};

use crate::number::{Bf16, F16, canonical, fused_row};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// The file in which a register lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Predicate,
    /// 16 bits, in `words` with zeros above.
    Half,
    Word,
    Double,
}

/// Number of a register within its file.
pub(crate) type Slot = u32;

/// The registers of the lanes of a block.
#[derive(Debug, Default)]
pub(crate) struct Regs {
    pub(crate) warps: usize,
    pub(crate) words: Vec<[u32; LANES]>,
    pub(crate) doubles: Vec<[u64; LANES]>,
    pub(crate) predicates: Vec<u32>,
}

impl Regs {
    pub(crate) fn row(&self, slot: Slot, warp: usize) -> usize {
        slot as usize * self.warps + warp
    }
}

/// A value that a register can hold.
pub(crate) trait Reg: Copy + Default + Send + Sync + 'static {
    const CLASS: Class;
    /// Floats take no integers as immediate operands.
    const IS_FLOAT: bool = false;
    type Row;
    fn row(regs: &Regs, at: usize) -> &Self::Row;
    fn get(row: &Self::Row, lane: usize) -> Self;
    fn put(regs: &mut Regs, at: usize, mask: u32, values: &[Self; LANES]);
}

macro_rules! registers {
    ($($t:ty: $class:ident in $file:ident of $raw:ty, $is_float:literal, |$x:ident| $read:expr, |$y:ident| $write:expr;)*) => { $(
        impl Reg for $t {
            const CLASS: Class = Class::$class;
            const IS_FLOAT: bool = $is_float;
            type Row = [$raw; LANES];
            #[inline(always)]
            fn row(regs: &Regs, at: usize) -> &Self::Row {
                &regs.$file[at]
            }
            #[inline(always)]
            fn get(row: &Self::Row, lane: usize) -> Self {
                let $x = row[lane];
                $read
            }
            #[inline(always)]
            fn put(regs: &mut Regs, at: usize, mask: u32, values: &[Self; LANES]) {
                put_row(&mut regs.$file[at], mask, values, |$y: $t| $write);
            }
        }
    )* };
}

registers! {
    u16: Half in words of u32, false, |x| x as u16, |y| u32::from(y);
    i16: Half in words of u32, false, |x| x as i16, |y| u32::from(y as u16);
    F16: Half in words of u32, true, |x| F16(x as u16), |y| u32::from(y.0);
    Bf16: Half in words of u32, true, |x| Bf16(x as u16), |y| u32::from(y.0);
    u32: Word in words of u32, false, |x| x, |y| y;
    i32: Word in words of u32, false, |x| x as i32, |y| y as u32;
    f32: Word in words of u32, true, |x| f32::from_bits(x), |y| y.to_bits();
    u64: Double in doubles of u64, false, |x| x, |y| y;
    i64: Double in doubles of u64, false, |x| x as i64, |y| y as u64;
    f64: Double in doubles of u64, true, |x| f64::from_bits(x), |y| y.to_bits();
}

#[inline(always)]
fn put_row<T: Copy, R: Copy>(row: &mut [R; LANES], mask: u32, values: &[T; LANES], raw: impl Fn(T) -> R) {
    if mask == u32::MAX {
        for lane in 0..LANES {
            row[lane] = raw(values[lane]);
        }
        return;
    }
    for lane in 0..LANES {
        // a selection, which has a vector form, and no branch
        let new = raw(values[lane]);
        row[lane] = if mask & 1 << lane != 0 { new } else { row[lane] };
    }
}

impl Reg for bool {
    const CLASS: Class = Class::Predicate;
    type Row = u32;
    #[inline(always)]
    fn row(regs: &Regs, at: usize) -> &u32 {
        &regs.predicates[at]
    }
    #[inline(always)]
    fn get(row: &u32, lane: usize) -> bool {
        row & (1 << lane) != 0
    }
    #[inline(always)]
    fn put(regs: &mut Regs, at: usize, mask: u32, values: &[bool; LANES]) {
        let mut bits = 0;
        for (lane, value) in values.iter().enumerate() {
            bits |= u32::from(*value) << lane;
        }
        let row = &mut regs.predicates[at];
        *row = *row & !mask | bits & mask;
    }
}

/// An instruction that reads and writes registers of its own lane alone. The masks have one word for each warp.
pub(crate) type Alu = Box<dyn Fn(&mut Regs, &[u32]) + Send + Sync>;

/// Runs `row` for each warp that has a lane in the mask.
#[inline(always)]
fn each_warp<O: Reg>(regs: &mut Regs, masks: &[u32], to: Slot, row: impl Fn(&Regs, usize, &mut [O; LANES])) {
    for (warp, &mask) in masks.iter().enumerate() {
        if mask != 0 {
            let mut out = [O::default(); LANES];
            row(regs, warp, &mut out);
            let at = regs.row(to, warp);
            O::put(regs, at, mask, &out);
        }
    }
}

/// A slot for each name.
macro_rules! slot {
    ($x:ident) => {
        Slot
    };
}

/// Functions of registers, lifted to rows. The work is compiled once for the target of the build and once for the vectors that
/// most processors have, and the processor's is taken. It must be inlined for that, so it is no closure.
macro_rules! lifts {
    ($($lift:ident, $rows:ident: $($x:ident: $t:ident),*;)*) => { $(
        #[allow(unused_parens, reason = "for one register the list is one type in parentheses")]
        struct $rows<'r, F, $($t,)* O> {
            regs: &'r mut Regs,
            masks: &'r [u32],
            to: Slot,
            from: ($(slot!($x)),*),
            f: &'r F,
            types: PhantomData<($($t,)* O)>,
        }

        #[allow(unused_parens, reason = "for one register the list is one type in parentheses")]
        impl<F: Fn($($t),*) -> O, $($t: Reg,)* O: Reg> WithSimd for $rows<'_, F, $($t,)* O> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, _simd: S) {
                let (($($x),*), f) = (self.from, self.f);
                each_warp(self.regs, self.masks, self.to, |regs, warp, out: &mut [O; LANES]| {
                    $(let $x = $t::row(regs, regs.row($x, warp));)*
                    for (lane, out) in out.iter_mut().enumerate() {
                        *out = f($($t::get($x, lane)),*);
                    }
                });
            }
        }

        #[allow(unused_parens, reason = "for one register the list is one type in parentheses")]
        pub(crate) fn $lift<$($t: Reg,)* O: Reg>(
            to: Slot,
            from: ($(slot!($x)),*),
            f: impl Fn($($t),*) -> O + Send + Sync + 'static,
        ) -> Alu {
            Box::new(move |regs, masks| {
                Arch::new().dispatch($rows::<_, $($t,)* O> { regs, masks, to, from, f: &f, types: PhantomData });
            })
        }
    )* };
}

lifts! {
    lift1, Rows1: a: A;
    lift2, Rows2: a: A, b: B;
    lift3, Rows3: a: A, b: B, c: C;
    lift4, Rows4: a: A, b: B, c: C, d: D;
}

/// `fma.rn.f32`: by the processor's instruction where it has one.
pub(crate) fn lift_fused(to: Slot, from: (Slot, Slot, Slot)) -> Alu {
    Box::new(move |regs, masks| Arch::new().dispatch(Fused { regs, masks, to, from }))
}

struct Fused<'r> {
    regs: &'r mut Regs,
    masks: &'r [u32],
    to: Slot,
    from: (Slot, Slot, Slot),
}

impl WithSimd for Fused<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _simd: S) {
        let Fused { regs, masks, to, from: (a, b, c) } = self;
        each_warp(regs, masks, to, |regs, warp, out: &mut [f32; LANES]| {
            let [a, b, c] = [a, b, c].map(|slot| &regs.words[regs.row(slot, warp)]);
            if S::IS_SCALAR {
                *out = fused_row(a, b, c);
                return;
            }
            for (lane, out) in out.iter_mut().enumerate() {
                let value = |row: &[u32; LANES]| f32::from_bits(row[lane]);
                *out = canonical(value(a).mul_add(value(b), value(c)));
            }
        });
    }
}
