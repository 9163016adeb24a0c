use crate::common::check;

const MIN: u64 = 0x8000_0000;
const MINUS: u64 = 0xffff_ffff;
const MIN64: u64 = 1 << 63;

#[test]
fn sums_and_products_wrap() {
    check("add.s32 %d, %a, %b;", "%d", &[([MINUS, 1, 0], 0), ([MIN, MIN, 0], 0)]);
    check("add.u16 %hd, %ha, %hb;", "%hd", &[([0xffff, 2, 0], 1)]);
    check("add.sat.s32 %d, %a, %b;", "%d", &[([0x7fff_ffff, 1, 0], 0x7fff_ffff), ([MIN, MINUS, 0], MIN)]);
    check("sub.sat.s32 %d, %a, %b;", "%d", &[([MIN, 1, 0], MIN), ([5, 7, 0], 0xffff_fffe)]);
    check("sub.s64 %D, %A, %B;", "%D", &[([0, 1, 0], u64::MAX)]);
    check("mul.lo.s32 %d, %a, %b;", "%d", &[([0x1_0001, 0x1_0001, 0], 0x2_0001)]);
    check("mul.lo.s16 %hd, %ha, %hb;", "%hd", &[([0x101, 0x101, 0], 0x201)]);
    check("mul.hi.u32 %d, %a, %b;", "%d", &[([MINUS, MINUS, 0], 0xffff_fffe)]);
    check("mul.hi.s32 %d, %a, %b;", "%d", &[([MINUS, 5, 0], MINUS), ([MIN, MIN, 0], 0x4000_0000)]);
    check("mul.hi.u64 %D, %A, %B;", "%D", &[([u64::MAX, u64::MAX, 0], u64::MAX - 1)]);
    check("mul.hi.s64 %D, %A, %B;", "%D", &[([u64::MAX, 5, 0], u64::MAX)]);
    check("mul.wide.u32 %D, %a, %b;", "%D", &[([MINUS, MINUS, 0], 0xffff_fffe_0000_0001)]);
    check("mul.wide.s32 %D, %a, %b;", "%D", &[([MINUS, 3, 0], -3i64 as u64)]);
    check("mul.wide.u32 %D, %a, -1431655765;", "%D", &[([3, 0, 0], 0x2_0000_0001)]);
    check("mul.wide.s16 %d, %ha, %hb;", "%d", &[([0xffff, 3, 0], 0xffff_fffd)]);
    check("mad.lo.s32 %d, %a, %b, %c;", "%d", &[([7, 6, MINUS], 41)]);
    check("mad.hi.s32 %d, %a, %b, %c;", "%d", &[([MIN, 2, 3], 2)]);
    check("mad.wide.s32 %D, %a, %b, %C;", "%D", &[([MINUS, 3, 3], 0)]);
    check("mad.wide.u32 %D, %a, %b, %C;", "%D", &[([MINUS, 2, 2], 0x2_0000_0000)]);
    check("mul24.lo.u32 %d, %a, %b;", "%d", &[([0xff00_0003, 5, 0], 15)]);
    check("mul24.hi.s32 %d, %a, %b;", "%d", &[([0x00ff_ffff, 0x1_0000, 0], MINUS)]);
    check("mad24.lo.u32 %d, %a, %b, %c;", "%d", &[([0xff00_0003, 5, 6], 21)]);
    check("sad.s32 %d, %a, %b, %c;", "%d", &[([MINUS, 1, 10], 12)]);
    check("dp4a.s32.s32 %d, %a, %b, %c;", "%d", &[([0xff01_0203, 0x0101_0101, 10], 15)]);
    check("dp4a.u32.u32 %d, %a, %b, %c;", "%d", &[([0xff01_0203, 0x0101_0101, 10], 271)]);
}

#[test]
fn quotients_by_zero_and_of_the_least_number() {
    check("div.u32 %d, %a, %b;", "%d", &[([7, 2, 0], 3), ([7, 0, 0], MINUS)]);
    check("div.s32 %d, %a, %b;", "%d", &[([MINUS, 2, 0], 0), ([MIN, MINUS, 0], MIN), ([7, 0, 0], MINUS)]);
    check("rem.s32 %d, %a, %b;", "%d", &[([-7i32 as u32 as u64, 3, 0], MINUS), ([MIN, MINUS, 0], 0), ([7, 0, 0], 7)]);
    check("rem.u32 %d, %a, %b;", "%d", &[([7, 4, 0], 3), ([7, 0, 0], 7)]);
    check("div.s64 %D, %A, %B;", "%D", &[([MIN64, u64::MAX, 0], MIN64), ([7, 0, 0], u64::MAX)]);
    check("rem.u64 %D, %A, %B;", "%D", &[([7, 0, 0], 7), ([u64::MAX, 10, 0], 5)]);
    check("div.s16 %hd, %ha, %hb;", "%hd", &[([0x8000, 0xffff, 0], 0x8000)]);
}

#[test]
fn signs_and_extremes() {
    check("abs.s32 %d, %a;", "%d", &[([MIN, 0, 0], MIN), ([MINUS, 0, 0], 1)]);
    check("neg.s64 %D, %A;", "%D", &[([MIN64, 0, 0], MIN64), ([1, 0, 0], u64::MAX)]);
    check("min.s32 %d, %a, %b;", "%d", &[([MINUS, 1, 0], MINUS)]);
    check("min.u32 %d, %a, %b;", "%d", &[([MINUS, 1, 0], 1)]);
    check("max.s64 %D, %A, %B;", "%D", &[([u64::MAX, 1, 0], 1)]);
    check("max.u16 %hd, %ha, %hb;", "%hd", &[([0xffff, 1, 0], 0xffff)]);
    check("max.s16 %hd, %ha, %hb;", "%hd", &[([0xffff, 1, 0], 1)]);
}

#[test]
fn shifts_clamp_their_amount() {
    check("shl.b32 %d, %a, %b;", "%d", &[([1, 31, 0], MIN), ([1, 32, 0], 0), ([1, MINUS, 0], 0)]);
    check("shr.u32 %d, %a, %b;", "%d", &[([MIN, 31, 0], 1), ([MIN, 32, 0], 0), ([MIN, 33, 0], 0)]);
    check("shr.s32 %d, %a, %b;", "%d", &[([MIN, 31, 0], MINUS), ([MIN, 32, 0], MINUS), ([1, 999, 0], 0)]);
    check("shl.b64 %D, %A, %b;", "%D", &[([1, 63, 0], MIN64), ([1, 64, 0], 0)]);
    check("shr.s64 %D, %A, %b;", "%D", &[([MIN64, 64, 0], u64::MAX)]);
    check("shr.s16 %hd, %ha, %b;", "%hd", &[([0x8000, 99, 0], 0xffff), ([0x8000, 1, 0], 0xc000)]);
    check("shl.b16 %hd, %ha, %b;", "%hd", &[([1, 15, 0], 0x8000), ([1, 16, 0], 0)]);
    check("shf.l.wrap.b32 %d, %a, %b, %c;", "%d", &[([MIN, 1, 1], 3), ([9, 7, 32], 7)]);
    check("shf.r.wrap.b32 %d, %a, %b, %c;", "%d", &[([2, 1, 1], MIN | 1)]);
    check("shf.l.clamp.b32 %d, %a, %b, %c;", "%d", &[([9, 7, 32], 9), ([9, 7, 99], 9)]);
    check("shf.r.clamp.b32 %d, %a, %b, %c;", "%d", &[([9, 7, 32], 7)]);
}

#[test]
fn fields_and_counts_of_bits() {
    check(
        "bfe.u32 %d, %a, %b, %c;",
        "%d",
        &[([0xabcd_ef01, 8, 8], 0xef), ([MINUS, 28, 8], 15), ([MINUS, 0, 0], 0), ([5, 40, 3], 0)],
    );
    check(
        "bfe.s32 %d, %a, %b, %c;",
        "%d",
        &[([0x80, 4, 4], 0xffff_fff8), ([MIN, 28, 8], 0xffff_fff8), ([MIN, 40, 3], MINUS)],
    );
    check("bfe.u64 %D, %A, %b, %c;", "%D", &[([u64::MAX, 60, 8], 15)]);
    check(
        "bfi.b32 %d, %a, %b, %c, 8;",
        "%d",
        &[([0xab, 0, 4], 0xab0), ([0xab, MINUS, 28], 0xbfff_ffff), ([1, 5, 32], 5)],
    );
    check("bfi.b64 %D, %A, %B, %c, 64;", "%D", &[([7, u64::MAX, 0], 7)]);
    check("popc.b32 %d, %a;", "%d", &[([MINUS, 0, 0], 32)]);
    check("popc.b64 %d, %A;", "%d", &[([u64::MAX, 0, 0], 64)]);
    check("clz.b32 %d, %a;", "%d", &[([0, 0, 0], 32), ([1, 0, 0], 31)]);
    check("clz.b64 %d, %A;", "%d", &[([0, 0, 0], 64)]);
    check("brev.b32 %d, %a;", "%d", &[([1, 0, 0], MIN)]);
    check("brev.b64 %D, %A;", "%D", &[([1, 0, 0], MIN64)]);
    check("bfind.u32 %d, %a;", "%d", &[([0, 0, 0], MINUS), ([5, 0, 0], 2)]);
    check("bfind.s32 %d, %a;", "%d", &[([MINUS, 0, 0], MINUS), ([MIN, 0, 0], 30)]);
    check("bfind.shiftamt.u32 %d, %a;", "%d", &[([5, 0, 0], 29)]);
    check(
        "prmt.b32 %d, %a, %b, %c;",
        "%d",
        &[([0x4433_2211, 0x8877_6655, 0x7531], 0x8866_4422), ([0x80, 0, 0x8], 0xff | 0x8080_8000)],
    );
    check("prmt.b32.rc16 %d, %a, %b, %c;", "%d", &[([0x4433_2211, 0, 1], 0x4433_4433)]);
    check("prmt.b32.b4e %d, %a, %b, %c;", "%d", &[([0x4433_2211, 0x8877_6655, 1], 0x7788_1122)]);
}

#[test]
fn logic() {
    check("lop3.b32 %d, %a, %b, %c, 0x96;", "%d", &[([0xf0, 0xcc, 0xaa], 0xf0 ^ 0xcc ^ 0xaa)]);
    check("lop3.b32 %d, %a, %b, %c, 0xe8;", "%d", &[([0xf0, 0xcc, 0xaa], 0xe8)]);
    check("cnot.b32 %d, %a;", "%d", &[([0, 0, 0], 1), ([7, 0, 0], 0)]);
    check("not.b16 %hd, %ha;", "%hd", &[([0xff, 0, 0], 0xff00)]);
    check("and.b64 %D, %A, %B; xor.b64 %D, %D, %C;", "%D", &[([12, 10, 1], 9)]);
    check(
        "setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0; xor.pred %p, %p, %q; not.pred %p, %p;",
        "%p",
        &[([1, 0, 0], 0), ([1, 1, 0], 1)],
    );
}

#[test]
fn comparisons_of_integers() {
    check("setp.lt.s32 %p, %a, %b;", "%p", &[([MINUS, 0, 0], 1)]);
    check("setp.lo.u32 %p, %a, %b;", "%p", &[([MINUS, 0, 0], 0)]);
    check("setp.hs.u64 %p, %A, %B;", "%p", &[([u64::MAX, 0, 0], 1)]);
    check("setp.ge.s16 %p, %ha, %hb;", "%p", &[([0xffff, 0, 0], 0)]);
    check(
        "setp.ne.b32 %q, %c, 0; setp.eq.and.s32 %p, %a, %b, %q;",
        "%p",
        &[([1, 1, 1], 1), ([1, 1, 0], 0), ([1, 2, 1], 0)],
    );
    check("setp.ne.b32 %q, %c, 0; setp.eq.or.s32 %p, %a, %b, !%q;", "%p", &[([1, 2, 0], 1), ([1, 2, 1], 0)]);
    // both results, and the first is also the third operand
    check(
        "setp.ne.b32 %p, %c, 0; setp.eq.and.s32 %p|%q, %a, %b, %p; selp.u32 %d, 1, 0, %p; @%q add.u32 %d, %d, 2;",
        "%d",
        &[([1, 1, 1], 1), ([1, 2, 1], 2), ([1, 2, 0], 0)],
    );
    check("set.gt.u32.s32 %d, %a, %b;", "%d", &[([1, MINUS, 0], MINUS), ([MINUS, 1, 0], 0)]);
    check("set.gt.f32.s32 %d, %a, %b;", "%d", &[([1, MINUS, 0], 0x3f80_0000)]);
    check("slct.b32.s32 %d, %a, %b, %c;", "%d", &[([5, 6, 0], 5), ([5, 6, MINUS], 6)]);
    check("slct.b32.f32 %d, %a, %b, %c;", "%d", &[([5, 6, MIN], 5), ([5, 6, 0x7fff_ffff], 6)]);
}

#[test]
fn moves_and_packs() {
    check("mov.b64 %D, {%b, %a};", "%D", &[([1, 2, 0], 1 << 32 | 2)]);
    check("mov.b64 {%d, %e}, %A; sub.u32 %d, %e, %d;", "%d", &[([9 << 32 | 2, 0, 0], 7)]);
    check("mov.b64 {_, %d}, %A;", "%d", &[([9 << 32 | 2, 0, 0], 9)]);
    check("mov.b32 %d, {%ha, %hb};", "%d", &[([1, 2, 0], 0x2_0001)]);
    check("mov.b32 {%hc, %hd}, %a;", "%hd", &[([0x7_0001, 0, 0], 7)]);
    check("mov.b64 %D, {%ha, %hb, %hc, %ha};", "%D", &[([1, 2, 3], 0x0001_0003_0002_0001)]);
    check("mov.u32 %d, 0x10U; add.u32 %d, %d, 010;", "%d", &[([0, 0, 0], 24)]);
    check("{ .reg .b32 %d; mov.u32 %d, 5; mov.u32 %e, %d; } mov.u32 %d, %e;", "%d", &[([0, 0, 0], 5)]);
    check(
        "setp.eq.u32 %p, %a, 1; @!%p bra L; mov.u32 %d, 4; L: add.u32 %d, %d, 1;",
        "%d",
        &[([1, 0, 0], 5), ([0, 0, 0], 1)],
    );
}
