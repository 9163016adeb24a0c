//! Planted faults: each check finds its own, in all orders of blocks, and names the place.

use crate::common::{HEAD, params, run_with, shape};
use remat_cuda_sim::{Checks, ExecOptions, Fault, FaultKind, LaunchShape, Memory, Program};

/// A kernel `k(x)` over 64 words that hold their number.
struct Planted {
    body: &'static str,
    shape: LaunchShape,
    checks: Checks,
}

fn planted(body: &'static str, blocks: u32, threads: u32) -> Planted {
    Planted { body, shape: shape(blocks, threads), checks: Checks::All }
}

impl Planted {
    fn run(&self, seed: u64) -> Result<Vec<u32>, (Box<Fault>, u64)> {
        let text = format!(
            "{HEAD}.visible .entry k(.param .u64 x) {{\n.reg .b64 %x, %i, %j, %y;\n.reg .b32 %t, %b, %n, %u, %v, %w;\n.reg .b16 %h;\n\
             .reg .pred %p, %q;\n.shared .align 16 .b8 s[1024];\n.local .align 4 .b8 l[16];\n\
             ld.param.u64 %x, [x];\nmov.u32 %t, %tid.x;\nmov.u32 %b, %ctaid.x;\nmov.u32 %n, %ntid.x;\n\
             mul.wide.u32 %i, %t, 4;\nadd.u64 %i, %x, %i;\nmul.wide.u32 %j, %b, 4;\nadd.u64 %j, %x, %j;\nshl.b32 %u, %t, 2;\n\
             {}\nret;\n}}\n",
            self.body
        );
        let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}"));
        let mut memory = Memory::new();
        let fresh = memory.allocate(64);
        let at = memory.allocate(256);
        memory.write(at, &(0..64u32).flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        memory.forget(at + 240, 4).unwrap();
        assert!(fresh < at);
        let options = ExecOptions { seed, threads: 2, checks: self.checks, instruction_limit: 20_000 };
        run_with(&mut memory, &program, "k", self.shape, &params(&[at]), &options).map_err(|f| (f, at))?;
        let mut out = vec![0; 128];
        memory.read(at, &mut out).unwrap();
        Ok(out.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect())
    }

    /// Asserts the kind of the fault and a part of the text of its line, for several seeds.
    fn is_found(&self, kind: FaultKind, line: &str) -> Fault {
        for seed in 1..8 {
            let (fault, _) = self.run(seed).expect_err(self.body);
            assert!(fault.kind == kind && fault.text.contains(line), "{}: {fault}", self.body);
        }
        *self.run(0).expect_err(self.body).0
    }

    fn is_right(&self) {
        for seed in 0..8 {
            if let Err((fault, _)) = self.run(seed) {
                panic!("{}: {fault}", self.body);
            }
        }
    }
}

#[test]
fn accesses_outside_of_allocations() {
    let fault =
        planted("add.u64 %i, %i, 252;\nst.global.u32 [%i], 1;", 1, 2).is_found(FaultKind::OutOfBounds, "st.global");
    assert_eq!(fault.thread, [1, 0, 0]);
    planted("ld.global.u32 %v, [%x+-4];", 1, 1).is_found(FaultKind::OutOfBounds, "ld.global");
    planted("ld.global.u64 %y, [%x+256];", 1, 1).is_found(FaultKind::OutOfBounds, "ld.global");
    planted("mov.u64 %x, 0;\nst.global.u32 [%x], 1;", 1, 1).is_found(FaultKind::OutOfBounds, "st.global");
    planted("atom.global.add.u32 %v, [%x+256], 1;", 1, 1).is_found(FaultKind::OutOfBounds, "atom");
    planted("st.shared.u32 [s+1024], 1;", 1, 1).is_found(FaultKind::OutOfBounds, "st.shared");
    planted("mov.u32 %v, s;\nld.shared.u32 %v, [%v+-4];", 1, 1).is_found(FaultKind::OutOfBounds, "ld.shared");
    planted("mov.u32 %v, 16;\nst.local.u32 [%v], 1;", 1, 1).is_found(FaultKind::OutOfBounds, "st.local");
    planted("mov.u64 %y, l;\ncvta.local.u64 %y, %y;\nst.u32 [%y+16], 1;", 1, 1)
        .is_found(FaultKind::OutOfBounds, "st.u32");
    planted("mov.u64 %y, 8;\nld.param.u32 %v, [%y];", 1, 1).is_found(FaultKind::OutOfBounds, "ld.param");
    // bounds are checked with the other checks off, too
    let quick = Planted { checks: Checks::Bounds, ..planted("st.global.u32 [%x+256], 1;", 1, 1) };
    quick.is_found(FaultKind::OutOfBounds, "st.global");
}

#[test]
fn addresses_that_are_no_multiples() {
    let (fault, at) = planted("st.global.u32 [%x+2], 1;", 1, 1).run(0).unwrap_err();
    assert_eq!((fault.kind, fault.address), (FaultKind::Misaligned, Some(at + 2)));
    planted("ld.global.v4.u32 {%v, _, _, _}, [%x+8];", 1, 1).is_found(FaultKind::Misaligned, "v4");
    planted("ld.shared.v2.u32 {%v, _}, [s+4];", 1, 1).is_found(FaultKind::Misaligned, "v2");
    planted("atom.global.add.u64 %y, [%x+4], 1;", 1, 1).is_found(FaultKind::Misaligned, "atom");
    planted("st.local.u16 [l+1], %h;", 1, 1).is_found(FaultKind::Misaligned, "st.local");
    planted("mov.u32 %v, s;\ncp.async.ca.shared.global [%v+4], [%x], 8;", 1, 1)
        .is_found(FaultKind::Misaligned, "cp.async");
}

#[test]
fn reads_of_what_nobody_wrote() {
    planted("ld.global.u32 %v, [%x+240];", 1, 1).is_found(FaultKind::Uninitialised, "ld.global");
    planted("atom.global.add.u32 %v, [%x+240], 1;", 1, 1).is_found(FaultKind::Uninitialised, "atom");
    planted("st.global.u8 [%x+240], 1;\nld.global.u16 %h, [%x+240];", 1, 1)
        .is_found(FaultKind::Uninitialised, "ld.global.u16");
    planted("st.global.u16 [%x+240], 1;\nld.global.u8 %h, [%x+241];", 1, 1).is_right();
    planted("ld.shared.u32 %v, [s];", 1, 1).is_found(FaultKind::Uninitialised, "ld.shared");
    planted("st.shared.u8 [s], 1;\nld.shared.u32 %v, [s];", 1, 1).is_found(FaultKind::Uninitialised, "ld.shared");
    // the next block begins with shared memory that it has not written
    planted("setp.eq.u32 %p, %b, 0;\n@%p st.shared.u32 [s], 1;\nld.shared.u32 %v, [s];", 4, 1)
        .is_found(FaultKind::Uninitialised, "ld.shared");
}

#[test]
fn races_in_shared_memory() {
    let exchange = "mov.u32 %w, s;\nadd.u32 %u, %w, %u;\nst.shared.u32 [%u], %t;\nBARRIER\nxor.b32 %v, %t, FLIP;\nshl.b32 %v, %v, 2;\n\
                    add.u32 %v, %w, %v;\nld.shared.u32 %v, [%v];\nst.global.u32 [%i], %v;";
    let with = |barrier: &str, flip: &str| -> &'static str {
        Box::leak(exchange.replace("BARRIER", barrier).replace("FLIP", flip).into_boxed_str())
    };
    planted(with("bar.sync 0;", "1"), 1, 50).is_right();
    planted(with("", "1"), 1, 50).is_found(FaultKind::SharedRace, "ld.shared");
    planted(with("", "0"), 1, 50).is_right();
    // a sync of the warp is enough for lanes of one warp, not for those of two
    planted(with("bar.warp.sync -1;", "1"), 1, 32).is_right();
    planted(with("bar.warp.sync -1;", "32"), 1, 64).is_found(FaultKind::SharedRace, "ld.shared");
    planted("st.shared.u32 [s], %t;", 1, 2).is_found(FaultKind::SharedRace, "st.shared");
    planted("st.shared.u32 [s], 1;\nbar.sync 0;\nst.shared.u32 [s], 1;", 1, 1).is_right();
    planted("setp.eq.u32 %p, %t, 0;\n@%p st.shared.u32 [s], 1;\nbar.sync 0;\nld.shared.u32 %v, [s];\n@%p st.shared.u32 [s], 2;", 1, 64)
        .is_found(FaultKind::SharedRace, "st.shared.u32 [s], 2");
    planted("setp.eq.u32 %p, %t, 0;\n@%p st.shared.u32 [s], 1;\nbar.sync 0;\natom.shared.add.u32 %v, [s], 1;\nbar.sync 0;\nld.shared.u32 %v, [s];", 1, 64)
        .is_right();
    planted("setp.eq.u32 %p, %t, 0;\n@%p st.shared.u32 [s], 1;\nbar.sync 0;\natom.shared.add.u32 %v, [s], 1;\nld.shared.u32 %v, [s];", 1, 2)
        .is_found(FaultKind::SharedRace, "ld.shared");
    // neighbouring bytes of a word are no race
    planted("cvt.u64.u32 %y, %t;\nmov.u64 %i, s;\nadd.u64 %i, %i, %y;\nst.shared.u8 [%i], %t;\nbar.sync 0;\nld.shared.u32 %v, [s];", 1, 32)
        .is_right();
    planted("st.shared.u16 [s+2], %t;", 1, 2).is_found(FaultKind::SharedRace, "st.shared.u16");
}

#[test]
fn races_between_blocks() {
    planted("st.global.u32 [%j], %t;", 20, 1).is_right();
    planted("st.global.u32 [%x], 1;", 2, 1).is_found(FaultKind::GlobalRace, "st.global");
    planted("ld.global.u32 %v, [%j];\nst.global.u32 [%x], %v;", 1, 1).is_right();
    let fault = planted("ld.global.u32 %v, [%x];\nst.global.u32 [%j], %v;", 9, 1).run(0).unwrap_err().0;
    assert!(fault.kind == FaultKind::GlobalRace && fault.message.contains("block"), "{fault}");
    planted("ld.global.u32 %v, [%x];", 20, 32).is_right();
    planted("red.global.add.u32 [%x], 1;", 20, 32).is_right();
    planted("red.global.add.u32 [%x], 1;\nld.global.u32 %v, [%x];", 3, 1).is_found(FaultKind::GlobalRace, "global");
    planted("red.global.add.u32 [%x], 1;\nld.relaxed.gpu.global.u32 %v, [%x];", 3, 1).is_right();
    planted("cvt.u64.u32 %y, %b;\nadd.u64 %y, %x, %y;\nst.global.u8 [%y], %t;", 40, 1).is_right();
    planted("shl.b32 %v, %b, 1;\ncvt.u64.u32 %y, %v;\nadd.u64 %y, %x, %y;\nst.global.u16 [%y], %h;\nld.global.u8 %h, [%x+1];", 9, 1)
        .is_found(FaultKind::GlobalRace, "global");
    planted("st.global.u32 [%i], %t;\nld.global.nc.u32 %v, [%i];", 1, 1)
        .is_found(FaultKind::GlobalRace, "ld.global.nc");
    let quick = Planted { checks: Checks::Bounds, ..planted("st.global.u32 [%x], 1;", 2, 1) };
    quick.is_right();
}

#[test]
fn barriers_that_not_all_threads_reach() {
    planted("setp.lt.u32 %p, %t, 40;\n@%p bra L;\nbar.sync 0;\nL:", 1, 64).is_found(FaultKind::Barrier, "bar.sync 0");
    planted("setp.lt.u32 %p, %t, 40;\n@%p exit;\nbar.sync 0;", 1, 64).is_found(FaultKind::Barrier, "bar.sync 0");
    planted("setp.lt.u32 %p, %t, 40;\n@%p bar.sync 0;", 1, 64).is_found(FaultKind::Barrier, "@%p bar.sync 0");
    planted("setp.lt.u32 %p, %t, 40;\n@%p bra L;\nbar.sync 1;\nbra M;\nL: bar.sync 0;\nM:", 1, 64)
        .is_found(FaultKind::Barrier, "bar.sync");
    planted("bar.sync %t;", 1, 2).is_found(FaultKind::Barrier, "bar.sync");
    planted("bar.sync 0, 32;", 1, 64).is_found(FaultKind::Barrier, "bar.sync 0, 32");
    planted("setp.lt.u32 %p, %b, 4;\n@%p bra L;\nbar.sync 0;\nL: barrier.cta.sync 3, 64;", 8, 64).is_right();
}

#[test]
fn copies_that_were_not_waited_for() {
    let copy = "mov.u32 %v, s;\ncp.async.ca.shared.global [%v], [%x], 16;\ncp.async.commit_group;\n";
    let with = |rest: &str| -> &'static str { Box::leak(format!("{copy}{rest}").into_boxed_str()) };
    planted(with("ld.shared.u32 %v, [s];"), 1, 1).is_found(FaultKind::PendingCopy, "ld.shared");
    planted(with("cp.async.wait_group 1;\nld.shared.u32 %v, [s];"), 1, 1).is_found(FaultKind::PendingCopy, "ld.shared");
    planted(with("cp.async.wait_group 0;\nld.shared.u32 %v, [s+4];\nst.global.u32 [%x], %v;"), 1, 1).is_right();
    planted(with("cp.async.wait_all;\nld.shared.u32 %v, [s];"), 1, 1).is_right();
    let zeros = "mov.u32 %v, s;\ncp.async.cg.shared.global [%v], [%x+16], 16, 5;\ncp.async.wait_all;\n\
                 ld.shared.v4.u32 {%t, %u, %v, _}, [s];\nst.global.v2.u32 [%x], {%t, %u};\nst.global.u32 [%x+8], %v;";
    assert_eq!(planted(zeros, 1, 1).run(0).unwrap()[..3], [4, 5, 0]);
}

#[test]
fn hangs_and_traps() {
    planted("L: bra L;", 1, 1).is_found(FaultKind::Limit, "bra L");
    planted("L: ld.volatile.global.u32 %v, [%x];\nsetp.eq.u32 %p, %v, 0;\n@%p bra L;", 1, 1)
        .is_found(FaultKind::Limit, "");
    planted("trap;", 1, 1).is_found(FaultKind::Trap, "trap");
    planted("setp.gt.u32 %p, %t, 5;\n@%p trap;", 1, 4).is_right();
}

#[test]
fn a_lock_goes_from_thread_to_thread() {
    // those that wait are at lesser instructions than the one that has the lock
    let body = "L: atom.global.cas.b32 %v, [%x], 0, 1;\nsetp.ne.u32 %p, %v, 0;\n@%p bra L;\n\
                ld.volatile.global.u32 %v, [%x+4];\nadd.u32 %v, %v, 1;\nst.volatile.global.u32 [%x+4], %v;\n\
                membar.gl;\natom.global.exch.b32 %v, [%x], 0;";
    for seed in 0..4 {
        let words = planted(body, 1, 3).run(seed).unwrap_or_else(|(fault, _)| panic!("{fault}"));
        assert_eq!(words[..3], [0, 4, 2]);
    }
}

#[test]
fn shapes_that_a_kernel_does_not_take() {
    let text = format!(
        "{HEAD}.visible .entry k()\n.reqntid 8, 4\n{{\nret;\n}}\n.visible .entry m() .maxntid 64, 1, 1 {{\nret;\n}}\n"
    );
    let program = Program::load(&text).unwrap();
    let mut memory = Memory::new();
    let mut refused = |kernel: &str, grid: [u32; 3], block: [u32; 3], params: &[u8]| {
        let shape = LaunchShape { grid, block, dynamic_shared_bytes: 0 };
        match run_with(&mut memory, &program, kernel, shape, params, &ExecOptions::default()) {
            Ok(()) => false,
            Err(fault) => fault.kind == FaultKind::Launch,
        }
    };
    assert!(!refused("k", [1; 3], [8, 4, 1], &[]));
    assert!(refused("k", [1; 3], [4, 8, 1], &[]));
    assert!(refused("k", [0, 1, 1], [8, 4, 1], &[]));
    assert!(refused("k", [1, 65_536, 1], [8, 4, 1], &[]));
    assert!(refused("k", [1; 3], [8, 4, 1], &[0]));
    assert!(!refused("m", [1; 3], [8, 8, 1], &[]));
    assert!(refused("m", [1; 3], [65, 1, 1], &[]));
}

#[test]
fn blocks_and_threads_have_their_coordinates_in_all_orders() {
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 x) {{\n.reg .b64 %x<3>;\n.reg .b32 %r<20>;\nld.param.u64 %x1, [x];\n\
         mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %ctaid.z;\nmov.u32 %r4, %tid.x;\nmov.u32 %r5, %tid.y;\nmov.u32 %r6, %tid.z;\n\
         mad.lo.u32 %r7, %r3, 5, %r2;\nmad.lo.u32 %r7, %r7, 3, %r1;\nmad.lo.u32 %r8, %r6, 2, %r5;\nmad.lo.u32 %r8, %r8, 7, %r4;\n\
         mad.lo.u32 %r9, %r7, 42, %r8;\nmul.wide.u32 %x2, %r9, 4;\nadd.u64 %x1, %x1, %x2;\nst.global.u32 [%x1], %r9;\nret;\n}}\n"
    );
    let program = Program::load(&text).unwrap();
    for seed in 0..10 {
        let mut memory = Memory::new();
        let count = 3 * 5 * 2 * 42u32;
        let at = memory.allocate(4 * u64::from(count));
        let shape = LaunchShape { grid: [3, 5, 2], block: [7, 2, 3], dynamic_shared_bytes: 0 };
        let options = ExecOptions { seed, threads: 3, ..ExecOptions::default() };
        run_with(&mut memory, &program, "k", shape, &params(&[at]), &options).unwrap();
        let mut out = vec![0; 4 * count as usize];
        memory.read(at, &mut out).unwrap();
        assert!(out.chunks_exact(4).zip(0u32..).all(|(c, i)| u32::from_le_bytes(c.try_into().unwrap()) == i));
    }
}
