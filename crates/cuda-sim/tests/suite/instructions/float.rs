use crate::common::{check, evaluate};

const NAN: u64 = 0x7fff_ffff;
const INFINITY: u64 = 0x7f80_0000;
const SIGNALLING: u64 = 0xff80_0001;

fn f(x: f32) -> u64 {
    u64::from(x.to_bits())
}

fn d(x: f64) -> u64 {
    x.to_bits()
}

/// Bit patterns of all kinds.
fn patterns() -> Vec<u64> {
    let mut out = vec![
        0,
        0x8000_0000,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        f(1.0),
        f(-1.5),
        INFINITY,
        SIGNALLING,
        NAN,
        f(f32::MAX),
    ];
    let mut state = 9u64;
    for _ in 0..200 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.push(state >> 32);
    }
    out
}

fn canonical(x: f32) -> u64 {
    if x.is_nan() { NAN } else { f(x) }
}

#[test]
fn single_precision_is_ieee_with_one_nan() {
    let p = patterns();
    let rows: Vec<[u64; 3]> =
        (0..1024).map(|i| [p[i % p.len()], p[i * 7 % p.len()], p[(i * 13 + 5) % p.len()]]).collect();
    type Case = (&'static str, fn(f32, f32, f32) -> f32);
    let cases: [Case; 7] = [
        ("add.rn.f32 %d, %a, %b;", |a, b, _| a + b),
        ("sub.rn.f32 %d, %a, %b;", |a, b, _| a - b),
        ("mul.rn.f32 %d, %a, %b;", |a, b, _| a * b),
        ("div.rn.f32 %d, %a, %b;", |a, b, _| a / b),
        ("fma.rn.f32 %d, %a, %b, %c;", |a, b, c| a.mul_add(b, c)),
        ("sqrt.rn.f32 %d, %a;", |a, _, _| a.sqrt()),
        ("rcp.rn.f32 %d, %a;", |a, _, _| 1.0 / a),
    ];
    for (body, host) in cases {
        for (row, got) in rows.iter().zip(evaluate(body, "%d", &rows)) {
            let [a, b, c] = row.map(|v| f32::from_bits(v as u32));
            assert_eq!(got, canonical(host(a, b, c)), "{body} of {row:x?}");
        }
    }
}

#[test]
fn fused_sums_round_once_at_ties_and_below_the_normal_range() {
    let tiny = f(f32::MIN_POSITIVE);
    let rows = [
        // 1 + 2^-24 + 2^-60 is just above a tie
        [f(1.0 / 16_777_216.0), f(1.0), f(1.0)],
        [f(f32::from_bits(0x3380_0001)), f(1.0), f(1.0)],
        [f(1.0 + f32::EPSILON), f(1.0 + f32::EPSILON), f(-1.0)],
        [tiny, f(0.5), 1],
        [tiny, f(f32::EPSILON / 2.0), 1],
        [tiny, f(-f32::EPSILON * 1.5), 3],
        [f(3.0), f(-2.0), f(6.0)],
        [f(-0.0), f(5.0), f(-0.0)],
        [f(f32::MAX), f(2.0), f(f32::NEG_INFINITY)],
        [INFINITY, 0, f(1.0)],
    ];
    for (row, got) in rows.iter().zip(evaluate("fma.rn.f32 %d, %a, %b, %c;", "%d", &rows)) {
        let [a, b, c] = row.map(|v| f32::from_bits(v as u32));
        assert_eq!(got, canonical(a.mul_add(b, c)), "{a:e} * {b:e} + {c:e}");
    }
}

#[test]
fn directed_rounding_brackets_the_result() {
    let tie = f(1.0 / 16_777_216.0);
    check("add.rz.f32 %d, %a, %b;", "%d", &[([f(1.0), tie, 0], f(1.0)), ([f(-1.0), tie | 0x8000_0000, 0], f(-1.0))]);
    check("add.rp.f32 %d, %a, %b;", "%d", &[([f(1.0), 1, 0], f(1.0f32.next_up())), ([f(1.0), f(-1.0), 0], 0)]);
    check(
        "add.rm.f32 %d, %a, %b;",
        "%d",
        &[([f(1.0), f(-1.0), 0], 0x8000_0000), ([0, 0, 0], 0), ([f(-1.0), 0x8000_0001, 0], f((-1.0f32).next_down()))],
    );
    check("add.rz.f64 %D, %A, %B;", "%D", &[([d(1.0), d(-1e-30), 0], d(1f64.next_down())), ([d(1.0), 1, 0], d(1.0))]);
    check("sub.rm.f64 %D, %A, %B;", "%D", &[([d(1.0), 1, 0], d(1f64.next_down())), ([d(1.0), d(1.0), 0], 1 << 63)]);
    check("mul.rz.f32 %d, %a, %b;", "%d", &[([f(f32::MAX), f(2.0), 0], f(f32::MAX)), ([1, f(0.75), 0], 0)]);
    check("mul.rp.f32 %d, %a, %b;", "%d", &[([1, f(0.25), 0], 1)]);
    check("fma.rz.f32 %d, %a, %b, %c;", "%d", &[([f(1.0), f(-1e-30), f(1.0)], f(1.0f32.next_down()))]);
}

#[test]
fn double_precision_is_ieee() {
    check("add.rn.f64 %D, %A, %B;", "%D", &[([d(1.0), d(1e-17), 0], d(1.0)), ([1, 1, 0], 2)]);
    check(
        "fma.rn.f64 %D, %A, %B, %C;",
        "%D",
        &[([d(1.0 + f64::EPSILON), d(1.0 - f64::EPSILON), d(-1.0)], d(-f64::EPSILON * f64::EPSILON))],
    );
    check("div.rn.f64 %D, %A, %B;", "%D", &[([d(1.0), d(-0.0), 0], d(f64::NEG_INFINITY))]);
    check("sqrt.rn.f64 %D, %A;", "%D", &[([d(2.0), 0, 0], d(2f64.sqrt())), ([d(-0.0), 0, 0], d(-0.0))]);
    check("rcp.rn.f64 %D, %A;", "%D", &[([d(3.0), 0, 0], d(1.0 / 3.0))]);
    check("min.f64 %D, %A, %B;", "%D", &[([d(f64::NAN), d(1.0), 0], d(1.0)), ([d(0.0), d(-0.0), 0], d(-0.0))]);
    check("max.f64 %D, %A, %B;", "%D", &[([d(1.0), d(f64::NAN), 0], d(1.0)), ([d(-0.0), d(0.0), 0], d(0.0))]);
    check("neg.f64 %D, %A; abs.f64 %E, %D; add.rn.f64 %D, %D, %E;", "%D", &[([d(2.0), 0, 0], 0)]);
}

#[test]
fn extremes_prefer_numbers_and_order_zeros() {
    let zero = 0x8000_0000;
    check(
        "min.f32 %d, %a, %b;",
        "%d",
        &[
            ([NAN, f(1.0), 0], f(1.0)),
            ([f(1.0), SIGNALLING, 0], f(1.0)),
            ([SIGNALLING, NAN, 0], NAN),
            ([0, zero, 0], zero),
            ([zero, 0, 0], zero),
            ([1, 2, 0], 1),
        ],
    );
    check(
        "max.f32 %d, %a, %b;",
        "%d",
        &[([NAN, f(1.0), 0], f(1.0)), ([f(-1.0), NAN, 0], f(-1.0)), ([0, zero, 0], 0), ([zero, 0, 0], 0)],
    );
    check(
        "min.NaN.f32 %d, %a, %b;",
        "%d",
        &[([NAN, f(1.0), 0], NAN), ([f(1.0), SIGNALLING, 0], NAN), ([zero, 0, 0], zero)],
    );
    check("max.NaN.f32 %d, %a, %b;", "%d", &[([f(1.0), NAN, 0], NAN), ([f(1.0), f(2.0), 0], f(2.0))]);
}

#[test]
fn signs_and_kinds() {
    check("neg.f32 %d, %a;", "%d", &[([0, 0, 0], 0x8000_0000), ([f(2.0), 0, 0], f(-2.0))]);
    check("abs.f32 %d, %a;", "%d", &[([0x8000_0001, 0, 0], 1)]);
    check("copysign.f32 %d, %a, %b;", "%d", &[([f(-1.0), f(3.0), 0], f(-3.0))]);
    check("copysign.f64 %D, %A, %B;", "%D", &[([d(1.0), d(-3.0), 0], d(3.0))]);
    check("testp.subnormal.f32 %p, %a;", "%p", &[([1, 0, 0], 1), ([0, 0, 0], 0), ([f(1.0), 0, 0], 0)]);
    check("testp.normal.f32 %p, %a;", "%p", &[([1, 0, 0], 0), ([f(1.0), 0, 0], 1), ([INFINITY, 0, 0], 0)]);
    check("testp.infinite.f32 %p, %a;", "%p", &[([INFINITY, 0, 0], 1), ([NAN, 0, 0], 0)]);
    check("testp.notanumber.f64 %p, %A;", "%p", &[([d(f64::NAN), 0, 0], 1), ([d(1.0), 0, 0], 0)]);
    check("testp.finite.f64 %p, %A;", "%p", &[([d(f64::MAX), 0, 0], 1)]);
}

#[test]
fn comparisons_with_nan() {
    for (cmp, of_numbers, of_nan) in [
        ("eq", 0, 0),
        ("ne", 1, 0),
        ("lt", 1, 0),
        ("le", 1, 0),
        ("gt", 0, 0),
        ("ge", 0, 0),
        ("equ", 0, 1),
        ("neu", 1, 1),
        ("ltu", 1, 1),
        ("leu", 1, 1),
        ("gtu", 0, 1),
        ("geu", 0, 1),
        ("num", 1, 0),
        ("nan", 0, 1),
    ] {
        let table = [([f(1.0), f(2.0), 0], of_numbers), ([NAN, f(2.0), 0], of_nan), ([f(1.0), SIGNALLING, 0], of_nan)];
        check(&format!("setp.{cmp}.f32 %p, %a, %b;"), "%p", &table);
    }
    check("setp.eq.f32 %p, %a, %b;", "%p", &[([0, 0x8000_0000, 0], 1)]);
    check("setp.gtu.f64 %p, %A, 0d3FF0000000000000;", "%p", &[([d(f64::NAN), 0, 0], 1), ([d(0.5), 0, 0], 0)]);
    check("setp.lt.f16 %p, %ha, %hb;", "%p", &[([0x8000, 0, 0], 0), ([0xbc00, 0, 0], 1), ([0x7e00, 0, 0], 0)]);
    check("setp.neu.bf16 %p, %ha, %hb;", "%p", &[([0x7fc0, 0x7fc0, 0], 1), ([0x8000, 0, 0], 0)]);
}
