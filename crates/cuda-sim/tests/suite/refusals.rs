//! Text that must not be loaded, with the line and the reason; and text that is cut or hostile, which must not panic.

use crate::common::{HEAD, kernel, refusal};
use remat_cuda_sim::Program;

/// Asserts that a body is refused at its own line.
fn refused(body: &str, reason: &str) {
    let message = refusal(&kernel(body, "%D"));
    let quoted = body.lines().last().unwrap().trim();
    assert!(message.contains(reason) && message.contains(quoted), "{body}: {message}");
}

#[test]
fn results_without_fixed_bits_are_refused() {
    for body in [
        "ex2.approx.f32 %a, %b;",
        "ex2.approx.ftz.f32 %a, %b;",
        "div.full.f32 %a, %b, %c;",
        "rsqrt.approx.f32 %a, %b;",
        "add.rn.ftz.f32 %a, %b, %c;",
        "cvt.rni.ftz.f32.f32 %a, %b;",
        "setp.lt.ftz.f32 %p, %a, %b;",
        "sin.approx.f32 %a, %b;",
        "tanh.approx.f32 %a, %b;",
    ] {
        refused(body, "does not fix the bits");
    }
    for body in ["add.f32 %a, %b, %c;", "mul.f32 %a, %b, %c;", "sub.f64 %A, %B, %C;", "mul.f16 %ha, %hb, %hc;"] {
        refused(body, "fuse");
    }
}

#[test]
fn unknown_instructions_and_modifiers_are_refused() {
    for body in [
        "frobnicate.b32 %a, %b;",
        "add.u128 %A, %B, %C;",
        "add.cc.u32 %a, %b, %c;",
        "add.rn.sat.f32 %a, %b, %c;",
        "mul.rz.f64 %A, %B, %C;",
        "ld.global.b128 %A, [%in];",
        "ld.global.L2::cache_hint.u32 %a, [%in], %A;",
        "ld.shared::cluster.u32 %a, [%b];",
        "cvt.u32.f32 %a, %b;",
        "cvt.f32.u32 %a, %b;",
        "cvt.rn.u32.u64 %a, %A;",
        "cvt.rn.relu.f16.f32 %ha, %a;",
        "mov.u32 %a, %smid;",
        "mov.u64 %A, %clock64;",
        "mov.u64 %A, %globaltimer;",
        "brx.idx %a, table;",
        "wgmma.fence.sync.aligned;",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%A,%B}, {%C}, {%D}, {%A,%B};",
        "bar.arrive 0, 64;",
        "atom.global.add.noftz.f32 %a, [%in], %b;",
        "min.xorsign.abs.f32 %a, %b, %c;",
        "call (a), vprintf, (b);",
        "setp.eq.f16x2 %p, %a, %b;",
        "shfl.up.b32 %a, %b, %c, 0;",
        "vote.any.pred %p, %q;",
        "add.u32 %a;",
        "bra missing;",
        "bra",
    ] {
        let message = refusal(&kernel(body, "%D"));
        assert!(message.starts_with("PTX line"), "{message}");
    }
}

#[test]
fn registers_of_another_size_are_refused() {
    refused("add.u32 %a, %B, %c;", "64 bits");
    refused("add.u64 %A, %B, %c;", "32 bits");
    refused("add.rn.f32 %a, %b, 1;", "kind");
    refused("mov.f32 %a, 1;", "kind");
    refused("mov.f64 %A, 0f3F800000;", "kind");
    refused("ld.global.u32 %a, [%b];", "too narrow");
    refused("ld.global.u64 %a, [%in];", "too narrow");
    refused("ld.global.u32 %p, [%in];", "too narrow");
    refused("add.u32 %a, %zzz, %c;", "not a register");
    refused("ld.global.v2.u32 %a, [%in];", "2 registers");
    refused("ld.param.u64 %A, [in+8];", "offset");
    refused("st.param.u64 [in], %A;", "only read");
    refused("prmt.b32.xyz %a, %b, %c, %d;", "unknown");
}

#[test]
fn modules_that_are_not_for_this_device_are_refused() {
    let with = |head: &str| refusal(&format!("{head}\n.visible .entry k() {{\nret;\n}}\n"));
    assert!(with(".version 8.8\n.target sm_100\n.address_size 64").contains("sm_100"));
    assert!(with(".version 8.8\n.target sm_80\n.address_size 32").contains("64 bits"));
    assert!(with(".target sm_80").contains("version"));
    assert!(with(&format!("{HEAD}.tex .u64 t;")).contains(".tex"));
    assert!(with(&format!("{HEAD}.global .texref t;")).contains(".texref"));
    assert!(with(&format!("{HEAD}.global .f32 t = 1;")).contains("float"));
    assert!(with(&format!("{HEAD}.global .align 3 .u32 t;")).contains("alignment"));
    assert!(with(&format!("{HEAD}.global .b8 t[99999999999999];")).contains("large"));
    assert!(with(&format!("{HEAD}.global .u32 t[2] = {{1, 2, 3}};")).contains("more initial values"));
    assert!(with(&format!("{HEAD}.visible .entry k() {{\nret;\n}}")).contains("twice"));
}

#[test]
fn recursion_and_bad_calls_are_refused() {
    let with = |functions: &str, body: &str| {
        refusal(&format!("{HEAD}{functions}\n.visible .entry k() {{\n{body}\nret;\n}}\n"))
    };
    assert!(with(".func f() {\ncall f;\nret;\n}", "call f;").contains("recursive"));
    assert!(with(".func f();", "call f;").contains("no body"));
    let one = ".func f(.param .b32 x) {\nret;\n}";
    assert!(with(one, "call f;").contains("number of parameters"));
    assert!(with(one, ".param .b64 y;\ncall f, (y);").contains("does not fit"));
    // each function calls the next twice: two to the power of 25 bodies
    let doubling: String = (0..25)
        .map(|i| format!(".func f{i}() {{\ncall f{};\ncall f{};\nret;\n}}\n", i + 1, i + 1))
        .chain([".func f25() {\nret;\n}\n".to_string()])
        .collect();
    assert!(with(&doubling, "call f0;").contains("1,048,576"));
}

#[test]
fn every_prefix_and_every_missing_line_is_an_error_or_loads() {
    for text in [include_str!("../../fixtures/features.ptx"), include_str!("../../fixtures/mma.ptx")] {
        for end in (0..text.len()).step_by(7) {
            let _ = Program::load(&text[..end]);
        }
        let lines: Vec<&str> = text.lines().collect();
        for skipped in 0..lines.len() {
            let rest: Vec<&str> = lines.iter().enumerate().filter(|(i, _)| *i != skipped).map(|(_, l)| *l).collect();
            let _ = Program::load(&rest.join("\n"));
        }
    }
}

#[test]
fn hostile_text_gives_errors() {
    let deep = "{".repeat(100_000);
    for text in [
        format!("{HEAD}.entry k() {{\n{deep}"),
        format!("{HEAD}.entry k() {{\nmov.b32 %a, {deep};\n}}"),
        format!(
            "{HEAD}.entry k() {{\n.reg .b32 %r<4294967295>;\nadd.u32 %r4294967294, %r1, %r2;\nadd.u32 %r4294967295, 1, 2;\n}}"
        ),
        format!("{HEAD}.entry k() {{\n}}\n}}"),
        format!("{HEAD}.entry k(.param .b8 x[40000]) {{\nret;\n}}"),
        format!("{HEAD}.entry k() {{\n.shared .b8 s[300000];\nret;\n}}"),
        format!("{HEAD}.entry k() {{\n.local .b8 s[600000];\nret;\n}}"),
        format!("{HEAD}.entry k() {{\nL:\nL:\nret;\n}}"),
        format!("{HEAD}.entry k() {{\nld.global.u32 %r, [9223372036854775808+1];\n}}"),
        "\u{0}\u{1}\u{2}".to_string(),
        "/*".to_string(),
        ".version 8.8 .target sm_80 \"".to_string(),
    ] {
        assert!(!refusal(&text).is_empty());
    }
}
