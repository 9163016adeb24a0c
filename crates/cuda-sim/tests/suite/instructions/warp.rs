use crate::common::{HEAD, kernel, params, run, shape};
use remat_cuda_sim::{Fault, FaultKind, Memory, Program};

/// The results of 32 lanes whose `%a` is ten times their number and whose `%b` is their number.
fn lanes(body: &str) -> Result<Vec<u64>, Box<Fault>> {
    let program = Program::load(&kernel(body, "%d")).unwrap_or_else(|e| panic!("{e}"));
    let mut memory = Memory::new();
    let (input, output) = (memory.allocate(24 * 32), memory.allocate(8 * 32));
    for lane in 0..32u64 {
        memory.write(input + 24 * lane, &params(&[10 * lane, lane, lane / 8])).unwrap();
    }
    run(&mut memory, &program, "k", shape(1, 32), &params(&[input, output]))?;
    let mut out = vec![0; 256];
    memory.read(output, &mut out).unwrap();
    Ok(out.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect())
}

fn assert_lanes(body: &str, expected: impl Fn(u64) -> u64) {
    let got = lanes(body).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(got, (0..32).map(expected).collect::<Vec<u64>>(), "{body}");
}

#[test]
fn shuffles_move_values_within_segments() {
    assert_lanes("shfl.sync.bfly.b32 %d, %a, 3, 31, -1;", |l| 10 * (l ^ 3));
    assert_lanes("shfl.sync.up.b32 %d|%p, %a, 4, 0, -1; @!%p mov.u32 %d, 7;", |l| if l < 4 { 7 } else { 10 * (l - 4) });
    assert_lanes(
        "shfl.sync.down.b32 %d|%p, %a, 4, 31, -1; @!%p mov.u32 %d, 7;",
        |l| if l > 27 { 7 } else { 10 * (l + 4) },
    );
    assert_lanes("shfl.sync.idx.b32 %d, %a, 5, 31, -1;", |_| 50);
    // segments of eight lanes
    assert_lanes("shfl.sync.idx.b32 %d, %a, 2, 0x181f, -1;", |l| 10 * (l / 8 * 8 + 2));
    assert_lanes("shfl.sync.down.b32 %d, %a, 4, 0x181f, -1;", |l| 10 * if l % 8 < 4 { l + 4 } else { l });
}

#[test]
fn votes_matches_and_reductions() {
    assert_lanes("setp.lt.u32 %p, %b, 4; vote.sync.ballot.b32 %d, %p, -1;", |_| 15);
    assert_lanes("setp.lt.u32 %p, %b, 4; vote.sync.any.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;", |_| 1);
    assert_lanes("setp.lt.u32 %p, %b, 4; vote.sync.all.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;", |_| 0);
    assert_lanes("setp.lt.u32 %p, %b, 40; vote.sync.uni.pred %q, !%p, -1; selp.u32 %d, 1, 0, %q;", |_| 1);
    assert_lanes("match.any.sync.b32 %d, %c, -1;", |l| 0xff << (l / 8 * 8));
    assert_lanes("match.all.sync.b32 %d|%p, %c, -1; @%p mov.u32 %d, 5;", |_| 0);
    assert_lanes("match.all.sync.b64 %d|%p, %rd, -1;".replace("%rd", "7").as_str(), |_| 0xffff_ffff);
    assert_lanes("redux.sync.add.u32 %d, %b, -1;", |_| 496);
    assert_lanes("redux.sync.max.s32 %d, %b, -1;", |_| 31);
    assert_lanes("activemask.b32 %d; setp.lt.u32 %p, %b, 3; @%p activemask.b32 %d;", |l| {
        if l < 3 { 7 } else { 0xffff_ffff }
    });
    assert_lanes("mov.u32 %d, %lanemask_lt;", |l| (1 << l) - 1);
    assert_lanes("mov.u32 %d, %lanemask_ge;", |l| 0xffff_ffff & !((1 << l) - 1));
}

#[test]
fn lanes_that_are_apart_come_together() {
    let body = "setp.lt.u32 %p, %b, 16; @%p bra L; add.u32 %a, %a, 1000; L: shfl.sync.bfly.b32 %d, %a, 16, 31, -1;";
    assert_lanes(body, |l| 10 * (l ^ 16) + if l ^ 16 >= 16 { 1000 } else { 0 });
    // each lane turns its own number of times
    assert_lanes("mov.u32 %e, %b; T: add.u32 %d, %d, 2; setp.ne.u32 %p, %e, 0; sub.u32 %e, %e, 1; @%p bra T;", |l| {
        2 * l + 2
    });
    assert_lanes(
        "setp.lt.u32 %p, %b, 16; @%p exit; mov.u32 %d, 1;"
            .replace("exit", "bra M")
            .replace("mov.u32 %d, 1;", "mov.u32 %d, 1; M:")
            .as_str(),
        |l| u64::from(l >= 16),
    );
}

#[test]
fn members_that_are_missing_are_found() {
    let fault = lanes("setp.lt.u32 %p, %b, 16; @%p shfl.sync.bfly.b32 %d, %a, 1, 31, -1;").unwrap_err();
    assert_eq!(fault.kind, FaultKind::Warp, "{fault}");
    assert!(fault.message.contains("0xffff0000"), "{fault}");
    let fault = lanes("shfl.sync.bfly.b32 %d, %a, 1, 31, 1;").unwrap_err();
    assert_eq!((fault.kind, fault.thread), (FaultKind::Warp, [1, 0, 0]));
    let fault = lanes("setp.lt.u32 %p, %b, 16; @%p shfl.sync.bfly.b32 %d, %a, 16, 31, 0xffff;").unwrap_err();
    assert!(fault.message.contains("not here"), "{fault}");
    assert_lanes("setp.lt.u32 %p, %b, 16; @%p shfl.sync.bfly.b32 %d, %a, 1, 31, 0xffff;", |l| {
        if l < 16 { 10 * (l ^ 1) } else { 0 }
    });
}

#[test]
fn barriers_reduce_over_the_block() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 y) {{\n.reg .b64 %rd<4>;\n.reg .b32 %r<5>;\n.reg .pred %p<4>;\nld.param.u64 %rd1, [y];\n\
         mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 50;\nbarrier.cta.red.popc.aligned.u32 %r2, 0, %p1;\n\
         bar.red.or.pred %p2, 0, !%p1;\nbar.red.and.pred %p3, 0, 96, %p1;\n@%p2 add.u32 %r2, %r2, 100;\n@%p3 add.u32 %r2, %r2, 1000;\n\
         mul.wide.u32 %rd2, %r1, 4;\nadd.u64 %rd1, %rd1, %rd2;\nst.global.u32 [%rd1], %r2;\nret;\n}}\n"
    );
    let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}"));
    let mut memory = Memory::new();
    let at = memory.allocate(384);
    run(&mut memory, &program, "k", shape(1, 96), &params(&[at])).unwrap_or_else(|e| panic!("{e}"));
    let mut out = vec![0; 384];
    memory.read(at, &mut out).unwrap();
    assert!(out.chunks_exact(4).all(|c| u32::from_le_bytes(c.try_into().unwrap()) == 150));
}

/// `mma` of one kind over fragments that are given as words; all results are `expected`.
fn multiply(kind: &str, a: &str, b: &str, words: (u32, u32), expected: f32) {
    let body = format!(
        "mov.b32 %d, {};\nmov.b32 %e, {};\nmov.b32 %b, 0f3F000000;\n\
         mma.sync.aligned.{kind} {{%a,%b,%c,%lane}}, {a}, {b}, {{%b,%b,%b,%b}};\nmov.u32 %d, %a;\nmov.u32 %lane, %tid.x;",
        words.0, words.1
    );
    assert_lanes(&body, |_| u64::from(expected.to_bits()));
}

#[test]
fn products_of_tiles_sum_over_k() {
    let four = "{%d,%d,%d,%d}";
    multiply("m16n8k16.row.col.f32.f16.f16.f32", four, "{%e,%e}", (0x3c00_4000, 0x4200_3c00), 8.0 * 5.0 + 0.5);
    multiply("m16n8k8.row.col.f32.f16.f16.f32", "{%d,%d}", "{%e}", (0x3c00_4000, 0x4200_3c00), 4.0 * 5.0 + 0.5);
    multiply("m16n8k16.row.col.f32.bf16.bf16.f32", four, "{%e,%e}", (0x3f80_4000, 0x4040_3f80), 8.0 * 5.0 + 0.5);
    multiply("m16n8k8.row.col.f32.tf32.tf32.f32", four, "{%e,%e}", (0x4000_1fff, 0x4040_0000), 8.0 * 6.0 + 0.5);
    multiply("m16n8k4.row.col.f32.tf32.tf32.f32", "{%d,%d}", "{%e}", (0x4000_0000, 0x4040_0000), 4.0 * 6.0 + 0.5);
}
