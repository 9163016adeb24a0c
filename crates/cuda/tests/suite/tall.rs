//! Products of more rows than a grid has blocks for along its second axis.

use remat_cuda::kernels::{Addresses, Call, Input, Operands, plan};
use remat_cuda::source::PRELUDE;
use remat_ops::OpRef;
use remat_ops::linalg::MatMul;
use remat_types::{DType, Layout, Shape, SmallVec};

use crate::rig::{Rig, compiler, ptx};

/// The most blocks along the second axis of a grid (CUDA C++ Programming Guide, "Compute Capabilities").
const MOST_BLOCKS: u32 = 65_535;

fn product(m: usize, k: usize, n: usize) -> Call {
    let [a, b] = [[m, k], [k, n]].map(|s| Layout::contiguous(Shape::from(&s[..])));
    let y = Shape::from(&[m, n][..]);
    let operands = Operands {
        x: SmallVec::from_iter([&a, &b].map(|layout| Input { dtype: DType::F32, layout })),
        y: SmallVec::from_iter([(DType::F32, &y)]),
    };
    let plan = plan(&*OpRef::from(MatMul {}), &operands).expect("is planned").expect("has a kernel");
    plan.calls.into_iter().next().expect("a launch")
}

#[test]
fn a_product_of_millions_of_rows_has_a_grid() {
    for (rows, columns) in [(1 << 21, 16), (1 << 26, 2), (1 << 23, 64)] {
        let blocks = product(rows, 16, columns).grid.blocks;
        assert!(blocks[1] <= MOST_BLOCKS && blocks[2] == 1, "{rows} rows: {blocks:?}");
    }
}

#[test]
fn blocks_go_on_to_further_rows() {
    let Some(compiler) = compiler() else { return };
    let mut rig = Rig::new();
    let (m, k, n) = (100, 3, 5);
    let mut call = product(m, k, n);
    assert_eq!(call.grid.blocks, [1, 2, 1]);
    call.grid.blocks[1] = 1;
    let [a, b]: [Vec<f32>; 2] = [m * k, k * n].map(|len| (0..len).map(|i| (i % 13) as f32 - 5.0).collect());
    let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    rig.put(0, &bytes(&a));
    rig.put(1, &bytes(&b));
    let kernel = rig.load(&ptx(&compiler, &(PRELUDE.to_owned() + &call.source))).kernel(&call.name).expect("is there");
    let (x, y) = ([rig.at(0), rig.at(1)], [rig.at(2)]);
    let at = Addresses { x: &x, y: &y, ..Addresses::default() };
    rig.launch(&kernel, call.grid, &call.arguments(&at));
    let of = |i: usize| (0..k).map(|p| a[i / n * k + p] * b[p * n + i % n]).sum::<f32>();
    let want: Vec<f32> = (0..m * n).map(of).collect();
    assert_eq!(rig.get(2, 4 * m * n, "a product"), bytes(&want));
}
