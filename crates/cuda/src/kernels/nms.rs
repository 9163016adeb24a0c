//! Non-maximum suppression.

use remat_ops::Op;
use remat_ops::vision::Nms;
use remat_types::{Result, SmallVec};

use super::plan::{Builder, Call, Operands, Plan, Value};
use crate::driver::Grid;
use crate::source::c_type;

/// Threads of a block.
const THREADS: u32 = 256;
/// The most words of a row: a word has 64 boxes, and each box has a row. The rows take 128 MiB.
const MOST_WORDS: u64 = 512;

/// See [`super::Family`]. Finds all pairs that overlap, and then goes through the boxes in one block.
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let Some(op) = op.as_any().downcast_ref::<Nms>() else { return Ok(None) };
    let n = o.elems(0);
    if n == 0 {
        return Ok(Some(Plan::default()));
    }
    let words = n.div_ceil(64);
    let builder = || {
        let mut b = Builder::new("nms");
        b.functions(&format!("typedef {} real;\n", c_type(o.x[0].dtype)));
        b.functions(include_str!("nms.cuh"));
        b.u64("boxes", n);
        b
    };
    let pairs = |b: &mut Builder| {
        b.x(0, o.x[0].dtype);
        b.x(1, o.x[1].dtype);
        b.parameter("double most", Value::F64(op.most.to_f64()));
    };
    let grid = |x: u64, y: u64| Grid { blocks: [x as u32, y as u32, 1], threads: [THREADS, 1, 1], shared_bytes: 0 };
    if words > MOST_WORDS {
        let mut b = builder();
        pairs(&mut b);
        b.y(0, o.y[0].0);
        return Ok(Some(b.build(grid(1, 1), "sweep_slowly(x0, x1, most, boxes, y0);\n").into()));
    }
    let mut find = builder();
    pairs(&mut find);
    find.u64("words", words);
    find.parameter("u64 *masks", Value::Workspace(0));
    let blocks = grid(words, n.div_ceil(u64::from(THREADS)));
    let mut sweep = builder();
    sweep.u64("words", words);
    sweep.parameter("const u64 *masks", Value::Workspace(0));
    sweep.y(0, o.y[0].0);
    let mut calls: SmallVec<[Call; 2]> = SmallVec::new();
    calls.push(find.build(blocks, "find_overlaps(x0, x1, most, boxes, words, masks);\n"));
    calls.push(sweep.build(grid(1, 1), &format!("sweep<{MOST_WORDS}>(masks, boxes, words, y0);\n")));
    Ok(Some(Plan { calls, workspace: (n * words * 8) as usize, ..Plan::default() }))
}
