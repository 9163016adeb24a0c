use crate::common::check;

fn f(x: f32) -> u64 {
    u64::from(x.to_bits())
}

fn d(x: f64) -> u64 {
    x.to_bits()
}

const NAN: u64 = 0x7fff_ffff;

#[test]
fn integers_extend_cut_and_saturate() {
    check("cvt.s64.s32 %D, %a;", "%D", &[([0xffff_ffff, 0, 0], u64::MAX)]);
    check("cvt.u64.u32 %D, %a;", "%D", &[([0xffff_ffff, 0, 0], 0xffff_ffff)]);
    check("cvt.u32.u64 %d, %A;", "%d", &[([0x5_0000_0007, 0, 0], 7)]);
    check("cvt.s32.s8 %d, %a;", "%d", &[([0x180, 0, 0], 0xffff_ff80)]);
    check("cvt.u16.u8 %hd, %ha;", "%hd", &[([0x180, 0, 0], 0x80)]);
    check("cvt.s16.s8 %hd, %ha;", "%hd", &[([0x180, 0, 0], 0xff80)]);
    check("cvt.s8.s32 %d, %a;", "%d", &[([0x1ff, 0, 0], 0xffff_ffff)]);
    check("cvt.u8.u32 %d, %a;", "%d", &[([0x1ff, 0, 0], 0xff)]);
    check("cvt.sat.s8.s32 %d, %a;", "%d", &[([0x1ff, 0, 0], 0x7f), ([0xffff_0000, 0, 0], 0xffff_ff80)]);
    check("cvt.sat.u8.s32 %d, %a;", "%d", &[([0x1ff, 0, 0], 0xff), ([0xffff_0000, 0, 0], 0)]);
    check("cvt.sat.s32.u32 %d, %a;", "%d", &[([0xffff_ffff, 0, 0], 0x7fff_ffff)]);
    check("cvt.sat.u32.s64 %d, %A;", "%d", &[([u64::MAX, 0, 0], 0), ([1 << 40, 0, 0], 0xffff_ffff)]);
}

#[test]
fn floats_to_integers_clamp_and_nan_has_its_value() {
    let big = f(1e20);
    check(
        "cvt.rzi.s32.f32 %d, %a;",
        "%d",
        &[
            ([f(-1.9), 0, 0], 0xffff_ffff),
            ([big, 0, 0], 0x7fff_ffff),
            ([f(-1e20), 0, 0], 0x8000_0000),
            ([NAN, 0, 0], 0),
        ],
    );
    check("cvt.rni.s32.f32 %d, %a;", "%d", &[([f(2.5), 0, 0], 2), ([f(3.5), 0, 0], 4), ([NAN, 0, 0], 0)]);
    check("cvt.rmi.s32.f32 %d, %a;", "%d", &[([f(-1.1), 0, 0], 0xffff_fffe)]);
    check("cvt.rpi.s32.f32 %d, %a;", "%d", &[([f(1.1), 0, 0], 2), ([f(-0.5), 0, 0], 0)]);
    check("cvt.rzi.u32.f32 %d, %a;", "%d", &[([f(-5.0), 0, 0], 0), ([big, 0, 0], 0xffff_ffff)]);
    check("cvt.rzi.u8.f32 %d, %a;", "%d", &[([f(300.0), 0, 0], 255), ([f(-3.0), 0, 0], 0)]);
    check("cvt.rzi.s8.f32 %d, %a;", "%d", &[([f(-300.0), 0, 0], 0xffff_ff80)]);
    check("cvt.rzi.s64.f32 %D, %a;", "%D", &[([big, 0, 0], i64::MAX as u64), ([NAN, 0, 0], 1 << 63)]);
    check("cvt.rzi.u64.f32 %D, %a;", "%D", &[([f(1e19), 0, 0], 1e19f32 as u64), ([NAN, 0, 0], 1 << 63)]);
    check("cvt.rni.s64.f64 %D, %A;", "%D", &[([d(-2.5), 0, 0], -2i64 as u64), ([d(f64::NAN), 0, 0], 1 << 63)]);
    check("cvt.rzi.s32.f64 %d, %A;", "%d", &[([d(f64::NAN), 0, 0], 0x8000_0000), ([d(-3e9), 0, 0], 0x8000_0000)]);
    check("cvt.rzi.s16.f16 %hd, %ha;", "%hd", &[([0xc580, 0, 0], -5i16 as u16 as u64), ([0x7c00, 0, 0], 0x7fff)]);
}

#[test]
fn integers_to_floats_round_by_their_mode() {
    let odd = 0x100_0001u64;
    check("cvt.rn.f32.u32 %d, %a;", "%d", &[([odd, 0, 0], f(16_777_216.0)), ([0xffff_ffff, 0, 0], f(4_294_967_296.0))]);
    check("cvt.rp.f32.u32 %d, %a;", "%d", &[([odd, 0, 0], f(16_777_218.0))]);
    check("cvt.rz.f32.s32 %d, %a;", "%d", &[([odd.wrapping_neg() & 0xffff_ffff, 0, 0], f(-16_777_216.0))]);
    check("cvt.rm.f32.s32 %d, %a;", "%d", &[([odd.wrapping_neg() & 0xffff_ffff, 0, 0], f(-16_777_218.0))]);
    check("cvt.rn.f32.s64 %d, %A;", "%d", &[([u64::MAX, 0, 0], f(-1.0)), ([0, 0, 0], 0)]);
    check("cvt.rn.f64.u64 %D, %A;", "%D", &[([u64::MAX, 0, 0], d(18_446_744_073_709_551_616.0))]);
    check("cvt.rn.f16.s32 %hd, %a;", "%hd", &[([0xffff_ffff, 0, 0], 0xbc00), ([70_000, 0, 0], 0x7c00)]);
    check("cvt.rn.f32.u8 %d, %a;", "%d", &[([0x1ff, 0, 0], f(255.0))]);
}

#[test]
fn floats_to_floats() {
    check(
        "cvt.rn.f32.f64 %d, %A;",
        "%d",
        &[
            ([d(1e300), 0, 0], f(f32::INFINITY)),
            ([d(1e-45), 0, 0], 1),
            ([d(f64::NAN), 0, 0], NAN),
            ([d(-0.0), 0, 0], 0x8000_0000),
        ],
    );
    check("cvt.rz.f32.f64 %d, %A;", "%d", &[([d(1e300), 0, 0], f(f32::MAX)), ([d(1e-46), 0, 0], 0)]);
    check("cvt.rp.f32.f64 %d, %A;", "%d", &[([d(1e-300), 0, 0], 1), ([d(-1e300), 0, 0], f(f32::MIN))]);
    check("cvt.rm.f32.f64 %d, %A;", "%d", &[([d(-1e-300), 0, 0], 0x8000_0001)]);
    check("cvt.f64.f32 %D, %a;", "%D", &[([1, 0, 0], d(f64::from(f32::from_bits(1)))), ([f(-0.0), 0, 0], d(-0.0))]);
    check(
        "cvt.rn.f16.f32 %hd, %a;",
        "%hd",
        &[
            ([f(65520.0), 0, 0], 0x7c00),
            ([f(65519.0), 0, 0], 0x7bff),
            ([f(6e-8), 0, 0], 1),
            ([NAN, 0, 0], 0x7fff),
            ([f(-1.0), 0, 0], 0xbc00),
        ],
    );
    check("cvt.rz.f16.f32 %hd, %a;", "%hd", &[([f(1e9), 0, 0], 0x7bff)]);
    check(
        "cvt.f32.f16 %d, %ha;",
        "%d",
        &[([1, 0, 0], f(2f32.powi(-24))), ([0xfc00, 0, 0], f(f32::NEG_INFINITY)), ([0x7c01, 0, 0], NAN)],
    );
    check(
        "cvt.rn.bf16.f32 %hd, %a;",
        "%hd",
        &[
            ([0x3f80_8000, 0, 0], 0x3f80),
            ([0x3f81_8000, 0, 0], 0x3f82),
            ([NAN, 0, 0], 0x7fff),
            ([f(f32::MAX), 0, 0], 0x7f80),
        ],
    );
    check("cvt.f32.bf16 %d, %ha;", "%d", &[([0x4049, 0, 0], 0x4049_0000), ([1, 0, 0], 0x1_0000)]);
    check("cvt.rn.f16x2.f32 %d, %a, %b;", "%d", &[([f(1.0), f(-2.0), 0], 0x3c00_c000)]);
    check("cvt.rn.bf16x2.f32 %d, %a, %b;", "%d", &[([f(1.0), f(-2.0), 0], 0x3f80_c000)]);
    check("cvt.rna.tf32.f32 %d, %a;", "%d", &[([0x3f80_1000, 0, 0], 0x3f80_2000), ([0x3f80_0fff, 0, 0], 0x3f80_0000)]);
}

#[test]
fn integral_and_saturated_floats() {
    check(
        "cvt.rni.f32.f32 %d, %a;",
        "%d",
        &[([f(2.5), 0, 0], f(2.0)), ([f(-0.3), 0, 0], 0x8000_0000), ([0xff80_0001, 0, 0], NAN)],
    );
    check("cvt.rzi.f32.f32 %d, %a;", "%d", &[([f(-2.7), 0, 0], f(-2.0)), ([f(f32::INFINITY), 0, 0], f(f32::INFINITY))]);
    check("cvt.rpi.f64.f64 %D, %A;", "%D", &[([d(2.1), 0, 0], d(3.0))]);
    check(
        "cvt.sat.f32.f32 %d, %a;",
        "%d",
        &[
            ([f(-3.0), 0, 0], 0),
            ([f(3.0), 0, 0], f(1.0)),
            ([NAN, 0, 0], 0),
            ([0x8000_0000, 0, 0], 0),
            ([f(0.5), 0, 0], f(0.5)),
        ],
    );
}
