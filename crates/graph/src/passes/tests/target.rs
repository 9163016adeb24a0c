use remat_ops::conv::{Conv2d, ConvParams};
use remat_ops::linalg::MatMul;
use remat_ops::reduce::{Reduce, ReduceFn};

use super::*;

/// A device that lacks some kernels and has no passes of its own.
struct Lacks(&'static [&'static str]);

impl Target for Lacks {
    fn supports(&self, op: &dyn Op, _x: &[&Fact]) -> bool {
        !self.0.contains(&op.name())
    }

    fn passes(&self) -> &'static [Pass] {
        &[]
    }
}

/// A product with a bias and an activation, a sum of exponentials, and a convolution.
fn work() -> Graph {
    let m = Make::new();
    let w = |dims: &[usize]| m.0.constant(&special(dims));
    let x = m.input(DType::F32, &[4, 8]);
    let y = m.op(MatMul {}, &[x, w(&[8, 8])]);
    let y = m.un(UnaryFn::Relu, m.bin(BinaryFn::Add, y, w(&[8])));
    let e = m.un(UnaryFn::Exp, m.un(UnaryFn::Neg, x));
    let sum = m.op(Reduce { f: ReduceFn::Sum, axes: SmallVec::from_slice(&[1]), keepdims: false }, &[e]);
    let image = m.input(DType::F32, &[1, 3, 9, 9]);
    let conv = m.op(Conv2d { taps: ConvParams::PLAIN }, &[image, w(&[16, 3, 3, 3])]);
    m.graph(&[y, sum, conv])
}

fn labels_on(target: &dyn Target) -> Vec<&'static str> {
    let (g, options, pool) = (work(), PassOptions { level: 3, ..Default::default() }, Pool::new(1));
    let cx = PassCx { options: &options, target, pool: &pool };
    assert_eq!(verify(&g, &data(&g), &[], &cx).expect("computes"), None);
    let mut labels: Vec<_> = optimize(g, &cx).expect("patches fit").0.nodes().iter().map(|n| n.op.label()).collect();
    labels.sort_unstable();
    labels
}

#[test]
fn a_device_is_given_no_fused_op_without_a_kernel_and_no_packed_layout_of_the_cpu() {
    assert_eq!(labels_on(&cpu::Cpu), ["conv_blocked", "from_blocked", "fused_matmul", "fused_reduce"]);
    assert_eq!(labels_on(&Lacks(&[])), ["conv2d", "fused_matmul", "fused_reduce"]);
    assert_eq!(labels_on(&Lacks(&["fused_matmul"])), ["conv2d", "fused", "fused_reduce", "matmul"]);
    assert_eq!(labels_on(&Lacks(&["fused_matmul", "fused_reduce"])), ["conv2d", "fused", "fused", "matmul", "sum"]);
    assert_eq!(
        labels_on(&Lacks(&["fused", "fused_matmul", "fused_reduce"])),
        ["add", "conv2d", "exp", "matmul", "neg", "relu", "sum"]
    );
}
