//! Pointwise ops as expressions: one for each row and dtype, and the bits of the loops.
//!
//! Loops and expressions are one definition, so what is checked is that arithmetic on plain numbers and on nodes agree, that
//! the loops that are functions on slices compute what their rows say, and that no row hides a call. Any two NaN are equal
//! here: IEEE 754 leaves open which one an operation gives.

use std::collections::BTreeSet;

use remat_kernels::pool::Pool;
use remat_kernels::scalar::{Expression, Op};
use remat_ops::pointwise::{
    Binary, BinaryFn, Cast, Clamp, Compare, CompareFn, Fused, FusedStep, Pointwise, Unary, UnaryFn, Where,
};
use remat_ops::{OpDef, OpRef, eval_on_host};
use remat_types::{DType, ErrorKind, HostTensor, Scalar, SmallVec};

/// Elements of f32 that a function is tried on.
const MANY: usize = 1 << 20;

/// As many as a function of another type is tried on.
const FEW: usize = 1 << 14;

/// As many as a function that calls a library in f64 is tried on: Cephes' take a millisecond where their series are long.
const FEWEST: usize = 1 << 10;

/// Bits of numbers at which functions change their form: zeros, ones, ties, ends, infinities and NaN, and their negatives.
fn edges(dtype: DType) -> Vec<u64> {
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
    let bits = 8 * dtype.size_bytes() as u32;
    let mask = u64::MAX >> (64 - bits);
    if dtype == DType::Bool {
        return vec![0, 1];
    }
    let mut out: Vec<u64> = NUMBERS.iter().flat_map(|v| [*v, -v]).map(|v| words(&host(v, dtype))[0]).collect();
    // the first and last bit patterns, and those about the sign: subnormal and largest numbers, least and largest integers
    for around in [0, 1 << (bits - 1), mask, mask >> 1] {
        out.extend((0..3u64).flat_map(|i| [around.wrapping_add(i), around.wrapping_sub(i)]).map(|w| w & mask));
    }
    out
}

fn host(v: f64, dtype: DType) -> HostTensor {
    HostTensor::from_f64_slice(&[v], dtype, [1]).expect("fits")
}

/// The bits of each element.
fn words(t: &HostTensor) -> Vec<u64> {
    let word = |b: &[u8]| b.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
    t.bytes().chunks(t.dtype().size_bytes()).map(word).collect()
}

fn tensor(words: &[u64], dtype: DType) -> HostTensor {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes().into_iter().take(dtype.size_bytes())).collect();
    HostTensor::from_bytes(dtype, [words.len()], &bytes).expect("fits")
}

/// Edges, all pairs of them for more than one input, then random bits; all there are of one 16-bit float.
fn inputs(dtypes: &[DType], elems: usize) -> Vec<Vec<u64>> {
    if let [d @ (DType::F16 | DType::BF16)] = dtypes {
        return vec![(0..1 << (8 * d.size_bytes())).collect()];
    }
    let all: Vec<Vec<u64>> = dtypes.iter().map(|d| edges(*d)).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut out: Vec<Vec<u64>> = vec![Vec::new(); dtypes.len()];
    let squares: usize = all.iter().map(Vec::len).product();
    for i in 0..squares + elems {
        let mut at = i;
        for ((edges, x), dtype) in all.iter().zip(&mut out).zip(dtypes) {
            let edge = edges[at % edges.len()];
            at /= edges.len();
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> (64 - 8 * dtype.size_bytes());
            // of integers half are small
            let random = if dtype.is_int() && i % 2 == 0 { random % 67 } else { random };
            x.push(if i < squares {
                edge
            } else if *dtype == DType::Bool {
                random & 1
            } else {
                random
            });
        }
    }
    out
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

/// The functions of libraries that an expression calls, as text.
fn calls(e: &Expression) -> BTreeSet<String> {
    let called = e.nodes.iter().filter(|n| matches!(n.op, Op::Call32(_) | Op::Call64(_) | Op::Call64x2(_)));
    called.map(|n| format!("{:?}", n.op)).collect()
}

/// Holds the expression of `op` to its loop; gives the expression, or `None` outside the op's domain.
fn check(name: &str, op: &Pointwise, dtypes: &[DType]) -> Option<Expression> {
    let expression = match op.expression(dtypes) {
        Ok(e) => e,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::DType, "{name}: {e}");
            return None;
        }
    };
    assert_eq!(expression.inputs, dtypes);
    let is_slow = calls(&expression).iter().any(|f| !f.starts_with("Call32"));
    let elems = match dtypes {
        _ if is_slow => FEWEST,
        [DType::F32] | [DType::F32, DType::F32] => MANY,
        _ => FEW,
    };
    let mut x = inputs(dtypes, elems);
    if is_slow && x.len() > 1 {
        // of the pairs a part, in which every edge is
        x.iter_mut().for_each(|x| *x = x.iter().step_by(7).copied().collect());
    }
    if let (Pointwise::Binary(_), [_, d]) = (op, dtypes)
        && Pointwise::fusible(&shared(op), dtypes[0]).is_none()
    {
        // no divisor that is 0, no exponent or shift that is negative
        let sign = u64::from(d.is_signed_int()) << (8 * d.size_bytes() - 1);
        x[1].iter_mut().for_each(|b| *b = if *b & !sign == 0 { 1 } else { *b & !sign });
    }
    compare(name, &shared(op), &expression, dtypes, &x);
    Some(expression)
}

fn shared(op: &Pointwise) -> OpRef {
    match op.clone() {
        Pointwise::Unary(op) => op.into(),
        Pointwise::Binary(op) => op.into(),
        Pointwise::Compare(op) => op.into(),
        Pointwise::Where(op) => op.into(),
        Pointwise::Cast(op) => op.into(),
        Pointwise::Clamp(op) => op.into(),
    }
}

fn compare(name: &str, op: &OpRef, e: &Expression, dtypes: &[DType], x: &[Vec<u64>]) {
    let given: Vec<HostTensor> = x.iter().zip(dtypes).map(|(x, d)| tensor(x, *d)).collect();
    let want = eval_on_host(&**op, &given, &Pool::new(1)).expect("is defined");
    if let Some((j, i, got)) = difference(&want, e, x) {
        let (want, x) = (words(&want[j])[i], x.iter().map(|x| format!("{:#x}", x[i])).collect::<Vec<_>>());
        panic!("{name} of {dtypes:?}: result {j} is {got:#x}, not {want:#x}, at {x:?}");
    }
}

/// The first result and element in which `e` has other bits than `want`, and these bits.
fn difference(want: &[HostTensor], e: &Expression, x: &[Vec<u64>]) -> Option<(usize, usize, u64)> {
    let mut got = vec![vec![0; x[0].len()]; want.len()];
    let mut outputs: Vec<&mut [u64]> = got.iter_mut().map(|y| &mut y[..]).collect();
    e.eval(&x.iter().map(|x| &x[..]).collect::<Vec<_>>(), &mut outputs);
    want.iter().zip(&got).enumerate().find_map(|(j, (want, got))| {
        let dtype = want.dtype();
        let differ = |(want, got): (u64, &u64)| want != *got && !(is_nan(want, dtype) && is_nan(*got, dtype));
        let at = words(want).into_iter().zip(got).position(differ)?;
        Some((j, at, got[at]))
    })
}

/// A dtype of each of two inputs, as inference lets them pass.
fn pairs() -> Vec<[DType; 2]> {
    use DType::{BF16, F16, F32};
    DType::ALL.iter().map(|d| [*d, *d]).chain([[F16, F32], [F32, F16], [BF16, F32], [F32, BF16]]).collect()
}

#[test]
fn unary_rows_have_the_bits_of_their_loops() {
    for &f in UnaryFn::ALL {
        let name = OpDef::label(&Unary { f });
        let defined = DType::ALL.iter().filter(|d| check(name, &Pointwise::Unary(Unary { f }), &[**d]).is_some());
        assert!(defined.count() > 0, "{name}");
    }
}

#[test]
fn binary_rows_have_the_bits_of_their_loops() {
    for &f in BinaryFn::ALL {
        let name = OpDef::label(&Binary { f });
        let defined =
            pairs().iter().filter(|d| check(name, &Pointwise::Binary(Binary { f }), &d[..]).is_some()).count();
        assert!(defined > 0, "{name}");
    }
}

#[test]
fn comparisons_casts_choices_and_bounds_have_the_bits_of_their_loops() {
    for &f in CompareFn::ALL {
        for d in pairs() {
            check("compare", &Pointwise::Compare(Compare { f }), &d).expect("is defined");
        }
    }
    for from in DType::ALL {
        for dtype in DType::ALL {
            check("cast", &Pointwise::Cast(Cast { dtype }), &[from]).expect("is defined");
        }
        let bounds: [[Scalar; 2]; 3] = [
            [(-1.5f64).into(), 2.7f64.into()],
            [(-300i64).into(), 5i64.into()],
            [7i64.into(), Scalar::Uint(u64::MAX - 1)],
        ];
        for [lo, hi] in bounds {
            let defined = check("clamp", &Pointwise::Clamp(Clamp { lo, hi }), &[from]).is_some();
            assert_eq!(defined, from != DType::Bool);
        }
        // a condition that is read, of values that are random
        check("where", &Pointwise::Where(Where), &[DType::Bool, from, from]).expect("is defined");
    }
}

#[test]
fn a_chain_of_steps_is_rounded_where_the_steps_round() {
    let step = |op, x: &[u16]| FusedStep { op, x: SmallVec::from_slice(x) };
    let fused = Fused {
        inputs: 2,
        steps: vec![
            step(Pointwise::Binary(Binary { f: BinaryFn::Mul }), &[0, 1]),
            step(Pointwise::Unary(Unary { f: UnaryFn::Tanh }), &[2]),
            step(Pointwise::Binary(Binary { f: BinaryFn::Add }), &[3, 0]),
            step(Pointwise::Compare(Compare { f: CompareFn::Gt }), &[4, 1]),
            step(Pointwise::Where(Where), &[5, 4, 2]),
            step(Pointwise::Cast(Cast { dtype: DType::F32 }), &[6]),
        ],
        outputs: SmallVec::from_slice(&[2, 3, 4, 5]),
    };
    use DType::{BF16, F16, F32, F64};
    for dtypes in [[F16, F16], [BF16, BF16], [F32, F32], [F64, F64]] {
        let e = fused.expression(&dtypes).expect("is defined");
        compare("a chain", &OpRef::new(fused.clone()), &e, &dtypes, &inputs(&dtypes, FEW));
    }
    assert_eq!(fused.expression(&[F32]).expect_err("two inputs").kind(), ErrorKind::Arity);
}

#[test]
fn a_coefficient_of_the_wrong_sign_is_noticed() {
    for f in [UnaryFn::Exp, UnaryFn::Tanh, UnaryFn::Gelu, UnaryFn::Sigmoid, UnaryFn::Asin] {
        let (op, x) = (Unary { f }, inputs(&[DType::F32], FEW));
        let right = Pointwise::Unary(op.clone()).expression(&[DType::F32]).expect("is defined");
        let want = eval_on_host(&op, &[tensor(&x[0], DType::F32)], &Pool::new(1)).expect("is defined");
        assert_eq!(difference(&want, &right, &x), None);
        let mut tried = 0;
        for (at, node) in right.nodes.iter().enumerate() {
            let is_added = right.nodes.iter().any(|n| n.op == Op::MulAdd && n.args[2] == at as u32);
            let mut wrong = right.clone();
            match &mut wrong.nodes[at].op {
                Op::Constant(word) if is_added && *word != 0 => *word ^= 1 << (8 * node.dtype.size_bytes() - 1),
                _ => continue,
            }
            tried += 1;
            assert!(difference(&want, &wrong, &x).is_some(), "{f:?}: {node:?}");
        }
        assert!(tried > 4, "{f:?} has {tried} coefficients");
    }
}

/// The names of rows that call functions of libraries in this dtype.
fn rows_that_call(dtype: DType) -> Vec<&'static str> {
    let unary = UnaryFn::ALL.iter().map(|&f| Unary { f });
    let binary = BinaryFn::ALL.iter().map(|&f| Binary { f });
    let unary = unary.map(|op| (OpDef::label(&op), Pointwise::Unary(op).expression(&[dtype])));
    let binary = binary.map(|op| (OpDef::label(&op), Pointwise::Binary(op).expression(&[dtype, dtype])));
    let all = unary.chain(binary).filter(|(_, e)| e.as_ref().is_ok_and(|e| !calls(e).is_empty()));
    all.map(|(name, _)| name).collect()
}

#[test]
fn rows_of_f32_are_arithmetic_but_for_these() {
    let unary = ["lgamma", "digamma", "i0", "i0e", "i1", "i1e", "j0", "j1", "sin", "cos", "tan", "erfcinv"];
    let binary = ["zeta", "gammainc", "gammaincc", "gamma_slope", "gamma_log_slope", "bce"];
    let all: Vec<&str> = unary.into_iter().chain(binary).collect();
    assert_eq!(rows_that_call(DType::F32), all);
    assert_eq!(rows_that_call(DType::BF16), all);
    assert!(rows_that_call(DType::I32).is_empty());
}

#[test]
fn rows_of_f64_that_call_functions_of_libraries_are_these() {
    let unary = "exp expm1 log log1p log2 log10 exp2 lgamma digamma i0 i0e i1 i1e j0 j1 sin cos tan asin acos atan sinh cosh tanh \
                 asinh acosh atanh sigmoid logsigmoid softplus silu gelu gelu_tanh erf erfc erfinv erfcinv mish";
    let binary = "pow atan2 log_add_exp hypot zeta gammainc gammaincc gamma_slope gamma_log_slope bce_with_logits bce_slope bce elu \
                  elu_slope pow_slope_a pow_slope_b asinh_grad logsigmoid_grad softplus_grad silu_grad mish_grad gelu_grad \
                  gelu_tanh_grad erf_grad erfinv_grad";
    let all: Vec<&str> = unary.split_whitespace().chain(binary.split_whitespace()).collect();
    assert_eq!(rows_that_call(DType::F64), all);
}
