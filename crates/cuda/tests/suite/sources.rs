//! Every row of the pointwise tables as a source that the compiler takes.

use remat_types::DType;

use crate::rig::{compiler, ptx};
use crate::rows::source;

#[test]
fn every_row_compiles_and_approximates_nothing() {
    let Some(compiler) = compiler() else { return };
    let (mut compiled, mut left_out) = (0, Vec::new());
    for dtype in DType::ALL {
        let (source, rows, without) = source(dtype);
        compiled += rows.len();
        left_out.extend(without);
        let code = ptx(&compiler, &source);
        let text = String::from_utf8_lossy(code.image());
        for line in text.lines() {
            assert!(!line.contains(".approx") && !line.contains(".ftz"), "{dtype}: {line}");
        }
    }
    left_out.sort();
    println!("{compiled} compiled; a library's functions, which have no form in C yet: {}", left_out.join(", "));
    assert!(compiled > 1000, "{compiled}");
}
