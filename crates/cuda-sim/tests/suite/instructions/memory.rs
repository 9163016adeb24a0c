use crate::common::{HEAD, check, params, run, shape};
use remat_cuda_sim::{Memory, Program};

/// The first words of the buffer that a kernel `k(y)` of one thread got.
fn words(declarations: &str, body: &str, count: usize) -> Vec<u32> {
    let text = format!(
        "{HEAD}{declarations}\n.visible .entry k(.param .u64 y) {{\n.reg .b64 %rd<20>;\n.reg .b32 %r<20>;\n.reg .b16 %h<9>;\n\
         .reg .pred %p<4>;\nld.param.u64 %rd1, [y];\n{body}\nret;\n}}\n"
    );
    let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}"));
    let mut memory = Memory::new();
    let at = memory.allocate(4 * count as u64);
    memory.fill(at, &[0], 4 * count as u64).unwrap();
    run(&mut memory, &program, "k", shape(1, 1), &params(&[at])).unwrap_or_else(|e| panic!("{e}"));
    let mut out = vec![0; 4 * count];
    memory.read(at, &mut out).unwrap();
    out.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

#[test]
fn loads_extend_by_their_type() {
    check("ld.global.s8 %d, [%at+1];", "%d", &[([0x8000, 0, 0], 0xffff_ff80)]);
    check("ld.global.u8 %d, [%at+1];", "%d", &[([0x8000, 0, 0], 0x80)]);
    check("ld.global.s16 %D, [%at+2];", "%D", &[([0x8000_0000, 0, 0], 0xffff_ffff_ffff_8000)]);
    check("ld.global.s8 %hd, [%at];", "%hd", &[([0x80, 0, 0], 0xff80)]);
    check("ld.global.nc.L1::no_allocate.b32 %d, [%at+4];", "%d", &[([7 << 32, 0, 0], 7)]);
    check("ld.volatile.global.u32 %d, [%at+4];", "%d", &[([7 << 32, 0, 0], 7)]);
    check("ld.relaxed.gpu.global.u32 %d, [%at+4];", "%d", &[([7 << 32, 0, 0], 7)]);
}

#[test]
fn vectors_of_registers_are_moved_together() {
    let body = "mov.u32 %r1, 1;\nmov.u32 %r2, 2;\nst.global.v4.u32 [%rd1], {%r1, %r2, 3, %r1};\n\
                ld.global.v2.u64 {%rd2, %rd3}, [%rd1];\nst.global.v2.b64 [%rd1+16], {%rd3, %rd2};\n\
                ld.global.v4.u32 {_, %r5, _, _}, [%rd1+16];\nst.global.u32 [%rd1+32], %r5;";
    assert_eq!(words("", body, 9), [1, 2, 3, 1, 3, 1, 1, 2, 1]);
}

#[test]
fn spaces_have_their_own_memory_and_generic_addresses() {
    let body = ".shared .align 8 .b8 s[16];\n.local .align 8 .b8 l[16];\n\
                mov.u32 %r1, 5;\nst.shared.u32 [s+4], %r1;\nst.local.u32 [l+8], 6;\n\
                mov.u64 %rd2, s;\ncvta.shared.u64 %rd3, %rd2;\nld.u32 %r2, [%rd3+4];\n\
                mov.u64 %rd4, l;\ncvta.local.u64 %rd5, %rd4;\nld.u32 %r3, [%rd5+8];\n\
                cvta.global.u64 %rd6, %rd1;\nst.u32 [%rd6], %r2;\nst.u32 [%rd6+4], %r3;\n\
                isspacep.shared %p1, %rd3;\nisspacep.local %p2, %rd3;\nselp.u32 %r4, 1, 0, %p1;\n@%p2 mov.u32 %r4, 9;\nst.u32 [%rd6+8], %r4;\n\
                cvta.to.shared.u64 %rd7, %rd3;\nld.shared.u32 %r5, [%rd7+4];\nst.u32 [%rd6+12], %r5;\n\
                mov.u32 %r6, s;\nld.shared.u32 %r7, [%r6+4];\nst.u32 [%rd6+16], %r7;";
    assert_eq!(words("", body, 5), [5, 6, 1, 5, 5]);
}

#[test]
fn variables_have_their_initial_values() {
    let declarations = ".const .align 4 .f32 c[2] = {0f3F800000, 0f40000000};\n.global .align 8 .b8 g[8] = {1, 2, 3};\n\
                        .global .align 2 .u16 w = 0xffff;\n.shared .align 4 .b8 unused[4];";
    let body = "ld.const.f32 %r1, [c+4];\nst.global.u32 [%rd1], %r1;\nmov.u64 %rd2, g;\nld.global.u32 %r2, [%rd2];\n\
                st.global.u32 [%rd1+4], %r2;\nld.global.u32 %r3, [g+4];\nst.global.u32 [%rd1+8], %r3;\n\
                ld.global.s16 %r4, [w];\nst.global.u32 [%rd1+12], %r4;";
    assert_eq!(words(declarations, body, 4), [0x4000_0000, 0x0003_0201, 0, 0xffff_ffff]);
}

#[test]
fn atomics_give_the_old_value() {
    let body = "mov.u32 %r9, 5;\nst.global.u32 [%rd1], %r9;\n\
                atom.global.add.u32 %r1, [%rd1], 3;\natom.relaxed.gpu.global.max.s32 %r2, [%rd1], -1;\n\
                atom.global.cas.b32 %r3, [%rd1], 8, 20;\natom.global.cas.b32 %r4, [%rd1], 8, 30;\n\
                atom.global.inc.u32 %r5, [%rd1], 20;\natom.global.dec.u32 %r6, [%rd1], 7;\n\
                atom.global.exch.b32 %r7, [%rd1], 12;\nred.global.or.b32 [%rd1], 1;\natom.global.and.b32 %r8, [%rd1], 9;\n\
                st.global.v4.u32 [%rd1+16], {%r1, %r2, %r3, %r4};\nst.global.v4.u32 [%rd1+32], {%r5, %r6, %r7, %r8};";
    let out = words("", body, 12);
    assert_eq!(out[4..], [5, 8, 8, 20, 20, 0, 7, 13]);
    assert_eq!(out[0], 9);
}

#[test]
fn atomic_sums_of_floats() {
    let body = "mov.b32 %r1, 0f3F800000;\nst.global.b32 [%rd1], %r1;\nred.global.add.f32 [%rd1], 0f40000000;\n\
                mov.u32 %r2, 1;\nst.global.u32 [%rd1+4], %r2;\nred.global.add.f32 [%rd1+4], 0f00000000;\n\
                .shared .align 4 .b8 s[4];\nst.shared.u32 [s], %r2;\nred.shared.add.f32 [s], 0f00000000;\nld.shared.u32 %r3, [s];\n\
                st.global.u32 [%rd1+8], %r3;\n\
                mov.b32 %r4, 1006648320;\nst.global.b32 [%rd1+12], %r4;\nred.global.add.noftz.f16x2 [%rd1+12], %r4;";
    // on memory of the device a subnormal number is flushed, in shared memory it is not
    assert_eq!(words("", body, 4), [0x4040_0000, 0, 1, 0x4000_4000]);
    let double = "mov.f64 %rd2, 0d3FF0000000000000;\nst.global.f64 [%rd1], %rd2;\natom.global.add.f64 %rd3, [%rd1], %rd2;\n\
                  st.global.f64 [%rd1+8], %rd3;";
    assert_eq!(words("", double, 4), [0, 0x4000_0000, 0, 0x3ff0_0000]);
}

#[test]
fn functions_take_and_return_parameters() {
    let functions = ".func (.param .align 8 .b8 r[16]) twice(.param .b32 a, .param .align 4 .b8 b[8]) {\n.reg .b32 %r<9>;\n\
                     .reg .pred %p;\nld.param.u32 %r1, [a];\nsetp.eq.u32 %p, %r1, 0;\nmov.u32 %r2, 0;\n@%p ret;\n\
                     ld.param.u32 %r2, [b+4];\nadd.u32 %r3, %r1, %r2;\nst.param.u32 [r+0], %r3;\nst.param.u32 [r+8], %r1;\nret;\n}";
    let body = "{\n.param .b32 p0;\n.param .align 4 .b8 p1[8];\n.param .align 8 .b8 back[16];\nst.param.b32 [p0+0], 40;\n\
                st.param.b32 [p1+4], 2;\ncall.uni (back), twice, (p0, p1);\nld.param.b32 %r1, [back+0];\nld.param.b32 %r2, [back+8];\n}\n\
                st.global.v2.u32 [%rd1], {%r1, %r2};";
    assert_eq!(words(functions, body, 2), [42, 40]);
}
