//! Every row of the pointwise tables as a source that the compiler takes.

use remat_cuda::driver::{Architecture, Compiler, Search};
use remat_cuda::source::PRELUDE;
use remat_cuda::source::expression::{c_type, statements};
use remat_kernels::scalar::Expression;
use remat_ops::pointwise::{Binary, BinaryFn, Cast, Compare, CompareFn, Pointwise, Unary, UnaryFn, Where};
use remat_types::DType;

/// The compiler, where `REMAT_NVRTC` names the folder of its library.
fn compiler() -> Option<Compiler> {
    let Some(folder) = std::env::var_os("REMAT_NVRTC") else {
        eprintln!("REMAT_NVRTC names no folder: no source is compiled");
        return None;
    };
    Some(Compiler::open(&Search::default().first(folder)).expect("the folder has the compiler"))
}

/// The functions of a dtype that are defined, each with a name.
fn functions(dtype: DType) -> Vec<(String, Expression)> {
    let unary = UnaryFn::ALL.iter().map(|f| (format!("unary_{f:?}"), Pointwise::Unary(Unary { f: *f }), vec![dtype]));
    let binary =
        BinaryFn::ALL.iter().map(|f| (format!("binary_{f:?}"), Pointwise::Binary(Binary { f: *f }), vec![dtype; 2]));
    let compare = CompareFn::ALL
        .iter()
        .map(|f| (format!("compare_{f:?}"), Pointwise::Compare(Compare { f: *f }), vec![dtype; 2]));
    let cast = DType::ALL.iter().map(|to| (format!("cast_{to}"), Pointwise::Cast(Cast { dtype: *to }), vec![dtype]));
    let choice = [("where".to_owned(), Pointwise::Where(Where), vec![DType::Bool, dtype, dtype])];
    let all = unary.chain(binary).chain(compare).chain(cast).chain(choice);
    all.filter_map(|(name, op, x)| Some((name, op.expression(&x).ok()?))).collect()
}

/// A kernel that applies a function to one element of each input; the inputs lie after one another.
fn kernel(name: &str, e: &Expression) -> Option<String> {
    let inputs: Vec<String> = (0..e.inputs.len()).map(|i| format!("x{i}[i]")).collect();
    let (body, results) = statements(e, &inputs, "v").ok()?;
    let y = e.nodes[e.results[0] as usize].dtype;
    let x: String = e.inputs.iter().enumerate().map(|(i, d)| format!("const {} *x{i}, ", c_type(*d))).collect();
    let y = c_type(y);
    Some(format!(
        "extern \"C\" __global__ void {name}({x}{y} *y) {{\nu64 i = threadIdx.x;\n{body}y[i] = {};\n}}\n",
        results[0]
    ))
}

#[test]
fn every_row_compiles_and_approximates_nothing() {
    let Some(compiler) = compiler() else { return };
    let (mut compiled, mut left_out) = (0, Vec::new());
    for dtype in DType::ALL.iter().copied() {
        let mut source = PRELUDE.to_owned();
        for (name, e) in functions(dtype) {
            match kernel(&format!("{name}_{dtype}"), &e) {
                Some(text) => {
                    source += &text;
                    compiled += 1;
                }
                None => left_out.push(format!("{name}_{dtype}")),
            }
        }
        let code =
            compiler.ptx(&format!("{dtype}.cu"), &source, Architecture::OLDEST).unwrap_or_else(|e| panic!("{e}"));
        let text = String::from_utf8_lossy(code.image());
        for line in text.lines() {
            assert!(!line.contains(".approx") && !line.contains(".ftz"), "{dtype}: {line}");
        }
    }
    left_out.sort();
    eprintln!("{compiled} compiled; a library's functions, which have no form in C yet: {}", left_out.join(", "));
    assert!(compiled > 1000, "{compiled}");
}
