use crate::common::check;

#[test]
fn sums_of_f16_round_once() {
    check(
        "add.rn.f16 %hd, %ha, %hb;",
        "%hd",
        &[([0x3c00, 0x3c00, 0], 0x4000), ([0x7bff, 0x7bff, 0], 0x7c00), ([1, 1, 0], 2), ([0x6800, 0x3c00, 0], 0x6800)],
    );
    check("sub.rn.f16 %hd, %ha, %hb;", "%hd", &[([0x7c00, 0x7c00, 0], 0x7fff)]);
    check("mul.rn.f16 %hd, %ha, %hb;", "%hd", &[([0x0400, 0x3800, 0], 0x0200), ([0xbc00, 0, 0], 0x8000)]);
    // 2049 + 2^-24 x 2^-24 lies just above a tie
    check("fma.rn.f16 %hd, %ha, %hb, %hc;", "%hd", &[([1, 1, 0x6800], 0x6800), ([0x4200, 0x4200, 0xc880], 0)]);
    check("add.rn.bf16 %hd, %ha, %hb;", "%hd", &[([0x3f80, 0x3b80, 0], 0x3f80), ([0x3f81, 0x3b80, 0], 0x3f82)]);
    check("fma.rn.bf16 %hd, %ha, %hb, %hc;", "%hd", &[([0x4040, 0x4040, 0x3f80], 0x4120)]);
}

#[test]
fn pairs_work_on_both_halves() {
    check("add.rn.f16x2 %d, %a, %b;", "%d", &[([0x3c00_4000, 0x3c00_3c00, 0], 0x4000_4200)]);
    check("fma.rn.f16x2 %d, %a, %b, %c;", "%d", &[([0x3c00_4000, 0x4000_4000, 0x3c00_0000], 0x4200_4400)]);
    check("mul.rn.bf16x2 %d, %a, %b;", "%d", &[([0x3f80_4000, 0x4000_4000, 0], 0x4000_4080)]);
    check("neg.f16x2 %d, %a;", "%d", &[([0x3c00_8000, 0, 0], 0xbc00_0000)]);
    check("max.NaN.bf16x2 %d, %a, %b;", "%d", &[([0x7fc0_3f80, 0x3f80_4000, 0], 0x7fff_4000)]);
}

#[test]
fn extremes_of_halves() {
    check(
        "min.f16 %hd, %ha, %hb;",
        "%hd",
        &[([0x7e00, 0x3c00, 0], 0x3c00), ([0, 0x8000, 0], 0x8000), ([0x7e00, 0xfe00, 0], 0x7fff)],
    );
    check("max.f16 %hd, %ha, %hb;", "%hd", &[([0x8000, 0, 0], 0), ([0xbc00, 0x7e00, 0], 0xbc00)]);
    check("max.NaN.f16 %hd, %ha, %hb;", "%hd", &[([0xbc00, 0x7e00, 0], 0x7fff)]);
    check("abs.bf16 %hd, %ha;", "%hd", &[([0xbf80, 0, 0], 0x3f80)]);
    check(
        "fma.rn.relu.f16 %hd, %ha, %hb, %hc;",
        "%hd",
        &[([0xbc00, 0x3c00, 0], 0), ([0x3c00, 0x3c00, 0x3c00], 0x4000)],
    );
}
