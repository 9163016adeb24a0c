//! The functions of double that stand in for those of the CPU's C library.

use remat_cuda::kernels::plan::Addresses;
use remat_cuda::kernels::{Builder, Value};
use remat_cuda::source::PRELUDE;

use crate::rig::{Rig, compiler, ptx};

const SOURCE: &str = include_str!("../../src/kernels/doubles.cuh");

/// Numbers of all sizes, and those at which the functions change their form.
fn numbers() -> Vec<f64> {
    let edges = [0.0, 1.0, -1.0, 0.5, 2.0, 709.7, 710.5, -708.0, -745.0, -746.5, 1e-300, 5e-324, 2.3e-308, f64::MAX];
    let mut out = edges.to_vec();
    out.extend([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, std::f64::consts::SQRT_2, 1.0 - f64::EPSILON]);
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for scale in [1.0, 30.0, 700.0, 1e-3, 1e-9, 1e100, 1e-310] {
        out.extend((0..2000).map(|_| (next() - 0.5) * 2.0 * scale));
    }
    out.extend((0..2000).map(|_| 1.0 + (next() - 0.5) * 1e-4));
    out
}

/// The values of a function, one for each number.
fn results(name: &str, x: &[f64]) -> Option<Vec<f64>> {
    let compiler = compiler()?;
    let mut b = Builder::new("doubles");
    b.functions(SOURCE);
    b.parameter("const double *x", Value::X(0));
    b.parameter("double *y", Value::Y(0));
    let call = b.each(x.len() as u64, &format!("y[i] = {name}(x[i]);\n")).expect("numbers");
    let mut rig = Rig::new();
    let module = rig.load(&ptx(&compiler, &(PRELUDE.to_owned() + &call.source)));
    let kernel = module.kernel(&call.name).expect("is there");
    rig.put(0, &x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
    let at = Addresses { x: &[rig.at(0)], y: &[rig.at(1)], ..Addresses::default() };
    rig.launch(&kernel, call.grid, &call.arguments(&at));
    let bytes = rig.get(1, 8 * x.len(), name);
    Some(bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect())
}

#[test]
fn functions_of_double_are_within_a_few_units_of_the_last_place() {
    type Function = fn(f64) -> f64;
    let functions: [(&str, Function); 4] =
        [("exp_f64", f64::exp), ("exp_m1_f64", f64::exp_m1), ("ln_f64", f64::ln), ("ln_1p_f64", f64::ln_1p)];
    let x = numbers();
    for (name, f) in functions {
        let Some(y) = results(name, &x) else { return };
        let mut worst = 0;
        for (x, y) in x.iter().zip(y) {
            let want = f(*x);
            assert_eq!(y.is_nan(), want.is_nan(), "{name} of {x:e}: {y:e} for {want:e}");
            if want.is_nan() {
                continue;
            }
            let ulps = (y.to_bits() as i64).wrapping_sub(want.to_bits() as i64).unsigned_abs();
            assert!(ulps <= 4 || y == want, "{name} of {x:e}: {y:e} for {want:e}, {ulps} units");
            worst = worst.max(if y == want { 0 } else { ulps });
        }
        println!("{name}: {worst} units in the last place at most, of {} numbers", x.len());
    }
}
