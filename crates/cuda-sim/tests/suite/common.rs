//! Kernels of one instruction, and launches in one line.

use remat_cuda_sim::{ExecOptions, Fault, LaunchShape, Memory, Program, launch};

pub(crate) const HEAD: &str = ".version 8.8\n.target sm_90\n.address_size 64\n";

const REGISTERS: &str = "
.reg .b64 %in, %out, %at, %A, %B, %C, %D, %E;
.reg .b32 %lane, %a, %b, %c, %d, %e;
.reg .b16 %ha, %hb, %hc, %hd;
.reg .pred %p, %q, %r;
ld.param.u64 %in, [in];
ld.param.u64 %out, [out];
mov.u32 %lane, %tid.x;
mul.wide.u32 %at, %lane, 24;
add.u64 %at, %in, %at;
ld.global.u64 %A, [%at];
ld.global.u64 %B, [%at+8];
ld.global.u64 %C, [%at+16];
cvt.u32.u64 %a, %A;
cvt.u32.u64 %b, %B;
cvt.u32.u64 %c, %C;
cvt.u16.u64 %ha, %A;
cvt.u16.u64 %hb, %B;
cvt.u16.u64 %hc, %C;
mov.u64 %D, 0;
mov.u32 %d, 0;
mov.u16 %hd, 0;
";

/// The PTX of a kernel `k(in, out)` whose lanes have operands in `%a`, `%b`, `%c` (32 bits), `%A`, `%B`, `%C` (64 bits) and
/// `%ha`, `%hb`, `%hc` (16 bits), and leave a result in `result`.
pub(crate) fn kernel(body: &str, result: &str) -> String {
    let widen = match result {
        "%D" => "",
        "%d" => "cvt.u64.u32 %D, %d;",
        "%hd" => "cvt.u64.u16 %D, %hd;",
        "%p" => "selp.u64 %D, 1, 0, %p;",
        other => panic!("{other} is no result"),
    };
    format!(
        "{HEAD}.visible .entry k(.param .u64 in, .param .u64 out) {{\n{REGISTERS}\n{body}\n{widen}\n\
         mul.wide.u32 %at, %lane, 8;\nadd.u64 %at, %out, %at;\nst.global.u64 [%at], %D;\nret;\n}}\n"
    )
}

/// The results of a body for rows of operands, one lane each.
pub(crate) fn evaluate(body: &str, result: &str, rows: &[[u64; 3]]) -> Vec<u64> {
    let text = kernel(body, result);
    let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}"));
    let mut memory = Memory::new();
    let (input, output) = (memory.allocate(24 * rows.len() as u64), memory.allocate(8 * rows.len() as u64));
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    memory.write(input, &bytes).unwrap();
    let shape = shape(1, rows.len() as u32);
    run(&mut memory, &program, "k", shape, &params(&[input, output])).unwrap_or_else(|e| panic!("{e}"));
    let mut out = vec![0; 8 * rows.len()];
    memory.read(output, &mut out).unwrap();
    out.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

/// Asserts a result for each row of operands.
pub(crate) fn check(body: &str, result: &str, table: &[([u64; 3], u64)]) {
    let rows: Vec<[u64; 3]> = table.iter().map(|row| row.0).collect();
    for (row, got) in table.iter().zip(evaluate(body, result, &rows)) {
        assert_eq!(got, row.1, "{body} of {:x?}: got {got:#x}, expected {:#x}", row.0, row.1);
    }
}

/// The message of a text that must be refused.
pub(crate) fn refusal(text: &str) -> String {
    match Program::load(text) {
        Ok(_) => panic!("this was loaded:\n{text}"),
        Err(e) => e.to_string(),
    }
}

pub(crate) fn params(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub(crate) fn shape(blocks: u32, threads: u32) -> LaunchShape {
    LaunchShape { grid: [blocks, 1, 1], block: [threads, 1, 1], dynamic_shared_bytes: 0 }
}

pub(crate) fn run(
    memory: &mut Memory,
    program: &Program,
    kernel: &str,
    shape: LaunchShape,
    params: &[u8],
) -> Result<(), Box<Fault>> {
    run_with(memory, program, kernel, shape, params, &ExecOptions { threads: 2, seed: 3, ..ExecOptions::default() })
}

pub(crate) fn run_with(
    memory: &mut Memory,
    program: &Program,
    kernel: &str,
    shape: LaunchShape,
    params: &[u8],
    options: &ExecOptions,
) -> Result<(), Box<Fault>> {
    let variables: Vec<u64> = program
        .variables()
        .iter()
        .map(|v| {
            let at = memory.allocate(v.bytes);
            memory.fill(at, &[0], v.bytes).unwrap();
            memory.write(at, &v.initial).unwrap();
            at
        })
        .collect();
    launch(memory, program.kernel(kernel).unwrap(), &variables, shape, params, options).map(|_| ())
}

pub(crate) fn f32s(memory: &Memory, at: u64, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * count];
    memory.read(at, &mut bytes).unwrap_or_else(|e| panic!("{e}"));
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

pub(crate) fn put_f32s(memory: &mut Memory, values: &[f32]) -> u64 {
    let at = memory.allocate(4 * values.len() as u64);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    memory.write(at, &bytes).unwrap();
    at
}

/// Values between -2 and 2, the same in each run.
pub(crate) fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) * 4.0
        })
        .collect()
}
