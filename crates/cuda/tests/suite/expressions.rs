//! Pointwise functions on the software device, and the bits of their expressions.
//!
//! As in the tests of `crates/ops` that hold the CPU's loops to these expressions, any two NaN are equal: IEEE 754 leaves open
//! which one an operation gives. So what is equal here has the CPU's bits.

use remat_cuda::driver::{Argument, Compiler, Grid, Module};
use remat_ops::pointwise::Pointwise;
use remat_types::{DType, HostTensor};

use crate::rig::{Rig, compiler, ptx};
use crate::rows::{Row, THREADS, source};

/// Random elements that a function is tried on.
const RANDOM: usize = 20_000;

/// Numbers at which functions change their form.
const NUMBERS: [f64; 38] = [
    0.0,
    1.0,
    0.5,
    1.5,
    2.5,
    2.0,
    3.0,
    6.0,
    0.1,
    0.25,
    0.375,
    0.4999999,
    0.625,
    0.9999999,
    1.0000001,
    7.0,
    10.0,
    15.0,
    17.5,
    20.0,
    31.0,
    32.0,
    63.0,
    64.0,
    88.7,
    89.0,
    100.0,
    103.9,
    104.1,
    127.0,
    200.0,
    210.0,
    708.0,
    999_999.9,
    1e6,
    8_388_608.5,
    f64::INFINITY,
    f64::NAN,
];

/// Bits of numbers at the edges of a dtype: those above and their negatives, subnormal and largest ones, least and largest
/// integers.
fn edges(dtype: DType) -> Vec<u64> {
    if dtype == DType::Bool {
        return vec![0, 1];
    }
    let bits = 8 * dtype.size_bytes() as u32;
    let mask = u64::MAX >> (64 - bits);
    let numbers: Vec<f64> = NUMBERS.iter().flat_map(|v| [*v, -v]).collect();
    let numbers = HostTensor::from_f64_slice(&numbers, dtype, [numbers.len()]).expect("fits");
    let mut out = words(numbers.bytes(), dtype);
    for around in [0, 1 << (bits - 1), mask, mask >> 1] {
        out.extend((0..3u64).flat_map(|i| [around.wrapping_add(i), around.wrapping_sub(i)]).map(|w| w & mask));
    }
    out
}

/// The bits of each element.
fn words(bytes: &[u8], dtype: DType) -> Vec<u64> {
    let word = |b: &[u8]| b.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
    bytes.chunks(dtype.size_bytes()).map(word).collect()
}

fn bytes(words: &[u64], dtype: DType) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes().into_iter().take(dtype.size_bytes())).collect()
}

/// All pairs or triples of edges, then random bits, where a 16-bit float takes each of its values.
fn inputs(dtypes: &[DType]) -> Vec<Vec<u64>> {
    let all: Vec<Vec<u64>> = dtypes.iter().map(|d| edges(*d)).collect();
    let is_half = dtypes.iter().any(|d| matches!(d, DType::F16 | DType::BF16));
    let tuples: usize = all.iter().map(Vec::len).product();
    let random = if is_half { 1 << 16 } else { RANDOM };
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut out: Vec<Vec<u64>> = vec![Vec::new(); dtypes.len()];
    for i in 0..tuples + random {
        let mut at = i;
        let mut every = true;
        for ((edges, x), dtype) in all.iter().zip(&mut out).zip(dtypes) {
            let edge = edges[at % edges.len()];
            at /= edges.len();
            let is_half = matches!(dtype, DType::F16 | DType::BF16);
            x.push(if i < tuples {
                edge
            } else if is_half && std::mem::take(&mut every) {
                (i - tuples) as u64
            } else {
                drawn(&mut state, *dtype, i)
            });
        }
    }
    out
}

/// Random bits. Of integers half are small.
fn drawn(state: &mut u64, dtype: DType, i: usize) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> (64 - 8 * dtype.size_bytes());
    match dtype {
        DType::Bool => word & 1,
        _ if dtype.is_int() && i.is_multiple_of(2) => word % 67,
        _ => word,
    }
}

fn is_nan(word: u64, dtype: DType) -> bool {
    match dtype {
        DType::F16 => word & 0x7fff > 0x7c00,
        DType::BF16 => word & 0x7fff > 0x7f80,
        DType::F32 => f32::from_bits(word as u32).is_nan(),
        DType::F64 => f64::from_bits(word).is_nan(),
        _ => false,
    }
}

/// The results of a row's kernel.
fn results(rig: &mut Rig, module: &Module, row: &Row, x: &[Vec<u64>]) -> Vec<u64> {
    for (i, (x, dtype)) in x.iter().zip(&row.expression.inputs).enumerate() {
        rig.put(i, &bytes(x, *dtype));
    }
    let (n, result) = (x[0].len(), row.result());
    let arguments: Vec<Argument> = (0..=x.len()).map(|i| rig.at(i)).chain([n as u64]).map(Argument::U64).collect();
    let grid = Grid { blocks: [(n as u32).div_ceil(THREADS), 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 };
    rig.launch(&module.kernel(&row.name).expect("is there"), grid, &arguments);
    words(&rig.get(x.len(), n * result.size_bytes(), &row.name), result)
}

/// The inputs of a row, within its domain.
fn inputs_of(row: &Row) -> Vec<Vec<u64>> {
    let dtypes = &row.expression.inputs;
    let mut x = inputs(dtypes);
    if let (Pointwise::Binary(op), [_, d]) = (&row.op, &dtypes[..])
        && Pointwise::fusible(&op.clone().into(), dtypes[0]).is_none()
    {
        // no divisor that is 0, no exponent or shift that is negative: the op refuses them
        let sign = u64::from(d.is_signed_int()) << (8 * d.size_bytes() - 1);
        x[1].iter_mut().for_each(|b| *b = if *b & !sign == 0 { 1 } else { *b & !sign });
    }
    x
}

/// The elements in which a row has other bits than its expression: how many, and the first one.
fn difference(rig: &mut Rig, module: &Module, row: &Row) -> Option<String> {
    let x = inputs_of(row);
    let got = results(rig, module, row, &x);
    let mut want = vec![0; got.len()];
    row.expression.eval(&x.iter().map(|x| &x[..]).collect::<Vec<_>>(), &mut [&mut want]);
    let dtype = row.result();
    let differs = |i: &usize| got[*i] != want[*i] && !(is_nan(got[*i], dtype) && is_nan(want[*i], dtype));
    let all: Vec<usize> = (0..got.len()).filter(differs).collect();
    let &first = all.first()?;
    let at: Vec<String> = x.iter().map(|x| format!("{:#x}", x[first])).collect();
    let (name, count, n) = (&row.name, all.len(), got.len());
    Some(format!("{name}: {count} of {n}; at {at:?} {:#x}, not {:#x}", got[first], want[first]))
}

/// Rows that were run, and the differences.
fn check(compiler: &Compiler, dtype: DType) -> (usize, Vec<String>) {
    let mut rig = Rig::new();
    let (source, rows, _) = source(dtype);
    let module = rig.load(&ptx(compiler, &source));
    let differences = rows.iter().filter_map(|row| difference(&mut rig, &module, row)).collect();
    (rows.len(), differences)
}

#[test]
fn every_row_has_the_bits_of_its_expression() {
    let Some(compiler) = compiler() else { return };
    let (mut run, mut differences) = (0, Vec::new());
    for dtype in DType::ALL {
        let (rows, different) = check(&compiler, dtype);
        println!("{dtype}: {rows} rows, {} of them differ", different.len());
        run += rows;
        differences.extend(different);
    }
    assert!(differences.is_empty(), "{} of {run} rows differ:\n{}", differences.len(), differences.join("\n"));
    assert!(run > 1000, "{run}");
}
